//! Jobs of queues that have a partition with gang scheduling.
#![forbid(unsafe_code)]

use margay_core_queue::{End, Gang, Host, Job, Part, QueueRules, Reason, Scheduler, Settings};

fn scheduler(slots: u32) -> Scheduler {
    Scheduler::new(slots, 0, Settings::default())
}

fn new(id: u64, slots: u32) -> Job {
    Job {
        id,
        slots,
        ..Job::default()
    }
}

#[test]
fn jobs_that_take_turns_need_no_other_slots() {
    let mut state = scheduler(4);
    let mut settings = state.settings().clone();
    let gang = Gang {
        partition: ".compute.day".into(),
        cores: vec![2, 3],
        ..Gang::default()
    };
    let rules = QueueRules {
        gang: Some(gang),
        running: Some(2),
        ..QueueRules::default()
    };
    settings.queues.insert("day".into(), rules);
    state.set(settings.clone());
    let day = state.tag("day");
    let of_day = |id, slots| Job {
        queue: day,
        ..new(id, slots)
    };
    assert_eq!(
        (state.slots_for("day", 4), state.slots_for("compute", 4)),
        (2, 2)
    );
    // The first of the others has no time limit and waits for one that has none.
    let jobs = [
        new(1, 2),
        new(2, 2),
        of_day(3, 3),
        of_day(4, 2),
        of_day(5, 1),
    ];
    let compute = state.tag("compute");
    for job in jobs.into_iter().chain([of_day(6, 2)]) {
        let queue = if job.queue == day { day } else { compute };
        state.add(Job { queue, ..job }, &|_| Vec::new());
    }
    let decision = state.reasons(0);
    assert_eq!(decision.start, [1, 4, 5]);
    let reasons: Vec<u64> = decision.reasons.iter().map(|(id, _)| *id).collect();
    assert_eq!(reasons, [2, 3, 6]);
    assert_eq!(
        decision.reasons[1].1,
        Reason::LargerGang {
            nodes: 2,
            needed: 3
        }
    );
    for id in decision.start {
        state.start(id, 0);
    }
    state.end(4, End::Exit(0), 5);
    assert_eq!(state.decide(5).start, [6]);
    // Without the partition they need slots like others, also those that run.
    settings.queues.get_mut("day").unwrap().gang = None;
    state.set(settings);
    assert_eq!(state.decide(5).start, []);
    state.end(1, End::Exit(0), 6);
    assert_eq!(state.decide(6).start, [2]);
}

#[test]
fn jobs_that_take_turns_are_on_the_hosts_of_their_partition() {
    let mut state = scheduler(12);
    let host = |is_up| Host {
        slots: 4,
        memory_mib: 100,
        is_up,
    };
    let part = |host, slots| Part { host, slots };
    state.set_hosts(vec![host(true), host(true), host(true)]);
    let mut settings = state.settings().clone();
    for (name, hosts) in [
        ("day", vec![part(1, 2), part(2, 4)]),
        ("night", vec![part(1, 3)]),
    ] {
        let gang = Gang {
            hosts,
            ..Gang::default()
        };
        let rules = QueueRules {
            gang: Some(gang),
            ..QueueRules::default()
        };
        settings.queues.insert(name.into(), rules);
    }
    state.set(settings);
    // Those of both partitions are never in at once on a host.
    assert_eq!(
        ["day", "night", "compute"].map(|queue| state.slots_for(queue, 12)),
        [6, 3, 5]
    );
    let (day, compute) = (state.tag("day"), state.tag("compute"));
    let of_day = |id, slots, memory_mib| Job {
        queue: day,
        memory_mib,
        slots_together: 1,
        ..new(id, slots)
    };
    let wide = Job {
        nodes: Some(2),
        ..of_day(6, 2, 0)
    };
    let other = |id, slots| Job {
        queue: compute,
        slots_together: 1,
        ..new(id, slots)
    };
    let jobs = [
        of_day(1, 2, 0),
        of_day(2, 2, 60),
        of_day(3, 6, 0),
        of_day(4, 2, 60),
        other(5, 5),
        wide,
        of_day(7, 7, 0),
        other(8, 1),
    ];
    for job in jobs {
        state.add(job, &|_| Vec::new());
    }
    let decision = state.reasons(0);
    assert_eq!(decision.start, [1, 2, 3, 4, 5, 6]);
    for id in decision.start {
        state.start(id, 0);
    }
    let parts = |state: &Scheduler, id| state.job(id).unwrap().parts.clone();
    let placed = [1, 2, 3, 4, 5, 6].map(|id| parts(&state, id));
    assert_eq!(
        placed,
        [
            vec![part(1, 2)],
            // Where nobody is who takes turns.
            vec![part(2, 2)],
            vec![part(1, 2), part(2, 4)],
            // Both have as many; the other one has not the memory.
            vec![part(1, 2)],
            vec![part(0, 4), part(1, 1)],
            vec![part(1, 1), part(2, 1)],
        ]
    );
    let reasons = state.reasons(0).reasons;
    let larger = Reason::LargerGang {
        nodes: 6,
        needed: 7,
    };
    assert!(reasons.contains(&(7, larger)), "{reasons:?}");
    let full = Reason::Slots {
        free: 0,
        needed: 1,
        expected: None,
    };
    assert!(reasons.contains(&(8, full)), "{reasons:?}");
    // A host of the partition is away: those that need it wait, and nobody behind them.
    state.end(3, End::Exit(0), 1);
    state.set_hosts(vec![host(true), host(true), host(false)]);
    state.add(of_day(9, 3, 0), &|_| Vec::new());
    state.add(of_day(10, 2, 0), &|_| Vec::new());
    let decision = state.reasons(1);
    assert_eq!(decision.start, [10]);
    assert!(decision.reasons.contains(&(9, Reason::GangAway)));
}
