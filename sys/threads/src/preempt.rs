//! Interrupting a thread that computes for long, while it is in the program's own code.
//!
//! A timer of the thread's processor time sends it a signal. The handler calls a function that may do what the interrupted code
//! could have done at this place by a call of its own, switch to another fiber included: the signal frame stays on the interrupted
//! stack and is returned from when that fiber goes on. That is only allowed where the program's own instructions are interrupted,
//! not those of a library, which may hold a lock (`malloc`'s) or a borrow at this place. So the handler looks where it came from
//! first. Code of the program that waits by calling `sched_yield` spends its time there, and counts as the program's own.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signal: ignored by default, rarely used (urgent data on sockets), and left to a program that has a handler for it.
const SIGNAL: c_int = libc::SIGURG;

struct Handler {
    /// The program's instructions, as half-open ranges of addresses.
    text: Vec<(usize, usize)>,
    /// The system's `sched_yield`; empty where its caller cannot be told.
    sched_yield: std::ops::Range<usize>,
    tick: fn(),
}

/// Bytes at the begin of `sched_yield` in which its return address is where the call has put it: the function is a system call without a
/// frame. The interruption comes right behind that call's instruction.
const SCHED_YIELD_BYTES: usize = 12;

impl Handler {
    /// Whether it is the program's own code that was interrupted, or waits in `sched_yield`.
    fn has_interrupted_program(&self, context: &libc::ucontext_t) -> bool {
        let mut at = interrupted_at(context);
        if self.sched_yield.contains(&at) {
            // SAFETY: the interrupted code is at the begin of a function without a frame.
            at = unsafe { caller_of_leaf(context) };
        }
        self.text
            .iter()
            .any(|&(begin, end)| (begin..end).contains(&at))
    }
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// From now on `tick` is called at each tick of a thread's [`Timer`] that interrupts the program's own code, on that thread. False: not
/// here, because the program uses the signal itself, or because this is part of the program and not a library: its own code would be
/// interrupted, too. To be called once.
pub fn enable(tick: fn()) -> bool {
    static IS_CLAIMED: AtomicBool = AtomicBool::new(false);
    if IS_CLAIMED.swap(true, Ordering::SeqCst) {
        return HANDLER.get().is_some();
    }
    // SAFETY: an all-zero sigaction is a valid value, which the kernel overwrites.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `before` is a valid place for the answer, nothing is changed.
    let asked = unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &raw mut before) };
    if asked != 0 || (before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN)
    {
        return false;
    }
    let text = program_text();
    let own = (on_signal as *const ()).addr();
    if text.iter().any(|&(begin, end)| (begin..end).contains(&own)) {
        return false;
    }
    let handler = Handler {
        text,
        sched_yield: sched_yield_text(),
        tick,
    };
    if HANDLER.set(handler).is_err() {
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

extern "C" fn on_signal(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLER.get() else { return };
    // SAFETY: the kernel passes the interrupted context.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    if !handler.has_interrupted_program(context) {
        return;
    }
    // SAFETY: the address of the thread's errno is valid; the interrupted code may be between a call and its look at errno.
    let before = unsafe { *libc::__errno_location() };
    (handler.tick)();
    // SAFETY: as above; the fiber has not left its thread.
    unsafe { *libc::__errno_location() = before };
}

/// The address of the instruction that was interrupted; 0 on processors that this does not know.
fn interrupted_at(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.pc as usize
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}

/// The return address of the function that was interrupted; 0 on processors that this does not know.
///
/// # Safety
/// That function has no frame.
unsafe fn caller_of_leaf(context: &libc::ucontext_t) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let top = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        // SAFETY: by the caller's promise the return address is on top of the interrupted stack.
        unsafe { *std::ptr::with_exposed_provenance::<usize>(top) }
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[30] as usize
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}

/// The begin of `sched_yield`, if it is what the library of a known system has: `mov $24, %eax; syscall` or `mov x8, #124; svc #0`.
fn sched_yield_text() -> std::ops::Range<usize> {
    // SAFETY: the name ends with a zero byte.
    let begin = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sched_yield".as_ptr()) };
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

/// Where the instructions of the program itself are, without its libraries.
fn program_text() -> Vec<(usize, usize)> {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        text: *mut c_void,
    ) -> c_int {
        // SAFETY: the system passes a valid entry, with as many headers as it says, and what was given to it.
        let (info, text) = unsafe { (&*info, &mut *text.cast::<Vec<(usize, usize)>>()) };
        for at in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: as above.
            let header = unsafe { &*info.dlpi_phdr.add(at) };
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
                let begin = (info.dlpi_addr + header.p_vaddr) as usize;
                text.push((begin, begin + header.p_memsz as usize));
            }
        }
        1 // the program comes first
    }
    let mut text: Vec<(usize, usize)> = Vec::new();
    // SAFETY: the callback keeps to the types, and `text` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut text).cast()) };
    text
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
        // SAFETY: the timer exists and the setting is valid. A refusal leaves long computations alone, as without a timer.
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

    #[test]
    fn who_waits_by_sched_yield_is_where_it_was_called() {
        let handler = Handler {
            text: vec![(0x1000, 0x2000)],
            sched_yield: sched_yield_text(),
            tick: || {},
        };
        assert!(!handler.sched_yield.is_empty());
        let stack = [0x1800_usize, 0x2000];
        // SAFETY: an all-zero context is a valid value.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        let mut is_program = |at: usize, stack: &[usize]| {
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = at as i64;
            context.uc_mcontext.gregs[libc::REG_RSP as usize] =
                stack.as_ptr().expose_provenance() as i64;
            handler.has_interrupted_program(&context)
        };
        let behind_the_call = handler.sched_yield.start + 7;
        assert!(is_program(0x1800, &stack));
        assert!(is_program(behind_the_call, &stack));
        assert!(!is_program(behind_the_call, &stack[1..]));
        assert!(!is_program(handler.sched_yield.end, &stack));
    }
}
