//! What programs ask for, as numbers, one a line: NX's calls read them.

use std::fmt::Write as _;

use margay_core_partitions::{Right, Scheduling, Table};
use margay_core_topology::parse_list;
use margay_job_partitions::Store;

/// Answers a question.
///
/// # Errors
/// When there is no such partition or question.
pub fn answer(store: &Store, table: &Table, what: &str, name: &str) -> Result<String, String> {
    let found = table.find(store.caller(), name, Right::Read);
    let (path, partition) = found.map_err(|refused| refused.to_string())?;
    let columns = table.shape().columns;
    let numbers: Vec<u64> = match what {
        "nodes" => partition.nodes.iter().map(|&node| node.into()).collect(),
        "empty" => {
            let used = crate::applications(store, ".")?;
            let used = used.iter().filter_map(|own| parse_list(&own.nodes));
            let used: Vec<u32> = used.flatten().collect();
            let nodes = partition.nodes.iter();
            nodes
                .filter(|node| !used.contains(node))
                .map(|&node| node.into())
                .collect()
        }
        // The fields of `nx_part_info_t`.
        "attributes" => {
            let (kind, quantum_ms) = match partition.scheduling {
                Scheduling::Standard => (0, 0),
                Scheduling::Gang { quantum_ms } => (1, quantum_ms),
                Scheduling::Space => (2, 0),
            };
            let mode = u64::from_str_radix(&partition.mode.octal(), 8).unwrap_or(0);
            let rows = partition.nodes.iter().map(|node| node / columns);
            let across = partition.nodes.iter().map(|node| node % columns);
            let span = |all: &mut dyn Iterator<Item = u32>| {
                let all: Vec<u32> = all.collect();
                let (first, last) = (all.iter().min(), all.iter().max());
                u64::from(last.zip(first).map_or(0, |(last, first)| last - first + 1))
            };
            let (height, width) = (span(&mut rows.clone()), span(&mut across.clone()));
            let count = partition.nodes.len() as u64;
            let is_whole = height * width == count;
            vec![
                partition.owner.into(),
                partition.group.into(),
                mode,
                kind,
                quantum_ms,
                partition.priority_limit.into(),
                count,
                if is_whole { width } else { 0 },
                if is_whole { height } else { 0 },
                width,
                height,
            ]
        }
        // The fields of `nx_pspart_t`, one application after the other.
        "applications" => {
            let all = crate::applications(store, &path)?;
            let of = |own: &crate::show::Application| {
                let nodes = parse_list(&own.nodes).unwrap_or_default();
                [
                    own.pid.into(),
                    own.user.into(),
                    own.priority.into(),
                    own.is_in.into(),
                    own.ran_ms,
                    nodes.len() as u64,
                ]
            };
            all.iter().flat_map(of).collect()
        }
        _ => return Err(format!("no question is called '{}'", what.escape_debug())),
    };
    let mut text = String::new();
    for number in numbers {
        let _ = writeln!(text, "{number}");
    }
    Ok(text)
}
