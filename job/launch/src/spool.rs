//! Output that is kept for later (ordered output): in memory while it is small, else in files
//! without a name, which are gone with the launcher.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use margay_sys_os::descriptor::memory_file;

/// Bytes of one rank that are kept in memory.
const MEMORY_LIMIT: usize = 64 << 10;

/// Why nothing more can be kept: each place that was tried and what it said.
#[derive(Debug)]
pub struct Full(Vec<(String, io::Error)>);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = (self.0.iter())
            .map(|(place, error)| format!("{place} ({error})"))
            .collect();
        write!(f, "no room in {}", places.join(", "))
    }
}

/// A place for a file: what messages call it, and how a file is made there.
type Place = (String, Box<dyn Fn() -> io::Result<File> + Send>);

/// The directory for temporary files, the other usual one, and the computer's memory.
fn places() -> Vec<Place> {
    let folder = std::env::temp_dir();
    vec![
        (
            folder.display().to_string(),
            Box::new(move || tempfile::tempfile_in(&folder)),
        ),
        (
            "/var/tmp".into(),
            Box::new(|| tempfile::tempfile_in(Path::new("/var/tmp"))),
        ),
        ("memory".into(), Box::new(memory_file)),
    ]
}

/// A file and how many bytes lie in it.
#[derive(Debug)]
struct Part {
    file: File,
    length: u64,
}

/// A queue of bytes: first all are written, then all are read. When a place is full, what it took
/// stays there and the next place takes the rest.
#[derive(Debug, Default)]
pub struct Spool {
    memory: Vec<u8>,
    parts: Vec<Part>,
    /// The places that take no more, and why; the next one is in use.
    refused: Vec<(String, io::Error)>,
    /// The last part lies in the place that is in use.
    is_open: bool,
    read: u64,
    length: u64,
}

impl Spool {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// When there is neither room in the directories for temporary files nor memory.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.append_in(bytes, places)
    }

    fn append_in(&mut self, bytes: &[u8], places: impl Fn() -> Vec<Place>) -> Result<(), Full> {
        if self.parts.is_empty() && self.memory.len() + bytes.len() <= MEMORY_LIMIT {
            self.memory.extend_from_slice(bytes);
            self.length += bytes.len() as u64;
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(rest, &places) {
                Some(n) => rest = &rest[n..],
                None => return Err(Full(std::mem::take(&mut self.refused))),
            }
        }
        Ok(())
    }

    /// Writes some of the bytes; returns how many. None when no place takes any.
    fn write(&mut self, bytes: &[u8], places: &impl Fn() -> Vec<Place>) -> Option<usize> {
        loop {
            if let Some(part) = self.parts.last_mut().filter(|_| self.is_open) {
                let error = match part.file.write_at(bytes, part.length) {
                    Ok(0) => io::ErrorKind::WriteZero.into(),
                    Ok(n) => {
                        part.length += n as u64;
                        self.length += n as u64;
                        return Some(n);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => error,
                };
                self.is_open = false;
                let (name, _) = places().swap_remove(self.refused.len());
                self.refused.push((name, error));
            }
            let (name, open) = places().into_iter().nth(self.refused.len())?;
            match open() {
                Ok(file) => {
                    self.parts.push(Part { file, length: 0 });
                    self.is_open = true;
                }
                Err(error) => self.refused.push((name, error)),
            }
        }
    }

    /// Takes up to `buffer.len()` bytes from the front; 0 when the spool is empty.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at_front(buffer)?;
        self.read += n as u64;
        Ok(n)
    }

    fn read_at_front(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let in_memory = self.memory.len() as u64;
        if self.read < in_memory {
            let rest = &self.memory[self.read as usize..];
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            return Ok(n);
        }
        let mut offset = self.read - in_memory;
        for part in &self.parts {
            if offset < part.length {
                return part.file.read_at(buffer, offset);
            }
            offset -= part.length;
        }
        Ok(0)
    }

    /// Whether everything has been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(n: u32) -> impl Iterator<Item = Vec<u8>> {
        (0..n).map(|i| (0..10_000u32).map(|j| (i + j) as u8).collect())
    }

    fn comes_back(spool: &mut Spool, expected: &[u8]) {
        let mut got = Vec::new();
        let mut buffer = [0; 7000];
        loop {
            let n = spool.take(&mut buffer).unwrap();
            if n == 0 {
                break;
            }
            got.extend_from_slice(&buffer[..n]);
        }
        assert!(got == expected && spool.is_empty());
    }

    #[test]
    fn everything_comes_back_in_order() {
        for n in [1, 3, 50] {
            let mut spool = Spool::default();
            let mut expected = Vec::new();
            for block in blocks(n) {
                spool.append(&block).unwrap();
                expected.extend(block);
            }
            assert_eq!(spool.parts.is_empty(), expected.len() <= MEMORY_LIMIT);
            comes_back(&mut spool, &expected);
        }
    }

    /// A place that is full from the beginning: every write to this device fails so.
    fn full(name: &str) -> Place {
        let open = || File::options().read(true).write(true).open("/dev/full");
        (name.into(), Box::new(open))
    }

    #[test]
    fn when_a_place_is_full_the_next_one_takes_the_rest() {
        let missing: fn() -> Place = || {
            (
                "missing".into(),
                Box::new(|| tempfile::tempfile_in("/nope")),
            )
        };
        let places = || {
            vec![
                full("full"),
                missing(),
                ("memory".into(), Box::new(memory_file)),
            ]
        };
        let (mut spool, mut expected) = (Spool::default(), Vec::new());
        for (number, block) in blocks(30).enumerate() {
            spool.append_in(&block, places).unwrap();
            expected.extend(block);
            if number == 15 {
                // The place in use gets full, too; what it has taken stays.
                spool.parts.last_mut().unwrap().file = read_only(&spool.parts.last().unwrap().file);
                spool.refused.truncate(1);
            }
        }
        assert_eq!(spool.parts.len(), 3);
        comes_back(&mut spool, &expected);
    }

    /// The same file, to which nothing can be written.
    fn read_only(file: &File) -> File {
        use std::os::fd::AsRawFd;
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    #[test]
    fn when_all_are_full_each_is_named() {
        let places = || vec![full("/one"), full("/two")];
        let mut spool = Spool::default();
        let error = spool.append_in(&[1; 1 << 20], places).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no room in /one (No space left"), "{text}");
        assert!(text.contains("), /two (No space"), "{text}");
        assert!(spool.is_empty(), "what was not kept is not waited for");
    }
}
