//! Names and attributes: the tree of directories in memory, and the changes that each operation
//! leaves for the log.
//!
//! Who may do what has been decided before: the kernel checks permissions (`default_permissions`).

mod layout;
mod making;
mod replay;

pub(crate) use layout::{ATTRIBUTE as STRIPES, encode as encode_stripes};
pub use layout::{shape, shape_of};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use margay_core_stripes::Layout;

use crate::acl::{self, Acl};
use crate::change::{Attr, Change, RowRef, kind};
use crate::fault::{Fault, Result};
use crate::file::FileData;

/// The inode of the top directory.
pub const ROOT: u64 = 1;

/// Longest name and longest target of a symbolic link, in bytes.
const MOST_NAME: usize = 255;
const MOST_TARGET: usize = 4095;

/// Most links to a file, and most subdirectories.
const MOST_LINKS: u32 = 1 << 20;

/// Most bytes of all extended attributes of an inode, names included. One may have 64 KiB.
const MOST_ATTRIBUTES: usize = 128 << 10;

const SETGID: u32 = 0o2000;
const SETIDS: u32 = 0o6000;

/// A file, directory, link or special file.
#[derive(Debug)]
pub struct Inode {
    pub attr: Attr,
    pub body: Body,
    /// Time of the last read; `attr` has it as it was.
    pub atime: AtomicI64,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// References of clients: an inode without names stays until they are gone.
    pub pins: AtomicU64,
}

/// What an inode holds.
#[derive(Debug)]
pub enum Body {
    File(Arc<FileData>),
    Folder(Folder),
    Link(Vec<u8>),
    Special,
}

/// The entries of a directory. Each has a number that never changes, by which a listing goes on
/// where it was, whatever was added or removed meanwhile.
#[derive(Debug, Default)]
pub struct Folder {
    pub parent: u64,
    entries: BTreeMap<Vec<u8>, (u64, u64)>,
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Folder {
    fn put(&mut self, name: Vec<u8>, ino: u64) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.0 = ino;
            return;
        }
        self.next += 1;
        self.order.insert(self.next, name.clone());
        self.entries.insert(name, (ino, self.next));
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let (ino, number) = self.entries.remove(name)?;
        self.order.remove(&number);
        Some(ino)
    }

    fn get(&self, name: &[u8]) -> Option<u64> {
        self.entries.get(name).map(|(ino, _)| *ino)
    }
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the listing goes on behind it.
    pub next: u64,
    pub ino: u64,
    /// Type of the file, of [`Attr::mode`].
    pub kind: u32,
    pub name: Vec<u8>,
}

/// Who makes a file, and how.
#[derive(Clone, Debug, Default)]
pub struct Making {
    pub mode: u32,
    /// Rights that the mode does not get, unless the directory has a default access control list.
    pub umask: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    pub now: i64,
}

/// What `setattr` changes, besides the size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<i64>,
    pub mtime: Option<i64>,
    /// The rights of set-user-id and set-group-id go, as at a write.
    pub kill_ids: bool,
    pub now: i64,
}

/// How a rename treats an entry of the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renaming {
    Replace,
    NoReplace,
    Exchange,
}

/// All inodes.
#[derive(Debug)]
pub struct Names {
    inodes: BTreeMap<u64, Inode>,
    pub next_ino: u64,
    pub next_generation: u64,
    /// How files are laid out of which the log says nothing, and how new ones are.
    pub base: Layout,
    pub current: Layout,
    /// Rows of files whose last change of that kind has not been seen yet.
    parts: BTreeMap<u64, Vec<(u64, RowRef)>>,
}

/// Refuses names that no directory can have.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MOST_NAME {
        return Err(Fault::LongName);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return Err(Fault::Invalid);
    }
    Ok(())
}

impl Names {
    /// No inodes.
    #[must_use]
    pub fn new(base: Layout, current: Layout) -> Names {
        Names {
            inodes: BTreeMap::new(),
            next_ino: ROOT + 1,
            next_generation: 1,
            base,
            current,
            parts: BTreeMap::new(),
        }
    }

    /// Makes the top directory of a new file system.
    pub fn make_root(&mut self, uid: u32, gid: u32, now: i64) {
        let attr = Attr {
            mode: kind::FOLDER | 0o755,
            uid,
            gid,
            nlink: 2,
            atime: now,
            mtime: now,
            ctime: now,
            ..Attr::default()
        };
        self.apply(Change::Inode(ROOT, attr, vec![]));
    }

    pub fn get(&self, ino: u64) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Fault::Missing)
    }

    fn get_mut(&mut self, ino: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Fault::Missing)
    }

    fn folder(&self, ino: u64) -> Result<&Folder> {
        match &self.get(ino)?.body {
            Body::Folder(folder) => Ok(folder),
            _ => Err(Fault::NoFolder),
        }
    }

    fn folder_mut(&mut self, ino: u64) -> Result<&mut Folder> {
        match &mut self.get_mut(ino)?.body {
            Body::Folder(folder) => Ok(folder),
            _ => Err(Fault::NoFolder),
        }
    }

    /// The contents of a file.
    pub fn file(&self, ino: u64) -> Result<Arc<FileData>> {
        match &self.get(ino)?.body {
            Body::File(data) => Ok(Arc::clone(data)),
            Body::Folder(_) => Err(Fault::Folder),
            _ => Err(Fault::Invalid),
        }
    }

    /// How many inodes there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Inodes above `after`, in order.
    pub fn after(&self, after: u64) -> impl Iterator<Item = (u64, &Inode)> {
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.inodes.range(range).map(|(ino, inode)| (*ino, inode))
    }

    /// The attributes as a client sees them.
    pub fn attr(&self, ino: u64) -> Result<Attr> {
        let inode = self.get(ino)?;
        let mut attr = inode.attr;
        attr.atime = inode.atime.load(Ordering::SeqCst);
        match &inode.body {
            Body::File(data) => {
                attr.size = data.size.load(Ordering::SeqCst);
                attr.mtime = data.mtime.load(Ordering::SeqCst);
                attr.ctime = attr.ctime.max(data.ctime.load(Ordering::SeqCst));
            }
            Body::Folder(folder) => attr.size = folder.entries.len() as u64,
            Body::Link(target) => attr.size = target.len() as u64,
            Body::Special => {}
        }
        Ok(attr)
    }

    /// The attributes as the log keeps them: with the size up to which rows are written.
    pub(crate) fn logged(&self, ino: u64) -> Result<Change> {
        let inode = self.get(ino)?;
        let mut attr = self.attr(ino)?;
        let mut target = Vec::new();
        match &inode.body {
            Body::File(data) => attr.size = data.logged_size.load(Ordering::SeqCst),
            Body::Link(to) => target.clone_from(to),
            _ => {}
        }
        Ok(Change::Inode(ino, attr, target))
    }

    /// Looks a name up.
    pub fn lookup(&self, folder: u64, name: &[u8]) -> Result<u64> {
        if name.len() > MOST_NAME {
            return Err(Fault::LongName);
        }
        if name == b"." {
            // Of a file as well: the kernel asks so for one that it knows by its number alone.
            return self.get(folder).map(|_| folder);
        }
        let entries = self.folder(folder)?;
        match name {
            b".." => Ok(entries.parent),
            _ => entries.get(name).ok_or(Fault::Missing),
        }
    }

    /// Entries of a directory behind `after`, at most `most`.
    pub fn list(&self, folder: u64, after: u64, most: usize) -> Result<Vec<Entry>> {
        let entries = self.folder(folder)?;
        // The numbers of the entries come behind those of `.` and `..`.
        let own = [
            (1, folder, b".".to_vec()),
            (2, entries.parent, b"..".to_vec()),
        ];
        let dots = own.into_iter().filter(|(next, ..)| *next > after);
        let rest = entries
            .order
            .range(after.saturating_sub(1).max(1)..)
            .map(|(number, name)| (number + 2, entries.entries[name].0, name.clone()));
        let rest = rest.filter(|(next, ..)| *next > after);
        Ok(dots
            .chain(rest)
            .take(most)
            .map(|(next, ino, name)| Entry {
                next,
                ino,
                kind: self
                    .inodes
                    .get(&ino)
                    .map_or(0, |i| i.attr.mode & kind::MASK),
                name,
            })
            .collect())
    }

    /// The number of the last entry, as [`Names::list`] shows it.
    pub fn last_entry(&self, folder: u64) -> u64 {
        let folder = self.folder(folder).ok();
        let last = folder.and_then(|folder| folder.order.keys().next_back().copied());
        last.map_or(2, |number| number + 2)
    }

    /// Does what a change says, and leaves it in `out`.
    fn record(&mut self, change: Change, out: &mut Vec<Change>) {
        self.apply(change.clone());
        out.push(change);
    }

    /// Leaves the attributes of an inode in `out`.
    fn record_attr(&self, ino: u64, out: &mut Vec<Change>) {
        if let Ok(change) = self.logged(ino) {
            out.push(change);
        }
    }

    fn touch(&mut self, ino: u64, now: i64, is_contents: bool) {
        if let Ok(inode) = self.get_mut(ino) {
            inode.attr.ctime = now;
            if is_contents {
                inode.attr.mtime = now;
            }
        }
    }

    /// Gives a file another name.
    pub fn link(
        &mut self,
        ino: u64,
        folder: u64,
        name: &[u8],
        now: i64,
        out: &mut Vec<Change>,
    ) -> Result<()> {
        check_name(name)?;
        let inode = self.get(ino)?;
        if matches!(inode.body, Body::Folder(_)) {
            return Err(Fault::Refused);
        }
        if inode.attr.nlink >= MOST_LINKS {
            return Err(Fault::TooManyLinks);
        }
        if inode.attr.nlink == 0 {
            return Err(Fault::Missing);
        }
        if self.folder(folder)?.get(name).is_some() {
            return Err(Fault::Exists);
        }
        if self.get(folder)?.attr.nlink == 0 {
            return Err(Fault::Missing);
        }
        self.record(Change::Entry(folder, name.to_vec(), ino), out);
        self.get_mut(ino)?.attr.nlink += 1;
        self.touch(ino, now, false);
        self.touch(folder, now, true);
        self.record_attr(ino, out);
        self.record_attr(folder, out);
        Ok(())
    }

    /// Removes a name: of a directory when `is_folder`, else of anything else. Returns the inode.
    pub fn unlink(
        &mut self,
        folder: u64,
        name: &[u8],
        is_folder: bool,
        now: i64,
        out: &mut Vec<Change>,
    ) -> Result<u64> {
        let ino = self.lookup(folder, name)?;
        if name == b"." || name == b".." {
            return Err(Fault::Invalid);
        }
        match (&self.get(ino)?.body, is_folder) {
            (Body::Folder(_), false) => return Err(Fault::Folder),
            (Body::Folder(inner), true) if !inner.entries.is_empty() => {
                return Err(Fault::NotEmpty);
            }
            (Body::Folder(_), true) => {}
            (_, true) => return Err(Fault::NoFolder),
            (_, false) => {}
        }
        self.record(Change::NoEntry(folder, name.to_vec()), out);
        self.drop_link(ino, now);
        if is_folder {
            self.get_mut(folder)?.attr.nlink -= 1;
        }
        self.touch(folder, now, true);
        self.record_attr(ino, out);
        self.record_attr(folder, out);
        Ok(ino)
    }

    /// One name less.
    fn drop_link(&mut self, ino: u64, now: i64) {
        if let Ok(inode) = self.get_mut(ino) {
            inode.attr.nlink = match inode.body {
                Body::Folder(_) => 0,
                _ => inode.attr.nlink.saturating_sub(1),
            };
            inode.attr.ctime = now;
        }
    }

    /// Whether `folder` is `ancestor` or below it.
    fn is_below(&self, mut folder: u64, ancestor: u64) -> bool {
        // Not more steps than inodes: a damaged log may have a circle.
        for _ in 0..=self.inodes.len() {
            match self.folder(folder) {
                _ if folder == ancestor => return true,
                Ok(here) if folder != ROOT => folder = here.parent,
                _ => return false,
            }
        }
        true
    }

    /// Renames an entry. Returns the inode that lost a name.
    pub fn rename(
        &mut self,
        (folder, name): (u64, &[u8]),
        (to_folder, to_name): (u64, &[u8]),
        how: Renaming,
        now: i64,
        out: &mut Vec<Change>,
    ) -> Result<Option<u64>> {
        check_name(name)?;
        check_name(to_name)?;
        let ino = self.lookup(folder, name)?;
        let is_folder = matches!(self.get(ino)?.body, Body::Folder(_));
        let there = self.folder(to_folder)?.get(to_name);
        if self.get(to_folder)?.attr.nlink == 0 {
            return Err(Fault::Missing);
        }
        if is_folder && self.is_below(to_folder, ino) {
            return Err(Fault::Invalid);
        }
        if how == Renaming::Exchange {
            let other = there.ok_or(Fault::Missing)?;
            self.exchange((folder, name, ino), (to_folder, to_name, other), now, out)?;
            return Ok(None);
        }
        let mut lost = None;
        if let Some(other) = there {
            if how == Renaming::NoReplace {
                return Err(Fault::Exists);
            }
            if other == ino {
                return Ok(None);
            }
            match (&self.get(other)?.body, is_folder) {
                (Body::Folder(inner), true) if !inner.entries.is_empty() => {
                    return Err(Fault::NotEmpty);
                }
                (Body::Folder(_), false) => return Err(Fault::Folder),
                (Body::Folder(_), true) => self.get_mut(to_folder)?.attr.nlink -= 1,
                (_, true) => return Err(Fault::NoFolder),
                (_, false) => {}
            }
            self.drop_link(other, now);
            lost = Some(other);
        }
        self.record(Change::NoEntry(folder, name.to_vec()), out);
        self.record(Change::Entry(to_folder, to_name.to_vec(), ino), out);
        if is_folder && folder != to_folder {
            self.get_mut(folder)?.attr.nlink -= 1;
            self.get_mut(to_folder)?.attr.nlink += 1;
        }
        for (of, is_contents) in [(ino, false), (folder, true), (to_folder, true)] {
            self.touch(of, now, is_contents);
            self.record_attr(of, out);
        }
        if let Some(other) = lost {
            self.record_attr(other, out);
        }
        Ok(lost)
    }

    fn exchange(
        &mut self,
        (folder, name, ino): (u64, &[u8], u64),
        (to_folder, to_name, other): (u64, &[u8], u64),
        now: i64,
        out: &mut Vec<Change>,
    ) -> Result<()> {
        let is_folder = |names: &Names, ino| names.folder(ino).is_ok();
        if is_folder(self, other) && self.is_below(folder, other) {
            return Err(Fault::Invalid);
        }
        let (first, second) = (is_folder(self, ino), is_folder(self, other));
        self.record(Change::Entry(folder, name.to_vec(), other), out);
        self.record(Change::Entry(to_folder, to_name.to_vec(), ino), out);
        if folder != to_folder && first != second {
            let (less, more) = if first {
                (folder, to_folder)
            } else {
                (to_folder, folder)
            };
            self.get_mut(less)?.attr.nlink -= 1;
            self.get_mut(more)?.attr.nlink += 1;
        }
        for (of, is_contents) in [
            (ino, false),
            (other, false),
            (folder, true),
            (to_folder, true),
        ] {
            self.touch(of, now, is_contents);
            self.record_attr(of, out);
        }
        Ok(())
    }

    /// Lets the access control list of a file follow its mode.
    fn follow_mode(&mut self, ino: u64, out: &mut Vec<Change>) -> Result<()> {
        let inode = self.get(ino)?;
        let list = inode.attributes.get(acl::ACCESS);
        if let Some(list) = list.and_then(|bytes| Acl::decode(bytes)) {
            let list = Some(list.with_mode(inode.attr.mode).encode());
            self.record(Change::Attribute(ino, acl::ACCESS.to_vec(), list), out);
        }
        Ok(())
    }

    /// Changes attributes.
    pub fn set(&mut self, ino: u64, how: &Setting, out: &mut Vec<Change>) -> Result<()> {
        let inode = self.get_mut(ino)?;
        let attr = &mut inode.attr;
        if let Some(mode) = how.mode {
            attr.mode = (attr.mode & kind::MASK) | (mode & 0o7777);
        }
        attr.uid = how.uid.unwrap_or(attr.uid);
        attr.gid = how.gid.unwrap_or(attr.gid);
        if how.kill_ids {
            attr.mode = without_ids(attr.mode);
        }
        if let Some(atime) = how.atime {
            inode.atime.store(atime, Ordering::SeqCst);
        }
        attr.mtime = how.mtime.unwrap_or(attr.mtime);
        attr.ctime = how.now;
        if let (Body::File(data), Some(mtime)) = (&inode.body, how.mtime) {
            data.mtime.store(mtime, Ordering::SeqCst);
        }
        if how.mode.is_some() {
            self.follow_mode(ino, out)?;
        }
        self.record_attr(ino, out);
        Ok(())
    }

    /// Sets or removes an extended attribute. The mode of a file follows its access control list.
    pub fn set_attribute(
        &mut self,
        ino: u64,
        name: &[u8],
        value: Option<&[u8]>,
        must: Option<bool>,
        now: i64,
        out: &mut Vec<Change>,
    ) -> Result<()> {
        let inode = self.get(ino)?;
        let is_there = inode.attributes.contains_key(name);
        match must {
            Some(true) if !is_there => return Err(Fault::NoAttribute),
            Some(false) if is_there => return Err(Fault::Exists),
            _ => {}
        }
        if name.len() > MOST_NAME {
            return Err(Fault::LongName);
        }
        let others = inode.attributes.iter().filter(|(n, _)| *n != name);
        let bytes: usize = others.map(|(n, v)| n.len() + v.len()).sum();
        if bytes + name.len() + value.map_or(0, <[u8]>::len) > MOST_ATTRIBUTES {
            return Err(Fault::NoSpace);
        }
        let mut value = value;
        if let Some(bytes) = value.filter(|_| [acl::ACCESS, acl::DEFAULT].contains(&name)) {
            let list = Acl::decode(bytes).ok_or(Fault::Invalid)?;
            if name == acl::ACCESS {
                let attr = &mut self.get_mut(ino)?.attr;
                attr.mode = (attr.mode & !0o777) | list.mode();
                value = value.filter(|_| !list.is_plain());
            }
        }
        self.record(
            Change::Attribute(ino, name.to_vec(), value.map(<[u8]>::to_vec)),
            out,
        );
        self.touch(ino, now, false);
        self.record_attr(ino, out);
        Ok(())
    }

    /// Whether nothing refers to an inode any more.
    #[must_use]
    pub fn is_orphan(&self, ino: u64) -> bool {
        self.get(ino)
            .is_ok_and(|inode| inode.attr.nlink == 0 && inode.pins.load(Ordering::SeqCst) == 0)
    }

    /// Forgets an orphan; returns its contents if it is a file.
    pub fn remove(&mut self, ino: u64, out: &mut Vec<Change>) -> Option<Arc<FileData>> {
        let data = self.file(ino).ok();
        self.record(Change::Gone(ino), out);
        data
    }

    /// Inodes without names, with or without references to them.
    #[must_use]
    pub fn orphans(&self) -> Vec<u64> {
        let orphans = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.attr.nlink == 0);
        orphans.map(|(ino, _)| *ino).collect()
    }
}

/// A mode without set-user-id, and without set-group-id where that means execution.
pub fn without_ids(mode: u32) -> u32 {
    if mode & 0o010 != 0 {
        mode & !SETIDS
    } else {
        mode & !0o4000
    }
}

/// Locks the rows of a file, whatever happened to a thread that held the lock.
pub(crate) fn write(data: &FileData) -> std::sync::RwLockWriteGuard<'_, crate::file::Rows> {
    data.rows
        .write()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The same for reading.
pub(crate) fn read(data: &FileData) -> std::sync::RwLockReadGuard<'_, crate::file::Rows> {
    data.rows
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
