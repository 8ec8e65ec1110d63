//! Teams: a parallel region, its members, how they begin, meet and end.
//!
//! A member is not a thread. A team is one offer to the workers of [`host`]: whoever has time claims a member and runs it,
//! the forking thread included, so that a region of eight members on two cores, or on one that is free, is eight calls. A
//! member that waits gives its thread to others.
//!
//! Teams and their members are recycled and never freed; who comes late to a team that is over finds no member to claim.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use margay_sys_os::clock;
use margay_sys_os::fence;
use margay_sys_threads::deque::{self, Owner, Stealer};
use margay_sys_threads::link::{Handoff, Link};
use margay_sys_threads::outlined::Posted;

use crate::claims::Claims;
use crate::host;
use crate::icv::Icv;
use crate::node::Node;
use crate::reduction::Reductions;
use crate::task::Task;
use crate::variables::{self, Variables};
use crate::work::{Loop, Work};

mod context;

pub use context::{Context, Request, with};
pub(crate) use context::{While, free_node};

/// A team of a fixed number of members; see the module.
#[derive(Debug)]
pub struct Team {
    /// How many members.
    pub size: u32,
    members: Vec<Member>,
    start: Start,
    /// The member that encountered the region; none for the team of an initial thread.
    pub parent: Link<Member>,
    pub level: AtomicU32,
    pub active_level: AtomicU32,
    pub(crate) claims: Claims,
    /// Members whose body is over and whose tasks are done.
    left: AtomicU32,
    /// Members other than the first that will not touch the team again.
    gone: AtomicU32,
    meeting: Meeting,
    /// A work share of this team has been cancelled; until the next barrier.
    is_work_cancelled: AtomicBool,
    /// Whether a task has been deferred in this region.
    has_tasks: AtomicBool,
    /// Members asleep that would take any task, and those that would take only some.
    sleepers: AtomicU32,
    choosy_sleepers: AtomicU32,
    /// Tasks that do not lie in a member's deque: those with a priority, and those that became ready elsewhere.
    #[expect(
        clippy::vec_box,
        reason = "arguments may refer to themselves: a task stays in its box"
    )]
    queue: Mutex<Vec<Box<Task>>>,
    queued: AtomicUsize,
    works: Mutex<Works>,
    /// Where the chain of a region's work shares begins; its own loop, if the region was forked with one.
    pub(crate) first_work: &'static Work,
    /// Of the team of an initial thread.
    initial: Initial,
    offer: OnceLock<Arc<host::Open>>,
    /// When its members could be claimed; 0 as long as nobody has looked at the clock, which only others do for a region that is expected to be
    /// short.
    opened_ns: AtomicU64,
    /// The barrier that was next then.
    opened_generation: AtomicU64,
    /// The next region is not expected to be short.
    is_long: AtomicBool,
}

/// What members write where they meet, all on one line, which goes from core to core once, and on another one what they look at while they wait.
#[derive(Debug, Default)]
struct Meeting {
    written: Written,
    watched: Watched,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Written {
    arrived: AtomicU32,
    /// How many `single` constructs somebody has taken.
    singles: AtomicU64,
    copied: AtomicUsize,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Watched {
    /// Barriers so far.
    generation: AtomicU64,
    is_cancelled: AtomicBool,
}

/// What members need to begin, beside the loop, which is in the first work share. Written before they can be claimed; a claim makes it seen.
#[derive(Debug)]
struct Start {
    body: Posted,
    icv: Link<Icv>,
    /// Number and count of the league's teams, the number in the upper half.
    teams: AtomicU64,
    has_reductions: AtomicBool,
    reductions: Mutex<Option<Arc<Reductions>>>,
    initial: Link<Initial>,
    /// Whether members show their affinity when they begin.
    shows_affinity: AtomicBool,
}

impl Start {
    fn new() -> Start {
        Start {
            body: Posted::default(),
            icv: Link::none(),
            teams: AtomicU64::new(0),
            has_reductions: AtomicBool::new(false),
            reductions: Mutex::default(),
            initial: Link::none(),
            shows_affinity: AtomicBool::new(false),
        }
    }

    #[inline]
    fn set_teams(&self, (number, count): (u32, u32)) {
        let both = u64::from(number) << 32 | u64::from(count);
        self.teams.store(both, Ordering::Relaxed);
    }

    #[inline]
    fn teams(&self) -> (u32, u32) {
        let both = self.teams.load(Ordering::Relaxed);
        ((both >> 32) as u32, both as u32)
    }

    #[inline]
    fn set_reductions(&self, reductions: Option<Arc<Reductions>>) {
        let has = reductions.is_some();
        if has || self.has_reductions.load(Ordering::Relaxed) {
            *lock(&self.reductions) = reductions;
            self.has_reductions.store(has, Ordering::Relaxed);
        }
    }

    #[inline]
    fn reductions(&self) -> Option<Arc<Reductions>> {
        if self.has_reductions.load(Ordering::Relaxed) {
            lock(&self.reductions).clone()
        } else {
            None
        }
    }
}

/// The work shares of a team, beside its first.
#[derive(Debug, Default)]
struct Works {
    all: Vec<&'static Work>,
    /// In their first state.
    spare: Vec<&'static Work>,
}

/// What the members of all teams under one initial thread share.
#[derive(Debug)]
pub struct Initial {
    /// Threads that its regions have, for `OMP_THREAD_LIMIT`.
    busy: AtomicU32,
    /// The thread-local variables of the members of its outermost regions, which keep their values from one region to
    /// the next.
    pub(crate) variables: Variables,
}

/// The part of a member that others may touch. On lines of its own, since its neighbours are on other cores.
#[repr(align(128))]
pub struct Member {
    pub id: u32,
    team: Link<Team>,
    implicit: &'static Node,
    tasks: Stealer<Box<Task>>,
    local: Handoff<Local>,
    is_asleep: AtomicBool,
    /// Somebody has something for it.
    is_poked: AtomicBool,
    is_choosy: AtomicBool,
    /// The place that it is assigned to, from 1; 0 for none.
    place: AtomicU32,
    partition: Mutex<(u32, u32)>,
}

/// The part of a member that only who runs it touches. On lines of its own, too.
#[repr(align(128))]
struct Local {
    tasks: Owner<Box<Task>>,
    #[expect(
        clippy::vec_box,
        reason = "a task keeps its box from one life to the next"
    )]
    free_tasks: RefCell<Vec<Box<Task>>>,
    free_nodes: RefCell<Vec<&'static Node>>,
    /// Teams that this member forked before.
    teams: RefCell<Vec<&'static Team>>,
}

static TEAMS: Mutex<Vec<&'static Team>> = Mutex::new(Vec::new());

/// After a region that took at least so long the next of its team is open to all from its beginning, ...
const LONG_NS: u64 = 6_000;
/// ... until one takes less than this: that is likely to be over before it has paid to share it with another core, and is left to its forker
/// for a moment.
const SHORT_NS: u64 = 3_500;
/// Teams that a member keeps; others go to all.
const TEAMS_KEPT: usize = 4;
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    fn make(size: u32) -> &'static Team {
        fence::register();
        let mut locals = Vec::new();
        let members = (0..size)
            .map(|id| {
                let (owner, stealer) = deque::deque();
                locals.push(Box::new(Local {
                    tasks: owner,
                    free_tasks: RefCell::default(),
                    free_nodes: RefCell::default(),
                    teams: RefCell::default(),
                }));
                Member {
                    id,
                    team: Link::none(),
                    implicit: Node::make(),
                    tasks: stealer,
                    local: Handoff::empty(),
                    is_asleep: AtomicBool::new(false),
                    is_poked: AtomicBool::new(false),
                    is_choosy: AtomicBool::new(false),
                    place: AtomicU32::new(0),
                    partition: Mutex::default(),
                }
            })
            .collect();
        let team: &'static Team = Box::leak(Box::new(Team {
            size,
            members,
            start: Start::new(),
            parent: Link::none(),
            level: AtomicU32::new(0),
            active_level: AtomicU32::new(0),
            claims: Claims::new(size, host::workers()),
            left: AtomicU32::new(0),
            gone: AtomicU32::new(0),
            meeting: Meeting::default(),
            is_work_cancelled: AtomicBool::new(false),
            has_tasks: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            choosy_sleepers: AtomicU32::new(0),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            works: Mutex::default(),
            first_work: Work::make(),
            initial: Initial {
                busy: AtomicU32::new(1),
                variables: Variables::default(),
            },
            offer: OnceLock::new(),
            opened_ns: AtomicU64::new(0),
            opened_generation: AtomicU64::new(0),
            is_long: AtomicBool::new(false),
        }));
        for (member, local) in team.members.iter().zip(locals) {
            member.team.set(Some(team), Ordering::Relaxed);
            member.implicit.owner.set(Some(member), Ordering::Relaxed);
            member.local.put(local);
        }
        team
    }

    fn get(size: u32, near: Option<&Local>) -> &'static Team {
        if let Some(local) = near {
            let mut kept = local.teams.borrow_mut();
            if let Some(at) = kept.iter().rposition(|team| team.size == size) {
                return kept.swap_remove(at);
            }
        }
        let mut all = lock(&TEAMS);
        if let Some(at) = all.iter().rposition(|team| team.size == size) {
            return all.swap_remove(at);
        }
        drop(all);
        Team::make(size)
    }

    fn give_back(&'static self, near: Option<&Local>) {
        if let Some(local) = near {
            let mut kept = local.teams.borrow_mut();
            if kept.len() < TEAMS_KEPT {
                kept.push(self);
                return;
            }
        }
        lock(&TEAMS).push(self);
    }

    /// Makes the team ready for a region, with what the caller has put into `start` and with this loop; nobody can claim a member before
    /// [`open`](Self::open).
    fn prepare(&'static self, parent: Option<&Context>, share: Option<Loop>) {
        let up = parent.map(|context| context.team);
        self.parent
            .set(parent.map(|context| context.member), Ordering::Relaxed);
        let level =
            |of: fn(&Team) -> &AtomicU32| up.map_or(0, |team| of(team).load(Ordering::Relaxed));
        self.level.store(
            level(|team| &team.level) + u32::from(up.is_some()),
            Ordering::Relaxed,
        );
        self.active_level.store(
            level(|team| &team.active_level) + u32::from(self.size > 1),
            Ordering::Relaxed,
        );
        self.left.store(0, Ordering::Relaxed);
        self.gone.store(0, Ordering::Relaxed);
        self.meeting.written.arrived.store(0, Ordering::Relaxed);
        self.meeting.written.singles.store(0, Ordering::Relaxed);
        self.is_work_cancelled.store(false, Ordering::Relaxed);
        if self.meeting.watched.is_cancelled.load(Ordering::Relaxed) {
            self.meeting
                .watched
                .is_cancelled
                .store(false, Ordering::Relaxed);
            self.take_back_works();
        }
        self.has_tasks.store(false, Ordering::Relaxed);
        self.first_work.renew(share);
    }

    /// Makes it ready for the only member of an initial thread.
    fn prepare_initial(&'static self, icv: &'static Icv) {
        self.initial.busy.store(1, Ordering::Relaxed);
        let start = &self.start;
        start.body.set(None);
        start.icv.set(Some(icv), Ordering::Relaxed);
        start.set_teams((0, 1));
        start.set_reductions(None);
        start.initial.set(Some(&self.initial), Ordering::Relaxed);
        start.shows_affinity.store(false, Ordering::Relaxed);
        self.prepare(None, None);
    }

    /// Members from the second on may be claimed, and workers see it; `forker` is the one that has the first.
    fn open(&'static self, forker: u32) -> host::Offered {
        // Members in other places are waited for in any case.
        let is_short = !self.is_long.load(Ordering::Relaxed) && !self.claims.has_places();
        let now_ns = if is_short { 0 } else { clock::now_ns() };
        // Before anybody can claim a member, who tells the time then.
        self.opened_ns.store(now_ns, Ordering::Relaxed);
        let generation = self.meeting.watched.generation.load(Ordering::Relaxed);
        self.opened_generation.store(generation, Ordering::Relaxed);
        let is_outermost = self.level.load(Ordering::Relaxed) == 1;
        self.claims.open(forker, is_outermost);
        if !is_short {
            self.claims.start_patience(now_ns);
        }
        host::offer(self, is_short)
    }

    /// The region is over: how long it took, if that is known, says what is expected of the next. A short one that nobody shared stays short,
    /// one whose members have met does not: they have waited for each other to begin.
    fn close(&self) {
        let opened_ns = self.opened_ns.load(Ordering::Relaxed);
        let has_met = self.meeting.watched.generation.load(Ordering::Relaxed)
            != self.opened_generation.load(Ordering::Relaxed);
        if opened_ns == 0 && !has_met {
            return;
        }
        let was_long = self.is_long.load(Ordering::Relaxed);
        let least_ns = if was_long { SHORT_NS } else { LONG_NS };
        let is_long = has_met || clock::now_ns() - opened_ns >= least_ns;
        if is_long != was_long {
            self.is_long.store(is_long, Ordering::Relaxed);
        }
    }

    pub(crate) fn as_offer(&'static self) -> &'static Arc<host::Open> {
        self.offer.get_or_init(|| Arc::new(host::Open::new(self)))
    }

    /// Runs members that wait for somebody, as long as there are. For a worker that has time.
    pub fn help(&'static self, worker: u32) {
        while let Some(id) = self.claims.claim(worker, false, clock::now_ns) {
            // The region lasts until its claimed members have gone.
            if self.opened_ns.load(Ordering::Relaxed) == 0 {
                let opened_ns = clock::now_ns() - host::ALONE_NS;
                self.opened_ns.store(opened_ns, Ordering::Relaxed);
                self.claims.start_patience(opened_ns);
            }
            let count = self.run_members(id, worker, true);
            // Only now may they be run again, in the next region.
            if self.gone.fetch_add(count, Ordering::SeqCst) + count + 1 == self.size {
                self.member(0).notify();
            }
        }
    }

    /// Runs a claimed member, and then others of the region as long as there are any. Returns how many. When there are none the last one, if it is
    /// to stay, counts all of them as over and helps with the team's tasks until the region is.
    fn run_members(&'static self, first: u32, worker: u32, stays: bool) -> u32 {
        let is_outermost = self.level.load(Ordering::Relaxed) == 1;
        let variables_of = if is_outermost {
            self.start.initial.get(Ordering::Relaxed)
        } else {
            None
        };
        let mut count = 0;
        let mut next = Some(first);
        while let Some(id) = next {
            count += 1;
            let run = || {
                Context::of(self, id, worker).enter(|context| {
                    context.run_body();
                    // A member that is over has met all barriers, so the others will not wait for each other much.
                    let next = self.claims.claim(worker, true, clock::now_ns);
                    if next.is_none() && stays {
                        self.count_left(count);
                        context.wait(While::AnyTask, &|| {
                            self.left.load(Ordering::SeqCst) == self.size
                        });
                    }
                    next
                })
            };
            next = variables::with(variables_of, id, run);
        }
        count
    }

    /// So many members more are over, and their tasks done.
    fn count_left(&'static self, count: u32) {
        if self.left.fetch_add(count, Ordering::SeqCst) + count == self.size {
            self.wake_all();
        }
    }

    /// A work share in its first state.
    pub(crate) fn take_work(&self) -> &'static Work {
        let mut works = lock(&self.works);
        works.spare.pop().unwrap_or_else(|| {
            let made = Work::make();
            works.all.push(made);
            made
        })
    }

    pub(crate) fn give_back_work(&self, work: &'static Work) {
        lock(&self.works).spare.push(work);
    }

    /// After a cancelled region: its members have gone from wherever they were, past work shares that others had left before or never came to, so
    /// that nobody was the last to leave those. Nobody has any of them now.
    #[cold]
    fn take_back_works(&self) {
        let works = &mut *lock(&self.works);
        for work in &works.all {
            work.reset();
        }
        works.spare.clone_from(&works.all);
    }

    /// Member `id`.
    #[must_use]
    pub fn member(&'static self, id: u32) -> &'static Member {
        &self.members[id as usize]
    }

    /// Whether `cancel parallel` was met.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.meeting.watched.is_cancelled.load(Ordering::Acquire)
    }

    #[inline]
    #[must_use]
    pub fn is_work_cancelled(&self) -> bool {
        self.is_work_cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn cancel_work(&self) {
        self.is_work_cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn cancel(&'static self) {
        self.meeting
            .watched
            .is_cancelled
            .store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn wake_all(&'static self) {
        for member in &self.members {
            member.wake_if_asleep();
        }
    }

    /// There is a task to take: one that sleeps is to look.
    #[inline]
    pub(crate) fn announce_task(&'static self) {
        if !self.has_tasks.load(Ordering::Relaxed) {
            self.has_tasks.swap(true, Ordering::SeqCst);
        }
        fence::light();
        if self.sleepers.load(Ordering::SeqCst) != 0
            || self.choosy_sleepers.load(Ordering::SeqCst) != 0
        {
            self.poke_sleeper();
        }
    }

    /// Wakes one who takes any task; if there is none, all who wait for some tasks only, as it may be one of theirs.
    #[cold]
    fn poke_sleeper(&'static self) {
        let choosy = self.sleepers.load(Ordering::SeqCst) == 0;
        for member in &self.members {
            if member.is_asleep.load(Ordering::SeqCst)
                && member.is_choosy.load(Ordering::Relaxed) == choosy
                && !member.is_poked.swap(true, Ordering::SeqCst)
            {
                host::wake(member.key());
                if !choosy {
                    return;
                }
            }
        }
    }

    /// Puts a task where any member finds it.
    pub(crate) fn enqueue(&'static self, task: Box<Task>) {
        let mut queue = lock(&self.queue);
        // In ascending order of priority, and the oldest of a priority last: the end is taken first.
        let at = queue.partition_point(|other| other.priority < task.priority);
        queue.insert(at, task);
        self.queued.store(queue.len(), Ordering::Release);
        drop(queue);
        self.announce_task();
    }

    fn dequeue(&self, within: Option<&'static Node>) -> Option<Box<Task>> {
        if self.queued.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = lock(&self.queue);
        let at = match within {
            None => queue.len().checked_sub(1),
            Some(node) => queue.iter().rposition(|task| task.node.is_within(node)),
        }?;
        let task = queue.remove(at);
        self.queued.store(queue.len(), Ordering::Release);
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
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
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
        self.is_poked.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            host::wake(self.key());
        }
    }

    fn wake_if_asleep(&self) {
        if self.is_asleep.load(Ordering::SeqCst) {
            self.notify();
        }
    }
}
