//! `qmgr` and `pbsnodes`: the server, its queue and its node.

use std::io::{BufRead, stdin};

use margay_svc_queue_wire::Machine;

use crate::common::{self, Done, print};
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
        ("default_queue", "compute".into()),
        (
            "total_jobs",
            (machine.running + machine.waiting).to_string(),
        ),
    ]
}

fn queue(machine: &Machine) -> Vec<(&'static str, String)> {
    vec![
        ("queue_type", "Execution".into()),
        ("resources_available.ncpus", machine.slots.to_string()),
        ("enabled", "True".into()),
        ("started", "True".into()),
    ]
}

fn obey(command: &str, machine: &Machine) -> Result<(), String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (Some(verb), Some(object)) = (words.first(), words.get(1)) else {
        return Err(format!(
            "Syntax error: {command}; write for example 'list server'"
        ));
    };
    let (attributes, heading) = match object.chars().next() {
        Some('s') => (server(machine), format!("Server {}", machine.host)),
        Some('q') => (queue(machine), "Queue compute".to_owned()),
        Some('n') => (node(machine), format!("Node {}", machine.host)),
        _ => {
            return Err(format!(
                "Syntax error: {command}; there are server, queue and node"
            ));
        }
    };
    let text = match *verb {
        "list" | "l" => {
            let lines = attributes
                .iter()
                .map(|(name, value)| format!("    {name} = {value}\n"));
            format!("{heading}\n{}\n", lines.collect::<String>())
        }
        "print" | "p" => {
            let lines = attributes
                .iter()
                .map(|(name, value)| format!("set {} {name} = {value}\n", heading.to_lowercase()));
            format!(
                "create {}\n{}",
                heading.to_lowercase(),
                lines.collect::<String>()
            )
        }
        "set" | "s" => {
            // What is so already may be set.
            let setting: String = words[2..].concat();
            let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
            let is_so = attributes
                .iter()
                .any(|(own, is)| name.ends_with(own) && is.eq_ignore_ascii_case(value));
            if !is_so {
                return Err(format!(
                    "'{command}' is not supported: margay up says how many slots there are, margay part makes partitions"
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

fn node(machine: &Machine) -> Vec<(&'static str, String)> {
    let state = match (machine.used, machine.slots) {
        (used, slots) if used >= slots => "job-busy",
        _ => "free",
    };
    let memory = margay_sys_os::memory::installed_bytes() >> 10;
    vec![
        ("ntype", "PBS".into()),
        ("state", state.into()),
        ("pcpus", machine.slots.to_string()),
        ("resources_available.host", machine.host.clone()),
        ("resources_available.mem", format!("{memory}kb")),
        ("resources_available.ncpus", machine.slots.to_string()),
        ("resources_assigned.ncpus", machine.used.to_string()),
        ("queue", "compute".into()),
    ]
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
    if let Some(other) = words.rest.iter().find(|name| **name != machine.host) {
        return Err(format!("Unknown node {other}"));
    }
    // Those that are down: none.
    if words.has("l") {
        return Ok(0);
    }
    let lines = node(&machine)
        .into_iter()
        .map(|(name, value)| format!("     {name} = {value}\n"));
    print(&format!(
        "{}\n{}\n",
        machine.host,
        lines.collect::<String>()
    ))?;
    Ok(0)
}
