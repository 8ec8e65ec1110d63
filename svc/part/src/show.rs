//! Tables and JSON of partitions and of what runs in them.

use std::fmt::Write as _;

use margay_core_partitions::{IO, Partition, Scheduling, Shape, Table};

use crate::names;

/// An application as the schedule knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    pub pid: u32,
    pub user: u32,
    pub partition: String,
    pub nodes: String,
    pub priority: u32,
    pub is_in: bool,
    pub ran_ms: u64,
    pub command: String,
}

impl Application {
    /// The fields of a message.
    #[must_use]
    pub fn fields(&self) -> Vec<String> {
        vec![
            "row".into(),
            self.pid.to_string(),
            self.user.to_string(),
            self.partition.clone(),
            self.nodes.clone(),
            self.priority.to_string(),
            u32::from(self.is_in).to_string(),
            self.ran_ms.to_string(),
            self.command.clone(),
        ]
    }

    /// Reads them; none when they are none.
    #[must_use]
    pub fn parse(fields: &[String]) -> Option<Application> {
        let [
            row,
            pid,
            user,
            partition,
            nodes,
            priority,
            is_in,
            ran,
            command,
        ] = fields
        else {
            return None;
        };
        (row == "row").then_some(())?;
        Some(Application {
            pid: pid.parse().ok()?,
            user: user.parse().ok()?,
            partition: partition.clone(),
            nodes: nodes.clone(),
            priority: priority.parse().ok()?,
            is_in: is_in == "1",
            ran_ms: ran.parse().ok()?,
            command: command.clone(),
        })
    }
}

fn scheduling(partition: &Partition) -> String {
    match partition.scheduling {
        Scheduling::Standard => "-".into(),
        Scheduling::Space => "SPS".into(),
        Scheduling::Gang { quantum_ms } => match quantum_ms {
            ms if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
            ms if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
            ms if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
            ms => ms.to_string(),
        },
    }
}

/// A table of partitions.
#[must_use]
pub fn partitions(table: &Table, listed: &[(&str, &Partition)]) -> String {
    let mut text = format!(
        "{:>6} {:>6} {:>6} {:>5} {:>5} {:>5} {:>3} PARTITION\n",
        "OWNER", "GROUP", "ACCESS", "SIZE", "FREE", "RQ", "EPL"
    );
    for (path, partition) in listed {
        let _ = writeln!(
            text,
            "{:>6} {:>6} {:>6} {:>5} {:>5} {:>5} {:>3} {path}",
            partition.owner,
            partition.group,
            partition.mode.octal(),
            partition.nodes.len(),
            table.free(path),
            scheduling(partition),
            partition.priority_limit,
        );
    }
    text
}

/// The same for programs. Names of partitions need no escapes.
#[must_use]
pub fn partitions_json(table: &Table, listed: &[(&str, &Partition)]) -> String {
    let all: Vec<String> = (listed.iter())
        .map(|(path, partition)| {
            format!(
                "{{\"partition\":\"{path}\",\"kind\":\"{}\",\"owner\":{},\"group\":{},\"access\":\"{}\",\"nodes\":{:?},\"hosts\":{:?},\"free\":{},\
                 \"scheduling\":\"{}\",\"priority_limit\":{}}}",
                kind(path),
                partition.owner,
                partition.group,
                partition.mode.octal(),
                partition.nodes,
                hosts(table, partition),
                table.free(path),
                partition.scheduling,
                partition.priority_limit,
            )
        })
        .collect();
    format!("{{\"partitions\":[{}]}}\n", all.join(","))
}

/// What it is for: programs of all kinds, or commands.
fn kind(path: &str) -> &'static str {
    match Table::is_for_commands(path) {
        true if Table::is_within(path, IO) => "io",
        true => "service",
        false => "compute",
    }
}

/// Hosts with their slots. Their names need no escapes.
fn hosts(table: &Table, partition: &Partition) -> Vec<String> {
    let hosts = table.hosts_of(partition).into_iter();
    hosts
        .map(|(_, name, slots)| format!("{name}:{slots}"))
        .collect()
}

/// The mesh with a star for each node of the partition and a dot for each other one; of several
/// hosts these.
#[must_use]
pub fn picture(table: &Table, path: &str, partition: &Partition) -> String {
    let Shape { rows, columns } = table.shape();
    let mut text = partitions(table, &[(path, partition)]);
    text += match kind(path) {
        "io" => "for services of files, commands and programs of one process\n",
        "service" => "for commands and programs of one process\n",
        _ => "",
    };
    if !partition.slots.is_empty() {
        return text + &hosts(table, partition).join("\n") + "\n";
    }
    for row in 0..rows {
        let cells = (0..columns).map(|column| {
            let node = row * columns + column;
            let is_in = partition.nodes.binary_search(&node).is_ok();
            if is_in { "*" } else { "." }
        });
        let cells: Vec<&str> = cells.collect();
        let _ = writeln!(text, "{:>6} {}", row * columns, cells.join(" "));
    }
    text
}

/// A table of applications.
#[must_use]
pub fn applications(all: &[Application]) -> String {
    let mut text = format!(
        "{:<8} {:>7} {:>3} {:<7} {:>9} {:<10} {:<20} COMMAND\n",
        "USER", "PID", "PRI", "STATE", "TIME", "NODES", "PARTITION"
    );
    for own in all {
        let tenths = own.ran_ms / 100;
        let time = match tenths / 10 {
            s if s >= 3_600 => format!("{}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60),
            s => format!("{}:{:02}.{}", s / 60, s % 60, tenths % 10),
        };
        let _ = writeln!(
            text,
            "{:<8} {:>7} {:>3} {:<7} {time:>9} {:<10} {:<20} {}",
            names::of_user(own.user),
            own.pid,
            own.priority,
            if own.is_in { "active" } else { "out" },
            own.nodes,
            own.partition,
            own.command
        );
    }
    text
}

/// The same for programs.
#[must_use]
pub fn applications_json(all: &[Application]) -> String {
    let quoted = |text: &str| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", escaped.replace(char::is_control, " "))
    };
    let all: Vec<String> = (all.iter())
        .map(|own| {
            format!(
                "{{\"pid\":{},\"user\":{},\"partition\":{},\"nodes\":{},\"priority\":{},\"active\":{},\"ran_ms\":{},\
                 \"command\":{}}}",
                own.pid,
                own.user,
                quoted(&own.partition),
                quoted(&own.nodes),
                own.priority,
                own.is_in,
                own.ran_ms,
                quoted(&own.command)
            )
        })
        .collect();
    format!("{{\"applications\":[{}]}}\n", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_survive_a_message_and_are_shown() {
        let own = Application {
            pid: 7,
            user: 0,
            partition: ".compute.a".into(),
            nodes: "0-1".into(),
            priority: 5,
            is_in: true,
            ran_ms: 61_250,
            command: "a \"b\"".into(),
        };
        assert_eq!(Application::parse(&own.fields()).as_ref(), Some(&own));
        assert!(Application::parse(&own.fields()[1..]).is_none());
        let text = applications(std::slice::from_ref(&own));
        assert!(text.contains("active     1:01.2 0-1"), "{text}");
        let json = applications_json(&[own]);
        assert!(json.contains("\"command\":\"a \\\"b\\\"\""), "{json}");
    }
}
