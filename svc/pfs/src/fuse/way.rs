//! The mount's part in the direct way: who is let past the kernel, and what that must not keep.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{FileHandle, INodeNo, LockOwner, Notifier, OpenFlags, Request, WriteFlags};
use margay_fs_storage::direct::wire::{INVITATION, INVITES};

use super::{KEPT, Mounted};
use crate::direct::Direct;
use crate::near::Near;

/// The flag of an open file that is written at its end.
const AT_END: i32 = 0o2000;

/// What lets programs past the kernel, and what lets the kernel forget what it knows.
pub struct Way {
    pub direct: Arc<Direct>,
    notifier: Arc<OnceLock<Notifier>>,
}

impl Mounted {
    /// The same with a direct way for programs; `notifier` is set before the first request.
    pub fn with_direct(
        self,
        direct: Arc<Direct>,
        near: Arc<Near>,
        notifier: Arc<OnceLock<Notifier>>,
    ) -> Mounted {
        Mounted {
            near,
            direct: Some(Way { direct, notifier }),
            ..self
        }
    }

    /// How long the kernel may keep name and attributes of a file.
    pub(super) fn kept(&self, ino: u64) -> Duration {
        match self.shared.is_some() || self.is_direct(ino) {
            true => Duration::ZERO,
            false => KEPT,
        }
    }

    /// Whether a file may be written past this kernel.
    pub(super) fn is_direct(&self, ino: u64) -> bool {
        let way = self.direct.as_ref();
        way.is_some_and(|way| way.direct.is_used(ino))
    }

    /// The handle of a file that the kernel opens.
    pub(super) fn handle(&self, ino: u64, flags: i32) -> FileHandle {
        FileHandle(match &self.direct {
            Some(way) => way.direct.opened(ino, flags),
            None => self.handles.opened(),
        })
    }

    /// Whether an open file was written since this was asked last, on any way.
    pub(super) fn take_written(&self, handle: u64) -> bool {
        let way = self.direct.as_ref();
        let is_directly = way.is_some_and(|way| way.direct.take_written(handle));
        self.handles.take_written(handle) || is_directly
    }

    /// Notes that it has closed one.
    pub(super) fn closed(&self, ino: INodeNo, handle: FileHandle) {
        self.handles.take_written(handle.0);
        if let Some(way) = &self.direct {
            way.direct.closed(ino.0, handle.0);
        }
    }

    /// Notes that the kernel reads for its page cache, where no process is named as the owner.
    pub(super) fn will_keep(&self, ino: INodeNo, owner: Option<LockOwner>) {
        if let (Some(way), None) = (&self.direct, owner) {
            way.direct.cached(ino.0);
        }
    }

    /// Writes what the kernel has for an open file; returns how much.
    pub(super) fn put(
        &self,
        request: &Request,
        ino: u64,
        (offset, data): (u64, &[u8]),
        (write_flags, flags): (WriteFlags, OpenFlags),
    ) -> margay_fs_stripes::Result<usize> {
        // The kernel knows the end of the file as it was: another host, or a program past the
        // kernel, may have moved it. What was mapped has a place.
        let is_at_end = flags.0 & AT_END != 0
            && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE)
            && (self.shared.is_some() || self.is_direct(ino));
        let done = if is_at_end {
            self.store.append(ino, data)
        } else if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // Nobody asks what became of a part of what was mapped.
            let all = self.store.write_all(ino, offset, data);
            all.map(|()| data.len())
        } else {
            self.store.write(ino, offset, data)
        };
        if done.is_ok() && write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.lose_rights(request, ino)?;
        }
        done
    }

    /// Lets the kernel forget the attributes of a file.
    pub(super) fn forget_attributes(&self, ino: u64) {
        let notifier = self.direct.as_ref().and_then(|way| way.notifier.get());
        notifier.map(|notifier| notifier.inval_inode(INodeNo(ino), -1, 0));
    }

    /// What a program gets that asks, by a number and for some bytes, to be let in.
    pub(super) fn invite(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        asked: (u32, u32),
    ) -> Option<[u8; INVITATION]> {
        let is_asked = asked.0 as u16 == INVITES && asked.1 as usize == INVITATION;
        let way = self.direct.as_ref().filter(|_| is_asked)?;
        let user = request.uid();
        let invitation = way.direct.invite(ino.0, handle.0, user, self.times)?;
        // An answer with attributes that is on its way to the kernel is old by then.
        way.notifier.get()?.inval_inode(ino, -1, 0).ok()?;
        Some(invitation)
    }
}
