//! Where a process was when it crashed: it has written that down itself, or the system has written
//! a core file.

use std::path::PathBuf;

use margay_core_registry::crash::find;
use margay_job_stacks::{Frame, Stack, crashed, written_down};
use margay_net_platform::Peers;
use margay_sys_os::crash::written;

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
        Crash::at(pid, &stack)
    }

    /// The same of the one of these processes that has written down where it was.
    #[must_use]
    pub fn written_down(processes: &[u32], peers: &dyn Peers) -> Option<Crash> {
        let note = find(peers.size(), |rank, key| peers.note(rank, key))?;
        let written = written(&note).filter(|written| processes.contains(&written.pid))?;
        Crash::at(written.pid, &written_down(&written.image, &written.maps)?)
    }

    /// In words, a line each.
    #[must_use]
    pub fn lines(&self, rank: u32) -> Vec<String> {
        let mut lines = vec![format!("rank {rank} crashed {}", self.place)];
        // One function alone is in the line above.
        if self.stack.len() > 1 {
            lines.extend(self.stack.iter().map(|frame| format!("    {frame}")));
        }
        lines
    }

    fn at(pid: u32, stack: &Stack) -> Option<Crash> {
        let line = |frame: &Frame| format!("{} {}", frame.function_text(), frame.place_text());
        Some(Crash {
            pid,
            place: stack.users()?.to_string(),
            stack: stack.users_frames().take(MOST_FRAMES).map(line).collect(),
        })
    }
}
