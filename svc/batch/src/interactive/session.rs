//! The command's side of an interactive job: its terminal, or its pipes.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write, stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::signal::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SignalFd, SignalSet, send,
    take_defaults_in,
};
use margay_sys_os::terminal::{RawMode, size};

use super::allocation::Allocation;
use super::frames::{Frame, Program};

/// Bytes of input that are sent at once: little enough for one piece of the socket, so that frames
/// of two threads do not mix.
const PART: usize = 8 << 10;

/// How a program in a job went.
#[derive(Debug)]
pub enum Outcome {
    /// It ended with this exit code.
    Exit(u8),
    /// The job ended before it did.
    JobEnded,
}

/// Runs a program in the job, with this command's terminal or its standard streams.
///
/// # Errors
/// In words.
pub fn run(allocation: &Allocation, program: Program) -> Result<Outcome, String> {
    let system = |error: io::Error| error.to_string();
    let has_terminal = program.terminal.is_some();
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH]);
    let before = set.block();
    let signals = SignalFd::new(&set).map_err(system)?;
    let mut stream = allocation.stream.try_clone().map_err(system)?;
    Frame::Run(program).write(&mut stream).map_err(system)?;
    let raw = match has_terminal {
        true => Some(RawMode::enter(stdin().as_fd()).map_err(system)?),
        false => None,
    };
    let to = stream.try_clone().map_err(system)?;
    // Reads the standard input until there is no more; it goes with the process.
    std::thread::Builder::new()
        .spawn(move || send_input(to))
        .map_err(system)?;
    let outcome = hear(&mut stream, signals);
    drop(raw);
    before.block_exactly();
    outcome.map_err(system)
}

fn send_input(mut to: UnixStream) {
    let mut part = vec![0; PART];
    let mut input = stdin();
    loop {
        let frame = match input.read(&mut part) {
            Ok(count) if count > 0 => Frame::Input(part[..count].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => Frame::InputEnd,
        };
        let is_end = matches!(frame, Frame::InputEnd);
        if frame.write(&mut to).is_err() || is_end {
            return;
        }
    }
}

/// Shows what the program prints until it ends, and passes signals on.
fn hear(stream: &mut UnixStream, mut signals: SignalFd) -> io::Result<Outcome> {
    let mut to = stream.try_clone()?;
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        let heard = poll.add_readable(stream.as_fd());
        poll.add_readable(signals.as_fd());
        poll.wait(None)?;
        while let Some(received) = signals.take() {
            let frame = match (received.signal, size(stdin().as_fd())) {
                (SIGWINCH, Some((rows, columns))) => Frame::Resize(rows, columns),
                (SIGWINCH, None) => continue,
                (number, _) => Frame::Signal(number),
            };
            let _ = frame.write(&mut to);
        }
        let ready = poll.ready(heard);
        if !ready.readable && !ready.hung_up {
            continue;
        }
        match Frame::read(stream) {
            Ok(Some(Frame::Output(bytes))) => show(&mut io::stdout(), &bytes),
            Ok(Some(Frame::Error(bytes))) => show(&mut io::stderr(), &bytes),
            Ok(Some(Frame::Exit(code))) => return Ok(Outcome::Exit(code)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Ok(Outcome::JobEnded),
        }
    }
}

fn show(to: &mut impl Write, bytes: &[u8]) {
    // Who does not read gets nothing.
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// Runs a command here, in the job's environment, while the job is held; ends it when the job ends.
///
/// # Errors
/// In words.
pub fn hold(allocation: &Allocation, words: &[String]) -> Result<Outcome, String> {
    let system = |error: io::Error| error.to_string();
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut stream = allocation.stream.try_clone().map_err(system)?;
    let nothing = Program {
        arguments: vec![],
        directory: None,
        terminal: None,
        variables: vec![],
    };
    Frame::Run(nothing).write(&mut stream).map_err(system)?;
    let variables = allocation.environment.iter().filter_map(|variable| {
        let bytes = variable.0.as_encoded_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=')?;
        let text = |bytes: &[u8]| -> OsString {
            std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
        };
        Some((text(&bytes[..at]), text(&bytes[at + 1..])))
    });
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables);
    let (code, has_ended) = attend(&mut command, Some(stream.as_fd()))?;
    Ok(match has_ended {
        true => Outcome::JobEnded,
        false => Outcome::Exit(code),
    })
}

/// Runs a command until it ends, and passes signals on.
///
/// # Errors
/// In words.
pub fn wait_for(command: &mut Command) -> Result<u8, String> {
    attend(command, None).map(|(code, _)| code)
}

/// The same, which ends it when `job` says something. Returns its exit code, and whether that was
/// so.
fn attend(command: &mut Command, job: Option<BorrowedFd<'_>>) -> Result<(u8, bool), String> {
    let system = |error: io::Error| error.to_string();
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD]);
    let before = set.block();
    let mut signals = SignalFd::new(&set).map_err(system)?;
    let program = command.get_program().display().to_string();
    let mut child = take_defaults_in(command)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let mut poll = PollSet::default();
    let mut has_ended = false;
    loop {
        poll.clear();
        poll.add_readable(signals.as_fd());
        // A job that has ended is heard of once.
        let heard = job.filter(|_| !has_ended).map(|job| poll.add_readable(job));
        poll.wait(None).map_err(system)?;
        while let Some(received) = signals.take() {
            // What is typed at the terminal has gone to the child already.
            let is_typed = [SIGINT, SIGQUIT].contains(&received.signal) && stdin().is_terminal();
            if received.signal != SIGCHLD && !is_typed {
                let _ = send(child.id(), received.signal);
            }
        }
        if let Some(status) = child.try_wait().map_err(system)? {
            before.block_exactly();
            let by_signal = || 128 + status.signal().unwrap_or(0);
            let code = u8::try_from(status.code().unwrap_or_else(by_signal)).unwrap_or(1);
            return Ok((code, has_ended));
        }
        if heard.is_some_and(|heard| poll.ready(heard).readable || poll.ready(heard).hung_up) {
            has_ended = true;
            let _ = send(child.id(), SIGHUP);
            let _ = send(child.id(), SIGTERM);
        }
    }
}
