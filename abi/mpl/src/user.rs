//! What a program passes: pointers that are allegations, and what can be done with them.
//!
//! The types here appear only as parameters of the exported functions, so a value of one comes from
//! a C or Fortran program: an argument points to what its name in the prototype says, for the time
//! of the call (buffers, and the places for source and type of a message under way, until it is
//! complete). That is the argument of the `SAFETY` lines that refer to the module. Null is checked.
//! The types' names also decide what the header and `libmpl` print.
//!
//! What takes a length is unsafe, with the promise that the program vouches for it; the macro of
//! `call` makes it.

use std::ffi::{c_int, c_void};

pub use margay_abi_process::user::{Buffer, Bytes, Room, Text};
use margay_run_mpl::deny;
use margay_run_mpl::error::{MPL_ARGUMENT, Result};
use margay_sys_os::user::{Mem, Piece};

/// `int *`: one or several integers.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Ints(*mut c_int);

/// `size_t *`; in Fortran an integer of four bytes, which the lowest bit of the address marks.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SizePlace(usize);

/// `void (*)(int *)`: what is called with the id of a message.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Routine(Option<extern "C" fn(*mut c_int)>);

/// `void (*)()`: combines the first two with each other; gets four addresses, of two operands, the
/// result and their length.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Function(Option<extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut usize)>);

/// A buffer with the errors of MPL.
pub trait Claim: Buffer {
    /// Claims `bytes`.
    ///
    /// # Safety
    /// The program vouches for them.
    #[inline]
    unsafe fn piece(self, bytes: usize) -> Result<Piece> {
        let sound = isize::try_from(bytes).is_ok();
        // SAFETY: by the caller's promise.
        match unsafe { self.claim(bytes) }.filter(|_| sound) {
            Some(piece) => Ok(piece),
            None => no_buffer(bytes),
        }
    }

    /// Claims `bytes` until a message is complete.
    ///
    /// # Safety
    /// The program vouches for them.
    unsafe fn mem(self, bytes: usize) -> Result<Mem> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.piece(bytes) }?.mem())
    }
}

impl<T: Buffer> Claim for T {}

#[cold]
fn no_buffer(bytes: usize) -> Result<Piece> {
    if isize::try_from(bytes).is_err() {
        deny!(
            MPL_ARGUMENT,
            "{bytes} bytes are too many; was the length negative?"
        );
    }
    deny!(MPL_ARGUMENT, "the buffer is a null pointer")
}

impl Ints {
    /// The address, to be handed to [`Ints::at`] later.
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// What [`number`](Self::number) gave.
    ///
    /// # Safety
    /// The number is 0, or `number` gave it for a place that the program keeps as long as the value
    /// is used.
    pub unsafe fn at(number: usize) -> Ints {
        Ints(number as *mut c_int)
    }

    /// Reads one value.
    #[inline]
    pub fn take(self, name: &str) -> Result<c_int> {
        if self.0.is_null() {
            deny!(MPL_ARGUMENT, "{name} is a null pointer");
        }
        // SAFETY: see the module.
        Ok(unsafe { self.0.read() })
    }

    /// Reads `n` values.
    ///
    /// # Safety
    /// The program vouches for them.
    pub unsafe fn list(self, name: &str, n: c_int) -> Result<Vec<c_int>> {
        let Ok(n) = usize::try_from(n) else {
            deny!(MPL_ARGUMENT, "the length of {name} is {n}");
        };
        if self.0.is_null() && n > 0 {
            deny!(MPL_ARGUMENT, "{name} is a null pointer");
        }
        // SAFETY: by the caller's promise.
        Ok((0..n).map(|i| unsafe { self.0.add(i).read() }).collect())
    }

    /// Writes values.
    ///
    /// # Safety
    /// The program vouches for their room.
    #[inline]
    pub unsafe fn put(self, name: &str, values: &[c_int]) -> Result<()> {
        if self.0.is_null() {
            deny!(MPL_ARGUMENT, "{name} is a null pointer");
        }
        for (i, &value) in values.iter().enumerate() {
            // SAFETY: by the caller's promise.
            unsafe { self.0.add(i).write(value) };
        }
        Ok(())
    }
}

impl Ints {
    /// Writes a value, if there is a place.
    #[inline]
    pub fn offer(self, value: c_int) {
        if !self.0.is_null() {
            // SAFETY: see the module.
            unsafe { self.0.write(value) };
        }
    }
}

impl SizePlace {
    /// Writes a number, -1 for none.
    #[inline]
    pub fn put(self, name: &str, value: Option<u64>) -> Result<()> {
        if self.0 & !1 == 0 {
            deny!(MPL_ARGUMENT, "{name} is a null pointer");
        }
        let value = value.map_or(-1, |v| v as i64);
        // SAFETY: see the module.
        unsafe {
            if self.0 & 1 == 1 {
                ((self.0 & !1) as *mut c_int).write(value as c_int);
            } else {
                (self.0 as *mut usize).write(value as usize);
            }
        }
        Ok(())
    }
}

impl Routine {
    /// As a function that is called with the id of a message.
    pub fn closure(self) -> Result<margay_run_mpl::service::Routine> {
        let Some(routine) = self.0 else {
            deny!(MPL_ARGUMENT, "the routine is a null pointer");
        };
        Ok(Box::new(move |id| {
            let mut id = id;
            routine(&raw mut id);
        }))
    }
}

impl Function {
    /// The address, by which predefined functions are known.
    pub fn address(self) -> usize {
        self.0.map_or(0, |function| function as usize)
    }

    /// As a function of three operands of `bytes`.
    pub fn closure(self, bytes: usize) -> Result<impl Fn(&Mem, &Mem, &Mem)> {
        let Some(function) = self.0 else {
            deny!(MPL_ARGUMENT, "the function is a null pointer");
        };
        Ok(move |first: &Mem, second: &Mem, result: &Mem| {
            let mut length = bytes;
            let at = |mem: &Mem| mem.at(0, bytes).cast::<c_void>();
            function(at(first), at(second), at(result), &raw mut length);
        })
    }
}
