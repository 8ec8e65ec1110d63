//! Loops under static schedules: each member, or team of a league, computes its part by itself.

use std::ffi::c_int;

use margay_abi_omp::runtime::with;
use margay_core_openmp::static_loop::{Bounds, Part, StaticCut};
use margay_core_openmp::tools::Work;
use margay_run_openmp::team::Context;

use crate::Ident;

/// Numbers of schedules (`sched_type`).
const STATIC_CHUNKED: i32 = 33;
const STATIC_BALANCED_CHUNKED: i32 = 45;
const DISTRIBUTE_STATIC_CHUNKED: i32 = 91;
const DISTRIBUTE_STATIC: i32 = 92;
/// Bits of schedules that say whether they have to be monotonic.
pub(crate) const MODIFIERS: i32 = 3 << 29;

fn cut(schedule: i32, chunk: i64) -> StaticCut {
    let chunk = chunk.max(1) as u64;
    match schedule & !MODIFIERS {
        STATIC_CHUNKED | DISTRIBUTE_STATIC_CHUNKED => StaticCut::Chunks(chunk),
        STATIC_BALANCED_CHUNKED => StaticCut::Multiples(chunk),
        _ => StaticCut::Blocks,
    }
}

/// Which member of how many.
fn as_member(context: &Context) -> (u64, u64) {
    (u64::from(context.id), u64::from(context.team.size))
}

/// Which team of how many.
pub(crate) fn as_team(context: &Context) -> (u64, u64) {
    let (number, count) = context.teams.get();
    (u64::from(number), u64::from(count))
}

fn for_part(
    bounds: Bounds,
    schedule: i32,
    chunk: i64,
    is_sections: impl Fn() -> bool,
) -> Option<Part> {
    let of_league = matches!(
        schedule & !MODIFIERS,
        DISTRIBUTE_STATIC | DISTRIBUTE_STATIC_CHUNKED
    );
    let cut = cut(schedule, chunk);
    with(|context| {
        context.tell_counted_work(|| {
            let kind = if of_league {
                Work::Distribute
            } else if is_sections() {
                Work::Sections
            } else {
                Work::LoopStatic
            };
            (kind, bounds.iterations().count)
        });
        let (at, many) = if of_league {
            as_team(context)
        } else {
            as_member(context)
        };
        let part = bounds.part(cut, at, many)?;
        // Of a block the whole is known; chunks are the program's.
        if matches!(cut, StaticCut::Blocks) && context.tool().is_some() && !is_sections() {
            tell_block(context, bounds, part);
        }
        Some(part)
    })
}

#[cold]
fn tell_block(context: &Context, bounds: Bounds, part: Part) {
    context.tell_chunk(|| {
        let before = bounds.between(bounds.lower, part.lower).count();
        let count = bounds.between(part.lower, part.upper).count();
        (before.saturating_sub(1), count)
    });
}

/// The part of a member within the part of its team, and the upper bound of the latter.
fn distributed_part(bounds: Bounds, schedule: i32, chunk: i64) -> Option<(Part, i64)> {
    with(|context| {
        context.tell_counted_work(|| (Work::LoopStatic, bounds.iterations().count));
        let (team, teams) = as_team(context);
        let (member, members) = as_member(context);
        let whole = bounds.part(StaticCut::Blocks, team, teams)?;
        let within = bounds.between(whole.lower, whole.upper);
        let part = match within.part(cut(schedule, chunk), member, members) {
            Some(part) => Part {
                has_last: part.has_last && whole.has_last,
                ..part
            },
            // The team has no iterations.
            None => whole,
        };
        Some((part, whole.upper))
    })
}

/// A part of which there are more: they end at the team's or the loop's end.
fn clipped(part: Part, bounds: Bounds) -> Part {
    let left = bounds.between(part.upper, bounds.upper);
    Part {
        upper: if left.count() == 0 {
            bounds.upper
        } else {
            part.upper
        },
        ..part
    }
}

/// # Safety
/// A place that is not null can be written.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { place.write(value) };
    }
}

macro_rules! static_loops {
    ($($of:ty, $signed:ty, $is_signed:literal, $init:ident $distribute:ident $team:ident;)*) => {$(
        /// # Safety
        /// The places hold the loop's bounds, and get those of the member; `last` may be null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $init(
            loc: *const Ident, _: c_int, schedule: i32, last: *mut i32, lower: *mut $of, upper: *mut $of,
            stride: *mut $signed, step: $signed, chunk: $signed,
        ) {
            // SAFETY: by the caller's promise, as below.
            let (from, to) = unsafe { (lower.read(), upper.read()) };
            let bounds = Bounds { lower: from as i64, upper: to as i64, step: step as i64, is_signed: $is_signed };
            // SAFETY: the compiler passes a description that it has made, or null.
            let is_sections = || unsafe { loc.as_ref() }.is_some_and(Ident::is_of_sections);
            let part = for_part(bounds, schedule, chunk as i64, is_sections);
            // SAFETY: as above.
            unsafe {
                put(last, part.is_some_and(|part| part.has_last) as i32);
                match part {
                    Some(part) => {
                        lower.write(part.lower as $of);
                        upper.write(part.upper as $of);
                        put(stride, part.stride as $signed);
                    }
                    None => put(stride, step),
                }
            }
        }

        /// # Safety
        /// As above; `upper_of_team` gets the upper bound of the team.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $distribute(
            _: *const Ident, _: c_int, schedule: i32, last: *mut i32, lower: *mut $of, upper: *mut $of,
            upper_of_team: *mut $of, stride: *mut $signed, step: $signed, chunk: $signed,
        ) {
            // SAFETY: by the caller's promise, as below.
            let (from, to) = unsafe { (lower.read(), upper.read()) };
            let bounds = Bounds { lower: from as i64, upper: to as i64, step: step as i64, is_signed: $is_signed };
            let parts = distributed_part(bounds, schedule, chunk as i64);
            // SAFETY: as above.
            unsafe {
                put(last, parts.is_some_and(|(part, _)| part.has_last) as i32);
                match parts {
                    Some((part, end)) => {
                        lower.write(part.lower as $of);
                        upper.write(part.upper as $of);
                        put(upper_of_team, end as $of);
                        put(stride, part.stride as $signed);
                    }
                    None => {
                        put(upper_of_team, to);
                        put(stride, step);
                    }
                }
            }
        }

        /// # Safety
        /// The places hold the loop's bounds, and get those of the team's first chunk.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $team(
            _: *const Ident, _: c_int, last: *mut i32, lower: *mut $of, upper: *mut $of, stride: *mut $signed,
            step: $signed, chunk: $signed,
        ) {
            // SAFETY: by the caller's promise, as below.
            let (from, to) = unsafe { (lower.read(), upper.read()) };
            let bounds = Bounds { lower: from as i64, upper: to as i64, step: step as i64, is_signed: $is_signed };
            let part = for_part(bounds, DISTRIBUTE_STATIC_CHUNKED, chunk as i64, || false).map(|part| clipped(part, bounds));
            // SAFETY: as above.
            unsafe {
                put(last, part.is_some_and(|part| part.has_last) as i32);
                if let Some(part) = part {
                    lower.write(part.lower as $of);
                    upper.write(part.upper as $of);
                    put(stride, part.stride as $signed);
                }
            }
        }
    )*};
}

static_loops! {
    i32, i32, true, __kmpc_for_static_init_4 __kmpc_dist_for_static_init_4 __kmpc_team_static_init_4;
    u32, i32, false, __kmpc_for_static_init_4u __kmpc_dist_for_static_init_4u __kmpc_team_static_init_4u;
    i64, i64, true, __kmpc_for_static_init_8 __kmpc_dist_for_static_init_8 __kmpc_team_static_init_8;
    u64, i64, false, __kmpc_for_static_init_8u __kmpc_dist_for_static_init_8u __kmpc_team_static_init_8u;
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_for_static_fini(_: *const Ident, _: c_int) {
    with(Context::tell_work_over);
}
