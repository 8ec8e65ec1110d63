//! The command by which an agent is started on a host.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use margay_sys_os::descriptor::set_nonblocking;
use margay_sys_os::process::beside;
use margay_sys_os::signal;

use crate::plan::Hosts;
use crate::report::host_name;

/// The word in a remote shell's words that stands for the host.
const HOST: &str = "%h";

/// A remote shell, and its standard streams, which do not block; none after their ends.
pub(super) struct Shell {
    pub(super) child: Child,
    pub(super) input: Option<File>,
    pub(super) output: Option<File>,
    pub(super) errors: Option<File>,
}

impl Shell {
    /// # Errors
    /// When a stream cannot be made so.
    pub(super) fn of(mut child: Child) -> io::Result<Shell> {
        let own = |fd: OwnedFd| -> io::Result<File> {
            set_nonblocking(fd.as_fd())?;
            Ok(fd.into())
        };
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        Ok(Shell {
            input: input.map(|fd| own(fd.into())).transpose()?,
            output: output.map(|fd| own(fd.into())).transpose()?,
            errors: errors.map(|fd| own(fd.into())).transpose()?,
            child,
        })
    }
}

/// Whether a stream has nothing, or takes nothing, at the moment.
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Starts the agent of a host; `shell` are the words of the remote shell, none for this machine.
/// Its standard streams are pipes.
///
/// # Errors
/// When the remote shell cannot be started.
pub(super) fn start(host: &str, shell: Option<&[OsString]>) -> io::Result<Child> {
    let own = std::env::current_exe()?;
    let mut command = match shell {
        None => {
            let mut command = Command::new(own);
            command.arg("agent");
            command
        }
        Some(shell) => {
            let mut words = words(host, shell).into_iter();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words).arg(remote_command(own.as_os_str()));
            command
        }
    };
    signal::take_defaults_in(&mut command)
        // A signal of the terminal is not the remote shell's: the agents end the ranks.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Returns the words of a remote shell for a host; a command follows as one word.
#[must_use]
pub fn words(host: &str, shell: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> = shell
        .iter()
        .map(|word| {
            if word == HOST {
                host.into()
            } else {
                word.clone()
            }
        })
        .collect();
    if !shell.iter().any(|word| word == HOST) {
        words.push(host.into());
    }
    words
}

/// A program of this installation on another host, or on this one without the remote shell; `words`
/// are as a shell reads them. It is not ended by a signal of the terminal.
///
/// # Errors
/// When the program is not beside this one.
pub fn program_on(
    host: &str,
    shell: &[OsString],
    program: &str,
    arguments: &str,
) -> io::Result<Command> {
    let mut text = exec(beside(program)?.as_os_str());
    text.push(" ");
    text.push(arguments);
    let way = match is_here(host) {
        true => vec!["sh".into(), "-c".into()],
        false => words(host, shell),
    };
    let mut way = way.into_iter();
    let mut command = Command::new(way.next().unwrap_or_default());
    command.args(way).arg(text);
    signal::take_defaults_in(&mut command).process_group(0);
    Ok(command)
}

/// Returns the words of a remote shell in a text, or those of the usual one where that is empty.
#[must_use]
pub fn named(text: &str) -> Vec<OsString> {
    let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
    match words.is_empty() {
        true => Hosts::SHELL.map(OsString::from).to_vec(),
        false => words,
    }
}

/// Returns the command for a shell on the other host.
fn remote_command(program: &OsStr) -> OsString {
    let mut command = exec(program);
    command.push(" agent");
    command
}

/// The beginning of a command that is a program.
fn exec(program: &OsStr) -> OsString {
    let mut command = b"exec '".to_vec();
    for &byte in program.as_bytes() {
        match byte {
            b'\'' => command.extend_from_slice(b"'\\''"),
            byte => command.push(byte),
        }
    }
    command.push(b'\'');
    OsString::from_vec(command)
}

/// Whether a host of a list is this machine, which needs no remote shell.
#[must_use]
pub fn is_here(name: &str) -> bool {
    let own = host_name();
    let short = |n: &str| n.split('.').next().unwrap_or_default().to_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = address
        .parse::<std::net::IpAddr>()
        .is_ok_and(|a| a.is_loopback());
    name == "localhost"
        || is_loopback
        || name.eq_ignore_ascii_case(&own)
        || (address.parse::<std::net::IpAddr>().is_err() && short(name) == short(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_where_the_user_says_or_behind() {
        let shell = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(words("b", &shell("ssh -x")), shell("ssh -x b"));
        assert_eq!(
            words("b", &shell("ip exec %h sh -c")),
            shell("ip exec b sh -c")
        );
    }

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        let command = remote_command("/a b/it's".as_ref());
        assert_eq!(command, "exec '/a b/it'\\''s' agent");
    }
}
