//! Parallel regions, single, sections, scope, cancellation, teams.

use std::ffi::{c_int, c_long, c_uint, c_void};

use margay_abi_omp::Body;
use margay_abi_omp::from_program;
use margay_abi_omp::region::{self, begin};
use margay_abi_omp::runtime::{runtime, with};
use margay_core_openmp::schedule::{Iterations, Kind, Schedule};
use margay_core_openmp::tools::{self, Sync, Work};
use margay_run_openmp::team::{Context, Request};
use margay_run_openmp::work::{Loop, ShareOptions};
use margay_sys_threads::outlined::Outlined;
use margay_sys_threads::reduction_table::ReductionTable;

use crate::share::{begin_share, decode};

/// `GOMP_parallel`'s flags hold the clause `proc_bind` in their low bits.
const BIND: c_uint = 7;

fn request(threads: c_uint, flags: c_uint) -> Request {
    Request {
        threads,
        bind: flags & BIND,
        ..Request::default()
    }
}

/// # Safety
/// What the compiler promises: `body(data)` is the region, for each member once.
unsafe fn parallel(body: Body, data: *mut c_void, request: Request, share: Option<Loop>) {
    // SAFETY: by the caller's promise.
    let body = unsafe { Outlined::new(body, data) };
    with(|context| context.parallel(body, request, share, None));
}

/// # Safety
/// As of `parallel`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) {
    // SAFETY: by the caller's promise.
    unsafe { parallel(body, data, request(threads, flags), None) }
}

/// # Safety
/// As of `parallel`; `data` begins with the address of a table of reductions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel_reductions(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    flags: c_uint,
) -> c_uint {
    // SAFETY: by the caller's promise.
    let (body, table) = unsafe {
        (
            Outlined::new(body, data),
            ReductionTable::claim(*data.cast::<*mut usize>()),
        )
    };
    with(|context| context.parallel(body, request(threads, flags), None, Some(table)))
}

/// # Safety
/// As of `begin`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel_start(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
) {
    // SAFETY: by the caller's promise.
    unsafe { begin(body, data, request(threads, 0), None) }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_parallel_end() {
    region::end();
}

macro_rules! parallel_loops {
    ($($(#[$with_chunk:ident])? $name:ident $start:ident $schedule:expr;)*) => {$(
        parallel_loops!(@one $($with_chunk)? ; $name; $start; $schedule);
    )*};
    (@one chunk ; $name:ident; $start:ident; $schedule:expr) => {
        /// # Safety
        /// As of `GOMP_parallel`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            body: Body, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint,
        ) {
            let share = with_schedule(start, end, step, Schedule::new($schedule, chunk.max(0) as u64));
            // SAFETY: by the caller's promise.
            unsafe { parallel(body, data, request(threads, flags), Some(share)) }
        }
        parallel_loops!(@old chunk ; $start; $schedule);
    };
    (@one ; $name:ident; $start:ident; $schedule:expr) => {
        /// # Safety
        /// As of `GOMP_parallel`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            body: Body, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, flags: c_uint,
        ) {
            let share = with_schedule(start, end, step, decode(0, 0));
            // SAFETY: by the caller's promise.
            unsafe { parallel(body, data, request(threads, flags), Some(share)) }
        }
        parallel_loops!(@old ; $start; $schedule);
    };
    (@old $($with_chunk:ident)? ; none; $schedule:expr) => {};
    (@old chunk ; $start:ident; $schedule:expr) => {
        /// # Safety
        /// As of `GOMP_parallel_start`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $start(
            body: Body, data: *mut c_void, threads: c_uint,
            start: c_long, end: c_long, step: c_long, chunk: c_long,
        ) {
            let share = with_schedule(start, end, step, Schedule::new($schedule, chunk.max(0) as u64));
            // SAFETY: by the caller's promise.
            unsafe { begin(body, data, request(threads, 0), Some(share)) }
        }
    };
    (@old ; $start:ident; $schedule:expr) => {
        /// # Safety
        /// As of `GOMP_parallel_start`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $start(
            body: Body, data: *mut c_void, threads: c_uint, start: c_long, end: c_long, step: c_long,
        ) {
            let share = with_schedule(start, end, step, decode(0, 0));
            // SAFETY: by the caller's promise.
            unsafe { begin(body, data, request(threads, 0), Some(share)) }
        }
    };
}

parallel_loops! {
    #[chunk] GOMP_parallel_loop_static GOMP_parallel_loop_static_start Kind::Static;
    #[chunk] GOMP_parallel_loop_dynamic GOMP_parallel_loop_dynamic_start Kind::Dynamic;
    #[chunk] GOMP_parallel_loop_guided GOMP_parallel_loop_guided_start Kind::Guided;
    #[chunk] GOMP_parallel_loop_nonmonotonic_dynamic none Kind::Dynamic;
    #[chunk] GOMP_parallel_loop_nonmonotonic_guided none Kind::Guided;
    GOMP_parallel_loop_runtime GOMP_parallel_loop_runtime_start Kind::Auto;
    GOMP_parallel_loop_nonmonotonic_runtime none Kind::Auto;
    GOMP_parallel_loop_maybe_nonmonotonic_runtime none Kind::Auto;
}

fn with_schedule(start: c_long, end: c_long, step: c_long, schedule: Schedule) -> Loop {
    Loop {
        iterations: Iterations::signed(start, end, step),
        schedule,
        is_ordered: false,
    }
}

fn sections(count: c_uint) -> Loop {
    Loop {
        iterations: Iterations::unsigned(true, 0, u64::from(count), 1),
        schedule: Schedule::new(Kind::Dynamic, 1),
        is_ordered: false,
    }
}

/// # Safety
/// As of `GOMP_parallel`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel_sections(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
    flags: c_uint,
) {
    let request = Request {
        most: count,
        ..request(threads, flags)
    };
    // SAFETY: by the caller's promise.
    unsafe { parallel(body, data, request, Some(sections(count))) }
}

/// # Safety
/// As of `GOMP_parallel_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_parallel_sections_start(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
) {
    let request = Request {
        most: count,
        ..request(threads, 0)
    };
    // SAFETY: by the caller's promise.
    unsafe { begin(body, data, request, Some(sections(count))) }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_sections_start(count: c_uint) -> c_uint {
    with(|context| {
        context.begin_share(Some(sections(count)), ShareOptions::default(), None);
        context.tell_work(Work::Sections);
        context.next_section().unwrap_or(0)
    })
}

/// # Safety
/// `reductions` is null or a table of reductions; `memory` is null or holds a size and gets an
/// address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_sections2_start(
    count: c_uint,
    reductions: *mut usize,
    memory: *mut usize,
) -> c_uint {
    with(|context| {
        // SAFETY: by the caller's promise.
        unsafe { begin_share(context, Some(sections(count)), reductions, memory, None) };
        context.tell_work(Work::Sections);
        context.next_section().unwrap_or(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_sections_next() -> c_uint {
    with(|context| context.next_section().unwrap_or(0))
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_sections_end() {
    from_program!(0, loop_end)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_sections_end_nowait() {
    GOMP_loop_end_nowait();
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_sections_end_cancel() -> bool {
    from_program!(0, loop_end_cancel)
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_loop_end() {
    from_program!(0, loop_end)
}

extern "C-unwind" fn loop_end(from: usize) {
    with(|context| {
        context.end_share();
        context.barrier_of(Sync::BarrierWorkshare, from);
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_loop_end_nowait() {
    with(Context::end_share);
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn GOMP_loop_end_cancel() -> bool {
    from_program!(0, loop_end_cancel)
}

extern "C-unwind" fn loop_end_cancel(from: usize) -> bool {
    with(|context| {
        context.end_share();
        context.barrier_of(Sync::BarrierWorkshare, from);
        context.team.is_cancelled()
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_single_start() -> bool {
    with(Context::single)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_single_copy_start() -> *mut c_void {
    with(Context::single_copy) as *mut c_void
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_single_copy_end(data: *mut c_void) {
    with(|context| context.end_single_copy(data as usize));
}

/// # Safety
/// `reductions` is a table of reductions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_scope_start(reductions: *mut usize) {
    // SAFETY: by the caller's promise.
    with(|context| unsafe {
        begin_share(context, None, reductions, std::ptr::null_mut(), None);
        context.tell_work(Work::Scope);
    });
}

const CANCEL_PARALLEL: c_int = 1;
const CANCEL_LOOP: c_int = 2;
const CANCEL_SECTIONS: c_int = 4;
const CANCEL_TASKGROUP: c_int = 8;

/// The flag by which a tool knows what is cancelled.
fn tool_flag(which: c_int) -> u32 {
    match which {
        CANCEL_PARALLEL => tools::CANCEL_PARALLEL,
        CANCEL_LOOP => tools::CANCEL_LOOP,
        CANCEL_SECTIONS => tools::CANCEL_SECTIONS,
        _ => tools::CANCEL_TASKGROUP,
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_cancellation_point(which: c_int) -> bool {
    if !runtime().environment.cancellation {
        return false;
    }
    with(|context| {
        let is_cancelled = if which & (CANCEL_LOOP | CANCEL_SECTIONS) != 0 {
            context.team.is_work_cancelled()
        } else {
            (which & CANCEL_TASKGROUP != 0 && context.is_in_cancelled_group())
                || context.team.is_cancelled()
        };
        if is_cancelled {
            context.tell_cancel(tool_flag(which), false);
        }
        is_cancelled
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_cancel(which: c_int, does: bool) -> bool {
    if !runtime().environment.cancellation {
        return false;
    }
    if !does {
        return GOMP_cancellation_point(which);
    }
    with(|context| {
        context.tell_cancel(tool_flag(which), true);
        if which & (CANCEL_LOOP | CANCEL_SECTIONS) != 0 {
            context.cancel_share();
        } else if which & CANCEL_TASKGROUP != 0 {
            context.cancel_group();
        } else {
            debug_assert!(which & CANCEL_PARALLEL != 0);
            context.cancel_region();
        }
    });
    true
}

/// Teams of a league on the host run one after another, each by the thread that encountered them.
///
/// # Safety
/// `body(data)` is the teams region, for each team once.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_teams_reg(
    body: Body,
    data: *mut c_void,
    teams: c_uint,
    limit: c_uint,
    _flags: c_uint,
) {
    // SAFETY: by the caller's promise.
    let body = unsafe { Outlined::new(body, data) };
    with(|context| context.league(body, teams, limit));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_teams4(
    least: c_uint,
    _most: c_uint,
    limit: c_uint,
    is_first: bool,
) -> bool {
    with(|context| {
        if is_first {
            context.limit_threads(limit);
            context.teams.set((0, least.max(1)));
            return true;
        }
        let (number, count) = context.teams.get();
        let goes_on = number + 1 < count;
        if goes_on {
            context.teams.set((number + 1, count));
        }
        goes_on
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_teams(_teams: c_uint, limit: c_uint) {
    with(|context| context.limit_threads(limit));
}
