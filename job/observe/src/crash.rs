//! Where a process was when it crashed, from the core file that the system has written.

use std::path::PathBuf;

use margay_job_stacks::{Frame, crashed};

pub use margay_job_stacks::are_written as core_files_are_written;

/// Functions that are named, the innermost ones.
const MOST_FRAMES: usize = 16;

/// Where a process was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Which process.
    pub pid: u32,
    /// The innermost function of the program itself, in words: `at mesh.c:88 in smooth()`.
    pub place: String,
    /// The functions of the program, the innermost first: `smooth() mesh.c:88`.
    pub stack: Vec<String>,
}

impl Crash {
    /// Looks for a core file of the first one possible of some processes that have crashed and were
    /// started in these folders. None when there is none, or it cannot be read, or it names nothing
    /// of the program.
    #[must_use]
    pub fn of(processes: &[u32], folders: &[PathBuf]) -> Option<Crash> {
        let (pid, stack) = crashed(processes, folders)?;
        let line = |frame: &Frame| format!("{} {}", frame.function_text(), frame.place_text());
        Some(Crash {
            pid,
            place: stack.users()?.to_string(),
            stack: stack.users_frames().take(MOST_FRAMES).map(line).collect(),
        })
    }
}
