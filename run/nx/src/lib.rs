//! The semantics of NX, the message-passing library of the iPSC, the Paragon and ASCI Red, in safe
//! Rust.
//!
//! [`Nx`] is one process's NX state on the rank that it shares with MPI: addresses (`nodes`),
//! message ids ([`mids`]), handlers ([`handler`]). Messages travel in contexts of NX's own: one for
//! each process type, so that a message waits for the process that it is addressed to. The source
//! of an envelope is node and process type of the sender, the tag is the message's type.
//!
//! [`control`] is the other side: a process that is no node of the application but starts and
//! awaits those that are.

#![forbid(unsafe_code)]

pub mod constants;
pub mod control;
pub mod cop;
pub mod error;
mod global;
pub mod handler;
pub mod mids;
mod nodes;
pub mod options;
pub mod partitions;
pub mod point;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use margay_core_group::Group;
use margay_core_registry::account;
use margay_run_engine::monitor::InCall;
use margay_run_engine::{Callbacks, Rank};
use margay_run_mpi::{Comm, Mpi, library};
use margay_sys_os::lock::RankLock;

use error::*;
use handler::Handled;
use mids::Table;
use nodes::Nodes;

/// Process types are below this.
pub const PTYPES: u32 = 1 << 15;
/// The context of messages to processes of type 0; those to type t are in the t-th after it.
const CONTEXT: u32 = library::context(0);
/// The communicator for global operations of processes that were started with type 0; the others
/// follow it.
const GLOBAL: u32 = PTYPES / 2;
/// The first number of the communicators of libraries that NX does not use.
pub const END: u32 = GLOBAL + PTYPES;

/// What is known of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its type.
    pub kind: i64,
    /// Its length in bytes.
    pub count: i64,
    /// The node that it is from; of a message that was sent, the one that it went to.
    pub node: i64,
    /// The type of the process on that node.
    pub ptype: i64,
}

/// Ends the job because of an error for which there is no caller left: in a handler's message.
pub type Fatal = fn(&str, &Error) -> !;

/// One process's NX.
pub struct Nx {
    mpi: &'static Mpi,
    rank: Arc<Rank>,
    nodes: Nodes,
    /// This process's address, as it stands in envelopes.
    own: AtomicU32,
    /// All processes that were started with this process's type, in the order of their nodes; since
    /// the first global operation.
    everybody: OnceLock<Arc<Comm>>,
    mids: RankLock<Table>,
    handlers: Callbacks<Handled>,
    fatal: Fatal,
}

impl Nx {
    /// NX on the rank that it shares with MPI.
    ///
    /// # Errors
    /// When the processes' addresses contradict each other.
    pub fn new(mpi: &'static Mpi, fatal: Fatal) -> Result<Nx> {
        let rank = mpi.shared_rank();
        let nodes = Nodes::read(&rank)?;
        let (node, ptype) = nodes.own();
        Ok(Nx {
            mpi,
            rank,
            nodes,
            own: AtomicU32::new(address(node, ptype)),
            everybody: OnceLock::new(),
            mids: RankLock::new(Table::default()),
            handlers: Callbacks::default(),
            fatal,
        })
    }

    /// Returns the rank under it.
    #[must_use]
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// The controlling process makes progress until `ready` returns something.
    pub fn progress_until<R>(&self, ready: impl FnMut() -> Option<R>) -> R {
        self.rank.progress_until(ready)
    }

    /// Notes and records the call that begins; `from` is the address to which it returns.
    #[inline]
    pub fn begin_call(&self, name: &'static [u64; 4], from: u64) -> InCall<'_> {
        self.rank.begin_call(name, from)
    }

    /// `mynode`
    #[must_use]
    #[inline]
    pub fn node(&self) -> i64 {
        i64::from(self.own() & 0xffff)
    }

    /// `myptype`
    #[must_use]
    #[inline]
    pub fn ptype(&self) -> i64 {
        i64::from(self.own() >> 16)
    }

    /// `numnodes`
    #[must_use]
    pub fn nodes(&self) -> i64 {
        i64::from(self.nodes.count())
    }

    /// `setptype`: from now on messages to that type on this node reach this process, and those to
    /// its former type do not.
    ///
    /// # Errors
    /// When the type is out of range, or another process of the node has it.
    pub fn set_ptype(&self, ptype: i64) -> Result<()> {
        let ptype = ptype_of(ptype)?;
        self.nodes.set_ptype(&self.rank, ptype)?;
        let node = self.own() & 0xffff;
        self.own.store(address(node, ptype), Ordering::Release);
        Ok(())
    }

    /// `nodedim`: the dimension of the smallest hypercube that has this many nodes.
    #[must_use]
    pub fn dimension(&self) -> i64 {
        i64::from(self.nodes.count().next_power_of_two().trailing_zeros())
    }

    /// `mypart`: rows and columns of the nodes. As many as the program was started with
    /// (`-sz 2x3`), else as square as the number allows.
    #[must_use]
    pub fn rectangle(&self) -> (i64, i64) {
        options::rectangle(self.nodes.count())
    }

    /// `nx_pri`: the priority of this application in its partition; without turns it has no effect.
    ///
    /// # Errors
    /// When nobody can be asked.
    pub fn prioritize(&self, priority: i64) -> Result<()> {
        let launcher = self.rank.peers().facts().launcher;
        partitions::prioritize(launcher, priority)
    }

    /// The account that `nx_initve` names, for displays: the queue charges that of its job. Where
    /// other notes have taken all the room that a rank has, displays do not show it: no reason to
    /// end a program.
    pub fn charge(&self, account: &str) {
        let own = self.rank.world_rank();
        let room = || (self.rank.peers()).make_note(own, account::KEY, account::WORDS);
        if let Some(note) = (!account.is_empty()).then(room).flatten() {
            account::set(&note, account);
        }
    }

    /// `flick`: lets another process have the core.
    pub fn yield_core(&self) {
        self.rank.yield_core();
    }

    /// `killproc`: ends the process of that type on that node, and so the job; -1 is all.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn kill(&self, node: i64, ptype: i64) -> Result<()> {
        if node == -1 && ptype == -1 {
            self.mpi.abort(0);
        }
        for rank in self.nodes.all(&self.rank, node, ptype)? {
            let pid = self.rank.peers().identity(rank).pid;
            if pid == 0 {
                refuse!(EQNOPROC, "the process on node {node} has not started yet");
            }
            if let Err(error) = margay_sys_os::signal::send(pid, margay_sys_os::signal::SIGKILL) {
                refuse!(EQNOPROC, "the process on node {node} is gone: {error}");
            }
        }
        Ok(())
    }

    /// Returns the communicator for global operations.
    #[inline]
    fn everybody(&self) -> Result<&Arc<Comm>> {
        match self.everybody.get() {
            Some(comm) => Ok(comm),
            None => self.gather_everybody(),
        }
    }

    #[cold]
    fn gather_everybody(&self) -> Result<&Arc<Comm>> {
        if self.nodes.is_host() {
            refuse!(
                EQSTATE,
                "the controlling process takes no part in global operations; they are among the nodes"
            );
        }
        let members = Group::from_processes(self.nodes.siblings(&self.rank));
        let group = match members {
            Ok(group) => Arc::new(group),
            Err(error) => refuse!(EQFAULT, "the processes cannot be a group: {error}"),
        };
        let number = GLOBAL + self.nodes.own().1;
        let comm = self.mpi.library_comm(number, &group, "the nodes")?;
        Ok(self.everybody.get_or_init(|| comm))
    }

    #[inline]
    fn own(&self) -> u32 {
        self.own.load(Ordering::Relaxed)
    }
}

/// Node and process type as they stand in an envelope.
#[inline]
fn address(node: u32, ptype: u32) -> u32 {
    node | ptype << 16
}

fn ptype_of(ptype: i64) -> Result<u32> {
    match u32::try_from(ptype) {
        Ok(ptype) if ptype < PTYPES => Ok(ptype),
        _ => refuse!(
            EQPID,
            "{ptype} is not a process type; they are 0 to {}",
            PTYPES - 1
        ),
    }
}
