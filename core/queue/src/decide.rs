//! First come, first served, with EASY backfill.
//!
//! Jobs are looked at by priority, then by number. The first that finds no room gets a reservation:
//! the earliest time at which running jobs, by their time limits, leave enough slots. A later job
//! starts now only if it ends by its limit before that time, or uses slots that the first one does
//! not need then: so no backfilled job delays the first. Where jobs without a time limit hold the
//! slots, that time is not known, and nothing is started before the first job.
//!
//! The idea and its name: D. Lifka, "The ANL/IBM SP Scheduling System", 1995.

use std::collections::HashMap;

use crate::job::{After, Dependency, End, Job, JobId, Phase};

/// Why a job does not start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is held until somebody releases it.
    Held,
    /// A job that it depends on has not come that far.
    Waits(Dependency),
    /// A dependency can no longer be met: it will never start.
    Never(Dependency),
    /// As many tasks of its array run as may.
    ArrayLimit(u32),
    /// It is the first in the queue, and too few slots are free.
    Slots {
        free: u32,
        needed: u32,
        /// When there will be enough by the time limits of running jobs, if they all have one.
        expected: Option<u64>,
    },
    /// Enough slots are free, but its start would delay the first job of the queue.
    WouldDelay(JobId),
    /// Jobs before it use the free slots.
    Behind(JobId),
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Jobs to start, in this order.
    pub start: Vec<JobId>,
    /// Why each of the other waiting jobs does not start, in the order of the queue.
    pub reasons: Vec<(JobId, Reason)>,
}

/// How far the jobs have come that dependencies name.
struct Progress<'a> {
    phases: HashMap<JobId, Vec<Phase>>,
    ended: &'a dyn Fn(JobId) -> Option<Vec<End>>,
}

impl Progress<'_> {
    /// None when met, else why not.
    fn unmet(&self, dependency: Dependency) -> Option<Reason> {
        let mut phases: Vec<Phase> = (self.ended)(dependency.job)
            .unwrap_or_default()
            .into_iter()
            .map(Phase::Ended)
            .collect();
        phases.extend(self.phases.get(&dependency.job).into_iter().flatten());
        let all = |test: fn(&Phase) -> bool| !phases.is_empty() && phases.iter().all(test);
        let has_ended = all(|p| matches!(p, Phase::Ended(_)));
        let is_met = match dependency.after {
            After::Start => all(|p| !matches!(p, Phase::Waiting)),
            After::Any => has_ended,
            After::Ok => all(|p| matches!(p, Phase::Ended(end) if end.is_ok())),
            // As Slurm has it for arrays: any task that failed is enough, when all have ended.
            After::NotOk => has_ended && !all(|p| matches!(p, Phase::Ended(end) if end.is_ok())),
        };
        let is_lost = match dependency.after {
            After::Ok => phases
                .iter()
                .any(|p| matches!(p, Phase::Ended(end) if !end.is_ok())),
            After::NotOk => has_ended,
            After::Start | After::Any => false,
        };
        match (is_met, is_lost || phases.is_empty()) {
            (true, _) => None,
            (false, true) => Some(Reason::Never(dependency)),
            (false, false) => Some(Reason::Waits(dependency)),
        }
    }
}

/// Why a job can never run on a machine of `slots` slots, if so.
#[must_use]
pub fn refusal(slots: u32, needed: u32) -> Option<String> {
    (needed > slots).then(|| {
        format!(
            "it asks for {needed} slots and the machine has {slots}; ask for at most {slots}, or start the \
             queue with more: margay down, then margay up --slots {needed}"
        )
    })
}

/// The time at which `needed` slots will be free, and how many more will be then. No time, and no
/// more, when that depends on jobs without a time limit.
fn reservation(free: u32, needed: u32, running: &[(Option<u64>, u32)]) -> (Option<u64>, u32) {
    let mut ends: Vec<(u64, u32)> = running
        .iter()
        .filter_map(|&(end, slots)| Some((end?, slots)))
        .collect();
    ends.sort_unstable();
    let mut at_end = free;
    let mut rest = ends.iter().peekable();
    while let Some(&(end, slots)) = rest.next() {
        at_end += slots;
        let more_then = rest.peek().is_some_and(|next| next.0 == end);
        if at_end >= needed && !more_then {
            return (Some(end), at_end - needed);
        }
    }
    (None, 0)
}

/// Decides what starts at `now_s` on a machine of `slots` slots. `jobs` are those that wait or run
/// and may hold some that have ended; `ended` tells how all other jobs have ended that
/// dependencies name: a job, or the tasks of an array.
///
/// Running jobs may hold more slots than there are (a smaller machine after a restart): nothing
/// starts then.
#[must_use]
pub fn decide(
    slots: u32,
    jobs: &[&Job],
    ended: &dyn Fn(JobId) -> Option<Vec<End>>,
    now_s: u64,
) -> Decision {
    let mut progress = Progress {
        phases: HashMap::new(),
        ended,
    };
    let named: std::collections::HashSet<JobId> = jobs
        .iter()
        .flat_map(|job| job.after.iter().map(|d| d.job))
        .collect();
    let mut in_array: HashMap<JobId, u32> = HashMap::new();
    let mut running: Vec<(Option<u64>, u32)> = Vec::new();
    let mut used = 0u32;
    for job in jobs {
        let own = Some(job.id).filter(|id| Some(*id) != job.array);
        for id in own.into_iter().chain(job.array) {
            if named.contains(&id) {
                progress.phases.entry(id).or_default().push(job.phase);
            }
        }
        if let Phase::Running(since) = job.phase {
            used = used.saturating_add(job.slots);
            running.push((end_of(job, since, now_s), job.slots));
            if let Some(array) = job.array {
                *in_array.entry(array).or_default() += 1;
            }
        }
    }
    let mut free = slots.saturating_sub(used);
    let mut waiting: Vec<&Job> = jobs
        .iter()
        .copied()
        .filter(|job| job.phase == Phase::Waiting)
        .collect();
    waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
    let mut decision = Decision::default();
    // The first job without room: its number, its time, and the slots that it leaves free then.
    let mut first: Option<(JobId, Option<u64>, u32)> = None;
    for job in waiting {
        let reason = blocked(job, &progress, &in_array).or_else(|| match &mut first {
            None if job.slots <= free => None,
            None => {
                let (expected, extra) = reservation(free, job.slots, &running);
                first = Some((job.id, expected, extra));
                Some(Reason::Slots {
                    free,
                    needed: job.slots,
                    expected,
                })
            }
            Some((id, ..)) if job.slots > free => Some(Reason::Behind(*id)),
            Some((id, time, extra)) => {
                let end = job.limit_s.map(|limit| now_s.saturating_add(limit));
                let is_before = matches!((end, *time), (Some(end), Some(time)) if end <= time);
                if is_before {
                    None
                } else if job.slots <= *extra {
                    *extra -= job.slots;
                    None
                } else {
                    Some(Reason::WouldDelay(*id))
                }
            }
        });
        match reason {
            Some(reason) => decision.reasons.push((job.id, reason)),
            None => {
                free -= job.slots;
                running.push((end_of(job, now_s, now_s), job.slots));
                if let Some(array) = job.array {
                    *in_array.entry(array).or_default() += 1;
                }
                decision.start.push(job.id);
            }
        }
    }
    decision
}

/// When a job ends by its limit; one that is over it ends at any moment.
fn end_of(job: &Job, since: u64, now_s: u64) -> Option<u64> {
    job.limit_s
        .map(|limit| since.saturating_add(limit).max(now_s.saturating_add(1)))
}

/// What keeps a job from being looked at, whatever is free.
fn blocked(job: &Job, progress: &Progress<'_>, in_array: &HashMap<JobId, u32>) -> Option<Reason> {
    if job.is_held {
        return Some(Reason::Held);
    }
    let mut unmet: Vec<Reason> = job
        .after
        .iter()
        .filter_map(|&dependency| progress.unmet(dependency))
        .collect();
    if let Some(at) = unmet.iter().position(|r| matches!(r, Reason::Never(_))) {
        return Some(unmet.swap_remove(at));
    }
    if !unmet.is_empty() {
        return Some(unmet.swap_remove(0));
    }
    let (array, limit) = (job.array?, job.array_limit?);
    (in_array.get(&array).copied().unwrap_or(0) >= limit).then_some(Reason::ArrayLimit(limit))
}
