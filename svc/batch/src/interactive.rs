//! Interactive jobs: a job whose program is an attendant of this program's, which runs what the
//! command sends it, with a pseudo-terminal or with pipes, and passes bytes between both. The job
//! is a job like others: it waits for room, has its time limit, and is cancelled in the same way;
//! when the command goes, the attendant ends it.

mod allocation;
mod attendant;
mod frames;
mod session;

pub use allocation::{ATTEND, Allocation, attended_by, is_interactive};
pub use attendant::attend;
pub use frames::Program;
pub use session::{Outcome, hold, run, wait_for};
