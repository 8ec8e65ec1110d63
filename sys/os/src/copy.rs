//! Copies of bytes that keep clear of a slow case of the C library.
//!
//! From some 2 KiB to the size of the second cache glibc copies with one instruction, `rep movsb`.
//! On AMD's Zen 3 and later it moves a byte in a cycle when the destination lies 1 to 31 bytes
//! behind the source modulo 4 KiB ([glibc bug 30994]): 4 KiB take 1.35 µs instead of 0.05, 256 KiB
//! 89 µs instead of 6.5. That is a common case here, because long memory from `malloc` begins 16
//! bytes behind the start of a page, and shared memory at its start. Such copies go block by block
//! from the end, so that no load follows a store to the same place of a page: 0.16 and 10.5 µs.
//! Intel's processors do not have that case, and copy blocks at half the speed of the instruction.
//!
//! The kernel copies with that instruction too, whatever the length: 1 MiB of another process in
//! 430 µs instead of 100. [`crate::cma`] goes by memory in between then, and takes 150.
//!
//! [glibc bug 30994]: https://sourceware.org/bugzilla/show_bug.cgi?id=30994

use std::hint::cold_path;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use crate::processor;

/// Lengths in bytes that glibc copies with `rep movsb`.
const BY_INSTRUCTION: Range<usize> = 2112..1 << 20;
/// Distances of the destination from the source, modulo [`PAGE`], for which that is slow.
const SLOW: Range<usize> = 1..32;
const PAGE: usize = 4096;

/// What is loaded before it is stored.
type Block = MaybeUninit<[u128; 4]>;

/// Whether a copy of `len` bytes between these addresses, of this process or another, is slow with
/// `rep movsb` on this processor.
#[inline]
pub(crate) fn is_slow(from: usize, to: usize, len: usize) -> bool {
    lies_badly(from, to, len) && processor::is_amd()
}

/// Whether it is on one of AMD's.
#[inline]
fn lies_badly(from: usize, to: usize, len: usize) -> bool {
    len >= BY_INSTRUCTION.start && SLOW.contains(&(to.wrapping_sub(from) % PAGE))
}

/// Memory between a source and a destination for which a copy is slow: it is not to here, nor from
/// here.
pub(crate) struct Between {
    memory: Vec<MaybeUninit<u8>>,
    start: usize,
}

impl Between {
    /// Bytes that are copied at a time; whole pages, so that the distances stay.
    pub(crate) const LEN: usize = 16 * PAGE;

    /// For `len` bytes from `from` on, or [`LEN`](Self::LEN) if these are less.
    pub(crate) fn new(from: usize, len: usize) -> Between {
        let memory = Vec::with_capacity(len.min(Self::LEN) + PAGE);
        let base: *const MaybeUninit<u8> = memory.as_ptr();
        // Two lines behind the source: the destination then lies before it.
        let start = (from.wrapping_add(2 * SLOW.end)).wrapping_sub(base.addr()) % PAGE;
        Between { memory, start }
    }

    /// Where it begins.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.start).cast()
    }
}

/// Copies all of `from` to `to`.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "bytes to copy");
    // SAFETY: both are `len` bytes.
    unsafe { copy_bytes(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

/// Copies `len` bytes that may overlap.
///
/// # Safety
/// `len` bytes must be readable at `from` and writable at `to`.
#[inline]
pub(crate) unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    if len < BY_INSTRUCTION.end && is_slow(from.addr(), to.addr(), len) {
        cold_path();
        // SAFETY: by the contract.
        unsafe { copy_from_the_end(from, to, len) }
    } else {
        // SAFETY: by the contract; memmove, since the user may pass overlapping buffers.
        unsafe { ptr::copy(from, to, len) }
    }
}

/// # Safety
/// As for [`copy_bytes`].
#[inline(never)]
unsafe fn copy_from_the_end(from: *const u8, to: *mut u8, len: usize) {
    let mut left = len;
    // Where the source lies behind the destination and overlaps it, its end would be overwritten.
    if from.addr().wrapping_sub(to.addr()) >= len {
        while left >= size_of::<Block>() {
            left -= size_of::<Block>();
            // SAFETY: by the contract; the block ends at most at `len`. Any bytes are a block.
            unsafe {
                let block = from.add(left).cast::<Block>().read_unaligned();
                to.add(left).cast::<Block>().write_unaligned(block);
            }
        }
    }
    // SAFETY: by the contract.
    unsafe { ptr::copy(from, to, left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_all_distances_and_overlaps_are_exact() {
        let lengths = [0, 1, 63, 64, 2111, 2112, 2177, 4096, 9000];
        let starts = [0usize, 1, 8, 16, 31, 32, 33, 2048, 4095, 4096, 4112, 8191];
        for len in lengths {
            for from in starts {
                for to in starts {
                    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
                    let mut copied = bytes.clone();
                    let mut expected = bytes.clone();
                    expected.copy_within(from..from + len, to);
                    let base = copied.as_mut_ptr();
                    // SAFETY: 8,191 and 9,000 bytes are inside of 20,000.
                    unsafe { copy_bytes(base.add(from), base.add(to), len) };
                    assert!(copied == expected, "{len} bytes from {from} to {to}");
                    // What processors of AMD's do.
                    copied.copy_from_slice(&bytes);
                    let base = copied.as_mut_ptr();
                    // SAFETY: the same.
                    unsafe { copy_from_the_end(base.add(from), base.add(to), len) };
                    assert!(copied == expected, "{len} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn memory_in_between_is_slow_for_neither_copy() {
        let base = 7 << 20;
        for from in 0..PAGE {
            for behind in SLOW {
                let (from, to) = (base + from, 2 * base + from + behind);
                assert!(lies_badly(from, to, PAGE));
                let between = Between::new(from, PAGE).start().addr();
                assert!(!lies_badly(from, between, PAGE) && !lies_badly(between, to, PAGE));
            }
        }
    }

    #[test]
    fn slices_are_copied_whole() {
        let from: Vec<u8> = (0..6000u32).map(|i| i as u8).collect();
        for at in [0, 1, 16, 64] {
            let mut to = vec![0; 6000 + at];
            copy(&from, &mut to[at..]);
            assert_eq!(to[at..], from);
        }
    }
}
