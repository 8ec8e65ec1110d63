//! Collective operations: what is asked for, and the schedule that does it.
//!
//! An [`Operation`] holds one process's checked arguments. It becomes a schedule of
//! `core/schedule`, which the engine executes: blocking ([`Mpi::collective`]), with a request
//! ([`Mpi::icollective`]) or again and again ([`Mpi::collective_init`]).

mod direct;
pub(crate) mod hosts;
mod plan;

use std::sync::Arc;

use margay_core_datatype::{Basic, Datatype};
use margay_core_reduce as reduce;
use margay_run_engine::{Collective, Execution, ReqId, combine};
use margay_sys_os::user::Mem;

use crate::active::Active;
use crate::comm::Comm;
use crate::error::*;
use crate::op::{Bound, Op};
use crate::operation::{Elements, Operand, Operation};
use crate::outcome::disagreement;
use crate::start::Start;
use crate::{Mpi, fail};

use plan::{Plan, plan};

impl Mpi {
    /// A blocking collective.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn collective(&self, comm: &Arc<Comm>, operation: Operation) -> Result<()> {
        check(comm, &operation)?;
        self.check_whole(comm)?;
        self.record_collective(comm, &operation);
        if self.collective_direct(comm, &operation)? || self.collective_fast(comm, &operation)? {
            comm.traffic.count_collective(self.rank.lock().is_shared());
            return Ok(());
        }
        if self.collective_by_hosts(comm, &operation)? {
            comm.traffic.count_collective(self.rank.lock().is_shared());
            return Ok(());
        }
        let id = self.start_collective(comm, &operation)?;
        match disagreement(&self.rank.wait(id)) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// The flight recorder learns of a collective operation.
    #[inline]
    fn record_collective(&self, comm: &Comm, operation: &Operation) {
        let root = operation.root().and_then(|root| comm.group.process(root));
        let bytes = operation.own_bytes();
        let recording = &self.rank.monitor().recording;
        recording.collective(comm.collective(), root, comm.group.size(), bytes);
    }

    /// A nonblocking collective: a request.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn icollective(&self, comm: &Arc<Comm>, operation: &Operation) -> Result<u32> {
        check(comm, operation)?;
        self.check_whole(comm)?;
        self.record_collective(comm, operation);
        let at_once = match self.icollective_direct(comm, operation) {
            None => self.icollective_fast(comm, operation)?,
            direct => direct,
        };
        if let Some(active) = at_once {
            comm.traffic.count_collective(self.rank.lock().is_shared());
            return self.request_rooted(comm.handle(), active, operation.root());
        }
        let id = self.start_collective(comm, operation)?;
        let active = Active::Collective(id);
        self.request_rooted(comm.handle(), active, operation.root())
    }

    /// A persistent collective: a request.
    ///
    /// # Errors
    /// When the operation does not fit the communicator.
    pub fn collective_init(&self, comm: &Arc<Comm>, operation: Operation) -> Result<u32> {
        // Errors are reported now rather than at the start.
        check(comm, &operation)?;
        plan(self, comm, &operation)?;
        let start = Start::Collective {
            comm: comm.clone(),
            operation,
            tag: comm.next_tag(),
        };
        self.request_persistent(comm.handle(), start)
    }

    /// Begins a collective.
    pub(crate) fn start_collective(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
    ) -> Result<ReqId> {
        check(comm, operation)?;
        self.check_whole(comm)?;
        // An operation that is refused here must not count: it need not be refused everywhere.
        let plan = plan(self, comm, operation)?;
        let tag = match operation {
            Operation::Leave => Comm::LAST_TAG,
            _ => comm.next_tag(),
        };
        Ok(self.start_plan(comm, plan, tag))
    }

    /// Begins a collective under a given tag.
    pub(crate) fn start_tagged(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
        tag: u32,
    ) -> Result<ReqId> {
        Ok(self.start_plan(comm, plan(self, comm, operation)?, tag))
    }

    fn start_plan(&self, comm: &Comm, plan: Plan, tag: u32) -> ReqId {
        comm.traffic.count_collective(self.rank.lock().is_shared());
        self.rank.icollective(Execution::new(Collective {
            schedule: Arc::new(plan.schedule),
            context: comm.collective(),
            sequence: tag,
            me: comm.rank,
            local: comm.group.clone(),
            remote: comm.remote.clone(),
            send: plan.send,
            recv: plan.recv,
            reduction: plan.reduce,
        }))
    }
}

/// Refuses what one process can see to be wrong about an operation on an intra-communicator.
fn check(comm: &Comm, operation: &Operation) -> Result<()> {
    use Operation as O;
    if comm.is_inter() {
        return Ok(());
    }
    let me = comm.rank;
    match operation {
        O::Gather {
            send: Some(send),
            recv: Some(recv),
            ..
        }
        | O::Scatter {
            send: Some(send),
            recv: Some(recv),
            ..
        }
        | O::Alltoall {
            send: Some(send),
            recv,
        } => same_bytes(send.bytes(), recv.bytes()),
        O::Gatherv {
            send: Some(send),
            recv: Some(recv),
            ..
        } => same_bytes(send.bytes(), recv.bytes_of(me)),
        O::Scatterv {
            send: Some(send),
            recv: Some(recv),
            ..
        } => same_bytes(send.bytes_of(me), recv.bytes()),
        O::Allgather {
            send: Some(send),
            recv,
        } => {
            same_bytes(send.bytes(), recv.bytes())?;
            let own = i64::from(me) * recv.count as i64;
            not_own_block(send, &recv.mem, own, &recv.datatype)
        }
        O::Allgatherv {
            send: Some(send),
            recv,
        } => {
            same_bytes(send.bytes(), recv.bytes_of(me))?;
            not_own_block(
                send,
                &recv.mem,
                recv.displs[me as usize],
                &recv.datatypes[0],
            )
        }
        O::Alltoallv {
            send: Some(send),
            recv,
        }
        | O::Alltoallw {
            send: Some(send),
            recv,
        } => same_bytes(send.bytes_of(me), recv.bytes_of(me)),
        _ => Ok(()),
    }
}

/// What a process sends to itself must be what it receives from itself. Between processes the
/// messages show it.
fn same_bytes(sent: u64, received: u64) -> Result<()> {
    if sent == received {
        return Ok(());
    }
    let class = if sent > received {
        MPI_ERR_TRUNCATE
    } else {
        MPI_ERR_COUNT
    };
    fail!(
        class,
        "this process sends itself {sent} bytes and receives {received} bytes; counts and datatypes must agree"
    )
}

/// Refuses a send buffer that is this rank's block of the receive buffer.
fn not_own_block(send: &Operand, recv: &Mem, start: i64, datatype: &Datatype) -> Result<()> {
    let own = start.wrapping_mul(datatype.extent()) as isize;
    if send.bytes() > 0 && send.mem.address() == recv.address().wrapping_add_signed(own) {
        fail!(
            MPI_ERR_BUFFER,
            "sendbuf is this process's block of recvbuf; pass MPI_IN_PLACE as sendbuf"
        );
    }
    Ok(())
}

impl Mpi {
    /// `MPI_Reduce_local`: `right = left op right`.
    pub fn reduce_local(&self, op: &Bound, left: &Mem, right: &Operand) {
        let (datatype, count) = self.elements_for(&op.op, &right.datatype, right.count);
        combine(&op.reduction(&datatype), left, &right.mem, count);
    }

    /// No elements, where an argument of a collective has no meaning.
    #[must_use]
    pub fn no_operand(&self) -> Operand {
        self.bytes_operand(Mem::empty(), 0)
    }

    /// The same for reductions.
    #[must_use]
    pub fn no_elements(&self) -> Elements {
        let entry = self.basics[(Basic::Byte.handle() - 0x200) as usize].as_ref();
        let entry = entry.expect("every basic type is there");
        Elements {
            count: 0,
            datatype: entry.datatype.clone(),
            op: Bound::new(Op::Builtin(reduce::Op::Bor), entry),
        }
    }

    pub(crate) fn bytes_operand(&self, mem: Mem, length: usize) -> Operand {
        Operand {
            mem,
            count: length as u64,
            datatype: self.basic(Basic::Byte),
        }
    }
}
