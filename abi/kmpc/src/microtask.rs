//! Microtasks: functions into which LLVM's compilers outline regions. They get the addresses of the
//! thread's two numbers and, as arguments of their own, the addresses of the variables that they
//! use.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;

use margay_abi_omp::runtime::with;
use margay_sys_threads::outlined::Outlined;

use crate::number;

/// A microtask, as far as the number of its arguments does not matter.
pub type Microtask = unsafe extern "C-unwind" fn(*mut c_int, *mut c_int);

/// A microtask and its arguments.
pub(crate) struct MicrotaskCall<'a> {
    pub(crate) microtask: Microtask,
    pub(crate) arguments: &'a [*mut c_void],
}

impl MicrotaskCall<'_> {
    /// The body of a region that runs the microtask. Regions are distinguished by their microtasks.
    ///
    /// # Safety
    /// As of [`Outlined::new`], for the microtask with these arguments.
    pub(crate) unsafe fn body(&mut self) -> Outlined<'_> {
        let site = (self.microtask as *const ()).addr();
        // SAFETY: by the caller's promise; the call is borrowed as long as the body lives.
        unsafe { Outlined::new(run, ptr::from_mut(self).cast()) }.at(site)
    }
}

/// The body of a region: runs the microtask for the calling member.
///
/// # Safety
/// `call` is the address of a [`MicrotaskCall`] whose microtask has that many arguments.
unsafe extern "C-unwind" fn run(call: *mut c_void) {
    // SAFETY: by the caller's promise.
    let call = unsafe { &*call.cast::<MicrotaskCall>() };
    let (mut thread, mut member, frame) =
        with(|context| (number(context), context.id as c_int, context.exit_frame()));
    if let Some(frame) = frame {
        // SAFETY: by the caller's promise.
        return unsafe {
            invoke_framed(
                call.microtask,
                &raw mut thread,
                &raw mut member,
                call.arguments,
                frame,
            )
        };
    }
    // SAFETY: by the caller's promise.
    unsafe {
        invoke(
            call.microtask,
            &raw mut thread,
            &raw mut member,
            call.arguments,
        )
    };
}

macro_rules! invoke {
    ($microtask:ident, $thread:ident, $member:ident, $arguments:ident; $($count:literal: $($at:literal)*;)*) => {
        match $arguments.len() {
            // SAFETY: by the caller's promise.
            0 => unsafe { $microtask($thread, $member) },
            $($count => {
                // SAFETY: by the caller's promise, it has this many arguments.
                let function = unsafe {
                    std::mem::transmute::<
                        Microtask,
                        unsafe extern "C-unwind" fn(*mut c_int, *mut c_int $(, invoke!(@type $at))*),
                    >($microtask)
                };
                // SAFETY: by the caller's promise.
                unsafe { function($thread, $member $(, $arguments[$at])*) }
            })*
            // SAFETY: by the caller's promise.
            _ => unsafe {
                let frame = AtomicU64::new(0);
                invoke_many($microtask, $thread, $member, $arguments.len(), $arguments.as_ptr(), &frame);
            },
        }
    };
    (@type $at:literal) => { *mut c_void };
}

/// Calls a microtask.
///
/// # Safety
/// It has this many arguments, and may be called with them.
unsafe fn invoke(
    microtask: Microtask,
    thread: *mut c_int,
    member: *mut c_int,
    arguments: &[*mut c_void],
) {
    invoke! { microtask, thread, member, arguments;
        1: 0;
        2: 0 1;
        3: 0 1 2;
        4: 0 1 2 3;
        5: 0 1 2 3 4;
        6: 0 1 2 3 4 5;
        7: 0 1 2 3 4 5 6;
        8: 0 1 2 3 4 5 6 7;
        9: 0 1 2 3 4 5 6 7 8;
        10: 0 1 2 3 4 5 6 7 8 9;
        11: 0 1 2 3 4 5 6 7 8 9 10;
        12: 0 1 2 3 4 5 6 7 8 9 10 11;
    }
}

/// Arguments of which some do not fit in registers.
const MANY: usize = 8;

/// The same for a tool: from a frame whose frame pointer `frame` gets before.
///
/// # Safety
/// As of `invoke`.
unsafe fn invoke_framed(
    microtask: Microtask,
    thread: *mut c_int,
    member: *mut c_int,
    arguments: &[*mut c_void],
    frame: &AtomicU64,
) {
    let mut more = [ptr::null_mut(); MANY];
    let arguments = if arguments.len() < MANY {
        // What the microtask does not expect it does not read.
        more[..arguments.len()].copy_from_slice(arguments);
        &more
    } else {
        arguments
    };
    // SAFETY: by the caller's promise.
    unsafe {
        invoke_many(
            microtask,
            thread,
            member,
            arguments.len(),
            arguments.as_ptr(),
            frame,
        );
    }
}

/// The same for any number of arguments above 6; `frame` gets its frame pointer. Those that do not
/// fit in registers are copied to the stack.
///
/// # Safety
/// As of `invoke`; `arguments` has `count` elements.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn invoke_many(
    microtask: Microtask,
    thread: *mut c_int,
    member: *mut c_int,
    count: usize,
    arguments: *const *mut c_void,
    frame: *const AtomicU64,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov [r9], rbp",
        "mov r11, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov r10, r8",
        // Four of them are in registers.
        "lea rax, [rcx - 4]",
        "lea rdx, [rax * 8 + 15]",
        "and rdx, -16",
        "sub rsp, rdx",
        "2:",
        "dec rax",
        "mov rdx, [r10 + rax * 8 + 32]",
        "mov [rsp + rax * 8], rdx",
        "test rax, rax",
        "jnz 2b",
        "mov rdx, [r10]",
        "mov rcx, [r10 + 8]",
        "mov r8, [r10 + 16]",
        "mov r9, [r10 + 24]",
        "call r11",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn invoke_many(
    microtask: Microtask,
    thread: *mut c_int,
    member: *mut c_int,
    count: usize,
    arguments: *const *mut c_void,
    frame: *const AtomicU64,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "str x29, [x5]",
        "mov x9, x0",
        "mov x10, x4",
        "mov x0, x1",
        "mov x1, x2",
        // Six of them are in registers.
        "sub x11, x3, #6",
        "add x12, x11, #1",
        "and x12, x12, #-2",
        "sub sp, sp, x12, lsl #3",
        "2:",
        "sub x11, x11, #1",
        "add x13, x10, #48",
        "ldr x13, [x13, x11, lsl #3]",
        "str x13, [sp, x11, lsl #3]",
        "cbnz x11, 2b",
        "ldp x2, x3, [x10]",
        "ldp x4, x5, [x10, #16]",
        "ldp x6, x7, [x10, #32]",
        "blr x9",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

/// A variadic function `(Ident *, int count, Microtask, ...)` that passes its arguments to one that
/// gets the address of those in registers, and of those on the stack.
macro_rules! variadic {
    ($(#[$about:meta])* $name:ident => $inner:ident) => {
        $(#[$about])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "lea rax, [rsp + 8]",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                // (count, microtask, in registers, on the stack)
                "mov edi, esi",
                "mov rsi, rdx",
                "mov rdx, rsp",
                "mov rcx, rax",
                "call {inner}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }

        $(#[$about])*
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "mov x29, sp",
                "stp x3, x4, [sp, #16]",
                "stp x5, x6, [sp, #32]",
                "str x7, [sp, #48]",
                "mov w0, w1",
                "mov x1, x2",
                "add x2, sp, #16",
                "add x3, sp, #64",
                "bl {inner}",
                "ldp x29, x30, [sp], #64",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                inner = sym $inner,
            )
        }
    };
}

/// How many of a variadic function's arguments, behind the three that it always has, are in
/// registers.
#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 3;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 5;

/// Arguments for which no memory has to be asked for.
const USUAL: usize = 16;

/// Calls `f` with the arguments of a variadic function.
///
/// # Safety
/// There are `count`: the first at `registers`, the others at `stack`.
pub(crate) unsafe fn with_arguments<R>(
    count: c_int,
    registers: *const *mut c_void,
    stack: *const *mut c_void,
    f: impl FnOnce(&[*mut c_void]) -> R,
) -> R {
    let count = count.max(0) as usize;
    let argument = |at: usize| {
        // SAFETY: by the caller's promise.
        unsafe {
            if at < IN_REGISTERS {
                registers.add(at).read()
            } else {
                stack.add(at - IN_REGISTERS).read()
            }
        }
    };
    if count > USUAL {
        let all: Vec<*mut c_void> = (0..count).map(argument).collect();
        return f(&all);
    }
    let mut few = [std::ptr::null_mut(); USUAL];
    for (at, place) in few.iter_mut().enumerate().take(count) {
        *place = argument(at);
    }
    f(&few[..count])
}

pub(crate) use variadic;

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up what its arguments refer to, each with another weight.
    unsafe extern "C-unwind" fn sum_of_20(
        thread: *mut c_int,
        member: *mut c_int,
        a: &u64,
        b: &u64,
        c: &u64,
        d: &u64,
        e: &u64,
        f: &u64,
        g: &u64,
        h: &u64,
        i: &u64,
        j: &u64,
        k: &u64,
        l: &u64,
        m: &u64,
        n: &u64,
        o: &u64,
        p: &u64,
        q: &u64,
        r: &u64,
        s: &u64,
        out: &mut u64,
    ) {
        let all = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s];
        // SAFETY: the test passes addresses of numbers.
        unsafe { assert_eq!((*thread, *member), (7, 8)) };
        *out = all
            .iter()
            .zip(1..)
            .map(|(number, weight)| **number * weight)
            .sum();
    }

    #[test]
    fn many_arguments_arrive_in_order() {
        let numbers: Vec<u64> = (0..19).collect();
        let mut out = 0_u64;
        let mut arguments: Vec<*mut c_void> = numbers
            .iter()
            .map(|number| std::ptr::from_ref(number).cast_mut().cast())
            .collect();
        arguments.push((&raw mut out).cast());
        let (mut thread, mut member) = (7, 8);
        // SAFETY: the function has twenty arguments.
        unsafe {
            let microtask = std::mem::transmute::<*const (), Microtask>(sum_of_20 as *const ());
            invoke(microtask, &raw mut thread, &raw mut member, &arguments);
        }
        assert_eq!(out, (0..19).map(|number| number * (number + 1)).sum());
    }
}
