//! The machine and the files that the head was started with.

use std::path::PathBuf;

use crate::groups::Groups;

/// What the head has at hand.
#[derive(Debug)]
pub struct Resources {
    pub host: String,
    pub slots: u32,
    pub memory_mib: u64,
    /// The queue's folder.
    pub folder: PathBuf,
    /// The name of the queue, which no other one has.
    pub queue: String,
    /// In the queue of all users: the folder with what their jobs read.
    pub readable: Option<PathBuf>,
    /// This program.
    pub program: PathBuf,
    /// The words of the remote shell.
    pub shell: Vec<String>,
    /// Control groups of jobs, or why there are none.
    pub groups: Result<Groups, String>,
}
