//! Memory that the user claims to own, and memory of our own that looks the same.
//!
//! A buffer that is passed to a message-passing call is an allegation: the user says that the bytes
//! which the call's count and datatype reach are there and stay there until the operation is
//! complete. [`Mem`] carries that allegation (after Hubris' `USlice`): it is made in one place, by
//! the unsafe [`Mem::claim`] in an ABI shim, with the range of bytes that may be touched. From
//! there on every access is checked against the range, so safe code can move the bytes.
//!
//! **What a claim promises and what it does not.** The bytes are mapped, and readable and writable
//! as far as the operation reads and writes, until it is complete: without that nothing is safe,
//! and only who is given the pointer can promise it, so making a claim is unsafe. That nobody else
//! touches the bytes meanwhile is what the standard asks of the program, but programs err (a buffer
//! that is sent and received into at once, two operands that overlap), windows are made for ranks
//! that write to the same memory, and claims are cloned. So almost all access is by copies between
//! addresses, never through a reference: copies that overlap are those of `memmove`, and one that
//! meets another thread's write brings some of either bytes. The reduction kernels and the system's
//! calls want slices; [`Mem::with_bytes`], [`Mem::with_bytes_mut`] and [`Piece::with_bytes`] lend
//! them, for the time of one closure. For this time the caller keeps to a rule that no type checks:
//! what is in the closure accesses the same bytes through nothing else than the slice. Two operands
//! are lent by [`Mem::with_operands`], which sees to it that they are apart. A check of the rule (a
//! list of what is lent, asked by every access of every thread) would cost each message of a few
//! bytes a good part of its time, and would find nothing in the code above that reading its dozen
//! closures does not.

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::copy::copy_bytes;
use crate::sweep::Sweep;

mod copies;
mod owned;

use copies::{copy_alternating, copy_words};
use owned::Owned;

/// A base address and the bytes around it that may be touched. Cloning is cheap.
#[derive(Clone)]
pub struct Mem {
    base: usize,
    /// Reachable bytes are `[base + lo, base + hi)`.
    lo: i64,
    hi: i64,
    keep: Option<Arc<Owned>>,
}

/// Bytes in one piece: a claim like that of a [`Mem`]. Two words, so it passes through calls in
/// registers. (A claim that goes through memory is written as words and copied as vectors, and such
/// a load waits until all stores before it are done, those to a line that another core has
/// included.)
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    base: usize,
    len: usize,
}

impl Piece {
    /// Takes the user's word for `[base, base + len)`.
    ///
    /// # Safety
    /// As [`Mem::claim`], until the last copy is gone and the last [`Mem`] that was made of one.
    #[must_use]
    #[inline(always)]
    pub unsafe fn claim(base: *mut u8, len: usize) -> Piece {
        Piece {
            base: base as usize,
            len,
        }
    }

    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn size(self) -> usize {
        self.len
    }

    /// `len` of its bytes from `start` on.
    ///
    /// # Panics
    /// When it has fewer.
    #[must_use]
    #[inline(always)]
    pub fn part(self, start: usize, len: usize) -> Piece {
        let end = start.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{start}..+{len} of {}",
            self.len
        );
        Piece {
            base: self.base + start,
            len,
        }
    }

    /// Lends the bytes to `f`.
    #[inline(always)]
    pub fn with_bytes<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        // One call of `f`, which is then a part of its caller.
        let bytes = match self.len {
            0 => &[],
            // SAFETY: by the claim the bytes are readable; that nobody writes there meanwhile is
            // the rule above (`user`).
            len => unsafe { std::slice::from_raw_parts(self.base as *const u8, len) },
        };
        f(bytes)
    }

    /// Copies as much of `from` as there is room for to the start.
    #[inline(always)]
    pub fn write(self, from: &[u8]) {
        let len = from.len().min(self.len);
        // SAFETY: by the claim the bytes are writable; `from` may overlap them.
        unsafe { copy_bytes(from.as_ptr(), self.base as *mut u8, len) };
    }

    /// The same claim as memory.
    #[must_use]
    #[inline]
    pub fn mem(self) -> Mem {
        Mem {
            base: self.base,
            lo: 0,
            hi: self.len as i64,
            keep: None,
        }
    }
}

impl Mem {
    /// Takes the user's word for `[base + lo, base + hi)`.
    ///
    /// # Safety
    /// Until the last clone is dropped and the last [`Piece`] is gone, those bytes must be
    /// readable, writable if anything is written through the result, and not be accessed by others
    /// in a way that conflicts. That is what MPI asks of the caller for the duration of an
    /// operation.
    #[must_use]
    pub unsafe fn claim(base: *mut u8, lo: i64, hi: i64) -> Mem {
        Mem {
            base: base as usize,
            lo,
            hi: hi.max(lo),
            keep: None,
        }
    }

    /// No bytes at all.
    #[must_use]
    pub const fn empty() -> Mem {
        Mem {
            base: 0,
            lo: 0,
            hi: 0,
            keep: None,
        }
    }

    /// `bytes` of zeroed memory of our own, freed with the last clone.
    #[must_use]
    pub fn owned(bytes: usize) -> Mem {
        Mem::from_vec(vec![0; bytes])
    }

    /// As [`owned`](Self::owned); none when the system has no more.
    #[must_use]
    pub fn try_owned(bytes: usize) -> Option<Mem> {
        let layout = Layout::array::<u8>(bytes).ok()?;
        if bytes == 0 {
            return Some(Mem::owned(0));
        }
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return None;
        }
        // SAFETY: from the global allocator, with the layout of a vector of that capacity, and all
        // bytes are 0.
        Some(Mem::from_vec(unsafe {
            Vec::from_raw_parts(base, bytes, bytes)
        }))
    }

    /// The contents of `bytes` as memory of our own, freed with the last clone.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Mem {
        let hi = bytes.len() as i64;
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        Mem {
            base: bytes.cast::<u8>().expose_provenance(),
            lo: 0,
            hi,
            keep: Some(Arc::new(Owned::Heap(bytes))),
        }
    }

    /// `bytes` of zeroed pages of our own, given back to the system with the last clone; none where
    /// the system refuses. Pages that are never touched cost nothing.
    #[must_use]
    pub fn pages(bytes: usize) -> Option<Mem> {
        let len = bytes.max(1);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing of
        // ours.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.ok()?;
        Some(Mem {
            base: at as usize,
            lo: 0,
            hi: bytes as i64,
            keep: Some(Arc::new(Owned::Pages(at as usize, len))),
        })
    }

    /// `bytes` at `at`, in memory that `keeper` keeps; so do the clones.
    ///
    /// # Safety
    /// The bytes must stay readable and writable as long as `keeper` lives.
    pub unsafe fn kept_by(keeper: Arc<dyn Send + Sync>, at: NonNull<u8>, bytes: u64) -> Mem {
        Mem {
            base: at.as_ptr() as usize,
            lo: 0,
            hi: bytes as i64,
            keep: Some(Arc::new(Owned::Kept(keeper))),
        }
    }

    /// The base address, for comparisons and for other processes.
    #[must_use]
    pub fn address(&self) -> usize {
        self.base
    }

    /// Bytes that may be touched.
    #[must_use]
    pub fn reach(&self) -> usize {
        self.hi.wrapping_sub(self.lo) as usize
    }

    /// Whether this is memory of our own of which there is no other clone. Only of use where clones
    /// are dropped and asked for under one lock.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.keep
            .as_ref()
            .is_some_and(|keep| Arc::strong_count(keep) == 1)
    }

    /// `len` bytes from `offset` on as a piece; None for memory of our own, which a piece would not
    /// keep.
    ///
    /// # Panics
    /// When the range is not covered by the claim.
    #[must_use]
    #[inline]
    pub fn piece(&self, offset: i64, len: usize) -> Option<Piece> {
        if self.keep.is_some() {
            return None;
        }
        Some(Piece {
            base: self.at(offset, len) as usize,
            len,
        })
    }

    /// Bytes that may be touched from the base on.
    #[must_use]
    #[inline]
    pub fn room(&self) -> u64 {
        self.hi.max(0) as u64
    }

    /// Whether `[offset, offset + len)` may be touched.
    #[must_use]
    #[inline(always)]
    pub fn covers(&self, offset: i64, len: usize) -> bool {
        // A length without a place among signed numbers is longer than all that is claimed.
        let signed = len as i64;
        len == 0
            || (signed > 0
                && offset >= self.lo
                && offset.checked_add(signed).is_some_and(|end| end <= self.hi))
    }

    /// The same claim with the base moved by `by` bytes.
    #[must_use]
    pub fn shifted(&self, by: i64) -> Mem {
        Mem {
            base: self.base.wrapping_add_signed(by as isize),
            lo: self.lo.saturating_sub(by),
            hi: self.hi.saturating_sub(by),
            keep: self.keep.clone(),
        }
    }

    /// This claim of the user's and `next`, which begins where it ends, as one.
    #[must_use]
    pub fn joined(&self, next: &Mem) -> Option<Mem> {
        let end = |mem: &Mem, edge: i64| mem.base.wrapping_add_signed(edge as isize);
        let touch = end(self, self.hi) == end(next, next.lo);
        let claimed = self.keep.is_none() && next.keep.is_none();
        (touch && claimed).then(|| Mem {
            hi: self.hi + (next.hi - next.lo),
            ..self.clone()
        })
    }

    /// Copies from `offset` on into `to`.
    ///
    /// # Panics
    /// When the range is not covered by the claim.
    #[inline]
    pub fn read(&self, offset: i64, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: `at` checked the range against the claim; `to` is ours. memmove semantics are
        // asked for since the user may pass overlapping buffers.
        unsafe { copy_bytes(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    /// When the range is not covered by the claim.
    #[inline]
    pub fn write(&self, offset: i64, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: as in `read`.
        unsafe { copy_bytes(from.as_ptr(), to, from.len()) };
    }

    /// Copies `len` bytes from `offset` on to `at` of another memory. Up to 16 bytes in powers of
    /// two go in one piece, as a program that looks at a flag which another rank writes expects.
    ///
    /// # Panics
    /// When a range is not covered by its claim.
    #[inline]
    pub fn copy_to(&self, offset: i64, to: &Mem, at: i64, len: usize) {
        let from = self.at(offset, len);
        let to = to.at(at, len);
        // SAFETY: `at` checked both ranges.
        unsafe { copy_words(from, to, len) };
    }

    /// As [`copy_to`](Self::copy_to), for memory that mostly stays in the caches of this core from
    /// one call to the next: from the end if the call before with this `sweep` was of the same
    /// memory.
    ///
    /// # Panics
    /// When a range is not covered by its claim.
    pub fn copy_alternating(&self, offset: i64, to: &Mem, at: i64, len: usize, sweep: &Sweep) {
        let from = self.at(offset, len);
        let to = to.at(at, len);
        // SAFETY: `at` checked both ranges.
        unsafe { copy_alternating(from, to, len, sweep) };
    }

    /// Copies a piece to `offset`, as [`copy_alternating`](Self::copy_alternating) does. Returns
    /// false, and copies nothing, when the range is not covered by the claim: one check for those
    /// who would ask [`covers`](Self::covers) before.
    #[inline(always)]
    #[must_use]
    pub fn put(&self, offset: i64, from: Piece, sweep: &Sweep) -> bool {
        let Some(to) = self.within(offset, from.len) else {
            return false;
        };
        // SAFETY: `within` checked the one range, the piece's claim covers the other.
        unsafe { copy_alternating(from.base as *const u8, to, from.len, sweep) };
        true
    }

    /// Fills a piece from `offset` on, as [`copy_alternating`](Self::copy_alternating) does.
    /// Returns false, and copies nothing, when the range is not covered by the claim.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, offset: i64, to: Piece, sweep: &Sweep) -> bool {
        let Some(from) = self.within(offset, to.len) else {
            return false;
        };
        // SAFETY: as in `put`.
        unsafe { copy_alternating(from, to.base as *mut u8, to.len, sweep) };
        true
    }

    /// Copies `count` blocks of `block` bytes, `stride` bytes from start to start, the first at
    /// `offset`, one after the other into `to`.
    ///
    /// # Panics
    /// When a block is not covered by the claim or `to` is not as long as the blocks together.
    pub fn gather(&self, offset: i64, block: usize, count: usize, stride: i64, to: &mut [u8]) {
        let base = self.strided(offset, block, count, stride, to.len());
        let mut out = to.as_mut_ptr();
        macro_rules! words {
            ($t:ty) => {
                for i in 0..count {
                    // SAFETY: `strided` checked the first and the last block, all others lie
                    // between them; `out` stays inside `to`, whose length is block * count.
                    unsafe {
                        let from = base
                            .wrapping_offset(i as isize * stride as isize)
                            .cast::<$t>();
                        out.cast::<$t>().write_unaligned(from.read_unaligned());
                        out = out.add(size_of::<$t>());
                    }
                }
            };
        }
        match block {
            4 => words!(u32),
            8 => words!(u64),
            16 => words!(u128),
            _ => {
                for i in 0..count {
                    // SAFETY: as above.
                    unsafe {
                        copy_bytes(
                            base.wrapping_offset(i as isize * stride as isize),
                            out,
                            block,
                        );
                        out = out.add(block);
                    }
                }
            }
        }
    }

    /// Copies words of `size` bytes (4, 8 or 16), each from its offset beside `base`, one after the
    /// other into `to`.
    ///
    /// # Panics
    /// When a word is not covered by the claim, the size is another one, or `to` is not as long as
    /// the words together.
    pub fn gather_words(&self, base: i64, size: usize, offsets: &[i64], to: &mut [u8]) {
        let within = self.words(base, size, offsets, to.len());
        macro_rules! words {
            ($t:ty) => {
                for (&offset, to) in offsets.iter().zip(to.as_chunks_mut().0) {
                    let at: *const $t = within(offset).cast();
                    // SAFETY: `within` checked that the word is covered.
                    *to = unsafe { at.read_unaligned() }.to_ne_bytes();
                }
            };
        }
        match size {
            4 => words!(u32),
            8 => words!(u64),
            _ => words!(u128),
        }
    }

    /// The reverse of [`gather_words`](Self::gather_words).
    ///
    /// # Panics
    /// As [`gather_words`](Self::gather_words).
    pub fn scatter_words(&self, base: i64, size: usize, offsets: &[i64], from: &[u8]) {
        let within = self.words(base, size, offsets, from.len());
        macro_rules! words {
            ($t:ty) => {
                for (&offset, from) in offsets.iter().zip(from.as_chunks().0) {
                    let at: *mut $t = within(offset).cast();
                    // SAFETY: `within` checked that the word is covered.
                    unsafe { at.write_unaligned(<$t>::from_ne_bytes(*from)) };
                }
            };
        }
        match size {
            4 => words!(u32),
            8 => words!(u64),
            _ => words!(u128),
        }
    }

    /// From the offset of a word of that many bytes beside `base` to its address, which panics when
    /// the claim does not cover it.
    #[inline(always)]
    fn words(
        &self,
        base: i64,
        size: usize,
        offsets: &[i64],
        bytes: usize,
    ) -> impl Fn(i64) -> *mut u8 {
        let words = offsets.len();
        assert!(
            matches!(size, 4 | 8 | 16) && Some(bytes) == size.checked_mul(words),
            "{words} words of {size} bytes, {bytes} bytes"
        );
        let last = self.reach().checked_sub(size);
        assert!(
            words == 0 || last.is_some(),
            "no word of {size} bytes is covered"
        );
        let (last, low) = (last.unwrap_or(0), base.wrapping_sub(self.lo));
        let first = self.base.wrapping_add_signed(self.lo as isize);
        move |offset| {
            let at = offset.wrapping_add(low) as usize;
            assert!(at <= last, "a word at {offset} is outside of the claim");
            first.wrapping_add(at) as *mut u8
        }
    }

    /// The reverse of [`gather`](Self::gather): distributes `from` over the blocks.
    ///
    /// # Panics
    /// As [`gather`](Self::gather).
    pub fn scatter(&self, offset: i64, block: usize, count: usize, stride: i64, from: &[u8]) {
        let base = self.strided(offset, block, count, stride, from.len());
        let mut next = from.as_ptr();
        macro_rules! words {
            ($t:ty) => {
                for i in 0..count {
                    // SAFETY: as in `gather`.
                    unsafe {
                        let to = base
                            .wrapping_offset(i as isize * stride as isize)
                            .cast::<$t>();
                        to.write_unaligned(next.cast::<$t>().read_unaligned());
                        next = next.add(size_of::<$t>());
                    }
                }
            };
        }
        match block {
            4 => words!(u32),
            8 => words!(u64),
            16 => words!(u128),
            _ => {
                for i in 0..count {
                    // SAFETY: as in `gather`.
                    unsafe {
                        copy_bytes(
                            next,
                            base.wrapping_offset(i as isize * stride as isize),
                            block,
                        );
                        next = next.add(block);
                    }
                }
            }
        }
    }

    /// Lends the bytes to `f`.
    ///
    /// # Panics
    /// When the range is not covered by the claim.
    #[inline]
    pub fn with_bytes<R>(&self, offset: i64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = match len {
            0 => &[],
            // SAFETY: `at` checks the range against the claim; that nobody writes there meanwhile
            // is the rule above (`user`).
            _ => unsafe { std::slice::from_raw_parts(self.at(offset, len), len) },
        };
        f(bytes)
    }

    /// Lends the bytes to `f` for changing.
    ///
    /// # Panics
    /// When the range is not covered by the claim.
    #[inline]
    pub fn with_bytes_mut<R>(&self, offset: i64, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let bytes = match len {
            0 => &mut [],
            // SAFETY: as in `with_bytes`; that nobody else accesses the bytes meanwhile is the same
            // rule.
            _ => unsafe { std::slice::from_raw_parts_mut(self.at(offset, len), len) },
        };
        f(bytes)
    }

    /// Lends `len` bytes from `offset` on to `f` for changing, and as many of `input` from `from`
    /// on for reading. Of operands that overlap, which no standard allows, the input is read from a
    /// copy.
    ///
    /// # Panics
    /// When a range is not covered by its claim.
    #[inline]
    pub fn with_operands<R>(
        &self,
        offset: i64,
        input: &Mem,
        from: i64,
        len: usize,
        f: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> R {
        let apart = self
            .at(offset, len)
            .addr()
            .abs_diff(input.at(from, len).addr())
            >= len;
        if apart {
            return self.with_bytes_mut(offset, len, |inout| {
                input.with_bytes(from, len, |input| f(inout, input))
            });
        }
        let mut copy = vec![0; len];
        input.read(from, &mut copy);
        self.with_bytes_mut(offset, len, |inout| f(inout, &copy))
    }

    /// Address of a covered range.
    #[inline(always)]
    pub fn at(&self, offset: i64, len: usize) -> *mut u8 {
        match self.within(offset, len) {
            Some(at) => at,
            None => panic!(
                "bytes {offset}..+{len} are outside of the claimed {}..{}",
                self.lo, self.hi
            ),
        }
    }

    #[inline(always)]
    fn within(&self, offset: i64, len: usize) -> Option<*mut u8> {
        self.covers(offset, len)
            .then(|| self.base.wrapping_add_signed(offset as isize) as *mut u8)
    }

    fn strided(
        &self,
        offset: i64,
        block: usize,
        count: usize,
        stride: i64,
        packed: usize,
    ) -> *mut u8 {
        let all = block.checked_mul(count);
        assert_eq!(all, Some(packed), "packed length of a strided copy");
        if count == 0 {
            return self.base as *mut u8;
        }
        let last = (count as i64 - 1)
            .checked_mul(stride)
            .and_then(|reach| offset.checked_add(reach))
            .expect("a strided run fits into the address space");
        let _ = self.at(last, block);
        self.at(offset, block)
    }
}

impl fmt::Debug for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mem({:#x}, {}..{})", self.base, self.lo, self.hi)
    }
}

/// A copy of numbers in memory of the C library's, which the program gets and frees; null when
/// there is none left.
#[must_use]
pub fn malloc_copy(values: &[i64]) -> *mut i64 {
    // SAFETY: `malloc` gives that much memory, aligned for numbers, or null; the copy stays inside.
    unsafe {
        let at = libc::malloc(size_of_val(values).max(1)).cast::<i64>();
        if !at.is_null() {
            std::ptr::copy_nonoverlapping(values.as_ptr(), at, values.len());
        }
        at
    }
}

#[cfg(test)]
mod tests;
