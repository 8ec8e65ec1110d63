//! MPL, as part of `libmpi_abi`: for each call a function under a name of its own,
//! `margay_mpl_bsend`. `libmpl` gives them their real names, `mpc_bsend` for C and `mp_bsend` for
//! Fortran, and holds the predefined functions of reductions; see `docs/mpl.md`.

mod call;
mod collective;
mod group;
mod message;
mod task;
mod user;
mod utility;
