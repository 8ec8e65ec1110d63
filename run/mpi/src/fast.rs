//! Collectives through shared memory, where the communicator's ranks share some.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use margay_core_datatype::Basic;
use margay_core_reduce as reduce;
use margay_run_engine::node::{
    self, Arguments, Cause, Combination, Disagreement, Exchange, Parts, Posted, SHORT_BYTES, Share,
};
use margay_run_engine::{Data, ReqId};
use margay_sys_os::user::{Mem, Piece};

use crate::active::{Active, Deferred};
use crate::comm::Comm;
use crate::error::*;
use crate::op::Op;
use crate::operation::{Blocks, Elements, Operand, Operation, Root};
use crate::outcome::failure;
use crate::{Mpi, Status};

impl Mpi {
    /// Does the operation through the communicator's channel. Returns false when it has none or the
    /// operation is not one for it; then it goes by schedule, on all ranks alike.
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
            } => channel.bcast(rank, data.data(), *root),
            O::Allgather { send, recv } => {
                channel.allgather(rank, send.as_ref().map(Operand::data), recv.blocks())
            }
            O::Allgatherv { send, recv } => match recv.as_parts() {
                Some(parts) => channel.allgatherv(rank, send.as_ref().map(Operand::data), parts),
                None => return Ok(false),
            },
            O::Alltoall {
                send: Some(send),
                recv,
            } => channel.alltoall(rank, send.blocks(), recv.blocks()),
            _ => match exchange(comm, operation) {
                Some(Exchange::Reduce(what, root)) => channel.reduce(rank, what, root),
                Some(Exchange::ReduceScatter(what, share)) => {
                    channel.reduce_scatter(rank, what, share)
                }
                Some(Exchange::Gather {
                    send,
                    recv,
                    bytes,
                    root,
                }) => channel.gather(rank, send, recv, (bytes, root)),
                Some(Exchange::Scatter {
                    send,
                    recv,
                    bytes,
                    root,
                }) => channel.scatter(rank, send, recv, (bytes, root)),
                Some(exchange) => channel.exchange(rank, &exchange),
                None => return Ok(false),
            },
        };
        done.map_err(error_of)
    }

    /// Begins the operation on the communicator's channel for nonblocking ones. None when it is not
    /// one for it; then it goes by schedule, on all ranks alike.
    pub(crate) fn icollective_fast(
        &self,
        comm: &Arc<Comm>,
        operation: &Operation,
    ) -> Result<Option<Active>> {
        let Some(channel) = comm.posting(&self.rank) else {
            return Ok(None);
        };
        let Some(exchange) = exchange(comm, operation) else {
            return Ok(None);
        };
        if exchange.is_message(channel) {
            return Ok(None);
        }
        let is_direct = comm.attaches() && exchange.is_direct(channel);
        if !is_direct && !exchange.fits(channel) {
            return Ok(None);
        }
        let arguments = Box::new(Begun {
            comm: comm.clone(),
            operation: operation.clone(),
        });
        let posted = self
            .rank
            .call(|engine| engine.post(channel, arguments, is_direct));
        Ok(Some(match posted {
            Some(posted) => Active::Deferred(Arc::new(ExchangeRequest(posted))),
            None => Active::Done(Status::EMPTY),
        }))
    }

    /// `MPI_Allreduce` of a few elements of a predefined type by a predefined operation, the usual
    /// case on the shortest way: nothing is looked up but the communicator. None when anything is
    /// unusual; then nothing was done, and [`collective`](Self::collective) does it or says why
    /// not.
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
        let recording = &self.rank.monitor().recording;
        let (ranks, bytes) = (comm.group.size(), input.size() as u64);
        recording.collective(comm.collective(), None, ranks, bytes);
        let count = input.size() as u64 / basic.size();
        let (input, output) = (input.mem(), output.mem());
        let what = Combination {
            op,
            basic,
            count,
            input: &input,
            output: &output,
        };
        match channel.reduce(&self.rank, what, None) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(disagreement) => Some(Err(error_of(disagreement))),
        }
    }
}

/// A nonblocking operation, kept until it ends.
struct Begun {
    comm: Arc<Comm>,
    operation: Operation,
}

impl Arguments for Begun {
    fn exchange(&self) -> Exchange<'_> {
        exchange(&self.comm, &self.operation).expect("it was one when it began")
    }
}

struct ExchangeRequest(Arc<Posted>);

impl Deferred for ExchangeRequest {
    fn id(&self) -> ReqId {
        self.0.id()
    }

    fn take(&self) -> (Status, Option<Error>) {
        (Status::EMPTY, self.0.problem().map(error_of))
    }
}

/// The operation as an exchange through shared memory, if it is one: then it is one on all ranks.
pub(crate) fn exchange<'a>(comm: &Comm, operation: &'a Operation) -> Option<Exchange<'a>> {
    use Operation as O;
    Some(match operation {
        O::Barrier => Exchange::Barrier { is_last: false },
        O::Leave => Exchange::Barrier { is_last: true },
        O::Bcast {
            data,
            root: Root::Rank(root),
        } => Exchange::Bcast {
            data: data.data(),
            root: *root,
        },
        O::Gather {
            send,
            recv,
            root: Root::Rank(root),
        } => Exchange::Gather {
            send: send.as_ref().map(Operand::data),
            recv: recv.as_ref().map(Operand::blocks),
            bytes: block_bytes(send.as_ref(), recv.as_ref()),
            root: *root,
        },
        O::Scatter {
            send,
            recv,
            root: Root::Rank(root),
        } => Exchange::Scatter {
            send: send.as_ref().map(Operand::blocks),
            recv: recv.as_ref().map(Operand::data),
            bytes: block_bytes(recv.as_ref(), send.as_ref()),
            root: *root,
        },
        O::Allgather { send, recv } => Exchange::Allgather {
            send: send.as_ref().map(Operand::data),
            recv: recv.blocks(),
            piece: (0, recv.bytes()),
        },
        O::Allgatherv { send, recv } => Exchange::Allgatherv {
            send: send.as_ref().map(Operand::data),
            recv: recv.as_parts()?,
        },
        O::Alltoall {
            send: Some(send),
            recv,
        } => Exchange::Alltoall {
            send: send.blocks(),
            recv: recv.blocks(),
        },
        O::Reduce {
            send,
            recv,
            what,
            root: Root::Rank(root),
        } => {
            let output = recv.as_ref().unwrap_or(&NOWHERE);
            let input = send.as_ref().unwrap_or(output);
            Exchange::Reduce(combination(what, what.count, input, output)?, Some(*root))
        }
        O::Allreduce { send, recv, what } => {
            let input = send.as_ref().unwrap_or(recv);
            Exchange::Reduce(combination(what, what.count, input, recv)?, None)
        }
        O::ReduceScatterBlock { send, recv, what } => {
            let input = send.as_ref().unwrap_or(recv);
            let total = what.count.checked_mul(comm.size().into())?;
            let share = Share {
                first: what.count * u64::from(comm.rank),
                count: what.count,
                mark: 0,
            };
            Exchange::ReduceScatter(combination(what, total, input, recv)?, share)
        }
        O::ReduceScatter {
            send,
            recv,
            counts,
            what,
        } => {
            let input = send.as_ref().unwrap_or(recv);
            let me = comm.rank as usize;
            let share = Share {
                first: counts[..me].iter().sum(),
                count: counts[me],
                mark: mark_of(counts),
            };
            Exchange::ReduceScatter(combination(what, what.count, input, recv)?, share)
        }
        O::Scan { send, recv, what } => {
            let input = send.as_ref().unwrap_or(recv);
            Exchange::Scan(combination(what, what.count, input, recv)?, true)
        }
        O::Exscan { send, recv, what } => {
            let input = send.as_ref().unwrap_or(recv);
            Exchange::Scan(combination(what, what.count, input, recv)?, false)
        }
        _ => return None,
    })
}

/// No memory, where an argument has no meaning.
static NOWHERE: Mem = Mem::empty();

/// A predefined operation on a predefined type.
fn combination<'a>(
    what: &Elements,
    count: u64,
    input: &'a Mem,
    output: &'a Mem,
) -> Option<Combination<'a>> {
    let (Op::Builtin(op), Some(basic)) = (&what.op.op, what.datatype.named()) else {
        return None;
    };
    Some(Combination {
        op: *op,
        basic,
        count,
        input,
        output,
    })
}

/// Packed bytes of a block of which one side is there.
fn block_bytes(own: Option<&Operand>, all: Option<&Operand>) -> u64 {
    own.or(all).map_or(0, Operand::bytes)
}

/// 24 bits that depend on all counts; 0 when they are equal.
fn mark_of(counts: &[u64]) -> u32 {
    if counts.iter().all(|count| *count == counts[0]) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    counts.hash(&mut hasher);
    (hasher.finish() & 0x7f_ffff) as u32 | 1
}

impl Blocks {
    fn as_parts(&self) -> Option<Parts<'_>> {
        let [datatype] = &self.datatypes[..] else {
            return None;
        };
        Some(Parts {
            mem: &self.mem,
            counts: &self.counts,
            displs: &self.displs,
            datatype,
        })
    }
}

impl Operand {
    /// As the data of a message.
    pub fn data(&self) -> Data {
        Data::typed(self.mem.clone(), self.count, &self.datatype)
    }

    fn blocks(&self) -> node::Blocks<'_> {
        node::Blocks {
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
        Some(Cause::Left) => {
            return Error::new(
                MPI_ERR_OTHER,
                format!(
                    "rank {rank} is in MPI_Finalize, and takes part in nothing any more; all ranks must call the same collective \
                     operations"
                ),
            );
        }
        Some(Cause::Counts) => {
            return Error::new(
                MPI_ERR_COUNT,
                format!(
                    "rank {rank} takes part with other counts than this rank; the counts of a reduce-scatter must be the same on all \
                     ranks"
                ),
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
