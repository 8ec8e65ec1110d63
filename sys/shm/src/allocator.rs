//! Memory of the segment: the heap, which only grows, and the arena of each rank.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::layout::{BoardTable, PAGE};
use crate::mapping::{self, Mapping};
use crate::segment::Segment;

impl Segment {
    /// Takes `bytes` of zeroed memory from the heap, aligned to a page when it is at least 64 KiB
    /// long, else to a pair of cache lines. The heap never shrinks. None when the address space is
    /// used up.
    #[must_use]
    pub fn heap_alloc(&self, bytes: u64) -> Option<u64> {
        let align = if bytes >= 64 << 10 { PAGE } else { 128 };
        let next = &self.header().heap_next.0;
        let mut at = next.load(Ordering::Relaxed);
        loop {
            // Checked: the counter may hold anything.
            let start = at
                .max(self.layout.heap_offset)
                .checked_next_multiple_of(align)?;
            let end = start.checked_add(bytes.checked_next_multiple_of(64)?)?;
            if end > self.layout.heap_end {
                return None;
            }
            match next.compare_exchange_weak(at, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(start),
                Err(now) => at = now,
            }
        }
    }

    /// Bytes of the heap that have not been taken yet.
    #[must_use]
    pub fn heap_left(&self) -> u64 {
        let next = self.header().heap_next.0.load(Ordering::Relaxed);
        self.layout.heap_end.saturating_sub(next)
    }

    /// Bytes of the heap that have been taken so far.
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        let next = self.header().heap_next.0.load(Ordering::Relaxed);
        next.saturating_sub(self.layout.heap_offset)
    }

    /// The table of boards, at the start of the heap. None when the heap is too short for it.
    pub(crate) fn boards(&self) -> Option<&BoardTable> {
        let at = self.heap_at(self.layout.heap_offset, size_of::<BoardTable>() as u64, 128)?;
        // SAFETY: inside the heap, aligned (checked), kept free of allocations by `create`; zeroed
        // memory is an empty table of atomics.
        Some(unsafe { at.cast::<BoardTable>().as_ref() })
    }

    /// The address in this process of `[offset, offset + bytes)` of the heap, checked.
    pub(crate) fn heap_at(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let inside = offset >= self.layout.heap_offset && end <= self.layout.heap_end;
        // SAFETY: the range lies inside the heap.
        (inside && offset.is_multiple_of(align)).then(|| unsafe { self.at(offset) })
    }

    /// Length of every rank's arena in bytes.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.layout.arena_stride
    }

    /// The address of a rank's arena in this process; maps it at the first call. None when the
    /// kernel refuses the address space (`ulimit -v`).
    pub(crate) fn arena(&self, rank: u32) -> Option<NonNull<u8>> {
        let place = self.arenas.get(rank as usize)?;
        if let Some(known) = place.get() {
            return Some(known.base());
        }
        let new = Mapping::new(&self.fd, self.arena_at(rank), self.arena_bytes() as usize).ok()?;
        new.advise_huge();
        // Where another thread was faster, its mapping stays and this one goes.
        let _ = place.set(new);
        place.get().map(Mapping::base)
    }

    /// The arena in which `[address, address + bytes)` of this process lies, and where in it; none
    /// for memory outside of the arenas that are mapped.
    #[must_use]
    pub fn place_of(&self, address: usize, bytes: u64) -> Option<(u32, u64)> {
        (0u32..).zip(&self.arenas).find_map(|(rank, place)| {
            let base = place.get()?.base().as_ptr() as usize;
            let offset = (address as u64).checked_sub(base as u64)?;
            let end = offset.checked_add(bytes)?;
            (end <= self.arena_bytes()).then_some((rank, offset))
        })
    }

    /// Gives the pages of `[offset, offset + bytes)` of a rank's arena back to the system.
    pub(crate) fn arena_discard(&self, rank: u32, offset: u64, bytes: u64) {
        mapping::discard(&self.fd, self.arena_at(rank) + offset, bytes);
    }

    /// Where in the file the arena of a rank begins.
    fn arena_at(&self, rank: u32) -> u64 {
        self.layout.arena_offset + u64::from(rank) * self.layout.arena_stride
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::Sizes;
    use crate::segment::Segment;

    #[test]
    fn a_counter_that_a_peer_has_overwritten_gives_no_memory_outside() {
        let s = Segment::create(Sizes {
            ranks: 2,
            heap_bytes: 1 << 20,
            arena_bytes: 0,
        })
        .unwrap();
        assert_eq!(s.heap_alloc(u64::MAX), None);
        let next = &s.header().heap_next.0;
        next.store(u64::MAX - 5, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(s.heap_alloc(64), None);
    }

    #[test]
    fn the_heap_ends_with_none_and_never_overlaps() {
        let s = Segment::create(Sizes {
            ranks: 1,
            heap_bytes: 1 << 20,
            arena_bytes: 1 << 21,
        })
        .unwrap();
        let a = s.heap_alloc(100).unwrap();
        let b = s.heap_alloc(70_000).unwrap();
        assert!(b >= a + 128 && b.is_multiple_of(4096));
        assert_eq!(s.heap_alloc(64 << 20), None);
        assert!(s.heap_at(b, 5000, 64).is_some());
        assert!(s.heap_at(0, 64, 64).is_none());
        assert!(s.heap_at(u64::MAX - 8, 64, 64).is_none());
    }
}
