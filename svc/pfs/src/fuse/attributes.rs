//! Extended attributes: the one that lays files out, and those that are the system's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, ReplyXattr, Request};
use margay_fs_stripes::{Fault, Setting};

use super::Mounted;
use super::values::errno;

/// The access control list of a file.
const ACCESS: &[u8] = b"system.posix_acl_access";

/// Set-group-id in a mode.
const SET_GROUP: u32 = 0o2000;

impl Mounted {
    /// Lays out an empty file, or new files in a directory, for its owner: bytes of a unit and
    /// units in a row, 0 for what the file system has. The kernel does not look at who sets an
    /// attribute of the system.
    pub(super) fn set_stripes(
        &self,
        user: u32,
        ino: u64,
        value: &[u8],
    ) -> margay_fs_stripes::Result<()> {
        let owner = self.store.getattr(ino)?.attr.uid;
        if user != owner && user != 0 {
            return Err(Fault::Refused);
        }
        let text = std::str::from_utf8(value).ok();
        let numbers = text.and_then(|text| text.split_once(' '));
        let number = |text: &str| text.parse::<usize>().ok();
        let numbers = numbers.and_then(|(unit, data)| number(unit).zip(number(data)));
        let (unit, data) = numbers.ok_or(Fault::Invalid)?;
        let said = |number| Some(number).filter(|number| *number > 0);
        self.store.set_stripes(ino, said(unit), said(data))
    }

    /// Sets an extended attribute. Who changes the permissions of a file by an access control list
    /// and is not in its group takes its set-group-id, as `chmod` does: the kernel leaves that to
    /// the file system.
    pub(super) fn put_attribute(
        &self,
        request: &Request,
        ino: u64,
        name: &OsStr,
        (value, must): (&[u8], Option<bool>),
    ) -> margay_fs_stripes::Result<()> {
        let name = name.as_bytes();
        self.store.set_attribute(ino, name, Some(value), must)?;
        if name == ACCESS && request.uid() != 0 {
            self.lose_group(request, ino)?;
        }
        Ok(())
    }

    /// Takes set-user-id and set-group-id from a file that somebody writes to who may not keep
    /// them.
    pub(super) fn lose_rights(&self, request: &Request, ino: u64) -> margay_fs_stripes::Result<()> {
        if self.store.kill_ids(ino)? | self.lose_group(request, ino)? {
            // The kernel keeps the mode that it knows.
            self.forget_attributes(ino);
        }
        Ok(())
    }

    /// Takes set-group-id, unless who asks is in the group. Returns whether it was there.
    fn lose_group(&self, request: &Request, ino: u64) -> margay_fs_stripes::Result<bool> {
        let attr = self.store.getattr(ino)?.attr;
        if attr.mode & SET_GROUP == 0 {
            return Ok(false);
        }
        // Processes of other hosts are none of this one's.
        let process = self.shared.is_none().then(|| request.pid());
        if request.gid() == attr.gid || process.is_some_and(|pid| is_in_group(pid, attr.gid)) {
            return Ok(false);
        }
        let how = Setting {
            mode: Some(attr.mode & !SET_GROUP),
            ..Setting::default()
        };
        self.store.setattr(ino, &how, None).map(|_| true)
    }
}

/// Whether a process has a group besides its first one; not where nobody says so.
fn is_in_group(process: u32, group: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let mut groups = groups.unwrap_or_default().split_whitespace();
    groups.any(|number| number.parse() == Ok(group))
}

/// Whether an extended attribute is one of the system's that is not known here.
pub fn is_foreign(name: &OsStr) -> bool {
    let lists = [ACCESS, b"system.posix_acl_default"];
    name.as_bytes().starts_with(b"system.") && !lists.contains(&name.as_bytes())
}

/// Answers with bytes, or with how many there are.
pub fn bytes(found: margay_fs_stripes::Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match found {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(fault) => reply.error(errno(fault)),
    }
}
