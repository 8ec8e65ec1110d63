//! What runs a command of `margay make` on another host. The order comes over standard input, which
//! stays open as long as the command is wanted: at its end the command is ended.
//!
//! An order is a line with its length in bytes, and then its parts, each behind a line with its
//! length: the shell, the directory, the number of words, the words, and variables.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::{PidFd, become_subreaper, kill_descendants};
use margay_sys_os::signal;

use crate::{Failed, code};

/// Most bytes of an order: an environment is shorter.
const MOST: usize = 16 << 20;
/// How long killed processes may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// A command and its surroundings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) shell: OsString,
    pub(crate) words: Vec<OsString>,
    pub(crate) directory: OsString,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

fn put(to: &mut Vec<u8>, text: &OsStr) {
    to.extend_from_slice(format!("{}\n", text.len()).as_bytes());
    to.extend_from_slice(text.as_bytes());
}

/// Takes a number and the end of its line.
fn number(from: &mut &[u8]) -> Option<usize> {
    let end = from.iter().position(|&byte| byte == b'\n')?;
    let number = std::str::from_utf8(&from[..end]).ok()?.parse().ok()?;
    *from = &from[end + 1..];
    Some(number)
}

fn text(from: &mut &[u8]) -> Option<OsString> {
    let length = number(from)?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(OsString::from_vec(text.to_vec()))
}

impl Order {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, &self.shell);
        put(&mut body, &self.directory);
        body.extend_from_slice(format!("{}\n", self.words.len()).as_bytes());
        self.words.iter().for_each(|word| put(&mut body, word));
        for (name, value) in &self.environment {
            put(&mut body, name);
            put(&mut body, value);
        }
        let mut all = format!("{}\n", body.len()).into_bytes();
        all.extend(body);
        all
    }

    fn decode(mut body: &[u8]) -> Option<Order> {
        let from = &mut body;
        let (shell, directory) = (text(from)?, text(from)?);
        let words = (0..number(from)?)
            .map(|_| text(from))
            .collect::<Option<_>>()?;
        let mut environment = Vec::new();
        while !from.is_empty() {
            environment.push((text(from)?, text(from)?));
        }
        Some(Order {
            shell,
            words,
            directory,
            environment,
        })
    }

    fn read(mut from: impl Read) -> io::Result<Order> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let mut line = Vec::new();
        let mut byte = [0];
        while line.last() != Some(&b'\n') && line.len() < 20 {
            from.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        let length = number(&mut &line[..]).filter(|&length| length <= MOST);
        let mut body = vec![0; length.ok_or_else(wrong)?];
        from.read_exact(&mut body)?;
        Order::decode(&body).ok_or_else(wrong)
    }
}

/// Runs the command of an order; returns its exit status.
pub(crate) fn serve() -> Result<u8, Failed> {
    let order = Order::read(io::stdin().lock())
        .map_err(|error| format!("cannot read what shall be run: {error}"))?;
    become_subreaper().map_err(|error| format!("cannot watch a command: {error}"))?;
    let mut command = Command::new(&order.shell);
    signal::take_defaults_in(&mut command);
    let child = command
        .args(&order.words)
        .current_dir(&order.directory)
        .env_clear()
        .envs(
            order
                .environment
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .cloned(),
        )
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| {
        format!(
            "cannot run {} in {}: {error}; the directory has to be on all hosts",
            order.shell.to_string_lossy(),
            order.directory.to_string_lossy()
        )
    })?;
    let process =
        PidFd::open(child.id()).map_err(|error| format!("cannot watch a command: {error}"))?;
    let mut poll = PollSet::default();
    loop {
        poll.clear();
        let input = poll.add_readable(io::stdin().as_fd());
        poll.add_readable(process.as_fd());
        let waited = poll.wait(None);
        if let Ok(Some(status)) = child.try_wait() {
            return Ok(code(status));
        }
        let is_over = poll.ready(input).readable
            && !matches!(io::stdin().lock().read(&mut [0; 64]), Ok(read) if read > 0);
        if is_over || waited.is_err() {
            // Nobody waits for it any more.
            kill_descendants(&[], KILL_LIMIT);
            return Ok(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order {
            shell: "/bin/sh".into(),
            words: vec!["-c".into(), "echo 'a\nb'; exit 3".into(), "".into()],
            directory: "/tmp".into(),
            environment: vec![("A".into(), OsString::from_vec(vec![0xff, b'=', b'\n']))],
        };
        let bytes = order.encode();
        assert_eq!(Order::read(&bytes[..]).unwrap(), order);
        for cut in 0..bytes.len() {
            assert!(Order::read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
