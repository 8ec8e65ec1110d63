//! `sinfo`: partitions and nodes.

use margay_svc_queue_wire::Machine;

use super::squeue::column;
use crate::common::{self, Done, date, now_s, print};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

const OPTIONS: &[Known] = &[
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

/// The letters of a format: the heading, and what is shown.
const LETTERS: &[(char, &str, &str)] = &[
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

/// Text before a field, its heading, its name, its width, and whether it stands at the right.
type Part = (String, String, String, Option<usize>, bool);

fn parts(words: &Words) -> Result<Vec<Part>, String> {
    if let Some(format) = words.value("Format") {
        let item = |item: &str| {
            let (name, width) = item.split_once(':').unwrap_or((item, "20"));
            let is_right = width.starts_with('.');
            let width = width.trim_start_matches('.').parse().unwrap_or(20);
            let name = name.trim().to_ascii_lowercase();
            let heading = LETTERS.iter().find(|known| known.2 == name);
            let heading = heading.map_or_else(|| name.to_uppercase(), |known| known.1.into());
            (String::new(), heading, name, Some(width), is_right)
        };
        return Ok(format.split(',').map(item).collect());
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
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let is_right = rest.next_if_eq(&'.').is_some();
        let _ = rest.next_if_eq(&'#');
        let mut width = None;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            rest.next();
            width = Some((width.unwrap_or(0) * 10 + digit as usize).min(10_000));
        }
        let letter = rest.next().unwrap_or(' ');
        let known = LETTERS.iter().find(|known| known.0 == letter);
        let (_, heading, name) =
            known.ok_or_else(|| format!("Invalid node format specification: {letter}"))?;
        let before = std::mem::take(&mut text);
        parts.push((before, (*heading).into(), (*name).into(), width, is_right));
    }
    // Text at the end belongs to a field that shows nothing.
    if !text.is_empty() {
        parts.push((text, String::new(), "gap".into(), None, false));
    }
    Ok(parts)
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
    let parts = parts(&words)?;
    let machine = common::machine()?;
    let partition = super::PARTITION;
    let mut text = String::new();
    if words.has("long") && !words.has("noheader") {
        text += &format!("{}\n", date(now_s()));
    }
    if !words.has("noheader") {
        let one = |part: &Part| part.0.clone() + &column(&part.1, part.3, part.4);
        let line: String = parts.iter().map(one).collect();
        text += &format!("{}\n", line.trim_end());
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
        let mut line = String::new();
        for (before, _, name, width, is_right) in &parts {
            let shown = match name.as_str() {
                "gap" => Some(String::new()),
                name => value(&machine, partition, name),
            };
            let shown = shown.ok_or_else(|| format!("Invalid field requested: {name}"))?;
            line += before;
            line += &column(&shown, *width, *is_right);
        }
        text += &format!("{}\n", line.trim_end());
    }
    print(&text)?;
    Ok(0)
}
