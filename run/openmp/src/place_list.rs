//! The places of a process, which MLP may replace before the first region.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use margay_sys_os::static_ref::StaticRef;

/// Places, each a list of processors.
type List = Vec<Vec<usize>>;

/// The places in force. Lists are kept for good; there are as many as a program uses different
/// ones.
#[derive(Debug)]
pub struct PlaceList {
    current: StaticRef<List>,
    kept: Mutex<Vec<&'static List>>,
}

impl PlaceList {
    pub(crate) fn new(places: List) -> PlaceList {
        let list = PlaceList {
            current: StaticRef::none(),
            kept: Mutex::default(),
        };
        list.replace(places);
        list
    }

    /// The places. Each list of processors has an address of its own for good.
    #[inline]
    #[must_use]
    pub fn all(&self) -> &'static [Vec<usize>] {
        self.current
            .get(Ordering::Acquire)
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn replace(&self, places: List) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let list = kept.iter().find(|list| ***list == places).copied();
        let list = list.unwrap_or_else(|| {
            let list: &'static List = Box::leak(Box::new(places));
            kept.push(list);
            list
        });
        self.current.set(Some(list), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one() {
        let places = PlaceList::new(vec![vec![0], vec![1]]);
        let first = places.all();
        places.replace(vec![vec![1]]);
        assert_eq!(places.all(), [vec![1]]);
        places.replace(vec![vec![0], vec![1]]);
        assert!(std::ptr::eq(first, places.all()));
    }
}
