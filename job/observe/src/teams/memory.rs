//! The memory of another process, and the libraries that are mapped there.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use margay_sys_os::cma;
use margay_sys_os::process::is_anothers;

/// A process of which memory is read.
pub(super) struct Memory {
    pid: u32,
}

/// A file that a process has mapped: where its first byte is, and its name there.
pub(super) struct Mapped {
    pub(super) base: u64,
    pub(super) end: u64,
    pub(super) path: String,
}

impl Memory {
    pub(super) fn new(pid: u32) -> Memory {
        Memory { pid }
    }

    /// The bytes from `address` on.
    pub(super) fn bytes(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        cma::gather(self.pid, &[(address, len)], &mut bytes)?;
        Ok(bytes)
    }

    /// The word at `address`.
    pub(super) fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        cma::gather(self.pid, &[(address, 8)], &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The half word at `address`.
    pub(super) fn half(&self, address: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        cma::gather(self.pid, &[(address, 4)], &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// A text that a zero byte ends, if it is not longer than names are.
    fn has_text(&self, address: u64, text: &str) -> io::Result<bool> {
        let bytes = self.bytes(address, text.len() + 1)?;
        Ok(bytes.strip_suffix(&[0]) == Some(text.as_bytes()))
    }

    /// The files that are mapped from their beginning.
    pub(super) fn files(&self) -> io::Result<Vec<Mapped>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let mut files: BTreeMap<String, Mapped> = BTreeMap::new();
        for line in maps.lines() {
            // Range, permissions, offset, device, inode, path.
            let mut words = line.split_ascii_whitespace();
            let range = words.next().unwrap_or_default();
            let offset = words.nth(1).unwrap_or_default();
            let path = line.find('/').map(|at| line[at..].to_owned());
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let (Some((begin, end)), Some(path)) = (range.split_once('-'), path) else {
                continue;
            };
            let (Some(begin), Some(end), Some(offset)) =
                (number(begin), number(end), number(offset))
            else {
                continue;
            };
            match files.get_mut(&path) {
                Some(mapped) => mapped.end = end,
                None if offset == 0 => {
                    let mapped = Mapped {
                        base: begin,
                        end,
                        path: path.clone(),
                    };
                    files.insert(path, mapped);
                }
                None => {}
            }
        }
        Ok(files.into_values().collect())
    }

    /// The file of a mapping, as the process sees it.
    pub(super) fn file(&self, mapped: &Mapped) -> io::Result<Vec<u8>> {
        let path = mapped
            .path
            .strip_suffix(" (deleted)")
            .unwrap_or(&mapped.path);
        fs::read(format!("/proc/{}/root{path}", self.pid))
    }

    /// Whether another user than the caller owns the process.
    pub(super) fn is_anothers(&self) -> bool {
        is_anothers(self.pid).unwrap_or(false)
    }

    /// The address of a symbol that the file mapped at `base` exports, by its hash table
    /// (`DT_GNU_HASH`).
    pub(super) fn exported(&self, base: u64, name: &str) -> Option<u64> {
        const SYMBOL_BYTES: u64 = 24;
        /// Symbols of one bucket that are compared at most.
        const MOST: u64 = 1 << 16;
        let Dynamic {
            bias,
            hash,
            symbols,
            names,
        } = self.dynamic(base)?;
        let (buckets, first, blooms) = (
            self.half(hash).ok()?,
            self.half(hash + 4).ok()?,
            self.half(hash + 8).ok()?,
        );
        let wanted = gnu_hash(name);
        let table = hash + 16 + 8 * u64::from(blooms);
        let bucket = wanted.checked_rem(buckets)?;
        let begin = self.half(table + 4 * u64::from(bucket)).ok()?;
        if begin < first {
            return None;
        }
        let chain = table + 4 * u64::from(buckets);
        for at in u64::from(begin)..u64::from(begin) + MOST {
            let found = self.half(chain + 4 * (at - u64::from(first))).ok()?;
            let symbol = symbols + SYMBOL_BYTES * at;
            if found | 1 == wanted | 1
                && self
                    .has_text(names + u64::from(self.half(symbol).ok()?), name)
                    .ok()?
            {
                return Some(bias.wrapping_add(self.word(symbol + 8).ok()?));
            }
            if found & 1 != 0 {
                return None;
            }
        }
        None
    }

    fn dynamic(&self, base: u64) -> Option<Dynamic> {
        const LOAD: u32 = 1;
        const DYNAMIC: u32 = 2;
        const STRINGS: u64 = 5;
        const SYMBOLS: u64 = 6;
        const GNU_HASH: u64 = 0x6fff_fef5;
        /// Entries of tables that have an end somewhere.
        const MOST: u64 = 512;
        let head = self.bytes(base, 64).ok()?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let headers = base + u64::from_le_bytes(head[32..40].try_into().ok()?);
        let (bytes, count) = (
            u16::from_le_bytes([head[54], head[55]]),
            u16::from_le_bytes([head[56], head[57]]),
        );
        let (mut bias, mut table) = (None, None);
        for at in 0..u64::from(count) {
            let header = headers + at * u64::from(bytes);
            let virtual_address = self.word(header + 16).ok()?;
            match self.half(header).ok()? {
                LOAD if bias.is_none() => bias = Some(base.wrapping_sub(virtual_address & !0xfff)),
                DYNAMIC => table = Some(virtual_address),
                _ => {}
            }
        }
        let bias = bias?;
        let table = bias.wrapping_add(table?);
        let (mut hash, mut symbols, mut names) = (None, None, None);
        for at in 0..MOST {
            let (tag, value) = (
                self.word(table + 16 * at).ok()?,
                self.word(table + 16 * at + 8).ok()?,
            );
            // The loader has made addresses of most of them.
            let address = Some(if value < bias {
                bias.wrapping_add(value)
            } else {
                value
            });
            match tag {
                0 => break,
                STRINGS => names = address,
                SYMBOLS => symbols = address,
                GNU_HASH => hash = address,
                _ => {}
            }
        }
        Some(Dynamic {
            bias,
            hash: hash?,
            symbols: symbols?,
            names: names?,
        })
    }
}

/// Where a mapped file's tables are.
struct Dynamic {
    /// What is added to addresses in the file.
    bias: u64,
    hash: u64,
    symbols: u64,
    names: u64,
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

/// The name of the function at `offset` of an ELF file's first address, by its symbols.
pub(super) fn function(file: &[u8], offset: u64) -> Option<String> {
    const SYMBOLS: u32 = 2;
    const EXPORTED: u32 = 11;
    const LOAD: u32 = 1;
    let at = |from: u64, len: u64| file.get(from as usize..(from.checked_add(len)?) as usize);
    let word = |from: u64| Some(u64::from_le_bytes(at(from, 8)?.try_into().ok()?));
    let half = |from: u64| Some(u32::from_le_bytes(at(from, 4)?.try_into().ok()?));
    let short = |from: u64| Some(u64::from(u16::from_le_bytes(at(from, 2)?.try_into().ok()?)));
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (headers, header_bytes, count) = (word(32)?, short(54)?, short(56)?);
    let first = (0..count)
        .map(|number| headers + number * header_bytes)
        .find(|&header| half(header) == Some(LOAD))?;
    let address = offset.wrapping_add(word(first + 16)? & !0xfff);
    let (sections, section_bytes, count) = (word(40)?, short(58)?, short(60)?);
    let section = |number: u64| sections + number * section_bytes;
    for kind in [SYMBOLS, EXPORTED] {
        let Some(table) = (0..count)
            .map(section)
            .find(|&at| half(at + 4) == Some(kind))
        else {
            continue;
        };
        let (begin, bytes, names) = (
            word(table + 24)?,
            word(table + 32)?,
            section(u64::from(half(table + 40)?)),
        );
        let names = word(names + 24)?;
        for symbol in (begin..begin.checked_add(bytes)?).step_by(24) {
            let (value, size) = (word(symbol + 8)?, word(symbol + 16)?);
            let is_function = at(symbol + 4, 1)?[0] & 15 == 2;
            if is_function && (value == address || address.wrapping_sub(value) < size) {
                let name = file.get((names + u64::from(half(symbol)?)) as usize..)?;
                let end = name.iter().position(|&byte| byte == 0)?;
                return Some(String::from_utf8_lossy(&name[..end]).into_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_anywhere_is_no_reason_to_panic() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for len in (0..own.len().min(200_000)).step_by(997) {
            let _ = function(&own[..len], 0x1000);
        }
        assert_eq!(function(b"no ELF", 0), None);
    }

    #[test]
    fn exported_symbols_of_a_mapped_library_are_found() {
        let memory = Memory::new(std::process::id());
        let files = memory.files().unwrap();
        let library = files.iter().find(|file| file.path.contains("libc.so"));
        let Some(library) = library else {
            return; // A C library under another name.
        };
        let puts = memory.exported(library.base, "puts").unwrap();
        assert!((library.base..library.end).contains(&puts));
        assert_eq!(memory.exported(library.base, "no_such_function"), None);
    }
}
