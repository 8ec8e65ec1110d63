//! Extended attributes: the one that lays files out, and those that are the system's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, ReplyXattr};
use margay_fs_stripes::Fault;

use super::Mounted;
use super::values::errno;

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
}

/// Whether an extended attribute is one of the system's that is not known here.
pub fn is_foreign(name: &OsStr) -> bool {
    let lists = [&b"system.posix_acl_access"[..], b"system.posix_acl_default"];
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
