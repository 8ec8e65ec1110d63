//! `sinfo`: partitions and nodes.

use margay_svc_queue_wire::{HostRow, QueueRow};

use super::fields::short_clock;
use super::format::{Column, Fields, Letter, heading};
use super::hostlist;
use super::machine::{NodeState, availability};
use crate::common::{self, Done, date, now_s, print};
use crate::machine::{self, reason};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const OPTIONS: &[Known] = &[
    ('a', "all", Nothing),
    ('d', "dead", Nothing),
    ('e', "exact", Nothing),
    ('h', "noheader", Nothing),
    ('i', "iterate", Value),
    ('l', "long", Nothing),
    ('N', "Node", Nothing),
    ('n', "nodes", Value),
    ('O', "Format", Value),
    ('o', "format", Value),
    ('p', "partition", Value),
    ('R', "list-reasons", Nothing),
    ('r', "responding", Nothing),
    ('S', "sort", Value),
    ('s', "summarize", Nothing),
    ('T', "reservation", Nothing),
    ('t', "states", Value),
    ('v', "verbose", Nothing),
    (' ', "hide", Nothing),
];

/// The fields of a partition with its nodes.
const FIELDS: Fields = Fields {
    of: "node",
    letters: LETTERS,
};

const LETTERS: &[Letter] = &[
    ('A', "NODES(A/I)", "nodeai"),
    ('a', "AVAIL", "available"),
    ('B', "MAX_CPUS_PER_NODE", "maxcpuspernode"),
    ('C', "CPUS(A/I/O/T)", "cpusstate"),
    ('c', "CPUS", "cpus"),
    ('D', "NODES", "nodes"),
    ('d', "TMP_DISK", "disk"),
    ('E', "REASON", "reason"),
    ('e', "FREE_MEM", "freemem"),
    ('F', "NODES(A/I/O/T)", "nodeaiot"),
    ('f', "AVAIL_FEATURES", "features"),
    ('G', "GRES", "gres"),
    ('g', "GROUPS", "groups"),
    ('H', "TIMESTAMP", "timestamp"),
    ('h', "OVERSUBSCRIBE", "oversubscribe"),
    ('I', "PRIO_JOB_FACTOR", "priorityjobfactor"),
    ('L', "DEFAULTTIME", "defaulttime"),
    ('l', "TIMELIMIT", "time"),
    ('m', "MEMORY", "memory"),
    ('N', "NODELIST", "nodelist"),
    ('n', "HOSTNAMES", "nodehost"),
    ('O', "CPU_LOAD", "cpusload"),
    ('o', "NODE_ADDR", "nodeaddr"),
    ('P', "PARTITION", "partition"),
    ('R', "PARTITION", "partitionname"),
    ('r', "ROOT", "root"),
    ('s', "JOB_SIZE", "size"),
    ('T', "STATE", "statelong"),
    ('t', "STATE", "statecompact"),
    ('U', "USER", "userlong"),
    ('u', "USER", "user"),
    ('v', "VERSION", "version"),
    ('w', "WEIGHT", "weight"),
    ('X', "SOCKETS", "sockets"),
    ('Y', "CORES", "cores"),
    ('Z', "THREADS", "threads"),
    ('z', "S:C:T", "socketcorethread"),
];

/// What a line sums up of its nodes.
const SUMS: &[&str] = &["nodes", "nodelist", "nodeai", "nodeaiot", "cpusstate"];

/// Of these a line has the least of its nodes, with `+` where others have more.
const LEAST: &[&str] = &["cpus", "cores", "memory", "socketcorethread"];

/// States of nodes that Slurm has and that none has here.
const NEVER: &[&str] = &[
    "blocked",
    "cloud",
    "comp",
    "completing",
    "err",
    "error",
    "fail",
    "failing",
    "future",
    "futr",
    "maint",
    "no_respond",
    "npc",
    "perfctrs",
    "planned",
    "plnd",
    "pow_dn",
    "pow_up",
    "power_down",
    "power_up",
    "powered_down",
    "powering_down",
    "powering_up",
    "reboot",
    "reserved",
    "resv",
    "unk",
    "unknown",
];

/// A line: nodes of which nothing differs that it shows of each.
struct Group<'a> {
    key: Vec<String>,
    queue: &'a QueueRow,
    hosts: Vec<&'a HostRow>,
}

/// What there is of a partition.
fn of_queue(queue: &QueueRow, name: &str) -> Option<String> {
    let rules = &queue.rules;
    Some(match name {
        "available" => availability(rules).into(),
        "priorityjobfactor" => "1".into(),
        "groups" if rules.users.is_empty() => "all".into(),
        "groups" => rules.users.join(","),
        "oversubscribe" | "root" => "NO".into(),
        "time" => (rules.most_limit_s).map_or_else(|| "infinite".into(), short_clock),
        "defaulttime" => (rules.default_limit_s).map_or_else(|| "n/a".into(), short_clock),
        "maxcpuspernode" => "UNLIMITED".into(),
        "partition" if queue.is_default => format!("{}*", queue.name),
        "partition" | "partitionname" => queue.name.clone(),
        "size" => "1-infinite".into(),
        _ => return None,
    })
}

/// What there is of a node.
fn of_host(host: &HostRow, name: &str) -> Option<String> {
    let state = NodeState::of(host);
    Some(match name {
        "cpus" | "cores" => host.slots.to_string(),
        "sockets" | "threads" | "weight" => "1".into(),
        "socketcorethread" => format!("1:{}:1", host.slots),
        "memory" => host.memory_mib.to_string(),
        "freemem" | "cpusload" => "N/A".into(),
        "disk" => "0".into(),
        "reason" => reason(host).unwrap_or_else(|| "none".into()),
        "user" | "userlong" | "timestamp" => "Unknown".into(),
        "features" | "gres" => "(null)".into(),
        "nodehost" | "nodeaddr" => host.name.clone(),
        "state" | "statelong" => state.long().into(),
        "statecompact" => state.short().into(),
        "version" => "23.11.0".into(),
        _ => return None,
    })
}

impl Group<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let hosts = &self.hosts;
        if let Some(text) = of_queue(self.queue, name) {
            return Some(text);
        }
        if !SUMS.contains(&name) {
            let least = hosts.iter().min_by_key(|host| match name {
                "memory" => host.memory_mib,
                _ => u64::from(host.slots),
            })?;
            let text = of_host(least, name)?;
            let differs = |host: &&HostRow| of_host(host, name).as_ref() != Some(&text);
            let more = if hosts.iter().any(differs) { "+" } else { "" };
            return Some(text + more);
        }
        let count = |is: &dyn Fn(NodeState) -> bool| {
            let of = |host: &&&HostRow| is(NodeState::of(host));
            hosts.iter().filter(of).count()
        };
        let idle = count(&|state| state == NodeState::Idle);
        let out = count(&NodeState::is_out);
        let used = hosts.len() - idle - out;
        Some(match name {
            "nodes" => hosts.len().to_string(),
            "nodeai" => format!("{used}/{idle}"),
            "nodeaiot" => format!("{used}/{idle}/{out}/{}", hosts.len()),
            "cpusstate" => {
                let sum = |slots: &dyn Fn(&HostRow) -> u32| -> u32 {
                    hosts.iter().map(|host| slots(host)).sum()
                };
                let is_out = |host: &HostRow| NodeState::of(host).is_out();
                let left = |host: &HostRow| host.slots.saturating_sub(host.used);
                let (used, total) = (sum(&|host| host.used), sum(&|host| host.slots));
                let idle = sum(&|host| if is_out(host) { 0 } else { left(host) });
                let other = sum(&|host| if is_out(host) { left(host) } else { 0 });
                format!("{used}/{idle}/{other}/{total}")
            }
            _ => {
                let mut names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
                hostlist::sort(&mut names);
                hostlist::compressed(&names)
            }
        })
    }
}

fn columns(words: &Words) -> Result<Vec<Column>, String> {
    if let Some(format) = words.value("Format") {
        return Ok(FIELDS.names(format));
    }
    let usual = match (words.has("Node"), words.has("long"), words.has("summarize")) {
        (_, true, _) if words.has("list-reasons") => "%20E %12U %19H %6t %N",
        _ if words.has("list-reasons") => "%20E %9u %19H %N",
        (true, true, _) => "%N %.6D %.9P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E",
        (true, false, _) => "%N %.6D %.9P %6t",
        (_, _, true) => "%9P %.5a %.10l %.16F  %N",
        (_, true, _) => "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N",
        _ => "%9P %.5a %.10l %.6D %.6t %N",
    };
    let variable = std::env::var("SINFO_FORMAT").ok();
    let format = words
        .value("format")
        .or(variable.as_deref())
        .unwrap_or(usual);
    FIELDS.letters(format)
}

/// The states of nodes that are asked for; none are all.
fn states(words: &Words) -> Result<Vec<NodeState>, String> {
    use NodeState::{Allocated, Down, Drained, Draining, Idle, Mixed};
    let mut states = Vec::new();
    for item in words.list("states") {
        let own: &[NodeState] = match &*item.to_lowercase() {
            "all" => &[Allocated, Down, Drained, Draining, Idle, Mixed],
            "alloc" | "allocated" => &[Allocated],
            "down" => &[Down],
            "drain" => &[Drained, Draining],
            "drained" => &[Drained],
            "draining" | "drng" => &[Draining],
            "idle" => &[Idle],
            "mix" | "mixed" => &[Mixed],
            // It asks for none of those that there are.
            never if NEVER.contains(&never) => &[],
            _ => return Err(format!("Bad state string: \"{item}\"")),
        };
        states.extend(own);
    }
    Ok(states)
}

/// The lines of the table.
fn groups<'a>(
    words: &Words,
    columns: &[Column],
    queues: &'a [QueueRow],
    hosts: &'a [HostRow],
) -> Result<Vec<Group<'a>>, String> {
    let (asked, partitions) = (states(words)?, words.list("partition"));
    let nodes = words.value("nodes").map(hostlist::expanded).transpose()?;
    let is_shown = |host: &HostRow| {
        let state = NodeState::of(host);
        (!words.has("states") || asked.contains(&state))
            && nodes
                .as_ref()
                .is_none_or(|nodes| nodes.contains(&host.name))
            && (!words.has("dead") || !host.is_up)
            && (!words.has("responding") || host.is_up)
            && (!words.has("list-reasons") || state.is_out())
    };
    let is_each =
        |name: &str| !SUMS.contains(&name) && (!LEAST.contains(&name) || words.has("exact"));
    let each: Vec<&str> = (columns.iter())
        .filter_map(|column| match column {
            Column::Field { name, .. } if is_each(name) => Some(&**name),
            _ => None,
        })
        .collect();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for queue in queues {
        if !partitions.is_empty() && !partitions.contains(&queue.name) {
            continue;
        }
        let own = hosts.iter().filter(|host| queue.has_host(&host.name));
        for host in own.filter(|host| is_shown(host)) {
            let value = |name: &&str| of_queue(queue, name).or_else(|| of_host(host, name));
            let mut key: Vec<String> = each.iter().filter_map(value).collect();
            if words.has("Node") {
                key.push(host.name.clone());
            }
            let Some(group) = groups.iter_mut().find(|group| group.key == key) else {
                let hosts = vec![host];
                groups.push(Group { key, queue, hosts });
                continue;
            };
            // It may be in several partitions.
            if !group.hosts.iter().any(|own| own.name == host.name) {
                group.hosts.push(host);
            }
        }
    }
    // In the order of the partitions, or of the nodes.
    let place = |name: &str| hosts.iter().position(|host| host.name == name);
    let is_by_node = words.has("Node");
    groups.sort_unstable_by_key(|group| {
        let first = group.hosts[0];
        let node = is_by_node.then(|| place(&first.name));
        (node, &group.queue.name, NodeState::of(first))
    });
    Ok(groups)
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    let columns = columns(&words)?;
    let machine = common::machine()?;
    let mut text = String::new();
    if words.has("long") && !words.has("noheader") {
        text += &format!("{}\n", date(now_s()));
    }
    if !words.has("noheader") {
        text += &format!("{}\n", heading(&columns).trim_end());
    }
    let (hosts, queues) = (machine::hosts(&machine), machine::queues(&machine));
    for group in groups(&words, &columns, &queues, &hosts)? {
        let line = FIELDS.line(&columns, &|name| group.value(name))?;
        text += &format!("{}\n", line.trim_end());
    }
    print(&text)?;
    Ok(0)
}
