//! What the store asks of a stripe directory: six files, and few operations on them. The trait is
//! this small so that a test can stand in for the disk, end the world at any write and forget what
//! was not synced.

use std::io::{self, IoSlice};

/// A file of a stripe directory. All are made when the file system is created and never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The units of all rows, slot after slot.
    Data,
    /// Checksums and generation of each unit.
    Sums,
    /// The metadata log, of which one is in force while the next is written.
    Log(usize),
    /// What the directory is and how its peers are, likewise twice.
    State(usize),
}

/// All parts.
pub const PARTS: [Part; 6] = [
    Part::Data,
    Part::Sums,
    Part::Log(0),
    Part::Log(1),
    Part::State(0),
    Part::State(1),
];

impl Part {
    /// The name of the file in the stripe directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Sums => "sums",
            Part::Log(0) => "log.0",
            Part::Log(_) => "log.1",
            Part::State(0) => "state.0",
            Part::State(_) => "state.1",
        }
    }
}

/// Space of the file system below a stripe directory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What may still be written.
    pub free: u64,
}

/// A write of pieces, one after the other, to a place of a part.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The part.
    pub part: Part,
    /// Where the first byte goes.
    pub at: u64,
    /// The bytes.
    pub pieces: &'a [IoSlice<'a>],
}

/// Writes that were begun. Nobody knows how they end before [`Pending::wait`].
#[must_use = "a write that nobody waits for may fail unseen"]
pub enum Pending {
    /// They have ended.
    Ended(io::Result<()>),
    /// Waits for their end.
    UnderWay(Box<dyn FnOnce() -> io::Result<()> + Send>),
}

impl Pending {
    /// Waits for the end of all of them.
    ///
    /// # Errors
    /// What the system says; a part may have been written.
    pub fn wait(self) -> io::Result<()> {
        match self {
            Pending::Ended(done) => done,
            Pending::UnderWay(wait) => wait(),
        }
    }
}

/// A stripe directory.
pub trait Disk: Send + Sync {
    /// Reads from `at` on; fewer bytes only at the end of the part.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, part: Part, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Reads from `at` on into pieces, one after the other; fewer bytes only at the end of the
    /// part.
    ///
    /// # Errors
    /// What the system says.
    fn read_pieces(&self, part: Part, at: u64, pieces: &mut [&mut [u8]]) -> io::Result<usize> {
        let mut done = 0;
        for piece in pieces {
            let got = self.read(part, at + done as u64, piece)?;
            done += got;
            if got < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads from `at` on if nothing has to be waited for, because all of it is in memory; else
    /// none.
    fn read_now(&self, _: Part, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    /// Writes all pieces, one after the other, from `at` on.
    ///
    /// # Errors
    /// What the system says; a part may have been written.
    fn write(&self, part: Part, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()>;

    /// Begins writes, which are done one after the other: who writes to several disks lets them
    /// work at the same time. A disk that needs no time does them now.
    fn begin(&self, writes: &[Write<'_>]) -> Pending {
        Pending::Ended(
            writes
                .iter()
                .try_for_each(|write| self.write(write.part, write.at, write.pieces)),
        )
    }

    /// Brings all that was written to the part where it outlives the next failure of the machine.
    ///
    /// # Errors
    /// What the system says. What was written since the last success may be lost.
    fn sync(&self, part: Part) -> io::Result<()>;

    /// Cuts a part.
    ///
    /// # Errors
    /// What the system says.
    fn cut(&self, part: Part, len: u64) -> io::Result<()>;

    /// Bytes of a part.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self, part: Part) -> io::Result<u64>;

    /// Gives the space of a range back; it may read as anything afterwards.
    ///
    /// # Errors
    /// What the system says. Space that is not given back is used again by the store.
    fn punch(&self, part: Part, at: u64, len: u64) -> io::Result<()>;

    /// Takes space for a range of the part without changing its length.
    ///
    /// # Errors
    /// What the system says, in particular that there is none.
    fn reserve(&self, part: Part, at: u64, len: u64) -> io::Result<()>;

    /// Space below the directory.
    ///
    /// # Errors
    /// What the system says.
    fn space(&self) -> io::Result<Space>;

    /// Lets the disk begin to read what is wanted soon.
    fn will_need(&self, _: Part, _: u64, _: usize) {}

    /// Whether it lies in memory, so that nothing is gained by asking ahead and nothing hangs.
    fn is_memory(&self) -> bool {
        true
    }

    /// Whether the directory still has the files that are open.
    fn is_present(&self) -> bool;
}

/// Reads a range that the part must have whole.
pub(crate) fn read_exact(disk: &dyn Disk, part: Part, at: u64, into: &mut [u8]) -> io::Result<()> {
    if disk.read(part, at, into)? == into.len() {
        return Ok(());
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
