//! Programs that are sent to the hosts (`-stage`). On a host each is an unnamed file in memory: it
//! needs no folder that can be written, and is gone with the job, however that ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use margay_sys_os::descriptor::{duplicate_above, leave_open, memory_program};

use super::wire::{Writer, kind};
use crate::environment::SEGMENT_FD;
use crate::plan::LaunchError;

/// Bytes of a file in one message.
const PIECE: usize = 256 << 10;
/// While more than this waits for an agent, no more of a file is read.
const AHEAD: usize = 1 << 20;

/// At the launcher: a program that is sent.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its number in the job.
    program: u64,
    file: Arc<File>,
    path: PathBuf,
    pub(super) length: u64,
}

impl Source {
    /// Opens a program.
    ///
    /// # Errors
    /// When it cannot be read, or is empty.
    pub(super) fn open(program: usize, path: PathBuf) -> Result<Source, LaunchError> {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| {
            LaunchError::system(format!("-stage: cannot read '{}': {error}", path.display()))
        })?;
        if length == 0 {
            return Err(LaunchError {
                message: format!("'{}' is empty", path.display()),
                status: 126,
            });
        }
        Ok(Source {
            program: program as u64,
            file: Arc::new(file),
            path,
            length,
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.program
    }
}

/// What one agent still has to get.
#[derive(Debug, Default)]
pub(super) struct Sending {
    left: Vec<Source>,
    /// Bytes of the first one that it has.
    sent: u64,
}

impl Sending {
    pub(super) fn new(sources: Vec<Source>) -> Sending {
        Sending {
            left: sources,
            sent: 0,
        }
    }

    pub(super) fn add(&mut self, source: Source) {
        self.left.push(source);
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// The next piece, when no more than `waiting` bytes wait for the agent; none when there is no
    /// more, or not yet.
    ///
    /// # Errors
    /// In words.
    pub(super) fn next(&mut self, waiting: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(source) = self.left.first().filter(|_| waiting < AHEAD) else {
            return Ok(None);
        };
        let most = (source.length - self.sent).min(PIECE as u64) as usize;
        let mut bytes = vec![0; most];
        let read = source.file.read_exact_at(&mut bytes, self.sent);
        read.map_err(|error| format!("-stage: cannot read '{}': {error}", source.path.display()))?;
        let mut message = Writer::new(kind::FILE);
        message.number(source.program).bytes(&bytes);
        self.sent += most as u64;
        if self.sent == source.length {
            self.left.remove(0);
            self.sent = 0;
        }
        Ok(Some(message.done()))
    }
}

/// At the agent: a program that comes.
pub(super) struct Staged {
    file: File,
    left: u64,
}

impl Staged {
    /// # Errors
    /// When the system refuses files in memory that can be executed.
    pub(super) fn new(length: u64) -> io::Result<Staged> {
        Ok(Staged {
            file: memory_program()?,
            left: length,
        })
    }

    /// Adds a piece. Returns the path by which the ranks execute the program when it is whole: a
    /// descriptor that they inherit, because a script's interpreter opens it by that path, too.
    ///
    /// # Errors
    /// When there is no memory, or more comes than was said.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<Option<PathBuf>> {
        let too_much = || io::Error::new(io::ErrorKind::InvalidData, "it grows while it is read");
        self.left = (self.left.checked_sub(bytes.len() as u64)).ok_or_else(too_much)?;
        self.file.write_all(bytes)?;
        if self.left > 0 {
            return Ok(None);
        }
        // A file that somebody may write is not executed.
        let reading = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        self.file = File::open("/dev/null")?;
        let inherited = duplicate_above(reading.as_fd(), SEGMENT_FD + 1)?;
        let number = inherited.as_raw_fd();
        leave_open(inherited)?;
        Ok(Some(format!("/proc/self/fd/{number}").into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Incoming, Reader};
    use super::*;

    #[test]
    fn a_program_comes_whole_and_can_be_executed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        let script = format!(
            "#!/bin/sh\necho \"$1\" is here\nexit 0\n{}",
            "#".repeat(PIECE)
        );
        std::fs::write(&path, &script).unwrap();
        let source = Source::open(3, path).unwrap();
        let mut staged = Staged::new(source.length).unwrap();
        let mut sending = Sending::new(vec![source]);
        assert!(sending.next(AHEAD).unwrap().is_none(), "not while it waits");
        let mut found = None;
        while let Some(message) = sending.next(0).unwrap() {
            let mut incoming = Incoming::default();
            incoming.add(&message);
            let (_, body) = incoming.take().unwrap().unwrap();
            let mut from = Reader(&body);
            assert_eq!(from.number(), Ok(3));
            found = staged.add(from.bytes().unwrap()).unwrap();
        }
        let path = found.expect("it is whole");
        let output = std::process::Command::new(path).arg("x").output().unwrap();
        assert_eq!(output.stdout, b"x is here\n");
        assert!(staged.add(b"x").is_err());
    }
}
