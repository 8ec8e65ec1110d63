//! Which job is next, by priorities, shares, dependencies, backfill and the rules of queues; what
//! `margay explain` promises; and what jobs are charged: through the commands.
#![forbid(unsafe_code)]

use std::fs;
use std::time::Duration;

use margay_tests::batch::said;
use margay_tests::queue::Queue;
use margay_tests::run;
use serde_json::Value;

/// A job that has these slots until `go` is there.
fn blocker(queue: &Queue, slots: &str) {
    let script = "echo begun; while test ! -e go; do sleep 0.01; done";
    queue.submit(&["-n", slots, "-o", "blocker", "--", "sh", "-c", script]);
    queue.until("blocker");
}

/// Submits a job that writes its name into `order`.
fn named(queue: &Queue, name: &str, options: &[&str]) -> String {
    let line = format!("echo {name} >> order");
    let all = [options, &["-o", "/dev/null", "--", "sh", "-c", &line]].concat();
    queue.submit(&all)
}

fn order(queue: &Queue) -> Vec<String> {
    let text = fs::read_to_string(queue.path("order")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Ends jobs, and waits for that.
fn end(queue: &Queue, jobs: &[&str]) {
    queue.ok(&[&["cancel"], jobs].concat());
    let _ = run(&mut queue.margay(&[&["wait"], jobs].concat()));
}

fn until_it_runs(queue: &Queue, job: &str) {
    while queue.state_of(job) != "running" {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn priorities_of_jobs_and_queues_decide() {
    let queue = Queue::up(4);
    queue.ok(&["set", "queue", "night", "priority=-5"]);
    queue.ok(&["set", "queue", "urgent", "priority=7"]);
    blocker(&queue, "4");
    named(&queue, "night", &["-n", "4", "-p", "night"]);
    named(&queue, "plain", &["-n", "4"]);
    named(&queue, "high", &["-n", "4", "--priority", "5"]);
    named(&queue, "urgent", &["-n", "4", "-p", "urgent"]);
    named(&queue, "second", &["-n", "4"]);
    queue.script("go", "");
    queue.ok(&["wait", "--all"]);
    assert_eq!(
        order(&queue),
        ["urgent", "high", "plain", "second", "night"]
    );
}

#[test]
fn who_has_used_less_of_a_share_goes_first() {
    let queue = Queue::up(4);
    queue.ok(&["set", "policy", "fair-share=7d"]);
    let used = "-n 4 -A physics -o /dev/null -- sleep 2";
    let used = queue.submit(&used.split(' ').collect::<Vec<_>>());
    queue.ok(&["wait", &used]);
    blocker(&queue, "4");
    named(&queue, "physics", &["-n", "4", "-A", "physics"]);
    named(&queue, "biology", &["-n", "4", "-A", "biology"]);
    queue.script("go", "");
    queue.ok(&["wait", "--all"]);
    assert_eq!(order(&queue), ["biology", "physics"]);
}

#[test]
fn a_job_waits_for_the_start_of_another() {
    let queue = Queue::up(2);
    let first = queue.submit(&["--hold", "--", "sleep", "1000"]);
    let after = named(&queue, "after", &["-d", &format!("after:{first}")]);
    let why = queue.ok(&["explain", &after]);
    let expected = format!("waits for the start of {first}");
    assert!(why.contains(&expected), "{why}");
    queue.ok(&["release", &first]);
    queue.ok(&["wait", &after]);
    assert_eq!(queue.state_of(&first), "running");
    end(&queue, &[&first]);
}

/// The third job has a slot that the first one does not need, and would delay the second.
#[test]
fn conservative_backfill_delays_no_job() {
    let queue = Queue::up(4);
    let words = |options: &str| -> String {
        let words = format!("{options} -o /dev/null -- sleep 1000");
        queue.submit(&words.split(' ').collect::<Vec<_>>())
    };
    let running = words("-n 2 -t 20:00");
    until_it_runs(&queue, &running);
    for policy in ["conservative", "easy"] {
        queue.ok(&["set", "policy", &format!("backfill={policy}")]);
        let jobs = ["-n 3 -t 20:00", "-n 4 -t 20:00", "-n 1 -t 10:00:00"].map(words);
        let [first, second, third] = jobs.each_ref().map(String::as_str);
        let why = queue.ok(&["explain", first]);
        assert!(why.contains("is the first of the queue"), "{why}");
        if policy == "easy" {
            until_it_runs(&queue, third);
        } else {
            let why = queue.ok(&["explain", third]);
            assert!(why.contains("delay"), "{why}");
            assert_eq!(queue.state_of(third), "waiting");
        }
        end(&queue, &[first, second, third]);
    }
    end(&queue, &[&running]);
}

#[test]
fn explanations_say_when_a_job_starts_and_what_would_let_it_start() {
    let queue = Queue::up(4);
    let running = "-n 3 -t 30:00 -o /dev/null -- sleep 1000";
    let running = queue.submit(&running.split(' ').collect::<Vec<_>>());
    until_it_runs(&queue, &running);
    let first = queue.submit(&["-n", "4", "-t", "10:00", "--", "true"]);
    // Of a time such as 0:29:58.
    let minutes = |text: &str, before: &str| -> u32 {
        let rest = text.split(before).nth(1);
        let rest = rest.unwrap_or_else(|| panic!("no '{before}': {text}"));
        rest.split(':').nth(1).unwrap().parse().unwrap()
    };
    let why = queue.ok(&["explain", &first]);
    assert!(why.contains("needs 4 slots; 1 free\n"), "{why}");
    assert!((28..=30).contains(&minutes(&why, "it starts within ")));
    let remedy = format!("if these had ended: {running}");
    assert!(why.contains(&remedy), "{why}");
    let late = queue.submit(&["-n", "1", "-t", "5:00:00", "--", "true"]);
    let why = queue.ok(&["explain", &late]);
    assert!(why.contains(&format!("could delay job {first}\n")), "{why}");
    assert!((27..=30).contains(&minutes(&why, "with a time limit of at most ")));
    assert!(
        why.contains("1 job of the queue stands before it\n"),
        "{why}"
    );
    // Behind the first, which ends ten minutes after it began.
    let when = queue.ok(&["explain", "--when", "4", "2h"]);
    assert!((38..=40).contains(&minutes(&when, "it starts within ")));
    let when = queue.ok(&["explain", "--when", "1", "5m"]);
    assert!(when.contains("would start now"), "{when}");
    end(&queue, &[&first, &late, &running]);
}

#[test]
fn rules_of_a_queue_bound_its_jobs() {
    let queue = Queue::up(4);
    let set = |rules: &str| queue.ok(&["set", "queue", "short", rules]);
    let refused = |options: &[&str], why: &str| {
        let words = [&["submit", "-p", "short"], options, &["--", "true"]].concat();
        queue.refused(&words, why);
    };
    let sleep = |options: &[&str]| {
        let words = [&["-p", "short"], options, &["--", "sleep", "1000"]].concat();
        queue.submit(&words)
    };
    for (rule, options, why) in [
        ("slots=2", &["-n", "3"][..], "slots"),
        ("memory=1G", &["--mem", "2G"], "memory"),
        ("accounts=physics,biology", &["-A", "art"], "account"),
        ("accounts=physics,biology", &[], "account"),
        ("users=nobody-of-this-name", &[], "user"),
        ("open=no", &[], "accepts no jobs"),
    ] {
        set(rule);
        refused(options, why);
        set(match rule.split_once('=').unwrap() {
            ("open", _) => "open=yes",
            ("users", _) => "users=",
            ("accounts", _) => "accounts=",
            ("slots", _) => "slots=none",
            _ => "memory=none",
        });
    }
    for rule in ["jobs=2", "user-jobs=2"] {
        set(rule);
        let jobs = [sleep(&["--hold"]), sleep(&["--hold"])];
        refused(&[], "jobs");
        end(&queue, &[&jobs[0], &jobs[1]]);
        set(&format!("{}=none", rule.split('=').next().unwrap()));
    }

    // What waits for others of its queue, while others have room.
    for rule in [
        "running=1",
        "used-slots=2",
        "user-running=1",
        "user-slots=2",
    ] {
        set(rule);
        let [one, two] = [sleep(&["-n", "2"]), sleep(&["-n", "1"])];
        until_it_runs(&queue, &one);
        let why = queue.ok(&["explain", &two]);
        assert!(why.contains("waits for others to end"), "{rule}: {why}");
        queue.ok(&["submit", "-W", "-n", "2", "--", "true"]);
        end(&queue, &[&one, &two]);
        set(&format!("{}=none", rule.split('=').next().unwrap()));
    }
    set("started=no");
    let stopped = sleep(&[]);
    assert!(queue.ok(&["explain", &stopped]).contains("starts no jobs"));
    set("started=yes");
    until_it_runs(&queue, &stopped);
    end(&queue, &[&stopped]);
}

#[test]
fn an_account_without_budget_starts_nothing_where_that_is_its_rule() {
    let queue = Queue::up(2);
    queue.ok(&["set", "account", "physics", "budget=1s", "hard=yes"]);
    let words = "submit -W -A physics -n 2 -- sleep 1";
    queue.ok(&words.split(' ').collect::<Vec<_>>());
    let job = queue.submit(&["-A", "physics", "--", "true"]);
    let why = queue.ok(&["explain", &job]);
    assert!(why.contains("budget"), "{why}");
    queue.ok(&["submit", "-W", "-A", "biology", "--", "true"]);
    assert_eq!(queue.state_of(&job), "waiting");
    queue.ok(&["set", "account", "physics", "budget=1h"]);
    queue.ok(&["wait", &job]);
}

/// Slot seconds, processor time and memory of jobs are what they used.
#[test]
fn jobs_are_charged_what_they_used() {
    let queue = Queue::up(4);
    // 0.6 s of processor time in each of two processes, and 100 MiB in one, for 2 s.
    let script = "import os, time\n\
                  b = bytearray(100 << 20) if os.fork() else 0\n\
                  t = time.time()\n\
                  while time.process_time() < 0.6: pass\n\
                  time.sleep(max(0, t + 2 - time.time()))\n\
                  if b: os.wait()\n";
    queue.script("use.py", script);
    let words = "-A physics -n 3 -o out -- python3 use.py";
    let job = queue.submit(&words.split(' ').collect::<Vec<_>>());
    queue.ok(&["wait", &job]);
    assert_eq!(queue.read("out"), "");
    let row = &queue.rows(&["--all", &job])[0];
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{row}"));
    let ran = number(row, "ended") - number(row, "started");
    assert!((2.0..60.0).contains(&ran), "{row}");
    assert!((1.2..2.5).contains(&number(row, "cpu_s")), "{row}");
    let rss = number(row, "max_rss_kib");
    assert!((102_400.0..200_000.0).contains(&rss), "{row}");
    let text = queue.ok(&["account", "--json"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let all = all.as_array().unwrap_or_else(|| panic!("{text}"));
    let own = all.iter().find(|own| own["account"] == "physics").unwrap();
    assert_eq!(number(own, "slot_s"), 3.0 * ran, "{text}");
    let more = number(own, "cpu_s") - number(row, "cpu_s");
    assert!(more.abs() < 0.1, "{text}");
    assert_eq!(number(own, "max_rss_kib"), rss, "{text}");
    let sacct = format!("slurm sacct -nPj {job} -o jobid,cputimeraw,maxrss");
    let sacct = run(&mut queue.margay(&sacct.split(' ').collect::<Vec<_>>()));
    let seconds = 3.0 * ran;
    let expected = format!("{job}|{seconds}|\n{job}.batch|{seconds}|{rss}K\n");
    assert_eq!(said(&sacct), expected);
}
