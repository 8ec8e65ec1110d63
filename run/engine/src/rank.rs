//! A rank: all of its state behind one lock, and the calls that wait.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_core_matching::Pattern;
use margay_core_record::Shape;
use margay_core_registry::{CallName, Locality, Phase, place};
use margay_net_platform::{Clock, Outside, Peers, Platform};
use margay_net_transport::{WakeUp, World};
use margay_sys_os::cpu;
use margay_sys_os::crash;
use margay_sys_os::kept::Words;
use margay_sys_os::lock::RankLock;
use margay_sys_os::user::Piece;
use margay_sys_shm::segment::Segment;

use crate::call::{Arrived, Failed, Limits, MsgId, Outcome, Pending, ReqId};
use crate::collective::Execution;
use crate::data::Data;
use crate::engine::{Engine, Sent, Task};
use crate::failures::Failures;
use crate::helper::Helper;
use crate::monitor::{EventKind, InCall, Monitor};
use crate::policy::Policy;
use crate::wait::{Contention, Next, Wait};

mod block;
mod note;
mod send;
mod wait;

/// One rank of a job. All state hangs off it and nothing is static, so a process may hold many.
/// May be shared between threads; [`Rank::lock`] says what makes that cheaper.
// Fields: what the rank stands on, part by part, and what watches over it.
pub struct Rank {
    engine: RankLock<Engine>,
    wake_up: Arc<dyn WakeUp>,
    clock: Arc<dyn Clock>,
    peers: Arc<dyn Peers>,
    /// Where the name of the current call is written.
    call_words: Words,
    /// Memory in which the ranks may exchange data, where there is some.
    memory: Option<Arc<Segment>>,
    /// The same for the ranks of this host alone, in a job on several.
    host_memory: Option<Arc<Segment>>,
    outside: Option<Arc<dyn Outside>>,
    monitor: Arc<Monitor>,
    contention: Contention,
    me: u32,
    size: u32,
    /// Processes of other jobs were met.
    met_others: AtomicBool,
    pub(crate) failures: Failures,
    pub(crate) helper: Helper,
    /// Set by the engine when somebody has died or a communicator was revoked.
    failure_pending: Arc<AtomicBool>,
}

impl Rank {
    /// Returns a rank on any platform, with these limits and this policy.
    #[must_use]
    pub fn over(platform: Platform, limits: Limits, policy: Policy) -> Rank {
        let monitor = Monitor::new(platform.clock.clone());
        monitor.tuning.suggest_limits(limits);
        monitor.tuning.suggest_policy(policy);
        Rank::new(platform, &monitor)
    }

    /// Returns a rank that stands on `platform`, with the settings of `monitor`.
    #[must_use]
    pub fn new(platform: Platform, monitor: &Arc<Monitor>) -> Rank {
        let Platform {
            transport,
            wake_up,
            clock,
            peers,
            memory,
            host_memory,
            outside,
        } = platform;
        let (me, size) = (transport.me(), transport.size());
        let engine = Engine::new(transport, monitor.clone());
        let failures = Failures::default();
        if peers.is_tolerant() {
            failures.watch_own_job();
        }
        Rank {
            failure_pending: engine.failure_pending().clone(),
            engine: RankLock::new(engine),
            wake_up,
            clock,
            call_words: peers.call_words(me),
            peers,
            memory,
            host_memory,
            outside,
            monitor: monitor.clone(),
            contention: Contention::default(),
            me,
            size,
            met_others: AtomicBool::new(false),
            failures,
            helper: Helper::default(),
        }
    }

    /// Returns what can be seen and set of the rank from outside.
    #[must_use]
    #[inline]
    pub fn monitor(&self) -> &Arc<Monitor> {
        &self.monitor
    }

    /// This rank's number in the job.
    #[must_use]
    #[inline]
    pub fn world_rank(&self) -> u32 {
        self.me
    }

    /// Returns the number of ranks in the job.
    #[must_use]
    #[inline]
    pub fn world_size(&self) -> u32 {
        self.size
    }

    /// Returns the ranks of the application that this one is part of: all of the job but a
    /// controlling process of NX, which is an application by itself.
    #[must_use]
    pub fn application(&self) -> Range<u32> {
        let last = self.size - 1;
        let controls = place::controls(self.peers.note(last, place::KEY).as_deref());
        match (controls, self.me == last) {
            (false, _) => 0..self.size,
            (true, true) => last..self.size,
            (true, false) => 0..last,
        }
    }

    /// Returns what is known of the job's ranks: what they are and what they do.
    #[must_use]
    #[inline]
    pub fn peers(&self) -> &Arc<dyn Peers> {
        &self.peers
    }

    /// Returns the time of this rank.
    #[must_use]
    #[inline]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns how other jobs are reached, where they can be.
    #[must_use]
    pub fn outside(&self) -> Option<&dyn Outside> {
        self.outside.as_deref()
    }

    /// Memory that all ranks of the job share, if they may exchange data through it.
    #[must_use]
    #[inline]
    pub fn common_memory(&self) -> Option<&Arc<Segment>> {
        self.memory.as_ref()
    }

    /// Memory that this rank shares with others, perhaps not with all: with those of its host.
    #[must_use]
    pub fn any_memory(&self) -> Option<&Arc<Segment>> {
        self.memory.as_ref().or(self.host_memory.as_ref())
    }

    /// Memory that these ranks of the job share, of which this one is one.
    #[must_use]
    pub fn memory_among(&self, mut ranks: impl Iterator<Item = u32>) -> Option<&Arc<Segment>> {
        if self.memory.is_some() {
            return self.memory.as_ref();
        }
        let memory = self.host_memory.as_ref()?;
        let is_near =
            |rank| rank < self.size && self.peers.locality(self.me, rank) == Locality::Memory;
        ranks.all(is_near).then_some(memory)
    }

    /// Whether every rank of the job on this rank's cores has one for itself. All ranks of a host
    /// find the same.
    #[must_use]
    pub fn has_core(&self) -> bool {
        let sharers = match self.host_memory {
            None => self.size,
            Some(_) => self.peers.sharers(self.me),
        };
        sharers <= self.peers.cores()
    }

    /// Wakes a rank for which something was stored in shared memory.
    #[inline]
    pub fn wake_peer(&self, world_rank: u32) {
        self.peers.wake(world_rank);
    }

    /// Calls `f` with the engine; for services, whose state is used under the engine's lock.
    pub fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        self.call(f)
    }

    /// Returns the lock around the engine; tells whether threads share the rank, and makes it cheap
    /// when they do not (`RankLock::assume_single_thread`).
    #[must_use]
    pub fn lock(&self) -> &RankLock<Engine> {
        &self.engine
    }

    /// Notes the library call that begins, for displays and for the report when the rank dies.
    #[inline]
    pub fn note_call(&self, name: &CallName) {
        // As many words as a name has: four stores, no loop.
        let words: Option<&[_; size_of::<CallName>() / 8]> = self.call_words.first_chunk();
        for (word, &value) in words.into_iter().flatten().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Notes and records the call of the program that begins; `from` is the address to which it
    /// returns. It ends when what this returns is dropped.
    #[inline]
    pub fn begin_call(&self, name: &'static CallName, from: u64) -> InCall<'_> {
        self.note_call(name);
        self.record_call(name, from)
    }

    /// Records the call, which has been noted.
    #[inline]
    pub fn record_call(&self, name: &'static CallName, from: u64) -> InCall<'_> {
        self.monitor.recording.call(name, from)
    }

    /// This thread's calls in quick succession, which were only counted, are recorded: the program
    /// is about to end.
    pub fn record_counted(&self) {
        self.monitor.recording.settle();
    }

    /// From now on the last calls are recorded, `records` of each thread, if the registry of the
    /// job has room for them. `has_all`: also those that are done with less work than a record.
    pub fn record(&self, records: usize, has_all: bool) {
        let shape = Shape::with_records(records);
        let words = (self.peers).make_note(self.me, margay_core_record::KEY, shape.words());
        if let Some(words) = words {
            self.monitor.recording.start(words, shape, has_all);
        }
    }

    /// Has this process write down where it is when it crashes, while what this returns is there;
    /// none if its job does not want to know.
    pub fn write_crashes_down(&self) -> Option<crash::Writing> {
        let note = |rank, key| self.peers.note(rank, key);
        let found = margay_core_registry::crash::find(self.peers.size(), note);
        let words = found.filter(|words| words.len() >= crash::WORDS);
        words.map(crash::write_into)
    }

    /// This many words for what a library of threads does, in memory that outlives the process.
    /// None where nothing is recorded, or when there is no room.
    pub fn keep_threads(&self, words: usize) -> Option<&'static [AtomicU64]> {
        let make = || {
            (self.peers).make_note(
                self.me,
                margay_core_record::TEAMS_KEY,
                margay_core_record::TEAMS_WORDS,
            )
        };
        self.monitor.recording.keep_threads(words, make)
    }

    /// The library call that was noted last.
    #[must_use]
    pub fn noted_call(&self) -> CallName {
        let mut name = CallName::default();
        for (word, value) in name.iter_mut().zip(self.call_words.iter()) {
            *word = value.load(Ordering::Relaxed);
        }
        name
    }

    /// The number of its call site in the flight recorder, 0 for unknown.
    #[must_use]
    pub fn noted_site(&self) -> u16 {
        self.monitor.recording.call_site()
    }

    /// Spins for a message for a moment. `take` sees the outcome when it has come; else
    /// [`recv_posted`](Self::recv_posted) has to wait for it.
    #[inline(always)]
    pub fn recv_at_once<R>(
        &self,
        piece: Piece,
        pattern: Pattern,
        take: impl FnOnce(&Outcome) -> R,
    ) -> Option<R> {
        let spins = if self.engine.is_shared() {
            1
        } else {
            self.contention.policy(self.monitor.tuning.policy()).spins()
        };
        self.call(|engine| engine.recv_at_once(piece, pattern, spins).map(take))
    }

    /// Receives a message from a process of the job that has come or comes in a moment; None when
    /// it does not.
    pub fn recv_soon(&self, data: &Data, pattern: Pattern, from: u32) -> Option<Outcome> {
        let has_come = self.call(|engine| {
            engine.probe(pattern)?;
            Some(engine.irecv(data.clone(), pattern, Some(from)))
        });
        match has_come {
            Some(id) => Some(self.wait(id)),
            None => self.recv_at_once(data.piece()?, pattern, Outcome::clone),
        }
    }

    /// Receives and waits for the message. `from` is the sender's world rank if one is asked for.
    #[inline]
    pub fn recv(&self, data: Data, pattern: Pattern, from: Option<u32>) -> Outcome {
        data.piece()
            .and_then(|piece| self.recv_at_once(piece, pattern, Outcome::clone))
            .unwrap_or_else(|| self.recv_posted(data, pattern, from))
    }

    /// As [`recv`](Self::recv), after [`recv_at_once`](Self::recv_at_once) has looked.
    pub fn recv_posted(&self, data: Data, pattern: Pattern, from: Option<u32>) -> Outcome {
        let id = self.irecv(data, pattern, from);
        let outcome = self.wait(id);
        if outcome.failed == Some(Failed::Pending) {
            return self.give_up(id);
        }
        outcome
    }

    /// Takes a receive back that is stalled by a failure; its message may have come meanwhile.
    #[cold]
    fn give_up(&self, id: ReqId) -> Outcome {
        let mut engine = self.engine.lock();
        engine.cancel(id);
        let outcome = engine.take(id).unwrap_or_default();
        match outcome.cancelled || outcome.failed == Some(Failed::Pending) {
            true => Outcome {
                failed: Some(Failed::Process),
                ..Outcome::default()
            },
            false => outcome,
        }
    }

    /// Posts a receive.
    #[inline(always)]
    pub fn irecv(&self, data: Data, pattern: Pattern, from: Option<u32>) -> ReqId {
        self.call(|engine| engine.irecv(data, pattern, from))
    }

    /// Posts a receive that the layer above names by its place; see [`Engine::irecv_named`].
    #[inline]
    pub fn irecv_named(&self, data: Data, pattern: Pattern, from: Option<u32>, word: u32) -> ReqId {
        self.call(|engine| engine.irecv_named(data, pattern, from, word))
    }

    /// The same into one piece of memory.
    #[inline(always)]
    pub fn irecv_piece(
        &self,
        piece: Piece,
        pattern: Pattern,
        from: Option<u32>,
        word: u32,
    ) -> ReqId {
        self.call(|engine| {
            let data = Data::bytes(piece.mem(), piece.size() as u64);
            engine.irecv_named(data, pattern, from, word)
        })
    }

    /// Receives a message that a matched probe took.
    ///
    /// # Panics
    /// When the message was received before.
    pub fn imrecv(&self, message: MsgId, data: Data) -> ReqId {
        self.call(|engine| engine.imrecv(message, data))
    }

    /// Begins a collective operation. Where a progress thread could do it meanwhile, long copies
    /// are left to that.
    pub fn icollective(&self, execution: Execution) -> ReqId {
        const LONG: u64 = 64 << 10;
        let later = self.helper.is_there() && execution.copied_bytes() >= LONG;
        self.call(|engine| engine.icollective(execution, later))
    }

    /// Makes progress; the outcome if the request has ended (it is gone then).
    pub fn test(&self, id: ReqId) -> Option<Outcome> {
        let mut engine = self.engine.lock();
        if let Some(outcome) = engine.take(id) {
            return Some(outcome);
        }
        self.advance(&mut engine);
        self.watch(&mut engine);
        engine.take(id)
    }

    /// Whether the request has ended; makes no progress, the request stays.
    #[must_use]
    pub fn is_done(&self, id: ReqId) -> bool {
        self.engine.lock().is_done(id)
    }

    /// Moves everything on that can move. Returns whether anything did.
    pub fn progress(&self) -> bool {
        let mut engine = self.engine.lock();
        let moved = self.advance(&mut engine);
        self.watch(&mut engine) || moved
    }

    /// Cancels a request if that is still possible; the outcome says whether it was. A send of
    /// which something has gone out is not done then until its receiver, in any call, has answered.
    pub fn cancel(&self, id: ReqId) {
        self.call(|engine| engine.cancel(id));
    }

    /// The same for a message that went at once.
    pub fn cancel_sent(&self, sent: Sent) -> ReqId {
        self.call(|engine| engine.withdraw_sent(sent))
    }

    /// Lets a request go on; its outcome will not be asked for.
    pub fn detach(&self, id: ReqId) {
        self.engine.lock().detach(id);
    }

    /// Spins for a message that has arrived.
    #[must_use]
    pub fn iprobe(&self, pattern: Pattern) -> Option<Arrived> {
        let mut engine = self.engine.lock();
        if let Some(found) = engine.probe(pattern) {
            return Some(found);
        }
        self.advance(&mut engine);
        self.watch(&mut engine);
        let found = engine.probe(pattern);
        drop(engine);
        if found.is_none() {
            self.yield_if_oversubscribed();
        }
        found
    }

    /// Waits for a message; it stays where it is. `from` is the process that is asked for, if one
    /// is.
    ///
    /// # Errors
    /// When the message cannot come, or may not.
    pub fn probe(&self, pattern: Pattern, from: Option<u32>) -> Result<Arrived, Failed> {
        self.block(
            |engine| match engine.probe(pattern) {
                Some(found) => Some(Ok(found)),
                None => engine.stalls(pattern.context, from).map(Err),
            },
            |_| Some(Pending::Receive(from, pattern.tag(), pattern.context)),
        )
    }

    /// Takes a message that has arrived.
    #[must_use]
    pub fn improbe(&self, pattern: Pattern) -> Option<(MsgId, Arrived)> {
        let mut engine = self.engine.lock();
        if let Some(found) = engine.mprobe(pattern) {
            return Some(found);
        }
        self.advance(&mut engine);
        self.watch(&mut engine);
        engine.mprobe(pattern)
    }

    /// Waits for a message and takes it.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn mprobe(&self, pattern: Pattern, from: Option<u32>) -> Result<(MsgId, Arrived), Failed> {
        self.block(
            |engine| match engine.mprobe(pattern) {
                Some(found) => Some(Ok(found)),
                None => engine.stalls(pattern.context, from).map(Err),
            },
            |_| Some(Pending::Receive(from, pattern.tag(), pattern.context)),
        )
    }

    /// Waits until everything that this rank has sent is out.
    pub fn drain(&self) {
        self.block(
            |engine| engine.is_drained().then_some(()),
            Engine::pending_kept,
        );
    }

    /// At the end of the process: waits until all messages are out ([`Engine::has_sent_all`]), for
    /// `limit_ns` nanoseconds at most, and returns whether they are. Unlike other calls it may be
    /// made while a call is under way in another thread, for which it waits no longer than that
    /// either, or further out in this one (the program exits in a callback).
    pub fn drain_within(&self, limit_ns: u64) -> bool {
        // For a thread inside the engine, which does not wake this one when it leaves.
        const RETRY_NS: u64 = 1_000_000;
        let until_ns = self.clock.now_ns() + limit_ns;
        let mut drained = false;
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= until_ns {
                return false;
            }
            self.sleep_until_woken(RETRY_NS.min(until_ns - now_ns), &mut || {
                self.engine.try_lock().is_some_and(|mut engine| {
                    let moved = self.advance(&mut engine) || self.watch(&mut engine);
                    drained = engine.has_sent_all();
                    moved || drained
                })
            });
            if drained {
                return true;
            }
        }
    }

    /// Whether somebody has aborted the job.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.peers.aborted().is_some()
    }

    /// `bytes` of zeroed memory from which the other ranks copy without a system call; its address.
    /// None where the ranks share no memory or none is left.
    #[must_use]
    pub fn alloc_shared(&self, bytes: u64) -> Option<usize> {
        self.any_memory()?;
        self.engine.lock().transport().alloc_shared(bytes)
    }

    /// Frees what [`alloc_shared`](Self::alloc_shared) gave. False when it did not give that.
    #[must_use]
    pub fn free_shared(&self, address: usize) -> bool {
        self.engine.lock().transport().free_shared(address)
    }

    /// Reaches processes of other jobs. With them, cores may be short: `ranks` are those that this
    /// process knows of altogether.
    pub fn join(&self, world: World, ranks: u32) {
        self.met_others.store(true, Ordering::Relaxed);
        if ranks > self.peers.cores() {
            self.contention.set_oversubscribed();
        }
        self.engine.lock().join(world);
    }

    /// Gives up the world with this key if nothing is on its way to or from `processes`, nor to
    /// others where that cannot be distinguished. Returns whether it did.
    pub fn part(&self, key: u64, processes: &[u32]) -> bool {
        let mut engine = self.engine.lock();
        let quiet = engine.transport().is_flushed()
            && processes
                .iter()
                .all(|&p| engine.is_dead(p) || engine.is_quiet(p));
        if quiet {
            engine.part(key);
            self.failures.forget(processes);
        }
        quiet
    }

    /// Enters a phase of the rank's life, for the launcher.
    pub fn set_phase(&self, phase: Phase) {
        self.peers.set_phase(self.me, phase);
    }

    /// Whether somebody has died or a communicator was revoked.
    #[must_use]
    #[inline]
    pub fn has_failures(&self) -> bool {
        self.failure_pending.load(Ordering::Relaxed)
    }

    /// Whether somebody may die without this rank being ended too.
    #[must_use]
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.failures.is_watching()
    }

    /// Watches a process of another job, which is a rank of `home`.
    pub fn watch_other(&self, process: u32, home: &Arc<dyn Peers>, rank: u32) {
        self.failures.add(process, home.clone(), rank);
    }

    /// Looks for processes that have died. Returns whether there are any new ones.
    #[inline]
    fn watch(&self, engine: &mut Engine) -> bool {
        self.failures.is_watching() && self.failures.look(&*self.peers, &*self.clock, engine)
    }

    /// Revokes the communicator with this number.
    pub fn revoke(&self, number: u32) {
        self.call(|engine| engine.revoke(number));
    }

    /// Begins an operation of several requests.
    pub fn start_task(&self, task: Box<dyn Task>) -> ReqId {
        self.call(|engine| engine.start_task(task))
    }

    /// Whether cores are short: more ranks than the job may use cores.
    #[must_use]
    pub fn is_oversubscribed(&self) -> bool {
        self.monitor.tuning.policy().is_oversubscribed()
    }

    /// Yields the core.
    pub fn yield_core(&self) {
        self.wake_up.yield_core();
    }

    /// Yields the core where cores are short: for calls in which programs poll.
    #[inline]
    pub fn yield_if_oversubscribed(&self) {
        if self.monitor.tuning.policy().is_oversubscribed() {
            self.wake_up.yield_core();
        }
    }

    /// Whether there are requests that are not done with, so that progress may be needed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.engine.lock().has_requests()
    }

    /// Wakes all threads that sleep on this rank.
    pub fn wake(&self) {
        self.wake_up.wake_own();
    }
}
