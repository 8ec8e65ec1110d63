//! Memory for the program, from the system's allocator, with a description in front of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

/// The system's allocator for a library's own memory. Without memory it calls a function that ends
/// the program, where the standard library would abort and leave a core file.
#[derive(Debug)]
pub struct CheckedAllocator {
    /// Gets how many bytes were asked for. Must not allocate.
    pub fail: fn(usize) -> !,
}

// SAFETY: all is left to the system's allocator; a null pointer is never returned.
unsafe impl GlobalAlloc for CheckedAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise, which is the same.
        self.checked(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.checked(unsafe { System.realloc(block, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) };
    }
}

impl CheckedAllocator {
    #[inline]
    fn checked(&self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() {
            (self.fail)(size);
        }
        block
    }
}

/// What stands before each block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Block {
    base: *mut c_void,
    /// Bytes that were asked for.
    pub size: usize,
    /// What the caller has noted.
    pub note: usize,
    mark: usize,
}

/// Tells a block from memory that did not come from here.
const MARK: usize = 0x4d61_7267_6179_4d65;

/// `size` bytes at an address divisible by `align`, a power of two; none when the system has no
/// more.
#[must_use]
pub fn allocate(size: usize, align: usize, is_zeroed: bool, note: usize) -> Option<*mut c_void> {
    let align = align.max(16);
    let room = size_of::<Block>().checked_add(align)?.checked_add(size)?;
    // SAFETY: allocating touches nothing of ours.
    let base = unsafe {
        if is_zeroed {
            libc::calloc(1, room)
        } else {
            libc::malloc(room)
        }
    };
    if base.is_null() {
        return None;
    }
    let first = (base as usize + size_of::<Block>()).next_multiple_of(align);
    let at = base.wrapping_byte_add(first - base as usize);
    let block = Block {
        base,
        size,
        note,
        mark: MARK,
    };
    // SAFETY: the description fits between `base` and `at`, whose address is divisible by 16.
    unsafe { at.cast::<Block>().sub(1).write(block) };
    Some(at)
}

/// What is known of a block.
///
/// # Safety
/// `at` comes from [`allocate`] and has not been freed.
///
/// # Panics
/// When the description in front of it is not one.
#[must_use]
pub unsafe fn describe(at: *mut c_void) -> Block {
    // SAFETY: `allocate` has written it there.
    let block = unsafe { at.cast::<Block>().sub(1).read() };
    assert!(
        block.mark == MARK,
        "memory that is freed or grown did not come from omp_alloc, or what stands before it was overwritten"
    );
    block
}

/// Gives a block back.
///
/// # Safety
/// As of [`describe`]; it is not used afterwards.
pub unsafe fn free(at: *mut c_void) {
    // SAFETY: by the caller's promise.
    unsafe {
        let block = describe(at);
        at.cast::<Block>().sub(1).cast::<usize>().add(3).write(0);
        libc::free(block.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_described() {
        for align in [1, 16, 64, 4096] {
            let at = allocate(100, align, true, 7).unwrap();
            assert!((at as usize).is_multiple_of(align));
            // SAFETY: the block is live, and zeroed.
            unsafe {
                let block = describe(at);
                assert_eq!((block.size, block.note), (100, 7));
                assert_eq!(at.cast::<[u8; 100]>().read(), [0; 100]);
                free(at);
            }
        }
        assert!(allocate(usize::MAX - 20, 16, false, 0).is_none());
    }
}
