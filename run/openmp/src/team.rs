//! Teams: a parallel region, its members, how they begin, wait for each other and end.
//!
//! A member is not a thread. A team is one offer to the workers of the
//! `scheduler`: any worker without other work, and the forking one, claims a
//! member and runs it. So a region of eight members on two cores, or on one that is free, is eight
//! calls. While a member waits, its thread runs others.
//!
//! Teams and their members are recycled and never freed: a worker that comes late to a team whose
//! region is over finds no member to claim.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use margay_run_threads::{Offer, Worker, with_current_worker};
use margay_sys_os::clock::Clock;
use margay_sys_os::static_ref::{Handoff, StaticRef};
use margay_sys_os::{fence, process};
use margay_sys_threads::deque::{self, Stealer};
use margay_sys_threads::inspect::{MemberRecord, TeamWords, Wait};

use crate::icv::Icv;
use crate::node::TaskNode;
use crate::runtime::Runtime;
use crate::scheduler::{PublishedOffer, RetractedOffer, STEAL_DELAY_NS};
use crate::task::Task;
use crate::tls::PersistentBlocks;
use crate::tool::TeamTool;
use crate::work::{Loop, WorkShares};
use margay_sys_threads::claims::Claims;

mod context;
mod inspect;
mod length;
mod local;
mod start;
mod wait;

use length::RegionLength;
use local::{MemberLocal, TEAMS_KEPT};
use start::RegionStart;

pub use context::{Context, Request, with};
pub(crate) use wait::TaskFilter;

/// A team of a fixed number of members; see the module.
#[derive(Debug)]
pub struct Team {
    /// How many members.
    pub size: u32,
    pub runtime: &'static Runtime,
    members: Vec<Member>,
    start: RegionStart,
    nesting: Nesting,
    pub(crate) claims: Claims,
    ends: MemberEnds,
    barrier: TeamBarrier,
    tasks: TeamTasks,
    pub(crate) shares: WorkShares,
    /// Of the team of an initial thread.
    initial: InitialThread,
    offer: OnceLock<Arc<TeamOffer>>,
    length: RegionLength,
    pub(crate) tool: TeamTool,
}

/// Where a region is among the regions around it.
#[derive(Debug)]
struct Nesting {
    /// The member that encountered the region; none for the team of an initial thread.
    parent: StaticRef<Member>,
    level: AtomicU32,
    active_level: AtomicU32,
    /// What distinguishes the region from others, as it is seen from outside.
    site: &'static AtomicUsize,
}

/// How many members have come how far at the end of a region.
#[derive(Debug, Default)]
struct MemberEnds {
    /// Members whose body is over and whose tasks are done.
    done: AtomicU32,
    /// Members other than the first that will not touch the team again.
    gone: AtomicU32,
}

/// The barrier of a team. What members write there is on one cache line, which goes from core to
/// core once, and what they watch while they wait is on another one.
#[derive(Debug, Default)]
struct TeamBarrier {
    written: BarrierWritten,
    watched: BarrierWatched,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct BarrierWritten {
    /// Members that have arrived at the current barrier.
    arrived: AtomicU32,
    /// `single` constructs that a member has taken.
    singles: AtomicU64,
    /// The address that a `copyprivate` clause passes.
    copied: AtomicUsize,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct BarrierWatched {
    /// Barriers so far.
    generation: AtomicU64,
    /// `cancel parallel` was encountered.
    is_cancelled: AtomicBool,
    /// A work share has been cancelled; until the next barrier.
    is_work_cancelled: AtomicBool,
}

/// The tasks of a team that are in no member's deque, and how many members wait for tasks.
#[derive(Debug, Default)]
struct TeamTasks {
    /// Whether a task has been deferred in this region.
    has_tasks: AtomicBool,
    /// Sleeping members that would take any task, and those that would take only descendants of
    /// their own.
    sleepers: AtomicU32,
    constrained_sleepers: AtomicU32,
    /// Tasks with a priority, and those that became ready on other threads. Bounded as deques are;
    /// see `task.rs`.
    #[expect(
        clippy::vec_box,
        reason = "arguments may refer to themselves: a task stays in its box"
    )]
    queue: Mutex<Vec<Box<Task>>>,
    /// The length of the queue.
    queued: AtomicUsize,
}

/// A thread of the program, as the members of all teams under it see it.
#[derive(Debug)]
pub struct InitialThread {
    /// Threads that its regions have, for `OMP_THREAD_LIMIT`.
    busy: AtomicU32,
    /// The thread-local variables of the members of its outermost regions.
    tls_blocks: PersistentBlocks,
    /// Its context is gone.
    is_over: AtomicBool,
}

/// The part of a member that others may touch. On cache lines of its own, since its neighbours are
/// on other cores.
#[repr(align(128))]
pub struct Member {
    pub id: u32,
    team: StaticRef<Team>,
    implicit: &'static TaskNode,
    /// What it is doing, as it is seen from outside.
    record: &'static MemberRecord,
    tasks: Stealer<Box<Task>>,
    local: Handoff<MemberLocal>,
    is_asleep: AtomicBool,
    /// Something that it may wait for has happened.
    has_wakeup: AtomicBool,
    /// It sleeps under the task scheduling constraint: only descendants of its task may run on it.
    is_constrained: AtomicBool,
    /// The place that it is assigned to, from 1; 0 for none.
    place: AtomicU32,
    partition: Mutex<(u32, u32)>,
}

/// The teams that no member keeps. Bounded by the teams that were in use at the same time.
#[derive(Debug, Default)]
pub(crate) struct FreeTeams(Mutex<Vec<&'static Team>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A team as an offer to workers; used again for each of its regions.
#[derive(Debug)]
struct TeamOffer {
    team: &'static Team,
    tag: AtomicU32,
    /// Its place on a worker's shelf between two regions, as a word; 0 for none.
    retracted: AtomicU64,
}

impl Offer<Worker> for TeamOffer {
    fn help(self: Arc<Self>, worker: &Worker) {
        worker.enable_time_slices();
        self.team.help(worker.number() as u32);
    }

    fn is_open(&self) -> bool {
        let claims = &self.team.claims;
        // Program threads have number 0, also when their thread-local variables are gone.
        let number = || with_current_worker(Worker::number).unwrap_or(0) as u32;
        claims.has_unclaimed() && claims.is_open_for(number(), || self.team.now_ns())
    }

    fn opens_later(&self) -> bool {
        self.team.claims.has_unclaimed()
    }

    fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }
}

impl Team {
    fn make(runtime: &'static Runtime, size: u32) -> &'static Team {
        fence::register();
        let words = TeamWords::new(size, runtime.keeper());
        let mut locals = Vec::new();
        let members = (0..size)
            .zip(words.members)
            .map(|(id, record)| {
                let (owner, stealer) = deque::deque();
                locals.push(Box::new(MemberLocal::new(owner)));
                Member {
                    id,
                    team: StaticRef::none(),
                    implicit: runtime.nodes.make(),
                    record,
                    tasks: stealer,
                    local: Handoff::empty(),
                    is_asleep: AtomicBool::new(false),
                    has_wakeup: AtomicBool::new(false),
                    is_constrained: AtomicBool::new(false),
                    place: AtomicU32::new(0),
                    partition: Mutex::default(),
                }
            })
            .collect();
        let team: &'static Team = Box::leak(Box::new(Team {
            size,
            runtime,
            members,
            start: RegionStart::new(),
            nesting: Nesting {
                parent: StaticRef::none(),
                level: AtomicU32::new(0),
                active_level: AtomicU32::new(0),
                site: &words.team.site,
            },
            // The team of an initial thread needs no workers: none are started for it.
            claims: Claims::new(
                size,
                if size == 1 {
                    1
                } else {
                    runtime.scheduler.workers()
                },
            ),
            ends: MemberEnds::default(),
            barrier: TeamBarrier::default(),
            tasks: TeamTasks::default(),
            shares: WorkShares::new(),
            initial: InitialThread {
                busy: AtomicU32::new(1),
                tls_blocks: PersistentBlocks::default(),
                is_over: AtomicBool::new(false),
            },
            offer: OnceLock::new(),
            length: RegionLength::new(),
            tool: TeamTool::new(),
        }));
        for (member, local) in team.members.iter().zip(locals) {
            member.team.set(Some(team), Ordering::Relaxed);
            member.implicit.owner.set(Some(member), Ordering::Relaxed);
            member.local.put(local);
        }
        inspect::enter(team);
        team
    }

    fn get(runtime: &'static Runtime, size: u32, near: Option<&MemberLocal>) -> &'static Team {
        if let Some(local) = near {
            let mut kept = local.teams.borrow_mut();
            if let Some(at) = kept.iter().rposition(|team| team.size == size) {
                return kept.swap_remove(at);
            }
        }
        let mut free = lock(&runtime.teams.0);
        if let Some(at) = free.iter().rposition(|team| team.size == size) {
            return free.swap_remove(at);
        }
        drop(free);
        Team::make(runtime, size)
    }

    fn give_back(&'static self, near: Option<&MemberLocal>) {
        self.nesting.site.store(0, Ordering::Relaxed);
        if let Some(local) = near {
            let mut kept = local.teams.borrow_mut();
            if kept.len() < TEAMS_KEPT {
                kept.push(self);
                return;
            }
        }
        lock(&self.runtime.teams.0).push(self);
    }

    /// Prepares the team for a region with this loop; the caller has filled in `start`. No member
    /// can be claimed before [`open`](Self::open).
    fn prepare(&'static self, parent: Option<&Context>, share: Option<Loop>) {
        let up = parent.map(|context| &context.team.nesting);
        let nesting = &self.nesting;
        nesting
            .parent
            .set(parent.map(|context| context.member), Ordering::Relaxed);
        let level = up.map_or(0, |up| up.level.load(Ordering::Relaxed));
        let active = up.map_or(0, |up| up.active_level.load(Ordering::Relaxed));
        nesting
            .level
            .store(level + u32::from(up.is_some()), Ordering::Relaxed);
        nesting
            .active_level
            .store(active + u32::from(self.size > 1), Ordering::Relaxed);
        self.ends.done.store(0, Ordering::Relaxed);
        self.ends.gone.store(0, Ordering::Relaxed);
        let TeamBarrier { written, watched } = &self.barrier;
        written.arrived.store(0, Ordering::Relaxed);
        written.singles.store(0, Ordering::Relaxed);
        if watched.is_work_cancelled.load(Ordering::Relaxed) {
            watched.is_work_cancelled.store(false, Ordering::Relaxed);
        }
        if watched.is_cancelled.load(Ordering::Relaxed) {
            watched.is_cancelled.store(false, Ordering::Relaxed);
            self.shares.take_back_all();
        }
        self.tasks.has_tasks.store(false, Ordering::Relaxed);
        self.shares.first.renew(share);
    }

    /// Prepares it for the only member of an initial thread.
    fn prepare_initial(&'static self, icv: &'static Icv) {
        self.initial.busy.store(1, Ordering::Relaxed);
        self.initial.is_over.store(false, Ordering::Relaxed);
        let start = &self.start;
        start.body.set(None);
        start.icv.set(Some(icv), Ordering::Relaxed);
        start.set_league((0, 1));
        start.set_reductions(None);
        start.initial.set(Some(&self.initial), Ordering::Relaxed);
        start.show_affinity(None);
        self.prepare(None, None);
    }

    /// The initial thread that this is the team of has ended: the threads that keep the
    /// thread-local variables of its members end, and so run the destructors of these.
    fn end_initial(&'static self) {
        let (runtime, blocks) = (self.runtime, &self.initial.tls_blocks);
        runtime.tls_blocks.clear(blocks, runtime.tool());
        // A thread that calls OpenMP while it ends may still have its context.
        if self.initial.is_over.load(Ordering::Relaxed) {
            self.give_back(None);
        }
        // Where the library was loaded by another thread, this is the first that it learns of it.
        if process::thread_id() == std::process::id() {
            self.runtime.main_thread_has_ended();
        }
    }

    fn now_ns(&self) -> u64 {
        self.runtime.clock.now_ns()
    }

    /// Lets workers claim members from the second on, and publishes the team. `forker` is the
    /// worker that has the first member, `site` tells the region from others.
    fn open(&'static self, forker: u32, site: usize) -> PublishedOffer {
        let expected_ns = self.length.expect(site);
        // Members in other places are waited for in any case.
        let is_short = RegionLength::is_short(expected_ns) && !self.claims.has_places();
        let now_ns = if is_short { 0 } else { self.now_ns() };
        self.length.open(now_ns, self.generation());
        let is_outermost = self.level() == 1;
        self.claims.open(forker, is_outermost);
        if !is_short {
            self.claims.start_grace(now_ns);
        }
        let (published, may_get_help) = self.publish(is_short, expected_ns);
        if !may_get_help {
            self.claims.end_grace();
            if is_short && self.length.is_sampled_alone() {
                self.length.set_opened(self.now_ns());
            }
        }
        published
    }

    fn close(&self) {
        self.length.close(self.generation(), || self.now_ns());
    }

    fn as_offer(&'static self) -> &'static Arc<TeamOffer> {
        self.offer.get_or_init(|| {
            Arc::new(TeamOffer {
                team: self,
                tag: AtomicU32::new(0),
                retracted: AtomicU64::new(0),
            })
        })
    }

    /// Publishes the team for workers, which leave it to this one for a moment if `is_short`. One
    /// that sleeps is woken if that is worth it for this long. Also returns whether another worker
    /// may come soon.
    fn publish(&'static self, is_short: bool, expected_ns: u64) -> (PublishedOffer, bool) {
        let offer = self.as_offer();
        let retracted = RetractedOffer::from_word(offer.retracted.load(Ordering::Relaxed));
        let set_tag = |tag| offer.tag.store(tag, Ordering::Relaxed);
        self.runtime
            .scheduler
            .publish(offer, retracted, is_short, expected_ns, set_tag)
    }

    fn retract(&'static self, published: PublishedOffer) {
        let retracted = self.runtime.scheduler.retract(published);
        let word = retracted.map_or(0, RetractedOffer::to_word);
        let kept = &self.as_offer().retracted;
        if kept.load(Ordering::Relaxed) != word {
            kept.store(word, Ordering::Relaxed);
        }
    }

    /// Claims and runs members until none is left to claim. For a worker without other work.
    fn help(&'static self, worker: u32) {
        while let Some(id) = self.claims.claim(worker, false, || self.now_ns()) {
            // The region lasts until its claimed members are gone.
            if self.length.opened_ns() == 0 {
                let opened_ns = self.now_ns() - STEAL_DELAY_NS;
                self.length.set_opened(opened_ns);
                self.claims.start_grace(opened_ns);
            }
            let count = self.run_members(id, worker, true);
            // Only now may they be run again, in the next region.
            if self.ends.gone.fetch_add(count, Ordering::SeqCst) + count + 1 == self.size {
                self.member(0).notify();
            }
        }
    }

    /// Runs a claimed member, and then others of the region until none is left to claim. Returns
    /// how many it has run. If `stays`, the last one then counts all of them as done and helps with
    /// the team's tasks until the region is over.
    fn run_members(&'static self, first: u32, worker: u32, stays: bool) -> u32 {
        let blocks_of = if self.level() == 1 {
            self.start.initial.get(Ordering::Relaxed)
        } else {
            None
        };
        let persistent = blocks_of.map(|initial| &initial.tls_blocks);
        let mut count = 0;
        let mut next = Some(first);
        while let Some(id) = next {
            count += 1;
            let run = || {
                Context::of(self, id, worker).enter(|context| {
                    context.run_body();
                    // A member that is over has passed all barriers, so the others will not wait
                    // for each other much.
                    let next = self.claims.claim(worker, true, || self.now_ns());
                    if next.is_none() && stays {
                        self.count_done(count);
                        context.wait(Wait::RegionEnd, TaskFilter::Any, &|| {
                            self.ends.done.load(Ordering::SeqCst) == self.size
                        });
                    }
                    if let Some(tool) = context.tool {
                        context.tell_member_over(tool);
                    }
                    next
                })
            };
            next = self.runtime.tls_blocks.with(persistent, id, run);
        }
        count
    }

    /// Counts members whose bodies are over and whose tasks are done.
    fn count_done(&'static self, count: u32) {
        if self.ends.done.fetch_add(count, Ordering::SeqCst) + count == self.size {
            self.wake_all();
        }
    }

    /// Member `id`.
    #[must_use]
    pub fn member(&'static self, id: u32) -> &'static Member {
        &self.members[id as usize]
    }

    /// The member that encountered the region; none for the team of an initial thread.
    #[must_use]
    pub fn parent(&self) -> Option<&'static Member> {
        self.nesting.parent.get(Ordering::Relaxed)
    }

    /// How many parallel regions enclose its members.
    #[inline]
    #[must_use]
    pub fn level(&self) -> u32 {
        self.nesting.level.load(Ordering::Relaxed)
    }

    /// How many of them have more than one member.
    #[inline]
    #[must_use]
    pub fn active_level(&self) -> u32 {
        self.nesting.active_level.load(Ordering::Relaxed)
    }

    /// The number of the next barrier.
    #[inline]
    fn generation(&self) -> u64 {
        self.barrier.watched.generation.load(Ordering::Relaxed)
    }

    /// Whether `cancel parallel` was encountered.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.barrier.watched.is_cancelled.load(Ordering::Acquire)
    }

    /// Whether the current work share has been cancelled.
    #[inline]
    #[must_use]
    pub fn is_work_cancelled(&self) -> bool {
        let watched = &self.barrier.watched;
        watched.is_work_cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn cancel_work(&self) {
        let watched = &self.barrier.watched;
        watched.is_work_cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn cancel(&'static self) {
        let watched = &self.barrier.watched;
        watched.is_cancelled.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn wake_all(&'static self) {
        for member in &self.members {
            member.wake_if_asleep();
        }
    }

    /// There is a task to take: a sleeping member is to check for it.
    #[inline]
    pub(crate) fn announce_task(&'static self) {
        let tasks = &self.tasks;
        if !tasks.has_tasks.load(Ordering::Relaxed) {
            tasks.has_tasks.swap(true, Ordering::SeqCst);
        }
        fence::light();
        if tasks.sleepers.load(Ordering::SeqCst) != 0
            || tasks.constrained_sleepers.load(Ordering::SeqCst) != 0
        {
            self.wake_sleeper();
        }
    }

    /// Wakes one member that takes any task; if there is none, all that sleep under the task
    /// scheduling constraint, since the task may be one of theirs.
    #[cold]
    fn wake_sleeper(&'static self) {
        let constrained = self.tasks.sleepers.load(Ordering::SeqCst) == 0;
        for member in &self.members {
            if member.is_asleep.load(Ordering::SeqCst)
                && member.is_constrained.load(Ordering::Relaxed) == constrained
                && !member.has_wakeup.swap(true, Ordering::SeqCst)
            {
                self.runtime.scheduler.wake(member.key());
                if !constrained {
                    return;
                }
            }
        }
    }

    /// Puts a task where any member finds it.
    pub(crate) fn enqueue(&'static self, task: Box<Task>) {
        let tasks = &self.tasks;
        let mut queue = lock(&tasks.queue);
        // In ascending order of priority, and the oldest of a priority last: the end is taken
        // first.
        let at = queue.partition_point(|other| other.priority < task.priority);
        queue.insert(at, task);
        tasks.queued.store(queue.len(), Ordering::Release);
        drop(queue);
        self.announce_task();
    }

    fn dequeue(&self, ancestor: Option<&'static TaskNode>) -> Option<Box<Task>> {
        let tasks = &self.tasks;
        if tasks.queued.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = lock(&tasks.queue);
        let at = match ancestor {
            None => queue.len().checked_sub(1),
            Some(node) => queue.iter().rposition(|task| task.node.is_within(node)),
        }?;
        let task = queue.remove(at);
        tasks.queued.store(queue.len(), Ordering::Release);
        Some(task)
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Member {
    /// The address under which it waits.
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Its own task.
    pub(crate) fn implicit(&self) -> &'static TaskNode {
        self.implicit
    }

    /// Its team.
    ///
    /// # Panics
    /// Never: a member is made with its team.
    #[must_use]
    pub fn team(&self) -> &'static Team {
        self.team
            .get(Ordering::Relaxed)
            .expect("a member has a team")
    }

    /// The place that it is assigned to.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        (self.place.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    pub(crate) fn assign(&self, place: Option<usize>, partition: (u32, u32)) {
        self.place
            .store(place.map_or(0, |place| place as u32 + 1), Ordering::Relaxed);
        *lock(&self.partition) = partition;
    }

    /// The first of the places that its regions may use, and how many.
    #[must_use]
    pub fn partition(&self) -> (u32, u32) {
        *lock(&self.partition)
    }

    /// Something that it may wait for has happened.
    pub(crate) fn notify(&self) {
        self.has_wakeup.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            self.team().runtime.scheduler.wake(self.key());
        }
    }

    fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::SeqCst) {
            self.notify();
        }
    }
}
