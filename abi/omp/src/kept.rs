//! Where teams write what they do, so that the launcher can read it when the process has crashed:
//! in the memory of a rank of MPI, if this is one. And from where the program calls.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use margay_sys_os::symbols;

/// This many words of the rank's memory, aligned as records of teams are, or null.
type Keep = unsafe extern "C" fn(usize) -> *const AtomicU64;

/// A [keeper](margay_sys_threads::inspect::Keeper). The library of MPI may come later than the
/// first team, so it is looked for each time.
pub(crate) fn words(count: usize) -> Option<&'static [AtomicU64]> {
    let symbol = symbols::find(c"margay_keep_threads")?;
    // SAFETY: the function of this name is Margay's own (`abi/process`) and has this type.
    let keep = unsafe { transmute::<NonNull<c_void>, Keep>(symbol) };
    // SAFETY: it takes any number.
    let words = unsafe { keep(count) };
    // SAFETY: the function returns as many words as it was asked for, which stay for ever, or null.
    (!words.is_null()).then(|| unsafe { std::slice::from_raw_parts(words, count) })
}

/// The body of a naked function: goes on in another one with the same arguments, as many as the
/// number says, and one more: the address to which the program's call returns.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! from_program {
    (@ $register:literal $to:path) => {
        std::arch::naked_asm!(
            concat!("mov ", $register, ", qword ptr [rsp]"),
            "jmp {to}",
            to = sym $to,
        )
    };
    (0, $to:path) => { $crate::from_program!(@ "rdi" $to) };
    (1, $to:path) => { $crate::from_program!(@ "rsi" $to) };
    (2, $to:path) => { $crate::from_program!(@ "rdx" $to) };
    (3, $to:path) => { $crate::from_program!(@ "rcx" $to) };
    (4, $to:path) => { $crate::from_program!(@ "r8" $to) };
}

/// The body of a naked function: goes on in another one with the same arguments, as many as the
/// number says, and one more: the address to which the program's call returns.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! from_program {
    (@ $register:literal $to:path) => {
        std::arch::naked_asm!(
            concat!("mov ", $register, ", x30"),
            "b {to}",
            to = sym $to,
        )
    };
    (0, $to:path) => { $crate::from_program!(@ "x0" $to) };
    (1, $to:path) => { $crate::from_program!(@ "x1" $to) };
    (2, $to:path) => { $crate::from_program!(@ "x2" $to) };
    (3, $to:path) => { $crate::from_program!(@ "x3" $to) };
    (4, $to:path) => { $crate::from_program!(@ "x4" $to) };
}
