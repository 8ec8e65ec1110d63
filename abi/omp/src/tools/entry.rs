//! The functions that a tool finds by their names.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use margay_core_openmp::tools::{Callback, STATES, SetResult, State, is_callback};
use margay_run_openmp::team::Context;
use margay_run_openmp::tool::TaskFrame;
use margay_sys_os::cpu;
use margay_sys_threads::border::outside;
use margay_sys_threads::slot;

use super::{TOOL, finalize, is_over, raise, tool};
use crate::runtime::{runtime, with};

/// A function of the interface, whatever its type.
type Entry = *const c_void;
/// `ompt_function_lookup_t`
pub(super) type Lookup = unsafe extern "C-unwind" fn(*const c_char) -> Entry;

/// The one implementation of locks: who waits is suspended, and its thread runs others.
pub(super) const LOCKS_WAIT: u32 = 1;
const LOCKS_WAIT_NAME: &CStr = c"margay_mutex_impl_suspend";

macro_rules! entries {
    ($($name:ident)*) => {
        fn find(wanted: &[u8]) -> Option<Entry> {
            match std::str::from_utf8(wanted).ok()? {
                $(stringify!($name) => Some($name as Entry),)*
                _ => None,
            }
        }
    };
}

entries! {
    ompt_enumerate_states ompt_enumerate_mutex_impls ompt_set_callback ompt_get_callback ompt_get_thread_data
    ompt_get_num_procs ompt_get_num_places ompt_get_place_proc_ids ompt_get_place_num
    ompt_get_partition_place_nums ompt_get_proc_id ompt_get_state ompt_get_parallel_info ompt_get_task_info
    ompt_get_task_memory ompt_get_target_info ompt_get_num_devices ompt_get_unique_id ompt_finalize_tool
}

/// The function with a name; null for none.
///
/// # Safety
/// `name` ends with a zero byte.
pub(super) unsafe extern "C-unwind" fn lookup(name: *const c_char) -> Entry {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    find(name.to_bytes()).unwrap_or(std::ptr::null())
}

/// # Safety
/// A place that is not null can be written.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Calls `f` with the context of a thread that has one: a tool's own thread does not become one of
/// OpenMP's by asking.
fn here<R>(f: impl FnOnce(&Context) -> Option<R>) -> Option<R> {
    slot::with(|context: Option<&Context>| context.and_then(f))
}

unsafe extern "C-unwind" fn ompt_enumerate_states(
    current: c_int,
    next: *mut c_int,
    name: *mut *const c_char,
) -> c_int {
    let at = if current == State::Undefined as c_int {
        Some(0)
    } else {
        let found = STATES
            .iter()
            .position(|(state, _)| *state as c_int == current);
        found.map(|at| at + 1)
    };
    let Some(&(state, text)) = at.and_then(|at| STATES.get(at)) else {
        return 0;
    };
    // SAFETY: the standard's: the places can be written.
    unsafe {
        put(next, state as c_int);
        put(name, text.as_ptr());
    }
    1
}

unsafe extern "C-unwind" fn ompt_enumerate_mutex_impls(
    current: c_int,
    next: *mut c_int,
    name: *mut *const c_char,
) -> c_int {
    if current != 0 {
        return 0;
    }
    // SAFETY: the standard's: the places can be written.
    unsafe {
        put(next, LOCKS_WAIT as c_int);
        put(name, LOCKS_WAIT_NAME.as_ptr());
    }
    1
}

/// Callbacks of devices are kept, and never called.
extern "C-unwind" fn ompt_set_callback(number: c_int, function: usize) -> c_int {
    let (Some(tool), true) = (TOOL.get(), is_callback(number as u32)) else {
        return SetResult::Error as c_int;
    };
    tool.callbacks[number as usize].store(function, Ordering::Relaxed);
    let of_devices = matches!(number, 8..=10 | 12..=15 | 22 | 33..=36);
    if of_devices {
        SetResult::Never as c_int
    } else {
        SetResult::Always as c_int
    }
}

unsafe extern "C-unwind" fn ompt_get_callback(number: c_int, function: *mut usize) -> c_int {
    let (Some(tool), true) = (TOOL.get(), is_callback(number as u32)) else {
        return 0;
    };
    let address = tool.callbacks[number as usize].load(Ordering::Relaxed);
    // SAFETY: the standard's: the place can be written.
    unsafe { put(function, address) };
    c_int::from(address != 0)
}

extern "C-unwind" fn ompt_get_thread_data() -> *mut u64 {
    raise::thread_data()
}

extern "C-unwind" fn ompt_get_num_procs() -> c_int {
    runtime().environment.cores as c_int
}

extern "C-unwind" fn ompt_get_num_places() -> c_int {
    runtime().places.all().len() as c_int
}

unsafe extern "C-unwind" fn ompt_get_place_proc_ids(
    place: c_int,
    size: c_int,
    ids: *mut c_int,
) -> c_int {
    let places = runtime().places.all();
    let Some(processors) = usize::try_from(place).ok().and_then(|at| places.get(at)) else {
        return 0;
    };
    // SAFETY: the standard's: the array has this many elements.
    unsafe { fill(processors.iter().map(|&id| id as c_int), size, ids) };
    processors.len() as c_int
}

/// # Safety
/// The array is null or has `size` elements.
unsafe fn fill(values: impl Iterator<Item = c_int>, size: c_int, array: *mut c_int) {
    if array.is_null() {
        return;
    }
    for (at, value) in values.take(size.max(0) as usize).enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { array.add(at).write(value) };
    }
}

extern "C-unwind" fn ompt_get_place_num() -> c_int {
    here(|context| context.member.place()).map_or(-1, |place| place as c_int)
}

unsafe extern "C-unwind" fn ompt_get_partition_place_nums(size: c_int, nums: *mut c_int) -> c_int {
    let Some((first, count)) = here(|context| {
        let has_places = !context.runtime().places.all().is_empty();
        has_places.then(|| context.member.partition())
    }) else {
        return 0;
    };
    let (first, count) = (first as c_int, count as c_int);
    // SAFETY: the standard's: the array has this many elements.
    unsafe { fill(first..first + count, size, nums) };
    count
}

extern "C-unwind" fn ompt_get_proc_id() -> c_int {
    here(|_| cpu::current()).map_or(-1, |processor| processor as c_int)
}

unsafe extern "C-unwind" fn ompt_get_state(wait_id: *mut u64) -> c_int {
    let (state, id) =
        here(|context| Some(context.tool_state())).unwrap_or((State::Undefined as u32, 0));
    // SAFETY: the standard's: the place can be written, or is null.
    unsafe { put(wait_id, id) };
    state as c_int
}

/// Of what the standard's inquiries return: all is there, or nothing.
const IS_THERE: c_int = 2;
const IS_NOT_THERE: c_int = 0;

unsafe extern "C-unwind" fn ompt_get_parallel_info(
    level: c_int,
    data: *mut *mut u64,
    size: *mut c_int,
) -> c_int {
    let found = here(|context| context.parallel_info(u32::try_from(level).ok()?));
    let Some(found) = found else {
        return IS_NOT_THERE;
    };
    // SAFETY: the standard's: the places can be written, or are null.
    unsafe {
        put(data, found.region.as_ptr());
        put(size, found.size as c_int);
    }
    IS_THERE
}

unsafe extern "C-unwind" fn ompt_get_task_info(
    level: c_int,
    flags: *mut u32,
    data: *mut *mut u64,
    frame: *mut *const TaskFrame,
    region: *mut *mut u64,
    thread: *mut c_int,
) -> c_int {
    let found = here(|context| context.task_info(u32::try_from(level).ok()?));
    let Some(found) = found else {
        return IS_NOT_THERE;
    };
    // SAFETY: as above.
    unsafe {
        put(flags, found.flags);
        put(data, found.task.data.as_ptr());
        put(frame, &raw const found.task.frame);
        put(region, found.region.as_ptr());
        put(thread, found.thread as c_int);
    }
    IS_THERE
}

/// The memory of tasks is no matter for a tool: there is no block to name.
unsafe extern "C-unwind" fn ompt_get_task_memory(
    address: *mut *mut c_void,
    size: *mut usize,
    _block: c_int,
) -> c_int {
    // SAFETY: the standard's: the places can be written.
    unsafe {
        put(address, std::ptr::null_mut());
        put(size, 0);
    }
    0
}

/// Target regions run on the host, as part of the thread that encounters them.
extern "C-unwind" fn ompt_get_target_info(_: *mut u64, _: *mut u64, _: *mut u64) -> c_int {
    0
}

extern "C-unwind" fn ompt_get_num_devices() -> c_int {
    0
}

extern "C-unwind" fn ompt_get_unique_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

extern "C-unwind" fn ompt_finalize_tool() {
    finalize();
}

/// What `omp_control_tool` returns where no function of a tool answers.
const NO_TOOL: c_int = -2;
const NO_CALLBACK: c_int = -1;

/// `omp_control_tool`
///
/// # Safety
/// The tool takes the argument.
pub unsafe fn control_tool(command: c_int, modifier: c_int, argument: *mut c_void) -> c_int {
    with(|context| {
        let Some(tool) = tool().filter(|_| !is_over()) else {
            return NO_TOOL;
        };
        let address = tool.callbacks[Callback::ControlTool as usize].load(Ordering::Relaxed);
        if address == 0 {
            return NO_CALLBACK;
        }
        // SAFETY: the tool has registered a function of this type for this callback.
        let function = unsafe {
            std::mem::transmute::<
                usize,
                unsafe extern "C-unwind" fn(u64, u64, *mut c_void, *const c_void) -> c_int,
            >(address)
        };
        context.in_library(tool, |code| {
            let (command, modifier) = (command as u64, modifier as u64);
            let code = std::ptr::without_provenance(code);
            // SAFETY: as above; what the argument refers to is the program's and the tool's affair.
            outside(|| unsafe { function(command, modifier, argument, code) })
        })
    })
}
