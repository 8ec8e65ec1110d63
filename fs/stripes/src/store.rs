//! The store: opening it, and the log of its changes.
//!
//! Locks are taken in the order file, names, pending changes. The committer's lock is taken while
//! none of them is held.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use margay_core_stripes::Layout;

use crate::array::{Array, lock};
use crate::change::Change;
use crate::codec::Writer;
use crate::disk::{Disk, Part};
use crate::fault::{Fault, Result};
use crate::file::FileData;
use crate::leaving::Leaving;
use crate::log::{self, Log, Scan};
use crate::names::{self, Body, Names};
use crate::quota::Quotas;
use crate::reserve::Reserve;
use crate::slots::Slots;
use crate::state::{self, Found, Health, Member, State};

/// Bytes of changes in memory from which a commit does not wait for its second.
const MANY_CHANGES: usize = 1 << 20;

/// Bytes of free slots in a directory from which their space is given back after a commit. It costs
/// more to take space from the system than to write it, so some is kept for the next rows.
const MANY_KEPT: u64 = 256 << 20;

/// Bytes of a frame of a snapshot.
const SNAPSHOT_FRAME: usize = 1 << 20;

/// Rows in a change of a snapshot.
const ROWS_AT_ONCE: usize = 4096;

/// The part of the time, in percent, that a walk over all data takes unless another one is set.
const SHARE: u64 = 30;

/// How far generations are advanced at each start: behind all that were used for rows that no log
/// knows, which a stale directory may still have.
const GENERATIONS: u64 = 1 << 32;

/// The time, in nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Changes that are not in the log yet.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    freed: Vec<u64>,
    /// Changes that ever came.
    count: u64,
}

struct Committer {
    log: Log,
    /// The highest number that a log was begun with.
    last: u64,
    /// Changes that are in the log.
    count: u64,
}

impl Committer {
    /// A number that no log had, of a log that does not lie where the one in force does.
    fn next_number(&mut self) -> u64 {
        self.last += 1;
        if Log::part(self.last) == Log::part(self.log.number()) {
            self.last += 1;
        }
        self.last
    }
}

/// What a walk over all rows has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is going on: `rebuild`, `scrub` or `check`; empty when nothing was.
    pub what: &'static str,
    pub is_running: bool,
    pub rows: u64,
    pub all_rows: u64,
    /// Units that were found wrong, those that were written anew, and bytes of them.
    pub wrong: u64,
    pub mended: u64,
    pub mended_bytes: u64,
    /// Rows of which too much is lost.
    pub lost: u64,
}

/// A file system over stripe directories.
// Fields: each has a lock of its own, as parts of the store are used at the same time.
pub struct Store {
    pub(crate) array: Array,
    pub(crate) names: RwLock<Names>,
    pub(crate) slots: Mutex<Slots>,
    pending: Mutex<Pending>,
    committer: Mutex<Committer>,
    pub(crate) generation: AtomicU64,
    /// Reads and writes that ever came.
    pub(crate) requests: AtomicU64,
    /// The share of walks over all rows, in percent.
    pub(crate) share: AtomicU64,
    /// The generation at the last sync: where it is the same, nothing was written since.
    idle_since: AtomicU64,
    /// Bytes of rows that wait in memory, and the files that have such.
    pub(crate) waiting: AtomicU64,
    pub(crate) unwritten: Mutex<BTreeSet<u64>>,
    pub(crate) progress: Mutex<Progress>,
    /// Held by what walks over all rows.
    pub(crate) walking: Mutex<()>,
    pub(crate) quotas: Quotas,
    pub(crate) reserve: Mutex<Reserve>,
    pub(crate) leaving: Leaving,
    clock: Clock,
}

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct Making {
    pub name: String,
    pub layout: Layout,
    /// Path and id of each stripe directory.
    pub members: Vec<(String, u64)>,
    /// Drawn by lot.
    pub id: u64,
    /// Owner of the top directory.
    pub uid: u32,
    pub gid: u32,
}

impl Store {
    /// Makes a file system in empty stripe directories, and opens it.
    ///
    /// # Errors
    /// In words.
    pub fn create(
        making: &Making,
        disks: Vec<Arc<dyn Disk>>,
        clock: Clock,
    ) -> std::result::Result<Store, String> {
        let members = making.members.iter().map(|(path, id)| Member {
            id: *id,
            path: path.clone(),
            health: Health::Good,
        });
        let state = State {
            id: making.id,
            name: making.name.clone(),
            epoch: 0,
            base: making.layout,
            current: making.layout,
            members: members.collect(),
        };
        let array = Array::new(state, disks.into_iter().map(Some).collect());
        let mut names = Names::new(making.layout, making.layout);
        names.make_root(making.uid, making.gid, clock());
        let store = Store::over(array, names, 0, clock)?;
        let events = store.array.events();
        match events.first() {
            None => Ok(store),
            Some(event) => Err(event.clone()),
        }
    }

    /// Opens the file system with this id, in any order of its directories; none for those that
    /// are not there.
    ///
    /// # Errors
    /// In words.
    pub fn open(
        id: u64,
        disks: Vec<Option<Arc<dyn Disk>>>,
        clock: Clock,
    ) -> std::result::Result<Store, String> {
        let (state, disks, unread) = choose(id, disks)?;
        let array = Array::new(state, disks);
        for (n, member) in array.state().members.iter().enumerate() {
            let is_gone = matches!(member.health, Health::Failed | Health::Removed);
            if array.disk(n).is_none() && !is_gone {
                array.miss(n);
            }
        }
        let needed = array.needed();
        if !array.is_usable() {
            return Err(format!(
                "{} of {} stripe directories can be used, and {needed} are needed{}{unread}",
                array.used(),
                array.belong().count(),
                reasons(&array)
            ));
        }
        let (names, number) = load(&array)?;
        Store::over(array, names, number, clock)
    }

    /// Starts with what the last log had, by writing the next one.
    fn over(
        array: Array,
        mut names: Names,
        last: u64,
        clock: Clock,
    ) -> std::result::Result<Store, String> {
        for ino in names.orphans() {
            names.remove(ino, &mut Vec::new());
        }
        let used = names.settle();
        let generation = names.next_generation.saturating_add(GENERATIONS);
        names.next_generation = generation;
        let store = Store {
            array,
            slots: Mutex::new(Slots::new(&used)),
            quotas: Quotas::of(&names),
            names: RwLock::new(names),
            pending: Mutex::default(),
            committer: Mutex::new(Committer {
                log: Log::none(last),
                last,
                count: 0,
            }),
            generation: AtomicU64::new(generation),
            idle_since: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            share: AtomicU64::new(SHARE),
            waiting: AtomicU64::new(0),
            unwritten: Mutex::default(),
            progress: Mutex::default(),
            walking: Mutex::new(()),
            reserve: Mutex::default(),
            leaving: Leaving::default(),
            clock,
        };
        store.array.renew_state();
        store.keep_reserve();
        let mut committer = lock(&store.committer);
        let mut begin = || {
            store.array.write_state()?;
            store.renew_log(&mut committer)
        };
        let mut begun = begin();
        if begun == Err(Fault::NoSpace) {
            // Slots that are free may still have their space.
            store.give_back();
            begun = begin();
        }
        drop(committer);
        match begun {
            Ok(()) => Ok(store),
            Err(fault) => Err(format!("cannot begin: {fault}{}", reasons(&store.array))),
        }
    }

    /// Lets that many threads help with long reads and writes.
    pub fn set_helpers(&self, helpers: usize) {
        self.array.set_helpers(helpers);
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// How the directories are.
    #[must_use]
    pub fn state(&self) -> State {
        self.array.state()
    }

    /// What the walk over all rows has done.
    #[must_use]
    pub fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Bytes that wait in memory to be written.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// What happened since the last call, a line each.
    pub fn events(&self) -> Vec<String> {
        self.array.events()
    }

    /// Units that had to be computed although their directory is used.
    #[must_use]
    pub fn damaged_reads(&self) -> u64 {
        self.array.damaged_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn file(&self, ino: u64) -> Result<Arc<FileData>> {
        self.read_names().file(ino)
    }

    pub(crate) fn read_names(&self) -> std::sync::RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_names(&self) -> std::sync::RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets changes wait for the log. The caller holds the lock of what they change.
    pub(crate) fn push(&self, changes: &[Change], freed: Vec<u64>) {
        let mut pending = lock(&self.pending);
        let mut out = Writer(std::mem::take(&mut pending.bytes));
        for change in changes {
            change.encode(&mut out);
        }
        pending.bytes = out.0;
        pending.freed.extend(freed);
        pending.count += 1;
    }

    /// Changes that ever came.
    pub(crate) fn changes(&self) -> u64 {
        lock(&self.pending).count
    }

    /// Commits when many changes wait. No lock is held.
    pub(crate) fn commit_if_many(&self) -> Result<()> {
        let many = lock(&self.pending).bytes.len() > MANY_CHANGES;
        if many { self.commit() } else { Ok(()) }
    }

    /// Brings all changes up to now into the log, and what they refer to before them. Several
    /// callers are served by one commit.
    ///
    /// # Errors
    /// When there is no space for the log, or too few directories are left.
    pub fn commit(&self) -> Result<()> {
        let wanted = lock(&self.pending).count;
        let mut committer = lock(&self.committer);
        self.array.look();
        if committer.count < wanted {
            self.commit_all(&mut committer)?;
        }
        self.array.write_state()?;
        if !committer.log.is_held(&self.array) {
            self.renew_log(&mut committer)?;
        }
        if committer.log.is_long() && self.renew_log(&mut committer).is_err() {
            committer.log.put_off();
        }
        drop(committer);
        if lock(&self.slots).kept() * self.array.slot_bytes as u64 > MANY_KEPT {
            self.give_back();
        }
        Ok(())
    }

    fn commit_all(&self, committer: &mut Committer) -> Result<()> {
        let taken = self.take_pending();
        self.array.sync();
        let appended = self.array.write_state().map(|()| {
            let mut frames = log::split(&taken.bytes).into_iter();
            committer.log.is_held(&self.array)
                && frames.all(|contents| committer.log.append(&self.array, contents))
        });
        match appended {
            Ok(true) => {
                committer.count = taken.count;
                lock(&self.slots).free(taken.freed);
                Ok(())
            }
            Ok(false) => {
                // Where a directory is full, a new log may be shorter: files may be gone.
                self.put_back(taken);
                self.array.write_state()?;
                self.renew_log(committer)
            }
            Err(fault) => {
                self.put_back(taken);
                Err(fault)
            }
        }
    }

    fn take_pending(&self) -> Pending {
        let mut pending = lock(&self.pending);
        let count = pending.count;
        let taken = std::mem::take(&mut *pending);
        pending.count = count;
        taken
    }

    fn put_back(&self, mut taken: Pending) {
        let mut pending = lock(&self.pending);
        taken.bytes.append(&mut pending.bytes);
        pending.bytes = taken.bytes;
        pending.freed.append(&mut taken.freed);
    }

    /// Brings the log away from directories that are being removed.
    ///
    /// # Errors
    /// When there is no other place for it.
    pub(crate) fn leave(&self, leaving: &[usize]) -> Result<()> {
        let mut committer = lock(&self.committer);
        let is_there = |log: &Log| leaving.iter().any(|n| log.is_in(*n));
        if is_there(&committer.log) {
            self.renew_log(&mut committer)?;
        }
        match is_there(&committer.log) {
            true => Err(Fault::Broken),
            false => Ok(()),
        }
    }

    /// Writes a new log whose snapshot has everything up to now.
    ///
    /// The snapshot is taken while others change things: each inode is as it is at some moment.
    /// What changed since the first moment follows in order behind it, and every change says what
    /// is from then on, so all of it together is the state of the last moment. Only with that part
    /// is the snapshot whole.
    fn renew_log(&self, committer: &mut Committer) -> Result<()> {
        let mut frames = self.snapshot();
        let taken = self.take_pending();
        frames.extend(log::split(&taken.bytes).into_iter().map(<[u8]>::to_vec));
        self.array.sync();
        let written = self
            .array
            .write_state()
            .and_then(|()| Log::write(&self.array, committer.next_number(), &frames));
        // A directory that failed while the log was written is noted before anybody relies on it.
        let written = written.and_then(|log| self.array.write_state().map(|()| log));
        match written {
            Ok(log) => {
                log.cut_older(&self.array, Log::part(committer.log.number()));
                committer.log = log;
                committer.count = taken.count;
                lock(&self.slots).free(taken.freed);
                Ok(())
            }
            Err(fault) => {
                self.put_back(taken);
                Err(fault)
            }
        }
    }

    /// The frames of a snapshot.
    fn snapshot(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut out = Writer::default();
        let mut add = |changes: &mut Vec<Change>, frames: &mut Vec<Vec<u8>>| {
            for change in changes.drain(..) {
                change.encode(&mut out);
                if out.0.len() >= SNAPSHOT_FRAME {
                    frames.push(std::mem::take(&mut out.0));
                }
            }
        };
        let mut files = Vec::new();
        let mut changes = Vec::new();
        let base;
        {
            let names = self.read_names();
            base = names.base;
            let generation = self.generation.load(Ordering::SeqCst);
            changes.push(Change::Counters(names.next_ino, generation));
            for (ino, inode) in names.after(0) {
                names.snapshot(ino, &mut changes);
                if let Body::File(data) = &inode.body {
                    files.push((ino, Arc::clone(data)));
                }
                add(&mut changes, &mut frames);
            }
            for (ino, _) in names.after(0) {
                names.snapshot_entries(ino, &mut changes);
                add(&mut changes, &mut frames);
            }
        }
        for (ino, data) in files {
            let rows = names::read(&data);
            if let Some(shape) = names::shape(&base, &rows.layout) {
                changes.push(Change::Laid(ino, shape, vec![], true));
            }
            let all: Vec<_> = rows.map.iter().map(|(row, at)| (*row, *at)).collect();
            for part in all.chunks(ROWS_AT_ONCE) {
                changes.push(Change::Rows(ino, part.to_vec()));
            }
            // Under the lock, so that it is the size of these rows.
            let (size, mtime) = (
                data.logged_size.load(Ordering::SeqCst),
                data.mtime.load(Ordering::SeqCst),
            );
            changes.push(Change::Size(ino, size, mtime));
            add(&mut changes, &mut frames);
        }
        if !out.0.is_empty() {
            frames.push(out.0);
        }
        frames
    }

    /// Gives the space of what was freed and committed back.
    pub(crate) fn give_back(&self) {
        let runs = lock(&self.slots).take_kept();
        for (first, count) in &runs {
            self.array.punch(*first, *count);
        }
        lock(&self.slots).emptied(&runs);
    }

    /// Writes everything that waits and commits; for a timer, and at the end.
    ///
    /// # Errors
    /// The first.
    pub fn sync(&self) -> Result<()> {
        let before = self.generation.load(Ordering::SeqCst);
        let is_idle = self.idle_since.swap(before, Ordering::SeqCst) == before;
        let written = self.write_out_all();
        let committed = self.commit();
        if is_idle {
            self.array.free_row_memory();
            self.give_back();
        }
        self.keep_reserve();
        written.and(committed)
    }

    /// Lets the directories go. What is asked from now on fails, and changes nothing.
    pub fn close(&self) {
        self.array.close();
    }

    /// Puts a new, empty directory in the place of directory `n`, to be rebuilt.
    ///
    /// # Errors
    /// In words: where `n` is needed, because others lack units, or the new one cannot be written.
    pub fn replace(
        &self,
        n: usize,
        path: &str,
        id: u64,
        disk: Arc<dyn Disk>,
    ) -> std::result::Result<(), String> {
        let state = self.state();
        let old = &state.members[n].path;
        let others = state.members.iter().enumerate();
        let lacking = others.filter(|(m, member)| {
            *m != n && !matches!(member.health, Health::Good | Health::Removed)
        });
        if lacking.count() + 1 > state.base.parity {
            return Err(format!(
                "{old} cannot be replaced: the other directories do not have all of its data; \
                 with parity {} at most {} may be missing or in rebuild at the same time",
                state.base.parity, state.base.parity
            ));
        }
        self.sync().map_err(|fault| fault.to_string())?;
        self.array.fail(n, "it is being replaced");
        self.take_in(n, path, id, disk)
    }

    /// Takes a directory that failed into use again, to be rebuilt.
    ///
    /// # Errors
    /// In words, when it cannot be written.
    pub fn take_in(
        &self,
        n: usize,
        path: &str,
        id: u64,
        disk: Arc<dyn Disk>,
    ) -> std::result::Result<(), String> {
        let member = Member {
            id,
            path: path.to_owned(),
            health: Health::Rebuilding(0, 0),
        };
        self.array.take_in(n, member, disk);
        self.commit().map_err(|fault| fault.to_string())?;
        match self.array.disk(n) {
            Some(_) => Ok(()),
            None => Err(format!("{path} failed{}", reasons(&self.array))),
        }
    }

    /// Brings a file to where it outlives the next failure of the machine.
    ///
    /// # Errors
    /// When there is no space, or too few directories are left.
    pub fn sync_file(&self, ino: u64) -> Result<()> {
        self.write_out(ino)?;
        self.commit()
    }
}

/// The directories in their order, none for those that are not used.
type Disks = Vec<Option<Arc<dyn Disk>>>;

/// What happened, as the end of a message.
pub(crate) fn reasons(array: &Array) -> String {
    array
        .events()
        .iter()
        .map(|event| format!("; {event}"))
        .collect()
}

/// What the directories say: the state in force, those that it lets be used, and why others cannot
/// be read.
fn choose(id: u64, disks: Disks) -> std::result::Result<(State, Disks, String), String> {
    let mut found: Vec<Option<Found>> = Vec::new();
    let mut unread = String::new();
    for disk in &disks {
        let read = disk.as_ref().map(|disk| state::read(&**disk));
        found.push(match read {
            Some(Ok(state::Read::State(found))) if found.state.id == id => Some(found),
            Some(Ok(state::Read::Newer(version))) => {
                return Err(format!(
                    "a stripe directory has format {version}, and this Margay knows {}; use a newer Margay",
                    state::VERSION
                ));
            }
            Some(Err(error)) => {
                unread += &format!("; one cannot be read: {error}");
                None
            }
            _ => None,
        });
    }
    let states: Vec<&State> = found.iter().flatten().map(|found| &found.state).collect();
    let highest = states.iter().map(|state| state.epoch).max();
    let highest =
        highest.ok_or_else(|| format!("no stripe directory says what it belongs to{unread}"))?;
    let in_force: Vec<&&State> = states.iter().filter(|s| s.epoch == highest).collect();
    // A state that was only written in part has no effects, and fewer copies.
    let copies = |state: &State| in_force.iter().filter(|other| ****other == *state).count();
    let most = in_force
        .iter()
        .map(|state| copies(state))
        .max()
        .unwrap_or(0);
    let mut best = in_force.iter().filter(|state| copies(state) == most);
    let state = (**best.next().ok_or("no state")?).clone();
    if best.any(|other| ***other != state) {
        return Err(
            "the stripe directories disagree about which of them failed; start with the \
            directory removed that was away last"
                .into(),
        );
    }
    // Each says which one it is. One that was to be added, and of which nothing was stored yet, is
    // none of them.
    let mut used: Disks = vec![None; state.members.len()];
    for (found, disk) in found.iter().zip(&disks) {
        let Some(found) = found else { continue };
        let is_right = state.members.get(found.own).is_some_and(|member| {
            found.state.members[found.own].id == member.id
                && !matches!(member.health, Health::Failed | Health::Removed)
        });
        if is_right && used[found.own].is_none() {
            used[found.own].clone_from(disk);
        }
    }
    Ok((state, used, unread))
}

/// Reads the log in force; returns what it says, and the highest number of any log.
fn load(array: &Array) -> std::result::Result<(Names, u64), String> {
    let mut best: Option<(Scan, usize, Part)> = None;
    let mut highest = 0;
    for n in array.all() {
        for part in [Part::Log(0), Part::Log(1)] {
            let Some(disk) = array.disk(n) else {
                continue;
            };
            match log::scan(&*disk, part, |_| Ok(())) {
                Ok(scan) => {
                    highest = highest.max(scan.number);
                    if scan.is_valid && best.as_ref().is_none_or(|(best, ..)| scan > *best) {
                        best = Some((scan, n, part));
                    }
                }
                Err(error) => array.fail(n, &format!("the log cannot be read: {error}")),
            }
        }
    }
    let (scan, n, part) = best.ok_or("no stripe directory has a whole log")?;
    let state = array.state();
    let mut names = Names::new(state.base, state.current);
    let disk = array.disk(n).ok_or("the directory with the log failed")?;
    log::replay(&*disk, part, |change| names.apply(change))
        .map_err(|error| format!("the log cannot be read: {error}"))?;
    if names.get(names::ROOT).is_err() {
        return Err("the log has no top directory".into());
    }
    // The next log may not lie where this one does.
    let next = highest + 1;
    let is_same = Log::part(next) == Log::part(scan.number);
    Ok((names, if is_same { next } else { highest }))
}
