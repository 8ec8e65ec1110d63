//! A job as the scheduler sees it.

use serde::{Deserialize, Serialize};

/// The number of a job; each task of an array has its own. Numbers rise as jobs are accepted.
pub type JobId = u64;

/// Which end of another job a dependency waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum After {
    /// It has started.
    Start,
    /// It has ended with exit code 0.
    Ok,
    /// It has ended otherwise.
    NotOk,
    /// It has ended in any way.
    Any,
}

/// What a job waits for: the job, or all tasks of the array, of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub after: After,
    pub job: JobId,
    /// Of the array that begins with this number only the first task is meant.
    #[serde(default)]
    pub is_task: bool,
}

/// What dependencies name: a number, and whether only the job that has it is meant.
pub type Awaited = (JobId, bool);

impl Dependency {
    /// One on a job, or all tasks of an array.
    #[must_use]
    pub fn on(after: After, job: JobId) -> Dependency {
        let is_task = false;
        Dependency {
            after,
            job,
            is_task,
        }
    }

    /// What is waited for.
    #[must_use]
    pub fn awaited(self) -> Awaited {
        (self.job, self.is_task)
    }
}

/// What a job waits for that names tasks of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDependency {
    pub after: After,
    pub array: JobId,
    /// None for the task with the number that the waiting one has in its own array.
    pub task: Option<u32>,
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With an exit code.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// At its time limit.
    TimeLimit,
    /// Its processes used more memory than it asked for.
    MemoryLimit,
    /// By the user's wish.
    Cancelled,
    /// It could not be started.
    NotStarted,
    /// What watched over it has died.
    Lost,
}

impl End {
    /// Whether the job did what it was to do.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == End::Exit(0)
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    #[default]
    Waiting,
    /// Since when, in seconds.
    Running(u64),
    Ended(End),
}

/// A text by its number: users, accounts, queues and reservations, as
/// [`Scheduler::tag`](crate::Scheduler::tag) numbers them.
pub type Tag = u32;

/// Slots of a host that a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place in the list of hosts.
    pub host: u32,
    pub slots: u32,
}

/// A job as the scheduler sees it.
// Fields: what is asked for, whose it is, and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    /// The first task's number, for tasks of an array. Their numbers follow each other.
    pub array: Option<JobId>,
    /// How many tasks of its array may run at once.
    pub array_limit: Option<u32>,
    /// Slots that it needs, at least 1.
    pub slots: u32,
    /// As many of them are of one host, where there are several; 0 and 1 are the same.
    pub slots_together: u32,
    /// On how many hosts it is to run; none where that does not matter.
    pub nodes: Option<u32>,
    /// Where it runs, on a machine of several hosts.
    pub parts: Vec<Part>,
    /// Memory that it asked for, in MiB; 0 when it did not.
    pub memory_mib: u64,
    /// Its time limit in seconds; none when it may run for ever.
    pub limit_s: Option<u64>,
    /// Higher ones come first; among equals the lower number.
    pub priority: i64,
    pub is_held: bool,
    /// It does not start before this time.
    pub begin_s: Option<u64>,
    /// All of these must be met.
    pub after: Vec<Dependency>,
    pub user: Tag,
    pub account: Tag,
    pub queue: Tag,
    /// The reservation in which it runs.
    pub reservation: Option<Tag>,
    pub phase: Phase,
}
