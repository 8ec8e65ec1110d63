//! Signals: names, receiving them through a descriptor, sending them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub use libc::{
    SIGABRT, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT,
    SIGSEGV, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH, SIGXCPU,
    SIGXFSZ,
};

/// The name and the usual meaning of a signal.
#[must_use]
pub fn describe(signal: i32) -> (String, &'static str) {
    let (name, meaning) = match signal {
        libc::SIGHUP => ("SIGHUP", "hang-up"),
        libc::SIGINT => ("SIGINT", "interrupt"),
        libc::SIGQUIT => ("SIGQUIT", "quit"),
        libc::SIGILL => ("SIGILL", "illegal instruction"),
        libc::SIGTRAP => ("SIGTRAP", "breakpoint"),
        libc::SIGABRT => ("SIGABRT", "abort() or a failed assertion"),
        libc::SIGBUS => ("SIGBUS", "access to memory that is not there"),
        libc::SIGFPE => ("SIGFPE", "arithmetic error"),
        libc::SIGKILL => ("SIGKILL", "killed"),
        libc::SIGUSR1 => ("SIGUSR1", "user signal 1"),
        libc::SIGSEGV => ("SIGSEGV", "invalid memory access"),
        libc::SIGUSR2 => ("SIGUSR2", "user signal 2"),
        libc::SIGPIPE => ("SIGPIPE", "write to a closed pipe"),
        libc::SIGALRM => ("SIGALRM", "alarm clock"),
        libc::SIGTERM => ("SIGTERM", "termination"),
        libc::SIGXCPU => ("SIGXCPU", "limit of CPU time"),
        libc::SIGXFSZ => ("SIGXFSZ", "limit of file size"),
        libc::SIGSYS => ("SIGSYS", "forbidden system call"),
        other => return (format!("signal {other}"), "signal"),
    };
    (name.to_owned(), meaning)
}

/// A set of signals, as blocked by a thread.
#[derive(Clone, Copy)]
pub struct SignalSet(pub(crate) libc::sigset_t);

impl std::fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members = (1..64).filter(|&s| self.contains(s));
        f.debug_set().entries(members).finish()
    }
}

impl SignalSet {
    /// The set of the given signals; numbers that are not signals are left out.
    #[must_use]
    pub fn of(signals: &[i32]) -> SignalSet {
        // SAFETY: an all-zero sigset_t may be handed to sigemptyset, which initialises it.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a valid place.
        unsafe { libc::sigemptyset(&raw mut set) };
        for &signal in signals {
            // SAFETY: `set` is initialised; a bad number gives an error and no change.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        SignalSet(set)
    }

    /// The set of those by which terminals, users and launchers end a program.
    #[must_use]
    pub fn that_end() -> SignalSet {
        Self::of(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM])
    }

    /// The set of all signals.
    #[must_use]
    pub fn all() -> SignalSet {
        let mut set = Self::of(&[]);
        // SAFETY: `set` is a valid place.
        unsafe { libc::sigfillset(&raw mut set.0) };
        set
    }

    /// The set of all but those that come from what a thread itself does: where a handler is to see
    /// them, or a crash is to be reported, that must not be blocked.
    #[must_use]
    pub fn of_others() -> SignalSet {
        let mut set = Self::all();
        for signal in crate::crash::SIGNALS {
            // SAFETY: `set` is initialised.
            unsafe { libc::sigdelset(&raw mut set.0, signal) };
        }
        set
    }

    /// Whether the set holds `signal`.
    #[must_use]
    pub fn contains(&self, signal: i32) -> bool {
        // SAFETY: the set is initialised; a bad number gives -1.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }

    /// Makes this set the calling thread's blocked signals and returns the former set.
    pub fn block_exactly(&self) -> SignalSet {
        self.change(libc::SIG_SETMASK)
    }

    /// Adds this set to the calling thread's blocked signals and returns the former set.
    pub fn block(&self) -> SignalSet {
        self.change(libc::SIG_BLOCK)
    }

    fn change(&self, how: i32) -> SignalSet {
        let mut former = Self::of(&[]);
        // SAFETY: both sets are initialised and live for the call.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, &raw mut former.0) };
        former
    }
}

/// Whether the process ignores `signal` (as `nohup` and background shells make it do).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid place for the result.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries; `action` is valid.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// Gives `signal` its default action in this process.
pub fn take_default(signal: i32) {
    // SAFETY: SIG_DFL runs no code of ours; a bad number gives an error.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Has what the command starts begin with the default action of every signal and with none blocked,
/// although this process may block some, or may have been started to ignore some (by `nohup`, or in
/// the background of a script). What is started has the signal mask of its parent otherwise.
pub fn take_defaults_in(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only async-signal-safe calls are made.
    unsafe {
        command.pre_exec(|| {
            // Those that cannot be changed, and numbers without a signal, give an error that
            // changes nothing.
            (1..libc::SIGRTMIN()).for_each(take_default);
            SignalSet::of(&[]).block_exactly();
            Ok(())
        })
    }
}

/// Has what the command starts begin with these signals blocked, so that none that comes before it
/// is ready ends it.
pub fn block_in(command: &mut Command, signals: SignalSet) -> &mut Command {
    // SAFETY: between fork and exec only an async-signal-safe call is made.
    unsafe {
        command.pre_exec(move || {
            signals.block();
            Ok(())
        })
    }
}

/// A descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct SignalFd {
    file: File,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Who sent it; 0 for the kernel (the terminal).
    pub sender: u32,
}

impl SignalFd {
    /// A descriptor for `signals`, which the caller has blocked ([`SignalSet::block`]).
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new(signals: &SignalSet) -> io::Result<SignalFd> {
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe {
            libc::signalfd(
                -1,
                &raw const signals.0,
                libc::SFD_NONBLOCK | libc::SFD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(SignalFd {
            // SAFETY: the kernel just gave us this descriptor.
            file: unsafe { File::from_raw_fd(fd) },
        })
    }

    /// The next signal that has arrived, if any; does not block.
    pub fn take(&mut self) -> Option<Received> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        match self.file.read(&mut bytes) {
            Ok(n) if n == bytes.len() => {}
            _ => return None,
        }
        // The layout begins with: signal number, errno, code, sender (4 bytes each).
        let word =
            |i: usize| u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap_or([0; 4]));
        Some(Received {
            signal: word(0) as i32,
            sender: word(3),
        })
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Sends `signal` to a process. `pid` 0 is refused, so that nobody signals his own group by a
/// forgotten value.
///
/// # Errors
/// When there is no such process or it belongs to somebody else.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    kill(pid, 1, signal)
}

/// Sends `signal` to a process group.
///
/// # Errors
/// When there is no such group or all of it belongs to somebody else.
pub fn send_to_group(group: u32, signal: i32) -> io::Result<()> {
    kill(group, -1, signal)
}

/// Stops the calling process as the terminal's suspend key does, and returns when it is continued.
/// The caller has SIGTSTP blocked.
pub fn stop_self() {
    let tstp = SignalSet::of(&[libc::SIGTSTP]);
    // SAFETY: raises a signal in this thread; it is blocked, so it stays pending until unblocked.
    unsafe { libc::raise(libc::SIGTSTP) };
    tstp.change(libc::SIG_UNBLOCK);
    tstp.change(libc::SIG_BLOCK);
}

fn kill(pid: u32, sign: i32, signal: i32) -> io::Result<()> {
    let number = i32::try_from(pid)
        .ok()
        .filter(|&p| p > 1)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: no memory involved; the target is one process or one group, never "everybody".
    if unsafe { libc::kill(sign * number, signal) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_arrives_at_the_descriptor() {
        let set = SignalSet::of(&[SIGUSR2]);
        let former = set.block();
        let mut fd = SignalFd::new(&set).unwrap();
        assert_eq!(fd.take(), None);
        // SAFETY: raises a signal that this thread has blocked.
        unsafe { libc::raise(SIGUSR2) };
        let got = fd.take().unwrap();
        assert_eq!(got.signal, SIGUSR2);
        assert_eq!(got.sender, std::process::id());
        former.block_exactly();
    }

    #[test]
    fn nobody_is_signalled_by_a_forgotten_value() {
        assert!(send(0, SIGTERM).is_err());
        assert!(send(1, 0).is_err());
        assert!(send_to_group(0, SIGTERM).is_err());
        assert!(send(u32::MAX, SIGTERM).is_err());
    }

    #[test]
    fn a_command_can_be_freed_of_what_its_parent_ignores() {
        // The signal is none that the tests of this process use.
        // SAFETY: SIG_IGN runs no code.
        unsafe { libc::signal(SIGXFSZ, libc::SIG_IGN) };
        let ignored = |command: &mut Command| {
            let output = command.arg("/proc/self/status").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let line = text.lines().find(|l| l.starts_with("SigIgn:")).unwrap();
            u64::from_str_radix(line[7..].trim(), 16).unwrap() & (1 << (SIGXFSZ - 1)) != 0
        };
        assert!(ignored(&mut Command::new("cat")));
        assert!(!ignored(take_defaults_in(&mut Command::new("cat"))));
        take_default(SIGXFSZ);
    }

    #[test]
    fn a_command_can_begin_with_signals_blocked() {
        let blocked = |command: &mut Command| {
            let output = command.arg("/proc/self/status").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let line = text.lines().find(|l| l.starts_with("SigBlk:")).unwrap();
            u64::from_str_radix(line[7..].trim(), 16).unwrap() & (1 << (SIGTERM - 1)) != 0
        };
        assert!(!blocked(&mut Command::new("cat")));
        let signals = SignalSet::of(&[SIGTERM]);
        assert!(blocked(block_in(&mut Command::new("cat"), signals)));
        // What this thread blocks is blocked in what it starts.
        let before = signals.block();
        assert!(blocked(&mut Command::new("cat")));
        assert!(!blocked(take_defaults_in(&mut Command::new("cat"))));
        before.block_exactly();
    }

    #[test]
    fn names() {
        assert_eq!(describe(SIGSEGV).0, "SIGSEGV");
        assert_eq!(describe(40).0, "signal 40");
        assert!(SignalSet::all().contains(SIGTERM));
        assert!(!is_ignored(SIGTERM));
    }
}
