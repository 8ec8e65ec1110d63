//! `poe`: the launcher as the users of the SP2 know it, with the options and variables of IBM's
//! Parallel Operating Environment.
//!
//! Its options stand before or behind the program and its arguments. Most of them have a variable
//! of the environment, over which the command line wins. What belongs to the SP2's switch or to
//! several machines is accepted where it changes nothing and refused where it would.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, ValueHint};
use margay_job_launch::plan::{Inherit, Job, Output, Program, StdinTo};

use crate::hosts::is_here;
use crate::options::{VERSION, one_line};
use crate::single_dash;
use crate::values::ranks;

/// The command's name.
pub const NAME: &str = "poe";

const NOTES: &str = "\
Options may stand before or after the program. Words that are not options belong to the program. With MP_NOARGLIST=yes all words \
after the program belong to it, and with MP_FENCE=WORD all words after that word. An option takes precedence over its environment \
variable.

MP_EUILIB, MP_EUIDEVICE, MP_RESD, MP_RMPOOL, MP_RETRY, MP_ADAPTER_USE, MP_CPU_USE, MP_BUFFER_MEM, MP_SHARED_MEMORY, \
MP_WAIT_MODE, MP_SINGLE_THREAD, MP_PMDLOG and MP_SAVEHOSTFILE, and the options of these names, are accepted and have no effect: \
there is no switch, no pool and no daemon.

A program that is linked with libmpl and started directly starts itself through poe when MP_PROCS is set or -procs is among its \
arguments.

Exit status: that of mpiexec.";

/// Options that are accepted and change nothing, each with a value.
const WITHOUT_EFFECT: [&str; 13] = [
    "euilib",
    "euidevice",
    "resd",
    "rmpool",
    "retry",
    "adapter_use",
    "cpu_use",
    "buffer_mem",
    "shared_memory",
    "wait_mode",
    "single_thread",
    "pmdlog",
    "savehostfile",
];

/// Run a parallel program as on the SP2.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
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

    /// Read the hosts from a file, one on each line; only this machine is possible. NULL: no file
    #[arg(long = "hostfile", visible_alias = "hfile", env = "MP_HOSTFILE", value_name = "FILE", value_parser = host_file, value_hint = ValueHint::FilePath)]
    pub host_file: Option<()>,

    /// Number of machines; only one is possible
    #[arg(long = "nodes", env = "MP_NODES", value_name = "NODES", value_parser = nodes)]
    pub nodes: Option<()>,

    /// Number of tasks on each machine
    #[arg(long = "tasks_per_node", env = "MP_TASKS_PER_NODE", value_name = "TASKS", value_parser = ranks)]
    pub tasks_per_node: Option<u32>,

    /// spmd: all tasks run the same program; mpmd: each task runs the command in its line of the
    /// command file
    #[arg(long = "pgmmodel", env = "MP_PGMMODEL", value_name = "spmd|mpmd", value_parser = ["spmd", "mpmd"], ignore_case = true, default_value = "spmd")]
    pub model: String,

    /// The programs of an mpmd job with their arguments: one line for each task
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
    command: &clap::Command,
    arguments: Vec<OsString>,
    division: &Division,
) -> Result<Vec<OsString>, String> {
    let mut command = command.clone();
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
            (true, true) => Some(single_dash::option(&command, &word)?),
            // Behind the program only what is one of ours to the letter.
            (true, false) if !division.none && is_ours(&command, &text) => {
                Some(single_dash::option(&command, &word)?)
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

/// Makes the job.
///
/// # Errors
/// When there is no program, or options contradict each other.
pub fn job(options: PoeOptions) -> Result<Job, String> {
    let mut tasks = options.procs;
    if let Some(each) = options.tasks_per_node {
        match tasks {
            Some(tasks) if tasks != each => {
                return Err(format!(
                    "-procs {tasks} and -tasks_per_node {each} contradict each other on one machine; leave one out"
                ));
            }
            _ => tasks = Some(each),
        }
    }
    let mut environment = vec![("MP_INFOLEVEL", options.level.to_string())];
    if let Some(limit) = options.eager_limit {
        environment.push(("MP_EAGER_LIMIT", limit.to_string()));
        environment.push(("MARGAY_EAGER_LIMIT", limit.to_string()));
    }
    if options.interrupts {
        environment.push(("MP_CSS_INTERRUPT", "yes".into()));
        environment.push(("MARGAY_PROGRESS_THREAD", "1".into()));
    } else {
        environment.push(("MP_CSS_INTERRUPT", "no".into()));
    }
    if let Some(lights) = options.lights {
        environment.push(("MP_PMLIGHTS", lights.to_string()));
    }
    let environment: Vec<(OsString, OsString)> = environment
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let program = |ranks, words: Vec<OsString>| {
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
        })
    };
    let programs = match (
        options.model.eq_ignore_ascii_case("mpmd"),
        &options.command_file,
    ) {
        (false, None) => {
            let program = program(tasks, options.program);
            vec![program.ok_or(
                "there is no program to run; write: poe ./a.out -procs 4 (see poe --help)",
            )?]
        }
        (false, Some(_)) => {
            return Err(
                "-cmdfile is for -pgmmodel mpmd; programs one after the other (-newjob) are started by a script".into(),
            );
        }
        (true, None) => {
            return Err("-pgmmodel mpmd needs -cmdfile FILE, with a line for each task".into());
        }
        (true, Some(file)) => {
            if let Some(word) = options.program.first() {
                return Err(format!(
                    "with -pgmmodel mpmd the command file names the programs; leave out '{}'",
                    word.to_string_lossy()
                ));
            }
            let lines = command_file(file)?;
            let wanted = tasks.map_or(lines.len(), |n| n as usize);
            if wanted > lines.len() {
                return Err(format!(
                    "the command file '{}' has {} lines for {wanted} tasks",
                    file.display(),
                    lines.len()
                ));
            }
            let lines = lines.into_iter().take(wanted);
            lines.filter_map(|words| program(Some(1), words)).collect()
        }
    };
    Ok(Job {
        programs,
        stdin: options.input,
        output: options.output,
        label: options.label,
        report_bindings: options.level >= 2,
        quiet: options.level == 0,
        ..Job::new(NAME)
    })
}

/// Returns the programs of a command file: words between blanks; empty lines and those that begin
/// with # or ! are left out.
fn command_file(path: &Path) -> Result<Vec<Vec<OsString>>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read the command file '{}': {e}", path.display()))?;
    let lines: Vec<Vec<OsString>> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        .map(|line| line.split_whitespace().map(OsString::from).collect())
        .collect();
    if lines.is_empty() {
        return Err(format!(
            "the command file '{}' names no program",
            path.display()
        ));
    }
    Ok(lines)
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

fn nodes(text: &str) -> Result<(), String> {
    match text.trim() {
        "1" => Ok(()),
        _ => Err("poe runs on this machine only; mpiexec -host runs on several".into()),
    }
}

/// Checks that all hosts of a host file are this machine.
fn host_file(path: &str) -> Result<(), String> {
    if path.is_empty() || path == "NULL" {
        return Ok(());
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read it: {e}"))?;
    let hosts = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    hosts
        .filter(|host| !host.starts_with(['!', '*', '#']))
        .try_for_each(|host| match host.strip_prefix('@') {
            Some(pool) => Err(format!(
                "there is no pool '{pool}': only this machine can be used"
            )),
            None => is_here(host).map(drop),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn divided(line: &str, division: &Division) -> Result<String, String> {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        let words = words(&command(), arguments, division)?;
        let words: Vec<&str> = words.iter().filter_map(|w| w.to_str()).collect();
        Ok(words.join(" "))
    }

    fn parsed(line: &str) -> Result<Job, String> {
        let words = divided(line, &Division::default())?;
        let words = std::iter::once(NAME).chain(words.split(' '));
        let matches = command()
            .try_get_matches_from(words)
            .map_err(|e| one_line(&e, NAME))?;
        job(PoeOptions::from_arg_matches(&matches).map_err(|e| e.to_string())?)
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
    fn errors_are_one_line_with_a_remedy() {
        for (line, said) in [
            ("", "there is no program"),
            ("a -procs 0", "at least 1 rank"),
            ("a -stdoutmode some", "unordered, ordered or a task"),
            ("a -stdinmode some", "all, none or a task"),
            ("a -infolevel 7", "7 is not in 0..=6"),
            ("a -eager_limit much", "not a number of bytes"),
            ("a -nodes 2", "runs on several"),
            ("a -procs 2 -tasks_per_node 3", "contradict"),
            ("-pgmmodel mpmd", "needs -cmdfile"),
            ("a -cmdfile x", "-pgmmodel mpmd"),
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
