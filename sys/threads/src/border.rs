//! The border between a program and the runtime that it calls: on which side of it a stack is.
//!
//! A handler that interrupts a thread may switch to another fiber only where the program is, never
//! in the middle of the runtime, whose borrows and locks another fiber of the thread could need. So
//! whatever enters the runtime says so ([`inside`]), and so does what calls the program from there
//! ([`outside`]). The flag belongs to a set of thread-local variables, as the program's stack does:
//! fibers that share the set of a real thread are suspended inside the runtime only, so that none
//! of them needs a flag of its own.
//!
//! What neither waits nor calls anything outside of this library need not cross the border: no
//! thread is switched away at an instruction of the library's own, whatever the flag says
//! ([`slot::read`](crate::slot::read)).
//!
//! The crossing also keeps `errno`: what the runtime, and other members on this thread, do to it
//! meanwhile is no concern of the program.

use std::cell::Cell;
use std::ffi::c_int;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::ptr;

/// What the runtime keeps in each set of thread-local variables; together, since finding the set
/// costs more than reading it. In a new set all is zero.
pub(crate) struct Here {
    /// The context of what runs here; see [`slot`](crate::slot).
    pub(crate) context: Cell<*const crate::slot::Header>,
    /// The base of the real thread's set, while a [TLS block](crate::tls_block) is in force; 0
    /// otherwise.
    pub(crate) native: Cell<usize>,
    /// The kernel's number of the thread that this set was made with, if it is a TLS block's; else
    /// 0.
    pub(crate) number: Cell<u32>,
    is_inside: Cell<bool>,
    /// The program forks: it is inside only because of that.
    is_forking: Cell<bool>,
    /// The address of this set's `errno`, once it is known.
    errno_at: Cell<*mut c_int>,
    /// The program's `errno` while it is inside.
    errno: Cell<c_int>,
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
thread_local! {
    static HERE: Here = const {
        Here {
            context: Cell::new(ptr::null()),
            native: Cell::new(0),
            number: Cell::new(0),
            is_inside: Cell::new(false),
            is_forking: Cell::new(false),
            errno_at: Cell::new(ptr::null_mut()),
            errno: Cell::new(0),
        }
    };
}

/// What is kept in the set that is in force. Valid as long as the set; never inlined, since
/// compilers keep addresses of thread-local variables for as long as they see no reason why they
/// should change.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(never)]
pub(crate) fn here() -> *const Here {
    HERE.with(ptr::from_ref)
}

// The same variable, of zeros, which are the values above, with an access of our own: compilers for
// this processor ask the loader for the address each time (`__tls_get_addr`), which takes longer
// than most of what the runtime does with it. A descriptor gives the offset by three instructions
// where the library was loaded with the program, and works everywhere else; compilers for other
// processors use it without being asked.
#[cfg(all(target_arch = "x86_64", not(miri)))]
std::arch::global_asm!(
    ".pushsection .tbss.margay_here,\"awT\",@nobits",
    ".globl margay_here",
    ".hidden margay_here",
    ".type margay_here, @object",
    ".size margay_here, {size}",
    ".balign 16",
    "margay_here:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Here>(),
    options(att_syntax),
);

/// What is kept in the set that is in force. Valid as long as the set.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn here() -> *const Here {
    let at: *const Here;
    // SAFETY: the sequence that the ABI of thread-local storage prescribes, for the variable above.
    // It is executed each time, so that no compiler keeps the address. Loaders have let it change
    // registers that it should keep; none is expected to be kept.
    unsafe {
        std::arch::asm!(
            "leaq margay_here@TLSDESC(%rip), %rax",
            "call *margay_here@TLSCALL(%rax)",
            "addq %fs:0, %rax",
            out("rax") at,
            clobber_abi("sysv64"),
            options(att_syntax),
        );
    }
    at
}

impl Here {
    #[inline]
    pub(crate) fn enter(&self) {
        let mut at = self.errno_at.get();
        if at.is_null() {
            // SAFETY: no arguments.
            at = unsafe { libc::__errno_location() };
            self.errno_at.set(at);
        }
        // SAFETY: the address of the `errno` of this set, which is in force.
        self.errno.set(unsafe { *at });
        self.is_inside.set(true);
    }

    #[inline]
    fn leave(&self) {
        self.is_inside.set(false);
        // SAFETY: as in `enter`, which has been called before.
        unsafe { *self.errno_at.get() = self.errno.get() };
    }

    /// See [`inside`].
    #[inline]
    pub(crate) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Back<'h>(Option<&'h Here>);
        impl Drop for Back<'_> {
            #[inline]
            fn drop(&mut self) {
                if let Some(here) = self.0 {
                    here.leave();
                }
            }
        }
        let crosses = !self.is_inside.get();
        if crosses {
            self.enter();
        }
        let _back = Back(crosses.then_some(self));
        // Called in one place, so that the compiler has a reason to inline it.
        f()
    }

    /// Whether the runtime's code runs here.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside.get()
    }

    #[inline]
    fn outside<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Back<'h>(Option<&'h Here>);
        impl Drop for Back<'_> {
            #[inline]
            fn drop(&mut self) {
                if let Some(here) = self.0 {
                    here.enter();
                }
            }
        }
        let crosses = self.is_inside.get();
        if crosses {
            self.leave();
        }
        let _back = Back(crosses.then_some(self));
        f()
    }
}

/// The border where a call has found it, so that it need not be looked up again for as long as the
/// call lasts.
#[derive(Clone, Copy)]
pub struct Border<'h>(pub(crate) &'h Here);

impl Border<'_> {
    /// As [`inside`].
    #[inline]
    pub fn inside<R>(self, f: impl FnOnce() -> R) -> R {
        self.0.inside(f)
    }

    /// As [`outside`].
    #[inline]
    pub fn outside<R>(self, f: impl FnOnce() -> R) -> R {
        self.0.outside(f)
    }
}

impl std::fmt::Debug for Border<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Border").finish_non_exhaustive()
    }
}

/// Runs `f`, which is the runtime's code.
#[inline]
pub fn inside<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the set is in force here, and again whenever `f` goes on and when it has ended: a
    // stack keeps its thread and its set.
    unsafe { &*here() }.inside(f)
}

/// Runs `f`, which is the program's code, from within the runtime.
#[inline]
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: as in `inside`.
    unsafe { &*here() }.outside(f)
}

/// The program begins to copy the process: until [`end_fork`] this counts as the runtime's code.
pub(crate) fn begin_fork() {
    // SAFETY: as in `inside`.
    let here = unsafe { &*here() };
    if !here.is_inside.get() {
        here.is_forking.set(true);
        here.enter();
    }
}

/// The process has been copied, and this is one of the two.
pub(crate) fn end_fork() {
    // SAFETY: as in `inside`.
    let here = unsafe { &*here() };
    if here.is_forking.replace(false) {
        here.leave();
    }
}

/// Whether the runtime's code runs here.
pub(crate) fn is_inside() -> bool {
    // SAFETY: as in `inside`.
    unsafe { &*here() }.is_inside()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_errno(to: c_int) {
        // SAFETY: the calling thread's errno.
        unsafe { *libc::__errno_location() = to };
    }

    fn errno() -> c_int {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() }
    }

    #[test]
    fn crossings_nest_and_keep_errno() {
        set_errno(7);
        assert!(!is_inside());
        inside(|| {
            assert!(is_inside());
            set_errno(1);
            inside(|| set_errno(2));
            assert!(is_inside());
            outside(|| {
                assert!(!is_inside());
                assert_eq!(errno(), 7, "the program's own");
                set_errno(8);
                inside(|| set_errno(3));
                assert_eq!(errno(), 8);
                outside(|| assert!(!is_inside()));
            });
            assert!(is_inside());
            set_errno(4);
        });
        assert!(!is_inside());
        assert_eq!(errno(), 8, "as the program has left it");
    }

    #[test]
    fn a_fork_counts_as_inside() {
        set_errno(7);
        begin_fork();
        assert!(is_inside());
        set_errno(1);
        end_fork();
        assert!(!is_inside());
        assert_eq!(errno(), 7);
        inside(|| {
            begin_fork();
            end_fork();
            assert!(is_inside());
        });
    }

    #[test]
    fn a_panic_crosses_back() {
        let caught = std::panic::catch_unwind(|| inside(|| outside(|| panic!("as it should"))));
        assert!(caught.is_err() && !is_inside());
    }
}
