//! The metadata log: a snapshot, and behind it the changes since then, in frames. The same bytes
//! lie in one more directory than may fail. A log is valid when its snapshot is whole; of several
//! valid ones the highest number decides, then the most frames.

use std::io::{self, IoSlice};

use crate::array::Array;
use crate::change::Change;
use crate::codec::{Reader, Writer};
use crate::disk::{Disk, Part, read_exact};
use crate::fault::{Fault, Result, is_full};

const MAGIC: u32 = u32::from_le_bytes(*b"MPFL");

/// Bytes before the contents of a frame.
pub const HEAD: usize = 32;

/// Longest contents of a frame.
pub const MOST_FRAME: usize = 64 << 20;

/// Space is taken in steps of this, for the log and for the one after it: so a full directory still
/// lets changes be logged by which files are deleted, and a new log be written at the next start.
const STEP: u64 = 4 << 20;

/// A log's file that has this many steps more than it needs is cut.
const MOST_SPARE: u64 = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the snapshot.
    Snapshot,
    /// The last part of the snapshot.
    SnapshotEnd,
    /// Changes since then.
    Changes,
}

/// A log that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scan {
    /// The snapshot is whole.
    pub is_valid: bool,
    /// The number of the log.
    pub number: u64,
    /// Frames that are whole.
    pub frames: u64,
    /// Bytes of them.
    pub end: u64,
}

/// The bytes of a frame's head, whose checksum goes on from that of the frame before it.
fn head(number: u64, (frame, before): (u64, u32), kind: Kind, contents: &[u8]) -> [u8; HEAD] {
    let mut out = Writer::default();
    out.u32(MAGIC);
    out.u32(contents.len() as u32);
    out.u64(number);
    out.u64(frame);
    out.u32(match kind {
        Kind::Snapshot => 0,
        Kind::SnapshotEnd => 1,
        Kind::Changes => 2,
    });
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(before, &out.0), contents);
    out.u32(crc);
    out.0.try_into().expect("the head has its length")
}

/// The checksum in a frame's head.
fn checksum(head: &[u8; HEAD]) -> u32 {
    Reader(&head[HEAD - 4..]).u32().unwrap_or(0)
}

/// Reads the frames of a log in order, as far as they are whole.
///
/// # Errors
/// What the system says.
pub fn scan(
    disk: &dyn Disk,
    part: Part,
    mut see: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Scan> {
    let mut found = Scan {
        is_valid: false,
        number: 0,
        frames: 0,
        end: 0,
    };
    let len = disk.len(part)?;
    let mut bytes = [0; HEAD];
    let mut before = 0;
    while found.end + HEAD as u64 <= len {
        read_exact(disk, part, found.end, &mut bytes)?;
        let mut head = Reader(&bytes);
        let magic = head.u32();
        let size = head.u32().unwrap_or(0) as usize;
        let (number, frame) = (head.u64().unwrap_or(0), head.u64().unwrap_or(0));
        let kind = head.u32();
        let is_next = found.frames == frame && (frame == 0 || number == found.number);
        let end = found.end + (HEAD + size) as u64;
        if magic != Some(MAGIC) || !is_next || size > MOST_FRAME || end > len {
            break;
        }
        let mut contents = vec![0; size];
        read_exact(disk, part, found.end + HEAD as u64, &mut contents)?;
        let sum = crc32c::crc32c_append(before, &bytes[..HEAD - 4]);
        let sum = crc32c::crc32c_append(sum, &contents);
        if checksum(&bytes) != sum {
            break;
        }
        before = sum;
        see(&contents)?;
        found.number = number;
        found.frames += 1;
        found.end = end;
        found.is_valid |= kind == Some(1);
    }
    Ok(found)
}

/// Reads the changes of a log.
///
/// # Errors
/// What the system says, and where the log has a change that is none, as of a newer version.
pub fn replay(disk: &dyn Disk, part: Part, mut apply: impl FnMut(Change)) -> io::Result<Scan> {
    scan(disk, part, |contents| {
        let mut reader = Reader(contents);
        while !reader.is_empty() {
            let change = Change::decode(&mut reader).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the log has a change that this version does not know",
                )
            })?;
            apply(change);
        }
        Ok(())
    })
}

/// Cuts changes into the contents of frames. They are one unless far too many wait.
#[must_use]
pub fn split(changes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = changes;
    while rest.len() > MOST_FRAME / 2 {
        let mut reader = Reader(rest);
        while rest.len() - reader.0.len() < MOST_FRAME / 4 {
            if Change::decode(&mut reader).is_none() {
                break;
            }
        }
        let (frame, tail) = rest.split_at(rest.len() - reader.0.len());
        frames.push(frame);
        rest = tail;
    }
    if !rest.is_empty() {
        frames.push(rest);
    }
    frames
}

/// The log in force.
#[derive(Debug)]
pub struct Log {
    number: u64,
    frames: u64,
    end: u64,
    /// Checksum of the last frame.
    last: u32,
    /// Bytes of the snapshot.
    base: u64,
    reserved: u64,
    holders: Vec<usize>,
}

impl Log {
    /// Stands for the log before the first one that is written.
    #[must_use]
    pub fn none(number: u64) -> Log {
        Log {
            number,
            frames: 0,
            end: 0,
            last: 0,
            base: 0,
            reserved: 0,
            holders: Vec::new(),
        }
    }

    /// Where a log number lies.
    #[must_use]
    pub fn part(number: u64) -> Part {
        Part::Log((number % 2) as usize)
    }

    /// Writes a new log with a snapshot, synced.
    ///
    /// # Errors
    /// When there is no space, or too few directories are left.
    pub fn write(array: &Array, number: u64, snapshot: &[Vec<u8>]) -> Result<Log> {
        let part = Log::part(number);
        let state = array.state();
        let good = |n: &usize| state.members[*n].health == crate::state::Health::Good;
        // Directories that are being removed come last.
        let stays = |n: &usize| state.current.over.has(*n);
        let mut candidates: Vec<usize> = array.all().collect();
        candidates.sort_by_key(|n| (!stays(n), !good(n)));
        let needed = array.parity.min(array.used().saturating_sub(1)) + 1;
        let mut log = Log::none(number);
        for n in candidates {
            if log.holders.len() == needed {
                break;
            }
            let Some(disk) = array.disk(n) else {
                continue;
            };
            match write_snapshot(&*disk, part, number, snapshot) {
                Ok((end, last)) => {
                    log.holders.push(n);
                    (log.end, log.last) = (end, last);
                }
                Err(error) if is_full(&error) => {
                    log.withdraw(array);
                    return Err(Fault::NoSpace);
                }
                Err(error) => array.fail(n, &format!("the log cannot be written: {error}")),
            }
        }
        if log.holders.is_empty() {
            return Err(Fault::Broken);
        }
        log.frames = snapshot.len() as u64;
        log.base = log.end;
        log.reserve(array, log.end);
        Ok(log)
    }

    /// Takes back a log that one directory had no space for, where it is whole: it has a higher
    /// number than the log that stays in force, and would be taken for that one at the next start.
    fn withdraw(&self, array: &Array) {
        let part = Log::part(self.number);
        array.each(&self.holders, |disk| {
            let space = disk.len(part)?;
            disk.cut(part, 0)?;
            disk.sync(part)?;
            // For the next attempt, if nobody else has taken it.
            let _ = disk.reserve(part, 0, space);
            Ok(())
        });
    }

    /// Cuts an older log, in all directories but those of this one, where the next log finds its
    /// space.
    pub fn cut_older(&self, array: &Array, old: Part) {
        if Log::part(self.number) == old {
            return;
        }
        for n in array.all().filter(|n| !self.is_in(*n)) {
            if let Some(disk) = array.disk(n) {
                // It has a lower number; only its space matters.
                let _ = disk.cut(old, 0);
            }
        }
    }

    /// Whether this directory has it.
    #[must_use]
    pub fn is_in(&self, n: usize) -> bool {
        self.holders.contains(&n)
    }

    /// The number of this log.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the changes outweigh the snapshot by far.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.end > 2 * self.base + (16 << 20)
    }

    /// Takes a failed attempt to replace the log for a reason to wait.
    pub fn put_off(&mut self) {
        self.base = self.end;
    }

    /// Whether every directory that has it is still used.
    #[must_use]
    pub fn is_held(&self, array: &Array) -> bool {
        let wanted = array.parity.min(array.used().saturating_sub(1)) + 1;
        self.holders.iter().all(|n| array.disk(*n).is_some()) && self.holders.len() >= wanted
    }

    /// Takes space ahead, for this log and the next. Where there is none, appending will say so.
    fn reserve(&mut self, array: &Array, end: u64) {
        if end + STEP / 2 <= self.reserved {
            return;
        }
        self.reserved = end + STEP;
        for n in &self.holders {
            if let Some(disk) = array.disk(*n) {
                for number in [self.number, self.number + 1] {
                    let _ = disk.reserve(Log::part(number), 0, self.reserved);
                }
            }
        }
    }

    /// Appends a frame of changes and syncs it. Returns whether it has; where a directory is full,
    /// the log is as before, and where one that had it failed, the next thing to do is a new log.
    #[must_use]
    pub fn append(&mut self, array: &Array, contents: &[u8]) -> bool {
        let part = Log::part(self.number);
        let head = head(
            self.number,
            (self.frames, self.last),
            Kind::Changes,
            contents,
        );
        let pieces = [IoSlice::new(&head), IoSlice::new(contents)];
        let mut is_full_somewhere = false;
        for n in &self.holders {
            let Some(disk) = array.disk(*n) else {
                continue;
            };
            match disk.write(part, self.end, &pieces) {
                Ok(()) => {}
                Err(error) if is_full(&error) => is_full_somewhere = true,
                Err(error) => array.fail(*n, &format!("the log cannot be written: {error}")),
            }
        }
        if is_full_somewhere {
            for n in &self.holders {
                if let Some(disk) = array.disk(*n)
                    && let Err(error) = disk.cut(part, self.end)
                {
                    array.fail(*n, &format!("the log cannot be cut: {error}"));
                }
            }
            return false;
        }
        array.each(&self.holders, |disk| disk.sync(part));
        if !self.is_held(array) {
            return false;
        }
        self.frames += 1;
        self.last = checksum(&head);
        self.end += (HEAD + contents.len()) as u64;
        self.reserve(array, self.end);
        true
    }
}

/// Writes a snapshot over an earlier log, whose space it takes; returns its bytes, and
/// the checksum of its last frame.
fn write_snapshot(
    disk: &dyn Disk,
    part: Part,
    number: u64,
    snapshot: &[Vec<u8>],
) -> io::Result<(u64, u32)> {
    let (mut at, mut last) = (0, 0);
    for (n, contents) in snapshot.iter().enumerate() {
        let kind = if n + 1 == snapshot.len() {
            Kind::SnapshotEnd
        } else {
            Kind::Snapshot
        };
        let head = head(number, (n as u64, last), kind, contents);
        last = checksum(&head);
        disk.write(part, at, &[IoSlice::new(&head), IoSlice::new(contents)])?;
        at += (HEAD + contents.len()) as u64;
    }
    if disk.len(part)? > at + MOST_SPARE * STEP {
        disk.cut(part, at + STEP)?;
    }
    disk.sync(part)?;
    Ok((at, last))
}
