//! `poe`: the launcher as the users of the SP2 know it, with the options and variables of IBM's
//! Parallel Operating Environment.
//!
//! Its options stand before or behind the program and its arguments. Most of them have a variable
//! of the environment, over which the command line wins. What belongs to the SP2's switch or to
//! several machines is accepted where it changes nothing and refused where it would.

mod commands;
mod places;
mod pools;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, ValueHint};
use margay_job_launch::plan::{Hosts, Inherit, Job, Output, Program, StdinTo};
use margay_job_launch::turns::Turns;

use crate::allocation::Allocation;
use crate::options::{VERSION, one_line};
use crate::single_dash;
use crate::values::ranks;
use commands::{Commands, Words};
use places::{HostFile, host_file, names, places};
use pools::{Nodes, PoolOptions};

/// The command's name.
pub const NAME: &str = "poe";

const NOTES: &str = "\
Options may stand before or after the program. Words that are not options belong to the program. With MP_NOARGLIST=yes all words \
after the program belong to it, and with MP_FENCE=WORD all words after that word. An option takes precedence over its environment \
variable.

A pool is a partition (margay part): -rmpool 1 runs on nodes of the partition 1. Without any partition that has a number as its \
name, each number is the pool of all nodes. In the job of a batch system there are the nodes of that job instead.

MP_EUIDEVICE, MP_RESD, MP_RETRY, MP_BUFFER_MEM, MP_SHARED_MEMORY, MP_WAIT_MODE, MP_SINGLE_THREAD and MP_PMDLOG, and the options of \
these names, are accepted and have no effect: there is no switch and no daemon.

Without a program and without a command file, commands come from the standard input: one for all tasks, or, with -pgmmodel mpmd, a \
line for each task. The tasks get the rest of it. With -newjob yes each line is a job of its own (with mpmd: a line for each task), until the line 'quit', the end of the input or of the command file, or a job that ends with 1 or with 128 and more; the tasks get \
no input then.

A program that is linked with libmpl and started directly starts itself through poe when MP_PROCS is set or -procs is among its \
arguments.

Exit status: that of mpiexec.";

/// Options that are accepted and change nothing, each with a value.
const WITHOUT_EFFECT: [&str; 8] = [
    "euidevice",
    "resd",
    "retry",
    "buffer_mem",
    "shared_memory",
    "wait_mode",
    "single_thread",
    "pmdlog",
];

/// Run a parallel program as on the SP2.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
// Fields: each is an option of the command.
pub struct PoeOptions {
    /// Number of tasks [default: one for each usable core, or for each line of the command file]
    #[arg(long = "procs", env = "MP_PROCS", value_name = "TASKS", value_parser = ranks)]
    pub procs: Option<u32>,

    /// Put the task before each line of output
    #[arg(long = "labelio", env = "MP_LABELIO", value_name = "yes|no", value_parser = BoolishValueParser::new(), hide_possible_values = true, action = ArgAction::Set, default_value = "no")]
    pub label: bool,

    /// How standard output is shown: unordered (each line when it is complete), ordered (task after
    /// task), or only that of one task
    #[arg(long = "stdoutmode", env = "MP_STDOUTMODE", value_name = "unordered|ordered|TASK", value_parser = output, default_value = "unordered")]
    pub output: Output,

    /// Tasks that get the standard input
    #[arg(long = "stdinmode", env = "MP_STDINMODE", value_name = "all|none|TASK", value_parser = input, default_value = "all")]
    pub input: StdinTo,

    /// Messages: 0 only errors of the launcher, 1 all errors and warnings, also of MPL, 2 to 6 also
    /// the cores on which tasks run
    #[arg(long = "infolevel", visible_alias = "ilevel", env = "MP_INFOLEVEL", value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(0..=6), default_value = "1")]
    pub level: u32,

    /// Longest message in bytes that does not wait for its receive, such as 4096, 64K or 1M
    #[arg(long = "eager_limit", env = "MP_EAGER_LIMIT", value_name = "BYTES", value_parser = bytes)]
    pub eager_limit: Option<u64>,

    /// A thread moves messages while tasks compute
    #[arg(long = "css_interrupt", env = "MP_CSS_INTERRUPT", value_name = "yes|no", value_parser = BoolishValueParser::new(), hide_possible_values = true, action = ArgAction::Set, default_value = "no")]
    pub interrupts: bool,

    /// Number of lights in a task's row of the Program Marker Array, up to 32 [default: 8]
    #[arg(long = "pmlights", env = "MP_PMLIGHTS", value_name = "LIGHTS", value_parser = clap::value_parser!(u32).range(0..=32))]
    pub lights: Option<u32>,

    /// Read the hosts from a file, that of one task on each line. NULL: no file
    #[arg(long = "hostfile", visible_alias = "hfile", env = "MP_HOSTFILE", value_name = "FILE", value_parser = host_file, value_hint = ValueHint::FilePath)]
    pub host_file: Option<HostFile>,

    /// Write the host of each task to a file, one on each line
    #[arg(long = "savehostfile", env = "MP_SAVEHOSTFILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save_host_file: Option<PathBuf>,

    /// Number of machines: that many of the host file, or nodes of the pool, are used
    #[arg(long = "nodes", env = "MP_NODES", value_name = "NODES", value_parser = ranks)]
    pub nodes: Option<u32>,

    /// Number of tasks on each machine
    #[arg(long = "tasks_per_node", env = "MP_TASKS_PER_NODE", value_name = "TASKS", value_parser = ranks)]
    pub tasks_per_node: Option<u32>,

    #[command(flatten)]
    pub pool: PoolOptions,

    /// spmd: all tasks run the same program; mpmd: each task runs the command in its line of the
    /// command file or of the standard input
    #[arg(long = "pgmmodel", env = "MP_PGMMODEL", value_name = "spmd|mpmd", value_parser = ["spmd", "mpmd"], ignore_case = true, default_value = "spmd")]
    pub model: String,

    /// Jobs are run one after the other, as the lines of the command file or of the standard input
    /// say
    #[arg(long = "newjob", env = "MP_NEWJOB", value_name = "yes|no", value_parser = BoolishValueParser::new(), hide_possible_values = true, action = ArgAction::Set, default_value = "no")]
    pub new_job: bool,

    /// Programs with their arguments: one line for each task of an mpmd job, or for each job of
    /// -newjob
    #[arg(long = "cmdfile", env = "MP_CMDFILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub command_file: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Returns the parser of `poe`.
#[must_use]
pub fn command() -> clap::Command {
    let command = clap::Command::new(NAME)
        .version(VERSION)
        .display_name(NAME)
        .bin_name(NAME)
        .override_usage("poe [OPTIONS] [PROGRAM [ARGUMENTS]...] [OPTIONS]");
    let without_effect = WITHOUT_EFFECT.map(|name| {
        clap::Arg::new(name)
            .long(name)
            .value_name("VALUE")
            .allow_hyphen_values(true)
            .hide(true)
    });
    PoeOptions::augment_args(command).args(without_effect)
}

/// What decides which words behind the program are options.
#[derive(Clone, Debug, Default)]
pub struct Division {
    /// `MP_NOARGLIST`: none of them.
    pub none: bool,
    /// `MP_FENCE`: those before this word.
    pub fence: Option<OsString>,
}

impl Division {
    /// As the environment says.
    #[must_use]
    pub fn of_environment() -> Division {
        let yes = |value: OsString| value.eq_ignore_ascii_case("yes");
        Division {
            none: std::env::var_os("MP_NOARGLIST").is_some_and(yes),
            fence: std::env::var_os("MP_FENCE").filter(|fence| !fence.is_empty()),
        }
    }
}

/// Returns the words as the parser wants them: options with two dashes, then `--`, the program and
/// its arguments.
///
/// # Errors
/// When an option before the program does not exist.
pub fn words(
    command: &mut clap::Command,
    arguments: Vec<OsString>,
    division: &Division,
) -> Result<Vec<OsString>, String> {
    command.build();
    let (mut options, mut program) = (Vec::new(), Vec::new());
    let mut fenced = false;
    let mut rest = arguments.into_iter();
    while let Some(word) = rest.next() {
        if division.fence.as_ref() == Some(&word) && !fenced {
            fenced = true;
            continue;
        }
        let text = word.to_string_lossy();
        let is_option = text.starts_with('-') && text.len() > 1 && !fenced;
        let found = match (is_option, program.is_empty()) {
            (true, true) => Some(single_dash::option(command, &word)?),
            // Behind the program only what is one of ours to the letter.
            (true, false) if !division.none && is_ours(command, &text) => {
                Some(single_dash::option(command, &word)?)
            }
            _ => None,
        };
        match found {
            Some((written, values)) => {
                options.push(written);
                options.extend(rest.by_ref().take(values));
            }
            None => program.push(word),
        }
    }
    options.push("--".into());
    options.append(&mut program);
    Ok(options)
}

/// Whether a word behind the program is an option of POE.
fn is_ours(command: &clap::Command, word: &str) -> bool {
    let Some(name) = word.strip_prefix('-') else {
        return false;
    };
    let mut options = command
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values());
    options.any(|arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
    })
}

/// Names the variable in the error of a parser whose value came from the environment.
#[must_use]
pub fn with_source(command: &clap::Command, words: &[OsString], error: &clap::Error) -> String {
    let text = one_line(error, NAME);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return text;
    };
    let long = option.split_whitespace().next().unwrap_or_default();
    if words.iter().take_while(|w| *w != "--").any(|w| w == long) {
        return text;
    }
    let mut arguments = command.get_arguments();
    let found = arguments.find(|arg| arg.get_long() == long.strip_prefix("--"));
    match found.and_then(clap::Arg::get_env) {
        Some(variable) => {
            let variable = format!("of the variable {}", variable.to_string_lossy());
            text.replacen(&format!("for '{option}'"), &variable, 1)
        }
        None => text,
    }
}

/// What a batch system has given to the job in which `poe` runs.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its hosts, where it names any.
    pub hosts: Option<Allocation>,
    /// The number of its tasks, where it says one.
    pub tasks: Option<u32>,
}

/// The jobs of one `poe`, one after the other.
#[derive(Debug)]
pub struct Jobs {
    options: PoeOptions,
    tasks: Option<u32>,
    hosts: Option<Hosts>,
    pool: Option<Nodes>,
    commands: Option<Commands>,
}

impl Jobs {
    /// Checks the options. `given` are the hosts of a batch system's job in which this is.
    ///
    /// # Errors
    /// When options contradict each other, or a file cannot be read.
    pub fn of(options: PoeOptions, given: Option<&Given>) -> Result<Jobs, String> {
        let is_mpmd = options.is_mpmd();
        let has_commands = is_mpmd || options.new_job;
        match options.program.first() {
            Some(word) if has_commands => {
                let (option, word) = (
                    if is_mpmd { "-pgmmodel mpmd" } else { "-newjob" },
                    word.to_string_lossy(),
                );
                return Err(format!(
                    "with {option} the command file or the standard input names the programs; leave out '{word}'"
                ));
            }
            _ => {}
        }
        let commands = match &options.command_file {
            Some(_) if !has_commands => {
                return Err(
                    "-cmdfile is for -pgmmodel mpmd, or for -newjob yes, which runs its lines one after the other".into(),
                );
            }
            Some(file) => Some(Commands::of_file(file)?),
            None if options.program.is_empty() => Some(Commands::Input),
            None => None,
        };
        // As with LoadLeveler, a job that has its nodes asks for no others.
        let (tasks, hosts, pool) = match pools::nodes(&options)?.filter(|_| given.is_none()) {
            Some((tasks, nodes)) => (tasks, None, Some(nodes)),
            None => {
                let given_hosts = given.and_then(|given| given.hosts.as_ref());
                let (tasks, hosts) = places(&options, given_hosts)?;
                let is_here = hosts.is_none() && given_hosts.is_none();
                let of_job = given.and_then(|given| given.tasks).filter(|_| is_here);
                (tasks.or(of_job), hosts, None)
            }
        };
        Ok(Jobs {
            options,
            tasks,
            hosts,
            pool,
            commands,
        })
    }

    /// Whether there may be more jobs after one.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.options.new_job
    }

    /// Returns the next job; `None` after the last.
    ///
    /// # Errors
    /// When commands are missing, or a file cannot be read.
    pub fn next_job(&mut self) -> Result<Option<Job>, String> {
        let lines = match self.next_lines()? {
            Some(lines) => lines,
            None if self.options.new_job => return Ok(None),
            None => {
                return Err(
                    "there is no program to run; write: poe ./a.out -procs 4 (see poe --help)"
                        .into(),
                );
            }
        };
        let environment = self.options.environment();
        let ranks = if self.options.is_mpmd() {
            Some(1)
        } else {
            self.tasks
        };
        let programs = lines.into_iter().filter_map(|words| {
            let mut words = words.into_iter();
            words.next().map(|command| Program {
                ranks,
                command,
                arguments: words.collect(),
                process_type: 0,
                nodes: None,
                directory: None,
                inherit: Inherit::All,
                environment: environment.clone(),
                file: None,
            })
        });
        Ok(Some(Job {
            programs: programs.collect(),
            stdin: if self.options.new_job {
                StdinTo::Nobody
            } else {
                self.options.input
            },
            output: self.options.output,
            label: self.options.label,
            report_bindings: self.options.level >= 2,
            quiet: self.options.level == 0,
            hosts: self.hosts.clone(),
            ..Job::new(NAME)
        }))
    }

    /// Waits for nodes of the pool for a job, where it is to run in one, and writes the hosts of
    /// its tasks to the file for them.
    ///
    /// # Errors
    /// When the pool cannot be used, or the file cannot be written.
    pub fn place(&mut self, job: &mut Job) -> Result<Option<Turns>, String> {
        let pool = self.pool.as_ref();
        let turns = pool.map(|nodes| nodes.ask(job)).transpose()?;
        // All jobs run on the same hosts.
        if let Some(file) = self.options.save_host_file.take() {
            std::fs::write(&file, names(job))
                .map_err(|e| format!("cannot write the hosts to '{}': {e}", file.display()))?;
        }
        Ok(turns)
    }

    /// The commands of the next job: one, or one for each task.
    fn next_lines(&mut self) -> Result<Option<Vec<Words>>, String> {
        let Some(commands) = &mut self.commands else {
            return Ok(Some(vec![self.options.program.clone()]));
        };
        if !self.options.is_mpmd() {
            return Ok(commands.next(NAME)?.map(|line| vec![line]));
        }
        let wanted = self.tasks.map(|tasks| tasks as usize);
        if wanted.is_none() && !matches!(commands, Commands::File(_)) {
            return Err(
                "-pgmmodel mpmd without a command file reads a line for each task: say how many with -procs".into(),
            );
        }
        let mut lines = Vec::new();
        while wanted.is_none_or(|wanted| lines.len() < wanted) {
            match commands.next(&lines.len().to_string())? {
                Some(line) => lines.push(line),
                None => break,
            }
        }
        if let Some(wanted) = wanted
            && lines.len() < wanted
            && !(lines.is_empty() && self.options.new_job)
        {
            let count = lines.len();
            let what = match &self.options.command_file {
                Some(file) => format!("the command file '{}'", file.display()),
                None => "the standard input".into(),
            };
            return Err(format!("{what} has {count} lines for {wanted} tasks"));
        }
        Ok(Some(lines).filter(|lines| !lines.is_empty()))
    }
}

impl PoeOptions {
    fn is_mpmd(&self) -> bool {
        self.model.eq_ignore_ascii_case("mpmd")
    }

    /// What the tasks find in their environment.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = vec![("MP_INFOLEVEL", self.level.to_string())];
        if let Some(limit) = self.eager_limit {
            environment.push(("MP_EAGER_LIMIT", limit.to_string()));
            environment.push(("MARGAY_EAGER_LIMIT", limit.to_string()));
        }
        if self.interrupts {
            environment.push(("MP_CSS_INTERRUPT", "yes".into()));
            environment.push(("MARGAY_PROGRESS_THREAD", "1".into()));
        } else {
            environment.push(("MP_CSS_INTERRUPT", "no".into()));
        }
        if let Some(lights) = self.lights {
            environment.push(("MP_PMLIGHTS", lights.to_string()));
        }
        environment
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }
}

fn output(text: &str) -> Result<Output, String> {
    match text.to_ascii_lowercase().as_str() {
        "unordered" => Ok(Output::Unordered),
        "ordered" => Ok(Output::Ordered),
        task => match task.parse() {
            Ok(task) => Ok(Output::Rank(task)),
            Err(_) => Err("choose unordered, ordered or a task".into()),
        },
    }
}

fn input(text: &str) -> Result<StdinTo, String> {
    match text.to_ascii_lowercase().as_str() {
        "all" => Ok(StdinTo::All),
        "none" => Ok(StdinTo::Nobody),
        task => match task.parse() {
            Ok(task) => Ok(StdinTo::Rank(task)),
            Err(_) => Err("choose all, none or a task".into()),
        },
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_uppercase();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text.as_str(), 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    number.ok_or_else(|| "this is not a number of bytes such as 4096, 64K or 1M".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn divided(line: &str, division: &Division) -> Result<String, String> {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        let words = words(&mut command(), arguments, division)?;
        let words: Vec<&str> = words.iter().filter_map(|w| w.to_str()).collect();
        Ok(words.join(" "))
    }

    fn parsed(line: &str) -> Result<Job, String> {
        let words = divided(line, &Division::default())?;
        let words = std::iter::once(NAME).chain(words.split(' '));
        let matches = command()
            .try_get_matches_from(words)
            .map_err(|e| one_line(&e, NAME))?;
        let options = PoeOptions::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        Ok(Jobs::of(options, None)?.next_job()?.unwrap())
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn options_stand_on_both_sides_of_the_program() {
        let plain = Division::default();
        let divide = |line| divided(line, &plain).unwrap();
        assert_eq!(
            divide("-procs 2 a.out -x -labelio yes in -n 3"),
            "--procs 2 --labelio yes -- a.out -x in -n 3"
        );
        assert_eq!(
            divide("a.out --procs 2 -help -procs=3"),
            "-- a.out --procs 2 -help -procs=3",
            "only what POE's users write"
        );
        assert_eq!(
            divide("-ilevel 3 a -euilib us"),
            "--ilevel 3 --euilib us -- a"
        );
        assert!(divided("-nonsense a", &plain).is_err());
        let fence = Division {
            fence: Some("++".into()),
            ..Division::default()
        };
        assert_eq!(
            divided("a -procs 2 ++ -procs 3", &fence).unwrap(),
            "--procs 2 -- a -procs 3"
        );
        let none = Division {
            none: true,
            ..Division::default()
        };
        assert_eq!(
            divided("-labelio no a -procs 2", &none).unwrap(),
            "--labelio no -- a -procs 2"
        );
    }

    #[test]
    fn choices() {
        let job =
            parsed("a b -procs 3 -labelio YES -stdoutmode ordered -stdinmode none -infolevel 0")
                .unwrap();
        assert_eq!(job.programs[0].ranks, Some(3));
        assert_eq!(job.programs[0].arguments, ["b"]);
        assert!(job.label && job.quiet);
        assert_eq!((job.output, job.stdin), (Output::Ordered, StdinTo::Nobody));
        let job =
            parsed("a -stdoutmode 1 -stdinmode 2 -infolevel 3 -tasks_per_node 4 -nodes 1").unwrap();
        assert_eq!((job.output, job.stdin), (Output::Rank(1), StdinTo::Rank(2)));
        assert!(job.report_bindings && !job.label);
        assert_eq!(job.programs[0].ranks, Some(4));
        let job = parsed("a -eager_limit 4K -css_interrupt yes").unwrap();
        let set = &job.programs[0].environment;
        for pair in [
            ("MP_EAGER_LIMIT", "4096"),
            ("MARGAY_EAGER_LIMIT", "4096"),
            ("MARGAY_PROGRESS_THREAD", "1"),
        ] {
            assert!(
                set.contains(&(pair.0.into(), pair.1.into())),
                "{pair:?}: {set:?}"
            );
        }
        assert_eq!(parsed("a").unwrap().stdin, StdinTo::All);
    }

    #[test]
    fn a_command_file_names_a_program_for_each_task() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("programs");
        std::fs::write(&file, "# ocean and air\nocean -x 1\n\nair\nair\n").unwrap();
        let line = format!("-pgmmodel mpmd -cmdfile {}", file.display());
        let programs = parsed(&line).unwrap().programs;
        let words: Vec<_> = programs
            .iter()
            .map(|p| (p.command.clone(), p.ranks))
            .collect();
        assert_eq!(
            words,
            [
                ("ocean".into(), Some(1)),
                ("air".into(), Some(1)),
                ("air".into(), Some(1))
            ]
        );
        assert_eq!(
            parsed(&format!("{line} -procs 2")).unwrap().programs.len(),
            2
        );
        let error = parsed(&format!("{line} -procs 4")).unwrap_err();
        assert!(error.contains("has 3 lines for 4 tasks"), "{error}");
    }

    #[test]
    fn the_lines_of_a_host_file_are_the_places_of_tasks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("host.list");
        std::fs::write(&file, "! three\nfar1 shared\nfar1\n* and\nfar2\n").unwrap();
        let options = format!("a -hostfile {}", file.display());
        let hosts = |more: &str| {
            let job = parsed(&format!("{options} {more}")).unwrap();
            let hosts = job.hosts.clone().unwrap();
            let list = hosts.list.iter();
            let list: Vec<String> = list.map(|(name, n)| format!("{name}:{n}")).collect();
            (job.programs[0].ranks, list.join(" "), names(&job))
        };
        let all = "far1\nfar1\nfar2\n";
        assert_eq!(
            hosts(""),
            (Some(3), "far1:1 far1:1 far2:1".into(), all.into())
        );
        assert_eq!(hosts("-procs 2").2, "far1\nfar1\n");
        assert_eq!(hosts("-tasks_per_node 2").2, "far1\nfar1\nfar2\nfar2\n");
        assert_eq!(hosts("-nodes 1 -tasks_per_node 2").2, "far1\nfar1\n");
        assert_eq!(hosts("-nodes 2 -procs 3").2, "far1\nfar1\nfar2\n");
        let error = parsed(&format!("{options} -procs 4")).unwrap_err();
        assert!(error.contains("3 lines for 4 tasks"), "{error}");
        for (lines, why) in [
            ("localhost\n@pool\n", "pools (@) and the host 'localhost'"),
            ("@1\n@2\n", "one pool"),
            ("@1 all\n", "'all' behind the pool '1'"),
            ("@\n", "the name of a pool"),
        ] {
            std::fs::write(&file, lines).unwrap();
            let error = parsed(&options).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        std::fs::write(&file, "localhost\n").unwrap();
        assert_eq!(parsed(&options).unwrap().hosts, None);
    }

    #[test]
    fn errors_are_one_line_with_a_remedy() {
        for (line, said) in [
            ("a -procs 0", "at least 1 rank"),
            ("a -stdoutmode some", "unordered, ordered or a task"),
            ("a -stdinmode some", "all, none or a task"),
            ("a -infolevel 7", "7 is not in 0..=6"),
            ("a -eager_limit much", "not a number of bytes"),
            ("a -nodes 2", "name more in a file"),
            ("a -procs 2 -tasks_per_node 3", "contradict"),
            ("a -rmpool 1 -procs 3 -tasks_per_node 2", "no multiple"),
            ("a -rmpool 1 -cpu_use some", "some"),
            ("-pgmmodel mpmd", "say how many with -procs"),
            ("-pgmmodel mpmd a", "leave out 'a'"),
            ("-newjob yes a", "leave out 'a'"),
            ("a -cmdfile x", "-newjob yes"),
            ("a -hostfile /no/such/file", "cannot read it"),
            ("a -labelio perhaps", "perhaps"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(
                error.contains(said) && !error.contains('\n'),
                "{line}: {error}"
            );
        }
    }
}
