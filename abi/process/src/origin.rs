//! From where the program called: the return address, which the first instructions of an exported
//! function leave in a variable of the thread. Nothing else in the library knows it, since the
//! function may have made its frame already, with or without a frame pointer.
//!
//! Between a Fortran program and this library is the library of the bindings. Each of its functions
//! says who has called it, by [`margay_called_from`], right before it calls one of ours.

use std::arch::{asm, global_asm, naked_asm};
use std::ffi::{c_char, c_void};
use std::ptr;

use margay_run_engine::monitor::python;

global_asm!(
    ".section .tbss.margay_return_address,\"awT\",%nobits",
    ".p2align 3",
    ".hidden margay_return_address",
    ".globl margay_return_address",
    ".type margay_return_address, %object",
    ".size margay_return_address, 24",
    "margay_return_address:",
    // Of the last call; of the last caller of a binding; in that binding.
    ".zero 24",
    ".text",
);

/// How many bytes of code are between the two calls of a binding, at the most.
const NEAR: u64 = 1024;

/// A binding for another language says from where the program has called it, right before it calls
/// a function of this library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub extern "C" fn margay_called_from(_address: *const c_void) {
    naked_asm!(
        "mov rax, qword ptr [rsp]",
        "mov r11, qword ptr [rip + margay_return_address@GOTTPOFF]",
        "mov qword ptr fs:[r11 + 8], rdi",
        "mov qword ptr fs:[r11 + 16], rax",
        "ret",
    )
}

/// A binding for another language says from where the program has called it, right before it calls
/// a function of this library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub extern "C" fn margay_called_from(_address: *const c_void) {
    naked_asm!(
        "adrp x17, :gottprel:margay_return_address",
        "ldr x17, [x17, :gottprel_lo12:margay_return_address]",
        "mrs x16, tpidr_el0",
        "add x16, x16, x17",
        "stp x0, x30, [x16, #8]",
        "ret",
    )
}

/// A library with the names of another ABI says from where the program has called it, before it
/// calls functions of this library, which are entered behind their first instructions.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub extern "C" fn margay_entered_from(_address: *const c_void) {
    naked_asm!(
        "mov r11, qword ptr [rip + margay_return_address@GOTTPOFF]",
        "mov qword ptr fs:[r11], rdi",
        "ret",
    )
}

/// A library with the names of another ABI says from where the program has called it, before it
/// calls functions of this library, which are entered behind their first instructions.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub extern "C" fn margay_entered_from(_address: *const c_void) {
    naked_asm!(
        "adrp x17, :gottprel:margay_return_address",
        "ldr x17, [x17, :gottprel_lo12:margay_return_address]",
        "mrs x16, tpidr_el0",
        "str x0, [x16, x17]",
        "ret",
    )
}

/// From where the program called, where a function was called from `address`: for the hooks of
/// `mpiexec -check`. Of a program in Python, a number that [`margay_python_place`] knows.
#[unsafe(no_mangle)]
pub extern "C" fn margay_program_address(address: *const c_void) -> *const c_void {
    let of_program = of_program(address.addr() as u64);
    ptr::without_provenance(python::caller_if_there(of_program) as usize)
}

/// The line in Python that a number of [`margay_program_address`] stands for; its file goes to
/// `name`. 0 where it is an address, or where the name does not fit.
///
/// # Safety
/// `name` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_python_place(
    number: *const c_void,
    name: *mut c_char,
    room: usize,
) -> u32 {
    let Some((line, file)) = python::place(number.addr() as u64) else {
        return 0;
    };
    if file.len() >= room {
        return 0;
    }
    // SAFETY: the caller's room is larger than the name, and is none of ours.
    unsafe {
        ptr::copy_nonoverlapping(file.as_ptr().cast(), name, file.len());
        name.add(file.len()).write(0);
    }
    line
}

/// The address in the program, of one that may be in a binding.
#[inline(always)]
fn of_program(address: u64) -> u64 {
    let (caller, binding): (u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the thread's variables and touches nothing else.
    unsafe {
        asm!(
            "mov {1}, qword ptr [rip + margay_return_address@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{1} + 8]",
            "mov {1}, qword ptr fs:[{1} + 16]",
            out(reg) caller,
            out(reg) binding,
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
            "add {1}, {1}, {0}",
            "ldp {0}, {1}, [{1}, #8]",
            out(reg) caller,
            out(reg) binding,
            options(nostack, readonly, preserves_flags),
        );
    }
    match address.wrapping_sub(binding) < NEAR {
        true => caller,
        false => address,
    }
}

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
    of_program(address)
}
