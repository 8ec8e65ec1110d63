//! Where the tasks of `poe` run: on this machine, or on the hosts of a file.

use std::ffi::OsString;

use margay_job_launch::hosts::is_this_machine;
use margay_job_launch::plan::{Hosts, Job};
use margay_job_launch::report::host_name;
use margay_sys_os::cpu;

use super::PoeOptions;

/// The hosts of a host file, that of one task on each line; none where there is no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFile(Vec<String>);

/// Reads the hosts of a host file. Behind a name there may be words for the switch.
pub fn host_file(path: &str) -> Result<HostFile, String> {
    if path.is_empty() || path == "NULL" {
        return Ok(HostFile::default());
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read it: {e}"))?;
    let hosts = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|host| !host.starts_with(['!', '*', '#']))
        .map(|host| match host.strip_prefix('@') {
            Some(pool) => Err(format!(
                "there is no pool '{pool}'; name hosts, one on each line"
            )),
            None => Ok(host.to_owned()),
        });
    hosts.collect::<Result<_, _>>().map(HostFile)
}

/// The number of tasks, where the options say it, and the hosts, where they are not this machine
/// alone.
pub fn places(options: &PoeOptions) -> Result<(Option<u32>, Option<Hosts>), String> {
    let file = options.host_file.as_ref().map_or(&[][..], |file| &file.0);
    let mut names: Vec<&String> = Vec::new();
    for host in file {
        if !names.contains(&host) {
            names.push(host);
        }
    }
    let nodes = options.nodes.unwrap_or(names.len().max(1) as u32);
    if nodes as usize > names.len().max(1) {
        return Err(format!(
            "-nodes {nodes}: there are {} hosts; name more in a file (-hostfile FILE)",
            names.len().max(1)
        ));
    }
    names.truncate(nodes as usize);
    let each = options.tasks_per_node;
    let product = each.map(|each| each.saturating_mul(nodes));
    let tasks = match (options.procs, product) {
        (Some(tasks), Some(product)) if tasks != product => {
            return Err(format!(
                "-procs {tasks} and -tasks_per_node {} on {nodes} nodes contradict each other; leave one out",
                each.unwrap_or(0)
            ));
        }
        (tasks, product) => tasks.or(product),
    };
    if file.iter().all(|host| is_this_machine(host)) {
        return Ok((tasks, None));
    }
    let list: Vec<(String, u32)> = match (each, options.nodes, tasks) {
        // As many on each node as fit.
        (Some(each), _, _) => names.iter().map(|&name| (name.clone(), each)).collect(),
        (None, Some(nodes), Some(tasks)) => {
            let each = tasks.div_ceil(nodes);
            names.iter().map(|&name| (name.clone(), each)).collect()
        }
        _ => file.iter().map(|name| (name.clone(), 1)).collect(),
    };
    let places: u32 = list.iter().map(|(_, places)| places).sum();
    let tasks = tasks.unwrap_or(places);
    if tasks > places {
        return Err(format!(
            "the host file has {places} lines for {tasks} tasks; add lines, or use -tasks_per_node"
        ));
    }
    let hosts = Hosts {
        list,
        shell: Hosts::SHELL.map(OsString::from).to_vec(),
        ..Hosts::default()
    };
    Ok((Some(tasks), Some(hosts)))
}

/// The host of each task, on a line.
pub fn names(job: &Job) -> String {
    let counts: Vec<u32> = (job.programs.iter())
        .map(|program| program.ranks.unwrap_or(cpu::usable_cores() as u32))
        .collect();
    let hosts = match &job.hosts {
        Some(hosts) => {
            let (names, of_rank) = hosts.assign(&counts);
            of_rank
                .iter()
                .map(|&host| names[host as usize].clone())
                .collect()
        }
        None => vec![host_name(); counts.iter().sum::<u32>() as usize],
    };
    hosts.join("\n") + "\n"
}
