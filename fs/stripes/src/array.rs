//! The stripe directories together: writing rows, reading parts of them, and computing what cannot
//! be read. Every read is checked by generation and checksum, so it does not matter to a reader how
//! a directory is said to be: what is stale, damaged or missing is computed from the others.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use margay_core_stripes::{BLOCK, Layout, encode, recover};
use margay_sys_os::crew::Crew;

use crate::change::RowRef;
use crate::disk::{Disk, Part, Pending, Space, Write, read_exact};
use crate::fault::{Fault, Result, is_full};
use crate::state::{Health, Member, State};
use crate::sums::{self, Place, Record};

/// What was found where a unit should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// It is there, of this generation, and its checksums are right.
    Right,
    /// The directory is not used.
    Absent,
    /// There is no record of this generation: the directory missed it, or the record is damaged.
    Stale,
    /// The record is right and the data is not.
    Damaged,
}

/// The directories.
pub struct Array {
    /// How rows are cut.
    pub layout: Layout,
    members: Vec<Directory>,
    state: Mutex<State>,
    /// The state was changed and is not written yet.
    is_changed: AtomicBool,
    /// Units that were computed since the start because they could not be read, although their
    /// directory is used.
    pub damaged_reads: AtomicU64,
    events: Mutex<Vec<String>>,
    /// Held while a state is written, so that epochs are written in their order.
    writing: Mutex<()>,
    /// Memory for units of parity: it costs more to get it from the system than to fill it.
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Held while directories are synced: who finds that another one does it waits for its end.
    syncing: Mutex<()>,
    /// Threads that help with long reads and writes, where somebody has asked for them.
    crew: OnceLock<Crew>,
}

/// A stripe directory in use.
struct Directory {
    disk: RwLock<Option<Arc<dyn Disk>>>,
    id: AtomicU64,
    is_dirty: AtomicBool,
    /// How often it was taken into use: who rebuilds finds out that it is not the same any more.
    takes: AtomicU64,
}

/// Buffers for parity that are kept.
const MOST_BUFFERS: usize = 8;

/// Bytes from which on a read or write is worth waking others.
const LEAST_SHARED: usize = 256 << 10;

/// Events that are kept until they are reported.
const MOST_EVENTS: usize = 1000;

/// Locks, whatever happened to a thread that held the lock: what it guards is changed in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Array {
    /// Puts directories together; none for those that are not there.
    #[must_use]
    pub fn new(state: State, disks: Vec<Option<Arc<dyn Disk>>>) -> Array {
        let members = state
            .members
            .iter()
            .zip(disks)
            .map(|(member, disk)| Directory {
                disk: RwLock::new(disk),
                id: AtomicU64::new(member.id),
                is_dirty: AtomicBool::new(false),
                takes: AtomicU64::new(0),
            })
            .collect();
        Array {
            layout: state.layout,
            members,
            state: Mutex::new(state),
            is_changed: AtomicBool::new(false),
            damaged_reads: AtomicU64::new(0),
            events: Mutex::new(Vec::new()),
            writing: Mutex::new(()),
            buffers: Mutex::default(),
            syncing: Mutex::new(()),
            crew: OnceLock::new(),
        }
    }

    /// The state as it is now.
    #[must_use]
    pub fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// The directory `n`, if it is used.
    #[must_use]
    pub fn disk(&self, n: usize) -> Option<Arc<dyn Disk>> {
        let disk = self.members[n].disk.read();
        disk.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Directories that are used.
    #[must_use]
    pub fn used(&self) -> usize {
        (0..self.members.len())
            .filter(|n| self.disk(*n).is_some())
            .count()
    }

    /// Whether as many directories are used as are needed to write and read everything.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.used() >= self.layout.data
    }

    /// Keeps an event until it is reported.
    pub fn tell(&self, event: String) {
        let mut events = lock(&self.events);
        if events.len() < MOST_EVENTS {
            events.push(event);
        }
    }

    /// Returns what happened since the last call.
    pub fn events(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// Gives a directory up: it is not read or written any more. The reason is reported once.
    pub fn fail(&self, n: usize, reason: &str) {
        if self.disk(n).is_none() {
            return;
        }
        // Before it goes: who finds it gone and goes on without it must find that noted.
        let path = {
            let mut state = lock(&self.state);
            state.members[n].health = Health::Failed;
            self.is_changed.store(true, Ordering::SeqCst);
            state.members[n].path.clone()
        };
        let gone = {
            let disk = self.members[n].disk.write();
            disk.unwrap_or_else(PoisonError::into_inner).take()
        };
        if gone.is_some() {
            self.tell(format!("stripe directory {path} failed: {reason}"));
        }
    }

    /// Notes that a directory is not there, or is another one.
    pub fn miss(&self, n: usize) {
        let path = {
            let mut state = lock(&self.state);
            state.members[n].health = Health::Failed;
            state.members[n].path.clone()
        };
        self.is_changed.store(true, Ordering::SeqCst);
        self.tell(format!(
            "stripe directory {path} failed: it is not there, or is not the one that was"
        ));
    }

    /// Takes a directory into use, to be rebuilt.
    pub fn take_in(&self, n: usize, member: Member, disk: Arc<dyn Disk>) {
        self.members[n].id.store(member.id, Ordering::SeqCst);
        let text = format!("stripe directory {} is in use, to be rebuilt", member.path);
        // Under the lock, as who sets how it is looks at both.
        let mut state = lock(&self.state);
        self.members[n].takes.fetch_add(1, Ordering::SeqCst);
        state.members[n] = member;
        drop(state);
        *self.members[n]
            .disk
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(disk);
        self.is_changed.store(true, Ordering::SeqCst);
        self.tell(text);
    }

    /// How often a directory was taken into use.
    pub fn takes(&self, n: usize) -> u64 {
        self.members[n].takes.load(Ordering::SeqCst)
    }

    /// Changes how a directory is said to be, unless it failed or was replaced since `takes`.
    pub fn set_health(&self, n: usize, takes: u64, health: Health) {
        let mut state = lock(&self.state);
        let is_same = self.takes(n) == takes && state.members[n].health != Health::Failed;
        if is_same && self.disk(n).is_some() && state.members[n].health != health {
            state.members[n].health = health;
            self.is_changed.store(true, Ordering::SeqCst);
        }
    }

    /// Gives up directories that are not there any more.
    pub fn look(&self) {
        for n in 0..self.members.len() {
            if self.disk(n).is_some_and(|disk| !disk.is_present()) {
                self.fail(n, "it is gone");
            }
        }
    }

    /// Writes the state to all directories that are used, if it was changed. A directory that does
    /// not take it fails, which is another change.
    ///
    /// # Errors
    /// When too few directories are left.
    pub fn write_state(&self) -> Result<()> {
        let _writing = lock(&self.writing);
        while self.is_changed.swap(false, Ordering::SeqCst) {
            let state = {
                let mut state = lock(&self.state);
                state.epoch += 1;
                state.clone()
            };
            for n in 0..self.members.len() {
                if let Some(disk) = self.disk(n)
                    && let Err(error) = crate::state::write(&*disk, &state, n)
                {
                    self.fail(n, &format!("its state cannot be written: {error}"));
                }
            }
        }
        if self.is_usable() {
            Ok(())
        } else {
            Err(Fault::Broken)
        }
    }

    /// Lets the next `write_state` write, whether or not something changed.
    pub fn renew_state(&self) {
        self.is_changed.store(true, Ordering::SeqCst);
    }

    /// Syncs data and checksums of all directories that were written. Those that cannot be synced
    /// fail: what a failed sync leaves behind is unknown, so it is never tried again.
    pub fn sync(&self) {
        let _syncing = lock(&self.syncing);
        let dirty: Vec<usize> = (0..self.members.len())
            .filter(|n| self.members[*n].is_dirty.swap(false, Ordering::SeqCst))
            .collect();
        self.each(&dirty, |disk| {
            disk.sync(Part::Data)?;
            disk.sync(Part::Sums)
        });
    }

    /// Does the same with several directories at the same time; those that return an error fail.
    /// Returns the directories that succeeded.
    pub fn each(
        &self,
        which: &[usize],
        job: impl Fn(&dyn Disk) -> io::Result<()> + Sync,
    ) -> Vec<usize> {
        let done = |n: usize| {
            let disk = self.disk(n)?;
            match job(&*disk) {
                Ok(()) => Some(n),
                Err(error) => {
                    self.fail(n, &format!("it cannot be synced: {error}"));
                    None
                }
            }
        };
        match which {
            [] => vec![],
            [one] => done(*one).into_iter().collect(),
            [first, rest @ ..] => std::thread::scope(|scope| {
                let done = &done;
                let others: Vec<_> = rest.iter().map(|n| scope.spawn(move || done(*n))).collect();
                let first = done(*first);
                let others = others.into_iter().filter_map(|t| t.join().ok().flatten());
                first.into_iter().chain(others).collect()
            }),
        }
    }

    /// The least space of the directories that are used.
    #[must_use]
    pub fn space(&self) -> Space {
        (0..self.members.len())
            .filter_map(|n| self.disk(n)?.space().ok())
            .min_by_key(|space| space.free)
            .unwrap_or_default()
    }

    /// Gives the space of consecutive slots back, where the system can.
    pub fn punch(&self, slot: u64, count: u64) {
        let unit = self.layout.unit_bytes as u64;
        for n in 0..self.members.len() {
            if let Some(disk) = self.disk(n) {
                // Where it cannot, the slots are used again all the same.
                let _ = disk.punch(Part::Data, slot * unit, count * unit);
            }
        }
    }

    /// Lets that many threads help with long reads and writes, from now on.
    pub fn set_helpers(&self, helpers: usize) {
        // Once: those that are there go on.
        self.crew.get_or_init(|| Crew::new(helpers));
    }

    /// Does work in pieces, with help where it is long enough for that.
    pub fn share(&self, bytes: usize, work: &(dyn Fn() + Sync)) {
        match self.crew.get() {
            Some(crew) if bytes >= LEAST_SHARED => crew.share(work),
            _ => work(),
        }
    }

    /// Writes rows to consecutive slots. All but the last are full; the last one is whole blocks.
    /// All directories are written at the same time.
    ///
    /// # Errors
    /// When a directory is full, or too few are left. The slots are then still free.
    pub fn write_rows(&self, slot: u64, generation: u64, rows: &[&[u8]]) -> Result<()> {
        let mut buffer = lock(&self.buffers).pop().unwrap_or_default();
        let parity = parity_of(&self.layout, rows, &mut buffer);
        let next = AtomicUsize::new(0);
        let begun: Mutex<Vec<(usize, Pending)>> = Mutex::default();
        let bytes = rows.iter().map(|row| row.len()).sum();
        self.share(bytes, &|| {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= self.members.len() {
                    return;
                }
                if let Some(disk) = self.disk(n) {
                    let units = self.units_of(n, slot, rows, &parity);
                    let pending = self.begin_units(n, &*disk, slot, generation, &units);
                    lock(&begun).push((n, pending));
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

    /// The units of rows in consecutive slots that belong to directory `n`.
    fn units_of<'a>(
        &self,
        n: usize,
        slot: u64,
        rows: &[&'a [u8]],
        parity: &[Vec<&'a [u8]>],
    ) -> Vec<&'a [u8]> {
        let layout = &self.layout;
        let rows = rows.iter().zip(parity).enumerate();
        let units = rows.map(|(i, (row, parity))| {
            let role = layout.role(slot + i as u64, n);
            if role < layout.data {
                let from = (role * layout.unit_bytes).min(row.len());
                &row[from..(from + layout.unit_bytes).min(row.len())]
            } else {
                parity[role - layout.data]
            }
        });
        units.collect()
    }

    /// Begins to write units of consecutive slots, with their records, to a directory.
    fn begin_units(
        &self,
        n: usize,
        disk: &dyn Disk,
        slot: u64,
        generation: u64,
        units: &[&[u8]],
    ) -> Pending {
        let bytes = sums::record_bytes(&self.layout);
        let mut records = vec![0; bytes * units.len()];
        for (i, (unit, into)) in units
            .iter()
            .zip(records.chunks_exact_mut(bytes))
            .enumerate()
        {
            let record = Record {
                generation: generation + i as u64,
                sums: sums::blocks(unit).collect(),
            };
            sums::encode(self.place(n, slot + i as u64), &record, into);
        }
        // Units before the last are full, so that they lie one after the other.
        let pieces: Vec<IoSlice<'_>> = units.iter().map(|unit| IoSlice::new(unit)).collect();
        let data = Write {
            part: Part::Data,
            at: slot * self.layout.unit_bytes as u64,
            pieces: &pieces,
        };
        let sums = Write {
            part: Part::Sums,
            at: slot * bytes as u64,
            pieces: &[IoSlice::new(&records)],
        };
        disk.begin(&[data, sums])
    }

    fn place(&self, n: usize, slot: u64) -> Place {
        Place {
            member: self.members[n].id.load(Ordering::SeqCst),
            slot,
        }
    }

    /// Reads `into.len()` bytes of a row from `from` on; what is not stored is zeros.
    ///
    /// # Errors
    /// When more units are lost than can be computed.
    pub fn read_row(&self, row: RowRef, from: usize, into: &mut [u8]) -> Result<()> {
        let unit = self.layout.unit_bytes;
        let mut at = from;
        let mut rest = into;
        while !rest.is_empty() {
            let role = at / unit;
            let within = at % unit;
            let (part, tail) = rest.split_at_mut((unit - within).min(rest.len()));
            self.read_unit(row, role, within, part)?;
            at += part.len();
            rest = tail;
        }
        Ok(())
    }

    /// Whether any directory gains from being asked ahead.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        (0..self.members.len()).any(|n| self.disk(n).is_some_and(|disk| !disk.is_memory()))
    }

    /// Lets the directories begin to read all units of a row.
    pub fn will_need_all(&self, row: RowRef) {
        for role in 0..self.layout.width() {
            let len = self.layout.stored_blocks(row.blocks as usize, role) * BLOCK;
            let n = self.layout.directory(row.slot, role);
            if let Some(disk) = self.disk(n).filter(|_| len > 0) {
                disk.will_need(Part::Data, row.slot * self.layout.unit_bytes as u64, len);
            }
        }
    }

    /// Lets the directories begin to read bytes of a row, each its units.
    pub fn will_need(&self, row: RowRef, from: usize, to: usize) {
        let unit = self.layout.unit_bytes;
        for role in from / unit..to.div_ceil(unit) {
            let stored = self.layout.stored_blocks(row.blocks as usize, role) * BLOCK;
            let first = from.saturating_sub(role * unit) / BLOCK * BLOCK;
            let len = stored.min(to - role * unit).saturating_sub(first);
            if let Some(disk) = self.disk(self.layout.directory(row.slot, role))
                && len > 0
            {
                disk.will_need(Part::Data, row.slot * unit as u64 + first as u64, len);
            }
        }
    }

    /// Reads bytes of the unit `role` of a row, whatever it takes.
    fn read_unit(&self, row: RowRef, role: usize, from: usize, into: &mut [u8]) -> Result<()> {
        let stored = self.layout.stored_blocks(row.blocks as usize, role) * BLOCK;
        let there = stored.saturating_sub(from).min(into.len());
        into[there..].fill(0);
        if there == 0 {
            return Ok(());
        }
        let first = from / BLOCK;
        let last = (from + there).div_ceil(BLOCK);
        if from.is_multiple_of(BLOCK) && there.is_multiple_of(BLOCK) {
            return self.read_blocks(row, role, first, &mut into[..there]);
        }
        let mut whole = vec![0; (last - first) * BLOCK];
        self.read_blocks(row, role, first, &mut whole)?;
        let skip = from - first * BLOCK;
        into[..there].copy_from_slice(&whole[skip..skip + there]);
        Ok(())
    }

    /// Reads whole blocks that are stored of a unit, from its directory or from the others.
    fn read_blocks(&self, row: RowRef, role: usize, first: usize, into: &mut [u8]) -> Result<()> {
        match self.try_blocks(row, role, first, into) {
            UnitState::Right => return Ok(()),
            UnitState::Absent => {}
            UnitState::Stale | UnitState::Damaged => {
                self.damaged_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        let found = self.compute(row, role, first, into.len());
        into.copy_from_slice(&found.ok_or(Fault::Broken)?);
        Ok(())
    }

    /// Computes `len` bytes of a unit from block `first` on from the other units.
    pub fn compute(&self, row: RowRef, role: usize, first: usize, len: usize) -> Option<Vec<u8>> {
        let layout = &self.layout;
        let mut units: Vec<Option<Vec<u8>>> = Vec::new();
        let mut right = 0;
        for other in 0..layout.width() {
            if other == role || right == layout.data {
                units.push(None);
                continue;
            }
            let stored = layout.stored_blocks(row.blocks as usize, other);
            let there = stored.saturating_sub(first) * BLOCK;
            let mut unit = vec![0; there.min(len)];
            let is_right = self.try_blocks(row, other, first, &mut unit) == UnitState::Right;
            right += usize::from(is_right);
            units.push(is_right.then_some(unit));
        }
        let units: Vec<Option<&[u8]>> = units.iter().map(Option::as_deref).collect();
        recover(layout.data, &units, role, len)
    }

    /// Reads whole blocks that are stored of a unit from its directory.
    pub fn try_blocks(&self, row: RowRef, role: usize, first: usize, into: &mut [u8]) -> UnitState {
        if into.is_empty() {
            return UnitState::Right;
        }
        let n = self.layout.directory(row.slot, role);
        let Some(disk) = self.disk(n) else {
            return UnitState::Absent;
        };
        let expected = self.layout.stored_blocks(row.blocks as usize, role);
        let record = match self.record(n, &*disk, row.slot) {
            Ok(Some(record))
                if record.generation == row.generation && record.sums.len() == expected =>
            {
                record
            }
            Ok(_) => return UnitState::Stale,
            Err(error) => return self.unreadable(n, &error),
        };
        let at = row.slot * self.layout.unit_bytes as u64 + (first * BLOCK) as u64;
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
        let bytes = sums::record_bytes(&self.layout);
        let mut record = vec![0; bytes];
        let got = disk.read(Part::Sums, slot * bytes as u64, &mut record)?;
        Ok((got == bytes)
            .then(|| sums::decode(self.place(n, slot), &record))
            .flatten())
    }

    /// Looks at the unit of a row in directory `n`, all of it.
    pub fn inspect(&self, row: RowRef, n: usize) -> UnitState {
        let role = self.layout.role(row.slot, n);
        let mut unit = vec![0; self.layout.stored_blocks(row.blocks as usize, role) * BLOCK];
        self.try_blocks(row, role, 0, &mut unit)
    }

    /// Computes the unit of a row in directory `n` and writes it. The caller keeps the row from
    /// being replaced meanwhile.
    ///
    /// # Errors
    /// When it cannot be computed or written.
    pub fn mend(&self, row: RowRef, n: usize) -> Result<u64> {
        let role = self.layout.role(row.slot, n);
        let len = self.layout.stored_blocks(row.blocks as usize, role) * BLOCK;
        if len == 0 {
            return Ok(0);
        }
        let unit = self.compute(row, role, 0, len).ok_or(Fault::Broken)?;
        let disk = self.disk(n).ok_or(Fault::Broken)?;
        let begun = self.begin_units(n, &*disk, row.slot, row.generation, &[&unit]);
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
