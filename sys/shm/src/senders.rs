//! Who has begun to send to a rank, and where the pipe of each lies.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::layout::senders_bytes;
use crate::ring::RingPlace;
use crate::segment::Segment;

impl Segment {
    /// The list of those who send to `rank`.
    ///
    /// # Panics
    /// When `rank` is not in the job.
    #[must_use]
    #[inline]
    pub fn senders(&self, rank: u32) -> SenderList<'_> {
        let ranks = self.layout.ranks;
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let at = self.layout.senders_offset + u64::from(rank) * senders_bytes(ranks);
        // SAFETY: the layout was checked to have all lists inside the mapping; each starts
        // with a count on its own line, then one pipe offset for every rank, then the order of
        // arrival, all of them atomics.
        unsafe {
            let start = self.at(at);
            let n = ranks as usize;
            SenderList {
                segment: self.id(),
                count: start.cast::<AtomicU32>().as_ref(),
                pipes: std::slice::from_raw_parts(start.add(64).cast().as_ptr(), n),
                order: std::slice::from_raw_parts(start.add(64 + 8 * n).cast().as_ptr(), n),
            }
        }
    }
}

/// Those who send to one rank: who they are, in the order in which they began, and where the pipe
/// of each lies. Grows, never shrinks, so polling costs what is active.
#[derive(Clone, Copy, Debug)]
pub struct SenderList<'a> {
    /// The id of the segment.
    segment: u64,
    count: &'a AtomicU32,
    pipes: &'a [AtomicU64],
    order: &'a [AtomicU32],
}

impl<'a> SenderList<'a> {
    /// How many send to this rank so far.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        self.count
            .load(Ordering::Acquire)
            .min(self.pipes.len() as u32)
    }

    /// Whether nobody sends to this rank yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter itself, for a poller that keeps it at hand.
    #[must_use]
    pub fn counter(&self) -> &'a AtomicU32 {
        self.count
    }

    /// The sender at place `index` in the order of beginning and the place of its pipe. None
    /// while the entry is still being written.
    #[must_use]
    pub fn sender(&self, index: u32) -> Option<(u32, RingPlace)> {
        let sender = self
            .order
            .get(index as usize)?
            .load(Ordering::Acquire)
            .checked_sub(1)?;
        let offset = self.pipes.get(sender as usize)?.load(Ordering::Acquire);
        let segment = self.segment;
        (offset != 0).then_some((sender, RingPlace { segment, offset }))
    }

    /// Enters the pipe of `sender`; call once for each sender.
    ///
    /// # Panics
    /// When it lies in another segment.
    pub fn announce(&self, sender: u32, pipe: RingPlace) {
        assert_eq!(pipe.segment, self.segment, "a pipe of this segment");
        self.pipes[sender as usize].store(pipe.offset, Ordering::Release);
        let place = self.count.fetch_add(1, Ordering::AcqRel);
        // Beyond the list only where the counter has been overwritten.
        if let Some(entry) = self.order.get(place as usize) {
            entry.store(sender + 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ring::RingPlace;
    use crate::segment::Segment;
    use crate::segment::tests::small;

    fn pipe(s: &Segment, offset: u64) -> RingPlace {
        let segment = s.id();
        RingPlace { segment, offset }
    }

    #[test]
    fn senders_are_listed_in_the_order_of_beginning() {
        let s = small(4);
        let senders = s.senders(1);
        assert!(senders.is_empty());
        senders.announce(3, pipe(&s, 4096));
        senders.announce(0, pipe(&s, 8192));
        assert_eq!(senders.len(), 2);
        assert_eq!(senders.sender(0), Some((3, pipe(&s, 4096))));
        assert_eq!(senders.sender(1), Some((0, pipe(&s, 8192))));
        assert_eq!(senders.sender(2), None);
    }

    #[test]
    fn a_counter_that_a_peer_has_overwritten_reaches_nothing_outside() {
        let s = small(2);
        s.senders(0)
            .counter()
            .store(7, std::sync::atomic::Ordering::Relaxed);
        s.senders(0).announce(1, pipe(&s, 4096));
        assert_eq!(s.senders(0).len(), 2);
    }
}
