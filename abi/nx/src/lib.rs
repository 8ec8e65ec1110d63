//! NX, as part of `libmpi_abi`: for each call a function under a name of its own, `margay_nx_csend`
//! and its twin `margay_nx__csend` that returns its errors.
//!
//! NX's rank is MPI's, so NX's functions stand in MPI's library. Their real names, which are words
//! like `load` and `led`, are in the small library `libnx.so`: `cargo xtask stage` prints its
//! source from the definitions here, C and Fortran, and `nx.h` comes from them too. See
//! `docs/nx.md`.

mod call;
mod cop;
mod global;
mod handler;
mod info;
mod message;
mod partition;
mod process;
mod user;
