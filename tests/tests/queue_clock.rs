//! A clock that jumps, by an hour and back: time limits, reservations and the queue stay right.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use margay_sys_os::port::user;
use margay_tests::batch::said;
use margay_tests::queue::Queue;
use margay_tests::{run, stage};

/// Where Debian's package libfaketime has it; it sets the clock of a process by a file.
fn faketime() -> Option<String> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten();
    let paths = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = paths.into_iter().find(|path| Path::exists(path));
    if found.is_none() {
        println!("note: there is no libfaketime here: a clock that jumps is not tested");
    }
    Some(found?.display().to_string())
}

/// A queue whose head has the clock that `clock` in its folder says.
fn up(library: &str, words: &[&str]) -> Queue {
    let queue = Queue::not_up();
    set(&queue, 0);
    let mut up = match words {
        [] => queue.margay(&[]),
        // A machine with a list of hosts has this one for itself, and other tests have queues.
        _ => {
            let mut alone = queue.prepared("unshare");
            let as_root = (user() != 0).then_some("--map-root-user");
            alone.arg("--net").args(as_root);
            alone.arg(stage().join("bin/margay"));
            alone
        }
    };
    up.args(["up", "--slots", "2"]).args(words);
    up.env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", queue.path("clock"))
        .env("FAKETIME_NO_CACHE", "1")
        // What counts time that passes is the kernel's own in any case.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let output = run(&mut up);
    assert!(output.status.success(), "{}", said(&output));
    queue
}

fn set(queue: &Queue, offset_s: i64) {
    // As one: the head may read it at any moment.
    queue.script("clock.new", &format!("{offset_s:+}s\n"));
    fs::rename(queue.path("clock.new"), queue.path("clock")).unwrap();
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// When the head says that a job began.
fn started(queue: &Queue, job: &str) -> u64 {
    queue.rows(&[job])[0]["started"].as_u64().unwrap()
}

#[test]
fn time_limits_and_reservations_are_right_when_the_clock_jumps() {
    let Some(library) = faketime() else { return };
    let queue = up(&library, &[]);
    let line = "until test -e go; do sleep 0.05; done";
    let job = queue.submit(&["-t", "10", "-o", "out", "--", "sh", "-c", line]);
    let short = queue.submit(&["-t", "3s", "-o", "out", "--", "sleep", "600"]);
    let next = queue.submit(&["-n", "2", "-o", "out", "--", "true"]);
    // An hour later by the clock, no limit has passed that has not in truth.
    set(&queue, 3600);
    let held = queue.submit(&["--hold", "--", "true"]);
    assert!(queue.rows(&[&held])[0]["submitted"].as_u64().unwrap() >= now_s() + 3500);
    assert_eq!(queue.state_of(&job), "running");
    assert_eq!(queue.state_of(&next), "waiting");
    queue.refused(&["wait", &short], "time limit");
    assert_eq!(queue.state_of(&job), "running");
    let why = queue.ok(&["explain", &next]);
    assert!(why.contains("first of the queue"), "{why}");
    let names = format!("it would start now if these had ended: {job}\n");
    assert!(why.contains(&names), "{why}");

    // A day earlier: what runs goes on, and what waited for it starts.
    set(&queue, -86_400);
    let back = queue.submit(&["-d", &format!("afterok:{job}"), "-o", "out", "--", "true"]);
    assert_eq!(queue.state_of(&job), "running");
    queue.ok(&["explain", &job]);
    queue.ok(&["queue"]);
    queue.script("go", "");
    queue.ok(&["wait", &job, &next, &back]);
    // A reservation begins and ends by the clock, wherever that has jumped.
    queue.ok(&[
        "set",
        "reservation",
        "lecture",
        "slots=2",
        "start=+1h",
        "time=1h",
    ]);
    let within = queue.submit(&[
        "--reservation",
        "lecture",
        "-t",
        "10",
        "-o",
        "out",
        "--",
        "true",
    ]);
    let beside = queue.submit(&["-t", "2h", "-o", "out", "--", "true"]);
    assert_eq!(queue.state_of(&within), "waiting");
    assert!(queue.ok(&["explain", &beside]).contains("reservation"));
    set(&queue, -86_400 + 3700);
    // Any command's change lets the head decide anew.
    queue.ok(&["release", &held]);
    queue.ok(&["wait", &within]);
    assert!(started(&queue, &within) < now_s() - 80_000);
    assert_eq!(queue.state_of(&beside), "waiting");
    set(&queue, 0);
    queue.ok(&["set", "policy", "backfill=easy"]);
    queue.ok(&["wait", &beside, &held]);
}

#[test]
fn what_watches_over_a_job_counts_the_time_that_passes_when_its_clock_jumps() {
    let Some(library) = faketime() else { return };
    // Of a machine with a list of hosts it has the variables that the head has.
    let queue = up(
        &library,
        &["--launcher-exec", "false", "--hosts", "localhost,none"],
    );
    let submit = |limit: &str, line: &str| {
        let words = ["-t", limit, "-o", "out", "--", "sh", "-c", line];
        queue.submit(&words)
    };
    let long = submit("1h", "echo > long; until test -e go; do sleep 0.05; done");
    let short = submit("3s", "echo > short; sleep 600");
    queue.until("long");
    queue.until("short");
    set(&queue, 7200);
    queue.refused(&["wait", &short], "time limit");
    let row = &queue.rows(&[&short])[0];
    let at = |what: &str| row[what].as_u64().unwrap();
    assert!(
        at("ended") >= now_s() + 7100 && at("started") < now_s(),
        "{row}"
    );
    set(&queue, -86_400);
    assert_eq!(queue.state_of(&long), "running");
    queue.script("go", "");
    queue.ok(&["wait", &long]);
}
