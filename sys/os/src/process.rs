//! Processes: starting many of them quickly, waiting for them, and ending whole families.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::{Signal, WaitOptions, getpid, set_child_subreaper};

mod halt;
mod marked;
mod rest;
mod start;
mod watch;

pub use halt::{Halt, continue_descendants};
pub use marked::kill_marked;
pub use rest::is_at_rest;
pub use start::{Start, StartError, Starter, Step, StringArray, execute};
pub use watch::{
    PidFd, ProcessFacts, Reaped, ReapedUsage, ThreadState, all_processes, can_see_processes,
    children, descendants, descendants_of, has_thread, is_alive, is_anothers, is_dumping_core,
    kill_descendants, kill_descendants_counted, others_of_this_program, reap, reap_one,
    running_threads, signal_checked, unreaped_child,
};

/// The name of this host.
#[must_use]
pub fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    crate::cpu::thread_number()
}

/// What the C library takes for the calling thread (`pthread_self`), as a number.
#[must_use]
pub fn thread_handle() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() as usize }
}

/// Which side of a [`fork`] this is.
#[derive(Debug)]
pub enum Forked {
    /// The process that called; holds the child's process id.
    Parent(u32),
    /// The new process.
    Child,
}

/// Prints a line by the C library, so that it stands where it belongs among what a program of C has
/// printed.
pub fn print_line(line: &str) {
    // A line of a program's own format has no NUL; what follows one would be cut off.
    let line = CString::new(line.split('\0').next().unwrap_or_default()).unwrap_or_default();
    // SAFETY: the text ends with NUL.
    unsafe { libc::puts(line.as_ptr()) };
}

/// Splits the process in two.
///
/// # Errors
/// When the process has more than one thread (the child would hold locks for ever that another
/// thread had), when that cannot be found out, or when the kernel refuses.
pub fn fork() -> io::Result<Forked> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    // SAFETY: this is the only thread, so the child's memory is consistent, as after a return.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as u32)),
    }
}

/// This process gets SIGKILL when the thread that made it ends. For a new process, at its
/// beginning.
pub fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Has what the command starts get SIGKILL when the thread that starts it ends.
pub fn ends_with_thread(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only an async-signal-safe call is made.
    unsafe {
        command.pre_exec(|| {
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            Ok(())
        })
    }
}

/// Ends the process at once: no handler of the program runs and no buffer is written.
pub fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing of it is used any more.
    unsafe { libc::_exit(code) }
}

/// The id of the parent process.
#[must_use]
pub fn parent() -> u32 {
    rustix::process::Pid::as_raw(rustix::process::getppid()) as u32
}

/// Sets a variable of this process's environment, if that is possible: not while the process has
/// several threads, which might be reading it. Returns whether it was set.
pub fn set_variable(name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> bool {
    let alone = fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone {
        // SAFETY: this is the only thread, so nobody reads the environment at the same time.
        unsafe { std::env::set_var(name, value) };
    }
    alone
}

/// Sets the C library's `errno` of the calling thread.
pub fn set_errno(number: i32) {
    // SAFETY: the C library gives the address of the thread's own variable.
    unsafe { *libc::__errno_location() = number };
}

/// The C library's `errno` of the calling thread.
#[must_use]
pub fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Hands on what the libraries of C and, in programs that have it, of GNU Fortran keep of all files
/// that the program writes.
///
/// # Errors
/// When it cannot be written.
pub fn flush_output() -> io::Result<()> {
    // SAFETY: a look-up by a name that ends with NUL.
    let fortran = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_gfortran_flush_i4".as_ptr()) };
    if !fortran.is_null() {
        // SAFETY: under this name GNU Fortran's library has its FLUSH, which takes the address of a
        // unit's number, or null for all units.
        let flush: extern "C" fn(*const i32) = unsafe { std::mem::transmute(fortran) };
        flush(std::ptr::null());
    }
    // SAFETY: a null pointer means all files that are open for writing.
    match unsafe { libc::fflush(std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a function called with the exit code when this process exits in order. Returns whether there
/// was room for it.
pub fn at_exit(call: extern "C" fn(i32, *mut c_void)) -> bool {
    unsafe extern "C" {
        fn on_exit(call: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the function stays, since libraries of this kind are not unloaded; its second
    // argument is not used.
    unsafe { on_exit(call, std::ptr::null_mut()) == 0 }
}

/// Has a function called in each child that a later `fork` makes of this process, before `fork`
/// returns there. Not in a child that executes another program without a copy of this one (`vfork`,
/// `posix_spawn`). Returns whether there was room for it.
pub fn in_forked_children(call: extern "C" fn()) -> bool {
    // SAFETY: the function stays, since libraries of this kind are not unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(call)) == 0 }
}

/// Waits until a child has ended, whichever it is: its process id, and how it ended.
///
/// # Errors
/// When there are no children.
pub fn wait_for_child() -> io::Result<(u32, ExitStatus)> {
    let ended = || rustix::process::wait(WaitOptions::empty());
    let (pid, status) =
        rustix::io::retry_on_intr(ended)?.expect("a wait without options has a child");
    let pid = pid.as_raw_pid() as u32;
    Ok((pid, ExitStatus::from_raw(status.as_raw())))
}

/// A child that has ended, if there is one; none while all go on.
///
/// # Errors
/// When there is no child.
pub fn ended_child() -> io::Result<Option<(u32, ExitStatus)>> {
    let ended = || rustix::process::wait(WaitOptions::NOHANG);
    Ok(rustix::io::retry_on_intr(ended)?.map(|(pid, status)| {
        let pid = pid.as_raw_pid() as u32;
        (pid, ExitStatus::from_raw(status.as_raw()))
    }))
}

/// Orphaned descendants of this process become its children, instead of init's.
///
/// # Errors
/// When the kernel is older than 3.4.
pub fn become_subreaper() -> io::Result<()> {
    // Any number but 0 means the calling process.
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Sets the name under which the calling thread appears in `ps`, at most 15 bytes.
pub fn set_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Makes the calling process the leader of a new session, which has no terminal, and of a new
/// process group. For a process that leads no group yet: one that has just been forked.
pub fn lead_session() {
    let _ = rustix::process::setsid();
}

/// Makes the calling process the leader of a new process group of its session.
pub fn lead_group() {
    let _ = rustix::process::setpgid(None, None);
}

/// Opens the file to which a program in the background writes its messages: they come behind those
/// of earlier ones, and nobody but the user reads them.
///
/// # Errors
/// When the file cannot be opened or made.
pub fn open_log(path: &Path) -> io::Result<fs::File> {
    fs::File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// The path of a program of the same installation: it is in the folder of the running one.
///
/// # Errors
/// When the system does not say which program runs.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| {
        let text = format!("cannot find the running program: {error}");
        io::Error::new(error.kind(), text)
    })?;
    Ok(own.with_file_name(name))
}

/// The file of a library that this process has loaded, by the beginning of the file's name.
#[must_use]
pub fn library_path(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| {
            line.find('/')
                .map(|at| std::path::PathBuf::from(&line[at..]))
        })
        .find(|path| {
            let file = path.file_name().and_then(|f| f.to_str());
            file.is_some_and(|f| f.starts_with(name))
        })
}

/// A file whose instructions this process has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    pub path: std::path::PathBuf,
    /// The address that was asked about is in it.
    pub has_address: bool,
}

/// The addresses of a line of `/proc/self/maps`.
pub(crate) fn mapped_range(line: &str) -> Option<std::ops::Range<usize>> {
    let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
    let begin = usize::from_str_radix(begin, 16).ok()?;
    Some(begin..usize::from_str_radix(end, 16).ok()?)
}

/// The program and the libraries that this process has loaded now, and which of them an address is
/// in.
#[must_use]
pub fn loaded_files(address: usize) -> Vec<LoadedFile> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(|line| {
            let (range, access) = (mapped_range(line)?, line.split_whitespace().nth(1)?);
            let path = line.find('/').map(|at| &line[at..])?;
            access.contains('x').then(|| LoadedFile {
                path: path.into(),
                has_address: range.contains(&address),
            })
        })
        .collect()
}
