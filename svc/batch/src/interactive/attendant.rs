//! The attendant: the program of an interactive job.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use margay_svc_queue_wire::Bytes;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::signal::{
    self, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGTERM, SignalFd, SignalSet, take_defaults_in,
};
use margay_sys_os::terminal::{Pty, set_size};

use super::frames::{Frame, Program};

/// How long a program has to end when its command has gone.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes that are passed on at once.
const PART: usize = 32 << 10;

/// Serves the command that listens at `socket`; returns the exit code of the job.
///
/// # Errors
/// In words.
pub fn attend(socket: &Path) -> Result<u8, String> {
    let set = SignalSet::of(&[SIGHUP, SIGINT, SIGTERM, SIGCHLD]);
    set.block();
    let failed = |error: io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    let environment = std::env::vars_os().map(|(name, value)| {
        let mut variable: OsString = name;
        variable.push("=");
        variable.push(value);
        Bytes(variable)
    });
    Frame::Begun(environment.collect())
        .write(&mut stream)
        .map_err(failed)?;
    match Frame::read(&mut stream).map_err(failed)? {
        Some(Frame::Run(program)) if program.arguments.is_empty() => {
            // The job lasts as long as the command, and ends by the signals of its end.
            SignalSet::of(&[]).block_exactly();
            let _ = io::copy(&mut stream, &mut io::sink());
            Ok(0)
        }
        Some(Frame::Run(program)) => {
            let code = match start(&program) {
                Ok(started) => pass(started, &stream, &set).map_err(failed)?,
                Err(text) => {
                    let _ = Frame::Error(format!("{text}\n").into_bytes()).write(&mut stream);
                    127
                }
            };
            let _ = Frame::Exit(code).write(&mut stream);
            // What was sent last is to arrive before the end.
            let _ = stream.shutdown(Shutdown::Write);
            Ok(code)
        }
        _ => Ok(0),
    }
}

/// A program that runs, and what passes bytes to and from it.
struct Started {
    child: Child,
    input: Option<OwnedFd>,
    /// The terminal, or standard output and error.
    outputs: Vec<File>,
    has_terminal: bool,
}

fn start(program: &Program) -> Result<Started, String> {
    let (name, arguments) = program.arguments.split_first().ok_or("no program")?;
    let mut command = Command::new(&name.0);
    command
        .args(arguments.iter().map(|word| &word.0))
        .envs(program.variables.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &program.directory {
        command.current_dir(&directory.0);
    }
    take_defaults_in(&mut command);
    let failed = |error: io::Error| format!("{}: {error}", name.0.to_string_lossy());
    if let Some((rows, columns)) = program.terminal {
        let pty = Pty::open().map_err(failed)?;
        let (child, master) = pty.spawn(&mut command).map_err(failed)?;
        set_size(master.as_fd(), rows, columns);
        return Ok(Started {
            child,
            input: Some(master.try_clone().map_err(failed)?.into()),
            outputs: vec![master],
            has_terminal: true,
        });
    }
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let outputs = [
        child.stdout.take().map(OwnedFd::from),
        child.stderr.take().map(OwnedFd::from),
    ];
    Ok(Started {
        input: child.stdin.take().map(OwnedFd::from),
        outputs: outputs.into_iter().flatten().map(File::from).collect(),
        child,
        has_terminal: false,
    })
}

/// Passes bytes until the program has ended; returns its exit code.
fn pass(mut started: Started, stream: &UnixStream, set: &SignalSet) -> io::Result<u8> {
    let mut signals = SignalFd::new(set)?;
    let group = started.child.id();
    let from = stream.try_clone()?;
    let input = started.input.take();
    let has_terminal = started.has_terminal;
    // The other direction has a thread of its own, so that neither stops the other.
    std::thread::Builder::new().spawn(move || hear(from, input, group, has_terminal))?;
    let mut to = stream;
    let mut poll = PollSet::default();
    let mut part = vec![0; PART];
    let mut is_open = vec![true; started.outputs.len()];
    let mut status: Option<ExitStatus> = None;
    loop {
        poll.clear();
        poll.add_readable(signals.as_fd());
        let places: Vec<usize> = started
            .outputs
            .iter()
            .zip(&is_open)
            .map(|(output, is_open)| match is_open {
                true => poll.add_readable(output.as_fd()),
                false => usize::MAX,
            })
            .collect();
        // After its end what is there already is passed on, also if others have the other side.
        poll.wait(status.is_some().then_some(Duration::ZERO))?;
        let mut has_passed = false;
        for (n, output) in started.outputs.iter_mut().enumerate() {
            if !is_open[n] {
                continue;
            }
            let ready = poll.ready(places[n]);
            if !ready.readable && !ready.hung_up {
                continue;
            }
            match output.read(&mut part) {
                // A terminal that was hung up gives an error.
                Ok(0) | Err(_) => is_open[n] = false,
                Ok(count) => {
                    has_passed = true;
                    let bytes = part[..count].to_vec();
                    let frame = if n == 0 {
                        Frame::Output(bytes)
                    } else {
                        Frame::Error(bytes)
                    };
                    // A client that has gone gets nothing; the other thread ends the program.
                    let _ = frame.write(&mut to);
                }
            }
        }
        while let Some(received) = signals.take() {
            if received.signal != SIGCHLD {
                // The time limit, or the user's wish: who has a terminal is hung up.
                let _ = signal::send_to_group(group, SIGHUP);
            }
        }
        if status.is_none() {
            status = started.child.try_wait()?;
        }
        if let Some(status) = status
            && !has_passed
        {
            let by_signal = || 128 + status.signal().unwrap_or(0);
            let code = status.code().unwrap_or_else(by_signal);
            return Ok(u8::try_from(code).unwrap_or(1));
        }
    }
}

/// Hears what the command sends.
fn hear(mut from: UnixStream, input: Option<OwnedFd>, group: u32, has_terminal: bool) {
    let mut input = input.map(File::from);
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        match frame {
            Frame::Input(bytes) => {
                if let Some(file) = &mut input
                    && file.write_all(&bytes).is_err()
                {
                    input = None;
                }
            }
            Frame::InputEnd => match &mut input {
                // What ends the input at a terminal.
                Some(file) if has_terminal => {
                    let _ = file.write_all(&[4]);
                }
                _ => input = None,
            },
            Frame::Resize(rows, columns) => {
                if let Some(file) = &input {
                    set_size(file.as_fd(), rows, columns);
                }
            }
            Frame::Signal(number) => {
                let _ = signal::send_to_group(group, number);
            }
            _ => {}
        }
    }
    // The command has gone.
    let _ = signal::send_to_group(group, SIGHUP);
    let _ = signal::send_to_group(group, SIGCONT);
    std::thread::sleep(GRACE);
    std::process::exit(129);
}
