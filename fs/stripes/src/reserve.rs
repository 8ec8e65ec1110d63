//! Cutting a file on a full disk. The row of the new end is written to a free place as any other,
//! and a full disk has none: so one slot is kept for that, with its space in all directories.

use margay_core_stripes::BLOCK;

use crate::array::lock;
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::names::write;
use crate::store::Store;

/// A slot that no file has.
#[derive(Debug, Default)]
pub struct Reserve {
    slot: Option<u64>,
    /// How often directories had been taken into use when its space was taken.
    takes: u64,
}

impl Store {
    /// Takes a slot with its space where none is kept, and its space in directories that are new.
    pub(crate) fn keep_reserve(&self) {
        let takes = self.array.all().map(|n| self.array.takes(n) + 1).sum();
        let mut reserve = lock(&self.reserve);
        if reserve.slot.is_some() && reserve.takes == takes {
            return;
        }
        let slot = match reserve.slot {
            Some(slot) => slot,
            None => lock(&self.slots).take(1, true),
        };
        if !self.array.reserve(slot) {
            reserve.slot = Some(slot);
            reserve.takes = takes;
        } else if reserve.slot.is_none() {
            lock(&self.slots).free([slot]);
        }
    }

    /// Cuts a file though no directory has space: writes the row to the slot that is kept, and back
    /// to the slot that it had, as soon as that is free. Each is in the log before the next.
    ///
    /// # Errors
    /// When there is no such slot, or too few directories are left.
    pub(crate) fn set_size_by_reserve(&self, ino: u64, data: &FileData, size: u64) -> Result<()> {
        let mut reserve = lock(&self.reserve);
        let slot = reserve.slot.ok_or(Fault::NoSpace)?;
        let Some((row, before)) = self.try_set_size(ino, data, size, Some(slot))? else {
            return Ok(());
        };
        // The file is cut. Whatever fails now, another slot is kept later.
        reserve.slot = None;
        if self.commit().is_err() || !self.move_row(ino, data, row, (slot, before)) {
            self.push(&[], vec![before]);
        } else if self.commit().is_err() {
            self.push(&[], vec![slot]);
        } else {
            reserve.slot = Some(slot);
        }
        Ok(())
    }

    /// Moves a row to another slot, which is the caller's. Returns whether it did.
    fn move_row(&self, ino: u64, data: &FileData, row: u64, (from, to): (u64, u64)) -> bool {
        let mut rows = write(data);
        // Somebody may have written or deleted it.
        let Some(at) = rows.map.get(&row).copied().filter(|at| at.slot == from) else {
            return false;
        };
        let mut bytes = vec![0; at.blocks as usize * BLOCK];
        let moved = self
            .array
            .read_row(rows.spot(at), 0, &mut bytes)
            .and_then(|()| self.store_rows(&rows.layout, Some(to), &[&bytes]));
        let Ok(stored) = moved else { return false };
        let placed = self.adopt(ino, data, &mut rows, row, &stored, &[&bytes]);
        self.push(&[placed.change], vec![]);
        true
    }
}
