//! `libmpi_abi.so.1`: the C symbols of the standard ABI of MPI 5.0.
//!
//! A shim checks and converts its arguments (`user`, `convert`), calls `margay-run-mpi`, and turns
//! an error into a call of the error handler (`call`). Each function is defined once, by the macros
//! of `call`; `mpi.h` and `symbols.txt` are printed from these definitions by `cargo xtask header`.

// NX and MPL need the same rank; their functions have names of Margay's own in this library, and
// `libnx` and `libmpl` give them theirs.
use margay_abi_mpl as _;
use margay_abi_nx as _;

mod attribute;
mod buffer;
mod call;
mod collective;
mod comm;
mod convert;
mod datatype;
mod device;
mod dynamic;
mod env;
mod errhandler;
mod extra_state;
mod file;
mod file_access;
mod file_datarep;
mod group;
mod handles;
mod info;
mod op;
mod pack;
mod partition;
mod point;
mod recover;
mod removed;
mod request;
mod rma;
mod session;
mod tool;
mod tool_control;
mod tool_event;
mod tool_performance;
mod topology;
mod types;
mod user;
mod window;
