//! Processes of several jobs on several hosts: spawned ones, and groups that connect.
#![forbid(unsafe_code)]

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, nothing_is_left};
use margay_tests::stage;

fn ended(job: Job) -> String {
    let mark = job.mark().to_owned();
    let ended = job.ended();
    assert!(ended.status.success(), "{}\n{}", ended.out, ended.err);
    nothing_is_left(&mark);
    ended.out
}

/// The rank that spawns is on one host, the launcher on another, and the children on all hosts of
/// the job or where the program says.
#[test]
fn children_run_on_the_jobs_hosts() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_dynamic.c");
    let (first, second) = (hosts.name(1), hosts.name(2));
    for (options, host, places) in [
        ("-ppn 2", None, [&first, &first, &second, &second]),
        ("-ppn 2 -encrypt", Some(&second), [&second; 4]),
    ] {
        let words = hosts.mpiexec(options).and(built.path()).and("spawn");
        let words = host.map_or(words.clone(), |host| words.and(host));
        let out = ended(Job::start(&words, 110));
        for (child, host) in places.iter().enumerate() {
            let line = format!("child {child} on {host}\n");
            assert!(out.contains(&line), "{line}{out}");
        }
        assert!(out.contains("spawn is done"), "{out}");
    }
}

/// A port that a rank on the second host opens, and whose name others find at the launcher's host:
/// a job on all hosts, one on the second host alone, and one on one host that has the port's name.
#[test]
fn groups_of_several_jobs_connect_across_hosts() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_dynamic.c");
    let service = hosts.name(0);
    let file = hosts.folder.path().join("port");
    let words = hosts.mpiexec("-n 2").and(built.path());
    let words = words.and("accept").and(&service).and("3").and(&file);
    let mut server = Job::start(&words, 110);
    server.until("published", 1);
    let port = std::fs::read_to_string(&file).expect("the server has written it");
    let many = hosts.mpiexec("-ppn 2").and(built.path());
    let one = Words::default().and(stage().join("bin/mpiexec"));
    let one = one
        .and_all("-timeout 100 -launcher-exec")
        .and(hosts.shell());
    let one = one
        .and("-host")
        .and(hosts.name(2))
        .and_all("-n 2")
        .and(built.path());
    let near = Words::default().and_all("ip netns exec").and(hosts.name(1));
    let near = near.and(stage().join("bin/mpiexec"));
    let near = near.and_all("-timeout 100 -n 2").and(built.path());
    let clients = [(many, &service), (one, &service), (near, &port)];
    let clients = clients.map(|(words, place)| Job::start(&words.and("connect").and(place), 110));
    for client in clients {
        assert!(ended(client).contains("connect is done"));
    }
    assert!(ended(server).contains("accept is done"));
}
