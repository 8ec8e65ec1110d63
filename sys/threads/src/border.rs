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

use crate::here::{Here, here};

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
    use std::ffi::c_int;

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
