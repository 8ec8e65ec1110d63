//! LLVM's interface of OpenMP (`__kmpc_*`, `kmp_*`), as part of the library that `abi/gomp` makes:
//! the functions that code compiled by clang, flang and Intel's compilers calls.
//!
//! Names are those of LLVM 19 (`symbols.txt`). The routines `omp_*` are in `abi/omp`; under the
//! version that these programs ask for they are the same functions, but for nested locks.
//!
//! Calls pass the number of the calling thread (`gtid`). It is that of the member's implicit task,
//! so that it is the member's own as long as the region lasts, on whichever thread it runs. What
//! the caller passes is not used: the runtime knows on whose behalf it is called.
#![allow(non_snake_case, non_upper_case_globals)]

mod affinity;
mod atomic;
mod critical;
mod dispatch;
mod locks;
mod memory;
mod microtask;
mod parallel;
mod reduction;
mod static_loops;
mod sync;
mod task;
mod task_data;
mod taskloop;
mod threadprivate;
mod user;

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;

use margay_run_openmp::team::Context;

pub use threadprivate::mark_main_thread;

/// Where a construct is in the program, and its flags: `ident_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Ident {
    reserved: i32,
    flags: i32,
    more: [i32; 2],
    source: *const u8,
}

/// Of `Ident`'s flags: the construct is `sections`; the barrier is that of a work share.
const OF_SECTIONS: i32 = 0x400;
const IMPLICIT_BARRIER: i32 = 0x40;

impl Ident {
    fn is_of_sections(&self) -> bool {
        self.flags & OF_SECTIONS != 0
    }

    fn is_implicit_barrier(&self) -> bool {
        self.flags & IMPLICIT_BARRIER != 0
    }
}

/// The name of a critical construct: `kmp_critical_name`, zeroed words of which the first is used.
pub type CriticalName = [AtomicU32; 8];

/// The number by which a member is known in calls.
#[inline]
fn number(context: &Context) -> i32 {
    context.implicit_number() as i32 - 1
}

/// What no compiled program dereferences.
type Opaque = *mut c_void;
