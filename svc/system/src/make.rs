//! `margay make`: GNU make whose jobs run on several hosts. Its shell is this program, which takes
//! the next free place of a host and runs the command there. A place is taken by a socket's name,
//! which the kernel gives back however the command ends.
//!
//! A make within a make runs here, so that all makes share the tokens of one jobserver; what it
//! starts goes to the hosts again.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use margay_job_launch::hosts::is_this_machine;
use margay_sys_os::process;

use crate::reach::Reach;
use crate::remote::Order;
use crate::{Failed, PROGRAM, SHELL, code, usage};

/// The variable by which the shells know the run, its remote shell and its hosts.
const VARIABLE: &str = "MARGAY_MAKE";

/// What the shells of a run know.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    number: u32,
    reach: Reach,
    /// The hosts, each with its places.
    hosts: Vec<(String, u32)>,
}

impl Run {
    fn text(&self) -> String {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|(name, places)| format!("{name}:{places}"))
            .collect();
        format!(
            "{}\n{}\n{}",
            self.number,
            self.reach.text(),
            hosts.join(",")
        )
    }

    fn read(text: &str) -> Option<Run> {
        let mut lines = text.split('\n');
        let number = lines.next()?.parse().ok()?;
        let reach = Reach::of(lines.next()?);
        let hosts = hosts(lines.next()?)?;
        Some(Run {
            number,
            reach,
            hosts,
        })
    }

    /// Takes a place: one that is free, in the order in which each host has one before any has two.
    fn take(&self) -> Option<(&str, UnixDatagram)> {
        let most = self
            .hosts
            .iter()
            .map(|(_, places)| *places)
            .max()
            .unwrap_or(0);
        let places = (0..most).flat_map(|at| self.hosts.iter().map(move |host| (at, host)));
        let mut places = places.filter(|(at, (_, places))| at < places);
        places.find_map(|(at, (name, _))| {
            let address = format!("margay-make-{}-{name}-{at}", self.number);
            let address = SocketAddr::from_abstract_name(address).ok()?;
            Some((name.as_str(), UnixDatagram::bind_addr(&address).ok()?))
        })
    }
}

/// Reads `a:4,b:2`.
fn hosts(text: &str) -> Option<Vec<(String, u32)>> {
    let host = |item: &str| {
        let (name, places) = item.rsplit_once(':')?;
        Some((name.to_owned(), places.parse().ok()?))
    };
    text.split(',').map(host).collect()
}

/// Runs make: `HOSTS REMOTE-SHELL WORDS...`.
pub(crate) fn run(words: &[OsString]) -> Result<u8, Failed> {
    let [list, shell, words @ ..] = words else {
        return Err(usage("make: it is run by margay make"));
    };
    let list = hosts(&list.to_string_lossy())
        .filter(|list| !list.is_empty())
        .ok_or_else(|| usage("make: it is run by margay make"))?;
    let run = Run {
        number: std::process::id(),
        reach: Reach::of(&shell.to_string_lossy()),
        hosts: list,
    };
    let own = process::beside(SHELL)
        .map_err(|error| format!("make: cannot find {SHELL} beside this program: {error}"))?;
    let places: u32 = run.hosts.iter().map(|(_, places)| places).sum();
    let mut command = Command::new("make");
    if !words.iter().any(|word| says_how_many(word)) {
        command.arg(format!("-j{places}"));
    }
    let mut shell = OsString::from("SHELL=");
    shell.push(&own);
    let error = command
        .args(words)
        .arg(shell)
        .env(VARIABLE, run.text())
        .exec();
    Err(format!("make: cannot run GNU make: {error}; install it").into())
}

fn says_how_many(word: &OsStr) -> bool {
    let word = word.as_bytes();
    word.starts_with(b"-j") || word.starts_with(b"--jobs")
}

/// The shell that runs the commands of make, as most makefiles expect it.
fn real_shell() -> &'static str {
    match Path::new("/bin/bash").exists() {
        true => "/bin/bash",
        false => "/bin/sh",
    }
}

/// Whether a command runs make.
fn is_make(command: &[u8]) -> bool {
    let parts = command.split(|byte| b" \t\n;&|(){}\"'`@".contains(byte));
    let mut names = parts.map(|word| word.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    names.any(|name| matches!(name, b"make" | b"gmake" | b"$MAKE" | b"${MAKE}"))
}

/// Runs the words of make's shell, such as `-c COMMAND`, on a host.
pub(crate) fn run_command(words: &[OsString]) -> Result<u8, Failed> {
    let run = std::env::var(VARIABLE)
        .ok()
        .and_then(|text| Run::read(&text));
    let is_local = words.iter().any(|word| is_make(word.as_bytes()));
    let place = run.as_ref().filter(|_| !is_local).and_then(Run::take);
    let status = match (&run, &place) {
        (Some(run), Some((host, _))) if !is_this_machine(host) => {
            return on_host(run, host, words);
        }
        // Here; the place is held until the command has ended.
        _ => Command::new(real_shell()).args(words).status(),
    };
    let status = status.map_err(|error| format!("cannot run {}: {error}", real_shell()))?;
    Ok(code(status))
}

/// Runs a command on another host, with this process's environment and directory.
fn on_host(run: &Run, host: &str, words: &[OsString]) -> Result<u8, Failed> {
    let program = process::beside(PROGRAM).unwrap_or_else(|_| PathBuf::from(PROGRAM));
    let directory = std::env::current_dir()
        .map_err(|error| format!("cannot find the working directory: {error}"))?;
    let order = Order {
        shell: real_shell().into(),
        words: words.to_vec(),
        directory: directory.into_os_string(),
        environment: std::env::vars_os()
            .filter(|(name, _)| name != VARIABLE)
            .collect(),
    };
    let quoted = program.to_string_lossy().replace('\'', "'\\''");
    let mut command = run.reach.command(host, &format!("exec '{quoted}' remote"));
    let child = command.stdin(Stdio::piped()).spawn();
    let mut child = child
        .map_err(|error| format!("host {host}: cannot run '{}': {error}", run.reach.text()))?;
    let input = child.stdin.take();
    let sent = input.as_ref().map_or_else(
        || Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        |mut input| input.write_all(&order.encode()),
    );
    // While the other end of the input is open, the command runs there.
    let status = child
        .wait()
        .map_err(|error| format!("host {host}: {error}"))?;
    drop(input);
    match (sent, status.code()) {
        (_, Some(255)) => Err(format!("host {host}: the remote shell ended with code 255").into()),
        (Err(error), _) if status.success() => Err(format!("host {host}: {error}").into()),
        _ => Ok(code(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_shells_know_is_read_as_it_was_written() {
        let run = Run {
            number: 7,
            reach: Reach::of("ssh -p 2222"),
            hosts: vec![("a".into(), 2), ("::1".into(), 1)],
        };
        assert_eq!(Run::read(&run.text()), Some(run));
        assert_eq!(Run::read("7\nssh"), None);
    }

    #[test]
    fn each_place_is_taken_once_and_given_back() {
        let run = Run {
            number: std::process::id(),
            reach: Reach::of(""),
            hosts: vec![("a".into(), 2), ("b".into(), 1)],
        };
        let taken: Vec<_> = std::iter::from_fn(|| run.take()).collect();
        let hosts: Vec<&str> = taken.iter().map(|(host, _)| *host).collect();
        assert_eq!(hosts, ["a", "b", "a"]);
        drop(taken);
        assert_eq!(run.take().map(|(host, _)| host), Some("a"));
    }

    #[test]
    fn makes_within_makes_are_known() {
        for command in ["make -C lib", "cd x && /usr/bin/make all", "@gmake; true"] {
            assert!(is_make(command.as_bytes()), "{command}");
        }
        for command in ["cc -o make.o make.c", "./makeall", "cmake ."] {
            assert!(!is_make(command.as_bytes()), "{command}");
        }
        assert!(says_how_many("-j4".as_ref()) && !says_how_many("-k".as_ref()));
    }
}
