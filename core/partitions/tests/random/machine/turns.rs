//! The applications of a machine's jobs, which take turns in partitions.

use std::collections::{BTreeMap, BTreeSet};

use margay_core_partitions::{Order, Request, Right, Scheduling};

use super::World;
use crate::plain::{Numbers, random_path, split, users};

/// An application as the plain model has it.
pub(super) struct Application {
    pub(super) job: u64,
    pub(super) path: Vec<String>,
    pub(super) asked: u32,
    pub(super) request: Request,
    pub(super) is_in: bool,
    pub(super) leaves: bool,
}

impl World {
    /// The applications of a job end with it.
    pub(super) fn leave(&mut self, job: u64) {
        let of_it = self.applications.iter().filter(|(_, own)| own.job == job);
        for id in of_it.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.turns.leave(id);
            self.applications.remove(&id);
        }
    }

    /// A running job starts an application in a partition, if its user may.
    pub(super) fn join(&mut self, job: u64, numbers: &mut Numbers) {
        let caller = &users()[self.of(job).user];
        let path = match numbers.below(4) {
            0 => split(&random_path(numbers)),
            _ => self.model.some(numbers).to_vec(),
        };
        let name = format!(".{}", path.join("."));
        let real = self.table.find(caller, &name, Right::Run);
        let known = self.model.runs(caller, &path);
        assert_eq!(real.is_ok(), known.is_some(), "{name} {real:?}");
        let (Ok((_, partition)), Some(known)) = (real, known) else {
            self.counts.refused += 1;
            return;
        };
        let nodes: BTreeSet<u32> = partition.nodes.iter().copied().collect();
        assert_eq!(nodes, known.nodes);
        let asked = numbers.below(11) as u32;
        let size = match known.scheduling {
            Scheduling::Standard => nodes.len(),
            _ => 1 + numbers.below(nodes.len()),
        };
        let request = Request {
            nodes: nodes.into_iter().collect(),
            size,
            priority: asked.min(self.model.priority_limit(&path)),
            scheduling: known.scheduling,
            is_dedicated: false,
        };
        self.next_application += 1;
        let id = self.next_application;
        self.turns.join(id, request.clone(), self.now_ns);
        let own = Application {
            job,
            path,
            asked,
            request,
            is_in: false,
            leaves: false,
        };
        self.applications.insert(id, own);
    }

    /// Gives applications what has changed of their partitions.
    pub(super) fn refresh(&mut self) {
        for (id, own) in &mut self.applications {
            let Some(scheduling) = self.model.scheduling(&own.path) else {
                continue;
            };
            own.request.priority = own.asked.min(self.model.priority_limit(&own.path));
            let is_alone = |scheduling| scheduling != Scheduling::Standard;
            if is_alone(scheduling) == is_alone(own.request.scheduling) {
                own.request.scheduling = scheduling;
            }
            self.turns.adjust(*id, own.request.priority, scheduling);
        }
    }

    /// Takes the orders of this moment, and checks them.
    pub(super) fn turn(&mut self, step: usize) {
        loop {
            let orders = self.turns.decide(self.now_ns);
            for order in &orders {
                let (Order::In(id) | Order::Out(id)) = order;
                let own = &self.applications[id];
                let is_out = matches!(order, Order::Out(_));
                assert_eq!(
                    (own.is_in, own.leaves),
                    (is_out, false),
                    "step {step}: {id}"
                );
                if is_out {
                    let is_gang = matches!(own.request.scheduling, Scheduling::Gang { .. });
                    assert!(is_gang, "step {step}: {id} has no turns");
                    self.is_wanted(step, *id);
                }
                let own = self.applications.get_mut(id).unwrap();
                (own.is_in, own.leaves) = (true, is_out);
                self.counts.turns += usize::from(is_out);
            }
            if orders.is_empty() {
                break;
            }
        }
        let mut taken: BTreeMap<u32, u64> = BTreeMap::new();
        for (&id, own) in &self.applications {
            assert!(self.of(own.job).is_running(), "step {step}: {id}");
            let seen = self.turns.seen(id, self.now_ns).unwrap();
            assert_eq!(seen.is_in, own.is_in, "step {step}: {id}");
            assert_eq!(seen.priority, own.request.priority, "step {step}: {id}");
            assert_eq!(seen.nodes.len(), own.request.size);
            assert!(
                seen.nodes
                    .iter()
                    .all(|node| own.request.nodes.contains(node))
            );
            if own.request.scheduling == Scheduling::Standard {
                assert!(own.is_in, "step {step}: {id} waits for nobody");
            } else if own.is_in {
                for node in seen.nodes {
                    let other = taken.insert(node, id);
                    assert_eq!(other, None, "step {step}: node {node} has {id} as well");
                }
            }
        }
        self.check_idle(step, &taken);
    }

    /// An application leaves its nodes for others of the same or a higher priority alone.
    fn is_wanted(&self, step: usize, id: u64) {
        let own = &self.applications[&id].request;
        let is_rival = |other: &Application| {
            let is_alone = other.request.scheduling != Scheduling::Standard;
            let shares = other
                .request
                .nodes
                .iter()
                .any(|node| own.nodes.contains(node));
            is_alone && !other.is_in && shares && other.request.priority >= own.priority
        };
        let is_wanted = self.applications.values().any(is_rival);
        assert!(is_wanted, "step {step}: {id} leaves for nobody");
    }

    /// Nobody waits whose nodes are idle and wanted by nobody else who waits.
    fn check_idle(&self, step: usize, taken: &BTreeMap<u32, u64>) {
        let waiting = self.applications.iter().filter(|(_, own)| !own.is_in);
        for (id, own) in waiting.clone() {
            let nodes = &own.request.nodes;
            let shares =
                |other: &Application| other.request.nodes.iter().any(|n| nodes.contains(n));
            let is_contended = waiting
                .clone()
                .any(|(other, own)| other != id && shares(own));
            let is_idle = !nodes.iter().any(|node| taken.contains_key(node));
            assert!(
                is_contended || !is_idle,
                "step {step}: {id} waits for nobody"
            );
        }
    }
}
