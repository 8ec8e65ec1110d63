//! Several who write the rows of one file together, each parts of all of them, do not keep step.
//! Rows that one has begun far ahead of the others would wait in memory until they are written in
//! part, and again when they are complete. So who begins a row while many wait lets the others
//! complete one first, as long as that happens.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::array::lock;

/// How long a row is waited for.
const MOST_WAIT: Duration = Duration::from_millis(2);

/// Rows of which it is known at a time that they were completed from parts.
const MOST_KNOWN: u32 = 16;

/// Who completes rows of a file.
#[derive(Debug, Default)]
pub struct Pace {
    rows: Mutex<Rows>,
    completed: Condvar,
}

#[derive(Debug, Default)]
struct Rows {
    /// All that were ever completed.
    count: u64,
    /// How likely another one is: waits in vain make it less.
    known: u32,
}

impl Pace {
    /// Notes that parts have completed a row.
    pub fn complete(&self) {
        let mut rows = lock(&self.rows);
        rows.count += 1;
        rows.known = (rows.known + 1).min(MOST_KNOWN);
        drop(rows);
        self.completed.notify_all();
    }

    /// Waits for another row, a short time, if rows are being completed.
    pub fn wait(&self) {
        let rows = lock(&self.rows);
        let before = rows.count;
        if rows.known == 0 {
            return;
        }
        let waited = self
            .completed
            .wait_timeout_while(rows, MOST_WAIT, |rows| rows.count == before);
        let (mut rows, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if rows.count == before {
            rows.known /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_waits_only_while_rows_are_completed() {
        let pace = Pace::default();
        // Nobody has completed any: it returns at once.
        pace.wait();
        assert_eq!(lock(&pace.rows).known, 0);
        (0..20).for_each(|_| pace.complete());
        assert_eq!(lock(&pace.rows).known, MOST_KNOWN);
        // In vain, until that is known.
        (0..5).for_each(|_| pace.wait());
        let rows = lock(&pace.rows);
        assert_eq!((rows.known, rows.count), (0, 20));
    }
}
