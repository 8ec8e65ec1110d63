//! The hosts and queues of a machine, of one host or several, for the tables of batch systems.

use margay_svc_queue_wire::{Detail, HostRow, Machine, OnHost, QueueRow};
use serde_json::value::RawValue;

/// The hosts; that of the head where there are no others.
#[must_use]
pub fn hosts(machine: &Machine) -> Vec<HostRow> {
    if !machine.hosts.is_empty() {
        return machine.hosts.clone();
    }
    vec![HostRow {
        name: machine.host.clone(),
        slots: machine.slots,
        used: machine.used,
        memory_mib: margay_sys_os::memory::installed_bytes() >> 20,
        is_up: true,
        running: machine.running,
        leaves: false,
        note: String::new(),
    }]
}

/// Where a job runs or ran; nothing while it waits.
#[must_use]
pub fn job_hosts(detail: &Detail, host: &str) -> Vec<OnHost> {
    let row = &detail.row;
    match row.started {
        Some(_) if row.hosts.is_empty() => vec![OnHost {
            host: host.to_owned(),
            slots: row.slots,
        }],
        _ => row.hosts.clone(),
    }
}

/// The host on which a job begins or began; nothing while it waits.
#[must_use]
pub fn first_host(detail: &Detail, host: &str) -> String {
    let mut hosts = job_hosts(detail, host).into_iter();
    hosts.next().map(|own| own.host).unwrap_or_default()
}

/// How many hosts a job has, or asks for while it waits.
#[must_use]
pub fn node_count(detail: &Detail) -> u32 {
    match detail.row.hosts.len() {
        0 if detail.row.started.is_none() => detail.wishes.size.nodes.unwrap_or(1).max(1),
        0 => 1,
        hosts => u32::try_from(hosts).unwrap_or(u32::MAX),
    }
}

/// The queues, by their names.
#[must_use]
pub fn queues(machine: &Machine) -> Vec<QueueRow> {
    let row = |row: &RawValue| serde_json::from_str(row.get()).ok();
    let rows = machine.queues.iter().map(AsRef::as_ref);
    let rows: Vec<QueueRow> = rows.filter_map(row).collect();
    if !rows.is_empty() {
        return rows;
    }
    vec![QueueRow::only(
        machine.slots,
        machine.used,
        machine.running,
        machine.waiting,
    )]
}

/// The queue of jobs that name none.
#[must_use]
pub fn default_queue(queues: &[QueueRow]) -> &str {
    let default = queues.iter().find(|queue| queue.is_default);
    default.map_or("", |queue| &queue.name)
}

/// Slots that a job of this queue could have now.
#[must_use]
pub fn free_slots(queues: &[QueueRow], queue: &QueueRow) -> u32 {
    let used = match queue.rules.gang {
        Some(_) => queue.used,
        // The queues without a partition share all other slots.
        None => (queues.iter().filter(|other| other.rules.gang.is_none()))
            .map(|other| other.used)
            .sum(),
    };
    let free = queue.slots.saturating_sub(used);
    let most = queue.rules.used_slots.unwrap_or(u32::MAX);
    free.min(most.saturating_sub(queue.used))
}

/// Why no job starts on a host, where that is so.
#[must_use]
pub fn reason(host: &HostRow) -> Option<String> {
    match (host.is_up, host.leaves) {
        (true, false) => None,
        (true, true) => Some("leaves the queue".into()),
        (false, _) if host.note.is_empty() => Some("not responding".into()),
        // A table has a line for it.
        (false, _) => Some(host.note.replace('\n', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_the_slots_that_no_partition_has() {
        let queue = |name: &str, slots, used| QueueRow {
            name: name.into(),
            slots,
            used,
            ..QueueRow::default()
        };
        let mut queues = [queue("a", 6, 2), queue("b", 6, 1), queue("gang", 2, 8)];
        queues[2].rules.gang = Some(margay_core_queue::Gang::default());
        queues[1].rules.used_slots = Some(2);
        let free: Vec<u32> = (queues.iter())
            .map(|queue| free_slots(&queues, queue))
            .collect();
        assert_eq!(free, [3, 1, 0]);
    }
}
