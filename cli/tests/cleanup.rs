//! Nothing is left behind, whichever process is killed and whatever the ranks have started.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;

/// A rank that starts a child, and a daemon in a session of its own with nothing of ours in its
/// environment but the mark.
const FAMILY: &str = "sleep 100 & setsid sh -c 'sleep 100 & sleep 100' >/dev/null 2>&1 & \
                      echo ready $MARGAY_RANK; while :; do sleep 1; done";

fn family() -> Running {
    let mut running = Running::start(&mut shell("-n 2", FAMILY));
    running.until("ready 0");
    running.until("ready 1");
    let end = Instant::now() + PROMPT;
    while running.processes().len() < 2 + 2 * 5 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    running
}

#[test]
fn sigkill_of_the_launcher_takes_everything_along() {
    let running = family();
    let mark = running.mark();
    let start = Instant::now();
    send("KILL", running.pid());
    assert_nothing_left(&mark);
    assert!(start.elapsed() < PROMPT);
    assert_eq!(running.end().code(), -9);
}

#[test]
fn sigkill_of_the_guard_ends_the_job() {
    let running = family();
    let mark = running.mark();
    send("KILL", running.guard());
    let done = running.end();
    assert_nothing_left(&mark);
    assert_eq!(done.code(), 137);
    assert!(
        done.err.contains("guard") && done.err.lines().count() == 1,
        "{}",
        done.err
    );
}

#[test]
fn sigkill_of_launcher_and_guard_kills_the_ranks() {
    let mut running = Running::start(&mut command("-n 2 sleep 100"));
    let end = Instant::now() + PROMPT;
    while running.processes().len() < 4 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mark, guard) = (running.mark(), running.guard());
    running.child.kill().unwrap();
    let _ = Command::new("kill")
        .args(["-KILL", &guard.to_string()])
        .status();
    assert_nothing_left(&mark);
}

#[test]
fn sigkill_of_a_rank_ends_the_job() {
    let mut running = Running::start(&mut shell("-n 3", "echo pid $$; sleep 100"));
    running.until("pid ");
    running.until("\n");
    let seen = running.seen();
    let pid: u32 = seen.lines().next().unwrap()[4..].parse().unwrap();
    let mark = running.mark();
    let start = Instant::now();
    send("KILL", pid);
    let done = running.end();
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    assert_nothing_left(&mark);
    assert_eq!(done.code(), 137);
    assert!(
        done.err.contains(&format!("(pid {pid} on ")),
        "{}",
        done.err
    );
    assert!(done.err.contains("was killed by SIGKILL"), "{}", done.err);
}

#[test]
fn what_ranks_leave_running_goes_at_the_end() {
    let mut command = shell(
        "-n 2",
        "setsid sleep 100 >/dev/null 2>&1 & sleep 100 & exit 0",
    );
    let mark = Running::start(&mut command);
    let (name, done) = (mark.mark(), mark.end());
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    assert!(done.took < PROMPT, "{:?}", done.took);
    assert_nothing_left(&name);
}

#[test]
fn what_ranks_leave_running_may_finish_writing() {
    let done = run(&mut shell("-n 1", "(sleep 0.05; echo late) & exit 0"));
    assert_eq!(done.out, "late\n");
}

#[test]
fn children_that_the_launcher_had_before_are_left_alone() {
    // The shell's background process becomes a child of the launcher by exec.
    let script = format!(
        "sleep 5 & echo $! >&2; exec {} run -n 1 sh -c 'echo ready; sleep 100'",
        margay()
    );
    let mut child = fresh("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut buffer = [0; 6];
    out.read_exact(&mut buffer).unwrap();
    let launcher = child.id();
    let guard = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .find(|&p| {
            parent(p) == Some(launcher)
                && fs::read_to_string(format!("/proc/{p}/comm"))
                    .is_ok_and(|c| c.trim() == "margay-guard")
        })
        .unwrap();
    send("KILL", guard);
    let mut err = child.stderr.take().unwrap();
    assert_eq!(wait(&mut child).code(), Some(137));
    let mut text = [0; 16];
    let n = err.read(&mut text).unwrap();
    let sleeper: u32 = String::from_utf8_lossy(&text[..n])
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let alive =
        fs::read_to_string(format!("/proc/{sleeper}/comm")).is_ok_and(|c| c.trim() == "sleep");
    assert!(alive, "a process that is not the job's was killed");
    send("KILL", sleeper);
}

#[test]
fn a_job_in_a_rank_of_a_job() {
    let inner = format!(
        "{} run -n 2 sh -c 'echo $MARGAY_RANK of $MARGAY_SIZE'",
        margay()
    );
    let done = run(&mut shell("-n 3", &inner));
    assert_eq!(done.code(), 0, "{}", done.err);
    let expected = ["0 of 2", "0 of 2", "0 of 2", "1 of 2", "1 of 2", "1 of 2"];
    assert_eq!(done.sorted(), expected);

    let inner = format!("{} run -n 2 sh -c 'echo ready; sleep 100'", margay());
    let mut running = Running::start(&mut shell("-n 2", &inner));
    running.until("ready\nready\nready\nready\n");
    let mark = running.mark();
    send("KILL", running.pid());
    assert_nothing_left(&mark);
}

#[test]
fn a_read_only_home_and_no_temporary_directory_are_fine() {
    let mut command = shell("-n 2 -output ordered", "yes | head -c 300000");
    command
        .env("HOME", "/proc")
        .env("TMPDIR", "/proc")
        .env_remove("PATH")
        .env("PATH", "/usr/bin:/bin");
    let done = run(&mut command);
    assert_eq!((done.code(), done.out.len()), (0, 600_000), "{}", done.err);
}

#[test]
fn a_stopped_rank_does_not_keep_the_job() {
    let script = "[ $MARGAY_RANK = 1 ] && kill -STOP $$; sleep 0.3; exit 4";
    let done = run(&mut shell("-n 2", script));
    assert_eq!(done.code(), 4);
    assert!(done.took < PROMPT);
}

#[test]
fn a_launcher_that_is_killed_while_it_starts_leaves_nothing() {
    for delay_us in [0u64, 300, 1000, 3000, 6000, 12000, 20000] {
        let mut command = command("-n 24 sleep 100");
        let mut running = Running::start(&mut command);
        std::thread::sleep(Duration::from_micros(delay_us));
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        assert_nothing_left(&running.mark());
    }
}

#[test]
fn standard_input_is_closed_with_the_launchers() {
    let mut running = Running::start(&mut shell("-n 2 -stdin all", "cat; echo end"));
    running.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
    running.until("x\nx\n");
    let done = running.end();
    assert_eq!(done.out, "x\nx\nend\nend\n");
}
