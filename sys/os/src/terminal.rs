//! Terminals: who is in the foreground, and pseudo-terminals for tests and tools.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags};
use rustix::process::{getpgrp, ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::stdin;

/// Whether this process's group is in the foreground of the terminal `fd`, so that it may read.
#[must_use]
pub fn is_foreground(fd: BorrowedFd<'_>) -> bool {
    rustix::termios::tcgetpgrp(fd) == Ok(getpgrp())
}

/// Whether the descriptor `number` of a process is a terminal; false when nobody may know.
#[must_use]
pub fn is_terminal_of(pid: u32, number: u32) -> bool {
    // A terminal that is opened so does not become this process's own, and nobody waits for its
    // carrier.
    let opened = File::options()
        .read(true)
        .custom_flags((OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32)
        .open(format!("/proc/{pid}/fd/{number}"));
    opened.is_ok_and(|file| file.is_terminal())
}

/// Rows and columns of a terminal; none when it is none, or does not know.
#[must_use]
pub fn size(fd: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(fd).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Sets rows and columns of a terminal; its foreground processes get SIGWINCH.
pub fn set_size(fd: BorrowedFd<'_>, rows: u16, columns: u16) {
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let _ = rustix::termios::tcsetwinsize(fd, size);
}

/// A terminal that passes every byte on as it is typed, until this is dropped.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
    before: rustix::termios::Termios,
}

impl RawMode {
    /// Puts the terminal into this mode.
    ///
    /// # Errors
    /// When it is none.
    pub fn enter(fd: BorrowedFd<'_>) -> io::Result<RawMode> {
        let before = rustix::termios::tcgetattr(fd)?;
        let mut raw = before.clone();
        raw.make_raw();
        let terminal = fd.try_clone_to_owned()?;
        rustix::termios::tcsetattr(&terminal, rustix::termios::OptionalActions::Now, &raw)?;
        Ok(RawMode { terminal, before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // What is on its way to the screen is shown first.
        let action = rustix::termios::OptionalActions::Drain;
        let _ = rustix::termios::tcsetattr(&self.terminal, action, &self.before);
    }
}

/// The master side of a pseudo-terminal. Dropping it hangs the terminal up.
#[derive(Debug)]
pub struct Pty {
    master: File,
    slave: OwnedFd,
}

impl Pty {
    /// A new pseudo-terminal.
    ///
    /// # Errors
    /// When the system has none left.
    pub fn open() -> io::Result<Pty> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
        let master = master.into();
        Ok(Pty { master, slave })
    }

    /// Makes it this large.
    pub fn set_size(&self, rows: u16, columns: u16) {
        set_size(self.slave.as_fd(), rows, columns);
    }

    /// Starts a program as the leader of a new session with this terminal as its controlling
    /// terminal and its standard input, output and error. Closes our copy of the slave side.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(self, command: &mut Command) -> io::Result<(Child, File)> {
        command
            .stdin(self.slave.try_clone()?)
            .stdout(self.slave.try_clone()?)
            .stderr(self.slave);
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(|| {
                let _ = setsid();
                let _ = ioctl_tiocsctty(stdin());
                Ok(())
            });
        }
        let child = command.spawn()?;
        // The command keeps copies of the slave side: replace them.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        Ok((child, self.master))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_program_sees_a_terminal() {
        let pty = Pty::open().unwrap();
        let (mut child, mut master) = pty
            .spawn(Command::new("sh").args(["-c", "test -t 0 && test -t 1 && echo yes"]))
            .unwrap();
        let mut text = Vec::new();
        // The end of a terminal's output is reported as an error (EIO), after the data.
        let _ = master.read_to_end(&mut text);
        assert!(child.wait().unwrap().success());
        assert_eq!(String::from_utf8_lossy(&text).trim(), "yes");
    }

    #[test]
    fn a_terminal_has_a_size_and_is_as_it_was_after_raw_mode() {
        let pty = Pty::open().unwrap();
        set_size(pty.master.as_fd(), 33, 101);
        assert_eq!(size(pty.slave.as_fd()), Some((33, 101)));
        let echoes = |pty: &Pty| {
            let mode = rustix::termios::tcgetattr(&pty.slave).unwrap();
            mode.local_modes.contains(rustix::termios::LocalModes::ECHO)
        };
        assert!(echoes(&pty));
        let raw = RawMode::enter(pty.slave.as_fd()).unwrap();
        assert!(!echoes(&pty));
        drop(raw);
        assert!(echoes(&pty));
    }
}
