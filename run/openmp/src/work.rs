//! Work shares: loops, sections, and what members share for them.
//!
//! The work shares of a region are a chain: each member keeps a reference to the one it is at, and
//! the first member that reaches the next appends and opens it. So a member may be any number of
//! `nowait` loops ahead of the others, as happens when one thread runs the members one after the
//! other. A work share is recycled when all members have left it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_core_openmp::schedule::{
    Iterations, Kind, Schedule, guided_share, static_chunk, static_owner, trapezoid_share,
};
use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::inspect::Wait;
use margay_sys_threads::outlined::Zeroed;
use margay_sys_threads::reduction_table::ReductionTable;

use crate::reduction::Reductions;
use crate::scheduler::Scheduler;
use crate::team::{Context, Team};

/// A loop to share; sections are one of `1..=count` by single iterations.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    pub iterations: Iterations,
    pub schedule: Schedule,
    pub is_ordered: bool,
}

/// Iterations of a loop, by the values of its variable.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub first: u64,
    pub last: u64,
    pub step: u64,
    /// It ends with the last iteration of the loop.
    pub is_end: bool,
}

/// What the members of a team share for a loop.
#[derive(Debug)]
pub struct WorkShare {
    /// [`FRESH`], [`OPENING`] or [`OPEN`].
    state: AtomicU32,
    next: StaticRef<WorkShare>,
    /// Members that have left it.
    left: AtomicU32,
    /// The first iteration that no member has taken.
    taken: AtomicU64,
    /// The next iteration whose ordered region may run.
    turn: AtomicU64,
    /// Members that wait for their turn.
    waiters: AtomicU32,
    share: Mutex<Option<Loop>>,
    extra: Mutex<Extra>,
}

#[derive(Debug, Default)]
struct Extra {
    memory: Option<Zeroed>,
    reductions: Option<Arc<Reductions>>,
    doacross: Option<Arc<Doacross>>,
}

const FRESH: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;

/// A member's position in the chain and in the loop.
#[derive(Debug)]
pub(crate) struct Position {
    work: Cell<&'static WorkShare>,
    share: Cell<Option<Loop>>,
    /// Chunks that this member has had under the static schedule. Under the dynamic schedule not 0
    /// when the member has found no iterations left.
    trip: Cell<u64>,
    /// The chunks that members add to the shared counter cannot overflow it.
    is_small: Cell<bool>,
    /// The iterations of its current chunk; empty before the first.
    chunk: Cell<(u64, u64)>,
    doacross: RefCell<Option<Arc<Doacross>>>,
}

/// What a construct asks of its work share, beside a loop.
#[derive(Debug, Default)]
pub struct ShareOptions<'c> {
    /// Bytes of zeroed memory for all members.
    pub memory: Option<usize>,
    pub reductions: Option<ReductionTable<'c>>,
}

/// The iterations of a doacross loop that have been posted.
#[derive(Debug)]
pub struct Doacross {
    counts: Vec<u64>,
    /// Which iterations of the outermost loop share an entry of `posted`.
    entries: DoacrossEntries,
    /// The last iteration posted in each, as numbered by [`Doacross::number`], plus 1.
    posted: Vec<LastPosted>,
    waiters: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
enum DoacrossEntries {
    /// One entry for each member, under the static schedule.
    Member { members: u64, chunk: u64 },
    /// One entry for this many iterations.
    Chunk(u64),
}

/// The number of the last iteration posted; where it does not fit in the word, that is all ones and
/// the number is in the mutex. On a cache line of its own, because other members poll it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LastPosted(AtomicU64, Mutex<u128>);

impl WorkShare {
    fn make() -> &'static WorkShare {
        Box::leak(Box::new(WorkShare {
            state: AtomicU32::new(FRESH),
            next: StaticRef::none(),
            left: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            share: Mutex::default(),
            extra: Mutex::default(),
        }))
    }

    /// Prepares a team's first work share for a region, with the loop that it is forked with. No
    /// member may be using it.
    pub(crate) fn renew(&self, share: Option<Loop>) {
        let is_used = self.state.load(Ordering::Relaxed) != FRESH
            || self.next.get(Ordering::Relaxed).is_some();
        if is_used {
            self.reset();
        }
        if let Some(share) = share {
            self.fill(share);
            self.state.store(OPEN, Ordering::Release);
        }
    }

    fn fill(&self, share: Loop) {
        self.taken.store(0, Ordering::Relaxed);
        self.turn.store(0, Ordering::Relaxed);
        *lock(&self.share) = Some(share);
    }

    /// Of a team's first work share: the loop that the region was forked with.
    #[inline]
    pub(crate) fn of_region(&self) -> Option<Loop> {
        if self.state.load(Ordering::Relaxed) == OPEN {
            self.share()
        } else {
            None
        }
    }

    fn share(&self) -> Option<Loop> {
        *lock(&self.share)
    }

    /// Back to the first state. No member may be using it.
    fn reset(&self) {
        *lock(&self.share) = None;
        *lock(&self.extra) = Extra::default();
        self.next.set(None, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        self.state.store(FRESH, Ordering::Release);
    }

    /// A member leaves. The last one recycles the work share, unless it is the team's first, which
    /// stays.
    fn leave(&'static self, team: &Team) {
        if !std::ptr::eq(self, team.shares.first)
            && self.left.fetch_add(1, Ordering::AcqRel) + 1 == team.size
        {
            self.reset();
            team.shares.give_back(self);
        }
    }

    /// Takes iterations from the shared counter: `share` of those left.
    fn take(&self, count: u64, share: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let mut first = self.taken.load(Ordering::Relaxed);
        loop {
            if first >= count {
                return None;
            }
            let end = first + share(count - first);
            match self
                .taken
                .compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some((first, end)),
                Err(seen) => first = seen,
            }
        }
    }

    /// Wakes the member whose turn it is.
    fn wake_next(&self, scheduler: &Scheduler, turn: u64) {
        if self.waiters.load(Ordering::SeqCst) != 0 {
            scheduler.wake(self.key_of(turn));
        }
    }

    /// Where the member waits whose ordered regions begin with this iteration: each elsewhere, as
    /// all but one would be woken in vain.
    fn key_of(&self, turn: u64) -> usize {
        (std::ptr::from_ref(self) as usize).wrapping_add(turn as usize)
    }
}

/// The work shares of a team.
#[derive(Debug)]
pub(crate) struct WorkShares {
    /// The begin of a region's chain; its own loop, if the region was forked with one.
    pub(crate) first: &'static WorkShare,
    others: Mutex<OtherShares>,
}

#[derive(Debug, Default)]
struct OtherShares {
    all: Vec<&'static WorkShare>,
    /// Those in their first state.
    spare: Vec<&'static WorkShare>,
}

impl WorkShares {
    pub(crate) fn new() -> WorkShares {
        WorkShares {
            first: WorkShare::make(),
            others: Mutex::default(),
        }
    }

    /// A work share in its first state.
    pub(crate) fn take(&self) -> &'static WorkShare {
        let mut others = lock(&self.others);
        others.spare.pop().unwrap_or_else(|| {
            let made = WorkShare::make();
            others.all.push(made);
            made
        })
    }

    /// Gives back a work share in its first state.
    pub(crate) fn give_back(&self, share: &'static WorkShare) {
        lock(&self.others).spare.push(share);
    }

    /// After a cancelled region. Its members have left from wherever they were, past work shares
    /// that others had left before or never reached, so no member was the last to leave those.
    /// Nobody uses them now.
    #[cold]
    pub(crate) fn take_back_all(&self) {
        let others = &mut *lock(&self.others);
        for share in &others.all {
            share.reset();
        }
        others.spare.clone_from(&others.all);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Position {
    pub(crate) fn new(first: &'static WorkShare) -> Position {
        Position {
            work: Cell::new(first),
            share: Cell::new(None),
            trip: Cell::new(0),
            is_small: Cell::new(true),
            chunk: Cell::new((0, 0)),
            doacross: RefCell::new(None),
        }
    }

    /// Begins a loop, or a construct without one, as one of `members`.
    pub(crate) fn load(&self, share: Option<Loop>, members: u32) {
        self.share.set(share);
        self.trip.set(0);
        self.chunk.set((0, 0));
        if let Some(share) = share {
            // Each member adds one chunk that it does not get.
            let most = u128::from(share.iterations.count)
                + u128::from(share.schedule.chunk.max(1)) * u128::from(members + 1);
            self.is_small.set(most < u128::from(u64::MAX));
        }
    }

    /// Whether it is in a loop.
    pub(crate) fn has_loop(&self) -> bool {
        self.share.get().is_some()
    }

    /// How its loop is cut.
    pub(crate) fn schedule(&self) -> Option<Kind> {
        Some(self.share.get()?.schedule.kind)
    }

    /// The iterations of its loop.
    pub(crate) fn iterations(&self) -> u64 {
        self.share.get().map_or(0, |share| share.iterations.count)
    }

    pub(crate) fn leave(&self, team: &Team) {
        self.work.get().leave(team);
    }
}

impl Context {
    /// Begins the next work share: a loop, or none for a construct that only shares memory.
    /// `counts` are the iterations of each nested loop of a doacross loop. Returns the address of
    /// the shared memory, if the options ask for some.
    pub fn begin_share(
        &self,
        share: Option<Loop>,
        options: ShareOptions<'_>,
        counts: Option<&[u64]>,
    ) -> Option<usize> {
        let share = share.map(|mut share| {
            if share.schedule.kind == Kind::Auto {
                share.schedule = Schedule::new(Kind::Static, 0);
            }
            share
        });
        if options.reductions.is_some() {
            self.start_group(true);
        }
        let (work, is_first) = self.next_share();
        let mut address = None;
        if is_first {
            if let Some(share) = share {
                work.fill(share);
            }
            let mut extra = lock(&work.extra);
            if let Some(table) = options.reductions {
                extra.reductions = Some(self.register_share(table, None));
            }
            if let Some(bytes) = options.memory {
                let memory = Zeroed::new(bytes, 16);
                address = Some(memory.address());
                extra.memory = Some(memory);
            }
            if let (Some(share), Some(counts)) = (share, counts) {
                extra.doacross = Doacross::new(share, counts, self.team.size).map(Arc::new);
                self.work.doacross.replace(extra.doacross.clone());
            }
            drop(extra);
            work.state.store(OPEN, Ordering::Release);
        } else {
            let extra = lock(&work.extra);
            if let Some(table) = options.reductions {
                self.register_share(table, extra.reductions.as_deref());
            }
            address = extra.memory.as_ref().map(Zeroed::address);
            self.work.doacross.replace(extra.doacross.clone());
        }
        // All use what the first member has found: a runtime schedule may differ between members.
        let share = share.and_then(|share| work.share().or(Some(share)));
        self.work.load(share, self.team.size);
        address
    }

    fn next_share(&self) -> (&'static WorkShare, bool) {
        let team = self.team;
        let before = self.work.work.get();
        let work = match before.next.get(Ordering::Acquire) {
            Some(work) => work,
            None => {
                let work = team.shares.take();
                match before.next.set_first(work) {
                    Ok(()) => work,
                    Err(other) => {
                        team.shares.give_back(work);
                        other
                    }
                }
            }
        };
        before.leave(team);
        self.work.work.set(work);
        if work.state.load(Ordering::Acquire) == FRESH
            && work
                .state
                .compare_exchange(FRESH, OPENING, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            return (work, true);
        }
        // Opening does not wait for anything, so this takes a moment only.
        while work.state.load(Ordering::Acquire) != OPEN {
            self.yield_now();
        }
        (work, false)
    }

    /// The next iterations of this member, as numbers; none when there are no more.
    fn next_chunk(&self) -> Option<(u64, u64)> {
        let current = &self.work;
        let share = current.share.get()?;
        if share.is_ordered {
            self.pass_turn();
        }
        let (count, chunk) = (share.iterations.count, share.schedule.chunk);
        let members = u64::from(self.team.size);
        let work = current.work.get();
        let next = match share.schedule.kind {
            Kind::Static | Kind::Auto => {
                let trip = current.trip.get();
                current.trip.set(trip + 1);
                static_chunk(count, members, u64::from(self.id), chunk, trip)
            }
            Kind::Dynamic => {
                let chunk = chunk.max(1);
                if current.trip.get() != 0 {
                    None
                } else if current.is_small.get() {
                    // Without a load before: fetching the line once costs enough.
                    let first = work.taken.fetch_add(chunk, Ordering::Relaxed);
                    (first < count).then(|| (first, (first + chunk).min(count)))
                } else {
                    work.take(count, |left| chunk.min(left))
                }
                .or_else(|| {
                    current.trip.set(1);
                    None
                })
            }
            Kind::Guided => {
                let whole_chunks = share.schedule.whole_chunks;
                work.take(count, |left| {
                    guided_share(left, members, chunk, whole_chunks)
                })
            }
            Kind::Trapezoidal => {
                work.take(count, |left| trapezoid_share(left, count, members, chunk))
            }
        };
        current.chunk.set(next.unwrap_or((0, 0)));
        if let (Some(tool), Some((first, end))) = (self.tool, next) {
            self.tell_dispatch(tool, (first, end - first));
        }
        next
    }

    /// The next iterations of this member: the values of the first and of the first beyond.
    #[inline]
    pub fn next_iterations(&self) -> Option<(u64, u64)> {
        let (first, end) = self.next_chunk()?;
        let iterations = self.work.share.get()?.iterations;
        Some((iterations.value(first), iterations.value(end)))
    }

    /// The same for callers that include the last iteration.
    #[inline]
    pub fn next_inclusive(&self) -> Option<Chunk> {
        let (first, end) = self.next_chunk()?;
        let iterations = self.work.share.get()?.iterations;
        let step = iterations.step;
        // Both exist, so that neither is the loop's end.
        let first_value = iterations.start.wrapping_add(first.wrapping_mul(step));
        Some(Chunk {
            first: first_value,
            last: first_value.wrapping_add((end - 1 - first).wrapping_mul(step)),
            step,
            is_end: end == iterations.count,
        })
    }

    /// The next section, from 1.
    pub fn next_section(&self) -> Option<u32> {
        self.next_chunk().map(|(first, _)| first as u32 + 1)
    }

    /// The loop is over for this member.
    pub fn end_share(&self) {
        if self.work.share.get().is_some_and(|share| share.is_ordered) {
            self.pass_turn();
        }
        self.work.doacross.replace(None);
        self.tell_work_over();
    }

    /// Waits for the turn of this member's iterations in the ordered regions.
    pub fn start_ordered(&self) {
        let (first, end) = self.work.chunk.get();
        if self.team.size == 1 || first == end {
            return;
        }
        let work = self.work.work.get();
        if work.turn.load(Ordering::Acquire) != first {
            self.wait_at(work.key_of(first), &work.waiters, &|| {
                work.turn.load(Ordering::SeqCst) == first
            });
        }
    }

    /// This member's iterations are over: the next ones have their turn in the ordered regions.
    fn pass_turn(&self) {
        let (first, end) = self.work.chunk.get();
        if first == end {
            return;
        }
        self.start_ordered();
        let work = self.work.work.get();
        work.turn.store(end, Ordering::SeqCst);
        self.work.chunk.set((0, 0));
        work.wake_next(&self.runtime().scheduler, end);
    }

    fn wait_at(&self, key: usize, waiters: &AtomicU32, done: &dyn Fn() -> bool) {
        self.make_members_stealable();
        waiters.fetch_add(1, Ordering::SeqCst);
        self.wait_until(Wait::Ordered, key, done);
        waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Begins a doacross loop that is not a work share itself: returns the iterations posted, which
    /// its members share.
    pub(crate) fn share_doacross(&self, counts: &[u64]) -> Option<Arc<Doacross>> {
        let share = Loop {
            iterations: Iterations::default(),
            // Who will run which iteration is not known.
            schedule: Schedule::new(Kind::Guided, 0),
            is_ordered: false,
        };
        self.begin_share(Some(share), ShareOptions::default(), Some(counts));
        self.work.doacross.take()
    }

    pub(crate) fn post_to(&self, doacross: &Doacross, iteration: &[u64]) {
        doacross.post(iteration, &self.runtime().scheduler);
    }

    pub(crate) fn wait_for_number(&self, doacross: &Doacross, iteration: &[u64]) {
        if !doacross.is_posted(iteration) {
            let key = std::ptr::from_ref(doacross) as usize;
            self.wait_at(key, &doacross.waiters, &|| doacross.is_posted(iteration));
        }
    }

    /// `ordered depend(source)`
    pub fn post(&self, iteration: &[u64]) {
        if let Some(doacross) = self.doacross() {
            self.post_to(&doacross, iteration);
        }
    }

    /// `ordered depend(sink)`: waits until an iteration has been posted. `at` returns its number in
    /// each of the nested loops.
    pub fn wait_for_post(&self, at: impl Fn(usize) -> u64) {
        let Some(doacross) = self.doacross() else {
            return;
        };
        let iteration: Vec<u64> = (0..doacross.counts.len()).map(at).collect();
        self.wait_for_number(&doacross, &iteration);
    }

    /// The number of nested loops of the doacross loop that this member is in.
    #[must_use]
    pub fn doacross_loops(&self) -> usize {
        self.doacross().map_or(0, |doacross| doacross.counts.len())
    }

    fn doacross(&self) -> Option<Arc<Doacross>> {
        self.work.doacross.borrow().clone()
    }
}

impl Doacross {
    /// None where no member has to wait: with a single one, or an empty loop.
    fn new(share: Loop, counts: &[u64], members: u32) -> Option<Doacross> {
        if members == 1 || counts.contains(&0) {
            return None;
        }
        let chunk = share.schedule.chunk;
        let members = u64::from(members);
        let (entries, count) = match share.schedule.kind {
            Kind::Static | Kind::Auto => (DoacrossEntries::Member { members, chunk }, members),
            Kind::Dynamic => {
                let chunk = chunk.max(1);
                (DoacrossEntries::Chunk(chunk), counts[0].div_ceil(chunk))
            }
            Kind::Guided | Kind::Trapezoidal => (DoacrossEntries::Chunk(1), counts[0]),
        };
        Some(Doacross {
            counts: counts.to_vec(),
            entries,
            posted: (0..count).map(|_| LastPosted::default()).collect(),
            waiters: AtomicU32::new(0),
        })
    }

    /// The iteration's position in sequential order.
    fn number(&self, iteration: &[u64]) -> u128 {
        iteration
            .iter()
            .zip(&self.counts)
            .fold(0_u128, |number, (&index, &count)| {
                number
                    .wrapping_mul(u128::from(count))
                    .wrapping_add(u128::from(index))
            })
    }

    fn entry(&self, outermost: u64) -> &LastPosted {
        let at = match self.entries {
            DoacrossEntries::Member { members, chunk } => {
                static_owner(self.counts[0], members, chunk, outermost)
            }
            DoacrossEntries::Chunk(chunk) => outermost / chunk,
        };
        &self.posted[at as usize]
    }

    fn post(&self, iteration: &[u64], scheduler: &Scheduler) {
        let number = self.number(iteration) + 1;
        let posted = self.entry(iteration[0]);
        match u64::try_from(number) {
            Ok(number) => posted.0.store(number, Ordering::SeqCst),
            Err(_) => {
                *lock(&posted.1) = number;
                posted.0.store(u64::MAX, Ordering::SeqCst);
            }
        }
        if self.waiters.load(Ordering::SeqCst) != 0 {
            scheduler.wake(std::ptr::from_ref(self) as usize);
        }
    }

    fn is_posted(&self, iteration: &[u64]) -> bool {
        if iteration[0] >= self.counts[0] {
            return true;
        }
        let number = self.number(iteration) + 1;
        let posted = self.entry(iteration[0]);
        match posted.0.load(Ordering::SeqCst) {
            u64::MAX => *lock(&posted.1) >= number,
            there => u128::from(there) >= number,
        }
    }
}
