//! What members keep to use again, and exchange: those that run tasks for others get what these
//! need for new ones.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// As many as a member takes at a time, beside the one that it needs.
const SOME: usize = 63;

/// What no member keeps.
#[derive(Debug)]
pub struct Spare<T> {
    free: Mutex<Vec<T>>,
    most: usize,
}

impl<T> Spare<T> {
    /// Keeps no more than this many, or a few.
    pub fn new(most: usize) -> Spare<T> {
        Spare {
            free: Mutex::default(),
            most,
        }
    }

    /// One, and some more into `kept`, which is empty.
    #[cold]
    pub fn get_some(&self, kept: &mut Vec<T>) -> Option<T> {
        let mut free = self.lock();
        let one = free.pop();
        let left = free.len();
        kept.extend(free.drain(left.saturating_sub(SOME)..));
        one
    }

    /// Takes the older half of `kept`.
    #[cold]
    pub fn put_half(&self, kept: &mut Vec<T>) {
        let half = kept.drain(..kept.len() / 2);
        let mut free = self.lock();
        if free.len() < self.most {
            free.extend(half);
        }
    }

    pub fn put(&self, one: T) {
        self.lock().push(one);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_and_some_come_back() {
        let spare = Spare::new(500);
        let mut kept: Vec<_> = (0..400).collect();
        spare.put_half(&mut kept);
        assert_eq!(kept[0], 200);
        let mut other = Vec::new();
        assert_eq!(spare.get_some(&mut other), Some(199));
        assert_eq!((other.len(), other[SOME - 1]), (SOME, 198));
        for _ in 0..9 {
            spare.put_half(&mut (0..400).collect());
        }
        assert!(spare.lock().len() < 700);
        spare.put(7);
        assert_eq!(spare.get_some(&mut Vec::new()), Some(7));
    }
}
