//! What MPI-IO asks of a file system, as two traits: [`Store`] opens and deletes files by name,
//! [`Storage`] is an open one.
//!
//! [`Posix`] is both over the system's files. A striped file system stands behind the same traits:
//! everything above (views, collective access, pointers) only knows offsets, extents and locks on
//! ranges.
//!
//! All types may be shared between threads; no call keeps a position.

#![forbid(unsafe_code)]

pub mod direct;
mod error;
mod posix;

use std::sync::Arc;

pub use error::{Result, StorageError};
pub use margay_sys_os::file::{Cause, How, Identity, Lock, Slice};
pub use posix::{LAYOUT, Posix};

/// A place where files are, by name.
pub trait Store: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn open(&self, path: &str, how: How) -> Result<Arc<dyn Storage>>;

    /// Deletes a file; those who have it open keep it.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn delete(&self, path: &str) -> Result<()>;
}

/// How a file is spread over disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes on one disk before the next one's.
    pub unit: u32,
    /// Disks with units of the file, those of parity not counted.
    pub factor: u32,
}

impl Layout {
    /// Reads the two numbers as the parallel file system writes them.
    fn parse(text: &[u8]) -> Option<Layout> {
        let (unit, factor) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let layout = Layout {
            unit: unit.parse().ok()?,
            factor: factor.parse().ok()?,
        };
        // The product is a distance in a file.
        (layout.unit > 0 && (1..=1 << 20).contains(&layout.factor)).then_some(layout)
    }
}

/// An open file: a sequence of bytes from offset 0 on.
pub trait Storage: Send + Sync {
    /// Reads from `offset` on into the pieces, one after the other; fewer bytes than they hold only
    /// at the file's end.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn read_at(&self, offset: u64, pieces: &[Slice]) -> Result<u64>;

    /// Writes all of the pieces, one after the other, to `offset` and on. No other byte is touched.
    ///
    /// # Errors
    /// With the reason, the file and the remedy; a part may have been written.
    fn write_at(&self, offset: u64, pieces: &[Slice]) -> Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn size(&self) -> Result<u64>;

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Takes space for the first `size` bytes, of which the file then has at least as many.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn preallocate(&self, size: u64) -> Result<()>;

    /// Brings everything that was written to where it outlives the machine's next failure.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn sync(&self) -> Result<()>;

    /// Waits for `len` bytes from `offset` on (0: all from there) and keeps others away from them.
    /// Two open files exclude each other; calls on one do not.
    ///
    /// # Errors
    /// With the reason, the file and the remedy.
    fn lock(&self, offset: u64, len: u64, lock: Lock) -> Result<()>;

    /// Gives a range back.
    fn unlock(&self, offset: u64, len: u64);

    /// Spreads an empty file over disks like this, as far as the file system lets files be spread
    /// differently; 0 is as it has it. Where it does not, or the file has been written, nothing
    /// happens: a wish, as the hints of MPI-IO are.
    fn lay_out(&self, wished: Layout);

    /// How it is spread over disks, where that is known. Accesses of whole rows of units, which
    /// begin at multiples of them, are the fastest.
    fn layout(&self) -> Option<Layout>;

    /// Which file it is, so that processes find out that they opened different ones.
    fn identity(&self) -> Identity;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_two_numbers_that_are_not_0() {
        let layout = Layout {
            unit: 65536,
            factor: 4,
        };
        assert_eq!(Layout::parse(b"65536 4"), Some(layout));
        for wrong in [
            "",
            "65536",
            "0 4",
            "65536 0",
            "4 65536 1",
            "65536 2000000",
            "-1 4",
            "1 x",
        ] {
            assert_eq!(Layout::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
