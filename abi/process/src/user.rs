//! What programs of NX and MPL pass: buffers and strings, as allegations.
//!
//! The types here appear only as parameters of exported functions, so a value of one comes from a C
//! or Fortran program: it points to what its name in the prototype says, for the time of the call
//! (the buffer of a message under way: until it is complete). That is the argument of the `SAFETY`
//! lines that refer to the module. Null is checked. Each library adds its own errors.
//!
//! How long an argument is stands in another one, and no type ties the two together: what takes a
//! length is unsafe, with the promise that the program vouches for it. The macros that export
//! functions make the promise, in one place for all.

use std::ffi::{CStr, c_char, c_void};

use margay_sys_os::user::Piece;

/// `const void *`: bytes that are only read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(*const c_void);

/// `void *`: room for bytes, or operands that the result replaces.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Room(*mut c_void);

/// `const char *`: a string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

/// A buffer of the program's.
pub trait Buffer: Copy {
    /// Claims `bytes`; none when the program passed null and there should be some.
    ///
    /// # Safety
    /// The program vouches for that many bytes, for the time of the call (the buffer of a message
    /// under way: until it is complete).
    unsafe fn claim(self, bytes: usize) -> Option<Piece>;
}

impl Buffer for Bytes {
    #[inline]
    unsafe fn claim(self, bytes: usize) -> Option<Piece> {
        // SAFETY: by the caller's promise.
        unsafe { Room(self.0.cast_mut()).claim(bytes) }
    }
}

impl Buffer for Room {
    #[inline]
    unsafe fn claim(self, bytes: usize) -> Option<Piece> {
        if self.0.is_null() && bytes > 0 {
            return None;
        }
        // SAFETY: by the caller's promise.
        Some(unsafe { Piece::claim(self.0.cast(), bytes) })
    }
}

impl Room {
    /// Returns the address.
    #[must_use]
    pub fn address(self) -> *mut c_void {
        self.0
    }
}

impl Text {
    /// Returns the string; none for a null pointer.
    #[must_use]
    pub fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: see the module.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}
