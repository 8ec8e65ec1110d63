//! The lock of a target that grants it by messages: which ranks hold it and which wait, first come
//! first served.

use std::collections::VecDeque;

/// A lock in two classes that exclude each other; class 1 of a solo lock also excludes itself. The
/// same rules as those of [`margay_sys_shm::window::Lock`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    solo: bool,
    /// Ranks, by class.
    holders: [Vec<u32>; 2],
    /// Rank and class.
    waiting: VecDeque<(u32, usize)>,
    /// A rank that has died as a holder.
    lost: Option<u32>,
}

/// What becomes of a rank that asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    Waits,
    /// This rank has died as a holder.
    Refused(u32),
}

impl Queue {
    pub(super) fn new(solo: bool) -> Queue {
        Queue {
            solo,
            ..Queue::default()
        }
    }

    /// `rank` asks for `class`.
    pub(super) fn enter(&mut self, rank: u32, class: usize) -> Asked {
        if self.waiting.is_empty() && self.take(rank, class) {
            return Asked::Granted;
        }
        if let Some(holder) = self.lost {
            return Asked::Refused(holder);
        }
        self.waiting.push_back((rank, class));
        Asked::Waits
    }

    /// `rank` does not hold `class` any more. Returns the ranks that have got the lock now.
    pub(super) fn leave(&mut self, rank: u32, class: usize) -> Vec<u32> {
        if let Some(at) = self.holders[class].iter().position(|&r| r == rank) {
            self.holders[class].swap_remove(at);
        }
        self.admit()
    }

    /// Notes that `rank` has died. Returns the ranks that get an answer now, and the answer.
    pub(super) fn lose(&mut self, rank: u32) -> Vec<(u32, Asked)> {
        self.waiting.retain(|&(waiting, _)| waiting != rank);
        if self.holders.iter().any(|ranks| ranks.contains(&rank)) {
            self.lost = Some(rank);
        }
        let mut answers: Vec<_> = self
            .admit()
            .into_iter()
            .map(|r| (r, Asked::Granted))
            .collect();
        if let Some(holder) = self.lost {
            for (rank, class) in std::mem::take(&mut self.waiting) {
                let asked = match self.take(rank, class) {
                    true => Asked::Granted,
                    false => Asked::Refused(holder),
                };
                answers.push((rank, asked));
            }
        }
        answers
    }

    fn admit(&mut self) -> Vec<u32> {
        let mut admitted = Vec::new();
        while let Some(&(rank, class)) = self.waiting.front()
            && self.take(rank, class)
        {
            self.waiting.pop_front();
            admitted.push(rank);
        }
        admitted
    }

    /// Makes `rank` a holder if the others admit it.
    fn take(&mut self, rank: u32, class: usize) -> bool {
        let free = |class: usize| self.holders[class].is_empty();
        let admitted = free(1 - class) && (free(1) || !(self.solo && class == 1));
        if admitted {
            self.holders[class].push(rank);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::Asked::{Granted, Refused, Waits};
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut queue = Queue::new(true);
        assert_eq!(queue.enter(0, 0), Granted);
        assert_eq!(queue.enter(1, 0), Granted);
        assert_eq!(queue.enter(2, 1), Waits);
        assert_eq!(
            queue.enter(3, 0),
            Waits,
            "does not overtake a rank that waits"
        );
        assert_eq!(queue.leave(0, 0), []);
        assert_eq!(queue.leave(1, 0), [2]);
        assert_eq!(queue.enter(4, 0), Waits);
        assert_eq!(queue.leave(2, 1), [3, 4]);
    }

    #[test]
    fn a_class_that_is_not_solo_is_shared() {
        let mut queue = Queue::new(false);
        assert_eq!(queue.enter(0, 1), Granted);
        assert_eq!(queue.enter(1, 1), Granted);
        assert_eq!(queue.enter(2, 0), Waits);
        assert_eq!(queue.leave(0, 1), []);
        assert_eq!(queue.leave(1, 1), [2]);
    }

    #[test]
    fn nobody_waits_for_the_dead() {
        let mut queue = Queue::new(true);
        assert_eq!(queue.enter(0, 0), Granted);
        assert_eq!(queue.enter(1, 1), Waits);
        assert_eq!(queue.enter(2, 0), Waits);
        assert_eq!(queue.lose(1), [(2, Granted)], "it only waited");
        assert_eq!(queue.enter(3, 1), Waits);
        assert_eq!(queue.enter(4, 0), Waits);
        let answers = [(3, Refused(2)), (4, Granted)];
        assert_eq!(queue.lose(2), answers, "the one as the dead has it");
        assert_eq!(queue.enter(5, 0), Granted);
        assert_eq!(queue.enter(3, 1), Refused(2));
    }
}
