//! Recovery from the death of processes (User Level Failure Mitigation): revoking, shrinking,
//! agreeing.
//!
//! Agreements are described in `agreement.rs`; here are their messages. What a dead process sent
//! completely is received before it counts as dead (`Engine::fail`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use margay_core_group::Group;
use margay_run_engine::{
    Data, Engine, Envelope, Failed, Mode, Outcome, Pattern, Pending, ReqId, Task,
};
use margay_sys_os::user::Mem;

use crate::agreement::{self, Agreement, Message};
use crate::comm::{Comm, Parts};
use crate::error::*;
use crate::outcome::failure;
use crate::request::Finish;
use crate::{Mpi, fail};

/// Agreements go in the context of introductions, which have tags of the program, below this.
const AGREEMENTS: u32 = 1 << 31;

/// What is agreed upon.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    /// All contributions, bit by bit and.
    flag: u32,
    /// A number for a new communicator, and one for its inner one.
    numbers: [u32; 2],
    /// For each process whether anybody knows that it has died, and whether all have acknowledged
    /// that.
    failed: Vec<bool>,
    acknowledged: Vec<bool>,
}

impl agreement::Value for Value {
    fn combine(&mut self, other: &Value) {
        self.flag &= other.flag;
        for (mine, theirs) in self.failed.iter_mut().zip(&other.failed) {
            *mine |= theirs;
        }
        for (mine, theirs) in self.acknowledged.iter_mut().zip(&other.acknowledged) {
            *mine &= theirs;
        }
    }

    fn without(&mut self, member: usize) {
        self.failed[member] = true;
    }
}

impl Value {
    fn encode(&self) -> Vec<u8> {
        let words = [self.flag, self.numbers[0], self.numbers[1]];
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let marks = self.failed.iter().zip(&self.acknowledged);
        bytes.extend(marks.map(|(&f, &a)| u8::from(f) | u8::from(a) << 1));
        bytes
    }

    fn decode(bytes: &[u8]) -> Value {
        let word = |i: usize| u32::from_ne_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
        Value {
            flag: word(0),
            numbers: [word(4), word(8)],
            failed: bytes[12..].iter().map(|b| b & 1 != 0).collect(),
            acknowledged: bytes[12..].iter().map(|b| b & 2 != 0).collect(),
        }
    }
}

const CONTRIBUTION: u8 = 0;
const DECISION: u8 = 1;

/// Kind, coordinator, value.
fn encode(message: &Message<Value>) -> Vec<u8> {
    let (kind, by, value) = match message {
        Message::Contribution(value) => (CONTRIBUTION, 0, value),
        Message::Decision(by, value) => (DECISION, *by as u32, value),
    };
    let mut bytes = vec![kind];
    bytes.extend(by.to_ne_bytes());
    bytes.extend(value.encode());
    bytes
}

fn decode(bytes: &[u8]) -> Message<Value> {
    let by = u32::from_ne_bytes(bytes[1..5].try_into().expect("four bytes"));
    let value = Value::decode(&bytes[5..]);
    if bytes[0] == DECISION {
        Message::Decision(by as usize, value)
    } else {
        Message::Contribution(value)
    }
}

/// One agreement at one process, and its messages.
struct Agreeing {
    context: u32,
    tag: u32,
    me: usize,
    processes: Vec<u32>,
    agreement: Agreement<Value>,
    /// Bytes of a message.
    length: usize,
    receives: Vec<Option<(ReqId, Mem)>>,
    sends: Vec<ReqId>,
    result: Arc<Mutex<Option<Value>>>,
}

impl Agreeing {
    /// Takes what has come from a process.
    fn receive(&mut self, engine: &mut Engine, from: usize) {
        while self.agreement.awaits(from) {
            let (id, mem) = self.receives[from].take().unwrap_or_else(|| {
                let mem = Mem::owned(self.length);
                let pattern = Pattern::new(self.context, Some(from as u32), Some(self.tag));
                let data = Data::bytes(mem.clone(), self.length as u64);
                (engine.irecv(data, pattern, Some(self.processes[from])), mem)
            });
            let Some(outcome) = engine.take(id) else {
                self.receives[from] = Some((id, mem));
                return;
            };
            if outcome.failed.is_some() {
                self.agreement.lose(from);
            } else {
                let message = mem.with_bytes(0, self.length, decode);
                self.agreement.receive(from, message);
            }
        }
    }

    fn step(&mut self, engine: &mut Engine) {
        for from in 0..self.processes.len() {
            self.receive(engine, from);
        }
        let envelope = Envelope {
            context: self.context,
            source: self.me as u32,
            tag: self.tag,
        };
        let (processes, sends) = (&self.processes, &mut self.sends);
        self.agreement.step(|to, message| {
            let bytes = encode(&message);
            let length = bytes.len() as u64;
            let data = Data::bytes(Mem::from_vec(bytes), length);
            sends.push(engine.isend(Mode::Standard, data, processes[to], envelope));
        });
        // What was sent may have made more due.
        for from in 0..self.processes.len() {
            self.receive(engine, from);
        }
    }
}

impl Task for Agreeing {
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome> {
        self.step(engine);
        self.sends.retain(|&id| engine.take(id).is_none());
        let value = self.agreement.result()?;
        if !self.sends.is_empty() {
            return None;
        }
        *self.result.lock().expect("no panic under this lock") = Some(value.clone());
        Some(Outcome::default())
    }

    fn pending(&self) -> Pending {
        let peer = (0..self.processes.len()).find(|&rank| self.agreement.awaits(rank));
        Pending::Collective(peer.map(|rank| self.processes[rank]), self.context)
    }
}

/// The result of an agreement that is over.
type Agreed = Arc<Mutex<Option<Value>>>;

impl Mpi {
    /// Tells the engine the members of a communicator, for the case that one of them dies.
    pub(crate) fn enter_members(&self, comm: &Comm) {
        let groups = std::iter::once(&comm.group).chain(comm.remote.as_ref());
        let groups = groups.cloned().collect();
        self.rank.lock().lock().enter_members(comm.id(), groups);
    }

    /// An error if a collective on the communicator cannot be completed.
    pub(crate) fn check_whole(&self, comm: &Comm) -> Result<()> {
        if !self.rank.has_failures() {
            return Ok(());
        }
        let engine = self.rank.lock().lock();
        let groups = std::iter::once(&comm.group).chain(comm.remote.as_ref());
        let mut broken = groups.filter_map(|group| engine.broken(comm.collective(), group));
        match broken.next() {
            None => Ok(()),
            Some(failed) => Err(failure(failed, &comm.describe())),
        }
    }

    /// `MPIX_Comm_revoke`
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_revoke(&self, handle: u32) -> Result<()> {
        let comm = self.comm(handle)?;
        self.enter_members(&comm);
        if let Some(inner) = &comm.inner {
            self.enter_members(inner);
            self.rank.revoke(inner.id());
        }
        self.rank.revoke(comm.id());
        Ok(())
    }

    /// `MPIX_Comm_is_revoked`
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_is_revoked(&self, handle: u32) -> Result<bool> {
        let comm = self.comm(handle)?;
        self.rank.progress();
        Ok(self.rank.lock().lock().is_revoked(comm.collective()))
    }

    /// Returns the processes of a communicator, of both groups in an order on which all agree.
    fn participants(&self, comm: &Comm) -> Vec<u32> {
        match &comm.remote {
            None => comm.group.processes().collect(),
            Some(remote) if self.comes_first(&comm.group, remote) => {
                comm.group.union(remote).processes().collect()
            }
            Some(remote) => remote.union(&comm.group).processes().collect(),
        }
    }

    /// Returns the processes of a communicator that are known to have died.
    fn dead_of(&self, comm: &Comm) -> Vec<u32> {
        self.rank.progress();
        let dead = self.rank.lock().lock().dead();
        let mut all = self.participants(comm);
        all.retain(|p| dead.contains(p));
        all
    }

    /// `MPIX_Comm_get_failed`
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_failed(&self, handle: u32) -> Result<Group> {
        let comm = self.comm(handle)?;
        group_of(self.dead_of(&comm))
    }

    /// `MPIX_Comm_ack_failed`: acknowledges the first `most` of those that `MPIX_Comm_get_failed`
    /// returns; how many of them are acknowledged then.
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_acknowledge(&self, handle: u32, most: usize) -> Result<usize> {
        let comm = self.comm(handle)?;
        let dead = self.dead_of(&comm);
        let mut known = lock(&comm.failures.acknowledged);
        let more: Vec<u32> = dead.iter().copied().take(most).collect();
        for process in more {
            if !known.contains(&process) {
                known.push(process);
            }
        }
        if dead.iter().all(|p| known.contains(p)) {
            self.rank.lock().lock().acknowledge(comm.id());
        }
        Ok(known.len())
    }

    /// `MPIX_Comm_failure_get_acked`
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_acknowledged(&self, handle: u32) -> Result<Group> {
        let comm = self.comm(handle)?;
        let known = lock(&comm.failures.acknowledged).clone();
        group_of(known)
    }

    fn start_agreement(&self, comm: &Comm, flag: u32, numbers: [u32; 2]) -> (ReqId, Agreed) {
        let processes = self.participants(comm);
        let dead = self.dead_of(comm);
        let known = lock(&comm.failures.acknowledged).clone();
        let own = Value {
            flag,
            numbers,
            failed: processes.iter().map(|p| dead.contains(p)).collect(),
            acknowledged: processes.iter().map(|p| known.contains(p)).collect(),
        };
        let me = self.rank.world_rank();
        let result = Agreed::default();
        let position = processes.iter().position(|&p| p == me).expect("a member");
        let task = Agreeing {
            context: comm.introductions(),
            tag: AGREEMENTS | comm.failures.agreements.fetch_add(1, Ordering::Relaxed),
            me: position,
            length: 5 + own.encode().len(),
            receives: processes.iter().map(|_| None).collect(),
            agreement: Agreement::new(position, &own.failed.clone(), own),
            processes,
            sends: Vec::new(),
            result: result.clone(),
        };
        (self.rank.start_task(Box::new(task)), result)
    }

    /// Whether members of the communicator may die and leave the others running; the same for all
    /// of them.
    pub fn may_be_survived(&self, comm: &Comm) -> bool {
        self.spans(comm) || self.rank.peers().is_tolerant()
    }

    /// Returns when all members that live have called this.
    pub fn agree_to_go_on(&self, comm: &Comm) {
        let (id, _) = self.start_agreement(comm, 0, [0; 2]);
        self.rank.wait(id);
    }

    /// `MPIX_Comm_agree`: the flags of all, bit by bit and. There is an error besides when a
    /// process has died and not all have acknowledged that; all get it.
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_agree(&self, handle: u32, flag: i32) -> Result<(i32, Option<Error>)> {
        let comm = self.comm(handle)?;
        let (id, result) = self.start_agreement(&comm, flag as u32, [0; 2]);
        self.rank.wait(id);
        Ok(outcome(&result, &comm.describe()))
    }

    /// `MPIX_Comm_iagree`: a request; `put` gets the result.
    ///
    /// # Errors
    /// When the communicator is invalid or there are too many requests.
    pub fn comm_iagree(
        &self,
        handle: u32,
        flag: i32,
        put: impl FnOnce(i32) + Send + 'static,
    ) -> Result<u32> {
        let comm = self.comm(handle)?;
        let (id, result) = self.start_agreement(&comm, flag as u32, [0; 2]);
        let name = comm.describe();
        let finish = Finish::Call(Box::new(move |_: &Mpi| {
            let (flag, error) = outcome(&result, &name);
            put(flag);
            error
        }));
        self.request_of(handle, vec![id], finish)
    }

    fn start_shrinking(&self, comm: &Comm) -> Result<(ReqId, Agreed)> {
        let foreign = self.spans(comm);
        let numbers = [self.propose_for(foreign)?, self.propose_for(foreign)?];
        Ok(self.start_agreement(comm, u32::MAX, numbers))
    }

    /// `MPIX_Comm_shrink`: a communicator of the live processes.
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_shrink(&self, handle: u32) -> Result<u32> {
        let comm = self.comm(handle)?;
        let (id, result) = self.start_shrinking(&comm)?;
        self.rank.wait(id);
        self.shrunk(&comm, &result)
    }

    /// `MPIX_Comm_ishrink`: a request; `put` gets the handle.
    ///
    /// # Errors
    /// When the communicator is invalid or there are too many requests.
    pub fn comm_ishrink(&self, handle: u32, put: impl FnOnce(u32) + Send + 'static) -> Result<u32> {
        let comm = self.comm(handle)?;
        let (id, result) = self.start_shrinking(&comm)?;
        let finish = Finish::Call(Box::new(move |mpi: &Mpi| {
            match mpi.shrunk(&comm, &result) {
                Ok(new) => {
                    put(new);
                    None
                }
                Err(error) => Some(error),
            }
        }));
        self.request_of(handle, vec![id], finish)
    }

    fn shrunk(&self, comm: &Comm, result: &Agreed) -> Result<u32> {
        let Some(value) = lock(result).clone() else {
            fail!(MPI_ERR_INTERN, "the agreement is not over");
        };
        let all = self.participants(comm);
        let gone: Vec<u32> = (all.iter().zip(&value.failed))
            .filter_map(|(&p, &failed)| failed.then_some(p))
            .collect();
        let gone = group_of(gone)?;
        let rest = |group: &Group| Arc::new(group.difference(&gone));
        let group = rest(&comm.group);
        let Some(remote) = &comm.remote else {
            return self.add_intracomm(comm, value.numbers[0], group, None);
        };
        // Both inner communicators may have the same number: they have no process in common.
        let (number, inner) = (value.numbers[0], value.numbers[1]);
        let remote = rest(remote);
        if remote.size() == 0 {
            let me = self.rank.world_rank();
            let new = Comm::new(Parts {
                id: Some(inner),
                rank: group.rank(me).expect("it lives"),
                group,
                remote: None,
                inner: None,
                topology: None,
            });
            return self.inherit(comm, Arc::new(new));
        }
        self.add_intercomm(comm, (number, inner), group, remote)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}

fn group_of(processes: Vec<u32>) -> Result<Group> {
    Group::from_processes(processes).map_err(|e| Error::new(MPI_ERR_INTERN, e.to_string()))
}

/// Flag and error of an agreement.
fn outcome(result: &Agreed, name: &str) -> (i32, Option<Error>) {
    let Some(value) = lock(result).clone() else {
        return (
            0,
            Some(Error::new(MPI_ERR_INTERN, "the agreement is not over")),
        );
    };
    let mut marks = value.failed.iter().zip(&value.acknowledged);
    let unknown = marks.any(|(&failed, &acknowledged)| failed && !acknowledged);
    let error = unknown.then(|| failure(Failed::Process, name));
    (value.flag as i32, error)
}
