//! The rank of this process, which all message-passing libraries that a program links share.
//!
//! MPI, NX and MPL are faces of one engine, and what one of them sends takes the same way as what
//! the others send; so there is one rank for all, opened at the first use by any of them, and kept
//! until the process ends. This crate holds the only look-up of it and counts its users.

pub mod user;

mod foreign;
mod once;
mod open;
mod origin;
mod process;
mod recorded;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_core_registry::Phase;
use margay_run_engine::SystemClock;
use margay_run_engine::monitor::Monitor;
use margay_run_mpi::constants::error_class::MPI_ERR_OTHER;
use margay_run_mpi::constants::thread::{MPI_THREAD_MULTIPLE, MPI_THREAD_SINGLE};
use margay_run_mpi::tool::Tools;
use margay_sys_os::process::{
    at_exit, flush_output, has_thread, in_forked_children, leave as end_process, thread_id,
};

use margay_sys_shm::segment::Segment;

pub use once::OncePerProcess;
pub use origin::return_address;
pub use process::Process;
pub use recorded::{margay_keep_threads, margay_note_call, margay_record_threads};

/// Where the process stands in its life with a world of MPI.
const BEFORE: u32 = 0;
const RUNNING: u32 = 1;
const AFTER: u32 = 2;

/// The environment variable that says how many calls of each thread the flight recorder keeps; 0
/// switches it off.
const ENV_RECORD: &str = "MARGAY_RECORD";

/// The environment variable by which ranks leave all signals alone, if it is 0.
const ENV_CRASH: &str = "MARGAY_CRASH";

/// At the end of a process of NX or MPL: how long what it has sent may take to get out. There is no
/// call in which the program says that it ends, so nobody promises that all is received.
const LAST_SENDS_NS: u64 = 1_000_000_000;

static WORLD: AtomicU32 = AtomicU32::new(BEFORE);
/// The rank of this process, from its first use to the end of the process.
static OPENED: OncePerProcess<Process> = OncePerProcess::new();
/// The same while the program has a world or a session of MPI.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// The tools interface, from its first use to the end of the process.
static TOOLS: OncePerProcess<Arc<Tools>> = OncePerProcess::new();
/// With which code the process exits.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);
static USERS: Mutex<Users> = Mutex::new(Users {
    mpi: 0,
    libraries: 0,
    first: None,
});

/// The libraries that use the rank.
struct Users {
    /// The world and sessions of MPI.
    mpi: u32,
    /// NX and MPL, from their first use to the end of the process.
    libraries: u32,
    /// The process and the thread that used a library first, as the kernel numbers them.
    first: Option<(u32, u32)>,
}

impl Users {
    /// Whether the calling thread may use the rank at the end of the process. It may not in a
    /// child, which has a copy of everything, but in which the rank is still its parent's; nor
    /// while a rank that has a single thread may be in use by it.
    fn may_use_at_end(&self, mpi: &Process) -> bool {
        let (pid, thread) = (std::process::id(), thread_id());
        self.first.is_some_and(|(first_pid, first_thread)| {
            let is_only = first_thread == thread || !has_thread(first_thread);
            first_pid == pid && (mpi.rank().lock().is_shared() || is_only)
        })
    }
}

/// A way to use the rank by MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `MPI_Init`
    World,
    /// `MPI_Session_init`
    Session,
}

/// Returns the rank of the calling thread: the one look-up through which all of MPI's state is
/// reached. None while there is neither a world nor a session.
#[inline]
pub fn current() -> Option<&'static Process> {
    let mpi = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null or from `OPENED`, whose value stays valid until the process ends
    // (`close`).
    unsafe { mpi.as_ref() }
}

/// Returns the tools interface, which is there before MPI is initialized and after it was
/// finalized.
pub fn tools() -> &'static Arc<Tools> {
    match TOOLS.get() {
        Some(tools) => tools,
        None => TOOLS.set(Tools::new(Arc::new(SystemClock))),
    }
}

/// Returns the rank if it has been opened, in use or not.
pub fn known() -> Option<&'static Process> {
    OPENED.get()
}

/// Writes a line to standard error, in one piece: what comes next may end the job, and another
/// rank's end this process in the middle of several writes.
#[cold]
pub fn write_line(mut line: String) {
    use std::io::Write;
    line.push('\n');
    // Nobody is left who could read of a failure.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// In a child made by fork: its copy of the rank is left alone from now on.
extern "C" fn forked() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    OPENED.forget();
}

/// Ends this process if it is a child made by fork: the messages of its parent's rank are not the
/// child's to take, and the rank's end not the child's to tell. The job does not notice. `name` is
/// the function that was called.
#[cold]
pub fn refuse_in_child(name: &str) {
    let Some(parent) = OPENED.inherited() else {
        return;
    };
    let who = if name.starts_with("MPI") {
        "process that called MPI_Init"
    } else {
        "process that joined the job"
    };
    write_line(format!(
        "a child process made by fork of rank {} called {name}; only the {who} may",
        parent.world_rank()
    ));
    // The program's functions for the end of a process may call the library, too, and would come by
    // here again.
    let _ = flush_output();
    end_process(MPI_ERR_OTHER)
}

/// The rank, opened now if this is its first use. Ends the process when that is impossible.
pub fn opened(name: &str) -> &'static Process {
    opened_by(name, open::open)
}

/// As [`opened`], by another way than that of the environment.
fn opened_by(
    name: &str,
    open: impl FnOnce(&Arc<Monitor>) -> Result<open::Opened, open::OpenError>,
) -> &'static Process {
    if let Some(mpi) = known() {
        return mpi;
    }
    refuse_in_child(name);
    let _guard = users();
    if let Some(mpi) = known() {
        return mpi;
    }
    let (rank, wire) = match open(tools().monitor()) {
        Ok(opened) => opened,
        Err(error) => {
            // Another launcher may kill this process as soon as the first rank has ended.
            write_line(format!("{name}: {error}"));
            std::process::exit(MPI_ERR_OTHER);
        }
    };
    if rank.world_rank() == 0 {
        for complaint in tools().complaints() {
            eprintln!("{name}: {complaint}");
        }
    }
    let arguments: Vec<String> = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    if let Some((records, has_all)) = records() {
        rank.record(records, has_all);
    }
    let writes_crashes = std::env::var(ENV_CRASH).as_deref() != Ok("0");
    let crashes = writes_crashes.then(|| rank.write_crashes_down()).flatten();
    if wire.is_some() && !at_exit(leaves_launcher) {
        eprintln!(
            "{name}: no memory is left for the end of the process; an abort may leave others"
        );
    }
    let process = Process::new((rank, wire), &arguments, crashes);
    if !in_forked_children(forked) {
        eprintln!(
            "{name}: no memory is left to watch for forks; a child process must not call the library"
        );
    }
    OPENED.set(process)
}

/// How many calls of each thread are kept, none when none are; and whether also those that are done
/// with less work than a record: they are when the number is asked for.
fn records() -> Option<(usize, bool)> {
    const USUAL: usize = 1024;
    let value = std::env::var(ENV_RECORD).ok();
    match value.as_deref().map(str::trim) {
        None | Some("") => Some((USUAL, false)),
        Some("0") => None,
        Some(text) => Some((text.parse().unwrap_or(USUAL), true)),
    }
}

/// MPI uses the rank once more. The locks are cheap as long as the only user is one that has a
/// single thread in the library.
///
/// # Safety
/// Until the rank is shared ([`share`], or another user), threads do not call into it at the same
/// time: for a world unless `level` is `MPI_THREAD_MULTIPLE`, for a session when it is
/// `MPI_THREAD_SINGLE`.
pub unsafe fn enter(mpi: &'static Process, model: Model, level: c_int) {
    let mut users = users();
    users.mpi += 1;
    let alone = match model {
        Model::World => level != MPI_THREAD_MULTIPLE,
        // Other sessions may be used by other threads at the same time, unless there is one thread
        // only.
        Model::Session => level == MPI_THREAD_SINGLE,
    };
    // SAFETY: by the caller's promise.
    unsafe { set_up(mpi, &users, alone) };
    if model == Model::World {
        mpi.open_world(level);
        WORLD.store(RUNNING, Ordering::Release);
    }
    mpi.rank().set_phase(Phase::Running);
    tools().set_running(true);
    CURRENT.store(std::ptr::from_ref(mpi).cast_mut(), Ordering::Release);
}

/// A library beside MPI uses the rank from now on, to the end of the process. Its programs have one
/// thread that calls, or say by MPI's level of thread support that they have more.
///
/// # Safety
/// Until the rank is shared ([`share`], or another user), threads do not call into it at the same
/// time.
pub unsafe fn enter_library(name: &str) -> &'static Process {
    // SAFETY: by the caller's promise.
    unsafe { enter_library_with(name, opened(name)) }
}

/// As [`enter_library`], in the process that controls a job: it has made the job's memory and is
/// the rank behind all others.
///
/// # Safety
/// As there.
pub unsafe fn enter_controlling(name: &str, segment: &Arc<Segment>, rank: u32) -> &'static Process {
    let mpi = opened_by(name, |monitor| {
        Ok(open::controlling(segment, rank, monitor))
    });
    // SAFETY: by the caller's promise.
    unsafe { enter_library_with(name, mpi) }
}

/// # Safety
/// As [`enter_library`].
unsafe fn enter_library_with(name: &str, mpi: &'static Process) -> &'static Process {
    let mut users = users();
    users.libraries += 1;
    if users.libraries == 1 {
        users.first = Some((std::process::id(), thread_id()));
        if !at_exit(exits) {
            eprintln!(
                "{name}: no memory is left for the end of the process; its exit code may go unnoticed"
            );
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { set_up(mpi, &users, true) };
    if users.mpi == 0 {
        mpi.rank().set_phase(Phase::Joined);
    }
    mpi
}

/// From now on several threads may use the rank at the same time.
pub fn share(mpi: &'static Process) {
    let _users = users();
    mpi.set_shared();
}

/// # Safety
/// If `alone`, threads do not call into the rank at the same time until it is shared.
unsafe fn set_up(mpi: &'static Process, users: &Users, alone: bool) {
    let helped = tools().wants_progress_thread();
    if users.mpi + users.libraries == 1 && alone && !helped {
        // SAFETY: by the caller's promise. A progress thread would be a second thread, also of
        // reduction functions that ask about datatypes.
        unsafe { mpi.assume_single_thread() };
    } else if !alone || helped {
        mpi.set_shared();
    }
    if helped && let Err(error) = mpi.start_progress_thread() {
        eprintln!(
            "no progress thread (margay_progress_thread): {error}; messages move inside calls only"
        );
    }
}

/// MPI uses the rank once less; with the last user of all it waits until it is used again.
pub fn leave(mpi: &'static Process) {
    let mut users = users();
    users.mpi -= 1;
    if users.mpi == 0 {
        CURRENT.store(std::ptr::null_mut(), Ordering::Release);
        tools().set_running(false);
        if users.libraries == 0 {
            mpi.part();
            mpi.leave_launcher(is_finalized());
        } else {
            mpi.rank().set_phase(Phase::Joined);
        }
    }
}

/// The world is finalized.
pub fn leave_world(mpi: &'static Process) {
    WORLD.store(AFTER, Ordering::Release);
    leave(mpi);
}

fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// At the end of the process. When MPI is not in use, a process of NX or MPL has come to its normal
/// end, whatever its exit code: what it has sent gets time to arrive. Nothing but this time depends
/// on whether the process comes by here (after `_exit` it does not) and what its threads do then:
/// the launcher judges the end by the phase and the exit code. When nothing is in use, everything
/// is given back, so that memory checkers find nothing.
#[used]
#[unsafe(link_section = ".fini_array")]
static CLOSE: extern "C" fn() = close;

extern "C" fn exits(code: c_int, _: *mut c_void) {
    // The others see no more of it.
    EXIT_CODE.store(code & 0xff, Ordering::Relaxed);
}

/// What is reported to a launcher other than Margay's when a process ends.
extern "C" fn leaves_launcher(code: c_int, _: *mut c_void) {
    let Some(mpi) = known() else { return };
    let aborts = mpi
        .rank()
        .peers()
        .aborted()
        .is_some_and(|(by, _)| by == mpi.world_rank());
    if aborts {
        mpi.abort_launcher(code & 0xff);
    } else if code == 0 && USERS.try_lock().is_ok_and(|users| users.mpi == 0) {
        // A process of NX or MPL does not say that it ends.
        mpi.leave_launcher(false);
    }
}

extern "C" fn close() {
    let Ok(users) = USERS.try_lock() else { return };
    if users.mpi != 0 {
        return;
    }
    if users.libraries != 0 {
        if let Some(mpi) = known()
            && !mpi.rank().is_aborted()
            && users.may_use_at_end(mpi)
        {
            mpi.rank().record_counted();
            mpi.rank().drain_within(LAST_SENDS_NS);
            if EXIT_CODE.load(Ordering::Relaxed) == 0 {
                mpi.rank().set_phase(Phase::Finalized);
            }
        }
        return;
    }
    // SAFETY: nobody uses the rank (no users), and the process ends.
    unsafe { OPENED.free() };
    // SAFETY: as above; the rank, which shares what is in the tools interface, is gone.
    unsafe { TOOLS.free() };
}

/// Whether the world has been initialized in this process, be it finalized or not.
pub fn is_initialized() -> bool {
    WORLD.load(Ordering::Acquire) != BEFORE
}

/// Whether the world has been finalized in this process.
pub fn is_finalized() -> bool {
    WORLD.load(Ordering::Acquire) == AFTER
}
