//! `qmgr` and `pbsnodes`: the server, its queues and its nodes.

use std::io::{BufRead, stdin};

use margay_svc_queue_wire::{HostRow, Machine, QueueRow};

use super::qstat::clock;
use crate::common::{self, Done, print};
use crate::machine;
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const MANAGE: &[Known] = &[
    ('a', "", Nothing),
    ('c', "", Value),
    ('e', "", Nothing),
    ('n', "", Nothing),
    ('z', "", Nothing),
];

/// `qmgr`: commands of `-c`, or lines of the standard input.
///
/// # Errors
/// In words.
pub fn manage(words: &[String]) -> Done {
    let words = Words::divide(words, MANAGE)?;
    let machine = common::machine()?;
    if let Some(command) = words.value("c") {
        return obey(command, &machine).map(|()| 0);
    }
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match line.trim() {
            "quit" | "exit" | "q" => break,
            "" => {}
            command => obey(command, &machine)?,
        }
    }
    Ok(0)
}

fn server(machine: &Machine) -> Vec<(&'static str, String)> {
    vec![
        ("server_state", "Active".into()),
        ("server_host", machine.host.clone()),
        ("scheduling", "True".into()),
        (
            "default_queue",
            machine::default_queue(&machine::queues(machine)).into(),
        ),
        (
            "total_jobs",
            (machine.running + machine.waiting).to_string(),
        ),
    ]
}

fn queue(queue: &QueueRow) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("queue_type", "Execution".into()),
        ("resources_available.ncpus", queue.slots.to_string()),
    ];
    all.extend(rules(queue));
    all
}

/// The rules of a queue: its limits, where it has any, and whether it is open.
pub(super) fn rules(queue: &QueueRow) -> Vec<(&'static str, String)> {
    let rules = &queue.rules;
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let memory = |mib: Option<u64>| mib.map(|mib| format!("{mib}mb"));
    let of_all = |limit: Option<u32>| limit.map(|limit| format!("[o:PBS_ALL={limit}]"));
    let of_each = |limit: Option<u32>| limit.map(|limit| format!("[u:PBS_GENERIC={limit}]"));
    // A queue that is for some users or accounts asks for one of them.
    let has_users = !rules.users.is_empty();
    let limits = [
        (
            "Priority",
            (rules.priority != 0).then(|| rules.priority.to_string()),
        ),
        ("max_queued", of_all(rules.jobs)),
        ("max_queued", of_each(rules.jobs_of_user)),
        ("acl_user_enable", has_users.then(|| "True".into())),
        ("acl_users", has_users.then(|| rules.users.join(","))),
        ("resources_max.mem", memory(rules.most_memory_mib)),
        ("resources_max.ncpus", number(rules.most_slots)),
        ("resources_max.walltime", rules.most_limit_s.map(clock)),
        ("resources_default.mem", memory(rules.default_memory_mib)),
        (
            "resources_default.walltime",
            rules.default_limit_s.map(clock),
        ),
        ("max_run", of_all(rules.running)),
        ("max_run", of_each(rules.running_of_user)),
        ("max_run_res.ncpus", of_all(rules.used_slots)),
        ("max_run_res.ncpus", of_each(rules.used_slots_of_user)),
    ];
    let limits = limits.into_iter();
    let mut all: Vec<(&'static str, String)> = Vec::new();
    for (name, value) in limits.filter_map(|(name, value)| Some((name, value?))) {
        match all.last_mut().filter(|last| last.0 == name) {
            // The limits of all and of each stand in one list.
            Some((_, list)) => *list += &format!(", {value}"),
            None => all.push((name, value)),
        }
    }
    let shown = |is: bool| if is { "True" } else { "False" };
    all.push(("enabled", shown(rules.is_open).into()));
    all.push(("started", shown(rules.is_started).into()));
    all
}

/// What a command is about: its heading, and what is known of it.
type Object = (String, Vec<(&'static str, String)>);

/// The objects of a kind with these names; all where there are none, or `@default`.
fn objects(kind: char, names: &[&str], machine: &Machine) -> Result<Vec<Object>, String> {
    let queues = machine::queues(machine);
    let all: Vec<(String, Object)> = match kind {
        's' => {
            let heading = format!("Server {}", machine.host);
            return Ok(vec![(heading, server(machine))]);
        }
        'q' => (queues.iter())
            .map(|row| {
                let heading = format!("Queue {}", row.name);
                (row.name.clone(), (heading, queue(row)))
            })
            .collect(),
        _ => (machine::hosts(machine).iter())
            .map(|host| {
                let heading = format!("Node {}", host.name);
                (host.name.clone(), (heading, node(host, &queues)))
            })
            .collect(),
    };
    let is_known = |name: &str| all.iter().any(|own| own.0 == name);
    if let Some(other) = names.iter().find(|name| !is_known(name)) {
        let kind = if kind == 'q' { "queue" } else { "node" };
        return Err(format!("qmgr obj={other} svr=default: Unknown {kind}"));
    }
    let is_asked = |own: &(String, Object)| names.is_empty() || names.contains(&&*own.0);
    Ok(all.into_iter().filter(is_asked).map(|own| own.1).collect())
}

fn obey(command: &str, machine: &Machine) -> Result<(), String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (Some(verb), Some(object)) = (words.first(), words.get(1)) else {
        return Err(format!(
            "Syntax error: {command}; write for example 'list server'"
        ));
    };
    let kind = object.chars().next().unwrap_or(' ');
    if !['s', 'q', 'n'].contains(&kind) {
        return Err(format!(
            "Syntax error: {command}; there are server, queue and node"
        ));
    }
    // What is listed may have attributes behind it, as what is set has a setting.
    let names: Vec<&str> = match words.get(2) {
        Some(names) if kind != 's' && !names.contains(['=', '@']) => names.split(',').collect(),
        _ => Vec::new(),
    };
    let objects = objects(kind, &names, machine)?;
    let text = match *verb {
        "list" | "l" => {
            let shown = |(heading, attributes): &Object| {
                let lines = attributes
                    .iter()
                    .map(|(name, value)| format!("    {name} = {value}\n"));
                format!("{heading}\n{}\n", lines.collect::<String>())
            };
            objects.iter().map(shown).collect()
        }
        "print" | "p" => {
            let shown = |(heading, attributes): &Object| {
                // The kind is in small letters; a name is as it is.
                let (kind, name) = heading.split_once(' ').unwrap_or((heading, ""));
                let heading = format!("{} {name}", kind.to_lowercase());
                let lines = attributes
                    .iter()
                    .map(|(name, value)| format!("set {heading} {name} = {value}\n"));
                format!("create {heading}\n{}", lines.collect::<String>())
            };
            objects.iter().map(shown).collect()
        }
        "set" | "s" => {
            // What is so already may be set.
            let setting: String = words[2..].concat();
            let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
            let is_so = |(_, attributes): &Object| {
                attributes
                    .iter()
                    .any(|(own, is)| name.ends_with(own) && is.eq_ignore_ascii_case(value))
            };
            if !objects.iter().all(is_so) {
                return Err(format!(
                    "'{command}' is not supported: margay up says how many slots there are, margay set makes queues, \
                     margay part makes partitions"
                ));
            }
            String::new()
        }
        _ => {
            return Err(format!(
                "'{command}' is not supported; there are list, print and set; margay part makes partitions"
            ));
        }
    };
    print(&text)
}

fn state(host: &HostRow) -> &'static str {
    match (host.is_up, host.leaves, host.used) {
        (false, true, _) => "down,offline",
        (false, ..) => "down",
        (_, true, _) => "offline",
        (.., used) if used >= host.slots => "job-busy",
        _ => "free",
    }
}

fn node(host: &HostRow, queues: &[QueueRow]) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("ntype", "PBS".into()),
        ("state", state(host).into()),
        ("pcpus", host.slots.to_string()),
        ("resources_available.host", host.name.clone()),
        (
            "resources_available.mem",
            format!("{}kb", host.memory_mib << 10),
        ),
        ("resources_available.ncpus", host.slots.to_string()),
        ("resources_assigned.ncpus", host.used.to_string()),
    ];
    // PBS has one queue there, of a node that no other queue uses.
    let mut own = queues.iter().filter(|queue| queue.has_host(&host.name));
    if let (Some(queue), None) = (own.next(), own.next()) {
        all.push(("queue", queue.name.clone()));
    }
    if let Some(reason) = machine::reason(host) {
        all.push(("comment", reason));
    }
    all
}

pub(crate) const NODES: &[Known] = &[
    ('a', "", Nothing),
    ('v', "", Nothing),
    ('l', "", Nothing),
    ('S', "", Nothing),
    ('j', "", Nothing),
    ('H', "", Nothing),
];

/// `pbsnodes`.
///
/// # Errors
/// In words.
pub fn nodes(words: &[String]) -> Done {
    let words = Words::divide(words, NODES)?;
    let machine = common::machine()?;
    let (hosts, queues) = (machine::hosts(&machine), machine::queues(&machine));
    let is_known = |name: &String| hosts.iter().any(|host| host.name == *name);
    if let Some(other) = words.rest.iter().find(|name| !is_known(name)) {
        return Err(format!("Unknown node {other}"));
    }
    let mut text = String::new();
    for host in &hosts {
        if !words.rest.is_empty() && !words.rest.contains(&host.name) {
            continue;
        }
        // Those alone that get no jobs.
        if words.has("l") {
            if let Some(reason) = machine::reason(host) {
                text += &format!("{:<20.20} {} {reason}\n", host.name, state(host));
            }
            continue;
        }
        text += &format!("{}\n", host.name);
        for (name, value) in node(host, &queues) {
            text += &format!("     {name} = {value}\n");
        }
        text.push('\n');
    }
    print(&text)?;
    Ok(0)
}
