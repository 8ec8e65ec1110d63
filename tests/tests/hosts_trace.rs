//! `mpiexec -trace` and `-profile` on several hosts: network namespaces on a bridge, which only
//! root can make; one of them has a clock of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, descendants_named, send};
use margay_tests::stage;
use serde_json::Value;

/// Seconds that the clocks of the hosts are ahead, where the kernel has namespaces of time.
const AHEAD: u32 = 5000;

/// A remote shell whose second host has another clock than the first.
fn shell(hosts: &Hosts) -> PathBuf {
    let other = hosts.name(2);
    let clock = format!("--time --monotonic {AHEAD} --fork --kill-child");
    hosts.shell_that(&format!(
        "if [ \"$0\" = {other} ] && unshare {clock} true; then exec unshare {clock} sh -c \"$1\"; fi"
    ))
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the profile was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn margay(words: &str, file: &Path) -> String {
    let words = Words::default()
        .and(stage().join("bin/margay"))
        .and_all(words);
    words.and(file).succeed(60)
}

/// The ranks of both hosts are in one trace, by one clock and with the lines of the program; no
/// message seems to arrive before it was sent, by more than the time of a question to a host.
#[test]
fn a_trace_has_the_ranks_of_all_hosts_by_one_clock() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("trace/late.c");
    let [trace, profile] = ["run.mtrace", "run.json"].map(|name| hosts.folder.path().join(name));
    let options = format!(
        "-ppn 2 -trace {} -profile={}",
        trace.display(),
        profile.display()
    );
    let words = hosts.mpiexec_by(&shell(&hosts), &options);
    let end = Job::start(&words.and(built.path()).and("later"), 100).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(0), "{}", end.err);
    assert!(end.err.contains(" records in "), "{}", end.err);
    let profile = json(&profile);
    assert_eq!(
        (&profile["ranks"], &profile["unmatched"]),
        (&4.into(), &0.into()),
        "{profile}"
    );
    // Rank 1 is late, and what it is late for is one line of the program on all hosts.
    let first = &profile["causes"][0];
    assert_eq!(
        (&first["rank"], &first["kind"]),
        (&1.into(), &"load imbalance".into()),
        "{profile}"
    );
    let calls = profile["calls"].as_array().expect("there are calls");
    let receives: Vec<_> = calls.iter().filter(|c| c["call"] == "MPI_Recv").collect();
    assert_eq!(receives.len(), 1, "{profile}");
    assert_eq!(receives[0]["calls"], 40, "{profile}");

    // An archive has the hosts as nodes, with their ranks.
    let archive = margay("trace convert --to otf2", &trace);
    if Path::new("/usr/bin/otf2-print").exists() {
        let print = Words::default()
            .and("otf2-print")
            .and("-G")
            .and(archive.trim());
        let definitions = print.succeed(60);
        for host in 1..=2 {
            let node = format!("Name: \"{}\"", hosts.name(host));
            let of_tree = definitions
                .lines()
                .any(|line| line.starts_with("SYSTEM_TREE_NODE ") && line.contains(&node));
            assert!(of_tree, "{definitions}");
        }
    } else {
        println!("note: there is no otf2-print here: what is in archives is not tested");
    }

    let chrome = margay("trace convert --to chrome", &trace);
    let chrome = json(Path::new(chrome.trim()));
    let events = chrome["traceEvents"].as_array().expect("there are events");
    let at = |event: &Value| event["ts"].as_f64().expect("events have a time");
    let arrows = |phase: &str| -> Vec<&Value> {
        let all = events.iter().filter(|event| event["ph"] == phase);
        all.collect()
    };
    let (sent, received) = (arrows("s"), arrows("f"));
    assert_eq!((sent.len(), received.len()), (40, 40), "{events:?}");
    for begin in sent {
        let end = received.iter().find(|end| end["id"] == begin["id"]);
        let end = end.expect("it was received");
        // Microseconds. A late rank takes each step 150,000 after the one before.
        let took = at(end) - at(begin);
        assert!(
            (-15_000.0..10_000_000.0).contains(&took),
            "{took}: {begin} {end}"
        );
    }
}

/// What a host recorded until it was lost is in the trace, and it is said where that was cut.
#[test]
fn the_trace_of_a_host_that_is_lost_ends_there() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_talk.c");
    let trace = hosts.folder.path().join("run.mtrace");
    let words = hosts.mpiexec(&format!("-ppn 1 -trace {}", trace.display()));
    let mut job = Job::start(&words.and(built.path()), 100);
    job.until("talking", 1);
    let agents = descendants_named(job.pid(), "margay-agent");
    send("KILL", agents[1]);
    let end = job.ended_with_nothing_left();
    assert_ne!(end.status.code(), Some(0), "{}", end.err);
    let lost = format!(
        "the records of host {} have no end: the host or its recorder was lost",
        hosts.name(2)
    );
    assert!(end.err.contains(&lost), "{}", end.err);
    assert!(end.err.contains("the agent has gone"), "{}", end.err);
    let profile = margay("trace profile --json", &trace);
    let profile: Value = serde_json::from_str(&profile).expect("it is JSON");
    assert_eq!(profile["ranks"], 2, "{profile}");
}
