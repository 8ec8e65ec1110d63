//! Where the tasks of `poe` run: on this machine, on the hosts of a file, or on those of a batch
//! system's job.

use margay_job_launch::hosts::is_this_machine;
use margay_job_launch::plan::{Hosts, Job};
use margay_job_launch::report::host_name;
use margay_sys_os::cpu;

use super::PoeOptions;
use super::pools::{self, PoolOptions};
use crate::allocation::Allocation;
use crate::hosts::with_places;

/// The hosts of a host file, that of one task on each line, or the pool that its lines name; none
/// where there is no file.
#[derive(Clone, Debug, Default)]
pub struct HostFile {
    pub hosts: Vec<String>,
    pub pool: Option<PoolOptions>,
    /// Those that name a pool.
    pub lines: u32,
}

/// Reads the hosts of a host file. Behind a name there may be words for the switch.
pub fn host_file(path: &str) -> Result<HostFile, String> {
    let mut file = HostFile::default();
    if path.is_empty() || path == "NULL" {
        return Ok(file);
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read it: {e}"))?;
    for line in text.lines() {
        match line.split_whitespace().next() {
            None => {}
            Some(word) if word.starts_with(['!', '*', '#']) => {}
            Some(word) if word.starts_with('@') => {
                pools::line(line, &mut file.pool)?;
                file.lines += 1;
            }
            Some(word) => file.hosts.push(word.to_owned()),
        }
    }
    match (&file.pool, file.hosts.first()) {
        (Some(_), Some(host)) => Err(format!(
            "it names pools (@) and the host '{host}'; name either, one on each line"
        )),
        _ => Ok(file),
    }
}

/// The number of tasks, where the options say it, and the hosts, where they are not this machine
/// alone. `given` are those that a batch system has given, which count where no file names any.
pub fn places(
    options: &PoeOptions,
    given: Option<&Allocation>,
) -> Result<(Option<u32>, Option<Hosts>), String> {
    let file = options
        .host_file
        .as_ref()
        .map_or(&[][..], |file| &file.hosts);
    let given = given.filter(|_| file.is_empty());
    let places = match given {
        Some(given) => given.list.places(None),
        None => file.iter().map(|name| (name.clone(), 1)).collect(),
    };
    let mut names: Vec<&String> = Vec::new();
    for (host, _) in &places {
        if !names.contains(&host) {
            names.push(host);
        }
    }
    let nodes = options.nodes.unwrap_or(names.len().max(1) as u32);
    if nodes as usize > names.len().max(1) {
        let remedy = match given {
            Some(_) => "ask for more when you submit the job",
            None => "name more in a file (-hostfile FILE), or a pool (-rmpool POOL)",
        };
        return Err(format!(
            "-nodes {nodes}: there are {} hosts; {remedy}",
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
    let all: u32 = places.iter().map(|(_, places)| places).sum();
    if names.iter().all(|host| is_this_machine(host))
        && places.iter().all(|(host, _)| is_this_machine(host))
    {
        return Ok((tasks.or(given.map(|_| all)), None));
    }
    let list: Vec<(String, u32)> = match (each, options.nodes, tasks) {
        // As many on each node as fit.
        (Some(each), _, _) => names.iter().map(|&name| (name.clone(), each)).collect(),
        (None, Some(nodes), Some(tasks)) => {
            let each = tasks.div_ceil(nodes);
            names.iter().map(|&name| (name.clone(), each)).collect()
        }
        (None, Some(_), None) if given.is_some() => {
            let is_chosen = |(name, _): &(String, u32)| names.contains(&name);
            places
                .iter()
                .filter(|own| is_chosen(own))
                .cloned()
                .collect()
        }
        _ => places,
    };
    let places: u32 = list.iter().map(|(_, places)| places).sum();
    let tasks = tasks.unwrap_or(places);
    if tasks > places && given.is_none() {
        return Err(format!(
            "the host file has {places} lines for {tasks} tasks; add lines, or use -tasks_per_node"
        ));
    }
    let shell = given.and_then(|given| given.shell);
    Ok((Some(tasks), with_places(list, shell)))
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
