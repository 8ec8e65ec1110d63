//! Threads that another one observes: where they wait, by what the kernel tells in `/proc`, and
//! interrupting them there.
//!
//! A system call that the kernel does not make again by itself (a sleep, a call with a limit of
//! time) ends with EINTR when it is interrupted, and its number is lost with that. So the observer
//! writes down what it has seen before it sends the signal, and the handler completes the call if
//! that is where the thread was.

use std::ffi::c_int;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SIGNAL;
use super::calls::{self, Wait};
use super::registers::{Call, Registers};

/// Threads that can be observed at the same time.
const MAX_THREADS: usize = 1024;

/// The system call in which a thread was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCall {
    call: Call,
    stack_top: usize,
    /// The address behind the instruction.
    behind: usize,
}

impl SeenCall {
    /// Whether the call is a short one of a lock or the like, which the kernel makes again by
    /// itself after an interruption.
    #[must_use]
    pub fn is_restarted(&self) -> bool {
        calls::wait_of(&self.call) == Some(Wait::Futex)
    }
}

/// What was seen last of a thread that has been interrupted.
struct Note([AtomicU64; 9]);

static NOTES: [Note; MAX_THREADS] = [const { Note([const { AtomicU64::new(0) }; 9]) }; MAX_THREADS];

/// Notes that no observed thread has, and how many have been used.
static FREE_NOTES: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A thread of this process.
#[derive(Debug)]
pub struct ObservedThread {
    thread: u32,
    note: usize,
    /// The kernel's `/proc/self/task/<thread>/syscall`.
    file: File,
}

impl ObservedThread {
    /// Observes the thread with this number. None where the kernel does not tell.
    #[must_use]
    pub fn new(thread: u32) -> Option<ObservedThread> {
        let file = File::open(format!("/proc/self/task/{thread}/syscall")).ok()?;
        let mut free = FREE_NOTES.lock().unwrap_or_else(PoisonError::into_inner);
        let note = free.0.pop().or_else(|| {
            let next = free.1;
            (next < MAX_THREADS).then(|| {
                free.1 += 1;
                next
            })
        })?;
        Some(ObservedThread { thread, note, file })
    }

    /// Its number.
    #[must_use]
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The call in which it waits, if it may be interrupted there.
    #[must_use]
    pub fn waits_in(&self) -> Option<SeenCall> {
        let mut text = [0; 256];
        let read = self.file.read_at(&mut text, 0).ok()?;
        let seen = parse(std::str::from_utf8(&text[..read]).ok()?)?;
        let wait = calls::wait_of(&seen.call)?;
        if wait == Wait::Transfer && calls::has_time_limit(&seen.call) {
            return None;
        }
        Some(seen)
    }

    /// Interrupts it. `seen` is where it has been for a while; none for a thread that does not
    /// wait.
    pub fn interrupt(&self, seen: Option<&SeenCall>) {
        /// As the kernel has it: what a queued signal brings along.
        #[repr(C)]
        struct Queued {
            signal: c_int,
            errno: c_int,
            code: c_int,
            padding: c_int,
            process: libc::pid_t,
            user: libc::uid_t,
            value: usize,
            rest: [u64; 12],
        }
        const { assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>()) };
        NOTES[self.note].write(seen);
        // SAFETY: no arguments.
        let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
        let queued = Queued {
            signal: SIGNAL,
            errno: 0,
            code: libc::SI_QUEUE,
            padding: 0,
            process,
            user,
            value: self.note + 1,
            rest: [0; 12],
        };
        // SAFETY: a valid description of a signal that this process handles. A thread that has
        // ended is refused.
        unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process,
                self.thread,
                SIGNAL,
                &raw const queued,
            )
        };
    }
}

impl Drop for ObservedThread {
    fn drop(&mut self) {
        let mut free = FREE_NOTES.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(self.note);
    }
}

impl Note {
    fn write(&self, seen: Option<&SeenCall>) {
        let words = seen.map_or([0; 9], |seen| {
            let [a, b, c, d, e, f] = seen.call.arguments;
            let (top, behind) = (seen.stack_top as u64, seen.behind as u64);
            [seen.call.number as u64, a, b, c, d, e, f, top, behind]
        });
        for (word, to) in self.0.iter().zip(words) {
            word.store(to, Ordering::Relaxed);
        }
    }

    /// Words of two notes may come mixed; a reader compares them with its own registers.
    fn read(&self) -> SeenCall {
        let [number, a, b, c, d, e, f, top, behind] =
            std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        SeenCall {
            call: Call {
                number: number as i64,
                arguments: [a, b, c, d, e, f],
            },
            stack_top: top as usize,
            behind: behind as usize,
        }
    }
}

/// Whether a signal comes from an observer of this process, and which note belongs to it.
pub(super) fn note_of(info: &libc::siginfo_t) -> Option<usize> {
    // SAFETY: every signal that is queued brings a value, and the kernel alone sends others with
    // this code.
    (info.si_code == libc::SI_QUEUE)
        .then(|| unsafe { info.si_value() }.sival_ptr.addr())
        .filter(|&value| (1..=MAX_THREADS).contains(&value))
        .map(|value| value - 1)
}

/// The call that was seen, if these registers are those of a thread that has just been interrupted
/// there.
pub(super) fn interrupted_call(note: usize, registers: &Registers<'_>) -> Option<Call> {
    let seen = NOTES[note].read();
    registers
        .has_interrupted(&seen.call, seen.behind, seen.stack_top)
        .then_some(seen.call)
}

/// The `write` that was seen and has ended with this many bytes, fewer than asked for.
pub(super) fn interrupted_write(note: usize, registers: &Registers<'_>) -> Option<(Call, i64)> {
    let seen = NOTES[note].read();
    let written = registers.has_ended(&seen.call, seen.behind, seen.stack_top)?;
    let is_short = seen.call.number == libc::SYS_write
        && written > 0
        && (written as u64) < seen.call.arguments[2];
    is_short.then_some((seen.call, written))
}

/// Number, six arguments, top of the stack and address of a waiting thread. Others have less.
fn parse(text: &str) -> Option<SeenCall> {
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = hex()?;
    }
    let (stack_top, behind) = (hex()? as usize, hex()? as usize);
    Some(SeenCall {
        call: Call { number, arguments },
        stack_top,
        behind,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use margay_sys_os::cpu;

    use super::*;

    #[test]
    fn a_waiting_thread_is_described_and_a_running_one_is_not() {
        let seen = parse("202 0x10 0x80 0x2 0x0 0x0 0x0 0x7ffc10 0x401000\n").unwrap();
        assert_eq!(seen.call.number, 202);
        assert_eq!(seen.call.arguments, [0x10, 0x80, 2, 0, 0, 0]);
        assert_eq!((seen.stack_top, seen.behind), (0x7f_fc10, 0x40_1000));
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse("-1 0x7ffc10 0x401000\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_until_it_is_woken() {
        let (tell, report) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(cpu::thread_number()).unwrap();
            let _ = ended.recv();
        });
        let observed = ObservedThread::new(report.recv().unwrap()).unwrap();
        while observed.waits_in().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        sleeper.join().unwrap();
        assert_eq!(observed.waits_in(), None);
    }
}
