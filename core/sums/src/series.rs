//! Messages and operations that belong together by their numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use margay_core_record::{Kind, Record};

/// What one message or operation after the other belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// From one rank to another, with a tag.
    Sent(Channel),
    Received(Channel),
    /// Collective operations of a rank's thread in a context.
    Operation(u32, u32, u32),
}

/// Context, sender, receiver, tag.
pub type Channel = (u32, u32, u32, u32);

impl Series {
    /// What a record belongs to.
    pub fn of(rank: u32, thread: u32, record: &Record) -> Option<Series> {
        let Record { context, tag, .. } = *record;
        match (record.kind, record.peer) {
            (Kind::Send | Kind::Sent, Some(peer)) => Some(Series::Sent((context, rank, peer, tag))),
            (Kind::Receive | Kind::Received, Some(peer)) => {
                Some(Series::Received((context, peer, rank, tag)))
            }
            (Kind::Collective, _) => Some(Series::Operation(rank, thread, context)),
            _ => None,
        }
    }
}

/// How many messages and operations there were.
pub type Counts = HashMap<Series, u32, BuildHasherDefault<Mixer>>;

/// A hash of a few small numbers.
#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, word: u32) {
        let mixed = self.0.rotate_left(5) ^ u64::from(word);
        self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u32(number as u32);
    }
}
