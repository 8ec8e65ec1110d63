//! Nodes and partitions in Slurm's words, and all that `scontrol show` says of them.

use margay_core_queue::QueueRules;
use margay_svc_queue_wire::{HostRow, QueueRow};

use super::fields::clock;
use super::hostlist;
use crate::machine::reason;

/// How a node is, in the order in which `sinfo` lists nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    Down,
    Draining,
    Drained,
    Mixed,
    Allocated,
    Idle,
}

impl NodeState {
    #[must_use]
    pub fn of(host: &HostRow) -> NodeState {
        match (host.is_up, host.leaves, host.used) {
            (true, true, 1..) => NodeState::Draining,
            (_, true, _) => NodeState::Drained,
            (false, ..) => NodeState::Down,
            (.., 0) => NodeState::Idle,
            (.., used) if used >= host.slots => NodeState::Allocated,
            _ => NodeState::Mixed,
        }
    }

    #[must_use]
    pub fn long(self) -> &'static str {
        match self {
            NodeState::Down => "down",
            NodeState::Draining => "draining",
            NodeState::Drained => "drained",
            NodeState::Mixed => "mixed",
            NodeState::Allocated => "allocated",
            NodeState::Idle => "idle",
        }
    }

    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            NodeState::Draining => "drng",
            NodeState::Drained => "drain",
            NodeState::Mixed => "mix",
            NodeState::Allocated => "alloc",
            other => other.long(),
        }
    }

    /// No job starts on it.
    #[must_use]
    pub fn is_out(self) -> bool {
        matches!(
            self,
            NodeState::Down | NodeState::Draining | NodeState::Drained
        )
    }
}

/// Whether jobs are accepted and started.
#[must_use]
pub fn availability(rules: &QueueRules) -> &'static str {
    match (rules.is_open, rules.is_started) {
        (true, true) => "up",
        (true, false) => "down",
        (false, true) => "drain",
        (false, false) => "inact",
    }
}

/// The nodes of a partition, as a list.
fn node_list(queue: &QueueRow, hosts: &[HostRow]) -> (Vec<HostRow>, String) {
    let own: Vec<HostRow> = (hosts.iter())
        .filter(|host| queue.has_host(&host.name))
        .cloned()
        .collect();
    let mut names: Vec<String> = own.iter().map(|host| host.name.clone()).collect();
    hostlist::sort(&mut names);
    (own, hostlist::compressed(&names))
}

/// All that is known of a node.
#[must_use]
pub fn node(host: &HostRow, queues: &[QueueRow]) -> Vec<String> {
    let HostRow {
        name, slots, used, ..
    } = host;
    let by_use = match used {
        0 => "IDLE",
        used if used >= slots => "ALLOCATED",
        _ => "MIXED",
    };
    let state = match (host.is_up, host.leaves) {
        (false, false) => "DOWN".to_owned(),
        (false, true) => "DOWN+DRAIN".to_owned(),
        (true, false) => by_use.to_owned(),
        (true, true) => format!("{by_use}+DRAIN"),
    };
    let own = queues.iter().filter(|queue| queue.has_host(name));
    let partitions: Vec<&str> = own.map(|queue| &*queue.name).collect();
    let mut lines = vec![
        format!(
            "NodeName={name} Arch={} CoresPerSocket={slots}",
            std::env::consts::ARCH
        ),
        format!("CPUAlloc={used} CPUEfctv={slots} CPUTot={slots} CPULoad=N/A"),
        "AvailableFeatures=(null)".into(),
        "ActiveFeatures=(null)".into(),
        "Gres=(null)".into(),
        format!("NodeAddr={name} NodeHostName={name} Version=23.11.0"),
        format!(
            "OS=Linux RealMemory={} AllocMem=0 FreeMem=N/A Sockets=1 Boards=1",
            host.memory_mib
        ),
        format!("State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A"),
        format!("Partitions={}", partitions.join(",")),
        format!(
            "CfgTRES=cpu={slots},mem={}M,billing={slots}",
            host.memory_mib
        ),
        format!("AllocTRES=cpu={used}"),
    ];
    if let Some(reason) = reason(host) {
        lines.push(format!("Reason={reason}"));
    }
    lines
}

/// All that is known of a partition.
#[must_use]
pub fn partition(queue: &QueueRow, hosts: &[HostRow]) -> Vec<String> {
    let rules = &queue.rules;
    let (own, nodes) = node_list(queue, hosts);
    let cpus = match rules.gang {
        Some(_) => queue.slots,
        None => own.iter().map(|host| host.slots).sum(),
    };
    let names = |list: &[String]| match list {
        [] => "ALL".to_owned(),
        list => list.join(","),
    };
    let time = |limit: Option<u64>, none: &str| limit.map_or_else(|| none.into(), clock);
    let memory = |mib: Option<u64>| mib.map_or_else(|| "UNLIMITED".into(), |mib| mib.to_string());
    let state = match availability(rules) {
        "inact" => "INACTIVE".to_owned(),
        other => other.to_uppercase(),
    };
    vec![
        format!("PartitionName={}", queue.name),
        format!(
            "AllowGroups={} AllowAccounts={} AllowQos=ALL",
            names(&rules.users),
            names(&rules.accounts)
        ),
        format!(
            "AllocNodes=ALL Default={} QoS=N/A",
            if queue.is_default { "YES" } else { "NO" }
        ),
        format!(
            "DefaultTime={} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
            time(rules.default_limit_s, "NONE")
        ),
        format!(
            "MaxNodes=UNLIMITED MaxTime={} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
            time(rules.most_limit_s, "UNLIMITED")
        ),
        format!("Nodes={nodes}"),
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO".into(),
        format!(
            "State={state} TotalCPUs={cpus} TotalNodes={} SelectTypeParameters=NONE",
            own.len()
        ),
        format!(
            "DefMemPerNode={} MaxMemPerNode={}",
            memory(rules.default_memory_mib),
            memory(rules.most_memory_mib)
        ),
    ]
}
