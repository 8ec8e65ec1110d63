//! What the launcher tells before the ranks start: hosts, ranks and bindings.

use crate::binding::{Cores, Placement, ranges};
use crate::plan::Job;
use crate::report::host_name;

/// Returns what the user asked for, line by line.
pub(crate) fn lines(
    job: &Job,
    counts: &[u32],
    placement: &Placement,
    cores: &Cores,
) -> Vec<String> {
    let mut lines = Vec::new();
    if job.tell.allocation {
        lines.push(allocation(cores));
    }
    if job.tell.map {
        lines.extend(map(job, counts));
    }
    if job.report_bindings {
        lines.extend(bindings(placement, 0..));
    }
    let named = lines.iter().map(|line| format!("{}: {line}", job.launcher));
    named.collect()
}

/// The same of one of several hosts, where these ranks are. Which ranks are where is known without
/// it.
pub(crate) fn lines_of_host(
    job: &Job,
    ranks: impl Iterator<Item = u32>,
    placement: &Placement,
    cores: &Cores,
) -> Vec<String> {
    let mut lines = Vec::new();
    if job.tell.allocation {
        lines.push(allocation(cores));
    }
    if job.report_bindings {
        lines.extend(bindings(placement, ranks));
    }
    lines
}

fn allocation(cores: &Cores) -> String {
    let Cores { mask, usable } = cores;
    let many = if mask.len() == 1 { "core" } else { "cores" };
    let quota = match usable {
        usable if *usable < mask.len() => format!(", of which a quota allows {usable}"),
        _ => String::new(),
    };
    format!(
        "host {}: {many} {}{quota}; any number of ranks",
        host_name(),
        ranges(mask)
    )
}

fn map(job: &Job, counts: &[u32]) -> Vec<String> {
    let host = host_name();
    let mut first = 0;
    let programs = job.programs.iter().zip(counts);
    programs
        .map(|(program, &count)| {
            let ranks = match count {
                1 => format!("rank {first}"),
                _ => format!("ranks {first}-{}", first + count - 1),
            };
            first += count;
            let command = program.command.to_string_lossy();
            format!("host {host}: {ranks}: {command}")
        })
        .collect()
}

fn bindings(placement: &Placement, ranks: impl Iterator<Item = u32>) -> Vec<String> {
    let host = host_name();
    if let Some(why) = &placement.unbound_because {
        let (many, are) = match placement.cores.len() {
            1 => ("rank", "is"),
            _ => ("ranks", "are"),
        };
        return vec![format!("the {many} on {host} {are} not bound: {why}")];
    }
    let line = |(rank, cores): (u32, &Vec<usize>)| {
        let many = if cores.len() == 1 { "core" } else { "cores" };
        format!("rank {rank} on {host}: {many} {}", ranges(cores))
    };
    ranks.zip(&placement.cores).map(line).collect()
}
