//! Memory that a rank shares on request (`MPI_Alloc_mem`, windows): it lies in the job's segment,
//! so every rank of the machine can load from it and store to it without a system call.
//!
//! Each rank has an arena of its own in the segment's address space and is the only one that hands
//! out its parts, so the book-keeping is private memory. First fit over a sorted list of free
//! ranges, neighbours merged; ranges of a page and more are given back to the system when freed.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::segment::Segment;
use margay_sys_os::user::Mem;

const ALIGN: u64 = 4096;

/// One rank's arena, on the side of that rank.
pub struct Arena {
    segment: Arc<Segment>,
    rank: u32,
    base: Option<NonNull<u8>>,
    /// Free ranges: start to length.
    free: BTreeMap<u64, u64>,
    /// Ranges that are in use: start to length.
    used: BTreeMap<u64, u64>,
}

// SAFETY: the base points into the segment, which is kept.
unsafe impl Send for Arena {}

impl Arena {
    /// The arena of `rank`; mapped at the first allocation.
    #[must_use]
    pub fn new(segment: &Arc<Segment>, rank: u32) -> Arena {
        Arena {
            segment: segment.clone(),
            rank,
            base: None,
            free: BTreeMap::from([(0, segment.arena_bytes())]),
            used: BTreeMap::new(),
        }
    }

    /// `bytes` of zeroed memory, page-aligned; its address. None when the arena is full or the
    /// address space cannot be had.
    pub fn alloc(&mut self, bytes: u64) -> Option<usize> {
        let base = match self.base {
            Some(base) => base,
            None => *self.base.insert(self.segment.arena(self.rank)?),
        };
        let need = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let (&start, &len) = self.free.iter().find(|&(_, &len)| len >= need)?;
        self.free.remove(&start);
        if len > need {
            self.free.insert(start + need, len - need);
        }
        self.used.insert(start, need);
        Some(base.as_ptr() as usize + start as usize)
    }

    /// Frees what [`alloc`](Self::alloc) gave. Returns false when the address is not one of those.
    pub fn free(&mut self, address: usize) -> bool {
        let Some(base) = self.base else { return false };
        let Some(start) = (address as u64).checked_sub(base.as_ptr() as u64) else {
            return false;
        };
        let Some(len) = self.used.remove(&start) else {
            return false;
        };
        self.segment.arena_discard(self.rank, start, len);
        let mut start = start;
        let mut len = len;
        if let Some((&before, &before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            self.free.remove(&before);
            start = before;
            len += before_len;
        }
        if let Some(after_len) = self.free.remove(&(start + len)) {
            len += after_len;
        }
        self.free.insert(start, len);
        true
    }

    /// Where `[address, address + len)` lies in the arena, if it does.
    #[must_use]
    pub fn offset_of(&self, address: usize, len: u64) -> Option<u64> {
        let base = self.base?.as_ptr() as u64;
        let offset = (address as u64).checked_sub(base)?;
        (offset.checked_add(len)? <= self.segment.arena_bytes()).then_some(offset)
    }
}

/// Copies `len` bytes at `offset` of the arena of `rank` to `to`. Returns false when the range is
/// not inside the arena or the arena cannot be mapped.
///
/// # Panics
/// When `to` does not cover the range.
#[must_use]
pub fn read(segment: &Segment, rank: u32, offset: u64, to: &Mem, at: i64, len: usize) -> bool {
    let inside = offset
        .checked_add(len as u64)
        .is_some_and(|end| end <= segment.arena_bytes());
    if !inside {
        return false;
    }
    let Some(base) = segment.arena(rank) else {
        return false;
    };
    // SAFETY: the range lies inside the mapping of that arena (checked), which lives as long as the
    // segment. It is copied without a reference to it: a rank that writes to its send buffer too
    // early sends other bytes.
    let from = unsafe { Mem::claim(base.as_ptr().add(offset as usize), 0, len as i64) };
    from.copy_to(0, to, at, len);
    true
}

/// `[offset, offset + bytes)` of the arena of `rank` as memory of this process. None when the range
/// is not inside the arena or the arena cannot be mapped. What is in it is the ranks' common
/// business: they say by their synchronization when who may touch it.
#[must_use]
pub fn view(segment: &Arc<Segment>, rank: u32, offset: u64, bytes: u64) -> Option<Mem> {
    if offset.checked_add(bytes)? > segment.arena_bytes() {
        return None;
    }
    let base = segment.arena(rank)?;
    // SAFETY: inside of the arena (checked), whose mapping lives as long as the segment.
    Some(unsafe { Mem::kept_by(segment.clone(), base.add(offset as usize), bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;

    fn segment() -> Arc<Segment> {
        Arc::new(
            Segment::create(Sizes {
                ranks: 2,
                heap_bytes: 1 << 20,
                arena_bytes: 4 << 20,
            })
            .unwrap(),
        )
    }

    #[test]
    fn freed_ranges_merge() {
        let mut arena = Arena::new(&segment(), 0);
        let a = arena.alloc(1 << 20).unwrap();
        let b = arena.alloc(1).unwrap();
        let c = arena.alloc(2 << 20).unwrap();
        assert!(arena.alloc(1 << 20).is_none());
        assert!(arena.free(b) && arena.free(a) && arena.free(c));
        assert!(!arena.free(a), "freed twice");
        assert!(arena.alloc(4 << 20).is_some());
    }

    #[test]
    fn a_peer_reads_what_the_owner_wrote() {
        let segment = segment();
        let peer = Segment::join(segment.fd().try_clone_to_owned().unwrap()).unwrap();
        let mut arena = Arena::new(&segment, 1);
        let address = arena.alloc(8192).unwrap();
        // SAFETY: the arena just gave us these bytes.
        let mine = unsafe { Mem::claim(address as *mut u8, 0, 8192) };
        mine.write(5000, &[1, 2, 3]);
        let offset = arena.offset_of(address, 8192).unwrap();
        let got = Mem::owned(3);
        assert!(read(&peer, 1, offset + 5000, &got, 0, 3));
        got.with_bytes(0, 3, |b| assert_eq!(b, [1, 2, 3]));
        assert!(!read(&peer, 1, 4 << 20, &got, 0, 3));
    }

    #[test]
    fn a_view_is_the_same_memory_and_stays_in_the_arena() {
        let segment = segment();
        let mut arena = Arena::new(&segment, 1);
        let address = arena.alloc(8192).unwrap();
        let (owner, offset) = segment.place_of(address + 5, 3).unwrap();
        assert_eq!((owner, offset), (1, 5));
        let peer = Arc::new(Segment::join(segment.fd().try_clone_to_owned().unwrap()).unwrap());
        view(&peer, 1, offset, 3).unwrap().write(0, &[1, 2, 3]);
        let own = view(&segment, 1, 0, 8).unwrap();
        own.with_bytes(5, 3, |b| assert_eq!(b, [1, 2, 3]));
        assert!(view(&peer, 1, segment.arena_bytes() - 1, 2).is_none());
        assert!(segment.place_of(address - 1, 1).is_none());
    }

    #[test]
    fn freed_memory_is_zero_again() {
        let mut arena = Arena::new(&segment(), 0);
        let address = arena.alloc(4096).unwrap();
        // SAFETY: the arena just gave us these bytes.
        let m = unsafe { Mem::claim(address as *mut u8, 0, 4096) };
        m.write(0, &[7; 4096]);
        assert!(arena.free(address));
        assert_eq!(arena.alloc(4096), Some(address));
        m.with_bytes(0, 4096, |b| assert!(b.iter().all(|&x| x == 0)));
    }
}
