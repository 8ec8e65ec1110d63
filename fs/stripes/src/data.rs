//! Reading and writing the contents of files.
//!
//! A write that covers a whole row goes to a free slot at once, while the file is not locked; then
//! the row's place changes in memory, and the change waits for the log. A write to a part of a row
//! waits in memory for the rest of the row, or until the file is synced, a second has passed, or
//! too much waits. Nothing that is stored is ever overwritten, so a crash leaves every row as it
//! was or as it became.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use margay_core_stripes::{BLOCK, Layout};

use crate::array::lock;
use crate::change::{Change, RowRef};
use crate::fault::{Fault, Result};
use crate::file::{FileData, Partial, Rows, Undo};
use crate::names::{read, write};
use crate::store::Store;

/// Most bytes of rows that are written at a time, which bounds the memory for their parity.
const MOST_AT_ONCE: usize = 4 << 20;

/// Most rows of a file that wait in memory.
const MOST_PARTIAL: usize = 4096;

/// Most bytes of rows of all files that wait in memory.
pub const MOST_WAITING: u64 = 128 << 20;

/// Reads from this length on let the directories read ahead.
const LEAST_FETCHED: usize = 64 << 10;

/// How far is read ahead for a reader who goes on where an earlier read ended.
const FETCHED_AHEAD: u64 = 4 << 20;

/// Ends of reads of a file that are known at a time.
const MOST_STREAMS: usize = 16;

/// Rows that were written.
pub(crate) struct Placed {
    pub change: Change,
    /// Slots that are free once the change is in the log.
    pub freed: Vec<u64>,
}

/// Rows in consecutive slots that no file has yet.
pub(crate) struct Stored {
    pub slot: u64,
    pub generation: u64,
}

/// Largest file.
pub(crate) const MOST_SIZE: u64 = i64::MAX as u64;

impl Store {
    /// Reads from `offset` on; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// When the data is lost.
    pub fn read(&self, ino: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let data = self.file(ino)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let end = offset.saturating_add(into.len() as u64);
        let rows = loop {
            data.writers.wait(offset, end);
            let rows = read(&data);
            // As long as the rows are locked, a write that begins now changes nothing.
            if !data.writers.is_changing(offset, end) {
                break rows;
            }
        };
        let size = data.size.load(Ordering::SeqCst);
        let len = size.saturating_sub(offset).min(into.len() as u64) as usize;
        self.fetch(&data, &rows, offset, len);
        self.read_parts(&rows, offset, &mut into[..len])?;
        Ok(len)
    }

    /// Reads what lies before the end, with help where that is worth it.
    pub(crate) fn read_parts(&self, rows: &Rows, offset: u64, into: &mut [u8]) -> Result<()> {
        let row_bytes = rows.layout.row_bytes();
        let len = into.len();
        let mut parts = Vec::with_capacity(len / row_bytes + 2);
        let (mut at, mut rest) = (offset, into);
        while !rest.is_empty() {
            let row = at / row_bytes as u64;
            let within = (at % row_bytes as u64) as usize;
            let (part, tail) = rest.split_at_mut((row_bytes - within).min(rest.len()));
            at += part.len() as u64;
            rest = tail;
            parts.push(Mutex::new((row, within, part)));
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Ok(()));
        self.array.share(len, &|| {
            // Each part is taken once, so that nobody waits for its lock.
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (row, within, part) = &mut *lock(part);
                if let Err(fault) = self.read_part(rows, *row, *within, part) {
                    *lock(&done) = Err(fault);
                }
            }
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the directories read ahead what is wanted now, all at the same time, and what a reader
    /// wants next who goes on where an earlier read ended.
    fn fetch(&self, data: &FileData, rows: &Rows, offset: u64, len: usize) {
        if len < LEAST_FETCHED || !self.array.reads_ahead() {
            return;
        }
        let end = offset + len as u64;
        let goes_on = {
            let mut streams = lock(&data.streams);
            let stream = streams.iter().position(|at| *at == offset);
            if stream.is_none() && streams.len() == MOST_STREAMS {
                streams.remove(0);
            }
            match stream {
                Some(at) => streams[at] = end,
                None => streams.push(end),
            }
            stream.is_some()
        };
        let ahead = if goes_on {
            FETCHED_AHEAD.max(len as u64)
        } else {
            0
        };
        let row_bytes = rows.layout.row_bytes() as u64;
        let (mut first, last) = (offset / row_bytes, (end + ahead).div_ceil(row_bytes));
        if goes_on {
            // What lies before has been asked for by the read before.
            first = first.max((offset + ahead.saturating_sub(len as u64)) / row_bytes);
        }
        let to = end + ahead;
        for (row, at) in rows.map.range(first..last) {
            let start = row * row_bytes;
            let within = |at: u64| at.saturating_sub(start).min(row_bytes) as usize;
            self.array
                .will_need(rows.spot(*at), within(offset), within(to));
        }
    }

    /// Reads bytes of a row: what is stored, and over it what waits in memory.
    fn read_part(&self, rows: &Rows, row: u64, from: usize, into: &mut [u8]) -> Result<()> {
        let to = from + into.len();
        let partial = rows.partial.get(&row);
        if !partial.is_some_and(|p| p.covers(from, to)) {
            match (rows.landing.get(&row), rows.map.get(&row)) {
                (Some(bytes), _) => into.copy_from_slice(&bytes[from..to]),
                (None, Some(at)) => self.array.read_row(rows.spot(*at), from, into)?,
                (None, None) => into.fill(0),
            }
        }
        if let Some(partial) = partial {
            partial.overlay(from, into);
        }
        Ok(())
    }

    /// Writes bytes to `offset` and on; fewer than all where there is no space for more, or where
    /// the owner of the file may have no more.
    ///
    /// # Errors
    /// When nothing was written: there is no space, or too few directories are left.
    pub fn write(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<usize> {
        let data = self.file(ino)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let end = offset.checked_add(bytes.len() as u64);
        let end = end.filter(|end| *end <= MOST_SIZE).ok_or(Fault::TooLarge)?;
        // What others wrote may be what fails here, so it comes first: nothing is written then.
        let is_too_much = || self.waiting.load(Ordering::Relaxed) > MOST_WAITING;
        if is_too_much() {
            self.write_out_all()
                .or_else(|fault| if is_too_much() { Err(fault) } else { Ok(()) })?;
        }
        self.commit_if_many()?;
        let len = self.charge_some(ino, &data, offset, bytes.len())?;
        let _writing = data.writers.begin(offset, end);
        let mut done = 0;
        let mut write = || self.write_parts(ino, &data, offset, &bytes[..len], &mut done);
        let written = match write() {
            // What was freed is free then.
            Err(Fault::NoSpace) => self.make_room().and_then(|()| write()),
            written => written,
        };
        match written {
            Err(fault) if done == 0 => Err(fault),
            _ => Ok(done),
        }
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    /// When not all of them could be written.
    pub fn write_all(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(ino, offset + done as u64, &bytes[done..])?;
        }
        Ok(())
    }

    /// Writes bytes behind the end, as no other append does at the same time; fewer than all as
    /// [`Store::write`] does.
    ///
    /// # Errors
    /// As there.
    pub fn append(&self, ino: u64, bytes: &[u8]) -> Result<usize> {
        let data = self.file(ino)?;
        let _appending = lock(&data.appending);
        self.write(ino, data.size.load(Ordering::SeqCst), bytes)
    }

    /// Does something again when a directory was full, after what was freed is free.
    pub(crate) fn with_room<T>(&self, job: impl Fn() -> Result<T>) -> Result<T> {
        match job() {
            Err(Fault::NoSpace) => {
                self.make_room()?;
                job()
            }
            other => other,
        }
    }

    /// Writes what is not `done` yet of the bytes for `offset`, and counts it.
    fn write_parts(
        &self,
        ino: u64,
        data: &FileData,
        offset: u64,
        bytes: &[u8],
        done: &mut usize,
    ) -> Result<()> {
        let layout = read(data).layout;
        let row_bytes = layout.row_bytes();
        let mut most = (MOST_AT_ONCE / row_bytes).max(1);
        while *done < bytes.len() {
            let at = offset + *done as u64;
            let rest = &bytes[*done..];
            let row = at / row_bytes as u64;
            let within = (at % row_bytes as u64) as usize;
            if within > 0 || rest.len() < row_bytes {
                let len = (row_bytes - within).min(rest.len());
                self.write_part(ino, data, row, within, &rest[..len])?;
                *done += len;
                continue;
            }
            let count = (rest.len() / row_bytes).min(most);
            let len = count * row_bytes;
            match self.write_full(ino, data, &layout, row, &rest[..len]) {
                Ok(()) => *done += len,
                // Some of the rows may find space.
                Err(Fault::NoSpace) if count > 1 => most = count / 2,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Lets a part of a row wait in memory, and writes the row when it is complete.
    fn write_part(
        &self,
        ino: u64,
        data: &FileData,
        row: u64,
        from: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let mut rows = data.write_in_pace(row);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        while rows.partial.len() >= MOST_PARTIAL && !rows.partial.contains_key(&row) {
            let Some(first) = rows.partial.keys().next().copied() else {
                break;
            };
            self.write_out_row(ino, data, &mut rows, first)?;
        }
        let layout = rows.layout;
        let row_bytes = layout.row_bytes();
        let undo = Undo::of(rows.partial.get(&row), from, bytes.len(), row_bytes);
        self.put_partial(ino, &mut rows, row, from, bytes)?;
        let end = row * row_bytes as u64 + (from + bytes.len()) as u64;
        data.size.fetch_max(end, Ordering::SeqCst);
        self.stamp(data);
        let partial = rows.partial.get_mut(&row);
        let Some(whole) = partial.and_then(|partial| partial.take_whole(row_bytes)) else {
            data.written.fetch_max(end, Ordering::SeqCst);
            return Ok(());
        };
        rows.partial.remove(&row);
        let cost = Partial::cost_of(whole.len());
        self.waiting.fetch_sub(cost as u64, Ordering::Relaxed);
        let whole = Arc::new(whole);
        rows.landing.insert(row, Arc::clone(&whole));
        drop(rows);
        data.pace.complete();
        self.land(ino, data, &layout, row, (&whole, &undo))?;
        data.written.fetch_max(end, Ordering::SeqCst);
        self.array.keep_row_memory(Arc::into_inner(whole));
        Ok(())
    }

    /// Writes a complete row while the file is not locked. Where that fails, what completed it is
    /// taken back.
    fn land(
        &self,
        ino: u64,
        data: &FileData,
        layout: &Layout,
        row: u64,
        (whole, undo): (&Arc<Vec<u8>>, &Undo),
    ) -> Result<()> {
        let stored = self.store_rows(layout, None, &[whole]);
        let mut rows = write(data);
        let there = rows.landing.get(&row);
        let is_newest = there.is_some_and(|there| Arc::ptr_eq(there, whole));
        if is_newest {
            rows.landing.remove(&row);
        }
        match stored {
            Ok(stored) if is_newest => {
                let placed = self.adopt(ino, data, &mut rows, row, &stored, &[whole]);
                let end = (row + 1) * whole.len() as u64;
                let size = self.new_size(ino, data, &rows, end);
                self.push(&[placed.change, size], placed.freed);
                Ok(())
            }
            // Another writing of the row, or its deletion, came first.
            Ok(stored) => {
                lock(&self.slots).free([stored.slot]);
                Ok(())
            }
            Err(fault) if is_newest => {
                // The others go on waiting, below what came meanwhile.
                let newer = rows.partial.remove(&row).unwrap_or_default();
                let before = newer.cost() as u64;
                let older = undo.apply(whole, &newer);
                self.waiting
                    .fetch_add(older.cost() as u64, Ordering::Relaxed);
                self.waiting.fetch_sub(before, Ordering::Relaxed);
                rows.partial.insert(row, older);
                lock(&self.unwritten).insert(ino);
                self.shorten(ino, data, &rows);
                Err(fault)
            }
            // It was stored with what came meanwhile, or goes on waiting with that.
            Err(_) if !rows.is_gone => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Ends a file where what was written does.
    fn shorten(&self, ino: u64, data: &FileData, rows: &Rows) {
        let row_bytes = rows.layout.row_bytes() as u64;
        let landing = rows.landing.keys().next_back();
        let landing = landing.map_or(0, |row| (row + 1) * row_bytes);
        let end = data.written.load(Ordering::SeqCst).max(landing);
        if data.size.fetch_min(end, Ordering::SeqCst) > end {
            data.logged_size.fetch_min(end, Ordering::SeqCst);
            self.push(&[self.new_size(ino, data, rows, 0)], vec![]);
        }
    }

    /// Notes the time of a write.
    pub(crate) fn stamp(&self, data: &FileData) {
        let now = self.now();
        data.mtime.store(now, Ordering::SeqCst);
        data.ctime.store(now, Ordering::SeqCst);
    }

    /// Lets bytes wait in memory.
    pub(crate) fn put_partial(
        &self,
        ino: u64,
        rows: &mut Rows,
        row: u64,
        from: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let is_new = !rows.partial.contains_key(&row);
        let partial = rows.partial.entry(row).or_default();
        let before = partial.cost();
        partial.widen_for(bytes.len(), rows.layout.row_bytes(), &self.array);
        partial.put(from, bytes);
        if is_new {
            lock(&self.unwritten).insert(ino);
        }
        let after = partial.cost();
        self.waiting.fetch_add(after as u64, Ordering::Relaxed);
        self.waiting.fetch_sub(before as u64, Ordering::Relaxed);
        if rows.partial[&row].is_scattered() {
            let whole = self.contents(rows, row, rows.layout.row_bytes())?;
            self.drop_partial(rows, row);
            let mut partial = Partial::default();
            partial.put(0, &whole);
            self.waiting
                .fetch_add(partial.cost() as u64, Ordering::Relaxed);
            rows.partial.insert(row, partial);
        }
        Ok(())
    }

    /// The first `len` bytes of a row.
    fn contents(&self, rows: &Rows, row: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_part(rows, row, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Forgets what waits of a row, also what is being written of it.
    pub(crate) fn drop_partial(&self, rows: &mut Rows, row: u64) {
        rows.landing.remove(&row);
        if let Some(partial) = rows.partial.remove(&row) {
            self.waiting
                .fetch_sub(partial.cost() as u64, Ordering::Relaxed);
            self.array.keep_row_memory(Some(partial.into_row()));
        }
    }

    /// Writes what waits of a row, together with what is stored of it, to a free slot.
    fn write_out_row(&self, ino: u64, data: &FileData, rows: &mut Rows, row: u64) -> Result<()> {
        let row_bytes = rows.layout.row_bytes();
        let start = row * row_bytes as u64;
        let size = data.size.load(Ordering::SeqCst);
        let len = size.saturating_sub(start).min(row_bytes as u64) as usize;
        let bytes = self.contents(rows, row, len.div_ceil(BLOCK) * BLOCK)?;
        let placed = self.place_rows(ino, data, rows, row, &[&bytes])?;
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
        layout: &Layout,
        row: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let row_bytes = layout.row_bytes();
        let pieces: Vec<&[u8]> = bytes.chunks(row_bytes).collect();
        let stored = self.store_rows(layout, None, &pieces)?;
        let mut rows = write(data);
        if rows.is_gone {
            lock(&self.slots).free(stored.slot..stored.slot + pieces.len() as u64);
            return Err(Fault::Missing);
        }
        let placed = self.adopt(ino, data, &mut rows, row, &stored, &pieces);
        for n in 0..pieces.len() as u64 {
            self.drop_partial(&mut rows, row + n);
        }
        let end = row * row_bytes as u64 + bytes.len() as u64;
        data.size.fetch_max(end, Ordering::SeqCst);
        data.written.fetch_max(end, Ordering::SeqCst);
        self.stamp(data);
        let size = self.new_size(ino, data, &rows, end);
        self.push(&[placed.change, size], placed.freed);
        Ok(())
    }

    /// Writes rows to free consecutive slots, which no file has then: to those of the caller from
    /// `own` on, if there are such.
    pub(crate) fn store_rows(
        &self,
        layout: &Layout,
        own: Option<u64>,
        pieces: &[&[u8]],
    ) -> Result<Stored> {
        let count = pieces.len() as u64;
        let taken = || lock(&self.slots).take(count, layout.fills_slots());
        let slot = own.unwrap_or_else(taken);
        let generation = self.generation.fetch_add(count, Ordering::SeqCst);
        match self.array.write_rows(layout, slot, generation, pieces) {
            Ok(()) => Ok(Stored { slot, generation }),
            Err(fault) => {
                if own.is_none() {
                    lock(&self.slots).free(slot..slot + count);
                }
                Err(fault)
            }
        }
    }

    /// Writes consecutive rows to free slots, and changes their places. The change goes to the log
    /// together with the size: a row of which a part lies behind the end would be seen when the
    /// file grows.
    pub(crate) fn place_rows(
        &self,
        ino: u64,
        data: &FileData,
        rows: &mut Rows,
        row: u64,
        pieces: &[&[u8]],
    ) -> Result<Placed> {
        let stored = self.store_rows(&rows.layout, None, pieces)?;
        Ok(self.adopt(ino, data, rows, row, &stored, pieces))
    }

    /// Gives a file rows that are stored.
    pub(crate) fn adopt(
        &self,
        ino: u64,
        data: &FileData,
        rows: &mut Rows,
        row: u64,
        stored: &Stored,
        pieces: &[&[u8]],
    ) -> Placed {
        let mut placed = Vec::with_capacity(pieces.len());
        let mut freed = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let at = RowRef {
                slot: stored.slot + n as u64,
                generation: stored.generation + n as u64,
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
        Placed {
            change: Change::Rows(ino, placed),
            freed,
        }
    }

    /// The size for the log that rows written up to `end` make.
    pub(crate) fn new_size(&self, ino: u64, data: &FileData, rows: &Rows, end: u64) -> Change {
        let size = data.size.load(Ordering::SeqCst);
        let logged = if rows.partial.is_empty() && rows.landing.is_empty() {
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
        self.commit_if_many()?;
        match self.with_room(|| self.try_set_size(ino, &data, size, None)) {
            Err(Fault::NoSpace) => self.set_size_by_reserve(ino, &data, size),
            done => done.map(drop),
        }
    }

    /// Does that; writes the row of the new end to the slot `reserve`, if there is one. Returns
    /// that row, and the slot it had, which is not free when it was written there.
    pub(crate) fn try_set_size(
        &self,
        ino: u64,
        data: &FileData,
        size: u64,
        reserve: Option<u64>,
    ) -> Result<Option<(u64, u64)>> {
        let before = data.size.load(Ordering::SeqCst);
        let _writing = data.writers.begin(before.min(size), u64::MAX);
        let mut rows = write(data);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        let before = data.size.load(Ordering::SeqCst);
        let mut changes = Vec::new();
        let mut freed = Vec::new();
        let mut moved = None;
        if size < before {
            let row_bytes = rows.layout.row_bytes();
            let row = size / row_bytes as u64;
            let within = (size % row_bytes as u64) as usize;
            let is_there = rows.has(row);
            // Behind the end there are zeros, also when the file grows again: so the last row is
            // written anew, and first, because there may be no space for it.
            if within > 0 && is_there {
                let mut bytes = self.contents(&rows, row, within)?;
                if reserve.is_some() && !rows.map.contains_key(&row) {
                    // It waits in memory, and goes on waiting.
                    self.drop_partial(&mut rows, row);
                    self.put_partial(ino, &mut rows, row, 0, &bytes)?;
                } else {
                    bytes.resize(within.div_ceil(BLOCK) * BLOCK, 0);
                    let stored = self.store_rows(&rows.layout, reserve, &[&bytes])?;
                    let placed = self.adopt(ino, data, &mut rows, row, &stored, &[&bytes]);
                    self.drop_partial(&mut rows, row);
                    changes.push(placed.change);
                    freed = placed.freed;
                    if reserve.is_some() {
                        moved = freed.pop().map(|slot| (row, slot));
                    }
                }
            }
            let first = size.div_ceil(row_bytes as u64);
            freed.extend(self.cut_rows(data, &mut rows, first));
            changes.push(Change::Cut(ino, first));
        }
        data.size.store(size, Ordering::SeqCst);
        data.written.store(size, Ordering::SeqCst);
        self.stamp(data);
        if size < before {
            data.logged_size.fetch_min(size, Ordering::SeqCst);
        }
        changes.push(self.new_size(ino, data, &rows, 0));
        self.push(&changes, freed);
        Ok(moved)
    }

    /// Forgets rows from `first` on; returns their slots.
    fn cut_rows(&self, data: &FileData, rows: &mut Rows, first: u64) -> Vec<u64> {
        for row in rows.waiting(first) {
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
        for row in rows.waiting(0) {
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

    pub(crate) fn try_write_out(&self, ino: u64, data: &Arc<FileData>) -> Result<()> {
        let waiting = {
            let rows = read(data);
            if rows.partial.is_empty() && rows.landing.is_empty() {
                return Ok(());
            }
            lock(&self.unwritten).remove(&ino);
            rows.waiting(0)
        };
        for row in waiting {
            // One at a time, so that others who use the file wait little.
            let mut rows = write(data);
            let is_there = rows.partial.contains_key(&row) || rows.landing.contains_key(&row);
            if is_there && let Err(fault) = self.write_out_row(ino, data, &mut rows, row) {
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
