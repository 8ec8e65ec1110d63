//! Memory of dynamic windows.

use std::sync::Arc;

use margay_core_group::Group;
use margay_sys_os::user::Mem;
use margay_sys_shm::segment::Segment;
use margay_sys_shm::window::{Attached, Table};

use super::{Flavor, Window, Windows};
use margay_run_mpi::error::*;
use margay_run_mpi::fail;

/// What this process has attached to one window.
#[derive(Default)]
pub(super) struct Attachments {
    pieces: Vec<Piece>,
    /// The table in shared memory in which others look.
    table: Option<Table>,
    /// The addresses of this table and of shorter ones before it, which others may still read.
    made: Vec<usize>,
}

struct Piece {
    /// Its base is the program's address.
    mem: Mem,
    bytes: u64,
    /// The entry in the table, if it stands there.
    entry: Option<u32>,
}

/// Entries of the first table.
const FIRST: u32 = 16;

impl Attachments {
    /// Returns the memory that covers `[address, address + bytes)`, one piece or several that touch
    /// each other, and its own address.
    pub(super) fn find(&self, address: u64, bytes: u64) -> Option<(Mem, u64)> {
        let at = |address: u64| {
            let mut pieces = self.pieces.iter();
            pieces.find(|piece| piece.attached(None).covers(address, 1))
        };
        let first = at(address)?;
        let (mut mem, mut found) = (first.mem.clone(), first.attached(None));
        while !found.covers(address, bytes) {
            let next = at(found.address + found.bytes)?;
            mem = mem.joined(&next.mem)?;
            found = found.joined(&next.attached(None))?;
        }
        Some((mem, found.address))
    }

    /// Refuses what overlaps memory that is attached.
    fn check(&self, new: &Piece, window: &Window) -> Result<()> {
        let end = |piece: &Piece| piece.address().saturating_add(piece.bytes);
        let overlaps = |old: &&Piece| old.address() < end(new) && new.address() < end(old);
        if let Some(old) = self.pieces.iter().find(overlaps) {
            fail!(
                MPI_ERR_RMA_ATTACH,
                "{} bytes at {:#x} overlap {} bytes at {:#x} that are attached to {} already",
                new.bytes,
                new.address(),
                old.bytes,
                old.address(),
                window.describe()
            );
        }
        Ok(())
    }

    fn capacity(&self) -> u32 {
        self.table.as_ref().map_or(0, Table::capacity)
    }

    /// Entries are taken from the start, so that the search is short.
    fn free_entry(&self) -> Option<u32> {
        let used = |entry: u32| self.pieces.iter().any(|p| p.entry == Some(entry));
        (0..self.capacity()).find(|&entry| !used(entry))
    }

    fn enter(&mut self, segment: &Segment, mut piece: Piece, entry: u32) {
        piece.entry = Some(entry);
        piece.publish(segment, self.table.as_ref());
        self.pieces.push(piece);
    }

    /// Puts a longer table into the shared memory at `address` in place of the one in use.
    fn replace_table(
        &mut self,
        segment: &Arc<Segment>,
        window: &Window,
        capacity: u32,
        address: usize,
    ) -> Result<()> {
        self.made.push(address);
        let made = segment
            .place_of(address, Table::bytes(capacity))
            .and_then(|(owner, offset)| {
                Some((offset, Table::create(segment, owner, offset, capacity)?))
            });
        let Some((offset, table)) = made else {
            return Err(no_table(capacity, window));
        };
        for piece in &self.pieces {
            piece.publish(segment, Some(&table));
        }
        if let Some(block) = &window.block {
            block.set_table(window.rank(), offset);
        }
        self.table = Some(table);
        Ok(())
    }

    /// Returns the addresses of its tables, to be freed with the window.
    pub(super) fn take_made(&mut self) -> Vec<usize> {
        self.table = None;
        std::mem::take(&mut self.made)
    }
}

impl Piece {
    fn address(&self) -> u64 {
        self.mem.address() as u64
    }

    fn publish(&self, segment: &Segment, table: Option<&Table>) {
        if let (Some(entry), Some(table)) = (self.entry, table) {
            let place = segment.place_of(self.mem.address(), self.bytes);
            table.set(entry, Some(self.attached(place)));
        }
    }

    fn attached(&self, place: Option<(u32, u64)>) -> Attached {
        Attached {
            address: self.address(),
            bytes: self.bytes,
            place,
        }
    }
}

impl Windows<'_> {
    /// `MPI_Win_attach`: `bytes` at the base of `mem`.
    ///
    /// # Errors
    /// When the window is not dynamic, the memory overlaps memory that is attached already, or
    /// there is no memory left for the table in which the others look.
    pub fn attach(&self, handle: u32, mem: Mem, bytes: u64) -> Result<()> {
        let window = self.dynamic_window(handle, "MPI_Win_attach")?;
        let piece = Piece {
            mem,
            bytes,
            entry: None,
        };
        let Some(segment) = self
            .mpi
            .rank()
            .any_memory()
            .filter(|_| window.block.is_some())
        else {
            let mut attachments = window.attachments();
            attachments.check(&piece, &window)?;
            attachments.pieces.push(piece);
            return Ok(());
        };
        // Memory for a longer table comes from the engine, whose lock comes before that of the
        // attachments.
        let mut spare = None;
        loop {
            let mut attachments = window.attachments();
            attachments.check(&piece, &window)?;
            if let Some(entry) = attachments.free_entry() {
                attachments.enter(segment, piece, entry);
                break;
            }
            let capacity = attachments.capacity();
            let longer = FIRST.max(2 * capacity);
            match spare.take() {
                Some((more, address)) if more == longer => {
                    attachments.replace_table(segment, &window, longer, address)?;
                    attachments.enter(segment, piece, capacity);
                    break;
                }
                other => {
                    drop(attachments);
                    self.give_back(other);
                    let Some(address) = self.mpi.rank().alloc_shared(Table::bytes(longer)) else {
                        return Err(no_table(longer, &window));
                    };
                    spare = Some((longer, address));
                }
            }
        }
        self.give_back(spare);
        Ok(())
    }

    fn give_back(&self, spare: Option<(u32, usize)>) {
        if let Some((_, address)) = spare {
            let known = self.mpi.rank().free_shared(address);
            debug_assert!(known, "it came from there");
        }
    }

    /// `MPI_Win_detach`
    ///
    /// # Errors
    /// When the window is not dynamic or no memory is attached at that address.
    pub fn detach(&self, handle: u32, address: usize) -> Result<()> {
        let window = self.dynamic_window(handle, "MPI_Win_detach")?;
        let mut attachments = window.attachments();
        let found = attachments
            .pieces
            .iter()
            .position(|piece| piece.mem.address() == address);
        let Some(at) = found else {
            fail!(
                MPI_ERR_RMA_ATTACH,
                "no memory is attached to {} at {address:#x}; it was detached before, or attached with another base",
                window.describe()
            );
        };
        let piece = attachments.pieces.remove(at);
        if let (Some(table), Some(entry)) = (&attachments.table, piece.entry) {
            table.set(entry, None);
        }
        Ok(())
    }

    fn dynamic_window(&self, handle: u32, call: &str) -> Result<Arc<Window>> {
        let window = self.window(handle)?;
        if window.flavor != Flavor::Dynamic {
            fail!(
                MPI_ERR_RMA_FLAVOR,
                "{call} is for windows of MPI_Win_create_dynamic; {} is not one",
                window.describe()
            );
        }
        Ok(window)
    }
}

fn no_table(capacity: u32, window: &Window) -> Error {
    Error::new(
        MPI_ERR_NO_MEM,
        format!(
            "no shared memory is left for a table of {capacity} attachments to {}",
            window.describe()
        ),
    )
}

/// Returns what `target`, a process of `members`, has attached that covers `[address, address +
/// bytes)`.
pub(super) fn look_up(
    segment: &Arc<Segment>,
    window: &Window,
    members: &Group,
    target: u32,
    address: u64,
    bytes: u64,
) -> Option<Attached> {
    let offset = window.block.as_ref()?.table(target)?;
    let table = Table::open(segment, members.process(target)?, offset)?;
    table.find(address, bytes)
}
