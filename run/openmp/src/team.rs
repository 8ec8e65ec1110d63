//! Teams: a parallel region, its members, how they begin, meet and end.
//!
//! A member is not a thread. A team is one offer to the workers of [`host`]: whoever has time claims a member and runs it,
//! the forking thread included, so that a region of eight members on two cores, or on one that is free, is eight calls. A
//! member that waits gives its thread to others.
//!
//! Teams and their members are recycled and never freed; who comes late to a team that is over finds no member to claim.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use margay_sys::clock;
use margay_sys::deque::{self, Owner, Stealer};
use margay_sys::fence;
use margay_sys::link::{Handoff, Link};
use margay_sys::outlined::{Outlined, Table};
use margay_sys::slot;

use crate::claims::Claims;
use crate::environment;
use crate::host;
use crate::icv::Icv;
use crate::node::Node;
use crate::reduction::{self, Reductions};
use crate::task::{Inherited, Task};
use crate::variables::{self, Variables};
use crate::work::{Current, Loop, Work};

/// A team of a fixed number of members; see the module.
#[derive(Debug)]
pub struct Team {
    /// How many members.
    pub size: u32,
    members: Vec<Member>,
    start: Mutex<Option<Start>>,
    /// The member that encountered the region; none for the team of an initial thread.
    pub parent: Link<Member>,
    pub level: AtomicU32,
    pub active_level: AtomicU32,
    pub(crate) claims: Claims,
    /// Members whose body is over and whose tasks are done.
    left: AtomicU32,
    /// Members other than the first that will not touch the team again.
    gone: AtomicU32,
    generation: AtomicU64,
    arrived: AtomicU32,
    /// How many `single` constructs somebody has taken.
    singles: AtomicU64,
    copied: AtomicUsize,
    /// A work share of this team has been cancelled; until the next barrier.
    is_work_cancelled: AtomicBool,
    is_cancelled: AtomicBool,
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
    spare_work: Mutex<Vec<&'static Work>>,
    /// Where the chain of a region's work shares begins; its own loop, if the region was forked with one.
    pub(crate) first_work: &'static Work,
    /// Of the team of an initial thread.
    initial: Initial,
    offer: OnceLock<Arc<host::Open>>,
    /// When its members could first be claimed, and how long the region before took.
    opened_ns: AtomicU64,
    took_ns: AtomicU64,
}

/// What members need to begin.
#[derive(Clone, Debug)]
struct Start {
    body: Option<Outlined>,
    icv: &'static Icv,
    teams: (u32, u32),
    group: Option<&'static Node>,
    reductions: Option<Arc<Reductions>>,
    share: Option<Loop>,
    initial: &'static Initial,
    /// Whether members show their affinity when they begin.
    shows_affinity: bool,
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

/// Who runs: a member, with all that only it needs. It lives on the stack of who runs the member.
pub struct Context {
    pub team: &'static Team,
    pub member: &'static Member,
    pub id: u32,
    initial: &'static Initial,
    /// Number and count of the league's teams (`teams` construct).
    pub teams: Cell<(u32, u32)>,
    pub inherited: RefCell<Inherited>,
    /// Copies of what is asked for most.
    pub icv: Cell<&'static Icv>,
    pub frame: Cell<&'static Node>,
    pub task: Cell<&'static Node>,
    pub is_final: Cell<bool>,
    pub(crate) work: Current,
    singles: Cell<u64>,
    victim: Cell<u32>,
    /// Taken when it is needed.
    local: OnceCell<Box<Local>>,
    /// The number of the worker whose thread this is.
    worker: u32,
    /// Of the first member: what it has laid out for workers.
    offered: Cell<Option<host::Offered>>,
    /// Of a thread of the program.
    is_root: Cell<bool>,
}

/// What a construct that forks asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The clause `num_threads`; 0 without.
    pub threads: u32,
    /// More members than this, if not 0, would have nothing to do (sections).
    pub most: u32,
    /// The clause `proc_bind`, with the numbers of `omp_proc_bind_t`; 0 without.
    pub bind: u32,
}

static TEAMS: Mutex<Vec<&'static Team>> = Mutex::new(Vec::new());
static NODES: Mutex<Vec<&'static Node>> = Mutex::new(Vec::new());

/// Teams of a league when nobody says how many; the peer's number.
const TEAMS_WITHOUT_CLAUSE: u32 = 3;
/// A region whose team's last one took less than this is likely to be over before it has paid to share it with another core, ...
const SHORT_NS: u64 = 10_000;
/// ... and is left to its forker for so long.
const ALONE_NS: u64 = 3_000;
/// Teams that a member keeps; others go to all.
const TEAMS_KEPT: usize = 4;
/// Tasks and nodes that a member keeps.
const TASKS_KEPT: usize = 1024;

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
            start: Mutex::default(),
            parent: Link::none(),
            level: AtomicU32::new(0),
            active_level: AtomicU32::new(0),
            claims: Claims::new(size, host::workers()),
            left: AtomicU32::new(0),
            gone: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            arrived: AtomicU32::new(0),
            singles: AtomicU64::new(0),
            copied: AtomicUsize::new(0),
            is_work_cancelled: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            has_tasks: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            choosy_sleepers: AtomicU32::new(0),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            spare_work: Mutex::default(),
            first_work: Work::make(),
            initial: Initial {
                busy: AtomicU32::new(1),
                variables: Variables::default(),
            },
            offer: OnceLock::new(),
            opened_ns: AtomicU64::new(0),
            took_ns: AtomicU64::new(0),
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

    /// Makes the team ready for a region; nobody can claim a member before [`open`](Self::open).
    fn prepare(&'static self, parent: Option<&Context>, start: Start) {
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
        self.arrived.store(0, Ordering::Relaxed);
        self.singles.store(0, Ordering::Relaxed);
        self.is_work_cancelled.store(false, Ordering::Relaxed);
        self.is_cancelled.store(false, Ordering::Relaxed);
        self.has_tasks.store(false, Ordering::Relaxed);
        self.first_work.renew(start.share);
        *lock(&self.start) = Some(start);
    }

    /// What the only member of an initial thread's team begins with.
    fn initial_start(&'static self, icv: &'static Icv) -> Start {
        self.initial.busy.store(1, Ordering::Relaxed);
        Start {
            body: None,
            icv,
            teams: (0, 1),
            group: None,
            reductions: None,
            share: None,
            initial: &self.initial,
            shows_affinity: false,
        }
    }

    /// Members from the second on may be claimed, and workers see it; `forker` is the one that has the first.
    fn open(&'static self, forker: u32) -> host::Offered {
        let is_outermost = self.level.load(Ordering::Relaxed) == 1;
        let now_ns = clock::now_ns();
        self.claims.open(forker, is_outermost, now_ns);
        self.opened_ns.store(now_ns, Ordering::Relaxed);
        // Members in other places are waited for in any case.
        let is_short = self.took_ns.load(Ordering::Relaxed) < SHORT_NS && !self.claims.has_places();
        let alone_ns = if is_short { ALONE_NS } else { 0 };
        host::offer(self, now_ns + alone_ns)
    }

    pub(crate) fn as_offer(&'static self) -> Arc<host::Open> {
        Arc::clone(self.offer.get_or_init(|| Arc::new(host::Open::new(self))))
    }

    /// Runs members that wait for somebody, as long as there are. For a worker that has time.
    pub fn help(&'static self, worker: u32) {
        while let Some(id) = self.claims.claim(worker, false, clock::now_ns) {
            // The region lasts until its claimed members have gone.
            let start = lock(&self.start).clone();
            let Some(start) = start else { return };
            self.run_members(id, worker, &start, true);
        }
    }

    /// Runs a claimed member, and then others of the region as long as there are any. When there are none the last one stays, if it is to,
    /// and helps with the team's tasks until the region is over. All are counted together, since the region lasts until the last is over.
    fn run_members(&'static self, first: u32, worker: u32, start: &Start, stays: bool) {
        let is_outermost = self.level.load(Ordering::Relaxed) == 1;
        let variables_of = is_outermost.then_some(start.initial);
        let mut count = 0;
        let mut next = Some(first);
        while let Some(id) = next {
            count += 1;
            let run = || {
                Context::of(self, id, worker, start).enter(|context| {
                    context.run_body(start);
                    // A member that is over has met all barriers, so the others will not wait for each other much.
                    let next = self.claims.claim(worker, true, clock::now_ns);
                    if next.is_none() {
                        self.count_left(count);
                        if stays {
                            context.wait(While::AnyTask, &|| {
                                self.left.load(Ordering::SeqCst) == self.size
                            });
                        }
                    }
                    next
                })
            };
            next = variables::with(variables_of, id, run);
        }
        // Only now may they be run again, in the next region.
        if self.gone.fetch_add(count, Ordering::SeqCst) + count + 1 == self.size && stays {
            self.member(0).notify();
        }
    }

    /// So many members more are over, and their tasks done.
    fn count_left(&'static self, count: u32) {
        if self.left.fetch_add(count, Ordering::SeqCst) + count == self.size {
            self.wake_all();
        }
    }

    /// A work share in its first state.
    pub(crate) fn take_work(&self) -> &'static Work {
        lock(&self.spare_work).pop().unwrap_or_else(Work::make)
    }

    pub(crate) fn give_back_work(&self, work: &'static Work) {
        lock(&self.spare_work).push(work);
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
        self.is_cancelled.load(Ordering::Acquire)
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
        self.is_cancelled.store(true, Ordering::SeqCst);
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

/// What a waiting member may do in the meantime.
#[derive(Clone, Copy, Debug)]
pub(crate) enum While {
    /// Any task of the team.
    AnyTask,
    /// Tasks below this one.
    Below(&'static Node),
}

impl Context {
    fn of(team: &'static Team, id: u32, worker: u32, start: &Start) -> slot::Context<Context> {
        let member = team.member(id);
        let implicit = member.implicit;
        implicit.attach(None);
        let context = Context {
            team,
            member,
            id,
            initial: start.initial,
            teams: Cell::new(start.teams),
            inherited: RefCell::new(Inherited {
                group: start.group,
                reductions: start.reductions.clone(),
            }),
            icv: Cell::new(start.icv),
            frame: Cell::new(implicit),
            task: Cell::new(implicit),
            is_final: Cell::new(false),
            work: Current::new(team.first_work),
            singles: Cell::new(0),
            victim: Cell::new(id),
            local: OnceCell::new(),
            worker,
            offered: Cell::new(None),
            is_root: Cell::new(false),
        };
        context.work.load(start.share, team.size);
        slot::Context::new(context)
    }

    fn local(&self) -> &Local {
        let take = || {
            let local = self.member.local.take();
            local.expect("a member is run by one at a time")
        };
        self.local.get_or_init(take)
    }

    /// How many members a region would have that asks for this here.
    #[must_use]
    pub fn resolve(&self, request: Request) -> u32 {
        let icv = self.icv.get();
        let active = self.team.active_level.load(Ordering::Relaxed);
        if request.threads == 1 || active >= icv.max_active_levels {
            return 1;
        }
        let mut threads = if request.threads == 0 {
            icv.threads
        } else {
            request.threads
        };
        if icv.dynamic {
            threads = threads.min(host::workers().max(1));
            if request.most != 0 {
                threads = threads.min(request.most);
            }
        }
        if icv.thread_limit != u32::MAX {
            let busy = self.initial.busy.load(Ordering::Relaxed);
            threads = threads.min(icv.thread_limit.saturating_sub(busy) + 1);
        }
        threads.max(1)
    }

    /// Runs a parallel region. Returns how many members it had.
    pub fn parallel(
        &self,
        body: Outlined,
        request: Request,
        share: Option<Loop>,
        table: Option<Table>,
    ) -> u32 {
        let size = self.resolve(request);
        let (team, start) = self.fork(Some(body), size, request, share, table);
        let first = Context::of(team, 0, self.worker, &start);
        if size > 1 {
            first.get().offered.set(Some(team.open(self.worker)));
        }
        first.enter(|context| {
            context.run_body(&start);
            context.join(&start);
        });
        // Before others may have the team: it gives back what the first member needs.
        drop(first);
        self.joined(team);
        size
    }

    /// Begins a region whose first member the caller runs in the context that is returned, until [`end`](Self::end).
    pub fn begin(
        &self,
        body: Outlined,
        request: Request,
        share: Option<Loop>,
    ) -> slot::Context<Context> {
        let size = self.resolve(request);
        let (team, start) = self.fork(Some(body), size, request, share, None);
        let first = Context::of(team, 0, self.worker, &start);
        if size > 1 {
            first.get().offered.set(Some(team.open(self.worker)));
        }
        first
    }

    /// Ends a region whose first member this is. The caller then calls [`joined`](Self::joined) on the context outside.
    ///
    /// # Panics
    /// Never: the team has been made ready for the region.
    pub fn end(&self) {
        self.end_body();
        let start = lock(&self.team.start).clone();
        self.join(&start.expect("a region has begun"));
    }

    fn fork(
        &self,
        body: Option<Outlined>,
        size: u32,
        request: Request,
        share: Option<Loop>,
        table: Option<Table>,
    ) -> (&'static Team, Start) {
        let team = Team::get(size, Some(self.local()));
        let reductions = table.map(|table| {
            let made = Reductions::new(table, size, None, None);
            reduction::keep(table, &made);
            made
        });
        let mut start = Start {
            body,
            icv: self
                .icv
                .get()
                .inside(self.team.level.load(Ordering::Relaxed) + 1),
            teams: self.teams.get(),
            group: None,
            reductions,
            share,
            initial: self.initial,
            shows_affinity: false,
        };
        self.count_busy(size - 1);
        crate::affinity::assign(self, team, request.bind);
        start.shows_affinity =
            environment::get().display_affinity && crate::affinity::is_to_be_shown(self, team);
        team.prepare(Some(self), start.clone());
        (team, start)
    }

    /// A region that this member forked is over.
    pub fn joined(&self, team: &'static Team) {
        if team.size > 1 {
            self.count_busy((team.size - 1).wrapping_neg());
            // This thread may have run members with other places.
            crate::affinity::keep_bound(self.member);
        }
        team.give_back(Some(self.local()));
    }

    /// So many threads more, modulo the word, in regions. Nobody asks where their number is not limited, and only an initial thread limits it.
    fn count_busy(&self, threads: u32) {
        if threads != 0 && self.icv.get().thread_limit != u32::MAX {
            self.initial.busy.fetch_add(threads, Ordering::Relaxed);
        }
    }

    fn run_body(&self, start: &Start) {
        crate::affinity::keep_bound(self.member);
        if start.shows_affinity {
            crate::affinity::display(self);
        }
        if let Some(body) = start.body {
            body.call();
        }
        self.end_body();
    }

    /// The body of a member is over: its tasks are to be done.
    fn end_body(&self) {
        self.work.leave(self.team);
        self.wait_for_descendants();
    }

    /// The first member waits for the others, and runs those that nobody has begun.
    fn join(&self, start: &Start) {
        let team = self.team;
        if team.size == 1 {
            return;
        }
        if let Some(id) = team.claims.claim(self.worker, true, clock::now_ns) {
            team.run_members(id, self.worker, start, false);
        }
        let withdraw = || self.offered.take().map(host::withdraw);
        // What is left then has places elsewhere, and whoever is there takes it, or who waits when they are late.
        if !team.claims.has_unclaimed() {
            withdraw();
        }
        team.count_left(1);
        self.wait(While::AnyTask, &|| {
            team.gone.load(Ordering::SeqCst) + 1 == team.size
        });
        withdraw();
        let opened_ns = team.opened_ns.load(Ordering::Relaxed);
        team.took_ns
            .store(clock::now_ns() - opened_ns, Ordering::Relaxed);
    }

    /// Waits until all tasks below the current frame are done; executes some.
    fn wait_for_descendants(&self) {
        let frame = self.frame.get();
        if frame.is_alone() {
            return;
        }
        self.wait_on_node(frame, While::AnyTask, &|| frame.is_alone());
        crate::depend::forget(frame);
    }

    /// Waits for `done`, which depends on the children of `node`, a frame of the current task.
    pub(crate) fn wait_on_node(
        &self,
        node: &'static Node,
        meanwhile: While,
        done: &dyn Fn() -> bool,
    ) {
        while !done() {
            if let Some(task) = self.find(meanwhile) {
                self.run(task);
                continue;
            }
            node.start_waiting();
            self.sleep(meanwhile, done);
            node.stop_waiting();
        }
    }

    /// Waits for `done`; who makes it true wakes this member.
    pub(crate) fn wait(&self, meanwhile: While, done: &dyn Fn() -> bool) {
        // Where there are no tasks the end is mostly near; and who sleeps has to be woken, by who has other things to do.
        let has_tasks = || self.team.has_tasks.load(Ordering::Relaxed);
        if done() || (!has_tasks() && host::look(&|| done() || has_tasks()) && done()) {
            return;
        }
        while !done() {
            match self.find(meanwhile) {
                Some(task) => self.run(task),
                None => self.sleep(meanwhile, done),
            }
        }
    }

    /// Sleeps until `done`, or until there may be a task.
    fn sleep(&self, meanwhile: While, done: &dyn Fn() -> bool) {
        let (team, member) = (self.team, self.member);
        let sleepers = match meanwhile {
            While::AnyTask => &team.sleepers,
            While::Below(_) => &team.choosy_sleepers,
        };
        member
            .is_choosy
            .store(matches!(meanwhile, While::Below(_)), Ordering::Relaxed);
        member.is_poked.store(false, Ordering::SeqCst);
        member.is_asleep.store(true, Ordering::SeqCst);
        sleepers.fetch_add(1, Ordering::SeqCst);
        if team.has_tasks.load(Ordering::SeqCst) {
            // Who pushes a task from now on sees the sleeper; what was pushed before is seen here.
            fence::heavy();
            if let Some(task) = self.find(meanwhile) {
                sleepers.fetch_sub(1, Ordering::SeqCst);
                member.is_asleep.store(false, Ordering::SeqCst);
                self.run(task);
                return;
            }
        }
        let is_poked = || member.is_poked.load(Ordering::SeqCst);
        host::wait_until(member.key(), &|| done() || is_poked());
        sleepers.fetch_sub(1, Ordering::SeqCst);
        member.is_asleep.store(false, Ordering::SeqCst);
        member.is_poked.store(false, Ordering::SeqCst);
    }

    /// A task that this member may execute now.
    pub(crate) fn find(&self, meanwhile: While) -> Option<Box<Task>> {
        let within = match meanwhile {
            While::AnyTask => None,
            While::Below(node) => Some(node),
        };
        if !self.team.has_tasks.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(task) = self.team.dequeue(within) {
            return Some(task);
        }
        while let Some(task) = self.local().tasks.pop() {
            if within.is_none_or(|node| task.node.is_within(node)) {
                return Some(task);
            }
            // Not for this member now. While it was out of the deque, another that may take it has looked in vain.
            self.team.enqueue(task);
        }
        let size = self.team.size;
        let mut victim = self.victim.get();
        for _ in 0..size {
            victim = if victim + 1 >= size { 0 } else { victim + 1 };
            if victim == self.id {
                continue;
            }
            let stealer = &self.team.members[victim as usize].tasks;
            if stealer.is_empty() {
                continue;
            }
            let stolen =
                stealer.steal_if(|task| within.is_none_or(|node| task.node.is_within(node)));
            if stolen.is_some() {
                // The next look begins with the same victim.
                self.victim
                    .set(if victim == 0 { size - 1 } else { victim - 1 });
                return stolen;
            }
        }
        None
    }

    /// Puts a task where this member finds it first and others last.
    pub(crate) fn push(&self, task: Box<Task>) {
        if task.priority != 0 {
            self.team.enqueue(task);
            return;
        }
        self.local().tasks.push(task);
        self.team.announce_task();
    }

    pub(crate) fn new_task(&self, node: &'static Node) -> Box<Task> {
        match self.local().free_tasks.borrow_mut().pop() {
            Some(mut task) => {
                task.node = node;
                task
            }
            None => Box::new(Task::new(node, self.icv.get())),
        }
    }

    pub(crate) fn free_task(&self, task: Box<Task>) {
        let mut free = self.local().free_tasks.borrow_mut();
        if free.len() < TASKS_KEPT {
            free.push(task);
        }
    }

    pub(crate) fn new_node(&self, parent: &'static Node) -> &'static Node {
        let free = self.local().free_nodes.borrow_mut().pop();
        let node = free.unwrap_or_else(|| lock(&NODES).pop().unwrap_or_else(Node::make));
        node.attach(Some(parent));
        node
    }

    pub(crate) fn free_node(&self, node: &'static Node) {
        node.reset();
        let mut free = self.local().free_nodes.borrow_mut();
        if free.len() < TASKS_KEPT {
            free.push(node);
        } else {
            lock(&NODES).push(node);
        }
    }

    /// All members wait for each other, and for the tasks of the team.
    pub fn barrier(&self) {
        self.wait_for_descendants();
        let team = self.team;
        if team.size == 1 {
            team.is_work_cancelled.store(false, Ordering::Relaxed);
            return;
        }
        let generation = team.generation.load(Ordering::SeqCst);
        if team.is_cancelled() {
            return;
        }
        if team.arrived.fetch_add(1, Ordering::SeqCst) + 1 == team.size {
            team.arrived.store(0, Ordering::Relaxed);
            team.is_work_cancelled.store(false, Ordering::Relaxed);
            team.generation.store(generation + 1, Ordering::SeqCst);
            team.wake_all();
        } else {
            self.wait(While::AnyTask, &|| {
                team.generation.load(Ordering::SeqCst) != generation || team.is_cancelled()
            });
        }
    }

    /// Whether this member is the one that executes the next `single`.
    pub fn single(&self) -> bool {
        let mine = self.singles.get();
        self.singles.set(mine + 1);
        if self.team.size == 1 {
            return true;
        }
        self.team
            .singles
            .compare_exchange(mine, mine + 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// `single` with `copyprivate`: 0 for the member that executes it, and for the others, later, what it passes.
    pub fn single_copy(&self) -> usize {
        if self.single() {
            return 0;
        }
        self.barrier();
        self.team.copied.load(Ordering::Acquire)
    }

    /// The member that executed the `single` passes the address of its variables.
    pub fn end_single_copy(&self, address: usize) {
        self.team.copied.store(address, Ordering::Release);
        self.barrier();
    }

    /// The thread number of the ancestor at this level, and the size of its team; none where there is no such level.
    #[must_use]
    pub fn ancestor(&self, level: i32) -> Option<(u32, u32)> {
        let mut at: &'static Member = self.member;
        let mut here = self.level() as i32;
        if level < 0 || level > here {
            return None;
        }
        while here > level {
            at = at.team().parent.get(Ordering::Relaxed)?;
            here -= 1;
        }
        Some((at.id, at.team().size))
    }

    /// How many parallel regions enclose this.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.team.level.load(Ordering::Relaxed)
    }

    /// Runs `f` as an initial thread would: outside of all regions, with control variables of its own (target regions).
    pub fn as_initial<R>(&self, icv: &'static Icv, f: impl FnOnce(&Context) -> R) -> R {
        let team = Team::get(1, Some(self.local()));
        let start = team.initial_start(icv);
        team.prepare(None, start.clone());
        let context = Context::of(team, 0, self.worker, &start);
        team.member(0)
            .assign(self.member.place(), self.member.partition());
        let result = context.enter(|context| {
            let result = f(context);
            context.end_body();
            result
        });
        drop(context);
        team.give_back(Some(self.local()));
        result
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            self.member.local.put(local);
        }
        if self.is_root.get() {
            self.team.give_back(None);
        }
    }
}

/// Keeps a node that nobody uses for whoever needs one.
pub(crate) fn free_node(node: &'static Node) {
    node.reset();
    lock(&NODES).push(node);
}

/// Lends the context of who runs here. A thread of the program that the runtime does not know becomes an initial thread.
#[inline]
pub fn with<R>(f: impl FnOnce(&Context) -> R) -> R {
    slot::with(|context: Option<&Context>| match context {
        Some(context) => f(context),
        None => adopt(f),
    })
}

#[cold]
fn adopt<R>(f: impl FnOnce(&Context) -> R) -> R {
    let icv = environment::get().initial;
    let team = Team::get(1, None);
    let start = team.initial_start(icv);
    team.prepare(None, start.clone());
    crate::affinity::assign_initial(team.member(0));
    let context = Context::of(team, 0, host::number(), &start);
    context.get().is_root.set(true);
    slot::root(context);
    slot::with(|context: Option<&Context>| f(context.expect("just put in place")))
}

impl Context {
    /// Runs a league of `teams` teams (0: as the environment says), one after another, each with at most `limit` threads.
    pub fn league(&self, body: Outlined, teams: u32, limit: u32) {
        let (before, icv) = (self.teams.get(), self.icv.get());
        self.limit_threads(if limit == 0 {
            environment::TEAMS_THREAD_LIMIT.load(Ordering::Relaxed)
        } else {
            limit
        });
        let count = match (teams, environment::TEAMS.load(Ordering::Relaxed)) {
            (0, 0) => TEAMS_WITHOUT_CLAUSE,
            (0, wanted) => wanted,
            (teams, _) => teams,
        };
        for number in 0..count {
            self.teams.set((number, count));
            body.call();
        }
        self.teams.set(before);
        self.icv.set(icv);
    }

    /// Forgets the thread-local variables of the members of its regions. Whether that is allowed here: outside of all regions.
    pub fn forget_variables(&self) -> bool {
        let is_outside = self.level() == 0;
        if is_outside {
            self.initial.variables.clear();
        }
        is_outside
    }

    /// Limits the threads of this contention group; 0 changes nothing.
    pub fn limit_threads(&self, limit: u32) {
        if limit != 0 {
            let limit = if limit > i32::MAX as u32 {
                u32::MAX
            } else {
                limit
            };
            self.icv
                .set(self.icv.get().with(|icv| icv.thread_limit = limit));
        }
    }

    /// Tells the threads of the program apart.
    pub(crate) fn initial_address(&self) -> usize {
        std::ptr::from_ref(self.initial).addr()
    }

    /// Tells the members that are alive apart; never 0.
    pub(crate) fn implicit_number(&self) -> u32 {
        self.member.implicit.number
    }
}
