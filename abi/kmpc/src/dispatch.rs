//! Loops whose iterations members take as they come, sections, doacross loops.

use std::ffi::c_int;

use margay_abi_omp::runtime::with;
use margay_abi_omp::tools::mutex;
use margay_core_openmp::doacross::Dimension;
use margay_core_openmp::schedule::{Iterations, Kind, Schedule};
use margay_core_openmp::static_loop::{Bounds, StaticCut};
use margay_core_openmp::tools::Work;
use margay_run_openmp::icv::UNSET_SCHEDULE;
use margay_run_openmp::team::Context;
use margay_run_openmp::work::{Chunk, Loop, ShareOptions};

use crate::Ident;
use crate::static_loops::{MODIFIERS, as_team};

const MONOTONIC: i32 = 1 << 29;
/// Numbers of schedules: those of ordered loops are larger by 32, those for one member by 128.
const NO_MERGE: i32 = 128;
const ORDERED: i32 = 32;
const FIRST_ORDERED: i32 = 65;

/// The schedule of the current task's control variables.
pub(crate) fn of_runtime(context: &Context) -> Schedule {
    match context.icv.get().schedule {
        UNSET_SCHEDULE => Schedule::new(Kind::Static, 0),
        said => said,
    }
}

/// A schedule for loops of vectors, whose chunks have multiples of `width` iterations.
fn with_vectors(
    context: &Context,
    iterations: Iterations,
    schedule: Schedule,
    width: u64,
) -> Schedule {
    let is_balanced = schedule.kind == Kind::Static && schedule.chunk == 0;
    if is_balanced || schedule.kind == Kind::Auto {
        let block = iterations.count.div_ceil(u64::from(context.team.size));
        let whole = block.max(1).checked_next_multiple_of(width);
        return Schedule::new(Kind::Static, whole.unwrap_or(block));
    }
    Schedule {
        chunk: schedule.chunk.max(1).saturating_mul(width),
        whole_chunks: true,
        ..schedule
    }
}

/// The schedule with a number of LLVM's, and whether the loop is ordered.
fn schedule(
    context: &Context,
    iterations: Iterations,
    number: i32,
    chunk: i64,
) -> (Schedule, bool) {
    let mut kind = number & !MODIFIERS;
    if kind > NO_MERGE {
        kind -= NO_MERGE;
    }
    let is_ordered = kind >= FIRST_ORDERED;
    if is_ordered {
        kind -= ORDERED;
    }
    let chunk = chunk.max(0) as u64;
    let vectors = |schedule| with_vectors(context, iterations, schedule, chunk.max(1));
    let chosen = match kind {
        33 => Schedule::new(Kind::Static, chunk.max(1)),
        34 | 40 | 41 => Schedule::new(Kind::Static, 0),
        36 | 42 | 43 => Schedule::new(Kind::Guided, chunk),
        37 => of_runtime(context),
        39 => Schedule::new(Kind::Trapezoidal, chunk),
        45 => vectors(Schedule::new(Kind::Static, 0)),
        46 => vectors(Schedule::new(Kind::Guided, 1)),
        47 => vectors(of_runtime(context)),
        38 => Schedule::new(Kind::Auto, 0),
        _ => Schedule::new(Kind::Dynamic, chunk.max(1)),
    };
    let monotonic = chosen.monotonic || number & MONOTONIC != 0;
    (
        Schedule {
            monotonic,
            ..chosen
        },
        is_ordered,
    )
}

fn begin(bounds: Bounds, number: i32, chunk: i64) {
    with(|context| {
        let iterations = bounds.iterations();
        let (schedule, is_ordered) = schedule(context, iterations, number, chunk);
        let share = Loop {
            iterations,
            schedule,
            is_ordered,
        };
        context.begin_share(Some(share), ShareOptions::default(), None);
        context.tell_work(Work::Loop);
    });
}

/// The part of the team of a league: whether it has the last iteration, and its bounds.
fn of_team(bounds: Bounds) -> (bool, Bounds) {
    let (team, teams) = with(as_team);
    match bounds.part(StaticCut::Blocks, team, teams) {
        Some(part) => (part.has_last, bounds.between(part.lower, part.upper)),
        None => (false, bounds),
    }
}

/// The next iterations; the loop is over when there are none.
#[inline]
fn next() -> Option<Chunk> {
    with(|context| {
        let next = context.next_inclusive();
        if next.is_none() {
            context.end_share();
        }
        next
    })
}

macro_rules! dispatched {
    ($($of:ty, $signed:ty, $is_signed:literal, $init:ident $distribute:ident $next:ident $fini:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $init(
            _: *const Ident, _: c_int, schedule: i32, lower: $of, upper: $of, step: $signed, chunk: $signed,
        ) {
            let bounds =
                Bounds { lower: lower as i64, upper: upper as i64, step: step as i64, is_signed: $is_signed };
            begin(bounds, schedule, chunk as i64);
        }

        /// # Safety
        /// `last` is null or can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $distribute(
            _: *const Ident, _: c_int, schedule: i32, last: *mut i32, lower: $of, upper: $of, step: $signed,
            chunk: $signed,
        ) {
            let bounds =
                Bounds { lower: lower as i64, upper: upper as i64, step: step as i64, is_signed: $is_signed };
            let (has_last, bounds) = of_team(bounds);
            if !last.is_null() {
                // SAFETY: by the caller's promise.
                unsafe { last.write(i32::from(has_last)) };
            }
            begin(bounds, schedule, chunk as i64);
        }

        /// # Safety
        /// The places can be written; `last` and `step` may be null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $next(
            _: *const Ident, _: c_int, last: *mut i32, lower: *mut $of, upper: *mut $of, step: *mut $signed,
        ) -> c_int {
            let Some(chunk) = next() else { return 0 };
            // SAFETY: by the caller's promise.
            unsafe {
                lower.write(chunk.first as $of);
                upper.write(chunk.last as $of);
                if !last.is_null() {
                    last.write(i32::from(chunk.is_end));
                }
                if !step.is_null() {
                    step.write(chunk.step as $signed);
                }
            }
            1
        }

        /// An iteration of an ordered loop is over. The turn passes on with the member's chunk.
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $fini(_: *const Ident, _: c_int) {}
    )*};
}

dispatched! {
    i32, i32, true, __kmpc_dispatch_init_4 __kmpc_dist_dispatch_init_4 __kmpc_dispatch_next_4 __kmpc_dispatch_fini_4;
    u32, i32, false, __kmpc_dispatch_init_4u __kmpc_dist_dispatch_init_4u __kmpc_dispatch_next_4u __kmpc_dispatch_fini_4u;
    i64, i64, true, __kmpc_dispatch_init_8 __kmpc_dist_dispatch_init_8 __kmpc_dispatch_next_8 __kmpc_dispatch_fini_8;
    u64, i64, false, __kmpc_dispatch_init_8u __kmpc_dist_dispatch_init_8u __kmpc_dispatch_next_8u __kmpc_dispatch_fini_8u;
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_dispatch_deinit(_: *const Ident, _: c_int) {}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_sections_init(_: *const Ident, _: c_int) -> c_int {
    // How many there are is known at the next call.
    with(|context| {
        let share = Loop {
            iterations: Iterations::unsigned(true, 0, u64::from(u32::MAX), 1),
            schedule: Schedule::new(Kind::Dynamic, 1),
            is_ordered: false,
        };
        context.begin_share(Some(share), ShareOptions::default(), None);
        context.tell_work(Work::Sections);
    });
    0
}

/// The number of the next section, from 0; that of all sections when there is none.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_next_section(_: *const Ident, _: c_int, count: c_int) -> c_int {
    let next = with(Context::next_section).map_or(c_int::MAX, |from_one| from_one as c_int - 1);
    next.min(count)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_sections(_: *const Ident, _: c_int) {
    with(Context::end_share);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_ordered(_: *const Ident, _: c_int) {
    mutex::start_ordered();
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_end_ordered(_: *const Ident, _: c_int) {
    mutex::end_ordered();
}

/// `struct kmp_dim`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KmpDim {
    lower: i64,
    upper: i64,
    step: i64,
}

/// # Safety
/// `dimensions` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_doacross_init(
    _: *const Ident,
    _: c_int,
    count: c_int,
    dimensions: *const KmpDim,
) {
    // SAFETY: by the caller's promise.
    let given = unsafe { std::slice::from_raw_parts(dimensions, count.max(0) as usize) };
    let dimensions = given
        .iter()
        .map(|one| Dimension::new(one.lower, one.upper, one.step))
        .collect();
    with(|context| context.begin_doacross(dimensions));
}

/// # Safety
/// `values` has as many elements as the doacross loop has dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_doacross_post(
    _: *const Ident,
    _: c_int,
    values: *const i64,
) {
    with(|context| {
        let count = context.doacross_dimensions();
        // SAFETY: by the caller's promise.
        context.post_values(unsafe { std::slice::from_raw_parts(values, count) });
    });
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_doacross_wait(
    _: *const Ident,
    _: c_int,
    values: *const i64,
) {
    with(|context| {
        let count = context.doacross_dimensions();
        // SAFETY: by the caller's promise.
        context.wait_for_values(unsafe { std::slice::from_raw_parts(values, count) });
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_doacross_fini(_: *const Ident, _: c_int) {
    with(Context::end_doacross);
}
