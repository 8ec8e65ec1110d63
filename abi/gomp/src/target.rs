//! Target regions. There is no device: they run on the host, outside the enclosing parallel
//! regions, and their data stays where it is.

use std::ffi::{c_int, c_uint, c_void};

use margay_run_openmp::environment::Offload;
use margay_sys_threads::outlined::Outlined;

use crate::task::accesses;
use margay_abi_omp::runtime::{runtime, with};
use margay_abi_omp::{Body, fatal};

/// Device numbers: that of the control variable, the host by a clause `if(false)`. The host is
/// device 0, since there is no other.
const DEFAULT: c_int = -1;
const FALLBACK: c_int = -2;
const HOST: c_int = 0;
/// Kinds of mapped data, in the low byte; the binary logarithm of the alignment is in the high one.
const KIND: u16 = 0xff;
const FIRSTPRIVATE: u16 = 0x0c;
/// Arguments of a target region: for which device, whether the value is in the next word, which it
/// is, and the value.
const DEVICE: usize = (1 << 7) - 1;
const VALUE_FOLLOWS: usize = 1 << 7;
const WHICH: usize = 0xff << 8;
const THREAD_LIMIT: usize = 2 << 8;
const VALUE_SHIFT: u32 = 16;

/// # Safety
/// `body(data)` is the target region.
unsafe fn run(body: Body, data: *mut c_void, device: c_int, limit: u32) {
    let device = match device {
        DEFAULT => with(|context| context.icv.get().device),
        device => device,
    };
    if runtime().environment.offload == Offload::Mandatory && device != FALLBACK && device != HOST {
        fatal(&format!(
            "OMP_TARGET_OFFLOAD is 'mandatory', but there is no device {device}"
        ));
    }
    // SAFETY: by the caller's promise.
    let body = unsafe { Outlined::new(body, data) };
    let icvs = &runtime().icvs;
    let icv = icvs.change(icvs.initial, |icv| {
        if limit != 0 {
            icv.thread_limit = limit;
        }
    });
    with(|context| context.as_initial(icv, |_| body.call()));
}

/// # Safety
/// `depend` is null or an array of dependences.
unsafe fn wait(depend: *const usize) {
    if !depend.is_null() {
        // SAFETY: by the caller's promise.
        let named = unsafe { accesses(depend) };
        with(|context| context.with_accesses(named, |named| context.wait_for_accesses(named)));
    }
}

/// # Safety
/// As of `run`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_target(
    device: c_int,
    body: Body,
    _unused: *const c_void,
    _count: usize,
    data: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
    // SAFETY: by the caller's promise.
    unsafe { run(body, data.cast(), device, 0) }
}

/// # Safety
/// `body(data)` is the target region; `data`, `sizes` and `kinds` have `count` elements; `depend`
/// is null or an array of dependences; `arguments` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_target_ext(
    device: c_int,
    body: Body,
    count: usize,
    data: *mut *mut c_void,
    sizes: *const usize,
    kinds: *const u16,
    _flags: c_uint,
    depend: *const usize,
    arguments: *const usize,
) {
    // SAFETY: by the caller's promise, for all that follows.
    unsafe {
        wait(depend);
        let mut copies: Vec<Vec<u8>> = Vec::new();
        for at in 0..count {
            let kind = kinds.add(at).read();
            if kind & KIND == FIRSTPRIVATE && !data.add(at).read().is_null() {
                copies.push(private_copy(
                    data.add(at),
                    sizes.add(at).read(),
                    1 << (kind >> 8),
                ));
            }
        }
        run(body, data.cast(), device, thread_limit(arguments));
    }
}

/// Copies what a region gets as `firstprivate` and lets `place` point to the copy.
///
/// # Safety
/// `place` holds the address of `size` bytes.
unsafe fn private_copy(place: *mut *mut c_void, size: usize, align: usize) -> Vec<u8> {
    let mut copy = vec![0_u8; size + align];
    let at = copy.as_mut_ptr();
    let at = at.wrapping_add(at.align_offset(align));
    // SAFETY: by the caller's promise; there is room for `size` bytes from `at` on.
    unsafe {
        std::ptr::copy_nonoverlapping((*place).cast::<u8>(), at, size);
        place.write(at.cast());
    }
    copy
}

/// # Safety
/// `arguments` is null or ends with a zero.
unsafe fn thread_limit(arguments: *const usize) -> u32 {
    if arguments.is_null() {
        return 0;
    }
    let mut at = 0;
    loop {
        // SAFETY: by the caller's promise.
        let id = unsafe { arguments.add(at).read() };
        if id == 0 {
            return 0;
        }
        at += 1;
        let mut value = id >> VALUE_SHIFT;
        if id & VALUE_FOLLOWS != 0 {
            // SAFETY: as above.
            value = unsafe { arguments.add(at).read() };
            at += 1;
        }
        if id & DEVICE == 0 && id & WHICH == THREAD_LIMIT {
            return u32::try_from(value).unwrap_or(i32::MAX as u32);
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_target_data(
    _device: c_int,
    _unused: *const c_void,
    _count: usize,
    _data: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_target_data_ext(
    _device: c_int,
    _count: usize,
    _data: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u16,
) {
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_target_end_data() {}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_target_update(
    _device: c_int,
    _unused: *const c_void,
    _count: usize,
    _data: *mut *mut c_void,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
}

macro_rules! data_calls {
    ($($name:ident)*) => {$(
        /// # Safety
        /// `depend` is null or an array of dependences.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            _device: c_int,
            _count: usize,
            _data: *mut *mut c_void,
            _sizes: *mut usize,
            _kinds: *mut u16,
            _flags: c_uint,
            depend: *const usize,
        ) {
            // SAFETY: by the caller's promise.
            unsafe { wait(depend) };
        }
    )*};
}

data_calls! { GOMP_target_update_ext GOMP_target_enter_exit_data }

/// Images for devices, of which there are none.
macro_rules! registrations {
    ($($name:ident($($argument:ident: $of:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($($argument: $of),*) {}
    )*};
}

registrations! {
    GOMP_offload_register(_table: *const c_void, _kind: c_int, _data: *const c_void);
    GOMP_offload_unregister(_table: *const c_void, _kind: c_int, _data: *const c_void);
    GOMP_offload_register_ver(_version: c_uint, _table: *const c_void, _kind: c_int, _data: *const c_void);
    GOMP_offload_unregister_ver(_version: c_uint, _table: *const c_void, _kind: c_int, _data: *const c_void);
}
