//! Masks of processors, and which of them the calling thread may use: Intel's routines.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use margay_sys_os::cpu;
use margay_sys_threads::border::inside;
use margay_sys_threads::tls_block::natively;

/// What a `kmp_affinity_mask_t` refers to: the processors in it.
type Mask = BTreeSet<usize>;

/// Processors that masks can hold: as many as the kernel's fixed-size set.
const PROCESSORS: c_int = 1024;

const DONE: c_int = 0;
const REFUSED: c_int = -1;

/// # Safety
/// `mask` holds a mask that was created and not destroyed, and nobody else uses it now.
unsafe fn mask_of<'a>(mask: *mut *mut c_void) -> &'a mut Mask {
    // SAFETY: by the caller's promise.
    unsafe { &mut *(*mask).cast::<Mask>() }
}

/// # Safety
/// `mask` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_create_affinity_mask(mask: *mut *mut c_void) {
    // SAFETY: by the caller's promise.
    inside(|| unsafe { mask.write(Box::into_raw(Box::<Mask>::default()).cast()) });
}

/// # Safety
/// As of `mask_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_destroy_affinity_mask(mask: *mut *mut c_void) {
    // SAFETY: by the caller's promise.
    inside(|| unsafe {
        drop(Box::from_raw((*mask).cast::<Mask>()));
        mask.write(std::ptr::null_mut());
    });
}

/// The calling thread may use these processors from now on. In a region that is the thread which
/// runs the member now, until a member with a place runs there.
///
/// # Safety
/// As of `mask_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_set_affinity(mask: *mut *mut c_void) -> c_int {
    // SAFETY: by the caller's promise.
    let processors: Vec<usize> = unsafe { mask_of(mask) }.iter().copied().collect();
    let is_bound = natively(|| cpu::bind_thread(0, &processors).is_ok());
    if is_bound { DONE } else { REFUSED }
}

/// # Safety
/// As of `mask_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kmp_get_affinity(mask: *mut *mut c_void) -> c_int {
    inside(|| {
        // SAFETY: by the caller's promise.
        let mask = unsafe { mask_of(mask) };
        mask.clear();
        mask.extend(cpu::affinity());
    });
    DONE
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_get_affinity_max_proc() -> c_int {
    PROCESSORS
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_get_affinity_max_proc_() -> c_int {
    PROCESSORS
}

/// For threads that the program has bound itself: nothing is kept about them.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kmp_set_thread_affinity_mask_initial() {}

fn change(processor: c_int, f: impl FnOnce(usize) -> c_int) -> c_int {
    match usize::try_from(processor) {
        Ok(number) if processor < PROCESSORS => inside(|| f(number)),
        _ => REFUSED,
    }
}

/// Routines for one processor of a mask; for C, for the compilers, and for Fortran.
macro_rules! of_processor {
    ($($name:ident $call:ident $fortran:ident ($mask:ident, $number:ident) $body:block)*) => {$(
        /// # Safety
        /// As of `mask_of`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(processor: c_int, mask: *mut *mut c_void) -> c_int {
            // SAFETY: by the caller's promise.
            let $mask = unsafe { mask_of(mask) };
            change(processor, |$number| $body)
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $call(processor: c_int, mask: *mut *mut c_void) -> c_int {
            // SAFETY: by the caller's promise.
            unsafe { $name(processor, mask) }
        }

        /// # Safety
        /// As above; the number can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(processor: *const c_int, mask: *mut *mut c_void) -> c_int {
            // SAFETY: by the caller's promise.
            unsafe { $name(*processor, mask) }
        }
    )*};
}

of_processor! {
    kmp_set_affinity_mask_proc kmpc_set_affinity_mask_proc kmp_set_affinity_mask_proc_ (mask, number) {
        mask.insert(number);
        DONE
    }
    kmp_unset_affinity_mask_proc kmpc_unset_affinity_mask_proc kmp_unset_affinity_mask_proc_ (mask, number) {
        mask.remove(&number);
        DONE
    }
    kmp_get_affinity_mask_proc kmpc_get_affinity_mask_proc kmp_get_affinity_mask_proc_ (mask, number) {
        c_int::from(mask.contains(&number))
    }
}

macro_rules! for_fortran {
    ($($fortran:ident $name:ident -> $of:ty;)*) => {$(
        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(mask: *mut *mut c_void) -> $of {
            // SAFETY: by the caller's promise.
            unsafe { $name(mask) }
        }
    )*};
}

for_fortran! {
    kmp_create_affinity_mask_ kmp_create_affinity_mask -> ();
    kmp_destroy_affinity_mask_ kmp_destroy_affinity_mask -> ();
    kmp_set_affinity_ kmp_set_affinity -> c_int;
    kmp_get_affinity_ kmp_get_affinity -> c_int;
}
