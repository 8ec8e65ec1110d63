//! Views: which bytes of the file a process sees, in which order, in units of the etype.

use std::sync::Arc;

use margay_core_datatype::{Basic, Cursor, Datatype, Flat};

use super::datarep::Rep;
use super::runs::Extents;
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

/// A process's view of a file. Immutable.
pub(crate) struct View {
    /// Where it begins, in bytes.
    pub disp: i64,
    /// The unit of offsets, as the program gave it.
    pub etype: Arc<Datatype>,
    /// What is seen, as the program gave it.
    pub filetype: Arc<Datatype>,
    /// How data is written.
    pub rep: Rep,
    /// Bytes of an etype in the file.
    unit: u64,
    /// The filetype as it lies in the file.
    tile: Flat,
    /// Whether the filetype shows some bytes twice, which is allowed for reading only.
    overlaps: bool,
    /// Whether a filetype reaches so far into the next one that offsets of the file go back from
    /// one to the other.
    interlaced: bool,
}

impl View {
    /// Returns the view of a file that was just opened: all bytes.
    pub fn bytes() -> View {
        let byte = Arc::new(Datatype::basic(Basic::Byte));
        View {
            disp: 0,
            tile: byte.flat().clone(),
            etype: byte.clone(),
            filetype: byte,
            rep: Rep::Native,
            unit: 1,
            overlaps: false,
            interlaced: false,
        }
    }

    /// Checks the arguments of `MPI_File_set_view`; `writable`: the file may be written.
    ///
    /// # Errors
    /// When the filetype is not made of etypes, goes back, or begins before the file.
    pub fn new(
        disp: i64,
        etype: Arc<Datatype>,
        filetype: Arc<Datatype>,
        rep: Rep,
        writable: bool,
    ) -> Result<View> {
        let unit_tile = rep.in_file(&etype)?;
        let unit = unit_tile.size();
        let shape = rep.in_file(&filetype)?;
        if unit == 0 {
            fail!(
                MPI_ERR_ARG,
                "the etype has no data; use one with at least a byte"
            );
        }
        if !shape.size().is_multiple_of(unit) {
            fail!(
                MPI_ERR_ARG,
                "the filetype has {} bytes, which is not a multiple of the etype's {unit}; build the filetype from etypes",
                shape.size()
            );
        }
        let tile = shape.flat().clone();
        let overlaps = order(unit_tile.flat())?.overlaps;
        let order = order(&tile)?;
        let (overlaps, interlaced) = (overlaps | order.overlaps, order.interlaced);
        let first = tile.true_lb().min(0).min(unit_tile.flat().true_lb());
        if first < 0 {
            fail!(
                MPI_ERR_IO,
                "the etype or filetype begins at byte {first}; its displacements must not be negative"
            );
        }
        if overlaps && writable {
            fail!(
                MPI_ERR_IO,
                "the etype or filetype shows some bytes of the file twice, which is allowed for files opened with MPI_MODE_RDONLY only"
            );
        }
        Ok(View {
            disp,
            etype,
            filetype,
            rep,
            unit,
            tile,
            overlaps,
            interlaced,
        })
    }

    /// Returns the bytes of an etype in the file.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Dense extents in a filetype and its bytes, for guessing how scattered an access is.
    pub fn grain(&self) -> (u64, u64) {
        let (blocks, size) = (self.tile.blocks(), self.tile.size());
        if blocks == 1 && size as i64 == self.tile.extent() {
            // All of it is one extent.
            return (1, u64::MAX);
        }
        (blocks.max(1), size)
    }

    /// Whether these bytes, of which there is at least one, lie in the file in ascending order and
    /// none of them twice.
    pub fn ascends(&self, start: u64, bytes: u64) -> bool {
        let tile = |position: u64| position / self.tile.size().max(1);
        !self.overlaps && (!self.interlaced || tile(start) == tile(start + bytes - 1))
    }

    /// Returns the extents of packed bytes `start .. start + bytes`, in ascending order where they
    /// [`ascend`](Self::ascends).
    ///
    /// # Errors
    /// When the view has no such bytes.
    pub fn extents(&self, start: u64, bytes: u64) -> Result<Extents> {
        let extents = Extents::new(&self.tile, self.disp, start, bytes);
        extents.ok_or_else(|| {
            let text = if self.tile.size() == 0 {
                "the filetype of the view has no data, so nothing can be read or written"
                    .to_string()
            } else {
                format!("{bytes} bytes at byte {start} of the view reach beyond 63-bit offsets")
            };
            Error::new(MPI_ERR_ARG, text)
        })
    }

    /// Returns a range of the file that holds these bytes, of which there is at least one: from the
    /// first to behind the last of them, or whole filetypes where these are interlaced.
    ///
    /// # Errors
    /// When the view has no such bytes.
    pub fn hull(&self, start: u64, bytes: u64) -> Result<(i64, i64)> {
        if !self.ascends(start, bytes) {
            // Overflow is found here.
            self.extents(start, bytes)?;
            let base =
                |position| self.disp + (position / self.tile.size()) as i64 * self.tile.extent();
            let low = base(start) + self.tile.true_lb();
            return Ok((low, base(start + bytes - 1) + self.tile.true_ub()));
        }
        let at = |position: u64| -> Result<i64> {
            let mut one = self.extents(position, 1)?;
            Ok(one.next().map_or(0, |run| run.offset))
        };
        Ok((at(start)?, at(start + bytes - 1)? + 1))
    }

    /// Returns the offset in the file of an offset in the view: `MPI_File_get_byte_offset`.
    ///
    /// # Errors
    /// When it is beyond 63-bit offsets.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        let packed = self.packed(offset)?;
        if self.tile.size() == 0 {
            return Ok(self.disp);
        }
        let mut one = self.extents(packed, 1)?;
        Ok(one.next().map_or(self.disp, |run| run.offset))
    }

    /// Packed bytes before an offset.
    ///
    /// # Errors
    /// When it is negative or too large.
    pub fn packed(&self, offset: i64) -> Result<u64> {
        match u64::try_from(offset)
            .ok()
            .and_then(|o| o.checked_mul(self.unit))
        {
            Some(packed) if packed <= i64::MAX as u64 => Ok(packed),
            _ => fail!(
                MPI_ERR_ARG,
                "the offset {offset} is negative or beyond 63-bit offsets"
            ),
        }
    }

    /// Returns the first offset of the view behind a file of `size` bytes.
    pub fn end(&self, size: u64) -> i64 {
        let size = size as i64;
        if self.tile.size() == 0 || size <= self.disp {
            return 0;
        }
        let extent = self.tile.extent().max(1);
        // All tiles before this one end within the file.
        let whole = ((size - self.disp - self.tile.true_ub()).max(-1) + extent) / extent;
        let mut packed = whole as u64 * self.tile.size();
        let mut tile = whole;
        'tiles: loop {
            let mut cursor = Cursor::new(&self.tile, 1);
            let base = self.disp + tile * extent;
            while let Some(run) = cursor.next_run(u64::MAX) {
                for i in 0..run.count as i64 {
                    let room = size - (base + run.offset + i * run.stride);
                    if room <= 0 {
                        break 'tiles;
                    }
                    packed += run.block.min(room as u64);
                }
            }
            tile += 1;
        }
        packed.div_ceil(self.unit) as i64
    }
}

/// How the bytes of a filetype follow each other.
#[derive(Default)]
struct Order {
    /// Some are there twice.
    overlaps: bool,
    /// The last ones come behind the first ones of the next filetype.
    interlaced: bool,
}

/// Checks that a filetype goes forward only. How far it reaches beyond its extent is the program's
/// affair: many make filetypes that are meant to be used once and leave the extent as it came out.
fn order(tile: &Flat) -> Result<Order> {
    let mut cursor = Cursor::new(tile, 1);
    let (mut start, mut end) = (i64::MIN, i64::MIN);
    let mut first = None;
    let mut order = Order::default();
    while let Some(run) = cursor.next_run(u64::MAX) {
        first.get_or_insert(run.offset);
        let back = run.count > 1 && run.stride < 0;
        if run.offset < start || back {
            let (from, to) = if back {
                (run.offset, run.offset + run.stride)
            } else {
                (start, run.offset)
            };
            fail!(
                MPI_ERR_IO,
                "the etype or filetype goes back from byte {from} to byte {to}; its displacements must not decrease"
            );
        }
        order.overlaps |= run.offset < end || (run.count > 1 && run.stride < run.block as i64);
        start = run.offset + (run.count as i64 - 1) * run.stride;
        end = end.max(start + run.block as i64);
    }
    if let Some(first) = first {
        if tile.extent() <= 0 {
            fail!(
                MPI_ERR_IO,
                "the filetype has the extent {}; it must be positive to be repeated",
                tile.extent()
            );
        }
        order.interlaced = end - first > tile.extent();
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(disp: i64) -> View {
        let int = Arc::new(Datatype::basic(Basic::Int));
        let vector = Arc::new(Datatype::vector(2, 1, 2, &int).unwrap());
        let spread = Arc::new(Datatype::resized(0, 20, &vector).unwrap());
        View::new(disp, int, spread, Rep::Native, true).unwrap()
    }

    #[test]
    fn offsets_are_where_the_filetype_says() {
        let v = view(100);
        let offsets: Vec<i64> = (0..5).map(|o| v.byte_offset(o).unwrap()).collect();
        assert_eq!(offsets, [100, 108, 120, 128, 140]);
        assert_eq!(v.hull(4, 8).unwrap(), (108, 124));
        assert!(v.byte_offset(-1).is_err());
    }

    #[test]
    fn the_end_is_the_first_offset_behind_the_file() {
        let v = view(10);
        for size in 0..200u64 {
            let expected = (0..100)
                .find(|&o| v.byte_offset(o).unwrap() >= size as i64)
                .unwrap();
            assert_eq!(v.end(size), expected, "a file of {size} bytes");
        }
    }

    #[test]
    fn filetypes_may_reach_into_the_next_one() {
        let int = Arc::new(Datatype::basic(Basic::Int));
        let vector = Arc::new(Datatype::vector(3, 1, 5, &int).unwrap());
        let short = Arc::new(Datatype::resized(0, 4, &vector).unwrap());
        let v = View::new(100, int, short, Rep::Native, true).unwrap();
        let offsets: Vec<i64> = (0..7).map(|o| v.byte_offset(o).unwrap()).collect();
        assert_eq!(offsets, [100, 120, 140, 104, 124, 144, 108]);
        assert!(v.ascends(0, 12) && v.ascends(16, 8) && !v.ascends(8, 8));
        assert_eq!(v.hull(4, 8).unwrap(), (120, 144));
        assert_eq!(v.hull(8, 8).unwrap(), (100, 148));
        let found: Vec<i64> = v.extents(8, 12).unwrap().map(|run| run.offset).collect();
        assert_eq!(found[..2], [140, 104]);
    }

    #[test]
    fn wrong_filetypes_are_refused() {
        let int = Arc::new(Datatype::basic(Basic::Int));
        let back = Arc::new(Datatype::hindexed(&[1, 1], &[8, 0], &int).unwrap());
        let twice = Arc::new(Datatype::hindexed(&[2, 1], &[0, 4], &int).unwrap());
        let long = Arc::new(Datatype::basic(Basic::Int64));
        let make = |e: &Arc<Datatype>, f: &Arc<Datatype>, w| {
            View::new(0, e.clone(), f.clone(), Rep::Native, w).map_err(|e| e.code())
        };
        assert_eq!(make(&int, &back, false).err(), Some(MPI_ERR_IO));
        assert_eq!(make(&int, &twice, true).err(), Some(MPI_ERR_IO));
        assert!(!make(&int, &twice, false).unwrap().ascends(0, 12));
        assert_eq!(make(&long, &int, true).err(), Some(MPI_ERR_ARG));
    }
}
