//! A file whose last name is gone keeps its space until its clients give their references back,
//! and a kernel does that a moment after its answer. Who finds no space waits for those moments:
//! otherwise a program that deletes a file and then writes would be refused now and then.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Store;
use crate::array::lock;
use crate::fault::Result;

/// A client that has not given a reference back for this long has the file open.
const MOST_WAIT: Duration = Duration::from_millis(200);

/// Files without names that clients know.
#[derive(Debug, Default)]
pub struct Leaving {
    files: Mutex<Files>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Files {
    /// When the last names went, not longer ago than is waited for.
    begun: VecDeque<(Instant, u64)>,
    /// Those of them that are still there.
    known: HashSet<u64>,
}

impl Files {
    fn drop_old(&mut self, now: Instant) {
        while let Some((begun, ino)) = self.begun.front().copied()
            && begun + MOST_WAIT <= now
        {
            self.begun.pop_front();
            self.known.remove(&ino);
        }
    }
}

impl Leaving {
    /// Notes a file that has lost its last name.
    pub fn begin(&self, ino: u64) {
        let now = Instant::now();
        let mut files = lock(&self.files);
        files.drop_old(now);
        files.begun.push_back((now, ino));
        files.known.insert(ino);
    }

    /// Notes that a file has gone.
    pub fn end(&self, ino: u64) {
        if lock(&self.files).known.remove(&ino) {
            self.left.notify_all();
        }
    }

    /// Waits until files that have just lost their names are gone, a short time.
    pub fn wait(&self) {
        let mut files = lock(&self.files);
        loop {
            let now = Instant::now();
            files.drop_old(now);
            let last = files.begun.back().map(|(begun, _)| *begun + MOST_WAIT);
            let Some(last) = last.filter(|_| !files.known.is_empty()) else {
                return;
            };
            let waited = self.left.wait_timeout(files, last - now);
            (files, _) = waited.unwrap_or_else(PoisonError::into_inner);
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
        assert!(lock(&leaving.files).known.is_empty());
        // One that stays is known no longer.
        leaving.begin(1002);
        leaving.wait();
        let files = lock(&leaving.files);
        assert!(files.known.is_empty() && files.begun.is_empty());
    }
}
