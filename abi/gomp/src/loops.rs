//! Loops: for signed numbers, and for `unsigned long long`; ordered; doacross.

use std::ffi::{c_long, c_uint};

use margay_core_openmp::schedule::{Iterations, Kind, Schedule};
use margay_core_openmp::tools::Work;
use margay_run_openmp::team::Context;
use margay_run_openmp::work::{Loop, ShareOptions};

use crate::share::{begin_share, decode};
use margay_abi_omp::runtime::with;
use margay_abi_omp::tools::mutex;

/// Passes the next iterations of the member to the program.
///
/// # Safety
/// Both pointers can be written.
unsafe fn next(context: &Context, first: *mut u64, end: *mut u64) -> bool {
    let Some(iterations) = context.next_iterations() else {
        return false;
    };
    // SAFETY: by the caller's promise.
    unsafe {
        first.write(iterations.0);
        end.write(iterations.1);
    }
    true
}

/// # Safety
/// Both pointers can be written.
unsafe fn start(
    iterations: Iterations,
    schedule: Schedule,
    is_ordered: bool,
    first: *mut u64,
    end: *mut u64,
) -> bool {
    let share = Loop {
        iterations,
        schedule,
        is_ordered,
    };
    with(|context| {
        context.begin_share(Some(share), ShareOptions::default(), None);
        context.tell_work(Work::Loop);
        // SAFETY: by the caller's promise.
        unsafe { next(context, first, end) }
    })
}

macro_rules! nexts {
    ($($name:ident)*) => {$(
        /// # Safety
        /// Both pointers can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(first: *mut u64, end: *mut u64) -> bool {
            // SAFETY: by the caller's promise.
            with(|context| unsafe { next(context, first, end) })
        }
    )*};
}

nexts! {
    GOMP_loop_static_next GOMP_loop_dynamic_next GOMP_loop_guided_next GOMP_loop_runtime_next
    GOMP_loop_nonmonotonic_dynamic_next GOMP_loop_nonmonotonic_guided_next GOMP_loop_nonmonotonic_runtime_next
    GOMP_loop_maybe_nonmonotonic_runtime_next
    GOMP_loop_ordered_static_next GOMP_loop_ordered_dynamic_next GOMP_loop_ordered_guided_next
    GOMP_loop_ordered_runtime_next
    GOMP_loop_ull_static_next GOMP_loop_ull_dynamic_next GOMP_loop_ull_guided_next GOMP_loop_ull_runtime_next
    GOMP_loop_ull_nonmonotonic_dynamic_next GOMP_loop_ull_nonmonotonic_guided_next
    GOMP_loop_ull_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next
    GOMP_loop_ull_ordered_static_next GOMP_loop_ull_ordered_dynamic_next GOMP_loop_ull_ordered_guided_next
    GOMP_loop_ull_ordered_runtime_next
}

macro_rules! starts {
    ($($name:ident $ull:ident $kind:expr, $is_ordered:expr;)*) => {$(
        /// # Safety
        /// Both pointers can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            from: c_long, to: c_long, step: c_long, chunk: c_long, first: *mut u64, end: *mut u64,
        ) -> bool {
            let schedule = Schedule::new($kind, chunk.max(0) as u64);
            // SAFETY: by the caller's promise.
            unsafe { start(Iterations::signed(from, to, step), schedule, $is_ordered, first, end) }
        }

        /// # Safety
        /// Both pointers can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $ull(
            up: bool, from: u64, to: u64, step: u64, chunk: u64, first: *mut u64, end: *mut u64,
        ) -> bool {
            let schedule = Schedule::new($kind, chunk);
            // SAFETY: by the caller's promise.
            unsafe { start(Iterations::unsigned(up, from, to, step), schedule, $is_ordered, first, end) }
        }
    )*};
}

starts! {
    GOMP_loop_static_start GOMP_loop_ull_static_start Kind::Static, false;
    GOMP_loop_dynamic_start GOMP_loop_ull_dynamic_start Kind::Dynamic, false;
    GOMP_loop_guided_start GOMP_loop_ull_guided_start Kind::Guided, false;
    GOMP_loop_nonmonotonic_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_start Kind::Dynamic, false;
    GOMP_loop_nonmonotonic_guided_start GOMP_loop_ull_nonmonotonic_guided_start Kind::Guided, false;
    GOMP_loop_ordered_static_start GOMP_loop_ull_ordered_static_start Kind::Static, true;
    GOMP_loop_ordered_dynamic_start GOMP_loop_ull_ordered_dynamic_start Kind::Dynamic, true;
    GOMP_loop_ordered_guided_start GOMP_loop_ull_ordered_guided_start Kind::Guided, true;
}

macro_rules! runtime_starts {
    ($($name:ident $ull:ident $is_ordered:expr;)*) => {$(
        /// # Safety
        /// Both pointers can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            from: c_long, to: c_long, step: c_long, first: *mut u64, end: *mut u64,
        ) -> bool {
            // SAFETY: by the caller's promise.
            unsafe { start(Iterations::signed(from, to, step), decode(0, 0), $is_ordered, first, end) }
        }

        /// # Safety
        /// Both pointers can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $ull(
            up: bool, from: u64, to: u64, step: u64, first: *mut u64, end: *mut u64,
        ) -> bool {
            // SAFETY: by the caller's promise.
            unsafe { start(Iterations::unsigned(up, from, to, step), decode(0, 0), $is_ordered, first, end) }
        }
    )*};
}

runtime_starts! {
    GOMP_loop_runtime_start GOMP_loop_ull_runtime_start false;
    GOMP_loop_nonmonotonic_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start false;
    GOMP_loop_maybe_nonmonotonic_runtime_start GOMP_loop_ull_maybe_nonmonotonic_runtime_start false;
    GOMP_loop_ordered_runtime_start GOMP_loop_ull_ordered_runtime_start true;
}

/// The general forms, with reductions and memory for all members. Without a place for iterations
/// the call only prepares the loop.
///
/// # Safety
/// As the calls below promise.
unsafe fn start_with_all(
    share: Loop,
    counts: Option<&[u64]>,
    (first, end): (*mut u64, *mut u64),
    reductions: *mut usize,
    memory: *mut usize,
) -> bool {
    with(|context| {
        // SAFETY: by the caller's promise.
        unsafe { begin_share(context, Some(share), reductions, memory, counts) };
        context.tell_work(Work::Loop);
        if first.is_null() {
            return true;
        }
        // SAFETY: by the caller's promise.
        unsafe { next(context, first, end) }
    })
}

macro_rules! general_starts {
    ($($name:ident $ull:ident $is_ordered:expr;)*) => {$(
        /// # Safety
        /// `first` and `end` can be written or are null, `reductions` is null or a table of
        /// reductions, `memory` is null or holds a size and gets an address.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            from: c_long, to: c_long, step: c_long, schedule: c_long, chunk: c_long, first: *mut u64, end: *mut u64,
            reductions: *mut usize, memory: *mut usize,
        ) -> bool {
            let share = Loop {
                iterations: Iterations::signed(from, to, step),
                schedule: decode(schedule as u64, chunk),
                is_ordered: $is_ordered,
            };
            // SAFETY: by the caller's promise.
            unsafe { start_with_all(share, None, (first, end), reductions, memory) }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $ull(
            up: bool, from: u64, to: u64, step: u64, schedule: c_long, chunk: u64, first: *mut u64, end: *mut u64,
            reductions: *mut usize, memory: *mut usize,
        ) -> bool {
            let share = Loop {
                iterations: Iterations::unsigned(up, from, to, step),
                schedule: decode(schedule as u64, i64::try_from(chunk).unwrap_or(i64::MAX)),
                is_ordered: $is_ordered,
            };
            // SAFETY: by the caller's promise.
            unsafe { start_with_all(share, None, (first, end), reductions, memory) }
        }
    )*};
}

general_starts! {
    GOMP_loop_start GOMP_loop_ull_start false;
    GOMP_loop_ordered_start GOMP_loop_ull_ordered_start true;
}

/// A doacross loop counts its iterations from 0, for signed and unsigned alike.
///
/// # Safety
/// `counts` has `loops` elements; the rest as of `start_with_all`.
unsafe fn start_doacross(
    loops: c_uint,
    counts: *const u64,
    schedule: Schedule,
    places: (*mut u64, *mut u64),
    reductions: *mut usize,
    memory: *mut usize,
) -> bool {
    // SAFETY: by the caller's promise.
    let counts = unsafe { std::slice::from_raw_parts(counts, loops as usize) };
    let share = Loop {
        iterations: Iterations::unsigned(true, 0, counts.first().copied().unwrap_or(0), 1),
        schedule,
        is_ordered: false,
    };
    // SAFETY: by the caller's promise.
    unsafe { start_with_all(share, Some(counts), places, reductions, memory) }
}

macro_rules! doacross_starts {
    ($($name:ident $kind:expr;)*) => {$(
        /// # Safety
        /// `counts` has `loops` elements; `first` and `end` can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            loops: c_uint, counts: *const u64, chunk: u64, first: *mut u64, end: *mut u64,
        ) -> bool {
            let (none, schedule) = (std::ptr::null_mut(), Schedule::new($kind, chunk));
            // SAFETY: by the caller's promise.
            unsafe { start_doacross(loops, counts, schedule, (first, end), none, none) }
        }
    )*};
}

doacross_starts! {
    GOMP_loop_doacross_static_start Kind::Static;
    GOMP_loop_doacross_dynamic_start Kind::Dynamic;
    GOMP_loop_doacross_guided_start Kind::Guided;
    GOMP_loop_ull_doacross_static_start Kind::Static;
    GOMP_loop_ull_doacross_dynamic_start Kind::Dynamic;
    GOMP_loop_ull_doacross_guided_start Kind::Guided;
}

macro_rules! doacross_general_starts {
    ($($runtime:ident $general:ident)*) => {$(
        /// # Safety
        /// `counts` has `loops` elements; `first` and `end` can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $runtime(
            loops: c_uint, counts: *const u64, first: *mut u64, end: *mut u64,
        ) -> bool {
            let none = std::ptr::null_mut();
            // SAFETY: by the caller's promise.
            unsafe { start_doacross(loops, counts, decode(0, 0), (first, end), none, none) }
        }

        /// # Safety
        /// As above; and as of `GOMP_loop_start`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $general(
            loops: c_uint, counts: *const u64, schedule: c_long, chunk: c_long, first: *mut u64, end: *mut u64,
            reductions: *mut usize, memory: *mut usize,
        ) -> bool {
            // SAFETY: by the caller's promise.
            unsafe {
                start_doacross(loops, counts, decode(schedule as u64, chunk), (first, end), reductions, memory)
            }
        }
    )*};
}

doacross_general_starts! {
    GOMP_loop_doacross_runtime_start GOMP_loop_doacross_start
    GOMP_loop_ull_doacross_runtime_start GOMP_loop_ull_doacross_start
}

macro_rules! posts {
    ($($name:ident)*) => {$(
        /// # Safety
        /// `iteration` has as many elements as the doacross loop has nested loops.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(iteration: *const u64) {
            with(|context| {
                // SAFETY: by the caller's promise.
                context.post(unsafe { std::slice::from_raw_parts(iteration, context.doacross_loops()) });
            });
        }
    )*};
}

posts! { GOMP_doacross_post GOMP_doacross_ull_post }

/// Arguments of a variadic function that are passed in registers.
#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 6;

/// # Safety
/// `registers` and `stack` hold the arguments, as many as the doacross loop has nested loops.
#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" fn wait_for_post(registers: *const u64, stack: *const u64) {
    with(|context| {
        context.wait_for_post(|at| {
            // SAFETY: by the caller's promise.
            unsafe {
                if at < IN_REGISTERS {
                    registers.add(at).read()
                } else {
                    stack.add(at - IN_REGISTERS).read()
                }
            }
        });
    });
}

/// Variadic functions: the number of arguments depends on the loop.
#[cfg(target_arch = "x86_64")]
macro_rules! waits {
    ($($name:ident)*) => {$(
        /// # Safety
        /// There are as many arguments, of 64 bits each, as the doacross loop has nested loops.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                "lea rax, [rsp + 8]",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "mov rsi, rax",
                "sub rsp, 8",
                "call {wait}",
                "add rsp, 56",
                "ret",
                wait = sym wait_for_post,
            )
        }
    )*};
}

/// On other processors arguments beyond the first eight are not supported: doacross loops are not
/// nested so deeply.
#[cfg(not(target_arch = "x86_64"))]
macro_rules! waits {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64) {
            let all = [a, b, c, d, e, f, g, h];
            with(|context| context.wait_for_post(|at| all[at]));
        }
    )*};
}

waits! { GOMP_doacross_wait GOMP_doacross_ull_wait }

#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_ordered_start() {
    mutex::start_ordered();
}

/// The turn passes on with the member's iterations, not with each ordered region.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn GOMP_ordered_end() {
    mutex::end_ordered();
}
