//! Agents of hosts and heads that are killed at any moment: no accepted job is lost or runs twice.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use margay_sys_os::process::PidFd;
use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{MARK, mark, nothing_is_left};
use margay_tests::{command, run, scratch, stage};
use serde_json::Value;

/// The processes of this test that are heads or agents.
fn processes(mark: &str, word: &str) -> Vec<PidFd> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_one = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        let program = words.next().unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let own = format!("{MARK}={mark}");
        program.ends_with(b"/margay-queue")
            && words.next() == Some(word.as_bytes())
            && environment.split(|b| *b == 0).any(|v| v == own.as_bytes())
    };
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_one)
        .filter_map(|pid| PidFd::open(pid).ok())
        .collect()
}

#[test]
fn agents_and_heads_that_are_killed_at_any_moment_lose_no_job_and_run_none_twice() {
    let Some(hosts) = Hosts::make(2) else { return };
    let mark = mark(&mut Command::new("true"));
    let path = |name: &str| hosts.folder.path().join(name);
    fs::create_dir(path("run")).unwrap();
    let margay = |line: &str| {
        let mut margay = command(stage().join("bin/margay"), 100);
        margay
            .args(line.split_whitespace())
            .current_dir(hosts.folder.path())
            .env("HOME", hosts.folder.path())
            .env("XDG_STATE_HOME", path("state"))
            .env("XDG_RUNTIME_DIR", path("run"))
            .env("MARGAY_RSH", hosts.shell())
            .env(MARK, &mark);
        let output = run(&mut margay);
        (output.status.success(), said(&output))
    };
    let up = || {
        let (is_up, text) = margay("up");
        assert!(is_up, "{text}");
    };
    fs::write(
        path("job"),
        "#!/bin/sh\necho $SLURM_JOB_ID >> ran\nsleep 0.05\n",
    )
    .unwrap();
    let (is_up, text) = margay(&format!("up --slots 2 --hosts {}", hosts.names()));
    assert!(is_up, "{text}");
    let mut accepted = Vec::new();
    // MARGAY_TEST_KILLS=1000 looks at more moments.
    let kills = std::env::var("MARGAY_TEST_KILLS");
    let kills = kills.map_or(12, |kills| kills.parse::<u64>().unwrap());
    for round in 0..kills {
        std::thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                let answers = (0..4).map(|_| margay("submit --parsable -o log job"));
                let answers: Vec<(bool, String)> = answers.collect();
                let accepted = answers.into_iter().filter(|(is_accepted, _)| *is_accepted);
                accepted
                    .map(|(_, text)| text.trim().to_owned())
                    .collect::<Vec<_>>()
            });
            std::thread::sleep(Duration::from_micros(round * 17_000 % 230_003));
            let is_head = round % 3 == 2;
            let word = if is_head { "serve" } else { "agent" };
            let victims = processes(&mark, word);
            if let Some(victim) = victims.get(round as usize % victims.len().max(1)) {
                victim.kill();
                while is_head && !victim.has_ended() {
                    std::thread::yield_now();
                }
            }
            accepted.extend(submitter.join().unwrap());
        });
        up();
    }
    let (_, text) = margay("submit --parsable -o log job");
    accepted.push(text.trim().to_owned());
    let (is_done, text) = margay("wait --all");
    assert!(is_done, "{text}");
    let text = fs::read_to_string(path("ran")).unwrap();
    let mut ran: Vec<&str> = text.lines().collect();
    let count = ran.len();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), count, "a job ran twice");
    for job in &accepted {
        assert!(ran.contains(&job.as_str()), "job {job} is lost");
    }
    let (_, text) = margay("queue --all --json");
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(rows.iter().all(|row| row["state"] == "done"), "{text}");
    let (is_down, text) = margay("down");
    assert!(is_down, "{text}");
    nothing_is_left(&mark);
}

#[test]
fn a_remote_shell_that_hangs_ends_with_a_head_that_is_killed() {
    let folder = scratch();
    let mark = mark(&mut Command::new("true"));
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("run")).unwrap();
    fs::write(
        path("hang"),
        "#!/bin/sh\necho $$ > ${0%/*}/hanging\nexec sleep 600\n",
    )
    .unwrap();
    fs::set_permissions(path("hang"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut up = Command::new(stage().join("bin/margay"));
    up.args(["up", "--hosts", "far.example"])
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", path("state"))
        .env("XDG_RUNTIME_DIR", path("run"))
        .env("MARGAY_RSH", path("hang"))
        .env(MARK, &mark)
        .stderr(fs::File::create(path("said")).unwrap());
    let mut up = up.spawn().unwrap();
    let hanging = || fs::read_to_string(path("hanging")).unwrap_or_default();
    while !hanging().ends_with('\n') {
        let ended = up.try_wait().unwrap();
        let said = || fs::read_to_string(path("said")).unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let heads = processes(&mark, "serve");
    assert_eq!(heads.len(), 1);
    heads[0].signal(9);
    assert!(!up.wait().unwrap().success());
    nothing_is_left(&mark);
}
