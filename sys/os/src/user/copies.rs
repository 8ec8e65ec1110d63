//! Copies of claimed memory: words in one piece, long ones from the end where that is better.

use std::hint::cold_path;
use std::mem::MaybeUninit;

use crate::copy::copy_bytes;
use crate::sweep::{Sweep, from_the_end};

/// Copies `len` bytes that may overlap. Up to 16 bytes in powers of two go in one piece.
///
/// # Safety
/// `len` bytes must be readable at `from` and writable at `to`.
#[inline(always)]
pub(super) unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    macro_rules! word {
        ($t:ty) => {
            // SAFETY: by the contract; the word has `len` bytes, which may hold anything: pointers,
            // and bytes never written.
            unsafe {
                to.cast::<MaybeUninit<$t>>()
                    .write_unaligned(from.cast::<MaybeUninit<$t>>().read_unaligned())
            }
        };
    }
    if len != 8 {
        // The length of most short messages takes a comparison and not a jump by a table.
        cold_path();
    }
    match len {
        8 => word!(u64),
        4 => word!(u32),
        1 => word!(u8),
        2 => word!(u16),
        16 => word!(u128),
        // SAFETY: by the contract.
        _ => unsafe { copy_bytes(from, to, len) },
    }
}

/// As [`copy_words`], from the end if that is better ([`crate::sweep`]).
///
/// # Safety
/// As for [`copy_words`].
#[inline(always)]
pub(super) unsafe fn copy_alternating(from: *const u8, to: *mut u8, len: usize, sweep: &Sweep) {
    if sweep.is_reversed(to.addr(), from.addr(), len) {
        // SAFETY: by the contract.
        unsafe { copy_back(from, to, len) }
    } else {
        // SAFETY: by the contract.
        unsafe { copy_words(from, to, len) }
    }
}

/// As [`copy_words`], from the end.
///
/// # Safety
/// As for [`copy_words`].
#[inline(never)]
unsafe fn copy_back(from: *const u8, to: *mut u8, len: usize) {
    // Of overlapping bytes, the block that is copied first would overwrite others.
    let block = match from.addr().abs_diff(to.addr()) < len {
        true => len,
        false => (len / 3).next_multiple_of(64).clamp(16 << 10, 64 << 10),
    };
    for range in from_the_end(len, block) {
        // SAFETY: by the contract; the range is part of `0..len`.
        unsafe { copy_bytes(from.add(range.start), to.add(range.start), range.len()) };
    }
}
