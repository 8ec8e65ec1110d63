//! Tasks, taskloops, taskgroups, task reductions.

use std::ffi::{c_int, c_long, c_uint, c_void};

use margay_core_openmp::schedule::Iterations;
use margay_core_openmp::taskloop::Cut;
use margay_core_openmp::tools::{TASK_MERGEABLE, TASK_UNTIED};
use margay_run_openmp::Access;
use margay_run_openmp::task::TaskClauses;
use margay_run_openmp::team::Context;
use margay_sys_threads::outlined::{CopyArguments, TaskCall};
use margay_sys_threads::reduction_table::ReductionTable;

use margay_abi_omp::runtime::{runtime, with, with_outside};
use margay_abi_omp::{Body, fatal};

const UNTIED: c_uint = 1;
const MERGEABLE: c_uint = 4;
const FINAL: c_uint = 1 << 1;
const DEPEND: c_uint = 1 << 3;
const PRIORITY: c_uint = 1 << 4;
const UP: c_uint = 1 << 8;
const GRAINSIZE: c_uint = 1 << 9;
const IF: c_uint = 1 << 10;
const NOGROUP: c_uint = 1 << 11;
const REDUCTION: c_uint = 1 << 12;
const DETACH: c_uint = 1 << 13;
const STRICT: c_uint = 1 << 14;

/// Kinds of dependences in an `omp_depend_t`.
const DEPEND_IN: usize = 1;

/// The accesses that an array of dependences names: its length and the number of those that write,
/// and then addresses, those written first; or 0, its length, the numbers of those that write, of
/// mutexinoutset, and of those that read, and then addresses of each kind and, in the end, of
/// `omp_depend_t` objects.
///
/// # Safety
/// `table` is such an array, as long as the iterator is used.
pub(crate) unsafe fn accesses(table: *const usize) -> impl Iterator<Item = (usize, Access)> {
    // SAFETY: by the caller's promise, as all reads here.
    let word = move |at: usize| unsafe { table.add(at).read() };
    // Where the addresses begin, how many there are, of those that write, and of those that are no
    // objects.
    let (from, count, writes, plain) = match word(0) {
        0 => {
            let writes = word(2) + word(3);
            (5, word(1), writes, writes + word(4))
        }
        count => (2, count, word(1), count),
    };
    (0..count).map(move |at| {
        let address = word(from + at);
        let is_write;
        let address = if at < plain {
            is_write = at < writes;
            address
        } else {
            let object = address as *const usize;
            // SAFETY: an `omp_depend_t` has two words.
            let (address, kind) = unsafe { (object.read(), object.add(1).read()) };
            is_write = kind != DEPEND_IN;
            address
        };
        let access = if is_write {
            Access::Write
        } else {
            Access::Read
        };
        (address, access)
    })
}

/// The clauses that only a tool reads.
fn report(flags: c_uint) -> u32 {
    let mut report = 0;
    if flags & UNTIED != 0 {
        report |= TASK_UNTIED;
    }
    if flags & MERGEABLE != 0 {
        report |= TASK_MERGEABLE;
    }
    report
}

/// # Safety
/// `body`, `data`, `copy`, `size` and `align` are as [`TaskCall::new`] asks; `depend` is an array
/// of dependences where the flags say so, and `detach` the place of an event handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_task(
    body: Body,
    data: *mut c_void,
    copy: Option<CopyArguments>,
    size: c_long,
    align: c_long,
    condition: bool,
    flags: c_uint,
    depend: *const usize,
    priority: c_int,
    detach: *mut usize,
) {
    if flags & (DEPEND | DETACH) == 0 && copy.is_none() {
        let is_done = with_outside(|context, border| {
            if !context.runs_in_place(!condition) {
                return false;
            }
            let is_final = flags & FINAL != 0 || context.is_final.get();
            // SAFETY: by the caller's promise: the data is there until this call returns.
            let left = context.run_in_place(is_final, || unsafe { body(data) });
            if let Some(left) = left {
                border.inside(|| context.end_in_place(left));
            }
            true
        });
        if is_done == Some(true) {
            return;
        }
    }
    let clauses = TaskClauses {
        is_undeferred: !condition,
        is_final: flags & FINAL != 0,
        priority: if flags & PRIORITY != 0 {
            priority.max(0) as u32
        } else {
            0
        },
        report: report(flags),
    };
    // SAFETY: by the caller's promise.
    let mut call = unsafe { TaskCall::new(body, data, copy, size as usize, align as usize) };
    // By reference: what has just been written by words is read by larger ones when it is moved,
    // which waits for the writes.
    let call = &mut call;
    with(|context| {
        if flags & (DEPEND | DETACH) == 0 {
            context.task(call, clauses, &[], None);
            return;
        }
        let event = (flags & DETACH != 0).then(|| {
            let (event, number) = context.runtime().new_event();
            // SAFETY: by the caller's promise. The arguments, which are copied after this, begin
            // with the handle.
            unsafe {
                detach.write(number);
                if !data.is_null() {
                    data.cast::<usize>().write(number);
                }
            }
            event
        });
        if flags & DEPEND != 0 {
            // SAFETY: by the caller's promise.
            let named = unsafe { accesses(depend) };
            context.with_accesses(named, |named| context.task(call, clauses, named, event));
        } else {
            context.task(call, clauses, &[], event);
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_fulfill_event(event: usize) {
    if !runtime().fulfill_event(event) {
        fatal(&format!(
            "omp_fulfill_event: {event:#x} is no event, or it was fulfilled before"
        ));
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn omp_fulfill_event_(event: usize) {
    omp_fulfill_event(event);
}

/// # Safety
/// The arguments at `data` begin with two numbers that the runtime may write, and, with reductions,
/// the address of a table.
unsafe fn taskloop(
    call: TaskCall<'_>,
    data: *mut c_void,
    flags: c_uint,
    tasks: u64,
    priority: c_int,
    iterations: Iterations,
) {
    // SAFETY: by the caller's promise.
    let table = || unsafe { data.cast::<*mut usize>().add(2).read() };
    let registers = flags & (NOGROUP | REDUCTION) == REDUCTION;
    with(|context| {
        if iterations.count == 0 || context.team.is_cancelled() {
            if registers {
                // Tells the caller that nothing has been registered.
                // SAFETY: by the caller's promise.
                unsafe { table().add(2).write(0) };
            }
            return;
        }
        let clauses = TaskClauses {
            is_undeferred: flags & IF == 0,
            is_final: flags & FINAL != 0,
            priority: priority.max(0) as u32,
            report: report(flags),
        };
        let cut = match (flags & GRAINSIZE != 0, flags & STRICT != 0) {
            (true, true) => Cut::StrictGrain(tasks),
            (true, false) => Cut::Grain(tasks),
            (false, _) => Cut::Tasks(tasks),
        };
        let group = (flags & NOGROUP == 0)
            // SAFETY: by the caller's promise.
            .then(|| registers.then(|| unsafe { ReductionTable::claim(table()) }));
        context.taskloop(call, clauses, iterations, cut, group);
    });
}

/// # Safety
/// As [`TaskCall::new`] asks, and the arguments begin with two numbers that the runtime may write.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_taskloop(
    body: Body,
    data: *mut c_void,
    copy: Option<CopyArguments>,
    size: c_long,
    align: c_long,
    flags: c_uint,
    tasks: u64,
    priority: c_int,
    start: c_long,
    end: c_long,
    step: c_long,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let call = TaskCall::new(body, data, copy, size as usize, align as usize).of_loop();
        taskloop(
            call,
            data,
            flags,
            tasks,
            priority,
            Iterations::signed(start, end, step),
        );
    }
}

/// # Safety
/// As of `GOMP_taskloop`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_taskloop_ull(
    body: Body,
    data: *mut c_void,
    copy: Option<CopyArguments>,
    size: c_long,
    align: c_long,
    flags: c_uint,
    tasks: u64,
    priority: c_int,
    start: u64,
    end: u64,
    step: u64,
) {
    let iterations = Iterations::unsigned(flags & UP != 0, start, end, step);
    // SAFETY: by the caller's promise.
    unsafe {
        let call = TaskCall::new(body, data, copy, size as usize, align as usize).of_loop();
        taskloop(call, data, flags, tasks, priority, iterations);
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_taskwait() {
    with(Context::taskwait);
}

/// # Safety
/// `depend` is an array of dependences.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_taskwait_depend(depend: *const usize) {
    // SAFETY: by the caller's promise.
    let named = unsafe { accesses(depend) };
    with(|context| context.with_accesses(named, |named| context.wait_for_accesses(named)));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_taskyield() {
    with(Context::taskyield);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_taskgroup_start() {
    with(|context| context.start_group(false));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_taskgroup_end() {
    with(Context::end_group);
}

/// # Safety
/// `table` is a table of reductions.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_taskgroup_reduction_register(table: *mut usize) {
    // SAFETY: by the caller's promise.
    let table = unsafe { ReductionTable::claim(table) };
    with(|context| context.register(table));
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_taskgroup_reduction_unregister(table: *mut usize) {
    with(|context| context.unregister(table as usize));
}

/// # Safety
/// `words` has `count + originals` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn GOMP_task_reduction_remap(
    count: usize,
    originals: usize,
    words: *mut usize,
) {
    if count == 0 {
        return;
    }
    // SAFETY: by the caller's promise.
    let words = unsafe { std::slice::from_raw_parts_mut(words, count + originals) };
    if let Err(address) = with(|context| context.remap(words, count)) {
        fatal(&format!(
            "a task says that it reduces the variable at {address:#x}, but no construct around it does"
        ));
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_workshare_task_reduction_unregister(is_cancelled: bool) {
    with(|context| context.unregister_share(is_cancelled));
}
