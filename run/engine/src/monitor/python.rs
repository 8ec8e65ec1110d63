//! Calls of a program in Python: from the line of Python, not from that in the extension module by
//! which it has called.
//!
//! In the recorder such a call site has a number in place of the return address: its code object
//! and the instruction there. Its module is the file, with [`MARK`] before it, and its distance
//! from the module's beginning is the line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use margay_sys_os::python::{Interpreter, MARK, Position};
use margay_sys_os::symbols;

/// Lines that are known at most.
const MOST_PLACES: usize = 4096;
/// Numbers of each kind that are at hand.
const NEAR: usize = 256;

static INTERPRETER: OnceLock<Option<Interpreter>> = OnceLock::new();
/// The line and the file of each number.
static PLACES: Mutex<BTreeMap<u64, (u32, String)>> = Mutex::new(BTreeMap::new());

/// What is known of some numbers: each with what is known in the lowest bit, where the next number
/// with this place may replace it. Not variables of threads: a library that a program of Python
/// loads has little room for these.
type Near = [AtomicU64; NEAR];

/// Return addresses: whether they are in an extension module of Python.
static EXTENSIONS: Near = [const { AtomicU64::new(0) }; NEAR];
/// Code objects: whether they are the program's own.
static OWN: Near = [const { AtomicU64::new(0) }; NEAR];
/// Numbers of call sites whose lines are known.
static KNOWN: Near = [const { AtomicU64::new(0) }; NEAR];

/// Whether this process has an interpreter.
pub(super) fn is_there() -> bool {
    symbols::find(c"PyGILState_GetThisThreadState").is_some()
}

/// From where the program has called, where a function of the library will return to `from`, in a
/// process that may have no interpreter. The first call looks for one; those that follow allocate
/// nothing where there is none, so that a handler of signals may ask, too.
#[must_use]
pub fn caller_if_there(from: u64) -> u64 {
    // 0: not looked for yet.
    static FOUND: AtomicU8 = AtomicU8::new(0);
    let known = match FOUND.load(Ordering::Relaxed) {
        0 => 1 + u8::from(is_there()),
        known => known,
    };
    FOUND.store(known, Ordering::Relaxed);
    match known {
        2 => caller(from),
        _ => from,
    }
}

/// The same in a process that has one.
#[cold]
pub(super) fn caller(from: u64) -> u64 {
    match near(&EXTENSIONS, from, || is_extension(from)) {
        true => in_python().unwrap_or(from),
        false => from,
    }
}

/// The number of the innermost line of the program itself.
fn in_python() -> Option<u64> {
    let interpreter = (INTERPRETER.get_or_init(Interpreter::of_caller)).as_ref()?;
    let is_own = |at: &Position| {
        let is_own = |file: String| !is_library(&file);
        near(&OWN, at.code, || {
            interpreter.file(at.code).is_some_and(is_own)
        })
    };
    let at = interpreter.positions().find(is_own)?;
    let number = at.code | at.instruction << 48;
    let slot = &KNOWN[place_of(number)];
    if slot.load(Ordering::Relaxed) != number {
        if !enter(interpreter, number, at) {
            return None;
        }
        slot.store(number, Ordering::Relaxed);
    }
    Some(number)
}

fn enter(interpreter: &Interpreter, number: u64, at: Position) -> bool {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    if places.contains_key(&number) {
        return true;
    }
    let place = interpreter.line(at).zip(interpreter.file(at.code));
    let has_room = places.len() < MOST_PLACES;
    place
        .filter(|_| has_room)
        .map(|place| places.insert(number, place))
        .is_some()
}

/// Where the module of a number begins, and its name.
pub(super) fn module_of(number: u64) -> Option<(u64, Vec<u8>)> {
    let (line, file) = place(number)?;
    let base = number.wrapping_sub(u64::from(line));
    Some((base, format!("{MARK}{file}").into_bytes()))
}

/// The line and the file of a number; none of an address.
#[must_use]
pub fn place(number: u64) -> Option<(u32, String)> {
    let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    places.get(&number).cloned()
}

fn place_of(number: u64) -> usize {
    (number ^ number >> 6 ^ number >> 12 ^ number >> 48) as usize % NEAR
}

/// What is known of an address, or found out now.
fn near(known: &Near, address: u64, find: impl FnOnce() -> bool) -> bool {
    let slot = &known[place_of(address)];
    let word = slot.load(Ordering::Relaxed);
    if word >> 1 == address {
        return word & 1 != 0;
    }
    let is_it = find();
    slot.store(address << 1 | u64::from(is_it), Ordering::Relaxed);
    is_it
}

/// Whether an address is in a module that Python calls: an extension, what calls functions of C by
/// their names, or the interpreter itself, which accesses memory for the program.
fn is_extension(address: u64) -> bool {
    let path = symbols::module_of(address as usize).map(|(_, path)| path);
    let path = String::from_utf8_lossy(&path.unwrap_or_default()).into_owned();
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_interpreter = name.starts_with("python") || name.starts_with("libpython");
    is_interpreter
        || [".cpython-3", ".abi3.", "libffi"]
            .iter()
            .any(|part| name.contains(part))
}

/// Whether a file of Python is one that programs stand on.
fn is_library(file: &str) -> bool {
    const FOLDERS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];
    file.starts_with('<') || FOLDERS.iter().any(|folder| file.contains(folder))
}
