//! Global operations, in which all nodes take part.

use std::ffi::c_long;

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_run_nx::Nx;
use margay_run_nx::error::{EQMSGLONG, Result};
use margay_run_nx::refuse;

use crate::call::nx;
use crate::user::{Bytes, Claim, Combine, Longs, Room};

/// In place, on integers of C or Fortran.
///
/// # Safety
/// The program vouches for `n` elements.
unsafe fn integers(nx: &Nx, op: Op, x: Longs, n: c_long) -> Result<()> {
    let basic = if x.size() == 4 {
        Basic::Int
    } else {
        Basic::Long
    };
    // SAFETY: by the caller's promise.
    let (mem, count) = unsafe { x.elements(n) }?;
    nx.global_reduce(op, basic, mem, count)
}

/// # Safety
/// The program vouches for `n` elements.
unsafe fn doubles(nx: &Nx, op: Op, x: Room, n: c_long) -> Result<()> {
    // SAFETY: by the caller's promise.
    let (mem, count) = unsafe { x.elements(n, 8) }?;
    nx.global_reduce(op, Basic::Double, mem, count)
}

/// # Safety
/// The program vouches for `n` elements.
unsafe fn floats(nx: &Nx, op: Op, x: Room, n: c_long) -> Result<()> {
    // SAFETY: by the caller's promise.
    let (mem, count) = unsafe { x.elements(n, 4) }?;
    nx.global_reduce(op, Basic::Float, mem, count)
}

nx! {
    /// Waits until all nodes have come.
    fn gsync() |nx| {
        nx.global_sync()
    }

    /// The bytes of all nodes one after the other, in the order of nodes; ncnt gets how many they
    /// are.
    fn gcol(x: Bytes, xlen: c_long, y: Room, ylen: c_long, ncnt: Longs) |nx| {
        let (x, y) = (x.piece(xlen)?, y.mem(ylen)?);
        let total = nx.global_collect(x.mem(), x.size() as u64, y, ylen as u64)?;
        ncnt.put("ncnt", &[total as c_long])
    }

    /// The same with lengths that every node knows.
    fn gcolx(x: Bytes, xlens: Longs, y: Room) |nx| {
        let (nodes, own) = nx.global_size()?;
        let lengths = xlens.take("xlens", nodes as c_long)?;
        let total = lengths.iter().copied().fold(0, c_long::saturating_add);
        if total == c_long::MAX {
            refuse!(EQMSGLONG, "the lengths are more than there are addresses");
        }
        let (x, y) = (x.piece(lengths[own])?, y.mem(total.max(0))?);
        nx.global_collect_known(x.mem(), y, &lengths)
    }

    /// Combines x of all nodes with a function, which combines its first argument with its second.
    fn gopf(x: Room, xlen: c_long, work: Room, function: Combine) |nx| {
        let combine = function.take()?;
        let (mem, scratch) = (x.mem(xlen)?, work.mem(xlen)?);
        nx.global_combine(&mem, xlen as u64, |next| {
            next.copy_to(0, &scratch, 0, xlen as usize);
            combine(x.address(), work.address());
        })
    }

    /// Sums of doubles, in place, on all nodes.
    fn gdsum(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        doubles(nx, Op::Sum, x, n)
    }

    /// Products of doubles, in place, on all nodes.
    fn gdprod(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        doubles(nx, Op::Prod, x, n)
    }

    /// Maxima of doubles, in place, on all nodes.
    fn gdhigh(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        doubles(nx, Op::Max, x, n)
    }

    /// Minima of doubles, in place, on all nodes.
    fn gdlow(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        doubles(nx, Op::Min, x, n)
    }

    /// Sums of floats, in place, on all nodes.
    fn gssum(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        floats(nx, Op::Sum, x, n)
    }

    /// Products of floats, in place, on all nodes.
    fn gsprod(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        floats(nx, Op::Prod, x, n)
    }

    /// Maxima of floats, in place, on all nodes.
    fn gshigh(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        floats(nx, Op::Max, x, n)
    }

    /// Minima of floats, in place, on all nodes.
    fn gslow(x: Room, n: c_long, work: Room) |nx| {
        let _ = work;
        floats(nx, Op::Min, x, n)
    }

    /// Sums of integers, in place, on all nodes.
    fn gisum(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Sum, x, n)
    }

    /// Products of integers, in place, on all nodes.
    fn giprod(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Prod, x, n)
    }

    /// Maxima of integers, in place, on all nodes.
    fn gihigh(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Max, x, n)
    }

    /// Minima of integers, in place, on all nodes.
    fn gilow(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Min, x, n)
    }

    /// Bits that are set on all nodes.
    fn giand(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Band, x, n)
    }

    /// Bits that are set on any node.
    fn gior(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Bor, x, n)
    }

    /// Bits that are set on an odd number of nodes.
    fn gixor(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Bxor, x, n)
    }

    /// Logical values that are true on all nodes.
    fn gland(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Land, x, n)
    }

    /// Logical values that are true on any node.
    fn glor(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Lor, x, n)
    }

    /// Logical values that are true on an odd number of nodes.
    fn glxor(x: Longs, n: c_long, work: Room) |nx| {
        let _ = work;
        integers(nx, Op::Lxor, x, n)
    }
}
