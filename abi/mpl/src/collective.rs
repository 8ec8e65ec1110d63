//! Collective operations.

use std::ffi::c_int;
use std::sync::OnceLock;

use margay_core_datatype::Basic;
use margay_core_reduce::Op;
use margay_run_mpl::Mpl;
use margay_run_mpl::collective::{Combine, Getters};
use margay_run_mpl::deny;
use margay_run_mpl::error::{MPL_ARGUMENT, Result};

use crate::call::{keep_errno_at, mpl};
use crate::user::{Bytes, Claim, Function, Ints, Room};

/// The operations of the predefined functions, in the order of their table.
const OPS: [Op; 7] = [
    Op::Sum,
    Op::Prod,
    Op::Max,
    Op::Min,
    Op::Band,
    Op::Bor,
    Op::Bxor,
];
/// Their types: those of C, then those of Fortran.
const TYPES: [Basic; 10] = [
    Basic::SignedChar,
    Basic::Int,
    Basic::Long,
    Basic::Float,
    Basic::Double,
    Basic::SignedChar,
    Basic::Int,
    Basic::Int,
    Basic::Float,
    Basic::Double,
];

/// The addresses of the predefined functions.
static FUNCTIONS: OnceLock<Vec<usize>> = OnceLock::new();

/// `libmpl` calls this before `main`: where `mperrno` is, and the predefined functions, type by
/// type. A program that was started alone may start itself anew through `poe`.
///
/// # Safety
/// The table has an entry for each of them, and `libmpl` keeps both as long as the process lives.
#[unsafe(export_name = "margay_mpl_start")]
unsafe extern "C" fn start(mperrno: Ints, functions: *const usize) {
    keep_errno_at(mperrno);
    if let Err(error) = margay_run_mpl::poe::start_anew() {
        eprintln!("libmpl: {error}");
        std::process::exit(1);
    }
    FUNCTIONS.get_or_init(|| {
        let count = OPS.len() * TYPES.len();
        // SAFETY: by the caller's promise.
        unsafe { std::slice::from_raw_parts(functions, count) }.to_vec()
    });
}

fn predefined(function: Function) -> Option<(Op, Basic)> {
    let address = function.address();
    let all = FUNCTIONS.get()?.iter();
    let at = all
        .enumerate()
        .find(|(_, known)| **known == address && address != 0)?
        .0;
    Some((OPS[at % OPS.len()], TYPES[at / OPS.len()]))
}

/// # Safety
/// The program vouches for `len` bytes of each operand.
unsafe fn combine(
    mpl: &Mpl,
    (own, result): (Bytes, Room),
    len: usize,
    function: Function,
    who: Getters,
    gid: c_int,
) -> Result<()> {
    // Only tasks that get something need room for it.
    let is_mine = match who {
        Getters::Root(root) => mpl.task_at(root, gid)? == mpl.task(),
        _ => true,
    };
    let room = if is_mine { len } else { 0 };
    // SAFETY: by the caller's promise.
    let (own, result) = unsafe { (own.mem(len)?, result.mem(room)?) };
    let operands = (own, result, len as u64);
    match predefined(function) {
        Some((op, basic)) => mpl.combine(operands, &Combine::Builtin(op, basic), who, gid),
        None => {
            let closure = function.closure(len)?;
            mpl.combine(operands, &Combine::User(&closure), who, gid)
        }
    }
}

/// Returns the bytes of this many blocks.
fn all_blocks(mpl: &Mpl, block: usize, gid: c_int) -> Result<usize> {
    match block.checked_mul(mpl.size_of(gid)? as usize) {
        Some(bytes) => Ok(bytes),
        None => deny!(
            MPL_ARGUMENT,
            "blocks of {block} bytes do not fit into memory"
        ),
    }
}

mpl! {
    /// Waits until all tasks of the group have come.
    fn sync(gid: c_int) |mpl| {
        mpl.sync(gid)
    }

    /// The root's bytes to all.
    fn bcast(buf: Room, msglen: usize, root: c_int, gid: c_int) |mpl| {
        mpl.broadcast(buf.mem(msglen)?, msglen as u64, root, gid)
    }

    /// A block of the root's to each.
    fn scatter(sbuf: Bytes, rbuf: Room, blklen: usize, root: c_int, gid: c_int) |mpl| {
        let is_root = mpl.task_at(root, gid)? == mpl.task();
        let all = if is_root { all_blocks(mpl, blklen, gid)? } else { 0 };
        mpl.scatter(sbuf.mem(all)?, rbuf.mem(blklen)?, blklen as u64, root, gid)
    }

    /// Each task's block to the root.
    fn gather(sbuf: Bytes, rbuf: Room, blklen: usize, root: c_int, gid: c_int) |mpl| {
        let is_root = mpl.task_at(root, gid)? == mpl.task();
        let all = if is_root { all_blocks(mpl, blklen, gid)? } else { 0 };
        mpl.gather(sbuf.mem(blklen)?, rbuf.mem(all)?, blklen as u64, root, gid)
    }

    /// Each task's block to all.
    fn concat(sbuf: Bytes, rbuf: Room, blklen: usize, gid: c_int) |mpl| {
        let all = all_blocks(mpl, blklen, gid)?;
        mpl.concatenate(sbuf.mem(blklen)?, rbuf.mem(all)?, blklen as u64, gid)
    }

    /// A block from each task to each.
    fn index(sbuf: Bytes, rbuf: Room, blklen: usize, gid: c_int) |mpl| {
        let all = all_blocks(mpl, blklen, gid)?;
        mpl.index(sbuf.mem(all)?, rbuf.mem(all)?, blklen as u64, gid)
    }

    /// Combines all tasks' bytes, for all.
    fn combine(sbuf: Bytes, rbuf: Room, msglen: usize, function: Function, gid: c_int) |mpl| {
        combine(mpl, (sbuf, rbuf), msglen, function, Getters::All, gid)
    }

    /// Combines all tasks' bytes, for the root.
    fn reduce(sbuf: Bytes, rbuf: Room, msglen: usize, root: c_int, function: Function, gid: c_int) |mpl| {
        combine(mpl, (sbuf, rbuf), msglen, function, Getters::Root(root), gid)
    }

    /// Combines the bytes of the tasks up to each one.
    fn prefix(sbuf: Bytes, rbuf: Room, msglen: usize, function: Function, gid: c_int) |mpl| {
        combine(mpl, (sbuf, rbuf), msglen, function, Getters::Prefix, gid)
    }

    /// Each task's bytes to the one step ranks further on, round the end when flag is not 0.
    fn shift(sbuf: Bytes, rbuf: Room, msglen: usize, step: c_int, flag: c_int, gid: c_int) |mpl| {
        mpl.shift(sbuf.mem(msglen)?, rbuf.mem(msglen)?, msglen as u64, step, flag != 0, gid)
    }
}
