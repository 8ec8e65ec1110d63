//! The command `margay`. It has other names: `mpiexec`, `mpirun` and `yod` are `margay run`, and so
//! is `poe` with the options of the SP2; `showmesh` is `margay mesh`.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use margay_cli::allocation::Allocation;
use margay_cli::job_files::JobFiles;
use margay_cli::options::{self, FilesOptions, Margay, MeshOptions, Subcommand};
use margay_cli::part_options::{NAMES, with_two_dashes};
use margay_cli::poe::{self, Given, Jobs, PoeOptions};
use margay_cli::{
    account, allocation, bench, check, completions, fortran, job, job_files, join, live, mesh_live,
    omp, part, pfs, profile_view, queue, single_dash, system, threads_view, trace, why_view,
};
use margay_job_launch::environment::{ENV_SIZE, ENV_SPAWN};
use margay_job_launch::hosts::agent;
use margay_job_launch::plan::Job;
use margay_job_launch::spawned::Spawner;
use margay_job_launch::step;
use margay_job_launch::turns::Turns;
use margay_job_observe::markers::Markers;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments
        .first()
        .and_then(|a| Path::new(a).file_name())
        .map_or_else(|| "margay".into(), |n| n.to_string_lossy().into_owned());
    if !arguments.is_empty() {
        arguments.remove(0);
    }
    match called.as_str() {
        "mpiexec" | "mpirun" | "yod" => run(&called, arguments),
        poe::NAME => poe(arguments),
        "showmesh" => {
            let mut command = options::mesh_command("showmesh");
            match parse::<MeshOptions>(&mut command, arguments) {
                Ok(options) => mesh_live::show("showmesh", &options),
                Err(code) => code,
            }
        }
        _ if arguments.first().is_some_and(|a| a == "run") => {
            run("margay run", arguments.split_off(1))
        }
        name if NAMES.contains(&name) => {
            arguments.insert(0, called.into());
            partitions(arguments)
        }
        _ if arguments.first().is_some_and(|a| a == "part") => partitions(arguments.split_off(1)),
        _ => match parse::<Margay>(&mut Margay::command(), arguments.clone()) {
            Ok(margay) => other(margay.command, &arguments),
            Err(code) => code,
        },
    }
}

/// `margay part`, with the words behind it, also called by the Paragon's names.
fn partitions(words: Vec<OsString>) -> ExitCode {
    let words = with_two_dashes(words);
    let all = std::iter::once("part".into()).chain(words.iter().cloned());
    match parse::<Margay>(&mut Margay::command(), all.collect()) {
        Ok(margay) => other(margay.command, &words),
        Err(code) => code,
    }
}

fn run(name: &str, arguments: Vec<OsString>) -> ExitCode {
    // It is built once for all that is asked of it, and never taken apart again: with a hundred
    // options both cost as much as a rank's start.
    let command = Box::leak(Box::new(options::run_command(name)));
    let words = arguments.clone();
    let mut joined = None;
    let job = single_dash::segments(command, arguments)
        .map_err(|text| report(name, &format!("{text}; see {name} --help"), 2))
        .and_then(|segments| {
            segments
                .into_iter()
                .map(|segment| parse::<options::RunOptions>(command, segment))
                .collect::<Result<Vec<_>, ExitCode>>()
        })
        .and_then(|mut segments| {
            if segments.iter().any(|segment| segment.end.check) && !check::is_on() {
                return Err(report(name, &check::run(name, &words), 1));
            }
            joined = join::gather(name, &mut segments).map_err(|text| match text.is_empty() {
                true => ExitCode::FAILURE,
                false => report(name, &text, 2),
            })?;
            if let Some(found) = allocated().map_err(|text| report(name, &text, 2))? {
                allocation::apply(&mut segments, found);
            }
            let limit = std::env::var_os(job::ENV_TIMEOUT);
            let limit = limit.map(|text| text.to_string_lossy().into_owned());
            let tasks = std::env::var_os(job::ENV_TASKS);
            let tasks = tasks.map(|text| text.to_string_lossy().into_owned());
            job_files::wanted(&segments)
                .and_then(|files| {
                    let (job, turns) = job::job(name, segments)?;
                    let job = job::with_time_limit(job, limit.as_deref())?;
                    Ok((job::with_tasks(job, tasks.as_deref())?, turns, files))
                })
                .map_err(|text| report(name, &text, 2))
        });
    let status = launch(name, job);
    // The hosts that have joined are wanted until the job has ended.
    drop(joined);
    status
}

/// The hosts of a batch system's allocation; what a rank starts stays on the rank's host.
///
/// # Errors
/// When what the environment shows is none.
fn allocated() -> Result<Option<Allocation>, String> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if is_set(ENV_SIZE) || is_set(ENV_SPAWN) {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| e.to_string());
    allocation::allocation(variable, read)
}

/// Runs the jobs that the words of `poe` describe.
fn poe(arguments: Vec<OsString>) -> ExitCode {
    let mut spawner = match spawner(poe::NAME) {
        Ok(spawner) => spawner,
        Err(code) => return code,
    };
    let mut jobs = match poe_jobs(arguments) {
        Ok(jobs) => jobs,
        Err(code) => return code,
    };
    let mut status = 0;
    loop {
        let next = jobs.next_job().and_then(|job| {
            job.map(|mut job| jobs.place(&mut job).map(|turns| (job, turns)))
                .transpose()
        });
        match next {
            Ok(Some((job, turns))) => status = start(poe::NAME, &job, spawner.take(), turns),
            Ok(None) => break,
            Err(text) => return report(poe::NAME, &text, 2),
        }
        if !jobs.are_several() || status == 1 || status >= 128 {
            break;
        }
    }
    ExitCode::from(status)
}

fn poe_jobs(arguments: Vec<OsString>) -> Result<Jobs, ExitCode> {
    let mut command = poe::command();
    let usage = |text: String| report(poe::NAME, &text, 2);
    let words =
        poe::words(&mut command, arguments, &poe::Division::of_environment()).map_err(usage)?;
    let with_source =
        |command: &clap::Command, error: &clap::Error| poe::with_source(command, &words, error);
    let options: PoeOptions = parse_with(&mut command, words.clone(), with_source)?;
    let hosts = allocated().map_err(usage)?;
    let tasks = std::env::var(job::ENV_TASKS).ok();
    let given = (hosts.is_some() || tasks.is_some()).then(|| Given {
        hosts,
        tasks: tasks.and_then(|text| text.parse().ok()),
    });
    Jobs::of(options, given.as_ref()).map_err(usage)
}

/// A job, what it has got in a partition, and the file system that it wants.
type Wanted = (Job, Option<Turns>, Option<FilesOptions>);

/// Runs a job.
fn launch(name: &str, job: Result<Wanted, ExitCode>) -> ExitCode {
    let (spawner, (mut job, turns, files)) =
        match spawner(name).and_then(|spawner| Ok((spawner, job?))) {
            Ok(found) => found,
            Err(code) => return code,
        };
    let files = files.map(|wanted| JobFiles::begin(&wanted, &mut job));
    let files = match files.transpose() {
        Ok(files) => files,
        Err(Some(text)) => return report(name, &text, 1),
        Err(None) => return ExitCode::FAILURE,
    };
    let status = start(name, &job, spawner, turns);
    match files.map_or(Ok(()), JobFiles::finish) {
        Ok(()) => ExitCode::from(status),
        Err(why) => {
            if let Some(text) = why {
                report(name, &text, 1);
            }
            ExitCode::from(status.max(1))
        }
    }
}

/// The program that spawns the job, if one does.
fn spawner(name: &str) -> Result<Option<Spawner>, ExitCode> {
    Spawner::find().map_err(|error| {
        let text = format!("cannot spawn: the program that asked for it is gone ({error})");
        report(name, &text, 1)
    })
}

/// Runs a job, reports why it cannot run, and returns its exit status.
fn start(name: &str, job: &Job, spawner: Option<Spawner>, turns: Option<Turns>) -> u8 {
    let status = margay_job_launch::run(job, spawner, turns).unwrap_or_else(|error| {
        report(name, &error.message, error.status);
        error.status
    });
    step::end_of_process(status);
    status
}

/// Runs a command of `margay`; `arguments` are the words of which it was made.
fn other(command: Subcommand, arguments: &[OsString]) -> ExitCode {
    let done = match command {
        Subcommand::Run(_) => unreachable!("`margay run` has been taken care of"),
        Subcommand::Mesh(options) => return mesh_live::show("margay mesh", &options),
        Subcommand::Why(options) => why_view::show(&options),
        Subcommand::Profile(options) => profile_view::show(&options),
        Subcommand::Trace(options) => {
            return report("margay trace", &trace::run(&trace::words_of(&options)), 1);
        }
        Subcommand::View(options) => {
            return report(
                "margay view",
                &trace::run(&trace::words_of_view(&options)),
                1,
            );
        }
        Subcommand::Markers(options) => {
            return live::show("margay markers", Markers::default(), &options);
        }
        Subcommand::Part(options) => return report("margay part", &part::run(&options), 1),
        Subcommand::Pfs(_) => return report("margay pfs", &pfs::run(&arguments[1..]), 1),
        Subcommand::Up(options) => queue::up(&options),
        Subcommand::Down(options) => queue::down(&options),
        Subcommand::Submit(options) => {
            // The parser has taken the `--` away that stood before the words, if one did.
            let before = arguments.len() - options.words.len();
            let is_command = before > 0 && arguments[before - 1] == "--";
            return all_succeeded(queue::submit(&options, is_command));
        }
        Subcommand::Wait(options) => return all_succeeded(queue::wait(&options)),
        Subcommand::Queue(options) => queue::queue(&options),
        Subcommand::Cancel(options) => queue::cancel(&options),
        Subcommand::Hold(options) => queue::hold(&options, true),
        Subcommand::Release(options) => queue::hold(&options, false),
        Subcommand::Set(options) => queue::set(&options),
        Subcommand::Explain(options) => queue::explain(&options),
        Subcommand::Account(options) => account::account(&options),
        Subcommand::Node(options) => queue::node(&options),
        Subcommand::Top(options) => {
            options.which.choose();
            let words = arguments.iter().filter(|word| *word != "--system");
            let words: Vec<OsString> = words.cloned().collect();
            return report("margay", &queue::other_system(&words), 1);
        }
        Subcommand::Slurm(_) | Subcommand::Pbs(_) | Subcommand::Ll(_) => {
            return report("margay", &queue::other_system(arguments), 1);
        }
        Subcommand::Ps(_) | Subcommand::Kill(_) => {
            return report("margay", &system::run(arguments), 1);
        }
        Subcommand::Make(options) => match system::make(&options) {
            Ok(words) => return report("margay make", &system::run(&words), 1),
            Err(text) => return report("margay make", &text, 2),
        },
        Subcommand::Bench(_) => return report("margay bench", &bench::run(&arguments[1..]), 1),
        Subcommand::Omp(options) => {
            let failed = omp::run(&options);
            return report("margay", &failed.text, failed.status);
        }
        Subcommand::Threads(options) => threads_view::show(&options),
        Subcommand::Fortran(options) => fortran::build(&options),
        Subcommand::Agent(options) => match &options.join {
            Some(to) => return report("margay", &join::join(to, options.wait), 1),
            None => agent::serve().map_err(|error| format!("the agent cannot serve: {error}")),
        },
        Subcommand::Lines => check::lines(),
        Subcommand::Completions { shell, command } => completions::print(shell, &command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => report("margay", &text, 1),
    }
}

/// The exit code of a command that waits for jobs.
fn all_succeeded(done: Result<bool, String>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => report("margay", &text, 1),
    }
}

/// The name by which a command is called.
fn shown_name(command: &clap::Command) -> &str {
    (command.get_bin_name()).unwrap_or_else(|| command.get_name())
}

/// Parses arguments; help and version go to standard output, an error becomes one line.
fn parse<T: FromArgMatches>(
    command: &mut clap::Command,
    arguments: Vec<OsString>,
) -> Result<T, ExitCode> {
    let own = called(command, &arguments);
    parse_with(command, arguments, |_, error| {
        options::one_line(error, &own)
    })
}

/// The name of a command with those of its subcommand that these words begin with.
fn called(command: &clap::Command, words: &[OsString]) -> String {
    let (mut name, mut own) = (shown_name(command).to_owned(), command);
    for word in words {
        let Some(sub) = own.find_subcommand(word) else {
            break;
        };
        name = format!("{name} {}", word.display());
        own = sub;
    }
    name
}

/// Does the same; `text` words an error.
fn parse_with<T: FromArgMatches>(
    command: &mut clap::Command,
    arguments: Vec<OsString>,
    text: impl Fn(&clap::Command, &clap::Error) -> String,
) -> Result<T, ExitCode> {
    let name = shown_name(command).to_owned();
    let words = std::iter::once(OsString::from(&name)).chain(arguments);
    let parsed = command
        .try_get_matches_from_mut(words)
        .and_then(|matches| T::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let _ = error.print();
            return ExitCode::from(2);
        }
        if error.use_stderr() {
            return report(&name, &text(command, &error), 2);
        }
        match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report(
                &name,
                &format!("cannot print: {error}; send the standard output elsewhere"),
                1,
            ),
        }
    })
}

/// Reports an error in one line.
fn report(name: &str, text: &str, status: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{name}: {text}");
    ExitCode::from(status)
}
