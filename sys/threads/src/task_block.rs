//! Memory of tasks whose arguments the program writes itself, between two calls: one to get it, and
//! one to create the task.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Address and length of a block are divisible by this: the arguments may hold vectors.
pub const ALIGN: usize = 64;

/// The bytes of a block that fits most tasks.
const USUAL_BYTES: usize = 512;

/// A block of memory, of at least as many bytes as were asked for.
#[derive(Debug)]
pub struct TaskBlock {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, to which it gives no access.
unsafe impl Send for TaskBlock {}

impl TaskBlock {
    /// A block with room for `bytes`, whose content is undefined.
    #[must_use]
    pub fn new(bytes: usize) -> TaskBlock {
        let bytes = bytes.max(USUAL_BYTES).next_multiple_of(ALIGN);
        let layout = Self::layout(bytes);
        // SAFETY: not of size 0.
        let at = unsafe { alloc(layout) };
        let at = NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout));
        TaskBlock { at, bytes }
    }

    /// Whether a block of this many bytes is like most others.
    #[must_use]
    pub fn is_usual(bytes: usize) -> bool {
        bytes <= USUAL_BYTES
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN).expect("a task's arguments fit in memory")
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its memory, which now belongs to the caller.
    #[must_use]
    pub fn into_raw(self) -> *mut u8 {
        std::mem::ManuallyDrop::new(self).at.as_ptr()
    }

    /// The block again.
    ///
    /// # Safety
    /// `at` is from [`into_raw`](Self::into_raw) of a block of this many [`bytes`](Self::bytes),
    /// and used no more.
    #[must_use]
    pub unsafe fn from_raw(at: *mut u8, bytes: usize) -> TaskBlock {
        TaskBlock {
            // SAFETY: by the caller's promise.
            at: unsafe { NonNull::new_unchecked(at) },
            bytes,
        }
    }
}

impl Drop for TaskBlock {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and owned.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_room_and_comes_back() {
        for bytes in [0, 1, 512, 513, 5000] {
            let block = TaskBlock::new(bytes);
            assert!(block.bytes() >= bytes && TaskBlock::is_usual(bytes) == (block.bytes() == 512));
            let (all, at) = (block.bytes(), block.into_raw());
            assert_eq!(at.addr() % ALIGN, 0);
            // SAFETY: the block has this many bytes, and comes back once.
            unsafe {
                at.write_bytes(7, all);
                drop(TaskBlock::from_raw(at, all));
            }
        }
    }
}
