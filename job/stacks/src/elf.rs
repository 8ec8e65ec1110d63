//! ELF files, as much of them as stacks need: segments, sections, symbols, where the debug
//! information is. A file may be cut, damaged or made to do harm: every size is compared with the
//! file's or with a bound.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A section that is larger is not read.
const MOST_BYTES: u64 = 512 << 20;
/// A symbol's name that is longer is cut.
const MOST_NAME: usize = 1024;

const SYMBOL_TABLE: u32 = 2;
const NOTE_SECTION: u32 = 7;
const NO_BITS: u32 = 8;
const EXPORTED_SYMBOLS: u32 = 11;
const COMPRESSED: u64 = 0x800;
pub(crate) const LOAD: u32 = 1;
const EXECUTE: u64 = 1;

/// Where the bytes are.
pub(crate) enum Source {
    File(File, u64),
    Memory(Vec<u8>),
}

/// An entry of the table of segments.
pub(crate) struct SegmentEntry {
    pub(crate) kind: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) is_executable: bool,
}

impl Source {
    pub(crate) fn of_file(file: File) -> Option<Source> {
        let facts = file.metadata().ok()?;
        facts.is_file().then(|| Source::File(file, facts.len()))
    }

    /// The head of the file, when it is one of 64 bits.
    pub(crate) fn head(&self) -> Option<Vec<u8>> {
        let head = self.bytes(0, 64)?;
        head.starts_with(b"\x7fELF\x02\x01").then_some(head)
    }

    pub(crate) fn segments(&self, head: &[u8]) -> Option<Vec<SegmentEntry>> {
        const BYTES: u64 = 56;
        let (at, count) = (number::<8>(head, 32)?, number::<2>(head, 56)?);
        if number::<2>(head, 54)? != BYTES {
            return None;
        }
        let table = self.bytes(at, count * BYTES)?;
        let entry = |entry: &[u8]| {
            Some(SegmentEntry {
                kind: number::<4>(entry, 0)? as u32,
                is_executable: number::<4>(entry, 4)? & EXECUTE != 0,
                offset: number::<8>(entry, 8)?,
                address: number::<8>(entry, 16)?,
                file_bytes: number::<8>(entry, 32)?,
                memory_bytes: number::<8>(entry, 40)?,
            })
        };
        Some(
            table
                .chunks_exact(BYTES as usize)
                .filter_map(entry)
                .collect(),
        )
    }

    fn len(&self) -> u64 {
        match self {
            Source::File(_, len) => *len,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(len)?;
        if len > MOST_BYTES || end > self.len() {
            return None;
        }
        match self {
            Source::File(file, _) => {
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
            Source::Memory(bytes) => Some(bytes[offset as usize..end as usize].to_vec()),
        }
    }
}

/// A segment of instructions that is loaded.
#[derive(Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    file_bytes: u64,
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
}

/// A file of 64 bits, in this machine's byte order.
pub(crate) struct Elf {
    source: Source,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    lowest: u64,
}

/// A function of a file.
struct Symbol {
    address: u64,
    bytes: u64,
    name: u32,
}

/// The functions of a file by their symbols.
pub(crate) struct Symbols {
    sorted: Vec<Symbol>,
    names: Vec<u8>,
}

pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(word))
}

pub(crate) fn text(bytes: &[u8], at: usize) -> String {
    let rest = bytes.get(at..).unwrap_or_default();
    let rest = &rest[..rest.len().min(MOST_NAME)];
    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

impl Elf {
    pub(crate) fn open(file: File) -> Option<Elf> {
        Elf::new(Source::of_file(file)?)
    }

    /// A file that is nowhere but in memory.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Option<Elf> {
        Elf::new(Source::Memory(bytes))
    }

    fn new(source: Source) -> Option<Elf> {
        const SECTION: u64 = 64;
        let head = source.head()?;
        let (sections_at, section_count) = (number::<8>(&head, 40)?, number::<2>(&head, 60)?);
        let names_index = number::<2>(&head, 62)? as usize;
        let entries = source.segments(&head)?;
        let loaded = entries.iter().filter(|entry| entry.kind == LOAD);
        let lowest = loaded.map(|entry| entry.address & !0xfff).min();
        let entries = entries.into_iter();
        let segments = entries
            // Its first page may also be the last one of another segment.
            .filter(|entry| entry.kind == LOAD && entry.is_executable)
            .map(|entry| Segment {
                offset: entry.offset,
                address: entry.address,
                file_bytes: entry.file_bytes,
            })
            .collect();
        // A file that lacks its sections has no names, but is one.
        let table = source
            .bytes(sections_at, section_count * SECTION)
            .unwrap_or_default();
        let entries = || table.chunks_exact(SECTION as usize);
        let names = entries().nth(names_index).and_then(|entry| {
            let (offset, bytes) = (number::<8>(entry, 24)?, number::<8>(entry, 32)?);
            source.bytes(offset, bytes)
        });
        let names = names.unwrap_or_default();
        let sections = entries()
            .filter_map(|entry| {
                Some(Section {
                    name: text(&names, number::<4>(entry, 0)? as usize),
                    kind: number::<4>(entry, 4)? as u32,
                    flags: number::<8>(entry, 8)?,
                    address: number::<8>(entry, 16)?,
                    offset: number::<8>(entry, 24)?,
                    bytes: number::<8>(entry, 32)?,
                    link: number::<4>(entry, 40)? as u32,
                })
            })
            .collect();
        Some(Elf {
            source,
            segments,
            sections,
            lowest: lowest.unwrap_or(0),
        })
    }

    /// The lowest address in the file, which is mapped where the loader says that the file begins.
    pub(crate) fn lowest(&self) -> u64 {
        self.lowest
    }

    /// Whether there are instructions at an address.
    pub(crate) fn has_code(&self, address: u64) -> bool {
        let is_in = |s: &Segment| (0..s.file_bytes).contains(&address.wrapping_sub(s.address));
        self.segments.iter().any(is_in)
    }

    /// The first bytes, which the loader maps unchanged.
    pub(crate) fn beginning(&self, most: u64) -> Vec<u8> {
        let len = self.source.len().min(most);
        self.source.bytes(0, len).unwrap_or_default()
    }

    /// What is added to addresses in the file where its instructions at `offset` are mapped at
    /// `address`.
    pub(crate) fn bias(&self, address: u64, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| {
            let begin = s.offset & !0xfff;
            offset >= begin && offset < s.offset.saturating_add(s.file_bytes)
        })?;
        let of_file = segment
            .address
            .wrapping_add(offset)
            .wrapping_sub(segment.offset);
        Some(address.wrapping_sub(of_file))
    }

    fn named(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some_and(|s| s.kind != NO_BITS)
    }

    pub(crate) fn address_of(&self, name: &str) -> Option<u64> {
        self.named(name).map(|s| s.address)
    }

    /// The contents of a section, decompressed.
    pub(crate) fn section(&self, name: &str) -> Option<Vec<u8>> {
        self.contents(self.named(name)?)
    }

    fn contents(&self, section: &Section) -> Option<Vec<u8>> {
        const HEADER: usize = 24;
        const ZLIB: u64 = 1;
        if section.kind == NO_BITS {
            return None;
        }
        let bytes = self.source.bytes(section.offset, section.bytes)?;
        if section.flags & COMPRESSED == 0 {
            return Some(bytes);
        }
        let (kind, len) = (number::<4>(&bytes, 0)?, number::<8>(&bytes, 8)?);
        if kind != ZLIB || len > MOST_BYTES {
            return None;
        }
        let packed = bytes.get(HEADER..)?;
        miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, len as usize).ok()
    }

    /// The functions: those of the full table, or those that the file exports.
    pub(crate) fn symbols(&self) -> Option<Symbols> {
        const ENTRY: usize = 24;
        const FUNCTION: u8 = 2;
        const INDIRECT: u8 = 10;
        let of_kind = |kind| self.sections.iter().find(|s| s.kind == kind);
        let table = of_kind(SYMBOL_TABLE).or_else(|| of_kind(EXPORTED_SYMBOLS))?;
        let names = self.contents(self.sections.get(table.link as usize)?)?;
        let mut sorted: Vec<Symbol> = self
            .contents(table)?
            .chunks_exact(ENTRY)
            .filter(|entry| matches!(entry[4] & 15, FUNCTION | INDIRECT))
            .filter(|entry| number::<2>(entry, 6) != Some(0))
            .filter_map(|entry| {
                Some(Symbol {
                    name: number::<4>(entry, 0)? as u32,
                    address: number::<8>(entry, 8)?,
                    bytes: number::<8>(entry, 16)?,
                })
            })
            .collect();
        sorted.sort_by_key(|symbol| symbol.address);
        Some(Symbols { sorted, names })
    }

    /// The address of a variable that the file exports.
    pub(crate) fn data(&self, name: &str) -> Option<u64> {
        const ENTRY: usize = 24;
        const VARIABLE: u8 = 1;
        let table = self.sections.iter().find(|s| s.kind == EXPORTED_SYMBOLS)?;
        let names = self.contents(self.sections.get(table.link as usize)?)?;
        let entries = self.contents(table)?;
        let is_it = |entry: &&[u8]| {
            let at = number::<4>(entry, 0).unwrap_or(0) as usize;
            entry[4] & 15 == VARIABLE
                && number::<2>(entry, 6) != Some(0)
                && (names
                    .get(at..)
                    .and_then(|rest| rest.strip_prefix(name.as_bytes())))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        number::<8>(entries.chunks_exact(ENTRY).find(is_it)?, 8)
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        const BUILD_ID: u64 = 3;
        let notes = self.sections.iter().filter(|s| s.kind == NOTE_SECTION);
        notes.filter_map(|s| self.contents(s)).find_map(|note| {
            let name = number::<4>(&note, 0)? as usize;
            let len = number::<4>(&note, 4)? as usize;
            let is_it = number::<4>(&note, 8)? == BUILD_ID && note.get(12..16)? == b"GNU\0";
            let begin = (is_it && name == 4).then_some(16usize)?;
            Some(note.get(begin..begin.checked_add(len)?)?.to_vec())
        })
    }

    /// The file with the debug information, where this one has none: among those of the system or
    /// beside it. `root` is what the process takes for the root of all files.
    pub(crate) fn debug_file(&self, root: &str, path: &str) -> Option<Elf> {
        let open = |path: &str| Elf::open(File::open(format!("{root}{path}")).ok()?);
        let own = self.build_id();
        if let Some(id) = own.as_ref().filter(|id| id.len() > 1 && id.len() < 64) {
            let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let (folder, name) = hex.split_at(2);
            let path = format!("/usr/lib/debug/.build-id/{folder}/{name}.debug");
            if let Some(found) = open(&path).filter(|elf| elf.build_id() == own) {
                return Some(found);
            }
        }
        let link = self.section(".gnu_debuglink")?;
        let name = text(&link, 0);
        let sum = number::<4>(&link, (name.len() + 4) & !3)? as u32;
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let folder = PathBuf::from(path).parent()?.to_str()?.to_owned();
        let places = [
            format!("{folder}/{name}"),
            format!("{folder}/.debug/{name}"),
            format!("/usr/lib/debug{folder}/{name}"),
        ];
        places.iter().filter_map(|path| open(path)).find(|elf| {
            let theirs = elf.build_id();
            match own.is_some() && theirs.is_some() {
                true => own == theirs,
                false => elf.checksum() == Some(sum),
            }
        })
    }

    /// The CRC-32 of the whole file, as `.gnu_debuglink` has it.
    fn checksum(&self) -> Option<u32> {
        const CHUNK: u64 = 1 << 20;
        let table: Vec<u32> = (0..256u32)
            .map(|byte| {
                (0..8).fold(byte, |c, _| {
                    (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
                })
            })
            .collect();
        let (mut sum, mut at, len) = (!0u32, 0, self.source.len());
        if len > MOST_BYTES {
            return None;
        }
        while at < len {
            let bytes = self.source.bytes(at, CHUNK.min(len - at))?;
            for byte in &bytes {
                sum = (sum >> 8) ^ table[usize::from(sum as u8 ^ byte)];
            }
            at += bytes.len() as u64;
        }
        Some(!sum)
    }
}

impl Symbols {
    /// The name of the function in which an address of the file is.
    pub(crate) fn function(&self, address: u64) -> Option<String> {
        let behind = self.sorted.partition_point(|s| s.address <= address);
        // Several names of one place: one that covers the address. Few functions begin at one
        // place.
        let near = self.sorted[..behind].iter().rev().take(16);
        let found = near.into_iter().find(|s| {
            let within = address - s.address;
            within < s.bytes || (s.bytes == 0 && within < 1 << 20)
        })?;
        let name = text(&self.names, found.name as usize);
        (!name.is_empty()).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Tables;

    /// Reads all that is read of a file.
    fn read(bytes: Vec<u8>) -> Option<()> {
        let elf = Elf::of_bytes(bytes)?;
        let _ = elf.bias(0x1000, 0);
        let _ = elf.debug_file("/nowhere", "/a");
        let _ = Tables::of(Some(&elf));
        let symbols = elf.symbols()?;
        let _ = (symbols.function(0), symbols.function(u64::MAX));
        Some(())
    }

    #[test]
    fn a_file_that_is_cut_or_damaged_is_no_reason_to_panic() {
        let Ok(whole) = std::fs::read("/bin/true") else {
            return; // A system without it.
        };
        for len in (0..whole.len()).step_by(whole.len() / 64 + 1) {
            let _ = read(whole[..len].to_vec());
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let mut damaged = whole.clone();
            for _ in 0..8 {
                // The tables are at the two ends.
                let near = random.usize(..1024.min(whole.len()));
                let at = if random.bool() {
                    near
                } else {
                    whole.len() - 1 - near
                };
                damaged[at] = random.u8(..);
            }
            let _ = read(damaged);
        }
    }
}
