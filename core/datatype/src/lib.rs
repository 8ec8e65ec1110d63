//! MPI datatypes as immutable values.
//!
//! A [`Datatype`] is built from [`Basic`] (predefined) types by the constructors of MPI 5.0,
//! chapter 5, and shared by `Arc`. Its meaning is a *typemap*: a sequence of (basic type, byte
//! displacement) pairs; sizes, bounds and extents follow the formulas of section 5.1.6 literally.
//! What a copier needs is compiled once into a [`Flat`]: a compact nest of strided runs, over which
//! a resumable [`Cursor`] walks any number of elements from any packed byte position.
//!
//! All counts, sizes and displacements are 64 bits wide. Nothing here touches a user's memory:
//! displacements are relative to the address that the user passes as buffer, and
//! [`pack`]/[`unpack`] work on byte slices. All types are `Send + Sync`.
#![forbid(unsafe_code)]

mod array;
mod basic;
mod construct;
mod contents;
mod cursor;
mod datatype;
mod error;
mod flat;
mod layout;
mod order;

pub use basic::{Basic, Class, Repr};
pub use contents::Contents;
pub use cursor::{Cursor, pack, unpack};
pub use datatype::{Arguments, Combiner, Datatype};
pub use error::TypeError;
pub use flat::{Flat, Run};
pub use layout::Bound;
pub use order::{Distribution, Order};
