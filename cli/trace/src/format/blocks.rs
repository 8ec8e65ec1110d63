//! The blocks of a stored trace one after the other, for who wants the records of some ranks.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use margay_core_sums::crc32;

use super::{Block, HEAD, HEADER, MOST_BLOCK, RECORDS, Trace, TraceError, array, block, header};

/// Bytes of a block of records before the first of them.
const BEFORE: usize = 16;

/// A trace that is read block by block, up to the first one that is not whole.
pub struct Blocks {
    from: BufReader<File>,
    /// Where the next block begins, in bytes of the file.
    at: u64,
    limit: u64,
    payload: Vec<u8>,
}

/// What a block is.
pub enum Found<'a> {
    Records {
        rank: u32,
        thread: u32,
        lost: u64,
        /// Where its records are in the file.
        at: u64,
        bytes: &'a [u8],
    },
    Other(Block),
    /// Records of a rank that is not wanted.
    Passed,
}

impl Blocks {
    /// Begins to read, up to a byte of the file. Returns what the header says as well.
    pub fn open(path: &Path, limit: u64) -> Result<(Trace, Blocks), TraceError> {
        let file = File::open(path).map_err(TraceError::Io)?;
        let mut from = BufReader::with_capacity(1 << 18, file);
        let trace = header(&mut from)?;
        let blocks = Blocks {
            from,
            at: HEADER as u64,
            limit,
            payload: Vec::new(),
        };
        Ok((trace, blocks))
    }

    /// Where the block begins that [`Blocks::next`] has not found whole.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next block. Records are read of ranks that are wanted, and other blocks are read.
    pub fn next(&mut self, wanted: impl Fn(u32) -> bool) -> io::Result<Option<Found<'_>>> {
        let mut head = [0; HEAD + BEFORE];
        if self.at + HEAD as u64 > self.limit || !self.fill(&mut head[..HEAD])? {
            return Ok(None);
        }
        let (kind, length) = (word(&head, 0), word(&head, 4) as usize);
        let padded = length.next_multiple_of(8);
        let end = self.at + (HEAD + padded) as u64;
        if length > MOST_BLOCK || end > self.limit {
            return Ok(None);
        }
        self.payload.resize(padded, 0);
        let is_records = kind == RECORDS && length >= BEFORE;
        let begin = if is_records { BEFORE } else { 0 };
        if is_records {
            if !self.fill(&mut head[HEAD..])? {
                return Ok(None);
            }
            self.payload[..BEFORE].copy_from_slice(&head[HEAD..]);
            if !wanted(word(&head, HEAD)) {
                self.from.seek_relative((padded - BEFORE) as i64)?;
                self.at = end;
                return Ok(Some(Found::Passed));
            }
        }
        if self.from.read_exact(&mut self.payload[begin..]).is_err() {
            return Ok(None);
        }
        self.payload.truncate(length);
        if crc32(&self.payload) != word(&head, 8) {
            return Ok(None);
        }
        let at = self.at + (HEAD + BEFORE) as u64;
        self.at = end;
        Ok(Some(match is_records {
            true => Found::Records {
                rank: word(&head, HEAD),
                thread: word(&head, HEAD + 4),
                lost: u64::from_le_bytes(array(&head, HEAD + 8)),
                at,
                bytes: &self.payload[BEFORE..],
            },
            false => Found::Other(block(kind, &self.payload)),
        }))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self.from.read_exact(bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            other => other.map(|()| true),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}
