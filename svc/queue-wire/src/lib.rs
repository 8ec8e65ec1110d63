//! What commands and the head of the queue say to each other: one line of JSON asks, one line
//! answers, over a Unix socket of the user or of the system. `margay` links this and not the store.
#![forbid(unsafe_code)]

mod ask;
mod bytes;
mod detail;
mod hosts;
mod line;
mod place;
mod program;
mod queues;
mod shared;
mod store;

use margay_core_queue::{End, JobId, Phase, Wishes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub use ask::{TAKES_OVER_WITHIN, ask, converse, each_ended, wait};
pub use bytes::Bytes;
pub use detail::{Cause, Change, Detail};
pub use hosts::{HostRow, HostSpec, MachineSpec, hosts_of, hosts_text};
pub use line::{MOST_BYTES, read, read_within, write};
pub use place::{
    CHOICE, Place, choose_system, connect, connect_elsewhere, connect_system, find_head, is_system,
    passage_address,
};
pub use program::check_program;
pub use queues::QueueRow;
pub use shared::{Owner, Shared, user};
pub use store::{IN_FILE, StoreUrl};

/// The program that is the head, beside `margay` in the same folder.
pub const PROGRAM: &str = "margay-queue";

/// What the head says on its standard output when it can be asked.
pub const READY: &str = "ready";

/// What a command asks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Accept jobs: all of them or none.
    Submit { shared: Shared, orders: Vec<Order> },
    /// Show jobs: these, or all that wait or run; with the steps of those that run, which costs a
    /// look at a file each.
    List { has_steps: bool, jobs: Vec<Target> },
    /// Wait until jobs have ended; all that wait or run now when none is named.
    Wait { jobs: Vec<Target> },
    /// Say which jobs of this user wait or run: numbers, those of arrays once.
    Numbers,
    /// End jobs; all when none is named.
    Cancel { jobs: Vec<Target> },
    /// Let held jobs go, or hold waiting ones.
    Hold { jobs: Vec<Target>, is_held: bool },
    /// Show all that is known of jobs, chosen as for `List`.
    Show { has_steps: bool, jobs: Vec<Target> },
    /// Show jobs that have ended, in the order in which they did: the next ones after this second
    /// since 1970 and, among those that ended in it, after this job; with all that is known of them
    /// if `is_whole`. There are no more when none is shown.
    Ended {
        second: u64,
        job: JobId,
        is_whole: bool,
    },
    /// Change jobs that wait.
    Change { jobs: Vec<Target>, change: Change },
    /// Send the processes of running jobs a signal: to all of them, or to the first alone.
    Signal {
        jobs: Vec<Target>,
        signal: i32,
        to_script: bool,
    },
    /// End running jobs and let them start again from their beginning.
    Requeue { jobs: Vec<Target> },
    /// Say why a job does not run.
    Explain { job: Target },
    /// Say when a job of this size would start: with its slots on this many hosts, or anywhere.
    When {
        slots: u32,
        #[serde(default)]
        nodes: Option<u32>,
        limit_s: Option<u64>,
    },
    /// Change the rules: a kind, its name and what is set. Without words they are shown. Behind
    /// `hosts` hosts join the machine (`add`), leave it when the jobs there have ended (`remove`),
    /// or leave it now, so that these jobs wait again (`remove-now`).
    Set { words: Vec<String> },
    /// Show the machine.
    Machine,
    /// End the head. Running jobs go on only where `leave` says so.
    Stop { leave: bool },
    /// What somebody asks on another host, in the queue of all users: root's head that stands by
    /// there says who that is.
    As { owner: Owner, request: Box<Request> },
}

/// What the head answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The jobs are stored: the first number, and how many tasks it has, for each order. Or the
    /// numbers that were asked for.
    Accepted(Vec<(JobId, usize)>),
    Jobs(Vec<JobRow>),
    /// Values of [`Detail`], which commands that have no use for them need not read.
    Details(Vec<Box<RawValue>>),
    Machine(Machine),
    /// It is done; there is something to say or not.
    Done(String),
    /// It cannot be done: why, and the remedy.
    Failed(String),
    /// It cannot be done now, and perhaps by the next head: why.
    Gone(String),
}

/// The machine that the head has.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub host: String,
    pub slots: u32,
    pub used: u32,
    pub running: usize,
    pub waiting: usize,
    /// The head's process.
    pub head: u32,
    /// Where there are several.
    #[serde(default)]
    pub hosts: Vec<HostRow>,
    /// [`QueueRow`]s, which few commands read; none from a head that does not know them yet.
    #[serde(default)]
    pub queues: Vec<Box<RawValue>>,
    /// How jobs are kept apart, in the queue of all users.
    #[serde(default)]
    pub groups: String,
    /// Hosts on which another head stands by.
    #[serde(default)]
    pub standbys: Vec<String>,
    /// The largest number of any job.
    #[serde(default)]
    pub last: JobId,
}

/// A job, or an array of them, as somebody asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub wishes: Wishes,
    /// The script's text; without it the first argument is the program.
    pub script: Option<Bytes>,
    /// Arguments of the script, or the program with its own.
    pub arguments: Vec<Bytes>,
}

/// A job, a task of an array (`12_3`), or all tasks of an array (its number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub job: JobId,
    pub task: Option<u32>,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong =
            || format!("'{text}' is no job; write its number, or 12_3 for a task of an array");
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(task)),
            None => (text, None),
        };
        if !plain(job) || !task.is_none_or(plain) {
            return Err(wrong());
        }
        Ok(Target {
            job: job.parse().map_err(|_| wrong())?,
            task: task.map(|t| t.parse().map_err(|_| wrong())).transpose()?,
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            Some(task) => write!(f, "{}_{task}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// A job as it is shown.
// Fields: each is a column of `margay queue --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRow {
    pub id: JobId,
    /// How people name it: its number, or that of the array and its index.
    pub shown: String,
    pub name: String,
    pub account: Option<String>,
    pub partition: String,
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub priority: i64,
    /// How often it was put back into the queue after it had started.
    #[serde(default)]
    pub runs: u32,
    /// Memory that it asked for, in MiB; 0 when it did not.
    #[serde(default)]
    pub memory_mib: u64,
    pub slots: u32,
    pub limit_s: Option<u64>,
    pub phase: Phase,
    /// Seconds since 1970.
    pub submitted: u64,
    pub started: Option<u64>,
    pub ended: Option<u64>,
    /// Why it waits, or what else there is to say.
    pub note: String,
    pub usage: Usage,
    /// Where it runs or ran; nothing on a machine of one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<OnHost>,
    /// What `srun` ran in it, when it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRow>,
}

/// What `srun` ran in a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// From 0.
    pub step: u32,
    /// The name of its program.
    pub name: String,
    pub tasks: u32,
    /// Slots that it had of those of the job.
    pub slots: u32,
    /// Seconds since 1970.
    pub started: u64,
    /// None where it was ended with the job.
    pub ended: Option<u64>,
    /// As a shell has it: 128 and the number of a signal that ended it.
    pub exit_code: Option<u8>,
    /// CPU time of its processes, in seconds.
    pub cpu_s: f64,
    /// The largest resident set of any of them, in KiB.
    pub max_rss_kib: u64,
}

/// Slots of a host that a job has or had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnHost {
    pub host: String,
    pub slots: u32,
}

impl JobRow {
    /// Its place among the jobs that have ended: the second, and its number.
    #[must_use]
    pub fn end(&self) -> Option<(u64, JobId)> {
        Some((self.ended?, self.id))
    }

    /// The job as a JSON object, flat, for people and programs alike. Times are seconds since 1970.
    #[must_use]
    pub fn json(&self) -> Value {
        let (exit_code, signal) = match self.phase {
            Phase::Ended(End::Exit(code)) => (Some(code), None),
            Phase::Ended(End::Signal(signal)) => (None, Some(signal)),
            _ => (None, None),
        };
        json!({
            "id": self.id,
            "job": self.shown,
            "name": self.name,
            "account": self.account,
            "partition": self.partition,
            "user": self.user,
            "priority": self.priority,
            "runs": self.runs,
            "memory_mib": self.memory_mib,
            "slots": self.slots,
            "limit_s": self.limit_s,
            "state": state(self.phase),
            "exit_code": exit_code,
            "signal": signal,
            "submitted": self.submitted,
            "started": self.started,
            "ended": self.ended,
            "cpu_s": self.usage.cpu_s,
            "max_rss_kib": self.usage.max_rss_kib,
            "energy_j": self.usage.energy_j(),
            "hosts": self.hosts,
            "steps": self.steps,
            "note": self.note,
        })
    }
}

/// What a job used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all its processes, in seconds.
    pub cpu_s: f64,
    /// The largest resident set of any of its processes, in KiB.
    pub max_rss_kib: u64,
    /// Its share of what the processors of the host on which it began used meanwhile, in
    /// millijoules; none where the system does not say it.
    #[serde(default)]
    pub energy_mj: Option<u64>,
}

impl Usage {
    /// The energy in joules.
    #[must_use]
    pub fn energy_j(&self) -> Option<f64> {
        self.energy_mj.map(|energy| energy as f64 / 1000.0)
    }
}

/// How PBS names a job of a host: `12.host`, and `12[3].host` for a task of an array.
#[must_use]
pub fn pbs_name(job: JobId, array: Option<(JobId, u32)>, host: &str) -> String {
    match array {
        Some((array, task)) => format!("{array}[{task}].{host}"),
        None => format!("{job}.{host}"),
    }
}

/// Shows how a job is, in one word.
#[must_use]
pub fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting",
        Phase::Running(_) => "running",
        Phase::Ended(End::Exit(0)) => "done",
        Phase::Ended(End::Exit(_) | End::Signal(_)) => "failed",
        Phase::Ended(End::TimeLimit) => "timeout",
        Phase::Ended(End::MemoryLimit) => "out-of-memory",
        Phase::Ended(End::Cancelled) => "cancelled",
        Phase::Ended(End::NotStarted) => "not-started",
        Phase::Ended(End::Lost) => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_by_numbers() {
        let target = |text: &str| text.parse::<Target>();
        assert_eq!(target("12_3").unwrap().to_string(), "12_3");
        assert_eq!(target("12").unwrap().task, None);
        for text in [
            "",
            "x",
            "1_",
            "_1",
            "1_2_3",
            "+1",
            "-1",
            "99999999999999999999",
        ] {
            assert!(target(text).is_err(), "{text}");
        }
    }
}
