//! Operations as messages, where a target's memory is out of reach, or the ranks share no memory at
//! all.
//!
//! Every process has a [`Server`] for such a window: a task of the engine that keeps a receive
//! posted in the window's own context. As the target it does what messages ask for and answers; as
//! the origin it sends the fragments of operations and takes the answers. Its state is only used
//! under the engine's lock.
//!
//! What waits in the queues is what the program has begun and not completed; of that at most
//! [`FRAGMENTS`] messages for each target are on their way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::Run;
use margay_core_group::Group;
use margay_run_engine::{
    Data, Engine, Envelope, Mode, Outcome, Pattern, Pending, Rank, ReqId, Task as Service,
};
use margay_sys_os::user::Mem;

use super::attach::Attachments;
use super::combine::{apply, swap};
use super::operation::{Job, Remote};
use super::queue::{Asked, Queue};
use super::task::{Task, operation};
use super::wire::{Head, LONGEST, Verb};

/// Unanswered messages to one target.
const FRAGMENTS: u32 = 16;

/// What a server lets others reach.
pub(super) enum Served {
    /// The window's memory.
    Fixed(Mem),
    /// What is attached at the time; displacements are addresses.
    Attached(Arc<Mutex<Attachments>>),
}

/// One process's server of one window.
// Fields: what it keeps by rank is read by different messages each, so it is not grouped by rank.
pub(super) struct Server {
    context: u32,
    me: u32,
    members: Arc<Group>,
    served: Served,
    /// The receive that is posted, and its memory.
    posted: Option<(ReqId, Mem)>,
    /// The lock of this process's memory, and, in rank 0, the one of all targets.
    locks: [Queue; 2],
    /// Locks that were granted, or refused since that rank died as a holder, and not yet noticed,
    /// by target; the last is that of all.
    granted: Vec<VecDeque<Option<u32>>>,
    /// Counters of posts and completions by rank; wrap around.
    pub posts: Vec<u32>,
    pub completions: Vec<u32>,
    tasks: Vec<Option<Task>>,
    /// What is to be sent, by target.
    queues: Vec<VecDeque<u32>>,
    on_their_way: Vec<u32>,
    /// Operations that are not complete, by target.
    pending: Vec<u64>,
    /// A target that had no such memory, or has died, since this was last asked.
    failed: Option<u32>,
    /// Ranks of which it is known here that they have died.
    dead: Vec<bool>,
    stopped: bool,
}

/// A server at work.
pub(super) struct Serving {
    server: Arc<Mutex<Server>>,
    service: ReqId,
}

/// The number of what is answered but is no operation.
const NO_TASK: u32 = u32::MAX;

struct Shared(Arc<Mutex<Server>>);

impl Service for Shared {
    fn run(&mut self, engine: &mut Engine) -> Option<Outcome> {
        let mut server = lock(&self.0);
        server.receive(engine);
        server.lose_the_dead(engine);
        server.stopped.then(Outcome::default)
    }

    fn pending(&self) -> Pending {
        Pending::Receive(None, None, lock(&self.0).context)
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().expect("no panic under this lock")
}

impl Serving {
    /// Starts the server of process `me` of `members`, which communicate in `context`.
    pub(super) fn start(
        rank: &Rank,
        context: u32,
        me: u32,
        members: &Arc<Group>,
        served: Served,
    ) -> Serving {
        let ranks = members.size() as usize;
        let server = Arc::new(Mutex::new(Server {
            context,
            me,
            members: members.clone(),
            served,
            posted: None,
            locks: [Queue::new(true), Queue::new(false)],
            granted: vec![VecDeque::new(); ranks + 1],
            posts: vec![0; ranks],
            completions: vec![0; ranks],
            tasks: Vec::new(),
            queues: vec![VecDeque::new(); ranks],
            on_their_way: vec![0; ranks],
            pending: vec![0; ranks],
            failed: None,
            dead: vec![false; ranks],
            stopped: false,
        }));
        let service = rank.with_engine(|engine| {
            lock(&server).post(engine, Mem::owned(LONGEST));
            engine.start_task(Box::new(Shared(server.clone())))
        });
        Serving { server, service }
    }

    /// Ends the server. All processes have completed what they began.
    pub(super) fn stop(&self, rank: &Rank) {
        rank.with_engine(|engine| {
            let mut server = lock(&self.server);
            server.stopped = true;
            if let Some((id, _)) = server.posted.take() {
                // Its end is what lets the engine call the service once more.
                engine.cancel(id);
                engine.detach(id);
            }
        });
        rank.wait(self.service);
    }

    /// Begins an operation; with a promise that ends with it if one is wanted.
    pub(super) fn begin(
        &self,
        rank: &Rank,
        target: u32,
        job: Job,
        (at, remote): (i64, &Remote),
        promise: bool,
    ) -> Option<ReqId> {
        rank.with_engine(|engine| {
            let mut server = lock(&self.server);
            // It has died since the caller looked.
            if server.dead[target as usize] {
                server.failed = Some(target);
                return None;
            }
            let mut task = Task::new(target, job, at, remote);
            if promise {
                let from = server.process(target);
                task.promise = Some(engine.promise(from, server.context));
            }
            let promise = task.promise;
            server.enqueue(engine, task);
            promise
        })
    }

    /// Asks for the lock of a target, or of all targets, in a class.
    pub(super) fn ask(&self, rank: &Rank, lock_: Which, class: usize) {
        self.tell(rank, lock_.keeper(), lock_.head(Verb::Enter, class));
    }

    /// Gives the lock back; that is an operation which flushing waits for.
    pub(super) fn give_back(&self, rank: &Rank, lock_: Which, class: usize) {
        let keeper = lock_.keeper();
        let lives = rank.with_engine(|_| {
            let mut server = lock(&self.server);
            let lives = !server.dead[keeper as usize];
            server.pending[keeper as usize] += u64::from(lives);
            lives
        });
        if !lives {
            return;
        }
        self.tell(rank, keeper, lock_.head(Verb::Leave, class));
    }

    /// Tells a process something that has no answer, or one of another kind.
    pub(super) fn tell(&self, rank: &Rank, to: u32, head: Head) {
        rank.with_engine(|engine| {
            let message = head.encode(&[], 0);
            lock(&self.server).send(engine, to, message);
        });
    }

    /// Takes note of what became of a lock that was asked for, once that is known: it is granted,
    /// or the rank that is the error died as a holder.
    pub(super) fn take_granted(&self, lock_: Which) -> Option<Result<(), u32>> {
        let mut server = lock(&self.server);
        let last = server.granted.len() - 1;
        let place = match lock_ {
            Which::Target(target) => target as usize,
            Which::All => last,
        };
        let answer = server.granted[place].pop_front()?;
        Some(answer.map_or(Ok(()), Err))
    }

    /// Calls `look` with the state; under the engine's lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Server) -> R) -> R {
        look(&lock(&self.server))
    }

    /// Takes the failure that was reported last: a target.
    pub(super) fn take_failed(&self) -> Option<u32> {
        lock(&self.server).failed.take()
    }
}

/// One of the two kinds of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// That of a target.
    Target(u32),
    /// That of all targets, which rank 0 keeps.
    All,
}

impl Which {
    pub(super) fn keeper(self) -> u32 {
        match self {
            Which::Target(target) => target,
            Which::All => 0,
        }
    }

    /// When somebody died whom others wait for.
    pub(super) fn lost(self) -> &'static str {
        match self {
            Which::Target(_) => "while it held the lock of the target or waited for it",
            Which::All => "while it held the lock of a target, or of all, or waited for it",
        }
    }

    fn head(self, verb: Verb, class: usize) -> Head {
        Head {
            op: class as u16,
            basic: u16::from(self == Which::All),
            task: NO_TASK,
            ..Head::plain(verb)
        }
    }
}

impl Server {
    /// Whether all operations on `target` (none: on any) are complete.
    pub(super) fn is_flushed(&self, target: Option<u32>) -> bool {
        match target {
            Some(target) => self.pending[target as usize] == 0,
            None => self.pending.iter().all(|&n| n == 0),
        }
    }

    fn process(&self, rank: u32) -> u32 {
        self.members.process(rank).expect("a rank of the window")
    }

    fn post(&mut self, engine: &mut Engine, mem: Mem) {
        let pattern = Pattern::new(self.context, None, None);
        let data = Data::bytes(mem.clone(), LONGEST as u64);
        self.posted = Some((engine.irecv(data, pattern, None), mem));
    }

    /// Takes all messages that have come.
    fn receive(&mut self, engine: &mut Engine) {
        while let Some((id, mem)) = self.posted.take() {
            let Some(outcome) = engine.take(id) else {
                self.posted = Some((id, mem));
                return;
            };
            // What the sender died over is no message.
            if outcome.failed.is_none() {
                mem.with_bytes(0, outcome.bytes as usize, |message| {
                    self.handle(engine, outcome.source, message);
                });
            }
            self.post(engine, mem);
        }
    }

    /// Sends a message; one to this very process is handled at once.
    fn send(&mut self, engine: &mut Engine, to: u32, message: Vec<u8>) {
        if to == self.me {
            self.handle(engine, to, &message);
            return;
        }
        let bytes = message.len() as u64;
        let envelope = Envelope {
            context: self.context,
            source: self.me,
            tag: 0,
        };
        let data = Data::bytes(Mem::from_vec(message), bytes);
        let id = engine.isend(Mode::Standard, data, self.process(to), envelope);
        engine.detach(id);
    }

    fn handle(&mut self, engine: &mut Engine, from: u32, message: &[u8]) {
        let Some((head, runs, payload)) = Head::decode(message) else {
            return;
        };
        let class = usize::from(head.op) & 1;
        let which = usize::from(head.basic) & 1;
        match head.verb {
            Verb::Put | Verb::Get | Verb::Accumulate | Verb::Fetch | Verb::Swap => {
                let before = self.act(&head, &runs, payload);
                let answer = Head {
                    verb: Verb::Answer,
                    failed: before.is_none(),
                    ..head
                };
                let before = before.unwrap_or_default();
                let mut message = answer.encode(&[], before.len());
                message.extend(before);
                self.send(engine, from, message);
            }
            Verb::Answer if head.task == NO_TASK => self.pending[from as usize] -= 1,
            Verb::Answer => self.answered(engine, from, &head, payload),
            Verb::Enter => {
                let asked = self.locks[which].enter(from, class);
                self.tell_of_lock(engine, from, which, asked);
            }
            Verb::Leave => {
                for rank in self.locks[which].leave(from, class) {
                    self.tell_of_lock(engine, rank, which, Asked::Granted);
                }
                let answer = Head {
                    verb: Verb::Answer,
                    ..head
                };
                self.send(engine, from, answer.encode(&[], 0));
            }
            Verb::Granted => {
                let place = match which {
                    0 => from as usize,
                    _ => self.granted.len() - 1,
                };
                let holder = head.failed.then_some(head.position as u32);
                self.granted[place].push_back(holder);
            }
            Verb::Posted => {
                let posts = &mut self.posts[from as usize];
                *posts = posts.wrapping_add(1);
            }
            Verb::Completed => {
                let completions = &mut self.completions[from as usize];
                *completions = completions.wrapping_add(1);
            }
        }
    }

    fn tell_of_lock(&mut self, engine: &mut Engine, to: u32, which: usize, asked: Asked) {
        let holder = match asked {
            Asked::Waits => return,
            Asked::Granted => None,
            Asked::Refused(holder) => Some(holder),
        };
        let head = Head {
            basic: which as u16,
            failed: holder.is_some(),
            position: u64::from(holder.unwrap_or_default()),
            ..Head::plain(Verb::Granted)
        };
        self.send(engine, to, head.encode(&[], 0));
    }

    /// Nobody waits any more for processes that have died: not for a lock that they hold, not for
    /// an answer of theirs.
    fn lose_the_dead(&mut self, engine: &mut Engine) {
        if !engine.has_failures() {
            return;
        }
        for rank in 0..self.members.size() {
            let at = rank as usize;
            if self.dead[at] || !engine.is_dead(self.process(rank)) {
                continue;
            }
            self.dead[at] = true;
            for which in 0..self.locks.len() {
                for (to, asked) in self.locks[which].lose(rank) {
                    self.tell_of_lock(engine, to, which, asked);
                }
            }
            // Promises of the dead have ended already.
            for task in &mut self.tasks {
                task.take_if(|task| task.target == rank);
            }
            self.queues[at].clear();
            self.on_their_way[at] = 0;
            if std::mem::take(&mut self.pending[at]) > 0 {
                self.failed = Some(rank);
            }
        }
    }

    /// Does to this process's memory what a message asks for. Returns the bytes for the answer;
    /// none when this process has no such memory.
    fn act(&self, head: &Head, runs: &[Run], payload: &[u8]) -> Option<Vec<u8>> {
        let places: Vec<(Mem, Run)> = runs
            .iter()
            .map(|run| self.served.find(run))
            .collect::<Option<_>>()?;
        let bytes: usize = runs.iter().map(|run| run.bytes() as usize).sum();
        let gather = || {
            let mut packed = vec![0; bytes];
            let mut rest = &mut packed[..];
            for (mem, run) in &places {
                let (to, behind) = rest.split_at_mut(run.bytes() as usize);
                let (block, count) = (run.block as usize, run.count as usize);
                mem.gather(run.offset, block, count, run.stride, to);
                rest = behind;
            }
            packed
        };
        let scatter = |packed: &[u8]| {
            let mut rest = packed;
            for (mem, run) in &places {
                let (from, behind) = rest.split_at(run.bytes() as usize);
                let (block, count) = (run.block as usize, run.count as usize);
                mem.scatter(run.offset, block, count, run.stride, from);
                rest = behind;
            }
        };
        match head.verb {
            Verb::Put => {
                scatter(payload.get(..bytes)?);
                Some(Vec::new())
            }
            Verb::Get => Some(gather()),
            Verb::Swap => {
                let before = gather();
                let mut now = before.clone();
                swap(&mut now, payload.get(..bytes)?, payload.get(bytes..)?);
                scatter(&now);
                Some(before)
            }
            _ => {
                let (op, basic) = operation(head)?;
                let before = gather();
                if op != margay_core_reduce::Op::NoOp {
                    let mut now = before.clone();
                    apply(op, basic, &mut now, payload.get(..bytes)?);
                    scatter(&now);
                }
                Some(if head.verb == Verb::Fetch {
                    before
                } else {
                    Vec::new()
                })
            }
        }
    }

    /// Puts an operation behind the others to its target and sends what may go.
    fn enqueue(&mut self, engine: &mut Engine, task: Task) {
        let target = task.target as usize;
        let number = match self.tasks.iter().position(Option::is_none) {
            Some(free) => {
                self.tasks[free] = Some(task);
                free
            }
            None => {
                self.tasks.push(Some(task));
                self.tasks.len() - 1
            }
        };
        self.pending[target] += 1;
        self.queues[target].push_back(number as u32);
        self.push(engine, target);
    }

    /// Sends fragments to a target as far as answers have come.
    fn push(&mut self, engine: &mut Engine, target: usize) {
        while self.on_their_way[target] < FRAGMENTS
            && let Some(&number) = self.queues[target].front()
        {
            let task = self.tasks[number as usize]
                .as_mut()
                .expect("in a queue until all is sent");
            let message = task.fragment(number);
            if task.is_sent() {
                self.queues[target].pop_front();
            }
            self.on_their_way[target] += 1;
            self.send(engine, target as u32, message);
        }
    }

    fn answered(&mut self, engine: &mut Engine, from: u32, head: &Head, payload: &[u8]) {
        let target = from as usize;
        self.on_their_way[target] -= 1;
        let Some(Some(task)) = self.tasks.get_mut(head.task as usize) else {
            return;
        };
        if task.answer(head, payload) {
            if task.failed {
                self.failed = Some(from);
            }
            if let Some(id) = task.promise {
                let outcome = Outcome {
                    cancelled: task.failed,
                    ..Outcome::default()
                };
                engine.fulfil(id, outcome);
            }
            self.tasks[head.task as usize] = None;
            self.pending[target] -= 1;
        }
        if from != self.me {
            self.push(engine, target);
        }
        // Messages to this process are answered while `push` sends them; it goes on by itself.
    }
}

impl Served {
    /// Returns the memory of a run, and the run with its offset in that memory.
    fn find(&self, run: &Run) -> Option<(Mem, Run)> {
        let reach = (run.count.checked_sub(1)? as i64).checked_mul(run.stride)?;
        let first = run.offset.checked_add(reach.min(0))?;
        let end = run
            .offset
            .checked_add(reach.max(0))?
            .checked_add(i64::try_from(run.block).ok()?)?;
        let bytes = (end - first) as u64;
        match self {
            Served::Fixed(mem) => mem
                .covers(first, bytes as usize)
                .then(|| (mem.clone(), *run)),
            Served::Attached(attachments) => {
                let attachments = attachments.lock().expect("no panic under this lock");
                let (mem, base) = attachments.find(first as u64, bytes)?;
                let offset = run.offset.wrapping_sub(base as i64);
                Some((mem, Run { offset, ..*run }))
            }
        }
    }
}
