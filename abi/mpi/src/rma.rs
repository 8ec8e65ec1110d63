//! One-sided operations on windows.

use std::ffi::c_int;

use margay_run_mpi::Mpi;
use margay_run_mpi::constants::address::MPI_IN_PLACE;
use margay_run_mpi::constants::op::MPI_NO_OP;
use margay_run_mpi::error::Result;
use margay_run_mpi::operation::Operand;
use margay_run_windows::operation::{Access, Dense, Remote, check_single};
use margay_sys_os::user::Piece;

use crate::call::{Process, mpi};
use crate::convert::{Int, count_of, operand, short, span};
use crate::types::*;
use crate::user::{Buf, ConstBuf, Place};

/// Elements of a buffer as the program names them.
type Elements = (Buf, i64, MPI_Datatype);
/// Elements of a target as the program names them: rank, displacement, count, datatype.
type Far = (c_int, MPI_Aint, i64, MPI_Datatype);

mpi! {
    /// Stores elements at the target.
    count fn MPI_Put(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, win: MPI_Win) |mpi| on win at once {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        at_once(mpi, win, Dense::Put, origin, (target_rank, target_disp, target_count.wide(), target_datatype))
    } {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        else_way(move || mpi.windows().access(win.value(), Access::Put(near(mpi, origin)?), &far(mpi, target)?))
    }

    /// Loads elements from the target.
    count fn MPI_Get(origin_addr: Buf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, win: MPI_Win) |mpi| on win at once {
        let origin = (origin_addr, origin_count.wide(), origin_datatype);
        at_once(mpi, win, Dense::Get, origin, (target_rank, target_disp, target_count.wide(), target_datatype))
    } {
        let origin = (origin_addr, origin_count.wide(), origin_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        else_way(move || mpi.windows().access(win.value(), Access::Get(near(mpi, origin)?), &far(mpi, target)?))
    }

    /// Combines elements with those at the target.
    count fn MPI_Accumulate(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win) |mpi| on win at once {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        Dense::accumulate(op.value(), target_datatype.value()).is_some_and(|dense| {
            origin_datatype == target_datatype && at_once(mpi, win, dense, origin, target)
        })
    } {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        else_way(move || mpi.windows().access(win.value(), accumulate(mpi, origin, op)?, &far(mpi, target)?))
    }

    /// Combines elements with those at the target and gives those that were there before.
    count fn MPI_Get_accumulate(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, result_addr: Buf, result_count: Count, result_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win) |mpi| on win at once {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let result = (result_addr, result_count.wide(), result_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        result.1 == target.2
            && result_datatype == target_datatype
            && elements(result)
                .and_then(|elements| Dense::fetch(op.value(), target_datatype.value(), elements))
                // With MPI_NO_OP the origin has no meaning, whatever it is.
                .is_some_and(|dense| at_once(mpi, win, dense, if op.value() == MPI_NO_OP { result } else { origin }, target))
    } {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let result = (result_addr, result_count.wide(), result_datatype);
        let target = (target_rank, target_disp, target_count.wide(), target_datatype);
        mpi.windows().access(win.value(), fetch(mpi, origin, result, op)?, &far(mpi, target)?)
    }

    /// `MPI_Get_accumulate` of one element of a predefined type.
    fn MPI_Fetch_and_op(origin_addr: ConstBuf, result_addr: Buf, datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, op: MPI_Op, win: MPI_Win) |mpi| on win at once {
        let far_element = (target_rank, target_disp, 1, datatype);
        // With MPI_NO_OP the origin has no meaning, whatever it is.
        let origin = if op.value() == MPI_NO_OP { result_addr } else { origin_addr.buf() };
        elements((result_addr, 1, datatype))
            .and_then(|result| Dense::fetch(op.value(), datatype.value(), result))
            .is_some_and(|dense| at_once(mpi, win, dense, (origin, 1, datatype), far_element))
    } {
        let far_element = (target_rank, target_disp, 1, datatype);
        let target = far(mpi, far_element)?;
        check_single(&target)?;
        let access = fetch(mpi, (origin_addr.buf(), 1, datatype), (result_addr, 1, datatype), op)?;
        mpi.windows().access(win.value(), access, &target)
    }

    /// Replaces one element at the target if it equals another, and gives the one that was there
    /// before.
    fn MPI_Compare_and_swap(origin_addr: ConstBuf, compare_addr: ConstBuf, result_addr: Buf, datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, win: MPI_Win) |mpi| on win at once {
        let far_element = (target_rank, target_disp, 1, datatype);
        let both = elements((result_addr, 1, datatype)).zip(elements((compare_addr.buf(), 1, datatype)));
        both.and_then(|(result, compare)| Dense::swap(datatype.value(), compare, result))
            .is_some_and(|dense| at_once(mpi, win, dense, (origin_addr.buf(), 1, datatype), far_element))
    } {
        let far_element = (target_rank, target_disp, 1, datatype);
        let target = far(mpi, far_element)?;
        let access = Access::Swap {
            new: near(mpi, (origin_addr.buf(), 1, datatype))?,
            compare: operand(mpi, ("compare_addr", "count"), compare_addr.buf(), 1, datatype)?.mem,
            result: operand(mpi, ("result_addr", "count"), result_addr, 1, datatype)?,
        };
        mpi.windows().access(win.value(), access, &target)
    }

    /// `MPI_Put` with a request.
    count fn MPI_Rput(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, win: MPI_Win, request: Place<MPI_Request>) |mpi| on win {
        let access = Access::Put(near(mpi, (origin_addr.buf(), origin_count.wide(), origin_datatype))?);
        let target = far(mpi, (target_rank, target_disp, target_count.wide(), target_datatype))?;
        request.put("request", MPI_Request::new(mpi.windows().access_request(win.value(), access, &target)?))
    }

    /// `MPI_Get` with a request.
    count fn MPI_Rget(origin_addr: Buf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, win: MPI_Win, request: Place<MPI_Request>) |mpi| on win {
        let access = Access::Get(near(mpi, (origin_addr, origin_count.wide(), origin_datatype))?);
        let target = far(mpi, (target_rank, target_disp, target_count.wide(), target_datatype))?;
        request.put("request", MPI_Request::new(mpi.windows().access_request(win.value(), access, &target)?))
    }

    /// `MPI_Accumulate` with a request.
    count fn MPI_Raccumulate(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win, request: Place<MPI_Request>) |mpi| on win {
        let access = accumulate(mpi, (origin_addr.buf(), origin_count.wide(), origin_datatype), op)?;
        let target = far(mpi, (target_rank, target_disp, target_count.wide(), target_datatype))?;
        request.put("request", MPI_Request::new(mpi.windows().access_request(win.value(), access, &target)?))
    }

    /// `MPI_Get_accumulate` with a request.
    count fn MPI_Rget_accumulate(origin_addr: ConstBuf, origin_count: Count, origin_datatype: MPI_Datatype, result_addr: Buf, result_count: Count, result_datatype: MPI_Datatype, target_rank: c_int, target_disp: MPI_Aint, target_count: Count, target_datatype: MPI_Datatype, op: MPI_Op, win: MPI_Win, request: Place<MPI_Request>) |mpi| on win {
        let origin = (origin_addr.buf(), origin_count.wide(), origin_datatype);
        let access = fetch(mpi, origin, (result_addr, result_count.wide(), result_datatype), op)?;
        let target = far(mpi, (target_rank, target_disp, target_count.wide(), target_datatype))?;
        request.put("request", MPI_Request::new(mpi.windows().access_request(win.value(), access, &target)?))
    }
}

/// Does the operation at once if both sides are of predefined types without holes, equally long and
/// short, and nothing else is in the way.
///
/// # Safety
/// The C caller vouches for the origin's elements.
#[inline(always)]
unsafe fn at_once(
    mpi: &Process,
    win: MPI_Win,
    dense: Dense,
    origin: Elements,
    target: Far,
) -> bool {
    let (buf, count, datatype) = origin;
    let (rank, disp, far_count, far_datatype) = target;
    let is_same = datatype == far_datatype && count == far_count;
    match short(count, datatype) {
        Some(bytes)
            if (is_same || short(far_count, far_datatype) == Some(bytes))
                && buf.address() > MPI_IN_PLACE =>
        {
            // SAFETY: by the caller's promise.
            let near = unsafe { buf.piece(bytes) };
            mpi.windows()
                .access_at_once(win.value(), dense, near, (rank, disp.wide()))
        }
        _ => false,
    }
}

/// The memory of a few elements of a predefined type without holes.
///
/// # Safety
/// The C caller vouches for the elements.
unsafe fn elements((buf, count, datatype): Elements) -> Option<Piece> {
    let bytes = short(count, datatype)?;
    // SAFETY: by the caller's promise.
    (buf.address() > MPI_IN_PLACE).then(|| unsafe { buf.piece(bytes) })
}

/// Keeps the slow path apart from the fast one, which needs neither its registers nor its stack.
#[cold]
#[inline(never)]
fn else_way(access: impl FnOnce() -> Result<()>) -> Result<()> {
    access()
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn near(mpi: &Mpi, (buf, count, datatype): Elements) -> Result<Operand> {
    // SAFETY: by the caller's promise.
    unsafe { operand(mpi, ("origin_addr", "origin_count"), buf, count, datatype) }
}

fn far(mpi: &Mpi, (rank, disp, count, datatype): Far) -> Result<Remote> {
    let count = count_of("target_count", count)?;
    let datatype = mpi.committed(datatype.value())?;
    span(("the target", "target_count"), count, &datatype)?;
    Ok(Remote {
        rank,
        disp: disp.wide(),
        count,
        datatype,
    })
}

/// # Safety
/// The C caller vouches for the elements.
unsafe fn accumulate(mpi: &Mpi, origin: Elements, op: MPI_Op) -> Result<Access> {
    // SAFETY: by the caller's promise.
    Ok(Access::Accumulate(
        unsafe { near(mpi, origin) }?,
        op.value(),
    ))
}

/// # Safety
/// The C caller vouches for the elements of both, and those of the origin unless the operation is
/// `MPI_NO_OP`.
unsafe fn fetch(mpi: &Mpi, origin: Elements, result: Elements, op: MPI_Op) -> Result<Access> {
    let (buf, count, datatype) = result;
    Ok(Access::Fetch {
        // With MPI_NO_OP the origin has no meaning, whatever it is.
        origin: match op.value() {
            MPI_NO_OP => None,
            // SAFETY: by the caller's promise.
            _ => Some(unsafe { near(mpi, origin) }?),
        },
        // SAFETY: by the caller's promise.
        result: unsafe { operand(mpi, ("result_addr", "result_count"), buf, count, datatype) }?,
        op: op.value(),
    })
}
