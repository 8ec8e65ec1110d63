//! `margay-system`: the hosts of a machine as one system. As `ps` it lists the processes of all
//! jobs, as `kill` it ends jobs or signals their ranks wherever they are, as `make` it runs GNU
//! make, whose jobs run on several hosts: there it is make's shell, and what a host runs for that.
#![forbid(unsafe_code)]

mod kill;
mod make;
mod ps;
mod reach;
mod remote;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// The name of the program.
pub const PROGRAM: &str = "margay-system";

/// The name under which it is make's shell.
pub const SHELL: &str = "margay-shell";

/// Why something is not done, and the exit status.
struct Failed {
    text: String,
    status: u8,
}

impl From<String> for Failed {
    fn from(text: String) -> Failed {
        Failed { text, status: 1 }
    }
}

fn usage(text: impl Into<String>) -> Failed {
    Failed {
        text: text.into(),
        status: 2,
    }
}

/// Runs as the process's program: reads its words and returns its exit status.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let name = words
        .first()
        .map(|word| word.to_string_lossy().into_owned());
    let rest = words.get(1..).unwrap_or_default();
    let done = match name.as_deref() {
        Some("ps") => ps::run(rest),
        Some("kill") => kill::run(rest),
        Some("make") => make::run(rest),
        Some("remote") => remote::serve(),
        _ => Err(usage("this program is run by margay ps, kill and make")),
    };
    finish("margay", done)
}

/// Runs as make's shell.
pub fn shell() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    finish(SHELL, make::run_command(&words))
}

fn finish(name: &str, done: Result<u8, Failed>) -> ExitCode {
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failed) => {
            let _ = writeln!(io::stderr(), "{name}: {}", failed.text);
            ExitCode::from(failed.status)
        }
    }
}

/// The exit status that stands for how a process ended.
fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1)
}

fn print(text: &str) -> Result<(), Failed> {
    let mut stdout = io::stdout();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}").into())
        }
        _ => Ok(()),
    }
}
