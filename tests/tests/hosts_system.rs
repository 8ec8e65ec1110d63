//! Several hosts as one system: processes of jobs, signals for ranks anywhere, make's jobs.
#![forbid(unsafe_code)]

use std::fs;

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Job, Words, mark, nothing_is_left, text};
use margay_tests::{run, stage};

fn margay(hosts: &Hosts) -> Words {
    Words::default()
        .and("env")
        .and_all(&format!("MARGAY_RSH={}", hosts.shell().display()))
        .and(stage().join("bin/margay"))
}

#[test]
fn ranks_of_all_hosts_are_listed_and_signalled() {
    let Some(hosts) = Hosts::make(2) else { return };
    let program = hosts.folder.path().join("waits");
    let lines = "trap 'echo rank $MARGAY_RANK hears; exit 0' USR1\necho running\nwhile true; do sleep 0.1; done\n";
    fs::write(&program, lines).expect("the folder takes files");
    let words = hosts.mpiexec("-ppn 1").and("sh").and(&program);
    let mut job = Job::start(&words, 100);
    job.until("running", 2);
    let number = job.pid().to_string();
    let of_second = |listed: &str| {
        let lines = listed.lines().filter(|line| line.contains(&hosts.name(2)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // Agents report once a second.
    let listed = loop {
        let listed = margay(&hosts).and_all("ps").and(&number).succeed(30);
        if of_second(&listed)
            .iter()
            .all(|line| !line.contains(" 0 starting"))
        {
            break listed;
        }
    };
    assert_eq!(of_second(&listed).len(), 1, "{listed}");
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let target = format!("{number}.1");
    margay(&hosts)
        .and_all("kill -USR1")
        .and(&target)
        .succeed(30);
    job.until("rank 1 hears", 1);
    margay(&hosts)
        .and_all("kill -s TERM")
        .and(&number)
        .succeed(30);
    let mark = job.mark().to_owned();
    let ended = job.ended();
    nothing_is_left(&mark);
    assert_eq!(ended.status.code(), Some(143), "{}", ended.err);
    let output = run(&mut margay(&hosts).and_all("kill 4000000000").command(30));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

/// Each command of a makefile writes on which host it ran. One fails, and one is a make itself.
#[test]
fn jobs_of_make_run_on_several_hosts() {
    let Some(hosts) = Hosts::make(2) else { return };
    let folder = hosts.folder.path();
    let lines = "all: a b c d sub\na b c d:\n\t@test $(VALUE) = given; hostname > $@; sleep 0.3\nsub:\n\t@$(MAKE) -f inner\nbad:\n\t@exit 7\n";
    fs::write(folder.join("Makefile"), lines).expect("the folder takes files");
    fs::write(folder.join("inner"), "e:\n\t@hostname > $@\n").expect("the folder takes files");
    let names = format!("{}:2,{}:2", hosts.name(1), hosts.name(2));
    let make = |goal: &str| {
        let words = margay(&hosts).and_all("make --host").and(&names);
        let words = words
            .and_all("-C")
            .and(folder)
            .and_all("VALUE=given")
            .and_all(goal);
        let mut command = words.command(60);
        let mark = mark(&mut command);
        let output = run(&mut command);
        nothing_is_left(&mark);
        output
    };
    let output = make("all");
    assert!(output.status.success(), "{}", text(&output));
    let mut counts = [0; 2];
    for file in ["a", "b", "c", "d", "e"] {
        let host = fs::read_to_string(folder.join(file)).expect("make has made it");
        let at = (1..=2).position(|number| host.trim() == hosts.name(number));
        counts[at.expect("one of the hosts")] += 1;
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    let output = make("bad");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("Error 7"), "{}", text(&output));
}

/// Hosts that do not answer are left out, and named.
#[test]
fn ranks_go_to_hosts_that_answer() {
    let Some(hosts) = Hosts::make(2) else { return };
    let list = format!("nowhere,{},{}", hosts.name(1), hosts.name(2));
    let words = hosts.mpiexec_on(&list, "-least-loaded -n 2");
    let output = run(&mut words.and("hostname").command(60));
    assert!(output.status.success(), "{}", text(&output));
    for host in 1..=2 {
        assert!(
            text(&output).contains(&hosts.name(host)),
            "{}",
            text(&output)
        );
    }
    assert!(
        text(&output).contains("host nowhere: it does not tell its load"),
        "{}",
        text(&output)
    );
}
