//! Sessions: MPI without a world, process sets, and communicators made of groups alone.
//!
//! A communicator of a group is made without a parent in whose context they could communicate. Its
//! members meet in a context that no communicator has; source and tag of these messages are a hash
//! of the group, the string tag and the sender, so that operations under way at the same time do
//! not mix.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_group::Group;
use margay_core_registry::Phase;
use margay_run_engine::{Data, Envelope, Mode, Pattern};
use margay_sys_os::user::Mem;

use crate::buffer::Buffer;
use crate::comm::{Comm, Parts};
use crate::constants::comm::MPI_COMM_NULL;
use crate::constants::session::MPI_SESSION_NULL;
use crate::constants::thread::*;
use crate::error::*;
use crate::info::Info;
use crate::outcome::failure;
use crate::{Mpi, fail, thread_level_name};

/// The context in which processes meet that have no communicator in common.
const GROUP_CONTEXT: u32 = u32::MAX - 1;

/// A session of the program.
pub struct Session {
    /// The handle of the error handler.
    pub errhandler: u32,
    /// The buffer of `MPI_Session_attach_buffer`.
    pub buffer: Option<Arc<Buffer>>,
    info: Info,
}

/// Returns the level of thread support that the hints of a session ask for; `MPI_THREAD_MULTIPLE`
/// when they do not ask.
///
/// # Errors
/// When the value of `thread_level` is not a name of the standard.
pub fn session_level(hints: &Info) -> Result<i32> {
    let Some((_, asked)) = hints.iter().find(|(key, _)| key == "thread_level") else {
        return Ok(MPI_THREAD_MULTIPLE);
    };
    let levels = [
        MPI_THREAD_SINGLE,
        MPI_THREAD_FUNNELED,
        MPI_THREAD_SERIALIZED,
        MPI_THREAD_MULTIPLE,
    ];
    match levels.into_iter().find(|&l| thread_level_name(l) == asked) {
        Some(level) => Ok(level),
        None => fail!(
            MPI_ERR_INFO_VALUE,
            "thread_level is '{asked}'; it is one of MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED \
             and MPI_THREAD_MULTIPLE"
        ),
    }
}

impl Mpi {
    /// Enters a session with that level of thread support; its handle.
    ///
    /// # Errors
    /// When the error handler is not one, or there are too many sessions.
    pub fn session_add(&self, level: i32, errhandler: u32) -> Result<u32> {
        self.errhandler_retain(errhandler)?;
        let session = Session {
            errhandler,
            buffer: None,
            info: vec![("thread_level".into(), thread_level_name(level).into())],
        };
        match self.objects().sessions.insert(session) {
            Some(handle) => Ok(handle),
            None => fail!(MPI_ERR_SESSION, "a million sessions exist; finalize some"),
        }
    }

    /// Ends a session: waits for what is on its way. The handle is gone.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_end(&self, handle: u32) -> Result<()> {
        let buffer = self.with_session(handle, |s| s.buffer.take())?;
        if let Some(buffer) = buffer {
            self.buffer_flush(&buffer);
        }
        self.rank.drain();
        let ended = self.objects().sessions.remove(handle);
        if let Some(session) = ended {
            let _ = self.errhandler_release(session.errhandler);
        }
        Ok(())
    }

    /// Calls `f` with a session; `f` must not call back.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn with_session<R>(&self, handle: u32, f: impl FnOnce(&mut Session) -> R) -> Result<R> {
        match self.objects().sessions.get_mut(handle) {
            Some(session) => Ok(f(session)),
            None if handle == MPI_SESSION_NULL => {
                fail!(MPI_ERR_SESSION, "the session is MPI_SESSION_NULL")
            }
            None => fail!(
                MPI_ERR_SESSION,
                "{handle:#x} is not a session; was it finalized?"
            ),
        }
    }

    /// `MPI_Session_get_info`
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_info(&self, handle: u32) -> Result<Info> {
        self.with_session(handle, |s| s.info.clone())
    }

    /// `MPI_Session_set_errhandler`
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn session_set_errhandler(&self, handle: u32, errhandler: u32) -> Result<()> {
        self.with_session(handle, |_| ())?;
        self.errhandler_replace(errhandler, |new| {
            let exchanged =
                self.with_session(handle, |s| std::mem::replace(&mut s.errhandler, new));
            // A session that another thread has just finalized has no use for it.
            exchanged.unwrap_or(new)
        })
    }

    /// `MPI_Session_get_errhandler`: a handle that the program has to free.
    ///
    /// # Errors
    /// When the session is invalid.
    pub fn session_get_errhandler(&self, handle: u32) -> Result<u32> {
        let errhandler = self.with_session(handle, |s| s.errhandler)?;
        self.errhandler_share(errhandler)
    }

    /// Returns the process sets by name: the standard's two, one for each program of the job, one
    /// for each host.
    #[must_use]
    pub fn psets(&self) -> Vec<(String, Group)> {
        let me = self.rank.world_rank();
        let all = self.rank.application();
        let mut sets = vec![
            (
                "mpi://WORLD".to_string(),
                Group::range(all.start, all.len() as u32),
            ),
            ("mpi://SELF".to_string(), Group::range(me, 1)),
        ];
        let peers = self.rank.peers();
        let mut add = |name: String, is_member: &dyn Fn(u32) -> bool| {
            let members = all.clone().filter(|&r| is_member(r)).collect();
            if let Ok(group) = Group::from_processes(members) {
                sets.push((name, group));
            }
        };
        let program = |rank| peers.identity(rank).program;
        for number in 0..=all.clone().map(program).max().unwrap_or(0) {
            add(format!("margay://app/{number}"), &|r| program(r) == number);
        }
        let hosts: BTreeSet<u32> = all.clone().map(|r| peers.host(r)).collect();
        for host in hosts {
            let name = format!("margay://host/{}", peers.host_name(host));
            add(name, &|r| peers.host(r) == host);
        }
        sets
    }

    /// Returns the processes of a set.
    ///
    /// # Errors
    /// When there is no set of that name.
    pub fn pset(&self, name: &str) -> Result<Group> {
        let mut sets = self.psets().into_iter();
        match sets.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, group)) => Ok(group),
            None => fail!(
                MPI_ERR_ARG,
                "there is no process set '{name}'; MPI_Session_get_nth_pset returns the names"
            ),
        }
    }

    /// Returns what `MPI_Session_get_pset_info` returns for a set.
    ///
    /// # Errors
    /// When there is no set of that name.
    pub fn pset_info(&self, name: &str) -> Result<Info> {
        let size = self.pset(name)?.size().to_string();
        Ok(vec![
            ("mpi_size".into(), size.clone()),
            ("size".into(), size),
        ])
    }

    /// `MPI_Comm_create_from_group`, which all processes of the group call.
    ///
    /// # Errors
    /// When the calling process is not in the group, or the error handler is not one.
    pub fn comm_create_from_group(
        &self,
        group: &Arc<Group>,
        session: u32,
        stringtag: &str,
        hints: Info,
        errhandler: u32,
    ) -> Result<u32> {
        if group.size() == 0 {
            return Ok(MPI_COMM_NULL);
        }
        let rank = self.rank_in(group, "the group")?;
        self.errhandler_retain(errhandler)?;
        let key = GroupKey::new(self, group, stringtag, 0);
        let id = if rank == 0 {
            self.propose_for(self.is_foreign(group))?
        } else {
            0
        };
        let id = self.spread(group, rank, 0, &key, &[id])?[0];
        let comm = Comm::new(Parts {
            id: Some(id),
            rank,
            group: group.clone(),
            remote: None,
            inner: None,
            topology: None,
        });
        self.add_of_session(comm, session, hints, errhandler)
    }

    /// `MPI_Intercomm_create_from_groups`
    ///
    /// # Errors
    /// When the calling process is not in the local group, the groups are not disjoint, a leader is
    /// not in its group, or the error handler is not one.
    #[allow(clippy::too_many_arguments)]
    pub fn intercomm_create_from_groups(
        &self,
        (local, local_leader): (&Arc<Group>, i32),
        (remote, remote_leader): (&Arc<Group>, i32),
        session: u32,
        stringtag: &str,
        hints: Info,
        errhandler: u32,
    ) -> Result<u32> {
        let rank = self.rank_in(local, "the local group")?;
        if let Some(both) = remote.processes().find(|&p| local.rank(p).is_some()) {
            fail!(
                MPI_ERR_GROUP,
                "process {both} is in both groups; they must be disjoint"
            );
        }
        let leader = local.process(local_leader as u32);
        let peer = remote.process(remote_leader as u32);
        let (Some(leader), Some(peer)) = (leader, peer) else {
            fail!(
                MPI_ERR_RANK,
                "local_leader is {local_leader} of {}, remote_leader {remote_leader} of {}",
                local.size(),
                remote.size()
            );
        };
        self.errhandler_retain(errhandler)?;
        let mut ids = [0; 2];
        if leader == self.rank.world_rank() {
            // The two groups in an order on which both sides agree.
            let both = if self.identity(leader) < self.identity(peer) {
                local.union(remote)
            } else {
                remote.union(local)
            };
            let key = GroupKey::new(self, &both, stringtag, 1);
            let foreign = self.is_foreign(&both);
            ids = [
                self.propose_for(foreign)?,
                self.propose_for(self.is_foreign(local))?,
            ];
            self.send_in_group(peer, &key, &ids[..1]);
            let theirs = self.receive_in_group(peer, &key, 1)?[0];
            ids[0] = ids[0].min(theirs);
        }
        let key = GroupKey::new(self, local, stringtag, 2);
        let ids = self.spread(local, rank, local_leader as u32, &key, &ids)?;
        let parts = |id, inner| Parts {
            id: Some(id),
            rank,
            group: local.clone(),
            remote: None,
            inner,
            topology: None,
        };
        let inner = Arc::new(Comm::new(parts(ids[1], None)));
        let comm = Comm::new(Parts {
            remote: Some(remote.clone()),
            ..parts(ids[0], Some(inner))
        });
        self.add_of_session(comm, session, hints, errhandler)
    }

    fn rank_in(&self, group: &Group, what: &str) -> Result<u32> {
        match group.rank(self.rank.world_rank()) {
            Some(rank) => Ok(rank),
            None => fail!(MPI_ERR_GROUP, "the calling process is not in {what}"),
        }
    }

    fn add_of_session(
        &self,
        comm: Comm,
        session: u32,
        hints: Info,
        errhandler: u32,
    ) -> Result<u32> {
        comm.set_info(hints);
        {
            let mut state = comm.state();
            state.errhandler = errhandler;
            state.session = session;
        }
        self.comm_add(Arc::new(comm))
    }

    /// The words of `root` to all of the group, down a binomial tree.
    fn spread(
        &self,
        group: &Group,
        rank: u32,
        root: u32,
        key: &GroupKey,
        words: &[u32],
    ) -> Result<Vec<u32>> {
        let size = group.size();
        let turned = (rank + size - root) % size;
        let process = |turned: u32| {
            let rank = (turned + root) % size;
            group.process(rank).expect("a rank of the group")
        };
        let mut words = words.to_vec();
        // The bit by which this rank differs from its parent in the tree.
        let mut bit = 1;
        while bit < size && turned & bit == 0 {
            bit <<= 1;
        }
        if turned != 0 {
            words = self.receive_in_group(process(turned - bit), key, words.len())?;
        }
        bit >>= 1;
        while bit > 0 {
            if turned + bit < size {
                self.send_in_group(process(turned + bit), key, &words);
            }
            bit >>= 1;
        }
        Ok(words)
    }

    fn send_in_group(&self, process: u32, key: &GroupKey, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len() as u64;
        let (source, tag) = key.from(self.identity(self.rank.world_rank()));
        let envelope = Envelope {
            context: GROUP_CONTEXT,
            source,
            tag,
        };
        let data = Data::bytes(Mem::from_vec(bytes), length);
        // A process that waits for it finds out by itself that it does not come.
        let _ = self.rank.send(Mode::Standard, &data, process, envelope);
    }

    fn receive_in_group(&self, process: u32, key: &GroupKey, words: usize) -> Result<Vec<u32>> {
        let (source, tag) = key.from(self.identity(process));
        let pattern = Pattern::new(GROUP_CONTEXT, Some(source), Some(tag));
        let mem = Mem::owned(4 * words);
        let data = Data::bytes(mem.clone(), 4 * words as u64);
        if let Some(failed) = self.rank.recv(data, pattern, Some(process)).failed {
            return Err(failure(failed, "the group"));
        }
        Ok(mem.with_bytes(0, 4 * words, |bytes| {
            let word = |w: &[u8]| u32::from_ne_bytes(w.try_into().expect("four bytes"));
            bytes.chunks(4).map(word).collect()
        }))
    }

    /// Whether `MPI_COMM_WORLD` and `MPI_COMM_SELF` may be used.
    #[must_use]
    #[inline]
    pub fn has_world(&self) -> bool {
        self.life.has_world.load(Ordering::Relaxed)
    }

    /// `MPI_Init`: from now on there are `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
    pub fn open_world(&self, thread_level: i32) {
        self.life
            .thread_level
            .store(thread_level, Ordering::Relaxed);
        self.life
            .main_thread
            .store(margay_sys_os::lock::this_thread(), Ordering::Relaxed);
        self.life.has_world.store(true, Ordering::Release);
        self.enter_members(&self.world);
        self.enter_members(&self.own);
    }

    /// The rank does not take part any more, as long as it does not join again.
    pub fn part(&self) {
        self.rank.record_counted();
        let helper = self
            .progress
            .lock()
            .expect("no panic under this lock")
            .take();
        drop(helper);
        self.lock().set_shared();
        self.rank.lock().set_shared();
        self.rank.set_phase(Phase::Finalized);
    }
}

/// Identifies one exchange among the members of a group; see the module.
struct GroupKey(u64);

impl GroupKey {
    fn new(mpi: &Mpi, members: &Group, stringtag: &str, kind: u8) -> GroupKey {
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        stringtag.hash(&mut hasher);
        for process in members.processes() {
            mpi.identity(process).hash(&mut hasher);
        }
        GroupKey(hasher.finish())
    }

    /// Source and tag of messages from that process.
    fn from(&self, identity: (u64, u32)) -> (u32, u32) {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        identity.hash(&mut hasher);
        let hash = hasher.finish();
        ((hash >> 32) as u32, hash as u32)
    }
}
