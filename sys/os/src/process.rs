//! Processes: starting many of them quickly, waiting for them, and ending whole families.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::descriptor::{FileLimit, PollSet};
use crate::signal::{self, SignalSet};

/// The name of this host.
#[must_use]
pub fn host_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the kernel writes at most the given length into `name`, whose last byte stays zero.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    if failed {
        return "localhost".into();
    }
    CStr::from_bytes_until_nul(&name).map_or_else(
        |_| String::new(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() as u32 }
}

/// Which side of a [`fork`] this is.
#[derive(Debug)]
pub enum Forked {
    /// The process that called; holds the child's process id.
    Parent(u32),
    /// The new process.
    Child,
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

/// This process gets SIGKILL when the thread that made it ends. For a new process, at its beginning.
pub fn die_with_parent() {
    // SAFETY: sets an attribute of the process; no memory involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Ends the process at once: no handler of the program runs and no buffer is written.
pub fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing of it is used any more.
    unsafe { libc::_exit(code) }
}

/// The id of the parent process.
#[must_use]
pub fn parent() -> u32 {
    // SAFETY: no memory involved.
    unsafe { libc::getppid() as u32 }
}

/// Sets a variable of the own environment, if that is possible: not while the process has several threads, which might be
/// reading it. Returns whether it was set.
pub fn set_variable(name: &str, value: &str) -> bool {
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

/// Hands on what the libraries of C and, in programs that have it, of GNU Fortran keep of all files that the program writes.
///
/// # Errors
/// When it cannot be written.
pub fn flush_output() -> io::Result<()> {
    // SAFETY: a look-up by a name that ends with NUL.
    let fortran = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_gfortran_flush_i4".as_ptr()) };
    if !fortran.is_null() {
        // SAFETY: under this name GNU Fortran's library has its FLUSH, which takes the address of a unit's number, or null
        // for all units.
        let flush: extern "C" fn(*const i32) = unsafe { std::mem::transmute(fortran) };
        flush(std::ptr::null());
    }
    // SAFETY: a null pointer means all files that are open for writing.
    match unsafe { libc::fflush(std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a function called with the exit code when this process exits in order. Returns whether there was room for it.
pub fn at_exit(call: extern "C" fn(i32, *mut libc::c_void)) -> bool {
    unsafe extern "C" {
        fn on_exit(
            call: extern "C" fn(libc::c_int, *mut libc::c_void),
            argument: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the function stays, since libraries of this kind are not unloaded; its second argument is not used.
    unsafe { on_exit(call, std::ptr::null_mut()) == 0 }
}

/// Waits until a child has ended, whichever it is: its process id, and how it ended.
///
/// # Errors
/// When there are no children.
pub fn wait_for_child() -> io::Result<(u32, ExitStatus)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid > 0 {
            return Ok((pid as u32, ExitStatus::from_raw(status)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Orphaned descendants of this process become its children, instead of init's.
///
/// # Errors
/// When the kernel is older than 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: sets an attribute of the process; no memory involved.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the name under which the calling thread appears in `ps`, at most 15 bytes.
pub fn set_name(name: &CStr) {
    // SAFETY: `name` is a C string; the kernel copies at most 16 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Makes the calling process the leader of a new process group.
pub fn leave_group() {
    // SAFETY: no memory involved.
    unsafe { libc::setpgid(0, 0) };
}

/// A NULL-terminated array of C strings, as `execve` takes it.
pub struct StringArray {
    strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
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

    fn as_ptr(&self) -> *const *const libc::c_char {
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
    /// A descriptor that the program inherits under its number.
    pub inherit: Option<BorrowedFd<'a>>,
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
    stack: Vec<u128>,
}

/// What the new process needs before it executes the program; it lives on our stack.
struct Birth<'a> {
    start: &'a Start<'a>,
    cores: libc::cpu_set_t,
    parent: libc::pid_t,
    step: i32,
    errno: i32,
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
            stack: vec![0; (128 << 10) / size_of::<u128>()],
        }
    }

    /// Starts a program; returns its process id once it executes.
    ///
    /// # Errors
    /// When a step fails; no process is left then.
    pub fn start(&mut self, start: &Start<'_>) -> Result<u32, StartError> {
        // SAFETY: an all-zero cpu_set_t is a valid, empty set.
        let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &core in start.cores {
            if core < libc::CPU_SETSIZE as usize {
                // SAFETY: `core` is below CPU_SETSIZE.
                unsafe { libc::CPU_SET(core, &mut cores) };
            }
        }
        let mut birth = Birth {
            start,
            cores,
            // SAFETY: no memory involved.
            parent: unsafe { libc::getpid() },
            step: 0,
            errno: 0,
        };
        let everything = SignalSet::all().block();
        let top = self.stack.as_mut_ptr_range().end;
        // SAFETY: the child runs `be_born` on `stack`, which nobody else uses: this thread is
        // suspended until the child executes or exits (CLONE_VFORK), and `&mut self` keeps other
        // threads away. `birth` lives longer than that. All signals are blocked, so no handler of
        // ours runs in the shared memory. `be_born` makes async-signal-safe calls only.
        let pid = unsafe {
            libc::clone(
                be_born,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut birth).cast(),
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
        if let Some(step) = Step::from_number(birth.step)
            && birth.errno != 0
        {
            // SAFETY: reaps the child that has just exited; the status is not wanted.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            return Err(StartError {
                step,
                error: io::Error::from_raw_os_error(birth.errno),
            });
        }
        Ok(pid as u32)
    }
}

/// The first instructions of a new process. Shares the parent's memory: nothing here may allocate,
/// panic or return.
extern "C" fn be_born(birth: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` hands over a live `Birth` that only this process uses until it executes. All
    // calls are async-signal-safe and get pointers into that value.
    unsafe {
        let birth = &mut *birth.cast::<Birth<'_>>();
        let start = birth.start;
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != birth.parent {
            // The parent died before it could be asked to take us along.
            libc::_exit(127);
        }
        // A new process starts with the parent's mask of cores, so an empty list needs no call.
        if !start.cores.is_empty()
            && libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const birth.cores) != 0
        {
            give_up(birth, Step::Bind);
        }
        for target in 0..3 {
            let source = start.standard[target].as_raw_fd();
            let target = target as libc::c_int;
            let done = if source == target {
                libc::fcntl(target, libc::F_SETFD, 0)
            } else {
                libc::dup2(source, target)
            };
            if done < 0 {
                give_up(birth, Step::Standard);
            }
        }
        if let Some(fd) = start.inherit {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0);
        }
        if let Some(directory) = start.directory
            && libc::chdir(directory.as_ptr()) != 0
        {
            give_up(birth, Step::Directory);
        }
        let files = libc::rlimit {
            rlim_cur: start.files.soft,
            rlim_max: start.files.hard,
        };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
        // Rust programs ignore SIGPIPE, and what is ignored stays so across exec.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const start.blocked.0,
            std::ptr::null_mut(),
        );
        libc::execve(
            start.program.as_ptr(),
            start.arguments.as_ptr(),
            start.environment.as_ptr(),
        );
        give_up(birth, Step::Execute)
    }
}

/// Reports the failed step to the parent and ends.
///
/// # Safety
/// Only for [`be_born`].
unsafe fn give_up(birth: &mut Birth<'_>, step: Step) -> ! {
    birth.step = step as i32;
    // SAFETY: reads this thread's errno and ends the process without running anything else.
    unsafe {
        birth.errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

/// What waiting for children gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child ended and has been reaped.
    Child(u32, ExitStatus),
    /// There are children, and all of them live.
    NoneYet,
    /// There are no children.
    NoChildren,
}

/// Reaps a child that has ended; does not block.
#[must_use]
pub fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::NoneYet,
        pid if pid > 0 => Reaped::Child(pid as u32, ExitStatus::from_raw(status)),
        _ => Reaped::NoChildren,
    }
}

/// Waits until the child `pid` has ended and reaps it.
///
/// # Errors
/// When it is not a child of this process.
pub fn reap_one(pid: u32) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the result.
        let got = unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        if got >= 0 {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Facts about a process, from `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessFacts {
    /// Its id.
    pub pid: u32,
    /// Its state's letter: R, S, D, T, Z and so on.
    pub state: char,
    /// Its parent's id.
    pub parent: u32,
    /// CPU time used by all its threads, in seconds.
    pub cpu_seconds: f64,
    /// When it started, in clock ticks since the machine started; tells a reused id apart.
    pub started_ticks: u64,
    /// Its address space in bytes; 0 when it has given its memory back because it is ending.
    pub address_space: u64,
    /// The core that it ran on last.
    pub last_core: u32,
}

impl ProcessFacts {
    /// The facts of a process, none when there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<ProcessFacts> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: u32, stat: &str) -> Option<ProcessFacts> {
        // The name stands in parentheses and may hold anything, so count from its end.
        let rest = stat.get(stat.rfind(')')? + 1..)?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // SAFETY: sysconf touches no memory of ours.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Some(ProcessFacts {
            pid,
            state: fields.first()?.chars().next()?,
            parent: number(4)? as u32,
            cpu_seconds: (number(14)? + number(15)?) as f64 / ticks,
            started_ticks: number(22)?,
            address_space: number(23)?,
            last_core: number(39)? as u32,
        })
    }
}

/// The file of a library that this process has loaded, by the beginning of the file's name.
#[must_use]
pub fn library_path(name: &str) -> Option<std::path::PathBuf> {
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

/// The state of a thread of this process, as the kernel tells it.
#[derive(Debug)]
pub struct ThreadState(fs::File);

impl ThreadState {
    /// Of the calling thread; None where the system does not tell.
    #[must_use]
    pub fn of_caller() -> Option<ThreadState> {
        // SAFETY: no arguments, no memory.
        let thread = unsafe { libc::gettid() };
        let file = fs::File::open(format!("/proc/self/task/{thread}/stat")).ok()?;
        Some(ThreadState(file))
    }

    /// Whether it runs or waits for a core. False also when it has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.letter() == Some(b'R')
    }

    /// The kernel's letter for the state; None when the thread is gone.
    fn letter(&self) -> Option<u8> {
        // Number, name in parentheses (at most 15 bytes, of any kind), state.
        let mut line = [0; 64];
        let read = self.0.read_at(&mut line, 0).unwrap_or(0);
        let line = &line[..read];
        let name_end = line.iter().rposition(|&byte| byte == b')')?;
        line.get(name_end + 2).copied()
    }
}

/// Whether this process has a thread with that number ([`thread_id`]) that has not ended. True where the system does not
/// show threads.
#[must_use]
pub fn has_thread(thread: u32) -> bool {
    match fs::File::open(format!("/proc/self/task/{thread}/stat")) {
        Ok(file) => !matches!(ThreadState(file).letter(), None | Some(b'Z' | b'X')),
        Err(_) => fs::metadata("/proc/self/task").is_err(),
    }
}

/// Whether a process can still touch memory: it exists, is no zombie and not about to become one. (A killed process has no
/// memory any more for some time before it is a zombie; attaching to it fails from then on.)
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    ProcessFacts::of(pid)
        .is_some_and(|facts| !matches!(facts.state, 'Z' | 'X') && facts.address_space > 0)
}

/// The ids of all processes that this process can see.
pub fn all_processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// All living descendants of this process, except for those below the children in `except`.
#[must_use]
pub fn descendants(except: &[u32]) -> Vec<ProcessFacts> {
    let me = std::process::id();
    let everybody: Vec<ProcessFacts> = all_processes().filter_map(ProcessFacts::of).collect();
    let mut family: Vec<ProcessFacts> = Vec::new();
    let mut parents = vec![me];
    while let Some(parent) = parents.pop() {
        for facts in everybody.iter().filter(|f| f.parent == parent) {
            let excepted = parent == me && except.contains(&facts.pid);
            if !excepted && !family.iter().any(|f| f.pid == facts.pid) {
                family.push(*facts);
                parents.push(facts.pid);
            }
        }
    }
    family.retain(|f| f.state != 'Z');
    family
}

/// Kills all descendants of this process, also those that left their group or session, and reaps
/// them. Orphans come to this process ([`adopt_orphans`]), so nobody escapes by forking: the round
/// is repeated until there are no children. Children in `except` and theirs are left alone. Returns
/// whether all are gone within `patience` (a process in uninterruptible sleep stays).
pub fn kill_descendants(except: &[u32], patience: Duration) -> bool {
    let end = Instant::now() + patience;
    let mut pause = Duration::from_micros(200);
    loop {
        loop {
            match reap() {
                Reaped::Child(..) => {}
                Reaped::NoneYet => break,
                Reaped::NoChildren => return true,
            }
        }
        let family = descendants(except);
        if family.is_empty() && !except.is_empty() {
            return true;
        }
        for facts in &family {
            kill_checked(facts);
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Whether this process has children now, and which.
#[must_use]
pub fn children() -> Vec<u32> {
    // SAFETY: an all-zero siginfo_t is a valid place for the result.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid place; nothing is reaped (WNOWAIT).
    let some = unsafe {
        libc::waitid(
            libc::P_ALL,
            0,
            &raw mut info,
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        )
    } == 0;
    if !some {
        return Vec::new();
    }
    let me = std::process::id();
    all_processes()
        .filter_map(ProcessFacts::of)
        .filter(|f| f.parent == me)
        .map(|f| f.pid)
        .collect()
}

/// Kills the process that `facts` tells of, unless its id has been reused since.
fn kill_checked(facts: &ProcessFacts) {
    match PidFd::open(facts.pid) {
        Ok(process) => {
            let same = ProcessFacts::of(facts.pid)
                .is_some_and(|now| now.started_ticks == facts.started_ticks);
            if same {
                process.kill();
            }
        }
        // Before Linux 5.3, or forbidden: by number.
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            let _ = signal::send(facts.pid, libc::SIGKILL);
        }
        Err(_) => {}
    }
}

/// A handle of one process, which never means another one. Readable once the process has ended.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    /// The handle of the process that has this id now.
    ///
    /// # Errors
    /// When there is no such process or the kernel is older than 5.3.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        // SAFETY: no memory involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(PidFd { fd })
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the descriptor is open; no signal information is handed over.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }

    /// Whether the process has ended, reaped or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut set = PollSet::default();
        let place = set.add_readable(self.fd.as_fd());
        set.wait(Some(Duration::ZERO)).is_ok() && set.ready(place).readable
    }

    /// How the process `pid`, for which this stands, has ended, also when it is not this process's child; none while it lives and
    /// where the kernel does not tell: a process that its parent has reaped is told of since Linux 6.15.
    #[must_use]
    pub fn how_it_ended(&self, pid: u32) -> Option<ExitStatus> {
        /// The kernel's `struct pidfd_info`, up to the exit code.
        #[repr(C)]
        #[derive(Default)]
        struct Information {
            mask: u64,
            cgroup: u64,
            ids: [u32; 11],
            exit_code: i32,
        }
        /// `PIDFD_INFO_EXIT`
        const EXIT: u64 = 1 << 3;
        /// `PIDFD_GET_INFO`: reads and writes the structure, number 11 of the type 0xff.
        const GET_INFO: u64 = 3 << 30 | (size_of::<Information>() as u64) << 16 | 0xff << 8 | 11;
        if !self.has_ended() {
            return None;
        }
        if let Some(status) = zombie_status(pid) {
            return Some(status);
        }
        let mut information = Information {
            mask: EXIT,
            ..Information::default()
        };
        // SAFETY: the descriptor is open and the structure has the size that the number tells.
        let done = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                GET_INFO as libc::c_ulong,
                &raw mut information,
            )
        };
        (done == 0 && information.mask & EXIT != 0)
            .then(|| ExitStatus::from_raw(information.exit_code))
    }
}

/// How a process that has ended and was not reaped has ended: the last field of its `/proc/<pid>/stat`.
fn zombie_status(pid: u32) -> Option<ExitStatus> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next(), Some("Z"));
    let code = fields.next_back()?.parse().ok()?;
    ended.then(|| ExitStatus::from_raw(code))
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

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
            inherit: None,
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
    fn a_thread_that_asks_for_itself_is_running() {
        assert!(ThreadState::of_caller().unwrap().is_running());
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(ThreadState::of_caller().unwrap()).unwrap();
            std::thread::park();
        });
        let state = told.recv().unwrap();
        let stops_running = || {
            let began = Instant::now();
            while state.is_running() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            !state.is_running()
        };
        assert!(stops_running());
        sleeper.thread().unpark();
        // Who joins a thread is told before that has left the kernel.
        sleeper.join().unwrap();
        assert!(stops_running());
    }

    #[test]
    fn a_thread_that_has_ended_is_not_there() {
        assert!(has_thread(thread_id()));
        let ended = std::thread::spawn(thread_id).join().unwrap();
        let began = Instant::now();
        // Who joins a thread is told before that has left the kernel.
        while has_thread(ended) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!has_thread(ended));
    }

    #[test]
    fn a_started_program_gets_its_arguments_environment_and_directory() {
        let arguments = strings(&["sh", "-c", "echo $1 $A $PWD; exit 3", "x", "arg"]);
        let (pid, text) = run(c"/bin/sh", &arguments, Some(c"/usr")).unwrap();
        assert_eq!(text, "arg b /usr\n");
        assert_eq!(reap_one(pid).unwrap().code(), Some(3));
    }

    #[test]
    fn the_failed_step_is_told() {
        let arguments = strings(&["x"]);
        let error = run(c"/no/such", &arguments, None).unwrap_err();
        assert_eq!(error.step, Step::Execute);
        assert_eq!(error.error.kind(), io::ErrorKind::NotFound);
        let error = run(c"/bin/sh", &arguments, Some(c"/no/such")).unwrap_err();
        assert_eq!(error.step, Step::Directory);
    }

    #[test]
    fn facts_survive_odd_names() {
        // Fields 3 to 52; the value of a field that is not set below is 0.
        let mut fields = vec!["0"; 50];
        for (field, value) in [(3, "R"), (4, "5"), (14, "150"), (22, "999"), (39, "3")] {
            fields[field - 3] = value;
        }
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        let facts = ProcessFacts::parse(7, &stat).unwrap();
        assert_eq!((facts.state, facts.parent), ('R', 5));
        assert_eq!(facts.started_ticks, 999);
        assert_eq!(facts.last_core, 3);
        assert!(ProcessFacts::of(std::process::id()).is_some());
        assert_eq!(ProcessFacts::parse(7, "7 (x"), None);
    }

    #[test]
    fn a_handle_of_a_process_ends_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        assert!(descendants(&[]).iter().any(|f| f.pid == child.id()));
        assert!(
            !descendants(&[child.id()])
                .iter()
                .any(|f| f.pid == child.id())
        );
        let handle = PidFd::open(child.id()).unwrap();
        assert_eq!(handle.how_it_ended(child.id()), None);
        handle.kill();
        while !handle.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = handle.how_it_ended(child.id()).unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
        assert_eq!(child.wait().unwrap(), ended);
        // Older kernels do not tell of a process that has been reaped.
        let later = handle.how_it_ended(child.id());
        assert!(later.is_none() || later == Some(ended), "{later:?}");
    }
}
