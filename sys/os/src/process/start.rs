//! Starting a process: what it becomes, and which step failed where it does not come into being.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitOptions, chdir, getpid, getppid, set_parent_process_death_signal, setpgid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::cpu::set_of;
use crate::descriptor::FileLimit;
use crate::signal::SignalSet;

/// A NULL-terminated array of C strings, as `execve` takes it.
pub struct StringArray {
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl StringArray {
    /// The array of the given strings.
    #[must_use]
    pub fn new(strings: Vec<CString>) -> StringArray {
        let pointers = strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        StringArray { strings, pointers }
    }

    /// The strings.
    #[must_use]
    pub fn strings(&self) -> &[CString] {
        &self.strings
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

impl std::fmt::Debug for StringArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.strings).finish()
    }
}

/// What to start and how. The new process leads its own process group, gets SIGKILL when the
/// thread that started it ends, and has SIGPIPE at its default.
#[derive(Debug)]
pub struct Start<'a> {
    /// Path of the program; there is no search.
    pub program: &'a CStr,
    /// Arguments, the program's name first.
    pub arguments: &'a StringArray,
    /// The whole environment, `NAME=VALUE` each.
    pub environment: &'a StringArray,
    /// Working directory, or the caller's.
    pub directory: Option<&'a CStr>,
    /// Standard input, output and error.
    pub standard: [BorrowedFd<'a>; 3],
    /// Descriptors that the program inherits under their numbers.
    pub inherit: &'a [BorrowedFd<'a>],
    /// Cores to which the process is bound; none leaves it as it is.
    pub cores: &'a [usize],
    /// Limit of open files.
    pub files: FileLimit,
    /// Blocked signals of the new program.
    pub blocked: SignalSet,
}

/// Which step of a start failed.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making the process.
    Process = 0,
    /// Binding it to its cores.
    Bind = 1,
    /// Entering the working directory.
    Directory = 2,
    /// Setting up standard input, output and error.
    Standard = 3,
    /// Executing the program.
    Execute = 4,
}

impl Step {
    /// The step of a number, as `self as i32` gives it.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Step> {
        [
            Step::Process,
            Step::Bind,
            Step::Directory,
            Step::Standard,
            Step::Execute,
        ]
        .into_iter()
        .find(|&s| s as i32 == number)
    }
}

/// Why a start failed.
#[derive(Debug)]
pub struct StartError {
    /// The step that failed.
    pub step: Step,
    /// What the kernel said.
    pub error: io::Error,
}

/// Starts processes one after the other. Keeps the stack that the first instructions of a new
/// process run on.
///
/// The new process shares our memory until it executes the program (`CLONE_VM | CLONE_VFORK`, as
/// `posix_spawn` does), so starting costs the same however big we are.
#[derive(Debug)]
pub struct Starter {
    stack: Box<[MaybeUninit<u128>]>,
}

/// What the new process needs before it executes the program; it lives on our stack.
struct ChildStart<'a> {
    start: &'a Start<'a>,
    cores: CpuSet,
    parent: Pid,
    /// The step that failed, and what the kernel said.
    failed: Option<(Step, Errno)>,
}

impl Default for Starter {
    fn default() -> Self {
        Self::new()
    }
}

impl Starter {
    /// A starter.
    #[must_use]
    pub fn new() -> Starter {
        Starter {
            // Most of it is never touched.
            stack: Box::new_uninit_slice((128 << 10) / size_of::<u128>()),
        }
    }

    /// Starts a program; returns its process id once it executes.
    ///
    /// # Errors
    /// When a step fails; no process is left then.
    pub fn start(&mut self, start: &Start<'_>) -> Result<u32, StartError> {
        let mut child = ChildStart {
            start,
            cores: set_of(start.cores),
            parent: getpid(),
            failed: None,
        };
        let everything = SignalSet::all().block();
        let top = self.stack.as_mut_ptr_range().end;
        // SAFETY: the child runs `child_main` on `stack`, which nobody else uses: this thread is
        // suspended until the child executes or exits (CLONE_VFORK), and `&mut self` keeps other
        // threads away. `child` lives longer than that. All signals are blocked, so no handler of
        // ours runs in the shared memory. `child_main` makes async-signal-safe calls only.
        let pid = unsafe {
            libc::clone(
                child_main,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut child).cast(),
            )
        };
        let failed = io::Error::last_os_error();
        everything.block_exactly();
        if pid < 0 {
            return Err(StartError {
                step: Step::Process,
                error: failed,
            });
        }
        if let Some((step, error)) = child.failed {
            // Reaps the child that has just exited; how is not wanted.
            let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
            return Err(StartError {
                step,
                error: error.into(),
            });
        }
        Ok(pid as u32)
    }
}

/// The first instructions of a new process. Shares the parent's memory: nothing here may allocate,
/// panic or return.
extern "C" fn child_main(child: *mut c_void) -> c_int {
    // SAFETY: `start` hands over a live `ChildStart` that only this process uses until it executes.
    let child = unsafe { &mut *child.cast::<ChildStart<'_>>() };
    let error = become_program(child);
    child.failed = Some(error);
    // SAFETY: ends the process without running anything else.
    unsafe { libc::_exit(127) }
}

/// Returns when a step fails. System calls without a detour by the C library, but for signals and
/// the program.
fn become_program(child: &ChildStart<'_>) -> (Step, Errno) {
    let start = child.start;
    let _ = setpgid(None, None);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(child.parent) {
        // The parent died before it could be asked to take us along.
        // SAFETY: ends the process without running anything else.
        unsafe { libc::_exit(127) }
    }
    // A new process starts with the parent's mask of cores, so an empty list needs no call.
    if !start.cores.is_empty()
        && let Err(error) = sched_setaffinity(None, &child.cores)
    {
        return (Step::Bind, error);
    }
    for (target, source) in start.standard.iter().enumerate() {
        let done = match target {
            _ if source.as_raw_fd() == target as i32 => fcntl_setfd(source, FdFlags::empty()),
            0 => dup2_stdin(source),
            1 => dup2_stdout(source),
            _ => dup2_stderr(source),
        };
        if let Err(error) = done {
            return (Step::Standard, error);
        }
    }
    for fd in start.inherit {
        let _ = fcntl_setfd(fd, FdFlags::empty());
    }
    if let Some(Err(error)) = start.directory.map(chdir) {
        return (Step::Directory, error);
    }
    let _ = start.files.set();
    let (arguments, environment) = (start.arguments, start.environment);
    let errno = become_file(start.program, arguments, environment, &start.blocked);
    (Step::Execute, errno)
}

/// Replaces the program of this process; returns only when that fails. Makes async-signal-safe
/// calls only.
fn become_file(
    program: &CStr,
    arguments: &StringArray,
    environment: &StringArray,
    blocked: &SignalSet,
) -> Errno {
    // SAFETY: async-signal-safe calls with pointers into what the arguments refer to; SIG_DFL runs
    // no code of ours. The address of the thread's errno is valid.
    let errno = unsafe {
        // Rust programs ignore SIGPIPE, and what is ignored stays so across exec.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const blocked.0,
            std::ptr::null_mut(),
        );
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        *libc::__errno_location()
    };
    Errno::from_raw_os_error(errno)
}

/// Replaces the program of this process, with SIGPIPE at its default and no signal blocked; there
/// is no search. Returns only with the reason why that failed.
#[must_use]
pub fn execute(program: &CStr, arguments: &StringArray, environment: &StringArray) -> io::Error {
    become_file(program, arguments, environment, &SignalSet::of(&[])).into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;
    use crate::process::reap_one;

    fn strings(list: &[&str]) -> StringArray {
        StringArray::new(list.iter().map(|s| CString::new(*s).unwrap()).collect())
    }

    fn run(
        program: &CStr,
        arguments: &StringArray,
        directory: Option<&CStr>,
    ) -> Result<(u32, String), StartError> {
        let null = fs::File::open("/dev/null").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let environment = strings(&["A=b"]);
        let pid = Starter::new().start(&Start {
            program,
            arguments,
            environment: &environment,
            directory,
            standard: [null.as_fd(), writer.as_fd(), writer.as_fd()],
            inherit: &[],
            cores: &[],
            files: FileLimit::now(),
            blocked: SignalSet::of(&[]),
        })?;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        Ok((pid, text))
    }

    #[test]
    fn a_started_program_gets_its_arguments_environment_and_directory() {
        let arguments = strings(&["sh", "-c", "echo $1 $A $PWD; exit 3", "x", "arg"]);
        let (pid, text) = run(c"/bin/sh", &arguments, Some(c"/usr")).unwrap();
        assert_eq!(text, "arg b /usr\n");
        assert_eq!(reap_one(pid).unwrap().code(), Some(3));
    }

    #[test]
    fn the_failed_step_is_reported() {
        let arguments = strings(&["x"]);
        let error = run(c"/no/such", &arguments, None).unwrap_err();
        assert_eq!(error.step, Step::Execute);
        assert_eq!(error.error.kind(), io::ErrorKind::NotFound);
        let error = run(c"/bin/sh", &arguments, Some(c"/no/such")).unwrap_err();
        assert_eq!(error.step, Step::Directory);
    }
}
