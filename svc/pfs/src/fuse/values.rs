//! What the store and the kernel call the same things: errors, times, attributes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use margay_fs_stripes::{Allocating, Attr, Fault, Known, kind};

/// Which reads are noted in the time of the last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTimes {
    /// Those after a change, and one a day.
    Relative,
    Always,
    Never,
}

impl AccessTimes {
    /// By its name among the options.
    pub fn named(name: &str) -> Option<AccessTimes> {
        match name {
            "relative" => Some(AccessTimes::Relative),
            "always" => Some(AccessTimes::Always),
            "never" => Some(AccessTimes::Never),
            _ => None,
        }
    }
}

pub fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::Missing => Errno::ENOENT,
        Fault::Exists => Errno::EEXIST,
        Fault::NoFolder => Errno::ENOTDIR,
        Fault::Folder => Errno::EISDIR,
        Fault::NotEmpty => Errno::ENOTEMPTY,
        Fault::Refused => Errno::EPERM,
        Fault::Invalid => Errno::EINVAL,
        Fault::LongName => Errno::ENAMETOOLONG,
        Fault::TooLarge => Errno::EFBIG,
        Fault::TooManyLinks => Errno::EMLINK,
        Fault::NoAttribute => Errno::NO_XATTR,
        Fault::NoData => Errno::ENXIO,
        Fault::NoSpace => Errno::ENOSPC,
        Fault::OverQuota => Errno::EDQUOT,
        Fault::Unsupported => Errno::EOPNOTSUPP,
        Fault::Broken => Errno::EIO,
    }
}

fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    let time = if nanoseconds < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn nanoseconds(time: SystemTime) -> i64 {
    let clamp = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => clamp(since),
        Err(before) => -clamp(before.duration()),
    }
}

/// The clock of the store.
pub fn now() -> i64 {
    nanoseconds(SystemTime::now())
}

pub fn chosen(time: Option<TimeOrNow>) -> Option<i64> {
    time.map(|time| match time {
        TimeOrNow::Now => now(),
        TimeOrNow::SpecificTime(time) => nanoseconds(time),
    })
}

pub fn file_type(mode: u32) -> FileType {
    match mode & kind::MASK {
        kind::FOLDER => FileType::Directory,
        kind::LINK => FileType::Symlink,
        kind::FIFO => FileType::NamedPipe,
        kind::CHARACTER => FileType::CharDevice,
        kind::BLOCK => FileType::BlockDevice,
        kind::SOCKET => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

pub fn attr(known: &Known) -> FileAttr {
    let Attr {
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        atime,
        mtime,
        ctime,
    } = known.attr;
    FileAttr {
        ino: INodeNo(known.ino),
        size,
        blocks: known.blocks,
        atime: time(atime),
        mtime: time(mtime),
        ctime: time(ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(mode),
        perm: (mode & 0o7777) as u16,
        nlink,
        uid,
        gid,
        rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// What `fallocate` asks for by its flags, of Linux.
pub fn allocating(mode: i32) -> Option<Allocating> {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2;
    const ZERO_RANGE: i32 = 16;
    let grows = mode & KEEP_SIZE == 0;
    match mode & !KEEP_SIZE {
        0 => Some(Allocating::Space { grows }),
        PUNCH_HOLE if !grows => Some(Allocating::Zeros { grows }),
        ZERO_RANGE => Some(Allocating::Zeros { grows }),
        _ => None,
    }
}

/// Whether `lseek` looks for a hole or for data, of Linux.
pub fn is_hole(whence: i32) -> Option<bool> {
    match whence {
        3 => Some(false),
        4 => Some(true),
        _ => None,
    }
}
