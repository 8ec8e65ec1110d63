//! Why a datatype could not be built.

use std::fmt;

/// An argument that a datatype constructor refuses. `argument` is the parameter's name in the MPI
/// standard, `index` its position where the parameter is an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeError {
    /// A count or block length below zero (`MPI_ERR_COUNT`).
    NegativeCount {
        argument: &'static str,
        index: Option<usize>,
        value: i64,
    },
    /// An argument outside its range (`MPI_ERR_ARG`).
    Argument {
        argument: &'static str,
        index: Option<usize>,
        value: i64,
        reason: &'static str,
    },
    /// Two array arguments that must have equal lengths have not (`MPI_ERR_ARG`).
    Lengths {
        argument: &'static str,
        expected: usize,
        found: usize,
    },
    /// The datatype would reach beyond 63-bit displacements (`MPI_ERR_ARG`).
    Overflow,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |argument: &str, index: &Option<usize>| match index {
            Some(i) => format!("{argument}[{i}]"),
            None => argument.to_string(),
        };
        match self {
            Self::NegativeCount { argument, index, value } => {
                write!(f, "{} is {value}; it must not be negative", name(argument, index))
            }
            Self::Argument { argument, index, value, reason } => {
                write!(f, "{} is {value}; {reason}", name(argument, index))
            }
            Self::Lengths { argument, expected, found } => {
                write!(f, "{argument} has {found} entries; it must have {expected}")
            }
            Self::Overflow => f.write_str(
                "the datatype would span more than 2^63 bytes; use smaller counts, strides or displacements",
            ),
        }
    }
}

impl std::error::Error for TypeError {}

/// `a * b`, or [`TypeError::Overflow`].
pub(crate) fn mul(a: i64, b: i64) -> Result<i64, TypeError> {
    a.checked_mul(b).ok_or(TypeError::Overflow)
}

/// `a + b`, or [`TypeError::Overflow`].
pub(crate) fn add(a: i64, b: i64) -> Result<i64, TypeError> {
    a.checked_add(b).ok_or(TypeError::Overflow)
}

/// Refuses a negative `value`.
pub(crate) fn count(
    argument: &'static str,
    index: Option<usize>,
    value: i64,
) -> Result<u64, TypeError> {
    u64::try_from(value).map_err(|_| TypeError::NegativeCount {
        argument,
        index,
        value,
    })
}

/// Refuses arrays of different lengths.
pub(crate) fn same_length(
    argument: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), TypeError> {
    if expected == found {
        Ok(())
    } else {
        Err(TypeError::Lengths {
            argument,
            expected,
            found,
        })
    }
}
