//! The ranks of an agent's host, while they are stopped for the turn of another application.

use std::time::{Duration, Instant};

use margay_sys_os::process::{continue_descendants, stop_descendants};

use super::wire::{Writer, kind};

/// Processes that come while the ranks are stopped are looked for from this on, then less and less
/// often.
const FIRST_SWEEP: Duration = Duration::from_millis(1);
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Whether they are stopped.
#[derive(Debug, Default)]
pub(super) struct Halt {
    /// When processes that have come since are looked for, and how long after that again.
    sweep: Option<(Instant, Duration)>,
}

impl Halt {
    /// When it wants to be asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.sweep.map(|(at, _)| at)
    }

    /// Stops all below the guard, or continues them; returns the answer for the relay.
    pub(super) fn obey(&mut self, is_stop: bool, guard: Option<u32>) -> Vec<u8> {
        if is_stop {
            self.sweep = Some((Instant::now(), FIRST_SWEEP));
            self.sweep(guard);
            return Writer::new(kind::HALT).done();
        }
        self.sweep = None;
        if let Some(guard) = guard {
            continue_descendants(guard);
        }
        Vec::new()
    }

    /// Stops what has come since.
    pub(super) fn sweep(&mut self, guard: Option<u32>) {
        let now = Instant::now();
        let Some((_, pause)) = self.sweep.filter(|(at, _)| now >= *at) else {
            return;
        };
        if let Some(guard) = guard {
            stop_descendants(guard);
        }
        self.sweep = Some((now + pause, (pause * 2).min(LAST_SWEEP)));
    }
}
