//! What a program passes: pointers that are allegations, and what can be done with them.
//!
//! The types here appear only as parameters of the exported functions, so a value of one comes from
//! a C or Fortran program, which is bound by the rules of NX: an argument points to what its name
//! in the prototype says, for the time of the call (the buffer of a message under way: until it is
//! complete). That is the argument of the `SAFETY` lines that refer to the module. Null is checked.
//! The types' names also decide what the header and `libnx` print.
//!
//! Integers are `long` in C and usually of four bytes in Fortran. An address of integers has its
//! lowest bit set when they are Fortran's; integers lie at even addresses.
//!
//! What takes a length is unsafe, with the promise that the program vouches for it; the macro of
//! `call` makes it.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};

pub use margay_abi_process::user::{Buffer, Bytes, Room, Text};
use margay_run_nx::error::{EQBLEN, EQPARAM, Result};
use margay_run_nx::{Info, refuse};
use margay_sys_os::user::{Mem, Piece};

/// `long *`: one or several integers, in C or Fortran.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Longs(usize);

/// `esize_t *`: two integers.
pub type Esize = Longs;

/// `nx_part_info_t *`: its integers.
pub type PartInfo = Longs;

/// `nx_node_info_t *`: its integers.
pub type NodeInfo = Longs;

/// `cubetable_t *`: the integers of several.
pub type Cubes = Longs;

/// `nx_pspart_t **`: gets an array of them that the program frees.
pub type Applications = LongsPlace;

/// `long`: a number that fits 32 bits, as all of NX's did. Programs without prototypes pass an
/// `int`, whose upper half the compiler leaves 0; `libnx` makes a number below zero of it again
/// where bit 31 says so.
pub type Small = c_long;

/// `char *name[]`: strings up to a null pointer.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Strings(*const *const c_char);

/// `void (*)(long, long, long, long)`, or in Fortran with the four by reference.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handler {
    routine: Option<extern "C" fn()>,
    fortran: c_long,
}

/// `void (*)(long)`, or in Fortran by reference.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct XHandler {
    routine: Option<extern "C" fn()>,
    fortran: c_long,
}

/// `long (*)()`: combines its first argument with its second.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Combine(Option<extern "C" fn(*mut c_void, *mut c_void) -> c_long>);

/// `void (*)(void *)`
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Routine(Option<extern "C" fn(*mut c_void)>);

/// `int *argc`, not there in Fortran.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Argc(*mut c_int);

/// `char *argv[]`, not there in Fortran.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Argv(*mut *mut c_char);

/// `long **`: gets an array that the program frees.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct LongsPlace(*mut *mut c_long);

impl Longs {
    /// A null pointer.
    pub const NONE: Longs = Longs(0);
}

impl Strings {
    /// A null pointer.
    pub const NONE: Strings = Strings(std::ptr::null());
}

/// A buffer with the errors of NX.
pub trait Claim: Buffer {
    /// Claims `count` bytes.
    ///
    /// # Safety
    /// The program vouches for them.
    #[inline]
    unsafe fn piece(self, count: c_long) -> Result<Piece> {
        // SAFETY: by the caller's promise.
        match unsafe { self.claim(length("buf", count, false)?) } {
            Some(piece) => Ok(piece),
            None => refuse!(EQPARAM, "buf is a null pointer"),
        }
    }

    /// Claims `count` bytes until a message is complete.
    ///
    /// # Safety
    /// The program vouches for them.
    unsafe fn mem(self, count: c_long) -> Result<Mem> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.piece(count) }?.mem())
    }

    /// Claims `count` elements of `size` bytes.
    ///
    /// # Safety
    /// The program vouches for them.
    unsafe fn elements(self, count: c_long, size: usize) -> Result<(Mem, u64)> {
        let bytes = count.saturating_mul(size as c_long);
        // SAFETY: by the caller's promise.
        Ok((unsafe { self.mem(bytes) }?, count as u64))
    }
}

impl<T: Buffer> Claim for T {}

/// Checks how much there is of something.
#[inline]
fn length(name: &str, count: c_long, null: bool) -> Result<usize> {
    match usize::try_from(count) {
        Ok(0) => Ok(0),
        Ok(_) if null => refuse!(EQPARAM, "{name} is a null pointer"),
        Ok(count) => Ok(count),
        Err(_) => refuse!(EQBLEN, "the length is {count}; it must not be negative"),
    }
}

/// The string, which must be there.
pub fn given(text: Text, name: &str) -> Result<String> {
    match text.get() {
        Some(text) => Ok(text),
        None => refuse!(EQPARAM, "{name} is a null pointer"),
    }
}

impl Longs {
    /// Whether the program passed null.
    pub fn is_null(self) -> bool {
        self.0 & !1 == 0
    }

    /// Returns the address with the bit that marks Fortran's integers, to be handed to
    /// [`Longs::at`] later.
    pub fn number(self) -> usize {
        self.0
    }

    /// What [`number`](Self::number) gave.
    ///
    /// # Safety
    /// The number is 0, or `number` gave it for a place that the program keeps as long as the value
    /// is used.
    pub unsafe fn at(number: usize) -> Longs {
        Longs(number)
    }

    /// Bytes of an integer.
    pub fn size(self) -> usize {
        if self.0 & 1 == 1 { 4 } else { 8 }
    }

    /// The integers as memory.
    ///
    /// # Safety
    /// The program vouches for `count` of them.
    pub unsafe fn elements(self, count: c_long) -> Result<(Mem, u64)> {
        let (base, size) = ((self.0 & !1) as *mut u8, self.size());
        let len = length("buf", count.saturating_mul(size as c_long), self.is_null())?;
        // SAFETY: by the caller's promise.
        let piece = unsafe { Piece::claim(base, len) };
        Ok((piece.mem(), count as u64))
    }

    /// Writes values one after the other.
    ///
    /// # Safety
    /// The program vouches for their room.
    pub unsafe fn put(self, name: &str, values: &[c_long]) -> Result<()> {
        if self.is_null() {
            refuse!(EQPARAM, "{name} is a null pointer");
        }
        for (i, &value) in values.iter().enumerate() {
            // SAFETY: by the caller's promise.
            unsafe {
                if self.0 & 1 == 1 {
                    ((self.0 & !1) as *mut c_int)
                        .add(i)
                        .write_unaligned(value as c_int);
                } else {
                    (self.0 as *mut c_long).add(i).write_unaligned(value);
                }
            }
        }
        Ok(())
    }

    /// Reads `count` values.
    ///
    /// # Safety
    /// The program vouches for them.
    pub unsafe fn take(self, name: &str, count: c_long) -> Result<Vec<c_long>> {
        let count = length(name, count, self.is_null())?;
        let read = |i| {
            // SAFETY: by the caller's promise.
            unsafe {
                if self.0 & 1 == 1 {
                    c_long::from(((self.0 & !1) as *const c_int).add(i).read_unaligned())
                } else {
                    (self.0 as *const c_long).add(i).read_unaligned()
                }
            }
        };
        Ok((0..count).map(read).collect())
    }

    /// Writes what is known of a message, if there is a place.
    ///
    /// # Safety
    /// The program vouches for the room of four integers there.
    #[inline]
    pub unsafe fn put_info(self, info: Info) {
        if !self.is_null() {
            let values = [info.kind, info.count, info.node, info.ptype];
            // A null pointer has been seen to.
            // SAFETY: by the caller's promise.
            let _ = unsafe { self.put("info", &values) };
        }
    }
}

impl Strings {
    /// The strings; none for a null pointer.
    pub fn get(self) -> Option<Vec<CString>> {
        if self.0.is_null() {
            return None;
        }
        let mut all = Vec::new();
        loop {
            // SAFETY: see the module; the list ends with a null pointer, at which this ends too.
            let next = unsafe { *self.0.add(all.len()) };
            if next.is_null() {
                return Some(all);
            }
            // SAFETY: see the module.
            all.push(unsafe { CStr::from_ptr(next) }.to_owned());
        }
    }
}

impl Handler {
    pub fn is_null(self) -> bool {
        self.routine.is_none()
    }

    /// Calls the function, if there is one, with what is known of a message.
    pub fn call(self, info: Info) {
        let Some(routine) = self.routine else { return };
        let values = [info.kind, info.count, info.node, info.ptype];
        if self.fortran != 0 {
            let [kind, count, node, ptype] = values.map(|n| n as c_int);
            // SAFETY: see the module; Fortran's handlers take four integers by reference.
            let call: extern "C" fn(&c_int, &c_int, &c_int, &c_int) =
                unsafe { std::mem::transmute(routine) };
            call(&kind, &count, &node, &ptype);
        } else {
            let [kind, count, node, ptype] = values;
            // SAFETY: see the module; C's handlers take four values.
            let call: extern "C" fn(c_long, c_long, c_long, c_long) =
                unsafe { std::mem::transmute(routine) };
            call(kind, count, node, ptype);
        }
    }
}

impl XHandler {
    pub fn is_null(self) -> bool {
        self.routine.is_none()
    }

    /// Calls the function, if there is one, with the program's parameter.
    pub fn call(self, hparam: c_long) {
        let Some(routine) = self.routine else { return };
        if self.fortran != 0 {
            // SAFETY: see the module; Fortran's handlers take one integer by reference.
            let call: extern "C" fn(&c_int) = unsafe { std::mem::transmute(routine) };
            call(&(hparam as c_int));
        } else {
            // SAFETY: see the module; C's handlers take one value.
            let call: extern "C" fn(c_long) = unsafe { std::mem::transmute(routine) };
            call(hparam);
        }
    }
}

impl Combine {
    /// The function.
    pub fn take(self) -> Result<extern "C" fn(*mut c_void, *mut c_void) -> c_long> {
        match self.0 {
            Some(function) => Ok(function),
            None => refuse!(EQPARAM, "the function is a null pointer"),
        }
    }
}

impl Routine {
    /// The routine with its parameters, which sets `done` to 1 at its end.
    ///
    /// # Safety
    /// The program vouches for the parameters and for `done` until then.
    pub unsafe fn closure(self, params: Room, done: Longs) -> Result<margay_run_nx::cop::Routine> {
        let Some(routine) = self.0 else {
            refuse!(EQPARAM, "routine is a null pointer");
        };
        // SAFETY: by the caller's promise.
        unsafe { done.put("done", &[0]) }?;
        let params = params.address() as usize;
        Ok(Box::new(move || {
            routine(params as *mut c_void);
            // SAFETY: by the promise to `closure`.
            unsafe { done.publish(1) };
        }))
    }
}

impl Longs {
    /// Writes one value behind all that was written before.
    ///
    /// # Safety
    /// The program vouches for the place.
    unsafe fn publish(self, value: c_int) {
        use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
        let at = self.0 & !1;
        // SAFETY: by the caller's promise; the program's variable is aligned as the compiler aligns
        // integers, and both sides access it as a whole.
        unsafe {
            if self.0 & 1 == 1 {
                AtomicI32::from_ptr(at as *mut i32).store(value, Ordering::Release);
            } else {
                AtomicI64::from_ptr(at as *mut i64).store(i64::from(value), Ordering::Release);
            }
        }
    }
}

impl Argc {
    /// Takes words out of the program's command line: those that are not at these places.
    ///
    /// # Safety
    /// The program vouches for `self` and `argv` being those of `main`, of which nothing has been
    /// taken behind the library's back.
    pub unsafe fn keep(self, argv: Argv, places: &[usize]) {
        if self.0.is_null() || argv.0.is_null() {
            return;
        }
        // SAFETY: by the caller's promise argv has argc strings and a null pointer; no more are
        // kept than there were.
        unsafe {
            let count = (*self.0).max(0) as usize;
            let mut kept = 0;
            for &place in places.iter().filter(|&&place| place < count).take(count) {
                *argv.0.add(kept) = *argv.0.add(place);
                kept += 1;
            }
            *argv.0.add(kept) = std::ptr::null_mut();
            *self.0 = kept as c_int;
        }
    }

    /// The words of the command line, and none when there is no command line.
    ///
    /// # Safety
    /// The program vouches for what is said of [`keep`](Self::keep).
    pub unsafe fn words(self, argv: Argv) -> Option<Vec<String>> {
        if self.0.is_null() || argv.0.is_null() {
            return None;
        }
        // SAFETY: as in `keep`.
        let count = unsafe { *self.0 }.max(0) as usize;
        let word = |i| {
            // SAFETY: as in `keep`.
            let word = unsafe { CStr::from_ptr(*argv.0.add(i)) };
            word.to_string_lossy().into_owned()
        };
        Some((0..count).map(word).collect())
    }
}

impl LongsPlace {
    /// Gives the program an array, as `malloc` does.
    pub fn give(self, name: &str, values: &[c_long]) -> Result<()> {
        if self.0.is_null() {
            refuse!(EQPARAM, "{name} is a null pointer");
        }
        let array = margay_sys_os::user::malloc_copy(values);
        // SAFETY: see the module.
        unsafe { self.0.write(array) };
        Ok(())
    }
}
