//! Who runs: the context of a member, and what it can do: fork, wait, meet the others, find tasks.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use margay_sys_os::clock;
use margay_sys_os::fence;
use margay_sys_threads::outlined::{Outlined, Table};
use margay_sys_threads::slot;

use super::{Initial, Local, Member, Team, lock};
use crate::environment;
use crate::host::{self, Rest};
use crate::icv::Icv;
use crate::node::Node;
use crate::reduction::{self, Reductions};
use crate::task::{Inherited, Task};
use crate::work::{Current, Loop};

static NODES: Mutex<Vec<&'static Node>> = Mutex::new(Vec::new());

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
    /// When the task that runs here was stolen; 0 if it was not, or if nothing has been looked for since it is over.
    stolen_ns: Cell<u64>,
    /// How long this member rests after a theft.
    rest: Rest,
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

/// Teams of a league when nobody says how many; the peer's number.
const TEAMS_WITHOUT_CLAUSE: u32 = 3;
/// Tasks and nodes that a member keeps.
const TASKS_KEPT: usize = 1024;

/// A member that finds no task where there have been some looks again after so long, ...
const PAUSE_NS: u64 = 1_000;
/// ... so many times, before it goes to sleep: who pushes the next task would have to wake it.
const PAUSES: u32 = 4;

/// What a waiting member may do in the meantime.
#[derive(Clone, Copy, Debug)]
pub(crate) enum While {
    /// Any task of the team.
    AnyTask,
    /// Tasks below this one.
    Below(&'static Node),
}

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
            teams: Cell::new(start.teams()),
            inherited: RefCell::new(Inherited {
                group: None,
                reductions: start.reductions(),
            }),
            icv: Cell::new(icv),
            frame: Cell::new(implicit),
            task: Cell::new(implicit),
            is_final: Cell::new(false),
            work: Current::new(team.first_work),
            singles: Cell::new(0),
            victim: Cell::new(id),
            stolen_ns: Cell::new(0),
            rest: Rest::default(),
            local: OnceCell::new(),
            worker,
            offered: Cell::new(None),
            is_root: Cell::new(false),
        };
        context.work.load(team.first_work.of_region(), team.size);
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
        let team = self.fork(body, size, request, share, table);
        let first = Context::of(team, 0, self.worker);
        if size > 1 {
            first.get().offered.set(Some(team.open(self.worker)));
        }
        first.enter(|context| {
            context.run_body();
            context.join();
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
        let team = self.fork(body, size, request, share, None);
        let first = Context::of(team, 0, self.worker);
        if size > 1 {
            first.get().offered.set(Some(team.open(self.worker)));
        }
        first
    }

    /// Ends a region whose first member this is. The caller then calls [`joined`](Self::joined) on the context outside.
    pub fn end(&self) {
        self.end_body();
        self.join();
    }

    fn fork(
        &self,
        body: Outlined,
        size: u32,
        request: Request,
        share: Option<Loop>,
        table: Option<Table>,
    ) -> &'static Team {
        let team = Team::get(size, Some(self.local()));
        let reductions = table.map(|table| {
            let made = Reductions::new(table, size, None, None);
            reduction::keep(table, &made);
            made
        });
        let start = &team.start;
        start.body.set(Some(body));
        let icv = self.icv.get().inside(self.level() + 1);
        start.icv.set(Some(icv), Ordering::Relaxed);
        start.set_teams(self.teams.get());
        start.set_reductions(reductions);
        start.initial.set(Some(self.initial), Ordering::Relaxed);
        self.count_busy(size - 1);
        crate::affinity::assign(self, team, request.bind);
        let shows_affinity =
            environment::get().display_affinity && crate::affinity::is_to_be_shown(self, team);
        start
            .shows_affinity
            .store(shows_affinity, Ordering::Relaxed);
        team.prepare(Some(self), share);
        team
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

    pub(super) fn run_body(&self) {
        crate::affinity::keep_bound(self.member);
        let start = &self.team.start;
        if start.shows_affinity.load(Ordering::Relaxed) {
            crate::affinity::display(self);
        }
        if let Some(body) = start.body.get() {
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
    fn join(&self) {
        let team = self.team;
        if team.size == 1 {
            return;
        }
        let claimed = team.claims.claim(self.worker, true, clock::now_ns);
        let others = claimed.map_or(0, |id| team.run_members(id, self.worker, false));
        let withdraw = || {
            if let Some(offered) = self.offered.take() {
                host::withdraw(team, offered);
            }
        };
        if others + 1 == team.size {
            // Nobody else has had a part in it, so nobody has to be told, or waited for.
            withdraw();
            team.close();
            return;
        }
        // What is left then has places elsewhere, and whoever is there takes it, or who waits when they are late.
        if !team.claims.has_unclaimed() {
            withdraw();
        }
        team.gone.fetch_add(others, Ordering::SeqCst);
        team.count_left(others + 1);
        self.wait(While::AnyTask, &|| {
            team.gone.load(Ordering::SeqCst) + 1 == team.size
        });
        withdraw();
        team.close();
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
        let mut pauses = 0;
        while !done() {
            self.rest(done);
            if let Some(task) = self.find(meanwhile) {
                self.run(task);
                pauses = 0;
            } else if pauses < PAUSES && host::look_for(PAUSE_NS, done) {
                pauses += 1;
            } else if !done() {
                node.start_waiting();
                self.sleep(meanwhile, done);
                node.stop_waiting();
                pauses = 0;
            }
        }
    }

    /// This member waits for others: if it has laid out those that nobody has begun, they are to begin at once.
    #[inline]
    pub(crate) fn hurry_others(&self) {
        if let Some(offered) = self.offered.take() {
            if self.team.claims.has_unclaimed() {
                host::ripen(&offered);
            }
            self.offered.set(Some(offered));
        }
    }

    /// Waits for `done`; who makes it true wakes this member.
    pub(crate) fn wait(&self, meanwhile: While, done: &dyn Fn() -> bool) {
        // Where there are no tasks the end is mostly near; and who sleeps has to be woken, by who has other things to do.
        let has_tasks = || self.team.has_tasks.load(Ordering::Relaxed);
        if done() || (!has_tasks() && host::look(&|| done() || has_tasks()) && done()) {
            return;
        }
        let mut pauses = 0;
        while !done() {
            self.rest(done);
            if let Some(task) = self.find(meanwhile) {
                self.run(task);
                pauses = 0;
            } else if has_tasks() && pauses < PAUSES && host::look_for(PAUSE_NS, done) {
                pauses += 1;
            } else if !done() {
                self.sleep(meanwhile, done);
                pauses = 0;
            }
        }
    }

    /// Leaves others' tasks alone for a while if the one that was stolen last took next to nothing.
    fn rest(&self, done: &dyn Fn() -> bool) {
        let stolen_ns = self.stolen_ns.replace(0);
        if stolen_ns == 0 {
            return;
        }
        let rest_ns = self.rest.after(clock::now_ns() - stolen_ns);
        if rest_ns != 0 {
            host::look_for(rest_ns, done);
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
            if let Some(task) = &stolen {
                // One with dependences would not be done by its creator in passing: its queue would only grow.
                if !task.node.has_dependence.load(Ordering::Relaxed) {
                    self.stolen_ns.set(clock::now_ns());
                }
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
        let generation = team.meeting.watched.generation.load(Ordering::SeqCst);
        if team.is_cancelled() {
            return;
        }
        if team.meeting.written.arrived.fetch_add(1, Ordering::SeqCst) + 1 == team.size {
            team.meeting.written.arrived.store(0, Ordering::Relaxed);
            team.is_work_cancelled.store(false, Ordering::Relaxed);
            team.meeting
                .watched
                .generation
                .store(generation + 1, Ordering::SeqCst);
            team.wake_all();
        } else {
            self.hurry_others();
            self.wait(While::AnyTask, &|| {
                team.meeting.watched.generation.load(Ordering::SeqCst) != generation
                    || team.is_cancelled()
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
            .meeting
            .written
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
        self.team.meeting.written.copied.load(Ordering::Acquire)
    }

    /// The member that executed the `single` passes the address of its variables.
    pub fn end_single_copy(&self, address: usize) {
        self.team
            .meeting
            .written
            .copied
            .store(address, Ordering::Release);
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
        team.prepare_initial(icv);
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
    team.prepare_initial(icv);
    crate::affinity::assign_initial(team.member(0));
    let context = Context::of(team, 0, host::number());
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
