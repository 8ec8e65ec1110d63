//! Hosts that are reached by OpenSSH, as those of most users are: jobs of `mpiexec`, and the queue.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use margay_tests::batch::said;
use margay_tests::cluster::Cluster;
use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, send};
use margay_tests::queue_hosts::Queue;
use margay_tests::{run, stage};

/// The counters of energy of all hosts, which the test moves.
fn counters(folder: &Path) -> PathBuf {
    let zone = folder.join("powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("name"), "package-0\n").unwrap();
    fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
    zone
}

/// A program that uses 2 s of processor time; the last of three ranks has 100 MiB, and the
/// second one moves the counters by eight joules. None ends before that.
const USE: &str = "import os, time\n\
    rank = int(os.environ['PMI_RANK'])\n\
    b = bytearray(100 << 20) if rank == 2 else 0\n\
    while time.process_time() < 2: pass\n\
    if rank == 1: os.rename('new', 'powercap/intel-rapl:0/energy_uj')\n\
    while os.path.exists('new'): time.sleep(0.01)\n";

/// A job on several hosts is charged what it used on all of them, once: also where the remote shell
/// enters a container, so that all processes are below the job's own, and all counters are those
/// of one machine. Its energy is that of its slots, one of two on each host.
#[test]
fn jobs_are_charged_what_they_used_on_all_hosts() {
    for (hosts, counted) in [(Hosts::with_ssh(3), 3.0), (Hosts::make(3), 1.0)] {
        let Some(hosts) = hosts else { return };
        let folder = hosts.folder.path();
        fs::write(counters(folder).join("energy_uj"), "1000000\n").unwrap();
        fs::write(folder.join("new"), "9000000\n").unwrap();
        fs::write(folder.join("use.py"), USE).unwrap();
        let queue = Queue::up(hosts);
        let list = queue.hosts.names().replace(',', ":2,");
        let up = format!("up --slots 2 --hosts {list}:2");
        let up = run(queue
            .margay(&up)
            .env("MARGAY_POWERCAP", queue.path("powercap")));
        assert!(up.status.success(), "{}", said(&up));
        let mpiexec = stage().join("bin/mpiexec");
        let script = format!("{} -n 3 python3 use.py", mpiexec.display());
        let (output, printed) = queue.job("-A sun -N 3 -n 3", &script);
        assert!(output.status.success(), "{printed}");
        let row = queue.row("--all 1");
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert!((6.0..9.5).contains(&number("cpu_s")), "{row}");
        let rss = number("max_rss_kib");
        assert!((102_400.0..200_000.0).contains(&rss), "{row}");
        assert_eq!(number("energy_j"), counted * 8.0 / 2.0, "{row}");
        queue.ok("down");
    }
}

/// Jobs of `mpiexec` go to hosts by ssh, and say which host cannot be reached, and why.
#[test]
fn ranks_run_on_hosts_that_ssh_reaches() {
    let Some(hosts) = Hosts::with_ssh(2) else {
        return;
    };
    let hello = Built::mpi("project/hello.c");
    let words = hosts.mpiexec("-n 4 -l").and(hello.path());
    let end = Job::start(&words, 100).ended_with_nothing_left();
    assert!(end.status.success(), "{}", end.err);
    assert!(end.out.contains("sum of ranks 6"), "{}", end.out);

    let output = hosts.run("-n 2 -ppn 1", "hostname");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for host in 1..=2 {
        assert!(printed.contains(&hosts.name(host)), "{printed}");
    }

    let output = hosts.run("-n 2 -ppn 1", "exit 3");
    assert_eq!(output.status.code(), Some(3));

    // Killed by itself the launcher leaves nothing, on no host.
    let words = hosts.mpiexec("-n 2 -ppn 1 sh -c").and("echo on; sleep 300");
    let mut job = Job::start(&words, 100);
    job.until("on", 2);
    send("KILL", job.pid());
    job.ended_with_nothing_left();

    // A server that does not know the key.
    fs::write(hosts.folder.path().join("key.pub"), "").unwrap();
    let output = hosts.run("-n 2 -ppn 1", "true");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied (publickey)"), "{said}");
    assert!(
        (1..=2).any(|host| said.contains(&hosts.name(host))),
        "{said}"
    );
}

/// A file system lies on disks of hosts that ssh reaches, which all mount it.
#[test]
fn a_file_system_spans_hosts_that_ssh_reaches() {
    let Some(cluster) = Cluster::over_ssh(3) else {
        return;
    };
    cluster.mounted();
    cluster.on(
        2,
        "head -c 3000000 /dev/urandom > mnt/file; cksum < mnt/file > sum",
    );
    cluster.on(3, "cksum < mnt/file | cmp - sum; mv mnt/file mnt/moved");
    cluster.on(1, "cksum < mnt/moved | cmp - sum");
    cluster.pfs("stop scratch");
    cluster.nothing_is_left();
}

/// Hosts start the agents of others by ssh, along a tree.
#[test]
fn agents_are_started_along_a_tree_of_ssh() {
    let Some(hosts) = Hosts::with_ssh(5) else {
        return;
    };
    let output = hosts.run("-n 5 -ppn 1 -tree-width 2", "hostname");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut ranks: Vec<&str> = printed.lines().collect();
    ranks.sort_unstable();
    let names = [1, 2, 3, 4, 5].map(|host| hosts.name(host));
    assert_eq!(ranks, names, "{said}");
}
