//! Put, get, accumulate and their kin: checks, and which way they go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_datatype::{Basic, Class, Datatype};
use margay_core_reduce::{self as reduce, Op};
use margay_run_engine::{Pending, ReqId};
use margay_sys_os::cpu::Widest;
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::{Mem, Piece};

use super::combine::{apply_by, swap};
use super::reach::{Reach, element_type, on_memory, on_process};
use super::sync::STORES_IN_ORDER;
use super::{Flavor, Way, Window};
use crate::collective::Operand;
use crate::error::*;
use crate::op;
use crate::request::Active;
use crate::{Mpi, Status, fail};

/// Elements of a target.
#[derive(Clone)]
pub struct Remote {
    /// Rank in the window; `MPI_PROC_NULL` for none.
    pub rank: i32,
    /// Displacement in the target's units.
    pub disp: i64,
    /// How many.
    pub count: u64,
    /// Of which type. The elements' span has been checked to fit 63 bits.
    pub datatype: Arc<Datatype>,
}

/// An operation with the arguments of the origin.
pub enum Access {
    /// `MPI_Put`
    Put(Operand),
    /// `MPI_Get`
    Get(Operand),
    /// `MPI_Accumulate`
    Accumulate(Operand, u32),
    /// `MPI_Get_accumulate` and `MPI_Fetch_and_op`; without origin where the operation is `MPI_NO_OP`.
    Fetch {
        origin: Option<Operand>,
        result: Operand,
        op: u32,
    },
    /// `MPI_Compare_and_swap` of one element.
    Swap {
        new: Operand,
        compare: Mem,
        result: Operand,
    },
}

/// An operation on elements that lie in one piece on both sides.
#[derive(Clone, Copy)]
pub enum Dense {
    Put,
    Get,
    Accumulate(Op, Basic),
    /// As `Accumulate`; where what was there before goes.
    Fetch(Op, Basic, Piece),
    /// What to compare with, and where what was there before goes.
    Swap(Piece, Piece),
}

impl Dense {
    /// Accumulating with this operation to elements of this type, if both are predefined, fit each other and the elements
    /// have no holes.
    #[inline(always)]
    #[must_use]
    pub fn accumulate(op: u32, datatype: u32) -> Option<Dense> {
        op::predefined(op, datatype).map(|(op, basic)| Dense::Accumulate(op, basic))
    }

    /// As [`Dense::accumulate`], fetching what was there before into `result`.
    #[inline]
    #[must_use]
    pub fn fetch(op: u32, datatype: u32, result: Piece) -> Option<Dense> {
        match Dense::accumulate(op, datatype)? {
            Dense::Accumulate(op, basic) => Some(Dense::Fetch(op, basic, result)),
            _ => None,
        }
    }

    /// Swapping an element of this type if it equals the one in `compare`, if the type can be compared.
    #[inline]
    #[must_use]
    pub fn swap(datatype: u32, compare: Piece, result: Piece) -> Option<Dense> {
        let basic = Basic::from_handle(u64::from(datatype))?;
        can_swap(basic).then_some(Dense::Swap(compare, result))
    }
}

/// Whether elements of the type can be compared and swapped.
fn can_swap(basic: Basic) -> bool {
    !matches!(
        basic.class(),
        Class::Float | Class::Complex | Class::Pair | Class::Packed
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
    Accumulate,
    Fetch,
    Swap,
}

impl Kind {
    /// Whether elements are combined, which has to be atomic.
    pub(super) fn combines(self) -> bool {
        !matches!(self, Kind::Put | Kind::Get)
    }
}

/// A checked operation.
pub(super) struct Job {
    pub kind: Kind,
    pub origin: Option<Operand>,
    pub result: Option<Operand>,
    pub compare: Option<Mem>,
    pub op: Op,
    /// What the elements consist of; of no meaning for put and get.
    pub basic: Basic,
    /// Packed bytes.
    pub bytes: u64,
}

impl Remote {
    /// The bytes that the elements reach around the displacement.
    pub(super) fn span(&self) -> (i64, i64) {
        self.datatype
            .flat()
            .span(self.count)
            .expect("checked by the caller")
    }

    fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }
}

/// Longest dense operation that is done while the tables are locked, in bytes.
pub const SHORT: usize = 64 << 10;

impl Mpi {
    /// Does a dense operation at once, or leaves it for its target, where nothing stands in the way: an epoch is open, the
    /// target's memory is mapped, or it has an inbox, and the displacement inside of it. Returns false otherwise; [`Mpi::access`] then tells what is wrong or goes
    /// another way.
    #[inline(always)]
    pub fn access_at_once(
        &self,
        handle: u32,
        dense: Dense,
        near: Piece,
        (rank, disp): (i32, i64),
    ) -> bool {
        let objects = self.objects();
        let Some(window) = objects.windows.get(handle) else {
            return false;
        };
        let Some(target) = window.targets.get(rank as usize) else {
            return false;
        };
        let Some(at) = disp.checked_mul(target.unit) else {
            return false;
        };
        let far = match &target.way {
            Way::Mapped(far) => far,
            Way::Attach(Some(outbox)) if window.is_open(target) && target.has(at, near.size()) => {
                return outbox.post(dense, near, at as u64);
            }
            _ => return false,
        };
        if near.size() > SHORT || !window.is_open(target) || !far.covers(at, near.size()) {
            return false;
        }
        match dense {
            Dense::Put => {
                far.put(at, near, &window.sweep);
                self.unsettled.store(true, Ordering::Relaxed);
            }
            Dense::Get => {
                self.settle();
                far.get(at, near, &window.sweep);
                // Where loads may come in any order, a flush orders them.
                if !STORES_IN_ORDER {
                    self.unsettled.store(true, Ordering::Relaxed);
                }
            }
            Dense::Accumulate(..) | Dense::Fetch(..) | Dense::Swap(..) => {
                let Some(block) = &window.block else {
                    return false;
                };
                let turn = block.accumulate(rank as u32);
                if !turn.enter(window.rank()) {
                    return false;
                }
                combine_at_once(dense, near, far, at, &window.sweep);
                if turn.leave() {
                    self.wake_all(window);
                }
                self.unsettled.store(true, Ordering::Relaxed);
            }
        }
        true
    }

    /// Does an operation, or begins it.
    ///
    /// # Errors
    /// When an argument is invalid, no epoch covers the target, or the target's elements are not in the window.
    pub fn access(&self, handle: u32, access: Access, remote: &Remote) -> Result<()> {
        self.begin_access(handle, access, remote, false).map(drop)
    }

    /// As [`Mpi::access`], with a request.
    ///
    /// # Errors
    /// As [`Mpi::access`], and when there are too many requests.
    pub fn access_request(&self, handle: u32, access: Access, remote: &Remote) -> Result<u32> {
        let active = match self.begin_access(handle, access, remote, true)? {
            None => Active::Done(Status::EMPTY),
            Some(id) => Active::Access(id),
        };
        self.request_add(handle, active)
    }

    fn begin_access(
        &self,
        handle: u32,
        access: Access,
        remote: &Remote,
        promise: bool,
    ) -> Result<Option<ReqId>> {
        self.settle();
        let window = self.window(handle)?;
        let Some(target) = window.target(remote.rank)? else {
            return Ok(None);
        };
        let job = self.job(access, remote)?;
        if !window.is_open(&window.targets[target as usize]) {
            return Err(window.outside(target));
        }
        if job.bytes == 0 {
            return Ok(None);
        }
        let unit = window.targets[target as usize].unit;
        if remote.disp < 0 && window.flavor != Flavor::Dynamic {
            fail!(
                MPI_ERR_DISP,
                "target_disp is {}; it must not be negative",
                remote.disp
            );
        }
        let Some(at) = remote.disp.checked_mul(unit) else {
            fail!(
                MPI_ERR_DISP,
                "target_disp is {} times {unit} bytes, which is beyond 63-bit addresses",
                remote.disp
            );
        };
        match self.reach(&window, target, at, remote)? {
            Reach::Memory(mem) => {
                if job.kind.combines() {
                    self.atomically(&window, target, || {
                        on_memory(&job, &mem, remote, &window.sweep)
                    })??;
                } else {
                    on_memory(&job, &mem, remote, &window.sweep)?;
                }
                self.unsettled.store(true, Ordering::Relaxed);
            }
            Reach::Attach(pid, address) if job.kind.combines() => {
                self.complete_mail(&window, Some(target))?;
                self.atomically(&window, target, || on_process(&job, pid, address, remote))??;
            }
            Reach::Attach(pid, address) => {
                self.complete_mail(&window, Some(target))?;
                on_process(&job, pid, address, remote)?;
            }
            Reach::Message if self.is_dead(&window, target) => {
                return Err(window.lost(target, "and nobody else reaches its memory"));
            }
            Reach::Message => {
                let serving = window.serving.as_ref().expect("made where it is needed");
                return Ok(serving.begin(&self.rank, target, job, (at, remote), promise));
            }
        }
        Ok(None)
    }

    /// Calls `f` while nobody else accumulates to the target.
    ///
    /// # Errors
    /// When a process has died that did.
    pub(super) fn atomically<R>(
        &self,
        window: &Arc<Window>,
        target: u32,
        f: impl FnOnce() -> R,
    ) -> Result<R> {
        let block = window.block.as_ref().expect("memory is within reach");
        let (turn, me) = (block.accumulate(target), window.rank());
        if !turn.enter(me) {
            let _waits = turn.waits();
            self.rank.block(
                |engine| {
                    if turn.enter(me) {
                        return Some(Ok(()));
                    }
                    let holder = window.targets.get(turn.holder()? as usize)?;
                    let lost = engine.is_dead(holder.process);
                    lost.then(|| Err(window.half_done(target, holder.process)))
                },
                |_| Some(Pending::Collective(None, window.comm.collective())),
            )?;
        }
        let result = f();
        if turn.leave() {
            self.wake_all(window);
        }
        Ok(result)
    }

    /// Wakes the window's processes: a lock that some wait for is free.
    #[cold]
    pub(super) fn wake_all(&self, window: &Window) {
        for target in &window.targets {
            self.rank.ring(target.process);
        }
    }

    fn job(&self, access: Access, remote: &Remote) -> Result<Job> {
        let raw = |kind, origin, result| Job {
            kind,
            origin,
            result,
            compare: None,
            op: Op::Replace,
            basic: Basic::Byte,
            bytes: 0,
        };
        let mut job = match access {
            Access::Put(origin) => {
                fits(("origin", origin.bytes()), ("target", remote.bytes()))?;
                let bytes = origin.bytes();
                Job {
                    bytes,
                    ..raw(Kind::Put, Some(origin), None)
                }
            }
            Access::Get(result) => {
                fits(("target", remote.bytes()), ("origin", result.bytes()))?;
                let bytes = remote.bytes();
                Job {
                    bytes,
                    ..raw(Kind::Get, None, Some(result))
                }
            }
            Access::Accumulate(origin, op) => {
                let mut job = raw(Kind::Accumulate, Some(origin), None);
                job.op = self.accumulation(op)?;
                job
            }
            Access::Fetch { origin, result, op } => {
                let mut job = raw(Kind::Fetch, origin, Some(result));
                job.op = self.accumulation(op)?;
                if job.op == Op::NoOp {
                    job.origin = None;
                }
                job
            }
            Access::Swap {
                new,
                compare,
                result,
            } => {
                let mut job = raw(Kind::Swap, Some(new), Some(result));
                job.compare = Some(compare);
                let basic = single(remote)?;
                if !can_swap(basic) {
                    fail!(
                        MPI_ERR_TYPE,
                        "elements of {basic} cannot be compared and swapped; use an integer, logical or byte type"
                    );
                }
                job
            }
        };
        if job.kind.combines() {
            check_elements(&mut job, remote)?;
        }
        Ok(job)
    }

    /// The operation of an accumulation.
    fn accumulation(&self, handle: u32) -> Result<Op> {
        match self.op(handle)? {
            op::Op::Builtin(op) => Ok(op),
            op::Op::User(_) => fail!(
                MPI_ERR_OP,
                "operations of MPI_Op_create cannot accumulate; use a predefined one"
            ),
        }
    }
}

impl Window {
    /// The error of who waits for a process that accumulated to the target when it died.
    #[cold]
    fn half_done(&self, target: u32, process: u32) -> Error {
        Error::new(
            MPIX_ERR_PROC_FAILED,
            format!(
                "process {process} died while it accumulated to the memory of rank {target} of {}, whose elements may be \
                 half done; free the window and make another one of those that live",
                self.describe()
            ),
        )
    }
}

/// Accumulates, fetches or swaps where the target's elements are mapped; the caller sees to it that it is atomic.
#[inline(always)]
fn combine_at_once(dense: Dense, near: Piece, far: &Mem, at: i64, sweep: &Sweep) {
    if let Dense::Fetch(_, _, result) | Dense::Swap(_, result) = dense {
        far.get(at, result, sweep);
    }
    far.with_bytes_mut(at, near.size(), |there| {
        near.with_bytes(|input| match dense {
            Dense::Accumulate(op, basic) | Dense::Fetch(op, basic, _) => {
                apply_by(Widest::to_and_fro(sweep), op, basic, there, input);
            }
            Dense::Swap(compare, _) => compare.with_bytes(|compare| swap(there, input, compare)),
            Dense::Put | Dense::Get => {}
        });
    });
}

/// Checks types and sizes of an accumulation, and enters element type and bytes.
fn check_elements(job: &mut Job, remote: &Remote) -> Result<()> {
    job.bytes = remote.bytes();
    if job.bytes == 0 && job.origin.as_ref().is_none_or(|o| o.bytes() == 0) {
        return Ok(());
    }
    job.basic = element_type("target_datatype", &remote.datatype)?;
    let sides = [("origin", &job.origin), ("result", &job.result)];
    for (name, side) in sides {
        let Some(side) = side else { continue };
        let basic = element_type(name, &side.datatype)?;
        let same = basic.size() == job.basic.size() && basic.repr() == job.basic.repr();
        if side.bytes() > 0 && !same {
            fail!(
                MPI_ERR_TYPE,
                "{name} has elements of {basic}, the target of {}; they must be of the same type",
                job.basic
            );
        }
        if side.bytes() != job.bytes {
            fail!(
                MPI_ERR_TRUNCATE,
                "{name} has {} bytes, the target {}; they must be equally many",
                side.bytes(),
                job.bytes
            );
        }
    }
    if !reduce::is_valid(job.op, job.basic) {
        fail!(
            MPI_ERR_OP,
            "{} is not defined on {}; use a type of the operation's class",
            job.op,
            job.basic
        );
    }
    Ok(())
}

/// The type of a single predefined element.
fn single(remote: &Remote) -> Result<Basic> {
    match remote.datatype.named() {
        Some(basic) => Ok(basic),
        None => fail!(
            MPI_ERR_TYPE,
            "the datatype is a derived one; a single element must be of a predefined type"
        ),
    }
}

/// Checks that the bytes of one side fit the other.
fn fits(from: (&str, u64), to: (&str, u64)) -> Result<()> {
    if from.1 > to.1 {
        fail!(
            MPI_ERR_TRUNCATE,
            "{} has {} bytes, {} has room for {}",
            from.0,
            from.1,
            to.0,
            to.1
        );
    }
    Ok(())
}

/// Refuses a type for `MPI_Fetch_and_op` that is not predefined.
///
/// # Errors
/// When it is a derived type.
pub fn check_single(remote: &Remote) -> Result<()> {
    single(remote).map(drop)
}
