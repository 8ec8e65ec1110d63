//! The contents of a file in memory: which rows lie where, and rows that were written in part and
//! wait for the rest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use margay_core_stripes::Layout;

use crate::array::{Array, Spot};
use crate::change::RowRef;
use crate::pace::Pace;
use crate::writers::Writers;

/// Memory that a range of a row takes besides its bytes, at least.
const RANGE_COST: usize = 64;

/// This part of a row, one in 8 bytes, is worth the memory of all.
const LEAST_PART: usize = 8;

/// Bytes of rows of a file, whole and in part, that wait before others shall complete some.
const FAR_AHEAD: usize = 8 << 20;

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
    pub pace: Pace,
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
            pace: Pace::default(),
            streams: Mutex::default(),
            appending: Mutex::default(),
        }
    }

    /// The rows, for who writes a part of this one, and is not far ahead of the others who do.
    pub fn write_in_pace(&self, row: u64) -> RwLockWriteGuard<'_, Rows> {
        let lock = || self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let rows = lock();
        if !rows.is_ahead(row) {
            return rows;
        }
        drop(rows);
        self.pace.wait();
        lock()
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

    /// Whether who writes to a row begins it, behind many that wait.
    fn is_ahead(&self, row: u64) -> bool {
        let waiting = self.partial.len() * self.layout.row_bytes();
        waiting >= FAR_AHEAD && !self.partial.contains_key(&row)
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
/// Few bytes have memory of their own; many lie in memory of a whole row, each at its place, so
/// that none is copied twice.
#[derive(Debug, Default)]
pub struct Partial {
    ranges: BTreeMap<usize, Vec<u8>>,
    /// A whole row, or nothing; then the ranges are `spans`, from and to.
    row: Vec<u8>,
    spans: BTreeMap<usize, usize>,
}

impl Partial {
    /// What it counts for the memory that is used.
    pub fn cost(&self) -> usize {
        let lens = self.ranges.values().map(Vec::len);
        let row = (!self.row.is_empty()).then_some(self.row.len());
        lens.chain(row).map(Partial::cost_of).sum()
    }

    /// What a range of this length counts.
    pub fn cost_of(len: usize) -> usize {
        len + RANGE_COST
    }

    /// Whether the ranges are too many, so that the row is better read and kept whole.
    pub fn is_scattered(&self) -> bool {
        self.ranges.len() + self.spans.len() > MOST_RANGES
    }

    /// Bytes that are there.
    fn len(&self) -> usize {
        let spans = self.spans.iter().map(|(from, to)| to - from);
        self.ranges.values().map(Vec::len).chain(spans).sum()
    }

    /// Moves into memory of a whole row where `more` bytes make so much of it that this is better.
    pub fn widen_for(&mut self, more: usize, row_bytes: usize, array: &Array) {
        let all = self.cost().saturating_add(more);
        if self.row.is_empty() && all.saturating_mul(LEAST_PART) >= row_bytes {
            self.widen(array.row_memory(row_bytes));
        }
    }

    /// Moves into memory of a whole row.
    fn widen(&mut self, row: Vec<u8>) {
        self.row = row;
        for (from, bytes) in std::mem::take(&mut self.ranges) {
            self.put(from, &bytes);
        }
    }

    /// The memory of a whole row, when nothing of it is wanted any more.
    pub fn into_row(self) -> Vec<u8> {
        self.row
    }

    /// The last range below `end`, from and to.
    fn before(&self, end: usize) -> Option<(usize, usize)> {
        let range = self.ranges.range(..end).next_back();
        let range = range.map(|(from, bytes)| (*from, from + bytes.len()));
        range.or_else(|| {
            self.spans
                .range(..end)
                .next_back()
                .map(|(from, to)| (*from, *to))
        })
    }

    /// Whether all of the range is there.
    pub fn covers(&self, from: usize, to: usize) -> bool {
        self.before(from + 1).is_some_and(|(_, end)| end >= to)
    }

    /// Takes bytes in, over what is there.
    pub fn put(&mut self, from: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if !self.row.is_empty() {
            return self.put_in_row(from, bytes);
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

    fn put_in_row(&mut self, from: usize, bytes: &[u8]) {
        let to = from + bytes.len();
        self.row[from..to].copy_from_slice(bytes);
        let (mut first, mut last) = (from, to);
        // Those that it reaches become part of it, from the last one on.
        while let Some((start, end)) = self.before(last + 1)
            && end >= first
        {
            self.spans.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.spans.insert(first, last);
    }

    /// The bytes that are there of a range, with their places.
    fn within(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let own = self.ranges.range(..to).rev();
        let own = own.map(|(start, bytes)| (*start, bytes.as_slice()));
        let spans = self.spans.range(..to).rev();
        let spans = spans.map(|(start, end)| (*start, &self.row[*start..*end]));
        let all = own.chain(spans).map(move |(start, bytes)| {
            let (first, last) = (start.max(from), (start + bytes.len()).min(to));
            (first, bytes.get(first - start..last.saturating_sub(start)))
        });
        all.map_while(|(first, bytes)| Some((first, bytes.filter(|bytes| !bytes.is_empty())?)))
    }

    /// Copies what is there of a range into it.
    pub fn overlay(&self, from: usize, into: &mut [u8]) {
        for (first, bytes) in self.within(from, from + into.len()) {
            into[first - from..first - from + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Takes the bytes out when they are one range from 0 to `len`.
    pub fn take_whole(&mut self, len: usize) -> Option<Vec<u8>> {
        if self.row.len() == len && self.spans.get(&0) == Some(&len) {
            self.spans.clear();
            return Some(std::mem::take(&mut self.row));
        }
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
        let all = partial.map_or(0, Partial::len);
        // Otherwise it is not complete then.
        let partial = partial.filter(|_| all + len >= row_bytes);
        let parts = partial
            .into_iter()
            .flat_map(|partial| partial.within(from, to));
        let before = parts.map(|(at, bytes)| (at, bytes.to_vec())).collect();
        Undo { from, to, before }
    }

    /// What waits of a row without the write that completed it, below what is newer than it.
    pub fn apply(&self, whole: &[u8], newer: &Partial) -> Partial {
        let mut partial = Partial::default();
        partial.put(0, &whole[..self.from]);
        partial.put(self.to, &whole[self.to..]);
        for (at, bytes) in &self.before {
            partial.put(*at, bytes);
        }
        for (at, bytes) in newer.within(0, whole.len()) {
            partial.put(at, bytes);
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
        let row = undo.apply(&whole, &newer);
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
            let widens = next(14) as u8;
            for value in 1..12 {
                let from = next(64);
                let len = next(64 - from + 1);
                if value == widens {
                    row.widen(vec![99; 64]);
                }
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
