//! `margay part`: partitions of this machine.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use margay_core_partitions::{Partition, Right, Scheduling, Shape, Table};
use margay_job_partitions::Store;
use margay_sys_os::cpu;
use serde_json::json;

use crate::live::print;
use crate::omp::Failed;
use crate::part_options::{PartAction, PartOptions};

/// Does what the options say. A command that runs in a partition takes this process's place.
///
/// # Errors
/// Which partition, why not, and what to do; with the exit status.
pub fn run(options: &PartOptions) -> Result<(), Failed> {
    let PartAction::Exec { name, command } = &options.action else {
        return Ok(act(&options.action)?);
    };
    exec(&cores(&Store::find()?, name)?, command)
}

/// Does what leaves this process as it is.
fn act(action: &PartAction) -> Result<(), String> {
    let store = Store::find()?;
    let who = store.caller();
    match action {
        PartAction::Make(make) => store.update(|table| {
            let changes = make.attributes.changes();
            let made = table.make(who, &make.name, &make.wanted(), &changes);
            made.map(|_| ()).map_err(|refused| refused.to_string())
        }),
        PartAction::Remove {
            recursive,
            force: _,
            name,
        } => store.update(|table| {
            let removed = table.remove(who, name, *recursive);
            removed.map_err(|refused| refused.to_string())
        }),
        PartAction::Change {
            new_name,
            attributes,
            name,
        } => store.update(|table| {
            let changed = table.change(who, name, &attributes.changes());
            let renamed = changed.and_then(|()| match new_name {
                Some(new) => table.rename(who, name, new).map(|_| ()),
                None => Ok(()),
            });
            renamed.map_err(|refused| refused.to_string())
        }),
        PartAction::List {
            recursive,
            json,
            name,
        } => {
            let table = store.read()?;
            let listed = table.list(who, name, *recursive);
            let listed = listed.map_err(|refused| refused.to_string())?;
            print(&if *json {
                json_of(&table, &listed)
            } else {
                text_of(&table, &listed)
            })
        }
        PartAction::Show { name } => {
            let table = store.read()?;
            let (path, partition) = table
                .find(who, name, Right::Read)
                .map_err(|refused| refused.to_string())?;
            print(&picture(&table, &path, partition))
        }
        PartAction::Exec { .. } => unreachable!("the caller has taken care of it"),
    }
}

/// The cores of a partition in which this user may run programs, and this process may.
fn cores(store: &Store, name: &str) -> Result<Vec<usize>, String> {
    let table = store.read()?;
    let (path, partition) = table
        .find(store.caller(), name, Right::Run)
        .map_err(|refused| refused.to_string())?;
    let cores = store.cores(partition);
    let mask = cpu::affinity();
    match cores.iter().find(|core| !mask.contains(core)) {
        None => Ok(cores),
        Some(core) => Err(format!(
            "the partition '{path}' has core {core}, which this process may not use; start it without taskset, outside \
             of other partitions, or choose a partition of the cores {mask:?}"
        )),
    }
}

/// The cores of a partition, for the launcher.
///
/// # Errors
/// When there is no such partition, or it may not be used.
pub fn cores_of(name: &str) -> Result<Vec<usize>, String> {
    cores(&Store::find()?, name)
}

fn exec(cores: &[usize], command: &[OsString]) -> Result<(), Failed> {
    if let Err(error) = cpu::bind_thread(0, cores) {
        return Err(format!("cannot use the cores {cores:?} of the partition: {error}").into());
    }
    let (program, arguments) = command.split_first().expect("the parser asks for one");
    let error = Command::new(program).args(arguments).exec();
    let status = match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    };
    let text = format!("{} cannot be run: {error}", program.to_string_lossy());
    Err(Failed { text, status })
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

fn text_of(table: &Table, listed: &[(&str, &Partition)]) -> String {
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

fn json_of(table: &Table, listed: &[(&str, &Partition)]) -> String {
    let all: Vec<serde_json::Value> = (listed.iter())
        .map(|(path, partition)| {
            json!({
                "partition": path,
                "owner": partition.owner,
                "group": partition.group,
                "access": partition.mode.octal(),
                "nodes": partition.nodes,
                "free": table.free(path),
                "scheduling": partition.scheduling.to_string(),
                "priority_limit": partition.priority_limit,
            })
        })
        .collect();
    format!("{}\n", json!({ "partitions": all }))
}

/// The mesh with a star for each node of the partition and a dot for each other one.
fn picture(table: &Table, path: &str, partition: &Partition) -> String {
    let Shape { rows, columns } = table.shape();
    let mut text = text_of(table, &[(path, partition)]);
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
