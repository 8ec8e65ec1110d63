//! What the runtime keeps in each set of thread-local variables, and how it is found: the context
//! of what runs with the set, on which side of the [border](crate::border) that is, and whose set
//! it is.

use std::any::TypeId;
use std::cell::Cell;
use std::ffi::c_int;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::ptr;

/// The beginning of a context, which tells its type.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) kind: TypeId,
}

/// What the runtime keeps in each set of thread-local variables; together, since finding the set
/// costs more than reading it. In a new set all is zero.
pub(crate) struct Here {
    /// The context of what runs here; see [`slot`](crate::slot).
    pub(crate) context: Cell<*const Header>,
    /// The base of the real thread's set, while a [TLS block](crate::tls_block) is in force; 0
    /// otherwise.
    pub(crate) native: Cell<usize>,
    /// The kernel's number of the thread that this set was made with, if it is a TLS block's; else
    /// 0.
    pub(crate) number: Cell<u32>,
    pub(crate) is_inside: Cell<bool>,
    /// The program forks: it is inside only because of that.
    pub(crate) is_forking: Cell<bool>,
    /// The address of this set's `errno`, once it is known.
    pub(crate) errno_at: Cell<*mut c_int>,
    /// The program's `errno` while it is inside.
    pub(crate) errno: Cell<c_int>,
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
