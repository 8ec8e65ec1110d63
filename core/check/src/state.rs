//! What is known of each process of the program: its objects, its requests, its communicators.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use crate::finding::{Call, Finding, Site};
use crate::record::{Item, Record};
use crate::threads::Threads;
use crate::types::{Data, Type};
use crate::uses::Uses;

pub const MPI_COMM_NULL: u64 = 0x100;
pub const MPI_COMM_WORLD: u64 = 0x101;
pub const MPI_COMM_SELF: u64 = 0x102;
pub const MPI_REQUEST_NULL: u64 = 0x180;
pub const MPI_DATATYPE_NULL: u64 = 0x200;
pub const MPI_OP_NULL: u64 = 0x20;
pub const MPI_WIN_NULL: u64 = 0x110;
pub const MPI_IN_PLACE: u64 = 1;
pub const MPI_ANY_SOURCE: i64 = -1;
pub const MPI_ANY_TAG: i64 = -2;
pub const MPI_PROC_NULL: i64 = -3;
pub const MPI_ROOT: i64 = -4;
pub const MPI_UNDEFINED: i64 = -32766;
/// Handles below are the standard's constants.
pub const FIRST_OWN: u64 = 0x400;

/// Moments of processes: how many of the events of each came before this one.
pub type Moment = Rc<[u32]>;

/// Kinds of objects that a program makes and must free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Comm,
    Type,
    Group,
    Op,
    Win,
    File,
}

impl Object {
    pub fn name(self) -> &'static str {
        match self {
            Object::Comm => "communicator",
            Object::Type => "datatype",
            Object::Group => "group",
            Object::Op => "operation",
            Object::Win => "window",
            Object::File => "file",
        }
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Object::Comm => "call MPI_Comm_free",
            Object::Type => "call MPI_Type_free",
            Object::Group => "call MPI_Group_free",
            Object::Op => "call MPI_Op_free",
            Object::Win => "call MPI_Win_free",
            Object::File => "call MPI_File_close",
        }
    }
}

/// A call that has not returned.
#[derive(Clone, Debug)]
pub struct Running {
    pub call: Call,
    pub items: Vec<Item>,
    /// An argument that is wrong: reported unless the library reports it to the program.
    pub problem: Option<Finding>,
    /// The collective call that it is, and its number on the communicator.
    pub collective: Option<(usize, u64)>,
    /// The receives that it has posted.
    pub posted: Vec<usize>,
    /// The message that it sends.
    pub sent: Option<usize>,
}

/// What a request is of.
#[derive(Clone, Debug)]
pub struct Request {
    pub call: Call,
    pub is_persistent: bool,
    pub is_active: bool,
    /// For a persistent point-to-point request: its arguments.
    pub items: Vec<Item>,
    /// The receive that it has posted.
    pub posted: Option<usize>,
    pub collective: Option<(usize, u64)>,
    pub partitions: i64,
    /// Of a partitioned send: which partitions are ready.
    pub ready: Vec<bool>,
    pub was_started: bool,
    /// The program knows that it is complete, or has cancelled it.
    pub may_be_freed: bool,
    /// It has been waited for without a start: perhaps an error unless it is started later.
    pub in_vain: Option<Finding>,
}

/// Memory that a call uses until something completes it.
#[derive(Clone, Debug)]
pub struct Use {
    pub begin: u64,
    pub end: u64,
    pub writes: bool,
    pub call: Call,
    pub until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// This request has completed.
    Request(u64),
    /// Synchronization of this window with that rank.
    Window(u64, i64),
}

/// A window as one of its processes sees it.
#[derive(Clone, Debug, Default)]
pub struct OwnWindow {
    /// Which window of the job it is.
    pub id: usize,
    /// Its memory in this process.
    pub base: u64,
    pub bytes: u64,
    /// The fence that has opened an epoch.
    pub fence: Option<Call>,
    /// Operations since that fence.
    pub used: Option<Call>,
    /// The lock by which the window was accessed since that fence.
    pub locked: Option<Call>,
    pub fences: u32,
    /// The last fence did not say that no epoch follows it.
    pub is_after_fence: bool,
    pub start: Option<Call>,
    pub post: Option<Call>,
    pub lock_all: Option<Call>,
    /// It has ended a lock, or has got data: what it does may depend on what others have done.
    pub has_learned: bool,
    /// By target: the call, and whether it is exclusive.
    pub locks: BTreeMap<i64, (Call, bool)>,
}

// Fields: what the calls of one process have led to; each is read by another module.
#[derive(Default)]
pub struct Process {
    pub rank: u32,
    pub size: u32,
    /// Of the job's first world; of others only what one rank does alone is looked at.
    pub is_of_job: bool,
    pub is_known: bool,
    pub tag_limit: i64,
    pub is_initialized: bool,
    pub is_finalized: bool,
    pub has_ended: bool,
    pub is_multithreaded: bool,
    pub threads: Threads,
    /// It has fetched values of windows, by which it may know what others have done.
    pub is_ordered_by_values: bool,
    /// It has locked windows, by which others may have waited for it.
    pub has_locked: bool,
    /// By thread: the innermost call.
    pub running: HashMap<u64, Running>,
    /// By thread: calls that have called functions of the program, which have called the innermost
    /// one.
    pub outer: HashMap<u64, Vec<Running>>,
    pub last: Option<Call>,
    pub comms: HashMap<u64, usize>,
    pub freed: HashMap<u64, (Object, Call)>,
    pub types: HashMap<u64, Type>,
    pub requests: BTreeMap<u64, Request>,
    /// Of the first request that was waited for and freed without a start.
    pub in_vain: Option<Finding>,
    pub objects: BTreeMap<(Object, u64), Call>,
    pub windows: HashMap<u64, OwnWindow>,
    pub uses: Uses,
    /// Messages that a probe has found and no receive has taken yet: the rank of the sender in the
    /// communicator, its call and what it has sent.
    pub probed: HashMap<u64, (usize, Call, Data)>,
    pub moment: Vec<u32>,
    /// Records that wait until those of other processes have come.
    pub waiting: VecDeque<Record>,
}

impl Process {
    pub fn call(&self, process: usize, name: &str, address: u64) -> Call {
        Call {
            name: name.into(),
            site: Site { process, address },
        }
    }

    /// A datatype by its handle.
    pub fn data_type(&self, handle: u64) -> Option<Type> {
        Type::predefined(handle).or_else(|| self.types.get(&handle).cloned())
    }

    /// Goes on by one event.
    pub fn tick(&mut self) -> Moment {
        if let Some(own) = self.moment.get_mut(self.rank as usize) {
            *own += 1;
        }
        Rc::from(&self.moment[..])
    }

    pub fn join(&mut self, other: &[u32]) {
        for (own, other) in self.moment.iter_mut().zip(other) {
            *own = (*own).max(*other);
        }
    }
}
