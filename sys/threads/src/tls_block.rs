//! Sets of thread-local variables that a stack can take on, whichever thread it runs on.
//!
//! A program's `threadprivate` variables, `errno`, and a C++ library's state of exceptions are
//! thread-local: the compiler reaches them through one register (`fs` on x86-64, `tpidr_el0` on
//! aarch64). Where several of a program's logical threads share one thread of the system, each
//! needs its own set. A [`TlsBlock`] is that of a thread made for the purpose, which sleeps for
//! good; while the register points to its set, everything but the kernel takes the running thread
//! for that one. So addresses of variables are as they would be with real threads, initial values
//! and constructors come from the loader, and nothing is copied. One stack at a time may have a
//! block.
//!
//! The runtime's own state is that of the real thread, found again by [`natively`].

use std::ffi::{c_int, c_ulong};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use margay_sys_os::cpu;
use rustix::thread::futex::{Flags, wait as futex_wait, wake as futex_wake};

use crate::here::{Here, here};

/// A set of thread-local variables. Ends with its value, or before it.
#[derive(Debug)]
pub struct TlsBlock {
    base: usize,
    /// What the runtime keeps in it.
    here: *const Here,
    /// [`FREE`], [`USED`] or [`ENDED`].
    state: AtomicU32,
    /// Set when the set ends, and with it its thread.
    end: Arc<AtomicU32>,
}

// SAFETY: what `here` refers to is used by the thread that has the set, one at a time.
unsafe impl Send for TlsBlock {}
// SAFETY: as above.
unsafe impl Sync for TlsBlock {}

const FREE: u32 = 0;
const USED: u32 = 1;
const ENDED: u32 = 2;

impl Drop for TlsBlock {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sleeps by a system call alone: what the standard library sleeps on is a thread-local variable,
/// which is in use by the stack that has the set.
fn sleep_until_set(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        let _ = futex_wait(word, Flags::PRIVATE, 0, None);
    }
}

/// Bytes of stack for a thread that only sleeps, the least that the C library allows rounded up.
const STACK_BYTES: usize = 64 << 10;

impl TlsBlock {
    /// A fresh set, as a new thread has it. None where that is not possible (another processor than
    /// x86-64 and aarch64, no more threads).
    #[must_use]
    pub fn new() -> Option<TlsBlock> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return None;
        }
        natively(|| {
            let (tell, report) = mpsc::channel();
            let end = Arc::new(AtomicU32::new(0));
            let ended = Arc::clone(&end);
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .name("tls-block".into())
                .spawn(move || {
                    let here = here();
                    // SAFETY: the set is in force.
                    let kept = unsafe { &*here };
                    kept.number.set(cpu::thread_number());
                    // A stack that takes the set on is inside the runtime, and leaves it there.
                    kept.enter();
                    forget_processor();
                    let _ = tell.send((base(), here.expose_provenance()));
                    drop(tell);
                    sleep_until_set(&ended);
                })
                .ok()?;
            let (base, here) = report.recv().ok()?;
            Some(TlsBlock {
                base,
                here: std::ptr::with_exposed_provenance(here),
                state: AtomicU32::new(FREE),
                end,
            })
        })
    }

    /// Runs `f` with this set, [inside](crate::border) the runtime, from where it is also called.
    /// What `f` calls suspends the running stack only within
    /// [`natively`]: the runtime does not know of the fiber otherwise.
    ///
    /// # Errors
    /// The set has ended: the function comes back.
    ///
    /// # Panics
    /// When another stack has this block.
    #[inline]
    pub fn with<R, F: FnOnce() -> R>(&self, f: F) -> Result<R, F> {
        match self
            .state
            .compare_exchange(FREE, USED, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => {}
            Err(ENDED) => return Err(f),
            Err(_) => panic!("a TLS block belongs to one stack at a time"),
        }
        Ok(self.run(f))
    }

    /// The same if no stack has this block now.
    ///
    /// # Errors
    /// One has it, or the set has ended: the function comes back.
    pub fn with_idle<R, F: FnOnce() -> R>(&self, f: F) -> Result<R, F> {
        let taken = self
            .state
            .compare_exchange(FREE, USED, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            Ok(self.run(f))
        } else {
            Err(f)
        }
    }

    /// The caller has set the state to [`USED`].
    #[inline]
    fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let used = Used(&self.state);
        // SAFETY: the set is in force.
        let native = unsafe { &*here() }.native.get();
        // SAFETY: the state is USED, by this stack. The block's thread lives as long as `self` is
        // not ended, and sleeps; nobody else uses its set until the state is FREE again, and only
        // then it can end. So what is kept in it is there, and this thread's.
        let result = unsafe {
            enter(self.base, f, |before| {
                let native = if native == 0 { before } else { native };
                (*self.here).native.set(native);
            })
        };
        drop(used);
        result
    }

    /// Ends the set, if nobody has it, and with it its thread: [`with`](Self::with) refuses from
    /// then on.
    pub fn end(&self) {
        let ended = self
            .state
            .compare_exchange(FREE, ENDED, Ordering::Acquire, Ordering::Relaxed);
        if ended.is_ok() {
            self.end.store(1, Ordering::Release);
            let _ = futex_wake(&self.end, Flags::PRIVATE, 1);
        }
    }
}

/// A block that a stack has, given back also by a panic.
struct Used<'a>(&'a AtomicU32);

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// The kernel's number of the thread whose set is in force, if it is a block's: what the C library
/// takes for this thread when a program asks about `pthread_self()`.
#[must_use]
pub fn number() -> Option<u32> {
    // SAFETY: the set is in force.
    let number = unsafe { &*here() }.number.get();
    Some(number).filter(|&number| number != 0)
}

/// The kernel keeps the number of a thread's processor in the thread's set (`rseq`), where
/// `sched_getcpu` finds it. A stack that takes on the set of the calling thread would find the
/// sleeper's; without it the C library asks the kernel.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn forget_processor() {
    const UNREGISTER: c_int = 1;
    /// The C library's, an instruction that is never executed.
    const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") {
        0x5305_3053
    } else {
        0xd428_bc00
    };
    const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;
    const AT_RSEQ_ALIGN: c_ulong = 28;
    /// What the first version had, and the least that is registered.
    const LEAST_BYTES: u64 = 32;
    // SAFETY: the name ends with a zero byte.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return;
    }
    // SAFETY: the C library's constant of this name is of this type.
    let offset = unsafe { offset.cast::<isize>().read() };
    // SAFETY: the calls have no memory arguments.
    let (size, align) = unsafe {
        (
            libc::getauxval(AT_RSEQ_FEATURE_SIZE),
            libc::getauxval(AT_RSEQ_ALIGN),
        )
    };
    let bytes = size
        .next_multiple_of(align.max(LEAST_BYTES))
        .max(LEAST_BYTES);
    // SAFETY: the kernel compares address, size and signature with those that the C library has
    // registered for this thread, and refuses others.
    unsafe {
        libc::syscall(
            libc::SYS_rseq,
            base().wrapping_add_signed(offset),
            bytes as u32,
            UNREGISTER,
            SIGNATURE,
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn forget_processor() {}

/// Runs `f` with the real thread's set, [inside](crate::border) the runtime.
#[inline]
pub fn natively<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the set is in force, and again when `f` goes on or has ended.
    let here = unsafe { &*here() };
    let native = here.native.get();
    if native == 0 {
        return here.inside(f);
    }
    // SAFETY: the set is that of the real thread: a stack with a block does not go to another
    // thread.
    unsafe { enter(native, f, |_| ()) }
}

/// Runs `f` with the set at `to`; `begin` gets the base of the one before. Not inlined, and neither
/// is what runs inside: a compiler may keep addresses of thread-local variables as long as it sees
/// no reason why they should change.
///
/// # Safety
/// There is a set at `to`, and no other thread uses it.
#[inline(never)]
unsafe fn enter<R>(to: usize, f: impl FnOnce() -> R, begin: impl FnOnce(usize)) -> R {
    #[inline(never)]
    fn inside<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    let before = base();
    begin(before);
    // SAFETY: by the caller's promise.
    unsafe { set_base(to) };
    // A panic counts in the thread-local variables of the set in which it began, so it is caught
    // there.
    let result = catch_unwind(AssertUnwindSafe(|| inside(f)));
    // SAFETY: it is the one that was in force.
    unsafe { set_base(before) };
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    /// The kernel lets programs use the instructions that read and write the base.
    const HWCAP2_FSGSBASE: c_ulong = 1 << 1;
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: the call has no memory arguments.
    *HAS.get_or_init(|| unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn base() -> usize {
    let base: usize;
    // SAFETY: the first word of a set is its own address (System V ABI, thread-local storage,
    // variant II).
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly, preserves_flags));
    }
    base
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn set_base(base: usize) {
    if has_instructions() {
        // SAFETY: the kernel allows the instruction; by the caller's promise there is a set.
        unsafe {
            std::arch::asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags));
        }
    } else {
        /// `arch_prctl`'s number for setting the base.
        const ARCH_SET_FS: c_int = 0x1002;
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_FS, base) };
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn base() -> usize {
    let base: usize;
    // SAFETY: the register may be read everywhere.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, nomem, preserves_flags));
    }
    base
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn set_base(base: usize) {
    // SAFETY: the register may be written everywhere; by the caller's promise there is a set.
    unsafe {
        std::arch::asm!("msr tpidr_el0, {}", in(reg) base, options(nostack, preserves_flags));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn base() -> usize {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn set_base(_base: usize) {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::border;

    /// With a set that has not ended.
    fn with<R>(block: &TlsBlock, f: impl FnOnce() -> R) -> R {
        block.with(f).ok().expect("it has not ended")
    }

    thread_local! {
        static VALUE: Cell<u32> = const { Cell::new(5) };
    }

    #[inline(never)]
    fn value() -> u32 {
        VALUE.get()
    }

    #[inline(never)]
    fn set(value: u32) {
        VALUE.set(value);
    }

    #[test]
    fn each_block_has_its_own_variables() {
        let (one, two) = (TlsBlock::new().unwrap(), TlsBlock::new().unwrap());
        set(1);
        with(&one, || {
            assert_eq!(value(), 5);
            set(11);
            natively(|| {
                assert_eq!(value(), 1);
                set(2);
            });
            with(&two, || {
                assert_eq!(value(), 5);
                set(22);
                natively(|| assert_eq!(value(), 2));
            });
            assert_eq!(value(), 11);
        });
        assert_eq!(value(), 2);
        with(&one, || assert_eq!(value(), 11));
    }

    #[test]
    fn a_panic_ends_in_the_set_in_which_it_was_caught() {
        let one = TlsBlock::new().unwrap();
        set(1);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            with(&one, || {
                set(11);
                natively(|| panic!("as it should"));
            });
        }));
        assert!(caught.is_err());
        assert!(!thread::panicking());
        assert_eq!(value(), 1);
        with(&one, || {
            assert!(!thread::panicking());
            assert_eq!(value(), 11);
        });
    }

    #[test]
    fn the_processor_is_that_of_the_real_thread() {
        let one = TlsBlock::new().unwrap();
        thread::spawn(move || {
            assert_eq!(number(), None);
            for core in cpu::affinity() {
                cpu::bind_thread(0, &[core]).unwrap();
                // SAFETY: no arguments.
                let report = with(&one, || unsafe { libc::sched_getcpu() });
                assert_eq!(report as usize, core);
            }
            let sleeper = with(&one, number).unwrap();
            assert_ne!(sleeper, cpu::thread_number());
            assert!(cpu::affinity_of(sleeper).is_some());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_set_that_has_ended_is_refused() {
        let one = TlsBlock::new().unwrap();
        with(&one, || {
            one.end();
            assert!(one.with_idle(|| ()).is_err());
        });
        assert_eq!(one.with_idle(value).ok(), Some(5), "not while it is used");
        one.end();
        assert!(one.with(|| ()).is_err());
    }

    #[test]
    fn each_block_has_its_own_errno_and_side_of_the_border() {
        fn errno() -> *mut c_int {
            // SAFETY: no arguments.
            unsafe { libc::__errno_location() }
        }
        let one = TlsBlock::new().unwrap();
        let mine = errno().addr();
        border::inside(|| {
            with(&one, || {
                assert!(border::is_inside());
                assert_ne!(errno().addr(), mine);
                border::outside(|| {
                    assert!(!border::is_inside());
                    natively(|| assert!(border::is_inside()));
                });
            });
        });
        assert!(!border::is_inside());
    }
}
