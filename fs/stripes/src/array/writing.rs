//! Writing rows to all of their directories at the same time, and units of them anew.

use std::io::IoSlice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_core_stripes::{Layout, encode};

use super::{Array, Spot, lock};
use crate::disk::{Disk, Part, Pending, Write};
use crate::fault::{Fault, Result, is_full};
use crate::sums::{self, Record};

/// Buffers for parity that are kept.
const MOST_BUFFERS: usize = 8;

impl Array {
    /// Writes rows to consecutive slots. All but the last are full; the last one is whole blocks.
    /// All directories are written at the same time.
    ///
    /// # Errors
    /// When a directory is full, or too few are left. The slots are then still free.
    pub fn write_rows(
        &self,
        layout: &Layout,
        slot: u64,
        generation: u64,
        rows: &[&[u8]],
    ) -> Result<()> {
        let mut buffer = lock(&self.buffers).pop().unwrap_or_default();
        let parity = parity_of(layout, rows, &mut buffer);
        let members: Vec<usize> = layout.over.numbers().collect();
        let next = AtomicUsize::new(0);
        let begun: Mutex<Vec<(usize, Pending)>> = Mutex::default();
        let bytes = rows.iter().map(|row| row.len()).sum();
        self.share(bytes, &|| {
            while let Some(n) = members.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(disk) = self.disk(*n) {
                    let units = units_of(layout, *n, (slot, generation), rows, &parity);
                    if !units.is_empty() {
                        let pending = self.begin_units(layout, *n, &*disk, &units);
                        lock(&begun).push((*n, pending));
                    }
                }
            }
        });
        let mut is_any_full = false;
        // All of them, so that nothing is written to a slot any more that is free again.
        for (n, pending) in std::mem::take(&mut *lock(&begun)) {
            let written = pending.wait();
            // Behind the write: a sync that begins before it would not be of these bytes.
            self.members[n].is_dirty.store(true, Ordering::SeqCst);
            match written {
                Ok(()) => {}
                Err(error) if is_full(&error) => is_any_full = true,
                Err(error) => self.fail(n, &format!("it cannot be written: {error}")),
            }
        }
        let mut buffers = lock(&self.buffers);
        if buffers.len() < MOST_BUFFERS {
            buffers.push(buffer);
        }
        drop(buffers);
        if is_any_full {
            Err(Fault::NoSpace)
        } else if self.is_usable() {
            Ok(())
        } else {
            Err(Fault::Broken)
        }
    }

    /// Begins to write units, in the order of their slots, with their records, to a directory.
    fn begin_units(
        &self,
        layout: &Layout,
        n: usize,
        disk: &dyn Disk,
        units: &[Unit<'_>],
    ) -> Pending {
        let bytes = sums::record_bytes(self.slot_bytes);
        let mut records = vec![0; bytes * units.len()];
        for (unit, into) in units.iter().zip(records.chunks_exact_mut(bytes)) {
            let record = Record {
                generation: unit.generation,
                sums: sums::blocks(unit.bytes).collect(),
            };
            sums::encode(self.place(n, unit.slot), &record, into);
        }
        let pieces: Vec<IoSlice<'_>> = units.iter().map(|u| IoSlice::new(u.bytes)).collect();
        let records: Vec<IoSlice<'_>> = records.chunks(bytes).map(IoSlice::new).collect();
        // Units before the last are full: where they fill their slots, those of consecutive slots
        // lie one after the other.
        let fills_slots = layout.unit_bytes == self.slot_bytes;
        let mut writes = Vec::new();
        let mut first = 0;
        while first < units.len() {
            let slot = units[first].slot;
            let run = units[first..].iter().zip(slot..);
            let count = run.take_while(|(unit, slot)| unit.slot == *slot).count();
            let end = first + count;
            let pieces = pieces[first..end].chunks(if fills_slots { count } else { 1 });
            writes.extend(pieces.zip(slot..).map(|(pieces, slot)| Write {
                part: Part::Data,
                at: slot * self.slot_bytes as u64,
                pieces,
            }));
            writes.push(Write {
                part: Part::Sums,
                at: slot * bytes as u64,
                pieces: &records[first..end],
            });
            first = end;
        }
        disk.begin(&writes)
    }

    /// Computes the unit of a row in directory `n` and writes it. The caller keeps the row from
    /// being replaced meanwhile.
    ///
    /// # Errors
    /// When it cannot be computed or written.
    pub fn mend(&self, spot: Spot<'_>, n: usize) -> Result<u64> {
        let role = spot.layout.role(spot.row.slot, n);
        let Some((role, len)) = role.map(|role| (role, spot.stored(role))) else {
            return Ok(0);
        };
        if len == 0 {
            return Ok(0);
        }
        let bytes = self.compute(spot, role, 0, len).ok_or(Fault::Broken)?;
        let disk = self.disk(n).ok_or(Fault::Broken)?;
        let unit = Unit {
            slot: spot.row.slot,
            generation: spot.row.generation,
            bytes: &bytes,
        };
        let begun = self.begin_units(spot.layout, n, &*disk, &[unit]);
        let written = begun.wait();
        self.members[n].is_dirty.store(true, Ordering::SeqCst);
        written.map_err(|error| {
            if !is_full(&error) {
                self.fail(n, &format!("it cannot be written: {error}"));
            }
            Fault::of(&error)
        })?;
        Ok(len as u64)
    }
}

/// A unit of a row, and where it belongs.
struct Unit<'a> {
    slot: u64,
    generation: u64,
    bytes: &'a [u8],
}

/// The units of rows in consecutive slots that belong to directory `n`.
fn units_of<'a>(
    layout: &Layout,
    n: usize,
    (slot, generation): (u64, u64),
    rows: &[&'a [u8]],
    parity: &[Vec<&'a [u8]>],
) -> Vec<Unit<'a>> {
    let rows = rows.iter().zip(parity).zip(0_u64..);
    let units = rows.filter_map(|((row, parity), i)| {
        let role = layout.role(slot + i, n)?;
        let bytes = if role < layout.data {
            let from = (role * layout.unit_bytes).min(row.len());
            &row[from..(from + layout.unit_bytes).min(row.len())]
        } else {
            parity[role - layout.data]
        };
        Some(Unit {
            slot: slot + i,
            generation: generation + i,
            bytes,
        })
    });
    units.collect()
}

/// The units of parity of rows of whole blocks, in a buffer.
fn parity_of<'a>(layout: &Layout, rows: &[&[u8]], buffer: &'a mut Vec<u8>) -> Vec<Vec<&'a [u8]>> {
    let unit_len = |row: &[u8]| row.len().min(layout.unit_bytes);
    let needed = rows.iter().map(|row| unit_len(row) * layout.parity).sum();
    if buffer.len() < needed {
        buffer.resize(needed, 0);
    }
    let mut rest = buffer.as_mut_slice();
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let units: Vec<&[u8]> = row.chunks(layout.unit_bytes).collect();
        let mut parity: Vec<&mut [u8]> = Vec::with_capacity(layout.parity);
        for _ in 0..layout.parity {
            let (unit, others) = rest.split_at_mut(unit_len(row));
            parity.push(unit);
            rest = others;
        }
        encode(&units, &mut parity);
        all.push(parity.into_iter().map(|unit| &*unit).collect());
    }
    all
}
