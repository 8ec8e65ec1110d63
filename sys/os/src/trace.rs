//! The registers and the stacks of threads of other processes, read from outside.
//!
//! A thread is stopped (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`), its registers and the top of its stack
//! are copied, and it is let go: it stands still for some microseconds of our own work. A system
//! call in which it waited goes on, as after SIGSTOP and SIGCONT. No signal is sent, a thread that
//! a signal had stopped stays stopped, and one that a debugger holds is not touched.
//!
//! All threads are stopped at once and each is let go as soon as it stands, because a thread needs
//! a core to reach its stop: one after the other, as many waits for a core as there are threads
//! would add up.

use std::ffi::c_void;
use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::port::user;

/// How many registers are kept: by DWARF's numbers for the processor.
pub const REGISTERS: usize = 33;
/// DWARF's number of the stack pointer.
#[cfg(target_arch = "aarch64")]
pub const STACK_POINTER: usize = 31;
/// DWARF's number of the stack pointer.
#[cfg(not(target_arch = "aarch64"))]
pub const STACK_POINTER: usize = 7;
/// DWARF's number of the frame pointer.
#[cfg(target_arch = "aarch64")]
pub const FRAME_POINTER: usize = 29;
/// DWARF's number of the frame pointer.
#[cfg(not(target_arch = "aarch64"))]
pub const FRAME_POINTER: usize = 6;

const PAGE: u64 = 4096;
/// Between two polls whether a thread stands.
const PAUSE: Duration = Duration::from_micros(50);
/// Threads that are asked to stop at a time: each stands until those are read that stand before it.
const AT_ONCE: usize = 2;
/// After which more are asked, when none has stopped.
const DELAY: Duration = Duration::from_millis(5);

/// A thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadImage {
    /// By DWARF's numbers.
    pub registers: [u64; REGISTERS],
    /// The address of the next instruction.
    pub pc: u64,
    /// The address of the first byte of `stack`, which is that of the stack pointer.
    pub stack_base: u64,
    /// The stack from there to its end, or as much of it as was asked for.
    pub stack: Vec<u8>,
}

/// Why a thread could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such thread any more.
    Gone,
    /// Its process belongs to this user, who is not the caller.
    AnothersProcess(u32),
    /// This process traces it: a debugger.
    Traced(u32),
    /// The system does not allow it: Yama, a container, a program with more rights.
    Forbidden,
    /// It did not stop in time: the kernel waits for a device or a file server.
    Busy,
    /// Not on this processor, or what the system says.
    Failed(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Refused::Gone => write!(f, "it has ended"),
            Refused::AnothersProcess(user) => {
                write!(
                    f,
                    "it belongs to another user ({user}): be that user, or root"
                )
            }
            Refused::Traced(by) => write!(
                f,
                "process {by} traces it, such as a debugger: ask that one, or end it"
            ),
            Refused::Forbidden => write!(
                f,
                "the system forbids to look into it: kernel.yama.ptrace_scope must be 0 (or 1, \
                 once the rank has called MPI_Init), a container needs the capability SYS_PTRACE, \
                 and a program with more rights than its user (setuid) shows itself only to root"
            ),
            Refused::Busy => write!(
                f,
                "it did not stop in time: the kernel waits for a device or a file server, or no \
                 core was free"
            ),
            Refused::Failed(why) => f.write_str(why),
        }
    }
}

/// A thread that is asked about: the numbers of its process and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
}

/// Reads threads, with at most `stack_bytes` of each stack, and gives up those that do not stop
/// `within` that time. The answers are in the order of the questions.
#[must_use]
pub fn images(
    threads: &[Thread],
    stack_bytes: usize,
    within: Duration,
) -> Vec<Result<ThreadImage, Refused>> {
    // Who traces is a thread; when it ends, the system lets go whatever it still holds. And its
    // wait concerns nobody but those that it traces.
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new()
            .name("margay-trace".into())
            .spawn_scoped(scope, || Tracer::new(threads, stack_bytes).run(within));
        match tracer.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => vec![Err(Refused::Failed("its reader failed".into())); threads.len()],
            Err(error) => vec![Err(Refused::Failed(error.to_string())); threads.len()],
        }
    })
}

struct Tracer<'a> {
    threads: &'a [Thread],
    stack_bytes: usize,
    answers: Vec<Result<ThreadImage, Refused>>,
    /// By the thread's number: which question it is.
    waiting: std::collections::HashMap<u32, usize>,
}

impl<'a> Tracer<'a> {
    fn new(threads: &'a [Thread], stack_bytes: usize) -> Tracer<'a> {
        Tracer {
            threads,
            stack_bytes,
            answers: vec![Err(Refused::Busy); threads.len()],
            waiting: Default::default(),
        }
    }

    fn run(mut self, within: Duration) -> Vec<Result<ThreadImage, Refused>> {
        let mut questions = self.threads.iter().enumerate();
        let mut most = AT_ONCE;
        let (began, mut moved) = (Instant::now(), Instant::now());
        loop {
            // The system names those first that were asked last: more are asked when all are read.
            let room = most.saturating_sub(self.waiting.len());
            let next = if room < AT_ONCE { 0 } else { room };
            for (index, thread) in questions.by_ref().take(next) {
                match seize(*thread) {
                    Ok(()) => drop(self.waiting.insert(thread.tid, index)),
                    Err(refused) => self.answers[index] = Err(refused),
                }
            }
            let is_over = self.waiting.is_empty() && questions.len() == 0;
            if is_over || began.elapsed() >= within {
                break;
            }
            if let Some((tid, status)) = stopped_thread() {
                self.on_stop(tid, status);
                moved = Instant::now();
            } else {
                // Those that are asked run on, as no core is free for their stop.
                if moved.elapsed() > DELAY {
                    most += AT_ONCE;
                    moved = Instant::now();
                }
                std::thread::sleep(PAUSE);
            }
        }
        self.answers
    }

    fn on_stop(&mut self, tid: u32, status: i32) {
        let Some(index) = self.waiting.remove(&tid) else {
            return let_go(tid, status);
        };
        if !libc::WIFSTOPPED(status) {
            self.answers[index] = Err(Refused::Gone);
            return;
        }
        let answer = copy(self.threads[index], self.stack_bytes);
        let_go(tid, status);
        self.answers[index] = answer.map_err(|error| match error {
            Errno::SRCH => Refused::Gone,
            Errno::NOSYS => Refused::Failed("its registers are not known".into()),
            other => Refused::Failed(other.to_string()),
        });
    }
}

/// A call of `ptrace` without memory of this process.
fn request(what: libc::c_uint, tid: u32, data: usize) -> Result<(), Errno> {
    let data = std::ptr::without_provenance_mut::<c_void>(data);
    // SAFETY: none of the requests made here (seize, interrupt, detach) reads or writes memory
    // of this process; `data` is a number.
    let done = unsafe {
        libc::ptrace(
            what,
            tid as libc::pid_t,
            std::ptr::null_mut::<c_void>(),
            data,
        )
    };
    match done {
        -1 => Err(last_error()),
        _ => Ok(()),
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn seize(thread: Thread) -> Result<(), Refused> {
    let Thread { pid, tid } = thread;
    request(libc::PTRACE_SEIZE, tid, 0).map_err(|error| match error {
        Errno::SRCH => Refused::Gone,
        Errno::PERM => why_forbidden(pid, tid),
        other => Refused::Failed(other.to_string()),
    })?;
    // Where it fails the thread has just ended, which the wait reports.
    let _ = request(libc::PTRACE_INTERRUPT, tid, 0);
    Ok(())
}

fn why_forbidden(pid: u32, tid: u32) -> Refused {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u32>().ok()
    };
    if let Some(tracer) = number("TracerPid:").filter(|&tracer| tracer != 0) {
        return Refused::Traced(tracer);
    }
    // The status has the real user; what /proc/PID belongs to is root for a process with more
    // rights than its user.
    match (number("Uid:"), user()) {
        (Some(owner), own) if owner != own && own != 0 => Refused::AnothersProcess(owner),
        (None, _) => Refused::Gone,
        _ => Refused::Forbidden,
    }
}

/// A thread traced by the calling one that has stopped or ended since the last call.
fn stopped_thread() -> Option<(u32, i32)> {
    let mut status = 0;
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: `status` is there for the call.
    let tid = unsafe { libc::waitpid(-1, &mut status, options) };
    (tid > 0).then_some((tid as u32, status))
}

fn let_go(tid: u32, status: i32) {
    if libc::WIFSTOPPED(status) {
        // A stop other than ours is a signal on its way to the thread, which gets it now.
        let is_ours = status >> 16 == libc::PTRACE_EVENT_STOP;
        let signal = if is_ours { 0 } else { libc::WSTOPSIG(status) };
        let _ = request(libc::PTRACE_DETACH, tid, signal as usize);
    }
}

fn copy(thread: Thread, stack_bytes: usize) -> Result<ThreadImage, Errno> {
    let (registers, pc) = registers(thread.tid)?;
    let stack_base = registers[STACK_POINTER];
    let stack = upwards(thread.pid, stack_base, stack_bytes);
    Ok(ThreadImage {
        registers,
        pc,
        stack_base,
        stack,
    })
}

/// The registers of a thread that stands, and its next instruction.
fn registers(tid: u32) -> Result<([u64; REGISTERS], u64), Errno> {
    const GENERAL: usize = 1;
    let mut words = [0u64; 64];
    let mut vector = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    // SAFETY: the system writes at most `iov_len` bytes, which `words` has, and the length.
    let done = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid as libc::pid_t,
            std::ptr::without_provenance_mut::<c_void>(GENERAL),
            (&raw mut vector).cast::<c_void>(),
        )
    };
    if done == -1 {
        return Err(last_error());
    }
    by_number(&words, vector.iov_len)
}

/// The registers of a thread and its next instruction, from what a core file says of it
/// (`struct elf_prstatus`). None when they are those of another processor.
#[must_use]
pub fn registers_of(status: &[u8]) -> Option<([u64; REGISTERS], u64)> {
    /// Before the registers are numbers and times, behind them a word about another kind of them.
    const BEFORE: usize = 112;
    const BEHIND: usize = 8;
    let bytes = status.get(BEFORE..status.len().checked_sub(BEHIND)?)?;
    let mut words = [0u64; 64];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    by_number(&words, bytes.len()).ok()
}

/// The system's order is that of `struct user_regs_struct`.
#[cfg(target_arch = "x86_64")]
fn by_number(words: &[u64; 64], bytes: usize) -> Result<([u64; REGISTERS], u64), Errno> {
    /// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip.
    const PLACES: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];
    // A process of 32 bits has other registers.
    if bytes != 27 * 8 {
        return Err(Errno::NOSYS);
    }
    let mut registers = [0; REGISTERS];
    for (register, place) in registers.iter_mut().zip(PLACES) {
        *register = words[place];
    }
    Ok((registers, registers[16]))
}

/// As above: 31 registers, stack pointer, next instruction.
#[cfg(target_arch = "aarch64")]
fn by_number(words: &[u64; 64], bytes: usize) -> Result<([u64; REGISTERS], u64), Errno> {
    if bytes != 34 * 8 {
        return Err(Errno::NOSYS);
    }
    let mut registers = [0; REGISTERS];
    registers.copy_from_slice(&words[..REGISTERS]);
    Ok((registers, words[32]))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn by_number(_words: &[u64; 64], _bytes: usize) -> Result<([u64; REGISTERS], u64), Errno> {
    Err(Errno::NOSYS)
}

/// The memory of a process from `base` on, as far as it is there, at most `most` bytes.
#[must_use]
pub fn upwards(pid: u32, base: u64, most: usize) -> Vec<u8> {
    /// The kernel takes 1024 pieces at a time.
    const PIECES: usize = 1024;
    let mut bytes = vec![0u8; most];
    let mut pieces = Vec::new();
    let mut at = 0;
    // A piece for each page: the copy ends between two pieces, where memory ends.
    while at < most && pieces.len() < PIECES {
        let Some(address) = base.checked_add(at as u64) else {
            break;
        };
        let len = ((PAGE - address % PAGE) as usize).min(most - at);
        pieces.push(libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address as usize),
            iov_len: len,
        });
        at += len;
    }
    let here = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: at,
    };
    // SAFETY: the local range is inside of `bytes`; the remote ones are the kernel's to check.
    let copied = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            &here,
            1,
            pieces.as_ptr(),
            pieces.len() as libc::c_ulong,
            0,
        )
    };
    bytes.truncate(copied.max(0) as usize);
    bytes.shrink_to_fit();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessFacts;
    use crate::signal::{SIGCONT, SIGSTOP, send};

    const LONG: Duration = Duration::from_secs(20);

    fn image(pid: u32) -> Result<ThreadImage, Refused> {
        let thread = Thread { pid, tid: pid };
        images(&[thread], 1 << 16, LONG).remove(0)
    }

    fn state(pid: u32) -> char {
        ProcessFacts::of(pid).map_or('?', |facts| facts.state)
    }

    fn becomes(pid: u32, wanted: char) {
        let began = Instant::now();
        while state(pid) != wanted {
            assert!(began.elapsed() < LONG, "never {wanted}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_sleeps_is_read_and_goes_on() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = sleeper.id();
        becomes(pid, 'S');
        let found = image(pid);
        // Where nobody may trace, that is what is said.
        if found != Err(Refused::Forbidden) {
            let found = found.unwrap();
            assert_eq!(found.registers[STACK_POINTER], found.stack_base);
            assert!(!found.stack.is_empty() && found.pc != 0);
            becomes(pid, 'S');
            send(pid, SIGSTOP).unwrap();
            becomes(pid, 'T');
            image(pid).unwrap();
            becomes(pid, 'T');
            send(pid, SIGCONT).unwrap();
            becomes(pid, 'S');
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(image(pid), Err(Refused::Gone));
    }

    #[test]
    fn memory_is_read_to_its_end() {
        let bytes = [7u8; 100];
        let own = std::process::id();
        assert_eq!(upwards(own, bytes.as_ptr() as u64, 100), bytes);
        assert!(upwards(own, 8, 100).is_empty());
        assert!(upwards(own, u64::MAX - 3, 100).is_empty());
    }
}
