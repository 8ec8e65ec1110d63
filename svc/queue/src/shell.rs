//! The remote shell: what starts this program on another host.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use margay_job_launch::hosts::program_on;
use margay_svc_queue_wire::PROGRAM;
use margay_sys_os::descriptor::{PollSet, set_nonblocking};
use margay_sys_os::process::ends_with_thread;

use crate::wire::Wire;

/// How long the remote shell may take to log in and start the program.
pub const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// How long it may take to go when its input has ended.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Most bytes that are kept of what it prints on its standard error.
const MOST_SAID: usize = 2048;

/// A word for the shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What starts this program on a host, with these words; on this one without the remote shell.
///
/// # Errors
/// What the system says.
pub fn command(host: &str, shell: &[String], words: &str) -> io::Result<Command> {
    let shell: Vec<OsString> = shell.iter().map(OsString::from).collect();
    program_on(host, &shell, PROGRAM, words)
}

/// This program on another host, and the remote shell that leads there.
#[derive(Debug)]
pub struct Remote {
    child: Child,
    pub wire: Wire,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    begun: Instant,
}

impl Remote {
    /// Starts the program on a host, with these words.
    ///
    /// # Errors
    /// In words.
    pub fn start(host: &str, shell: &[String], words: &str) -> Result<Remote, String> {
        let failed = |error: io::Error| {
            format!(
                "cannot run '{}': {error}; install it, or name another remote shell by MARGAY_RSH",
                shell.join(" ")
            )
        };
        let mut command = command(host, shell, words).map_err(failed)?;
        // One that hangs would not hear that this process was killed.
        let mut child = ends_with_thread(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stderr = child.stderr.take();
        if let Some(stderr) = &stderr {
            set_nonblocking(stderr.as_fd()).map_err(failed)?;
        }
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the remote shell has no pipes".into());
        };
        let wire = Wire::new(stdout.into(), stdin.into(), true).map_err(failed)?;
        Ok(Remote {
            child,
            wire,
            stderr,
            said: Vec::new(),
            begun: Instant::now(),
        })
    }

    /// Whether nothing more is to be expected of it: it has gone, is silent for too long, or has
    /// not begun in time.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self.wire.has_begun {
            true => self.wire.is_cut(),
            false => !self.wire.is_open || self.begun.elapsed() >= STARTED_WITHIN,
        }
    }

    /// Adds what it waits for to a set.
    pub fn add_to(&self, poll: &mut PollSet) {
        self.wire.add_to(poll);
        if let Some(stderr) = &self.stderr {
            poll.add_readable(stderr.as_fd());
        }
    }

    /// Reads what has come and writes what is taken.
    pub fn go_on(&mut self) {
        self.wire.go_on();
        let mut part = [0; 1024];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut part) {
                Ok(count) if count > 0 => {
                    self.said.extend_from_slice(&part[..count]);
                    let excess = self.said.len().saturating_sub(MOST_SAID);
                    self.said.drain(..excess);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stderr = None,
            }
        }
    }

    /// Ends the connection; returns why it was of no use, in words.
    pub fn end(mut self) -> String {
        let is_open = self.wire.is_open;
        let has_begun = self.wire.has_begun;
        self.go_on();
        let Remote {
            mut child,
            wire,
            mut said,
            stderr,
            begun: _,
        } = self;
        drop(wire);
        drop(stderr);
        let end = Instant::now() + GONE_WITHIN;
        let status = loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) => {
                    let _ = child.kill();
                    break child.wait().ok();
                }
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        said.truncate(MOST_SAID);
        let said = String::from_utf8_lossy(&said);
        let said: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(": {}", said.join("; ")),
        };
        match (is_open, has_begun, status.and_then(|status| status.code())) {
            (true, true, _) => format!(
                "nothing was heard of it for {} s{said}",
                crate::wire::SILENCE.as_secs()
            ),
            (true, false, _) => format!(
                "no answer within {} s; the remote shell must not ask or wait{said}",
                STARTED_WITHIN.as_secs()
            ),
            (false, false, Some(126 | 127)) => {
                format!("Margay is not there at the same path{said}")
            }
            (false, _, Some(code)) => format!("the remote shell ended with code {code}{said}"),
            (false, ..) => format!("the remote shell ended{said}"),
        }
    }
}
