//! The lock of a target that grants it by messages: who holds it and who waits, first come first served.

use std::collections::VecDeque;

/// A lock in two classes that exclude each other; class 1 of a solo lock also excludes itself. The same rules as those of
/// [`margay_sys::window::Lock`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    solo: bool,
    holders: [u32; 2],
    /// Rank and class.
    waiting: VecDeque<(u32, usize)>,
}

impl Queue {
    pub(super) fn new(solo: bool) -> Queue {
        Queue {
            solo,
            ..Queue::default()
        }
    }

    /// `rank` asks for `class`. Returns whether it has it now; else it waits.
    pub(super) fn enter(&mut self, rank: u32, class: usize) -> bool {
        let free = self.waiting.is_empty() && self.admits(class);
        if free {
            self.holders[class] += 1;
        } else {
            self.waiting.push_back((rank, class));
        }
        free
    }

    /// One holder of `class` less. Returns who has it now.
    pub(super) fn leave(&mut self, class: usize) -> Vec<u32> {
        self.holders[class] = self.holders[class].saturating_sub(1);
        let mut admitted = Vec::new();
        while let Some(&(rank, class)) = self.waiting.front()
            && self.admits(class)
        {
            self.waiting.pop_front();
            self.holders[class] += 1;
            admitted.push(rank);
        }
        admitted
    }

    fn admits(&self, class: usize) -> bool {
        self.holders[1 - class] == 0 && !(self.solo && class == 1 && self.holders[1] > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut queue = Queue::new(true);
        assert!(queue.enter(0, 0) && queue.enter(1, 0));
        assert!(!queue.enter(2, 1));
        assert!(!queue.enter(3, 0), "does not overtake who waits");
        assert_eq!(queue.leave(0), []);
        assert_eq!(queue.leave(0), [2]);
        assert!(!queue.enter(4, 0));
        assert_eq!(queue.leave(1), [3, 4]);
    }

    #[test]
    fn a_class_that_is_not_solo_is_shared() {
        let mut queue = Queue::new(false);
        assert!(queue.enter(0, 1) && queue.enter(1, 1));
        assert!(!queue.enter(2, 0));
        assert_eq!(queue.leave(1), []);
        assert_eq!(queue.leave(1), [2]);
    }
}
