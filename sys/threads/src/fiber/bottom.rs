//! The first frame of a fiber's stack, at which a walk of the stack ends.
//!
//! The switch's own first frame leads to the stack of the thread that resumed the fiber. For
//! profilers that is a caller, which it is not: it is what the thread did before. While a fiber is
//! suspended nobody has resumed it, and what stands there is of the past.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::{asm, global_asm};
use std::ffi::c_void;
use std::mem::ManuallyDrop;

// A return address that is undefined, and a frame pointer of 0: no frame is above this one.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.margay_fiber_bottom,\"ax\",@progbits",
    ".globl margay_fiber_bottom",
    ".hidden margay_fiber_bottom",
    ".type margay_fiber_bottom, @function",
    "margay_fiber_bottom:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    "xor ebp, ebp",
    "call rsi",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size margay_fiber_bottom, . - margay_fiber_bottom",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.margay_fiber_bottom,\"ax\",@progbits",
    ".globl margay_fiber_bottom",
    ".hidden margay_fiber_bottom",
    ".type margay_fiber_bottom, @function",
    "margay_fiber_bottom:",
    ".cfi_startproc",
    ".cfi_undefined x30",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_adjust_cfa_offset 16",
    "mov x29, #0",
    "blr x1",
    "ldp x29, x30, [sp], #16",
    ".cfi_adjust_cfa_offset -16",
    "ret",
    ".cfi_endproc",
    ".size margay_fiber_bottom, . - margay_fiber_bottom",
    ".popsection",
);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe extern "C" {
    /// Calls `body` with `data`. Nothing may unwind out of it.
    fn margay_fiber_bottom(data: *mut c_void, body: unsafe extern "C" fn(*mut c_void));
}

/// Calls the body of a fiber so that its stack ends with this call.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn call<F: FnOnce()>(body: F) {
    unsafe extern "C" fn run<F: FnOnce()>(data: *mut c_void) {
        // SAFETY: `data` is the body below, which is taken here once and dropped nowhere else.
        let body = unsafe { ManuallyDrop::take(&mut *data.cast::<ManuallyDrop<F>>()) };
        body();
    }
    let mut body = ManuallyDrop::new(body);
    // SAFETY: by the calling convention of C it calls `run` with `data`, which lives until it
    // returns. A panic ends the process at the border of `run`, as it would at the beginning of the
    // stack.
    unsafe { margay_fiber_bottom((&raw mut body).cast(), run::<F>) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn call<F: FnOnce()>(body: F) {
    body();
}

/// The stack pointer, in the function into which this is inlined.
#[inline(always)]
pub(super) fn stack_pointer() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let at: usize;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
        at
    }
    #[cfg(target_arch = "aarch64")]
    {
        let at: usize;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags)) };
        at
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let here = 0_u8;
        std::ptr::from_ref(&here).addr()
    }
}
