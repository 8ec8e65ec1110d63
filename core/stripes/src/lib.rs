//! Striped rows: which directory holds which unit of a row, and how lost units are computed from
//! those that are left.
//!
//! A *row* is `data` units of the file and `parity` units computed from them. It lies in a *slot*:
//! the same place in every stripe directory. The role of a directory rotates with the slot, so
//! that reads and parity are spread evenly. A row need not be full: only whole blocks of
//! [`BLOCK`] bytes up to its last byte are stored, and what is not stored is zeros.
//!
//! Nothing here reads or writes: shapes are numbers, units are slices.

#![forbid(unsafe_code)]

mod code;

pub use code::{encode, recover};

/// Bytes that one checksum covers, and the unit in which rows grow.
pub const BLOCK: usize = 4096;

/// Smallest and largest stripe unit, in bytes.
pub const UNIT_RANGE: (usize, usize) = (64 << 10, 1 << 20);

/// Most units of parity in a row.
pub const MOST_PARITY: usize = 2;

/// Most stripe directories.
pub const MOST_DIRECTORIES: usize = 64;

/// How rows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Units of the file in a row.
    pub data: usize,
    /// Units of parity in a row.
    pub parity: usize,
    /// Bytes of a unit.
    pub unit_bytes: usize,
}

impl Layout {
    /// Checks a layout; says in words what is wrong with it.
    ///
    /// # Errors
    /// When there are too few or too many directories, or the unit is not a power of two between
    /// 64 KiB and 1 MiB.
    pub fn new(directories: usize, parity: usize, unit_bytes: usize) -> Result<Layout, String> {
        if parity > MOST_PARITY {
            return Err(format!(
                "parity {parity} is not possible; choose 0, 1 or {MOST_PARITY}"
            ));
        }
        if directories > MOST_DIRECTORIES {
            return Err(format!(
                "{directories} directories are too many; name at most {MOST_DIRECTORIES}"
            ));
        }
        if directories <= parity {
            return Err(format!(
                "{directories} directories cannot hold data and {parity} parity; name at least {}",
                parity + 1
            ));
        }
        let (least, most) = UNIT_RANGE;
        if !unit_bytes.is_power_of_two() || unit_bytes < least || unit_bytes > most {
            return Err(format!(
                "a stripe unit of {unit_bytes} bytes is not possible; choose 64K, 128K, 256K, 512K or 1M"
            ));
        }
        Ok(Layout {
            data: directories - parity,
            parity,
            unit_bytes,
        })
    }

    /// Number of stripe directories.
    #[must_use]
    pub fn width(&self) -> usize {
        self.data + self.parity
    }

    /// Bytes of the file in a full row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.data * self.unit_bytes
    }

    /// Blocks of a full unit.
    #[must_use]
    pub fn unit_blocks(&self) -> usize {
        self.unit_bytes / BLOCK
    }

    /// The directory that holds the unit `role` of the row in `slot`: roles below `data` are units
    /// of the file, those behind are parity.
    #[must_use]
    pub fn directory(&self, slot: u64, role: usize) -> usize {
        let width = self.width();
        (role + (slot % width as u64) as usize) % width
    }

    /// The role of a directory in the row in `slot`.
    #[must_use]
    pub fn role(&self, slot: u64, directory: usize) -> usize {
        let width = self.width();
        (directory + width - (slot % width as u64) as usize) % width
    }

    /// How many blocks of unit `role` are stored when the row has `blocks` blocks of the file.
    #[must_use]
    pub fn stored_blocks(&self, blocks: usize, role: usize) -> usize {
        let unit = self.unit_blocks();
        if role < self.data {
            blocks.saturating_sub(role * unit).min(unit)
        } else {
            blocks.min(unit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_directories_are_inverse_and_rotate() {
        for (directories, parity) in [(1, 0), (4, 1), (6, 2), (3, 2)] {
            let layout = Layout::new(directories, parity, 64 << 10).unwrap();
            for slot in 0..20 {
                for role in 0..layout.width() {
                    assert_eq!(layout.role(slot, layout.directory(slot, role)), role);
                }
            }
            let first: Vec<_> = (0..directories as u64)
                .map(|slot| layout.directory(slot, 0))
                .collect();
            assert_eq!(first, (0..directories).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_short_row_stores_only_its_blocks() {
        let layout = Layout::new(4, 1, 64 << 10).unwrap();
        let stored = |blocks| -> Vec<usize> {
            (0..4)
                .map(|role| layout.stored_blocks(blocks, role))
                .collect()
        };
        assert_eq!(stored(0), [0, 0, 0, 0]);
        assert_eq!(stored(1), [1, 0, 0, 1]);
        assert_eq!(stored(20), [16, 4, 0, 16]);
        assert_eq!(stored(48), [16, 16, 16, 16]);
    }

    #[test]
    fn impossible_layouts_are_refused_in_words() {
        for (directories, parity, unit, word) in [
            (1, 1, 65536, "at least 2"),
            (0, 0, 65536, "at least 1"),
            (4, 3, 65536, "choose 0, 1 or 2"),
            (4, 1, 65535, "choose 64K"),
            (4, 1, 2 << 20, "choose 64K"),
            (65, 1, 65536, "at most 64"),
        ] {
            let error = Layout::new(directories, parity, unit).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
