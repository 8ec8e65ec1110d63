//! What programs ask for, as numbers, one a line: NX's calls read them.

use std::fmt::Write as _;

use margay_core_partitions::{ROOT, Right, Scheduling, Table};
use margay_core_topology::parse_list;
use margay_job_partitions::Store;

use crate::machine;

/// Answers a question.
///
/// # Errors
/// When there is no such partition or question.
pub fn answer(store: &Store, table: &Table, what: &str, name: &str) -> Result<String, String> {
    let numbers: Vec<i64> = match what {
        "node" => node(store, table, name)?,
        "failed" => failed(table),
        _ => of_partition(store, table, what, name)?
            .into_iter()
            .map(|number| number as i64)
            .collect(),
    };
    let mut text = String::new();
    for number in numbers {
        let _ = writeln!(text, "{number}");
    }
    Ok(text)
}

/// The nodes that are hosts which are not there, as far as the queue's head knows.
fn failed(table: &Table) -> Vec<i64> {
    let Ok(down) = machine::down(table.hosts().map(|(_, name)| name)) else {
        return Vec::new();
    };
    let all = table.hosts();
    all.filter(|(_, name)| down.iter().any(|down| down == name))
        .map(|(node, _)| node.into())
        .collect()
}

/// The fields of `nx_node_info_t`.
fn node(store: &Store, table: &Table, number: &str) -> Result<Vec<i64>, String> {
    let shape = table.shape();
    let is_here = |&node: &u32| node < shape.nodes();
    let is_host = |&node: &u32| table.hosts().any(|(host, _)| host == node);
    let node = (number.parse().ok()).filter(|node| is_here(node) || is_host(node));
    let node: u32 = node.ok_or_else(|| {
        format!(
            "there is no node {}: the machine's have the numbers 0 to {}",
            number.escape_debug(),
            shape.nodes() - 1
        )
    })?;
    let place = |number: u32| if is_here(&node) { number.into() } else { -1 };
    let core = store
        .cores_of(&[node])
        .first()
        .map_or(-1, |&core| core as i64);
    let all = table.list(store.caller(), ROOT, true).unwrap_or_default();
    let having = all.iter().filter(|(_, own)| own.nodes.contains(&node));
    let applications = crate::applications(store, ROOT)?;
    let on_it = applications.iter().filter(|own| {
        let nodes = parse_list(&own.nodes).unwrap_or_default();
        own.is_in && nodes.contains(&node)
    });
    Ok(vec![
        node.into(),
        core,
        place(node / shape.columns),
        place(node % shape.columns),
        having.count() as i64,
        on_it.count() as i64,
        failed(table).contains(&i64::from(node)).into(),
    ])
}

/// What is asked of a partition.
fn of_partition(store: &Store, table: &Table, what: &str, name: &str) -> Result<Vec<u64>, String> {
    let right = if what == "cores" {
        Right::Run
    } else {
        Right::Read
    };
    let found = table.find(store.caller(), name, right);
    let (path, partition) = found.map_err(|refused| refused.to_string())?;
    let columns = table.shape().columns;
    Ok(match what {
        "cores" if partition.scheduling != Scheduling::Standard || !partition.slots.is_empty() => {
            return Err(format!(
                "a running program cannot choose the partition '{path}', in which applications take turns or have \
                 several hosts; start it there: mpiexec -pn {path} PROGRAM"
            ));
        }
        "cores" => {
            let cores = store.cores(partition);
            crate::attend::usable(&path, &cores)?;
            cores.into_iter().map(|core| core as u64).collect()
        }
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
    })
}
