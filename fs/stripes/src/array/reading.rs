//! Reading parts of rows, checked by generation and checksum, and computing what cannot be read.

use std::io;
use std::sync::atomic::Ordering;

use margay_core_stripes::{BLOCK, recover};

use super::{Array, Spot, UnitState};
use crate::disk::{Disk, Part};
use crate::fault::{Fault, Result};
use crate::sums::{self, Record};

impl Array {
    /// Reads `into.len()` bytes of a row from `from` on; what is not stored is zeros.
    ///
    /// # Errors
    /// When more units are lost than can be computed.
    pub fn read_row(&self, spot: Spot<'_>, from: usize, into: &mut [u8]) -> Result<()> {
        let unit = spot.layout.unit_bytes;
        let mut at = from;
        let mut rest = into;
        while !rest.is_empty() {
            let role = at / unit;
            let within = at % unit;
            let (part, tail) = rest.split_at_mut((unit - within).min(rest.len()));
            self.read_unit(spot, role, within, part)?;
            at += part.len();
            rest = tail;
        }
        Ok(())
    }

    /// Whether any directory gains from being asked ahead.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.all()
            .any(|n| self.disk(n).is_some_and(|disk| !disk.is_memory()))
    }

    /// Lets the directories begin to read all units of a row.
    pub fn will_need_all(&self, spot: Spot<'_>) {
        for role in 0..spot.layout.width() {
            let len = spot.stored(role);
            let n = spot.layout.directory(spot.row.slot, role);
            if let Some(disk) = self.disk(n).filter(|_| len > 0) {
                disk.will_need(Part::Data, spot.row.slot * self.slot_bytes as u64, len);
            }
        }
    }

    /// Lets the directories begin to read bytes of a row, each its units.
    pub fn will_need(&self, spot: Spot<'_>, from: usize, to: usize) {
        let unit = spot.layout.unit_bytes;
        let slot = spot.row.slot;
        for role in from / unit..to.div_ceil(unit) {
            let first = from.saturating_sub(role * unit) / BLOCK * BLOCK;
            let len = spot
                .stored(role)
                .min(to - role * unit)
                .saturating_sub(first);
            if let Some(disk) = self.disk(spot.layout.directory(slot, role))
                && len > 0
            {
                let at = slot * self.slot_bytes as u64 + first as u64;
                disk.will_need(Part::Data, at, len);
            }
        }
    }

    /// Reads bytes of the unit `role` of a row, whatever it takes.
    fn read_unit(&self, spot: Spot<'_>, role: usize, from: usize, into: &mut [u8]) -> Result<()> {
        let there = spot.stored(role).saturating_sub(from).min(into.len());
        into[there..].fill(0);
        if there == 0 {
            return Ok(());
        }
        // Blocks that are wanted in part are read beside the others, which go to their place.
        let mut parts = [0; 2 * BLOCK];
        let (head, tail) = parts.split_at_mut(BLOCK);
        let skip = from % BLOCK;
        let head_len = if skip > 0 { there.min(BLOCK - skip) } else { 0 };
        let tail_len = (there - head_len) % BLOCK;
        let (head_into, rest) = into[..there].split_at_mut(head_len);
        let (whole, tail_into) = rest.split_at_mut(there - head_len - tail_len);
        let mut pieces: Vec<&mut [u8]> = Vec::with_capacity(3);
        if head_len > 0 {
            pieces.push(head);
        }
        pieces.push(whole);
        if tail_len > 0 {
            pieces.push(tail);
        }
        self.read_blocks(spot, role, from / BLOCK, &mut pieces)?;
        head_into.copy_from_slice(&parts[skip..skip + head_len]);
        tail_into.copy_from_slice(&parts[BLOCK..BLOCK + tail_len]);
        Ok(())
    }

    /// Reads whole blocks that are stored of a unit, from its directory or from the others.
    fn read_blocks(
        &self,
        spot: Spot<'_>,
        role: usize,
        first: usize,
        pieces: &mut [&mut [u8]],
    ) -> Result<()> {
        match self.try_blocks(spot, role, first, pieces) {
            UnitState::Right => return Ok(()),
            UnitState::Absent => {}
            UnitState::Stale | UnitState::Damaged => {
                self.damaged_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let found = self.compute(spot, role, first, len);
        let found = found.ok_or(Fault::Broken)?;
        let mut rest = found.as_slice();
        for piece in pieces {
            let (bytes, others) = rest.split_at(piece.len());
            piece.copy_from_slice(bytes);
            rest = others;
        }
        Ok(())
    }

    /// Computes `len` bytes of a unit from block `first` on from the other units.
    pub fn compute(
        &self,
        spot: Spot<'_>,
        role: usize,
        first: usize,
        len: usize,
    ) -> Option<Vec<u8>> {
        let layout = spot.layout;
        let mut units: Vec<Option<Vec<u8>>> = Vec::new();
        let mut right = 0;
        for other in 0..layout.width() {
            if other == role || right == layout.data {
                units.push(None);
                continue;
            }
            let there = spot.stored(other).saturating_sub(first * BLOCK);
            let mut unit = vec![0; there.min(len)];
            let is_right =
                self.try_blocks(spot, other, first, &mut [&mut unit]) == UnitState::Right;
            right += usize::from(is_right);
            units.push(is_right.then_some(unit));
        }
        let units: Vec<Option<&[u8]>> = units.iter().map(Option::as_deref).collect();
        recover(layout.data, &units, role, len)
    }

    /// Reads whole blocks that are stored of a unit from its directory.
    fn try_blocks(
        &self,
        spot: Spot<'_>,
        role: usize,
        first: usize,
        pieces: &mut [&mut [u8]],
    ) -> UnitState {
        let row = spot.row;
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len == 0 {
            return UnitState::Right;
        }
        let n = spot.layout.directory(row.slot, role);
        let Some(disk) = self.disk(n) else {
            return UnitState::Absent;
        };
        let expected = spot.stored(role) / BLOCK;
        let record = match self.record(n, &*disk, row.slot) {
            Ok(Some(record))
                if record.generation == row.generation && record.sums.len() == expected =>
            {
                record
            }
            Ok(_) => return UnitState::Stale,
            Err(error) => return self.unreadable(n, &error),
        };
        let at = row.slot * self.slot_bytes as u64 + (first * BLOCK) as u64;
        match disk.read_pieces(Part::Data, at, pieces) {
            Ok(got) if got == len => {}
            Ok(_) => return UnitState::Damaged,
            Err(error) => return self.unreadable(n, &error),
        }
        let sums = pieces.iter().flat_map(|piece| sums::blocks(piece));
        if sums.eq(record.sums[first..].iter().copied().take(len / BLOCK)) {
            UnitState::Right
        } else {
            UnitState::Damaged
        }
    }

    fn unreadable(&self, n: usize, error: &io::Error) -> UnitState {
        self.fail(n, &format!("it cannot be read: {error}"));
        UnitState::Absent
    }

    /// The record of a unit; none when it is not whole.
    fn record(&self, n: usize, disk: &dyn Disk, slot: u64) -> io::Result<Option<Record>> {
        let bytes = sums::record_bytes(self.slot_bytes);
        let mut record = vec![0; bytes];
        let got = disk.read(Part::Sums, slot * bytes as u64, &mut record)?;
        Ok((got == bytes)
            .then(|| sums::decode(self.place(n, slot), &record))
            .flatten())
    }

    /// Looks at the unit of a row in directory `n`, all of it. Where the row has none there, that
    /// is right.
    pub fn inspect(&self, spot: Spot<'_>, n: usize) -> UnitState {
        let Some(role) = spot.layout.role(spot.row.slot, n) else {
            return UnitState::Right;
        };
        self.try_blocks(spot, role, 0, &mut [&mut vec![0; spot.stored(role)]])
    }
}
