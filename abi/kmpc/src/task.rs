//! Tasks, taskwait, taskgroups, events.

use std::ffi::{c_int, c_void};
use std::ptr;

use margay_abi_omp::runtime::{with, with_border, with_outside};
use margay_run_openmp::Access;
use margay_run_openmp::task::TaskClauses;
use margay_run_openmp::team::Context;
use margay_sys_threads::border::Border;

use crate::task_data::{KmpTask, Routine, TaskData};
use crate::{Ident, Opaque, reduction};

/// `kmp_depend_info_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KmpDependence {
    address: usize,
    length: usize,
    flags: u8,
}

const DEPEND_IN: u8 = 1;
const DEPEND_KINDS: u8 = 0xf;
const DEPEND_ALL_MEMORY: u8 = 0x80;

/// # Safety
/// Each list is null or has that many elements, as long as the iterator is used.
unsafe fn accesses(
    lists: [(c_int, *const KmpDependence); 2],
) -> impl Iterator<Item = (usize, Access)> {
    lists.into_iter().flat_map(|(count, list)| {
        let list = if count <= 0 || list.is_null() {
            &[]
        } else {
            // SAFETY: by the caller's promise.
            unsafe { std::slice::from_raw_parts(list, count as usize) }
        };
        list.iter().map(|one| {
            let access = if one.flags & DEPEND_ALL_MEMORY != 0 || one.address == usize::MAX {
                Access::AllMemory
            } else if one.flags & DEPEND_KINDS == DEPEND_IN {
                Access::Read
            } else {
                Access::Write
            };
            (one.address, access)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_task_alloc(
    _: *const Ident,
    _: c_int,
    flags: c_int,
    task_bytes: usize,
    shareds_bytes: usize,
    routine: Option<Routine>,
) -> *mut KmpTask {
    with(|context| {
        let data = TaskData::allocate(context, flags, task_bytes, shareds_bytes, routine);
        TaskData::task(data)
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_target_task_alloc(
    loc: *const Ident,
    gtid: c_int,
    flags: c_int,
    task_bytes: usize,
    shareds_bytes: usize,
    routine: Option<Routine>,
    _device: i64,
) -> *mut KmpTask {
    __kmpc_omp_task_alloc(loc, gtid, flags, task_bytes, shareds_bytes, routine)
}

/// Creates a task.
///
/// # Safety
/// `data` is a task that was allocated and filled in, and created nowhere else.
pub(crate) unsafe fn create(
    context: &Context,
    border: Border<'_>,
    mut data: *mut TaskData,
    is_undeferred: bool,
    named: &[(usize, Access)],
) {
    // SAFETY: by the caller's promise.
    let (clauses, event) = unsafe {
        let clauses = TaskClauses {
            priority: TaskData::priority(data),
            ..(*data).clauses(is_undeferred)
        };
        (clauses, (*data).event())
    };
    let at = data;
    // SAFETY: as above.
    let mut call = unsafe { TaskData::call(&mut data) };
    if !context.task(&mut call, clauses, named, event) {
        // SAFETY: as above: nobody else has it.
        unsafe { TaskData::finish(context, border, at) };
    }
}

/// # Safety
/// `task` was allocated by `__kmpc_omp_task_alloc` and filled in; it is created once.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
) -> c_int {
    let data = TaskData::of(task);
    // SAFETY: by the caller's promise.
    if unsafe { TaskData::is_next_part(data) } {
        return 0;
    }
    // SAFETY: by the caller's promise.
    let is_done = with_outside(|context, border| unsafe {
        let is_now = TaskData::runs_in_place(context, data);
        if is_now {
            TaskData::run_in_place(context, border, data);
        }
        is_now
    });
    if is_done != Some(true) {
        // SAFETY: as above; nothing has been done with it.
        with_border(|context, border| unsafe { create(context, border, data, false, &[]) });
    }
    0
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_parts(
    loc: *const Ident,
    gtid: c_int,
    task: *mut KmpTask,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { __kmpc_omp_task(loc, gtid, task) }
}

/// # Safety
/// As of `__kmpc_omp_task`; the lists have that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_with_deps(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
    count: c_int,
    list: *const KmpDependence,
    count_noalias: c_int,
    list_noalias: *const KmpDependence,
) -> c_int {
    with_border(|context, border| {
        // SAFETY: by the caller's promise.
        unsafe {
            let named = accesses([(count, list), (count_noalias, list_noalias)]);
            context.with_accesses(named, |named| {
                create(context, border, TaskData::of(task), false, named);
            });
        }
    });
    0
}

/// # Safety
/// `task` was allocated and filled in. The caller runs its body, and then calls the next function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_begin_if0(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
) {
    with(|context| {
        // SAFETY: by the caller's promise.
        let data = unsafe { &mut *TaskData::of(task) };
        context.begin_undeferred(data.clauses(true), data.event());
        // SAFETY: as above.
        unsafe { TaskData::begin_parts(data) };
    });
}

/// # Safety
/// The body of `task` has run, after a call of the function above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_complete_if0(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
) {
    with_border(|context, border| {
        let data = TaskData::of(task);
        // SAFETY: by the caller's promise.
        unsafe { TaskData::end_parts(context, border, data) };
        context.end_undeferred();
        // SAFETY: as above.
        unsafe { TaskData::finish(context, border, data) };
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_taskwait(_: *const Ident, _: c_int) -> c_int {
    with(Context::taskwait);
    0
}

/// # Safety
/// The lists have that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_wait_deps(
    _: *const Ident,
    _: c_int,
    count: c_int,
    list: *const KmpDependence,
    count_noalias: c_int,
    list_noalias: *const KmpDependence,
) {
    // SAFETY: by the caller's promise.
    let named = unsafe { accesses([(count, list), (count_noalias, list_noalias)]) };
    with(|context| context.with_accesses(named, |named| context.wait_for_accesses(named)));
}

/// With `nowait` later tasks would have to wait instead of the caller, who may do so, too.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_taskwait_deps_51(
    loc: *const Ident,
    gtid: c_int,
    count: c_int,
    list: *const KmpDependence,
    count_noalias: c_int,
    list_noalias: *const KmpDependence,
    _has_no_wait: c_int,
) {
    // SAFETY: by the caller's promise.
    unsafe { __kmpc_omp_wait_deps(loc, gtid, count, list, count_noalias, list_noalias) };
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_taskyield(_: *const Ident, _: c_int, _end: c_int) -> c_int {
    with(Context::taskyield);
    0
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_taskgroup(_: *const Ident, _: c_int) {
    with(|context| {
        context.calls.enter_group();
        context.start_group(false);
    });
}

/// # Safety
/// The compiler calls it where its interface has it: once for what it has begun, inside of that
/// construct.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_end_taskgroup(_: *const Ident, _: c_int) {
    with(|context| {
        context.end_group();
        let table = context.calls.leave_group();
        if table != 0 {
            // SAFETY: the address of the table with which the group was entered; its tasks are
            // over.
            unsafe { reduction::end_group(context, table) };
        }
    });
}

/// Returns the handle of the task's event.
///
/// # Safety
/// `task` was allocated, and not created yet.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_allow_completion_event(
    _: *const Ident,
    _: c_int,
    task: *mut KmpTask,
) -> Opaque {
    // SAFETY: by the caller's promise.
    let data = unsafe { &mut *TaskData::of(task) };
    debug_assert!(data.is_detachable());
    with(|_| data.make_event() as *mut c_void)
}

/// # Safety
/// `task` is a proxy task that was created; nobody but its body uses it after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_proxy_task_completed(_: c_int, task: *mut KmpTask) {
    // SAFETY: by the caller's promise.
    unsafe { TaskData::complete_proxy(TaskData::of(task)) };
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_proxy_task_completed_ooo(task: *mut KmpTask) {
    // SAFETY: by the caller's promise.
    unsafe { TaskData::complete_proxy(TaskData::of(task)) };
}

/// Where a task runs is the scheduler's affair.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_reg_task_with_affinity(
    _: *const Ident,
    _: c_int,
    _task: *mut KmpTask,
    _count: c_int,
    _list: *const c_void,
) -> c_int {
    0
}

/// A number for the current task.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_get_taskid() -> u64 {
    with(|context| u64::from(context.task_numbers().0))
}

/// A number for its parent.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_get_parent_taskid() -> u64 {
    with(|context| u64::from(context.task_numbers().1))
}

/// For target regions in tasks: there is nothing asynchronous to wait for.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_get_target_async_handle_ptr(_: c_int) -> *mut Opaque {
    ptr::null_mut()
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_omp_has_task_team(_: c_int) -> bool {
    false
}
