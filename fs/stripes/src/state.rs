//! The state of a stripe directory: which file system it belongs to, which of its directories it
//! is, and how all of them are. Every change is a new epoch, written to all directories that are
//! usable; the highest epoch that is found decides, so that a directory that was away is known to
//! be stale. The bytes are drawn in docs/pfs-format.md.

use std::io::IoSlice;

use margay_core_stripes::{Layout, Over};

use crate::codec::{Reader, Writer};
use crate::disk::{Disk, Part};

const MAGIC: u64 = u64::from_le_bytes(*b"MARGAYPF");

/// The version of all stored formats of the store. Earlier ones are read as well: version 1 has
/// fewer kinds of changes in the log, version 2 one layout for all files.
pub const VERSION: u32 = 3;

/// The first version in which files have layouts of their own.
const WITH_LAYOUTS: u32 = 3;

/// Bytes that are taken ahead for a state.
const RESERVED: u64 = 64 << 10;

/// A state is not longer than this.
const MOST_BYTES: usize = 256 << 10;

/// How a stripe directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has all of its units.
    Good,
    /// It is written and read, but lacks units up to the end; what is before the cursor (file,
    /// row) has been looked at.
    Rebuilding(u64, u64),
    /// It is not used.
    Failed,
    /// It does not belong to the file system any more, and its number may be given to another one.
    Removed,
}

/// A stripe directory as its peers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Drawn by lot when the directory was given to the file system, so that another one at the
    /// same path is not taken for it.
    pub id: u64,
    /// Its path.
    pub path: String,
    /// How it is.
    pub health: Health,
}

/// What all directories agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Drawn by lot when the file system was created.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The number of this state: the highest one is in force.
    pub epoch: u64,
    /// How the rows of files are laid out that say nothing else: as when the file system was made.
    pub base: Layout,
    /// How those of new files are laid out, unless their directory says something else.
    pub current: Layout,
    /// The stripe directories in their order.
    pub members: Vec<Member>,
}

impl State {
    /// The directories that belong to the file system.
    #[must_use]
    pub fn belong(&self) -> Over {
        let members = self.members.iter().enumerate();
        let belong = members.filter(|(_, member)| member.health != Health::Removed);
        belong.fold(Over(0), |over, (n, _)| over.with(n))
    }
}

/// What one directory has: its own number, and the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub own: usize,
    pub state: State,
}

/// What stands at the place of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The state of the higher epoch.
    State(Found),
    /// It is one of a newer version of the format.
    Newer(u32),
    /// None, or none that is whole.
    None,
}

/// Returns the bytes of a state as directory `own` has it.
#[must_use]
pub fn encode(state: &State, own: usize) -> Vec<u8> {
    let mut out = Writer::default();
    out.u64(MAGIC);
    out.u32(VERSION);
    let mut body = Writer::default();
    body.u64(state.id);
    body.u64(state.epoch);
    body.bytes(state.name.as_bytes());
    body.u32(state.base.parity as u32);
    body.u32(state.base.slot_bytes as u32);
    body.u32(own as u32);
    body.u32(state.members.len() as u32);
    for member in &state.members {
        body.u64(member.id);
        let (kind, file, row) = match member.health {
            Health::Good => (0, 0, 0),
            Health::Rebuilding(file, row) => (1, file, row),
            Health::Failed => (2, 0, 0),
            Health::Removed => (3, 0, 0),
        };
        body.u8(kind);
        body.u64(file);
        body.u64(row);
        body.bytes(member.path.as_bytes());
    }
    for layout in [&state.base, &state.current] {
        body.u32(layout.data as u32);
        body.u32(layout.unit_bytes as u32);
        body.u64(layout.over.0);
    }
    out.bytes(&body.0);
    let crc = crc32c::crc32c(&out.0);
    out.u32(crc);
    out.0
}

/// Reads the bytes of a state.
#[must_use]
pub fn decode(bytes: &[u8]) -> Read {
    let mut head = Reader(bytes);
    if head.u64() != Some(MAGIC) {
        return Read::None;
    }
    let version = head.u32().unwrap_or(0);
    let Some(body) = head.bytes() else {
        return Read::None;
    };
    let covered = bytes.len() - head.0.len();
    if head.u32() != Some(crc32c::crc32c(&bytes[..covered])) {
        return Read::None;
    }
    if version > VERSION {
        return Read::Newer(version);
    }
    body_of(Reader(body), version).map_or(Read::None, Read::State)
}

fn body_of(mut body: Reader<'_>, version: u32) -> Option<Found> {
    let id = body.u64()?;
    let epoch = body.u64()?;
    let name = String::from_utf8(body.bytes()?.to_vec()).ok()?;
    let parity = body.u32()? as usize;
    let unit_bytes = body.u32()? as usize;
    let own = body.u32()? as usize;
    let count = body.u32()? as usize;
    let whole = Layout::new(count, parity, unit_bytes).ok()?;
    let mut members = Vec::new();
    for _ in 0..count {
        let id = body.u64()?;
        let (kind, file, row) = (body.u8()?, body.u64()?, body.u64()?);
        members.push(Member {
            id,
            health: match kind {
                0 => Health::Good,
                1 => Health::Rebuilding(file, row),
                3 => Health::Removed,
                _ => Health::Failed,
            },
            path: String::from_utf8(body.bytes()?.to_vec()).ok()?,
        });
    }
    let mut layout = || {
        let (data, unit) = (body.u32()? as usize, body.u32()? as usize);
        let over = Over(body.u64()?);
        let known = (over.0 & !whole.over.0) == 0;
        let spread = whole.spread(over).ok().filter(|_| known)?;
        spread.striped(Some(unit), Some(data)).ok()
    };
    let (base, current) = match version >= WITH_LAYOUTS {
        true => (layout()?, layout()?),
        false => (whole, whole),
    };
    let state = State {
        id,
        name,
        epoch,
        base,
        current,
        members,
    };
    (own < count).then_some(Found { own, state })
}

/// Writes a state to directory `own` and syncs it. The one of the epoch before stays.
///
/// # Errors
/// What the system says.
pub fn write(disk: &dyn Disk, state: &State, own: usize) -> std::io::Result<()> {
    let part = Part::State((state.epoch % 2) as usize);
    disk.write(part, 0, &[IoSlice::new(&encode(state, own))])?;
    disk.sync(part)?;
    // The next one must be written on a full disk, too, or a failure could not be noted.
    for n in 0..2 {
        let _ = disk.reserve(Part::State(n), 0, RESERVED);
    }
    Ok(())
}

/// Returns what a directory has.
///
/// # Errors
/// What the system says when neither can be read.
pub fn read(disk: &dyn Disk) -> std::io::Result<Read> {
    let mut best = Read::None;
    let mut failed = None;
    for n in 0..2 {
        let mut bytes = vec![0; MOST_BYTES];
        match disk.read(Part::State(n), 0, &mut bytes) {
            Ok(len) => {
                let found = decode(&bytes[..len]);
                let epoch = |read: &Read| match read {
                    Read::State(found) => found.state.epoch + 1,
                    _ => 0,
                };
                if best == Read::None || epoch(&found) > epoch(&best) {
                    best = found;
                }
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if best == Read::None => Err(error),
        _ => Ok(best),
    }
}
