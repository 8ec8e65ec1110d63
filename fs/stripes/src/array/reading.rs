//! Reading parts of rows, checked by generation and checksum, and computing what cannot be read.

use std::io;
use std::sync::atomic::Ordering;

use margay_core_stripes::{BLOCK, recover};

use super::{Array, Spot, UnitState};
use crate::disk::{Disk, Part, read_exact};
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
        let first = from / BLOCK;
        let last = (from + there).div_ceil(BLOCK);
        if from.is_multiple_of(BLOCK) && there.is_multiple_of(BLOCK) {
            return self.read_blocks(spot, role, first, &mut into[..there]);
        }
        let mut whole = vec![0; (last - first) * BLOCK];
        self.read_blocks(spot, role, first, &mut whole)?;
        let skip = from - first * BLOCK;
        into[..there].copy_from_slice(&whole[skip..skip + there]);
        Ok(())
    }

    /// Reads whole blocks that are stored of a unit, from its directory or from the others.
    fn read_blocks(
        &self,
        spot: Spot<'_>,
        role: usize,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        match self.try_blocks(spot, role, first, into) {
            UnitState::Right => return Ok(()),
            UnitState::Absent => {}
            UnitState::Stale | UnitState::Damaged => {
                self.damaged_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        let found = self.compute(spot, role, first, into.len());
        into.copy_from_slice(&found.ok_or(Fault::Broken)?);
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
            let is_right = self.try_blocks(spot, other, first, &mut unit) == UnitState::Right;
            right += usize::from(is_right);
            units.push(is_right.then_some(unit));
        }
        let units: Vec<Option<&[u8]>> = units.iter().map(Option::as_deref).collect();
        recover(layout.data, &units, role, len)
    }

    /// Reads whole blocks that are stored of a unit from its directory.
    fn try_blocks(&self, spot: Spot<'_>, role: usize, first: usize, into: &mut [u8]) -> UnitState {
        let row = spot.row;
        if into.is_empty() {
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
        match read_exact(&*disk, Part::Data, at, into) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return UnitState::Damaged;
            }
            Err(error) => return self.unreadable(n, &error),
        }
        if sums::blocks(into).eq(record.sums[first..]
            .iter()
            .copied()
            .take(into.len() / BLOCK))
        {
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
        self.try_blocks(spot, role, 0, &mut vec![0; spot.stored(role)])
    }
}
