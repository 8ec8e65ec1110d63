//! Reading and writing the contents of files.
//!
//! A write that covers a whole row goes to a free slot at once; the row's place changes in memory,
//! and the change waits for the log. A write to a part of a row waits in memory for the rest of the
//! row, or until the file is synced, a second has passed, or too much waits. Nothing that is stored
//! is ever overwritten, so a crash leaves every row as it was or as it became.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_stripes::BLOCK;

use crate::array::{RowRef, lock};
use crate::change::Change;
use crate::fault::{Fault, Result};
use crate::file::{FileData, Partial, Rows};
use crate::names::{read, write};
use crate::store::Store;

/// Most bytes of rows that are written at a time, which bounds the memory for their parity.
const MOST_AT_ONCE: usize = 4 << 20;

/// Most rows of a file that wait in memory.
const MOST_PARTIAL: usize = 64;

/// Most bytes of rows of all files that wait in memory.
pub const MOST_WAITING: u64 = 128 << 20;

/// Rows that were written.
struct Placed {
    change: Change,
    /// Slots that are free once the change is in the log.
    freed: Vec<u64>,
}

/// Largest file.
const MOST_SIZE: u64 = i64::MAX as u64;

impl Store {
    /// Reads from `offset` on; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// When the data is lost.
    pub fn read(&self, ino: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let data = self.file(ino)?;
        let rows = read(&data);
        let size = data.size.load(Ordering::SeqCst);
        let len = size.saturating_sub(offset).min(into.len() as u64) as usize;
        let row_bytes = self.array.layout.row_bytes();
        let mut at = offset;
        let mut rest = &mut into[..len];
        while !rest.is_empty() {
            let row = at / row_bytes as u64;
            let within = (at % row_bytes as u64) as usize;
            let (part, tail) = rest.split_at_mut((row_bytes - within).min(rest.len()));
            self.read_part(&rows, row, within, part)?;
            at += part.len() as u64;
            rest = tail;
        }
        Ok(len)
    }

    /// Reads bytes of a row: what is stored, and over it what waits in memory.
    fn read_part(&self, rows: &Rows, row: u64, from: usize, into: &mut [u8]) -> Result<()> {
        let to = from + into.len();
        let partial = rows.partial.get(&row);
        let is_covered = partial.is_some_and(|p| p.from <= from && p.to() >= to);
        if !is_covered {
            match rows.map.get(&row) {
                Some(at) => self.array.read_row(*at, from, into)?,
                None => into.fill(0),
            }
        }
        if let Some(partial) = partial {
            let (first, last) = (partial.from.max(from), partial.to().min(to));
            if first < last {
                into[first - from..last - from].copy_from_slice(&partial.bytes[first..last]);
            }
        }
        Ok(())
    }

    /// Writes all of the bytes to `offset` and on.
    ///
    /// # Errors
    /// When there is no space, or too few directories are left.
    pub fn write(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let data = self.file(ino)?;
        self.with_room(|| self.try_write(ino, &data, offset, bytes))?;
        if self.waiting.load(Ordering::Relaxed) > MOST_WAITING {
            self.write_out_all()?;
        }
        self.commit_if_many()
    }

    /// Does something again when a directory was full, after what was freed is free.
    fn with_room<T>(&self, job: impl Fn() -> Result<T>) -> Result<T> {
        match job() {
            Err(Fault::NoSpace) => {
                self.make_room()?;
                job()
            }
            other => other,
        }
    }

    fn try_write(&self, ino: u64, data: &FileData, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > MOST_SIZE) {
            return Err(Fault::TooLarge);
        }
        let mut rows = write(data);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        let row_bytes = self.array.layout.row_bytes();
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let row = at / row_bytes as u64;
            let within = (at % row_bytes as u64) as usize;
            let len = if within == 0 && rest.len() >= row_bytes {
                let most = (MOST_AT_ONCE / row_bytes).max(1);
                let count = (rest.len() / row_bytes).min(most);
                let len = count * row_bytes;
                self.write_full(ino, data, &mut rows, row, &rest[..len])?;
                len
            } else {
                let len = (row_bytes - within).min(rest.len());
                self.put_partial(ino, &mut rows, row, within, &rest[..len])?;
                data.size.fetch_max(at + len as u64, Ordering::SeqCst);
                self.stamp(data);
                let partial = &rows.partial[&row];
                if partial.from == 0 && partial.to() == row_bytes {
                    self.write_out_row(ino, data, &mut rows, row)?;
                }
                len
            };
            at += len as u64;
            rest = &rest[len..];
        }
        while rows.partial.len() > MOST_PARTIAL {
            let Some(first) = rows.partial.keys().next().copied() else {
                break;
            };
            self.write_out_row(ino, data, &mut rows, first)?;
        }
        Ok(())
    }

    /// Notes the time of a write.
    fn stamp(&self, data: &FileData) {
        let now = self.now();
        data.mtime.store(now, Ordering::SeqCst);
        data.ctime.store(now, Ordering::SeqCst);
    }

    /// Lets bytes wait in memory.
    fn put_partial(
        &self,
        ino: u64,
        rows: &mut Rows,
        row: u64,
        from: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let to = from + bytes.len();
        let joins = rows.partial.get(&row).is_none_or(|p| p.joins(from, to));
        if !joins {
            let whole = self.array.layout.row_bytes();
            let filled = self.contents(rows, row, whole)?;
            let partial = rows.partial.entry(row).or_default();
            let more = filled.len() - partial.bytes.len();
            self.waiting.fetch_add(more as u64, Ordering::Relaxed);
            *partial = Partial {
                bytes: filled,
                from: 0,
            };
        }
        let is_new = !rows.partial.contains_key(&row);
        let partial = rows.partial.entry(row).or_default();
        if is_new {
            partial.bytes = lock(&self.spare).pop().unwrap_or_default();
            partial.bytes.clear();
        }
        let more = partial.put(from, bytes);
        self.waiting.fetch_add(more as u64, Ordering::Relaxed);
        if is_new {
            lock(&self.unwritten).insert(ino);
        }
        Ok(())
    }

    /// The first `len` bytes of a row.
    fn contents(&self, rows: &Rows, row: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_part(rows, row, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Forgets what waits of a row.
    fn drop_partial(&self, rows: &mut Rows, row: u64) {
        if let Some(partial) = rows.partial.remove(&row) {
            self.waiting
                .fetch_sub(partial.bytes.len() as u64, Ordering::Relaxed);
            let mut spare = lock(&self.spare);
            if spare.len() < MOST_PARTIAL {
                spare.push(partial.bytes);
            }
        }
    }

    /// Writes what waits of a row, together with what is stored of it, to a free slot.
    fn write_out_row(&self, ino: u64, data: &FileData, rows: &mut Rows, row: u64) -> Result<()> {
        let row_bytes = self.array.layout.row_bytes();
        let start = row * row_bytes as u64;
        let size = data.size.load(Ordering::SeqCst);
        let len = size.saturating_sub(start).min(row_bytes as u64) as usize;
        let blocks = len.div_ceil(BLOCK);
        let whole = blocks * BLOCK;
        let is_ready = rows
            .partial
            .get(&row)
            .is_some_and(|p| p.from == 0 && p.to() == whole);
        let placed = if is_ready {
            // Taken out for the time of the write, and put back when it fails.
            let partial = rows.partial.remove(&row).unwrap_or_default();
            let placed = self.place_rows(ino, data, rows, row, &[&partial.bytes]);
            rows.partial.insert(row, partial);
            placed?
        } else {
            let bytes = self.contents(rows, row, whole)?;
            self.place_rows(ino, data, rows, row, &[&bytes])?
        };
        self.drop_partial(rows, row);
        let size = self.new_size(ino, data, rows, start + len as u64);
        self.push(&[placed.change, size], placed.freed);
        Ok(())
    }

    /// Writes rows that are covered by what is written.
    fn write_full(
        &self,
        ino: u64,
        data: &FileData,
        rows: &mut Rows,
        row: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let row_bytes = self.array.layout.row_bytes();
        let pieces: Vec<&[u8]> = bytes.chunks(row_bytes).collect();
        let placed = self.place_rows(ino, data, rows, row, &pieces)?;
        for n in 0..pieces.len() as u64 {
            self.drop_partial(rows, row + n);
        }
        let end = row * row_bytes as u64 + bytes.len() as u64;
        data.size.fetch_max(end, Ordering::SeqCst);
        self.stamp(data);
        let size = self.new_size(ino, data, rows, end);
        self.push(&[placed.change, size], placed.freed);
        Ok(())
    }

    /// Writes consecutive rows to free slots, and changes their places. The change goes to the log
    /// together with the size: a row of which a part lies behind the end would be seen when the
    /// file grows.
    fn place_rows(
        &self,
        ino: u64,
        data: &FileData,
        rows: &mut Rows,
        row: u64,
        pieces: &[&[u8]],
    ) -> Result<Placed> {
        let count = pieces.len() as u64;
        let slot = lock(&self.slots).take(count);
        let generation = self.generation.fetch_add(count, Ordering::SeqCst);
        if let Err(fault) = self.array.write_rows(slot, generation, pieces) {
            lock(&self.slots).free(slot..slot + count);
            return Err(fault);
        }
        let mut placed = Vec::with_capacity(pieces.len());
        let mut freed = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let at = RowRef {
                slot: slot + n as u64,
                generation: generation + n as u64,
                blocks: (piece.len() / BLOCK) as u32,
            };
            data.blocks
                .fetch_add(u64::from(at.blocks), Ordering::SeqCst);
            if let Some(old) = rows.map.insert(row + n as u64, at) {
                data.blocks
                    .fetch_sub(u64::from(old.blocks), Ordering::SeqCst);
                freed.push(old.slot);
            }
            placed.push((row + n as u64, at));
        }
        Ok(Placed {
            change: Change::Rows(ino, placed),
            freed,
        })
    }

    /// The size for the log that rows written up to `end` make.
    fn new_size(&self, ino: u64, data: &FileData, rows: &Rows, end: u64) -> Change {
        let size = data.size.load(Ordering::SeqCst);
        let logged = if rows.partial.is_empty() {
            size
        } else {
            data.logged_size.load(Ordering::SeqCst).max(end.min(size))
        };
        data.logged_size.store(logged, Ordering::SeqCst);
        let mtime = data.mtime.load(Ordering::SeqCst);
        Change::Size(ino, logged, mtime)
    }

    /// Cuts a file, or extends it with zeros.
    ///
    /// # Errors
    /// When there is no space for the row of the new end, or too few directories are left.
    pub fn set_size(&self, ino: u64, size: u64) -> Result<()> {
        if size > MOST_SIZE {
            return Err(Fault::TooLarge);
        }
        let data = self.file(ino)?;
        self.with_room(|| self.try_set_size(ino, &data, size))?;
        self.commit_if_many()
    }

    fn try_set_size(&self, ino: u64, data: &FileData, size: u64) -> Result<()> {
        let mut rows = write(data);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        let before = data.size.load(Ordering::SeqCst);
        let mut changes = Vec::new();
        let mut freed = Vec::new();
        if size < before {
            let row_bytes = self.array.layout.row_bytes();
            let row = size / row_bytes as u64;
            let within = (size % row_bytes as u64) as usize;
            let is_there = rows.map.contains_key(&row) || rows.partial.contains_key(&row);
            // Behind the end there are zeros, also when the file grows again: so the last row is
            // written anew, and first, because there may be no space for it.
            if within > 0 && is_there {
                let mut bytes = self.contents(&rows, row, within)?;
                bytes.resize(within.div_ceil(BLOCK) * BLOCK, 0);
                let placed = self.place_rows(ino, data, &mut rows, row, &[&bytes])?;
                self.drop_partial(&mut rows, row);
                changes.push(placed.change);
                freed = placed.freed;
            }
            let first = size.div_ceil(row_bytes as u64);
            freed.extend(self.cut_rows(data, &mut rows, first));
            changes.push(Change::Cut(ino, first));
        }
        data.size.store(size, Ordering::SeqCst);
        self.stamp(data);
        if size < before {
            data.logged_size.fetch_min(size, Ordering::SeqCst);
        }
        changes.push(self.new_size(ino, data, &rows, 0));
        self.push(&changes, freed);
        Ok(())
    }

    /// Forgets rows from `first` on; returns their slots.
    fn cut_rows(&self, data: &FileData, rows: &mut Rows, first: u64) -> Vec<u64> {
        let waiting: Vec<u64> = rows.partial.range(first..).map(|(row, _)| *row).collect();
        for row in waiting {
            self.drop_partial(rows, row);
        }
        let cut = rows.map.split_off(&first);
        let blocks = cut.values().map(|at| u64::from(at.blocks)).sum();
        data.blocks.fetch_sub(blocks, Ordering::SeqCst);
        cut.values().map(|at| at.slot).collect()
    }

    /// Frees all that a deleted file has.
    pub(crate) fn discard(&self, data: &FileData) {
        let mut rows = write(data);
        rows.is_gone = true;
        let waiting: Vec<u64> = rows.partial.keys().copied().collect();
        for row in waiting {
            self.drop_partial(&mut rows, row);
        }
        let freed = std::mem::take(&mut rows.map);
        self.push(&[], freed.values().map(|at| at.slot).collect());
    }

    /// Writes what waits of a file.
    ///
    /// # Errors
    /// When there is no space, or too few directories are left. It goes on waiting.
    pub fn write_out(&self, ino: u64) -> Result<()> {
        let Ok(data) = self.file(ino) else {
            return Ok(());
        };
        self.with_room(|| self.try_write_out(ino, &data))
    }

    fn try_write_out(&self, ino: u64, data: &Arc<FileData>) -> Result<()> {
        if read(data).partial.is_empty() {
            return Ok(());
        }
        let mut rows = write(data);
        lock(&self.unwritten).remove(&ino);
        while let Some(row) = rows.partial.keys().next().copied() {
            if let Err(fault) = self.write_out_row(ino, data, &mut rows, row) {
                lock(&self.unwritten).insert(ino);
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Writes what waits of all files; goes on when one fails.
    ///
    /// # Errors
    /// The first.
    pub fn write_out_all(&self) -> Result<()> {
        let all: Vec<u64> = lock(&self.unwritten).iter().copied().collect();
        let mut done = Ok(());
        for ino in all {
            let this = self.write_out(ino);
            done = done.and(this);
        }
        done
    }
}
