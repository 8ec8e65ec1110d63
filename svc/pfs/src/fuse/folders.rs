//! Open directories: who lists one sees the entries that it had at the beginning. A name that is
//! given meanwhile comes last, so a program that renames what it lists would never be done.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{FileHandle, INodeNo, Request};
use margay_fs_stripes::{Entry, Fault};

use super::Mounted;
use crate::clients::Kind;
use crate::lock::lock;

/// Entries of a directory that are fetched at a time.
const ENTRIES: usize = 256;

/// The directories that are listed.
#[derive(Default)]
pub struct Folders {
    last: AtomicU64,
    /// By handle, the number of the last entry.
    ends: Mutex<HashMap<u64, u64>>,
}

impl Folders {
    /// The handle of a directory that is opened.
    pub fn opened(&self) -> u64 {
        self.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn closed(&self, handle: u64) {
        lock(&self.ends).remove(&handle);
    }

    /// The number of the last entry that a listing shows which is at `offset`; `last`: that of the
    /// directory now.
    pub fn end(&self, handle: u64, offset: u64, last: impl FnOnce() -> u64) -> u64 {
        if offset == 0 {
            let last = last();
            lock(&self.ends).insert(handle, last);
            return last;
        }
        lock(&self.ends).get(&handle).copied().unwrap_or(u64::MAX)
    }
}

impl Mounted {
    /// Gives the entries of a directory behind `offset` to `add`, until that says that the reply is
    /// full.
    pub(super) fn list(
        &self,
        request: &Request,
        (ino, handle): (INodeNo, FileHandle),
        offset: u64,
        mut add: impl FnMut(&Entry) -> bool,
    ) -> Result<(), Fault> {
        self.count(request, Kind::Other);
        let newest = || self.store.last_entry(ino.0);
        let end = self.folders.end(handle.0, offset, newest);
        if offset == 0 {
            self.accessed(ino.0);
        }
        let mut after = offset;
        loop {
            let entries = self.store.list(ino.0, after, ENTRIES)?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            after = last.next;
            if entries.iter().any(|entry| entry.next > end || add(entry)) {
                return Ok(());
            }
        }
    }
}
