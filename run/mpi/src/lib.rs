//! The semantics of MPI, in safe Rust: everything of the standard that is not moving bytes.
//!
//! [`Mpi`] is one rank's MPI state: an engine [`Rank`], the predefined objects and the tables of
//! those that the program made. It may be shared between threads. The shims of `abi/mpi` turn C
//! arguments into checked values and call its methods; those return errors that name the thing, the
//! reason and the remedy.
//!
//! Locks: one for the tables of objects, never held while the engine is called or a function of the
//! program runs; small ones for the names and attributes of an object. A function of the program (a
//! reduction, say) may be running under the engine's lock, and may call what does not communicate,
//! so the order is: engine, then objects.

#![forbid(unsafe_code)]

pub mod active;
mod agreement;
pub mod attribute;
pub mod buffer;
pub mod collective;
pub mod comm;
pub mod constants;
mod construct;
pub mod datatype;
pub mod errhandler;
pub mod error;
mod exchange;
pub mod external;
mod fast;
pub mod foreign;
pub mod group;
pub mod handle;
pub mod info;
mod intercomm;
pub mod launcher;
pub mod library;
pub mod op;
pub mod operation;
pub mod outcome;
pub mod partition;
pub mod point;
pub mod recover;
pub mod request;
mod sent;
pub mod session;
mod start;
pub mod tool;
pub mod topology;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::{Basic, Datatype};
use margay_core_group::Group;
use margay_run_engine::monitor::InCall;
use margay_run_engine::{ProgressThread, Rank};
use margay_sys_os::lock::{RankGuard, RankLock, this_thread};
use margay_sys_os::memory::limit_bytes;
use margay_sys_os::user::Mem;

pub use comm::Comm;
pub use operation::Operation;

use attribute::Keyval;
use buffer::Buffer;
use comm::Parts;
use constants::comm::*;
use constants::errhandler::MPI_ERRORS_ARE_FATAL;
use constants::error_class::{MPI_ERR_ABI, MPI_ERR_LASTCODE, MPI_ERR_NO_MEM};
use constants::keyval::*;
use constants::sentinel::MPI_PROC_NULL;
use constants::thread::*;
use datatype::Type;
use errhandler::{Codes, Handler};
use foreign::Others;
use group::Groups;
use handle::{Kind, Table};
use info::Info;
use op::UserOp;
use point::Taken;
use request::Request;
use sent::SentRequests;
use session::Session;

/// From how many bytes on an allocation is compared with what the process may have.
const COMPARED: usize = 64 << 20;

/// The end of an operation, as a status reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Rank of the sender, or a value of the standard.
    pub source: i32,
    /// Tag of the message, or a value of the standard.
    pub tag: i32,
    /// Bytes received.
    pub bytes: u64,
    /// Whether the operation was cancelled.
    pub cancelled: bool,
}

/// One rank's MPI.
// Fields: each is one kind of state, under a lock of its own where it changes.
pub struct Mpi {
    /// Ends before the rank does.
    progress: Mutex<Option<ProgressThread>>,
    rank: Arc<Rank>,
    world: Arc<Comm>,
    own: Arc<Comm>,
    basics: Box<[Option<Arc<Type>>]>,
    /// `MPI_LB` and `MPI_UB`.
    markers: [Arc<Type>; 2],
    objects: RankLock<Objects>,
    sent: SentRequests,
    codes: Mutex<Codes>,
    buffer: Mutex<Option<Arc<Buffer>>>,
    /// Numbers for communicators that this process has assigned.
    proposals: AtomicU64,
    others: Mutex<Others>,
    /// Memory of `MPI_Alloc_mem` that is not shared, by its address.
    allocated: Mutex<BTreeMap<usize, Mem>>,
    predefined: Predefined,
    fortran: Mutex<Fortran>,
    life: Life,
}

/// Where the program stands between `MPI_Init` and `MPI_Finalize`, and what it has said of its
/// threads.
struct Life {
    /// There are `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
    has_world: AtomicBool,
    thread_level: AtomicI32,
    main_thread: AtomicUsize,
}

/// The objects that the program made.
pub struct Objects {
    comms: Table<Arc<Comm>>,
    groups: Groups,
    sessions: Table<Session>,
    datatypes: Table<Arc<Type>>,
    /// Freed by the program while reductions use their handles.
    freed_datatypes: Vec<u32>,
    ops: Table<Arc<UserOp>>,
    infos: Table<Info>,
    errhandlers: Table<Handler>,
    requests: Table<Request>,
    messages: Table<Taken>,
    keyvals: BTreeMap<i32, Keyval>,
    next_key: i32,
}

/// What a Fortran library has reported about Fortran.
#[derive(Default)]
struct Fortran {
    info: Option<Info>,
    /// True and false, by their size in bytes.
    booleans: BTreeMap<usize, (Vec<u8>, Vec<u8>)>,
}

/// The values of predefined attributes, at addresses that a program may keep, and of the predefined
/// info object.
struct Predefined {
    /// The entries of `MPI_INFO_ENV`.
    environment: Info,
    tag_ub: AtomicI32,
    host: AtomicI32,
    io: AtomicI32,
    wtime_is_global: AtomicI32,
    appnum: AtomicI32,
    universe_size: AtomicI32,
    last_used_code: AtomicI32,
}

impl Mpi {
    /// MPI on a rank, without a world as yet. `arguments` is the command line.
    #[must_use]
    pub fn new(rank: Rank, arguments: &[String]) -> Mpi {
        let application = rank.application();
        let size = application.len() as u32;
        let me = rank.world_rank();
        let comm = |id, rank, group| {
            let comm = Comm::new(Parts {
                id: Some(id),
                rank,
                group: Arc::new(group),
                remote: None,
                inner: None,
                topology: None,
            });
            Arc::new(comm)
        };
        let place = me - application.start;
        let world = comm(0, place, Group::range(application.start, size));
        world.set_handle(MPI_COMM_WORLD);
        let own = comm(1, 0, Group::range(me, 1));
        own.set_handle(MPI_COMM_SELF);
        let mut requests = Table::new(Kind::Request);
        let sent = requests
            .insert(Request::over())
            .expect("there is room for the first");
        let app = rank.peers().identity(me).program;
        let cores = rank.peers().cores();
        Mpi {
            progress: Mutex::default(),
            world,
            own,
            basics: Type::predefined(),
            markers: Type::markers(),
            objects: RankLock::new(Objects {
                comms: Table::new(Kind::Comm),
                groups: Groups::new(),
                sessions: Table::new(Kind::Session),
                datatypes: Table::new(Kind::Datatype),
                freed_datatypes: Vec::new(),
                ops: Table::new(Kind::Op),
                infos: Table::new(Kind::Info),
                errhandlers: Table::new(Kind::Errhandler),
                requests,
                messages: Table::new(Kind::Message),
                keyvals: BTreeMap::new(),
                next_key: 0,
            }),
            sent: SentRequests::new(sent),
            codes: Mutex::new(Codes::new()),
            buffer: Mutex::default(),
            // Numbers below two times the size of the world would be those of the world and of
            // MPI_COMM_SELF.
            proposals: AtomicU64::new(2),
            others: Mutex::default(),
            allocated: Mutex::default(),
            predefined: Predefined {
                environment: environment(&rank, arguments),
                tag_ub: AtomicI32::new(point::TAG_UB),
                host: AtomicI32::new(MPI_PROC_NULL),
                io: AtomicI32::new(me as i32),
                // The ranks of a host read one monotonic clock.
                wtime_is_global: AtomicI32::new(i32::from(on_one_host(&rank))),
                appnum: AtomicI32::new(app as i32),
                // There are no slots: another process for each core is always welcome.
                universe_size: AtomicI32::new((size + cores) as i32),
                last_used_code: AtomicI32::new(MPI_ERR_LASTCODE),
            },
            fortran: Mutex::default(),
            life: Life {
                has_world: AtomicBool::new(false),
                thread_level: AtomicI32::new(MPI_THREAD_MULTIPLE),
                main_thread: AtomicUsize::new(this_thread()),
            },
            rank: Arc::new(rank),
        }
    }

    /// Starts the progress thread; the rank must not have been declared single-threaded.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start_progress_thread(&self) -> std::io::Result<()> {
        let mut progress = self.progress.lock().expect("no panic under this lock");
        if progress.is_none() {
            *progress = Some(ProgressThread::start(&self.rank)?);
        }
        Ok(())
    }

    /// Ends the progress thread, if there is one.
    pub fn stop_progress_thread(&self) {
        drop(
            self.progress
                .lock()
                .expect("no panic under this lock")
                .take(),
        );
    }

    /// Whether there is a progress thread.
    #[must_use]
    pub fn has_progress_thread(&self) -> bool {
        self.progress
            .lock()
            .expect("no panic under this lock")
            .is_some()
    }

    /// Returns the rank of the engine.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// The same, to be shared with a library beside MPI or a thread.
    #[must_use]
    pub fn shared_rank(&self) -> Arc<Rank> {
        self.rank.clone()
    }

    /// Returns the lock around the tables, to be made cheap where the program has one thread.
    #[must_use]
    pub fn lock(&self) -> &RankLock<Objects> {
        &self.objects
    }

    /// Returns this process's rank in `MPI_COMM_WORLD`.
    #[must_use]
    pub fn world_rank(&self) -> u32 {
        self.rank.world_rank()
    }

    /// Notes the call that begins, for displays.
    #[inline]
    pub fn note_call(&self, name: &[u64; 4]) {
        self.rank.note_call(name);
    }

    /// Notes and records the call that begins; `from` is the address to which it returns.
    #[inline]
    pub fn begin_call(&self, name: &'static [u64; 4], from: u64) -> InCall<'_> {
        self.rank.begin_call(name, from)
    }

    /// Records the call that begins and has been noted; `from` is the address to which it returns.
    #[inline]
    pub fn record_call(&self, name: &'static [u64; 4], from: u64) -> InCall<'_> {
        self.rank.record_call(name, from)
    }

    /// Whether all calls are recorded: also those that are done with less work than a record.
    #[inline]
    #[must_use]
    pub fn records_all(&self) -> bool {
        self.rank.monitor().recording.has_all()
    }

    /// Returns the level of thread support in force.
    #[must_use]
    pub fn thread_level(&self) -> i32 {
        self.life.thread_level.load(Ordering::Relaxed)
    }

    /// Whether the calling thread is the one that initialised.
    #[must_use]
    pub fn is_main_thread(&self) -> bool {
        this_thread() == self.life.main_thread.load(Ordering::Relaxed)
    }

    /// Returns the value of a predefined attribute; the outer `None` is another key, the inner one
    /// an attribute that is not set.
    #[must_use]
    pub fn predefined_attribute(&self, key: i32) -> Option<Option<&AtomicI32>> {
        let p = &self.predefined;
        Some(match key {
            MPI_TAG_UB => Some(&p.tag_ub),
            MPI_HOST => Some(&p.host),
            MPI_IO => Some(&p.io),
            MPI_WTIME_IS_GLOBAL => Some(&p.wtime_is_global),
            MPI_APPNUM => Some(&p.appnum),
            MPI_UNIVERSE_SIZE => Some(&p.universe_size),
            MPI_LASTUSEDCODE => {
                let last = self.last_used_code();
                p.last_used_code.store(last, Ordering::Relaxed);
                Some(&p.last_used_code)
            }
            _ => return None,
        })
    }

    /// Returns the entries of `MPI_Abi_set_fortran_info`.
    #[must_use]
    pub fn fortran_info(&self) -> Option<Info> {
        self.fortran().info.clone()
    }

    /// `MPI_Abi_set_fortran_info`
    ///
    /// # Errors
    /// When it was called before.
    pub fn set_fortran_info(&self, info: Info) -> error::Result<()> {
        let mut fortran = self.fortran();
        if fortran.info.is_some() {
            fail!(
                MPI_ERR_ABI,
                "the Fortran info was set before; it can be set once"
            );
        }
        fortran.info = Some(info);
        Ok(())
    }

    /// Returns true and false of the Fortran logical with this many bytes.
    #[must_use]
    pub fn fortran_booleans(&self, size: i32) -> Option<(Vec<u8>, Vec<u8>)> {
        let size = usize::try_from(size).ok()?;
        self.fortran().booleans.get(&size).cloned()
    }

    /// `MPI_Abi_set_fortran_booleans`
    ///
    /// # Errors
    /// When the values for this size were set before.
    pub fn set_fortran_booleans(&self, values: (Vec<u8>, Vec<u8>)) -> error::Result<()> {
        let size = values.0.len();
        let mut fortran = self.fortran();
        if fortran.booleans.contains_key(&size) {
            fail!(
                MPI_ERR_ABI,
                "the logical values of {size} bytes were set before; they can be set once"
            );
        }
        fortran.booleans.insert(size, values);
        Ok(())
    }

    fn fortran(&self) -> MutexGuard<'_, Fortran> {
        self.fortran.lock().expect("no panic under this lock")
    }

    /// Ends the job with an exit code: enters the rank that did it, so that the launcher ends the
    /// others, and exits.
    pub fn abort(&self, code: i32) -> ! {
        self.rank.peers().abort(self.rank.world_rank(), code);
        std::process::exit(code)
    }

    /// `MPI_Alloc_mem`: the address of `bytes` of memory; memory that the ranks share where there
    /// are others and some is left.
    ///
    /// # Errors
    /// When this process may not have as much.
    pub fn alloc(&self, bytes: usize) -> error::Result<usize> {
        // The system may promise more than there is, and kill the process that touches it.
        if bytes >= COMPARED
            && let Some(limit) = limit_bytes().filter(|&limit| bytes as u64 > limit)
        {
            fail!(
                MPI_ERR_NO_MEM,
                "{bytes} bytes are more than this process may have: the machine or the memory limit of its cgroup gives \
                 {limit}"
            );
        }
        if self.rank.world_size() > 1
            && let Some(address) = self.rank.alloc_shared(bytes as u64)
        {
            return Ok(address);
        }
        let Some(mem) = Mem::try_owned(bytes) else {
            fail!(
                MPI_ERR_NO_MEM,
                "the system has no {bytes} bytes for this process; free some, or raise the limit of address space (ulimit -v)"
            );
        };
        let address = mem.address();
        self.allocated().insert(address, mem);
        Ok(address)
    }

    /// `MPI_Free_mem`. Returns whether there was memory at that address.
    #[must_use]
    pub fn free(&self, address: usize) -> bool {
        self.rank.free_shared(address)
            || self.allocated().remove(&address).is_some()
            || self.rank.free_shared(address)
    }

    fn allocated(&self) -> MutexGuard<'_, BTreeMap<usize, Mem>> {
        self.allocated.lock().expect("no panic under this lock")
    }

    /// `MPI_Finalize`: deletes the attributes of `MPI_COMM_SELF`, waits for everybody and for what
    /// is on its way. The world is closed then.
    pub fn close_world(&self) {
        let attributes = std::mem::take(&mut *self.own.attributes());
        // There is no way to report an error here: the program has no call left in which it could
        // get it.
        let _ = attributes.delete_all(MPI_COMM_SELF);
        let attributes = std::mem::take(&mut *self.world.attributes());
        let _ = attributes.delete_all(MPI_COMM_WORLD);
        let buffer = self.buffer.lock().expect("no panic under this lock").take();
        if let Some(buffer) = buffer {
            self.buffer_flush(&buffer);
        }
        self.rank.drain();
        if self.rank.application().len() > 1 {
            let _ = self.collective(&self.world, Operation::Leave);
            self.rank.drain();
        }
        for comm in [&self.own, &self.world] {
            let errhandler = std::mem::replace(&mut comm.state().errhandler, MPI_ERRORS_ARE_FATAL);
            let _ = self.errhandler_release(errhandler);
        }
        self.life.has_world.store(false, Ordering::Release);
    }

    #[inline]
    fn objects(&self) -> RankGuard<'_, Objects> {
        self.objects.lock()
    }

    fn codes(&self) -> MutexGuard<'_, Codes> {
        self.codes.lock().expect("no panic under this lock")
    }

    /// Returns a predefined type.
    #[must_use]
    pub fn basic(&self, basic: Basic) -> Arc<Datatype> {
        let place = (basic.handle() - 0x200) as usize;
        let entry = self.basics[place].as_ref();
        entry.expect("every basic type is there").datatype.clone()
    }
}

/// Whether all ranks of the job are on one host.
fn on_one_host(rank: &Rank) -> bool {
    let peers = rank.peers();
    (1..peers.size()).all(|other| peers.host(other) == peers.host(0))
}

/// Returns what `MPI_INFO_ENV` says of a process that was started with these arguments.
#[must_use]
pub fn environment(rank: &Rank, arguments: &[String]) -> Info {
    let mut info = Info::new();
    let mut add = |key: &str, value: String| info.push((key.into(), value));
    if let Some((command, rest)) = arguments.split_first() {
        add("command", command.clone());
        add("argv", rest.join(" "));
    }
    add("maxprocs", rank.application().len().to_string());
    add("soft", rank.application().len().to_string());
    add("arch", std::env::consts::ARCH.into());
    if let Ok(folder) = std::env::current_dir() {
        add("wdir", folder.display().to_string());
    }
    add(
        "thread_level",
        thread_level_name(MPI_THREAD_MULTIPLE).into(),
    );
    info
}

/// Returns the name of the machine.
#[must_use]
pub fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// Returns the name of a level of thread support.
#[must_use]
pub fn thread_level_name(level: i32) -> &'static str {
    match level {
        MPI_THREAD_SINGLE => "MPI_THREAD_SINGLE",
        MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        _ => "MPI_THREAD_MULTIPLE",
    }
}
