//! The functions of Python that a thread is in: CPython 3.9 to 3.13, read from the structures of
//! its interpreter.
//!
//! Where these structures have which field is known by version (`sys/os`). A thread that runs
//! meanwhile may change what is read, so nothing of it is taken for granted: numbers have bounds,
//! and what does not fit ends the search.

use margay_sys_os::python::{Fields, OF_INTERPRETER};
use margay_sys_os::trace::{Thread, upwards};

use crate::elf::number;
use crate::maps::{Maps, Modules};
use crate::{Frame, Stack};

/// Interpreters and threads of a process that are looked through.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
/// Functions of a thread that are read.
const MOST_FRAMES: usize = 128;
/// Bytes of a name, and of the table of a function's lines.
const MOST_NAME: u64 = 1024;
const MOST_TABLE: u64 = 1 << 20;

/// The memory of a process.
#[derive(Clone, Copy)]
struct Memory {
    pid: u32,
}

impl Memory {
    fn bytes(self, at: u64, len: u64) -> Option<Vec<u8>> {
        let bytes = upwards(self.pid, at, len as usize);
        (bytes.len() as u64 == len).then_some(bytes)
    }

    fn number<const N: usize>(self, at: u64) -> Option<u64> {
        number::<N>(&self.bytes(at, N as u64)?, 0)
    }

    /// A pointer that leads somewhere.
    fn pointer(self, at: u64) -> Option<u64> {
        self.number::<8>(at).filter(|&to| to != 0)
    }
}

/// The functions of Python that a thread is in, the innermost first, and the file of the
/// interpreter; none when it is in none, or when they cannot be read.
pub(crate) fn frames(
    thread: Thread,
    stack_pointer: u64,
    maps: &Maps,
    modules: &Modules,
) -> Option<(Vec<Frame>, usize)> {
    let (module, bias) =
        (maps.modules(modules)).find(|(module, _)| modules.all[*module].python.is_some())?;
    let runtime = modules.all[module].python.as_ref()?;
    let state = runtime.state.wrapping_add(bias);
    let table = || upwards(thread.pid, state, Fields::TABLE);
    let fields = Fields::of(runtime.minor, table)?;
    let reading = Reading {
        memory: Memory { pid: thread.pid },
        fields,
        minor: runtime.minor,
    };
    let frames = reading.frames(reading.thread(state, thread, stack_pointer)?);
    (!frames.is_empty()).then_some((frames, module))
}

struct Reading {
    memory: Memory,
    fields: Fields,
    minor: u32,
}

impl Reading {
    /// The interpreter's structure of a thread.
    fn thread(&self, state: u64, thread: Thread, stack_pointer: u64) -> Option<u64> {
        let Reading { memory, fields, .. } = self;
        let mut all: Vec<(u64, u64)> = Vec::new();
        let mut interpreter = memory.pointer(state + fields.interpreters);
        for _ in 0..MOST_INTERPRETERS {
            let Some(own) = interpreter else { break };
            let mut next = memory.pointer(own + fields.threads);
            while let Some(at) = next
                && all.len() < MOST_THREADS
            {
                all.push((at, memory.number::<8>(at + fields.thread_number)?));
                next = memory.pointer(at + fields.next_thread);
            }
            interpreter = memory.pointer(own + fields.next_interpreter);
        }
        if fields.is_native_number {
            let own = |(_, number): &&(u64, u64)| *number == u64::from(thread.tid);
            return all.iter().find(own).map(|(at, _)| *at);
        }
        // The main thread's is the oldest. That of another is above its stack, in the same piece of
        // memory.
        match thread.tid == thread.pid {
            true => all.last().map(|(at, _)| *at),
            false => {
                let above = all.iter().filter(|(_, number)| *number > stack_pointer);
                above.min_by_key(|(_, number)| *number).map(|(at, _)| *at)
            }
        }
    }

    fn frames(&self, thread: u64) -> Vec<Frame> {
        let Reading { memory, fields, .. } = self;
        let (first, second) = fields.frame;
        let mut next = memory.pointer(thread + first);
        if let (Some(at), Some(second)) = (next, second) {
            next = memory.pointer(at + second);
        }
        let mut frames = Vec::new();
        for _ in 0..MOST_FRAMES {
            let Some(at) = next else { break };
            let owner = (fields.owner).and_then(|owner| memory.number::<1>(at + owner));
            if owner != Some(u64::from(OF_INTERPRETER)) {
                match self.frame(at) {
                    Some(frame) => frames.push(frame),
                    None => break,
                }
            }
            next = memory.pointer(at + fields.back);
        }
        frames
    }

    /// A function by its frame.
    fn frame(&self, at: u64) -> Option<Frame> {
        let Reading { memory, fields, .. } = self;
        let code = memory.pointer(at + fields.code)?;
        let file = self.text(memory.pointer(code + fields.file)?)?;
        let function = self.text(memory.pointer(code + fields.name)?)?;
        let first = memory.number::<4>(code + fields.first_line)? as i32;
        let lines = memory.pointer(code + fields.lines)?;
        let table = self.table(lines).unwrap_or_default();
        let instruction = match self.minor {
            9 => memory.number::<4>(at + fields.instruction)? as i32 as i64,
            10 => memory.number::<4>(at + fields.instruction)? as i32 as i64 * 2,
            _ => {
                let begin = code + fields.instructions;
                memory.number::<8>(at + fields.instruction)? as i64 - begin as i64
            }
        };
        let line = match self.minor {
            9 => line_3_9(&table, first, instruction),
            10 => line_3_10(&table, first, instruction),
            _ => line_3_11(&table, first, instruction),
        };
        Some(Frame {
            function,
            module: file.clone(),
            file: Some(file),
            line: line.and_then(|line| u32::try_from(line).ok()),
            offset: 0,
            is_python: true,
        })
    }

    /// A string.
    fn text(&self, at: u64) -> Option<String> {
        let Reading { memory, fields, .. } = self;
        let length = memory.number::<8>(at + fields.length)?;
        let state = memory.number::<4>(at + fields.string_state)?;
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state & 0x20 != 0, state & 0x40 != 0);
        if length > MOST_NAME || !is_compact {
            return None;
        }
        if is_ascii {
            let bytes = memory.bytes(at + fields.string, length)?;
            return String::from_utf8(bytes).ok();
        }
        // Further fields stand between: the text in UTF-8, and its number of wide characters.
        let between = if self.minor < 12 { 24 } else { 16 };
        let bytes = memory.bytes(at + fields.string + between, length * width)?;
        let wide = bytes.chunks_exact(width.clamp(1, 4) as usize);
        let chars = wide.map(|bytes| {
            let number = bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
            char::from_u32(number).unwrap_or('?')
        });
        Some(chars.collect())
    }

    fn table(&self, at: u64) -> Option<Vec<u8>> {
        let length = self.memory.number::<8>(at + self.fields.bytes_length)?;
        let bytes = at + self.fields.bytes;
        (length <= MOST_TABLE).then(|| self.memory.bytes(bytes, length))?
    }
}

/// The line of an instruction: pairs of how far to go in instructions and in lines.
fn line_3_9(table: &[u8], first: i32, instruction: i64) -> Option<i32> {
    let (mut line, mut at) = (first, 0);
    for pair in table.chunks_exact(2) {
        at += i64::from(pair[0]);
        if at > instruction {
            break;
        }
        line = line.wrapping_add(i32::from(pair[1] as i8));
    }
    Some(line)
}

/// The same where each pair is of the instructions before its end, and -128 is for no line.
fn line_3_10(table: &[u8], first: i32, instruction: i64) -> Option<i32> {
    const NONE: i8 = -128;
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        if step != NONE {
            line = line.wrapping_add(i32::from(step));
        }
        end += i64::from(pair[0]);
        if instruction < end {
            return (step != NONE).then_some(line);
        }
    }
    Some(first).filter(|_| instruction < 0)
}

/// The same of entries whose first byte has the highest bit, a kind and a number of instructions.
fn line_3_11(table: &[u8], first: i32, instruction: i64) -> Option<i32> {
    const BEGIN: u8 = 0x80;
    const NONE: u8 = 15;
    let (mut line, mut end) = (first, 0);
    let mut rest = table;
    while let Some((&head, behind)) = rest.split_first() {
        let length = behind.iter().position(|byte| byte & BEGIN != 0);
        let (data, next) = behind.split_at(length.unwrap_or(behind.len()));
        let kind = head >> 3 & 15;
        line = line.wrapping_add(match kind {
            10..=12 => i32::from(kind) - 10,
            13 | 14 => signed(data),
            _ => 0,
        });
        end += (i64::from(head & 7) + 1) * 2;
        if instruction < end {
            return (kind != NONE).then_some(line);
        }
        rest = next;
    }
    None
}

/// A number of six bits a byte, the lowest first; its lowest bit is the sign.
fn signed(data: &[u8]) -> i32 {
    const MORE: u8 = 0x40;
    let mut value = 0_u32;
    for (byte, shift) in data.iter().zip((0..30).step_by(6)) {
        value |= u32::from(byte & 0x3f) << shift;
        if byte & MORE == 0 {
            break;
        }
    }
    let amount = (value >> 1) as i32;
    if value & 1 == 0 { amount } else { -amount }
}

/// Puts the functions of Python where a stack has those of their interpreter.
pub(crate) fn merged(stack: Stack, python: Vec<Frame>, interpreter: &str) -> Stack {
    let is_its = |frame: &Frame| frame.module == interpreter;
    let first = stack.frames.iter().position(is_its);
    let (inner, outer) = stack.frames.split_at(first.unwrap_or(stack.frames.len()));
    let outer = outer.iter().filter(|frame| !is_its(frame)).cloned();
    Stack {
        frames: inner.iter().cloned().chain(python).chain(outer).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_the_tables_of_all_versions() {
        // Lines 1, 3 and 2, of 6, 4 and 2 bytes.
        let old = [6, 2, 4, 255];
        let at = |instruction| line_3_9(&old, 1, instruction);
        assert_eq!(
            [0, 5, 6, 9, 10].map(at).map(Option::unwrap),
            [1, 1, 3, 3, 2]
        );
        let newer = [6, 0, 4, 2, 2, 255, 2, 128];
        let at = |instruction| line_3_10(&newer, 1, instruction);
        assert_eq!(
            [0, 5, 6, 9, 10, 12, 99].map(at),
            [Some(1), Some(1), Some(3), Some(3), Some(2), None, None]
        );
        // Short, one line on, two lines back by a number, none, 33 on.
        let entries = [
            0x80 | 2,
            0x11,
            0x80 | 11 << 3 | 1,
            5,
            6,
            0x80 | 13 << 3,
            0b101,
            0x80 | 15 << 3,
            0x80 | 13 << 3,
            0x42,
            0x01,
        ];
        let at = |instruction| line_3_11(&entries, 7, instruction);
        assert_eq!(
            [0, 5, 6, 9, 10, 12, 14, 16].map(at),
            [
                Some(7),
                Some(7),
                Some(8),
                Some(8),
                Some(6),
                None,
                Some(39),
                None
            ]
        );
        for at in 0..40 {
            let bytes: Vec<u8> = (at..at + 30).map(|n: u8| n.wrapping_mul(83)).collect();
            let _ = (
                line_3_9(&bytes, i32::MAX, 40),
                line_3_10(&bytes, i32::MIN, 40),
            );
            let _ = line_3_11(&bytes, i32::MAX, i64::MAX);
        }
    }

    #[test]
    fn functions_of_python_take_the_place_of_their_interpreter() {
        let frame = |function: &str, module: &str| Frame {
            function: function.into(),
            file: None,
            line: None,
            module: module.into(),
            offset: 0,
            is_python: module.ends_with(".py"),
        };
        let stack = Stack {
            frames: [
                "libc.so.6",
                "mpi.so",
                "python3.11",
                "numpy.so",
                "python3.11",
            ]
            .map(|module| frame("f", module))
            .to_vec(),
        };
        let python = ["solve", "<module>"].map(|f| Frame {
            line: Some(3),
            file: Some("solver.py".into()),
            ..frame(f, "solver.py")
        });
        let stack = merged(stack, python.to_vec(), "python3.11");
        let modules: Vec<&str> = stack.frames.iter().map(|f| &*f.module).collect();
        let script = "solver.py";
        assert_eq!(modules, ["libc.so.6", "mpi.so", script, script, "numpy.so"]);
        assert_eq!(
            stack.users().unwrap().to_string(),
            "at solver.py:3 in solve()"
        );
        assert_eq!(stack.frames[3].to_string(), "at solver.py:3 in <module>");
    }
}
