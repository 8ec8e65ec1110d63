//! The options of the commands of the queue.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use margay_svc_queue_wire::{Target, choose_system};

use crate::hosts::{HostList, host_file, hosts};

/// Which queue is asked.
#[derive(Clone, Copy, Debug, Args)]
pub struct WhichQueue {
    /// Ask the queue that all users of the machine share, also where you have one of your own
    #[arg(long)]
    pub system: bool,
}

impl WhichQueue {
    /// Makes all that this command asks go there.
    pub fn choose(self) {
        if self.system {
            choose_system();
        }
    }
}

/// Start the queue of this machine: it runs the jobs of this user, in the background. With several
/// hosts, or in an allocation of another batch system, the queue has the slots of all of them.
#[derive(Clone, Debug, Args)]
pub struct UpOptions {
    /// As root: start the queue that all users of this machine share, also when the machine starts
    #[arg(long)]
    pub system: bool,
    /// Slots for jobs, of each host [default: the usable cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Run jobs on these hosts: a,b:4,node[01-04]; this one as well, if it is in the list
    #[arg(long, visible_alias = "host", value_name = "LIST", value_parser = hosts)]
    pub hosts: Option<HostList>,
    /// The same from a file, with a line for each host
    #[arg(long, visible_alias = "machinefile", value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = host_file, conflicts_with = "hosts")]
    pub hostfile: Option<HostList>,
    /// The hosts that this command prints, a line each, as for --hosts; it is run every 10 s, and
    /// hosts that are new join, and those that are gone leave
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString, conflicts_with_all = ["hosts", "hostfile"])]
    pub hosts_from: Option<String>,
    /// Keep the queue's state in a database of PostgreSQL, postgresql://user@host/database, or in
    /// the queue's folder: file [default: as before, at first file]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Stand by for the head that another host has of the queue in the database, and take its place
    /// within 10 s when it or its host is gone
    #[arg(long)]
    pub standby: bool,
    /// The remote shell, with its options [default: ssh -x -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(
        long,
        env = "MARGAY_RSH",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub launcher_exec: Option<String>,
}

/// End the queue. Jobs that wait are kept for the next `margay up`.
#[derive(Clone, Debug, Args)]
pub struct DownOptions {
    /// As root: end the queue that all users share, and start it no more with the machine
    #[arg(long)]
    pub system: bool,
    /// Leave jobs running; the next `margay up` finds them again
    #[arg(long)]
    pub leave: bool,
}

/// Submit a job: a batch script, with `#SBATCH` or `#PBS` lines or without, or a command behind
/// `--`. Options count more than the lines of the script.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "margay submit [OPTIONS] SCRIPT [ARGUMENTS]...\n       \
                            margay submit [OPTIONS] -- COMMAND [ARGUMENTS]...\n       \
                            margay submit [OPTIONS] --many FILE"
)]
pub struct SubmitOptions {
    #[command(flatten)]
    pub asked: AskedOptions,

    #[command(flatten)]
    pub which: WhichQueue,

    /// Submit each line of a file as a job of its own, which sh runs; - is the standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "words")]
    pub many: Option<PathBuf>,

    /// Print the job's number alone
    #[arg(long)]
    pub parsable: bool,

    /// Wait until the job has ended; the exit code is 0 when it succeeded
    #[arg(short = 'W', long)]
    pub wait: bool,

    /// The script and its arguments, or behind `--` a command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SCRIPT", value_hint = ValueHint::CommandWithArguments)]
    pub words: Vec<OsString>,
}

/// What a job asks for, as Slurm names it.
// Fields: each is an option of the command.
#[derive(Clone, Debug, Default, Args)]
pub struct AskedOptions {
    /// Tasks; the number of ranks that mpiexec starts in the job
    #[arg(short = 'n', long)]
    pub ntasks: Option<String>,
    /// Nodes; on a machine of one host each is a slot at least
    #[arg(short = 'N', long)]
    pub nodes: Option<String>,
    /// Tasks of each node
    #[arg(long)]
    pub ntasks_per_node: Option<String>,
    /// Slots of each task
    #[arg(short = 'c', long)]
    pub cpus_per_task: Option<String>,
    /// Time limit: minutes, H:M:S, D-H:M:S, or with a unit as in 90s and 2h
    #[arg(short = 't', long)]
    pub time: Option<String>,
    /// The job's name
    #[arg(short = 'J', long)]
    pub job_name: Option<String>,
    /// File of the output; %j is the job's number, %x its name, %A and %a those of an array
    #[arg(short = 'o', long, value_hint = ValueHint::FilePath)]
    pub output: Option<String>,
    /// File of the standard error [default: that of the output]
    #[arg(short = 'e', long, value_hint = ValueHint::FilePath)]
    pub error: Option<String>,
    /// Run it once for each index: 0-9, 1,3,5, 0-20:4; with %5 at most 5 at once
    #[arg(short = 'a', long)]
    pub array: Option<String>,
    /// Start after other jobs: afterok:12, afterany:12:13, afternotok:12, after:12
    #[arg(short = 'd', long)]
    pub dependency: Option<String>,
    /// Start not before a time: 16:00, now+2hours, tomorrow, 2026-11-28T16:00
    #[arg(long, value_name = "TIME")]
    pub begin: Option<String>,
    /// Hold the job until margay release
    #[arg(short = 'H', long)]
    pub hold: bool,
    /// Working directory [default: this one]
    #[arg(short = 'D', long, value_hint = ValueHint::DirPath)]
    pub chdir: Option<String>,
    /// Priority: higher ones come first [default: 0]
    #[arg(long, allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// A signal before the time limit: TERM@60, B:USR1@300 for the script alone
    #[arg(long)]
    pub signal: Option<String>,
    /// The queue in which it waits
    #[arg(short = 'p', long, value_name = "QUEUE")]
    pub partition: Option<String>,
    /// The reservation in which it runs
    #[arg(long)]
    pub reservation: Option<String>,
    /// Memory of the job, such as 4G
    #[arg(long)]
    pub mem: Option<String>,
    /// All slots of the machine
    #[arg(long)]
    pub exclusive: bool,
    /// Run it again when what watches over it fails
    #[arg(long)]
    pub requeue: bool,
    /// Run it again when it ends with one of these exit codes: 75,99
    #[arg(long, value_name = "CODES")]
    pub requeue_exit: Option<String>,
    /// Account to which it is charged
    #[arg(short = 'A', long)]
    pub account: Option<String>,
}

impl AskedOptions {
    /// The same as words of a script's line, so that both mean the same.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let valued = [
            ("ntasks", &self.ntasks),
            ("nodes", &self.nodes),
            ("ntasks-per-node", &self.ntasks_per_node),
            ("cpus-per-task", &self.cpus_per_task),
            ("time", &self.time),
            ("job-name", &self.job_name),
            ("output", &self.output),
            ("error", &self.error),
            ("array", &self.array),
            ("dependency", &self.dependency),
            ("begin", &self.begin),
            ("chdir", &self.chdir),
            ("priority", &self.priority),
            ("signal", &self.signal),
            ("account", &self.account),
            ("partition", &self.partition),
            ("reservation", &self.reservation),
            ("mem", &self.mem),
            ("requeue-exit", &self.requeue_exit),
        ];
        let mut words: Vec<String> = valued
            .into_iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)))
            .collect();
        for (name, is_asked) in [
            ("--hold", self.hold),
            ("--exclusive", self.exclusive),
            ("--requeue", self.requeue),
        ] {
            if is_asked {
                words.push(name.into());
            }
        }
        words
    }
}

/// Jobs by their numbers.
#[derive(Clone, Debug, Args)]
pub struct JobsOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// All jobs that wait or run
    #[arg(long, conflicts_with = "jobs")]
    pub all: bool,
    /// Numbers of jobs; 12_3 is a task of the array 12
    #[arg(value_name = "JOB")]
    pub jobs: Vec<Target>,
}

/// Change the rules of the queue, or show them.
#[derive(Clone, Debug, Args)]
pub struct SetOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// What to set: queue NAME time=12h, account NAME budget=1000h, reservation NAME slots=4
    /// start=+1h time=2h, policy backfill=conservative fair-share=7d, remove queue NAME
    pub words: Vec<String>,
}

/// Show the machine that the queue has, and change its hosts.
#[derive(Clone, Debug, Args)]
pub struct NodeOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// Of hosts that leave: end the jobs there, which wait again, and let the hosts go at once
    #[arg(long)]
    pub now: bool,
    /// add HOST... or remove HOST...: hosts as for `margay up --hosts`
    pub words: Vec<String>,
}

/// Show the jobs that wait or run.
#[derive(Clone, Debug, Args)]
pub struct QueueOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// Show those that have ended, too
    #[arg(long)]
    pub all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
    /// Run a log in the Standard Workload Format through the scheduler instead, and say how long
    /// jobs would have waited
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["all", "jobs"])]
    pub replay: Option<PathBuf>,
    /// Show these alone
    #[arg(value_name = "JOB")]
    pub jobs: Vec<Target>,
}

/// Show the machine as a mesh, with its jobs and its queue, live; q ends it.
#[derive(Clone, Debug, Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// Show it once
    #[arg(long)]
    pub once: bool,
    /// Letters alone, without colours and without clearing the screen
    #[arg(long)]
    pub plain: bool,
    /// Seconds between two views [default: 1]
    #[arg(short, long, value_name = "SECONDS")]
    pub interval: Option<String>,
}

/// Run a command of another batch system on the queue. The options are that system's. The commands
/// are also in share/margay/compat/bin, under their own names.
#[derive(Clone, Debug, Args)]
pub struct OtherOptions {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub words: Vec<OsString>,
}

/// Show what jobs that have ended used: slot seconds, CPU time, the largest process.
#[derive(Clone, Debug, Args)]
pub struct AccountOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// One line for each job, not for each account
    #[arg(long)]
    pub jobs: bool,
    /// One line for each user and account
    #[arg(long, conflicts_with = "jobs")]
    pub users: bool,
    /// One line for each queue
    #[arg(long, conflicts_with_all = ["jobs", "users"])]
    pub queues: bool,
    /// Print one JSON array
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
}

/// Say why a job does not run, what stands before it, and when it is expected to start.
#[derive(Clone, Debug, Args)]
pub struct ExplainOptions {
    #[command(flatten)]
    pub which: WhichQueue,
    /// The job
    #[arg(value_name = "JOB", required_unless_present = "when")]
    pub job: Option<Target>,
    /// Say instead when a job of this size would start, with a time limit or without: --when 4 2h,
    /// --when 4 nodes 2h
    #[arg(long, num_args = 1..=3, value_names = ["SLOTS", "TIME"], conflicts_with = "job")]
    pub when: Vec<String>,
}
