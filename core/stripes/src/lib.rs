//! Striped rows: which directory holds which unit of a row, and how lost units are computed from
//! those that are left.
//!
//! A *row* is `data` units of the file and `parity` units computed from them. It lies in a *slot*:
//! the same place in every stripe directory. The role of a directory rotates with the slot, so
//! that reads and parity are spread evenly. Each file has a layout of its own: a row may lie in
//! fewer directories than there are, and its units may be shorter than the slot. A row need not be
//! full: only whole blocks of [`BLOCK`] bytes up to its last byte are stored, and what is not
//! stored is zeros.
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

/// The stripe directories over which slots rotate, by their numbers.
///
/// It is a set of bits, so that a layout stays a small value: there are at most
/// [`MOST_DIRECTORIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over(pub u64);

impl Over {
    /// The first `count` directories.
    #[must_use]
    pub fn first(count: usize) -> Over {
        Over(u64::MAX.checked_shr(64 - count.min(64) as u32).unwrap_or(0))
    }

    /// How many there are.
    #[must_use]
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the directory is one of them.
    #[must_use]
    pub fn has(self, directory: usize) -> bool {
        directory < MOST_DIRECTORIES && self.0 >> directory & 1 == 1
    }

    /// These and another one.
    #[must_use]
    pub fn with(self, directory: usize) -> Over {
        Over(self.0 | 1 << directory)
    }

    /// These without one.
    #[must_use]
    pub fn without(self, directory: usize) -> Over {
        Over(self.0 & !(1 << directory))
    }

    /// Their numbers, in order.
    pub fn numbers(self) -> impl Iterator<Item = usize> + use<> {
        (0..MOST_DIRECTORIES).filter(move |n| self.has(*n))
    }

    /// The directory in place `place`, from 0 on.
    fn nth(self, place: usize) -> usize {
        let mut bits = self.0;
        if (bits & bits.wrapping_add(1)) == 0 {
            return place;
        }
        for _ in 0..place {
            bits &= bits - 1;
        }
        bits.trailing_zeros() as usize
    }

    /// The place of a directory that is one of them.
    fn place(self, directory: usize) -> usize {
        (self.0 & ((1 << directory) - 1)).count_ones() as usize
    }
}

/// How the rows of a file are cut, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Units of the file in a row.
    pub data: usize,
    /// Units of parity in a row.
    pub parity: usize,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// Bytes of a slot in each directory; the same for all files of a file system, and at least a
    /// unit.
    pub slot_bytes: usize,
    /// Over which directories the rows are spread. A row may be narrower: then it lies in some of
    /// them, in others for each slot.
    pub over: Over,
}

/// Whether a unit may have this size.
fn check_unit(unit_bytes: usize) -> Result<(), String> {
    let (least, most) = UNIT_RANGE;
    if unit_bytes.is_power_of_two() && (least..=most).contains(&unit_bytes) {
        Ok(())
    } else {
        Err(format!(
            "a stripe unit of {unit_bytes} bytes is not possible; choose 64K, 128K, 256K, 512K or 1M"
        ))
    }
}

impl Layout {
    /// Checks a layout whose rows lie in all directories; says in words what is wrong with it.
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
        check_unit(unit_bytes)?;
        Ok(Layout {
            data: directories - parity,
            parity,
            unit_bytes,
            slot_bytes: unit_bytes,
            over: Over::first(directories),
        })
    }

    /// The layout of a file with another unit and another number of units in a row, where they
    /// are given.
    ///
    /// # Errors
    /// In words, when the unit is larger than a slot or none, or there are fewer directories.
    pub fn striped(&self, unit: Option<usize>, data: Option<usize>) -> Result<Layout, String> {
        let unit_bytes = unit.unwrap_or(self.unit_bytes);
        check_unit(unit_bytes)?;
        if unit_bytes > self.slot_bytes {
            return Err(format!(
                "a stripe unit of {unit_bytes} bytes is larger than that of the file system, {}; \
                 choose a smaller one, or make the file system with a larger --unit",
                self.slot_bytes
            ));
        }
        let most = self.over.count() - self.parity;
        let data = data.unwrap_or(self.data);
        if data == 0 || data > most {
            return Err(format!(
                "a row of {data} units of data is not possible; choose 1 to {most}"
            ));
        }
        Ok(Layout {
            data,
            unit_bytes,
            ..*self
        })
    }

    /// The same over other directories. Rows that lay in all of them do so again; others keep
    /// their width where there are as many.
    ///
    /// # Errors
    /// In words, when there are too few.
    pub fn spread(&self, over: Over) -> Result<Layout, String> {
        let least = self.parity + 1;
        let most = over
            .count()
            .checked_sub(self.parity)
            .filter(|most| *most > 0)
            .ok_or_else(|| format!("parity {} needs at least {least} directories", self.parity))?;
        Ok(Layout {
            data: if self.is_wide() {
                most
            } else {
                self.data.min(most)
            },
            over,
            ..*self
        })
    }

    /// Number of directories in which a row lies.
    #[must_use]
    pub fn width(&self) -> usize {
        self.data + self.parity
    }

    /// Whether each row lies in all directories.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.width() == self.over.count()
    }

    /// Whether a full row fills its slot in all directories.
    #[must_use]
    pub fn fills_slots(&self) -> bool {
        self.is_wide() && self.unit_bytes == self.slot_bytes
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
        let count = self.over.count();
        self.over
            .nth((role + (slot % count as u64) as usize) % count)
    }

    /// The role of a directory in the row in `slot`; none where it has no unit of that row.
    #[must_use]
    pub fn role(&self, slot: u64, directory: usize) -> Option<usize> {
        if !self.over.has(directory) {
            return None;
        }
        let count = self.over.count();
        let place = self.over.place(directory);
        let role = (place + count - (slot % count as u64) as usize) % count;
        (role < self.width()).then_some(role)
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
        for (directories, parity) in [(1, 0), (4, 1), (6, 2), (3, 2), (64, 1)] {
            let layout = Layout::new(directories, parity, 64 << 10).unwrap();
            for slot in 0..20 {
                for role in 0..layout.width() {
                    assert_eq!(layout.role(slot, layout.directory(slot, role)), Some(role));
                }
            }
            let first: Vec<_> = (0..directories as u64)
                .map(|slot| layout.directory(slot, 0))
                .collect();
            assert_eq!(first, (0..directories).collect::<Vec<_>>());
        }
    }

    #[test]
    fn narrow_rows_use_all_directories_in_turn_and_no_other() {
        let base = Layout::new(5, 1, 128 << 10).unwrap();
        let narrow = base.striped(Some(64 << 10), Some(2)).unwrap();
        assert_eq!(
            (narrow.row_bytes(), narrow.slot_bytes),
            (128 << 10, 128 << 10)
        );
        assert!(base.fills_slots() && !narrow.fills_slots());
        for layout in [narrow, narrow.spread(Over(0b1011_0100)).unwrap()] {
            let mut units = [0; 8];
            for slot in 0..20 {
                let mut seen = 0;
                for (n, units) in units.iter_mut().enumerate() {
                    if let Some(role) = layout.role(slot, n) {
                        assert_eq!(layout.directory(slot, role), n);
                        (seen, *units) = (seen + 1, *units + 1);
                    }
                }
                assert_eq!(seen, 3);
            }
            let expected = 20 * 3 / layout.over.count();
            for (n, units) in units.into_iter().enumerate() {
                assert_eq!(units, if layout.over.has(n) { expected } else { 0 });
            }
        }
    }

    #[test]
    fn a_layout_is_spread_as_wide_as_before() {
        let base = Layout::new(4, 1, 64 << 10).unwrap();
        let more = base.spread(Over::first(6)).unwrap();
        assert_eq!((more.data, more.over.count()), (5, 6));
        let copies = base.striped(None, Some(1)).unwrap();
        assert_eq!(copies.spread(Over::first(6)).unwrap().data, 1);
        let three = base.striped(None, Some(2)).unwrap();
        assert_eq!(three.spread(Over::first(2)).unwrap().data, 1);
        assert!(
            base.spread(Over::first(1))
                .unwrap_err()
                .contains("at least 2")
        );
        for (unit, data, word) in [
            (Some(1 << 20), None, "larger than that of the file system"),
            (Some(1000), None, "choose 64K"),
            (None, Some(4), "choose 1 to 3"),
            (None, Some(0), "choose 1 to 3"),
        ] {
            let error = base.striped(unit, data).unwrap_err();
            assert!(error.contains(word), "{error}");
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
