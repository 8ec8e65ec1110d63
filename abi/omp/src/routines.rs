//! The routines of OpenMP that query and set: control variables, the region, places, time. Each for
//! C; for Fortran, with an underscore and arguments by reference; and with `_8_`, where Fortran's
//! default integer has 64 bits.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use margay_core_openmp::schedule::{Kind, Schedule};
use margay_run_openmp::icv::{Icv, SUPPORTED_ACTIVE_LEVELS};
use margay_run_openmp::team::Context;
use margay_sys_os::clock::Clock;

use crate::runtime::{read, runtime, with};
use crate::tools;

/// Routines without arguments.
macro_rules! queries {
    ($($(#[$about:meta])* $name:ident $fortran:ident -> $of:ty $body:block)*) => {$(
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name() -> $of $body

        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $fortran() -> $of {
            $name()
        }
    )*};
}

/// Routines with one number as an argument.
macro_rules! takes {
    ($($(#[$about:meta])* $name:ident $fortran:ident $fortran8:ident ($value:ident) -> $of:ty $body:block)*) => {$(
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($value: c_int) -> $of $body

        /// # Safety
        /// The argument can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran(value: *const i32) -> $of {
            // SAFETY: by the caller's promise.
            $name(unsafe { *value })
        }

        /// # Safety
        /// The argument can be read.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $fortran8(value: *const i64) -> $of {
            // SAFETY: by the caller's promise.
            $name(narrow(unsafe { *value }))
        }
    )*};
}

/// A number of 64 bits as one of 32; what does not fit is the nearest that does.
fn narrow(value: i64) -> c_int {
    value.clamp(i64::from(c_int::MIN), i64::from(c_int::MAX)) as c_int
}

/// What `f` reads of the calling member.
#[inline]
fn of_member<R>(f: impl Fn(&Context) -> R) -> R {
    read(&f).unwrap_or_else(|| with(&f))
}

fn icv() -> &'static Icv {
    of_member(|context| context.icv.get())
}

fn change(change: impl FnOnce(&mut Icv)) {
    with(|context| context.change_icv(change));
}

fn number(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

queries! {
    omp_get_num_threads omp_get_num_threads_ -> c_int { of_member(|context| number(context.team.size)) }
    omp_get_thread_num omp_get_thread_num_ -> c_int { of_member(|context| number(context.id)) }
    omp_get_max_threads omp_get_max_threads_ -> c_int { number(icv().threads) }
    omp_get_num_procs omp_get_num_procs_ -> c_int { number(runtime().environment.cores) }
    omp_in_parallel omp_in_parallel_ -> c_int {
        of_member(|context| c_int::from(context.team.active_level() > 0))
    }
    omp_get_dynamic omp_get_dynamic_ -> c_int { c_int::from(icv().dynamic) }
    omp_get_nested omp_get_nested_ -> c_int {
        let levels = icv().max_active_levels;
        c_int::from(levels > 1 && levels as c_int > omp_get_active_level())
    }
    omp_get_thread_limit omp_get_thread_limit_ -> c_int { number(icv().thread_limit) }
    omp_get_max_active_levels omp_get_max_active_levels_ -> c_int { number(icv().max_active_levels) }
    omp_get_supported_active_levels omp_get_supported_active_levels_ -> c_int { number(SUPPORTED_ACTIVE_LEVELS) }
    omp_get_level omp_get_level_ -> c_int { of_member(|context| number(context.level())) }
    omp_get_active_level omp_get_active_level_ -> c_int {
        of_member(|context| number(context.team.active_level()))
    }
    omp_in_final omp_in_final_ -> c_int { of_member(|context| c_int::from(context.is_final.get())) }
    omp_get_cancellation omp_get_cancellation_ -> c_int { c_int::from(runtime().environment.cancellation) }
    omp_get_proc_bind omp_get_proc_bind_ -> c_int { icv().bind as c_int }
    omp_get_num_places omp_get_num_places_ -> c_int { runtime().places.all().len() as c_int }
    omp_get_place_num omp_get_place_num_ -> c_int {
        with(|context| context.member.place().map_or(-1, |place| place as c_int))
    }
    omp_get_partition_num_places omp_get_partition_num_places_ -> c_int {
        with(|context| number(context.member.partition().1))
    }
    omp_get_default_device omp_get_default_device_ -> c_int { icv().device }
    omp_get_num_devices omp_get_num_devices_ -> c_int { 0 }
    omp_get_device_num omp_get_device_num_ -> c_int { 0 }
    omp_get_initial_device omp_get_initial_device_ -> c_int { 0 }
    omp_is_initial_device omp_is_initial_device_ -> c_int { 1 }
    omp_get_num_teams omp_get_num_teams_ -> c_int { of_member(|context| number(context.teams.get().1)) }
    omp_get_team_num omp_get_team_num_ -> c_int { of_member(|context| number(context.teams.get().0)) }
    omp_get_max_teams omp_get_max_teams_ -> c_int { number(runtime().icvs.teams.load(Ordering::Relaxed)) }
    omp_get_teams_thread_limit omp_get_teams_thread_limit_ -> c_int {
        number(runtime().icvs.teams_thread_limit.load(Ordering::Relaxed))
    }
    omp_get_max_task_priority omp_get_max_task_priority_ -> c_int { number(runtime().environment.max_task_priority) }
    omp_get_wtime omp_get_wtime_ -> f64 { runtime().clock.now_ns() as f64 * 1e-9 }
    omp_get_wtick omp_get_wtick_ -> f64 { 1e-9 }
}

takes! {
    omp_set_num_threads omp_set_num_threads_ omp_set_num_threads_8_ (threads) -> () {
        change(|icv| icv.threads = threads.max(1) as u32);
    }
    omp_set_dynamic omp_set_dynamic_ omp_set_dynamic_8_ (on) -> () {
        change(|icv| icv.dynamic = on != 0);
    }
    omp_set_nested omp_set_nested_ omp_set_nested_8_ (on) -> () {
        change(|icv| {
            icv.max_active_levels = if on != 0 { SUPPORTED_ACTIVE_LEVELS } else { icv.max_active_levels.min(1) };
        });
    }
    omp_set_max_active_levels omp_set_max_active_levels_ omp_set_max_active_levels_8_ (levels) -> () {
        if levels >= 0 {
            change(|icv| icv.max_active_levels = (levels as u32).min(SUPPORTED_ACTIVE_LEVELS));
        }
    }
    omp_get_ancestor_thread_num omp_get_ancestor_thread_num_ omp_get_ancestor_thread_num_8_ (level) -> c_int {
        with(|context| context.ancestor(level).map_or(-1, |(id, _)| number(id)))
    }
    omp_get_team_size omp_get_team_size_ omp_get_team_size_8_ (level) -> c_int {
        with(|context| context.ancestor(level).map_or(-1, |(_, size)| number(size)))
    }
    omp_set_default_device omp_set_default_device_ omp_set_default_device_8_ (device) -> () {
        change(|icv| icv.device = device.max(0));
    }
    omp_set_num_teams omp_set_num_teams_ omp_set_num_teams_8_ (teams) -> () {
        if teams >= 0 {
            runtime().icvs.teams.store(teams as u32, Ordering::Relaxed);
        }
    }
    omp_set_teams_thread_limit omp_set_teams_thread_limit_ omp_set_teams_thread_limit_8_ (limit) -> () {
        if limit >= 0 {
            runtime().icvs.teams_thread_limit.store(limit as u32, Ordering::Relaxed);
        }
    }
    omp_display_env omp_display_env_ omp_display_env_8_ (verbose) -> () {
        eprint!("{}", runtime().environment.display(&runtime().icvs, verbose != 0));
    }
    omp_get_place_num_procs omp_get_place_num_procs_ omp_get_place_num_procs_8_ (place) -> c_int {
        processors(place).len() as c_int
    }
}

fn processors(place: c_int) -> &'static [usize] {
    usize::try_from(place)
        .ok()
        .and_then(|place| runtime().places.all().get(place))
        .map_or(&[], Vec::as_slice)
}

/// Writes numbers to an array of the program.
///
/// # Safety
/// It has room for them.
unsafe fn put_all<T: Copy>(to: *mut T, numbers: impl Iterator<Item = T>) {
    for (at, number) in numbers.enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { to.add(at).write(number) };
    }
}

/// # Safety
/// `ids` has room for the processors of the place.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_place_proc_ids(place: c_int, ids: *mut c_int) {
    // SAFETY: by the caller's promise.
    unsafe { put_all(ids, processors(place).iter().map(|&cpu| cpu as c_int)) };
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_place_proc_ids_(place: *const i32, ids: *mut i32) {
    // SAFETY: by the caller's promise.
    unsafe { omp_get_place_proc_ids(*place, ids) };
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_place_proc_ids_8_(place: *const i64, ids: *mut i64) {
    // SAFETY: by the caller's promise.
    unsafe {
        put_all(
            ids,
            processors(narrow(*place)).iter().map(|&cpu| cpu as i64),
        )
    };
}

fn partition() -> std::ops::Range<u32> {
    let (first, count) = with(|context| context.member.partition());
    first..first + count
}

/// # Safety
/// `places` has room for the places of the partition.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_partition_place_nums(places: *mut c_int) {
    // SAFETY: by the caller's promise.
    unsafe { put_all(places, partition().map(|place| place as c_int)) };
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_partition_place_nums_(places: *mut i32) {
    // SAFETY: by the caller's promise.
    unsafe { omp_get_partition_place_nums(places) };
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_partition_place_nums_8_(places: *mut i64) {
    // SAFETY: by the caller's promise.
    unsafe { put_all(places, partition().map(i64::from)) };
}

/// In `omp_sched_t`: the schedule has to be monotonic.
const MONOTONIC: u32 = 0x8000_0000;

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_set_schedule(kind: u32, chunk: c_int) {
    let Some(of) = Kind::of(kind & !MONOTONIC) else {
        return;
    };
    change(|icv| {
        let chunk = match of {
            Kind::Static => chunk.max(0) as u64,
            Kind::Dynamic | Kind::Guided | Kind::Trapezoidal => chunk.max(1) as u64,
            Kind::Auto => icv.schedule.chunk,
        };
        icv.schedule = Schedule {
            monotonic: kind & MONOTONIC != 0,
            ..Schedule::new(of, chunk)
        };
    });
}

/// The current schedule as its number and its chunk.
fn schedule() -> (u32, i64) {
    let schedule = icv().schedule;
    let modifier = if schedule.monotonic { MONOTONIC } else { 0 };
    let least = u64::from(schedule.kind == Kind::Dynamic);
    (
        schedule.kind as u32 | modifier,
        schedule.chunk.max(least) as i64,
    )
}

/// # Safety
/// Both can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_schedule(kind: *mut u32, chunk: *mut c_int) {
    let (of, iterations) = schedule();
    // SAFETY: by the caller's promise.
    unsafe {
        kind.write(of);
        chunk.write(narrow(iterations));
    }
}

/// # Safety
/// Both can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_set_schedule_(kind: *const u32, chunk: *const i32) {
    // SAFETY: by the caller's promise.
    unsafe { omp_set_schedule(*kind, *chunk) };
}

/// # Safety
/// Both can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_set_schedule_8_(kind: *const u32, chunk: *const i64) {
    // SAFETY: by the caller's promise.
    unsafe { omp_set_schedule(*kind, narrow(*chunk)) };
}

/// # Safety
/// Both can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_schedule_(kind: *mut u32, chunk: *mut i32) {
    // SAFETY: by the caller's promise.
    unsafe { omp_get_schedule(kind, chunk) };
}

/// # Safety
/// Both can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_get_schedule_8_(kind: *mut u32, chunk: *mut i64) {
    let (of, iterations) = schedule();
    // SAFETY: by the caller's promise.
    unsafe {
        kind.write(of);
        chunk.write(iterations);
    }
}

/// Forgets the values of threadprivate variables, except those of the initial thread. Refused
/// within a region, as the standard says.
fn pause(kind: c_int) -> c_int {
    const SOFT: c_int = 1;
    const HARD: c_int = 2;
    const STOP_TOOL: c_int = 3;
    let is_done = matches!(kind, SOFT | HARD | STOP_TOOL) && with(Context::forget_thread_variables);
    if is_done && kind == STOP_TOOL {
        tools::finalize();
    }
    if is_done { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_pause_resource(kind: c_int, device: c_int) -> c_int {
    if device == 0 { pause(kind) } else { -1 }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_pause_resource_all(kind: c_int) -> c_int {
    pause(kind)
}

/// # Safety
/// Both can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_pause_resource_(kind: *const i32, device: *const i32) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { omp_pause_resource(*kind, *device) }
}

/// # Safety
/// The argument can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_pause_resource_all_(kind: *const i32) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { omp_pause_resource_all(*kind) }
}
