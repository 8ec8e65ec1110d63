//! What the calls for loops, sections and parallel regions with them have in common: how they pass
//! schedules, reductions and memory.

use margay_core_openmp::schedule::{Kind, Schedule};
use margay_run_openmp::team::Context;
use margay_run_openmp::work::{Loop, ShareOptions};
use margay_sys_threads::reduction_table::ReductionTable;

use margay_abi_omp::runtime::with;

/// In the numbers of schedules that calls pass: must be monotonic.
const MONOTONIC: u64 = 0x8000_0000;

/// The schedule with a number that a call passes: 0 for that of the current task's control
/// variables.
pub(crate) fn decode(number: u64, chunk: i64) -> Schedule {
    match Kind::of((number & !MONOTONIC) as u32) {
        Some(kind) => Schedule {
            monotonic: number & MONOTONIC != 0,
            ..Schedule::new(kind, chunk.max(0) as u64)
        },
        None => with(|context| context.icv.get().schedule),
    }
}

/// Begins a work share with what the longer forms of the calls pass.
///
/// # Safety
/// `reductions` is null or a table of reductions; `memory` is null or holds a size and gets an
/// address.
pub(crate) unsafe fn begin_share(
    context: &Context,
    share: Option<Loop>,
    reductions: *mut usize,
    memory: *mut usize,
    counts: Option<&[u64]>,
) {
    let options = ShareOptions {
        // SAFETY: by the caller's promise.
        memory: unsafe { memory.as_ref() }.copied(),
        // SAFETY: as above.
        reductions: (!reductions.is_null()).then(|| unsafe { ReductionTable::claim(reductions) }),
    };
    if let Some(address) = context.begin_share(share, options, counts) {
        // SAFETY: an address comes only where memory was asked for.
        unsafe { memory.write(address) };
    }
}
