//! A transport for tests: one seed decides everything that a network may decide.
//!
//! The ranks of a world are threads of one process, but only one of them runs at a time: each call
//! into the transport may hand the turn to another rank, which one the seed says. Packets of a pair
//! stay in order, as the contract promises; between pairs they are delayed and so reordered at
//! will. Pipes are short and are sometimes full for no reason, fragments are short and of odd
//! lengths, and there is no direct copying, so every protocol must complete with bytes alone.
//!
//! The same seed gives the same history, so a failure can be replayed. A world in which nothing
//! moves any more panics in every rank and names the seed.

#![forbid(unsafe_code)]

mod model;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use margay_net_platform::Platform;
use margay_net_transport::{Head, Packet, Sink, Transport, WHOLE, WakeUp};

pub use model::Model;

/// Turns without any packet after which the world counts as stuck.
const STUCK: u64 = 200_000;

/// What a world's network is like.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Packets that a pipe holds, at least 1.
    pub pipe: usize,
    /// Longest delay of a packet in turns.
    pub delay: u64,
    /// One call in this many hands the turn over; with 1 each call does.
    pub turn_every: u64,
    /// Longest fragment in bytes.
    pub fragment: usize,
}

impl Conditions {
    /// Returns a network whose character comes from the seed too.
    #[must_use]
    pub fn of(seed: u64) -> Conditions {
        let mut random = Rng::with_seed(seed ^ 0x5bd1_e995);
        Conditions {
            pipe: 1 + random.u64(..8) as usize,
            delay: random.u64(..30),
            turn_every: 1 + random.u64(..16),
            fragment: 16 + random.u64(..2000) as usize,
        }
    }
}

/// One rank's end of a seeded world.
struct Seeded {
    world: Arc<World>,
    me: u32,
}

/// Makes a world of `size` ranks, each on a host of its own. What each stands on belongs into a
/// thread of its own.
#[must_use]
pub fn world(size: u32, seed: u64, conditions: Conditions) -> Vec<Platform> {
    let hosts: Vec<u32> = (0..size).collect();
    world_on(&hosts, seed, conditions).1
}

/// Makes a world whose rank `r` is on host `hosts[r]`, and its registry.
#[must_use]
pub fn world_on(hosts: &[u32], seed: u64, conditions: Conditions) -> (Arc<Model>, Vec<Platform>) {
    let n = hosts.len();
    let now = Arc::new(AtomicU64::new(0));
    let world = Arc::new(World {
        state: Mutex::new(State {
            random: Rng::with_seed(seed),
            turn: 0,
            running: vec![true; n],
            pipes: (0..n * n).map(|_| VecDeque::new()).collect(),
            now: now.clone(),
            quiet: 0,
        }),
        changed: (0..n).map(|_| Condvar::new()).collect(),
        size: n as u32,
        seed,
        conditions,
    });
    let model = Arc::new(Model::new(hosts, now));
    let platform = |me| Platform {
        transport: Box::new(Seeded {
            world: world.clone(),
            me,
        }),
        wake_up: Arc::new(Turn {
            world: world.clone(),
            me,
        }),
        clock: Arc::new(model.clock(me)),
        peers: model.clone(),
        memory: None,
        host_memory: None,
        outside: None,
    };
    let platforms = (0..n as u32).map(platform).collect();
    (model, platforms)
}

struct World {
    state: Mutex<State>,
    changed: Vec<Condvar>,
    size: u32,
    seed: u64,
    conditions: Conditions,
}

struct State {
    random: Rng,
    turn: u32,
    running: Vec<bool>,
    pipes: Vec<VecDeque<Parcel>>,
    /// Turns so far; written under the lock of this state only.
    now: Arc<AtomicU64>,
    quiet: u64,
}

struct Parcel {
    due: u64,
    head: Head,
    args: [u64; 2],
    payload: Vec<u8>,
}

impl State {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
}

impl World {
    /// Waits for this rank's turn.
    fn enter(&self, me: u32) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.turn != me {
            state = self.changed[me as usize]
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.now.fetch_add(1, Ordering::Relaxed);
        state
    }

    /// Hands the turn to a running rank that the random choose.
    fn pass(&self, state: &mut State) {
        let running: Vec<u32> = (0..self.size)
            .filter(|&r| state.running[r as usize])
            .collect();
        if running.is_empty() {
            return;
        }
        let chosen = running[state.random.u64(..running.len() as u64) as usize];
        state.turn = chosen;
        self.changed[chosen as usize].notify_one();
    }

    fn maybe_pass(&self, state: &mut State) {
        if state.random.u64(..self.conditions.turn_every) == 0 {
            self.pass(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A rank that panicked has said why; the others go on to their own end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, from: u32, to: u32, parcel: impl FnOnce() -> (Head, [u64; 2], Vec<u8>)) -> bool {
        let mut guard = self.enter(from);
        let state = &mut *guard;
        let pipe = (from * self.size + to) as usize;
        let full = state.pipes[pipe].len() >= self.conditions.pipe || state.random.u64(..16) == 0;
        if !full {
            let delay = state.random.u64(..self.conditions.delay + 1);
            let before = state.pipes[pipe].back().map_or(0, |p| p.due);
            let now = state.now();
            let (head, args, payload) = parcel();
            state.pipes[pipe].push_back(Parcel {
                due: before.max(now + delay),
                head,
                args,
                payload,
            });
            state.quiet = 0;
        }
        self.maybe_pass(state);
        !full
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.running[self.me as usize] = false;
        if state.turn == self.me {
            self.world.pass(&mut state);
        }
    }
}

impl Transport for Seeded {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.world.size
    }

    fn send(&mut self, to: u32, head: Head, payload: &[u8]) -> bool {
        assert!(payload.len() <= WHOLE);
        self.world
            .push(self.me, to, || (head, [0; 2], payload.to_vec()))
    }

    fn send_fragment(
        &mut self,
        to: u32,
        head: Head,
        args: [u64; 2],
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        self.world.push(self.me, to, || {
            let mut payload = vec![0; len];
            fill(&mut payload);
            (head, args, payload)
        })
    }

    fn fragment(&self, _to: u32, remaining: u64) -> usize {
        remaining.min(self.world.conditions.fragment as u64) as usize
    }

    fn poll(&mut self, sink: &mut dyn Sink, _: u32) -> bool {
        let mut arrived = Vec::new();
        {
            let mut guard = self.world.enter(self.me);
            let state = &mut *guard;
            let (size, now) = (self.world.size, state.now());
            let first = state.random.u64(..u64::from(size)) as u32;
            for step in 0..size {
                let from = (first + step) % size;
                let pipe = &mut state.pipes[(from * size + self.me) as usize];
                while pipe.front().is_some_and(|p| p.due <= now) {
                    if let Some(parcel) = pipe.pop_front() {
                        arrived.push((from, parcel));
                    }
                    if state.random.u64(..2) == 0 {
                        break;
                    }
                }
            }
            if arrived.is_empty() {
                state.quiet += 1;
                assert!(
                    state.quiet < STUCK,
                    "nothing moves any more in the world of seed {} (rank {} waits)",
                    self.world.seed,
                    self.me
                );
            } else {
                state.quiet = 0;
            }
            self.world.maybe_pass(state);
        }
        for (from, parcel) in &arrived {
            let Parcel {
                head,
                args,
                payload,
                ..
            } = parcel;
            sink.packet(
                *from,
                Packet {
                    head: *head,
                    args: *args,
                    payload,
                },
            );
        }
        !arrived.is_empty()
    }
}

/// Waits in a seeded world by handing the turn over.
struct Turn {
    world: Arc<World>,
    me: u32,
}

impl WakeUp for Turn {
    fn pause(&self) {}

    fn yield_core(&self) {
        let mut state = self.world.enter(self.me);
        self.world.pass(&mut state);
    }

    fn sleep(&self, _: u64, has_work: &mut dyn FnMut() -> bool) {
        if !has_work() {
            self.yield_core();
        }
    }

    fn wake_own(&self) {}
}
