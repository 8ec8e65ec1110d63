//! The memory of a task: what the runtime keeps about it, LLVM's `kmp_task_t` with the task's
//! private variables, and the addresses of its shared ones. The compiler's code fills in the latter
//! two between the call that allocates the task and the one that creates it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, ptr};

use margay_abi_omp::runtime::{runtime, with, with_border};
use margay_core_openmp::tools::{TASK_MERGEABLE, TASK_UNTIED};
use margay_run_openmp::task::{Event, TaskClauses};
use margay_run_openmp::team::Context;
use margay_sys_threads::border::Border;
use margay_sys_threads::caller::call_framed;
use margay_sys_threads::outlined::TaskCall;
use margay_sys_threads::task_block::{ALIGN, TaskBlock};

use crate::number;

/// A task's body: gets the number of the thread and the task.
pub(crate) type Routine = unsafe extern "C-unwind" fn(c_int, *mut KmpTask) -> c_int;

/// Flags that the compiler passes to the call that allocates a task.
const TIED: c_int = 0x1;
const FINAL: c_int = 0x2;
const MERGEABLE: c_int = 0x4;
const HAS_DESTRUCTORS: c_int = 0x8;
const PROXY: c_int = 0x10;
const HAS_PRIORITY: c_int = 0x20;
const DETACHABLE: c_int = 0x40;

/// `kmp_task_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KmpTask {
    /// The addresses of shared variables.
    pub(crate) shareds: *mut c_void,
    routine: Option<Routine>,
    part: i32,
    /// The function that destroys the private variables.
    destructors: Option<Routine>,
    priority: KmpCompilerData,
}

/// `kmp_cmplrdata_t`
#[derive(Clone, Copy)]
#[repr(C)]
union KmpCompilerData {
    number: i32,
    routine: Option<Routine>,
}

/// What stands before the `kmp_task_t`; as long as the alignment of blocks, so that the task has
/// it, too.
#[repr(C, align(64))]
pub(crate) struct TaskData {
    /// Bytes of the block.
    block_bytes: usize,
    /// Bytes of the task with its private variables, and with its shared ones.
    task_bytes: usize,
    pub(crate) all_bytes: usize,
    pub(crate) flags: c_int,
    /// How many of the two that use a proxy task are ready with it: its body, and the caller that
    /// completes it.
    ready: AtomicU32,
    /// The number of its event; 0 without.
    event: usize,
    /// Of an untied task: see [`Parts`].
    parts: Parts,
}

/// The compiler cuts an untied task into parts: its body returns after each and has created the
/// task again before that, for the next one. Here the parts are run one after the other, as one
/// task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    None,
    Running,
    /// There is another one.
    More,
}

/// The place of the task in a block.
const TASK_OFFSET: usize = size_of::<TaskData>();
const _: () = assert!(TASK_OFFSET == ALIGN);

impl TaskData {
    /// A task, which nobody else knows yet. The compiler's part is not filled in, but for the body
    /// and the place of the shared variables.
    pub(crate) fn allocate(
        context: &Context,
        flags: c_int,
        task_bytes: usize,
        shareds_bytes: usize,
        routine: Option<Routine>,
    ) -> *mut TaskData {
        let task_bytes = task_bytes.max(size_of::<KmpTask>()).next_multiple_of(16);
        let all_bytes = task_bytes + shareds_bytes;
        let block = context.new_block(TASK_OFFSET + all_bytes);
        let block_bytes = block.bytes();
        let data = block.into_raw().cast::<TaskData>();
        // SAFETY: the block has room for it, is aligned, and belongs to nobody else.
        unsafe {
            data.write(TaskData {
                block_bytes,
                task_bytes,
                all_bytes,
                flags,
                ready: AtomicU32::new(0),
                event: 0,
                parts: Parts::None,
            });
            let task = Self::task(data);
            let shareds = if shareds_bytes > 0 {
                task.cast::<u8>().add(task_bytes).cast()
            } else {
                ptr::null_mut()
            };
            task.write(KmpTask {
                shareds,
                routine,
                part: 0,
                destructors: None,
                priority: KmpCompilerData { number: 0 },
            });
        }
        data
    }

    /// A copy of a task, with its own shared variables' addresses.
    ///
    /// # Safety
    /// `of` is a task, which nobody changes.
    pub(crate) unsafe fn duplicate(context: &Context, of: *const TaskData) -> *mut TaskData {
        // SAFETY: by the caller's promise; the copy has the same sizes.
        unsafe {
            let shareds_bytes = (*of).all_bytes - (*of).task_bytes;
            let (flags, task_bytes) = ((*of).flags, (*of).task_bytes);
            let copy = Self::allocate(context, flags, task_bytes, shareds_bytes, None);
            let shareds = (*Self::task(copy)).shareds;
            ptr::copy_nonoverlapping(
                Self::task(of.cast_mut()).cast::<u8>(),
                Self::task(copy).cast::<u8>(),
                (*of).all_bytes,
            );
            (*Self::task(copy)).shareds = shareds;
            copy
        }
    }

    /// The part that the compiler knows.
    pub(crate) fn task(data: *mut TaskData) -> *mut KmpTask {
        data.wrapping_byte_add(TASK_OFFSET).cast()
    }

    /// The whole of which the compiler knows a part.
    pub(crate) fn of(task: *mut KmpTask) -> *mut TaskData {
        task.wrapping_byte_sub(TASK_OFFSET).cast()
    }

    /// The priority of its clause.
    ///
    /// # Safety
    /// `data` is a task that is filled in.
    pub(crate) unsafe fn priority(data: *mut TaskData) -> u32 {
        // SAFETY: by the caller's promise; with this flag the compiler has filled in the number.
        unsafe {
            if (*data).flags & HAS_PRIORITY == 0 {
                return 0;
            }
            (*Self::task(data)).priority.number.max(0) as u32
        }
    }

    /// Its clauses, but for the priority.
    pub(crate) fn clauses(&self, is_undeferred: bool) -> TaskClauses {
        let mut report = 0;
        if self.flags & TIED == 0 {
            report |= TASK_UNTIED;
        }
        if self.flags & MERGEABLE != 0 {
            report |= TASK_MERGEABLE;
        }
        TaskClauses {
            is_undeferred,
            is_final: self.flags & FINAL != 0,
            priority: 0,
            report,
        }
    }

    /// Gives the task an event, and returns its handle.
    pub(crate) fn make_event(&mut self) -> usize {
        if self.event == 0 {
            // Until the task is created, the table of events keeps it.
            self.event = runtime().new_event().1;
        }
        self.event
    }

    /// Its event, unless that has been fulfilled.
    pub(crate) fn event(&mut self) -> Option<Arc<Event>> {
        if self.flags & PROXY != 0 {
            self.make_event();
        }
        if self.event == 0 {
            return None;
        }
        runtime().event(self.event)
    }

    /// Someone else has completed a proxy task.
    ///
    /// # Safety
    /// `data` is a proxy task that was created; nobody uses it after this call but its body.
    pub(crate) unsafe fn complete_proxy(data: *mut TaskData) {
        // SAFETY: by the caller's promise.
        let event = unsafe { (*data).event };
        runtime().fulfill_event(event);
        // SAFETY: as above.
        with(|context| unsafe { Self::release_one(context, data) });
    }

    /// One of the two that use a proxy task is ready with it; the second frees it.
    ///
    /// # Safety
    /// As of `complete_proxy`.
    unsafe fn release_one(context: &Context, data: *mut TaskData) {
        // SAFETY: by the caller's promise.
        if unsafe { &(*data).ready }.fetch_add(1, Ordering::AcqRel) == 1 {
            // SAFETY: nobody uses it any more.
            unsafe { Self::free(context, data) };
        }
    }

    /// The body of a task has run, or will not run: destroys its private variables and frees it.
    ///
    /// # Safety
    /// `data` is a task that only the caller uses.
    pub(crate) unsafe fn finish(context: &Context, border: Border<'_>, data: *mut TaskData) {
        // SAFETY: by the caller's promise; with the flag the compiler has filled in the function.
        unsafe {
            if (*data).flags & HAS_DESTRUCTORS != 0
                && let Some(destructors) = (*Self::task(data)).destructors
            {
                border.outside(|| destructors(number(context), Self::task(data)));
            }
            if (*data).flags & PROXY == 0 {
                Self::free(context, data);
            } else {
                Self::release_one(context, data);
            }
        }
    }

    /// # Safety
    /// `data` is a task that nobody uses any more.
    pub(crate) unsafe fn free(context: &Context, data: *mut TaskData) {
        // SAFETY: by the caller's promise; `allocate` has made it of a block of this length.
        let block = unsafe { TaskBlock::from_raw(data.cast(), (*data).block_bytes) };
        context.free_block(block);
    }

    /// The call that creates the task, whose address is at `place`.
    ///
    /// # Safety
    /// What the compiler promises: the task is filled in, and may be run once, by any thread;
    /// nobody else uses it. `place` can be read until the creating call returns.
    pub(crate) unsafe fn call<'c>(place: &'c mut *mut TaskData) -> TaskCall<'c> {
        let at = ptr::from_mut(place).cast();
        // SAFETY: by the caller's promise; `run` reads one address, of which there may be copies.
        unsafe { TaskCall::new(run, at, None, size_of::<*mut TaskData>(), ALIGN_OF_ADDRESS) }
            .that_owns()
    }

    /// Calls a part of the body, and of an untied task all that follow.
    ///
    /// # Safety
    /// `data` is a task that only the caller and the body use.
    unsafe fn call_parts(data: *mut TaskData, body: impl Fn()) {
        // SAFETY: by the caller's promise.
        unsafe {
            Self::begin_parts(data);
            body();
            Self::call_rest(data, body);
        }
    }

    /// The caller runs the first part of the body.
    ///
    /// # Safety
    /// As of `call_parts`.
    pub(crate) unsafe fn begin_parts(data: *mut TaskData) {
        // SAFETY: by the caller's promise.
        unsafe {
            if (*data).flags & TIED == 0 {
                (*data).parts = Parts::Running;
            }
        }
    }

    /// Calls the parts that follow the first one.
    ///
    /// # Safety
    /// As of `call_parts`.
    unsafe fn call_rest(data: *mut TaskData, body: impl Fn()) {
        // SAFETY: by the caller's promise.
        unsafe {
            while (*data).parts == Parts::More {
                (*data).parts = Parts::Running;
                body();
            }
        }
    }

    /// The same for a task whose first part the program has called itself.
    ///
    /// # Safety
    /// As of `call_parts`.
    pub(crate) unsafe fn end_parts(context: &Context, border: Border<'_>, data: *mut TaskData) {
        let task = Self::task(data);
        // SAFETY: by the caller's promise.
        unsafe {
            if let Some(routine) = (*task).routine {
                Self::call_rest(data, || {
                    border.outside(|| routine(number(context), task));
                });
            }
        }
    }

    /// A task is created: whether that is its own next part, which the caller need not create.
    ///
    /// # Safety
    /// `data` is a task that is filled in.
    pub(crate) unsafe fn is_next_part(data: *mut TaskData) -> bool {
        // SAFETY: by the caller's promise; a task that runs is created again by its own body only.
        unsafe {
            let is_running = (*data).parts != Parts::None;
            if is_running {
                (*data).parts = Parts::More;
            }
            is_running
        }
    }

    /// Whether the current task runs it in place, without a call that creates it.
    ///
    /// # Safety
    /// `data` is a task that is filled in.
    pub(crate) unsafe fn runs_in_place(context: &Context, data: *const TaskData) -> bool {
        // SAFETY: by the caller's promise.
        let (flags, event) = unsafe { ((*data).flags, (*data).event) };
        flags & PROXY == 0 && event == 0 && context.runs_in_place(false)
    }

    /// Runs it in place, for a caller that is outside, and frees it.
    ///
    /// # Safety
    /// `data` is a task that is filled in, which nobody else uses, and `runs_in_place`.
    pub(crate) unsafe fn run_in_place(context: &Context, border: Border<'_>, data: *mut TaskData) {
        let task = Self::task(data);
        // SAFETY: by the caller's promise.
        unsafe {
            let is_final = (*data).flags & FINAL != 0 || context.is_final.get();
            let left = context.run_in_place(is_final, || {
                if let Some(routine) = (*task).routine {
                    Self::call_parts(data, || {
                        routine(number(context), task);
                    });
                }
            });
            border.inside(|| {
                Self::finish(context, border, data);
                if let Some(left) = left {
                    context.end_in_place(left);
                }
            });
        }
    }

    /// Whether it has an event that the program may ask for.
    pub(crate) fn is_detachable(&self) -> bool {
        self.flags & DETACHABLE != 0
    }
}

const ALIGN_OF_ADDRESS: usize = align_of::<*mut TaskData>();

/// The body of all tasks: runs the compiler's.
///
/// # Safety
/// `place` holds the address of a task that only the caller uses.
unsafe extern "C-unwind" fn run(place: *mut c_void) {
    // SAFETY: by the caller's promise.
    let data = unsafe { place.cast::<*mut TaskData>().read() };
    with_border(|context, border| {
        let task = TaskData::task(data);
        // SAFETY: as above.
        unsafe {
            if context.is_cancelled() {
                context.tell_body_discarded();
                // The body would have had the event fulfilled.
                runtime().fulfill_event((*data).event);
            } else if let Some(routine) = (*task).routine {
                let thread = number(context);
                match context.exit_frame() {
                    None => {
                        TaskData::call_parts(data, || {
                            border.outside(|| routine(thread, task));
                        });
                    }
                    Some(frame) => {
                        // A number of 32 bits is passed in the register of a word, and a result
                        // that is not read may be there.
                        let routine = mem::transmute::<
                            Routine,
                            unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
                        >(routine);
                        let thread = ptr::without_provenance_mut(thread as usize);
                        TaskData::call_parts(data, || {
                            border.outside(|| call_framed(routine, thread, task.cast(), frame));
                        });
                    }
                }
            }
            TaskData::finish(context, border, data);
        }
    });
}
