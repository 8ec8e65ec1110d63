//! The context of a running member: how it forks and joins, barriers, single.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::Ordering;

use margay_core_openmp::format::Interface;
use margay_core_openmp::tools::Sync;
use margay_sys_os::thread_end;
use margay_sys_threads::inspect::Wait;
use margay_sys_threads::outlined::Outlined;
use margay_sys_threads::reduction_table::ReductionTable;
use margay_sys_threads::slot;

use super::wait::{TaskFilter, TaskThief};
use super::{InitialThread, Member, MemberLocal, Team, TeamBarrier};
use crate::affinity;
use crate::calls::Calls;
use crate::icv::Icv;
use crate::node::TaskNode;
use crate::reduction::Reductions;
use crate::runtime::Runtime;
use crate::scheduler::PublishedOffer;
use crate::task::Inherited;
use crate::tool::{OpenWork, Tool, Word};
use crate::work::{Loop, Position};

/// A running member, with everything that only it needs. It lives on the stack of the thread that
/// runs the member.
// Fields: entering a region fills all of them in at once.
pub struct Context {
    pub team: &'static Team,
    pub member: &'static Member,
    pub id: u32,
    initial: &'static InitialThread,
    /// Number and count of the league's teams (`teams` construct).
    pub teams: Cell<(u32, u32)>,
    pub inherited: RefCell<Inherited>,
    /// Copies of what is used most.
    pub icv: Cell<&'static Icv>,
    pub frame: Cell<&'static TaskNode>,
    pub task: Cell<&'static TaskNode>,
    pub is_final: Cell<bool>,
    /// Its position in the region's work shares.
    pub(crate) work: Position,
    /// `single` constructs that it has encountered.
    singles: Cell<u64>,
    /// The member at which its last search for tasks stopped.
    pub(super) victim: Cell<u32>,
    pub(super) thief: TaskThief,
    /// Taken from the member when it is needed.
    local: OnceCell<Box<MemberLocal>>,
    /// The number of the worker whose thread this is.
    worker: u32,
    /// Of the first member: the published team.
    pub(super) published: Cell<Option<PublishedOffer>>,
    /// What one call of the compiler leaves for a later one.
    pub calls: Calls,
    /// Whether this is the context of an initial thread.
    is_root: Cell<bool>,
    /// The tool to which events are reported.
    pub(crate) tool: Option<&'static Tool>,
    pub(crate) open_work: OpenWork,
}

/// What a construct that forks a team asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The clause `num_threads`; 0 without.
    pub threads: u32,
    /// The rest of that clause's list, for the regions inside.
    pub inner_threads: Option<&'static [u32]>,
    /// More members than this, if not 0, would have nothing to do (sections).
    pub most: u32,
    /// The clause `proc_bind`, with the numbers of `omp_proc_bind_t`; 0 without.
    pub bind: u32,
    /// Which interface the construct's code calls.
    pub interface: Interface,
}

/// Teams of a league when neither a clause nor a variable gives their number; libgomp's value.
const TEAMS_WITHOUT_CLAUSE: u32 = 3;
impl Context {
    pub(super) fn of(team: &'static Team, id: u32, worker: u32) -> slot::Context<Context> {
        let start = &team.start;
        let (icv, initial) = (
            start.icv.get(Ordering::Relaxed),
            start.initial.get(Ordering::Relaxed),
        );
        let (icv, initial) = icv
            .zip(initial)
            .expect("a team is ready before members begin");
        let member = team.member(id);
        let implicit = member.implicit;
        implicit.attach(None);
        let context = Context {
            team,
            member,
            id,
            initial,
            teams: Cell::new(start.league()),
            inherited: RefCell::new(Inherited {
                group: None,
                reductions: start.reductions(),
            }),
            icv: Cell::new(icv),
            frame: Cell::new(implicit),
            task: Cell::new(implicit),
            is_final: Cell::new(false),
            work: Position::new(team.shares.first),
            singles: Cell::new(0),
            victim: Cell::new(id),
            thief: TaskThief::new(),
            local: OnceCell::new(),
            worker,
            published: Cell::new(None),
            calls: Calls::default(),
            is_root: Cell::new(false),
            tool: team.runtime.tool(),
            open_work: OpenWork::default(),
        };
        context.work.load(team.shares.first.of_region(), team.size);
        slot::Context::new(context)
    }

    /// The runtime.
    #[inline]
    #[must_use]
    pub fn runtime(&self) -> &'static Runtime {
        self.team.runtime
    }

    pub(crate) fn local(&self) -> &MemberLocal {
        let take = || {
            let local = self.member.local.take();
            local.expect("a member is run by one at a time")
        };
        self.local.get_or_init(take)
    }

    /// The number of members that a region would have here.
    #[must_use]
    pub fn resolve(&self, request: Request) -> u32 {
        let icv = self.icv.get();
        let active = self.team.active_level();
        if request.threads == 1 || active >= icv.max_active_levels {
            return 1;
        }
        let mut threads = if request.threads == 0 {
            icv.threads
        } else {
            request.threads
        };
        if icv.dynamic {
            threads = threads.min(self.runtime().scheduler.workers().max(1));
            if request.most != 0 {
                threads = threads.min(request.most);
            }
        }
        if icv.thread_limit != u32::MAX {
            let busy = self.initial.busy.load(Ordering::Relaxed);
            threads = threads.min(icv.thread_limit.saturating_sub(busy) + 1);
        }
        let runtime = self.runtime();
        let stack_bytes = runtime.scheduler.stack_bytes();
        runtime.member_limit.allowed(threads.max(1), stack_bytes)
    }

    /// Runs a parallel region. Returns how many members it had.
    pub fn parallel(
        &self,
        body: Outlined<'_>,
        request: Request,
        share: Option<Loop>,
        table: Option<ReductionTable<'_>>,
    ) -> u32 {
        let size = self.resolve(request);
        let site = body.site();
        let team = self.fork(body, size, request, share, table);
        let first = Context::of(team, 0, self.worker);
        if size > 1 {
            first
                .get()
                .published
                .set(Some(team.open(self.worker, site)));
        }
        first.enter(|context| {
            context.run_body();
            context.join();
            if let Some(tool) = context.tool {
                context.tell_member_over(tool);
            }
        });
        // Before the team may be used again: dropping gives back what the first member needs.
        drop(first);
        self.joined(team);
        size
    }

    /// Begins a region whose first member the caller runs in the context that is returned, until
    /// [`end`](Self::end).
    pub fn begin(
        &self,
        body: Outlined<'_>,
        request: Request,
        share: Option<Loop>,
    ) -> slot::Context<Context> {
        let size = self.resolve(request);
        let site = body.site();
        let team = self.fork(body, size, request, share, None);
        let first = Context::of(team, 0, self.worker);
        first.get().member.record().begin();
        if size > 1 {
            first
                .get()
                .published
                .set(Some(team.open(self.worker, site)));
        }
        first
    }

    /// Ends a region whose first member this is. The caller then calls [`joined`](Self::joined) on
    /// the context outside.
    pub fn end(&self) {
        if let Some(tool) = self.tool {
            self.tell_body_over(tool);
        }
        self.end_body();
        self.join();
        if let Some(tool) = self.tool {
            self.tell_member_over(tool);
        }
    }

    /// The caller is in the context that [`begin`](Self::begin) has returned.
    pub fn begun(&self) {
        if let Some(tool) = self.tool {
            self.tell_caller_begins(tool);
        }
    }

    fn fork(
        &self,
        body: Outlined<'_>,
        size: u32,
        request: Request,
        share: Option<Loop>,
        table: Option<ReductionTable<'_>>,
    ) -> &'static Team {
        let team = Team::get(self.runtime(), size, Some(self.local()));
        let reductions = table.map(|table| {
            let first = table.address();
            let made = Reductions::new(table, size, None, None);
            self.runtime().reductions.insert(first, &made);
            made
        });
        let start = &team.start;
        start.body.set(Some(body));
        let icv =
            self.runtime()
                .icv_inside(self.icv.get(), self.level() + 1, request.inner_threads);
        start.icv.set(Some(icv), Ordering::Relaxed);
        start.set_league(self.teams.get());
        start.set_reductions(reductions);
        start.initial.set(Some(self.initial), Ordering::Relaxed);
        self.count_busy(size - 1);
        affinity::assign(self, team, request.bind);
        let displays = self.runtime().environment.display_affinity;
        let shows_affinity = displays && affinity::is_to_be_shown(self, team);
        start.show_affinity(shows_affinity.then_some(request.interface));
        team.prepare(Some(self), share);
        team.nesting.site.store(body.site(), Ordering::Relaxed);
        if let Some(tool) = self.tool {
            self.tell_fork(tool, team, request, body.site());
        }
        team
    }

    /// A region that this member forked is over.
    #[inline]
    pub fn joined(&self, team: &'static Team) {
        if team.size > 1 {
            self.count_busy((team.size - 1).wrapping_neg());
            // This thread may have run members with other places.
            affinity::keep_bound(self);
        }
        if let Some(tool) = self.tool {
            self.tell_joined(tool, team);
        }
        team.give_back(Some(self.local()));
    }

    /// Counts threads in regions; adds modulo the word. The count is not needed where the number of
    /// threads is not limited, and only an initial thread limits it.
    fn count_busy(&self, threads: u32) {
        if threads != 0 && self.icv.get().thread_limit != u32::MAX {
            self.initial.busy.fetch_add(threads, Ordering::Relaxed);
        }
    }

    pub(super) fn run_body(&self) {
        self.member.record().begin();
        affinity::keep_bound(self);
        let start = &self.team.start;
        if let Some(interface) = start.shows_affinity() {
            affinity::display(self, None, interface);
        }
        match self.tool {
            None => start.body.run(),
            Some(tool) => {
                self.tell_member_begins(tool);
                start.body.run_for_tool(self.task_tool().exit_frame());
                self.tell_body_over(tool);
            }
        }
        self.end_body();
    }

    /// The body of a member is over: waits for its tasks.
    #[inline]
    fn end_body(&self) {
        self.work.leave(self.team);
        self.wait_for_descendants();
    }

    /// The first member runs the members that no worker has claimed, and waits for the others.
    fn join(&self) {
        let team = self.team;
        if team.size == 1 {
            return;
        }
        let claimed = team.claims.claim(self.worker, true, || team.now_ns());
        let others = claimed.map_or(0, |id| team.run_members(id, self.worker, false));
        let retract = || {
            if let Some(published) = self.published.take() {
                team.retract(published);
            }
        };
        if others + 1 == team.size {
            // No other worker has run a member: none has to be notified or waited for.
            retract();
            team.close();
            return;
        }
        // Members that are unclaimed now have places elsewhere. The workers there run them or, when
        // those are late, any worker that waits.
        if !team.claims.has_unclaimed() {
            retract();
        }
        team.ends.gone.fetch_add(others, Ordering::SeqCst);
        team.count_done(others + 1);
        self.wait(Wait::RegionEnd, TaskFilter::Any, &|| {
            team.ends.gone.load(Ordering::SeqCst) + 1 == team.size
        });
        retract();
        team.close();
    }

    /// A barrier: all members wait for each other, and for the tasks of the team. The program's
    /// call returns to `place`, 0 where that is not known.
    #[inline]
    pub fn barrier(&self, place: usize) {
        self.barrier_of(Sync::BarrierExplicit, place);
    }

    /// The same for a barrier that a tool knows as one of this kind.
    #[inline]
    pub fn barrier_of(&self, kind: Sync, place: usize) {
        self.barrier_by(|| kind, place);
    }

    /// The same, with the kind only asked for where there is a tool.
    #[inline]
    pub fn barrier_by(&self, kind: impl FnOnce() -> Sync, place: usize) {
        match self.tool {
            None => self.pass_barrier(place),
            Some(tool) => self.tell_wait(tool, kind(), || self.pass_barrier(place)),
        }
    }

    fn pass_barrier(&self, place: usize) {
        self.wait_for_descendants();
        let team = self.team;
        let TeamBarrier { written, watched } = &team.barrier;
        if team.size == 1 {
            watched.is_work_cancelled.store(false, Ordering::Relaxed);
            return;
        }
        let generation = watched.generation.load(Ordering::SeqCst);
        if team.is_cancelled() {
            return;
        }
        if written.arrived.fetch_add(1, Ordering::SeqCst) + 1 == team.size {
            written.arrived.store(0, Ordering::Relaxed);
            if watched.is_work_cancelled.load(Ordering::Relaxed) {
                watched.is_work_cancelled.store(false, Ordering::Relaxed);
            }
            watched.generation.store(generation + 1, Ordering::SeqCst);
            team.wake_all();
        } else {
            self.make_members_stealable();
            self.calls_from(place);
            self.wait(Wait::Barrier, TaskFilter::Any, &|| {
                watched.generation.load(Ordering::SeqCst) != generation || team.is_cancelled()
            });
        }
    }

    /// Whether this member executes the next `single`.
    pub fn single(&self) -> bool {
        let executes = self.takes_single();
        if let Some(tool) = self.tool {
            self.tell_single(tool, executes);
        }
        executes
    }

    fn takes_single(&self) -> bool {
        let mine = self.singles.get();
        self.singles.set(mine + 1);
        if self.team.size == 1 {
            return true;
        }
        let written = &self.team.barrier.written;
        written
            .singles
            .compare_exchange(mine, mine + 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// `single` with `copyprivate`: 0 for the member that executes it. For the others, the address
    /// that it passes to [`end_single_copy`](Self::end_single_copy), after they have waited for it.
    pub fn single_copy(&self) -> usize {
        if self.single() {
            return 0;
        }
        self.copied()
    }

    /// The members that did not execute the `single` wait for the address that the other one passes
    /// to [`end_single_copy`](Self::end_single_copy).
    pub fn copied(&self) -> usize {
        self.barrier_of(Sync::BarrierWorkshare, 0);
        self.team.barrier.written.copied.load(Ordering::Acquire)
    }

    /// The member that executed the `single` passes the address of its variables.
    pub fn end_single_copy(&self, address: usize) {
        let written = &self.team.barrier.written;
        written.copied.store(address, Ordering::Release);
        self.barrier_of(Sync::BarrierWorkshare, 0);
    }

    /// The thread number of the ancestor at this level, and the size of its team; none where there
    /// is no such level.
    #[must_use]
    pub fn ancestor(&self, level: i32) -> Option<(u32, u32)> {
        let mut at: &'static Member = self.member;
        let mut here = self.level() as i32;
        if level < 0 || level > here {
            return None;
        }
        while here > level {
            at = at.team().parent()?;
            here -= 1;
        }
        Some((at.id, at.team().size))
    }

    /// How many parallel regions enclose this.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.team.level()
    }

    /// Runs `f` as an initial thread would: outside all regions, with control variables of its own
    /// (target regions).
    pub fn as_initial<R>(&self, icv: &'static Icv, f: impl FnOnce(&Context) -> R) -> R {
        let team = Team::get(self.runtime(), 1, Some(self.local()));
        team.prepare_initial(icv);
        if self.tool.is_some() {
            self.prepare_target(team);
        }
        let context = Context::of(team, 0, self.worker);
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
        self.member.record().end();
        if let Some(local) = self.local.take() {
            self.member.local.put(local);
        }
        if self.is_root.get() {
            // Given back when the thread has ended, which does not come when the process exits.
            self.team.initial.is_over.store(true, Ordering::Relaxed);
        }
    }
}

/// Calls `f` with the context of the calling thread. A thread that has none becomes an initial
/// thread of the runtime that `runtime` returns.
#[inline]
pub fn with<R>(runtime: impl FnOnce() -> &'static Runtime, f: impl FnOnce(&Context) -> R) -> R {
    slot::with(|context: Option<&Context>| match context {
        Some(context) => f(context),
        None => in_adopted(runtime(), f),
    })
}

/// Calls `f` with the context of a thread that has none yet.
#[cold]
#[inline(never)]
fn in_adopted<R>(runtime: &'static Runtime, f: impl FnOnce(&Context) -> R) -> R {
    adopt(runtime);
    slot::with(|context: Option<&Context>| f(context.expect("just put in place")))
}

/// Makes the calling thread an initial thread. Apart from [`in_adopted`], which is compiled for
/// each of 220 functions.
#[cold]
#[inline(never)]
fn adopt(runtime: &'static Runtime) {
    let team = Team::get(runtime, 1, None);
    team.prepare_initial(runtime.icvs.initial);
    affinity::assign_initial(team.member(0), runtime, runtime.icvs.initial.bind);
    let context = Context::of(team, 0, runtime.scheduler.worker_number());
    context.get().is_root.set(true);
    slot::root(context);
    slot::with(|context: Option<&Context>| {
        if let Some(context) = context {
            context.begun();
        }
    });
    // Without room for the call the team stays with this thread for good.
    let _ = thread_end::at_thread_end(move || team.end_initial());
}

impl Context {
    /// Runs a league of `teams` teams (0: as the environment says), one after another, each with at
    /// most `limit` threads.
    pub fn league(&self, body: Outlined<'_>, teams: u32, limit: u32) {
        let icvs = &self.runtime().icvs;
        let (before, icv) = (self.teams.get(), self.icv.get());
        self.limit_threads(if limit == 0 {
            icvs.teams_thread_limit.load(Ordering::Relaxed)
        } else {
            limit
        });
        let count = match (teams, icvs.teams.load(Ordering::Relaxed)) {
            (0, 0) => TEAMS_WITHOUT_CLAUSE,
            (0, wanted) => wanted,
            (teams, _) => teams,
        };
        let region = Word::new(0);
        let report = self.tool.map(|tool| (tool, &region));
        if let Some((tool, region)) = report {
            self.tell_league_begins(tool, region, count);
        }
        for number in 0..count {
            self.teams.set((number, count));
            match report {
                None => body.call(),
                Some((tool, region)) => self.tell_team(tool, region, body),
            }
        }
        if let Some((tool, region)) = report {
            self.tell_league_ends(tool, region);
        }
        self.teams.set(before);
        self.icv.set(icv);
    }

    /// Forgets the thread-local variables of the members of its regions. Returns false, and does
    /// nothing, inside a region, where that is not allowed.
    pub fn forget_thread_variables(&self) -> bool {
        let is_outside = self.level() == 0;
        if is_outside {
            let blocks = &self.initial.tls_blocks;
            self.runtime().tls_blocks.clear(blocks, self.tool);
        }
        is_outside
    }

    /// Changes control variables of the current task.
    pub fn change_icv(&self, change: impl FnOnce(&mut Icv)) {
        let changed = self.runtime().icvs.change(self.icv.get(), change);
        self.icv.set(changed);
    }

    /// Limits the threads of this contention group; 0 changes nothing.
    pub fn limit_threads(&self, limit: u32) {
        if limit != 0 {
            let limit = if limit > i32::MAX as u32 {
                u32::MAX
            } else {
                limit
            };
            self.change_icv(|icv| icv.thread_limit = limit);
        }
    }

    /// Identifies the thread of the program.
    pub(crate) fn initial_address(&self) -> usize {
        std::ptr::from_ref(self.initial).addr()
    }

    /// Identifies this member among those that are alive; never 0.
    #[inline]
    #[must_use]
    pub fn implicit_number(&self) -> u32 {
        self.member.implicit.number
    }
}
