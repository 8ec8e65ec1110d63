//! The parts of this machine: which cores belong to which socket, memory node and cache.

use std::fs;

use crate::plan::Unit;

/// Returns the cores of `mask` by the part of the machine to which they belong. `read` gives the
/// text of a file below `/sys/devices/system`; where the system does not tell, all cores belong to
/// one part (a core and a hardware thread: each to its own).
pub fn parts(unit: Unit, mask: &[usize], read: impl Fn(&str) -> Option<String>) -> Vec<Vec<usize>> {
    let read = |path: String| read(&path).map(|text| text.trim().to_owned());
    let in_cpu = |cpu: usize, path: &str| read(format!("cpu/cpu{cpu}/{path}"));
    let nodes: Vec<(usize, Vec<usize>)> = match unit {
        Unit::Numa => {
            let online = read("node/online".into()).and_then(|text| parse_list(&text).ok());
            let cpus = |node: usize| {
                let list = read(format!("node/node{node}/cpulist"))?;
                Some((node, parse_list(&list).ok()?))
            };
            online
                .unwrap_or_default()
                .into_iter()
                .filter_map(cpus)
                .collect()
        }
        _ => Vec::new(),
    };
    let cache = |cpu: usize, level: &str| {
        (0..8).find_map(|index| {
            let field = |name: &str| in_cpu(cpu, &format!("cache/index{index}/{name}"));
            (field("level")? == level).then(|| field("shared_cpu_list"))?
        })
    };
    let part_of = |cpu: usize| match unit {
        Unit::Host => None,
        Unit::Socket => in_cpu(cpu, "topology/physical_package_id"),
        Unit::Numa => {
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(&cpu));
            node.map(|(node, _)| node.to_string())
        }
        Unit::L3 => cache(cpu, "3"),
        Unit::L2 => cache(cpu, "2"),
        Unit::Core => {
            Some(in_cpu(cpu, "topology/thread_siblings_list").unwrap_or_else(|| cpu.to_string()))
        }
        Unit::Thread => Some(cpu.to_string()),
    };
    let mut parts: Vec<(Option<String>, Vec<usize>)> = Vec::new();
    for &cpu in mask {
        let part = part_of(cpu);
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, cpus)) => cpus.push(cpu),
            None => parts.push((part, vec![cpu])),
        }
    }
    parts.into_iter().map(|(_, cpus)| cpus).collect()
}

/// Reads a list of cores: `0,2,4-7`.
///
/// # Errors
/// When it is not one.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |t: &str| {
            t.trim()
                .parse::<usize>()
                .ok()
                .filter(|&c| c < 1 << 16)
                .ok_or_else(|| format!("'{part}' is not a core or a range of cores"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the range '{part}' runs backwards"));
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// Returns the text of a file below `/sys/devices/system`.
#[must_use]
pub fn read(path: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/{path}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores with two threads each, numbered as Linux does; a memory node and a
    /// cache for each socket.
    fn machine(path: &str) -> Option<String> {
        if let Some(node) = path.strip_prefix("node/") {
            let text = match node {
                "online" => "0-1",
                "node0/cpulist" => "0,1,4,5",
                "node1/cpulist" => "2,3,6,7",
                _ => return None,
            };
            return Some(format!("{text}\n"));
        }
        let (cpu, file) = path.strip_prefix("cpu/cpu")?.split_once('/')?;
        let core = cpu.parse::<usize>().ok()? % 4;
        let text = match file {
            "topology/physical_package_id" => (core / 2).to_string(),
            "topology/thread_siblings_list" => format!("{core},{}", core + 4),
            "cache/index0/level" => "1".into(),
            "cache/index1/level" => "3".into(),
            "cache/index1/shared_cpu_list" => ["0,1,4,5", "2,3,6,7"][core / 2].into(),
            _ => return None,
        };
        Some(text)
    }

    #[test]
    fn parts_are_as_the_system_tells() {
        let all: Vec<usize> = (0..8).collect();
        let sockets = [vec![0, 1, 4, 5], vec![2, 3, 6, 7]];
        for unit in [Unit::Socket, Unit::Numa, Unit::L3] {
            assert_eq!(parts(unit, &all, machine), sockets, "{unit:?}");
        }
        assert_eq!(parts(Unit::Core, &all, machine).len(), 4);
        assert_eq!(parts(Unit::Thread, &all, machine).len(), 8);
        assert_eq!(parts(Unit::Host, &all, machine)[0], all);
        assert_eq!(parts(Unit::L2, &all, machine).len(), 1);
        assert_eq!(parts(Unit::Socket, &[1, 6], machine), [[1], [6]]);
    }

    #[test]
    fn lists_of_cores_and_their_errors() {
        assert_eq!(parse_list("0,2,4-6").unwrap(), [0, 2, 4, 5, 6]);
        assert!(parse_list("3-1").is_err());
        assert!(parse_list("x").is_err());
        assert!(parse_list("0,").is_err());
    }

    #[test]
    fn where_nothing_is_given_there_is_one_part() {
        assert_eq!(parts(Unit::Numa, &[0, 1], |_| None), [[0, 1]]);
        assert_eq!(parts(Unit::Core, &[0, 1], |_| None), [[0], [1]]);
    }
}
