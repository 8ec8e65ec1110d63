//! Interrupting a thread that computes for long, while it is in the program's own code.
//!
//! A timer of the thread's processor time sends it a signal. The handler calls a function that may do what the interrupted code
//! could have done at this place by a call of its own, switch to another fiber included: the signal frame stays on the interrupted
//! stack and is returned from when that fiber goes on. That is only allowed where the program's own instructions are interrupted,
//! not those of a library, which may hold a lock (`malloc`'s) or a borrow at this place. So the handler looks where it came from
//! first.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signal: ignored by default, rarely used (urgent data on sockets), and left to a program that has a handler for it.
const SIGNAL: libc::c_int = libc::SIGURG;

struct Handler {
    /// The program's instructions, as half-open ranges of addresses.
    text: Vec<(usize, usize)>,
    tick: fn(),
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// From now on `tick` is called at each tick of a thread's [`Timer`] that interrupts the program's own code, on that thread. False: not
/// here, because the program uses the signal itself. To be called once.
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
    let handler = Handler {
        text: program_text(),
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

extern "C" fn on_signal(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Some(handler) = HANDLER.get() else { return };
    // SAFETY: the kernel passes the interrupted context.
    let at = unsafe { interrupted_at(&*context.cast::<libc::ucontext_t>()) };
    if !handler
        .text
        .iter()
        .any(|&(begin, end)| (begin..end).contains(&at))
    {
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

/// Where the instructions of the program itself are, without its libraries.
fn program_text() -> Vec<(usize, usize)> {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        text: *mut libc::c_void,
    ) -> libc::c_int {
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
        // SAFETY: no arguments.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
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
            tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
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
