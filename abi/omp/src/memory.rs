//! Memory: allocators, and the routines for device memory, which is the host's.

use std::ffi::{c_int, c_void};
use std::ptr;

use margay_run_openmp::allocator::{self, Fallback};
use margay_sys_os::heap;

use crate::fatal;
use crate::runtime::{runtime, with};

/// What stands before a block counts in an allocator's pool.
const HEADER_BYTES: usize = size_of::<heap::Block>();

/// Memory from an allocator, 0 for that of the current task; null if there is none, or for no
/// bytes.
pub fn allocate(align: usize, size: usize, allocator: usize, is_zeroed: bool) -> *mut c_void {
    if size == 0 {
        return ptr::null_mut();
    }
    let mut allocator = match allocator {
        0 => with(|context| context.icv.get().allocator),
        allocator => allocator,
    };
    loop {
        let counted = size.saturating_add(HEADER_BYTES);
        let fallback = match runtime().allocators.reserve(allocator, counted, align) {
            Ok(align) => match heap::allocate(size, align, is_zeroed, allocator) {
                Some(at) => return at,
                None => {
                    runtime().allocators.unreserve(allocator, counted);
                    runtime().allocators.fallback(allocator)
                }
            },
            Err(fallback) => fallback,
        };
        allocator = match fallback {
            Fallback::Default => allocator::DEFAULT,
            Fallback::Other(other) if other != allocator => other,
            Fallback::Other(_) | Fallback::Null => return ptr::null_mut(),
            Fallback::Abort => fatal(&format!(
                "out of memory: {size} bytes, and the allocator's fallback is omp_atv_abort_fb"
            )),
        };
    }
}

/// Gives back memory of these functions.
///
/// # Safety
/// `at` is null or a block from these functions that nobody uses any more.
pub unsafe fn release(at: *mut c_void) {
    if !at.is_null() {
        // SAFETY: by the caller's promise.
        unsafe {
            let block = heap::describe(at);
            runtime()
                .allocators
                .unreserve(block.note, block.size.saturating_add(HEADER_BYTES));
            heap::free(at);
        }
    }
}

fn power_of_two(align: usize) -> bool {
    align.is_power_of_two()
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_alloc(size: usize, allocator: usize) -> *mut c_void {
    allocate(1, size, allocator, false)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_aligned_alloc(
    align: usize,
    size: usize,
    allocator: usize,
) -> *mut c_void {
    if !power_of_two(align) {
        return ptr::null_mut();
    }
    allocate(align, size, allocator, false)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_calloc(count: usize, size: usize, allocator: usize) -> *mut c_void {
    omp_aligned_calloc(1, count, size, allocator)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_aligned_calloc(
    align: usize,
    count: usize,
    size: usize,
    allocator: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) if power_of_two(align) => allocate(align, bytes, allocator, true),
        _ => ptr::null_mut(),
    }
}

/// # Safety
/// `at` is null or a block from these functions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_realloc(
    at: *mut c_void,
    size: usize,
    allocator: usize,
    _free_allocator: usize,
) -> *mut c_void {
    if at.is_null() {
        return allocate(1, size, allocator, false);
    }
    if size == 0 {
        // SAFETY: by the caller's promise.
        unsafe { release(at) };
        return ptr::null_mut();
    }
    // SAFETY: by the caller's promise.
    let old = unsafe { heap::describe(at) };
    // What it takes from its pool does not count while it is to be replaced.
    let counted = old.size.saturating_add(HEADER_BYTES);
    runtime().allocators.unreserve(old.note, counted);
    let new = allocate(
        1,
        size,
        if allocator == 0 { old.note } else { allocator },
        false,
    );
    if new.is_null() {
        // There was room for it before.
        let _ = runtime().allocators.reserve(old.note, counted, 1);
        return new;
    }
    // SAFETY: both blocks are at least as large as what is copied, and they are different.
    unsafe {
        ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), size.min(old.size));
        heap::free(at);
    }
    new
}

/// # Safety
/// `at` is null or a block from these functions that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_free(at: *mut c_void, _allocator: usize) {
    // SAFETY: by the caller's promise.
    unsafe { release(at) };
}

/// `omp_alloctrait_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Trait {
    key: u32,
    value: usize,
}

/// # Safety
/// `traits` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_init_allocator(
    space: usize,
    count: c_int,
    traits: *const Trait,
) -> usize {
    let count = count.max(0) as usize;
    // SAFETY: by the caller's promise.
    let pairs = (0..count).map(|at| unsafe { traits.add(at).read() });
    runtime()
        .allocators
        .make(space, pairs.map(|pair| (pair.key, pair.value)))
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_destroy_allocator(allocator: usize) {
    runtime().allocators.destroy(allocator);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_set_default_allocator(allocator: usize) {
    let allocator = if allocator == 0 {
        allocator::DEFAULT
    } else {
        allocator
    };
    with(|context| context.change_icv(|icv| icv.allocator = allocator));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_get_default_allocator() -> usize {
    with(|context| context.icv.get().allocator)
}

/// # Safety
/// The arguments can be read; `traits` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_init_allocator_(
    space: *const usize,
    count: *const i32,
    traits: *const Trait,
) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { omp_init_allocator(*space, *count, traits) }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_init_allocator_8_(
    space: *const usize,
    count: *const i64,
    traits: *const Trait,
) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { omp_init_allocator(*space, i32::try_from(*count).unwrap_or(0), traits) }
}

/// # Safety
/// The argument can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_destroy_allocator_(allocator: *const usize) {
    // SAFETY: by the caller's promise.
    omp_destroy_allocator(unsafe { *allocator });
}

/// # Safety
/// The argument can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_set_default_allocator_(allocator: *const usize) {
    // SAFETY: by the caller's promise.
    omp_set_default_allocator(unsafe { *allocator });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_get_default_allocator_() -> usize {
    omp_get_default_allocator()
}

/// The host is the only device, and its number is 0.
const HOST: c_int = 0;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_target_alloc(size: usize, device: c_int) -> *mut c_void {
    if device != HOST {
        return ptr::null_mut();
    }
    allocate(1, size.max(1), allocator::DEFAULT, false)
}

/// # Safety
/// `at` is null or from `omp_target_alloc`, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_target_free(at: *mut c_void, _device: c_int) {
    // SAFETY: by the caller's promise.
    unsafe { release(at) };
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_target_is_present(at: *const c_void, device: c_int) -> c_int {
    c_int::from(at.is_null() || device == HOST)
}

/// EINVAL
const INVALID: c_int = 22;

/// # Safety
/// `size` bytes can be read and written at the places that the offsets give.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_target_memcpy(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    if to_device != HOST || from_device != HOST {
        return INVALID;
    }
    // SAFETY: by the caller's promise.
    unsafe {
        ptr::copy(
            from.cast::<u8>().add(from_offset),
            to.cast::<u8>().add(to_offset),
            size,
        );
    }
    0
}

/// # Safety
/// The arrays have `dimensions` elements, and describe parts of arrays of `element` bytes an
/// element that can be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_target_memcpy_rect(
    to: *mut c_void,
    from: *const c_void,
    element: usize,
    dimensions: c_int,
    volume: *const usize,
    to_offsets: *const usize,
    from_offsets: *const usize,
    to_sizes: *const usize,
    from_sizes: *const usize,
    to_device: c_int,
    from_device: c_int,
) -> c_int {
    if to.is_null() && from.is_null() {
        // Asks how many dimensions are supported.
        return c_int::MAX;
    }
    if dimensions < 1 || to_device != HOST || from_device != HOST {
        return INVALID;
    }
    // SAFETY: by the caller's promise.
    let [volume, to_offsets, from_offsets, to_sizes, from_sizes] =
        [volume, to_offsets, from_offsets, to_sizes, from_sizes]
            .map(|list| unsafe { std::slice::from_raw_parts(list, dimensions as usize) });
    let last = volume.len() - 1;
    let Some(row) = volume[last].checked_mul(element) else {
        return INVALID;
    };
    let rows: usize = volume[..last].iter().product();
    let place = |row: usize, offsets: &[usize], sizes: &[usize]| {
        // The number of a row within the volume, as indices from the last dimension but one up.
        let (mut rest, mut stride, mut at) = (row, sizes[last], offsets[last]);
        for dimension in (0..last).rev() {
            at += (rest % volume[dimension] + offsets[dimension]) * stride;
            rest /= volume[dimension];
            stride *= sizes[dimension];
        }
        at * element
    };
    for number in 0..rows {
        // SAFETY: by the caller's promise.
        unsafe {
            ptr::copy(
                from.cast::<u8>()
                    .add(place(number, from_offsets, from_sizes)),
                to.cast::<u8>().add(place(number, to_offsets, to_sizes)),
                row,
            );
        }
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_target_associate_ptr(
    _host: *const c_void,
    _device: *const c_void,
    _size: usize,
    _offset: usize,
    _number: c_int,
) -> c_int {
    INVALID
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_target_disassociate_ptr(_at: *const c_void, _number: c_int) -> c_int {
    INVALID
}
