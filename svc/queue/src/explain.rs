//! The reasons of the scheduler in words.

use margay_core_queue::{After, Dependency, JobId, Reason, shown};

/// Says in a few words why a job waits, for a table. `name` shows the number of a job.
#[must_use]
pub fn short(reason: &Reason, name: &dyn Fn(JobId) -> String, now_s: u64) -> String {
    match reason {
        Reason::Held => "held".into(),
        Reason::Waits(dependency) => words(*dependency),
        Reason::Never(dependency) => format!("never: {}", words(*dependency)),
        Reason::ArrayLimit(limit) => format!("{limit} of its array run"),
        Reason::Slots {
            free,
            needed,
            expected,
        } => {
            let time = expected.map(|at| format!(", in {}", shown(at.saturating_sub(now_s))));
            format!(
                "{needed} slots needed, {free} free{}",
                time.unwrap_or_default()
            )
        }
        Reason::WouldDelay(first) => format!("would delay {}", name(*first)),
        Reason::Behind(first) => format!("behind {}", name(*first)),
    }
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
            "job {job} is the first of the queue and needs {needed} slots; {free} are free\n  \
             it starts within {}, when running jobs reach their time limits, or earlier\n",
            shown(at.saturating_sub(now_s))
        ),
        Reason::Slots { free, needed, .. } => format!(
            "job {job} is the first of the queue and needs {needed} slots; {free} are free\n  \
             when it starts is not known: running jobs have no time limit\n"
        ),
        Reason::WouldDelay(first) => format!(
            "job {job} has enough free slots, but could delay job {}, the first of the queue\n  \
             a shorter time limit (-t) may let it start now\n",
            name(*first)
        ),
        Reason::Behind(first) => {
            format!(
                "job {job} has too few free slots, and stands behind job {}\n",
                name(*first)
            )
        }
    }
}
