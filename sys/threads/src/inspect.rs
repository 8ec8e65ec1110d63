//! What a debugger and `margay threads` find in a process: its fibers, its workers' threads and its
//! teams, as words at fixed places.
//!
//! The symbol [`margay_threads_description`](DESCRIPTION) is the beginning; `docs/openmp.md` has
//! the commands. Everything that it leads to is made once and never freed, so that who reads from
//! outside, without stopping the process, finds old words at worst, and never memory that is gone.
//! What changes while a program runs is either a word that the runtime has anyway, of which only
//! the address stands here, or one store to a cache line that the storing thread has just used.
//!
//! Readers: `abi/gdb/margay_gdb.py` and `job/observe/src/teams`. A change of what stands here is a
//! new [`VERSION`].

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The name of the exported symbol.
pub const SYMBOL: &str = "margay_threads_description";

/// The layout of everything in this module.
pub const VERSION: u32 = 1;

/// With which the description begins.
pub const MAGIC: [u8; 8] = *b"margayth";

/// The beginning of all.
#[derive(Debug)]
#[repr(C)]
pub struct Description {
    pub magic: [u8; 8],
    pub version: u32,
    /// Of this structure.
    pub bytes: u32,
    /// The lists: addresses of the records that were made last.
    pub fibers: List<FiberRecord>,
    pub threads: List<ThreadRecord>,
    pub teams: List<TeamRecord>,
}

/// See the module. There is one in each library that contains this crate.
#[unsafe(export_name = "margay_threads_description")]
pub static DESCRIPTION: Description = Description {
    magic: MAGIC,
    version: VERSION,
    bytes: size_of::<Description>() as u32,
    fibers: List::new(),
    threads: List::new(),
    teams: List::new(),
};

/// Records that refer to each other, the youngest first. They are never removed.
#[derive(Debug)]
#[repr(transparent)]
pub struct List<T: 'static>(AtomicPtr<T>, PhantomData<&'static T>);

impl<T> List<T> {
    const fn new() -> Self {
        List(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    fn push(&self, record: &'static T)
    where
        T: Linked + Sync,
    {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            record.next().store(first, Ordering::Relaxed);
            let new = ptr::from_ref(record).cast_mut();
            match self
                .0
                .compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

pub(crate) trait Linked: Sized {
    fn next(&self) -> &AtomicPtr<Self>;
}

/// A fiber, or room for one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct FiberRecord {
    pub next: AtomicPtr<FiberRecord>,
    /// The kernel's number of its thread; 0: this is room.
    pub thread: AtomicU32,
    pub reserved: u32,
    /// The ends of its stack: the address above it, and the lowest, with the guard page.
    pub base: AtomicUsize,
    pub limit: AtomicUsize,
    /// The stack pointer in [`suspend`](crate::fiber::suspend) while it is suspended, else 0.
    pub suspended_at: AtomicUsize,
}

/// The thread of a worker, or room for one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ThreadRecord {
    pub next: AtomicPtr<ThreadRecord>,
    /// The kernel's number; 0: this is room.
    pub thread: AtomicU32,
    /// 0 for a thread of the program, otherwise its number in the pool.
    pub number: AtomicU32,
    /// An address on its own stack.
    pub stack: AtomicUsize,
}

/// A team: where its words are.
#[derive(Debug, Default)]
#[repr(C)]
pub struct TeamRecord {
    /// Set by [`add_team`].
    pub next: AtomicPtr<TeamRecord>,
    /// Members.
    pub size: u32,
    /// How many [classes](crate::claims) they are in.
    pub classes: u32,
    /// The address of a word: that of the region's function, or 0 while no region uses the team.
    pub site_at: usize,
    /// The address of an `AtomicU32`: how many regions enclose its members.
    pub level_at: usize,
    /// The address of a word: the address of the member that encountered the region, or 0.
    pub parent_at: usize,
    /// The address of the first member, and the distance to the next.
    pub members: usize,
    pub member_bytes: usize,
    /// The address of the addresses of their [`MemberRecord`]s.
    pub records: usize,
    /// The address of the first class, which begins with its word, and the distance to the next.
    pub first_class: usize,
    pub class_bytes: usize,
    /// The address of an `AtomicU64`: when the region began, in nanoseconds of the monotonic clock,
    /// or 0 where nobody has asked.
    pub opened_at: usize,
}

/// What a member is doing. On a pair of cache lines of its own: its neighbours are on other cores,
/// and processors fetch pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct MemberRecord {
    /// An address on the stack on which it runs; 0 before it has begun and when it is over.
    pub stack: AtomicUsize,
    /// A [`Wait`].
    pub wait: AtomicU32,
    /// The address in the program to which the call returns in which it waits, or waited last, at a
    /// barrier or for a lock; 0 where that is not known.
    pub place: AtomicUsize,
}

/// Which region uses a team.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct SiteRecord {
    /// What distinguishes the region from others, mostly the address of its function; 0 while no
    /// region uses the team.
    pub site: AtomicUsize,
    /// Members, whose records follow in kept words.
    pub size: AtomicUsize,
}

/// Words of a record in memory that is kept.
pub const RECORD_WORDS: usize = 16;

/// Finds memory that somebody else still has when the process is dead: this many words of 0,
/// aligned as records are. None where there is none.
pub type Keeper = fn(usize) -> Option<&'static [AtomicU64]>;

/// The records of a team and of its members. They live as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct TeamWords {
    pub team: &'static SiteRecord,
    pub members: &'static [MemberRecord],
}

impl TeamWords {
    /// For a team of `size`: in memory that is kept, if there is some.
    #[must_use]
    pub fn new(size: u32, keeper: Option<Keeper>) -> TeamWords {
        let count = size as usize;
        let kept = keeper.and_then(|keeper| keeper(RECORD_WORDS * (1 + count)));
        let words = kept.and_then(|words| TeamWords::within(words, count));
        let words = words.unwrap_or_else(|| TeamWords {
            team: Box::leak(Box::default()),
            members: Vec::leak((0..count).map(|_| MemberRecord::default()).collect()),
        });
        words.team.size.store(count, Ordering::Release);
        words
    }

    fn within(words: &'static [AtomicU64], count: usize) -> Option<TeamWords> {
        const { assert!(size_of::<MemberRecord>() == 8 * RECORD_WORDS) };
        const { assert!(size_of::<SiteRecord>() == 8 * RECORD_WORDS) };
        let first = words.as_ptr();
        let is_fit = first.addr().is_multiple_of(align_of::<MemberRecord>())
            && words.len() == RECORD_WORDS * (1 + count);
        // SAFETY: the words are there for ever, as many and aligned (checked), and all bits of
        // records are atomics, for which every value is valid.
        is_fit.then(|| unsafe {
            let members = first.add(RECORD_WORDS).cast::<MemberRecord>();
            TeamWords {
                team: &*first.cast::<SiteRecord>(),
                members: std::slice::from_raw_parts(members, count),
            }
        })
    }
}

/// What a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wait {
    None,
    Barrier,
    RegionEnd,
    Tasks,
    Lock,
    Ordered,
    Event,
}

impl Wait {
    /// All of them, by their numbers, with what is shown.
    pub const NAMES: [&str; 7] = [
        "",
        "barrier",
        "end of region",
        "tasks",
        "lock or critical",
        "ordered",
        "event",
    ];
}

impl MemberRecord {
    /// The member begins on the calling stack.
    #[inline]
    pub fn begin(&self) {
        let here = 0_u8;
        self.stack
            .store(ptr::from_ref(&here).addr(), Ordering::Relaxed);
    }

    /// It is over.
    #[inline]
    pub fn end(&self) {
        self.stack.store(0, Ordering::Relaxed);
    }

    /// It waits as long as `f` runs.
    #[inline]
    pub fn waiting<R>(&self, wait: Wait, f: impl FnOnce() -> R) -> R {
        let before = self.wait.load(Ordering::Relaxed);
        self.wait.store(wait as u32, Ordering::Relaxed);
        let result = f();
        self.wait.store(before, Ordering::Relaxed);
        result
    }

    /// The call in which the member is about to wait returns to this address of the program.
    #[inline]
    pub fn calls_from(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Where this is.
    #[must_use]
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// Enters a team. It lives as long as the process.
pub fn add_team(record: TeamRecord) {
    DESCRIPTION.teams.push(Box::leak(Box::new(record)));
}

macro_rules! linked {
    ($($record:ty),*) => {$(
        impl Linked for $record {
            fn next(&self) -> &AtomicPtr<Self> {
                const { assert!(offset_of!($record, next) == 0) };
                &self.next
            }
        }
    )*};
}
linked!(FiberRecord, ThreadRecord, TeamRecord);

/// Records of fibers and threads that are gone, for the next ones. Bounded by how many there were
/// at the same time.
static UNUSED_FIBERS: Mutex<Vec<&'static FiberRecord>> = Mutex::new(Vec::new());
static UNUSED_THREADS: Mutex<Vec<&'static ThreadRecord>> = Mutex::new(Vec::new());

/// None where the lock stays held: the process may be the child of a fork at which another thread
/// had it. A record is lost then, which costs its memory.
fn locked<T>(unused: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    /// The lock is held for nanoseconds.
    const TRIES: u32 = 64;
    (0..TRIES).find_map(|_| match unused.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    })
}

fn take<T: Linked + Default + Sync>(unused: &Mutex<Vec<&'static T>>, list: &List<T>) -> &'static T {
    let kept = locked(unused).and_then(|mut unused| unused.pop());
    kept.unwrap_or_else(|| {
        let record: &'static T = Box::leak(Box::default());
        list.push(record);
        record
    })
}

fn keep<T>(unused: &Mutex<Vec<&'static T>>, record: &'static T) {
    if let Some(mut unused) = locked(unused) {
        unused.push(record);
    }
}

/// The entry of a fiber, as long as it exists.
#[derive(Debug)]
pub(crate) struct FiberEntry(&'static FiberRecord);

impl FiberEntry {
    /// For a fiber of this thread with the stack between `limit` and `base`.
    pub(crate) fn new(thread: u32, base: usize, limit: usize) -> FiberEntry {
        let record = take(&UNUSED_FIBERS, &DESCRIPTION.fibers);
        record.base.store(base, Ordering::Relaxed);
        record.limit.store(limit, Ordering::Relaxed);
        record.suspended_at.store(0, Ordering::Relaxed);
        record.thread.store(thread, Ordering::Release);
        FiberEntry(record)
    }

    pub(crate) fn record(&self) -> &'static FiberRecord {
        self.0
    }
}

impl Drop for FiberEntry {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Relaxed);
        keep(&UNUSED_FIBERS, self.0);
    }
}

/// The entry of a worker's thread, as long as it exists.
#[derive(Debug)]
pub struct ThreadEntry(&'static ThreadRecord);

impl ThreadEntry {
    /// For the calling thread, with the kernel's number of it.
    #[must_use]
    pub fn new(thread: u32, number: usize) -> ThreadEntry {
        let here = 0_u8;
        let record = take(&UNUSED_THREADS, &DESCRIPTION.threads);
        record
            .stack
            .store(ptr::from_ref(&here).addr(), Ordering::Relaxed);
        record.number.store(number as u32, Ordering::Relaxed);
        record.thread.store(thread, Ordering::Release);
        ThreadEntry(record)
    }
}

impl Drop for ThreadEntry {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Relaxed);
        keep(&UNUSED_THREADS, self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_this_version() {
        // Readers know these numbers: `margay_gdb.py`, and commands of other builds.
        assert_eq!(VERSION, 1);
        assert_eq!(size_of::<Description>(), 40);
        assert_eq!(offset_of!(Description, fibers), 16);
        assert_eq!(offset_of!(Description, threads), 24);
        assert_eq!(offset_of!(Description, teams), 32);
        assert_eq!(offset_of!(FiberRecord, thread), 8);
        assert_eq!(offset_of!(FiberRecord, base), 16);
        assert_eq!(offset_of!(FiberRecord, limit), 24);
        assert_eq!(offset_of!(FiberRecord, suspended_at), 32);
        assert_eq!(offset_of!(ThreadRecord, thread), 8);
        assert_eq!(offset_of!(ThreadRecord, number), 12);
        assert_eq!(offset_of!(ThreadRecord, stack), 16);
        assert_eq!(offset_of!(TeamRecord, size), 8);
        assert_eq!(offset_of!(TeamRecord, classes), 12);
        assert_eq!(offset_of!(TeamRecord, site_at), 16);
        assert_eq!(offset_of!(TeamRecord, class_bytes), 72);
        assert_eq!(offset_of!(TeamRecord, opened_at), 80);
        assert_eq!(offset_of!(MemberRecord, stack), 0);
        assert_eq!(offset_of!(MemberRecord, wait), 8);
    }

    #[test]
    fn records_of_what_is_gone_are_used_again() {
        let entry = FiberEntry::new(7, 0x2000, 0x1000);
        let record = entry.record();
        assert_eq!(record.thread.load(Ordering::Relaxed), 7);
        drop(entry);
        assert_eq!(record.thread.load(Ordering::Relaxed), 0);
    }
}
