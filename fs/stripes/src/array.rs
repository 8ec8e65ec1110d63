//! The stripe directories together: writing rows, reading parts of them, and computing what cannot
//! be read. Every read is checked by generation and checksum, so it does not matter to a reader how
//! a directory is said to be: what is stale, damaged or missing is computed from the others.

mod reading;
mod writing;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use margay_core_stripes::{BLOCK, Layout, MOST_DIRECTORIES, Over};
use margay_sys_os::crew::Crew;

use crate::change::RowRef;
use crate::disk::{Disk, Part, Space};
use crate::fault::{Fault, Result, is_full};
use crate::state::{Health, Member, State};
use crate::sums::{Place, record_bytes};

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
    /// Units of parity in every row.
    pub parity: usize,
    /// Bytes of a slot in each directory.
    pub slot_bytes: usize,
    /// Room for as many as there may ever be, so that one can be added while they are used.
    members: Vec<Directory>,
    /// Those that belong to the file system, a bit each.
    belong: AtomicU64,
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
    /// The same for rows that wait.
    rows: Mutex<Vec<Vec<u8>>>,
    /// Held while directories are synced: who finds that another one does it waits for its end.
    syncing: Mutex<()>,
    /// Threads that help with long reads and writes, where somebody has asked for them.
    crew: OnceLock<Crew>,
    /// Threads that read or write rows.
    working: AtomicUsize,
}

/// A row, and the layout of its file.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    pub layout: &'a Layout,
    pub row: RowRef,
}

impl Spot<'_> {
    /// Bytes that are stored of the unit `role`.
    fn stored(&self, role: usize) -> usize {
        self.layout.stored_blocks(self.row.blocks as usize, role) * BLOCK
    }
}

/// A stripe directory in use.
struct Directory {
    disk: RwLock<Option<Arc<dyn Disk>>>,
    id: AtomicU64,
    is_dirty: AtomicBool,
    /// How often it was taken into use: who rebuilds finds out that it is not the same any more.
    takes: AtomicU64,
}

impl Directory {
    fn new(member: Option<&Member>, disk: Option<Arc<dyn Disk>>) -> Directory {
        Directory {
            disk: RwLock::new(disk),
            id: AtomicU64::new(member.map_or(0, |member| member.id)),
            is_dirty: AtomicBool::new(false),
            takes: AtomicU64::new(0),
        }
    }
}

/// Bytes from which on a read or write is worth waking others.
const LEAST_SHARED: usize = 256 << 10;

/// Most bytes of memory for rows that is kept while files are written: ranks that write one file
/// together are that far apart.
const MOST_KEPT_ROWS: usize = 48 << 20;

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
        let mut disks = disks.into_iter();
        let members = (0..MOST_DIRECTORIES)
            .map(|n| Directory::new(state.members.get(n), disks.next().flatten()))
            .collect();
        Array {
            parity: state.base.parity,
            slot_bytes: state.base.slot_bytes,
            members,
            belong: AtomicU64::new(state.belong().0),
            state: Mutex::new(state),
            is_changed: AtomicBool::new(false),
            damaged_reads: AtomicU64::new(0),
            events: Mutex::new(Vec::new()),
            writing: Mutex::new(()),
            buffers: Mutex::default(),
            rows: Mutex::default(),
            syncing: Mutex::new(()),
            crew: OnceLock::new(),
            working: AtomicUsize::new(0),
        }
    }

    /// Memory for a row of this length, with anything in it.
    pub fn row_memory(&self, len: usize) -> Vec<u8> {
        let mut rows = lock(&self.rows);
        let kept = rows.iter().rposition(|row| row.len() == len);
        let kept = kept.map(|at| rows.swap_remove(at));
        drop(rows);
        kept.unwrap_or_else(|| vec![0; len])
    }

    /// Takes memory of a row back.
    pub fn keep_row_memory(&self, row: Option<Vec<u8>>) {
        let mut rows = lock(&self.rows);
        let fits = |row: &Vec<u8>| !row.is_empty() && row.len() * rows.len() < MOST_KEPT_ROWS;
        let row = row.filter(fits);
        rows.extend(row);
    }

    /// Gives memory back that is kept for the next rows.
    pub fn free_row_memory(&self) {
        lock(&self.rows).clear();
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
        self.all().filter(|n| self.disk(*n).is_some()).count()
    }

    /// How many directories have to be used to write and read everything.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.belong().count().saturating_sub(self.parity)
    }

    /// Whether as many directories are used as are needed.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.used() >= self.needed()
    }

    /// The directories that belong to the file system.
    #[must_use]
    pub fn belong(&self) -> Over {
        Over(self.belong.load(Ordering::SeqCst))
    }

    /// Their numbers.
    pub fn all(&self) -> impl Iterator<Item = usize> + use<> {
        self.belong().numbers()
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

    /// Lets all directories go, which none fails by: nothing is read or written any more.
    pub fn close(&self) {
        for member in &self.members {
            let disk = member.disk.write();
            disk.unwrap_or_else(PoisonError::into_inner).take();
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

    /// Adds a new directory, which has all of its units as there are none; returns its number.
    ///
    /// First the directory itself knows which one it is, and only then the others rely on it:
    /// whatever is lost in between, those that are left are enough.
    ///
    /// # Errors
    /// In words, when there are as many as there may be, or it cannot be written.
    pub fn add(&self, member: Member, disk: Arc<dyn Disk>) -> std::result::Result<usize, String> {
        let path = member.path.clone();
        let n = {
            let mut state = lock(&self.state);
            let free = state
                .members
                .iter()
                .position(|m| m.health == Health::Removed);
            let n = free.unwrap_or(state.members.len());
            if n >= MOST_DIRECTORIES {
                return Err(format!(
                    "there may be at most {MOST_DIRECTORIES} directories"
                ));
            }
            self.members[n].id.store(member.id, Ordering::SeqCst);
            self.members[n].takes.fetch_add(1, Ordering::SeqCst);
            let member = Member {
                health: Health::Removed,
                ..member
            };
            match free {
                Some(n) => state.members[n] = member,
                None => state.members.push(member),
            }
            self.is_changed.store(true, Ordering::SeqCst);
            n
        };
        self.write_state().map_err(|fault| fault.to_string())?;
        crate::state::write(&*disk, &self.state(), n)
            .map_err(|error| format!("{path} cannot be written: {error}"))?;
        let place = self.members[n].disk.write();
        *place.unwrap_or_else(PoisonError::into_inner) = Some(disk);
        let mut state = lock(&self.state);
        state.members[n].health = Health::Good;
        self.belong.fetch_or(1 << n, Ordering::SeqCst);
        self.is_changed.store(true, Ordering::SeqCst);
        drop(state);
        self.tell(format!("stripe directory {path} is added"));
        Ok(n)
    }

    /// Takes a directory out that no row lies in.
    pub fn remove(&self, n: usize) {
        let text = {
            let mut state = lock(&self.state);
            state.members[n].health = Health::Removed;
            format!("stripe directory {} is removed", state.members[n].path)
        };
        self.belong.fetch_and(!(1 << n), Ordering::SeqCst);
        let gone = self.members[n].disk.write();
        drop(gone.unwrap_or_else(PoisonError::into_inner).take());
        self.is_changed.store(true, Ordering::SeqCst);
        self.tell(text);
    }

    /// Sets how new files are laid out, from the next state on.
    pub fn set_current(&self, current: Layout) {
        lock(&self.state).current = current;
        self.is_changed.store(true, Ordering::SeqCst);
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
        for n in self.all() {
            if self.disk(n).is_some_and(|disk| !disk.is_present()) {
                self.fail(n, "it is gone");
            }
        }
    }

    /// Writes the state to all directories that are used, if it was changed. A directory that does
    /// not take it fails, which is another change. Where too few are left nothing is written: what
    /// they have then is right as soon as the others are there again.
    ///
    /// # Errors
    /// When too few directories are left.
    pub fn write_state(&self) -> Result<()> {
        let _writing = lock(&self.writing);
        while self.is_usable() && self.is_changed.swap(false, Ordering::SeqCst) {
            let state = {
                let mut state = lock(&self.state);
                state.epoch += 1;
                state.clone()
            };
            for n in self.all() {
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
        let dirty: Vec<usize> = self
            .all()
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

    /// The least space of those of the directories that are used.
    #[must_use]
    pub fn space(&self, over: Over) -> Space {
        over.numbers()
            .filter_map(|n| self.disk(n)?.space().ok())
            .min_by_key(|space| space.free)
            .unwrap_or_default()
    }

    /// Gives the space of consecutive slots back, where the system can.
    pub fn punch(&self, slot: u64, count: u64) {
        let unit = self.slot_bytes as u64;
        for n in self.all() {
            if let Some(disk) = self.disk(n) {
                // Where it cannot, the slots are used again all the same.
                let _ = disk.punch(Part::Data, slot * unit, count * unit);
            }
        }
    }

    /// Takes the space of a slot in all directories, where the system can. Returns whether one is
    /// full.
    pub fn reserve(&self, slot: u64) -> bool {
        let (unit, record) = (self.slot_bytes, record_bytes(self.slot_bytes));
        let is_full = [(Part::Data, unit), (Part::Sums, record)].map(|(part, len)| {
            let reserve = |n| {
                self.disk(n)?
                    .reserve(part, slot * len as u64, len as u64)
                    .err()
            };
            self.all().filter_map(reserve).any(|error| is_full(&error))
        });
        is_full[0] || is_full[1]
    }

    /// Lets that many threads help with long reads and writes, from now on.
    pub fn set_helpers(&self, helpers: usize) {
        // Once: those that are there go on.
        self.crew.get_or_init(|| Crew::new(helpers));
    }

    /// Does work in pieces, with help where it is long enough for that and others leave cores free.
    pub fn share(&self, bytes: usize, work: &(dyn Fn() + Sync)) {
        let others = self.working.fetch_add(1, Ordering::Relaxed);
        match self.crew.get() {
            Some(crew) if bytes >= LEAST_SHARED && others < crew.helpers() => crew.share(work),
            _ => work(),
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
    }

    fn place(&self, n: usize, slot: u64) -> Place {
        Place {
            member: self.members[n].id.load(Ordering::SeqCst),
            slot,
        }
    }
}
