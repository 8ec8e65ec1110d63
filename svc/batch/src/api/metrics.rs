//! Metrics for Prometheus, under the names of Slurm's exporter.

use std::collections::BTreeMap;

use margay_core_queue::Phase;
use margay_svc_queue_wire::{Cause, Detail, HostRow, Machine};

use crate::machine::{free_slots, hosts, queues};

/// Samples by the names of their metrics: those of a metric stand together, as the format wants it.
#[derive(Default)]
struct Samples(BTreeMap<String, Vec<(String, u64)>>);

impl Samples {
    fn put(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let escaped = |text: &str| {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            text.replace('\n', "\\n")
        };
        let one = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels = labels.iter().map(one).collect::<Vec<_>>().join(",");
        let samples = self.0.entry(format!("slurm_{name}")).or_default();
        samples.push((labels, value));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, samples) in &self.0 {
            text += &format!("# TYPE {name} gauge\n");
            for (labels, value) in samples {
                text += &match labels.is_empty() {
                    true => format!("{name} {value}\n"),
                    false => format!("{name}{{{labels}}} {value}\n"),
                };
            }
        }
        text
    }
}

/// The name of a host's state in metrics.
fn state(host: &HostRow) -> &'static str {
    match (host.is_up, host.leaves) {
        (false, _) => "down",
        (true, true) => "drain",
        (true, false) if host.used == 0 => "idle",
        (true, false) if host.used < host.slots => "mix",
        (true, false) => "alloc",
    }
}

fn put_hosts(samples: &mut Samples, machine: &Machine) {
    let hosts = hosts(machine);
    for name in ["alloc", "down", "drain", "idle", "mix"] {
        let count = hosts.iter().filter(|host| state(host) == name).count();
        samples.put(&format!("nodes_{name}"), &[], count as u64);
    }
    // Slots of a host on which nothing starts are neither used nor idle.
    let (mut used, mut idle, mut other) = (0, 0, 0);
    for host in &hosts {
        let [own_used, slots] = [host.used, host.slots].map(u64::from);
        let free = slots.saturating_sub(own_used);
        let [own_idle, own_other] = match host.is_up && !host.leaves {
            true => [free, 0],
            false => [0, free],
        };
        let labels = [("node", host.name.as_str()), ("status", state(host))];
        samples.put("node_cpu_alloc", &labels, own_used);
        samples.put("node_cpu_idle", &labels, own_idle);
        samples.put("node_cpu_other", &labels, own_other);
        samples.put("node_cpu_total", &labels, slots);
        samples.put("node_mem_total", &labels, host.memory_mib);
        used += own_used;
        idle += own_idle;
        other += own_other;
    }
    samples.put("cpus_alloc", &[], used);
    samples.put("cpus_idle", &[], idle);
    samples.put("cpus_other", &[], other);
    samples.put("cpus_total", &[], used + idle + other);
}

fn put_queues(samples: &mut Samples, machine: &Machine) {
    let queues = queues(machine);
    for queue in &queues {
        let labels = [("partition", queue.name.as_str())];
        let free = free_slots(&queues, queue);
        samples.put("partition_cpus_allocated", &labels, queue.used.into());
        samples.put("partition_cpus_idle", &labels, free.into());
        samples.put("partition_cpus_total", &labels, queue.slots.into());
    }
}

fn put_jobs(samples: &mut Samples, details: &[Detail]) {
    let is_waiting = |detail: &&&Detail| detail.row.phase == Phase::Waiting;
    let is_running = |detail: &&&Detail| matches!(detail.row.phase, Phase::Running(_));
    let all: Vec<&Detail> = details.iter().collect();
    let waiting = all.iter().filter(is_waiting).count() as u64;
    let depends = |detail: &&&Detail| {
        is_waiting(detail) && matches!(detail.cause, Some(Cause::Dependency | Cause::Never))
    };
    let dependent = all.iter().filter(depends).count() as u64;
    samples.put("queue_pending", &[], waiting - dependent);
    samples.put("queue_pending_dependency", &[], dependent);
    let running = all.iter().filter(is_running).count() as u64;
    samples.put("queue_running", &[], running);
    let of = |kind: &str, detail: &Detail| match kind {
        "account" => detail.row.account.clone().unwrap_or_default(),
        "user" => detail.user.clone(),
        _ => detail.row.partition.clone(),
    };
    for kind in ["account", "user", "partition"] {
        let mut groups: BTreeMap<String, Vec<&Detail>> = BTreeMap::new();
        for detail in details {
            groups.entry(of(kind, detail)).or_default().push(detail);
        }
        for (name, own) in &groups {
            let labels = [(kind, name.as_str())];
            let pending = own.iter().filter(is_waiting).count() as u64;
            let running = own.iter().filter(is_running);
            let cpus = running.clone().map(|d| u64::from(d.row.slots)).sum();
            samples.put(&format!("{kind}_jobs_pending"), &labels, pending);
            let count = running.count() as u64;
            samples.put(&format!("{kind}_jobs_running"), &labels, count);
            samples.put(&format!("{kind}_cpus_running"), &labels, cpus);
        }
    }
}

/// The text for Prometheus.
pub fn text(machine: &Machine, details: &[Detail]) -> String {
    let mut samples = Samples::default();
    put_hosts(&mut samples, machine);
    put_queues(&mut samples, machine);
    put_jobs(&mut samples, details);
    samples.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_and_labels_are_escaped() {
        let mut samples = Samples::default();
        for (user, value) in [("ann", 1), ("b\"\\\n", 2)] {
            samples.put("user_jobs_running", &[("user", user)], value);
            samples.put("user_jobs_pending", &[("user", user)], 0);
        }
        let expected = "# TYPE slurm_user_jobs_pending gauge\n\
             slurm_user_jobs_pending{user=\"ann\"} 0\n\
             slurm_user_jobs_pending{user=\"b\\\"\\\\\\n\"} 0\n\
             # TYPE slurm_user_jobs_running gauge\n\
             slurm_user_jobs_running{user=\"ann\"} 1\n\
             slurm_user_jobs_running{user=\"b\\\"\\\\\\n\"} 2\n";
        assert_eq!(samples.text(), expected);
    }
}
