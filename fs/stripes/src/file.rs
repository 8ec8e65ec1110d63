//! The contents of a file in memory: which rows lie where, and rows that were written in part and
//! wait for the rest.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, AtomicU64};

use crate::array::RowRef;

/// The contents of a file. Size and times are beside the lock so that asking for them never waits
/// for a transfer; they change under the lock only.
#[derive(Debug, Default)]
pub struct FileData {
    pub size: AtomicU64,
    /// The size as of the last change in the log: that of the rows that are written.
    pub logged_size: AtomicU64,
    /// Time of the last write, nanoseconds since 1970.
    pub mtime: AtomicI64,
    pub ctime: AtomicI64,
    /// Blocks of 4 KiB that are stored.
    pub blocks: AtomicU64,
    pub rows: RwLock<Rows>,
}

/// The rows of a file.
#[derive(Debug, Default)]
pub struct Rows {
    pub map: BTreeMap<u64, RowRef>,
    pub partial: BTreeMap<u64, Partial>,
    /// The file is deleted: nothing is written any more.
    pub is_gone: bool,
}

/// A row in memory of which the bytes `from..to` are newer than what is stored. There are no bytes
/// behind `to`, and those before `from` are undefined.
#[derive(Debug, Default)]
pub struct Partial {
    pub bytes: Vec<u8>,
    pub from: usize,
}

impl Partial {
    /// The end of the newer bytes.
    pub fn to(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a write to this range leaves one range without a gap.
    pub fn joins(&self, from: usize, to: usize) -> bool {
        self.bytes.is_empty() || (from <= self.to() && to >= self.from)
    }

    /// Takes bytes in; the range joins. Returns by how many bytes more memory is used.
    pub fn put(&mut self, from: usize, bytes: &[u8]) -> usize {
        let before = self.bytes.len();
        self.from = if before == 0 {
            from
        } else {
            self.from.min(from)
        };
        let to = from + bytes.len();
        if to > before {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        self.bytes.len() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_join_become_one() {
        let mut row = Partial::default();
        assert!(row.joins(10, 20));
        assert_eq!(row.put(10, &[1; 10]), 20);
        assert!(row.joins(20, 25) && row.joins(5, 10) && row.joins(0, 30));
        assert!(!row.joins(21, 25) && !row.joins(5, 9));
        assert_eq!(row.put(5, &[2; 5]), 0);
        assert_eq!(row.put(18, &[3; 7]), 5);
        assert_eq!((row.from, row.to()), (5, 25));
        assert_eq!(
            row.bytes[5..],
            [[2; 5].as_slice(), &[1; 8], &[3; 7]].concat()
        );
    }
}
