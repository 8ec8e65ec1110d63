//! Parts of a trace, while they come from other hosts.

use super::{Block, HEAD, HEADER, MAGIC, MOST_BLOCK, TraceError, array, block, next_block};

/// A part of a trace that arrives in pieces: its header, and then its blocks.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    at: usize,
    /// Time 0 of the part.
    started_ns: Option<u64>,
}

impl Incoming {
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// Time 0 of the part, when its header has come.
    pub fn started_ns(&self) -> Option<u64> {
        self.started_ns
    }

    /// The next block that is whole.
    ///
    /// # Errors
    /// When the bytes are no part of a trace.
    pub fn next(&mut self) -> Result<Option<Block>, TraceError> {
        let rest = &self.bytes[self.at..];
        if self.started_ns.is_none() {
            if rest.len() < HEADER {
                return Ok(None);
            }
            if rest[..8] != MAGIC {
                return Err(TraceError::Magic);
            }
            self.started_ns = Some(u64::from_le_bytes(array(rest, 16)));
            self.at += HEADER;
            return self.next();
        }
        let length = u32::from_le_bytes(array(rest, 4)) as usize;
        let whole = HEAD + length.next_multiple_of(8);
        if rest.len() < HEAD || (rest.len() < whole && length <= MOST_BLOCK) {
            return Ok(None);
        }
        let (mut rest, mut payload) = (rest, Vec::new());
        let kind = next_block(&mut rest, &mut payload).map_err(TraceError::Io)?;
        let kind = kind.ok_or(TraceError::Magic)?;
        self.at += whole;
        Ok(Some(block(kind, &payload)))
    }
}
