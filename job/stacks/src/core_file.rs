//! Core files: what the system writes of the memory of a process that has crashed, if the user's
//! limit allows it. Which one is that of a process, and the stack of the thread that crashed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use margay_sys_os::trace::{REGISTERS, STACK_POINTER, ThreadImage, registers_of};

use crate::elf::{LOAD, SegmentEntry, Source, number, text};
use crate::maps::Modules;
use crate::{STACK_BYTES, Stack, named, unwind};

const CORE_FILE: u64 = 4;
const NOTES: u32 = 4;
/// Notes that are longer are not read.
const MOST_NOTES: u64 = 64 << 20;
/// Files of a folder that are looked at, the youngest ones.
const MOST_FILES: usize = 64;

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
    process: u32,
    /// Of the thread that crashed.
    image: ThreadImage,
}

/// Whether the system writes core files where the limit of their size (`ulimit -c`) allows it; if
/// not, it hands them to a program or to nobody.
#[must_use]
pub fn are_written() -> bool {
    pattern().is_some()
}

/// Reads the stack of a process that has crashed from its core file, which is where the system puts
/// them all, or in one of `folders`, in which the processes were started. Of several processes it
/// is the first one that has such a file, with its number: where the names are the same for all,
/// one file is left. None when there is no file, or it cannot be read.
#[must_use]
pub fn crashed(processes: &[u32], folders: &[PathBuf]) -> Option<(u32, Stack)> {
    let (folder, prefix) = pattern()?;
    let folders = folder.as_ref().map_or(folders, std::slice::from_ref);
    let open = |path: PathBuf| CoreFile::of(Source::of_file(File::open(path).ok()?)?);
    let paths = folders.iter().flat_map(|folder| youngest(folder, &prefix));
    let cores: Vec<CoreFile> = paths.filter_map(open).collect();
    let of_process = |process: &u32| cores.iter().find(|core| core.process == *process);
    let core = processes.iter().find_map(of_process)?;
    Some((core.process, core.stack()?))
}

/// Where core files are, if always in the same folder, and how their names begin.
fn pattern() -> Option<(Option<PathBuf>, String)> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    split_pattern(pattern.trim_end_matches('\n'))
}

fn split_pattern(pattern: &str) -> Option<(Option<PathBuf>, String)> {
    // To a program, or to a socket.
    if pattern.is_empty() || pattern.starts_with(['|', '@']) {
        return None;
    }
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    // What the system puts in for `%p` and the like is not looked for: the file has the process.
    let prefix = name.split('%').next().unwrap_or_default().to_owned();
    match folder {
        "" if pattern.starts_with('/') => Some((Some("/".into()), prefix)),
        "" => Some((None, prefix)),
        folder if folder.starts_with('/') && !folder.contains('%') => {
            Some((Some(folder.into()), prefix))
        }
        _ => None,
    }
}

fn youngest(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    let files = named.filter_map(|entry| {
        let facts = entry.metadata().ok().filter(|facts| facts.is_file())?;
        Some((
            facts.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            entry.path(),
        ))
    });
    let mut files: Vec<(SystemTime, PathBuf)> = files.collect();
    files.sort_by(|a, b| b.cmp(a));
    files.truncate(MOST_FILES);
    files.into_iter().map(|(_, path)| path).collect()
}

impl CoreFile {
    fn of(source: Source) -> Option<CoreFile> {
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

    fn stack(&self) -> Option<Stack> {
        let mut modules = Modules::default();
        let maps = modules.of_core(self);
        let spots = unwind::walk(&self.image, &maps, &modules);
        named(&modules, vec![Ok(spots)]).remove(0).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_core_files_are() {
        let at = |pattern| {
            let found = split_pattern(pattern);
            found.map(|(folder, prefix)| (folder.map(|f| f.display().to_string()), prefix))
        };
        let prefix = |text: &str| text.to_owned();
        assert_eq!(at("core"), Some((None, prefix("core"))));
        assert_eq!(at("core.%e.%p"), Some((None, prefix("core."))));
        assert_eq!(at("/var/c/%p"), Some((Some("/var/c".into()), prefix(""))));
        assert_eq!(at("/%p"), Some((Some("/".into()), prefix(""))));
        for nobody in [
            "|/usr/bin/handler %p",
            "",
            "@/run/socket",
            "/var/%u/core",
            "cores/c",
        ] {
            assert_eq!(at(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn a_core_file_that_is_cut_or_damaged_is_no_reason_to_panic() {
        let folder = tempfile::tempdir().unwrap();
        let mut crashing = std::process::Command::new("sh")
            .args(["-c", "ulimit -c unlimited; kill -SEGV $$"])
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        crashing.wait().unwrap();
        let files = youngest(folder.path(), "");
        let [file] = &files[..] else {
            return println!("note: the system writes no core files there");
        };
        let (found, stack) = crashed(&[1, crashing.id()], &[folder.path().into()]).unwrap();
        assert_eq!(found, crashing.id());
        assert!(!stack.frames.is_empty());
        let whole = fs::read(file).unwrap();
        let read = |bytes| CoreFile::of(Source::Memory(bytes)).map(|core| core.stack());
        for len in (0..whole.len()).step_by(whole.len() / 64 + 1) {
            let _ = read(whole[..len].to_vec());
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let mut damaged = whole.clone();
            for _ in 0..8 {
                // Tables and notes are in the first pages.
                damaged[random.usize(..8192.min(whole.len()))] = random.u8(..);
            }
            let _ = read(damaged);
        }
    }
}
