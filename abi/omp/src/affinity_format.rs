//! The affinity format: what the members of a team show of themselves. The libraries of gcc and of
//! LLVM have formats and places for it of their own, so each routine is there once for each.

use std::ffi::c_char;

use margay_core_openmp::format::Interface;
use margay_run_openmp::affinity;
use margay_sys_threads::outlined::text;

use crate::runtime::{runtime, with};

/// A text from Fortran, without the blanks at its end.
///
/// # Safety
/// `from` has `length` readable bytes.
unsafe fn fortran_text(from: *const c_char, length: usize) -> String {
    // SAFETY: by the caller's promise.
    let from = unsafe { text(from, Some(length)) };
    from.trim_end_matches(' ').to_owned()
}

/// Writes as much of a text as there is room for, with a zero byte at the end; returns its length.
///
/// # Safety
/// `to` has `room` writable bytes.
unsafe fn put_text(to: *mut c_char, room: usize, text: &str) -> usize {
    if room > 0 {
        let length = text.len().min(room - 1);
        // SAFETY: by the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), length);
            to.add(length).write(0);
        }
    }
    text.len()
}

/// The same for Fortran, with blanks to the end.
///
/// # Safety
/// As above.
unsafe fn put_fortran_text(to: *mut c_char, room: usize, text: &str) -> i32 {
    let length = text.len().min(room);
    // SAFETY: by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), length);
        std::ptr::write_bytes(to.add(length), b' ', room - length);
    }
    text.len() as i32
}

/// # Safety
/// `format` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_set_affinity_format(format: *const c_char) {
    // SAFETY: by the caller's promise.
    let format = unsafe { text(format, None) };
    runtime().icvs.set_affinity_format(&format);
}

/// # Safety
/// `format` has `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_set_affinity_format_(format: *const c_char, length: usize) {
    // SAFETY: by the caller's promise.
    let format = unsafe { fortran_text(format, length) };
    runtime().icvs.set_affinity_format(&format);
}

/// The routines that show something, each for C and for Fortran.
macro_rules! routines {
    ($($interface:ident: $get:ident $get_fortran:ident, $display:ident $display_fortran:ident,
       $capture:ident $capture_fortran:ident;)*) => {$(
        /// # Safety
        /// `to` has `room` writable bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $get(to: *mut c_char, room: usize) -> usize {
            let format = runtime().icvs.affinity_format(Interface::$interface);
            // SAFETY: by the caller's promise.
            unsafe { put_text(to, room, &format) }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $get_fortran(to: *mut c_char, room: usize) -> i32 {
            let format = runtime().icvs.affinity_format(Interface::$interface);
            // SAFETY: by the caller's promise.
            unsafe { put_fortran_text(to, room, &format) }
        }

        /// # Safety
        /// `format` is null or ends with a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $display(format: *const c_char) {
            // SAFETY: by the caller's promise.
            let format = unsafe { text(format, None) };
            with(|context| affinity::display(context, Some(&format), Interface::$interface));
        }

        /// # Safety
        /// `format` has `length` readable bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $display_fortran(format: *const c_char, length: usize) {
            // SAFETY: by the caller's promise.
            let format = unsafe { fortran_text(format, length) };
            with(|context| affinity::display(context, Some(&format), Interface::$interface));
        }

        /// # Safety
        /// `to` has `room` writable bytes; `format` is null or ends with a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $capture(
            to: *mut c_char, room: usize, format: *const c_char,
        ) -> usize {
            // SAFETY: by the caller's promise.
            let format = unsafe { text(format, None) };
            let line =
                with(|context| affinity::capture(context, Some(&format), Interface::$interface));
            // SAFETY: by the caller's promise.
            unsafe { put_text(to, room, &line) }
        }

        /// # Safety
        /// `to` has `room` writable bytes, and `format` `length` readable ones.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $capture_fortran(
            to: *mut c_char, format: *const c_char, room: usize, length: usize,
        ) -> i32 {
            // SAFETY: by the caller's promise.
            let format = unsafe { fortran_text(format, length) };
            let line =
                with(|context| affinity::capture(context, Some(&format), Interface::$interface));
            // SAFETY: by the caller's promise.
            unsafe { put_fortran_text(to, room, &line) }
        }
    )*};
}

routines! {
    Gnu: omp_get_affinity_format omp_get_affinity_format_,
        omp_display_affinity omp_display_affinity_,
        omp_capture_affinity omp_capture_affinity_;
    Llvm: margay_kmp_get_affinity_format margay_kmp_get_affinity_format_,
        margay_kmp_display_affinity margay_kmp_display_affinity_,
        margay_kmp_capture_affinity margay_kmp_capture_affinity_;
}
