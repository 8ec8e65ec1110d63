//! The registry of a seeded world: simulated hosts, deaths and clocks, without any memory that is
//! shared by processes. What works over it does not reach round [`Peers`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_core_registry::hosts::Report;
use margay_core_registry::{
    Facts, Identity, Locality, NoteKey, Phase, Pulse, Waiting, Waits, call_of,
};
use margay_net_platform::{Clock, Noted, Peers};
use margay_sys_os::kept::Words;

/// Simulated nanoseconds from one turn of the world to the next.
const TURN_NS: u64 = 1000;
/// By how much the clock of each host is ahead of that of the host before.
const SKEW_NS: u64 = 1_000_000_000;

/// The registry; see the module.
pub struct Model {
    hosts: Vec<u32>,
    now: Arc<AtomicU64>,
    calls: Vec<Words>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ranks: Vec<Known>,
    failures: u32,
    aborted: Option<(u32, i32)>,
    wakes: u64,
}

#[derive(Default)]
struct Known {
    phase: Option<Phase>,
    exited: bool,
    /// A thread of the rank computes, beside those that wait.
    computes: bool,
    /// Waits by the number of their entry.
    waits: BTreeMap<u64, Waiting>,
    entered: u64,
    notes: BTreeMap<NoteKey, Words>,
}

impl Model {
    /// Returns the registry of a job whose rank `r` is on host `hosts[r]`, in a world that counts
    /// its turns in `now`.
    pub(crate) fn new(hosts: &[u32], now: Arc<AtomicU64>) -> Model {
        Model {
            hosts: hosts.to_vec(),
            now,
            calls: hosts.iter().map(|_| Words::private(4)).collect(),
            state: Mutex::new(State {
                ranks: hosts.iter().map(|_| Known::default()).collect(),
                ..State::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a rank die, as if its host's launcher had noticed.
    pub fn kill(&self, rank: u32) {
        let mut state = self.lock();
        let known = &mut state.ranks[rank as usize];
        if !std::mem::replace(&mut known.exited, true) && known.phase != Some(Phase::Finalized) {
            state.failures += 1;
        }
    }

    /// From now on a thread of the rank computes beside those that wait, or none does.
    pub fn set_computes(&self, rank: u32, computes: bool) {
        self.lock().ranks[rank as usize].computes = computes;
    }

    /// Returns how often a rank was woken by another.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.lock().wakes
    }

    /// Returns the clock of a rank's host.
    pub(crate) fn clock(&self, rank: u32) -> HostClock {
        HostClock {
            now: self.now.clone(),
            ahead_ns: u64::from(self.hosts[rank as usize]) * SKEW_NS,
        }
    }
}

/// The clock of a simulated host: it goes on with the turns of the world.
pub(crate) struct HostClock {
    now: Arc<AtomicU64>,
    ahead_ns: u64,
}

impl Clock for HostClock {
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed) * TURN_NS + self.ahead_ns
    }

    fn ticks(&self) -> u64 {
        self.now_ns()
    }
}

struct Entered<'a> {
    model: &'a Model,
    rank: u32,
    entry: u64,
}

impl Noted for Entered<'_> {
    fn set_pulse(&self, pulse: Pulse) {
        let mut state = self.model.lock();
        let waits = &mut state.ranks[self.rank as usize].waits;
        if let Some(waiting) = waits.get_mut(&self.entry) {
            waiting.pulse = pulse;
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut state = self.model.lock();
        state.ranks[self.rank as usize].waits.remove(&self.entry);
    }
}

impl Peers for Model {
    fn id(&self) -> u64 {
        1
    }

    fn size(&self) -> u32 {
        self.hosts.len() as u32
    }

    fn facts(&self) -> Facts {
        Facts {
            job: 1,
            command: "simulated".into(),
            cores: self.cores(),
            is_tolerant: true,
            ..Facts::default()
        }
    }

    fn cores(&self) -> u32 {
        1
    }

    fn is_tolerant(&self) -> bool {
        true
    }

    fn identity(&self, rank: u32) -> Identity {
        Identity {
            // The ranks are threads of this process.
            pid: std::process::id(),
            core: None,
            program: self.hosts[rank as usize],
        }
    }

    fn host(&self, rank: u32) -> u32 {
        self.hosts[rank as usize]
    }

    fn locality(&self, one: u32, other: u32) -> Locality {
        match self.host(one) == self.host(other) {
            true => Locality::Host,
            false => Locality::Remote,
        }
    }

    fn sharers(&self, rank: u32) -> u32 {
        let host = self.host(rank);
        let here = (0..self.size()).filter(|&other| self.host(other) == host);
        here.count() as u32
    }

    fn host_name(&self, host: u32) -> String {
        format!("host-{host}")
    }

    fn phase(&self, rank: u32) -> Phase {
        let phase = self.lock().ranks[rank as usize].phase;
        phase.unwrap_or(Phase::Starting)
    }

    fn set_phase(&self, rank: u32, phase: Phase) {
        self.lock().ranks[rank as usize].phase = Some(phase);
    }

    fn call(&self, rank: u32) -> String {
        let words = self.calls[rank as usize].iter();
        call_of(words.map(|w| w.load(Ordering::Relaxed)))
    }

    fn call_words(&self, rank: u32) -> Words {
        self.calls[rank as usize].clone()
    }

    fn waits(&self, rank: u32) -> Waits {
        let state = self.lock();
        let waits = state.ranks[rank as usize].waits.values();
        Waits {
            listed: waits.copied().collect(),
            unlisted: 0,
        }
    }

    fn begin_wait(&self, rank: u32, waiting: &Waiting) -> Box<dyn Noted + '_> {
        let mut state = self.lock();
        let known = &mut state.ranks[rank as usize];
        known.entered += 1;
        let entry = known.entered;
        known.waits.insert(entry, *waiting);
        Box::new(Entered {
            model: self,
            rank,
            entry,
        })
    }

    fn has_exited(&self, rank: u32) -> bool {
        self.lock().ranks[rank as usize].exited
    }

    fn is_alive(&self, rank: u32) -> bool {
        !self.has_exited(rank)
    }

    fn computes(&self, rank: u32, _waiting: &[u32]) -> bool {
        self.lock().ranks[rank as usize].computes
    }

    fn reported(&self, _: u32) -> Option<Report> {
        None
    }

    fn failures(&self) -> u32 {
        self.lock().failures
    }

    fn abort(&self, rank: u32, code: i32) -> bool {
        let mut state = self.lock();
        let first = state.aborted.is_none();
        state.aborted.get_or_insert((rank, code));
        first
    }

    fn aborted(&self) -> Option<(u32, i32)> {
        self.lock().aborted
    }

    fn wake(&self, _rank: u32) {
        self.lock().wakes += 1;
    }

    fn note(&self, rank: u32, key: NoteKey) -> Option<Words> {
        self.lock().ranks[rank as usize].notes.get(&key).cloned()
    }

    fn make_note(&self, rank: u32, key: NoteKey, words: usize) -> Option<Words> {
        let mut state = self.lock();
        let notes = &mut state.ranks[rank as usize].notes;
        let note = notes.entry(key).or_insert_with(|| Words::private(words));
        Some(note.clone())
    }
}
