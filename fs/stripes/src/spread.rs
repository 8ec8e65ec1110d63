//! How files are laid out, and over which directories: the stripes of a file, directories that are
//! added and removed, and moving files to where they belong then.
//!
//! A file is moved while it is used. Its rows are copied first, and then, while nobody changes it,
//! those again that were changed meanwhile; one change of the log gives it the new rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_stripes::{BLOCK, Layout};

use crate::array::lock;
use crate::change::{Change, RowRef};
use crate::disk::Disk;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::mend::Pace;
use crate::names::{self, Body, STRIPES, encode_stripes, read, write};
use crate::state::{Health, Member};
use crate::store::{Progress, Store, reasons};

/// Rows in a change of the log.
const ROWS_AT_ONCE: usize = 1 << 16;

/// Rows that may have changed since they were copied when a file is kept from being changed for
/// them, and how often they are copied before that.
const FEW_ROWS: usize = 32;
const MOST_COPIES: usize = 4;

/// A row that was copied, and the rows that it was copied from.
struct Copy {
    to: RowRef,
    from: Vec<Option<RowRef>>,
}

/// The rows of a file that were copied to another layout.
type Copies = BTreeMap<u64, Copy>;

impl Store {
    /// How a file is laid out, or new files in a directory are.
    ///
    /// # Errors
    /// When it is neither.
    pub fn stripes(&self, ino: u64) -> Result<Layout> {
        let data = {
            let names = self.read_names();
            match &names.get(ino)?.body {
                Body::File(data) => Arc::clone(data),
                Body::Folder(_) => return Ok(names.layout_in(ino)),
                _ => return Err(Fault::Invalid),
            }
        };
        let layout = read(&data).layout;
        Ok(layout)
    }

    /// How new files are laid out where their directory says nothing.
    #[must_use]
    pub fn current(&self) -> Layout {
        self.read_names().current
    }

    /// Lays out an empty file, or the new files of a directory: bytes of a unit and units of the
    /// file in a row; none: as the file system has it.
    ///
    /// # Errors
    /// When that is impossible, or the file has been written.
    pub fn set_stripes(&self, ino: u64, unit: Option<usize>, data: Option<usize>) -> Result<()> {
        let (current, file) = {
            let names = self.read_names();
            let file = match &names.get(ino)?.body {
                Body::File(data) => Some(Arc::clone(data)),
                Body::Folder(_) => None,
                _ => return Err(Fault::Invalid),
            };
            (names.current, file)
        };
        let layout = current.striped(unit, data).map_err(|_| Fault::Invalid)?;
        let Some(file) = file else {
            let value = encode_stripes(unit.unwrap_or(0), data.unwrap_or(0));
            let value = (unit.is_some() || data.is_some()).then_some(value);
            return self.set_attribute(ino, STRIPES, value.as_deref(), None);
        };
        let _writing = file.writers.begin_all();
        let mut rows = write(&file);
        if rows.is_gone {
            return Err(Fault::Missing);
        }
        if !rows.are_none() {
            return Err(Fault::Exists);
        }
        rows.layout = layout;
        self.push(&laid(ino, &layout, vec![]), vec![]);
        Ok(())
    }

    /// Adds an empty directory. New files are spread over it too; those that are there, when
    /// [`Store::spread`] moves them.
    ///
    /// # Errors
    /// In words, when it cannot be written or there are too many.
    pub fn add(&self, path: &str, id: u64, disk: Arc<dyn Disk>) -> std::result::Result<(), String> {
        let member = Member {
            id,
            path: path.to_owned(),
            health: Health::Good,
        };
        let before = self.current();
        let n = self.array.add(member, disk)?;
        let done = before
            .spread(before.over.with(n))
            .and_then(|current| self.set_current(current));
        if done.is_ok() && self.array.disk(n).is_some() {
            return Ok(());
        }
        // No row lies in it yet, as it was not known that there may be.
        self.array.remove(n);
        let back = self.set_current(before);
        let why = done.or(back).err().unwrap_or_default();
        Err(format!(
            "{path} cannot be added: {why}{}",
            reasons(&self.array)
        ))
    }

    /// Lets no new file lie in directories any more. When [`Store::spread`] has moved those that
    /// are there, they are removed.
    ///
    /// # Errors
    /// In words, when the others are too few, or lack data.
    pub fn retire(&self, leaving: &[usize]) -> std::result::Result<(), String> {
        let state = self.state();
        if let Some(failed) = state.members.iter().find(|m| m.health == Health::Failed) {
            return Err(format!(
                "no directory can be removed while {} is failed; replace that first",
                failed.path
            ));
        }
        let current = self.current();
        let over = leaving
            .iter()
            .fold(current.over, |over, n| over.without(*n));
        self.set_current(current.spread(over)?)
    }

    /// Sets how new files are laid out. It is stored before there are any: otherwise nothing would
    /// be known of the directories that they lie in.
    fn set_current(&self, current: Layout) -> std::result::Result<(), String> {
        self.array.set_current(current);
        self.sync().map_err(|fault| fault.to_string())?;
        self.write_names().current = current;
        Ok(())
    }

    /// Whether files or directories wait for [`Store::spread`].
    #[must_use]
    pub fn has_to_spread(&self) -> bool {
        let over = self.current().over;
        let files = self.files_after(0);
        self.array.belong() != over || files.iter().any(|(_, data)| read(data).layout.over != over)
    }

    /// Moves all files to where they belong, and removes the directories in which nothing lies
    /// then.
    ///
    /// # Errors
    /// When somebody else walks, there is no space, or too few directories are left.
    pub fn spread(&self, is_over: &dyn Fn() -> bool) -> Result<()> {
        let Ok(_walking) = self.walking.try_lock() else {
            return Err(Fault::Refused);
        };
        self.sync()?;
        let over = self.current().over;
        // Files that are made meanwhile, before they could know of it, are found in another round.
        loop {
            let mut files = self.files_after(0);
            files.retain(|(_, data)| read(data).layout.over != over);
            if files.is_empty() {
                break;
            }
            let rows = |data: &FileData| read(data).map.len() as u64;
            *lock(&self.progress) = Progress {
                what: "resize",
                is_running: true,
                all_rows: files.iter().map(|(_, data)| rows(data)).sum(),
                ..Progress::default()
            };
            let moved = self.move_all(&files, is_over);
            lock(&self.progress).is_running = false;
            if !moved? {
                return Ok(());
            }
        }
        self.commit()?;
        let leaving: Vec<usize> = self.array.all().filter(|n| !over.has(*n)).collect();
        if !leaving.is_empty() {
            self.leave(&leaving)?;
            for n in leaving {
                self.array.remove(n);
            }
            self.commit()?;
        }
        self.array.tell("the resize is complete".into());
        Ok(())
    }

    /// Returns whether it came to the end.
    fn move_all(&self, files: &[(u64, Arc<FileData>)], is_over: &dyn Fn() -> bool) -> Result<bool> {
        let mut pace = self.begin_pace();
        for (ino, data) in files {
            let to = read(data).layout.spread(self.current().over);
            let to = to.map_err(|_| Fault::Broken)?;
            if !self.move_file(*ino, data, &to, &mut pace, is_over)? {
                return Ok(false);
            }
            self.commit_if_many()?;
        }
        Ok(true)
    }

    /// Moves a file to another layout; returns whether it came to the end.
    fn move_file(
        &self,
        ino: u64,
        data: &Arc<FileData>,
        to: &Layout,
        pace: &mut Pace,
        is_over: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut copies = Copies::new();
        let mut copied = || {
            for _ in 0..MOST_COPIES {
                self.with_room(|| self.try_write_out(ino, data))?;
                match self.copy(data, to, &mut copies, &mut || {
                    self.pace(pace);
                    lock(&self.progress).rows += 1;
                    is_over()
                })? {
                    None => return Ok(false),
                    Some(count) if count <= FEW_ROWS => break,
                    Some(_) => {}
                }
            }
            // Nobody changes it, so that this is the last of it.
            let _writing = data.writers.begin_all();
            self.with_room(|| self.try_write_out(ino, data))?;
            self.copy(data, to, &mut copies, &mut || false)?;
            self.give(ino, data, to, &mut copies);
            Ok(true)
        };
        let done = copied();
        // Where it was given rows, these are none.
        lock(&self.slots).free(copies.values().map(|copy| copy.to.slot));
        done
    }

    /// Copies the rows of a file that were not copied, or changed since. Returns how many, or none
    /// when it was stopped.
    fn copy(
        &self,
        data: &FileData,
        to: &Layout,
        copies: &mut Copies,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>> {
        let row_bytes = to.row_bytes() as u64;
        let mut count = 0;
        let mut row = 0;
        loop {
            let mut bytes = Vec::new();
            let from = {
                let rows = read(data);
                let size = data.size.load(Ordering::SeqCst);
                let start = row * row_bytes;
                if start >= size || rows.is_gone {
                    break;
                }
                let end = size.min(start + row_bytes);
                let old_bytes = rows.layout.row_bytes() as u64;
                let (first, last) = (start / old_bytes, end.div_ceil(old_bytes));
                let from: Vec<Option<RowRef>> = (first..last)
                    .map(|row| rows.map.get(&row).copied())
                    .collect();
                let is_same = copies.get(&row).is_some_and(|copy| copy.from == from);
                if !is_same && from.iter().any(Option::is_some) {
                    let blocks = ((end - start) as usize).div_ceil(BLOCK);
                    bytes.resize(blocks * BLOCK, 0);
                    let len = (end - start) as usize;
                    self.read_parts(&rows, start, &mut bytes[..len])?;
                }
                if is_same {
                    row += 1;
                    continue;
                }
                from
            };
            if let Some(old) = copies.remove(&row) {
                lock(&self.slots).free([old.to.slot]);
            }
            if !bytes.is_empty() {
                let stored = self.with_room(|| self.store_rows(to, None, &[&bytes]))?;
                let place = RowRef {
                    slot: stored.slot,
                    generation: stored.generation,
                    blocks: (bytes.len() / BLOCK) as u32,
                };
                copies.insert(row, Copy { to: place, from });
                count += 1;
                if is_over() {
                    return Ok(None);
                }
            }
            row += 1;
        }
        // What lay behind the end.
        let cut = copies.split_off(&row);
        lock(&self.slots).free(cut.values().map(|copy| copy.to.slot));
        Ok(Some(count))
    }

    /// Gives a file the rows that were copied, and takes those that it had.
    fn give(&self, ino: u64, data: &FileData, to: &Layout, copies: &mut Copies) {
        let mut rows = write(data);
        if rows.is_gone {
            return;
        }
        let copies = std::mem::take(copies).into_iter();
        let placed: Vec<(u64, RowRef)> = copies.map(|(row, copy)| (row, copy.to)).collect();
        let blocks = placed.iter().map(|(_, at)| u64::from(at.blocks)).sum();
        let old = std::mem::replace(&mut rows.map, placed.iter().copied().collect());
        rows.layout = *to;
        data.blocks.store(blocks, Ordering::SeqCst);
        lock(&data.streams).clear();
        let freed = old.values().map(|at| at.slot).collect();
        self.push(&laid(ino, to, placed), freed);
    }
}

/// The changes that say how a file is laid out, and which rows it has.
fn laid(ino: u64, layout: &Layout, rows: Vec<(u64, RowRef)>) -> Vec<Change> {
    let shape = names::shape_of(layout);
    let mut parts: Vec<Change> = rows
        .chunks(ROWS_AT_ONCE)
        .map(|part| Change::Laid(ino, shape, part.to_vec(), false))
        .collect();
    parts.push(Change::Laid(ino, shape, vec![], true));
    parts
}
