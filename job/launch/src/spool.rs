//! Output that is kept for later (ordered output): in memory while it is small, else in a file
//! without a name, which is gone with the launcher.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use margay_sys_os::descriptor::memory_file;

/// Bytes of one rank that are kept in memory.
const MEMORY_LIMIT: usize = 64 << 10;

/// A queue of bytes: first all are written, then all are read.
#[derive(Debug, Default)]
pub struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    read: u64,
    length: u64,
}

impl Spool {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// When there is neither room in the directory for temporary files nor memory.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.memory.len() + bytes.len() <= MEMORY_LIMIT {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut file = nameless_file()?;
                file.write_all(&self.memory)?;
                self.memory = Vec::new();
                self.file.insert(file)
            }
        };
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)
    }

    /// Takes up to `buffer.len()` bytes from the front; 0 when the spool is empty.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = match &mut self.file {
            None => {
                let rest = &self.memory[self.read as usize..];
                let n = rest.len().min(buffer.len());
                buffer[..n].copy_from_slice(&rest[..n]);
                n
            }
            Some(file) => {
                file.seek(SeekFrom::Start(self.read))?;
                file.read(buffer)?
            }
        };
        self.read += n as u64;
        Ok(n)
    }

    /// Whether everything has been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read == self.length
    }
}

/// Returns a file without a name: in `TMPDIR`, else in the usual places, else in memory.
fn nameless_file() -> io::Result<File> {
    tempfile::tempfile()
        .or_else(|_| tempfile::tempfile_in(Path::new("/var/tmp")))
        .or_else(|_| memory_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back_in_order() {
        for blocks in [1u32, 3, 50] {
            let mut spool = Spool::default();
            let mut expected = Vec::new();
            for i in 0..blocks {
                let block: Vec<u8> = (0..10_000u32).map(|j| (i + j) as u8).collect();
                spool.append(&block).unwrap();
                expected.extend(block);
            }
            assert_eq!(spool.file.is_some(), expected.len() > MEMORY_LIMIT);
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
    }
}
