//! Where a program called the library, and where the library calls the program: addresses that
//! tools ask for.
//!
//! Found by unwinding, so that a call that nobody asks about leaves nothing behind for it.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetGR(context: *mut c_void, register: c_int) -> usize;
}

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP`.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// The register of the frame pointer, by its number in debugging information.
const FRAME_POINTER: c_int = if cfg!(target_arch = "aarch64") { 29 } else { 6 };
/// Bytes that a function's variables may take so that its frame pointer is recognized.
const LARGEST_FRAME: usize = 1 << 20;

/// A call from outside a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The address to which the call returns; 0 if there is none.
    pub return_address: usize,
    /// The canonical frame address of the called function; 0 if there is none.
    pub frame: usize,
    /// The frame pointer of the calling function; 0 where it has none.
    pub frame_pointer: usize,
}

struct Search {
    own: Range<usize>,
    found: Caller,
    /// The frame below which the call is.
    below: usize,
    /// Frames that may still be looked at.
    left: u32,
}

/// More of the library's own functions do not call each other.
const FRAMES: u32 = 256;

/// The innermost call that came from outside the addresses `own`, which are the calling library's.
/// If `below` is the address of the frame from which that has called the program (0: it has not),
/// only calls that have come since then count; without any (the program's function has ended by the
/// call, as its last) there is no return address.
#[must_use]
pub fn outside_of(own: &Range<usize>, below: usize) -> Caller {
    extern "C" fn next(context: *mut c_void, search: *mut c_void) -> c_int {
        // SAFETY: what is passed below, which nobody else uses meanwhile.
        let search = unsafe { &mut *search.cast::<Search>() };
        // SAFETY: the unwinder passes its context.
        let (address, frame) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
        search.left -= 1;
        if search.own.contains(&address) {
            if frame >= search.below {
                search.found.frame = frame;
                return STOP;
            }
            return if search.left == 0 { STOP } else { GO_ON };
        }
        // SAFETY: as above; the unwinder keeps the registers that functions preserve.
        let pointer = unsafe { _Unwind_GetGR(context, FRAME_POINTER) };
        // Functions without a frame pointer have anything in the register.
        let is_pointer = (frame..frame + LARGEST_FRAME).contains(&pointer);
        search.found = Caller {
            return_address: address,
            frame,
            frame_pointer: if is_pointer { pointer } else { 0 },
        };
        STOP
    }
    let mut search = Search {
        own: own.clone(),
        below: if below == 0 { usize::MAX } else { below },
        found: Caller::default(),
        left: FRAMES,
    };
    // SAFETY: the function takes what is passed.
    unsafe { _Unwind_Backtrace(next, (&raw mut search).cast()) };
    search.found
}

/// A function of up to two words.
pub(crate) type Callee = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// Calls `function(first, second)` from a frame with a frame pointer, which `place` gets before.
///
/// # Safety
/// The function may be called with these words, of which it may ignore the second; `place` is one
/// of an [`AtomicU64`].
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn framed(
    function: Callee,
    first: *mut c_void,
    second: *mut c_void,
    place: *const AtomicU64,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov [rcx], rbp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "call rax",
        "pop rbp",
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
unsafe extern "C-unwind" fn framed(
    function: Callee,
    first: *mut c_void,
    second: *mut c_void,
    place: *const AtomicU64,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "str x29, [x3]",
        "mov x9, x0",
        "mov x0, x1",
        "mov x1, x2",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

/// Elsewhere the frame is that of a function without a frame pointer of its own.
///
/// # Safety
/// As above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C-unwind" fn framed(
    function: Callee,
    first: *mut c_void,
    second: *mut c_void,
    place: *const AtomicU64,
) {
    let here = (&raw const place).addr() as u64;
    // SAFETY: by the caller's promise.
    unsafe {
        (*place).store(here, std::sync::atomic::Ordering::Relaxed);
        function(first, second);
    }
}

/// Calls `function(first, second)` from a frame whose frame pointer `frame` gets before.
///
/// # Safety
/// The function may be called with these words, of which it may ignore the second.
pub unsafe fn call_framed(
    function: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
    first: *mut c_void,
    second: *mut c_void,
    frame: &AtomicU64,
) {
    // SAFETY: by the caller's promise.
    unsafe { framed(function, first, second, frame) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_caller_is_the_first_frame_outside() {
        // Nothing is the library's: the caller is this crate.
        let caller = outside_of(&(0..0), 0);
        assert!(caller.return_address != 0 && caller.frame != 0);
        // All is: there is no caller.
        assert_eq!(outside_of(&(0..usize::MAX), 0), Caller::default());
        // None since the library has called this.
        let cut = outside_of(&(0..usize::MAX), caller.frame);
        assert_eq!((cut.return_address, cut.frame), (0, caller.frame));
    }

    #[test]
    fn a_framed_call_passes_its_words_and_tells_its_frame() {
        unsafe extern "C-unwind" fn add(to: *mut c_void, what: *mut c_void) {
            // SAFETY: the test passes the address of a number.
            unsafe { *to.cast::<usize>() += what.addr() };
        }
        let (mut sum, frame) = (5_usize, AtomicU64::new(0));
        let what = std::ptr::without_provenance_mut(7);
        // SAFETY: the function takes the address of a number.
        unsafe { call_framed(add, (&raw mut sum).cast(), what, &frame) };
        assert_eq!(sum, 12);
        let here = (&raw const sum).addr();
        let at = frame.load(Ordering::Relaxed) as usize;
        assert!(here.abs_diff(at) < 4096, "on this stack");
    }
}
