//! The reasons of the scheduler in words.

use margay_core_queue::{After, Dependency, JobId, Outside, Reason, shown};
use margay_svc_queue_wire::OnHost;

/// Says where a job runs; nothing on a machine of one host.
#[must_use]
pub fn on(hosts: &[OnHost]) -> String {
    let one = |own: &OnHost| match own.slots {
        1 => format!("{} (1 slot)", own.host),
        slots => format!("{} ({slots} slots)", own.host),
    };
    let all: Vec<String> = hosts.iter().map(one).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" on {}", all.join(", ")),
    }
}

/// Says in a few words why a job waits, for a table. `name` shows the number of a job.
#[must_use]
pub fn short(reason: &Reason, name: &dyn Fn(JobId) -> String, now_s: u64) -> String {
    let later = |at: u64| shown(at.saturating_sub(now_s));
    match reason {
        Reason::Held => "held".into(),
        Reason::Waits(dependency) => words(*dependency),
        Reason::Never(dependency) => format!("{}, which cannot come", words(*dependency)),
        Reason::Begin(at) => format!("begins in {}", later(*at)),
        Reason::ArrayLimit(limit) => format!("{limit} of its array run"),
        Reason::QueueStopped => "its queue starts no jobs".into(),
        Reason::QueueLimit {
            slots,
            of_user,
            limit,
        } => limit_words(*slots, *of_user, *limit),
        Reason::Budget => "its account has no budget left".into(),
        Reason::Reservation(Outside::Before(at)) => {
            format!("its reservation begins in {}", later(*at))
        }
        Reason::Reservation(Outside::EndsAt(at)) => {
            format!("its reservation ends before it, in {}", later(*at))
        }
        Reason::Reservation(Outside::Over) => "its reservation is over".into(),
        Reason::ReservedSlots { free, needed } => {
            format!(
                "{} needed, {free} free in its reservation",
                counted(*needed, "slot")
            )
        }
        Reason::Larger { slots, needed } => {
            format!(
                "{} needed, the machine has {slots}",
                counted(*needed, "slot")
            )
        }
        Reason::LargerMemory { has, needed } => {
            format!("{needed} MiB needed, the machine has {has}")
        }
        Reason::LargerGang { nodes, needed } => {
            format!(
                "{} needed, its queue's partition has {nodes}",
                counted(*needed, "node")
            )
        }
        Reason::GangAway => "hosts of its queue's partition are away".into(),
        Reason::Slots {
            free,
            needed,
            expected,
        } => format!(
            "{} needed, {free} free{}",
            counted(*needed, "slot"),
            expected_words(*expected, now_s)
        ),
        Reason::Memory {
            free,
            needed,
            expected,
        } => format!(
            "{needed} MiB needed, {free} free{}",
            expected_words(*expected, now_s)
        ),
        Reason::Places { slots, nodes } | Reason::NoPlace { slots, nodes } => match nodes {
            None | Some(1) => format!("{} of one host needed", counted(*slots, "slot")),
            Some(nodes) => format!("slots on {nodes} hosts needed"),
        },
        Reason::Reserved { expected } => {
            format!(
                "would run into a reservation{}",
                expected_words(*expected, now_s)
            )
        }
        Reason::WouldDelay { job, .. } => format!("would delay {}", name(*job)),
        Reason::Behind(first) => format!("behind {}", name(*first)),
    }
}

fn expected_words(expected: Option<u64>, now_s: u64) -> String {
    let time = expected.map(|at| format!(", in {}", shown(at.saturating_sub(now_s))));
    time.unwrap_or_default()
}

/// `1 slot`, `2 slots`.
fn counted(number: u32, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

fn limit_words(slots: bool, of_user: bool, limit: u32) -> String {
    let what = counted(limit, if slots { "slot" } else { "job" });
    let whose = if of_user { " of its user" } else { "" };
    format!("its queue has {what}{whose} at once")
}

fn words(dependency: Dependency) -> String {
    let job = dependency.job;
    match dependency.after {
        After::Start => format!("waits for the start of {job}"),
        After::Ok => format!("waits for {job} to succeed"),
        After::NotOk => format!("waits for {job} to fail"),
        After::Any => format!("waits for the end of {job}"),
    }
}

/// Says why a job waits, what would let it start, and when it will.
#[must_use]
pub fn long(job: &str, reason: &Reason, name: &dyn Fn(JobId) -> String, now_s: u64) -> String {
    match reason {
        Reason::Held => format!("job {job} is held\n  to let it go: margay release {job}\n"),
        Reason::Waits(d) => format!(
            "job {job} {}\n  to look at that one: margay explain {}\n",
            words(*d),
            d.job
        ),
        Reason::Never(d) => format!(
            "job {job} will never start: it {}, which cannot come\n",
            words(*d)
        ),
        Reason::ArrayLimit(limit) => format!(
            "job {job} waits for another task of its array: {limit} run at once, as the array asks\n"
        ),
        Reason::Slots {
            free,
            needed,
            expected: Some(at),
        } => format!(
            "job {job} is the first of the queue and needs {}; {free} free\n  \
             it starts within {}, when running jobs reach their time limits, or earlier\n",
            counted(*needed, "slot"),
            shown(at.saturating_sub(now_s))
        ),
        Reason::Slots { free, needed, .. } => format!(
            "job {job} is the first of the queue and needs {}; {free} free\n  \
             when it starts is not known: running jobs have no time limit\n",
            counted(*needed, "slot")
        ),
        Reason::Larger { needed, .. } => format!(
            "job {job} waits for a larger machine: {}; others go before it\n  to add a host: margay node add HOST; or \
             margay down, then margay up --slots {needed}\n",
            short(reason, name, now_s)
        ),
        Reason::LargerMemory { .. } | Reason::NoPlace { .. } => format!(
            "job {job} waits for a larger host: {}, and no host has as much; others go before it\n  to add one: margay node \
             add HOST; or ask for less (margay cancel {job}, margay submit)\n",
            short(reason, name, now_s)
        ),
        Reason::LargerGang { .. } => format!(
            "job {job} waits for a larger partition: {}\n  to name another one: margay set queue NAME partition=PARTITION\n",
            short(reason, name, now_s)
        ),
        Reason::WouldDelay {
            job: first,
            limit_s,
        } => {
            let first = name(*first);
            let remedy = match limit_s {
                Some(limit) => {
                    format!(
                        "with a time limit of at most {} it starts now (-t)",
                        shown(*limit)
                    )
                }
                None => "nothing starts before that one".into(),
            };
            format!("job {job} has enough free slots, but could delay job {first}\n  {remedy}\n")
        }
        Reason::Behind(first) => {
            format!(
                "job {job} has too few free slots, and stands behind job {}\n",
                name(*first)
            )
        }
        Reason::QueueStopped => format!(
            "job {job} waits: its queue starts no jobs\n  to let it: margay set queue NAME started=yes\n"
        ),
        Reason::QueueLimit { .. } => format!(
            "job {job} waits for others to end: {}\n",
            short(reason, name, now_s)
        ),
        Reason::Places { .. } => format!(
            "job {job} finds no place: {}; enough slots are free, but on other hosts\n  to see them: margay node\n",
            short(reason, name, now_s)
        ),
        Reason::Budget => format!(
            "job {job} waits: its account has no budget left\n  another account (-A), or a larger budget: margay set account NAME budget=TIME\n"
        ),
        Reason::Memory { .. } | Reason::Reserved { .. } => format!(
            "job {job} is the first of the queue: {}\n",
            short(reason, name, now_s)
        ),
        Reason::GangAway => format!(
            "job {job} waits: {}\n  to see them: margay node\n",
            short(reason, name, now_s)
        ),
        Reason::Begin(_) | Reason::Reservation(_) | Reason::ReservedSlots { .. } => {
            format!("job {job} waits: {}\n", short(reason, name, now_s))
        }
    }
}
