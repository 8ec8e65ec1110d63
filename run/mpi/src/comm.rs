//! Communicators: what they are, and what is asked of them without communicating.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use margay_core_group::{Cart, DistGraph, Graph};
use margay_core_group::{Comparison, Group};
use margay_core_schedule::Hosts;
use margay_run_engine::node::{Channel, Plane};
use margay_run_engine::{Pending, Rank};

use crate::attribute::{Access, Attributes, Carrier};
use crate::buffer::Buffer;
use crate::constants::comm::*;
use crate::constants::comparison::*;
use crate::constants::errhandler::MPI_ERRORS_ARE_FATAL;
use crate::constants::sentinel::MPI_PROC_NULL;
use crate::constants::session::MPI_SESSION_NULL;
use crate::error::*;
use crate::info::Info;
use crate::operation::Operation;
use crate::{Mpi, fail};

/// Numbers from here on are of communicators with processes of several jobs.
pub(crate) const FOREIGN: u32 = 1 << 29;

/// Numbers from here to [`FOREIGN`] are those of libraries beside MPI.
pub(crate) const RESERVED: u32 = FOREIGN - (1 << 16);

/// The topology of a communicator.
#[derive(Clone, Debug)]
pub enum Topology {
    Cart(Arc<Cart>),
    Graph(Arc<Graph>),
    DistGraph(Arc<DistGraph>),
}

/// The neighbours of a process; `None` is `MPI_PROC_NULL`.
pub struct Neighbours {
    /// Data comes from these.
    pub sources: Vec<Option<u32>>,
    /// Data goes to these.
    pub destinations: Vec<Option<u32>>,
}

/// What a communicator knows of failures.
#[derive(Default)]
pub(crate) struct Failures {
    pub acknowledged: Mutex<Vec<u32>>,
    pub agreements: AtomicU32,
}

/// The context of a communicator that `MPI_Comm_idup` has not completed yet.
const NO_CONTEXT: u32 = u32::MAX;

/// Collectives are counted up to this and from 0 again. The engine gives each of them 256 tags,
/// which makes 2^30; above are the tags of operations that carry a tag of the program's.
const SEQUENCES: u32 = 1 << 22;
const SPECIAL_TAGS: u32 = 1 << 30;

/// The bit of a context that marks partitioned communication; numbers of communicators stay below
/// 2^30.
const PARTITIONED: u32 = 1 << 31;

/// A communicator. Immutable but for its name, attributes, error handler and the like.
pub struct Comm {
    handle: AtomicU32,
    /// Identifies the communicator in envelopes: point-to-point messages travel in context 2 * id,
    /// collectives in 2 * id + 1, partitioned communication in the same two with [`PARTITIONED`].
    id: AtomicU32,
    /// The calling process's rank in `group`.
    pub rank: u32,
    /// The processes; of an inter-communicator those of the local group.
    pub group: Arc<Group>,
    /// Of an inter-communicator: the remote group.
    pub remote: Option<Arc<Group>>,
    /// Of an inter-communicator: an intra-communicator of the local group, never seen by the
    /// program.
    pub inner: Option<Arc<Comm>>,
    /// The virtual topology.
    pub topology: Option<Topology>,
    sequence: AtomicU32,
    /// Tags given to partitions.
    partitions: AtomicU32,
    /// What it was used for.
    pub traffic: Traffic,
    channel: OnceLock<Option<Channel>>,
    /// The same for nonblocking collectives; progress uses it, too.
    posting: OnceLock<Option<Arc<Channel>>>,
    /// How collectives are divided where the ranks are on several hosts.
    division: OnceLock<Option<Box<Division>>>,
    pub(crate) failures: Failures,
    state: Mutex<State>,
}

/// A communicator that is divided by hosts, as one of its ranks sees it.
pub(crate) struct Division {
    pub(crate) hosts: Hosts,
    /// The ranks of this host.
    pub(crate) local: Arc<Comm>,
    /// One rank of each host: where hosts have equally many ranks, those with this rank's number,
    /// else the lowest ones, of which this rank may be none.
    pub(crate) across: Option<Arc<Comm>>,
}

impl Division {
    /// None where all ranks are on one host, each is alone on its host, or some are of other jobs.
    fn new(mpi: &Mpi, comm: &Comm) -> Option<Division> {
        let size = mpi.rank.world_size();
        let is_own = |process: u32| process < size;
        if comm.remote.is_some() || !comm.group.processes().all(is_own) {
            return None;
        }
        let peers = mpi.rank.peers();
        let hosts = Hosts::new(comm.group.processes().map(|process| peers.host(process)))?;
        let local = part(comm, hosts.members(hosts.host(comm.rank)))?;
        let across = match hosts.is_even() {
            true => part(comm, &hosts.counterparts(comm.rank)),
            false => part(comm, &hosts.representatives(0)),
        };
        Some(Division {
            hosts,
            local: Arc::new(local),
            across: across.map(Arc::new),
        })
    }
}

/// A communicator of some ranks of another one; none where this rank is none of them.
pub(crate) fn part(comm: &Comm, ranks: &[u32]) -> Option<Comm> {
    let rank = ranks.iter().position(|&rank| rank == comm.rank)? as u32;
    let processes = ranks.iter().map(|&rank| comm.group.process(rank));
    let group = Group::from_processes(processes.collect::<Option<_>>()?).ok()?;
    Some(Comm::new(Parts {
        id: Some(comm.id()),
        rank,
        group: Arc::new(group),
        remote: None,
        inner: None,
        topology: None,
    }))
}

/// What a communicator was used for.
#[derive(Default)]
pub struct Traffic {
    /// Point-to-point messages sent.
    pub messages: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Collective operations begun.
    pub collectives: AtomicU64,
}

impl Traffic {
    /// Counts a message; `shared`: threads may do that at the same time.
    #[inline]
    pub(crate) fn count_message(&self, bytes: u64, shared: bool) {
        add(&self.messages, 1, shared);
        add(&self.bytes, bytes, shared);
    }

    /// Counts a collective operation.
    #[inline]
    pub(crate) fn count_collective(&self, shared: bool) {
        add(&self.collectives, 1, shared);
    }
}

#[inline]
fn add(counter: &AtomicU64, by: u64, shared: bool) {
    if shared {
        counter.fetch_add(by, Ordering::Relaxed);
    } else {
        let value = counter.load(Ordering::Relaxed);
        counter.store(value.wrapping_add(by), Ordering::Relaxed);
    }
}

/// What the program may change.
pub struct State {
    /// The handle of the error handler.
    pub errhandler: u32,
    /// The buffer of `MPI_Comm_attach_buffer`.
    pub buffer: Option<Arc<Buffer>>,
    /// The session that it comes from; `MPI_SESSION_NULL` for those of the world.
    pub session: u32,
    name: Option<String>,
    attributes: Attributes,
    info: Info,
}

/// The parts of a new communicator.
pub struct Parts {
    pub id: Option<u32>,
    pub rank: u32,
    pub group: Arc<Group>,
    pub remote: Option<Arc<Group>>,
    pub inner: Option<Arc<Comm>>,
    pub topology: Option<Topology>,
}

impl Comm {
    pub fn new(parts: Parts) -> Comm {
        Comm {
            handle: AtomicU32::new(MPI_COMM_NULL),
            id: AtomicU32::new(parts.id.unwrap_or(NO_CONTEXT)),
            rank: parts.rank,
            group: parts.group,
            remote: parts.remote,
            inner: parts.inner,
            topology: parts.topology,
            sequence: AtomicU32::new(0),
            partitions: AtomicU32::new(0),
            traffic: Traffic::default(),
            channel: OnceLock::new(),
            posting: OnceLock::new(),
            division: OnceLock::new(),
            failures: Failures::default(),
            state: Mutex::new(State {
                errhandler: MPI_ERRORS_ARE_FATAL,
                buffer: None,
                session: MPI_SESSION_NULL,
                name: None,
                attributes: Attributes::default(),
                info: Info::new(),
            }),
        }
    }

    /// Returns the handle; `MPI_COMM_NULL` of those that the program never sees.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    pub(crate) fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// Completes a communicator of `MPI_Comm_idup`.
    pub(crate) fn set_id(&self, id: u32) {
        self.id.store(id, Ordering::Release);
    }

    /// Returns the number that all its processes know it by.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Acquire)
    }

    /// Returns the context of point-to-point messages.
    #[inline]
    pub fn point_to_point(&self) -> u32 {
        2 * self.id()
    }

    /// Returns the context of collective operations.
    #[inline]
    pub fn collective(&self) -> u32 {
        2 * self.id() + 1
    }

    /// Returns the context in which a partitioned send introduces itself to its receive.
    pub(crate) fn introductions(&self) -> u32 {
        PARTITIONED | self.point_to_point()
    }

    /// Returns the context of partitions.
    pub(crate) fn partitioned(&self) -> u32 {
        PARTITIONED | self.collective()
    }

    /// Returns the first of `partitions` tags in the context of partitions that only the caller
    /// uses; they come again after 2^32.
    pub(crate) fn partition_tags(&self, partitions: u32) -> u32 {
        self.partitions.fetch_add(partitions, Ordering::Relaxed)
    }

    /// Returns the way through shared memory for blocking collectives of an intra-communicator;
    /// found at the first one, so at the same operation on all ranks.
    #[inline]
    pub(crate) fn channel(&self, rank: &Rank) -> Option<&Channel> {
        self.channel
            .get_or_init(|| self.open_channel(rank, Plane::Blocking))
            .as_ref()
    }

    /// The same for nonblocking ones.
    #[inline]
    pub(crate) fn posting(&self, rank: &Rank) -> Option<&Arc<Channel>> {
        self.posting
            .get_or_init(|| self.open_channel(rank, Plane::Nonblocking).map(Arc::new))
            .as_ref()
    }

    /// Returns how collectives are divided by hosts, if they are: on all ranks alike.
    pub(crate) fn division(&self, mpi: &Mpi) -> Option<&Division> {
        self.division
            .get_or_init(|| Division::new(mpi, self).map(Box::new))
            .as_deref()
    }

    /// Whether a blocking collective has found out that all ranks may read each other's memory. As
    /// blocking and nonblocking ones begin in one order on all ranks, all find the same.
    pub(crate) fn attaches(&self) -> bool {
        self.channel
            .get()
            .is_some_and(|channel| channel.as_ref().is_some_and(Channel::attaches))
    }

    fn open_channel(&self, rank: &Rank, plane: Plane) -> Option<Channel> {
        (self.remote.is_none())
            .then(|| Channel::open(rank, &self.group, self.rank, self.collective(), plane))?
    }

    /// The communicator is freed: its part of shared memory may serve others. Nonblocking
    /// collectives that are under way end before: another communicator may get the number.
    pub fn close_channel(&self, rank: &Rank) {
        if let Some(Some(division)) = self.division.get() {
            division.local.close_channel(rank);
        }
        if let Some(Some(channel)) = self.channel.get() {
            channel.close();
        }
        if let Some(Some(channel)) = self.posting.get() {
            rank.block(
                |engine| engine.is_posted_done(channel).then_some(()),
                |_| Some(Pending::Collective(None, self.collective())),
            );
            channel.close();
        }
    }

    /// The tag of the last collective operation, which is none of any other.
    pub(crate) const LAST_TAG: u32 = SEQUENCES;

    /// Returns the number of the next collective operation. All processes start collectives in the
    /// same order.
    pub fn next_tag(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed) % SEQUENCES
    }

    /// Returns a tag in the collective context for an operation that carries the program's tag.
    pub(crate) fn special_tag(tag: i32) -> u32 {
        SPECIAL_TAGS | (tag as u32 % SPECIAL_TAGS)
    }

    /// Returns the number of processes; of an inter-communicator those of the local group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Whether it is an inter-communicator.
    #[inline]
    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// Returns the group that point-to-point ranks are of.
    #[inline]
    pub fn peers(&self) -> &Arc<Group> {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// Returns what can change. No callback may be called while this is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no callback runs under this lock")
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> String {
        let given = self.state().name.clone();
        given.unwrap_or_else(|| {
            match self.handle() {
                MPI_COMM_WORLD => "MPI_COMM_WORLD",
                MPI_COMM_SELF => "MPI_COMM_SELF",
                _ => "",
            }
            .into()
        })
    }

    /// Names it.
    pub fn set_name(&self, name: String) {
        self.state().name = Some(name);
    }

    /// For messages: "communicator 'rows' (4 ranks)".
    #[must_use]
    pub fn describe(&self) -> String {
        let ranks = |n: u32| format!("{n} {}", if n == 1 { "rank" } else { "ranks" });
        let size = match &self.remote {
            None => ranks(self.size()),
            Some(remote) => format!("{}, {} remote", ranks(self.size()), ranks(remote.size())),
        };
        let name = self.name();
        if name.is_empty() {
            format!("the communicator ({size})")
        } else {
            format!("communicator '{name}' ({size})")
        }
    }

    /// Access to the attributes.
    pub fn attributes(&self) -> impl std::ops::DerefMut<Target = Attributes> + '_ {
        Access::new(self.state(), |s| &s.attributes, |s| &mut s.attributes)
    }

    /// Returns the hints.
    #[must_use]
    pub fn info(&self) -> Info {
        self.state().info.clone()
    }

    /// Sets the hints.
    pub fn set_info(&self, info: Info) {
        self.state().info = info;
    }

    /// Returns the process of a rank of the program's that names a peer; `None` is `MPI_PROC_NULL`.
    ///
    /// # Errors
    /// When there is no such rank.
    #[inline]
    pub fn peer(&self, rank: i32) -> Result<Option<u32>> {
        match self.peers().process(rank as u32) {
            // Negative ranks are beyond every group.
            Some(process) => Ok(Some(process)),
            None if rank == MPI_PROC_NULL => Ok(None),
            None => fail!(MPI_ERR_RANK, "rank {rank} is not in {}", self.describe()),
        }
    }
}

impl Mpi {
    /// Returns the communicator of a handle.
    ///
    /// # Errors
    /// When there is none.
    #[inline]
    pub fn comm(&self, handle: u32) -> Result<Arc<Comm>> {
        self.with_comm(handle, |comm| Ok(comm.clone()))
    }

    /// Calls `f` with the communicator of a handle; `f` must not wait or call back.
    ///
    /// # Errors
    /// When there is none, and what `f` returns.
    #[inline]
    pub fn with_comm<R>(&self, handle: u32, f: impl FnOnce(&Arc<Comm>) -> Result<R>) -> Result<R> {
        match handle {
            MPI_COMM_WORLD if self.has_world() => f(&self.world),
            MPI_COMM_SELF if self.has_world() => f(&self.own),
            _ => match self.objects().comms.get(handle) {
                Some(comm) => f(comm),
                None => Err(unknown(handle)),
            },
        }
    }

    /// As [`with_comm`](Self::with_comm); None when there is none.
    #[inline(always)]
    pub fn with_comm_if<R>(&self, handle: u32, f: impl FnOnce(&Comm) -> R) -> Option<R> {
        match handle {
            MPI_COMM_WORLD => Some(f(&self.world)),
            MPI_COMM_SELF => Some(f(&self.own)),
            _ => self.objects().comms.get(handle).map(|comm| f(comm)),
        }
    }

    /// As [`Mpi::comm`], an intra-communicator.
    ///
    /// # Errors
    /// When there is none or it is an inter-communicator.
    pub fn intracomm(&self, handle: u32) -> Result<Arc<Comm>> {
        let comm = self.comm(handle)?;
        if comm.is_inter() {
            fail!(
                MPI_ERR_COMM,
                "{} is an inter-communicator; an intra-communicator is needed",
                comm.describe()
            );
        }
        Ok(comm)
    }

    /// As [`Mpi::comm`], an inter-communicator.
    ///
    /// # Errors
    /// When there is none or it is an intra-communicator.
    pub fn intercomm(&self, handle: u32) -> Result<Arc<Comm>> {
        let comm = self.comm(handle)?;
        if !comm.is_inter() {
            fail!(
                MPI_ERR_COMM,
                "{} is an intra-communicator; an inter-communicator is needed",
                comm.describe()
            );
        }
        Ok(comm)
    }

    /// `MPI_COMM_WORLD`
    #[must_use]
    pub fn comm_world(&self) -> &Arc<Comm> {
        &self.world
    }

    /// `MPI_COMM_SELF`
    #[must_use]
    pub fn comm_self(&self) -> &Arc<Comm> {
        &self.own
    }

    /// Gives a communicator a handle.
    pub(crate) fn comm_add(&self, comm: Arc<Comm>) -> Result<u32> {
        if comm.id() != NO_CONTEXT {
            self.check_number(&comm)?;
        }
        let mut objects = self.objects();
        let Some(handle) = objects.comms.insert(comm.clone()) else {
            fail!(
                MPI_ERR_COMM,
                "a million communicators exist; free some with MPI_Comm_free"
            );
        };
        comm.set_handle(handle);
        drop(objects);
        if comm.id() != NO_CONTEXT {
            self.enter_members(&comm);
        }
        Ok(handle)
    }

    /// Refuses a number that another communicator has. Only numbers drawn by lot can meet.
    fn check_number(&self, comm: &Comm) -> Result<()> {
        let id = comm.id();
        let meets = |c: &Comm| c.id() == id && !std::ptr::eq(c, comm);
        if id >= FOREIGN && self.objects().comms.iter().any(|(_, c)| meets(c)) {
            fail!(
                MPI_ERR_INTERN,
                "the number that was drawn for the communicator is in use; make it again"
            );
        }
        Ok(())
    }

    /// Gives a communicator of `MPI_Comm_idup` its number: from now on it is one as any other.
    pub(crate) fn comm_number(&self, comm: &Comm, id: u32) -> Result<()> {
        comm.set_id(id);
        self.check_number(comm)?;
        // The local communicator within an inter-communicator has no handle, and does not need
        // this.
        if comm.handle() != MPI_COMM_NULL {
            self.enter_members(comm);
        }
        Ok(())
    }

    /// `MPI_Comm_free` and `MPI_Comm_disconnect`: the handle is gone, operations under way keep the
    /// rest.
    ///
    /// # Errors
    /// When the handle is invalid or predefined, or a delete function of an attribute refuses.
    pub fn comm_free(&self, handle: u32) -> Result<()> {
        if matches!(handle, MPI_COMM_WORLD | MPI_COMM_SELF) {
            fail!(
                MPI_ERR_COMM,
                "{} is predefined; it cannot be freed",
                self.comm(handle)?.describe()
            );
        }
        let comm = self.comm(handle)?;
        let attributes = std::mem::take(&mut *comm.attributes());
        if let Err((rest, error)) = attributes.delete_all(handle) {
            *comm.attributes() = rest;
            return Err(error);
        }
        if let Some(buffer) = comm.state().buffer.take() {
            self.buffer_flush(&buffer);
        }
        let errhandler = std::mem::replace(&mut comm.state().errhandler, MPI_ERRORS_ARE_FATAL);
        let _ = self.errhandler_release(errhandler);
        self.objects().comms.remove(handle);
        // The processes that spawned this one are no longer connected.
        self.lose_parent(handle);
        comm.close_channel(&self.rank);
        self.rank.lock().lock().remove_members(comm.id());
        self.give_up_bridges();
        Ok(())
    }

    /// `MPI_Comm_disconnect`: waits for everybody, then frees.
    ///
    /// # Errors
    /// As [`Mpi::comm_free`].
    pub fn comm_disconnect(&self, handle: u32) -> Result<()> {
        let comm = self.comm(handle)?;
        if !matches!(handle, MPI_COMM_WORLD | MPI_COMM_SELF) {
            self.collective(&comm, Operation::Barrier)?;
        }
        drop(comm);
        self.comm_free(handle)
    }

    /// `MPI_Comm_compare`
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn comm_compare(&self, a: u32, b: u32) -> Result<i32> {
        let (first, second) = (self.comm(a)?, self.comm(b)?);
        if a == b {
            return Ok(MPI_IDENT);
        }
        let remote = match (&first.remote, &second.remote) {
            (None, None) => Comparison::Identical,
            (Some(x), Some(y)) => x.compare(y),
            _ => return Ok(MPI_UNEQUAL),
        };
        Ok(match (first.group.compare(&second.group), remote) {
            (Comparison::Identical, Comparison::Identical) => MPI_CONGRUENT,
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => MPI_UNEQUAL,
            _ => MPI_SIMILAR,
        })
    }

    /// `MPI_Comm_set_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_set`].
    pub fn comm_set_attribute(&self, handle: u32, key: i32, value: usize) -> Result<()> {
        let comm = self.comm(handle)?;
        self.attribute_set(Carrier::Comm, handle, key, value, || comm.attributes())
    }

    /// `MPI_Comm_get_attr` for keys of the program.
    ///
    /// # Errors
    /// As [`Mpi::attribute_get`].
    pub fn comm_attribute(&self, handle: u32, key: i32) -> Result<Option<usize>> {
        let comm = self.comm(handle)?;
        let attributes = comm.attributes().snapshot();
        self.attribute_get(Carrier::Comm, key, &attributes)
    }

    /// `MPI_Comm_delete_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_delete`].
    pub fn comm_delete_attribute(&self, handle: u32, key: i32) -> Result<()> {
        let comm = self.comm(handle)?;
        self.attribute_delete(Carrier::Comm, handle, key, || comm.attributes())
    }
}

#[cold]
fn unknown(handle: u32) -> Error {
    let text = match handle {
        MPI_COMM_NULL => "the communicator is MPI_COMM_NULL".to_string(),
        MPI_COMM_WORLD | MPI_COMM_SELF => {
            "MPI_COMM_WORLD and MPI_COMM_SELF exist between MPI_Init and MPI_Finalize only; \
             make a communicator of a session's group with MPI_Comm_create_from_group"
                .to_string()
        }
        _ => format!("{handle:#x} is not a communicator; was it freed?"),
    };
    Error::new(MPI_ERR_COMM, text)
}
