//! Collective operations on groups: MPI's, with the communicators of MPL.

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_run_engine::{Data, Envelope, Mode, Pattern};
use margay_run_mpi::Operation;
use margay_run_mpi::operation::Root;
use margay_sys_os::user::Mem;

use crate::error::*;
use crate::group::Members;
use crate::{Mpl, deny};

/// How the data of tasks is combined.
pub enum Combine<'a> {
    /// A predefined function, on elements of a type.
    Builtin(Op, Basic),
    /// A function of the program: the third becomes the first with the second.
    User(&'a dyn Fn(&Mem, &Mem, &Mem)),
}

/// Which tasks get a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Getters {
    /// All.
    All,
    /// The one with this rank.
    Root(i32),
    /// Each that of the ranks up to its own.
    Prefix,
}

impl Mpl {
    /// `mpc_sync`
    ///
    /// # Errors
    /// When there is no such group, the tasks do not do the same, or one has died. The same holds
    /// for all operations of this file.
    pub fn sync(&self, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        self.run(&members, Operation::Barrier)
    }

    /// `mpc_bcast`
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn broadcast(&self, mem: Mem, bytes: u64, root: i32, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        let operation = Operation::Bcast {
            data: self.mpi.operand(mem, bytes, Basic::Byte),
            root: root_of(&members, root)?,
        };
        self.run(&members, operation)
    }

    /// `mpc_scatter`: a block of the root's to each.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn scatter(&self, all: Mem, own: Mem, block: u64, root: i32, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        let at = root_of(&members, root)?;
        let is_root = members.comm.rank == root as u32;
        let operation = Operation::Scatter {
            send: is_root.then(|| self.mpi.operand(all, block, Basic::Byte)),
            recv: Some(self.mpi.operand(own, block, Basic::Byte)),
            root: at,
        };
        self.run(&members, operation)
    }

    /// `mpc_gather`: each one's block to the root.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn gather(&self, own: Mem, all: Mem, block: u64, root: i32, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        let at = root_of(&members, root)?;
        let is_root = members.comm.rank == root as u32;
        let operation = Operation::Gather {
            send: Some(self.mpi.operand(own, block, Basic::Byte)),
            recv: is_root.then(|| self.mpi.operand(all, block, Basic::Byte)),
            root: at,
        };
        self.run(&members, operation)
    }

    /// `mpc_concat`: each one's block to all.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn concatenate(&self, own: Mem, all: Mem, block: u64, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        let operation = Operation::Allgather {
            send: Some(self.mpi.operand(own, block, Basic::Byte)),
            recv: self.mpi.operand(all, block, Basic::Byte),
        };
        self.run(&members, operation)
    }

    /// `mpc_index`: a block from each to each.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn index(&self, from: Mem, to: Mem, block: u64, gid: i32) -> Result<()> {
        let members = self.members(gid)?;
        let operation = Operation::Alltoall {
            send: Some(self.mpi.operand(from, block, Basic::Byte)),
            recv: self.mpi.operand(to, block, Basic::Byte),
        };
        self.run(&members, operation)
    }

    /// `mpc_combine`, `mpc_reduce` and `mpc_prefix`: combines `bytes` of each task, in the order of
    /// ranks.
    ///
    /// # Errors
    /// When `bytes` are no whole number of elements, and as [`sync`](Self::sync).
    pub fn combine(
        &self,
        (own, result, bytes): (Mem, Mem, u64),
        how: &Combine<'_>,
        who: Getters,
        gid: i32,
    ) -> Result<()> {
        let members = self.members(gid)?;
        let root = match who {
            Getters::Root(root) => Some(root_of(&members, root)?),
            _ => None,
        };
        let (op, basic) = match *how {
            Combine::User(function) => {
                return self.combine_user(&members, (own, result, bytes), function, who);
            }
            Combine::Builtin(op, basic) => (op, basic),
        };
        if bytes % basic.size() != 0 {
            deny!(
                MPL_ARGUMENT,
                "{bytes} bytes are not a whole number of elements of {} bytes",
                basic.size()
            );
        }
        let what = self.mpi.reduced(op, bytes / basic.size(), basic);
        let send = Some(own);
        let operation = match (who, root) {
            (Getters::Root(rank), Some(root)) => Operation::Reduce {
                send,
                recv: (members.comm.rank == rank as u32).then_some(result),
                what,
                root,
            },
            (Getters::Prefix, _) => Operation::Scan {
                send,
                recv: result,
                what,
            },
            _ => Operation::Allreduce {
                send,
                recv: result,
                what,
            },
        };
        self.run(&members, operation)
    }

    /// With a function of the program: each task that gets a result gathers all and combines it
    /// itself, so the function runs outside of the library and may do what it likes.
    fn combine_user(
        &self,
        members: &Members,
        (own, result, bytes): (Mem, Mem, u64),
        function: &dyn Fn(&Mem, &Mem, &Mem),
        who: Getters,
    ) -> Result<()> {
        let size = bytes as usize;
        let all = Mem::owned(size * members.comm.size() as usize);
        let (send, recv) = (
            self.mpi.operand(own, bytes, Basic::Byte),
            self.mpi.operand(all.clone(), bytes, Basic::Byte),
        );
        let me = members.comm.rank;
        let last = match who {
            Getters::Root(root) => {
                let is_root = me == root as u32;
                let operation = Operation::Gather {
                    send: Some(send),
                    recv: is_root.then_some(recv),
                    root: Root::Rank(root as u32),
                };
                self.run(members, operation)?;
                if !is_root {
                    return Ok(());
                }
                members.comm.size()
            }
            Getters::All | Getters::Prefix => {
                let operation = Operation::Allgather {
                    send: Some(send),
                    recv,
                };
                self.run(members, operation)?;
                if who == Getters::All {
                    members.comm.size()
                } else {
                    me + 1
                }
            }
        };
        let so_far = Mem::owned(size);
        all.copy_to(0, &so_far, 0, size);
        all.copy_to(0, &result, 0, size);
        for rank in 1..last as usize {
            let next = all.shifted((rank * size) as i64);
            function(&so_far, &next, &result);
            result.copy_to(0, &so_far, 0, size);
        }
        Ok(())
    }

    /// `mpc_shift`: each one's bytes to the task `step` ranks further on. Without `periodic`
    /// nothing goes beyond the ends, and a task that gets nothing keeps what it had.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn shift(
        &self,
        from: Mem,
        to: Mem,
        bytes: u64,
        step: i32,
        periodic: bool,
        gid: i32,
    ) -> Result<()> {
        let members = self.members(gid)?;
        let size = i64::from(members.comm.size());
        let rank_at = |distance: i64| {
            let rank = i64::from(members.comm.rank) + distance;
            match periodic {
                true => Some(rank.rem_euclid(size)),
                false => Some(rank).filter(|rank| (0..size).contains(rank)),
            }
        };
        let context = members.comm.point_to_point();
        let process = |rank: i64| members.comm.group.process(rank as u32);
        let receive = rank_at(-i64::from(step)).map(|rank| {
            let pattern = Pattern::new(context, Some(rank as u32), Some(0));
            self.rank
                .irecv(Data::bytes(to, bytes), pattern, process(rank))
        });
        let mut broken = false;
        if let Some(to) = rank_at(i64::from(step)).and_then(process) {
            let envelope = Envelope {
                context,
                source: members.comm.rank,
                tag: 0,
            };
            let data = Data::bytes(from, bytes);
            broken |= self
                .rank
                .send(Mode::Standard, &data, to, envelope)
                .is_some();
        }
        if let Some(id) = receive {
            let outcome = self.rank.wait(id);
            if outcome.truncated.is_some() {
                deny!(MPL_FAULT, "the tasks shift different numbers of bytes");
            }
            broken |= outcome.failed.is_some();
        }
        if broken {
            deny!(MPL_FAULT, "a task of the group {gid} has died");
        }
        Ok(())
    }

    /// Returns how many tasks a group has.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn size_of(&self, gid: i32) -> Result<u32> {
        Ok(self.members(gid)?.comm.size())
    }

    fn run(&self, members: &Members, operation: Operation) -> Result<()> {
        Ok(self.mpi.collective(&members.comm, operation)?)
    }
}

fn root_of(members: &Members, root: i32) -> Result<Root> {
    match u32::try_from(root) {
        Ok(root) if root < members.comm.size() => Ok(Root::Rank(root)),
        _ => deny!(
            MPL_TASK,
            "the root is {root}; the group has the ranks 0 to {}",
            members.comm.size() - 1
        ),
    }
}
