//! Core files: what the system writes of the memory of a process that has crashed.

use margay_sys_os::trace::{REGISTERS, STACK_POINTER, ThreadImage, registers_of};

use crate::STACK_BYTES;
use crate::elf::{LOAD, SegmentEntry, Source, number, text};

const CORE_FILE: u64 = 4;
const NOTES: u32 = 4;
/// Notes that are longer are not read.
const MOST_NOTES: u64 = 64 << 20;

/// A file of which a part was mapped.
pub(crate) struct MappedFile {
    pub(crate) begin: u64,
    end: u64,
    /// Of the part, in bytes.
    pub(crate) offset: u64,
    pub(crate) path: String,
}

/// A core file.
pub(crate) struct CoreFile {
    source: Source,
    loads: Vec<SegmentEntry>,
    files: Vec<MappedFile>,
    pub(crate) process: u32,
    /// Of the thread that crashed.
    pub(crate) image: ThreadImage,
}

impl CoreFile {
    pub(crate) fn of(source: Source) -> Option<CoreFile> {
        let head = source.head()?;
        if number::<2>(&head, 16)? != CORE_FILE {
            return None;
        }
        let (notes, mut loads): (Vec<_>, Vec<_>) = (source.segments(&head)?.into_iter())
            .filter(|entry| entry.kind == LOAD || entry.kind == NOTES)
            .partition(|entry| entry.kind == NOTES);
        loads.sort_by_key(|load| load.address);
        let notes = notes
            .first()
            .filter(|notes| notes.file_bytes <= MOST_NOTES)?;
        let notes = Notes::of(&source.bytes(notes.offset, notes.file_bytes)?)?;
        let (registers, pc) = notes.thread?;
        let stack_base = registers[STACK_POINTER];
        let mut core = CoreFile {
            source,
            loads,
            files: notes.files,
            process: notes.process,
            image: ThreadImage {
                registers,
                pc,
                stack_base,
                stack: Vec::new(),
            },
        };
        core.image.stack = core.memory(stack_base, STACK_BYTES);
        Some(core)
    }

    /// Where instructions were mapped: from an address to another one.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = (u64, u64)> {
        let loads = self.loads.iter().filter(|load| load.is_executable);
        loads.map(|load| (load.address, load.address.saturating_add(load.memory_bytes)))
    }

    /// The file that was mapped at an address.
    pub(crate) fn file_at(&self, address: u64) -> Option<&MappedFile> {
        (self.files.iter()).find(|file| file.begin <= address && address < file.end)
    }

    /// Where a file's first byte was mapped.
    pub(crate) fn beginning_of(&self, path: &str) -> Option<u64> {
        let mut files = self.files.iter();
        Some(
            files
                .find(|file| file.path == path && file.offset == 0)?
                .begin,
        )
    }

    /// The memory from `address` on, as far as it is in the file, at most `most` bytes.
    pub(crate) fn memory(&self, address: u64, most: usize) -> Vec<u8> {
        let within = |load: &&SegmentEntry| {
            load.address <= address && address - load.address < load.file_bytes
        };
        let found = self.loads.iter().find(within).and_then(|load| {
            let from = address - load.address;
            let len = (load.file_bytes - from).min(most as u64);
            self.source.bytes(load.offset.checked_add(from)?, len)
        });
        found.unwrap_or_default()
    }
}

/// What a core file says beside memory.
#[derive(Default)]
struct Notes {
    process: u32,
    /// The registers of the thread that crashed, and its next instruction.
    thread: Option<([u64; REGISTERS], u64)>,
    files: Vec<MappedFile>,
}

impl Notes {
    fn of(notes: &[u8]) -> Option<Notes> {
        /// `NT_PRSTATUS`; the first one is of the thread that crashed.
        const THREAD: u64 = 1;
        /// `NT_PRPSINFO`.
        const PROCESS: u64 = 3;
        /// Where its number is in that.
        const PROCESS_AT: usize = 24;
        /// `NT_FILE`.
        const FILES: u64 = 0x4649_4c45;
        let mut found = Notes::default();
        let mut at = 0usize;
        while let (Some(name), Some(len), Some(kind)) = (
            number::<4>(notes, at),
            number::<4>(notes, at + 4),
            number::<4>(notes, at + 8),
        ) {
            let begin = at + 12 + (name as usize).next_multiple_of(4);
            let contents = notes.get(begin..begin.checked_add(len as usize)?)?;
            match kind {
                THREAD if found.thread.is_none() => {
                    found.thread = Some(registers_of(contents)?);
                }
                PROCESS => found.process = number::<4>(contents, PROCESS_AT)? as u32,
                FILES => found.files = files(contents).unwrap_or_default(),
                _ => {}
            }
            at = begin + (len as usize).next_multiple_of(4);
        }
        Some(found)
    }
}

/// Mapped files: their number, the size of a page, of each the begin, the end and the offset in
/// pages, and then their names.
fn files(note: &[u8]) -> Option<Vec<MappedFile>> {
    const ENTRY: usize = 24;
    let (count, page) = (number::<8>(note, 0)?, number::<8>(note, 8)?);
    let count = usize::try_from(count).ok()?;
    let table = note.get(16..16usize.checked_add(count.checked_mul(ENTRY)?)?)?;
    let mut names = note[16 + table.len()..].split(|&byte| byte == 0);
    let file = |entry: &[u8]| {
        Some(MappedFile {
            begin: number::<8>(entry, 0)?,
            end: number::<8>(entry, 8)?,
            offset: number::<8>(entry, 16)?.saturating_mul(page),
            path: text(names.next()?, 0),
        })
    };
    Some(table.chunks_exact(ENTRY).map_while(file).collect())
}
