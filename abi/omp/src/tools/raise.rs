//! Calls of the tool's functions, and what is a thread for it.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use margay_core_openmp::tools::{Callback, Dependence, Dispatch, Severity, TASK_IMPLICIT, Thread};
use margay_run_openmp::team::Context;
use margay_run_openmp::tool::{Event, TaskFrame, TaskTool, Word};
use margay_sys_threads::border::outside;
use margay_sys_threads::{slot, tls_block};

use super::{TOOL, tool};
use crate::runtime::with;

/// What is kept for the tool with a set of thread-local variables.
struct ToolThread {
    data: AtomicU64,
    has_begun: Cell<bool>,
}

thread_local! {
    static THREAD: ToolThread = const {
        ToolThread { data: AtomicU64::new(0), has_begun: Cell::new(false) }
    };
    static AT_END: AtEnd = const { AtEnd };
}

/// Tells the end of a thread while its variables are destroyed. It is made after the context of an
/// initial thread, so that this is still there.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        slot::with(|context: Option<&Context>| match context {
            Some(context) => context.tell_thread_over(),
            None => thread_over(),
        });
    }
}

/// The word of the tool for the thread that calls; null for one that the tool does not know.
#[inline(never)]
pub fn thread_data() -> *mut u64 {
    THREAD.with(|thread| {
        if thread.has_begun.get() {
            thread.data.as_ptr()
        } else {
            std::ptr::null_mut()
        }
    })
}

/// A pointer to `ompt_data_t`.
type Data = *mut u64;
type Code = *const c_void;

fn word(word: &Word) -> Data {
    word.as_ptr()
}

fn word_or_null(given: Option<&Word>) -> Data {
    given.map_or(std::ptr::null_mut(), word)
}

fn data(task: &TaskTool) -> Data {
    task.data.as_ptr()
}

fn code(address: usize) -> Code {
    std::ptr::without_provenance(address)
}

fn frame(task: &TaskTool) -> *const TaskFrame {
    &raw const task.frame
}

/// `ompt_dependence_t`
#[repr(C)]
struct CDependence {
    variable: u64,
    kind: Dependence,
}

/// `ompt_dispatch_chunk_t`
#[repr(C)]
struct CChunk {
    first: u64,
    count: u64,
}

/// Calls the tool's function for a callback, if it has one.
macro_rules! call {
    ($callback:expr, ($($value:expr => $of:ty),* $(,)?)) => {{
        let address = TOOL.get().map_or(0, |tool| {
            tool.callbacks[$callback as usize].load(Ordering::Relaxed)
        });
        if address != 0 {
            // SAFETY: the tool has registered a function of the standard's type for this callback,
            // and not null.
            let function = unsafe {
                std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($of),*)>(address)
            };
            // SAFETY: as above; what the pointers refer to outlives the call.
            outside(|| unsafe { function($($value),*) });
        }
    }};
}

#[inline(never)]
fn begin_thread(event: &Event<'_>) {
    let begins = THREAD.with(|thread| !thread.has_begun.replace(true));
    if !begins {
        return;
    }
    let is_member =
        matches!(event, Event::ImplicitTask { flags, .. } if flags & TASK_IMPLICIT != 0);
    let kind = if is_member || tls_block::number().is_some() {
        Thread::Worker
    } else {
        Thread::Initial
    };
    // While the set of variables ends there is no room for it.
    let _ = AT_END.try_with(|_| ());
    call!(Callback::ThreadBegin, (kind => Thread, thread_data() => Data));
}

/// The thread that calls is over.
#[inline(never)]
pub fn thread_over() {
    let data = thread_data();
    if !data.is_null() {
        call!(Callback::ThreadEnd, (data => Data));
        THREAD.with(|thread| {
            thread.data.store(0, Ordering::Relaxed);
            thread.has_begun.set(false);
        });
    }
}

/// Tells the tool what has happened.
pub fn raise(event: &Event<'_>) {
    if let Event::ThreadEnd = event {
        return thread_over();
    }
    begin_thread(event);
    match *event {
        Event::ParallelBegin { .. }
        | Event::ParallelEnd { .. }
        | Event::ImplicitTask { .. }
        | Event::Sync { .. }
        | Event::Work { .. }
        | Event::Dispatch { .. }
        | Event::Masked { .. } => of_region(event),
        _ => of_task(event),
    }
}

fn of_region(event: &Event<'_>) {
    match *event {
        Event::ParallelBegin {
            encountering,
            region,
            requested,
            flags,
            code: at,
            ..
        } => call!(Callback::ParallelBegin, (
            data(encountering) => Data, frame(encountering) => *const TaskFrame, word(region) => Data,
            requested => u32, flags => u32, code(at) => Code,
        )),
        Event::ParallelEnd {
            region,
            encountering,
            flags,
            code: at,
        } => call!(Callback::ParallelEnd, (
            word(region) => Data, data(encountering) => Data, flags => u32, code(at) => Code,
        )),
        Event::ImplicitTask {
            endpoint,
            region,
            task,
            size,
            index,
            flags,
        } => call!(Callback::ImplicitTask, (
            endpoint as u32 => u32, word_or_null(region) => Data, data(task) => Data, size => u32, index => u32,
            flags => u32,
        )),
        Event::Sync {
            callback,
            kind,
            endpoint,
            region,
            task,
            code: at,
        } => call!(callback, (
            kind as u32 => u32, endpoint as u32 => u32, word_or_null(region) => Data, data(task) => Data,
            code(at) => Code,
        )),
        Event::Work {
            kind,
            endpoint,
            region,
            task,
            count,
            code: at,
        } => call!(Callback::Work, (
            kind as u32 => u32, endpoint as u32 => u32, word(region) => Data, data(task) => Data, count => u64,
            code(at) => Code,
        )),
        Event::Dispatch {
            region,
            task,
            kind,
            instance: (first, count),
        } => {
            let chunk = CChunk { first, count };
            let instance = if kind == Dispatch::Section {
                first
            } else {
                (&raw const chunk).expose_provenance() as u64
            };
            call!(Callback::Dispatch, (
                word(region) => Data, data(task) => Data, kind as u32 => u32, instance => u64,
            ));
        }
        Event::Masked {
            endpoint,
            region,
            task,
            code: at,
        } => call!(Callback::Masked, (
            endpoint as u32 => u32, word(region) => Data, data(task) => Data, code(at) => Code,
        )),
        _ => {}
    }
}

fn of_task(event: &Event<'_>) {
    match *event {
        Event::TaskCreate {
            encountering,
            task,
            flags,
            has_dependences,
            code: at,
        } => call!(Callback::TaskCreate, (
            data(encountering) => Data, frame(encountering) => *const TaskFrame, data(task) => Data, flags => u32,
            c_int::from(has_dependences) => c_int, code(at) => Code,
        )),
        Event::Dependences { task, list } => {
            let list: Vec<CDependence> = list
                .iter()
                .map(|&(address, kind)| CDependence {
                    variable: address as u64,
                    kind,
                })
                .collect();
            call!(Callback::Dependences, (
                data(task) => Data, list.as_ptr() => *const CDependence, list.len() as c_int => c_int,
            ));
        }
        Event::TaskDependence { before, after } => {
            call!(Callback::TaskDependence, (data(before) => Data, data(after) => Data));
        }
        Event::TaskSchedule {
            prior,
            status,
            next,
        } => call!(Callback::TaskSchedule, (
            data(prior) => Data, status as u32 => u32, next.map_or(std::ptr::null_mut(), data) => Data,
        )),
        Event::Cancel {
            task,
            flags,
            code: at,
        } => call!(Callback::Cancel, (data(task) => Data, flags => u32, code(at) => Code)),
        _ => of_lock(event),
    }
}

fn of_lock(event: &Event<'_>) {
    /// The one way in which locks wait; see `entry.rs`.
    use super::entry::LOCKS_WAIT;
    match *event {
        Event::MutexAcquire {
            callback,
            kind,
            hint,
            wait,
            code: at,
        } => call!(callback, (
            kind as u32 => u32, hint => u32, LOCKS_WAIT => u32, wait => u64, code(at) => Code,
        )),
        Event::Mutex {
            callback,
            kind,
            wait,
            code: at,
        } => call!(callback, (kind as u32 => u32, wait => u64, code(at) => Code)),
        Event::NestLock {
            endpoint,
            wait,
            code: at,
        } => call!(Callback::NestLock, (endpoint as u32 => u32, wait => u64, code(at) => Code)),
        Event::Flush { code: at } => {
            call!(Callback::Flush, (thread_data() => Data, code(at) => Code));
        }
        // The message ends with a zero byte.
        Event::Error {
            severity,
            message,
            code: at,
        } => call!(Callback::Error, (
            severity as u32 => u32, message.as_ptr().cast() => *const c_char, message.len() - 1 => usize,
            code(at) => Code,
        )),
        _ => {}
    }
}

/// An `error` directive.
pub fn tell_error(severity: Severity, message: &str) {
    if let Some(tool) = tool() {
        with(|context| {
            context.in_library(tool, |code| {
                let message = format!("{message}\0");
                raise(&Event::Error {
                    severity,
                    message: &message,
                    code,
                });
            });
        });
    }
}

/// A `flush`.
#[inline]
pub fn tell_flush() {
    if let Some(tool) = tool() {
        with(|context| context.in_library(tool, |code| raise(&Event::Flush { code })));
    }
}
