//! Ranges of files without bytes of their own: taking space ahead, making holes, finding them.

use std::sync::atomic::Ordering;

use crate::change::Change;
use crate::data::MOST_SIZE;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::{read, write};
use crate::store::Store;

/// What happens to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocating {
    /// There has to be space for it. The file grows to its end if `grows`.
    Space { grows: bool },
    /// It becomes zeros and takes no space. The file grows to its end if `grows`.
    Zeros { grows: bool },
}

impl Store {
    /// Takes space for a range of a file, or makes it zeros.
    ///
    /// Rows are written to free places, so space is not kept for a file: it is looked whether there
    /// is enough now.
    ///
    /// # Errors
    /// When there is no space, the file would be too large, or too few directories are left.
    pub fn allocate(&self, ino: u64, offset: u64, len: u64, how: Allocating) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= MOST_SIZE);
        let end = end.ok_or(Fault::TooLarge)?;
        if len == 0 {
            return Err(Fault::Invalid);
        }
        let data = self.file(ino)?;
        self.commit_if_many()?;
        match how {
            Allocating::Space { grows } => {
                if self.usage().free < len {
                    return Err(Fault::NoSpace);
                }
                self.charge_write(ino, &data, offset, len)?;
                if grows {
                    self.grow(ino, &data, end)?;
                }
            }
            Allocating::Zeros { grows } => {
                self.with_room(|| self.make_hole(ino, &data, offset, end))?;
                if grows {
                    self.grow(ino, &data, end)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a file at least this long.
    fn grow(&self, ino: u64, data: &FileData, end: u64) -> Result<()> {
        let rows = write(data);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        data.written.fetch_max(end, Ordering::SeqCst);
        if data.size.fetch_max(end, Ordering::SeqCst) < end {
            self.stamp(data);
            let size = self.new_size(ino, data, &rows, 0);
            self.push(&[size], vec![]);
        }
        Ok(())
    }

    fn make_hole(&self, ino: u64, data: &FileData, offset: u64, end: u64) -> Result<()> {
        let _writing = data.writers.begin(offset, end);
        let mut rows = write(data);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        let row_bytes = rows.layout.row_bytes() as u64;
        let size = data.size.load(Ordering::SeqCst);
        let end = end.min(size);
        if offset >= end {
            return Ok(());
        }
        // The row with the end of the file goes as a whole: nothing is behind it.
        let is_last = end == size;
        let behind = if is_last {
            end.div_ceil(row_bytes)
        } else {
            end / row_bytes
        };
        let first = offset.div_ceil(row_bytes);
        let head = (offset, end.min(first * row_bytes));
        // In the same row as the head it is a part of that.
        let tail = if is_last || behind < first {
            (end, end)
        } else {
            (behind * row_bytes, end)
        };
        for (from, to) in [head, tail] {
            let row = from / row_bytes;
            if from < to && rows.has(row) {
                let zeros = vec![0; (to - from) as usize];
                self.put_partial(ino, &mut rows, row, (from % row_bytes) as usize, &zeros)?;
            }
        }
        let mut changes = Vec::new();
        let mut freed = Vec::new();
        if first < behind {
            for row in rows.waiting(first) {
                if row < behind {
                    self.drop_partial(&mut rows, row);
                }
            }
            let removed = rows.remove_rows(first, behind);
            let blocks = removed.iter().map(|at| u64::from(at.blocks)).sum();
            data.blocks.fetch_sub(blocks, Ordering::SeqCst);
            freed.extend(removed.iter().map(|at| at.slot));
            changes.push(Change::Hole(ino, first, behind - first));
        }
        self.stamp(data);
        changes.push(self.new_size(ino, data, &rows, 0));
        self.push(&changes, freed);
        Ok(())
    }

    /// Where data, or a hole, begins at `offset` or behind it. The end of the file is a hole.
    ///
    /// # Errors
    /// When there is none before the end of the file.
    pub fn seek(&self, ino: u64, offset: u64, is_hole: bool) -> Result<u64> {
        let data = self.file(ino)?;
        let rows = read(&data);
        let size = data.size.load(Ordering::SeqCst);
        if offset >= size {
            return Err(Fault::NoData);
        }
        let row_bytes = rows.layout.row_bytes() as u64;
        let mut row = offset / row_bytes;
        if is_hole {
            while rows.has(row) {
                row += 1;
            }
            return Ok(offset.max(row * row_bytes).min(size));
        }
        let stored = rows.map.range(row..).next().map(|(row, _)| *row);
        let found = stored.into_iter().chain(rows.waiting(row)).min();
        match found.map(|row| offset.max(row * row_bytes)) {
            Some(at) if at < size => Ok(at),
            _ => Err(Fault::NoData),
        }
    }

    /// Notes that something was read. `is_strict`: each time; else only when the noted time is
    /// older than the last change, or than a day.
    pub fn accessed(&self, ino: u64, is_strict: bool) {
        let now = self.now();
        let names = self.read_names();
        let (Ok(inode), Ok(attr)) = (names.get(ino), names.attr(ino)) else {
            return;
        };
        let is_old =
            attr.atime <= attr.mtime.max(attr.ctime) || now.saturating_sub(attr.atime) > A_DAY;
        if is_strict || is_old {
            inode.atime.store(now, Ordering::SeqCst);
            // While the names are locked, as everything that is noted of an inode.
            if let Ok(change) = names.logged(ino) {
                self.push(&[change], vec![]);
            }
        }
    }
}

/// In nanoseconds.
const A_DAY: i64 = 86_400 * 1_000_000_000;
