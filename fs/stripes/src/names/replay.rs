//! Names and attributes as the log has them: applying its changes, and the changes that make
//! everything what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::layout::layout;
use super::{Body, Folder, Inode, Names, ROOT, write};
use crate::change::{Attr, Change, RowRef, Shape, kind};
use crate::file::FileData;

/// Slots below this are possible, so that a stored number cannot ask for all memory.
const MOST_SLOTS: u64 = 1 << 32;

impl Names {
    /// Applies a change of the log. What it says of inodes that are not there is of such that were
    /// deleted later.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Inode(ino, attr, target) => self.apply_inode(ino, attr, target),
            Change::Gone(ino) => {
                self.inodes.remove(&ino);
            }
            Change::Entry(folder, name, ino) => {
                if let Ok(inner) = self.folder_mut(ino) {
                    inner.parent = folder;
                }
                if let Ok(entries) = self.folder_mut(folder) {
                    entries.put(name, ino);
                }
            }
            Change::NoEntry(folder, name) => {
                if let Ok(entries) = self.folder_mut(folder) {
                    entries.take(&name);
                }
            }
            Change::Rows(ino, rows) => self.apply_rows(ino, rows),
            Change::Cut(ino, row) => {
                if let Ok(data) = self.file(ino) {
                    let mut inner = write(&data);
                    let cut = inner.map.split_off(&row);
                    let blocks = cut.values().map(|at| u64::from(at.blocks)).sum();
                    data.blocks.fetch_sub(blocks, Ordering::SeqCst);
                }
            }
            Change::Hole(ino, row, count) => {
                if let Ok(data) = self.file(ino) {
                    let mut inner = write(&data);
                    let end = row.saturating_add(count);
                    let removed = inner.remove_rows(row, end);
                    let blocks = removed.iter().map(|at| u64::from(at.blocks)).sum();
                    data.blocks.fetch_sub(blocks, Ordering::SeqCst);
                }
            }
            Change::Size(ino, size, mtime) => {
                if let Ok(data) = self.file(ino) {
                    data.size.store(size, Ordering::SeqCst);
                    data.written.store(size, Ordering::SeqCst);
                    data.logged_size.store(size, Ordering::SeqCst);
                    data.mtime.store(mtime, Ordering::SeqCst);
                    data.ctime.fetch_max(mtime, Ordering::SeqCst);
                }
            }
            Change::Attribute(ino, name, value) => {
                if let Ok(inode) = self.get_mut(ino) {
                    match value {
                        Some(value) => inode.attributes.insert(name, value),
                        None => inode.attributes.remove(&name),
                    };
                }
            }
            Change::Laid(ino, shape, rows, is_last) => self.apply_laid(ino, shape, rows, is_last),
            Change::Counters(ino, generation) => {
                self.next_ino = self.next_ino.max(ino);
                self.next_generation = self.next_generation.max(generation);
            }
        }
    }

    fn apply_inode(&mut self, ino: u64, attr: Attr, target: Vec<u8>) {
        self.next_ino = self.next_ino.max(ino.saturating_add(1));
        if let Some(inode) = self.inodes.get_mut(&ino)
            && inode.attr.mode & kind::MASK == attr.mode & kind::MASK
        {
            inode.attr = attr;
            inode.atime.store(attr.atime, Ordering::SeqCst);
            // The size of a file that is there is for `Size` alone to say: that one is written
            // under the lock of the file, in the order of the writes.
            if let Body::File(data) = &inode.body {
                data.mtime.store(attr.mtime, Ordering::SeqCst);
            }
            return;
        }
        let body = match attr.mode & kind::MASK {
            kind::FOLDER => Body::Folder(Folder {
                parent: ROOT,
                ..Folder::default()
            }),
            kind::LINK => Body::Link(target),
            kind::FILE => {
                let data = FileData::new(self.base, attr.size, attr.mtime);
                Body::File(Arc::new(data))
            }
            _ => Body::Special,
        };
        let inode = Inode {
            attr,
            body,
            atime: AtomicI64::new(attr.atime),
            attributes: BTreeMap::new(),
            pins: AtomicU64::new(0),
        };
        self.inodes.insert(ino, inode);
    }

    fn apply_rows(&mut self, ino: u64, rows: Vec<(u64, RowRef)>) {
        for (_, at) in &rows {
            self.next_generation = self.next_generation.max(at.generation.saturating_add(1));
        }
        if let Ok(data) = self.file(ino) {
            let mut inner = write(&data);
            for (row, at) in rows {
                if at.slot >= MOST_SLOTS {
                    continue;
                }
                let old = inner.map.insert(row, at).map_or(0, |old| old.blocks);
                data.blocks
                    .fetch_add(u64::from(at.blocks), Ordering::SeqCst);
                data.blocks.fetch_sub(u64::from(old), Ordering::SeqCst);
            }
        }
    }

    fn apply_laid(&mut self, ino: u64, shape: Shape, rows: Vec<(u64, RowRef)>, is_last: bool) {
        let parts = self.parts.entry(ino).or_default();
        parts.extend(rows);
        if !is_last {
            return;
        }
        let rows = self.parts.remove(&ino).unwrap_or_default();
        if let (Ok(data), Some(layout)) = (self.file(ino), layout(&self.base, shape)) {
            let mut inner = write(&data);
            inner.layout = layout;
            inner.map.clear();
            data.blocks.store(0, Ordering::SeqCst);
        }
        self.apply_rows(ino, rows);
    }

    /// Slots of all rows. Entries of inodes that are not there go, as after a damaged log.
    pub fn settle(&mut self) -> BTreeSet<u64> {
        let there: BTreeSet<u64> = self.inodes.keys().copied().collect();
        let mut used = BTreeSet::new();
        for inode in self.inodes.values_mut() {
            match &mut inode.body {
                Body::Folder(folder) => {
                    let lost = folder
                        .entries
                        .iter()
                        .filter(|(_, (ino, _))| !there.contains(ino));
                    let lost: Vec<Vec<u8>> = lost.map(|(name, _)| name.clone()).collect();
                    for name in lost {
                        folder.take(&name);
                    }
                }
                Body::File(data) => used.extend(write(data).map.values().map(|at| at.slot)),
                _ => {}
            }
        }
        used
    }

    /// The changes that make an inode what it is, without its rows.
    pub fn snapshot(&self, ino: u64, out: &mut Vec<Change>) {
        let Ok(inode) = self.get(ino) else {
            return;
        };
        self.record_attr(ino, out);
        for (name, value) in &inode.attributes {
            out.push(Change::Attribute(ino, name.clone(), Some(value.clone())));
        }
    }

    /// The changes that make the entries of a directory.
    pub fn snapshot_entries(&self, ino: u64, out: &mut Vec<Change>) {
        if let Ok(folder) = self.folder(ino) {
            for name in folder.order.values() {
                out.push(Change::Entry(ino, name.clone(), folder.entries[name].0));
            }
        }
    }
}
