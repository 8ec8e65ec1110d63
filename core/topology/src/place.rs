//! Which thread of which process gets which CPU.

use std::collections::BTreeSet;

use crate::topology::{Cpu, Topology};

/// A thread's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The process, from 0.
    pub process: u32,
    /// The thread of the process, from 0.
    pub thread: u32,
    /// Its CPU.
    pub cpu: Cpu,
}

/// Places `threads[p]` threads of each process p: counts up through the usable CPUs, node by node.
/// While there are cores enough, every thread gets a core; a second CPU of a core is used only when
/// there are not. With more threads than CPUs the count begins again, so that CPUs have as equal
/// numbers of threads as possible.
///
/// Empty when no CPU is usable.
#[must_use]
pub fn place(topology: &Topology, threads: &[u32]) -> Vec<Placement> {
    let total: usize = threads.iter().map(|&t| t as usize).sum();
    let mut cpus = topology.cpus().to_vec();
    cpus.sort_by_key(|cpu| (cpu.node, cpu.core, cpu.number));
    let mut seen = BTreeSet::new();
    let first: Vec<Cpu> = cpus
        .iter()
        .copied()
        .filter(|cpu| seen.insert(cpu.core))
        .collect();
    if total <= first.len() {
        cpus = first;
    }
    let placements = threads.iter().zip(0..).flat_map(|(&threads, process)| {
        let placement = move |thread| (process, thread);
        (0..threads).map(placement)
    });
    let placements = placements.zip(cpus.iter().cycle());
    placements
        .map(|((process, thread), &cpu)| Placement {
            process,
            thread,
            cpu,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::two_nodes;

    fn numbers(topology: &Topology, threads: &[u32]) -> Vec<u32> {
        place(topology, threads)
            .iter()
            .map(|s| s.cpu.number)
            .collect()
    }

    /// Figure 4 of the paper: thread 1 of process 2 runs on CPU 9 when the first process has 8
    /// threads, and with two CPUs a node, counted from the paper's 1, that is on another node than
    /// CPU 1.
    #[test]
    fn the_papers_example() {
        let read = |path: &str| match path {
            "devices/system/node/online" => Some("0-31".into()),
            path => {
                let node = path.strip_prefix("devices/system/node/node")?;
                let node: u32 = node.strip_suffix("/cpulist")?.parse().ok()?;
                Some(format!("{}-{}", 2 * node, 2 * node + 1))
            }
        };
        let topology = Topology::read(&(0..64).collect::<Vec<_>>(), read);
        let placements = place(&topology, &[8, 13, 16]);
        let placement = placements.iter().find(|s| (s.process, s.thread) == (1, 1));
        assert_eq!(
            placement.map(|s| (s.cpu.number, s.cpu.node)),
            Some((9, 4)),
            "{placements:?}"
        );
        assert_eq!(
            numbers(&topology, &[8, 13, 16]),
            (0..37).collect::<Vec<_>>()
        );
    }

    #[test]
    fn cores_first_then_their_second_cpus_node_by_node() {
        let topology = Topology::read(&(0..16).collect::<Vec<_>>(), two_nodes);
        assert_eq!(numbers(&topology, &[3, 3]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            numbers(&topology, &[5, 5]),
            [0, 8, 1, 9, 2, 10, 3, 11, 4, 12],
            "two CPUs of a core belong to neighbours in the count"
        );
    }

    #[test]
    fn only_cpus_of_the_inherited_set_are_used() {
        let topology = Topology::read(&[2, 6, 14], two_nodes);
        assert_eq!(numbers(&topology, &[1, 1]), [2, 6]);
        assert_eq!(numbers(&topology, &[1, 2]), [2, 6, 14]);
    }

    #[test]
    fn more_threads_than_cpus_begin_again() {
        let topology = Topology::read(&[0, 1], |_| None);
        assert_eq!(numbers(&topology, &[1, 2, 2]), [0, 1, 0, 1, 0]);
        assert_eq!(numbers(&Topology::read(&[], |_| None), &[2]), []);
    }
}
