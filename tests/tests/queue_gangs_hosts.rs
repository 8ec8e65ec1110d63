//! Jobs of a queue of several hosts that take turns in a partition with gang scheduling.
#![forbid(unsafe_code)]

use std::fs;

use margay_sys_os::process::{ProcessFacts, descendants_of};
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{nothing_is_left, send};
use margay_tests::queue_hosts::Queue;
use margay_tests::{run, stage};
use serde_json::Value;

/// A queue of three hosts of two slots; its jobs of the queue `day` take turns on the first two.
fn up(quantum: &str) -> Option<Queue> {
    let queue = Queue::up(Hosts::make(3)?);
    let [a, b, c] = [1, 2, 3].map(|host| queue.hosts.name(host));
    fs::write(
        queue.path("hosts"),
        format!("{a}\n{b} slots=2\n# the last\n{c}:2\n"),
    )
    .unwrap();
    queue.ok("up --slots 2 --hostfile hosts");
    queue.ok(&format!("part mkpart -rq {quantum} -hosts {a},{b} day"));
    queue.ok("set queue day partition=day");
    Some(queue)
}

/// Submits a script; `MPIEXEC` in it is the launcher.
fn submit(queue: &Queue, options: &str, script: &str) -> String {
    let mpiexec = stage().join("bin/mpiexec");
    let script = script.replace("MPIEXEC", &mpiexec.display().to_string());
    fs::write(queue.path("script"), format!("#!/bin/sh\n{script}\n")).unwrap();
    let line = format!("submit --parsable -o out%j -p day {options} script");
    queue.ok(&line).trim().to_owned()
}

fn wait(queue: &Queue) {
    let _ = run(&mut queue.margay("wait --all"));
}

/// How often lines of one kind follow those of another.
fn switches(log: &[String]) -> usize {
    let of = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    let kinds: Vec<String> = log.iter().map(of).collect();
    kinds.windows(2).filter(|two| two[0] != two[1]).count()
}

/// A script whose ranks, one on each host, say again and again which job they are.
const SAYS: &str = "MPIEXEC sh -c 'echo $$ >> pids$MARGAY_JOB_ID; setsid sh -c \"while [ ! -e stop ]; do :; done\" & \
                    while [ ! -e stop ]; do echo $MARGAY_JOB_ID $(hostname) >> log; done; wait'; exit 3";

#[test]
fn jobs_have_all_their_hosts_in_one_turn_or_none() {
    let Some(queue) = up("400") else { return };
    let [a, b, c] = [1, 2, 3].map(|host| queue.hosts.name(host));
    let jobs = ["", ""].map(|more| submit(&queue, &format!("-N 2 -n 2 {more}"), SAYS));
    // Others have what is beside the partition.
    let (_, printed) = queue.job("-n 2", "hostname");
    assert_eq!(printed, format!("{c}\n"));
    queue.until("turns", || switches(&queue.lines("log")) > 4);
    let log = queue.lines("log");
    for job in &jobs {
        for host in [&a, &b] {
            let line = format!("{job} {host}");
            assert!(log.contains(&line), "{line}");
        }
    }
    assert!(switches(&log) * 20 < log.len(), "{}", switches(&log));
    // One that is out is stopped on all hosts: its launcher, its ranks, what has left its session.
    let stopped = |job: &String| {
        let pids = queue.lines(&format!("pids{job}"));
        let state = |pid: &String| ProcessFacts::of(pid.parse().unwrap()).map(|own| own.state);
        pids.len() == 2 && pids.iter().all(|pid| state(pid) == Some('T'))
    };
    for job in &jobs {
        queue.until("a stop", || stopped(job));
    }
    // A job of higher priority has the hosts until it ends.
    queue.ok("set queue day running=3");
    let count = "wc -l < log; sleep 2; wc -l < log; $MARGAY_RSH HOST hostname; MPIEXEC hostname";
    let high = submit(&queue, "-N 2 -n 2 --priority 1", &count.replace("HOST", &b));
    queue.ok(&format!("wait {high}"));
    let out = queue.lines(&format!("out{high}"));
    assert_eq!(out[0], out[1], "{out:?}");
    for host in [&a, &b] {
        assert!(out[2..].contains(host), "{out:?}");
    }
    // A head that is killed between turns finds them, and they go on taking turns.
    let head = queue.ok("up");
    let head = head.split("process ").nth(1).unwrap();
    send("KILL", head.split(')').next().unwrap().parse().unwrap());
    queue.until("another head", || {
        run(&mut queue.margay("up")).status.success()
    });
    let before = switches(&queue.lines("log"));
    queue.until("turns", || switches(&queue.lines("log")) > before + 3);
    fs::write(queue.path("stop"), "").unwrap();
    wait(&queue);
    for job in &jobs {
        assert_eq!(queue.row(job)["exit_code"], 3, "{:?}", queue.row(job));
        assert_eq!(queue.lines(&format!("out{job}")), Vec::<String>::new());
    }
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn what_runs_of_a_job_is_not_taken_for_dead_after_a_long_time_without_a_turn() {
    // Longer than hosts may be silent.
    let Some(queue) = up("9s") else { return };
    let says =
        "MPIEXEC sh -c 'while [ ! -e stop ]; do echo $MARGAY_JOB_ID >> log; sleep 0.1; done'";
    let jobs = ["", ""].map(|_| submit(&queue, "-N 2 -n 2", says));
    queue.until("another turn", || switches(&queue.lines("log")) > 1);
    fs::write(queue.path("stop"), "").unwrap();
    wait(&queue);
    for job in &jobs {
        let out = queue.lines(&format!("out{job}"));
        let row = queue.row(job);
        assert_eq!(row["state"], "done", "{row:?}: {out:?}");
    }
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// A process that has stopped itself does not go on at the next turn, on no host.
#[test]
fn what_a_program_has_stopped_itself_stays_stopped() {
    let Some(queue) = up("400") else { return };
    let child = "echo up >> ups; kill -STOP $$; [ -e stop ] || echo on >> goes_on";
    fs::write(queue.path("child"), child).unwrap();
    let script = "MPIEXEC sh -c 'sh child & while [ ! -e stop ]; do echo $MARGAY_JOB_ID >> log; sleep 0.01; done'";
    for _ in 0..2 {
        submit(&queue, "-N 2 -n 2", script);
    }
    queue.until("turns", || {
        queue.lines("ups").len() == 4 && switches(&queue.lines("log")) > 6
    });
    let gone_on = queue.lines("goes_on");
    fs::write(queue.path("stop"), "").unwrap();
    assert!(gone_on.is_empty(), "{} of 4", gone_on.len());
    wait(&queue);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn limits_of_time_count_turns() {
    let Some(queue) = up("1s") else { return };
    let at = |job: &String, what: &str| -> u64 {
        queue.lines(&format!("{what}{job}"))[0].parse().unwrap()
    };
    // From the first's beginning to the second's end both have run for as long as they may.
    let apart = |jobs: &[String]| {
        let begun = jobs.iter().map(|job| at(job, "begun")).min().unwrap();
        let ended = jobs.iter().map(|job| at(job, "ended")).max().unwrap();
        (ended - begun) / 1_000_000
    };
    let script = "date +%s%N > begun$MARGAY_JOB_ID; trap 'date +%s%N > ended$MARGAY_JOB_ID; exit' TERM; \
                  while :; do sleep 0.05; done";
    let jobs = ["", ""].map(|_| submit(&queue, "-N 2 -n 2 -t 3s", script));
    wait(&queue);
    for job in &jobs {
        assert_eq!(queue.row(job)["state"], "timeout", "{:?}", queue.row(job));
    }
    assert!(apart(&jobs) > 5000, "{}", apart(&jobs));
    let script = "date +%s%N > begun$MARGAY_JOB_ID; MPIEXEC -timeout 3 sleep 100; date +%s%N > ended$MARGAY_JOB_ID";
    let jobs = ["", ""].map(|_| submit(&queue, "-N 2 -n 2", script));
    wait(&queue);
    assert!(apart(&jobs) > 5000, "{}", apart(&jobs));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn a_host_that_is_lost_ends_its_job_and_the_others_go_on() {
    let Some(queue) = up("300") else { return };
    let [a, b] = [1, 2].map(|host| queue.hosts.name(host));
    queue.ok("set queue day running=3");
    let says = SAYS.replace("MPIEXEC ", "");
    // The first host has it, as it is the first of the list; the other one the second.
    let one = submit(&queue, "-n 2", &says);
    let other = submit(&queue, "-n 2", &says);
    let both = submit(&queue, "-N 2 -n 2", SAYS);
    let ran = |job: &String, host: &String| queue.lines("log").contains(&format!("{job} {host}"));
    queue.until("turns of all", || {
        ran(&one, &a) && ran(&other, &b) && ran(&both, &a) && ran(&both, &b)
    });
    // One that is cancelled without its turn ends as well.
    let cancelled = submit(&queue, "-n 2", &says);
    queue.ok(&format!("cancel {cancelled}"));
    let _ = run(&mut queue.margay(&format!("wait {cancelled}")));
    assert_eq!(queue.row(&cancelled)["state"], "cancelled");
    queue.hosts.switch_off(2);
    // Its launcher sees that, or what watches over it where it is stopped.
    queue.until("the loss", || queue.row(&both)["state"] != "running");
    assert_eq!(queue.row(&both)["state"], "lost", "{}", queue.row(&both));
    let lines = queue.lines("log").len();
    queue.until("the other job", || queue.lines("log").len() > lines + 100);
    assert_eq!(queue.row(&one)["state"], "running");
    let waits = submit(&queue, "-N 2 -n 2", "true");
    queue.until("the reason", || {
        let said = queue.ok(&format!("explain {waits}"));
        said.contains("hosts of its queue's partition are away")
    });
    let squeue = queue.ok(&format!("slurm squeue -h -o %r -j {waits}"));
    assert_eq!(squeue.trim(), "Resources");
    queue.hosts.switch_on(2);
    queue.ok(&format!("wait {waits}"));
    fs::write(queue.path("stop"), "").unwrap();
    wait(&queue);
    assert_eq!(queue.row(&one)["exit_code"], 3);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn what_cannot_take_turns_on_hosts_is_refused() {
    let Some(queue) = up("1s") else { return };
    let [a, b] = [1, 2].map(|host| queue.hosts.name(host));
    queue.ok("part mkpart -sz 1 -rq 1s cores");
    queue.ok(&format!("part mkpart -sps -hosts {a} space"));
    for name in ["cores", "space"] {
        queue.refused(
            &format!("set queue x partition={name}"),
            &format!("in a partition of hosts with gang scheduling, and '.compute.{name}' is none"),
        );
    }
    queue.refused("submit -p day -n 5 -- true", "has 4 nodes");
    queue.refused(
        "submit -p day -c 3 -- true",
        "of one host each, and no host has as many",
    );
    queue.refused("submit -n 3 -- true", "the queue 'compute' has 2 beside");
    // Outside of its hosts a job has nobody to hold what it starts.
    let job = submit(
        &queue,
        "-N 1 -n 1",
        "$MARGAY_RSH $MARGAY_JOB_ID true; MPIEXEC -host nowhere true",
    );
    let _ = run(&mut queue.margay(&format!("wait {job}")));
    queue.ok(&format!("node remove {b}"));
    let job = submit(&queue, "-N 1 -n 1", "hostname");
    queue.ok(&format!("wait {job}"));
    assert_eq!(queue.lines(&format!("out{job}")), [a]);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

/// What watches over a job, as the keeper of the partition knows it.
fn supervisor(queue: &Queue, job: &str) -> u32 {
    let listed = queue.ok("part pspart -json day");
    let all: Value = serde_json::from_str(&listed).unwrap();
    let all = all["applications"].as_array().unwrap();
    let name = format!("job {job}: script");
    let is_own = |own: &&Value| own["command"].as_str().unwrap().starts_with(&name);
    let pid = all.iter().find(is_own).unwrap()["pid"].as_u64().unwrap();
    pid.try_into().unwrap()
}

/// The last process below another one that has this word in its command line.
fn below(pid: u32, word: &str) -> u32 {
    let has_word = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.any(|own| own == word.as_bytes())
    };
    *descendants_of(pid)
        .iter()
        .rfind(|pid| has_word(pid))
        .unwrap()
}

#[test]
fn what_is_killed_ends_its_job_and_leaves_nothing() {
    let Some(queue) = up("300") else { return };
    let begin = || {
        let job = submit(&queue, "-N 2 -n 2", SAYS);
        queue.until("its ranks", || {
            queue.lines(&format!("pids{job}")).len() == 2
        });
        job
    };
    let other = begin();
    // What watches over it; what holds its processes on a host, in its turn or not.
    for name in ["", "held", "there"] {
        let job = begin();
        let pid = supervisor(&queue, &job);
        let killed = match name {
            "" => pid,
            _ => below(pid, name),
        };
        send("KILL", killed);
        queue.until("its end", || queue.row(&job)["state"] != "running");
        let row = queue.row(&job);
        assert!(
            ["lost", "failed"].contains(&row["state"].as_str().unwrap()),
            "{row}"
        );
        let pids = queue.lines(&format!("pids{job}"));
        queue.until("the end of its ranks", || {
            let state = |pid: &String| ProcessFacts::of(pid.parse().unwrap()).map(|own| own.state);
            pids.iter()
                .all(|pid| matches!(state(pid), None | Some('Z')))
        });
    }
    // The other one has had its turns meanwhile, and has them still.
    let lines = queue.lines("log").len();
    queue.until("its lines", || queue.lines("log").len() > lines + 100);
    fs::write(queue.path("stop"), "").unwrap();
    wait(&queue);
    assert_eq!(queue.row(&other)["exit_code"], 3);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn what_asks_for_turns_is_replaced_when_it_is_killed() {
    let Some(queue) = up("300") else { return };
    let jobs = ["", ""].map(|more| submit(&queue, &format!("-N 2 -n 2 {more}"), SAYS));
    queue.until("turns", || switches(&queue.lines("log")) > 2);
    send("KILL", below(supervisor(&queue, &jobs[0]), "attend"));
    // They go on taking turns, and never run together.
    let from = queue.lines("log").len();
    queue.until("turns", || switches(&queue.lines("log")[from..]) > 4);
    let log = queue.lines("log");
    let after = switches(&log[from..]);
    assert!(after * 20 < log.len() - from, "{after}");
    fs::write(queue.path("stop"), "").unwrap();
    wait(&queue);
    for job in &jobs {
        assert_eq!(queue.row(job)["exit_code"], 3, "{:?}", queue.row(job));
    }
    queue.ok("down");
    nothing_is_left(&queue.mark);
}
