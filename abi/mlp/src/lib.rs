//! MLP's functions in C, under names of Margay's own (`margay_mlp_mlp_barrier`). `cargo xtask
//! stage` prints the source that gives them their names, for C and Fortran, and links both to
//! `libmlp.so.1`; `mlp.h` and `fmlp.h` come from the definitions here, too. See `docs/mlp.md`.
//!
//! The library needs nothing of MPI, and both may be in one process.

mod call;
mod functions;
mod user;
