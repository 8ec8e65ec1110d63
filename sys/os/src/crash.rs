//! What a process that is about to die by a signal of its own doing writes down, in memory that
//! outlives it: the registers and the stack of the thread, and which files of instructions are
//! mapped where. Who reads that names functions and lines.
//!
//! Only signals that had their default action are taken: handlers of the program, of a sanitizer or
//! of the language's runtime stay, and a later one replaces ours. The handler writes into the
//! memory that it was given, makes system calls that handlers may make, allocates nothing, and
//! waits a moment at most, for another thread that writes. Then the thread sends itself the same
//! signal again, with what the system said of it, which comes as soon as the handler has returned:
//! the process dies where and as it would have without the handler, whether or not the cause comes
//! again.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::kept::Words;
use crate::trace::{REGISTERS, STACK_POINTER, ThreadImage};

/// Bytes of the stack that are written down, from the stack pointer on.
const STACK_BYTES: usize = 64 << 10;
/// Bytes of lines of `/proc/self/maps` about files of instructions.
const MAPS_BYTES: usize = 60 << 10;
const HEAD: usize = 8;
const STACK_AT: usize = HEAD + REGISTERS + 1;
const MAPS_AT: usize = STACK_AT + STACK_BYTES / 8;
/// Words of memory that are needed.
pub const WORDS: usize = MAPS_AT + MAPS_BYTES / 8;

/// The words of the head.
const STATE: usize = 0;
const PROCESS: usize = 1;
const SIGNAL: usize = 2;
const NEXT: usize = 3;
const STACK_LEN: usize = 4;
const MAPS_LEN: usize = 5;

/// States.
const FREE: u64 = 0;
const BEGUN: u64 = 1;
const WHOLE: u64 = 2;

/// The signals.
pub(crate) const SIGNALS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// What this process does with the memory: nothing yet, a thread writes, or it has written.
static WRITER: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = 0;
const WRITES: u32 = 1;
const HAS_WRITTEN: u32 = 2;

static MEMORY: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
static OWNER: AtomicU32 = AtomicU32::new(0);

/// What a process wrote down before it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Which process.
    pub pid: u32,
    /// The signal.
    pub signal: i32,
    /// The thread that got it.
    pub image: ThreadImage,
    /// Lines as those of `/proc/PID/maps`, of files that have instructions.
    pub maps: String,
}

/// While it is there, this process writes down where it is when a signal of its own doing kills it.
#[derive(Debug)]
pub struct Writing(Words);

/// Has this process write down where it is when a signal of its own doing kills it. `memory` is
/// shared with who reads that, and by processes of which the first one to crash has it. Signals
/// that have a handler, or are ignored, are left alone.
///
/// # Panics
/// When there are fewer than [`WORDS`] words.
#[must_use]
pub fn write_into(memory: Words) -> Writing {
    assert!(memory.len() >= WORDS, "too little memory for a crash");
    MEMORY.store(memory.as_ptr().cast_mut(), Ordering::Release);
    OWNER.store(std::process::id(), Ordering::Release);
    take_other_stack();
    for signal in SIGNALS {
        // SAFETY: an all-zero sigaction is a valid place for the result, and a valid action.
        let (mut former, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: only queries; `former` is valid.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut former) } == 0;
        if !known || former.sa_sigaction != libc::SIG_DFL {
            continue;
        }
        action.sa_sigaction = crashed as *const () as usize;
        // On another stack if the program has one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler is async-signal-safe (below) and has the type that SA_SIGINFO wants.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    Writing(memory)
}

impl Drop for Writing {
    fn drop(&mut self) {
        // The memory may go now.
        let own = self.0.as_ptr().cast_mut();
        let none = std::ptr::null_mut();
        let _ = MEMORY.compare_exchange(own, none, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A stack for handlers.
#[repr(align(64))]
struct OtherStack(UnsafeCell<[u8; OTHER_BYTES]>);

// SAFETY: only the system uses it, for the one thread that has taken it.
unsafe impl Sync for OtherStack {}

const OTHER_BYTES: usize = 64 << 10;
static OTHER_STACK: OtherStack = OtherStack(UnsafeCell::new([0; OTHER_BYTES]));
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives this thread a stack for handlers if it has none, so that the end of its own stack can be
/// written down.
fn take_other_stack() {
    // SAFETY: an all-zero stack_t is a valid place for the result.
    let mut former: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: only queries; `former` is valid.
    let known = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut former) } == 0;
    let has_one = !known || former.ss_flags & libc::SS_DISABLE == 0;
    if has_one || IS_TAKEN.swap(true, Ordering::AcqRel) {
        return;
    }
    let own = libc::stack_t {
        ss_sp: OTHER_STACK.0.get().cast(),
        ss_flags: 0,
        ss_size: OTHER_BYTES,
    };
    // SAFETY: the memory stays for good, and only handlers of this thread use it.
    unsafe { libc::sigaltstack(&raw const own, std::ptr::null_mut()) };
}

/// Returns what a process wrote down in such memory, if one did.
#[must_use]
pub fn written(memory: &[AtomicU64]) -> Option<Written> {
    let word = |at: usize| memory.get(at).map(|word| word.load(Ordering::Relaxed));
    let state = memory.get(STATE)?.load(Ordering::Acquire);
    if state != WHOLE || memory.len() < WORDS {
        return None;
    }
    let bytes = |at: usize, len: u64, most: usize| {
        let len = usize::try_from(len).unwrap_or(most).min(most);
        let words = memory[at..at + len.div_ceil(8)].iter();
        let mut bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    };
    let mut registers = [0; REGISTERS];
    for (register, at) in registers.iter_mut().zip(HEAD..) {
        *register = word(at)?;
    }
    Some(Written {
        pid: word(PROCESS)? as u32,
        signal: word(SIGNAL)? as i32,
        image: ThreadImage {
            registers,
            pc: word(NEXT)?,
            stack_base: registers[STACK_POINTER],
            stack: bytes(STACK_AT, word(STACK_LEN)?, STACK_BYTES),
        },
        maps: String::from_utf8_lossy(&bytes(MAPS_AT, word(MAPS_LEN)?, MAPS_BYTES)).into_owned(),
    })
}

/// The handler. Async-signal-safe: no allocation, no lock, no panic.
extern "C" fn crashed(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `errno` of this thread; what the interrupted code has there stays.
    let errno = unsafe { *libc::__errno_location() };
    let memory = MEMORY.load(Ordering::Acquire);
    let memory: &[AtomicU64] = match memory.is_null() {
        true => &[],
        // SAFETY: `write_into` was given `WORDS` words that stay for good.
        false => unsafe { std::slice::from_raw_parts(memory, WORDS) },
    };
    // SAFETY: a plain system call. A child that was made by fork has its parent's handler.
    let is_owner = unsafe { libc::getpid() } as u32 == OWNER.load(Ordering::Acquire);
    if is_owner {
        let first = WRITER.compare_exchange(NOBODY, WRITES, Ordering::AcqRel, Ordering::Relaxed);
        match (first, memory.first()) {
            (Ok(_), Some(state)) => {
                let free = state.compare_exchange(FREE, BEGUN, Ordering::AcqRel, Ordering::Relaxed);
                // SAFETY: with SA_SIGINFO the system gives the interrupted thread's context.
                if let (Ok(_), Some((registers, next))) = (free, unsafe { registers_in(context) }) {
                    write_down(memory, signal, &registers, next);
                    state.store(WHOLE, Ordering::Release);
                }
                WRITER.store(HAS_WRITTEN, Ordering::Release);
            }
            _ => wait_for_writer(),
        }
    }
    // SAFETY: `errno` of this thread, as above; the default action runs no code of ours; the signal
    // goes to this thread, with what the system has said of it. It is blocked until the handler
    // returns.
    unsafe {
        *libc::__errno_location() = errno;
        libc::signal(signal, libc::SIG_DFL);
        let (process, thread) = (libc::getpid(), libc::gettid());
        let sent = libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info);
        if sent != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, signal);
        }
    }
}

/// Another thread of this process has crashed first: it is given time to write.
fn wait_for_writer() {
    const LOOKS: u32 = 100;
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 2_000_000,
    };
    for _ in 0..LOOKS {
        if WRITER.load(Ordering::Acquire) != WRITES {
            return;
        }
        // SAFETY: a sleep, which handlers may make.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

fn put(memory: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = memory.get(at) {
        word.store(value, Ordering::Relaxed);
    }
}

fn write_down(memory: &[AtomicU64], signal: c_int, registers: &[u64; REGISTERS], next: u64) {
    for (register, at) in registers.iter().zip(HEAD..) {
        put(memory, at, *register);
    }
    put(memory, PROCESS, u64::from(OWNER.load(Ordering::Relaxed)));
    put(memory, SIGNAL, signal as u64);
    put(memory, NEXT, next);
    let (stack, maps) = (memory.get(STACK_AT..MAPS_AT), memory.get(MAPS_AT..WORDS));
    put(
        memory,
        STACK_LEN,
        stack.map_or(0, |to| copy_stack(to, registers[STACK_POINTER])),
    );
    put(memory, MAPS_LEN, maps.map_or(0, copy_maps));
}

/// Copies this process's memory from `base` on, as far as it is there. Returns how many bytes. At
/// the end of a stack that was too short the first pages may not be there: they count as 0.
fn copy_stack(to: &[AtomicU64], base: u64) -> u64 {
    const PAGE: u64 = 4096;
    const MAY_BE_MISSING: u64 = 4 * PAGE;
    let mut done = 0;
    let mut is_there = false;
    // Page by page: the system says where memory ends, without another signal.
    while done < STACK_BYTES as u64 {
        let Some(from) = base.checked_add(done) else {
            break;
        };
        let len = (PAGE - from % PAGE).min(STACK_BYTES as u64 - done);
        let here = libc::iovec {
            iov_base: to
                .as_ptr()
                .cast_mut()
                .cast::<u8>()
                .wrapping_add(done as usize)
                .cast(),
            iov_len: len as usize,
        };
        let there = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(from as usize),
            iov_len: len as usize,
        };
        // SAFETY: the local range is inside of `to`, whose words are atomics that only this thread
        // writes (the state says so); the other one is the kernel's to check.
        let copied = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0)
        };
        match u64::try_from(copied) {
            Ok(copied) if copied == len => is_there = true,
            _ if !is_there && done < MAY_BE_MISSING => {}
            _ => break,
        }
        done += len;
    }
    done
}

/// Copies the lines of `/proc/self/maps` about files that have instructions or begin there.
/// Returns how many bytes.
fn copy_maps(to: &[AtomicU64]) -> u64 {
    // SAFETY: opens a file by a name that ends.
    let file = unsafe {
        libc::open(
            c"/proc/self/maps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    if file < 0 {
        return 0;
    }
    let mut line = Line::default();
    let mut out = Out { to, len: 0 };
    let mut bytes = [0u8; 1024];
    loop {
        // SAFETY: `bytes` has as many bytes.
        let read = unsafe { libc::read(file, bytes.as_mut_ptr().cast(), bytes.len()) };
        let Some(read) = usize::try_from(read).ok().and_then(|len| bytes.get(..len)) else {
            break;
        };
        if read.is_empty() {
            break;
        }
        for &byte in read {
            if line.add(byte) {
                if line.is_wanted() {
                    out.add(line.text());
                }
                line = Line::default();
            }
        }
    }
    // SAFETY: it was opened above.
    unsafe { libc::close(file) };
    out.len as u64
}

/// A line of `/proc/self/maps`.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: [0; 512],
            len: 0,
        }
    }
}

impl Line {
    /// Adds a byte; whether it ends the line. A longer line is cut, and its file not found.
    fn add(&mut self, byte: u8) -> bool {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
        byte == b'\n'
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether it is about instructions of a file, or about the beginning of a file.
    fn is_wanted(&self) -> bool {
        let mut words = self
            .text()
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty());
        let (access, offset) = (words.nth(1), words.next());
        let is_file = self.text().contains(&b'/') || self.text().ends_with(b"[vdso]\n");
        let executes = access.is_some_and(|access| access.get(2) == Some(&b'x'));
        let begins = offset.is_some_and(|offset| offset.iter().all(|&digit| digit == b'0'));
        is_file && (executes || begins)
    }
}

/// Bytes on their way into words.
struct Out<'a> {
    to: &'a [AtomicU64],
    len: usize,
}

impl Out<'_> {
    /// Adds a line if there is room for all of it.
    fn add(&mut self, line: &[u8]) {
        if self.len + line.len() > self.to.len() * 8 {
            return;
        }
        for &byte in line {
            if let Some(word) = self.to.get(self.len / 8) {
                let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                bytes[self.len % 8] = byte;
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
            self.len += 1;
        }
    }
}

/// The registers by DWARF's numbers, and the next instruction.
///
/// # Safety
/// `context` is null or from the system, as the third argument of a handler.
#[cfg(target_arch = "x86_64")]
unsafe fn registers_in(context: *const c_void) -> Option<([u64; REGISTERS], u64)> {
    const ORDER: [c_int; 17] = [
        libc::REG_RAX,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RBP,
        libc::REG_RSP,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
        libc::REG_RIP,
    ];
    // SAFETY: by the caller's promise.
    let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() }?;
    let mut registers = [0; REGISTERS];
    for (register, place) in registers.iter_mut().zip(ORDER) {
        *register = *context.uc_mcontext.gregs.get(place as usize)? as u64;
    }
    Some((registers, registers[16]))
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn registers_in(context: *const c_void) -> Option<([u64; REGISTERS], u64)> {
    // SAFETY: by the caller's promise.
    let machine = unsafe { &context.cast::<libc::ucontext_t>().as_ref()?.uc_mcontext };
    let mut registers = [0; REGISTERS];
    for (register, value) in registers.iter_mut().zip(machine.regs) {
        *register = value;
    }
    registers[STACK_POINTER] = machine.sp;
    Some((registers, machine.pc))
}

/// On other processors nothing is written down.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn registers_in(_context: *const c_void) -> Option<([u64; REGISTERS], u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_with_instructions_are_kept() {
        let wanted = |text: &str| {
            let mut line = Line::default();
            let ends: Vec<bool> = text.bytes().map(|byte| line.add(byte)).collect();
            assert!(ends.ends_with(&[true]));
            line.is_wanted()
        };
        assert!(wanted(
            "1000-2000 r-xp 00003000 fe:00 12   /usr/lib/a b.so\n"
        ));
        assert!(wanted("1000-2000 r--p 00000000 fe:00 12   /usr/lib/a.so\n"));
        assert!(wanted("1000-2000 r-xp 00000000 00:00 0    [vdso]\n"));
        assert!(!wanted(
            "1000-2000 rw-p 00003000 fe:00 12   /usr/lib/a.so\n"
        ));
        assert!(!wanted("1000-2000 r-xp 00000000 00:00 0 \n"));
        assert!(!wanted("\n"));
    }
}
