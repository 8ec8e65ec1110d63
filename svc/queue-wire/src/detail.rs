//! All that is known of a job, and what may be changed of one that waits.

use margay_core_queue::{Dependency, JobId, Wishes};
use serde::{Deserialize, Serialize};

use crate::{Bytes, JobRow};

/// Why a job waits, as other batch systems class it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    Held,
    Dependency,
    /// A dependency can no longer be met.
    Never,
    ArrayLimit,
    /// It is not yet its time.
    BeginTime,
    /// Its queue starts no jobs.
    Stopped,
    /// A limit of its queue, or the budget of its account.
    Limit,
    Reservation,
    /// It is the first of the queue, and too little is free.
    Resources,
    /// Others come first.
    Priority,
}

/// All that is known of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Detail {
    pub row: JobRow,
    /// The array's number and the index in it.
    pub array: Option<(JobId, u32)>,
    pub user: String,
    /// What it asks for, without the indices of its array.
    pub wishes: Wishes,
    /// Where it was submitted.
    pub directory: Bytes,
    /// The program and its arguments, or those of the script.
    pub command: Vec<Bytes>,
    pub is_script: bool,
    /// Absolute paths of its output.
    pub stdout: Bytes,
    pub stderr: Bytes,
    pub priority: i64,
    pub is_held: bool,
    pub after: Vec<Dependency>,
    /// Why it waits, if it does.
    pub cause: Option<Cause>,
    /// When it is expected to start, in seconds since 1970.
    pub expected: Option<u64>,
}

/// What is changed of jobs that wait: what is not none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub name: Option<String>,
    pub limit_s: Option<Option<u64>>,
    pub priority: Option<i64>,
    pub account: Option<String>,
}
