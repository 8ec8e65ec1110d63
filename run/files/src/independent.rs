//! Access by one rank alone: extents merged, memory in as few copies as possible.

use margay_fs_storage::{Lock, Slice, Storage};
use margay_run_engine::{Data, copy};
use margay_sys_os::user::Mem;

use super::errors::failed;
use super::hints::{Hints, Switch};
use super::runs::{Blocks, Extents};
use super::view::View;
use margay_run_mpi::error::*;

/// Elements that are packed before they are written, or read before they are unpacked, in pieces of
/// this many bytes: they stay in a core's own cache.
const PACKED: u64 = 1 << 20;

/// Memory whose pieces are at least this long on average goes to the system as it is; packing
/// shorter ones costs less than the system's work for each.
const LONG_PIECES: u64 = 2048;

/// Holes up to this many bytes are read with what is around them: as much as the system moves in
/// the time of a call.
const HOLE: i64 = 4096;

/// What one rank reads or writes: packed bytes of a view from `start` on, as many as `data` has.
#[derive(Clone)]
pub(super) struct Access {
    pub view: std::sync::Arc<View>,
    pub start: u64,
    pub data: Data,
    pub write: bool,
}

impl Access {
    /// Returns the extents, in the order of the view.
    pub fn extents(&self) -> Result<Extents> {
        self.view.extents(self.start, self.data.size())
    }

    /// Does it. Returns the bytes read or written; fewer than asked for where the file ends:
    /// reading stops at the first byte of the view that is not in the file. With `atomic`, the
    /// whole range is locked.
    pub fn perform(&self, storage: &dyn Storage, hints: &Hints, atomic: bool) -> Result<u64> {
        if self.data.size() == 0 {
            return Ok(0);
        }
        let blocks = Blocks::new(self.extents()?);
        if !atomic {
            return self.transfer(storage, hints, blocks);
        }
        let (low, high) = self.view.hull(self.start, self.data.size())?;
        let lock = if self.write {
            Lock::Exclusive
        } else {
            Lock::Shared
        };
        let (low, len) = (low as u64, (high - low) as u64);
        storage.lock(low, len, lock).map_err(failed)?;
        let result = self.transfer(storage, hints, blocks);
        storage.unlock(low, len);
        result
    }

    fn transfer(
        &self,
        storage: &dyn Storage,
        hints: &Hints,
        blocks: Blocks<Extents>,
    ) -> Result<u64> {
        if self.write {
            self.write(storage, blocks)
        } else {
            self.read(storage, hints, blocks)
        }
    }

    fn write(&self, storage: &dyn Storage, blocks: Blocks<Extents>) -> Result<u64> {
        let mut done = 0;
        // Packed bytes `packed_from .. packed_to` of non-dense data.
        let mut packed = Mem::empty();
        let (mut packed_from, mut packed_to) = (0, 0);
        let direct = self.data.mean_piece() >= LONG_PIECES;
        for (offset, len) in blocks {
            let mut at = 0;
            while at < len {
                let part;
                if direct {
                    // Bounded, so that the list of pieces is.
                    part = (len - at).min(16 * PACKED);
                    let pieces = self.data.range(done, part).pieces();
                    storage
                        .write_at(offset as u64 + at, &pieces)
                        .map_err(failed)?;
                } else {
                    if done == packed_to {
                        let bytes = PACKED.min(self.data.size() - done);
                        if packed_to == 0 {
                            packed = Mem::owned(bytes as usize);
                        }
                        let target = Data::bytes(packed.clone(), bytes);
                        copy(&self.data.range(done, bytes), &target);
                        (packed_from, packed_to) = (done, done + bytes);
                    }
                    part = (len - at).min(packed_to - done);
                    let piece = Slice {
                        mem: packed.clone(),
                        at: (done - packed_from) as i64,
                        len: part as usize,
                    };
                    storage
                        .write_at(offset as u64 + at, &[piece])
                        .map_err(failed)?;
                }
                at += part;
                done += part;
            }
        }
        Ok(done)
    }

    fn read(&self, storage: &dyn Storage, hints: &Hints, blocks: Blocks<Extents>) -> Result<u64> {
        let sieve = hints.ds_read != Switch::Disable;
        let room = hints.ind_rd_buffer_size as i64;
        let mut blocks = blocks.peekable();
        let mut done = 0;
        let mut batch = Vec::new();
        let (mut around, mut packed) = (Room::default(), Room::default());
        while let Some((low, len)) = blocks.next() {
            batch.clear();
            batch.push((low, len));
            let mut high = low + len as i64;
            let mut wanted = len;
            while sieve
                && let Some(&(offset, len)) = blocks.peek()
                && offset >= high
                && offset - high <= HOLE
                && offset + len as i64 - low <= room
            {
                blocks.next();
                batch.push((offset, len));
                high = offset + len as i64;
                wanted += len;
            }
            let got = if batch.len() == 1 {
                self.read_extent(storage, low as u64, len, done)?
            } else {
                self.read_around(storage, &batch, done, (&mut around, &mut packed))?
            };
            done += got;
            if got < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Reads one extent to packed byte `done` of the data.
    fn read_extent(&self, storage: &dyn Storage, offset: u64, len: u64, done: u64) -> Result<u64> {
        let direct = self.data.mean_piece() >= LONG_PIECES;
        let most = if direct { 16 * PACKED } else { PACKED };
        let packed = Mem::owned(if direct { 0 } else { len.min(PACKED) as usize });
        let mut at = 0;
        while at < len {
            let part = (len - at).min(most);
            let target = self.data.range(done + at, part);
            let got = if direct {
                storage
                    .read_at(offset + at, &target.pieces())
                    .map_err(failed)?
            } else {
                let piece = Slice {
                    mem: packed.clone(),
                    at: 0,
                    len: part as usize,
                };
                let got = storage.read_at(offset + at, &[piece]).map_err(failed)?;
                copy(&Data::bytes(packed.clone(), got), &target.range(0, got));
                got
            };
            at += got;
            if got < part {
                break;
            }
        }
        Ok(at)
    }

    /// Reads everything from the first to the last of the blocks and takes the blocks out of it, to
    /// packed byte `done`.
    fn read_around(
        &self,
        storage: &dyn Storage,
        blocks: &[(i64, u64)],
        done: u64,
        (around, packed): (&mut Room, &mut Room),
    ) -> Result<u64> {
        let (Some(&(low, _)), Some(&(last, len))) = (blocks.first(), blocks.last()) else {
            return Ok(0);
        };
        let length = (last - low) as usize + len as usize;
        let around = around.of(length);
        let piece = Slice {
            mem: around.clone(),
            at: 0,
            len: length,
        };
        let end = low + storage.read_at(low as u64, &[piece]).map_err(failed)? as i64;
        let wanted: u64 = blocks.iter().map(|block| block.1).sum();
        let packed = packed.of(wanted as usize);
        let mut got = 0;
        packed.with_bytes_mut(0, wanted as usize, |to| {
            around.with_bytes(0, length, |from| {
                for &(offset, len) in blocks {
                    let valid = (end - offset).clamp(0, len as i64) as usize;
                    let at = (offset - low) as usize;
                    to[got..got + valid].copy_from_slice(&from[at..at + valid]);
                    got += valid;
                    if valid < len as usize {
                        break;
                    }
                }
            });
        });
        let got = got as u64;
        copy(&Data::bytes(packed, got), &self.data.range(done, got));
        Ok(got)
    }
}

/// Memory that is used again, so that its pages are there.
#[derive(Default)]
struct Room(Option<(Mem, usize)>);

impl Room {
    /// At least this many bytes.
    fn of(&mut self, length: usize) -> Mem {
        match &self.0 {
            Some((mem, room)) if *room >= length => mem.clone(),
            _ => {
                let mem = Mem::owned(length);
                self.0 = Some((mem.clone(), length));
                mem
            }
        }
    }
}
