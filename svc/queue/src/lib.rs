//! `margay-queue`: the program that `margay up` starts. As `serve` it is the head of the queue, as
//! `supervise` what watches over one job after the other; each running job has such a process, so
//! it goes on while the head is away, and how it ended is known when the head returns. As `replay`
//! it runs recorded workloads. Under the names of other batch systems' commands it is these.
#![forbid(unsafe_code)]

mod agent;
mod agents;
mod away;
mod begin;
mod callers;
mod claim;
mod explain;
mod files;
mod follow;
mod gang;
mod groups;
mod head;
mod hearing;
mod hold;
mod line;
mod mail;
mod output;
mod passage;
mod prepare;
mod program;
mod replay;
mod resources;
mod serve;
mod shell;
mod site;
mod standby;
mod start;
mod store;
mod supervise;
mod there;
mod variables;
mod wire;
mod writer;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use margay_svc_batch as batch;
use margay_svc_queue_wire::MachineSpec;
pub use margay_svc_queue_wire::PROGRAM;
use margay_sys_os::clock::{Local, local};
use start::Wanted;

/// Whether this is a command of another batch system, which the program does under its name.
#[must_use]
pub fn has_command(name: &str) -> bool {
    batch::system_of(name).is_some()
}

/// Runs as the process's program: reads its name and words and returns its exit status.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    // Commands of batch systems are links to this program.
    let called = words.next().unwrap_or_default();
    let called = Path::new(&called)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    if let Some(system) = batch::system_of(&called) {
        return batch::run(system, &called, words).into();
    }
    let first = words.next().unwrap_or_default();
    if let Some(system) = first.to_str().and_then(batch::system) {
        let command = words.next().unwrap_or_default();
        return batch::run(system, &command.to_string_lossy(), words).into();
    }
    let arguments: Vec<String> = std::iter::once(first)
        .chain(words)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let with_code = |done: Result<u8, String>| {
        done.unwrap_or_else(|text| {
            complain(&text);
            1
        })
    };
    let done = match words[..] {
        [batch::ATTEND, socket] => return with_code(batch::attend(Path::new(socket))).into(),
        [name @ ("api" | "top"), ..] => {
            return with_code(batch::own(name, &arguments[1..])).into();
        }
        ["task", ..] => return with_code(batch::task(&arguments[1..])).into(),
        ["begin", supervisor] => return begin::begin(supervisor, None).into(),
        ["begin", supervisor, script] => return begin::begin(supervisor, Some(script)).into(),
        ["begin-there", supervisor, report] => {
            return begin::begin_there(supervisor, report, None).into();
        }
        ["begin-there", supervisor, report, script] => {
            return begin::begin_there(supervisor, report, Some(script)).into();
        }
        ["outputs", supervisor] => return writer::outputs(supervisor).into(),
        ["serve", ref words @ ..] => serve(words),
        ["agent"] => agent::agent(false),
        ["agent", "--system"] => agent::agent(true),
        ["into", job, host, ref words @ ..] => hold::into(job, host, words),
        ["within", job, host, command] => {
            return with_code(hold::within(job, host, command)).into();
        }
        ["hold", ref rest @ ..] => there::around("held", rest),
        ["held", job, host, ref owner @ ..] => hold::hold(job, host, owner),
        ["there"] => there::outer(),
        ["there", folder] => there::inner(Path::new(folder)),
        ["follow", folder, start, queue] => follow::there(Path::new(folder), start, queue),
        ["relay", folder] => standby::relay(Path::new(folder)),
        ["replay", file] => replay::replay(Path::new(file), false),
        ["replay", file, "--json"] => replay::replay(Path::new(file), true),
        ["make-log", jobs, slots, seed] => replay::make(jobs, slots, seed),
        ["post"] => mail::post(),
        ["supervise", jobs] => supervise::supervise(Path::new(jobs)),
        _ => Err("this program is started by `margay up`".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            match words.first() {
                Some(&("serve" | "supervise")) => log(&text),
                _ => complain(&text),
            }
            ExitCode::FAILURE
        }
    }
}

/// `--system`, `--standby`, `--back`, `--store URL` and the words of a machine, each of which may
/// be missing.
fn serve(words: &[&str]) -> Result<(), String> {
    let (is_system, words) = match words {
        ["--system", rest @ ..] => (true, rest),
        _ => (false, words),
    };
    let (is_standby, words) = match words {
        ["--standby", rest @ ..] => (true, rest),
        _ => (false, words),
    };
    let (is_back, words) = match words {
        ["--back", rest @ ..] => (true, rest),
        _ => (false, words),
    };
    let (store, words) = match words {
        ["--store", store, rest @ ..] => (Some(*store), rest),
        _ => (None, words),
    };
    let spec = MachineSpec::of(words);
    if spec.is_none() && !words.is_empty() {
        return Err(format!("'{}' describes no machine", words.join(" ")));
    }
    serve::serve(&Wanted {
        spec,
        is_system,
        is_standby,
        is_back,
        store: store.map(str::to_owned),
    })
}

/// What differs each time that the machine starts.
fn machine_start() -> Result<String, String> {
    let path = "/proc/sys/kernel/random/boot_id";
    std::fs::read_to_string(path)
        .map(|text| text.trim_end().to_owned())
        .map_err(|error| format!("cannot read {path}: {error}"))
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Writes a line to the log, with the time; a full disk is not the end of the process.
fn log(text: &str) {
    let Local {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ..
    } = local(now_s());
    let time = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    let _ = writeln!(io::stderr(), "{time} margay-queue: {text}");
}

/// Says why a command fails.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "margay-queue: {text}");
}
