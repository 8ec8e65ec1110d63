//! Jobs of queues that have a partition with gang scheduling: each is an application there, started
//! by the launcher, whose keeper stops and continues it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use margay_core_partitions::{Caller, Right, Scheduling, Table};
use margay_core_queue::{Gang, Part};
use margay_job_partitions::{ENV_FOLDER, Store};
use margay_svc_queue_wire::{Bytes, Owner};
use margay_sys_os::process::beside;

use crate::files::JobOrder;
use crate::hold;
use crate::site::Away;

/// The state of the table of partitions: another one, other partitions.
pub type Stamp = Option<(u64, i64, i64)>;

/// That of the table which there is now.
pub fn stamp() -> Stamp {
    Store::find().ok()?.stamp()
}

/// The job's variable that names the folder of partitions. In the queue of all users it is what its
/// head has: a user's own table is none of theirs.
pub fn set_folder(order: &mut JobOrder) {
    let name = format!("{ENV_FOLDER}=");
    let of_user = |variable: &Bytes| variable.0.as_bytes().starts_with(name.as_bytes());
    order.environment.retain(|variable| !of_user(variable));
    if let Some(folder) = std::env::var_os(ENV_FOLDER) {
        let mut variable = OsString::from(name);
        variable.push(folder);
        order.environment.push(Bytes(variable));
    }
}

/// The priority in its partition of a job with this priority in its queue: 0 to 10, 5 for a job of
/// none.
#[must_use]
pub fn priority(of_job: i64) -> u32 {
    5u32.saturating_add_signed(of_job.clamp(-5, 5) as i32)
}

/// The number of a host of the machine by its name, if it is one; none on a machine of one host.
pub type Numbers<'a> = Option<&'a dyn Fn(&str) -> Option<u32>>;

/// Has a job take turns on the hosts that it has, if it takes any, and be held there.
///
/// # Errors
/// In words.
pub fn set_hosts(order: &mut JobOrder, shell: &[String], name: String) -> Result<(), String> {
    let hosts: Vec<&str> = order.parts.iter().map(|part| part.host.as_str()).collect();
    let Some(gang) = &mut order.gang else {
        return Ok(());
    };
    let first = hosts.first().ok_or("its hosts are away")?;
    *gang = format!("{gang}@{}", hosts.join(","));
    order.away = Some(Away {
        host: (*first).to_owned(),
        shell: shell.to_vec(),
    });
    let is_shell = |variable: &&mut Bytes| variable.0.as_bytes().starts_with(b"MARGAY_RSH=");
    if let Some(variable) = order.environment.iter_mut().find(is_shell) {
        let shell = hold::shell(&name, shell).map_err(|error| error.to_string())?;
        *variable = Bytes(format!("MARGAY_RSH={shell}").into());
    }
    order.held = Some(name);
    Ok(())
}

/// Sees whether the user of a job in the queue of all users may run it in its partition, as who
/// asks for its turns is root.
///
/// # Errors
/// In words.
pub fn may_run(partition: &str, owner: &Owner) -> Result<(), String> {
    let caller = Caller {
        user: owner.uid,
        groups: owner.groups.iter().copied().chain([owner.gid]).collect(),
    };
    let (name, _) = partition.split_once('@').unwrap_or((partition, ""));
    let table = Store::find()?.read()?;
    let found = table.find(&caller, name, Right::Run);
    found.map_err(|refused| refused.to_string()).map(|_| ())
}

/// Finds the partition of a queue.
///
/// # Errors
/// In words: why jobs cannot take turns there.
pub fn find(name: &str, is_system: bool, numbers: Numbers<'_>) -> Result<Gang, String> {
    let store = Store::find()?;
    if is_system && !store.is_common() {
        return Err(
            "the partitions of this machine are not common to its users, whose jobs would run there; first: margay part init"
                .into(),
        );
    }
    let table = store.read()?;
    let found = table.find(store.caller(), name, Right::Run);
    let (path, partition) = found.map_err(|refused| refused.to_string())?;
    let is_gang = matches!(partition.scheduling, Scheduling::Gang { .. });
    let has_hosts = !partition.slots.is_empty();
    if !is_gang || has_hosts != numbers.is_some() || Table::is_for_commands(&path) {
        let (of, words) = match numbers {
            Some(_) => ("hosts", "-hosts LIST "),
            None => ("this host's cores", ""),
        };
        return Err(format!(
            "jobs take turns in a partition of {of} with gang scheduling, and '{path}' is none; make one: \
             margay part mkpart {words}-rq 10s NAME"
        ));
    }
    let hosts = table.hosts_of(partition).into_iter();
    let part = |(_, name, slots): (u32, &str, u32)| {
        let host = numbers.and_then(|number| number(name))?;
        Some(Part { host, slots })
    };
    Ok(Gang {
        hosts: hosts.filter_map(part).collect(),
        cores: match has_hosts {
            true => Vec::new(),
            false => store.cores(partition),
        },
        partition: path,
    })
}

/// How long a job had its turns, by the process of its launcher; none where nobody knows.
pub fn ran(order: &JobOrder, partition: &str, process: u32) -> Option<Duration> {
    let variables = order.environment.iter().filter_map(|variable| {
        let bytes = variable.0.as_bytes();
        let at = bytes.iter().position(|&b| b == b'=')?;
        Some((
            OsStr::from_bytes(&bytes[..at]),
            OsStr::from_bytes(&bytes[at + 1..]),
        ))
    });
    // With the rights of root nothing that the user says is used.
    let is_trusted = |name: &OsStr| order.user.is_none() || name == ENV_FOLDER;
    let variables = variables.filter(|(name, _)| is_trusted(name));
    let said = Command::new(beside("margay-part").ok()?)
        .args(["ps", partition, "json"])
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let all: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
    let mut all = all.get("applications")?.as_array()?.iter();
    let own = all.find(|own| own["pid"].as_u64() == Some(process.into()))?;
    own["ran_ms"].as_u64().map(Duration::from_millis)
}
