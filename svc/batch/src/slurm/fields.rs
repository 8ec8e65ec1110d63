//! What Slurm's commands show of a job, by the names that its formats have for it.

use margay_core_queue::{After, End, Phase};
use margay_svc_queue_wire::{Cause, Detail, JobRow, Machine, StepRow};

use super::hostlist::{compressed, sort};
use crate::common::{date, now_s};
use crate::machine::{first_host, job_hosts, node_count};

/// What is not there.
pub const NOTHING: &str = "(null)";
pub const UNKNOWN: &str = "Unknown";
const NOT_KNOWN: &str = "N/A";
/// Where the machine does not say what energy it uses.
const NOT_REPORTED: &str = "not reported";

/// Names of a job's state: in full, and the two letters.
#[must_use]
pub fn state(phase: Phase) -> (&'static str, &'static str) {
    match phase {
        Phase::Waiting => ("PENDING", "PD"),
        Phase::Running(_) => ("RUNNING", "R"),
        Phase::Ended(End::Exit(0)) => ("COMPLETED", "CD"),
        Phase::Ended(End::Exit(_) | End::Signal(_) | End::NotStarted) => ("FAILED", "F"),
        Phase::Ended(End::TimeLimit) => ("TIMEOUT", "TO"),
        Phase::Ended(End::MemoryLimit) => ("OUT_OF_MEMORY", "OOM"),
        Phase::Ended(End::Cancelled) => ("CANCELLED", "CA"),
        Phase::Ended(End::Lost) => ("NODE_FAIL", "NF"),
    }
}

/// The exit code of what SIGTERM ended.
pub const BY_SIGTERM: u8 = 128 + 15;

/// How a step of this job is. One without an end runs, or was ended with the job.
#[must_use]
pub fn step_phase(row: &JobRow, step: &StepRow) -> Phase {
    if step.ended.or(row.ended).is_none() {
        return Phase::Running(step.started);
    }
    let job_ends = matches!(row.phase, Phase::Ended(End::TimeLimit | End::Cancelled));
    Phase::Ended(match step.exit_code {
        None => End::Cancelled,
        Some(BY_SIGTERM) if job_ends => End::Cancelled,
        Some(code @ 129..=192) => End::Signal(i32::from(code) - 128),
        Some(code) => End::Exit(code.into()),
    })
}

/// When a step of this job ended, in seconds since 1970; none while it runs.
#[must_use]
pub fn step_end(row: &JobRow, step: &StepRow) -> Option<u64> {
    step.ended.or(row.ended)
}

/// On how many of its job's nodes a step can have been.
#[must_use]
pub fn step_nodes(detail: &Detail, step: &StepRow) -> u32 {
    node_count(detail).min(step.tasks.max(1))
}

/// Whether a word means a job's state, in full or by its letters.
#[must_use]
pub fn is_state(word: &str, phase: Phase) -> bool {
    let (name, letters) = state(phase);
    word.eq_ignore_ascii_case(name)
        || word.eq_ignore_ascii_case(letters)
        || word.eq_ignore_ascii_case("all")
}

/// Whether there is a state of this name.
#[must_use]
pub fn is_state_name(word: &str) -> bool {
    const NAMES: [&str; 30] = [
        "PENDING",
        "PD",
        "RUNNING",
        "R",
        "COMPLETED",
        "CD",
        "FAILED",
        "F",
        "TIMEOUT",
        "TO",
        "CANCELLED",
        "CA",
        "NODE_FAIL",
        "NF",
        "SUSPENDED",
        "S",
        "COMPLETING",
        "CG",
        "CONFIGURING",
        "CF",
        "PREEMPTED",
        "PR",
        "BOOT_FAIL",
        "BF",
        "DEADLINE",
        "DL",
        "OUT_OF_MEMORY",
        "OOM",
        "REQUEUED",
        "all",
    ];
    NAMES.iter().any(|name| word.eq_ignore_ascii_case(name))
}

/// Why a job waits.
#[must_use]
pub fn reason(detail: &Detail) -> &'static str {
    match (detail.row.phase, detail.cause) {
        (Phase::Ended(End::TimeLimit), _) => "TimeLimit",
        (Phase::Ended(End::MemoryLimit), _) => "OutOfMemory",
        (Phase::Ended(End::Exit(code)), _) if code != 0 => "NonZeroExitCode",
        (Phase::Ended(End::Signal(_)), _) => "RaisedSignal",
        (Phase::Ended(End::NotStarted), _) => "JobLaunchFailure",
        (Phase::Ended(End::Lost), _) => "NodeDown",
        (Phase::Waiting, Some(Cause::Held)) => "JobHeldUser",
        (Phase::Waiting, Some(Cause::Dependency)) => "Dependency",
        (Phase::Waiting, Some(Cause::Never)) => "DependencyNeverSatisfied",
        (Phase::Waiting, Some(Cause::ArrayLimit)) => "JobArrayTaskLimit",
        (Phase::Waiting, Some(Cause::BeginTime)) => "BeginTime",
        (Phase::Waiting, Some(Cause::Stopped)) => "PartitionInactive",
        (Phase::Waiting, Some(Cause::Limit)) => "AssocGrpLimit",
        (Phase::Waiting, Some(Cause::Reservation)) => "Reservation",
        (Phase::Waiting, Some(Cause::Resources)) => "Resources",
        (Phase::Waiting, Some(Cause::Priority)) => "Priority",
        _ => "None",
    }
}

/// Exit code and signal, as `0:15`.
#[must_use]
pub fn exit(phase: Phase) -> String {
    match phase {
        Phase::Ended(End::Exit(code)) => format!("{code}:0"),
        Phase::Ended(End::Signal(signal)) => format!("0:{signal}"),
        Phase::Ended(End::TimeLimit | End::Cancelled) => "0:15".into(),
        Phase::Ended(End::MemoryLimit) => "0:125".into(),
        Phase::Ended(End::NotStarted | End::Lost) => "1:0".into(),
        _ => "0:0".into(),
    }
}

/// `[DAYS-]HH:MM:SS`
#[must_use]
pub fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        _ => format!("{days}-{clock}"),
    }
}

/// `[DAYS-][HH:]MM:SS`, as `squeue` shows it.
#[must_use]
pub fn short_clock(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        3600..86400 => {
            let rest = seconds % 3600;
            format!("{}:{:02}:{:02}", seconds / 3600, rest / 60, rest % 60)
        }
        _ => clock(seconds),
    }
}

/// Memory, as `1500M` or `4G`.
#[must_use]
pub fn memory(mib: u64) -> String {
    match mib {
        0 => "0".into(),
        mib if mib % 1024 == 0 => format!("{}G", mib / 1024),
        mib => format!("{mib}M"),
    }
}

/// How a job is shown, and what stands around it.
#[derive(Debug)]
pub struct View<'a> {
    pub detail: &'a Detail,
    pub host: &'a str,
    /// Indices of the tasks that it stands for, where it stands for several.
    pub tasks: Option<&'a str>,
    pub now_s: u64,
}

impl<'a> View<'a> {
    #[must_use]
    pub fn new(detail: &'a Detail, machine: &'a Machine) -> View<'a> {
        View {
            detail,
            host: &machine.host,
            tasks: None,
            now_s: now_s(),
        }
    }

    fn is_waiting(&self) -> bool {
        self.detail.row.phase == Phase::Waiting
    }

    /// `12`, `12_3` or `12_[0-4]`
    #[must_use]
    pub fn id(&self) -> String {
        match (self.detail.array, self.tasks) {
            (Some((array, _)), Some(tasks)) => format!("{array}_[{tasks}]"),
            (Some((array, task)), None) => format!("{array}_{task}"),
            _ => self.detail.row.id.to_string(),
        }
    }

    #[must_use]
    pub fn run_s(&self) -> u64 {
        let row = &self.detail.row;
        let end = row.ended.unwrap_or(self.now_s);
        row.started.map_or(0, |since| end.saturating_sub(since))
    }

    fn limit(&self, unlimited: &str) -> String {
        let limit = self.detail.row.limit_s;
        limit.map_or_else(|| unlimited.into(), short_clock)
    }

    #[must_use]
    pub fn start(&self) -> Option<u64> {
        self.detail.row.started.or(self.detail.expected)
    }

    /// When it ended, or ends by its time limit.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let row = &self.detail.row;
        let by_limit = || Some(row.started?.saturating_add(row.limit_s?));
        row.ended.or_else(by_limit)
    }

    #[must_use]
    pub fn nodes(&self) -> String {
        compressed(&self.node_names())
    }

    /// The names of its hosts, in Slurm's order.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        let hosts = job_hosts(self.detail, self.host).into_iter();
        let mut names: Vec<String> = hosts.map(|own| own.host).collect();
        sort(&mut names);
        names
    }

    /// The host on which its script runs.
    #[must_use]
    pub fn batch_host(&self) -> String {
        first_host(self.detail, self.host)
    }

    /// The script or the command.
    #[must_use]
    pub fn command(&self) -> String {
        let detail = self.detail;
        let words = detail.command.iter().map(|word| word.0.to_string_lossy());
        // The script was read when it was submitted; where it lay is not kept.
        let all: Vec<_> = words.collect();
        if detail.is_script || all.is_empty() {
            return NOTHING.into();
        }
        all.join(" ")
    }

    #[must_use]
    pub fn dependency(&self) -> Option<String> {
        let one = |dependency: &margay_core_queue::Dependency| {
            let kind = match dependency.after {
                After::Start => "after",
                After::Ok => "afterok",
                After::NotOk => "afternotok",
                After::Any => "afterany",
            };
            format!("{kind}:{}(unfulfilled)", dependency.job)
        };
        let all: Vec<String> = self.detail.after.iter().map(one).collect();
        let is_unmet = self.is_waiting() && !all.is_empty();
        is_unmet.then(|| all.join(","))
    }

    #[must_use]
    pub fn memory_asked(&self) -> String {
        let size = &self.detail.wishes.size;
        memory(size.memory(self.detail.row.slots).unwrap_or(0))
    }

    fn tasks(&self) -> String {
        self.detail.wishes.size.tasks().to_string()
    }

    /// The value of a field of `squeue -O` or `sacct --format`, by its name in lower case.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        let (detail, row) = (self.detail, &self.detail.row);
        let or = |text: Option<String>, else_: &str| text.unwrap_or_else(|| else_.to_owned());
        Some(match name {
            "jobid" | "jobarrayid" => self.id(),
            "jobidraw" => row.id.to_string(),
            "arrayjobid" => detail.array.map_or(row.id, |array| array.0).to_string(),
            "arraytaskid" => match (self.tasks, detail.array) {
                (Some(tasks), _) => tasks.to_owned(),
                (None, array) => or(array.map(|array| array.1.to_string()), NOT_KNOWN),
            },
            "name" | "jobname" => row.name.clone(),
            "username" | "user" => detail.user.clone(),
            "userid" | "uid" => row.uid.to_string(),
            "groupname" | "group" => detail.user.clone(),
            "groupid" | "gid" => row.uid.to_string(),
            "account" => row.account.clone().unwrap_or_default(),
            "partition" => row.partition.clone(),
            "state" => state(row.phase).0.into(),
            "statecompact" => state(row.phase).1.into(),
            "reason" => reason(detail).into(),
            "reasonlist" => match self.is_waiting() {
                true => format!("({})", reason(detail)),
                false if matches!(row.phase, Phase::Running(_)) => self.nodes(),
                false => format!("({})", reason(detail)),
            },
            "timeused" => short_clock(self.run_s()),
            "elapsed" => clock(self.run_s()),
            "elapsedraw" => self.run_s().to_string(),
            "timelimit" => self.limit("UNLIMITED"),
            "timelimitraw" => or(row.limit_s.map(|s| s.div_ceil(60).to_string()), "UNLIMITED"),
            "timeleft" => match row.limit_s {
                Some(limit) => short_clock(limit.saturating_sub(self.run_s())),
                None => "UNLIMITED".into(),
            },
            "starttime" => or(self.start().map(date), NOT_KNOWN),
            "endtime" => or(self.end().map(date), NOT_KNOWN),
            "start" => or(row.started.map(date), UNKNOWN),
            "end" => or(row.ended.map(date), UNKNOWN),
            "submittime" | "submit" | "eligible" | "eligibletime" => date(row.submitted),
            "planned" | "reserved" => {
                let until = row.started.or(row.ended).unwrap_or(self.now_s);
                clock(until.saturating_sub(row.submitted))
            }
            "numcpus" | "mincpus" | "ncpus" | "alloccpus" | "reqcpus" | "maxcpus" => {
                let is_allocated = row.started.is_some() || !name.starts_with("alloc");
                if is_allocated {
                    row.slots.to_string()
                } else {
                    "0".into()
                }
            }
            "allocnodes" if row.started.is_none() => "0".into(),
            "numnodes" | "nnodes" | "allocnodes" | "reqnodes" => node_count(detail).to_string(),
            "numtasks" | "ntasks" => self.tasks(),
            "cpus-per-task" => detail.wishes.size.cpus_per_task.unwrap_or(1).to_string(),
            "nodelist" => match self.nodes() {
                nodes if nodes.is_empty() && row.ended.is_some() => "None assigned".into(),
                nodes => nodes,
            },
            "schednodes" | "reqnodelist" | "exc_nodes" | "feature" | "features" | "licenses"
            | "gres" | "tres-per-node" | "reservation" | "wckey" => NOTHING.into(),
            "batchhost" | "exec_host" => self.batch_host(),
            "allocsid" | "allocnode" => self.host.into(),
            "priority" | "prioritylong" => detail.priority.to_string(),
            "nice" => "0".into(),
            "qos" => "normal".into(),
            "cluster" => self.host.into(),
            "comment" => detail.wishes.comment.clone().unwrap_or_default(),
            "command" | "submitline" => self.command(),
            "workdir" => detail.directory.0.to_string_lossy().into_owned(),
            "stdout" => detail.stdout.0.to_string_lossy().into_owned(),
            "stderr" => detail.stderr.0.to_string_lossy().into_owned(),
            "stdin" => detail
                .wishes
                .input
                .clone()
                .unwrap_or_else(|| "/dev/null".into()),
            "dependency" => or(self.dependency(), NOTHING),
            "minmemory" | "reqmem" => self.memory_asked(),
            "mintmpdisk" => "0".into(),
            "oversubscribe" | "shared" => match detail.wishes.size.is_exclusive {
                true => "NO".into(),
                false => "OK".into(),
            },
            "exitcode" | "exit_code" | "derivedexitcode" => exit(row.phase),
            "requeue" => u8::from(detail.wishes.is_requeued.unwrap_or(false)).to_string(),
            "reqtres" | "alloctres" | "tres" | "tres-alloc" => {
                let memory = detail.wishes.size.memory(row.slots).map(memory);
                let memory = memory.map(|m| format!("mem={m},")).unwrap_or_default();
                let nodes = node_count(detail);
                format!("billing={0},cpu={0},{memory}node={nodes}", row.slots)
            }
            "maxrss" | "averss" | "maxvmsize" | "avevmsize" => match row.ended {
                Some(_) => format!("{}K", row.usage.max_rss_kib),
                None => String::new(),
            },
            "totalcpu" | "usercpu" | "avecpu" => clock(row.usage.cpu_s as u64),
            "systemcpu" => clock(0),
            "cputime" => clock(self.run_s().saturating_mul(u64::from(row.slots))),
            "cputimeraw" => self
                .run_s()
                .saturating_mul(u64::from(row.slots))
                .to_string(),
            "consumedenergy" | "consumedenergyraw" => {
                let joules = row.usage.energy_j().map(|joules| joules.round() as u64);
                joules.map_or_else(|| NOT_REPORTED.into(), |joules| joules.to_string())
            }
            _ => return None,
        })
    }
}
