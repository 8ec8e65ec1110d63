//! A file whose last name is gone keeps its space until its clients give their references back,
//! and a kernel does that a moment after its answer. Who finds no space waits for those moments:
//! otherwise a program that deletes a file and then writes would be refused now and then.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::Store;
use crate::array::lock;
use crate::fault::Result;

/// A client that has not given a reference back for this long, although somebody waits for it, has
/// the file open. It counts from the begin of a wait: on a busy host the service itself may not
/// have run since the name went.
const MOST_WAIT: Duration = Duration::from_millis(500);

/// Files without names that clients know, but for those that were waited for in vain.
#[derive(Debug, Default)]
pub struct Leaving {
    files: Mutex<HashSet<u64>>,
    left: Condvar,
}

impl Leaving {
    /// Notes a file that has lost its last name.
    pub fn begin(&self, ino: u64) {
        lock(&self.files).insert(ino);
    }

    /// Notes that a file has gone, and what it had is freed.
    pub fn end(&self, ino: u64) {
        if lock(&self.files).remove(&ino) {
            self.left.notify_all();
        }
    }

    /// Waits until files that have lost their names are gone, a short time. Those that stay are not
    /// waited for again.
    pub fn wait(&self) {
        let files = lock(&self.files);
        let those = files.clone();
        let waited = self
            .left
            .wait_timeout_while(files, MOST_WAIT, |files| !files.is_disjoint(&those));
        let (mut files, end) = waited.unwrap_or_else(PoisonError::into_inner);
        if end.timed_out() {
            files.retain(|ino| !those.contains(ino));
        }
    }
}

impl Store {
    /// Frees what was deleted and gives its space back, for somebody who found none. No lock of
    /// names or rows may be held.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.leaving.wait();
        self.commit()?;
        self.give_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_needs_room_waits_for_files_that_go_and_not_for_those_that_stay() {
        let leaving = Leaving::default();
        leaving.wait();
        for ino in 1..=1000 {
            leaving.begin(ino);
            leaving.end(ino);
        }
        leaving.begin(1001);
        thread::scope(|scope| {
            scope.spawn(|| leaving.end(1001));
            leaving.wait();
        });
        assert!(lock(&leaving.files).is_empty());
        // One that stays is known no longer.
        leaving.begin(1002);
        leaving.wait();
        assert!(lock(&leaving.files).is_empty());
    }
}
