//! A tree of agents: hosts whose agents are started by other hosts. Hosts are network namespaces,
//! which only root can make.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, descendants_named, host, send, text};

/// A remote shell that notes who calls it for whom, and runs a command of the shell before.
fn noting(hosts: &Hosts, folder: &Path, first: &str) -> PathBuf {
    let path = folder.join("noting");
    let script = format!(
        "#!/bin/sh\necho \"$(hostname) $1\" >> {}\n{first}\nexec {} \"$@\"\n",
        folder.join("calls").display(),
        hosts.shell().display()
    );
    std::fs::write(&path, script).expect("the folder takes files");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("the file is ours");
    path
}

/// The calls that were noted, and none after this.
fn calls(folder: &Path) -> Vec<(String, String)> {
    let path = folder.join("calls");
    let text = std::fs::read_to_string(&path).expect("somebody has called");
    std::fs::remove_file(&path).expect("it is there");
    let pair = |line: &str| line.split_once(' ').map(|(a, b)| (a.into(), b.into()));
    text.lines().filter_map(pair).collect()
}

/// In trees of any width, ranks get their input, environment and programs, and give their
/// output and status, from the deepest host as from the first.
#[test]
fn hosts_start_the_agents_of_others() {
    let Some(hosts) = Hosts::make(7) else { return };
    let built = Built::mpi("mpi/hosts.c");
    let folder = tempfile::tempdir().expect("a folder");
    let shell = noting(&hosts, folder.path(), "");
    for width in [0, 1, 2, 32] {
        let words = |options: &str| {
            hosts.mpiexec_by(
                &shell,
                &format!("-ppn 1 -n 7 -tree-width {width} {options}"),
            )
        };
        let said = words("-stage").and(built.path()).and_all("1").succeed(110);
        assert_eq!(said.matches("is content").count(), 7, "{said}");
        let calls = calls(folder.path());
        let of = |name: String| calls.iter().filter(|(from, _)| *from == name).count();
        let here = if width == 0 { 7 } else { width.min(7) };
        assert_eq!((calls.len(), of(host())), (7, here), "{calls:?}");
        for host in 1..=7 {
            let behind = 7_usize.saturating_sub(width * host).min(width);
            assert_eq!(of(hosts.name(host as u32)), behind, "{calls:?}");
        }
        let script = "test $MARGAY_RANK = 6 || exit 0; cat; echo $HERE; head -c 3000000 /dev/zero; echo last >&2; exit 7";
        let mut command = words("-s 6").and_all("sh -c").and(script).command(110);
        command.env("HERE", "of the launcher");
        let input = folder.path().join("input");
        std::fs::write(&input, "first\n".repeat(100_000)).expect("the folder takes files");
        command.stdin(std::fs::File::open(input).expect("it is there"));
        let output = margay_tests::run(&mut command);
        assert_eq!(output.status.code(), Some(7), "{:?}", output.stderr);
        let sent = 600_000 + "of the launcher\n".len() + 3_000_000;
        assert_eq!(output.stdout.len(), sent);
        assert!(output.stdout.starts_with(b"first\n"));
        assert!(output.stderr.starts_with(b"last\n"), "{}", text(&output));
        // The next width begins with none.
        assert_eq!(self::calls(folder.path()).len(), 7);
    }
}

/// Where hosts cannot reach each other by the remote shell, the launcher's starts all.
#[test]
fn who_cannot_be_reached_from_another_host_is_reached_from_here() {
    let Some(hosts) = Hosts::make(5) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let first = format!(
        "test $(hostname) = {} || {{ echo Permission denied >&2; exit 255; }}",
        host()
    );
    let shell = noting(&hosts, folder.path(), &first);
    let options = "-ppn 1 -n 5 -tree-width 1 -stage";
    let words = hosts.mpiexec_by(&shell, options).and_all("/bin/sh -c");
    let said = words.and("echo $MARGAY_RANK is there").succeed(110);
    assert_eq!(said.matches("is there").count(), 5, "{said}");
    // The fifth host is not tried from the fourth, which is not there before the launcher's.
    let calls = calls(folder.path());
    let here = calls.iter().filter(|(from, _)| *from == host());
    assert_eq!(here.count(), 5, "{calls:?}");
    // One that nobody can reach is named with what its shell said here.
    let first = format!(
        "test $1 != {} || {{ echo no way to $1 >&2; exit 255; }}",
        hosts.name(4)
    );
    let shell = noting(&hosts, folder.path(), &first);
    let words = hosts.mpiexec_by(&shell, options).and("/bin/true");
    let end = Job::start(&words, 100).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    let named = hosts.named("host @h4: the remote shell ended with code 255");
    assert!(end.err.contains(&named), "{}", end.err);
    assert!(end.err.contains("no way to"), "{}", end.err);
}

/// Host 1 starts hosts 3 and 4, and host 3 starts host 7: with a host those are lost that it has
/// started, and it is the one that is named.
#[test]
fn who_is_reached_through_a_lost_host_is_lost_and_the_cause_is_named() {
    let Some(hosts) = Hosts::make(7) else { return };
    let built = Built::mpi("mpi/hosts_recover.c");
    let running = |options: &str| {
        let options = format!("-ppn 1 -n 7 -tree-width 2 {options}");
        let mut job = Job::start(&hosts.mpiexec(&options).and(built.path()), 100);
        job.until("running", 7);
        let agents = descendants_named(job.pid(), "margay-agent");
        let of_first = descendants_named(agents[0], "margay-agent");
        (job, agents[0], of_first[0])
    };
    for (signal, said) in [("KILL", "the agent has gone"), ("STOP", "has not answered")] {
        let (job, first, _) = running("");
        send(signal, first);
        let end = job.ended_with_nothing_left();
        assert_eq!(end.status.code(), Some(1), "{}", end.err);
        let named = end.err.contains(&hosts.named("host @h1")) && end.err.contains(said);
        assert!(named, "{}", end.err);
        let others = (2..=7).filter(|n| end.err.contains(&hosts.named(&format!("host @h{n}"))));
        assert_eq!(others.count(), 0, "{}", end.err);
    }
    let (mut job, _, third) = running("-continue-on-failure");
    send("KILL", third);
    job.until("5 are left", 1);
    let end = job.ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(137), "{}", end.err);
    let line = hosts.named("host @h7 was reached through @h3; rank 6 counts as dead");
    assert!(end.err.contains(&line), "{}", end.err);
}
