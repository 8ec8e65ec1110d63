//! The store as the kernel's file system: requests of FUSE become calls of the store.
//!
//! The kernel checks permissions (`default_permissions`) and keeps locks; data is never kept in its
//! page cache, except for what a program maps.

mod attributes;
mod folders;
mod handles;
mod pins;
mod values;
mod way;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use margay_fs_stripes::{Fault, Known, Making, Renaming, Setting, Store, kind};

use crate::clients::{Clients, Kind};
use crate::near::Near;
use attributes::{bytes, is_foreign};
use folders::Folders;
use handles::Handles;
use pins::Pins;
pub use values::errno;
pub use values::{AccessTimes, now};
use values::{allocating, attr, chosen, file_type, is_hole};
use way::Way;

/// The extended attribute that says how files are spread: bytes of a unit and units of a row.
/// MPI-IO asks for it.
pub const LAYOUT: &str = "system.margay.layout";

/// How long the kernel may keep names and attributes where there is one mount, because nobody else
/// changes them.
const KEPT: Duration = Duration::from_secs(1);

/// Longest request.
const MOST_BYTES: u32 = 1 << 20;

/// Buffers that are kept for reads.
const BUFFERS: usize = 16;

/// Unit of free space in `statfs`.
const SPACE_UNIT: u64 = 4096;

/// A mounted store.
pub struct Mounted {
    store: Arc<Store>,
    buffers: Mutex<Vec<Vec<u8>>>,
    folders: Folders,
    times: AccessTimes,
    clients: Arc<Clients>,
    near: Arc<Near>,
    /// How programs get past the kernel, where they may.
    direct: Option<Way>,
    /// Where this is one mount of several.
    shared: Option<Shared>,
    handles: Handles,
}

/// One mount of several, which other hosts have.
struct Shared {
    host: Arc<str>,
    most_bytes: u32,
    pins: Pins,
}

impl Mounted {
    pub fn new(store: Arc<Store>, times: AccessTimes, clients: Arc<Clients>) -> Mounted {
        Mounted {
            store,
            buffers: Mutex::default(),
            folders: Folders::default(),
            times,
            clients,
            near: Arc::default(),
            direct: None,
            shared: None,
            handles: Handles::default(),
        }
    }

    /// The same as one mount of several, on `host`: the kernel keeps nothing, as others change
    /// names and files, and asks for at most `most_bytes` at a time.
    pub fn shared(self, host: &str, most_bytes: u32) -> Mounted {
        Mounted {
            shared: Some(Shared {
                host: host.into(),
                most_bytes,
                pins: Pins::default(),
            }),
            ..self
        }
    }

    /// Notes that the kernel refers to an inode.
    fn pin(&self, ino: u64) {
        if let Some(shared) = &self.shared {
            shared.pins.add(ino);
        }
    }

    fn entry(&self, done: margay_fs_stripes::Result<Known>, reply: ReplyEntry) {
        match done {
            Ok(known) => {
                self.pin(known.ino);
                reply.entry(&self.kept(known.ino), &attr(&known), Generation(0));
            }
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn count(&self, request: &Request, kind: Kind) {
        // The process of another host's kernel is none of this one's.
        if self.shared.is_none() {
            self.near.serves(request.pid(), kind.is_small());
        }
        let host = self.shared.as_ref().map(|shared| &shared.host);
        self.clients.count(host, request.uid(), request.pid(), kind);
    }

    fn accessed(&self, ino: u64) {
        if self.times != AccessTimes::Never {
            self.store.accessed(ino, self.times == AccessTimes::Always);
        }
    }
}

fn empty(done: margay_fs_stripes::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(fault) => reply.error(errno(fault)),
    }
}

/// Data goes past the page cache, and the store decides which writes come one after the other.
const OPENED: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// The flag of an open file whose reads are not noted, of Linux.
const NO_ACCESS_TIME: i32 = 0o1_000_000;

/// The flag of an open file that must be new.
const EXCLUSIVE: i32 = 0o200;

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_EXPORT_SUPPORT,
        ];
        let of_several = match self.shared {
            // Locks are those of all hosts.
            Some(_) => InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS,
            None => InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
        };
        for flag in wanted.into_iter().chain(of_several.iter()) {
            // An older kernel does without.
            let _ = config.add_capabilities(flag);
        }
        let most = self.shared.as_ref().map_or(MOST_BYTES, |s| s.most_bytes);
        let _ = config.set_max_write(most);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        if let Some(way) = &self.direct {
            way.direct.close_all();
        }
        match &self.shared {
            None => self.store.forget_all(),
            Some(shared) => {
                for (ino, count) in shared.pins.take() {
                    self.store.forget(ino, count);
                }
            }
        }
        // What cannot be written is reported by the service's timer.
        let _ = self.store.sync();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(request, Kind::Other);
        self.entry(self.store.lookup(parent.0, name.as_bytes()), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        if let Some(shared) = &self.shared {
            shared.pins.remove(ino.0, count);
        }
        self.store.forget(ino.0, count);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.count(request, Kind::Other);
        match self.store.getattr(ino.0) {
            Ok(known) => reply.attr(&self.kept(ino.0), &attr(&known)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.count(request, Kind::Other);
        let is_file = self
            .store
            .getattr(ino.0)
            .is_ok_and(|known| known.attr.mode & kind::MASK != kind::FOLDER);
        let by_owner = uid.is_some() || gid.is_some();
        let how = Setting {
            mode,
            uid,
            gid,
            atime: chosen(atime),
            mtime: chosen(mtime),
            // A new mode says itself what it keeps.
            kill_ids: is_file
                && mode.is_none()
                && (by_owner || (size.is_some() && request.uid() != 0)),
            now: 0,
        };
        match self.store.setattr(ino.0, &how, size) {
            Ok(known) => reply.attr(&self.kept(ino.0), &attr(&known)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.store.readlink(ino.0) {
            Ok(target) => {
                self.accessed(ino.0);
                reply.data(&target);
            }
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let how = Making {
            mode,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            rdev,
            ..Making::default()
        };
        self.entry(self.store.make(parent.0, name.as_bytes(), &how), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.count(request, Kind::Other);
        let how = Making {
            mode: (mode & 0o7777) | kind::FOLDER,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            ..Making::default()
        };
        self.entry(self.store.make(parent.0, name.as_bytes(), &how), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(request, Kind::Other);
        empty(self.store.unlink(parent.0, name.as_bytes(), false), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.count(request, Kind::Other);
        empty(self.store.unlink(parent.0, name.as_bytes(), true), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.count(request, Kind::Other);
        let how = Making {
            mode: kind::LINK | 0o777,
            uid: request.uid(),
            gid: request.gid(),
            target: target.as_os_str().as_bytes().to_vec(),
            ..Making::default()
        };
        self.entry(self.store.make(parent.0, name.as_bytes(), &how), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.count(request, Kind::Other);
        let how = if flags.is_empty() {
            Renaming::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Renaming::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Renaming::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let from = (parent.0, name.as_bytes());
        let to = (to_parent.0, to_name.as_bytes());
        empty(self.store.rename(from, to, how), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, to: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.store.link(ino.0, to.0, name.as_bytes()), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(self.handle(ino.0, flags.0), OPENED);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.closed(ino, handle);
        reply.ok();
    }

    /// A program asks to be let past the kernel.
    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        number: u32,
        _: &[u8],
        size: u32,
        reply: ReplyIoctl,
    ) {
        match self.invite(request, ino, handle, (number, size)) {
            Some(bytes) => reply.ioctl(0, &bytes),
            None => reply.error(Errno::ENOTTY),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(request, Kind::Read(size as usize));
        self.will_keep(ino, owner);
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = buffers().pop().unwrap_or_default();
        let len = size as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        match self.store.read(ino.0, offset, &mut buffer[..len]) {
            Ok(len) => {
                if len > 0 && flags.0 & NO_ACCESS_TIME == 0 {
                    self.accessed(ino.0);
                }
                reply.data(&buffer[..len]);
            }
            Err(fault) => reply.error(errno(fault)),
        }
        let mut all = buffers();
        if all.len() < BUFFERS {
            all.push(buffer);
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.count(request, Kind::Write(data.len()));
        self.handles.has_written(handle.0);
        let done = self.put(request, ino.0, (offset, data), (write_flags, flags));
        match done {
            Ok(len) => reply.written(len as u32),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    /// At each close: what waits is written, so that a full disk is reported to who has written.
    fn flush(&self, _: &Request, ino: INodeNo, h: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let done = match self.take_written(h.0) {
            true => self.store.write_out(ino.0),
            false => Ok(()),
        };
        empty(done, reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.store.sync_file(ino.0), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(how) = allocating(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        let mut done = self.store.allocate(ino.0, offset, length, how);
        if done.is_ok() && request.uid() != 0 {
            done = self.lose_rights(request, ino.0);
        }
        empty(done, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Some(is_hole) = is_hole(whence) else {
            return reply.error(Errno::EINVAL);
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match self.store.seek(ino.0, offset, is_hole) {
            Ok(at) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = FileHandle(self.folders.opened());
        reply.opened(handle, FopenFlags::empty());
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders.closed(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.store.commit(), reply);
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(request, (ino, handle), offset, |entry| {
            let (kind, name) = (file_type(entry.kind), OsStr::from_bytes(&entry.name));
            reply.add(INodeNo(entry.ino), entry.next, kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    /// Entries with what a program asks of each of them next.
    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(request, (ino, handle), offset, |entry| {
            // The kernel has the directory and the one above it already, and keeps no reference to
            // them.
            let is_dots = [&b"."[..], b".."].contains(&entry.name.as_slice());
            let known = if is_dots {
                self.store.getattr(entry.ino)
            } else {
                self.store.lookup(ino.0, &entry.name)
            };
            // One that was removed meanwhile is left out.
            let Ok(known) = known else { return false };
            let name = OsStr::from_bytes(&entry.name);
            let (ino, attr) = (INodeNo(known.ino), attr(&known));
            let kept = self.kept(known.ino);
            let is_full = reply.add(ino, entry.next, name, &kept, &attr, Generation(0));
            if is_full && !is_dots {
                self.store.forget(known.ino, 1);
            }
            is_full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(fault) => reply.error(errno(fault)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let usage = self.store.usage();
        let free = usage.free / SPACE_UNIT;
        reply.statfs(
            usage.total / SPACE_UNIT,
            free,
            free,
            usage.files + free,
            free,
            SPACE_UNIT as u32,
            255,
            SPACE_UNIT as u32,
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if name == LAYOUT {
            return empty(self.set_stripes(request.uid(), ino.0, value), reply);
        }
        if is_foreign(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        // XATTR_CREATE and XATTR_REPLACE of Linux.
        let must = match flags {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        };
        empty(
            self.put_attribute(request, ino.0, name, (value, must)),
            reply,
        );
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name == LAYOUT {
            let text = self.store.stripes(ino.0).map(|layout| {
                let text = format!("{} {}", layout.unit_bytes, layout.data);
                text.into_bytes()
            });
            return bytes(text, size, reply);
        }
        if is_foreign(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        bytes(self.store.attribute(ino.0, name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        bytes(self.store.attributes(ino.0), size, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if is_foreign(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let done = self
            .store
            .set_attribute(ino.0, name.as_bytes(), None, Some(true));
        empty(done, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.count(request, Kind::Other);
        let how = Making {
            mode: (mode & 0o7777) | kind::FILE,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            ..Making::default()
        };
        match self.store.make(parent.0, name.as_bytes(), &how) {
            Ok(known) => {
                self.pin(known.ino);
                let kept = self.kept(known.ino);
                let handle = self.handle(known.ino, flags);
                reply.created(&kept, &attr(&known), Generation(0), handle, OPENED);
            }
            // Another host has made it since the kernel looked: it looks again, and opens that one
            // as its permissions allow.
            Err(Fault::Exists) if self.shared.is_some() && flags & EXCLUSIVE == 0 => {
                reply.error(Errno::ESTALE);
            }
            Err(fault) => reply.error(errno(fault)),
        }
    }
}
