//! Memory of our own, and how it is given back.

use std::sync::Arc;

/// What keeps memory that no user claims.
pub(super) enum Owned {
    /// A box that was given up: as long as there is one, nothing else may reach what it owns.
    Heap(*mut [u8]),
    /// Address and length of a mapping.
    Pages(usize, usize),
    /// Memory that something else keeps.
    Kept(#[allow(dead_code)] Arc<dyn Send + Sync>),
}

impl Drop for Owned {
    fn drop(&mut self) {
        match *self {
            // SAFETY: the box was given up in `from_vec`, and nobody refers to it any more.
            Owned::Heap(bytes) => drop(unsafe { Box::from_raw(bytes) }),
            Owned::Pages(at, len) => {
                // SAFETY: the mapping was made in `pages` and nobody refers to it any more.
                let _ = unsafe { rustix::mm::munmap(at as *mut _, len) };
            }
            Owned::Kept(_) => {}
        }
    }
}

// SAFETY: the addresses are used for giving the memory back alone, by the last who has it, on
// whichever thread.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}
