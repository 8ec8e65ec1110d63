//! Sums over time of what ranks do, from the records of a trace that is too large to be shown call
//! by call: what costs time for each of a hundred million records.
//!
//! [`Grid`] adds records up; [`Series`] and [`Counts`] say how many messages and operations there
//! were before a part of a trace, so that those of the part find each other.

#![forbid(unsafe_code)]

mod checksum;
mod grid;
mod series;

use margay_core_record::Record;

pub use checksum::crc32;
pub use grid::{CLASSES, Grid, Sums, Window};
pub use series::{Channel, Counts, Series};

/// The records that the bytes of a stored trace are.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Record> {
    let (records, _) = bytes.as_chunks::<32>();
    records.iter().filter_map(|bytes| {
        let (words, _) = bytes.as_chunks::<8>();
        Record::unpack(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    })
}

/// A block of records of a thread, of which each is taken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When the first of its calls begins, and the last one that has ended ends.
    pub from: u64,
    pub to: u64,
    pub records: usize,
}

/// Adds a block of records to sums and to counts. `open` has calls that have not ended.
pub fn add_block(
    bytes: &[u8],
    (rank, thread): (u32, u32),
    grid: &mut Grid,
    counts: &mut Counts,
    open: &mut Vec<Record>,
) -> Span {
    let mut span = Span {
        from: u64::MAX,
        to: 0,
        records: bytes.len() / 32,
    };
    let all = records(bytes).inspect(|record| {
        span.from = span.from.min(record.start);
        let end = record.start.saturating_add(record.ticks.unwrap_or(0));
        span.to = span.to.max(end);
        if let Some(series) = Series::of(rank, thread, record) {
            *counts.entry(series).or_default() += 1;
        }
    });
    grid.add(rank, all, open);
    span
}
