//! Jobs on several hosts over libfabric, whose own providers need no other network than these hosts
//! have. Without libfabric they are not tested.
#![forbid(unsafe_code)]

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, mark, nothing_is_left, text};
use margay_tests::run;

/// The providers that are tested.
const PROVIDERS: [&str; 2] = ["tcp", "net"];

/// Hosts; none, with a note, where there can be none or no libfabric is.
fn made(number: u32) -> Option<Hosts> {
    let known = std::process::Command::new("/sbin/ldconfig")
        .arg("-p")
        .output();
    let is_there = known
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libfabric.so.1 "));
    if !is_there {
        println!("note: no libfabric here (Debian's package libfabric1): it is not tested");
        return None;
    }
    Hosts::make(number)
}

/// The same programs that are tested over TCP, which check themselves.
#[test]
fn what_works_over_tcp_works_over_libfabric() {
    let Some(hosts) = made(2) else { return };
    let file = hosts.folder.path().join("file");
    let file = file.to_str().expect("text");
    for (source, arguments) in [
        ("mpi/hosts.c", "2"),
        ("mpi/point.c", ""),
        ("mpi/collectives.c", ""),
        ("mpi/hosts_collectives.c", ""),
        ("mpi/communicators.c", "hosts"),
        ("mpi/topology.c", ""),
        ("mpi/window.c", ""),
        ("mpi/window_model.c", ""),
        ("mpi/partitioned.c", ""),
        ("mpi/session.c", ""),
        ("mpi/outstanding.c", ""),
        ("mpi/files.c", file),
        ("model/collectives.c", "17 120"),
        ("model/messages.c", "17 200"),
        ("model/inter.c", "17 200"),
        ("model/programs.c", "17 20 25 2"),
    ] {
        let built = Built::mpi(source);
        for provider in PROVIDERS {
            let words = hosts.mpiexec(&format!("-net ofi:{provider} -ppn 2 -n 4"));
            words.and(built.path()).and_all(arguments).succeed(110);
        }
    }
}

/// A rank that computes when it has sent something has sent it.
#[test]
fn messages_go_while_their_sender_computes() {
    let Some(hosts) = made(2) else { return };
    let built = Built::mpi("mpi/hosts_first.c");
    for provider in PROVIDERS {
        let file = hosts.folder.path().join(provider);
        let words = hosts.mpiexec(&format!("-net ofi:{provider} -ppn 1 -n 2"));
        words.and(built.path()).and(file).succeed(110);
    }
}

/// Messages of all lengths are read out of their sender's memory, also those that the engine would
/// keep.
#[test]
fn every_message_may_be_read_by_its_receiver() {
    let Some(hosts) = made(2) else { return };
    for (source, arguments) in [
        ("mpi/point.c", ""),
        ("mpi/collectives.c", ""),
        ("mpi/window_model.c", ""),
        ("mpi/outstanding.c", ""),
        ("model/collectives.c", "18 60"),
        ("model/messages.c", "18 200"),
    ] {
        let built = Built::mpi(source);
        for provider in PROVIDERS {
            let options = format!("-net ofi:{provider} -env MARGAY_FABRIC_LIMIT 1 -ppn 2 -n 4");
            let words = hosts.mpiexec(&options);
            words.and(built.path()).and_all(arguments).succeed(110);
        }
    }
}

/// The environment chooses as the option does.
#[test]
fn a_network_that_is_not_there_is_reported_with_the_remedy() {
    let Some(hosts) = made(2) else { return };
    let built = Built::mpi("mpi/hosts.c");
    for (options, said) in [
        (
            "-net ofi:nonsense",
            "has no provider nonsense on this host, but: ",
        ),
        (
            "-env MARGAY_NET ofi:tcp:eth77",
            "has no provider tcp:eth77 on this host, but: tcp:",
        ),
        (
            "-net ofi -env MARGAY_LIBFABRIC /no/such/file",
            "libfabric does not load: /no/such/file",
        ),
        (
            "-net ofi -env MARGAY_LIBFABRIC libc.so.6",
            "libc.so.6 has no fi_getinfo",
        ),
        (
            "-env MARGAY_NET smoke",
            "MARGAY_NET is 'smoke', which is no network",
        ),
        ("-net smoke", "write tcp, ofi, ofi:PROVIDER"),
        (
            "-net ofi:tcp -encrypt",
            "what goes through libfabric is not encrypted",
        ),
    ] {
        let words = hosts.mpiexec(options).and(built.path()).and("1");
        let mut command = words.command(60);
        let mark = mark(&mut command);
        let output = run(&mut command);
        nothing_is_left(&mark);
        assert!(!output.status.success(), "{options}");
        let text = text(&output);
        assert!(text.contains(said), "{options}: {text}");
        if said.contains("provider") || said.contains("does not load") {
            assert!(
                text.contains("libfabric1") && text.contains("-net tcp"),
                "{text}"
            );
        }
    }
}

/// A host whose cable is cut while its ranks talk to another one's.
#[test]
fn a_host_that_is_lost_is_reported_by_name() {
    let Some(hosts) = made(2) else { return };
    let built = Built::mpi("mpi/hosts_talk.c");
    for provider in PROVIDERS {
        hosts.cut_while_they_talk(&format!("-net ofi:{provider}"), &built);
    }
}

/// Children are reached by the network of their parents; what goes between them goes over TCP.
#[test]
fn children_use_the_network_of_their_parents() {
    let Some(hosts) = made(2) else { return };
    let built = Built::mpi("mpi/hosts_dynamic.c");
    for provider in PROVIDERS {
        let words: Words = hosts.mpiexec(&format!("-net ofi:{provider} -ppn 2"));
        let end = Job::start(&words.and(built.path()).and("spawn"), 110).ended_with_nothing_left();
        assert!(end.status.success(), "{}\n{}", end.out, end.err);
        assert!(end.out.contains("spawn is done"), "{}", end.out);
    }
}
