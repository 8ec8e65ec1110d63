//! One-sided operations as values, and the checks of their arguments.

use std::sync::Arc;

use margay_core_datatype::{Basic, Class, Datatype};
use margay_core_reduce::{self as reduce, Op};
use margay_run_mpi::error::*;
use margay_run_mpi::operation::Operand;
use margay_run_mpi::{fail, op};
use margay_sys_os::user::{Mem, Piece};

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
    /// `MPI_Get_accumulate` and `MPI_Fetch_and_op`; without origin where the operation is
    /// `MPI_NO_OP`.
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
    /// Accumulating with this operation to elements of this type, if both are predefined, fit each
    /// other and the elements have no holes.
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

    /// Swapping an element of this type if it equals the one in `compare`, if the type can be
    /// compared.
    #[inline]
    #[must_use]
    pub fn swap(datatype: u32, compare: Piece, result: Piece) -> Option<Dense> {
        let basic = Basic::from_handle(u64::from(datatype))?;
        can_swap(basic).then_some(Dense::Swap(compare, result))
    }
}

/// Whether elements of the type can be compared and swapped.
pub(super) fn can_swap(basic: Basic) -> bool {
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
    /// Returns the bytes that the elements reach around the displacement.
    pub(super) fn span(&self) -> (i64, i64) {
        self.datatype
            .flat()
            .span(self.count)
            .expect("checked by the caller")
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }
}

/// Checks types and sizes of an accumulation, and enters element type and bytes.
pub(super) fn check_elements(job: &mut Job, remote: &Remote) -> Result<()> {
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

/// Returns the type of a single predefined element.
pub(super) fn single(remote: &Remote) -> Result<Basic> {
    match remote.datatype.named() {
        Some(basic) => Ok(basic),
        None => fail!(
            MPI_ERR_TYPE,
            "the datatype is a derived one; a single element must be of a predefined type"
        ),
    }
}

/// Checks that the bytes of one side fit the other.
pub(super) fn fits(from: (&str, u64), to: (&str, u64)) -> Result<()> {
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

/// Returns the error of a type that an accumulation cannot work on.
fn element_type(name: &str, datatype: &Datatype) -> Result<Basic> {
    match datatype.uniform() {
        Some((basic, _)) => Ok(basic),
        None => fail!(
            MPI_ERR_TYPE,
            "{name} consists of several predefined types; accumulating needs one of a single one"
        ),
    }
}
