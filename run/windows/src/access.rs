//! Put, get, accumulate and their kin: checks, and which way they go.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_run_engine::{Pending, ReqId};
use margay_sys_os::cpu::Widest;
use margay_sys_os::sweep::Sweep;
use margay_sys_os::user::{Mem, Piece};

use super::combine::{apply_by, swap};
use super::operation::{Access, Dense, Job, Kind, Remote, can_swap, check_elements, fits, single};
use super::reach::{Reach, on_memory, on_process};
use super::sync::STORES_IN_ORDER;
use super::{AccessPath, Flavor, Window, Windows};
use margay_run_mpi::error::*;
use margay_run_mpi::op;
use margay_run_mpi::{Status, fail};

/// Longest dense operation that is done while the tables are locked, in bytes.
pub const SHORT: usize = 64 << 10;

impl Windows<'_> {
    /// Does a dense operation at once, or leaves it for its target, where that is possible: an
    /// epoch is open, the target's memory is mapped or it has an RMA queue, and the displacement is
    /// inside the memory. Returns false otherwise; [`Windows::access`] then reports the error or
    /// goes another way.
    #[inline(always)]
    pub fn access_at_once(
        self,
        handle: u32,
        dense: Dense,
        near: Piece,
        (rank, disp): (i32, i64),
    ) -> bool {
        // Asked now, while the compiler knows it: `post` takes the operation by its address.
        let (is_put, is_get) = (matches!(dense, Dense::Put), matches!(dense, Dense::Get));
        let looks = dense.looks();
        let windows = self.table();
        let Some(window) = windows.get(handle) else {
            cold_path();
            return false;
        };
        let Some(target) = window.targets.get(rank as usize) else {
            cold_path();
            return false;
        };
        let Some(at) = disp.checked_mul(target.unit) else {
            cold_path();
            return false;
        };
        let far = match &target.path {
            AccessPath::Mapped(far) => far,
            AccessPath::Attach(Some(origin))
                if window.is_open(target) && target.has(at, near.size()) =>
            {
                return origin.post(dense, near, at as u64);
            }
            _ => return false,
        };
        if near.size() > SHORT || !window.is_open(target) {
            return false;
        }
        if looks > 0 {
            window.looks(looks);
        }
        if is_get {
            self.settle();
            // Where loads may come in any order, a flush orders them.
            if !STORES_IN_ORDER {
                self.state.unsettled.store(true, Ordering::Relaxed);
            }
            return far.get(at, near, &window.sweep);
        }
        if is_put {
            self.state.unsettled.store(true, Ordering::Relaxed);
            if far.put(at, near, &window.sweep) {
                // Here and not at the end of the function, where all ways come together.
                drop(windows);
                return true;
            }
            cold_path();
            return false;
        }
        let Some(block) = &window.block else {
            return false;
        };
        let turn = block.accumulate(rank as u32);
        if !far.covers(at, near.size()) || !turn.enter(window.rank()) {
            return false;
        }
        combine_at_once(dense, near, far, at, &window.sweep);
        if turn.leave() {
            self.wake_all(window);
        }
        self.state.unsettled.store(true, Ordering::Relaxed);
        true
    }

    /// Does an operation, or begins it.
    ///
    /// # Errors
    /// When an argument is invalid, no epoch covers the target, or the target's elements are not in
    /// the window.
    pub fn access(&self, handle: u32, access: Access, remote: &Remote) -> Result<()> {
        self.begin_access(handle, access, remote, false).map(drop)
    }

    /// As [`Windows::access`], with a request.
    ///
    /// # Errors
    /// As [`Windows::access`], and when there are too many requests.
    pub fn access_request(&self, handle: u32, access: Access, remote: &Remote) -> Result<u32> {
        match self.begin_access(handle, access, remote, true)? {
            None => self.mpi.request_ended(handle, Status::EMPTY),
            Some(id) => self.mpi.request_access(handle, id),
        }
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
        if !matches!(job.kind, Kind::Put | Kind::Accumulate) {
            window.looks(Dense::Get.looks());
        }
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
                self.state.unsettled.store(true, Ordering::Relaxed);
            }
            Reach::Attach(peer, address) if job.kind.combines() => {
                self.complete_queues(&window, Some(target))?;
                self.atomically(&window, target, || on_process(&job, peer, address, remote))??;
            }
            Reach::Attach(peer, address) => {
                self.complete_queues(&window, Some(target))?;
                on_process(&job, peer, address, remote)?;
            }
            Reach::Message if self.is_dead(&window, target) => {
                return Err(window.lost(target, "and no other process can reach its memory"));
            }
            Reach::Message => {
                let serving = window.serving.as_ref().expect("made where it is needed");
                return Ok(serving.begin(self.mpi.rank(), target, job, (at, remote), promise));
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
            self.mpi.rank().block(
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
    pub(super) fn wake_all(self, window: &Window) {
        for target in &window.targets {
            self.mpi.rank().wake_peer(target.process);
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

    /// Returns the operation of an accumulation.
    fn accumulation(&self, handle: u32) -> Result<Op> {
        match self.mpi.op(handle)? {
            op::Op::Builtin(op) => Ok(op),
            op::Op::User(_) => fail!(
                MPI_ERR_OP,
                "operations of MPI_Op_create cannot accumulate; use a predefined one"
            ),
        }
    }
}

impl Window {
    /// Returns the error of a wait for a process that accumulated to the target when it died.
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

/// Accumulates, fetches or swaps where the target's elements are mapped; the caller sees to it that
/// it is atomic.
#[inline(always)]
fn combine_at_once(dense: Dense, near: Piece, far: &Mem, at: i64, sweep: &Sweep) {
    if let Dense::Fetch(_, _, result) | Dense::Swap(_, result) = dense {
        assert!(far.get(at, result, sweep), "as long as the operand");
    }
    far.with_bytes_mut(at, near.size(), |there| {
        near.with_bytes(|input| match dense {
            Dense::Accumulate(op, basic) | Dense::Fetch(op, basic, _) => {
                apply_by(Widest::alternating(sweep), op, basic, there, input);
            }
            Dense::Swap(compare, _) => compare.with_bytes(|compare| swap(there, input, compare)),
            Dense::Put | Dense::Get => {}
        });
    });
}
