//! Thread-private variables of compilers that do not make thread-local variables of them: each
//! member's copy is found by the address of the variable.
//!
//! The program's first thread uses the variable itself. Copies hang off thread-local variables, of
//! which each member has a set of its own: so they last as long as other thread-private variables.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use margay_sys_threads::border::{inside, outside};
use margay_sys_threads::task_block::TaskBlock;

use crate::{Ident, Opaque};

type Construct = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type CopyConstruct = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> *mut c_void;
type Destroy = unsafe extern "C-unwind" fn(*mut c_void);
type ConstructAll = unsafe extern "C-unwind" fn(*mut c_void, usize) -> *mut c_void;
type CopyConstructAll = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
type DestroyAll = unsafe extern "C-unwind" fn(*mut c_void, usize);

/// How copies of a variable are made and destroyed.
#[derive(Clone, Copy, Debug, Default)]
struct Functions {
    construct: Option<Construct>,
    copy: Option<CopyConstruct>,
    destroy: Option<Destroy>,
    construct_all: Option<ConstructAll>,
    copy_all: Option<CopyConstructAll>,
    destroy_all: Option<DestroyAll>,
    /// Of an array of objects.
    length: usize,
}

/// What is known of a variable.
#[derive(Debug, Default)]
struct Variable {
    functions: Functions,
    /// Its value when it was first asked for.
    initial: Option<Vec<u8>>,
}

/// The variables, by their addresses.
static VARIABLES: Mutex<Option<HashMap<usize, Variable>>> = Mutex::new(None);

fn variables() -> MutexGuard<'static, Option<HashMap<usize, Variable>>> {
    VARIABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change<R>(data: *mut c_void, f: impl FnOnce(&mut Variable) -> R) -> R {
    f(variables()
        .get_or_insert_default()
        .entry(data as usize)
        .or_default())
}

/// Spreads addresses, most of whose low bits are 0.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = (self.0 ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The copies of a set of thread-local variables.
#[derive(Default)]
struct Copies(HashMap<usize, ThreadCopy, BuildHasherDefault<AddressHasher>>);

struct ThreadCopy {
    at: *mut c_void,
    /// None where it is the variable itself.
    block: Option<(usize, Functions)>,
}

thread_local! {
    static COPIES: RefCell<Copies> = RefCell::default();
    /// This is the set of the program's first thread.
    static IS_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is the program's first: its variables are the original ones.
pub fn mark_main_thread() {
    IS_FIRST.set(true);
}

impl Drop for Copies {
    fn drop(&mut self) {
        for copy in self.0.values() {
            let Some((bytes, functions)) = copy.block else {
                continue;
            };
            // SAFETY: the functions are what the compiler promises; the block is this thread's,
            // which is ending.
            unsafe {
                if let Some(destroy) = functions.destroy {
                    outside(|| destroy(copy.at));
                } else if let Some(destroy) = functions.destroy_all {
                    outside(|| destroy(copy.at, functions.length));
                }
                drop(TaskBlock::from_raw(copy.at.cast(), bytes));
            }
        }
    }
}

/// Makes the calling thread's copy.
///
/// # Safety
/// `data` is a variable of `size` bytes, whose functions are what the compiler promises.
#[cold]
unsafe fn make(data: *mut c_void, size: usize) -> ThreadCopy {
    let functions = change(data, |variable| {
        if variable.initial.is_none() {
            // SAFETY: by the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
            variable.initial = Some(bytes.to_vec());
        }
        variable.functions
    });
    if IS_FIRST.get() {
        return ThreadCopy {
            at: data,
            block: None,
        };
    }
    let block = TaskBlock::new(size);
    let bytes = block.bytes();
    let at: *mut c_void = block.into_raw().cast();
    // SAFETY: by the caller's promise; the block has room for it.
    unsafe {
        change(data, |variable| {
            let initial = variable.initial.as_deref().unwrap_or_default();
            ptr::copy_nonoverlapping(initial.as_ptr(), at.cast(), initial.len().min(size));
        });
        outside(|| {
            if let Some(construct) = functions.construct {
                construct(at);
            } else if let Some(construct) = functions.construct_all {
                construct(at, functions.length);
            } else if let Some(copy) = functions.copy {
                copy(at, data);
            } else if let Some(copy) = functions.copy_all {
                copy(at, data, functions.length);
            }
        });
    }
    ThreadCopy {
        at,
        block: Some((bytes, functions)),
    }
}

/// # Safety
/// As of `make`.
unsafe fn own(data: *mut c_void, size: usize) -> *mut c_void {
    let known = COPIES.try_with(|copies| {
        let copies = copies.borrow();
        copies.0.get(&(data as usize)).map(|copy| copy.at)
    });
    if let Ok(Some(at)) = known {
        return at;
    }
    // SAFETY: by the caller's promise.
    let copy = unsafe { make(data, size) };
    let at = copy.at;
    // A thread that has destroyed its copies already keeps this one for good.
    let _ = COPIES.try_with(|copies| copies.borrow_mut().0.insert(data as usize, copy));
    at
}

/// The address of the calling thread's copy of a variable. The cache is the compiler's, and stays
/// empty: what is in it would be found by numbers of threads.
///
/// # Safety
/// `data` is a variable of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_threadprivate_cached(
    _: *const Ident,
    _: c_int,
    data: Opaque,
    size: usize,
    _cache: *mut *mut Opaque,
) -> Opaque {
    // SAFETY: by the caller's promise.
    inside(|| unsafe { own(data, size) })
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_threadprivate(
    _: *const Ident,
    _: c_int,
    data: Opaque,
    size: usize,
) -> Opaque {
    // SAFETY: by the caller's promise.
    inside(|| unsafe { own(data, size) })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_threadprivate_register(
    _: *const Ident,
    data: Opaque,
    construct: Option<Construct>,
    copy: Option<CopyConstruct>,
    destroy: Option<Destroy>,
) {
    inside(|| {
        change(data, |variable| {
            variable.functions = Functions {
                construct,
                copy,
                destroy,
                ..Functions::default()
            };
        });
    });
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn __kmpc_threadprivate_register_vec(
    _: *const Ident,
    data: Opaque,
    construct_all: Option<ConstructAll>,
    copy_all: Option<CopyConstructAll>,
    destroy_all: Option<DestroyAll>,
    length: usize,
) {
    inside(|| {
        change(data, |variable| {
            variable.functions = Functions {
                construct_all,
                copy_all,
                destroy_all,
                length,
                ..Functions::default()
            };
        });
    });
}
