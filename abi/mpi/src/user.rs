//! What a C program passes: pointers that are allegations, and what can be done with them.
//!
//! The types here appear only as parameters of the exported functions, and nothing else makes one,
//! so a value comes from a C caller, which is bound by the MPI standard: an argument points to what
//! its type says, one value or one string, for the time of the call. That is the argument of every
//! `SAFETY` line in this file that refers to the module. Null is checked wherever the standard does
//! not allow it. The types' names also decide what the header prints.
//!
//! How long an array or a buffer is stands in another argument, and no type ties the two together.
//! So whatever takes a length or an index is unsafe, with one promise: **the C caller vouches for
//! it**, that is, by the standard the argument has at least this many entries or bytes, and the
//! call has their use, for its time (a buffer: until the operation is complete). The promise is
//! made in one place, by the macros of [`crate::call`] for the body of an exported function.

use std::ffi::{CStr, c_char, c_int, c_void};

use margay_run_engine::Outcome;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::error::Result;
use margay_run_mpi::outcome::received;
use margay_run_mpi::{Status, fail};
use margay_sys_os::user::{Mem, Piece};

/// `void *`: a buffer that may be written.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Buf(*mut c_void);

/// `const void *`: a buffer that is only read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ConstBuf(*const c_void);

/// `void *`: a value that is handed back as it is, never followed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Opaque(pub *mut c_void);

/// `T *`: one value to be written, or read and written.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Place<T>(*mut T);

/// `const T *`: one value to be read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct View<T>(*const T);

/// `const T name[]`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

/// `T name[]`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

/// Entries of an array, for each of which the C caller vouches.
pub struct Places<T> {
    first: *mut T,
    n: usize,
}

/// `const int *`: weights. Not an array in C, or gcc would warn about `MPI_UNWEIGHTED`.
pub type Weights = In<c_int>;

/// `int *`: room for weights.
pub type WeightsOut = Out<c_int>;

/// `const char *`: a string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

/// `char *`: room for a string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct TextOut(*mut c_char);

/// `char ***`: the address of `main`'s second argument, which is not looked at.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ArgvPlace(*mut c_void);

/// `char *name[]`: an argument list that ends with a null pointer or after a given length.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Argv(*const *const c_char);

/// `char **name[]`: several argument lists, each of which ends with a null pointer.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Argvs(*const Argv);

impl Buf {
    /// The address, also as a number for the constants of the standard.
    #[inline]
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// The buffer itself, or this address where the program passed `MPI_BOTTOM`.
    #[inline]
    pub fn or_at(self, bottom: usize) -> Buf {
        match self.0.is_null() {
            true => Buf(bottom as *mut c_void),
            false => self,
        }
    }

    /// Claims the bytes from `lo` to `hi` around the address.
    ///
    /// # Safety
    /// The C caller vouches for these bytes, as buffer, count and datatype of its call describe
    /// them.
    #[inline]
    pub unsafe fn claim(self, lo: i64, hi: i64) -> Mem {
        // SAFETY: by the caller's promise.
        unsafe { Mem::claim(self.0.cast(), lo, hi) }
    }

    /// Claims `len` bytes from the address on, until the operation is complete.
    ///
    /// # Safety
    /// As for [`claim`](Self::claim).
    #[inline(always)]
    pub unsafe fn piece(self, len: usize) -> Piece {
        // SAFETY: by the caller's promise.
        unsafe { Piece::claim(self.0.cast(), len) }
    }

    /// Writes a pointer-sized value to where the argument points (`void *baseptr` and the like are
    /// really `void **`).
    ///
    /// # Safety
    /// The C caller vouches for the room of a pointer.
    pub unsafe fn put_pointer(self, name: &str, value: usize) -> Result<()> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: by the caller's promise; the program need not have aligned it.
        unsafe { self.0.cast::<usize>().write_unaligned(value) };
        Ok(())
    }

    /// Writes bytes to where the argument points.
    ///
    /// # Safety
    /// The C caller vouches for their room.
    pub unsafe fn put_bytes(self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: by the caller's promise.
        unsafe { self.piece(bytes.len()) }.write(bytes);
        Ok(())
    }

    /// Reads `n` bytes from where the argument points.
    ///
    /// # Safety
    /// The C caller vouches for them.
    pub unsafe fn take_bytes(self, name: &str, n: usize) -> Result<Vec<u8>> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.piece(n) }.with_bytes(<[u8]>::to_vec))
    }
}

impl ConstBuf {
    /// As a buffer. Operations that take a `const` buffer do not write to it.
    #[inline]
    pub fn buf(self) -> Buf {
        Buf(self.0.cast_mut())
    }

    /// The address, also as a number for the constants of the standard.
    #[inline]
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

impl<T: Copy> Place<T> {
    /// Whether the program passed null.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the value.
    #[inline]
    pub fn put(self, name: &str, value: T) -> Result<()> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: see the module.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads the value.
    #[inline]
    pub fn take(self, name: &str) -> Result<T> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: see the module.
        Ok(unsafe { self.0.read() })
    }

    /// Writes the value if there is a place.
    #[inline]
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: see the module.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes a value at the end of an operation that has begun.
    ///
    /// # Safety
    /// The C caller vouches for the place until then.
    pub unsafe fn later<V>(
        self,
        of: impl Fn(V) -> T + Send + 'static,
    ) -> impl FnOnce(V) + Send + 'static
    where
        T: 'static,
    {
        let place = self.0 as usize;
        move |value| {
            // SAFETY: by the caller's promise.
            unsafe { (place as *mut T).write(of(value)) };
        }
    }

    /// Changes the value if there is a place.
    #[inline]
    pub fn update(self, change: impl FnOnce(&mut T)) {
        if !self.0.is_null() {
            // SAFETY: see the module.
            change(unsafe { &mut *self.0 });
        }
    }
}

impl<T: Copy> View<T> {
    /// Reads the value.
    pub fn take(self, name: &str) -> Result<T> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: see the module.
        Ok(unsafe { self.0.read() })
    }
}

impl<T: Copy> In<T> {
    /// The address, for constants of the standard.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// The first `n` entries, as long as the function has its argument.
    ///
    /// # Safety
    /// The C caller vouches for `n` entries.
    pub unsafe fn slice(&self, name: &str, n: usize) -> Result<&[T]> {
        if n == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return null(name);
        }
        addressable::<T>(name, n)?;
        // SAFETY: by the caller's promise; the slice ends with the argument and is no longer than a
        // slice may be.
        Ok(unsafe { std::slice::from_raw_parts(self.0, n) })
    }
}

impl In<c_char> {
    /// The string in an array of characters; bytes that are not UTF-8 are replaced.
    pub fn text(self, name: &str) -> Result<String> {
        Text(self.0).get(name)
    }
}

impl<T: Copy> Out<T> {
    /// The address, for constants of the standard.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// The first `n` entries, as long as the function has its argument.
    ///
    /// # Safety
    /// The C caller vouches for `n` entries.
    #[inline]
    pub unsafe fn slice(&mut self, name: &str, n: usize) -> Result<&mut [T]> {
        if n == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return null(name);
        }
        addressable::<T>(name, n)?;
        // SAFETY: by the caller's promise; the slice ends with the argument and is no longer than a
        // slice may be.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, n) })
    }

    /// The first `n` entries as places, which may hold nothing yet. No places if the array is null.
    ///
    /// # Safety
    /// The C caller vouches for `n` entries, unless the array is null.
    pub unsafe fn places(self, n: usize) -> Places<T> {
        Places { first: self.0, n }
    }

    /// Copies `values` to the start of the array.
    ///
    /// # Safety
    /// The C caller vouches for as many entries.
    pub unsafe fn put(
        mut self,
        name: &str,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<()> {
        // SAFETY: by the caller's promise.
        let places = unsafe { self.slice(name, values.len()) }?;
        for (to, value) in places.iter_mut().zip(values) {
            *to = value;
        }
        Ok(())
    }
}

impl<T> Places<T> {
    /// Place `i`, or no place if the array is null.
    ///
    /// # Panics
    /// When there are not that many.
    #[inline]
    pub fn at(&self, i: usize) -> Place<T> {
        assert!(i < self.n, "place {i} of {}", self.n);
        Place(match self.first.is_null() {
            true => self.first,
            false => self.first.wrapping_add(i),
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.n
    }
}

impl Text {
    /// The string; bytes that are not UTF-8 are replaced.
    pub fn get(self, name: &str) -> Result<String> {
        if self.0.is_null() {
            return null(name);
        }
        // SAFETY: see the module: a string ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

impl TextOut {
    /// Whether the program passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes `text` and a zero, cut to `room` bytes together. Returns the bytes written without
    /// the zero.
    ///
    /// # Safety
    /// The C caller vouches for `room` bytes: a constant of the standard, or a length that it
    /// passes.
    pub unsafe fn put(self, name: &str, text: &str, room: usize) -> Result<usize> {
        if self.0.is_null() {
            return null(name);
        }
        let n = text.len().min(room.saturating_sub(1));
        if room > 0 {
            // SAFETY: by the caller's promise; the text and its end are no longer than that.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), n);
                self.0.add(n).write(0);
            }
        }
        Ok(n)
    }
}

impl Argv {
    /// The strings before a null pointer, at most `n`.
    ///
    /// # Safety
    /// The C caller vouches for `n` entries, or for a null pointer at the end.
    pub unsafe fn strings(self, n: usize) -> Vec<String> {
        if self.0.is_null() {
            return Vec::new();
        }
        (0..n)
            .map_while(|i| {
                // SAFETY: by the caller's promise; nothing behind a null pointer is read.
                let string = unsafe { self.0.add(i).read() };
                // SAFETY: see the module: each entry is a string.
                (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
            })
            .map(|s| s.to_string_lossy().into_owned())
            .collect()
    }
}

impl Argvs {
    /// The strings of list `i`.
    ///
    /// # Safety
    /// The C caller vouches for more than `i` lists, each with a null pointer at its end.
    pub unsafe fn strings(self, i: usize) -> Vec<String> {
        if self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: by the caller's promise.
        unsafe { self.0.add(i).read().strings(usize::MAX) }
    }
}

/// The status structure of the ABI. The count is 64 bits in the first two words of `MPI_internal`,
/// the third is 1 for a cancelled message.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct MPI_Status {
    pub MPI_SOURCE: c_int,
    pub MPI_TAG: c_int,
    pub MPI_ERROR: c_int,
    pub MPI_internal: [c_int; 5],
}

impl MPI_Status {
    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        u64::from(self.MPI_internal[0] as u32) | u64::from(self.MPI_internal[1] as u32) << 32
    }

    /// Enters the bytes of the message.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.MPI_internal[0] = bytes as u32 as c_int;
        self.MPI_internal[1] = (bytes >> 32) as u32 as c_int;
    }

    /// Whether the message was cancelled.
    pub fn cancelled(&self) -> bool {
        self.MPI_internal[2] != 0
    }

    /// Enters whether the message was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.MPI_internal[2] = c_int::from(cancelled);
    }
}

impl Place<MPI_Status> {
    /// Enters the outcome of a receive of up to `room` bytes; an error if the message was longer.
    #[inline(always)]
    pub fn outcome(self, outcome: &Outcome, room: usize) -> Result<()> {
        if outcome.truncated.is_some() {
            let (found, error) = received(outcome, room as u64);
            self.status(&found);
            return error.map_or(Ok(()), Err);
        }
        if !self.0.is_null() {
            self.status(&Status {
                source: outcome.source as i32,
                tag: outcome.tag as i32,
                bytes: outcome.bytes,
                cancelled: false,
            });
        }
        Ok(())
    }

    /// Enters everything but the error, unless the program ignores the status.
    #[inline]
    pub fn status(self, status: &Status) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: see the module. The error field may be uninitialised and stays as it is, so no
        // reference to the whole structure is made.
        unsafe {
            (&raw mut (*self.0).MPI_SOURCE).write(status.source);
            (&raw mut (*self.0).MPI_TAG).write(status.tag);
            (&raw mut (*self.0).MPI_internal).write([
                status.bytes as u32 as c_int,
                (status.bytes >> 32) as u32 as c_int,
                c_int::from(status.cancelled),
                0,
                0,
            ]);
            // An empty status says that all is well; any other leaves the field alone.
            if *status == Status::EMPTY {
                (&raw mut (*self.0).MPI_ERROR).write(MPI_SUCCESS);
            }
        }
    }

    /// Enters the error alone.
    pub fn error(self, code: c_int) {
        if !self.0.is_null() {
            // SAFETY: as above.
            unsafe { (&raw mut (*self.0).MPI_ERROR).write(code) };
        }
    }
}

/// Refuses lengths that no array has: a slice must not be longer than the address space.
#[inline]
fn addressable<T>(name: &str, n: usize) -> Result<()> {
    if n > isize::MAX as usize / size_of::<T>().max(1) {
        fail!(
            MPI_ERR_ARG,
            "{name} would have {n} entries, more than memory can hold"
        );
    }
    Ok(())
}

#[cold]
fn null<T>(name: &str) -> Result<T> {
    fail!(MPI_ERR_ARG, "{name} is a null pointer");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_no_array_has_are_refused() {
        let most = isize::MAX as usize / 4;
        assert!(addressable::<c_int>("values", most).is_ok());
        assert!(addressable::<c_int>("values", most + 1).is_err());
        assert!(addressable::<u8>("values", usize::MAX).is_err());
    }

    #[test]
    #[should_panic(expected = "place 2 of 2")]
    fn places_end_where_the_program_said() {
        let mut values = [0; 3];
        // SAFETY: there are more.
        let places = unsafe { Out(values.as_mut_ptr()).places(2) };
        places.at(1).offer(7);
        places.at(2).offer(8);
    }
}
