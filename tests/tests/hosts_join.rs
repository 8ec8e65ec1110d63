//! Hosts that dial in: network namespaces on a bridge, which only root can make. The first one has
//! the launcher, and no remote shell leads anywhere.
#![forbid(unsafe_code)]

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, descendants_named, send};
use margay_tests::stage;

const TOKEN: &str = "MARGAY_JOIN_TOKEN=a-token-of-this-test";

/// A command on a host, with its name.
fn on(hosts: &Hosts, host: u32) -> Words {
    let line = format!("ip netns exec {0} unshare -u sh -c", hosts.name(host));
    Words::default()
        .and_all(&line)
        .and("hostname \"$0\"; exec \"$@\"")
        .and(hosts.name(host))
}

/// Hosts that join the first one.
fn agents(hosts: &Hosts, token: &str, wait: u32) -> Vec<Job> {
    let join = format!("agent --join 10.77.0.1:7118 --wait {wait}");
    let agent = |host| {
        let words = on(hosts, host).and("env").and(token);
        Job::start(&words.and(stage().join("bin/margay")).and_all(&join), 100)
    };
    (2..=hosts.number).map(agent).collect()
}

/// The launcher, with all other hosts.
fn launcher(hosts: &Hosts, token: &str, options: &str) -> Words {
    let words = on(hosts, 1).and("env").and(token).and("MARGAY_RSH=false");
    let join = format!("-join {} -join-port 7118 {options}", hosts.number - 1);
    words.and(stage().join("bin/mpiexec")).and_all(&join)
}

fn end_well(agents: Vec<Job>) {
    for agent in agents {
        let end = agent.ended_with_nothing_left();
        assert_eq!((end.status.code(), end.err.as_str()), (Some(0), ""));
    }
}

#[test]
fn hosts_that_join_run_the_job_whichever_side_begins() {
    let Some(hosts) = Hosts::make(3) else { return };
    let built = Built::mpi("mpi/hosts.c");
    for launcher_first in [true, false] {
        let words = launcher(&hosts, TOKEN, "-ppn 2").and(built.path()).and("2");
        let first = launcher_first.then(|| Job::start(&words, 100));
        let agents = agents(&hosts, TOKEN, 60);
        let job = first.unwrap_or_else(|| Job::start(&words, 100));
        let end = job.ended_with_nothing_left();
        assert_eq!(end.status.code(), Some(0), "{}", end.err);
        assert_eq!(end.out.matches("is content").count(), 4, "{}", end.out);
        for host in 2..=3 {
            assert_eq!(end.out.matches(&hosts.name(host)).count(), 2, "{}", end.out);
        }
        end_well(agents);
    }
}

/// Input and output pass; the token does not get to the ranks.
#[test]
fn ranks_of_hosts_that_joined_are_as_others_and_do_not_know_the_token() {
    let Some(hosts) = Hosts::make(3) else { return };
    let agents = agents(&hosts, TOKEN, 60);
    let script = "test -z \"$MARGAY_JOIN_TOKEN\" && echo $MARGAY_RANK $(hostname) && exec cat";
    let words = launcher(&hosts, TOKEN, "-ppn 1 -stdin all");
    let words = words.and("sh").and("-c").and(script);
    let input = hosts.folder.path().join("input");
    std::fs::write(&input, "Y".repeat(300_000)).expect("the folder takes files");
    let words = words.after(&format!("exec < {}", input.display()));
    let end = Job::start(&words, 100).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(0), "{}", end.err);
    assert_eq!(end.out.matches('Y').count(), 600_000);
    let named = |rank: u32| format!("{rank} {}\n", hosts.name(rank + 2));
    assert!(
        end.out.contains(&named(0)) && end.out.contains(&named(1)),
        "{}",
        end.err
    );
    end_well(agents);
}

#[test]
fn processes_are_spawned_on_hosts_that_joined() {
    let Some(hosts) = Hosts::make(3) else { return };
    let built = Built::mpi("mpi/hosts_dynamic.c");
    let agents = agents(&hosts, TOKEN, 60);
    let words = launcher(&hosts, TOKEN, "-ppn 1").and(built.path());
    let end = Job::start(&words.and("spawn"), 100).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(0), "{}", end.err);
    end_well(agents);
}

/// Another token, too few hosts, an end before the job begins: each side says it, and none waits
/// for ever.
#[test]
fn who_does_not_belong_to_the_job_is_not_let_in_and_says_so() {
    let Some(hosts) = Hosts::make(2) else { return };
    let wrong = agents(&hosts, "MARGAY_JOIN_TOKEN=a-token-of-another-one", 2);
    let words = launcher(&hosts, TOKEN, "-join-wait 3").and("true");
    let end = Job::start(&words, 60).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1));
    assert!(
        end.err.contains("0 of 1 hosts have joined within 3 s"),
        "{}",
        end.err
    );
    for agent in wrong {
        let end = agent.ended_with_nothing_left();
        assert_eq!(end.status.code(), Some(1));
        assert!(
            end.err.contains("no launcher has taken this host"),
            "{}",
            end.err
        );
    }
    let short = launcher(&hosts, "MARGAY_JOIN_TOKEN=short", "").and("true");
    let end = Job::start(&short, 60).ended_with_nothing_left();
    assert!(end.err.contains("of 16 characters or more"), "{}", end.err);
}

/// When the launcher or a host is killed, nothing is left on any host, and both sides say why.
#[test]
fn nothing_is_left_when_one_side_dies() {
    let Some(hosts) = Hosts::make(3) else { return };
    let begin = || {
        let agents = agents(&hosts, TOKEN, 60);
        let words = launcher(&hosts, TOKEN, "-ppn 1").and("sh").and("-c");
        let mut job = Job::start(&words.and("echo running; exec sleep 300"), 100);
        job.until("running", 2);
        (agents, job)
    };
    let (agents, job) = begin();
    send("KILL", job.pid());
    job.ended_with_nothing_left();
    end_well(agents);
    let (mut agents, job) = begin();
    let lost = agents.remove(0);
    for own in descendants_named(lost.pid(), "margay-join") {
        send("KILL", own);
    }
    send("KILL", lost.pid());
    lost.ended_with_nothing_left();
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    assert!(end.err.contains("the agent has gone"), "{}", end.err);
    end_well(agents);
}
