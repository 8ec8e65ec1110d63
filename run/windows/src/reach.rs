//! The ways to a target's memory: mapped here, or through the system.

use margay_core_datatype::{Cursor, Datatype};
use margay_core_reduce::Op;
use margay_run_engine::{Data, copy};
use margay_sys_os::cma::{self, Peer, Piece};
use margay_sys_os::cpu::Widest;
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::Mem;
use margay_sys_shm::arena;

use super::attach::look_up;
use super::combine::{apply_by, swap};
use super::operation::{Job, Kind, Remote};
use super::{AccessPath, Window, Windows};
use margay_run_mpi::error::*;
use margay_run_mpi::operation::Operand;

/// Bytes that are worked on at a time where they have to be packed.
const PIECE: u64 = 64 << 10;

/// Where the target of one operation lies.
pub(super) enum Reach {
    /// Memory of this process; its base is the displacement.
    Memory(Mem),
    /// Memory of another process at this address.
    Attach(Peer, u64),
    /// Only the target itself gets there.
    Message,
}

impl Windows<'_> {
    /// Returns where `remote`, displaced by `at` bytes, lies, once it is known to be in the window.
    pub(super) fn reach(
        &self,
        window: &Window,
        target: u32,
        at: i64,
        remote: &Remote,
    ) -> Result<Reach> {
        let (low, high) = remote.span();
        let ends = (at.checked_add(low), at.checked_add(high));
        let (Some(first), Some(end)) = ends else {
            return Err(beyond(window, target, remote));
        };
        let part = &window.targets[target as usize];
        if !matches!(part.path, AccessPath::Dynamic) && (first < 0 || end as u64 > part.size) {
            return Err(beyond(window, target, remote));
        }
        Ok(match &part.path {
            AccessPath::Mapped(mem) => Reach::Memory(mem.shifted(at)),
            AccessPath::Attach(_) => Reach::Attach(part.peer, part.base.wrapping_add_signed(at)),
            AccessPath::Message => Reach::Message,
            AccessPath::Dynamic => {
                let bytes = (end - first) as u64;
                return self.reach_attached(window, target, at, (first as u64, bytes));
            }
        })
    }

    fn reach_attached(
        &self,
        window: &Window,
        target: u32,
        at: i64,
        (address, bytes): (u64, u64),
    ) -> Result<Reach> {
        let (Some(segment), Some(_)) = (self.mpi.rank().any_memory(), &window.block) else {
            return Ok(Reach::Message);
        };
        if target == window.rank() {
            let attachments = window.attachments();
            if let Some((mem, base)) = attachments.find(address, bytes) {
                // What others can only ask for must be done where they ask for it, or it would not
                // be atomic.
                if !window.attach && segment.place_of(address as usize, bytes).is_none() {
                    return Ok(Reach::Message);
                }
                let by = (at as u64).wrapping_sub(base) as i64;
                return Ok(Reach::Memory(mem.shifted(by)));
            }
        } else {
            let members = &window.comm.group;
            if let Some(found) = look_up(segment, window, members, target, address, bytes) {
                let by = (at as u64).wrapping_sub(found.address) as i64;
                let view = found
                    .place
                    .and_then(|(owner, offset)| arena::view(segment, owner, offset, found.bytes));
                return Ok(match view {
                    Some(mem) => Reach::Memory(mem.shifted(by)),
                    None if window.attach => {
                        Reach::Attach(window.targets[target as usize].peer, at as u64)
                    }
                    None => Reach::Message,
                });
            }
        }
        Err(unattached(window, target, address, bytes))
    }
}

#[cold]
fn beyond(window: &Window, target: u32, remote: &Remote) -> Error {
    let part = &window.targets[target as usize];
    let (low, high) = remote.span();
    Error::new(
        MPI_ERR_RMA_RANGE,
        format!(
            "bytes {low} to {high} around displacement {} (times {} bytes) are not in the {} bytes of rank {target} of {}",
            remote.disp,
            part.unit,
            part.size,
            window.describe()
        ),
    )
}

#[cold]
pub(super) fn unattached(window: &Window, target: u32, address: u64, bytes: u64) -> Error {
    Error::new(
        MPI_ERR_RMA_RANGE,
        format!(
            "rank {target} has not attached the {bytes} bytes at {address:#x} to {}; displacements in a dynamic window \
             are addresses of the target (MPI_Get_address) in memory that it attached",
            window.describe()
        ),
    )
}

/// An operation that a target refused.
#[cold]
pub(super) fn unattached_at(window: &Window, target: u32) -> Error {
    Error::new(
        MPI_ERR_RMA_RANGE,
        format!(
            "rank {target} has not attached the memory that an operation reaches to {}",
            window.describe()
        ),
    )
}

/// The packed bytes of a target.
pub(super) trait Place {
    /// Copies `len` packed bytes from `position` on to the start of `to`.
    fn load(&self, position: u64, to: &Mem, len: u64) -> Result<()>;
    /// The reverse.
    fn store(&self, position: u64, from: &Mem, len: u64) -> Result<()>;
}

/// Elements in memory of this process.
pub(super) struct Here<'a> {
    pub mem: &'a Mem,
    pub datatype: &'a std::sync::Arc<Datatype>,
}

impl Place for Here<'_> {
    fn load(&self, position: u64, to: &Mem, len: u64) -> Result<()> {
        let place = Data::part(self.mem.clone(), self.datatype, position, len);
        copy(&place, &Data::bytes(to.clone(), len));
        Ok(())
    }

    fn store(&self, position: u64, from: &Mem, len: u64) -> Result<()> {
        let place = Data::part(self.mem.clone(), self.datatype, position, len);
        copy(&Data::bytes(from.clone(), len), &place);
        Ok(())
    }
}

/// Elements in memory of another process.
pub(super) struct There<'a> {
    pub peer: Peer,
    pub address: u64,
    pub remote: &'a Remote,
}

impl There<'_> {
    fn pieces(&self, position: u64, len: u64) -> Vec<Piece> {
        let mut cursor = Cursor::new(self.remote.datatype.flat(), self.remote.count);
        cursor.seek(position);
        let mut pieces = Vec::new();
        let mut left = len;
        while let Some(run) = cursor.next_run(left) {
            left -= run.bytes();
            let first = self.address.wrapping_add_signed(run.offset);
            let block = |i: u64| first.wrapping_add((i as i64).wrapping_mul(run.stride) as u64);
            pieces.extend((0..run.count).map(|i| (block(i), run.block as usize)));
        }
        pieces
    }

    fn refused(&self, error: &std::io::Error) -> Error {
        Error::new(
            MPI_ERR_RMA_RANGE,
            format!(
                "the memory of rank {} at {:#x} (process {}) cannot be reached: {error}",
                self.remote.rank,
                self.address,
                self.peer.pid()
            ),
        )
    }
}

impl Place for There<'_> {
    fn load(&self, position: u64, to: &Mem, len: u64) -> Result<()> {
        let pieces = self.pieces(position, len);
        to.with_bytes_mut(0, len as usize, |to| {
            cma::gather(self.peer.pid(), &pieces, to)
        })
        .map_err(|e| self.refused(&e))
    }

    fn store(&self, position: u64, from: &Mem, len: u64) -> Result<()> {
        let pieces = self.pieces(position, len);
        from.with_bytes(0, len as usize, |from| {
            cma::scatter(self.peer, &pieces, from)
        })
        .map_err(|e| self.refused(&e))
    }
}

/// Does the operation on memory of this process. The caller sees to it that accumulating is atomic.
pub(super) fn on_memory(job: &Job, mem: &Mem, remote: &Remote, sweep: &Sweep) -> Result<()> {
    let place = || Data::typed(mem.clone(), remote.count, &remote.datatype);
    let far = remote.datatype.flat().contiguous(remote.count);
    let len = job.bytes as usize;
    match (job.kind, &job.origin, &job.result) {
        (Kind::Put, Some(origin), _) => match (origin.dense(), far) {
            (Some((from, from_at)), Some(at)) => {
                from.copy_alternating(from_at, mem, at, len, sweep)
            }
            _ => copy(&origin.data(), &place()),
        },
        (Kind::Get, _, Some(result)) => match (result.dense(), far) {
            (Some((to, to_at)), Some(at)) => mem.copy_alternating(at, to, to_at, len, sweep),
            _ => copy(&place(), &result.data()),
        },
        _ => {
            if !combine_dense(job, mem, remote, sweep) {
                let datatype = &remote.datatype;
                in_pieces(job, &Here { mem, datatype })?;
            }
        }
    }
    Ok(())
}

/// Accumulates in place where all operands lie in one piece. Returns false where they do not.
fn combine_dense(job: &Job, mem: &Mem, remote: &Remote, sweep: &Sweep) -> bool {
    let Some(at) = remote.datatype.flat().contiguous(remote.count) else {
        return false;
    };
    let len = job.bytes as usize;
    let result = match &job.result {
        None => None,
        Some(result) => match result.dense() {
            None => return false,
            dense => dense,
        },
    };
    let origin = match &job.origin {
        _ if job.op == Op::NoOp => None,
        None => return false,
        Some(origin) => match origin.dense() {
            None => return false,
            dense => dense,
        },
    };
    if job.kind == Kind::Swap {
        return false;
    }
    if let Some((to, to_at)) = result {
        mem.copy_to(at, to, to_at, len);
    }
    match origin {
        None => {}
        Some((from, from_at)) if job.op == Op::Replace => from.copy_to(from_at, mem, at, len),
        Some((from, from_at)) => mem.with_operands(at, from, from_at, len, |inout, input| {
            apply_by(Widest::alternating(sweep), job.op, job.basic, inout, input);
        }),
    }
    true
}

/// Does the operation on memory of another process. The caller sees to it that accumulating is
/// atomic.
pub(super) fn on_process(job: &Job, peer: Peer, address: u64, remote: &Remote) -> Result<()> {
    let there = There {
        peer,
        address,
        remote,
    };
    let at = remote.datatype.flat().contiguous(remote.count);
    let far = at.map(|at| address.wrapping_add_signed(at));
    let len = job.bytes as usize;
    let done = match (job.kind, far) {
        (Kind::Put, Some(far)) => match job.origin.as_ref().and_then(Operand::dense) {
            Some((mem, at)) => cma::write(peer, far, mem, at, len),
            None => return in_pieces(job, &there),
        },
        (Kind::Get, Some(far)) => match job.result.as_ref().and_then(Operand::dense) {
            Some((mem, at)) => cma::read(peer.pid(), far, mem, at, len),
            None => return in_pieces(job, &there),
        },
        _ => return in_pieces(job, &there),
    };
    done.map_err(|e| there.refused(&e))
}

/// Does the operation piece by piece by way of packed memory.
fn in_pieces(job: &Job, place: &impl Place) -> Result<()> {
    let element = job.basic.size();
    let piece = (PIECE / element * element).min(job.bytes);
    let scratch = Mem::owned(piece as usize);
    let operand = Mem::owned(if job.kind.combines() {
        piece as usize
    } else {
        0
    });
    let sweep = Sweep::new();
    let mut position = 0;
    while position < job.bytes {
        let len = piece.min(job.bytes - position);
        let packed = Data::bytes(scratch.clone(), len);
        if job.kind == Kind::Put {
            if let Some(origin) = &job.origin {
                copy(&origin.part(position, len), &packed);
            }
            place.store(position, &scratch, len)?;
        } else {
            place.load(position, &scratch, len)?;
            if let Some(result) = &job.result {
                copy(&packed, &result.part(position, len));
            }
            if job.kind.combines() && job.op != Op::NoOp {
                if let Some(origin) = &job.origin {
                    copy(
                        &origin.part(position, len),
                        &Data::bytes(operand.clone(), len),
                    );
                }
                combine(job, &scratch, &operand, len as usize, &sweep);
                place.store(position, &scratch, len)?;
            }
        }
        position += len;
    }
    Ok(())
}

fn combine(job: &Job, target: &Mem, operand: &Mem, len: usize, sweep: &Sweep) {
    target.with_operands(0, operand, 0, len, |inout, input| match &job.compare {
        Some(compare) => compare.with_bytes(0, len, |compare| swap(inout, input, compare)),
        None => apply_by(Widest::alternating(sweep), job.op, job.basic, inout, input),
    });
}
