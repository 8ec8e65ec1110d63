//! Random queues: what is decided keeps the rules, and the first job is never delayed.
#![forbid(unsafe_code)]

use margay_core_queue::{
    After, Backfill, Decision, Dependency, End, Host, Job, Phase, Reason, Scheduler, Settings,
};

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
            .then(|| {
                let after = [After::Ok, After::Any, After::NotOk, After::Start];
                Dependency::on(after[numbers.below(4) as usize], 1 + numbers.below(id - 1))
            })
            .into_iter()
            .collect(),
        ..Job::default()
    }
}

fn scheduler(slots: u32, backfill: Backfill) -> Scheduler {
    let settings = Settings {
        backfill,
        ..Settings::default()
    };
    Scheduler::new(slots, 0, settings)
}

/// Runs the queue until it is empty; jobs end when they like, at their limits at the latest.
fn live(seed: u64, backfill: Backfill) {
    let mut numbers = Numbers(seed);
    let slots = 1 + numbers.below(12) as u32;
    let mut scheduler = scheduler(slots, backfill);
    let queue = scheduler.tag("compute");
    // A plain list beside what the scheduler keeps.
    let mut jobs: Vec<Job> = Vec::new();
    let count = 1 + numbers.below(if cfg!(miri) { 6 } else { 40 });
    // The job that is first without room, and the time that it was promised.
    let mut promised: Option<(u64, u64)> = None;
    for now in 0..4000u64 {
        if (jobs.len() as u64) < count && numbers.below(2) == 0 {
            let id = jobs.len() as u64 + 1;
            let mut new = job(&mut numbers, id, slots);
            new.queue = queue;
            let ends = |(id, _): (u64, bool)| {
                let of_it = jobs
                    .iter()
                    .filter(|j| j.array == Some(id) || j.id == id && j.array.is_none());
                let end = |job: &Job| match job.phase {
                    Phase::Ended(end) => Some(end),
                    _ => None,
                };
                of_it.filter_map(end).collect()
            };
            scheduler.add(new.clone(), &ends);
            jobs.push(new);
            // A newcomer of higher priority may be first now.
            promised = None;
        }
        for job in &mut jobs {
            if let Phase::Running(since) = job.phase {
                let over = job.limit_s.is_some_and(|limit| now >= since + limit);
                if over || numbers.below(30) == 0 {
                    let end = End::Exit(numbers.below(2) as i32);
                    job.phase = Phase::Ended(end);
                    scheduler.end(job.id, end, now);
                }
            }
            if job.is_held && job.phase == Phase::Waiting && numbers.below(10) == 0 {
                job.is_held = false;
                scheduler.change(job.id, &|job| job.is_held = false);
            }
        }
        let decision = scheduler.reasons(now);
        let quick = scheduler.decide(now);
        assert_eq!(
            (&quick.start, &quick.first, &quick.never),
            (&decision.start, &decision.first, &decision.never),
            "seed {seed}: the reasons are not those of what is decided"
        );
        check(slots, &jobs, &decision, now);
        let some = jobs
            .iter()
            .map(|job| job.id)
            .filter(|id| id % 3 == 0)
            .collect();
        let of_some = scheduler.reasons_of(&some, now);
        let expected: Vec<_> = decision
            .reasons
            .iter()
            .filter(|(id, _)| some.contains(id))
            .collect();
        assert_eq!(
            of_some.reasons.iter().collect::<Vec<_>>(),
            expected,
            "seed {seed}"
        );
        for id in &decision.start {
            let job = &mut jobs[*id as usize - 1];
            job.phase = Phase::Running(now);
            scheduler.start(*id, now);
        }
        // One that ranks before the first, and was held or waited for another, may take its place.
        let is_overtaken = |first: u64| {
            let rank = |id: u64| (-jobs[id as usize - 1].priority, id);
            decision.start.iter().any(|&id| rank(id) < rank(first))
        };
        if let (Some((promised_job, at)), Some((id, expected))) = (promised, decision.first)
            && promised_job == id
            && !is_overtaken(id)
        {
            // Nothing that started since may have moved it.
            assert!(
                expected.is_some_and(|time| time <= at.max(now + 1)),
                "seed {seed}: job {id}"
            );
        }
        promised = decision
            .first
            .and_then(|(id, expected)| Some((id, expected?)));
    }
    let left = jobs
        .iter()
        .filter(|job| !matches!(job.phase, Phase::Ended(_)));
    let stuck: Vec<u64> = left
        .filter(|job| job.after.is_empty())
        .map(|job| job.id)
        .collect();
    assert!(stuck.is_empty(), "seed {seed}: {stuck:?} never ran");
}

fn check(slots: u32, jobs: &[Job], decision: &Decision, now: u64) {
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
    if let Some((first, Some(expected))) = decision.first {
        let first = of(first);
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
        live(seed, Backfill::Easy);
        live(seed, Backfill::Conservative);
        live(seed, Backfill::Off);
    }
}

fn new(id: u64, slots: u32, limit_s: impl Into<Option<u64>>) -> Job {
    Job {
        id,
        slots,
        limit_s: limit_s.into(),
        ..Job::default()
    }
}

/// A scheduler with jobs of the queue `compute`.
fn with(mut scheduler: Scheduler, jobs: impl IntoIterator<Item = Job>) -> Scheduler {
    let queue = scheduler.tag("compute");
    for job in jobs {
        scheduler.add(Job { queue, ..job }, &|_| Vec::new());
    }
    scheduler
}

fn running(job: Job, since: u64) -> Job {
    Job {
        phase: Phase::Running(since),
        ..job
    }
}

#[test]
fn short_jobs_go_before_a_large_one_that_waits_and_long_ones_do_not() {
    let jobs = || {
        [
            running(new(1, 3, 100), 0),
            new(2, 4, 10),
            new(3, 1, 100),
            new(4, 1, 90),
            new(5, 1, None),
        ]
    };
    let mut easy = with(scheduler(4, Backfill::Easy), jobs());
    let decision = easy.reasons(10);
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
            (
                3,
                Reason::WouldDelay {
                    job: 2,
                    limit_s: Some(90)
                }
            ),
            (5, Reason::Behind(2)),
        ]
    );
    assert_eq!(easy.expected(3, 10), Some(110));
    assert_eq!(easy.in_its_way(2, 10), [1]);
    let mut none = with(scheduler(4, Backfill::Off), jobs());
    assert!(none.decide(10).start.is_empty());
}

#[test]
fn a_job_that_is_too_large_says_so_wherever_it_stands() {
    let large = Job {
        memory_mib: 1 << 40,
        ..new(4, 1, None)
    };
    let jobs = [
        running(new(1, 4, None), 0),
        new(2, 4, None),
        new(3, 5, None),
        large,
    ];
    let mut state = with(scheduler(4, Backfill::Easy), jobs);
    let reasons = state.reasons(0).reasons;
    assert!(
        matches!(reasons[0], (2, Reason::Slots { .. })),
        "{reasons:?}"
    );
    assert_eq!(
        reasons[1],
        (
            3,
            Reason::Larger {
                slots: 4,
                needed: 5
            }
        )
    );
    assert!(
        matches!(reasons[2], (4, Reason::LargerMemory { .. })),
        "{reasons:?}"
    );
    // On hosts: none of them has as much, although they have it together.
    let host = |slots| Host {
        slots,
        memory_mib: 1 << 50,
        is_up: true,
    };
    state.set_hosts(vec![host(4), host(2)]);
    let together = Job {
        slots_together: 5,
        ..new(5, 5, None)
    };
    let mut state = with(state, [together]);
    let no_place = Reason::NoPlace {
        slots: 5,
        nodes: None,
    };
    assert!(state.reasons(0).reasons.contains(&(5, no_place)));
}

#[test]
fn a_job_larger_than_what_is_left_of_the_machine_keeps_nobody_waiting() {
    let host = |slots| Host {
        slots,
        memory_mib: 0,
        is_up: true,
    };
    let together = Job {
        slots_together: 4,
        ..new(3, 4, None)
    };
    let jobs = [new(1, 9, None), new(2, 5, None), together, new(4, 2, None)];
    let mut state = with(scheduler(4, Backfill::Easy), jobs);
    state.set_hosts(vec![host(3), host(2), host(0)]);
    let decision = state.reasons(0);
    assert_eq!(
        decision.reasons[0],
        (
            1,
            Reason::Larger {
                slots: 5,
                needed: 9
            }
        )
    );
    assert_eq!(decision.start, [2]);
    state.start(2, 0);
    state.end(2, End::Exit(0), 1);
    let decision = state.reasons(1);
    let places = Reason::NoPlace {
        slots: 4,
        nodes: None,
    };
    assert_eq!(decision.reasons[1], (3, places));
    assert_eq!(decision.start, [4]);
    // A host that is away counts: it may be back soon, and is waited for.
    let away = Host {
        is_up: false,
        ..host(5)
    };
    state.set_hosts(vec![host(3), host(1), away]);
    assert!(state.decide(2).start.is_empty());
    state.set_hosts(vec![host(3), host(1), host(0)]);
    assert_eq!(state.decide(2).start, [4]);
}

#[test]
fn conservative_backfill_delays_nobody_and_easy_only_the_first() {
    // Job 4 would let the first start in time, and delay job 3.
    let jobs = || {
        [
            running(new(1, 8, 100), 0),
            new(2, 9, 100),
            new(3, 10, 50),
            new(4, 1, 300),
        ]
    };
    let mut easy = with(scheduler(10, Backfill::Easy), jobs());
    assert_eq!(easy.decide(0).start, [4]);
    let mut conservative = with(scheduler(10, Backfill::Conservative), jobs());
    assert!(conservative.decide(0).start.is_empty());
}

fn set(settings: &mut Settings, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    settings.change(&words, 16, 0).unwrap();
}

#[test]
fn queues_have_priorities_and_limits() {
    let mut settings = Settings::default();
    set(
        &mut settings,
        "queue fast priority=10 user-slots=3 running=3",
    );
    let mut scheduler = Scheduler::new(16, 0, settings.clone());
    let (fast, slow) = (scheduler.tag("fast"), scheduler.tag("compute"));
    for (id, queue, user) in [
        (1, slow, 1),
        (2, fast, 1),
        (3, fast, 1),
        (4, fast, 2),
        (5, fast, 3),
    ] {
        let job = Job {
            queue,
            user,
            ..new(id, 2, None)
        };
        scheduler.add(job, &|_| Vec::new());
    }
    let decision = scheduler.reasons(0);
    assert_eq!(decision.start, [2, 4, 5, 1]);
    assert_eq!(
        decision.reasons,
        [(
            3,
            Reason::QueueLimit {
                slots: true,
                of_user: true,
                limit: 3
            }
        )]
    );
    set(&mut settings, "queue fast started=no");
    scheduler.set(settings);
    assert_eq!(scheduler.decide(0).start, [1]);
    assert_eq!(scheduler.counts(fast, 1), [4, 2]);
}

#[test]
fn who_has_used_less_goes_first_and_what_was_used_decays() {
    let mut settings = Settings::default();
    set(&mut settings, "policy fair-share=100s");
    let mut state = Scheduler::new(1, 0, settings);
    let queue = state.tag("compute");
    let user = |id, user| Job {
        queue,
        user,
        account: 0,
        ..new(id, 1, 10)
    };
    state.add(user(1, 7), &|_| Vec::new());
    assert_eq!(state.decide(0).start, [1]);
    state.start(1, 0);
    state.add(user(2, 7), &|_| Vec::new());
    state.add(user(3, 8), &|_| Vec::new());
    state.end(1, End::Exit(0), 100);
    assert_eq!(state.decide(100).start, [3]);
    state.start(3, 100);
    state.end(3, End::Exit(0), 400);
    state.add(user(4, 8), &|_| Vec::new());
    state.add(user(5, 7), &|_| Vec::new());
    // The first user's use is three half-lives old.
    assert_eq!(state.decide(400).start, [2]);
}

#[test]
fn jobs_of_an_account_without_budget_make_room_for_others() {
    let mut settings = Settings::default();
    set(&mut settings, "account rich budget=1h");
    let mut state = Scheduler::new(4, 0, settings);
    let (queue, rich, poor) = (state.tag("compute"), state.tag("rich"), state.tag("poor"));
    for (id, slots, account, since) in [(1, 2, rich, 10), (2, 2, rich, 20)] {
        let job = running(new(id, slots, None), since);
        state.add(
            Job {
                queue,
                account,
                ..job
            },
            &|_| Vec::new(),
        );
    }
    let job = Job {
        queue,
        account: poor,
        ..new(3, 2, 60)
    };
    state.add(job, &|_| Vec::new());
    // Within its budget nobody is preempted.
    assert!(state.decide(100).preempt.is_empty());
    assert_eq!(state.decide(2000).preempt, [2]);
    state.ending(2);
    assert!(state.decide(2000).preempt.is_empty());
    state.requeue(2, 2001);
    assert_eq!(state.decide(2001).start, [3]);
    state.start(3, 2001);
    state.end(3, End::Exit(0), 2010);
    assert_eq!(state.decide(2010).start, [2]);
}

#[test]
fn reservations_keep_their_slots_for_those_who_may_use_them() {
    let mut settings = Settings::default();
    set(
        &mut settings,
        "reservation lecture slots=12 start=100 time=100s",
    );
    let mut state = Scheduler::new(16, 0, settings.clone());
    let lecture = state.tag("lecture");
    let inside = Job {
        reservation: Some(lecture),
        ..new(3, 8, 50)
    };
    let jobs = [new(1, 8, 100), new(2, 8, 101), inside, new(4, 4, None)];
    let mut state = with(state, jobs);
    let decision = state.reasons(0);
    assert_eq!(decision.start, [1, 4]);
    assert_eq!(
        decision.reasons[0],
        (
            2,
            Reason::Reserved {
                expected: Some(200)
            }
        )
    );
    assert!(matches!(decision.reasons[1], (3, Reason::Reservation(_))));
    assert_eq!(state.decide(120).start, [3, 4]);
    state.start(3, 120);
    // Its own slots are used, not those of the others.
    assert_eq!(state.decide(120).start, [4]);
    assert_eq!(state.decide(160).start, [4]);
    settings.reservations.clear();
    state.set(settings);
    assert_eq!(state.decide(160).start, [1]);
}

#[test]
fn jobs_begin_when_they_may_and_memory_is_shared_like_slots() {
    let mut state = with(
        Scheduler::new(16, 1000, Settings::default()),
        [
            Job {
                begin_s: Some(50),
                ..new(1, 1, None)
            },
            Job {
                memory_mib: 800,
                ..new(2, 1, 10)
            },
            Job {
                memory_mib: 300,
                ..new(3, 1, 10)
            },
            new(4, 1, 10),
        ],
    );
    let decision = state.reasons(0);
    assert_eq!(decision.start, [2, 4]);
    assert_eq!(decision.reasons[0], (1, Reason::Begin(50)));
    let memory = Reason::Memory {
        free: 200,
        needed: 300,
        expected: Some(10),
    };
    assert_eq!(decision.reasons[1], (3, memory));
}

#[test]
fn replays_keep_the_invariant_and_backfill_helps() {
    use margay_core_queue::{replay::replay, swf};
    let log = swf::make(if cfg!(miri) { 40 } else { 3000 }, 256, 3);
    let run = |backfill| {
        let settings = Settings {
            backfill,
            ..Settings::default()
        };
        replay(&log, 256, settings)
    };
    let (off, easy, conservative) = (
        run(Backfill::Off),
        run(Backfill::Easy),
        run(Backfill::Conservative),
    );
    for outcome in [&off, &easy, &conservative] {
        assert_eq!(
            (outcome.jobs, outcome.delays),
            (log.jobs.len(), 0),
            "{outcome:?}"
        );
    }
    if !cfg!(miri) {
        assert!(easy.slowdown < off.slowdown && conservative.slowdown < off.slowdown);
        assert!(easy.backfilled > 0 && off.backfilled == 0);
    }
}
