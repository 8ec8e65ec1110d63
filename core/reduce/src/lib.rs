//! MPI's predefined reduction operations (MPI 5.0, section 6.9.2) on slices of bytes.
//!
//! Elements lie one [`Basic::extent`] apart in native byte order, at any alignment. The loops are
//! written so that the compiler vectorises them for the types that have vector instructions. What
//! the processor lacks is computed in software, rounded to nearest even: binary16 by way of
//! binary32, x87's 80-bit format and binary128 by [`soft`](mod@soft). Integers wrap around. Logical
//! results are 0 and 1. Minimum and maximum with a NaN give the second operand, as `a < b ? a : b`
//! does.
//!
//! Everything here is a pure function of its arguments.
#![forbid(unsafe_code)]

mod half;
mod kernel;
pub mod soft;

use std::fmt;

pub use margay_core_datatype::Basic;
use margay_core_datatype::{Class, Repr};

macro_rules! ops {
    ($($op:ident = $handle:literal, $name:literal;)*) => {
        /// A predefined operation. The discriminant is the value of its handle in the standard ABI.
        /// All of them are commutative and associative up to rounding, except `Replace` and `NoOp`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op { $($op = $handle,)* }

        impl Op {
            /// Every predefined operation, in the order of their handles.
            pub const ALL: &'static [Op] = &[$(Op::$op,)*];

            /// The operation whose handle in the standard ABI has this value.
            pub const fn from_handle(handle: u64) -> Option<Op> {
                match handle { $($handle => Some(Op::$op),)* _ => None }
            }

            /// Name of the constant, "MPI_SUM".
            pub const fn name(self) -> &'static str {
                match self { $(Op::$op => $name,)* }
            }
        }
    };
}

ops! {
    Sum = 0x21, "MPI_SUM";
    Min = 0x22, "MPI_MIN";
    Max = 0x23, "MPI_MAX";
    Prod = 0x24, "MPI_PROD";
    Band = 0x28, "MPI_BAND";
    Bor = 0x29, "MPI_BOR";
    Bxor = 0x2a, "MPI_BXOR";
    Land = 0x30, "MPI_LAND";
    Lor = 0x31, "MPI_LOR";
    Lxor = 0x32, "MPI_LXOR";
    Minloc = 0x38, "MPI_MINLOC";
    Maxloc = 0x39, "MPI_MAXLOC";
    Replace = 0x3c, "MPI_REPLACE";
    NoOp = 0x3d, "MPI_NO_OP";
}

impl Op {
    /// Value of the handle in the standard ABI.
    pub const fn handle(self) -> u64 {
        self as u64
    }

    /// Whether collectives may use it: `Replace` and `NoOp` are for one-sided accumulation only.
    pub const fn is_collective(self) -> bool {
        !matches!(self, Op::Replace | Op::NoOp)
    }

    /// Whether `a op b` equals `b op a`.
    pub const fn is_commutative(self) -> bool {
        self.is_collective()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether `op` is defined on `basic` by the standard's table. Beyond the table, logical operations
/// are accepted on Fortran and multi-language integers, and `MPI_CHAR` counts as an integer
/// (benchmarks that are widely used accumulate it), as with the other implementations. `Replace`
/// and `NoOp` apply to all types.
pub const fn is_valid(op: Op, basic: Basic) -> bool {
    let class = match basic {
        Basic::Char => Class::Integer,
        _ => basic.class(),
    };
    match op {
        Op::Sum | Op::Prod => matches!(class, Class::Integer | Class::Float | Class::Complex),
        Op::Min | Op::Max => matches!(class, Class::Integer | Class::Float),
        Op::Band | Op::Bor | Op::Bxor => matches!(class, Class::Integer | Class::Byte),
        Op::Land | Op::Lor | Op::Lxor => matches!(class, Class::Integer | Class::Logical),
        Op::Minloc | Op::Maxloc => matches!(class, Class::Pair),
        Op::Replace | Op::NoOp => true,
    }
}

/// Why a reduction was refused. Nothing has been written then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceError {
    /// The operation is not defined on the type (`MPI_ERR_OP`).
    Undefined { op: Op, basic: Basic },
    /// A slice has not as many bytes as the others.
    Lengths { expected: usize, found: usize },
    /// A slice does not hold whole elements.
    Partial { bytes: usize, extent: usize },
}

impl fmt::Display for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { op, basic } => write!(
                f,
                "{op} is not defined on {basic}; use a type of the operation's class, or an operation of your own"
            ),
            Self::Lengths { expected, found } => {
                write!(
                    f,
                    "the operands have {expected} and {found} bytes; they must be equally long"
                )
            }
            Self::Partial { bytes, extent } => {
                write!(
                    f,
                    "the operands have {bytes} bytes, which is not a multiple of the element's {extent}"
                )
            }
        }
    }
}

impl std::error::Error for ReduceError {}

/// `inout[i] = input[i] op inout[i]` for each element, in MPI's order of operands. Both slices hold
/// the same number of elements of `basic`, [`Basic::extent`] bytes apart.
pub fn apply(op: Op, basic: Basic, inout: &mut [u8], input: &[u8]) -> Result<(), ReduceError> {
    check(op, basic, inout.len(), &[input.len()])?;
    kernel::run(op, basic, kernel::InPlace { inout, input });
    Ok(())
}

/// As [`apply`], with the instructions that `vectors` stands for. The results are the same, bit by
/// bit.
pub fn apply_with(
    vectors: impl Vectors,
    op: Op,
    basic: Basic,
    inout: &mut [u8],
    input: &[u8],
) -> Result<(), ReduceError> {
    check(op, basic, inout.len(), &[input.len()])?;
    let kernel = kernel::InPlace { inout, input };
    kernel::run(op, basic, kernel::Wide { kernel, vectors });
    Ok(())
}

/// As [`apply`] for a single integer or real number of the usual sizes, the case of counters, on
/// the shortest way. Returns false when it is something else; then nothing was done.
#[inline]
#[must_use]
pub fn apply_to_number(op: Op, basic: Basic, inout: &mut [u8], input: &[u8]) -> bool {
    if !matches!(basic.class(), Class::Integer | Class::Float) {
        return false;
    }
    match basic.repr() {
        Repr::F64 => kernel::number::<f64, 8>(op, inout, input),
        Repr::I64 => kernel::number::<i64, 8>(op, inout, input),
        Repr::U64 => kernel::number::<u64, 8>(op, inout, input),
        Repr::F32 => kernel::number::<f32, 4>(op, inout, input),
        Repr::I32 => kernel::number::<i32, 4>(op, inout, input),
        Repr::U32 => kernel::number::<u32, 4>(op, inout, input),
        _ => false,
    }
}

/// Vector instructions beyond those that every processor of the architecture has. An implementation
/// knows that the processor has them; the code here only offers its loops to be compiled with them.
pub trait Vectors {
    /// Calls `f`, compiled for these instructions where it is inlined. They must not change what
    /// `f` computes.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;

    /// `inout[i] = f(input[i], inout[i])` for all elements of `N` bytes, of which both have equally
    /// many, in any order. `f` is a few instructions without branches, so that it does for a vector
    /// what it does for an element.
    fn map<const N: usize>(
        self,
        inout: &mut [u8],
        input: &[u8],
        f: impl Fn([u8; N], [u8; N]) -> [u8; N],
    ) where
        Self: Sized,
    {
        self.run(
            #[inline(always)]
            || each(inout, input, f),
        );
    }
}

/// `inout[i] = f(input[i], inout[i])` for all elements of `N` bytes, of which both have equally
/// many, one after the other.
#[inline(always)]
pub fn each<const N: usize>(
    inout: &mut [u8],
    input: &[u8],
    f: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (inout, input) = (inout.as_chunks_mut::<N>().0, input.as_chunks::<N>().0);
    for (b, a) in inout.iter_mut().zip(input) {
        *b = f(*a, *b);
    }
}

/// `out[i] = a[i] op b[i]` for each element; as [`apply`] otherwise. (`Replace` gives `a`, `NoOp`
/// gives `b`.)
pub fn combine(
    op: Op,
    basic: Basic,
    out: &mut [u8],
    a: &[u8],
    b: &[u8],
) -> Result<(), ReduceError> {
    check(op, basic, out.len(), &[a.len(), b.len()])?;
    kernel::run(op, basic, kernel::Separate { out, a, b });
    Ok(())
}

fn check(op: Op, basic: Basic, bytes: usize, others: &[usize]) -> Result<(), ReduceError> {
    if !is_valid(op, basic) {
        return Err(ReduceError::Undefined { op, basic });
    }
    if let Some(&found) = others.iter().find(|&&n| n != bytes) {
        return Err(ReduceError::Lengths {
            expected: bytes,
            found,
        });
    }
    let extent = basic.extent() as usize;
    // Extents are powers of two, so that no division is needed.
    if bytes & (extent - 1) != 0 {
        return Err(ReduceError::Partial { bytes, extent });
    }
    Ok(())
}
