//! The options of all commands. This is the one definition from which the parser, the help, the
//! manual pages and the completions come.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, ValueHint};
use margay_job_launch::binding::parse_list;
use margay_job_launch::plan::{Binding, Job, Output, Program, StdinTo, TimeLimit};

use crate::hosts::{host_file, hosts};

/// What `--version` says after the command's name.
pub const VERSION: &str = concat!("(Margay) ", env!("CARGO_PKG_VERSION"));

/// The names of all commands.
pub const COMMANDS: [&str; 6] = ["margay", "mpiexec", "mpirun", "yod", "poe", "showmesh"];

/// Margay: run MPI programs on this machine, and show what they do.
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
    /// Run a program on some ranks (also called mpiexec, mpirun, yod, and poe with the options of the SP2).
    Run(Box<RunOptions>),
    /// Show the jobs that run on this machine (also called showmesh).
    Mesh(ViewOptions),
    /// Show the lights and texts that MPL tasks set (the Program Marker Array).
    Markers(ViewOptions),
    /// Measure this machine with the performance suite.
    Bench(Box<margay_cli_bench_options::BenchOptions>),
    /// Run an OpenMP program built by gcc, gfortran, clang or flang on Margay's threads.
    Omp(OmpOptions),
    /// Show the teams of a running OpenMP program: which members run, and what the others wait for.
    Threads(ThreadsOptions),
    /// Build the Fortran modules and library for a compiler.
    Fortran(FortranOptions),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
        /// The command to complete.
        #[arg(default_value = "margay", value_parser = COMMANDS)]
        command: String,
    },
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
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

/// Show the teams of a running OpenMP program: which members run, and what the others wait for. The program is not stopped.
#[derive(Clone, Debug, Args)]
pub struct ThreadsOptions {
    /// The process, which may be a rank of a job.
    #[arg(value_parser = process_id)]
    pub pid: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
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
belong to the program.

Exit status: that of the first rank that failed (128 + the number of the signal that killed it), \
124 when the time limit is over, 127 when the program is not found, 126 when it cannot be executed, \
2 for wrong usage.";

/// Run a program on some ranks.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub struct RunOptions {
    /// Number of ranks [default: one for each usable core, or 1 when there are several programs]
    #[arg(short = 'n', long = "np", aliases = ["n", "ntasks", "sz", "size"], short_alias = 'c', visible_alias = "sz", value_name = "RANKS", value_parser = ranks)]
    pub ranks: Option<u32>,

    /// Run on these hosts; only this machine is possible
    #[arg(long = "host", aliases = ["hosts"], short_alias = 'H', value_name = "HOST,...", value_parser = hosts)]
    pub host: Option<()>,

    /// Read the hosts from a file; only this machine is possible
    #[arg(long = "hostfile", aliases = ["machinefile"], short_alias = 'f', value_name = "FILE", value_parser = host_file, value_hint = ValueHint::FilePath)]
    pub host_file: Option<()>,

    /// Working directory of the program
    #[arg(long = "wdir", aliases = ["wd", "cwd", "chdir"], value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,

    /// What is added to the environment.
    #[command(flatten)]
    pub environment: EnvironmentOptions,

    /// Type of the program's processes on their nodes, for NX: programs of several types may share nodes [default: 0]
    #[arg(long = "pt", value_name = "TYPE", value_parser = clap::value_parser!(u32).range(0..32768))]
    pub process_type: Option<u32>,

    /// Nodes of the program's processes, for NX: a list such as 0,2 or 1..3 [default: the next free nodes]
    #[arg(long = "on", value_name = "NODES", value_parser = node_list)]
    pub on: Option<NodeList>,

    /// Let the other ranks continue when one dies (for programs that recover: MPIX_Comm_shrink and the like)
    #[arg(long = "continue-on-failure", aliases = ["enable-recovery", "disable-auto-cleanup"])]
    pub continue_on_failure: bool,

    /// End the job after this time in seconds, and report what each rank did [default: MPIEXEC_TIMEOUT, if set]
    #[arg(long = "timeout", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Bind ranks to cores: auto (each to its share of the cores when there are enough), none, core
    /// (each to one core), or a list such as 0,2,4-7 [default: auto]
    #[arg(long = "bind", aliases = ["bind-to"], value_name = "HOW", value_parser = binding)]
    pub bind: Option<Binding>,

    /// Print the cores to which each rank is bound
    #[arg(long = "report-bindings")]
    pub report_bindings: bool,

    /// Where input comes from and output goes to.
    #[command(flatten)]
    pub streams: StreamOptions,

    /// What other launchers have.
    #[command(flatten)]
    pub accepted: AcceptedOptions,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
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
}

/// Standard input, standard output, and the launcher's own messages.
#[derive(Clone, Debug, Args)]
pub struct StreamOptions {
    /// Ranks that get the standard input: a rank, all or none [default: 0]
    #[arg(long = "stdin", aliases = ["s"], value_name = "WHO", value_parser = stdin_to)]
    pub stdin: Option<StdinTo>,

    /// How standard output is shown: unordered (each line when it is complete), label (the same with
    /// the rank before each line), ordered (rank after rank), or rank:N (only that rank)
    /// [default: unordered]
    #[arg(long = "output", value_name = "HOW", value_parser = output)]
    pub output: Option<OutputOption>,

    /// Put the rank before each line
    #[arg(short = 'l', long = "label", aliases = ["prepend-rank", "tag-output"])]
    pub label: bool,

    /// Print no messages of the launcher except errors
    #[arg(short = 'q', long = "quiet")]
    pub quiet: bool,
}

/// Options of other launchers that change nothing here.
#[derive(Clone, Debug, Args)]
pub struct AcceptedOptions {
    /// Accepted for compatibility: there is no limit to the ranks on a core
    #[arg(long = "oversubscribe", aliases = ["use-hwthread-cpus"], hide = true)]
    pub oversubscribe: bool,

    /// Accepted for compatibility: root may run jobs
    #[arg(long = "allow-run-as-root", hide = true)]
    pub allow_run_as_root: bool,

    /// Accepted for compatibility: all variables are passed on
    #[arg(long = "genvall", aliases = ["envall"], hide = true)]
    pub genvall: bool,

    /// Accepted for compatibility: all ranks run on this machine
    #[arg(long = "ppn", aliases = ["perhost", "npernode"], short_alias = 'N', value_name = "RANKS", value_parser = ranks, hide = true)]
    pub ppn: Option<u32>,
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

/// What `--on` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList(Vec<u32>);

/// What `--output` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputOption {
    /// As the plan knows it.
    Plain(Output),
    /// Unordered with labels.
    Labelled,
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
    view_command(name, about)
}

/// Returns the parser of the display of markers.
#[must_use]
pub fn markers_command() -> clap::Command {
    let about = "Show the lights and texts that MPL tasks set (the Program Marker Array)";
    view_command("margay markers", about)
}

/// Returns the parser of the view of a process's teams.
#[must_use]
pub fn threads_command() -> clap::Command {
    let command = clap::Command::new("threads").version(VERSION);
    named(ThreadsOptions::augment_args(command), "margay threads")
}

fn view_command(name: &str, about: &'static str) -> clap::Command {
    let command = clap::Command::new("view").version(VERSION);
    let command = ViewOptions::augment_args(command);
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

/// Makes the job of the parsed segments, one for each program.
///
/// # Errors
/// When a program is missing or options contradict each other.
pub fn job(name: &str, segments: Vec<RunOptions>) -> Result<Job, String> {
    let mut job = Job {
        launcher: name.to_owned(),
        programs: Vec::new(),
        stdin: StdinTo::Rank(0),
        output: Output::Unordered,
        label: false,
        binding: Binding::Auto,
        report_bindings: false,
        quiet: false,
        continue_on_failure: false,
        timeout: None,
    };
    let everybody: Vec<(OsString, OsString)> = segments
        .iter()
        .flat_map(|s| pairs(&s.environment.genv))
        .collect();
    for options in segments {
        let mut words = options.program.into_iter();
        let command = words.next().ok_or_else(|| {
            format!("there is no program to run; write: {name} -n 4 ./a.out (see {name} --help)")
        })?;
        let mut environment = everybody.clone();
        environment.extend(pairs(&options.environment.env));
        for export in options.environment.export {
            let mut parts = export.as_bytes().splitn(2, |&b| b == b'=');
            let name = parts.next().unwrap_or_default();
            // Without a value it is passed on as it is, like everything in the environment.
            if let Some(value) = parts.next() {
                let own = |bytes| OsStr::from_bytes(bytes).to_owned();
                environment.push((own(name), own(value)));
            }
        }
        if let Some((bad, _)) = environment.iter().find(|(n, _)| {
            let name = n.to_string_lossy();
            name.is_empty() || name.contains('=')
        }) {
            let bad = bad.to_string_lossy();
            return Err(format!(
                "'{bad}' cannot be the name of an environment variable; write: -env NAME VALUE"
            ));
        }
        job.programs.push(Program {
            ranks: options.ranks,
            command,
            arguments: words.collect(),
            process_type: options.process_type.unwrap_or(0),
            nodes: options.on.map(|NodeList(nodes)| nodes),
            directory: options.directory,
            environment,
        });
        job.stdin = options.streams.stdin.unwrap_or(job.stdin);
        match options.streams.output {
            Some(OutputOption::Plain(output)) => job.output = output,
            Some(OutputOption::Labelled) => job.label = true,
            None => {}
        }
        job.label |= options.streams.label;
        job.binding = options.bind.unwrap_or(job.binding);
        job.report_bindings |= options.report_bindings;
        job.quiet |= options.streams.quiet;
        job.continue_on_failure |= options.continue_on_failure;
        let limit = options.timeout.map(|time| TimeLimit {
            time,
            from: "-timeout",
        });
        job.timeout = limit.or(job.timeout);
    }
    Ok(job)
}

/// The variable of the environment that sets the time limit where no option does.
pub const ENV_TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// Gives a job without a time limit the one of [`ENV_TIMEOUT`], whose value is `text`.
///
/// # Errors
/// When that is no time.
pub fn with_time_limit(mut job: Job, text: Option<&str>) -> Result<Job, String> {
    if let (None, Some(text)) = (job.timeout, text.filter(|text| !text.is_empty())) {
        let time = seconds(text).map_err(|why| format!("{ENV_TIMEOUT} is '{text}': {why}"))?;
        job.timeout = Some(TimeLimit {
            time,
            from: ENV_TIMEOUT,
        });
    }
    Ok(job)
}

fn pairs(words: &[OsString]) -> Vec<(OsString, OsString)> {
    words
        .chunks_exact(2)
        .map(|p| (p[0].clone(), p[1].clone()))
        .collect()
}

pub(crate) fn ranks(text: &str) -> Result<u32, String> {
    match text.parse::<i128>() {
        Ok(n) if n >= 1 && n <= i128::from(Job::MOST_RANKS) => Ok(n as u32),
        Ok(n) if n < 1 => Err("a job needs at least 1 rank".into()),
        Ok(_) => Err(format!("at most {} ranks are possible", Job::MOST_RANKS)),
        Err(_) => Err("this is not a number of ranks".into()),
    }
}

fn process_id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&pid: &u32| pid > 0);
    number.ok_or_else(|| "give the number of a process, as ps and showmesh print it".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|&s| s > 0.0 && s < 1e9)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "this is not a number of seconds above 0".into())
}

fn binding(text: &str) -> Result<Binding, String> {
    match text {
        "auto" => Ok(Binding::Auto),
        "none" => Ok(Binding::None),
        "core" | "hwthread" => Ok(Binding::Core),
        list if list.starts_with(|c: char| c.is_ascii_digit()) => {
            parse_list(list).map(Binding::List)
        }
        _ => Err("choose auto, none, core, or a list of cores such as 0,2,4-7".into()),
    }
}

fn node_list(text: &str) -> Result<NodeList, String> {
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&n| n < 65_536);
        let ends = part.split_once("..").or_else(|| part.split_once('-'));
        let range = match ends {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(part).map(|n| (n, n)),
        };
        match range {
            Some((first, last)) if first <= last => nodes.extend(first..=last),
            _ => return Err("choose nodes below 65536, such as 0,2 or 1..3".into()),
        }
    }
    Ok(NodeList(nodes))
}

fn stdin_to(text: &str) -> Result<StdinTo, String> {
    match text {
        "all" => Ok(StdinTo::All),
        "none" => Ok(StdinTo::Nobody),
        rank => rank
            .parse()
            .map(StdinTo::Rank)
            .map_err(|_| "choose a rank, all or none".into()),
    }
}

fn output(text: &str) -> Result<OutputOption, String> {
    let plain = |output| Ok(OutputOption::Plain(output));
    match text {
        "unordered" => plain(Output::Unordered),
        "label" | "labelled" | "labeled" => Ok(OutputOption::Labelled),
        "ordered" => plain(Output::Ordered),
        other => match other.strip_prefix("rank:").unwrap_or(other).parse() {
            Ok(rank) => plain(Output::Rank(rank)),
            Err(_) => Err("choose unordered, label, ordered or rank:N".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use clap::FromArgMatches;

    fn parsed(line: &str) -> Result<Job, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let command = run_command("mpiexec");
        let segments = crate::single_dash::segments(&command, words)?
            .into_iter()
            .map(|segment| {
                let words = std::iter::once(OsString::from("mpiexec")).chain(segment);
                command
                    .clone()
                    .try_get_matches_from(words)
                    .and_then(|m| RunOptions::from_arg_matches(&m))
                    .map_err(|e| one_line(&e, "mpiexec"))
            })
            .collect::<Result<Vec<_>, String>>()?;
        job("mpiexec", segments)
    }

    #[test]
    fn the_definitions_are_sound() {
        run_command("mpiexec").debug_assert();
        mesh_command("showmesh").debug_assert();
        margay_command().debug_assert();
    }

    #[test]
    fn every_way_to_tell_the_ranks() {
        for line in [
            "-n 3 a", "-np 3 a", "--np 3 a", "-sz 3 a", "--n 3 a", "-c 3 a", "-n3 a", "--np=3 a",
        ] {
            assert_eq!(parsed(line).unwrap().programs[0].ranks, Some(3), "{line}");
        }
        assert_eq!(parsed("a").unwrap().programs[0].ranks, None);
        for line in ["-n 0 a", "-n -3 a", "-n x a", "-n 99999999999 a", "-n"] {
            let error = parsed(line).unwrap_err();
            assert!(
                !error.contains('\n') && error.contains("mpiexec --help"),
                "{error}"
            );
        }
    }

    #[test]
    fn programs_keep_their_own_options() {
        let job = parsed("-n 1 -wdir /usr -env A 1 a -n 9 : -genv G 2 -n 2 b -l").unwrap();
        let [a, b] = &job.programs[..] else {
            panic!("{job:?}")
        };
        assert_eq!((a.ranks, b.ranks), (Some(1), Some(2)));
        assert_eq!(a.arguments, ["-n", "9"]);
        assert_eq!(a.directory.as_deref(), Some(Path::new("/usr")));
        assert_eq!(
            a.environment,
            [("G".into(), "2".into()), ("A".into(), "1".into())]
        );
        assert_eq!(b.environment, [("G".into(), "2".into())]);
        assert!(!job.label);
    }

    #[test]
    fn choices() {
        let job = parsed("-l -bind none -stdin all -output ordered -timeout 1.5 -x A=b=c -x B a")
            .unwrap();
        assert!(job.label);
        assert_eq!(job.binding, Binding::None);
        assert_eq!(job.stdin, StdinTo::All);
        assert_eq!(job.output, Output::Ordered);
        assert_eq!(job.timeout.unwrap().time, Duration::from_millis(1500));
        assert_eq!(job.programs[0].environment, [("A".into(), "b=c".into())]);
        assert_eq!(parsed("-output rank:3 a").unwrap().output, Output::Rank(3));
        assert_eq!(
            parsed("-bind 1,0 a").unwrap().binding,
            Binding::List(vec![1, 0])
        );
        let peers = "--oversubscribe --allow-run-as-root --bind-to core -genvall -ppn 2 a";
        assert_eq!(parsed(peers).unwrap().binding, Binding::Core);
    }

    #[test]
    fn the_environment_limits_the_time_where_no_option_does() {
        let job = parsed("a").unwrap();
        let limited = with_time_limit(job.clone(), Some("10")).unwrap();
        let limit = limited.timeout.unwrap();
        assert_eq!((limit.time.as_secs(), limit.from), (10, "MPIEXEC_TIMEOUT"));
        for none in [None, Some("")] {
            assert_eq!(with_time_limit(job.clone(), none).unwrap().timeout, None);
        }
        let error = with_time_limit(job, Some("soon")).unwrap_err();
        assert!(error.starts_with("MPIEXEC_TIMEOUT is 'soon': "), "{error}");
        let job = parsed("-timeout 3 a").unwrap();
        let limited = with_time_limit(job, Some("soon")).unwrap();
        assert_eq!(limited.timeout.unwrap().time.as_secs(), 3);
    }

    #[test]
    fn only_this_machine() {
        let error = parsed("-host localhost,far a").unwrap_err();
        assert!(error.contains("'far' is not this machine"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn errors_are_one_line() {
        for line in [
            "",
            "-n 2",
            "-nonsense a",
            "-output x a",
            "-stdin x a",
            "-timeout 0 a",
            "-bind x a",
            "-env =A 1 a",
            "-wdir",
        ] {
            let error = parsed(line).unwrap_err();
            assert!(!error.contains('\n') && error.len() > 20, "{line}: {error}");
        }
    }
}
