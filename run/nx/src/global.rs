//! Global operations: all nodes of the application take part, the processes that were started with
//! the same type.

use std::sync::Arc;

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_run_mpi::operation::Blocks;
use margay_run_mpi::{Operation, library};
use margay_sys_os::user::Mem;

use crate::error::*;
use crate::{Nx, refuse};

// What stands beside a communicator of a library must be its own.
const _: () = assert!(crate::END <= library::MPL);

impl Nx {
    /// `gsync`: waits until all have come.
    ///
    /// # Errors
    /// When the nodes do not do the same, or one has died. The same holds for all operations of
    /// this file.
    pub fn global_sync(&self) -> Result<()> {
        Ok(self.mpi.collective(self.everybody()?, Operation::Barrier)?)
    }

    /// `gdsum` and all others of its kind: combines `count` elements of every node, in place.
    ///
    /// # Errors
    /// As [`global_sync`](Self::global_sync).
    pub fn global_reduce(&self, op: Op, basic: Basic, mem: Mem, count: u64) -> Result<()> {
        let what = self.mpi.reduced(op, count, basic);
        let operation = Operation::Allreduce {
            send: None,
            recv: mem,
            what,
        };
        Ok(self.mpi.collective(self.everybody()?, operation)?)
    }

    /// `gopf`: combines `x` of every node with a function of the program, in the order of nodes.
    /// `combine` is called with what has come so far and the bytes of the next node.
    ///
    /// # Errors
    /// As [`global_sync`](Self::global_sync).
    pub fn global_combine(&self, x: &Mem, bytes: u64, mut combine: impl FnMut(&Mem)) -> Result<()> {
        let size = bytes as usize;
        let nodes = self.everybody()?.size();
        let all = Mem::owned(size * nodes as usize);
        let operation = Operation::Allgather {
            send: Some(self.mpi.operand(x.clone(), bytes, Basic::Byte)),
            recv: self.mpi.operand(all.clone(), bytes, Basic::Byte),
        };
        self.mpi.collective(self.everybody()?, operation)?;
        all.copy_to(0, x, 0, size);
        for node in 1..nodes as usize {
            combine(&all.shifted((node * size) as i64));
        }
        Ok(())
    }

    /// `gcol`: the bytes of all nodes one after the other, in the order of nodes; how many there
    /// are.
    ///
    /// # Errors
    /// When they are more than `room`, and as [`global_sync`](Self::global_sync).
    pub fn global_collect(&self, x: Mem, bytes: u64, y: Mem, room: u64) -> Result<u64> {
        let own = Mem::from_vec(bytes.to_ne_bytes().to_vec());
        let nodes = self.everybody()?.size() as usize;
        let all = Mem::owned(8 * nodes);
        let operation = Operation::Allgather {
            send: Some(self.mpi.operand(own, 8, Basic::Byte)),
            recv: self.mpi.operand(all.clone(), 8, Basic::Byte),
        };
        self.mpi.collective(self.everybody()?, operation)?;
        let lengths: Vec<u64> = all.with_bytes(0, 8 * nodes, |bytes| {
            let number = |b: &[u8]| u64::from_ne_bytes(b.try_into().expect("eight bytes"));
            bytes.chunks(8).map(number).collect()
        });
        let total: u64 = lengths.iter().sum();
        // All of them learn the lengths, but each has a buffer of its own.
        let short = total > room;
        let y = if short { Mem::owned(total as usize) } else { y };
        self.collect(x, bytes, y, lengths)?;
        if short {
            refuse!(
                EQMSGLONG,
                "the nodes have {total} bytes together, and the buffer {room}"
            );
        }
        Ok(total)
    }

    /// `gcolx`: the same with lengths that everybody knows.
    ///
    /// # Errors
    /// When a length is negative, and as [`global_sync`](Self::global_sync).
    pub fn global_collect_known(&self, x: Mem, y: Mem, lengths: &[i64]) -> Result<()> {
        let mut known = Vec::new();
        for (node, &length) in lengths.iter().enumerate() {
            match u64::try_from(length) {
                Ok(length) => known.push(length),
                Err(_) => refuse!(EQBLEN, "the length for node {node} is {length}"),
            }
        }
        let own = known[self.everybody()?.rank as usize];
        self.collect(x, own, y, known)
    }

    /// Returns how many nodes take part in global operations, and which of them this one is.
    ///
    /// # Errors
    /// As [`global_sync`](Self::global_sync).
    pub fn global_size(&self) -> Result<(usize, usize)> {
        let everybody = self.everybody()?;
        Ok((everybody.size() as usize, everybody.rank as usize))
    }

    fn collect(&self, x: Mem, bytes: u64, y: Mem, counts: Vec<u64>) -> Result<()> {
        let displs = counts
            .iter()
            .scan(0, |at, &count| {
                Some(std::mem::replace(at, *at + count as i64))
            })
            .collect();
        let byte = self.mpi.basic(Basic::Byte);
        let operation = Operation::Allgatherv {
            send: Some(self.mpi.operand(x, bytes, Basic::Byte)),
            recv: Blocks {
                mem: y,
                counts,
                displs,
                datatypes: Arc::from([byte]),
            },
        };
        Ok(self.mpi.collective(self.everybody()?, operation)?)
    }
}
