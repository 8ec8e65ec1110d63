//! What a rank costs in memory.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use margay_tests::jobs::{Built, Words, text};
use margay_tests::run;

const RANKS: u32 = 64;

/// The largest private and shared KiB at each stage that the ranks report.
fn largest(built: &Built) -> HashMap<String, (i64, i64)> {
    let out = Words::mpiexec(100, RANKS, &built.path(), "").succeed(120);
    let mut stages: HashMap<String, (i64, i64)> = HashMap::new();
    let mut lines = 0;
    for line in out.lines() {
        let mut words = line.split(' ');
        let stage = words.next().expect("a stage");
        let mut number = || -> i64 { words.next().expect("a number").parse().expect("a number") };
        let (private, shared) = (number(), number());
        let most = stages.entry(stage.to_owned()).or_default();
        *most = (most.0.max(private), most.1.max(shared));
        lines += 1;
    }
    assert_eq!(lines, stages.len() * RANKS as usize, "{out}");
    stages
}

#[test]
fn ranks_are_cheap_and_so_are_their_peers() {
    let plain = largest(&Built::plain("days/memory.c", &["-DPLAIN"]))["plain"];
    let stages = largest(&Built::mpi("days/memory.c"));
    println!("KiB, private and shared: without MPI {plain:?}, {stages:?}");

    // An idle rank against the same program without MPI: what we allocate, the pages of our library
    // that are written when it is loaded, and, counted in full, the pages of the job's memory that
    // this rank has touched.
    for stage in ["idle", "barrier"] {
        let (private, shared) = stages[stage];
        let added = private - plain.0 + shared;
        assert!(added < 1024, "a rank at stage '{stage}' adds {added} KiB");
    }

    // A rank that has talked to everybody, both ways. What it has mapped of the job's memory says
    // little then: the kernel maps pages around the one that is touched, and those that peers share
    // count for each. The job's memory is counted as a whole below.
    let (before, after) = (stages["barrier"], stages["talked"]);
    let each = (after.0 - before.0) / (i64::from(RANKS) - 1);
    assert!(each < 8, "{each} KiB of its own for each peer");
}

/// The most that a rank's share of the job's shared memory may be, whatever it does in messages.
const MOST_SHARED_KIB: u32 = 1024;

fn shared_kib(said: &str) -> u32 {
    let kib = said.lines().find_map(|line| line.strip_prefix("KiB "));
    kib.unwrap_or_else(|| panic!("no figure: {said}"))
        .parse()
        .expect("a number")
}

/// Each rank talks to far more partners than it has rings, now to these most and now to those;
/// every message is checked.
#[test]
fn many_partners_cost_a_bounded_amount_of_shared_memory() {
    let built = Built::mpi("days/many.c");
    for (ranks, rounds, seed) in [(40, 60, 1), (96, 40, 2), (8, 60, 3)] {
        let arguments = format!("{rounds} {seed} 0");
        let out = Words::mpiexec(200, ranks, &built.path(), &arguments).succeed(220);
        let kib = shared_kib(&out);
        println!("{ranks} ranks: {kib} KiB of shared memory each");
        assert!(kib < MOST_SHARED_KIB, "{ranks} ranks: {kib} KiB each");
    }
}

/// Ranks die in the middle of it. What they had comes back to the others, who lose none of their
/// messages.
#[test]
fn ranks_die_among_many_partners_and_the_others_lose_nothing() {
    let built = Built::mpi("days/many.c");
    for seed in 1..=6 {
        // Without messages that are kept in the memory of a sender, all that a rank sent before it
        // died arrives.
        let (kept, send_buffer) = if seed % 2 == 0 {
            (1, "8388608")
        } else {
            (0, "0")
        };
        let job = Words::mpiexec(200, 40, "-continue-on-failure".as_ref(), "-quiet");
        let job = job
            .and(built.path())
            .and_all(&format!("40 {seed} 4 {kept}"));
        let output = run(job.command(220).env("MARGAY_SEND_BUFFER", send_buffer));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(137), "{seed}: {}", text(&output));
        assert!(shared_kib(&said) < MOST_SHARED_KIB, "{seed}: {said}");
    }
}
