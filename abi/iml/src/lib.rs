//! The Rust half of `libiml`: what `iml.c` calls. Functions are named after those of the C half,
//! which makes the checks that need no worker.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_run_threads::{
    AnyClock, Config, DequeMark, Iterations, Pool, Refusal, Schedule, Worker,
};
use margay_sys_os::heap::CheckedAllocator;
use margay_sys_threads::job::{Context, Count};

/// The pool of this process: the one place that looks it up. Its threads are started at the first
/// call.
fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let config = Config {
            refusal: Refusal { warn, fail },
            ..Config::default()
        };
        Pool::new(config, AnyClock::System)
    })
}

#[global_allocator]
static ALLOCATOR: CheckedAllocator = CheckedAllocator {
    fail: out_of_memory,
};

/// Ends the program without allocating.
#[cold]
fn out_of_memory(bytes: usize) -> ! {
    eprintln!("libiml: no memory for {bytes} bytes; raise the limit of address space (ulimit -v)");
    std::process::exit(1);
}

fn warn(text: &str) {
    eprintln!("libiml: {text}");
}

fn fail(text: &str) -> ! {
    warn(text);
    std::process::exit(1)
}

#[inline]
fn with_worker<R>(body: impl FnOnce(&Worker) -> R) -> R {
    margay_run_threads::with_worker(pool, body)
}

/// What the C half guarantees: addresses that stay valid during the call that has them, of objects
/// that the user lets any thread use.
#[derive(Clone, Copy)]
struct Vouched<T>(T);

// SAFETY: by the promise of `new`.
unsafe impl<T> Send for Vouched<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Vouched<T> {}

impl<T: Copy> Vouched<T> {
    /// # Safety
    /// What the value points to may be used by any thread as long as that thread may have the
    /// value.
    unsafe fn new(value: T) -> Self {
        Vouched(value)
    }

    /// By a method, so that closures capture the whole.
    fn get(&self) -> T {
        self.0
    }
}

/// A group in the user's `iml_group_t`.
#[repr(C)]
struct Group {
    /// [`BEGUN`], or anything.
    magic: u64,
    /// The slot of the worker that began it.
    worker: u16,
    is_cancelled: AtomicBool,
    since: DequeMark,
    count: Count,
}

/// The first word of a group that has been begun.
const BEGUN: u64 = 0x696d_6c67_726f_7570;

/// Words of `iml_group_t`.
const GROUP_WORDS: usize = 10;
const _: () = assert!(size_of::<Group>() <= GROUP_WORDS * 8 && align_of::<Group>() <= 8);

impl Group {
    fn begin(worker: &Worker) -> Group {
        Group {
            magic: BEGUN,
            worker: Context::worker_slot(worker),
            is_cancelled: false.into(),
            since: worker.mark(),
            count: Count::new(worker.home()),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

/// The group at an address, if it has been begun.
///
/// # Safety
/// `group` is the address of an `iml_group_t`, or null.
unsafe fn begun<'a>(group: *const Group) -> Option<&'a Group> {
    // SAFETY: by the caller; any bits are a group as far as its first word.
    unsafe {
        if group.is_null() || (*group).magic != BEGUN {
            return None;
        }
        Some(&*group)
    }
}

type Chunk = extern "C" fn(*const c_void, i64, i64);

/// # Safety
/// `chunk` may be called with `data` by any thread until this returns; `group` is the address of an
/// `iml_group_t`, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_loop(
    count: i64,
    schedule: c_int,
    min_chunk: i64,
    chunk: Chunk,
    data: *const c_void,
    group: *const Group,
) {
    let schedule = match schedule {
        1 => Schedule::Static,
        2 => Schedule::Simple,
        3 => Schedule::SelfScheduling,
        4 => Schedule::Guided,
        _ => Schedule::Factoring,
    };
    // SAFETY: by the caller; no thread has them when this call returns.
    let (data, group) = unsafe { (Vouched::new(data), Vouched::new(group)) };
    // Everything is assembled where it is used, from registers; see `margay_iml_enqueue_short`.
    with_worker(move |worker| {
        let iterations = Iterations {
            count: count.max(0) as u64,
            schedule,
            min_chunk: min_chunk.max(1) as u64,
        };
        let body = move |_: &Worker, begin: u64, count: u64| {
            // SAFETY: by the caller; all chunks have run when this call returns.
            let group = unsafe { begun(group.get()) };
            if !group.is_some_and(Group::is_cancelled) {
                chunk(data.get(), begin as i64, count as i64);
            }
        };
        worker.for_each(iterations, &body);
    });
}

/// Words of a task without an allocation of its own: procedure, count and nine parameters.
const SMALL: usize = 11;
/// Words of the largest task.
const LARGE: usize = 18;

type RunTask = extern "C" fn(*const usize);

/// # Safety
/// `words` is the address of `count` words, at most [`LARGE`].
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_enqueue(run: RunTask, words: *const usize, count: usize) {
    // SAFETY: by the caller.
    let words = unsafe { std::slice::from_raw_parts(words, count.min(LARGE)) };
    with_worker(|worker| {
        if words.len() <= SMALL {
            enqueue::<SMALL>(worker, run, words);
        } else {
            enqueue::<LARGE>(worker, run, words);
        }
    });
}

fn enqueue<const WORDS: usize>(worker: &Worker, run: RunTask, words: &[usize]) {
    let mut task = [0; WORDS];
    task[..words.len()].copy_from_slice(words);
    worker.enqueue(move |_| run(task.as_ptr()));
}

type RunShortTask = extern "C" fn(usize, usize, usize, usize);

/// A task of few words, which are passed in registers: reading them from memory where each has just
/// been written takes longer than all the rest.
#[unsafe(no_mangle)]
extern "C" fn margay_iml_enqueue_short(
    run: RunShortTask,
    procedure: usize,
    count: usize,
    first: usize,
    second: usize,
) {
    with_worker(|worker| worker.enqueue(move |_| run(procedure, count, first, second)));
}

#[unsafe(no_mangle)]
extern "C" fn margay_iml_wait_enqueued() {
    with_worker(Worker::wait_enqueued);
}

type Map = extern "C" fn(i64, i64, *mut c_void, *mut c_void);
type Combine = extern "C" fn(*mut c_void, *const c_void, *mut c_void);

/// # Safety
/// `result` is the address of `size` bytes. Any thread may call `map` and `combine` with `data`
/// until this returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_reduce(
    begin: i64,
    end: i64,
    grain: i64,
    result: *mut c_void,
    size: usize,
    map: Map,
    combine: Combine,
    data: *mut c_void,
) {
    // Values lie in words of 16 bytes, so that whatever type they have they are aligned.
    let mut identity = vec![0_u128; size.div_ceil(16)];
    // SAFETY: `result` has `size` bytes, and so has the copy.
    unsafe {
        std::ptr::copy_nonoverlapping(result.cast::<u8>(), identity.as_mut_ptr().cast(), size)
    };
    // SAFETY: by the caller; no thread has it when this call returns.
    let data = unsafe { Vouched::new(data) };
    let first = begin;
    let part = |_: &Worker, begin: u64, count: u64| {
        let mut value = identity.clone();
        let begin = first + begin as i64;
        map(
            begin,
            begin + count as i64,
            value.as_mut_ptr().cast(),
            data.get(),
        );
        value
    };
    let both = |mut left: Vec<u128>, right: Vec<u128>| {
        combine(left.as_mut_ptr().cast(), right.as_ptr().cast(), data.get());
        left
    };
    let count = end.abs_diff(begin);
    let total =
        with_worker(|worker| worker.reduce(count, grain.max(1) as u64, Vec::new(), &part, &both));
    // SAFETY: as above; there is at least one part, so the total has the size.
    unsafe { std::ptr::copy_nonoverlapping(total.as_ptr().cast(), result.cast::<u8>(), size) };
}

#[unsafe(no_mangle)]
extern "C" fn margay_iml_set_threads(threads: c_int) -> c_int {
    with_worker(|worker| worker.set_active(threads.max(1) as usize)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn margay_iml_thread() -> c_int {
    with_worker(Worker::number) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn margay_iml_threads() -> c_int {
    with_worker(Worker::active) as c_int
}

/// # Safety
/// `group` is the address of an `iml_group_t`.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_group_begin(group: *mut Group) {
    with_worker(|worker| {
        // SAFETY: an `iml_group_t` is large and aligned enough, which is asserted above.
        unsafe { group.write(Group::begin(worker)) };
    });
}

type Task = extern "C" fn(*mut c_void);
type TaskWithResult = extern "C" fn(*mut c_void) -> *mut c_void;

/// # Safety
/// Any thread may call `second` with its argument until this returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_both(
    first: Task,
    first_argument: *mut c_void,
    second: Task,
    second_argument: *mut c_void,
) {
    // SAFETY: by the caller; no thread has it when this call returns.
    let second_argument = unsafe { Vouched::new(second_argument) };
    with_worker(|worker| worker.join(|_| first(first_argument), |_| second(second_argument.get())));
}

/// Returns 0 when the group has not been begun.
///
/// # Safety
/// `group` is the address of an `iml_group_t` that lives until it has been waited for. Until then
/// any thread may call the task with `argument`, and write what it returns to `result`.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_spawn(
    group: *const Group,
    task: Option<Task>,
    with_result: Option<TaskWithResult>,
    argument: *mut c_void,
    result: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the caller.
    let Some(begun_group) = (unsafe { begun(group) }) else {
        return 0;
    };
    // SAFETY: by the caller: the task may run on any thread until the group has been waited for.
    let all = unsafe { Vouched::new((group, argument, result)) };
    with_worker(|worker| {
        begun_group.count.add(worker.home());
        let job = worker.nodes().job(worker.tag(), move |worker: &Worker| {
            let (group, argument, result) = all.get();
            // SAFETY: the group is not waited for until this task is counted as finished.
            let group = unsafe { &*group };
            if !group.is_cancelled() {
                match (task, with_result) {
                    (Some(task), _) => task(argument),
                    // SAFETY: the user's place for the result, which the user reads after the wait.
                    (None, Some(task)) => unsafe { result.write(task(argument)) },
                    (None, None) => {}
                }
            }
            // Read before: the group may be gone when this was its last task.
            let home = group.worker;
            // SAFETY: this task, which was added above, is over; jobs run once.
            if let Some(waiter) = unsafe { group.count.finish(worker.home()) } {
                worker.wake_task(home, waiter);
            }
        });
        worker.deque().push(job);
        worker.pushed();
    });
    1
}

/// Returns 1 when the group has not been begun, 2 when it was begun on another thread.
///
/// # Safety
/// As of [`margay_iml_spawn`].
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_wait(group: *mut Group) -> c_int {
    // SAFETY: by the caller.
    let Some(begun_group) = (unsafe { begun(group) }) else {
        return 1;
    };
    with_worker(|worker| {
        if begun_group.worker != Context::worker_slot(worker) {
            return 2;
        }
        worker.wait_for_tasks(&begun_group.count, begun_group.since);
        // SAFETY: all tasks are finished, so nobody else uses the group; it begins anew.
        unsafe { group.write(Group::begin(worker)) };
        0
    })
}

/// # Safety
/// `group` is the address of an `iml_group_t`.
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_cancel(group: *const Group) {
    // SAFETY: by the caller.
    if let Some(group) = unsafe { begun(group) } {
        group.is_cancelled.store(true, Ordering::Release);
    }
}

/// # Safety
/// As of [`margay_iml_cancel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn margay_iml_is_cancelled(group: *const Group) -> c_int {
    // SAFETY: by the caller.
    unsafe { begun(group) }.is_some_and(Group::is_cancelled) as c_int
}
