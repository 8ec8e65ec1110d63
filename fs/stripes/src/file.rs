//! The contents of a file in memory: which rows lie where, and rows that were written in part and
//! wait for the rest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

use margay_core_stripes::Layout;

use crate::array::Spot;
use crate::change::RowRef;
use crate::writers::Writers;

/// Memory that a range of a row takes besides its bytes, at least.
const RANGE_COST: usize = 64;

/// Most ranges of a row that wait.
pub const MOST_RANGES: usize = 256;

/// The contents of a file. Size and times are beside the lock so that asking for them never waits
/// for a transfer; they change under the lock only.
#[derive(Debug)]
pub struct FileData {
    pub size: AtomicU64,
    /// The end of what was written, which is not behind the size: where a row that a write has
    /// completed finds no space, the file ends here again.
    pub written: AtomicU64,
    /// The size as of the last change in the log: that of the rows that are written.
    pub logged_size: AtomicU64,
    /// Time of the last write, nanoseconds since 1970.
    pub mtime: AtomicI64,
    pub ctime: AtomicI64,
    /// Blocks of 4 KiB that are stored.
    pub blocks: AtomicU64,
    pub rows: RwLock<Rows>,
    pub writers: Writers,
    /// Where the last reads ended.
    pub streams: Mutex<Vec<u64>>,
    /// Who writes behind the end.
    pub appending: Mutex<()>,
}

impl FileData {
    /// A file without contents.
    #[must_use]
    pub fn new(layout: Layout, size: u64, mtime: i64) -> FileData {
        FileData {
            size: AtomicU64::new(size),
            written: AtomicU64::new(size),
            logged_size: AtomicU64::new(size),
            mtime: AtomicI64::new(mtime),
            ctime: AtomicI64::new(0),
            blocks: AtomicU64::new(0),
            rows: RwLock::new(Rows {
                layout,
                map: BTreeMap::new(),
                partial: BTreeMap::new(),
                landing: BTreeMap::new(),
                is_gone: false,
            }),
            writers: Writers::default(),
            streams: Mutex::default(),
            appending: Mutex::default(),
        }
    }
}

/// The rows of a file. What waits in `partial` is newer than what is in `landing`, and that is
/// newer than what is stored.
#[derive(Debug)]
pub struct Rows {
    /// How they are laid out. It changes under the lock, and while all of the file is being
    /// changed as [`Writers`] say: so who changes a part of it may look once.
    pub layout: Layout,
    pub map: BTreeMap<u64, RowRef>,
    pub partial: BTreeMap<u64, Partial>,
    /// Whole rows that are being written while the file is not locked. Another writing of the row
    /// takes their place.
    pub landing: BTreeMap<u64, Arc<Vec<u8>>>,
    /// The file is deleted: nothing is written any more.
    pub is_gone: bool,
}

impl Rows {
    /// A row that is stored, with how it is laid out.
    pub fn spot(&self, row: RowRef) -> Spot<'_> {
        Spot {
            layout: &self.layout,
            row,
        }
    }

    /// Whether nothing was ever written.
    pub fn are_none(&self) -> bool {
        self.map.is_empty() && self.partial.is_empty() && self.landing.is_empty()
    }

    /// Whether anything is known of a row.
    pub fn has(&self, row: u64) -> bool {
        let waits = self.partial.contains_key(&row) || self.landing.contains_key(&row);
        waits || self.map.contains_key(&row)
    }

    /// Forgets where rows below `end` lie, from `first` on; returns where.
    pub fn remove_rows(&mut self, first: u64, end: u64) -> Vec<RowRef> {
        let mut removed = Vec::new();
        if first < end {
            let mut behind = self.map.split_off(&first);
            let mut kept = behind.split_off(&end);
            removed = behind.into_values().collect();
            self.map.append(&mut kept);
        }
        removed
    }

    /// The rows from `first` on that wait in memory or are being written.
    pub fn waiting(&self, first: u64) -> Vec<u64> {
        let partial = self.partial.range(first..).map(|(row, _)| *row);
        let mut all: Vec<u64> = partial
            .chain(self.landing.range(first..).map(|(row, _)| *row))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Ranges of a row in memory that are newer than what is stored. They neither touch nor overlap.
#[derive(Debug, Default)]
pub struct Partial {
    ranges: BTreeMap<usize, Vec<u8>>,
}

impl Partial {
    /// What it counts for the memory that is used.
    pub fn cost(&self) -> usize {
        self.ranges
            .values()
            .map(|r| Partial::cost_of(r.len()))
            .sum()
    }

    /// What a range of this length counts.
    pub fn cost_of(len: usize) -> usize {
        len + RANGE_COST
    }

    /// Whether the ranges are too many, so that the row is better read and kept whole.
    pub fn is_scattered(&self) -> bool {
        self.ranges.len() > MOST_RANGES
    }

    /// Whether all of the range is there.
    pub fn covers(&self, from: usize, to: usize) -> bool {
        let before = self.ranges.range(..=from).next_back();
        before.is_some_and(|(start, bytes)| start + bytes.len() >= to)
    }

    /// Takes bytes in, over what is there.
    pub fn put(&mut self, from: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let to = from + bytes.len();
        let before = self.ranges.range_mut(..=from).next_back();
        let start = match before {
            Some((start, there)) if start + there.len() >= from => {
                let within = from - start;
                let common = bytes.len().min(there.len() - within);
                there[within..within + common].copy_from_slice(&bytes[..common]);
                there.extend_from_slice(&bytes[common..]);
                *start
            }
            _ => {
                self.ranges.insert(from, bytes.to_vec());
                from
            }
        };
        // What follows and is reached now becomes part of it.
        let end = start + self.ranges[&start].len();
        let reached: Vec<usize> = self
            .ranges
            .range(start + 1..=end.max(to))
            .map(|(at, _)| *at)
            .collect();
        for at in reached {
            let next = self.ranges.remove(&at).unwrap_or_default();
            if let Some(whole) = self.ranges.get_mut(&start) {
                let known = start + whole.len() - at;
                whole.extend_from_slice(next.get(known..).unwrap_or_default());
            }
        }
    }

    /// Copies what is there of a range into it.
    pub fn overlay(&self, from: usize, into: &mut [u8]) {
        let to = from + into.len();
        for (start, bytes) in self.ranges.range(..to).rev() {
            let (first, last) = ((*start).max(from), (start + bytes.len()).min(to));
            if first >= last {
                break;
            }
            into[first - from..last - from].copy_from_slice(&bytes[first - start..last - start]);
        }
    }

    /// Takes the bytes out when they are one range from 0 to `len`.
    pub fn take_whole(&mut self, len: usize) -> Option<Vec<u8>> {
        let is_whole = self.ranges.len() == 1 && self.ranges.get(&0).map(Vec::len) == Some(len);
        is_whole.then(|| self.ranges.remove(&0)).flatten()
    }
}

/// What a write replaces of a row that waits: it is there again where the row finds no space.
pub struct Undo {
    from: usize,
    to: usize,
    before: Vec<(usize, Vec<u8>)>,
}

impl Undo {
    /// For a write that may complete a row of `row_bytes`.
    pub fn of(partial: Option<&Partial>, from: usize, len: usize, row_bytes: usize) -> Undo {
        let to = from + len;
        let mut before = Vec::new();
        let all: usize = partial.map_or(0, |partial| partial.ranges.values().map(Vec::len).sum());
        // Otherwise it is not complete then.
        let partial = partial.filter(|_| all + len >= row_bytes);
        for (start, bytes) in partial
            .iter()
            .flat_map(|partial| partial.ranges.range(..to))
        {
            let (first, last) = ((*start).max(from), (start + bytes.len()).min(to));
            if first < last {
                before.push((first, bytes[first - start..last - start].to_vec()));
            }
        }
        Undo { from, to, before }
    }

    /// What waits of a row without the write that completed it, below what is newer than it.
    pub fn apply(&self, whole: &[u8], newer: Partial) -> Partial {
        let mut partial = Partial::default();
        partial.put(0, &whole[..self.from]);
        partial.put(self.to, &whole[self.to..]);
        for (at, bytes) in &self.before {
            partial.put(*at, bytes);
        }
        for (at, bytes) in newer.ranges {
            partial.put(at, &bytes);
        }
        partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one_and_newer_bytes_are_above() {
        let mut row = Partial::default();
        row.put(10, &[1; 10]);
        assert!(row.covers(10, 20) && !row.covers(9, 11) && !row.covers(15, 21));
        row.put(30, &[2; 10]);
        assert_eq!(row.ranges.len(), 2);
        let mut seen = [9; 50];
        row.overlay(0, &mut seen);
        assert_eq!(seen[9..21], [[9].as_slice(), &[1; 10], &[9]].concat());
        assert_eq!(seen[29..41], [[9].as_slice(), &[2; 10], &[9]].concat());
        row.put(15, &[3; 20]);
        assert_eq!(row.ranges.len(), 1);
        assert!(row.covers(10, 40));
        row.overlay(0, &mut seen);
        assert_eq!(
            seen[10..40],
            [[1; 5].as_slice(), &[3; 20], &[2; 5]].concat()
        );
        row.put(0, &[4; 100]);
        assert_eq!(row.take_whole(100), Some(vec![4; 100]));
        assert_eq!((row.cost(), row.take_whole(0)), (0, None));
    }

    #[test]
    fn what_completed_a_row_is_taken_back() {
        let mut row = Partial::default();
        row.put(0, &[1; 20]);
        row.put(30, &[1; 70]);
        let undo = Undo::of(Some(&row), 10, 30, 100);
        row.put(10, &[2; 30]);
        let whole = row.take_whole(100).expect("it is complete");
        let mut newer = Partial::default();
        newer.put(90, &[3; 5]);
        let row = undo.apply(&whole, newer);
        assert!(row.covers(0, 20) && !row.covers(19, 21) && !row.covers(29, 31));
        let mut seen = [9; 100];
        row.overlay(0, &mut seen);
        let expected = [(1, 20), (9, 10), (1, 60), (3, 5), (1, 5)];
        let expected = expected.map(|(byte, len)| vec![byte; len]).concat();
        assert_eq!(seen.as_slice(), expected);
    }

    #[test]
    fn ranges_are_as_a_plain_row() {
        let mut random = 1_u64;
        let mut next = |end: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % end
        };
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            let mut row = Partial::default();
            let mut plain = [0_u8; 64];
            let mut is_there = [false; 64];
            for value in 1..12 {
                let from = next(64);
                let len = next(64 - from + 1);
                row.put(from, &vec![value; len]);
                plain[from..from + len].fill(value);
                is_there[from..from + len].fill(true);
                let mut seen = [0; 64];
                row.overlay(0, &mut seen);
                assert_eq!(seen, plain);
                let (a, b) = (next(64), next(64));
                if a < b {
                    assert_eq!(row.covers(a, b), is_there[a..b].iter().all(|t| *t));
                }
            }
        }
    }
}
