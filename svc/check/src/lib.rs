//! `margay-check`: what `mpiexec -check` runs. It starts the launcher with the hooks in front of
//! the library (`abi/check`), listens to the records of all ranks, and reports what `core/check`
//! finds.
#![forbid(unsafe_code)]

mod listen;
mod places;
mod report;
mod ring;

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use margay_core_check::{Checker, End, Ended, Phase, Record};
use margay_sys_os::process::{beside, ends_with_thread};
use margay_sys_os::signal::{SIGHUP, SIGINT, SIGTERM, SignalSet, take_defaults_in};

use listen::{Event, Listening, Records};
use places::Places;
use report::Report;

/// How long connections may stay open after the job: a process may have left a child that has one.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);
/// How long calls of a job that was cut short are still looked at behind that.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);
/// The statuses of a time limit and of SIGINT, SIGKILL and SIGTERM.
const CUT: [i32; 4] = [124, 130, 137, 143];
/// Where the hooks are, beside the folder of this program.
const HOOKS: &str = "../lib/check/libmargay_check.so.1";

/// The name of the program.
pub const PROGRAM: &str = "margay-check";

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let [name, words @ ..] = &arguments[..] else {
        let _ = writeln!(
            io::stderr(),
            "margay-check: this program is run by `mpiexec -check`"
        );
        return ExitCode::from(2);
    };
    let name = name.to_string_lossy().into_owned();
    match run(&name, words) {
        Ok(status) => ExitCode::from(status),
        Err(text) => {
            let _ = writeln!(io::stderr(), "{name}: -check: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the job and reports. Returns the exit status: that of the job, or 1 when that is 0 and
/// something was found.
fn run(name: &str, words: &[OsString]) -> Result<u8, String> {
    let margay = beside("margay").map_err(|error| error.to_string())?;
    let hooks = margay.with_file_name(HOOKS);
    let hooks = hooks.canonicalize().map_err(|_| {
        format!(
            "there is no {}; use the mpiexec of a whole installation, such as `make install` makes",
            hooks.display()
        )
    })?;
    // Before there are other threads, so that all of them have the signals blocked.
    let signals = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM]);
    let before = signals.block();
    let address = listen::address();
    let (listening, events) = Listening::begin(&address, &signals)
        .map_err(|error| format!("cannot listen for records: {error}"))?;
    let child = start(name, &margay, words, &hooks, &address, &before)?;
    listening
        .watch(child)
        .map_err(|error| format!("cannot watch the launcher: {error}"))?;
    let mut report = Report::new(name, Places::new(&margay));
    let (status, seen) = follow(&listening, &events, &mut report)?;
    let code = code(status);
    let found = report.end(code, seen);
    Ok(if code == 0 && found { 1 } else { code })
}

/// Starts the launcher as the user called it, with the hooks.
fn start(
    name: &str,
    launcher: &Path,
    words: &[OsString],
    hooks: &Path,
    address: &str,
    signals: &SignalSet,
) -> Result<Child, String> {
    let mut preload = hooks.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(launcher);
    // `margay run` has the same options as `mpiexec`, under the name by which it is called.
    let called = name.rsplit(' ').next().unwrap_or("mpiexec");
    match called {
        "run" => command.arg("run"),
        called => command.arg0(called),
    };
    command.arg("-genv").arg("LD_PRELOAD").arg(preload);
    command.args(["-genv", "MARGAY_CHECK", address]).args(words);
    // The launcher is checked already.
    command.env("MARGAY_CHECK", address);
    if env::var_os("MARGAY_DEADLOCK").is_none() {
        command.env("MARGAY_DEADLOCK", "end");
    }
    // Its guard ends the job then: nobody would see what is found.
    ends_with_thread(take_defaults_in(&mut command));
    signals.block_exactly();
    let child = command.spawn();
    SignalSet::of(&[SIGHUP, SIGINT, SIGTERM]).block();
    child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no {}", launcher.display()),
        _ => format!("cannot start {}: {error}", launcher.display()),
    })
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    }
}

/// Takes records until the job has ended and all connections are closed. Returns how it has ended,
/// and how many ranks were looked at, of how many.
fn follow(
    listening: &Listening,
    events: &Receiver<Event>,
    report: &mut Report,
) -> Result<(ExitStatus, (usize, usize)), String> {
    let mut checker = Checker::new();
    let mut processes: HashMap<u64, usize> = HashMap::new();
    let mut open = 0usize;
    let mut until: Option<Instant> = None;
    let mut ended = None;
    let mut all_connected = false;
    loop {
        // What is wanted of a job that was cut short is its end.
        let since = |by: Duration| until.is_some_and(|until| Instant::now() >= until + by);
        let is_cut = matches!(&ended, Some(Ok(status)) if CUT.contains(&code(*status).into()));
        if since(Duration::ZERO) && listening.is_interrupted() || since(LOOKED_WITHIN) && is_cut {
            report.left_out(vec![
                "the job was cut short while many of its calls were still to be looked at; what is wrong with these is not found",
            ]);
            break;
        }
        let event = match until {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) if open == 0 && all_connected => {
                events.try_recv().map_err(|_| RecvTimeoutError::Timeout)
            }
            Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Connected(connection)) => {
                open += 1;
                processes.insert(connection, checker.connected());
            }
            Ok(Event::Records(connection, records)) => {
                let Some(&process) = processes.get(&connection) else {
                    continue;
                };
                let records = Records(&records).map_while(|record| record);
                let calls = records.filter_map(|record| of_calls(report, process, record));
                checker.take(process, calls);
                report.take(checker.found());
                report.left_out(checker.newly_left_out());
            }
            Ok(Event::Closed(connection)) => {
                open = open.saturating_sub(1);
                if let Some(&process) = processes.get(&connection) {
                    checker.ended(process, Ended::Closed);
                    report.take(checker.found());
                }
            }
            Ok(Event::Ended(status)) => {
                ended = Some(status);
                until = Some(Instant::now() + CLOSED_WITHIN);
                listening.end();
            }
            Ok(Event::AllConnected) => all_connected = true,
            Err(_) => break,
        }
    }
    let status = (ended.unwrap_or_else(|| Err(ErrorKind::BrokenPipe.into())))
        .map_err(|error| format!("cannot wait for the launcher: {error}"))?;
    checker.finish(match status.code() {
        Some(0) => End::Well,
        // As with -deadlock end.
        Some(1) => End::Failed,
        Some(code) if !CUT.contains(&code) => End::Broken,
        _ => End::Cut,
    });
    report.take(checker.found());
    Ok((status, checker.looked_at()))
}

/// A record that the checker takes; what the others say goes into the report.
fn of_calls(report: &mut Report, process: usize, record: Record) -> Option<Record> {
    match record.phase {
        Phase::Site => {
            let file = PathBuf::from(record.text(1));
            let offset = record.handle(0);
            report.places.enter(process, record.site, file, offset);
        }
        Phase::Unwatched => report.unwatched(record.number(0)),
        _ => return Some(record),
    }
    None
}
