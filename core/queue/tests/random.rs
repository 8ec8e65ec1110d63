//! Random queues: what is decided keeps the rules, and the first job is never delayed.
#![forbid(unsafe_code)]

use margay_core_queue::{After, Dependency, End, Job, Phase, Reason, decide};

/// A generator of numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn job(numbers: &mut Numbers, id: u64, slots: u32) -> Job {
    let in_array = id > 3 && numbers.below(6) == 0;
    Job {
        id,
        array: in_array.then_some(id - id % 4),
        array_limit: in_array.then(|| 1 + numbers.below(2) as u32),
        slots: 1 + numbers.below(u64::from(slots)) as u32,
        limit_s: (numbers.below(4) > 0).then(|| 1 + numbers.below(50)),
        priority: numbers.below(3) as i64,
        is_held: numbers.below(12) == 0,
        after: (id > 2 && numbers.below(5) == 0)
            .then(|| Dependency {
                after: [After::Ok, After::Any, After::NotOk, After::Start]
                    [numbers.below(4) as usize],
                job: 1 + numbers.below(id - 1),
            })
            .into_iter()
            .collect(),
        phase: Phase::Waiting,
    }
}

/// Runs the queue until it is empty; jobs end when they like, at their limits at the latest.
fn live(seed: u64) {
    let mut numbers = Numbers(seed);
    let slots = 1 + numbers.below(12) as u32;
    let mut jobs: Vec<Job> = Vec::new();
    let count = 1 + numbers.below(if cfg!(miri) { 6 } else { 40 });
    // The job that is first without room, and the time that it was promised.
    let mut promised: Option<(u64, u64)> = None;
    for now in 0..4000u64 {
        if (jobs.len() as u64) < count && numbers.below(2) == 0 {
            let id = jobs.len() as u64 + 1;
            let new = job(&mut numbers, id, slots);
            jobs.push(new);
            // A newcomer of higher priority may be first now.
            promised = None;
        }
        for job in &mut jobs {
            if let Phase::Running(since) = job.phase {
                let over = job.limit_s.is_some_and(|limit| now >= since + limit);
                if over || numbers.below(30) == 0 {
                    job.phase = Phase::Ended(End::Exit(numbers.below(2) as i32));
                }
            }
            job.is_held &= numbers.below(10) > 0;
        }
        let decision = decide(slots, &jobs.iter().collect::<Vec<_>>(), &|_| None, now);
        check(slots, &jobs, &decision, now);
        for id in &decision.start {
            let job = &mut jobs[*id as usize - 1];
            job.phase = Phase::Running(now);
        }
        let first = decision
            .reasons
            .iter()
            .find_map(|(id, reason)| match reason {
                Reason::Slots { expected, .. } => Some((*id, *expected)),
                _ => None,
            });
        // One that ranks before the first, and was held or waited for another, may take its place.
        let is_overtaken = |first: u64| {
            let rank = |id: u64| (-jobs[id as usize - 1].priority, id);
            decision.start.iter().any(|&id| rank(id) < rank(first))
        };
        if let (Some((promised_job, at)), Some((id, expected))) = (promised, first)
            && promised_job == id
            && !is_overtaken(id)
        {
            // Nothing that started since may have moved it.
            assert!(
                expected.is_some_and(|time| time <= at.max(now + 1)),
                "seed {seed}: job {id}"
            );
        }
        promised = first.and_then(|(id, expected)| Some((id, expected?)));
    }
}

fn check(slots: u32, jobs: &[Job], decision: &margay_core_queue::Decision, now: u64) {
    let of = |id: u64| &jobs[id as usize - 1];
    let used: u32 = jobs
        .iter()
        .filter(|j| matches!(j.phase, Phase::Running(_)))
        .map(|j| j.slots)
        .sum();
    let new: u32 = decision.start.iter().map(|id| of(*id).slots).sum();
    assert!(used + new <= slots);
    let waiting = jobs.iter().filter(|j| j.phase == Phase::Waiting).count();
    assert_eq!(waiting, decision.start.len() + decision.reasons.len());
    for id in &decision.start {
        let job = of(*id);
        assert!(job.phase == Phase::Waiting && !job.is_held);
        for dependency in &job.after {
            let other = of(dependency.job);
            // Tasks of an array share its number, so only plain jobs are compared.
            if other.array.is_none() && !jobs.iter().any(|j| j.array == Some(other.id)) {
                let met = match (dependency.after, other.phase) {
                    (After::Start, Phase::Waiting) => false,
                    (After::Start, _) => true,
                    (After::Any, phase) => matches!(phase, Phase::Ended(_)),
                    (After::Ok, phase) => phase == Phase::Ended(End::Exit(0)),
                    (After::NotOk, phase) => {
                        matches!(phase, Phase::Ended(end) if !end.is_ok())
                    }
                };
                assert!(met, "{job:?} started before {other:?}");
            }
        }
        if let (Some(array), Some(limit)) = (job.array, job.array_limit) {
            let running = jobs
                .iter()
                .filter(|j| j.array == Some(array))
                .filter(|j| matches!(j.phase, Phase::Running(_)) || decision.start.contains(&j.id))
                .count();
            // Tasks of these random arrays have limits of their own; each holds for itself.
            let widest = jobs
                .iter()
                .filter(|j| j.array == Some(array))
                .filter_map(|j| j.array_limit)
                .max();
            assert!(running as u32 <= widest.unwrap_or(limit));
        }
    }
    // The invariant of EASY, by a plain model: the first job without room, the jobs that start,
    // each until its limit. It gets its slots at the promised time.
    let first = decision
        .reasons
        .iter()
        .find_map(|(id, reason)| match reason {
            Reason::Slots { expected, .. } => Some((of(*id), *expected)),
            _ => None,
        });
    if let Some((first, Some(expected))) = first {
        let end = |job: &Job, since: u64| job.limit_s.map(|limit| (since + limit).max(now + 1));
        let held: u32 = jobs
            .iter()
            .filter_map(|job| match job.phase {
                Phase::Running(since) => Some((job, end(job, since))),
                _ if decision.start.contains(&job.id) => Some((job, end(job, now))),
                _ => None,
            })
            .filter(|(_, end)| end.is_none_or(|end| end > expected))
            .map(|(job, _)| job.slots)
            .sum();
        assert!(held + first.slots <= slots, "job {} is delayed", first.id);
    }
}

#[test]
fn random_queues_keep_the_rules_and_never_delay_the_first_job() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        live(seed);
    }
}

#[test]
fn short_jobs_go_before_a_large_one_that_waits_and_long_ones_do_not() {
    let new = |id, slots, limit_s, phase| Job {
        id,
        array: None,
        array_limit: None,
        slots,
        limit_s,
        priority: 0,
        is_held: false,
        after: vec![],
        phase,
    };
    let jobs = [
        new(1, 3, Some(100), Phase::Running(0)),
        new(2, 4, Some(10), Phase::Waiting),
        new(3, 1, Some(100), Phase::Waiting),
        new(4, 1, Some(90), Phase::Waiting),
        new(5, 1, None, Phase::Waiting),
    ];
    let decision = decide(4, &jobs.each_ref(), &|_| None, 10);
    assert_eq!(decision.start, [4]);
    assert_eq!(
        decision.reasons,
        [
            (
                2,
                Reason::Slots {
                    free: 1,
                    needed: 4,
                    expected: Some(100)
                }
            ),
            (3, Reason::WouldDelay(2)),
            (5, Reason::Behind(2)),
        ]
    );
}
