//! What a program passes: pointers that are allegations, and what can be done with them.
//!
//! The types here appear only as parameters of the exported functions, so a value of one comes from
//! a C or Fortran program: an argument points to what its name in the prototype says, for the time
//! of the call. That is the argument of every `SAFETY` line in this file. Null is checked. The
//! types' names also decide what the headers and `libmlp` print.

use std::ffi::{CStr, c_char, c_int};

use margay_run_mlp::constants::MLP_ERR_ARGUMENT;
use margay_run_mlp::error::Result;
use margay_run_mlp::refuse;

/// `const int[]`: as many integers as the next parameter says.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Ints(*const c_int);

/// `int *`: gets an integer.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct IntPlace(*mut c_int);

/// `size_t *`: gets a number of bytes; may be null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SizePlace(*mut usize);

/// `int *`: the address of a lock.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Lock(*mut c_int);

/// `const char *`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

/// `char *`: room for a text; the next parameter is its size.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Room(*mut c_char);

impl Ints {
    /// The integers.
    ///
    /// # Safety
    /// There are `count` of them.
    pub unsafe fn read(self, name: &str, count: c_int) -> Result<Vec<i32>> {
        let Ok(count) = usize::try_from(count) else {
            refuse!(MLP_ERR_ARGUMENT, "{count} processes are asked for");
        };
        if self.0.is_null() {
            refuse!(MLP_ERR_ARGUMENT, "{name} is a null pointer");
        }
        // SAFETY: by the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

impl IntPlace {
    /// Checks that it is there.
    pub fn check(self, name: &str) -> Result<()> {
        if self.0.is_null() {
            refuse!(MLP_ERR_ARGUMENT, "{name} is a null pointer");
        }
        Ok(())
    }

    /// Stores an integer, if there is a place.
    pub fn put(self, value: i32) {
        if !self.0.is_null() {
            // SAFETY: see the module.
            unsafe { *self.0 = value };
        }
    }
}

impl SizePlace {
    /// Stores a number of bytes, if there is a place.
    pub fn put(self, value: u64) {
        if !self.0.is_null() {
            // SAFETY: see the module.
            unsafe { *self.0 = value as usize };
        }
    }
}

impl Lock {
    /// The address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

impl Text {
    /// The text.
    pub fn read(self, name: &str) -> Result<String> {
        if self.0.is_null() {
            refuse!(MLP_ERR_ARGUMENT, "{name} is a null pointer");
        }
        // SAFETY: see the module.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl Room {
    /// Stores as much of a text as there is room for, and a zero byte behind it. Returns how many
    /// bytes all of it has.
    ///
    /// # Safety
    /// There is room for `size` bytes.
    pub unsafe fn put(self, size: usize, text: &str) -> usize {
        if !self.0.is_null() && size > 0 {
            let bytes = text.len().min(size - 1);
            // SAFETY: by the caller's promise; the text and its end fit.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), bytes);
                *self.0.add(bytes) = 0;
            }
        }
        text.len()
    }
}
