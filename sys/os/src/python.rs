//! The interpreter of Python, CPython 3.9 to 3.13: where its structures have which field, and from
//! where in Python the calling thread has called compiled code.
//!
//! CPython 3.13 says where its fields are, in a table at the beginning of its state; those of older
//! versions are known.
//!
//! A compiled function may have given the interpreter's lock away, so nothing may be called here
//! that needs it. The functions of Python that the calling thread is in stay as they are as long as
//! it is in compiled code: only that thread changes them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::mem::transmute;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use crate::symbols;

// Fields: one for each field of the interpreter's structures that is read.
/// Where the fields are, in bytes from the beginning of their structure.
#[derive(Clone, Copy)]
pub struct Fields {
    pub interpreters: u64,
    pub next_interpreter: u64,
    pub threads: u64,
    pub next_thread: u64,
    /// The system's number of a thread; the address of the C library's structure before 3.11.
    pub thread_number: u64,
    pub is_native_number: bool,
    /// The innermost function of a thread, at one remove where there is a second number.
    pub frame: (u64, Option<u64>),
    pub code: u64,
    pub back: u64,
    pub instruction: u64,
    /// What owns a function's frame; the interpreter itself in frames that are none of a function.
    pub owner: Option<u64>,
    pub instructions: u64,
    pub file: u64,
    pub name: u64,
    pub first_line: u64,
    pub lines: u64,
    /// Of strings and bytes.
    pub length: u64,
    pub string_state: u64,
    pub string: u64,
    pub bytes_length: u64,
    pub bytes: u64,
}

/// What [`Fields::owner`] is in a frame that is none of a function.
pub const OF_INTERPRETER: u8 = 3;

const V3_9: Fields = Fields {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    thread_number: 176,
    is_native_number: false,
    frame: (24, None),
    code: 32,
    back: 24,
    instruction: 104,
    owner: None,
    instructions: 0,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    length: 16,
    string_state: 32,
    string: 48,
    bytes_length: 16,
    bytes: 32,
};

const V3_10: Fields = Fields {
    instruction: 96,
    ..V3_9
};

const V3_11: Fields = Fields {
    interpreters: 40,
    threads: 16,
    thread_number: 160,
    is_native_number: true,
    frame: (56, Some(8)),
    code: 32,
    back: 48,
    instruction: 56,
    owner: Some(69),
    instructions: 184,
    file: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    ..V3_9
};

const V3_12: Fields = Fields {
    threads: 72,
    thread_number: 144,
    frame: (56, Some(0)),
    code: 0,
    back: 8,
    owner: Some(70),
    instructions: 192,
    first_line: 68,
    string: 40,
    ..V3_11
};

impl Fields {
    /// Bytes of the table of CPython 3.13.
    pub const TABLE: usize = 71 * 8;

    /// Those of a version; `table` are the first bytes of the interpreter's state.
    pub fn of(minor: u32, table: impl FnOnce() -> Vec<u8>) -> Option<Fields> {
        match minor {
            9 => Some(V3_9),
            10 => Some(V3_10),
            11 => Some(V3_11),
            12 => Some(V3_12),
            13 => Fields::from_table(&table()),
            _ => None,
        }
    }

    /// Those that CPython 3.13 names.
    fn from_table(table: &[u8]) -> Option<Fields> {
        let at = |at: usize| word(table, 8 * at).filter(|&field| field < 1 << 20);
        let is_it = table.starts_with(b"xdebugpy") && word(table, 8)? >> 16 == 0x030d;
        if !is_it {
            return None;
        }
        Some(Fields {
            interpreters: at(5)?,
            next_interpreter: at(8)?,
            threads: at(9)?,
            next_thread: at(21)?,
            thread_number: at(25)?,
            is_native_number: true,
            frame: (at(23)?, None),
            code: at(30)?,
            back: at(29)?,
            instruction: at(31)?,
            owner: Some(at(33)?),
            instructions: at(43)?,
            file: at(35)?,
            name: at(37)?,
            first_line: at(39)?,
            lines: at(38)?,
            length: at(69)?,
            string_state: at(68)?,
            string: at(70)?,
            bytes_length: at(65)?,
            bytes: at(66)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

type ThisThread = unsafe extern "C" fn() -> *mut c_void;
type Line = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Version = unsafe extern "C" fn() -> *const c_char;

/// Before the name of a file of Python, where the flight recorder has it in place of a program or
/// library. The offset there is the line.
pub const MARK: &str = "python:";

/// Functions of a thread that are looked through.
const MOST_FRAMES: usize = 64;
/// Bytes of the name of a file.
const MOST_NAME: u64 = 1024;

/// The interpreter in this process.
#[derive(Clone, Copy)]
pub struct Interpreter {
    minor: u32,
    fields: Fields,
    this_thread: ThisThread,
    line: Line,
    /// The type of code objects.
    code_type: u64,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interpreter")
            .field("minor", &self.minor)
            .finish_non_exhaustive()
    }
}

/// A function of Python that has called on: its code object, and which instruction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub code: u64,
    /// In bytes from the code's first instruction.
    pub instruction: u64,
}

impl Interpreter {
    /// The interpreter of this process, if it has one of these versions. Its structures are looked
    /// at, so that an interpreter that was built in another way is none: one of its threads, in a
    /// function of Python, must be the caller.
    #[must_use]
    pub fn of_caller() -> Option<Interpreter> {
        let symbol = |name: &CStr| symbols::find(name);
        let version = symbol(c"Py_GetVersion")?;
        // SAFETY: the function of this name is Python's, which has this type and returns a text
        // that lives as long as the process.
        let version = unsafe { CStr::from_ptr(transmute::<NonNull<c_void>, Version>(version)()) };
        let version = version.to_str().ok()?;
        let minor = version
            .strip_prefix("3.")?
            .split('.')
            .next()?
            .parse()
            .ok()?;
        if version.contains("free-threading") {
            return None;
        }
        let state = symbol(c"_PyRuntime")?.addr().get() as u64;
        let memory = File::open("/proc/self/mem").ok()?;
        let table = || {
            let mut table = vec![0; Fields::TABLE];
            let read = memory.read_exact_at(&mut table, state);
            read.map_or_else(|_| Vec::new(), |()| table)
        };
        let found = Interpreter {
            minor,
            fields: Fields::of(minor, table)?,
            // SAFETY: Python's function of this name has this type.
            this_thread: unsafe {
                transmute::<NonNull<c_void>, ThisThread>(symbol(c"PyGILState_GetThisThreadState")?)
            },
            // SAFETY: as above.
            line: unsafe { transmute::<NonNull<c_void>, Line>(symbol(c"PyCode_Addr2Line")?) },
            code_type: symbol(c"PyCode_Type")?.addr().get() as u64,
        };
        // Here memory may be no memory.
        let read = |at: u64| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, at).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let mut frame = found.innermost(read)?;
        let mut functions = 0;
        for _ in 0..MOST_FRAMES {
            functions += u32::from(found.code_of(frame, read).is_some());
            match read(frame + found.fields.back)? {
                0 => break,
                back => frame = back,
            }
        }
        (functions > 0).then_some(found)
    }

    /// The functions of Python that the calling thread is in, the innermost first.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        let mut next = self.innermost(direct);
        std::iter::from_fn(move || {
            loop {
                let frame = next?;
                next = direct(frame + self.fields.back).filter(|&back| back != 0);
                if let Some(code) = self.code_of(frame, direct) {
                    let instruction = self.instruction(frame, code)?;
                    return Some(Position { code, instruction });
                }
            }
        })
        .take(MOST_FRAMES)
    }

    /// The frame of the innermost function of the calling thread.
    fn innermost(&self, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        // SAFETY: the function needs no lock; it reads a variable of the thread.
        let thread = unsafe { (self.this_thread)() }.addr() as u64;
        let (first, second) = self.fields.frame;
        let pointer = |at: u64| read(at).filter(|&to| to != 0);
        let frame = pointer((thread != 0).then_some(thread)? + first)?;
        match second {
            Some(second) => pointer(frame + second),
            None => Some(frame),
        }
    }

    /// The code object of a frame; none of one that is none of a function.
    fn code_of(&self, frame: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        const TYPE: u64 = 8;
        if let Some(owner) = self.fields.owner {
            let aligned = read(frame + (owner & !7))?;
            if (aligned >> (8 * (owner & 7))) as u8 == OF_INTERPRETER {
                return None;
            }
        }
        let code = read(frame + self.fields.code).filter(|&code| code != 0)?;
        (read(code + TYPE)? == self.code_type).then_some(code)
    }

    fn instruction(&self, frame: u64, code: u64) -> Option<u64> {
        let value = direct(frame + self.fields.instruction)?;
        Some(match self.minor {
            9 => u64::from(value as u32),
            10 => 2 * u64::from(value as u32),
            _ => value.checked_sub(code + self.fields.instructions)?,
        })
    }

    /// The line of a position in which the calling thread is.
    #[must_use]
    pub fn line(&self, at: Position) -> Option<u32> {
        let instruction = c_int::try_from(at.instruction).ok()?;
        let code = std::ptr::with_exposed_provenance_mut(at.code as usize);
        // SAFETY: the code object is in use by the calling thread. The function reads its tables,
        // which never change, and needs no lock.
        let line = unsafe { (self.line)(code, instruction) };
        u32::try_from(line).ok().filter(|&line| line > 0)
    }

    /// The file of a code object in which the calling thread is; none whose name is not ASCII.
    #[must_use]
    pub fn file(&self, code: u64) -> Option<String> {
        const COMPACT_ASCII: u32 = 0x60;
        let Fields {
            file,
            length,
            string_state,
            string,
            ..
        } = self.fields;
        let text = direct(code + file)?;
        let length = direct(text + length)?;
        let state = direct(text + string_state)? as u32;
        if length > MOST_NAME || state & COMPACT_ASCII != COMPACT_ASCII {
            return None;
        }
        let from = std::ptr::with_exposed_provenance::<u8>((text + string) as usize);
        // SAFETY: the text of that many bytes belongs to a code object in use, and does not change.
        let bytes = unsafe { std::slice::from_raw_parts(from, length as usize) };
        String::from_utf8(bytes.to_vec()).ok()
    }
}

/// A word of a structure of the interpreter.
fn direct(at: u64) -> Option<u64> {
    let at = std::ptr::with_exposed_provenance::<u64>(at as usize);
    // SAFETY: [`Interpreter::of_caller`] has found that the structures are as they are taken for;
    // those that are read are of the calling thread's functions, which do not change meanwhile.
    Some(unsafe { at.read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_fields_must_be_that_of_its_version() {
        let mut table = vec![0; 71 * 8];
        assert!(Fields::from_table(&table).is_none());
        table[..8].copy_from_slice(b"xdebugpy");
        table[8..16].copy_from_slice(&0x030d_05f0_u64.to_le_bytes());
        table[8 * 38..][..8].copy_from_slice(&136_u64.to_le_bytes());
        assert_eq!(Fields::from_table(&table).unwrap().lines, 136);
        table[8 * 38 + 3] = 1;
        assert!(Fields::from_table(&table).is_none(), "far too large");
        assert!(Fields::from_table(&table[..100]).is_none());
    }
}
