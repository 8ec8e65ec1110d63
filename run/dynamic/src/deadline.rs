//! How long a root waits for the other one.

use margay_run_engine::Clock;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

/// How long the other side is waited for: until when, and how many seconds that were at first;
/// none: without end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Deadline(Option<(u64, u64)>);

impl Deadline {
    /// Returns the deadline this many seconds from now; 0 is without end.
    pub(crate) fn seconds(seconds: u64, clock: &dyn Clock) -> Deadline {
        let until_ns = || {
            let time_ns = seconds.saturating_mul(1_000_000_000);
            clock.now_ns().saturating_add(time_ns)
        };
        Deadline((seconds != 0).then(|| (until_ns(), seconds)))
    }

    /// An error when it is over.
    pub(crate) fn check(self, clock: &dyn Clock, what: &str) -> Result<()> {
        if let Some((until_ns, seconds)) = self.0
            && clock.now_ns() >= until_ns
        {
            fail!(
                MPI_ERR_PORT,
                "no process {what} within {seconds} s; the info key timeout or MARGAY_CONNECT_TIMEOUT sets this time"
            );
        }
        Ok(())
    }
}
