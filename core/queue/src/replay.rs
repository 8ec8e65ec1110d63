//! A recorded workload, run again in no time by the code that decides for the live queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::job::{End, Job, JobId, Phase};
use crate::rules::{QUEUE, Settings};
use crate::scheduler::Scheduler;
use crate::swf::Log;

/// Shorter jobs count as if they ran this many seconds: their slowdown says nothing (D. Feitelson
/// and L. Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling", 1998).
const SHORTEST_S: f64 = 10.0;

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub jobs: usize,
    /// Jobs that are larger than the machine.
    pub refused: usize,
    pub decisions: usize,
    /// Jobs that went before another one.
    pub backfilled: usize,
    /// Decisions after which the first job could have started later than before. Checked by a
    /// plain sum over what runs.
    pub delays: usize,
    /// Average bounded slowdown: waiting and running time over running time.
    pub slowdown: f64,
    pub wait_s: f64,
    /// Used part of the machine, until the last job ends.
    pub utilization: f64,
    pub makespan_s: u64,
    /// The longest queue.
    pub most_waiting: usize,
}

/// Runs a log on a machine of `slots` slots. A job whose recorded time is longer than its limit
/// ends at the limit.
#[must_use]
pub fn replay(log: &Log, slots: u32, settings: Settings) -> Outcome {
    let mut scheduler = Scheduler::new(slots, 0, settings);
    let queue = scheduler.tag(QUEUE);
    let mut outcome = Outcome::default();
    let mut ends: BinaryHeap<Reverse<(u64, JobId)>> = BinaryHeap::new();
    let mut arrivals = log.jobs.iter().enumerate().peekable();
    let mut promise: Option<(JobId, u64)> = None;
    let (mut waiting, mut busy, mut total_slowdown, mut total_wait) = (0usize, 0.0, 0.0, 0.0);
    let begun = log.jobs.first().map_or(0, |job| job.submitted);
    loop {
        let next = [
            arrivals.peek().map(|(_, job)| job.submitted),
            ends.peek().map(|Reverse((at, _))| *at),
        ];
        let Some(now) = next.into_iter().flatten().min() else {
            break;
        };
        while let Some(&Reverse((at, id))) = ends.peek()
            && at <= now
        {
            ends.pop();
            scheduler.end(id, End::Exit(0), at);
            outcome.makespan_s = at - begun;
        }
        while let Some((place, recorded)) = arrivals.next_if(|(_, job)| job.submitted <= now) {
            if recorded.processors > slots {
                outcome.refused += 1;
                continue;
            }
            let job = Job {
                id: place as JobId + 1,
                slots: recorded.processors,
                limit_s: Some(recorded.limit_s),
                user: scheduler.tag(&recorded.user.to_string()),
                account: scheduler.tag(&format!("group {}", recorded.group)),
                queue,
                ..Job::default()
            };
            scheduler.add(job, &|_| Vec::new());
            waiting += 1;
        }
        outcome.most_waiting = outcome.most_waiting.max(waiting);
        let decision = scheduler.decide(now);
        outcome.decisions += 1;
        outcome.backfilled += decision.backfilled;
        for id in &decision.start {
            let recorded = &log.jobs[*id as usize - 1];
            scheduler.start(*id, now);
            waiting -= 1;
            let ran = recorded.ran_s.min(recorded.limit_s);
            ends.push(Reverse((now + ran, *id)));
            let wait = (now - recorded.submitted) as f64;
            outcome.jobs += 1;
            total_wait += wait;
            busy += ran as f64 * f64::from(recorded.processors);
            total_slowdown += ((wait + ran as f64) / (ran as f64).max(SHORTEST_S)).max(1.0);
        }
        let first = decision.first.and_then(|(id, at)| Some((id, at?)));
        if let Some((id, at)) = first {
            let is_later = promise.is_some_and(|(other, old)| other == id && at > old.max(now + 1));
            outcome.delays += usize::from(is_later || is_delayed(&scheduler, slots, id, at, now));
        }
        promise = first;
    }
    let jobs = outcome.jobs.max(1) as f64;
    outcome.slowdown = total_slowdown / jobs;
    outcome.wait_s = total_wait / jobs;
    outcome.utilization = busy / f64::from(slots.max(1)) / outcome.makespan_s.max(1) as f64;
    outcome
}

/// Whether what runs leaves the first job too little at its promised time.
fn is_delayed(scheduler: &Scheduler, slots: u32, first: JobId, at: u64, now: u64) -> bool {
    let held: u64 = scheduler
        .running()
        .filter(|job| match (job.phase, job.limit_s) {
            (Phase::Running(since), Some(limit)) => (since + limit).max(now + 1) > at,
            _ => true,
        })
        .map(|job| u64::from(job.slots))
        .sum();
    let needed = scheduler.job(first).map_or(0, |job| u64::from(job.slots));
    held + needed > u64::from(slots)
}
