//! From where the program called: the return address, which the first instructions of an exported
//! function leave in a variable of the thread. Nothing else in the library knows it, since the
//! function may have made its frame already, with or without a frame pointer.

use std::arch::{asm, global_asm};

global_asm!(
    ".section .tbss.margay_return_address,\"awT\",%nobits",
    ".p2align 3",
    ".hidden margay_return_address",
    ".globl margay_return_address",
    ".type margay_return_address, %object",
    ".size margay_return_address, 8",
    "margay_return_address:",
    ".zero 8",
    ".text",
);

/// The body of a naked function: notes the return address and goes on in another function with the
/// same arguments, which returns to the caller itself.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! entry {
    ($to:path) => {
        std::arch::naked_asm!(
            "mov rax, qword ptr [rsp]",
            "mov r11, qword ptr [rip + margay_return_address@GOTTPOFF]",
            "mov qword ptr fs:[r11], rax",
            "jmp {to}",
            to = sym $to,
        )
    };
}

/// The body of a naked function: notes the return address and goes on in another function with the
/// same arguments, which returns to the caller itself.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! entry {
    ($to:path) => {
        std::arch::naked_asm!(
            "adrp x17, :gottprel:margay_return_address",
            "ldr x17, [x17, :gottprel_lo12:margay_return_address]",
            "mrs x16, tpidr_el0",
            "str x30, [x16, x17]",
            "b {to}",
            to = sym $to,
        )
    };
}

/// The address to which the call of the program returns that this thread began last.
#[inline(always)]
#[must_use]
pub fn return_address() -> u64 {
    let address: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the thread's variable and touches nothing else.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + margay_return_address@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:margay_return_address",
            "ldr {0}, [{0}, :gottprel_lo12:margay_return_address]",
            "mrs {1}, tpidr_el0",
            "ldr {0}, [{1}, {0}]",
            out(reg) address,
            out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    address
}
