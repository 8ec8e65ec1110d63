//! `sinfo`: partitions and nodes.

use margay_svc_queue_wire::Machine;

use super::format::{Column, Fields, Letter, heading};
use crate::common::{self, Done, date, now_s, print};
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
    ('v', "VERSION", "version"),
    ('w', "WEIGHT", "weight"),
    ('X', "SOCKETS", "sockets"),
    ('Y', "CORES", "cores"),
    ('Z', "THREADS", "threads"),
    ('z', "S:C:T", "socketcorethread"),
];

/// How the node is: in full, and short.
fn state(machine: &Machine) -> (&'static str, &'static str) {
    match (machine.used, machine.slots) {
        (0, _) => ("idle", "idle"),
        (used, slots) if used >= slots => ("allocated", "alloc"),
        _ => ("mixed", "mix"),
    }
}

fn value(machine: &Machine, partition: &str, name: &str) -> Option<String> {
    let is_used = machine.used > 0;
    let idle = machine.slots.saturating_sub(machine.used);
    Some(match name {
        "nodeai" => format!("{}/{}", u8::from(is_used), u8::from(!is_used)),
        "nodeaiot" => format!("{}/{}/0/1", u8::from(is_used), u8::from(!is_used)),
        "available" => "up".into(),
        "cpusstate" => format!("{}/{idle}/0/{}", machine.used, machine.slots),
        "cpus" | "cores" => machine.slots.to_string(),
        "nodes" | "sockets" | "threads" | "weight" | "priorityjobfactor" => "1".into(),
        "socketcorethread" => format!("1:{}:1", machine.slots),
        "memory" => (margay_sys_os::memory::installed_bytes() >> 20).to_string(),
        "freemem" | "cpusload" => "N/A".into(),
        "disk" => "0".into(),
        "reason" => "none".into(),
        "features" | "gres" => "(null)".into(),
        "groups" => "all".into(),
        "oversubscribe" | "root" => "NO".into(),
        "time" => "infinite".into(),
        "defaulttime" => "n/a".into(),
        "maxcpuspernode" => "UNLIMITED".into(),
        "nodelist" | "nodehost" | "nodeaddr" => machine.host.clone(),
        "partition" => format!("{partition}*"),
        "partitionname" => partition.into(),
        "size" => "1-infinite".into(),
        "state" | "statelong" => state(machine).0.into(),
        "statecompact" => state(machine).1.into(),
        "version" => "23.11.0".into(),
        _ => return None,
    })
}

fn columns(words: &Words) -> Result<Vec<Column>, String> {
    if let Some(format) = words.value("Format") {
        return Ok(FIELDS.names(format));
    }
    let usual = match (words.has("Node"), words.has("long"), words.has("summarize")) {
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

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    if words.has("list-reasons") {
        print("REASON               USER      TIMESTAMP           NODELIST\n")?;
        return Ok(0);
    }
    let columns = columns(&words)?;
    let machine = common::machine()?;
    let partition = super::PARTITION;
    let mut text = String::new();
    if words.has("long") && !words.has("noheader") {
        text += &format!("{}\n", date(now_s()));
    }
    if !words.has("noheader") {
        text += &format!("{}\n", heading(&columns).trim_end());
    }
    let (long, short) = state(&machine);
    let is_asked = |name: &str, values: &[&str]| {
        let list = words.list(name);
        list.is_empty()
            || list
                .iter()
                .any(|item| values.contains(&&*item.to_lowercase()))
    };
    let nodes = words.list("nodes");
    let is_shown = is_asked("states", &[long, short, "all"])
        && is_asked("partition", &[partition])
        && (nodes.is_empty() || nodes.contains(&machine.host))
        && !words.has("dead");
    if is_shown {
        let line = FIELDS.line(&columns, &|name| value(&machine, partition, name))?;
        text += &format!("{}\n", line.trim_end());
    }
    print(&text)?;
    Ok(0)
}
