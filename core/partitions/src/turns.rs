//! Whose turn it is: gang scheduling and space sharing over the nodes of a machine.
//!
//! An application runs on all of its nodes or on none. At the end of its quantum it leaves its
//! nodes when another one of the same or a higher priority waits for some of them and can then run
//! on all of its own; otherwise it goes on. Who has waited longest comes first among equals. An
//! application that waits for the quanta of several others keeps its nodes from those that come
//! later, or small ones could pass it for ever; until it can run, one of them may fill a node that
//! is idle.
//!
//! The idea: the Paragon's scheduler (report KFA-ZAM-IB-9409, section 3.2). Time is handed in.

use std::collections::{BTreeMap, BTreeSet};

use crate::attributes::Scheduling;

/// What an application asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The nodes of its partition, ascending.
    pub nodes: Vec<u32>,
    /// How many of them it runs on: at least one, at most all.
    pub size: usize,
    pub priority: u32,
    pub scheduling: Scheduling,
    /// Its nodes are for it alone, also apart from those that share nodes as the system has it.
    pub is_dedicated: bool,
}

impl Request {
    /// Whether two applications may not run on a node at a time.
    fn excludes(&self, other: &Request) -> bool {
        let is_alone = |own: &Request| own.scheduling != Scheduling::Standard;
        self.is_dedicated || other.is_dedicated || (is_alone(self) && is_alone(other))
    }
}

/// A change that is to be brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The application runs from now on.
    In(u64),
    /// It is to be stopped; its nodes are free when [`Turns::has_left`] says so.
    Out(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Waits.
    Out,
    /// Runs; its quantum ends at that time.
    In { until_ns: u64 },
    /// Is being stopped.
    Leaving,
}

#[derive(Clone, Debug)]
struct Application {
    request: Request,
    /// Chosen, and kept from its first turn on.
    nodes: Vec<u32>,
    has_run: bool,
    turn: Turn,
    /// Since when it waits or runs.
    since_ns: u64,
    /// How long it ran in earlier turns.
    ran_ns: u64,
}

impl Application {
    /// Whether it shares its nodes with nobody.
    fn is_alone(&self) -> bool {
        self.request.scheduling != Scheduling::Standard
    }

    /// Whether it keeps one with this request from its nodes now.
    fn keeps_out(&self, request: &Request) -> bool {
        self.turn != Turn::Out && self.request.excludes(request)
    }

    fn quantum_ns(&self) -> Option<u64> {
        match self.request.scheduling {
            Scheduling::Gang { quantum_ms } => Some(quantum_ms * 1_000_000),
            _ => None,
        }
    }
}

/// What is known of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub nodes: Vec<u32>,
    pub is_in: bool,
    /// How long it has run in all.
    pub ran_ns: u64,
    pub priority: u32,
}

/// All applications that take turns, by numbers of the caller's.
#[derive(Clone, Debug, Default)]
pub struct Turns(BTreeMap<u64, Application>);

impl Turns {
    /// An application comes, and waits until an order says that it runs.
    pub fn join(&mut self, id: u64, request: Request, now_ns: u64) {
        self.renew(now_ns);
        let nodes = self.choose(&request);
        self.0.insert(
            id,
            Application {
                request,
                nodes,
                has_run: false,
                turn: Turn::Out,
                since_ns: now_ns,
                ran_ns: 0,
            },
        );
    }

    /// An application comes of which another instance of this schedule knew: it keeps its nodes,
    /// and runs or waits as it did.
    pub fn rejoin(&mut self, id: u64, request: Request, seen: Seen, now_ns: u64) {
        let mut application = Application {
            request,
            nodes: seen.nodes,
            has_run: true,
            turn: Turn::Out,
            since_ns: now_ns,
            ran_ns: seen.ran_ns,
        };
        if seen.is_in {
            let until_ns = now_ns.saturating_add(application.quantum_ns().unwrap_or(0));
            application.turn = Turn::In { until_ns };
        }
        self.0.insert(id, application);
    }

    /// An application has ended.
    pub fn leave(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// All processes of an application have been stopped: others may have its nodes.
    pub fn has_left(&mut self, id: u64, now_ns: u64) {
        if let Some(application) = self.0.get_mut(&id)
            && application.turn == Turn::Leaving
        {
            application.ran_ns += now_ns.saturating_sub(application.since_ns);
            application.since_ns = now_ns;
            application.turn = Turn::Out;
        }
    }

    /// The partition of an application has changed.
    pub fn adjust(&mut self, id: u64, priority: u32, scheduling: Scheduling) {
        if let Some(application) = self.0.get_mut(&id) {
            application.request.priority = priority;
            // An application shares its nodes until it ends, or never does.
            let is_alone = scheduling != Scheduling::Standard;
            if is_alone == application.is_alone() {
                application.request.scheduling = scheduling;
            }
        }
    }

    /// What an application does.
    #[must_use]
    pub fn seen(&self, id: u64, now_ns: u64) -> Option<Seen> {
        let application = self.0.get(&id)?;
        let is_in = application.turn != Turn::Out;
        let turn_ns = now_ns.saturating_sub(application.since_ns);
        Some(Seen {
            nodes: application.nodes.clone(),
            is_in,
            ran_ns: application.ran_ns + if is_in { turn_ns } else { 0 },
            priority: application.request.priority,
        })
    }

    /// The applications for whose nodes one waits.
    #[must_use]
    pub fn blockers(&self, id: u64) -> Vec<u64> {
        let Some(waiting) = self.0.get(&id) else {
            return Vec::new();
        };
        self.on(&waiting.request, &waiting.nodes)
    }

    /// When [`decide`](Self::decide) is to be called again although nothing happened.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let mut ends = Vec::new();
        for waiting in self.0.values().filter(|other| other.turn == Turn::Out) {
            for id in self.on(&waiting.request, &waiting.nodes) {
                let running = &self.0[&id];
                if let Turn::In { until_ns } = running.turn
                    && running.quantum_ns().is_some()
                    && running.request.priority <= waiting.request.priority
                {
                    ends.push(until_ns);
                }
            }
        }
        ends.into_iter().min()
    }

    /// Decides who runs from now on. What it orders is taken as done but for the nodes of those
    /// that are to be stopped.
    pub fn decide(&mut self, now_ns: u64) -> Vec<Order> {
        self.renew(now_ns);
        let mut orders = Vec::new();
        self.part(&mut orders);
        // Nodes of an application that waits for quanta to end, and of one for which others leave.
        let (mut held, mut promised) = (BTreeSet::new(), BTreeSet::new());
        for id in self.waiting() {
            let nodes = self.nodes_for(id);
            let Application { request, .. } = &self.0[&id];
            let (priority, is_alone) = (request.priority, self.0[&id].is_alone());
            let is_gang = self.0[&id].quantum_ns().is_some();
            if is_alone && nodes.iter().any(|node| promised.contains(node)) {
                continue;
            }
            let is_held = nodes.iter().any(|node| held.contains(node));
            let blockers = self.on(request, &nodes);
            if blockers.is_empty() {
                if !is_alone || !is_held || is_gang {
                    // Where somebody waits for a node it is only filled.
                    self.roll_in(id, nodes, (is_held && is_alone).then_some(now_ns), now_ns);
                    orders.push(Order::In(id));
                }
                continue;
            }
            let gives_way = |blocker: &u64| {
                let other = &self.0[blocker];
                other.turn == Turn::Leaving
                    || (other.quantum_ns().is_some() && other.request.priority <= priority)
            };
            if is_held || !blockers.iter().all(gives_way) {
                continue;
            }
            let is_over = |blocker: &u64| match self.0[blocker].turn {
                Turn::In { until_ns } => until_ns <= now_ns,
                _ => true,
            };
            if !blockers.iter().all(is_over) {
                held.extend(nodes);
                continue;
            }
            promised.extend(nodes);
            for blocker in blockers {
                self.roll_out(blocker, &mut orders);
            }
        }
        orders
    }

    fn roll_in(&mut self, id: u64, nodes: Vec<u32>, until_ns: Option<u64>, now_ns: u64) {
        if let Some(application) = self.0.get_mut(&id) {
            let quantum_ns = application.quantum_ns().unwrap_or(0);
            let until_ns = until_ns.unwrap_or(now_ns.saturating_add(quantum_ns));
            application.nodes = nodes;
            application.has_run = true;
            application.turn = Turn::In { until_ns };
            application.since_ns = now_ns;
        }
    }

    fn roll_out(&mut self, id: u64, orders: &mut Vec<Order>) {
        if let Some(application) = self.0.get_mut(&id)
            && application.turn != Turn::Leaving
        {
            application.turn = Turn::Leaving;
            orders.push(Order::Out(id));
        }
    }

    /// Applications that wait, in the order in which they are considered.
    fn waiting(&self) -> Vec<u64> {
        let waiting = self.0.iter().filter(|(_, own)| own.turn == Turn::Out);
        let mut waiting: Vec<_> = waiting
            .map(|(&id, own)| (u32::MAX - own.request.priority, own.since_ns, id))
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, id)| id).collect()
    }

    /// The nodes on which an application that waits would run now.
    fn nodes_for(&self, id: u64) -> Vec<u32> {
        let application = &self.0[&id];
        if application.has_run {
            return application.nodes.clone();
        }
        self.choose(&application.request)
    }

    /// The applications that keep one with this request from these nodes.
    fn on(&self, request: &Request, nodes: &[u32]) -> Vec<u64> {
        let overlaps = |own: &Application| own.nodes.iter().any(|n| nodes.binary_search(n).is_ok());
        let found = (self.0.iter()).filter(|(_, own)| own.keeps_out(request) && overlaps(own));
        found.map(|(&id, _)| id).collect()
    }

    /// Nodes that nobody has now, then those for which the fewest applications have been.
    fn choose(&self, request: &Request) -> Vec<u32> {
        let mut nodes = request.nodes.clone();
        if request.size >= nodes.len() {
            return nodes;
        }
        let mut load: BTreeMap<u32, u32> = BTreeMap::new();
        for own in self.0.values().filter(|own| own.has_run) {
            for &node in &own.nodes {
                *load.entry(node).or_default() += if own.keeps_out(request) { 1_000 } else { 1 };
            }
        }
        nodes.sort_by_key(|node| (load.get(node).copied().unwrap_or(0), *node));
        nodes.truncate(request.size);
        nodes.sort_unstable();
        nodes
    }

    /// Quanta that ended while nobody waited who could have followed begin anew.
    fn renew(&mut self, now_ns: u64) {
        let ended = |own: &Application| match (own.turn, own.quantum_ns()) {
            (Turn::In { until_ns }, Some(quantum)) if until_ns <= now_ns => {
                Some(until_ns + (now_ns - until_ns) / quantum * quantum + quantum)
            }
            _ => None,
        };
        let awaited = |own: &Application| {
            self.0.values().any(|other| {
                other.turn == Turn::Out
                    && other.is_alone()
                    && other.request.priority >= own.request.priority
                    && other
                        .nodes
                        .iter()
                        .any(|n| own.nodes.binary_search(n).is_ok())
            })
        };
        let renewed: Vec<(u64, u64)> = (self.0.iter())
            .filter_map(|(&id, own)| Some((id, ended(own).filter(|_| !awaited(own))?)))
            .collect();
        for (id, until_ns) in renewed {
            if let Some(application) = self.0.get_mut(&id) {
                application.turn = Turn::In { until_ns };
            }
        }
    }

    /// Parts applications that run on the same nodes, which can be after [`rejoin`](Self::rejoin)
    /// alone: the later ones leave.
    fn part(&mut self, orders: &mut Vec<Order>) {
        let mut taken = BTreeSet::new();
        let is_on = |own: &Application| own.is_alone() && own.turn != Turn::Out;
        let on_nodes = self.0.iter().filter(|(_, own)| is_on(own));
        let mut on_nodes: Vec<_> = on_nodes
            .map(|(&id, own)| (u64::MAX - own.ran_ns, id))
            .collect();
        on_nodes.sort_unstable();
        for (_, id) in on_nodes {
            let nodes = self.0[&id].nodes.clone();
            if nodes.iter().any(|node| taken.contains(node)) {
                self.roll_out(id, orders);
            } else {
                taken.extend(nodes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn gang(nodes: &[u32], priority: u32) -> Request {
        Request {
            nodes: nodes.to_vec(),
            size: nodes.len(),
            priority,
            scheduling: Scheduling::Gang { quantum_ms: 10 },
            is_dedicated: false,
        }
    }

    #[test]
    fn equals_take_turns_at_the_end_of_the_quantum() {
        let mut turns = Turns::default();
        turns.join(1, gang(&[0, 1], 5), 0);
        assert_eq!(turns.decide(0), [Order::In(1)]);
        assert_eq!(turns.next_ns(), None);
        // In the middle of the third quantum.
        turns.join(2, gang(&[0, 1], 5), 25 * MS);
        assert_eq!(turns.decide(25 * MS), []);
        assert_eq!(turns.next_ns(), Some(30 * MS));
        assert_eq!(turns.decide(30 * MS), [Order::Out(1)]);
        assert_eq!(turns.decide(30 * MS), []);
        turns.has_left(1, 30 * MS);
        assert_eq!(turns.decide(30 * MS), [Order::In(2)]);
        assert_eq!(turns.seen(1, 35 * MS).unwrap().ran_ns, 30 * MS);
        turns.leave(2);
        assert_eq!(turns.decide(35 * MS), [Order::In(1)]);
    }

    #[test]
    fn a_lower_priority_waits_and_a_higher_one_comes_at_the_end_of_the_quantum() {
        let mut turns = Turns::default();
        turns.join(1, gang(&[0], 5), 0);
        turns.decide(0);
        turns.join(2, gang(&[0], 4), 0);
        assert_eq!(turns.decide(100 * MS), []);
        turns.join(3, gang(&[0], 6), 101 * MS);
        assert_eq!(turns.decide(101 * MS), []);
        assert_eq!(turns.decide(110 * MS), [Order::Out(1)]);
    }

    #[test]
    fn space_is_shared_and_its_nodes_are_kept() {
        let mut turns = Turns::default();
        let space = |size| Request {
            size,
            scheduling: Scheduling::Space,
            ..gang(&[0, 1, 2], 5)
        };
        turns.join(1, space(1), 0);
        turns.join(2, space(2), 0);
        turns.join(3, space(1), 0);
        assert_eq!(turns.decide(0), [Order::In(1), Order::In(2)]);
        assert_eq!(turns.seen(2, 0).unwrap().nodes, [1, 2]);
        assert_eq!(turns.decide(1_000_000 * MS), []);
        turns.leave(2);
        assert_eq!(turns.decide(1), [Order::In(3)]);
        assert_eq!(turns.seen(3, 0).unwrap().nodes, [1]);
    }

    #[test]
    fn dedicated_nodes_are_shared_with_nobody() {
        let mut turns = Turns::default();
        let shared = |size| Request {
            size,
            scheduling: Scheduling::Standard,
            ..gang(&[0, 1, 2], 5)
        };
        let dedicated = |size| Request {
            scheduling: Scheduling::Space,
            is_dedicated: true,
            ..shared(size)
        };
        turns.join(1, shared(1), 0);
        turns.join(2, dedicated(2), 0);
        turns.join(3, shared(1), 0);
        assert_eq!(
            turns.decide(0),
            [Order::In(1), Order::In(2), Order::In(3)],
            "each where it may be"
        );
        assert_eq!(turns.seen(2, 0).unwrap().nodes, [1, 2]);
        assert_eq!(turns.seen(3, 0).unwrap().nodes, [0]);
        turns.join(4, dedicated(1), 1);
        turns.join(5, shared(3), 1);
        assert_eq!(turns.decide(1), []);
        assert_eq!(turns.blockers(4), [2], "the node of the fewest");
        assert_eq!(turns.blockers(5), [2]);
        turns.leave(1);
        assert_eq!(turns.decide(2), []);
        turns.leave(2);
        assert_eq!(turns.decide(3), [Order::In(4)]);
        turns.leave(4);
        assert_eq!(turns.decide(4), [Order::In(5)]);
    }

    #[test]
    fn small_ones_do_not_pass_a_large_one_for_ever() {
        let mut turns = Turns::default();
        turns.join(1, gang(&[0], 5), 0);
        turns.decide(0);
        turns.join(2, gang(&[1], 5), 5 * MS);
        turns.decide(5 * MS);
        turns.join(3, gang(&[0, 1], 5), 6 * MS);
        turns.join(4, gang(&[0], 5), 7 * MS);
        // The first goes on until the second's quantum has ended.
        assert_eq!(turns.decide(10 * MS), []);
        assert_eq!(turns.decide(15 * MS), [Order::Out(1), Order::Out(2)]);
        turns.has_left(1, 15 * MS);
        assert_eq!(turns.decide(15 * MS), [], "node 0 is promised");
        turns.has_left(2, 15 * MS);
        assert_eq!(turns.decide(15 * MS), [Order::In(3)]);
    }

    #[test]
    fn an_idle_node_is_filled_until_the_large_one_can_run() {
        let mut turns = Turns::default();
        turns.join(1, gang(&[0], 5), 0);
        turns.decide(0);
        turns.join(2, gang(&[0, 1], 5), MS);
        turns.join(3, gang(&[1], 5), 2 * MS);
        assert_eq!(turns.decide(2 * MS), [Order::In(3)]);
        assert_eq!(turns.decide(10 * MS), [Order::Out(1), Order::Out(3)]);
    }
}
