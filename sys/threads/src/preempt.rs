//! Interrupting a thread that computes or waits for long, where that is safe.
//!
//! A signal comes from a timer of the thread's processor time or, where it waits, from a thread
//! that observes it. The handler calls a function that may do what the interrupted code could have
//! done at this place by a call of its own, switch to another fiber included: the signal frame
//! stays on the interrupted stack and is returned from when that fiber goes on. That is allowed
//!
//! - where instructions of the program or of a library are interrupted that the runtime does not
//!   use (`text`): another one may hold a lock (`malloc`'s) that the runtime needs,
//! - at system calls that wait (`calls`), also those of libraries, and in `sched_yield`,
//!
//! and nowhere [inside](crate::border) the runtime itself. Nor while the program copies the
//! process: `fork` takes all of `malloc`'s locks, waits for one that another thread holds, and a
//! fiber that went away there would leave this thread, and those that it makes, waiting for the
//! others.
//!
//! The kernel makes most system calls that a signal has interrupted again by itself: it sets the
//! thread back to the instruction of the call before it calls the handler, which therefore finds
//! the call in the registers. The others have ended with EINTR. The handler completes them, so that
//! the program does not see that they were interrupted: by what the observer has written down, or,
//! where the signal has met another call than the one that was seen, or has come from the timer, by
//! the code before the call (x86-64 only).

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::border;
use registers::Registers;

mod calls;
mod observe;
mod registers;
mod text;
mod yields;

pub use observe::{ObservedThread, SeenCall};

/// The signal: ignored by default, rarely used (urgent data on sockets), and left to a program that
/// has a handler for it.
const SIGNAL: c_int = libc::SIGURG;

/// What a thread was doing when it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It computed, or spun.
    Computing,
    /// It has called `sched_yield`.
    Yielding,
    /// It waited in a system call.
    Waiting,
}

/// Why a thread was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has used up the processor time that its [`Timer`] was set to.
    Timer,
    /// An observer has [interrupted](ObservedThread::interrupt) it.
    Observer,
    /// It has called `sched_yield` itself, after [`refresh`] has found the call.
    Call,
}

/// Called on a thread that was interrupted. Returns whether it has something else to run.
pub type Tick = fn(Interrupted, Reason) -> bool;

struct Handler {
    /// The system's `sched_yield`; empty where that is not known.
    sched_yield: std::ops::Range<usize>,
    tick: Tick,
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// From now on `tick` is called on each thread that is interrupted where that is safe. False: not
/// here, because the program uses the signal itself, or because this is part of the program and not
/// a library: its own code would be interrupted, too. To be called once.
pub fn enable(tick: Tick) -> bool {
    static IS_CLAIMED: AtomicBool = AtomicBool::new(false);
    if IS_CLAIMED.swap(true, Ordering::SeqCst) {
        return is_enabled();
    }
    // SAFETY: an all-zero sigaction is a valid value, which the kernel overwrites.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `before` is a valid place for the answer, nothing is changed.
    let asked = unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &raw mut before) };
    if asked != 0 || (before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN)
    {
        return false;
    }
    if text::is_program((on_signal as *const ()).addr()) {
        return false;
    }
    let handler = Handler {
        sched_yield: sched_yield_text(),
        tick,
    };
    if HANDLER.set(handler).is_err() || !watch_forks() {
        return false;
    }
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // Not blocked while it is handled: another fiber may run before this handler returns.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0 }
}

fn watch_forks() -> bool {
    extern "C" fn begin() {
        border::begin_fork();
    }
    extern "C" fn end() {
        border::end_fork();
    }
    // SAFETY: functions of this library, which call nothing of the program. Should it ever be
    // unloaded, the C library forgets them.
    unsafe { libc::pthread_atfork(Some(begin), Some(end), Some(end)) == 0 }
}

/// Whether threads are interrupted in this process.
#[must_use]
pub fn is_enabled() -> bool {
    HANDLER.get().is_some()
}

/// Finds out what the program has loaded since, and has its calls of `sched_yield` come to the
/// runtime. Not in a handler.
pub fn refresh() {
    if is_enabled() && text::refresh() {
        yields::redirect();
    }
}

extern "C" fn on_signal(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLER.get() else { return };
    if border::is_inside() {
        return;
    }
    // SAFETY: the kernel passes the interrupted context and where the signal comes from.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    // The interrupted code may be between a call and its look at errno, which the border keeps.
    border::inside(|| handler.interrupted(observe::note_of(info), &mut Registers(context)));
}

impl Handler {
    fn interrupted(&self, note: Option<usize>, registers: &mut Registers<'_>) {
        let reason = note.map_or(Reason::Timer, |_| Reason::Observer);
        let at = registers.at();
        if self.sched_yield.contains(&at) {
            (self.tick)(Interrupted::Yielding, reason);
            return;
        }
        let mut others = || (self.tick)(Interrupted::Waiting, reason);
        if let Some(call) = registers.next_call() {
            if let Some(wait) = calls::wait_of(&call) {
                calls::go_on(registers, &call, wait, true, &mut others);
            }
            return;
        }
        let noted = note.and_then(|note| observe::interrupted_call(note, registers));
        if let Some(call) = noted.or_else(|| registers.interrupted_call()) {
            if let Some(wait) = calls::wait_of(&call) {
                calls::go_on(registers, &call, wait, false, &mut others);
            }
            return;
        }
        if let Some((call, written)) =
            note.and_then(|note| observe::interrupted_write(note, registers))
        {
            let result = calls::write_rest(&call, written, &mut others);
            registers.end_call(result, false);
            return;
        }
        if text::current().is_some_and(|text| text.contains(at)) {
            (self.tick)(Interrupted::Computing, reason);
        }
    }
}

/// Bytes at the begin of `sched_yield` in which it has not returned yet: the function is a system
/// call without a frame. The interruption comes right behind that call's instruction.
const SCHED_YIELD_BYTES: usize = 12;

/// The begin of `sched_yield`, if it is what the library of a known system has:
/// `mov $24, %eax; syscall` or `mov x8, #124; svc #0`.
fn sched_yield_text() -> std::ops::Range<usize> {
    let begin = yields::system_yield();
    if begin.is_null() {
        return 0..0;
    }
    // SAFETY: a function of the C library, whose instructions may be read.
    let is = unsafe { begin.cast::<[u8; SCHED_YIELD_BYTES]>().read_unaligned() };
    let call: &[u8] = if cfg!(target_arch = "x86_64") {
        &[0xb8, 24, 0, 0, 0, 0x0f, 0x05]
    } else {
        &[0x88, 0x0f, 0x80, 0xd2, 0x01, 0, 0, 0xd4]
    };
    // A mark for indirect branches (endbr64, bti c) may stand before.
    let is_known = is.starts_with(call) || is[4..].starts_with(call);
    let begin = begin.expose_provenance();
    if is_known {
        begin..begin + SCHED_YIELD_BYTES
    } else {
        0..0
    }
}

/// Ticks of the calling thread's processor time. Belongs to the thread that made it.
#[derive(Debug)]
pub struct Timer {
    id: libc::timer_t,
}

impl Timer {
    /// A timer at rest.
    ///
    /// # Errors
    /// The system has no more timers.
    pub fn new() -> io::Result<Timer> {
        // SAFETY: an all-zero sigevent is a valid value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_pid();
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both are valid for the time of the call.
        let made = unsafe {
            libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut id)
        };
        if made == 0 {
            Ok(Timer { id })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Ticks each `period_ns` nanoseconds of processor time from now on; 0 ends it.
    pub fn set(&self, period_ns: u64) {
        let period = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as c_long,
        };
        let setting = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: the timer exists and the setting is valid. A refusal leaves long computations
        // alone, as without a timer.
        unsafe { libc::timer_settime(self.id, 0, &raw const setting, std::ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer exists and is not used again.
        unsafe { libc::timer_delete(self.id) };
    }
}

#[cfg(all(test, target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use super::*;

    fn context(at: usize, result: i64) -> libc::ucontext_t {
        // SAFETY: an all-zero context is a valid value.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = at as i64;
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
        context
    }

    #[test]
    fn a_thread_in_sched_yield_is_known() {
        let range = sched_yield_text();
        assert!(!range.is_empty());
        assert!(range.contains(&(range.start + 7)), "behind the call");
    }

    #[test]
    fn a_call_that_comes_next_is_found_and_can_be_ended() {
        let code: [u8; 4] = [0x90, 0x0f, 0x05, 0x90];
        let at = code.as_ptr().expose_provenance();
        let mut before = context(at + 1, libc::SYS_futex);
        let mut registers = Registers(&mut before);
        let call = registers.next_call().unwrap();
        assert_eq!(call.number, libc::SYS_futex);
        registers.make_again(&call, true);
        assert_eq!(registers.at(), at + 1);
        registers.end_call(0, true);
        assert_eq!(registers.at(), at + 3);
        assert!(registers.next_call().is_none());
        assert!(registers.has_ended(&call, at + 3, 0) == Some(0));
        assert!(!registers.has_interrupted(&call, at + 3, 0));
    }

    #[test]
    fn a_call_that_was_interrupted_unseen_is_known_by_the_code_before_it() {
        // As a page of code: what lies before it is not read.
        #[repr(align(4096))]
        struct Code([u8; 64]);
        let [a, b, c, d] = (libc::SYS_poll as i32).to_le_bytes();
        let mut code = Code([0x90; 64]);
        code.0[..7].copy_from_slice(&[0xb8, a, b, c, d, 0x0f, 0x05]);
        code.0[16..23].copy_from_slice(&[0xb8, a, b, c, d, 0x0f, 0x05]);
        code.0[32..43].copy_from_slice(&[0xb8, a, b, c, d, 0x8b, 0x7c, 0x24, 0x1c, 0x0f, 0x05]);
        code.0[48..50].copy_from_slice(&[0x0f, 0x05]);
        let begin = code.0.as_ptr().expose_provenance();
        let interrupted = -i64::from(libc::EINTR);
        let number_at = |at, result| {
            let call = Registers(&mut context(begin + at, result)).interrupted_call();
            call.map(|call| call.number)
        };
        assert_eq!(number_at(23, interrupted), Some(libc::SYS_poll));
        assert_eq!(number_at(43, interrupted), Some(libc::SYS_poll));
        assert_eq!(number_at(23, 0), None, "it has ended by itself");
        assert_eq!(number_at(24, interrupted), None, "not behind a call");
        assert_eq!(number_at(50, interrupted), None, "a number from elsewhere");
        assert_eq!(number_at(7, interrupted), None, "near the page's begin");
    }

    #[test]
    fn a_call_that_was_interrupted_is_made_again() {
        let code: [u8; 4] = [0x90, 0x0f, 0x05, 0x90];
        let at = code.as_ptr().expose_provenance();
        let mut after = context(at + 3, -i64::from(libc::EINTR));
        let mut registers = Registers(&mut after);
        let call = registers::Call {
            number: libc::SYS_read,
            arguments: [0; 6],
        };
        assert!(registers.has_interrupted(&call, at + 3, 0));
        assert!(
            !registers.has_interrupted(&call, at + 3, 8),
            "another stack"
        );
        registers.make_again(&call, false);
        assert_eq!(registers.next_call(), Some(call));
    }
}
