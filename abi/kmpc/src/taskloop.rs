//! Loops that are cut into tasks.

use std::ffi::c_int;

use margay_abi_omp::runtime::with_border;
use margay_core_openmp::schedule::Iterations;
use margay_core_openmp::static_loop::Bounds;
use margay_core_openmp::taskloop::{Cut, Tasks};
use margay_core_openmp::tools::Endpoint;
use margay_run_openmp::team::Context;
use margay_sys_threads::border::Border;

use crate::Ident;
use crate::task::create;
use crate::task_data::{KmpTask, TaskData};

/// Makes private variables of a copy of a task: `(to, from, has the last iteration)`.
type Duplicate = unsafe extern "C-unwind" fn(*mut KmpTask, *mut KmpTask, c_int);

/// The clause that says how the loop is cut.
const GRAINSIZE: c_int = 1;
const NUM_TASKS: c_int = 2;

/// The clauses of a taskloop.
struct Clauses {
    is_undeferred: bool,
    has_group: bool,
    cut: Cut,
}

/// The loop, and where in the task's private variables its bounds are.
struct BoundsInTask {
    iterations: Iterations,
    lower: usize,
    upper: usize,
}

/// Creates the tasks, each of a copy of `pattern`, which is freed.
///
/// # Safety
/// `pattern` is a task that was allocated and filled in; the offsets are those of two words in it.
/// `duplicate` makes private variables of a copy.
unsafe fn create_all(
    context: &Context,
    border: Border<'_>,
    pattern: *mut TaskData,
    bounds: &BoundsInTask,
    clauses: &Clauses,
    duplicate: Option<Duplicate>,
) {
    let count = bounds.iterations.count;
    let tasks = Tasks::cut(count, clauses.cut, u64::from(context.team.size));
    if count > 0 && !context.is_cancelled() {
        for at in 0..tasks.tasks {
            let (first, end) = tasks.of(at);
            // SAFETY: by the caller's promise.
            unsafe {
                let copy = TaskData::duplicate(context, pattern);
                let task = TaskData::task(copy);
                let word = |offset| task.cast::<u8>().add(offset).cast::<u64>();
                word(bounds.lower).write(bounds.iterations.value(first));
                word(bounds.upper).write(bounds.iterations.value(end - 1));
                if let Some(duplicate) = duplicate {
                    let has_last = c_int::from(end == count);
                    border.outside(|| duplicate(task, TaskData::task(pattern), has_last));
                }
                create(context, border, copy, clauses.is_undeferred, &[]);
            }
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { TaskData::finish(context, border, pattern) };
}

/// # Safety
/// As of the functions below.
unsafe fn taskloop(
    task: *mut KmpTask,
    (lower, upper, step): (*mut u64, *mut u64, i64),
    clauses: &Clauses,
    duplicate: Option<Duplicate>,
) {
    // SAFETY: by the caller's promise.
    let (from, to) = unsafe { (lower.read(), upper.read()) };
    let bounds = Bounds {
        lower: from as i64,
        upper: to as i64,
        step,
        is_signed: true,
    };
    let offset = |at: *mut u64| at.addr() - task.addr();
    let bounds = BoundsInTask {
        iterations: bounds.iterations(),
        lower: offset(lower),
        upper: offset(upper),
    };
    with_border(|context, border| {
        if clauses.has_group {
            context.start_group(false);
        }
        context.tell_taskloop(Endpoint::Begin, bounds.iterations.count);
        // SAFETY: by the caller's promise.
        unsafe {
            create_all(
                context,
                border,
                TaskData::of(task),
                &bounds,
                clauses,
                duplicate,
            )
        };
        context.tell_taskloop(Endpoint::End, bounds.iterations.count);
        if clauses.has_group {
            context.end_group();
        }
    });
}

fn cut(schedule: c_int, number: u64, is_strict: bool) -> Cut {
    match (schedule, is_strict) {
        (GRAINSIZE, true) => Cut::StrictGrain(number),
        (GRAINSIZE, false) => Cut::Grain(number),
        (NUM_TASKS, _) => Cut::Tasks(number),
        _ => Cut::Tasks(0),
    }
}

/// # Safety
/// `task` was allocated and filled in; `lower` and `upper` are in its private variables.
/// `duplicate` makes private variables of a copy of it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_taskloop(
    loc: *const Ident,
    gtid: c_int,
    task: *mut KmpTask,
    condition: c_int,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: c_int,
    schedule: c_int,
    number: u64,
    duplicate: Option<Duplicate>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        __kmpc_taskloop_5(
            loc, gtid, task, condition, lower, upper, step, nogroup, schedule, number, 0, duplicate,
        );
    }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_taskloop_5(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
    condition: c_int,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: c_int,
    schedule: c_int,
    number: u64,
    is_strict: c_int,
    duplicate: Option<Duplicate>,
) {
    let clauses = Clauses {
        is_undeferred: condition == 0,
        has_group: nogroup == 0,
        cut: cut(schedule, number, is_strict != 0),
    };
    // SAFETY: by the caller's promise.
    unsafe { taskloop(task, (lower, upper, step), &clauses, duplicate) };
}
