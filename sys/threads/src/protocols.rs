//! Models of what the layers above make of this crate's parts: the barrier of a team, the release
//! of tasks with dependences, the life of an offer. loom tries every interleaving.
//!
//! Those layers cannot be compiled for loom: their fibers switch stacks. What they do with words is
//! repeated here, in the order in which they do it, over the real shelf, claims, wake queues and
//! event counts. Each model runs a second time with its essential order broken, and has to fail
//! then.
//!
//! The whole file is for loom; each module says so once more, as a check of the sources asks for it
//! (`xtask tidy`).
//!
//! loom takes accesses that are sequentially consistent for acquire and release. Where the layers
//! above rely on their one order, the models have fences.

use std::sync::Arc as StdArc;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use margay_sys_os::event_count::EventCount;
use margay_sys_os::sync::{AtomicBool, AtomicU32, Ordering, fence, spin};

use crate::claims::Claims;
use crate::shelf::Shelf;
use crate::wake_queue::WakeQueue;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A number that loom watches: two accesses without an order between them, one of which writes, end
/// the model.
struct Watched(UnsafeCell<u32>);

// SAFETY: the models' business, and loom fails where they do not order the accesses.
unsafe impl Sync for Watched {}
// SAFETY: a number.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }

    fn set(&self, value: u32) {
        // SAFETY: loom has found no other access at the same time.
        self.0.with_mut(|there| unsafe { *there = value });
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|there| unsafe { *there })
    }
}

/// The barrier of a team of two: `Context::pass_barrier` and `Context::sleep` of `run/openmp`, and
/// `Worker::park_until` and `ParkingLot` of `run/threads`. Each member is the only fiber of its
/// worker.
#[cfg(loom)]
mod barrier {
    use super::*;

    /// What a member does that waits.
    #[derive(Clone, Copy, PartialEq)]
    enum Waits {
        /// It has a core to itself.
        Spinning,
        /// Its worker has other fibers to run, or no core: it is suspended, and the worker sleeps.
        Parked,
    }

    struct Member {
        is_asleep: AtomicBool,
        has_wakeup: AtomicBool,
        /// Of its worker.
        wake_queue: WakeQueue,
        event_count: EventCount<true>,
        written: Watched,
    }

    struct Team {
        arrived: AtomicU32,
        generation: AtomicU32,
        members: [Member; 2],
        /// The members that are parked.
        parked: Mutex<Vec<usize>>,
        /// Whether the model has its fences.
        is_ordered: bool,
    }

    impl Team {
        fn new(is_ordered: bool) -> Team {
            let member = || Member {
                is_asleep: AtomicBool::new(false),
                has_wakeup: AtomicBool::new(false),
                wake_queue: WakeQueue::new(),
                event_count: EventCount::of_threads(),
                written: Watched::new(),
            };
            let team = Team {
                arrived: AtomicU32::new(0),
                generation: AtomicU32::new(0),
                members: [member(), member()],
                parked: Mutex::new(Vec::new()),
                is_ordered,
            };
            for (id, member) in team.members.iter().enumerate() {
                // The chunk is made outside of the model's locks.
                member.wake_queue.push(id as u32);
                member.wake_queue.drain(|_| {});
            }
            team
        }

        /// Between a write and a read of another word that are sequentially consistent in
        /// `run/openmp`.
        fn order(&self) {
            if self.is_ordered {
                fence(Ordering::SeqCst);
            }
        }

        fn pass(&self, me: usize, waits: Waits) {
            let generation = self.generation.load(Ordering::Acquire);
            if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members.len() as u32 {
                self.arrived.store(0, Ordering::Relaxed);
                self.generation.store(generation + 1, Ordering::Release);
                self.order();
                for id in 0..self.members.len() {
                    self.wake_if_asleep(id);
                }
                return;
            }
            let is_done = || self.generation.load(Ordering::Acquire) != generation;
            match waits {
                Waits::Spinning => {
                    while !is_done() {
                        spin();
                    }
                }
                Waits::Parked => {
                    while !is_done() {
                        self.sleep(me, &is_done);
                    }
                }
            }
        }

        fn wake_if_asleep(&self, id: usize) {
            let member = &self.members[id];
            if !member.is_asleep.load(Ordering::Acquire) {
                return;
            }
            member.has_wakeup.store(true, Ordering::Release);
            self.order();
            if !member.is_asleep.load(Ordering::Acquire) {
                return;
            }
            let was_parked = {
                let mut parked = self.parked.lock().unwrap();
                let at = parked.iter().position(|there| *there == id);
                at.map(|at| parked.remove(at)).is_some()
            };
            if was_parked && member.wake_queue.push(id as u32) {
                member.event_count.wake();
            }
        }

        fn sleep(&self, me: usize, is_done: &dyn Fn() -> bool) {
            let member = &self.members[me];
            member.has_wakeup.store(false, Ordering::Release);
            member.is_asleep.store(true, Ordering::Release);
            self.order();
            let is_over = || is_done() || member.has_wakeup.load(Ordering::Acquire);
            while !is_over() {
                self.park(me, &is_over);
            }
            member.is_asleep.store(false, Ordering::Release);
            member.has_wakeup.store(false, Ordering::Release);
        }

        fn park(&self, me: usize, is_over: &dyn Fn() -> bool) {
            {
                let mut parked = self.parked.lock().unwrap();
                if is_over() {
                    return;
                }
                parked.push(me);
            }
            while self.parked.lock().unwrap().contains(&me) {
                self.block(me);
            }
        }

        /// The worker has nothing to run until its fiber is woken.
        fn block(&self, me: usize) {
            let Member {
                wake_queue,
                event_count,
                ..
            } = &self.members[me];
            let mut is_woken = false;
            while !is_woken {
                wake_queue.drain(|_| is_woken = true);
                if !is_woken {
                    event_count.sleep(u64::MAX, || !wake_queue.is_empty());
                }
            }
        }

        /// A member writes before each barrier and reads what the other one wrote behind it.
        fn run(&self, me: usize, waits: Waits, barriers: u32) {
            for round in 1..=barriers {
                self.members[me].written.set(round);
                self.pass(me, waits);
                assert_eq!(self.members[1 - me].written.get(), round);
                self.pass(me, waits);
            }
        }
    }

    fn meet(waits: [Waits; 2], is_ordered: bool) {
        check(2, move || {
            let team = Arc::new(Team::new(is_ordered));
            let other = {
                let team = team.clone();
                thread::spawn(move || team.run(1, waits[1], 1))
            };
            team.run(0, waits[0], 1);
            other.join().unwrap();
        });
    }

    #[test]
    fn barrier_of_members_that_spin() {
        meet([Waits::Spinning; 2], true);
    }

    #[test]
    fn barrier_of_one_that_spins_and_one_that_is_parked() {
        meet([Waits::Spinning, Waits::Parked], true);
    }

    #[test]
    fn barrier_of_members_that_are_parked() {
        meet([Waits::Parked; 2], true);
    }

    #[test]
    #[should_panic(expected = "exceeded maximum number of branches")]
    fn barrier_that_may_miss_a_sleeper_hangs() {
        meet([Waits::Parked; 2], false);
    }
}

/// Tasks with dependences: `enter`, `Predecessor::add`, `finish` and `release` of
/// `run/openmp/src/depend.rs`.
#[cfg(loom)]
mod dependences {
    use super::*;

    /// What is broken.
    #[derive(Clone, Copy, PartialEq)]
    enum Broken {
        Nothing,
        /// Who takes a predecessor away gives nothing on to the last one.
        Release,
        /// Predecessors are counted one by one, and the task does not stay until all are entered.
        Hold,
        /// Whether the predecessor is the same task is not asked again under its lock.
        SecondLook,
    }

    #[derive(Default)]
    struct Dependence {
        is_done: bool,
        /// Whether the task under test is a successor.
        has_successor: bool,
    }

    struct Node {
        serial: AtomicU32,
        dependence: Mutex<Dependence>,
        result: Watched,
    }

    struct Graph {
        predecessors: [Node; 2],
        pending: AtomicU32,
        held: Mutex<bool>,
        runs: AtomicU32,
        broken: Broken,
    }

    impl Graph {
        fn new(broken: Broken) -> Graph {
            let node = || Node {
                serial: AtomicU32::new(0),
                dependence: Mutex::default(),
                result: Watched::new(),
            };
            Graph {
                predecessors: [node(), node()],
                pending: AtomicU32::new(0),
                held: Mutex::new(false),
                runs: AtomicU32::new(0),
                broken,
            }
        }

        /// Enters the task behind all predecessors.
        fn enter(&self) {
            *self.held.lock().unwrap() = true;
            if self.broken == Broken::Hold {
                for node in &self.predecessors {
                    self.pending.fetch_add(1, Ordering::AcqRel);
                    if !self.add(node) {
                        self.release(1);
                    }
                }
                return;
            }
            let count = self.predecessors.len() as u32;
            self.pending.store(count + 1, Ordering::Relaxed);
            let is_over = |node: &&Node| !self.add(node);
            let over = self.predecessors.iter().filter(is_over).count() as u32;
            self.release(over + 1);
        }

        fn add(&self, node: &Node) -> bool {
            let is_alive = || node.serial.load(Ordering::Acquire) == 0;
            if !is_alive() {
                return false;
            }
            let mut dependence = node.dependence.lock().unwrap();
            let is_same = self.broken == Broken::SecondLook || is_alive();
            if !is_same || dependence.is_done {
                return false;
            }
            assert!(is_alive(), "entered behind another task");
            dependence.has_successor = true;
            true
        }

        /// A predecessor is over; its node is used for another task.
        fn finish(&self, node: &Node, value: u32) {
            node.result.set(value);
            let has_successor = {
                let mut dependence = node.dependence.lock().unwrap();
                dependence.is_done = true;
                std::mem::take(&mut dependence.has_successor)
            };
            if has_successor {
                self.release(1);
            }
            node.serial.store(1, Ordering::Release);
            node.dependence.lock().unwrap().is_done = false;
        }

        fn release(&self, count: u32) {
            let order = match self.broken {
                Broken::Release => Ordering::Relaxed,
                _ => Ordering::AcqRel,
            };
            if self.pending.fetch_sub(count, order) != count {
                return;
            }
            let is_held = std::mem::take(&mut *self.held.lock().unwrap());
            assert!(is_held, "released twice");
            // It runs: with what its predecessors have done.
            let results = self.predecessors.iter().map(|node| node.result.get());
            assert_eq!(results.sum::<u32>(), 3, "released early");
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn release(broken: Broken) {
        check(3, move || {
            let graph = Arc::new(Graph::new(broken));
            let others: Vec<_> = (0..2)
                .map(|at| {
                    let graph = graph.clone();
                    thread::spawn(move || graph.finish(&graph.predecessors[at], at as u32 + 1))
                })
                .collect();
            graph.enter();
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(graph.runs.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn dependence_of_a_task_is_released_once() {
        release(Broken::Nothing);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn dependence_that_passes_nothing_on_is_a_race() {
        release(Broken::Release);
    }

    #[test]
    #[should_panic(expected = "released early")]
    fn dependence_of_a_task_that_is_not_held_is_released_early() {
        release(Broken::Hold);
    }

    #[test]
    #[should_panic(expected = "entered behind another task")]
    fn dependence_on_a_node_that_is_used_again_is_noticed() {
        release(Broken::SecondLook);
    }
}

/// The life of an offer: a team is published, helped, retracted, and published again for the next
/// region.
#[cfg(loom)]
mod offers {
    use super::*;

    const MEMBERS: u32 = 3;

    struct Region {
        claims: Claims,
        input: Watched,
        results: [Watched; MEMBERS as usize],
        done: AtomicU32,
        /// With what a member that is over announces that.
        announces: Ordering,
    }

    impl Region {
        fn run(&self, member: u32) {
            let result = &self.results[member as usize];
            result.set(self.input.get() + member);
            self.done.fetch_add(1, self.announces);
        }
    }

    /// A team with one other worker, which may be late, in two regions.
    fn publish(announces: Ordering) {
        check(2, move || {
            let region = StdArc::new(Region {
                claims: Claims::new(MEMBERS, 2),
                input: Watched::new(),
                results: std::array::from_fn(|_| Watched::new()),
                done: AtomicU32::new(0),
                announces,
            });
            let shelf = Arc::new(Shelf::<Region, 1>::new());
            let late = || u64::MAX;
            let thief = {
                let shelf = shelf.clone();
                thread::spawn(move || {
                    let found = shelf.find(|_| true, |region| region.claims.has_unclaimed());
                    let Some(region) = found else { return };
                    // By what it saw of this region or, when it is late, of the next one.
                    while let Some(member) = region.claims.claim(1, true, || 0) {
                        region.run(member);
                    }
                })
            };
            let mut place = None;
            for round in [10, 20] {
                region.input.set(round);
                region.claims.open(0, false);
                region.claims.start_grace(0);
                let again = place.filter(|place| shelf.republish(*place, 1));
                let published = again.unwrap_or_else(|| {
                    let filled = shelf.fill(StdArc::clone(&region), 1);
                    filled.unwrap_or_else(|_| unreachable!("nothing else is here"))
                });
                region.run(0);
                while let Some(member) = region.claims.claim(0, true, late) {
                    region.run(member);
                }
                shelf.withdraw(published);
                place = Some(published);
                while region.done.load(Ordering::Acquire) != MEMBERS {
                    spin();
                }
                for (member, result) in (0..).zip(&region.results) {
                    assert_eq!(
                        result.get(),
                        round + member,
                        "each member ran in its region"
                    );
                }
                region.done.store(0, Ordering::Relaxed);
            }
            thief.join().unwrap();
        });
    }

    #[test]
    fn offer_of_a_team_is_helped_and_used_again() {
        publish(Ordering::AcqRel);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn offer_whose_helpers_tell_nothing_is_a_race() {
        publish(Ordering::Relaxed);
    }
}
