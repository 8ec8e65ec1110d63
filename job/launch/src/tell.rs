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
        lines.push(allocation(job, cores));
    }
    if job.tell.map {
        lines.extend(map(job, counts));
    }
    if job.report_bindings {
        lines.extend(bindings(job, placement));
    }
    lines
}

fn allocation(job: &Job, cores: &Cores) -> String {
    let Cores { mask, usable } = cores;
    let many = if mask.len() == 1 { "core" } else { "cores" };
    let quota = match usable {
        usable if *usable < mask.len() => format!(", of which a quota allows {usable}"),
        _ => String::new(),
    };
    format!(
        "{}: host {}: {many} {}{quota}; any number of ranks",
        job.launcher,
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
            format!("{}: host {host}: {ranks}: {command}", job.launcher)
        })
        .collect()
}

fn bindings(job: &Job, placement: &Placement) -> Vec<String> {
    let name = &job.launcher;
    if let Some(why) = &placement.unbound_because {
        let many = match placement.cores.len() {
            1 => "the rank is",
            _ => "the ranks are",
        };
        return vec![format!("{name}: {many} not bound: {why}")];
    }
    let host = host_name();
    let ranks = placement.cores.iter().enumerate();
    ranks
        .map(|(rank, cores)| {
            let many = if cores.len() == 1 { "core" } else { "cores" };
            format!("{name}: rank {rank} on {host}: {many} {}", ranges(cores))
        })
        .collect()
}
