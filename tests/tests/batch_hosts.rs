//! The tables of Slurm, PBS and LoadLeveler over a queue of several hosts.
#![forbid(unsafe_code)]

use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::nothing_is_left;
use margay_tests::queue_hosts::Queue;
use margay_tests::run;

/// The lines of a command, with one space between their words.
fn lines(queue: &Queue, line: &str) -> Vec<String> {
    let text = queue.ok(line);
    let one = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(one).collect()
}

/// Each state of a host is in each table: one with a job, one without, one that leaves, one that
/// cannot be reached.
#[test]
fn tables_show_each_host_with_its_state() {
    let Some(hosts) = Hosts::make(4) else { return };
    let queue = Queue::up(hosts);
    let [a, b, c, d] = [1, 2, 3, 4].map(|host| queue.hosts.name(host));
    let tag = queue.hosts.named("@h");
    queue.ok(&format!("up --slots 2 --hosts {}", queue.hosts.names()));
    queue.ok("set queue night time=12h");
    let all = format!("{tag}[1-4]");
    assert_eq!(
        lines(&queue, "slurm sinfo -h"),
        [
            format!("compute* up infinite 4 idle {all}"),
            format!("night up 12:00:00 4 idle {all}"),
        ]
    );

    // The fullest host with room is taken, so that each of these fills one.
    for (host, out) in [(1, "first"), (2, "second")] {
        queue.begin("-n 2", out);
        queue.until("the job", || queue.lines(out).len() == 1);
        assert_eq!(queue.lines(out), [queue.hosts.name(host)]);
    }
    queue.begin("-n 1 -p night -t 1h", "third");
    queue.until("the third job", || queue.lines("third").len() == 1);
    queue.ok(&format!("node remove {b}"));
    queue.hosts.switch_off(4);
    queue.until("the host's end", || queue.state_of(4) == "down");

    // Slurm's.
    assert_eq!(
        lines(&queue, "slurm sinfo -h -p compute -o %P|%D|%t|%N"),
        [
            format!("compute*|1|down|{d}"),
            format!("compute*|1|drng|{b}"),
            format!("compute*|1|mix|{c}"),
            format!("compute*|1|alloc|{a}"),
        ]
    );
    let sums = lines(&queue, "slurm sinfo -h -s -o %R|%A|%F|%C|%N");
    let expected = "2/0|2/0/2/4|5/1/2/8";
    assert_eq!(
        sums,
        [
            format!("compute|{expected}|{all}"),
            format!("night|{expected}|{all}"),
        ]
    );
    let each = lines(&queue, "slurm sinfo -h -N -o %N|%R|%T");
    assert_eq!(each.len(), 8, "{each:?}");
    assert_eq!(each[1], format!("{a}|night|allocated"));
    let some = format!("slurm sinfo -h -n {tag}[1,3] -o %D|%N");
    assert_eq!(lines(&queue, &some), [format!("2|{tag}[1,3]")]);
    let reasons = lines(&queue, "slurm sinfo -h -R -o %E|%N");
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(
        reasons.contains(&format!("leaves the queue|{b}")),
        "{reasons:?}"
    );
    let nodes = lines(&queue, "slurm scontrol -o show nodes");
    let state = |at: usize| nodes[at].split(" State=").nth(1).unwrap();
    assert_eq!(nodes.len(), 4);
    assert!(state(0).starts_with("ALLOCATED ") && state(1).starts_with("ALLOCATED+DRAIN "));
    assert!(state(2).starts_with("MIXED ") && state(3).starts_with("DOWN "));
    let partition = lines(&queue, "slurm scontrol -o show partition night");
    let part = format!(" Nodes={all} ");
    assert!(partition[0].contains(&part), "{partition:?}");
    assert!(partition[0].contains(" TotalCPUs=8 TotalNodes=4 "));
    queue.refused("slurm scontrol show node nowhere", "Node nowhere not found");

    // Those of PBS.
    let states: Vec<String> = lines(&queue, "pbs pbsnodes -a")
        .into_iter()
        .filter(|line| line.starts_with("state = "))
        .collect();
    let expected = ["job-busy", "offline", "free", "down"].map(|state| format!("state = {state}"));
    assert_eq!(states, expected);
    let listed = lines(&queue, "pbs pbsnodes -l");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0], format!("{b} offline leaves the queue"));
    assert_eq!(lines(&queue, &format!("pbs pbsnodes {c}"))[0], c);
    queue.refused("pbs pbsnodes nowhere", "Unknown node nowhere");
    let output = run(queue
        .margay("pbs qmgr -c")
        .arg(format!("list node {a},{c}")));
    let text = said(&output);
    assert_eq!(text.matches("Node ").count(), 2, "{text}");

    // LoadLeveler's.
    let status = queue.ok("ll llstatus");
    for (host, state) in [(&a, "Busy"), (&b, "Drning"), (&c, "Run"), (&d, "Down")] {
        let line = status.lines().find(|line| line.starts_with(&**host));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[4], state, "{status}");
    }
    assert!(
        status.contains(&format!("The following machine is absent\n\t{d}\n")),
        "{status}"
    );

    queue.hosts.switch_on(4);
    queue.until("the host", || queue.state_of(4) == "idle");
    queue.ok("cancel --all");
    run(&mut queue.margay("wait --all"));
    queue.ok("down");
    nothing_is_left(&queue.mark);
}
