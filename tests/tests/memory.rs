//! What a rank costs in memory.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use margay_tests::jobs::{Built, Words};

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

    // An idle rank against the same program without MPI: what we allocate, the pages of our library that are written when it
    // is loaded, and, counted in full, the pages of the job's memory that this rank has touched.
    for stage in ["idle", "barrier"] {
        let (private, shared) = stages[stage];
        let added = private - plain.0 + shared;
        assert!(added < 1024, "a rank at stage '{stage}' adds {added} KiB");
    }

    // A rank that has talked to everybody, both ways, counting shared pages in full on both sides.
    let (before, after) = (stages["barrier"], stages["talked"]);
    let peers = i64::from(RANKS) - 1;
    let each = (after.0 - before.0 + after.1 - before.1) / peers;
    assert!(each < 64, "{each} KiB for each peer");
}
