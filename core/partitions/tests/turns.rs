//! Random applications that come, end, are stopped late and change their priority, over random
//! nodes: after every step what must hold whatever the schedule decides.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use margay_core_partitions::{Order, Request, Scheduling, Turns};

/// A generator of numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

const QUANTUM_MS: u64 = 10;
const MS: u64 = 1_000_000;

/// What the test knows of an application, from the orders alone.
struct Known {
    request: Request,
    is_in: bool,
    /// It has been ordered out and is not stopped yet.
    leaves: bool,
    waits_since: u64,
}

struct World {
    turns: Turns,
    known: BTreeMap<u64, Known>,
    now: u64,
}

impl World {
    /// Takes the orders of this moment, and checks them.
    fn settle(&mut self) {
        loop {
            let orders = self.turns.decide(self.now);
            if orders.is_empty() {
                break;
            }
            for order in orders {
                match order {
                    Order::In(id) => {
                        let own = self.known.get_mut(&id).expect("it is there");
                        assert!(!own.is_in && !own.leaves, "{id} is in already");
                        own.is_in = true;
                    }
                    Order::Out(id) => {
                        let own = self.known.get_mut(&id).expect("it is there");
                        assert!(own.is_in && !own.leaves, "{id} is not in");
                        let is_gang = matches!(own.request.scheduling, Scheduling::Gang { .. });
                        assert!(is_gang, "{id} keeps its nodes to its end");
                        own.leaves = true;
                    }
                }
            }
        }
        // While somebody may keep it waiting for long, the wait does not count.
        let all: Vec<(u32, Scheduling)> = (self.known.values())
            .map(|own| (own.request.priority, own.request.scheduling))
            .collect();
        for own in self.known.values_mut() {
            let is_rival = |&(priority, scheduling): &(u32, Scheduling)| {
                scheduling == Scheduling::Space || priority > own.request.priority
            };
            if all.iter().any(is_rival) {
                own.waits_since = self.now;
            }
        }
        self.check();
    }

    fn nodes(&self, id: u64) -> Vec<u32> {
        self.turns.seen(id, self.now).expect("it is there").nodes
    }

    fn check(&self) {
        let mut taken: BTreeMap<u32, u64> = BTreeMap::new();
        for (&id, own) in &self.known {
            let seen = self.turns.seen(id, self.now).expect("it is there");
            assert_eq!(seen.is_in, own.is_in, "{id}");
            assert_eq!(seen.nodes.len(), own.request.size, "{id}");
            assert!(
                seen.nodes
                    .iter()
                    .all(|node| own.request.nodes.contains(node))
            );
            if own.is_in && own.request.scheduling != Scheduling::Standard {
                for node in &seen.nodes {
                    let other = taken.insert(*node, id);
                    assert_eq!(other, None, "node {node} has {id} as well");
                }
            }
            for (&other_id, other) in self.known.iter().filter(|(other, _)| **other != id) {
                if own.is_in && own.request.is_dedicated && other.is_in {
                    let shared = self.nodes(other_id);
                    let is_free = |node: &u32| !shared.contains(node);
                    assert!(seen.nodes.iter().all(is_free), "{other_id} is beside {id}");
                }
            }
        }
        for (&id, own) in self.known.iter().filter(|(_, own)| !own.is_in) {
            // Standard applications wait for dedicated nodes alone, and the turn of others comes.
            let is_standard = own.request.scheduling == Scheduling::Standard;
            let mut others = self.known.values();
            assert!(
                !is_standard || others.any(|other| other.request.is_dedicated),
                "{id}"
            );
            let longest = (self.known.len() as u64 + 1) * 2 * (QUANTUM_MS + 2) * MS;
            let waits = self.now - own.waits_since;
            assert!(waits <= longest, "{id} has waited for {} ms", waits / MS);
        }
    }
}

#[test]
fn a_hundred_thousand_steps_keep_nodes_apart_and_nobody_waiting() {
    let steps = if cfg!(miri) { 300 } else { 100_000 };
    let mut numbers = Numbers(42);
    let mut world = World {
        turns: Turns::default(),
        known: BTreeMap::new(),
        now: 0,
    };
    let (mut next, mut ins) = (0, 0);
    // Whole rounds without space sharing, in which waits are bounded.
    for step in 0..steps {
        let has_space = step / 2_000 % 2 == 1;
        if step % 2_000 == 0 {
            for id in std::mem::take(&mut world.known).into_keys() {
                world.turns.leave(id);
            }
        }
        match numbers.below(12) {
            0 | 1 if world.known.len() < 8 => {
                next += 1;
                let first = numbers.below(6) as u32;
                let nodes: Vec<u32> = (first..=first + numbers.below(3) as u32).collect();
                let scheduling = match numbers.below(8) {
                    0 => Scheduling::Standard,
                    1 if has_space => Scheduling::Space,
                    _ => Scheduling::Gang {
                        quantum_ms: QUANTUM_MS,
                    },
                };
                let request = Request {
                    size: 1 + numbers.below(nodes.len() as u64) as usize,
                    nodes,
                    priority: 4 + numbers.below(2) as u32,
                    scheduling,
                    is_dedicated: scheduling == Scheduling::Space && numbers.below(2) == 0,
                };
                // A standard application has all nodes of its partition.
                let size = match request.scheduling {
                    Scheduling::Standard => request.nodes.len(),
                    _ => request.size,
                };
                let request = Request { size, ..request };
                world.turns.join(next, request.clone(), world.now);
                let known = Known {
                    request,
                    is_in: false,
                    leaves: false,
                    waits_since: world.now,
                };
                world.known.insert(next, known);
            }
            2 if numbers.below(3) == 0 => {
                let at = numbers.below(world.known.len().max(1) as u64) as usize;
                if let Some(&id) = world.known.keys().nth(at) {
                    world.known.remove(&id);
                    world.turns.leave(id);
                }
            }
            _ => {
                // Those that leave are stopped within two milliseconds, and time goes on.
                let leaving: Vec<u64> = (world.known.iter())
                    .filter(|(_, own)| own.leaves)
                    .map(|(&id, _)| id)
                    .collect();
                world.now += numbers.below(2 * MS);
                for id in leaving {
                    let nodes = world.nodes(id);
                    world.turns.has_left(id, world.now);
                    assert_eq!(world.nodes(id), nodes, "it comes back to its nodes");
                    let own = world.known.get_mut(&id).expect("it is there");
                    (own.is_in, own.leaves, own.waits_since) = (false, false, world.now);
                    ins += 1;
                }
            }
        }
        world.settle();
    }
    assert!(cfg!(miri) || ins > 1_000, "{ins}");
}
