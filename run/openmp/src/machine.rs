//! The machine's processors in groups, from `/sys`, for the abstract names of places.

use std::fs;

use margay_core_openmp::places::{Topology, Unit};
use margay_sys_os::cpu;

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Topology for Machine {
    fn usable(&self) -> Vec<usize> {
        cpu::affinity()
    }

    fn groups(&self, unit: Unit) -> Vec<Vec<usize>> {
        let usable = self.usable();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &cpu in &usable {
            if groups.iter().any(|group| group.contains(&cpu)) {
                continue;
            }
            let mut group = siblings(cpu, unit).unwrap_or_else(|| match unit {
                Unit::Threads | Unit::Cores => vec![cpu],
                _ => usable.clone(),
            });
            group.retain(|other| usable.contains(other));
            groups.push(group);
        }
        groups
    }
}

/// The processors that share a unit with `cpu`, if the system says which.
fn siblings(cpu: usize, unit: Unit) -> Option<Vec<usize>> {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}");
    let file = match unit {
        Unit::Threads => return Some(vec![cpu]),
        Unit::Cores => format!("{base}/topology/thread_siblings_list"),
        Unit::Sockets => format!("{base}/topology/core_siblings_list"),
        Unit::Caches => {
            let last = (0..8)
                .map(|index| format!("{base}/cache/index{index}"))
                .take_while(|index| fs::exists(index).unwrap_or(false))
                .last()?;
            format!("{last}/shared_cpu_list")
        }
        Unit::Nodes => {
            let nodes = fs::read_dir("/sys/devices/system/node").ok()?;
            return nodes
                .filter_map(|node| fs::read_to_string(node.ok()?.path().join("cpulist")).ok())
                .map(|list| parse(&list))
                .find(|list| list.contains(&cpu));
        }
    };
    let list = parse(&fs::read_to_string(file).ok()?);
    list.contains(&cpu).then_some(list)
}

/// `0-3,8` as numbers; what is none is left out.
fn parse(list: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_usable_processor_is_in_one_group_of_each_kind() {
        for unit in [
            Unit::Threads,
            Unit::Cores,
            Unit::Sockets,
            Unit::Caches,
            Unit::Nodes,
        ] {
            let mut all: Vec<usize> = Machine.groups(unit).concat();
            all.sort_unstable();
            assert_eq!(all, Machine.usable(), "{unit:?}");
        }
    }

    #[test]
    fn lists_of_the_system() {
        assert_eq!(parse("0-2,5\n"), [0, 1, 2, 5]);
        assert!(parse("").is_empty());
    }
}
