//! The operations of a file system on names and attributes.

use std::sync::atomic::Ordering;

use crate::change::Attr;
use crate::fault::{Fault, Result};
use crate::names::{Body, Entry, Making, Names, Renaming, Setting, without_ids};
use crate::store::Store;

/// An inode with what a client has to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub ino: u64,
    pub attr: Attr,
    /// Stored bytes, in units of 512.
    pub blocks: u64,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub free: u64,
    pub files: u64,
}

fn known(names: &Names, ino: u64) -> Result<Known> {
    let attr = names.attr(ino)?;
    let blocks = match &names.get(ino)?.body {
        Body::File(data) => data.blocks.load(Ordering::SeqCst) * 8,
        _ => 0,
    };
    Ok(Known { ino, attr, blocks })
}

/// Counts a reference of a client.
fn pin(names: &Names, ino: u64) {
    if let Ok(inode) = names.get(ino) {
        inode.pins.fetch_add(1, Ordering::SeqCst);
    }
}

impl Store {
    /// Does something with the names, and lets its changes wait for the log.
    fn change<T>(
        &self,
        job: impl FnOnce(&mut Names, &mut Vec<crate::change::Change>) -> Result<T>,
    ) -> Result<T> {
        let mut names = self.write_names();
        let mut changes = Vec::new();
        let done = job(&mut names, &mut changes)?;
        if !changes.is_empty() {
            self.push(&changes, vec![]);
        }
        Ok(done)
    }

    /// Looks a name up. The caller gives the reference back by [`Store::forget`].
    ///
    /// # Errors
    /// When there is no such name.
    pub fn lookup(&self, folder: u64, name: &[u8]) -> Result<Known> {
        let names = self.read_names();
        let ino = names.lookup(folder, name)?;
        let known = known(&names, ino)?;
        pin(&names, ino);
        Ok(known)
    }

    /// Gives references back. An inode without names goes with the last one.
    pub fn forget(&self, ino: u64, count: u64) {
        let is_orphan = {
            let names = self.read_names();
            if let Ok(inode) = names.get(ino) {
                let less = |pins: u64| Some(pins.saturating_sub(count));
                let _ = inode
                    .pins
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            }
            names.is_orphan(ino)
        };
        if is_orphan {
            self.reap(ino);
        }
    }

    /// Gives the references of all clients back, as when the last one is gone.
    pub fn forget_all(&self) {
        let all: Vec<u64> = {
            let names = self.read_names();
            for (_, inode) in names.after(0) {
                inode.pins.store(0, Ordering::SeqCst);
            }
            names.orphans()
        };
        for ino in all {
            self.reap(ino);
        }
    }

    /// Whether an inode that lost a name can be removed at once.
    fn leaves(&self, names: &Names, ino: u64) -> bool {
        let is_orphan = names.is_orphan(ino);
        if !is_orphan && names.get(ino).is_ok_and(|inode| inode.attr.nlink == 0) {
            self.leaving.begin(ino);
        }
        is_orphan
    }

    /// Removes an inode to which nothing refers any more.
    fn reap(&self, ino: u64) {
        let data = {
            let mut names = self.write_names();
            if !names.is_orphan(ino) {
                return;
            }
            let mut changes = Vec::new();
            let data = names.remove(ino, &mut changes);
            self.push(&changes, vec![]);
            data
        };
        if let Some(data) = data {
            self.discard(&data);
        }
        // Behind that: who waits looks for what is freed.
        self.leaving.end(ino);
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// When there is none.
    pub fn getattr(&self, ino: u64) -> Result<Known> {
        known(&self.read_names(), ino)
    }

    /// Changes attributes, and the size when there is one.
    ///
    /// # Errors
    /// When there is no such inode, or no space for the last row.
    pub fn setattr(&self, ino: u64, how: &Setting, size: Option<u64>) -> Result<Known> {
        if let Some(size) = size {
            self.set_size(ino, size)?;
        }
        let mut how = *how;
        how.now = self.now();
        let known = self.change(|names, changes| {
            if names.get(ino)?.attributes.contains_key(CAPABILITY)
                && (how.kill_ids || how.uid.is_some() || how.gid.is_some())
            {
                names.set_attribute(ino, CAPABILITY, None, None, how.now, changes)?;
            }
            names.set(ino, &how, changes)?;
            known(names, ino)
        })?;
        if how.uid.is_some() || how.gid.is_some() {
            self.forget_counts();
        }
        Ok(known)
    }

    /// Makes a file, directory, link or special file. The caller gets a reference.
    ///
    /// # Errors
    /// When the name is taken or impossible.
    pub fn make(&self, folder: u64, name: &[u8], how: &Making) -> Result<Known> {
        let mut how = how.clone();
        how.now = self.now();
        self.commit_if_many()?;
        let group = self.read_names().group_of_new(folder, how.gid)?;
        self.charge_file(how.uid, group)?;
        self.change(|names, changes| {
            let ino = names.make(folder, name, &how, changes)?;
            pin(names, ino);
            known(names, ino)
        })
    }

    /// Gives a file another name. The caller gets a reference.
    ///
    /// # Errors
    /// When the name is taken or impossible, or there are too many.
    pub fn link(&self, ino: u64, folder: u64, name: &[u8]) -> Result<Known> {
        let now = self.now();
        self.change(|names, changes| {
            names.link(ino, folder, name, now, changes)?;
            pin(names, ino);
            known(names, ino)
        })
    }

    /// Removes a name: of a directory when `is_folder`, else of anything else.
    ///
    /// # Errors
    /// When there is no such name, or the directory is not empty.
    pub fn unlink(&self, folder: u64, name: &[u8], is_folder: bool) -> Result<()> {
        let now = self.now();
        let (ino, is_orphan) = self.change(|names, changes| {
            let ino = names.unlink(folder, name, is_folder, now, changes)?;
            Ok((ino, self.leaves(names, ino)))
        })?;
        if is_orphan {
            self.reap(ino);
        }
        self.commit_if_many()
    }

    /// Renames.
    ///
    /// # Errors
    /// When the new name cannot be replaced.
    pub fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: Renaming) -> Result<()> {
        let now = self.now();
        let orphan = self.change(|names, changes| {
            let lost = names.rename(from, to, how, now, changes)?;
            Ok(lost.filter(|ino| self.leaves(names, *ino)))
        })?;
        if let Some(ino) = orphan {
            self.reap(ino);
        }
        self.commit_if_many()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// When it is none.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        match &self.read_names().get(ino)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Fault::Invalid),
        }
    }

    /// Entries of a directory behind `after`, at most `most`.
    ///
    /// # Errors
    /// When it is none.
    pub fn list(&self, folder: u64, after: u64, most: usize) -> Result<Vec<Entry>> {
        self.read_names().list(folder, after, most)
    }

    /// The number of the last entry of a directory.
    #[must_use]
    pub fn last_entry(&self, folder: u64) -> u64 {
        self.read_names().last_entry(folder)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn attribute(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        let names = self.read_names();
        let value = names.get(ino)?.attributes.get(name).cloned();
        value.ok_or(Fault::NoAttribute)
    }

    /// The names of the extended attributes, each with a zero behind it.
    ///
    /// # Errors
    /// When there is no such inode.
    pub fn attributes(&self, ino: u64) -> Result<Vec<u8>> {
        let names = self.read_names();
        let mut all = Vec::new();
        let own = |name: &&Vec<u8>| name.starts_with(INTERNAL);
        let names = names.get(ino)?.attributes.keys();
        for name in names.filter(|name| !own(name)) {
            all.extend_from_slice(name);
            all.push(0);
        }
        Ok(all)
    }

    /// Sets an extended attribute, or removes it; `must`: it must have been there, or not.
    ///
    /// # Errors
    /// When it should (not) have been there, or is too long.
    pub fn set_attribute(
        &self,
        ino: u64,
        name: &[u8],
        value: Option<&[u8]>,
        must: Option<bool>,
    ) -> Result<()> {
        let now = self.now();
        self.change(|names, changes| names.set_attribute(ino, name, value, must, now, changes))
    }

    /// Takes set-user-id, set-group-id and capabilities from a file that somebody without the
    /// right to keep them writes to. Returns whether it had any.
    ///
    /// # Errors
    /// When there is no such inode.
    pub fn kill_ids(&self, ino: u64) -> Result<bool> {
        let names = self.read_names();
        let inode = names.get(ino)?;
        let mode = inode.attr.mode;
        if mode == without_ids(mode) && !inode.attributes.contains_key(CAPABILITY) {
            return Ok(false);
        }
        drop(names);
        let how = Setting {
            kill_ids: true,
            ..Setting::default()
        };
        self.setattr(ino, &how, None).map(|_| true)
    }

    /// Space of the file system: what fits into the directory with the least.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let kept = crate::array::lock(&self.slots).kept() * self.array.slot_bytes as u64;
        let current = self.current();
        let space = self.array.space(current.over);
        // Each directory has one unit of as many rows as lie in it.
        let data = |bytes: u64| {
            let all = bytes.saturating_mul(current.over.count() as u64);
            all / current.width() as u64 * current.data as u64
        };
        Usage {
            total: data(space.total),
            free: data(space.free + kept),
            files: self.read_names().count(),
        }
    }
}

/// What the store keeps for itself among the extended attributes begins with this.
const INTERNAL: &[u8] = b"system.margay.";

/// The extended attribute that is a right like set-user-id.
const CAPABILITY: &[u8] = b"security.capability";
