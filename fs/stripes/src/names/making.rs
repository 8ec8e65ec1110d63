//! Making files, directories, links and special files.

use super::{MOST_LINKS, MOST_TARGET, Making, Names, SETGID, check_name};
use crate::acl::{self, Acl};
use crate::change::{Attr, Change, kind};
use crate::fault::{Fault, Result};

impl Names {
    /// The group of a new file, which is that of its directory where that has set-group-id.
    pub fn group_of_new(&self, folder: u64, group: u32) -> Result<u32> {
        let parent = self.get(folder)?.attr;
        Ok(if parent.mode & SETGID != 0 {
            parent.gid
        } else {
            group
        })
    }

    /// Makes a file, directory, link or special file.
    pub fn make(
        &mut self,
        folder: u64,
        name: &[u8],
        how: &Making,
        out: &mut Vec<Change>,
    ) -> Result<u64> {
        check_name(name)?;
        let parent = self.get(folder)?.attr;
        if self.folder(folder)?.get(name).is_some() {
            return Err(Fault::Exists);
        }
        if parent.nlink == 0 {
            return Err(Fault::Missing);
        }
        let is_folder = how.mode & kind::MASK == kind::FOLDER;
        if is_folder && parent.nlink >= MOST_LINKS {
            return Err(Fault::TooManyLinks);
        }
        if how.target.len() > MOST_TARGET {
            return Err(Fault::LongName);
        }
        let default = match how.mode & kind::MASK {
            kind::LINK => None,
            _ => self.get(folder)?.attributes.get(acl::DEFAULT).cloned(),
        };
        let list = default.as_deref().and_then(Acl::decode);
        let list = list.map(|default| default.inherited(how.mode));
        let mut attr = Attr {
            mode: match &list {
                Some(list) => (how.mode & !0o777) | list.mode(),
                None => how.mode & !(how.umask & 0o777),
            },
            uid: how.uid,
            gid: self.group_of_new(folder, how.gid)?,
            nlink: if is_folder { 2 } else { 1 },
            rdev: how.rdev,
            size: 0,
            atime: how.now,
            mtime: how.now,
            ctime: how.now,
        };
        if parent.mode & SETGID != 0 && is_folder {
            attr.mode |= SETGID;
        }
        let ino = self.next_ino;
        self.record(Change::Inode(ino, attr, how.target.clone()), out);
        if let Some(list) = list.filter(|list| !list.is_plain()) {
            let list = Some(list.encode());
            self.record(Change::Attribute(ino, acl::ACCESS.to_vec(), list), out);
        }
        if is_folder && default.is_some() {
            self.record(Change::Attribute(ino, acl::DEFAULT.to_vec(), default), out);
        }
        if let Some(change) = self.layout_of_new(folder, ino, how.mode) {
            self.record(change, out);
        }
        self.record(Change::Entry(folder, name.to_vec(), ino), out);
        if is_folder {
            self.get_mut(folder)?.attr.nlink += 1;
        }
        self.touch(folder, how.now, true);
        self.record_attr(folder, out);
        Ok(ino)
    }
}
