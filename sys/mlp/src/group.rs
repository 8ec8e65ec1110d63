//! The arena of a group of processes that were forked from one: a memfd that all of them have at
//! the same address.
//!
//! The layout is drawn byte by byte in `docs/mlp.md`. The file is sparse, has no name in the file
//! system, and its first part tells who the processes are, which CPUs they have and which parts of
//! the rest have names. Every field of it is an atomic, so a process that writes nonsense makes
//! values wrong, never references invalid. What lies behind it is the program's.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::robust::{MAX_PROCESSES, RobustBarrier, RobustLock};
use margay_sys_os::event_count::EventCount;

/// The version of everything in the first part of the arena. A changed layout gets a new version.
pub const VERSION: u8 = 1;

/// `MARGMLP` and the format's version in the last byte.
pub const MAGIC: u64 = u64::from_ne_bytes([b'M', b'A', b'R', b'G', b'M', b'L', b'P', VERSION]);

/// How many threads the processes of a group may have together.
pub const MAX_SLOTS: u32 = 8192;
/// How many allocations an arena may have.
pub const MAX_NAMES: u32 = 4096;
/// The longest name of an allocation, in bytes.
pub const NAME_BYTES: usize = 96;

const PAGE: u64 = 4096;
const MEMBERS: u64 = PAGE;
const SLOTS: u64 = MEMBERS + (MAX_PROCESSES as u64 + 1) * size_of::<Member>() as u64;
const NAMES: u64 = SLOTS + MAX_SLOTS as u64 * size_of::<ThreadSlot>() as u64;
/// Where the program's part begins: huge pages start at such addresses.
const DATA: u64 = 2 << 20;

/// Addresses at which an arena is tried, from the first on in steps; far from where the system puts
/// things by itself.
#[cfg(target_pointer_width = "64")]
const FIRST_ADDRESS: usize = 0x1000_0000_0000;
#[cfg(target_pointer_width = "64")]
const ADDRESS_STEP: usize = 0x0100_0000_0000;
const ADDRESSES: usize = 32;

/// Where the group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// There is one process.
    Alone = 0,
    /// The processes are being made.
    Forking = 1,
    /// All processes are there.
    Running = 2,
    /// A process could not be made; those that were made end.
    Failed = 3,
}

/// Where a process of the group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It was never made.
    Absent = 0,
    /// It runs.
    Living = 1,
    /// It has ended in order, with code 0.
    Ended = 2,
    /// It was killed or ended with another code.
    Dead = 3,
}

/// The status of a process of which nobody knows how it ended.
pub const UNKNOWN: i32 = 1000;

/// The first page.
// Fields: the words that docs/mlp.md draws.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    total_bytes: AtomicU64,
    base: AtomicU64,
    data_offset: AtomicU64,
    /// Processes of the group; 1 before the fork.
    pub processes: AtomicU32,
    /// Threads of all processes together.
    pub slots: AtomicU32,
    /// CPUs that the group can keep busy: the affinity mask, cut by the CPU quota.
    pub usable_cores: AtomicU32,
    phase: AtomicU32,
    /// 1 when the others go on when one dies.
    pub tolerant: AtomicU32,
    /// Process id of the guard, 0 when there is none.
    pub guard: AtomicU32,
    /// How many processes have ended, in order or not.
    pub gone: AtomicU32,
    /// The system's error number when a process could not be made.
    pub fork_error: AtomicI32,
    /// Places of the table of names that have been in use.
    names_used: AtomicU32,
    /// Guards the table of names.
    pub names_lock: RobustLock,
    unused: [AtomicU64; 6],
    /// The barrier of all processes.
    pub barrier: RobustBarrier,
    /// Rung when a process starts, goes, or is ready to go on.
    pub event_count: EventCount,
}

/// A process of the group.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Member {
    /// Its process id.
    pub pid: AtomicU32,
    state: AtomicU32,
    /// How it ended: its exit code, or minus the signal's number, or [`UNKNOWN`].
    pub status: AtomicI32,
    /// Its first slot.
    pub first_slot: AtomicU32,
    /// Its slots.
    pub threads: AtomicU32,
    /// How many threads it uses now, as `mlp_threads` has set it.
    pub active: AtomicU32,
    /// How many of the group had gone when it was last ready to go on without them.
    pub ready: AtomicU32,
    /// Its memory: 0 as the system gives it, 1 bound to the nodes of its CPUs, else minus an error
    /// number.
    pub memory: AtomicI32,
    unused: [AtomicU64; 4],
}

/// A thread's place.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadSlot {
    /// The CPU's number.
    pub cpu: AtomicU32,
    /// The CPU's memory node.
    pub node: AtomicU32,
    /// Who uses the CPU; see [`Use`].
    used: AtomicU32,
    /// The kernel's number of the thread that is bound to the CPU, 0 when none is.
    pub thread: AtomicU32,
}

/// Who uses the CPU of a slot. A process is named by its number in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The process that has it.
    Own,
    /// Nobody: any process may borrow it.
    Lent,
    /// This process has borrowed it.
    Borrowed(u32),
    /// This process has borrowed it, and its owner has asked for it.
    Wanted(u32),
}

/// A named part of the arena.
#[repr(C)]
#[derive(Debug)]
pub struct NameCell {
    state: AtomicU32,
    /// The process that made it.
    maker: AtomicU32,
    offset: AtomicU64,
    bytes: AtomicU64,
    name: [AtomicU64; NAME_BYTES / 8],
    unused: AtomicU64,
}

/// A named part of the arena, as read from its cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Where it begins, from the start of the arena.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The process that made it.
    pub maker: u32,
}

/// Why an arena cannot be used.
#[derive(Debug)]
pub enum ArenaError {
    /// A call of the system failed.
    Os(&'static str, io::Error),
    /// The file is no arena.
    Foreign,
    /// The arena has another version.
    Version(u8),
    /// What the header tells does not fit the file.
    Damaged(&'static str),
    /// The arena's address is in use in this process.
    AddressTaken(u64),
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::Os(what, error) => write!(f, "the arena: {what}: {error}"),
            ArenaError::Foreign => f.write_str("this file is no arena of MLP"),
            ArenaError::Version(version) => write!(
                f,
                "the arena has version {version} and this library reads version {VERSION}; use the library that made it"
            ),
            ArenaError::Damaged(what) => write!(f, "the arena is damaged: {what}"),
            ArenaError::AddressTaken(base) => write!(
                f,
                "the arena lies at {base:#x} in its processes, and something else does in this one"
            ),
        }
    }
}

impl std::error::Error for ArenaError {}

/// An arena, mapped at its address.
#[derive(Debug)]
pub struct Arena {
    file: File,
    base: NonNull<u8>,
    total: u64,
}

// SAFETY: the mapping belongs to the value; what this module reads and writes in it are atomics.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena with `bytes` for the program, at an address that is likely to be free in other
    /// processes too.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(bytes: u64) -> Result<Arena, ArenaError> {
        let total = DATA
            .checked_add(bytes)
            .and_then(|t| t.checked_next_multiple_of(PAGE))
            .filter(|&total| i64::try_from(total).is_ok())
            .ok_or(ArenaError::Damaged("its length is no length of a file"))?;
        let file = memfd_create(c"margay-mlp", MemfdFlags::CLOEXEC)
            .map_err(|error| ArenaError::Os("making it", error.into()))?;
        let file = File::from(file);
        file.set_len(total)
            .map_err(|error| ArenaError::Os("sizing it", error))?;
        let wanted = (0..ADDRESSES).map(|n| FIRST_ADDRESS + n * ADDRESS_STEP);
        let base = wanted
            .filter_map(|address| map(&file, total, address).ok())
            .next()
            .map_or_else(|| map(&file, total, 0), Ok)
            .map_err(|error| ArenaError::Os("mapping it", error))?;
        let arena = Arena { file, base, total };
        let header = arena.header();
        header.total_bytes.store(total, Ordering::Relaxed);
        header.base.store(base.as_ptr() as u64, Ordering::Relaxed);
        header.data_offset.store(DATA, Ordering::Relaxed);
        header.processes.store(1, Ordering::Relaxed);
        let first = arena.member(1);
        first.pid.store(std::process::id(), Ordering::Relaxed);
        first.threads.store(1, Ordering::Relaxed);
        first.set_state(State::Living);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// The arena behind a descriptor, at the address that it has in its processes.
    ///
    /// # Errors
    /// When it is none, is of another version, or its address is in use.
    pub fn attach(fd: OwnedFd) -> Result<Arena, ArenaError> {
        let file = File::from(fd);
        let mut first = [0u8; 32];
        file.read_exact_at(&mut first, 0)
            .map_err(|_| ArenaError::Foreign)?;
        let word = |n: usize| {
            let bytes: [u8; 8] = first[8 * n..8 * n + 8].try_into().expect("eight bytes");
            u64::from_ne_bytes(bytes)
        };
        if first[..7] != MAGIC.to_ne_bytes()[..7] {
            return Err(ArenaError::Foreign);
        }
        if first[7] != VERSION {
            return Err(ArenaError::Version(first[7]));
        }
        let (total, base) = (word(1), word(2));
        let length = file
            .metadata()
            .map_err(|error| ArenaError::Os("looking at it", error))?
            .len();
        if total != length || total < DATA || word(3) != DATA {
            return Err(ArenaError::Damaged("its length is not what it tells"));
        }
        if base == 0 || base % PAGE != 0 {
            return Err(ArenaError::Damaged("its address is not one of a page"));
        }
        let base = map(&file, total, base as usize).map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::EXIST) {
                ArenaError::AddressTaken(base)
            } else {
                ArenaError::Os("mapping it", error)
            }
        })?;
        Ok(Arena { file, base, total })
    }

    /// The first page.
    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with it, is aligned to a page, and lives as long as `self`;
        // all fields are atomics.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The process of a number, from 1.
    ///
    /// # Panics
    /// When there cannot be such a process.
    #[inline]
    pub fn member(&self, process: u32) -> &Member {
        assert!((1..=MAX_PROCESSES).contains(&process), "process {process}");
        // SAFETY: the table has that many entries (checked); all fields are atomics.
        unsafe { self.at::<Member>(MEMBERS).add(process as usize).as_ref() }
    }

    /// All slots.
    pub fn slots(&self) -> &[ThreadSlot] {
        let slots = self.header().slots.load(Ordering::Acquire).min(MAX_SLOTS);
        // SAFETY: the table has MAX_SLOTS entries; all fields are atomics.
        unsafe { std::slice::from_raw_parts(self.at(SLOTS).as_ptr(), slots as usize) }
    }

    fn names(&self) -> &[NameCell] {
        let used = &self.header().names_used;
        let used = used.load(Ordering::Acquire).min(MAX_NAMES);
        // SAFETY: the table has MAX_NAMES entries; all fields are atomics.
        unsafe { std::slice::from_raw_parts(self.at(NAMES).as_ptr(), used as usize) }
    }

    /// All named parts. The caller holds the lock of names, or looks at what may be changing.
    pub fn named(&self) -> Vec<Named> {
        self.names().iter().filter_map(NameCell::read).collect()
    }

    /// The part of that name. The caller holds the lock of names.
    pub fn find(&self, name: &str) -> Option<Named> {
        let words = name_words(name)?;
        let cell = self.names().iter().find(|cell| cell.is(&words))?;
        cell.read()
    }

    /// Enters a part. The caller holds the lock of names. It is there from the last store on, so a
    /// process that dies in between leaves nothing. False when the table is full or the name is too
    /// long.
    pub fn enter(&self, part: &Named) -> bool {
        let Some(words) = name_words(&part.name) else {
            return false;
        };
        let used = self.names().len() as u32;
        let free = self.names().iter().position(|cell| !cell.is_used());
        let place = free.map_or(used, |place| place as u32);
        if place >= MAX_NAMES {
            return false;
        }
        if place == used {
            self.header().names_used.store(used + 1, Ordering::Release);
        }
        let cell = &self.names()[place as usize];
        for (to, from) in cell.name.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        cell.offset.store(part.offset, Ordering::Relaxed);
        cell.bytes.store(part.bytes, Ordering::Relaxed);
        cell.maker.store(part.maker, Ordering::Relaxed);
        cell.state.store(1, Ordering::Release);
        true
    }

    /// Takes the name away; the part's bytes stay as they are. The caller holds the lock of names.
    pub fn remove(&self, name: &str) {
        let Some(words) = name_words(name) else {
            return;
        };
        if let Some(cell) = self.names().iter().find(|cell| cell.is(&words)) {
            cell.state.store(0, Ordering::Release);
        }
    }

    /// Makes a part of the program's memory zero again and gives its whole pages back to the
    /// system. A process that still has a [lock](Self::lock_at) there finds it free.
    ///
    /// # Panics
    /// When the part is not inside of the program's memory.
    pub fn clear(&self, offset: u64, bytes: u64) {
        let end = offset
            .checked_add(bytes)
            .expect("parts of an arena are checked");
        assert!(offset >= DATA && end <= self.total, "not in the arena");
        let (first, last) = (
            offset.next_multiple_of(PAGE).min(end),
            (end / PAGE * PAGE).max(offset),
        );
        let zero = |from: u64, to: u64| {
            if from < to {
                // SAFETY: a part of what was checked above.
                unsafe { self.zero(from, (to - from) as usize) };
            }
        };
        if first >= last {
            return zero(offset, end);
        }
        // SAFETY: pages inside of the mapping; their bytes become zero.
        let given = unsafe {
            let at = self.base.as_ptr().add(first as usize).cast();
            madvise(at, (last - first) as usize, Advice::LinuxRemove)
        };
        if given.is_err() {
            zero(first, last);
        }
        zero(offset, first);
        zero(last, end);
    }

    /// Zeroes bytes of the program's part by atomic stores: there may be locks.
    ///
    /// # Safety
    /// They are inside of the mapping.
    unsafe fn zero(&self, offset: u64, bytes: usize) {
        // SAFETY: inside of the mapping, by the caller's promise; words and bytes of it may be
        // accessed as atomics of any value, and what else the program does there is its own.
        unsafe {
            let all = std::slice::from_raw_parts(self.at::<AtomicU8>(offset).as_ptr(), bytes);
            let (before, words, behind) = all.align_to::<AtomicU32>();
            for byte in before.iter().chain(behind) {
                byte.store(0, Ordering::Relaxed);
            }
            for word in words {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Where the program's memory begins and ends, from the start of the arena.
    #[must_use]
    pub fn data(&self) -> std::ops::Range<u64> {
        DATA..self.total
    }

    /// The address of what lies at `offset` from the start of the arena; the same in all processes.
    #[must_use]
    pub fn address(&self, offset: u64) -> usize {
        self.base.as_ptr() as usize + offset as usize
    }

    /// The lock that the program has at an address of its part of the arena; none when the address
    /// is elsewhere or not that of an integer.
    #[must_use]
    #[inline]
    pub fn lock_at(&self, address: usize) -> Option<&RobustLock> {
        let offset = (address as u64).checked_sub(self.base.as_ptr() as u64)?;
        if offset < DATA || offset > self.total - 4 || offset % 4 != 0 {
            return None;
        }
        // SAFETY: inside of the mapping and aligned (checked), and a lock is an atomic. The program
        // uses the integer for nothing else, or it is not a lock.
        Some(unsafe { self.base.add(offset as usize).cast::<RobustLock>().as_ref() })
    }

    fn at<T>(&self, offset: u64) -> NonNull<T> {
        // SAFETY: the offsets of the tables lie below `DATA`, which every mapping reaches
        // (`create`, `attach`); `zero` keeps inside of the mapping, too.
        unsafe { self.base.add(offset as usize).cast() }
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and everything that points into it borrows from `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.total as usize) };
    }
}

fn map(file: &File, bytes: u64, address: usize) -> io::Result<NonNull<u8>> {
    let mut flags = MapFlags::SHARED | MapFlags::NORESERVE;
    flags.set(MapFlags::FIXED_NOREPLACE, address != 0);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: a new mapping that replaces none: at the kernel's choice, or at an address that must
    // be free.
    let base = unsafe { mmap(address as *mut _, bytes, access, flags, file, 0) }?;
    if address != 0 && base as usize != address {
        // A kernel before 4.17 takes the address for a hint.
        // SAFETY: the mapping was just made and nobody uses it.
        let _ = unsafe { munmap(base, bytes) };
        return Err(Errno::EXIST.into());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))
}

/// A name as the table holds it; none when it is empty or too long.
fn name_words(name: &str) -> Option<[u64; NAME_BYTES / 8]> {
    let mut bytes = [0; NAME_BYTES];
    if name.is_empty() || name.contains('\0') {
        return None;
    }
    bytes
        .get_mut(..name.len())?
        .copy_from_slice(name.as_bytes());
    let mut words = [0; NAME_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Some(words)
}

impl NameCell {
    fn is_used(&self) -> bool {
        self.state.load(Ordering::Acquire) == 1
    }

    fn is(&self, words: &[u64; NAME_BYTES / 8]) -> bool {
        let same = |(own, other): (&AtomicU64, &u64)| own.load(Ordering::Relaxed) == *other;
        self.is_used() && self.name.iter().zip(words).all(same)
    }

    fn read(&self) -> Option<Named> {
        if !self.is_used() {
            return None;
        }
        let words = self.name.iter();
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        Some(Named {
            name: String::from_utf8_lossy(&bytes).into_owned(),
            offset: self.offset.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            maker: self.maker.load(Ordering::Relaxed),
        })
    }
}

impl Header {
    /// Where the group stands.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Alone,
            1 => Phase::Forking,
            2 => Phase::Running,
            _ => Phase::Failed,
        }
    }

    /// Tells where the group stands, and wakes those who wait for that.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Release);
        self.event_count.wake();
    }
}

impl Member {
    /// Where the process stands.
    #[inline]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            1 => State::Living,
            2 => State::Ended,
            3 => State::Dead,
            _ => State::Absent,
        }
    }

    /// Tells where the process stands.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// The process lives no more. Returns whether that is new: of several who notice, one gets
    /// true. A process that tells a status other than 0 does so when the process has ended, so
    /// nobody tells another one at the same time.
    pub fn set_gone(&self, state: State, status: i32) -> bool {
        if self.state() != State::Living {
            return false;
        }
        self.status.store(status, Ordering::Relaxed);
        self.state
            .compare_exchange(
                State::Living as u32,
                state as u32,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

const STATE_SHIFT: u32 = 16;

impl Use {
    fn word(self) -> u32 {
        match self {
            Use::Own => 0,
            Use::Lent => 1 << STATE_SHIFT,
            Use::Borrowed(process) => 2 << STATE_SHIFT | process,
            Use::Wanted(process) => 3 << STATE_SHIFT | process,
        }
    }

    fn of(word: u32) -> Use {
        let process = word & ((1 << STATE_SHIFT) - 1);
        match word >> STATE_SHIFT {
            0 => Use::Own,
            1 => Use::Lent,
            2 => Use::Borrowed(process),
            _ => Use::Wanted(process),
        }
    }
}

impl ThreadSlot {
    /// Who uses the CPU.
    pub fn usage(&self) -> Use {
        Use::of(self.used.load(Ordering::Acquire))
    }

    /// Changes who uses the CPU, if that is still as `from` says. Returns whether it was.
    pub fn change(&self, from: Use, to: Use) -> bool {
        self.used
            .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Sets CPU and node of a slot that nobody uses yet.
    pub fn assign(&self, cpu: u32, node: u32) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.node.store(node, Ordering::Relaxed);
        self.used.store(Use::Own.word(), Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
