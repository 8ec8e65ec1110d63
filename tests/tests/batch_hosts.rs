//! The tables of Slurm, PBS and LoadLeveler over a queue of several hosts.
#![forbid(unsafe_code)]

use margay_tests::batch::said;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::nothing_is_left;
use margay_tests::postgres::Postgres;
use margay_tests::queue_hosts::Queue;
use margay_tests::run;
use serde_json::Value;

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

    // Where the jobs are.
    let jobs = lines(&queue, "slurm squeue -h -S i -o %i|%D|%N|%B");
    assert_eq!(jobs[..2], [format!("1|1|{a}|{a}"), format!("2|1|{b}|{b}")]);
    let there = lines(&queue, &format!("slurm squeue -h -o %i -w {tag}[2,4]"));
    assert_eq!(there, ["2"]);

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

/// A job of several hosts is shown with them while it runs and when it has ended, in each table.
fn tables_show_where_jobs_are(store: &str) {
    let Some(hosts) = Hosts::make(4) else { return };
    let queue = Queue::up(hosts);
    let [a, b, c] = [1, 2, 3].map(|host| queue.hosts.name(host));
    let range = format!("{}[1-3]", queue.hosts.named("@h"));
    let names = queue.hosts.names();
    queue.ok(&format!("up --slots 2 --hosts {names} --store {store}"));
    let job = queue.begin("-J wide -N 3 -n 5", "out");
    queue.until("the job", || queue.lines("out").len() == 1);

    // While it runs, and with a head that has found it again.
    let shares = serde_json::json!([
        { "host": a, "slots": 1 }, { "host": b, "slots": 2 }, { "host": c, "slots": 2 },
    ]);
    for _ in 0..2 {
        assert_eq!(queue.row(&job)["hosts"], shares);
        let table = lines(&queue, "queue");
        assert!(table[0].ends_with(" LIMIT HOSTS NOTE"), "{table:?}");
        assert!(table[1].ends_with(&format!(" - {a},{b},{c}")), "{table:?}");
        let why = format!(" on {a} (1 slot), {b} (2 slots), {c} (2 slots)\n");
        assert!(queue.ok(&format!("explain {job}")).ends_with(&why));
        queue.ok("down --leave");
        queue.ok("up");
    }
    let squeue = lines(&queue, "slurm squeue -h -o %D|%N|%B|%R");
    assert_eq!(squeue, [format!("3|{range}|{a}|{range}")]);
    let shown = queue.ok(&format!("slurm scontrol show job {job}"));
    for line in [
        format!("NodeList={range}\n"),
        format!("BatchHost={a}\n"),
        "NumNodes=3 NumCPUs=5 ".to_owned(),
        "TRES=billing=5,cpu=5,node=3\n".to_owned(),
    ] {
        assert!(shown.contains(&line), "no {line}: {shown}");
    }
    let json: Value = serde_json::from_str(&queue.ok("slurm squeue --json")).unwrap();
    let one = &json["jobs"][0];
    assert_eq!(json["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(one["nodes"], Value::from(&*range));
    assert_eq!(one["node_count"]["number"], 3);
    assert_eq!(one["job_state"], serde_json::json!(["RUNNING"]));
    assert_eq!(one["time_limit"]["infinite"], true);
    let exec = format!("{a}/0*1+{b}/0*2+{c}/0*2");
    assert!(
        queue
            .ok("pbs qstat -f")
            .contains(&format!("exec_host = {exec}\n"))
    );
    assert!(queue.ok("pbs qstat -an1").contains(&exec));
    let all = format!("Allocated Hosts: {a}, {b}, {c}\n");
    assert!(queue.ok("ll llq -l").contains(&all));
    assert_eq!(queue.ok("ll llq -r %h %nh").trim_end(), format!("{a}!3"));

    // The machine as a mesh.
    queue.hosts.switch_off(4);
    queue.until("the host's end", || queue.state_of(4) == "down");
    let top = lines(&queue, "top --once --plain");
    for line in [format!("{a} A ."), format!("{b} A A"), format!("{c} A A")] {
        assert!(top.contains(&line), "no {line}: {top:?}");
    }
    let off = format!("{} - - down: ", queue.hosts.name(4));
    assert!(top.iter().any(|line| line.starts_with(&off)), "{top:?}");

    queue.ok(&format!("cancel {job}"));
    run(&mut queue.margay(&format!("wait {job}")));
    let ended: Value = serde_json::from_str(&queue.ok("queue --all --json")).unwrap();
    assert_eq!(ended[0]["hosts"], shares);
    let sacct = lines(&queue, "slurm sacct -nPX -o nnodes,nodelist,alloctres");
    assert_eq!(sacct, [format!("3|{range}|billing=5,cpu=5,node=3")]);
    let json: Value = serde_json::from_str(&queue.ok("slurm sacct --json")).unwrap();
    let one = &json["jobs"][0];
    assert_eq!(one["nodes"], Value::from(&*range));
    assert_eq!(one["state"]["current"], serde_json::json!(["CANCELLED"]));
    assert_eq!(one["allocation_nodes"], 3);
    queue.ok("down");
    nothing_is_left(&queue.mark);
}

#[test]
fn tables_show_where_jobs_are_in_a_file() {
    tables_show_where_jobs_are("file");
}

#[test]
fn tables_show_where_jobs_are_in_a_database() {
    let Some(server) = Postgres::shared() else {
        return;
    };
    tables_show_where_jobs_are(&server.database("where_jobs_are", "postgres"));
}
