//! Jobs of a queue that has a partition with gang scheduling: they take turns there.
#![forbid(unsafe_code)]

use margay_tests::batch::said;
use margay_tests::queue::Queue;
use margay_tests::run;

/// A queue whose jobs take turns on one core, for a time in which a job does a lot. It has more
/// slots than the machine has cores, so that other jobs have some as well.
fn up() -> Queue {
    let queue = Queue::up(64);
    queue.ok(&["part", "mkpart", "-sz", "1", "-rq", "300", "day"]);
    queue.ok(&["set", "queue", "day", "partition=day"]);
    queue
}

#[test]
fn jobs_of_a_gang_queue_take_turns_and_never_run_together() {
    let queue = up();
    assert!(
        queue
            .ok(&["set"])
            .contains("queue day running=2 partition=.compute.day\n")
    );
    // Each says again and again who runs.
    let line = "while test ! -e stop; do echo $MARGAY_JOB_ID >> log; done; exit 3";
    let jobs: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| queue.submit(&["-p", "day", "-J", name, "--", "sh", "-c", line]))
        .collect();
    // Others have the slots beside the partition, and run meanwhile.
    let other = queue.submit(&["-n", "63", "--", "true"]);
    queue.ok(&["wait", &other]);
    let log = || std::fs::read_to_string(queue.path("log")).unwrap_or_default();
    let switches = |log: &str| {
        let lines: Vec<&str> = log.lines().collect();
        lines.windows(2).filter(|two| two[0] != two[1]).count()
    };
    while switches(&log()) < 4 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(
        queue
            .ok(&["explain", &jobs[2]])
            .contains("its queue has 2 jobs at once")
    );
    let all: serde_json::Value =
        serde_json::from_str(&queue.ok(&["part", "pspart", "-json", "day"])).unwrap();
    let active = |own: &&serde_json::Value| own["active"] == true;
    let all = all["applications"].as_array().unwrap();
    assert_eq!(
        (all.len(), all.iter().filter(active).count()),
        (2, 1),
        "{all:?}"
    );
    queue.script("stop", "");
    assert!(!run(&mut queue.margay(&["wait", "--all"])).status.success());
    for job in &jobs {
        assert_eq!(queue.rows(&[job])[0]["exit_code"], 3);
    }
    // Two that run together would change places with nearly every line.
    let (log, jobs) = (log(), [&jobs[0], &jobs[1]]);
    let of = |job: &String| log.lines().filter(|line| line == job).count();
    assert!(jobs.iter().all(|job| of(job) > 100), "{}", log.len());
    assert!(
        switches(&log) * 20 < log.lines().count(),
        "{}",
        switches(&log)
    );
    // What a job printed is its own.
    assert_eq!(queue.read(&format!("slurm-{}.out", jobs[0])), "");
}

#[test]
fn time_limits_count_turns_and_a_cancelled_job_gives_its_place_away() {
    let queue = up();
    let line = "date +%s%N > begun$MARGAY_JOB_ID; trap 'date +%s%N > ended$MARGAY_JOB_ID; exit' TERM; \
                while :; do sleep 0.02; done";
    let submit = |limit: &str| {
        let words = ["-p", "day", "-t", limit, "--", "sh", "-c", line];
        queue.submit(&words)
    };
    let jobs = [submit("2s"), submit("2s")];
    let _ = run(&mut queue.margay(&["wait", "--all"]));
    let at = |name: &str, job: &String| -> u64 {
        queue.read(&format!("{name}{job}")).trim().parse().unwrap()
    };
    for job in &jobs {
        assert_eq!(queue.state_of(job), "timeout");
    }
    let begun = jobs.iter().map(|job| at("begun", job)).min().unwrap();
    let ended = jobs.iter().map(|job| at("ended", job)).max().unwrap();
    // Two seconds of each, one after the other, but for what passed before their first lines.
    assert!(ended - begun > 3_500_000_000, "{}", ended - begun);
    let [one, two, three] = ["1h", "1h", "1h"].map(submit);
    queue.until(&format!("begun{one}"));
    queue.until(&format!("begun{two}"));
    queue.ok(&["cancel", &one]);
    let _ = run(&mut queue.margay(&["wait", &one]));
    queue.until(&format!("begun{three}"));
    assert_eq!(queue.state_of(&one), "cancelled");
    queue.ok(&["cancel", "--all"]);
    let _ = run(&mut queue.margay(&["wait", "--all"]));
    let left = queue.ok(&["part", "pspart", "-json", "."]);
    assert_eq!(left.trim(), "{\"applications\":[]}");
}

#[test]
fn a_partition_that_changes_is_noticed() {
    let queue = up();
    let job = queue.submit(&["-p", "day", "--hold", "--", "true"]);
    queue.ok(&["part", "rmpart", "day"]);
    queue.ok(&["release", &job]);
    let why = "1 node needed, its queue's partition has 0";
    assert!(queue.ok(&["explain", &job]).contains(why));
    let gone = "the partition '.compute.day' of the queue 'day' has 0 nodes";
    queue.refused(&["submit", "-p", "day", "--", "true"], gone);
    // Its cores are for all.
    let all = queue.submit(&["-n", "64", "--", "true"]);
    queue.ok(&["wait", &all]);
    assert_eq!(queue.state_of(&job), "waiting");
    // Without a command of the queue.
    queue.ok(&["part", "mkpart", "-rq", "300", "day"]);
    queue.ok(&["wait", &job]);
    let nodes = std::thread::available_parallelism().unwrap().to_string();
    let all = queue.submit(&["-p", "day", "-n", &nodes, "--", "true"]);
    queue.ok(&["wait", &all]);
}

#[test]
fn what_cannot_take_turns_is_refused() {
    let queue = up();
    queue.ok(&["part", "mkpart", "-sz", "1", "-ss", "usual"]);
    queue.ok(&["part", "mkpart", "-rq", "1s", ".service.x"]);
    let rules = queue.ok(&["set"]);
    for (name, why) in [
        ("none.such", "there is no partition '.compute.none.such'"),
        (
            "usual",
            "with gang scheduling, and '.compute.usual' is none",
        ),
        (".service.x", "and '.service.x' is none"),
    ] {
        queue.refused(&["set", "queue", "x", &format!("partition={name}")], why);
    }
    assert_eq!(queue.ok(&["set"]), rules);
    let submit = |words: &[&str], why: &str| {
        let words = [&["submit"], words, &["--", "true"]].concat();
        queue.refused(&words, why);
    };
    submit(
        &["-p", "day", "-n", "2"],
        "the partition '.compute.day' of the queue 'day' has 1 nodes",
    );
    submit(
        &["-n", "64"],
        "the queue 'compute' has 63 beside the partitions of others",
    );
    queue.ok(&["set", "reservation", "r", "slots=1", "time=1h"]);
    submit(
        &["-p", "day", "-t", "1", "--reservation", "r"],
        "run in no reservation",
    );
    queue.ok(&["set", "remove", "reservation", "r"]);
    let mut salloc = queue.margay(&["slurm", "salloc", "-p", "day", "true"]);
    let output = run(&mut salloc);
    assert!(
        said(&output).contains("interactive jobs take no turns"),
        "{}",
        said(&output)
    );
    queue.refused(
        &["node", "add", "elsewhere"],
        "margay set queue day partition=none",
    );
    // As an ordinary queue it gets its slots from the machine again.
    queue.ok(&["set", "queue", "day", "partition=none"]);
    let job = queue.submit(&["-p", "day", "-n", "64", "--", "true"]);
    queue.ok(&["wait", &job]);
}
