//! Reduction operations: the standard's and the program's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_datatype::{Basic, Datatype};
use margay_core_reduce as reduce;
use margay_run_engine as engine;
use margay_run_engine::{Operator, Reduction};
use margay_sys_os::cpu;
use margay_sys_os::user::{Mem, Piece};

use crate::constants::op::MPI_OP_NULL;
use crate::datatype::Type;
use crate::error::*;
use crate::{Mpi, fail};

/// Returns the operation and the element type, if both are predefined, fit each other and the
/// elements have no holes.
#[inline(always)]
pub fn predefined(op: u32, datatype: u32) -> Option<(reduce::Op, Basic)> {
    let op = reduce::Op::from_handle(u64::from(op))?;
    let basic = Basic::from_handle(u64::from(datatype))?;
    let fit = reduce::is_valid(op, basic) && basic.size() == basic.extent();
    fit.then_some((op, basic))
}

/// `inout[i] = input[i] op inout[i]` for elements in one piece, if operation and type are
/// predefined ones that fit each other and the elements have no holes, as they mostly are. Returns
/// false otherwise; then nothing was done.
#[inline]
#[must_use]
pub fn reduce_at_once(op: u32, datatype: u32, input: Piece, inout: Piece) -> bool {
    let Some((op, basic)) = predefined(op, datatype) else {
        return false;
    };
    if matches!(op, reduce::Op::NoOp | reduce::Op::Replace) {
        return false;
    }
    inout.mem().with_bytes_mut(0, inout.size(), |inout| {
        input.with_bytes(|input| {
            reduce::apply_to_number(op, basic, inout, input)
                || cpu::Widest::FORWARDS.apply(op, basic, inout, input).is_ok()
        })
    })
}

/// A reduction function of the program. Called with no lock held, possibly from any call that makes
/// progress.
pub trait Function: Send + Sync {
    /// `inout[i] = input[i] op inout[i]` for `count` elements, `extent` bytes apart, of the
    /// datatype with this handle.
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, extent: i64, datatype: u32);
}

/// What `MPI_Op_create` made.
pub struct UserOp {
    function: Arc<dyn Function>,
    commutes: bool,
}

/// An operation.
#[derive(Clone)]
pub enum Op {
    /// One of the standard's.
    Builtin(reduce::Op),
    /// One of the program's.
    User(Arc<UserOp>),
}

impl Op {
    /// `MPI_Op_commutative`
    #[must_use]
    pub fn commutes(&self) -> bool {
        match self {
            Op::Builtin(op) => op.is_commutative(),
            Op::User(op) => op.commutes,
        }
    }
}

/// An operation for elements of a datatype that the program named by a handle.
#[derive(Clone)]
pub struct Bound {
    /// The operation.
    pub op: Op,
    datatype: u32,
    /// Keeps the handle valid while the operation is under way.
    _hold: Option<Arc<Hold>>,
}

/// Keeps a datatype's handle valid though the program frees it.
struct Hold(Arc<Type>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}

impl Bound {
    /// `op` on elements of `datatype`.
    #[must_use]
    pub fn new(op: Op, datatype: &Arc<Type>) -> Bound {
        // Only functions of the program get to see the handle, and predefined ones are valid for
        // ever.
        let hold = (matches!(op, Op::User(_)) && datatype.is_user()).then(|| {
            datatype.users.fetch_add(1, Ordering::Relaxed);
            Arc::new(Hold(datatype.clone()))
        });
        Bound {
            op,
            datatype: datatype.handle(),
            _hold: hold,
        }
    }

    /// In the form that the engine executes.
    pub(crate) fn reduction(&self, datatype: &Arc<Datatype>) -> Reduction {
        let operator = match (&self.op, datatype.named()) {
            (Op::Builtin(op), Some(basic)) => Operator::Builtin(*op, basic),
            // A type without data is never combined.
            _ => Operator::User(Arc::new(self.clone())),
        };
        Reduction {
            operator,
            datatype: datatype.clone(),
        }
    }
}

impl engine::UserOp for Bound {
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, datatype: &Arc<Datatype>) {
        if let Op::User(op) = &self.op {
            let extent = datatype.extent();
            op.function
                .apply(input, inout, count, extent, self.datatype);
        }
    }
}

impl Mpi {
    /// Returns the operation of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn op(&self, handle: u32) -> Result<Op> {
        if let Some(op) = reduce::Op::from_handle(u64::from(handle)) {
            return Ok(Op::Builtin(op));
        }
        match self.objects().ops.get(handle) {
            Some(op) => Ok(Op::User(op.clone())),
            None if handle == MPI_OP_NULL => fail!(MPI_ERR_OP, "the operation is MPI_OP_NULL"),
            None => fail!(MPI_ERR_OP, "{handle:#x} is not an operation; was it freed?"),
        }
    }

    /// Returns the operation of a handle for a reduction of elements of `datatype`.
    ///
    /// # Errors
    /// When there is none, it is not for collectives, or it is not defined on the datatype.
    pub fn op_for(&self, handle: u32, datatype: &Datatype) -> Result<Op> {
        let op = self.op(handle)?;
        if let Op::Builtin(builtin) = &op {
            if !builtin.is_collective() {
                fail!(
                    MPI_ERR_OP,
                    "{builtin} is for one-sided communication only; use another operation"
                );
            }
            // The standard demands a predefined type; a dense one of several elements of it means
            // the same.
            match datatype.uniform() {
                Some(_) if datatype.named().is_none() && !is_dense(datatype) => fail!(
                    MPI_ERR_OP,
                    "{builtin} is not defined on a derived datatype with gaps; use MPI_Op_create"
                ),
                Some((basic, _)) if reduce::is_valid(*builtin, basic) => {}
                Some((basic, _)) => fail!(
                    MPI_ERR_OP,
                    "{builtin} is not defined on {basic}; use a type of the operation's class or MPI_Op_create"
                ),
                None if datatype.size() == 0 => {}
                None => fail!(
                    MPI_ERR_OP,
                    "{builtin} is not defined on a datatype of several basic types; use MPI_Op_create"
                ),
            }
        }
        Ok(op)
    }

    /// `count` elements of `datatype` for `op`: predefined operations get the elements of a derived
    /// type one by one.
    #[must_use]
    pub fn elements_for(
        &self,
        op: &Op,
        datatype: &Arc<Datatype>,
        count: u64,
    ) -> (Arc<Datatype>, u64) {
        match (op, datatype.named(), datatype.uniform()) {
            (Op::Builtin(_), None, Some((basic, n))) => (self.basic(basic), count * n),
            _ => (datatype.clone(), count),
        }
    }

    /// `MPI_Op_create`
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn op_create(&self, function: Arc<dyn Function>, commutes: bool) -> Result<u32> {
        let op = Arc::new(UserOp { function, commutes });
        self.objects().ops.insert(op).ok_or_else(|| {
            Error::new(
                MPI_ERR_OTHER,
                "a million operations exist; free some with MPI_Op_free",
            )
        })
    }

    /// `MPI_Op_free`: operations under way keep it.
    ///
    /// # Errors
    /// When the handle is invalid or predefined.
    pub fn op_free(&self, handle: u32) -> Result<()> {
        if let Op::Builtin(op) = self.op(handle)? {
            fail!(MPI_ERR_OP, "{op} is predefined; it cannot be freed");
        }
        self.objects().ops.remove(handle);
        Ok(())
    }
}

/// Whether the elements of a derived type follow each other without gaps from the buffer's address
/// on.
fn is_dense(datatype: &Datatype) -> bool {
    datatype.is_contiguous(2) && datatype.true_lb() == 0
}
