//! The client of PMIx, by which a launcher's processes exchange what they need to know of each
//! other: the few functions that this takes, of a library that is loaded when it is wanted.
//!
//! The structures are those of PMIx 2 to 5, which are alike as far as they are used here.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{NonNull, null};

use crate::symbols::Library;

const NAMESPACE: usize = 256;
const KEY: usize = 512;
/// The rank that stands for the whole job.
const WHOLE_JOB: u32 = u32::MAX - 1;
/// What is put can be read by all.
const GLOBAL: u8 = 3;

/// Kinds of values.
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const RANK: u16 = 40;

#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [c_char; NAMESPACE],
    rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    flag: bool,
    number: u32,
    text: *mut c_char,
    // The longest alternative: two pointers and a character.
    words: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
struct Info {
    key: [c_char; KEY],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Proc, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;

/// The connection of this process to the server of PMIx on its host.
pub struct Pmix {
    library: Library,
    me: Proc,
}

impl Pmix {
    /// Loads the library and connects to the server.
    ///
    /// # Errors
    /// What the loader says, or the number of the library's error.
    pub fn open(path: &Path) -> Result<Pmix, String> {
        // SAFETY: the library of that name is made to be loaded at any time.
        let library = unsafe { Library::open(path) }?;
        // SAFETY: the call fills the structure.
        let me = unsafe {
            let init: Init = library.function(c"PMIx_Init")?;
            let mut me = MaybeUninit::<Proc>::zeroed();
            done("PMIx_Init", init(me.as_mut_ptr(), null(), 0))?;
            // All of it is numbers, and was 0 before.
            me.assume_init()
        };
        Ok(Pmix { library, me })
    }

    /// The rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Keeps a text for the others, who get it after the next [`fence`](Self::fence).
    ///
    /// # Errors
    /// The library's.
    pub fn put(&self, key: &str, value: &str) -> Result<(), String> {
        let (key, text) = (word(key)?, word(value)?);
        let text = text.into_raw();
        let value = Value {
            kind: STRING,
            data: Data { text },
        };
        // SAFETY: the key ends with a zero byte, and the value is a text of that kind; both are
        // copied. The text is taken back.
        unsafe {
            let put: Put = self.library.function(c"PMIx_Put")?;
            let code = put(GLOBAL, key.as_ptr(), &raw const value);
            drop(CString::from_raw(text));
            done("PMIx_Put", code)
        }
    }

    /// Waits for all processes of the job, and gets what they have put.
    ///
    /// # Errors
    /// The library's.
    pub fn fence(&self) -> Result<(), String> {
        let mut all = Info {
            key: [0; KEY],
            flags: 0,
            value: Value {
                kind: BOOL,
                data: Data { words: [0; 3] },
            },
        };
        all.value.data.flag = true;
        for (to, &from) in all.key.iter_mut().zip(c"pmix.collect".to_bytes()) {
            *to = from as c_char;
        }
        // SAFETY: no list of processes stands for all; one structure of information.
        unsafe {
            let commit: Commit = self.library.function(c"PMIx_Commit")?;
            done("PMIx_Commit", commit())?;
            let fence: Fence = self.library.function(c"PMIx_Fence")?;
            done("PMIx_Fence", fence(null(), 0, &raw const all, 1))
        }
    }

    /// The text that a process has put.
    ///
    /// # Errors
    /// The library's, and when there is something else.
    pub fn text(&self, rank: u32, key: &str) -> Result<String, String> {
        self.get(rank, key, |value| {
            // SAFETY: the kind says that it is a text, which ends with a zero byte and is ours.
            (value.kind == STRING).then(|| unsafe {
                let text = CStr::from_ptr(value.data.text).to_string_lossy().into();
                libc::free(value.data.text.cast());
                text
            })
        })
    }

    /// A text about the whole job.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn text_of_job(&self, key: &str) -> Result<String, String> {
        self.text(WHOLE_JOB, key)
    }

    /// A number about the whole job.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn number_of_job(&self, key: &str) -> Result<u32, String> {
        self.get(WHOLE_JOB, key, |value| {
            // SAFETY: the kinds say that it is a number of 32 bits.
            matches!(value.kind, UINT32 | RANK).then(|| unsafe { value.data.number })
        })
    }

    fn get<T>(
        &self,
        rank: u32,
        key: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, String> {
        let name = word(key)?;
        let of = Proc { rank, ..self.me };
        let mut value = std::ptr::null_mut();
        // SAFETY: the arguments are valid for the call, which returns a value of `malloc`'s or an
        // error; the reader owns what it holds.
        unsafe {
            let get: Get = self.library.function(c"PMIx_Get")?;
            let code = get(&raw const of, name.as_ptr(), null(), 0, &raw mut value);
            done("PMIx_Get", code).map_err(|error| format!("{error} ({key} of {rank})"))?;
            let value = NonNull::new(value).ok_or_else(|| format!("{key}: no value"))?;
            let read = read(value.as_ref());
            libc::free(value.as_ptr().cast());
            read.ok_or_else(|| format!("{key} of {rank} is of another kind"))
        }
    }

    /// Leaves the job in order.
    ///
    /// # Errors
    /// The library's.
    pub fn finalize(&self) -> Result<(), String> {
        // SAFETY: no information goes with it.
        unsafe {
            let finalize: Finalize = self.library.function(c"PMIx_Finalize")?;
            done("PMIx_Finalize", finalize(null(), 0))
        }
    }

    /// Asks the launcher to end all processes of the job.
    ///
    /// # Errors
    /// The library's.
    pub fn abort(&self, code: i32) -> Result<(), String> {
        // SAFETY: the text ends with a zero byte; no list of processes stands for all.
        unsafe {
            let abort: Abort = self.library.function(c"PMIx_Abort")?;
            done("PMIx_Abort", abort(code, c"MPI_Abort".as_ptr(), null(), 0))
        }
    }
}

fn word(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| error.to_string())
}

fn done(name: &str, code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{name} fails with {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_librarys() {
        assert_eq!(size_of::<Proc>(), 260);
        assert_eq!(size_of::<Value>(), 32);
        assert_eq!(size_of::<Info>(), 552);
        assert_eq!(std::mem::offset_of!(Info, value), 520);
    }

    #[test]
    fn a_library_that_is_missing_or_another_one_is_an_error() {
        assert!(Pmix::open(Path::new("/nowhere/libpmix.so.2")).is_err());
        let other = Pmix::open(Path::new("libc.so.6"));
        assert_eq!(other.err().unwrap(), "it has no PMIx_Init");
    }
}
