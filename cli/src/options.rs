//! The options of all commands. This is the one definition from which the parser, the help, the
//! manual pages and the completions come.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, ValueHint};
use margay_job_launch::plan::{Gpus, OnDeadlock, StdinTo};
use margay_svc_pfs_options::port_range;

use crate::hosts::{HostList, StartOptions, host_file, hosts};
use crate::join_options::{AgentOptions, JoinOptions};
use crate::mapping::{Bind, MapBy, bind, map_by};
use crate::mesh_groups::Sort;
use crate::queue_options::{
    AccountOptions, DownOptions, ExplainOptions, JobsOptions, NodeOptions, OtherOptions,
    QueueOptions, SetOptions, SubmitOptions, TopOptions, UpOptions,
};
use crate::system_options::{KillOptions, MakeOptions, PsOptions};
use crate::values::{
    CoreList, Names, NodeList, OutputOption, core_list, cores_each, gpus, names, network,
    node_list, on_deadlock, output, process_id, ranks, seconds, stdin_to,
};

/// What `--version` says after the command's name.
pub const VERSION: &str = concat!("(Margay) ", env!("CARGO_PKG_VERSION"));

/// The names of all commands.
pub const COMMANDS: [&str; 6] = ["margay", "mpiexec", "mpirun", "yod", "poe", "showmesh"];

/// Margay: run MPI programs on this machine or several, and show what they do.
#[derive(Debug, Parser)]
#[command(
    name = "margay",
    version = VERSION,
    arg_required_else_help = true,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub struct Margay {
    #[command(subcommand)]
    pub command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Run a program on some ranks (also called mpiexec, mpirun, yod, and poe with the options of
    /// the SP2).
    Run(Box<RunOptions>),
    /// Show the jobs that run on this machine (also called showmesh).
    Mesh(MeshOptions),
    /// Say why a job hangs or is slow: which ranks wait for which, at which lines.
    Why(WhyOptions),
    /// Say in which functions and lines the ranks of a running job spend their time.
    Profile(ProfileOptions),
    /// Convert a trace of a job to the format of another tool, or show its profile.
    Trace(TraceOptions),
    /// Show a trace in a browser: every rank, every message, who waited for whom.
    View(TraceViewOptions),
    /// Show the lights and texts that MPL tasks set (the Program Marker Array).
    Markers(ViewOptions),
    /// Measure this machine with the performance suite.
    Bench(Box<margay_cli_bench_options::BenchOptions>),
    /// Make and use partitions of this machine: named sets of its nodes, in a tree.
    Part(crate::part_options::PartOptions),
    /// Make and use a parallel file system: files striped over directories, with parity.
    Pfs(margay_svc_pfs_options::PfsOptions),
    /// Start the queue of this machine: it runs the jobs of this user, in the background.
    Up(UpOptions),
    /// End the queue.
    Down(DownOptions),
    /// Submit a job: a batch script, or a command behind `--`.
    Submit(Box<SubmitOptions>),
    /// Wait until jobs have ended; the exit code is 0 when all of them succeeded.
    Wait(JobsOptions),
    /// Show the jobs that wait or run.
    Queue(QueueOptions),
    /// End jobs.
    Cancel(JobsOptions),
    /// Hold jobs that wait.
    Hold(JobsOptions),
    /// Let held jobs go.
    Release(JobsOptions),
    /// Change the rules of the queue, or show them.
    Set(SetOptions),
    /// Say why a job does not run, and when it is expected to start.
    Explain(ExplainOptions),
    /// Show what jobs that have ended used.
    Account(AccountOptions),
    /// Show the machine that the queue has.
    Node(NodeOptions),
    /// Show the machine as a mesh, with its jobs and its queue, live.
    Top(TopOptions),
    /// Run a command of Slurm on the queue: sbatch, squeue, scancel, sinfo, sacct,
    /// scontrol, srun, salloc.
    Slurm(OtherOptions),
    /// Run a command of PBS on the queue: qsub, qstat, qdel, qhold, qrls, qalter, qsig, qrerun,
    /// qmgr, pbsnodes.
    Pbs(OtherOptions),
    /// Run a command of LoadLeveler on the queue: llsubmit, llq, llcancel, llhold, llstatus,
    /// llclass.
    Ll(OtherOptions),
    /// List the processes of the jobs that were started here, on all of their hosts.
    Ps(PsOptions),
    /// Send jobs, or single ranks of theirs on any host, a signal.
    Kill(KillOptions),
    /// Run GNU make, with its jobs on several hosts.
    Make(MakeOptions),
    /// Run an OpenMP program built by gcc, gfortran, clang or flang on Margay's threads.
    Omp(OmpOptions),
    /// Show the teams of a running OpenMP program: which members run, and what the others wait for.
    Threads(ThreadsOptions),
    /// Build the Fortran modules and library for a compiler.
    Fortran(FortranOptions),
    /// Serve as the agent of this host for a launcher: join one, for its job.
    Agent(AgentOptions),
    /// Say which functions and lines the addresses on the standard input are.
    #[command(hide = true)]
    Lines,
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
        /// The command to complete.
        #[arg(default_value = "margay", value_parser = COMMANDS)]
        command: String,
    },
}

/// Run an OpenMP program built by gcc, gfortran, clang or flang on Margay's threads.
#[derive(Clone, Debug, Args)]
pub struct OmpOptions {
    /// Say which copies of libgomp and libomp Margay's library takes the place of.
    #[arg(short, long)]
    pub verbose: bool,
    /// The program, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<OsString>,
}

/// Show the teams of a running OpenMP program: which members run, and what the others wait for. The
/// program is not stopped.
#[derive(Clone, Debug, Args)]
pub struct ThreadsOptions {
    /// The process, which may be a rank of a job.
    #[arg(value_parser = process_id)]
    pub pid: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Say why a job hangs or is slow: which ranks wait for which and since when, who is late, what can
/// never go on, and where each rank is in its program, with file and line. Ranks that do the same
/// at the same place share a line. The program needs no preparation; -g gives files and lines.
#[derive(Clone, Debug, Args)]
pub struct WhyOptions {
    /// The job: the process id of its mpiexec, as showmesh prints it [default: all jobs]
    pub job: Option<u64>,
    /// Show the last calls of each rank instead, as many [default: 10]
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "10")]
    pub calls: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Say in which functions and lines the ranks of a running job spend their time, by looking at
/// their stacks: the program needs no preparation and no restart.
#[derive(Clone, Debug, Args)]
pub struct ProfileOptions {
    /// The job: the process id of its mpiexec, as showmesh prints it [default: the only one]
    pub job: Option<u64>,
    /// How long to look, in seconds; Ctrl-C ends it earlier
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// How often to look, in looks a second
    #[arg(long, value_name = "RATE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Convert a trace of a job (mpiexec -trace) to the format of another tool, or show its profile.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct TraceOptions {
    #[command(subcommand)]
    pub action: TraceAction,
}

/// What is done with a trace.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TraceAction {
    /// Write a trace in another format
    Convert {
        /// The trace: of Margay, or in PICL's format
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// chrome (JSON, for chrome://tracing), perfetto, picl (for ParaGraph), otf2 (for Vampir,
        /// Scalasca and Cube) or mtrace
        #[arg(long, value_name = "FORMAT", value_parser = ["chrome", "perfetto", "picl", "otf2", "mtrace"])]
        to: String,
        /// The file to write, with otf2 the folder [default: the same name with another ending]
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
    /// Print who spent how much time where, and who waited for whom
    Profile {
        /// The trace
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Show a trace of a job (mpiexec -trace) in a browser: print the address of a page that this
/// command serves to this machine until it is ended, or write the page.
#[derive(Clone, Debug, Args)]
pub struct TraceViewOptions {
    /// The trace: of Margay, or in PICL's format
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Write the page to this file instead; it needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Build the Fortran modules and library for a compiler.
#[derive(Clone, Debug, Args)]
pub struct FortranOptions {
    /// The Fortran compiler; may be several words.
    #[arg(
        long,
        value_name = "COMPILER",
        env = "MPIFORT_FC",
        default_value = "gfortran"
    )]
    pub fc: String,
    /// The C compiler that belongs to it, with its ISO_Fortran_binding.h.
    #[arg(long, value_name = "COMPILER", env = "MPICC_CC", default_value = "cc")]
    pub cc: String,
    /// Folder that gets include and lib, for MPIFORT_PREFIX [default: the tree itself].
    #[arg(value_hint = ValueHint::DirPath)]
    pub prefix: Option<PathBuf>,
}

const RUN_NOTES: &str = "\
Long options may be written with one dash (-np 4) or two (--np 4). Several programs make one job \
when they are separated by colons: mpiexec -n 1 a.out : -n 3 b.out. Options after a program's name \
belong to the program. Options of Open MPI, MPICH and Intel MPI that scripts use are understood, or refused with what to write \
instead: see \"Moving from Open MPI, MPICH and Intel MPI\" in docs/launcher.md.

Exit status: that of the first rank that failed (128 + the number of the signal that killed it), \
124 when the time limit is over, 127 when the program is not found, 126 when it cannot be executed, \
2 for wrong usage.";

/// Run a program on some ranks.
// Fields: one for each group of options, and those that stand in no group.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub struct RunOptions {
    /// Number of ranks [default: one for each usable core, or 1 when there are several programs]
    #[arg(short = 'n', long = "np", aliases = ["n", "ntasks", "sz", "size"], short_alias = 'c', visible_alias = "sz", value_name = "RANKS", value_parser = ranks)]
    pub ranks: Option<u32>,

    /// Run on these hosts: HOST, HOST:SLOTS or node[01-16]. Without -n there are as many ranks as
    /// all the slots, 1 where no number stands
    #[arg(long = "host", aliases = ["hosts", "hostlist"], short_alias = 'H', value_name = "HOST[:SLOTS],...", value_parser = hosts)]
    pub host: Option<HostList>,

    /// Read the hosts from a file, a line each. Without -n there are as many ranks as all the
    /// slots=N; lines without it count 1, a single one that names this machine the usable cores
    #[arg(long = "hostfile", aliases = ["machinefile", "machine", "default-hostfile"], short_alias = 'f', value_name = "FILE", value_parser = host_file, value_hint = ValueHint::FilePath)]
    pub host_file: Option<HostList>,

    /// Number of ranks on each host; with one host only where -n is not given
    #[arg(long = "ppn", aliases = ["perhost"], value_name = "RANKS", value_parser = ranks)]
    pub ppn: Option<u32>,

    /// The remote shell that starts agents on other hosts, with its options; %h in it is the host,
    /// which comes last otherwise [default: ssh -x -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(long = "launcher-exec", aliases = ["bootstrap-exec"], env = "MARGAY_RSH", value_name = "COMMAND", hide_env_values = true)]
    pub remote_shell: Option<String>,

    /// How programs and agents come to other hosts.
    #[command(flatten)]
    pub start: StartOptions,

    /// The network between hosts: tcp, or ofi, ofi:PROVIDER, ofi:PROVIDER:DOMAIN for libfabric
    /// [default: tcp]
    #[arg(long = "net", value_name = "NETWORK", value_parser = network)]
    pub network: Option<String>,

    /// Encrypt what the ranks send from host to host
    #[arg(long)]
    pub encrypt: bool,

    /// The ports at which ranks on several hosts listen for each other, for firewalls; each host
    /// needs one for each of its ranks [default: any]
    #[arg(long = "port-range", value_name = "FIRST:LAST", value_parser = port_range)]
    pub ports: Option<(u16, u16)>,

    /// Hosts that dial in.
    #[command(flatten)]
    pub join: JoinOptions,

    /// Working directory of the program
    #[arg(long = "wdir", aliases = ["wd", "cwd", "chdir"], value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,

    /// What is added to the environment.
    #[command(flatten)]
    pub environment: EnvironmentOptions,

    /// Type of the program's processes on their nodes, for NX: programs of several types may share
    /// nodes [default: 0]
    #[arg(long = "pt", value_name = "TYPE", value_parser = clap::value_parser!(u32).range(0..32768))]
    pub process_type: Option<u32>,

    /// Nodes of the program's processes, for NX: a list such as 0,2 or 1..3; each process runs on
    /// the core of that number in the machine or the partition [default: the next free nodes]
    #[arg(long = "on", value_name = "NODES", value_parser = node_list)]
    pub on: Option<NodeList>,

    /// What ends the job before its ranks do.
    #[command(flatten)]
    pub end: EndOptions,

    /// What is recorded.
    #[command(flatten)]
    pub record: RecordOptions,

    /// What the job has for files.
    #[command(flatten)]
    pub files: FilesOptions,

    /// Where ranks run on this host.
    #[command(flatten)]
    pub placement: PlacementOptions,

    /// Where input comes from and output goes to.
    #[command(flatten)]
    pub streams: StreamOptions,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// What ends a job, and what does not.
#[derive(Clone, Debug, Args)]
pub struct EndOptions {
    /// Look for errors in the program's use of MPI while it runs: types that do not match, requests
    /// that nobody waits for, leaks, races and more, each with file and line. Deadlocks end the
    /// job; the exit status is not 0 when errors were found
    #[arg(long = "check")]
    pub check: bool,

    /// Let the other ranks continue when one dies (for programs that recover: MPIX_Comm_shrink and
    /// the like)
    #[arg(long = "continue-on-failure", aliases = ["enable-recovery", "disable-auto-cleanup"])]
    pub continue_on_failure: bool,

    /// End the job after this time in seconds, and report what each rank did [default:
    /// MPIEXEC_TIMEOUT, if set]
    #[arg(long = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// When ranks wait for each other so that they can never go on: report (say so after two
    /// seconds, with file and line, and go on waiting), end (say so and end the job with status 1),
    /// or ignore [default: report]
    #[arg(long = "deadlock", env = "MARGAY_DEADLOCK", value_name = "WHAT", value_parser = on_deadlock, hide_env_values = true)]
    pub on_deadlock: Option<OnDeadlock>,
}

/// What is recorded of a job.
#[derive(Clone, Debug, Args)]
pub struct RecordOptions {
    /// Write what the ranks do to this file, for margay view and margay trace
    #[arg(long = "trace", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,

    /// Print at the end who spent how much time where, and who waited for whom; with a file, write
    /// that as JSON instead
    #[arg(long = "profile", value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "", value_hint = ValueHint::FilePath)]
    pub profile: Option<OsString>,
}

/// Files for the time of a job.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct FilesOptions {
    /// Make a parallel file system for the time of the job, striped over these directories,
    /// separated by commas, or over temporary ones; programs find it by the variable MARGAY_PFS.
    /// HOST:/PATH is on another host, each:/PATH on each host of the job. It is removed when the
    /// job has ended
    #[arg(long = "pfs", value_name = "DIRECTORIES", num_args = 0..=1, require_equals = true, default_missing_value = "", value_hint = ValueHint::DirPath)]
    pub pfs: Option<OsString>,

    /// Copy all of it to this directory before it is removed, however the job has ended
    #[arg(id = "pfs_drain", long = "pfs-drain", value_name = "DIRECTORY", requires = "pfs", value_hint = ValueHint::DirPath)]
    pub drain: Option<PathBuf>,

    /// How many of its directories may be lost without a loss of data: 0, 1 or 2 [default: 1 where
    /// three or more are named, else 0]
    #[arg(id = "pfs_parity", long = "pfs-parity", value_name = "N", requires = "pfs", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub parity: Option<u8>,
}

/// Cores, devices, and what is reported about them.
#[derive(Clone, Debug, Args)]
pub struct PlacementOptions {
    /// Bind ranks to cores: auto (each to its share of the cores when there are enough), none, core
    /// (each to one core), core:N (each to N cores), socket, numa, l3cache, l2cache (each to all
    /// cores of one), a list such as 0,2,4-7 (one for each rank), or cores:0-3:4-7 (a list for each
    /// rank); with :overload-allowed, ranks for which there are not enough are not bound [default:
    /// auto]
    #[arg(long = "bind", aliases = ["bind-to"], value_name = "HOW", value_parser = bind)]
    pub bind: Option<Bind>,

    /// Which places consecutive ranks get: slot, core, node (the next core), socket, numa, l3cache,
    /// l2cache (one after the other, in turn), or ppr:N:PLACE (N ranks for each; without -n that is
    /// the number of ranks); with :PE=N, N cores for each rank
    #[arg(long = "map-by", value_name = "PLACE", value_parser = map_by)]
    pub map_by: Option<MapBy>,

    /// The same as -map-by, where that names no place
    #[arg(long = "rank-by", value_name = "PLACE", value_parser = map_by, hide = true)]
    pub rank_by: Option<MapBy>,

    /// Bind each rank to this many cores
    #[arg(long = "cores-per-rank", aliases = ["cpus-per-proc", "cpus-per-rank", "cpus-per-task", "depth"], value_name = "N", value_parser = cores_each)]
    pub cores_per_rank: Option<u32>,

    /// Use these cores only, such as 0,2,4-7
    #[arg(long = "cpu-set", aliases = ["cpu-list"], value_name = "CORES", value_parser = core_list)]
    pub cpu_set: Option<CoreList>,

    /// Run in this partition, on its cores only; without -n there are as many ranks as it has
    /// nodes. NAME:2 asks for two of them
    /// (margay part)
    #[arg(long = "pn", value_name = "PARTITION", conflicts_with = "cpu_set")]
    pub partition: Option<String>,

    /// The priority in the partition, from 0 to 10 [default: 5]
    #[arg(long = "pri", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub priority: Option<u32>,

    /// Refuse to start more ranks than there are usable cores
    #[arg(long = "nooversubscribe", aliases = ["no-oversubscribe"])]
    pub no_oversubscription: bool,

    /// Give each rank its share of the host's GPUs, by the variables that CUDA, HIP and Level Zero
    /// read: of as many as are found, or of N. Ranks that are more than the GPUs share them
    #[arg(long = "gpus", value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "all", value_parser = gpus)]
    pub gpus: Option<Gpus>,

    /// Print the cores to which each rank is bound
    #[arg(long = "report-bindings")]
    pub report_bindings: bool,

    /// Print which ranks run which program on which host
    #[arg(long = "display-map", aliases = ["display-devel-map", "display-diffable-map", "print-rank-map"])]
    pub display_map: bool,

    /// Print the hosts and their cores
    #[arg(long = "display-allocation")]
    pub display_allocation: bool,
}

/// What is added to the environment of programs.
#[derive(Clone, Debug, Args)]
pub struct EnvironmentOptions {
    /// Set an environment variable for this program
    #[arg(long = "env", num_args = 2, value_names = ["NAME", "VALUE"], action = ArgAction::Append, allow_hyphen_values = true)]
    pub env: Vec<OsString>,

    /// Set an environment variable for all programs
    #[arg(long = "genv", num_args = 2, value_names = ["NAME", "VALUE"], action = ArgAction::Append, allow_hyphen_values = true)]
    pub genv: Vec<OsString>,

    /// Set an environment variable; without a value, the launcher's value is kept
    #[arg(short = 'x', value_name = "NAME[=VALUE]", action = ArgAction::Append)]
    pub export: Vec<OsString>,

    /// Pass on only these variables of the launcher's environment to this program
    #[arg(long = "envlist", value_name = "NAME,...", value_parser = names)]
    pub envlist: Option<Names>,

    /// Pass on only these variables of the launcher's environment
    #[arg(long = "genvlist", value_name = "NAME,...", value_parser = names)]
    pub genvlist: Option<Names>,

    /// Pass on no variable of the launcher's environment to this program
    #[arg(long = "envnone")]
    pub envnone: bool,

    /// Pass on no variable of the launcher's environment
    #[arg(long = "genvnone")]
    pub genvnone: bool,

    /// Pass on all variables of the launcher's environment but these
    #[arg(long = "genvexcl", aliases = ["envexcl"], value_name = "NAME,...", value_parser = names)]
    pub genvexcl: Option<Names>,
}

/// Standard input, standard output, and the launcher's own messages.
#[derive(Clone, Debug, Args)]
pub struct StreamOptions {
    /// Ranks that get the standard input: a rank, all or none [default: 0]
    #[arg(long = "stdin", aliases = ["s"], value_name = "WHO", value_parser = stdin_to)]
    pub stdin: Option<StdinTo>,

    /// How standard output is shown: unordered (each line when it is complete), label (the same
    /// with the rank before each line), ordered (rank after rank), or rank:N (only that rank)
    /// [default: unordered]
    #[arg(long = "output", value_name = "HOW", value_parser = output)]
    pub output: Option<OutputOption>,

    /// Put the rank before each line
    #[arg(short = 'l', long = "label", aliases = ["prepend-rank", "tag-output"])]
    pub label: bool,

    /// Put the time before each line: 2026-11-23T04:05:06.789Z
    #[arg(long = "timestamp", aliases = ["timestamp-output"])]
    pub timestamp: bool,

    /// Let standard error be the same as standard output
    #[arg(long = "merge-stderr-to-stdout", aliases = ["stderr-to-stdout"])]
    pub merge: bool,

    /// Write the ranks' standard output to files instead of showing it. In their names, %r is the
    /// rank, %R the rank with leading zeros, %h its host, %p the host's number, %g is 0, %% is a
    /// percent sign; ranks whose file has the same name share it. Folders are made
    #[arg(long = "output-files", aliases = ["outfile-pattern", "outfile"], value_name = "PATTERN")]
    pub output_files: Option<String>,

    /// The same for standard error
    #[arg(long = "error-files", aliases = ["errfile-pattern", "errfile"], value_name = "PATTERN")]
    pub error_files: Option<String>,

    /// Show what goes to files, too
    #[arg(long = "tee")]
    pub tee: bool,

    /// Print no messages of the launcher except errors
    #[arg(short = 'q', long = "quiet")]
    pub quiet: bool,
}

/// On a terminal the display is live (q quits); elsewhere it is printed once.
#[derive(Clone, Debug, Args)]
pub struct ViewOptions {
    /// Print JSON, once
    #[arg(long)]
    pub json: bool,

    /// Print once, also on a terminal
    #[arg(long)]
    pub once: bool,

    /// Show only this job
    #[arg(long, value_name = "ID")]
    pub job: Option<u64>,

    /// Seconds between two updates of the live display
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
}

/// Options of `margay mesh`.
#[derive(Args, Clone, Debug)]
pub struct MeshOptions {
    #[command(flatten)]
    pub view: ViewOptions,

    /// Ranks that do the same share a line
    #[arg(long)]
    pub group: bool,

    /// In which order the lines stand
    #[arg(long, value_name = "ORDER", default_value = "rank")]
    pub sort: Sort,

    /// Show only some ranks: their numbers (0-3,8), or a piece of what they do (waiting, MPI_Recv)
    #[arg(long, value_name = "WHAT")]
    pub only: Option<String>,

    /// Print sentences without columns and signs once, for screen readers
    #[arg(long)]
    pub plain: bool,
}

/// Returns the parser of the launcher under one of its names.
#[must_use]
pub fn run_command(name: &str) -> clap::Command {
    let command = clap::Command::new("run").version(VERSION);
    named(RunOptions::augment_args(command), name)
}

/// Returns the parser of the display of jobs under one of its names.
#[must_use]
pub fn mesh_command(name: &str) -> clap::Command {
    let about = "Show the jobs that run on this machine: their ranks, their cores, and what each rank does or waits for";
    let command = clap::Command::new("view").version(VERSION);
    about_views(MeshOptions::augment_args(command), name, about)
}

/// Returns the parser of the display of markers.
#[must_use]
pub fn markers_command() -> clap::Command {
    let about = "Show the lights and texts that MPL tasks set (the Program Marker Array)";
    view_command("margay markers", about)
}

/// Returns the parser of the command that says why a job hangs.
#[must_use]
pub fn why_command() -> clap::Command {
    let command = clap::Command::new("why").version(VERSION);
    named(WhyOptions::augment_args(command), "margay why")
}

/// Returns the parser of the view of a process's teams.
#[must_use]
pub fn threads_command() -> clap::Command {
    let command = clap::Command::new("threads").version(VERSION);
    named(ThreadsOptions::augment_args(command), "margay threads")
}

fn view_command(name: &str, about: &'static str) -> clap::Command {
    let command = clap::Command::new("view").version(VERSION);
    about_views(ViewOptions::augment_args(command), name, about)
}

fn about_views(command: clap::Command, name: &str, about: &'static str) -> clap::Command {
    let notes = command.get_about().cloned().unwrap_or_default();
    named(
        command
            .long_about(format!("{about}.\n\n{notes}."))
            .about(about),
        name,
    )
}

/// Returns the parser of `margay` itself.
#[must_use]
pub fn margay_command() -> clap::Command {
    Margay::command()
}

fn named(command: clap::Command, name: &str) -> clap::Command {
    let usage = command
        .clone()
        .get_arguments()
        .any(|a| a.get_id() == "program")
        .then(|| {
            format!(
                "{name} [OPTIONS] PROGRAM [ARGUMENTS]... [: [OPTIONS] PROGRAM [ARGUMENTS]...]..."
            )
        });
    let command = command
        .name(name.replace(' ', "-"))
        .display_name(name)
        .bin_name(name);
    match usage {
        Some(usage) => command.override_usage(usage),
        None => command,
    }
}

/// Returns the error of a parser in one line: what is wrong, and where help is.
#[must_use]
pub fn one_line(error: &clap::Error, name: &str) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraphs: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more information"))
        .filter(|l| !l.is_empty())
        .collect();
    format!("{}; see {name} --help", paragraphs.join(" "))
}
