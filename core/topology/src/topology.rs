//! The machine as far as a process may use it.

use std::collections::BTreeMap;

use crate::list::parse_list;

/// A CPU that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The system's number of it.
    pub number: u32,
    /// The memory node to which it is attached.
    pub node: u32,
    /// Its core: the lowest number among the CPUs that share one.
    pub core: u32,
}

/// The usable CPUs and the distances between memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In ascending order of their numbers.
    cpus: Vec<Cpu>,
    /// All nodes that are online, in ascending order, with their distances to each.
    nodes: BTreeMap<u32, Vec<u32>>,
}

impl Topology {
    /// What `read` tells of the CPUs in `usable`. `read` gets paths below `/sys` and gives the text
    /// of the file, or none where there is none; what is not given is as on a machine with one node
    /// and one CPU a core.
    #[must_use]
    pub fn read(usable: &[u32], read: impl Fn(&str) -> Option<String>) -> Topology {
        let list = |path: &str| read(path).as_deref().and_then(parse_list);
        let online = list("devices/system/node/online").unwrap_or_default();
        let mut node_of = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for &node in &online {
            for cpu in list(&format!("devices/system/node/node{node}/cpulist")).unwrap_or_default()
            {
                node_of.insert(cpu, node);
            }
            let distances = read(&format!("devices/system/node/node{node}/distance"));
            let distances = distances.unwrap_or_default();
            let distances = distances.split_whitespace().filter_map(|d| d.parse().ok());
            nodes.insert(node, distances.collect());
        }
        if nodes.is_empty() {
            nodes.insert(0, vec![10]);
        }
        let mut numbers = usable.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let cpus = numbers.into_iter().map(|number| {
            let siblings = list(&format!(
                "devices/system/cpu/cpu{number}/topology/thread_siblings_list"
            ));
            let core = siblings.and_then(|all| all.into_iter().min());
            Cpu {
                number,
                node: node_of.get(&number).copied().unwrap_or_default(),
                core: core.unwrap_or(number),
            }
        });
        Topology {
            cpus: cpus.collect(),
            nodes,
        }
    }

    /// The usable CPUs, in ascending order.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The memory nodes that are online, in ascending order, usable or not.
    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.nodes.keys().copied()
    }

    /// Whether memory lies on more than one node, so that it matters on which.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// How far memory of node `to` is from node `from`, in the firmware's measure (10: the same
    /// node).
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let place = self.nodes.keys().position(|&node| node == to);
        let report = place.and_then(|p| self.nodes.get(&from)?.get(p).copied());
        report.unwrap_or(if from == to { 10 } else { 20 })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two nodes with four cores of two CPUs each, numbered as Linux numbers them on Intel's
    /// servers, and one without CPUs.
    pub(crate) fn two_nodes(path: &str) -> Option<String> {
        let cpu = path
            .strip_prefix("devices/system/cpu/cpu")
            .and_then(|rest| rest.strip_suffix("/topology/thread_siblings_list"));
        if let Some(cpu) = cpu {
            let core: u32 = cpu.parse::<u32>().ok()? % 8;
            return Some(format!("{core},{}\n", core + 8));
        }
        let text = match path {
            "devices/system/node/online" => "0-2\n",
            "devices/system/node/node0/cpulist" => "0-3,8-11\n",
            "devices/system/node/node1/cpulist" => "4-7,12-15\n",
            "devices/system/node/node2/cpulist" => "\n",
            "devices/system/node/node0/distance" => "10 21 40\n",
            "devices/system/node/node1/distance" => "21 10 17\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn nodes_and_cores_are_read() {
        let topology = Topology::read(&[9, 1, 12], two_nodes);
        let cpu = |number, node, core| Cpu { number, node, core };
        assert_eq!(topology.cpus(), [cpu(1, 0, 1), cpu(9, 0, 1), cpu(12, 1, 4)]);
        assert_eq!(topology.nodes().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(topology.has_nodes());
        assert_eq!((topology.distance(0, 1), topology.distance(1, 2)), (21, 17));
        assert_eq!((topology.distance(2, 2), topology.distance(2, 0)), (10, 20));
    }

    #[test]
    fn a_system_that_tells_nothing_has_one_node() {
        let topology = Topology::read(&[1, 0], |_| None);
        assert!(!topology.has_nodes());
        assert_eq!(topology.cpus().len(), 2);
        assert_eq!(topology.cpus()[1].core, 1);
    }
}
