//! Blocking collectives through shared memory, where the communicator's ranks share some.

use std::sync::Arc;

use margay_core_datatype::Basic;
use margay_core_reduce as reduce;
use margay_run_engine::Data;
use margay_run_engine::node::{Blocks, Cause, Channel, Disagreement, SHORT_BYTES};
use margay_sys_os::user::{Mem, Piece};

use crate::Mpi;
use crate::comm::Comm;
use crate::error::*;
use crate::op::Op;
use crate::operation::{Elements, Operand, Operation, Root};
use crate::outcome::failure;

impl Mpi {
    /// Does the operation through the communicator's channel. Returns false when it has none or the operation is not
    /// one for it; then it goes by schedule, on all ranks alike.
    pub(crate) fn collective_fast(&self, comm: &Arc<Comm>, operation: &Operation) -> Result<bool> {
        use Operation as O;
        let Some(channel) = comm.channel(&self.rank) else {
            return Ok(false);
        };
        let rank = &self.rank;
        let done = match operation {
            O::Barrier => channel.barrier(rank).map(|()| true),
            O::Bcast {
                data,
                root: Root::Rank(root),
            } => channel.bcast(rank, &data.data(), *root),
            O::Reduce {
                send,
                recv,
                what,
                root: Root::Rank(root),
            } => {
                let nowhere = Mem::empty();
                let output = recv.as_ref().unwrap_or(&nowhere);
                let input = send.as_ref().unwrap_or(output);
                self.reduce_fast(channel, what, input, output, Some(*root))
            }
            O::Allreduce { send, recv, what } => {
                let input = send.as_ref().unwrap_or(recv);
                self.reduce_fast(channel, what, input, recv, None)
            }
            O::Allgather { send, recv } => {
                let send = send.as_ref().map(Operand::data);
                channel.allgather(rank, send.as_ref(), recv.blocks())
            }
            O::Alltoall {
                send: Some(send),
                recv,
            } => channel.alltoall(rank, send.blocks(), recv.blocks()),
            _ => return Ok(false),
        };
        done.map_err(error_of)
    }

    /// `MPI_Allreduce` of a few elements of a predefined type by a predefined operation, the usual case on the shortest
    /// way: nothing is looked up but the communicator. None when anything is unusual; then nothing was done, and
    /// [`collective`](Self::collective) does it or says why not.
    #[inline]
    pub fn allreduce_at_once(
        &self,
        comm: u32,
        (op, datatype): (u32, u32),
        input: Piece,
        output: Piece,
    ) -> Option<Result<()>> {
        let op = reduce::Op::from_handle(u64::from(op))?;
        let basic = Basic::from_handle(u64::from(datatype))?;
        if input.size() > SHORT_BYTES || !op.is_collective() || !reduce::is_valid(op, basic) {
            return None;
        }
        let comm = self.comm(comm).ok()?;
        let channel = comm.channel(&self.rank)?;
        let count = input.size() as u64 / basic.size();
        let (input, output) = (input.mem(), output.mem());
        match channel.reduce(&self.rank, (op, basic), count, &input, &output, None) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(disagreement) => Some(Err(error_of(disagreement))),
        }
    }

    fn reduce_fast(
        &self,
        channel: &Channel,
        what: &Elements,
        input: &Mem,
        output: &Mem,
        root: Option<u32>,
    ) -> std::result::Result<bool, Disagreement> {
        let (Op::Builtin(op), Some(basic)) = (&what.op.op, what.datatype.named()) else {
            return Ok(false);
        };
        channel.reduce(&self.rank, (*op, basic), what.count, input, output, root)
    }
}

impl Operand {
    /// As the data of a message.
    pub fn data(&self) -> Data {
        Data::typed(self.mem.clone(), self.count, &self.datatype)
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            mem: &self.mem,
            count: self.count,
            datatype: &self.datatype,
        }
    }
}

fn error_of(disagreement: Disagreement) -> Error {
    let Disagreement {
        rank,
        bytes,
        expected,
        cause,
    } = disagreement;
    match cause {
        None => {}
        Some(Cause::Failed(failed)) => return failure(failed, "the collective operation"),
        Some(Cause::Busy) => {
            return Error::new(
                MPI_ERR_OTHER,
                "another thread of this rank is in a collective operation of the same communicator; order the calls, or \
                 give each thread a duplicate of the communicator",
            );
        }
        Some(Cause::Unreadable) => {
            return Error::new(
                MPI_ERR_OTHER,
                format!(
                    "the memory of rank {rank} could be read before and cannot any more; has it changed its user?"
                ),
            );
        }
    }
    match bytes {
        Some(sent) => {
            let class = if sent > expected {
                MPI_ERR_TRUNCATE
            } else {
                MPI_ERR_COUNT
            };
            Error::new(
                class,
                format!(
                    "rank {rank} takes part with {sent} bytes where this rank expected {expected}; counts and datatypes \
                     must agree on all ranks"
                ),
            )
        }
        None => Error::new(
            MPI_ERR_ROOT,
            format!(
                "rank {rank} is in another collective operation or names another root; all ranks must call the same \
                 operations in the same order with the same root"
            ),
        ),
    }
}
