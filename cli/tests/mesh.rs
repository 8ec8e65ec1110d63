//! `margay mesh` (`showmesh`): the jobs of the machine, as JSON, as a table, and live.

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::*;
use margay_sys_os::terminal::Pty;
use serde_json::Value;

fn mesh(arguments: &[&str]) -> Done {
    run(fresh(margay()).arg("mesh").args(arguments))
}

fn json(arguments: &[&str]) -> Value {
    let done = mesh(arguments);
    assert_eq!(done.code(), 0, "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

/// Returns a job in which 0 and 1 wait for each other, 2 computes and 3 has finished.
fn deadlocked() -> Running {
    let line = "-n 4 %act init only:0 call:MPI_Recv wait:recv:1:5 all only:1 call:MPI_Recv \
                wait:recv:0:any all only:3 fin all print:ready only:3 exit:0 all sleep:60000";
    let mut running = Running::start(&mut command(line));
    running.until("ready\nready\nready\nready\n");
    std::thread::sleep(Duration::from_millis(700));
    running
}

#[test]
fn a_job_is_shown_with_what_its_ranks_do() {
    let running = deadlocked();
    let id = running.pid().to_string();
    let shown = json(&["--json", "--job", &id]);
    assert_eq!(shown["version"], 1);
    let job = &shown["jobs"][0];
    assert_eq!(job["job"], running.pid());
    assert_eq!(job["ranks"], 4);
    assert_eq!(job["deadlocks"], serde_json::json!([[0, 1]]));
    assert_eq!(job["findings"], serde_json::json!(["deadlock: 0 → 1 → 0"]));
    assert!(job["command"].as_str().unwrap().contains("act init"));
    let ranks = job["rank"].as_array().unwrap();
    let state = |r: usize| ranks[r]["state"].as_str().unwrap();
    assert_eq!(
        [state(0), state(1), state(2), state(3)],
        ["waiting", "waiting", "outside", "finished"]
    );
    assert_eq!(ranks[0]["waiting"]["text"], "MPI_Recv for rank 1, tag 5");
    assert_eq!(ranks[1]["waiting"]["tag"], Value::Null);
    assert!(ranks[0]["waiting"]["since_s"].as_f64().unwrap() >= 0.5);
    assert!(ranks[2]["pid"].as_u64().unwrap() > 1);

    let table = mesh(&["--job", &id]).out;
    assert!(table.contains("deadlock: 0 → 1 → 0\n"), "{table}");
    assert!(
        table.contains("waiting in MPI_Recv for rank 1, tag 5 for "),
        "{table}"
    );
    let all = mesh(&[]).out;
    assert!(all.contains(&format!("job {id}: ")), "{all}");
    send("TERM", running.pid());
    running.end();
    let done = mesh(&["--job", &id]);
    assert_eq!((done.code(), done.err.lines().count()), (1, 1));
}

#[test]
fn a_single_look_waits_until_young_waits_can_be_judged() {
    let line = "-n 2 %act init call:MPI_Recv only:0 wait:recv:1:5 all only:1 wait:recv:0:5 all sleep:60000";
    let running = Running::start(&mut command(line));
    // At once: the launcher may not even have made the job.
    let table = mesh(&["--once"]).out;
    send("KILL", running.pid());
    assert!(table.contains("deadlock: 0 → 1 → 0\n"), "{table}");
}

#[test]
fn without_processes_nothing_is_known() {
    let script = format!("mount -t tmpfs none /proc && exec {} mesh --once", margay());
    let done = run(fresh("unshare").args(["-m", "sh", "-c", &script]));
    if done.err.contains("unshare") || done.err.contains("mount:") {
        println!("note: this system does not let us hide /proc");
        return;
    }
    assert_eq!((done.code(), done.out.as_str()), (1, ""), "{}", done.err);
    assert!(
        done.err.contains("cannot know which jobs run"),
        "{}",
        done.err
    );
}

#[test]
fn looking_changes_nothing_and_leaves_nothing() {
    let mut running = Running::start(&mut shell("-n 2", "echo ready; sleep 1; echo end"));
    running.until("ready\nready\n");
    for _ in 0..3 {
        assert_eq!(mesh(&["--json"]).code(), 0);
    }
    let done = running.end();
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
}

#[test]
fn a_busy_rank_is_seen_busy() {
    let mut running = Running::start(&mut shell(
        "-n 2",
        "echo ready; [ $MARGAY_RANK = 0 ] && while :; do :; done; sleep 60",
    ));
    running.until("ready\nready\n");
    // Where other processes use the cores too, it takes a while until the rank gets its share.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let shown = json(&["--json", "--job", &running.pid().to_string()]);
        let ranks = &shown["jobs"][0]["rank"];
        let percent = |r: usize| ranks[r]["cpu_percent"].as_f64().unwrap();
        if percent(0) > 1.0 && percent(1) < percent(0) / 10.0 {
            break;
        }
        assert!(Instant::now() < end, "{ranks}");
    }
    send("KILL", running.pid());
}

/// Returns what a live display shows in a terminal until `text` has come `times` times; then it
/// gets the key to quit.
fn live(words: &[&str], text: &str, times: usize) -> String {
    let mut command = fresh(margay());
    command.args(words).env("TERM", "xterm");
    let (mut child, mut master) = Pty::open().unwrap().spawn(&mut command).unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 65536];
    while seen.matches(text).count() < times {
        let n = master.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    master.write_all(b"q").unwrap();
    let start = Instant::now();
    assert_eq!(wait(&mut child).code(), Some(0));
    assert!(start.elapsed() < PROMPT);
    seen
}

#[test]
fn the_live_display_refreshes_until_q() {
    let running = deadlocked();
    let id = running.pid().to_string();
    live(
        &["mesh", "--interval", "0.2", "--job", &id],
        "deadlock: 0 → 1 → 0",
        3,
    );
    send("KILL", running.pid());
}

/// Returns a job in which tasks 0 and 2 of three show markers.
fn marked() -> Running {
    let line = "-n 3 %act init only:0 mark:1:2:step-7 all only:2 mark:0:9:done all print:ready sleep:60000";
    let mut running = Running::start(&mut command(line));
    running.until("ready\nready\nready\n");
    running
}

#[test]
fn markers_are_shown_as_json_and_as_a_table() {
    let running = marked();
    let id = running.pid().to_string();
    let markers = |arguments: &[&str]| run(fresh(margay()).arg("markers").args(arguments));
    let done = markers(&["--json", "--job", &id]);
    let shown: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(shown["version"], 1);
    assert_eq!(
        shown["jobs"][0]["task"],
        serde_json::json!([
            { "task": 0, "lights": [0, 2, 0, 0], "text": "step-7" },
            { "task": 2, "lights": [9, 0, 0, 0], "text": "done" },
        ])
    );
    let table = markers(&["--job", &id]).out;
    assert!(table.contains("    2   9  .  .  .  done\n"), "{table}");
    send("KILL", running.pid());
    running.end();
    let gone = markers(&["--job", &id]);
    assert_eq!((gone.code(), gone.err.lines().count()), (1, 1));
}

#[test]
fn the_live_markers_have_colours() {
    let running = marked();
    let id = running.pid().to_string();
    let seen = live(&["markers", "--interval", "0.2", "--job", &id], "step-7", 3);
    // A light in colour 2 of 256, and one that is off.
    assert!(seen.contains("· \x1b[38;5;2m● "), "{seen:?}");
    send("KILL", running.pid());
}
