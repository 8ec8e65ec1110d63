//! Bad days of hosts: cables that are cut for a while, lose frames or are slow, clocks that differ,
//! full disks, remote shells that ask. Hosts are network namespaces, which only root can make.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Job, Words, descendants_named, send};
use margay_tests::{run, stage};

/// Runs a program that looks at every byte on two hosts, two ranks each.
fn streams(hosts: &Hosts, options: &str, seconds: u32, longest: u32) {
    let built = Built::mpi("mpi/hosts_stream.c");
    let words = hosts
        .mpiexec(&format!("-ppn 2 {options}"))
        .and(built.path())
        .and_all(&format!("{seconds} {longest}"));
    let said = words.succeed(110);
    assert_eq!(said.matches(": 0 wrong bytes").count(), 4, "{said}");
}

/// A second or three without a network are no reason to give up: TCP sends again.
#[test]
fn a_cable_that_is_cut_for_a_while_loses_nothing() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi("mpi/hosts_stream.c");
    for longest in [1000, 300_000] {
        let words = hosts
            .mpiexec("-ppn 2")
            .and(built.path())
            .and_all(&format!("5 {longest}"));
        let mut job = Job::start(&words, 100);
        job.until("streaming", 1);
        assert!(hosts.works("ip -n @s link set @p2 down"));
        std::thread::sleep(Duration::from_secs(3));
        assert!(hosts.works("ip -n @s link set @p2 up"));
        let end = job.ended_with_nothing_left();
        assert_eq!(end.status.code(), Some(0), "{}", end.err);
        assert_eq!(end.out.matches(": 0 wrong bytes").count(), 4, "{}", end.out);
    }
}

#[test]
fn a_slow_network_is_slow_and_nothing_else() {
    let Some(hosts) = Hosts::make(2) else { return };
    for host in 1..=2 {
        let line = "tc -n @hN qdisc add dev @vN root tbf rate 100mbit burst 64k latency 50ms";
        if !hosts.works(&line.replace('N', &host.to_string())) {
            println!("note: this kernel has no token buckets (tbf): a slow network is not tested");
            return;
        }
    }
    streams(&hosts, "", 3, 2_000_000);
    streams(&hosts, "-encrypt", 3, 2_000_000);
}

/// Each host lets connections in at one port. The ranks find their way when the port is named, and
/// else the report says what would.
#[test]
fn one_port_through_the_firewall_is_enough() {
    let Some(hosts) = Hosts::make(3) else { return };
    for host in ["1", "2", "3"] {
        for line in [
            "add table inet wall",
            "add chain inet wall in { type filter hook input priority 0 ; }",
            "add rule inet wall in tcp flags & (syn|ack) == syn tcp dport != 41000 drop",
        ] {
            let line = format!("ip netns exec @h{host} nft {line}");
            if !hosts.works(&line) {
                println!("note: '{line}' does not work here: a firewall is not tested");
                return;
            }
        }
    }
    let built = Built::mpi("mpi/hosts.c");
    let words = hosts.mpiexec("-ppn 1 -n 3 -port-range 41000:41000");
    let said = words.and(built.path()).and_all("1").succeed(110);
    assert_eq!(said.matches("is content").count(), 3, "{said}");
    let words = hosts.mpiexec("-ppn 1 -n 3").and(built.path()).and_all("1");
    let end = Job::start(&words, 100).ended_with_nothing_left();
    assert_eq!(end.status.code(), Some(1), "{}", end.err);
    for said in ["cannot reach rank", "-port-range names the ports"] {
        assert!(end.err.contains(said), "{}", end.err);
    }
}

/// The process of a cable; it ends with the value.
struct Cable(Child);

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts a cable that loses frames between the two hosts, in place of the bridge.
fn lossy(hosts: &Hosts, percent: &str) -> Cable {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/hosts/lossy.py");
    for host in ["1", "2"] {
        let plain = format!("ip netns exec @hN python3 {script} plain @vN").replace('N', host);
        assert!(hosts.works(&plain), "{plain}");
        assert!(hosts.works(&"ip -n @s link set @pN nomaster".replace('N', host)));
    }
    let line = format!("ip netns exec @s python3 {script} lose @p1 @p2 {percent}");
    let line = hosts.named(&line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut cable = Command::new(words[0])
        .args(&words[1..])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip is there");
    let mut said = String::new();
    let stdout = cable.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut said).expect("text");
    assert_eq!(said, "ready\n");
    Cable(cable)
}

#[test]
fn lost_frames_are_sent_again() {
    for percent in ["1", "5"] {
        let Some(hosts) = Hosts::make(2) else { return };
        let _cable = lossy(&hosts, percent);
        streams(&hosts, "", 4, 20_000);
        streams(&hosts, "-encrypt", 2, 20_000);
    }
}

/// An hour between the clocks of two hosts: nothing is late, and nobody is taken for dead.
#[test]
fn clocks_that_differ_by_an_hour_are_no_obstacle() {
    let Some(hosts) = Hosts::make(2) else { return };
    let shell = hosts.folder.path().join("skewed");
    let text = std::fs::read_to_string(hosts.shell()).expect("a script");
    let skewed = text.replace(
        "exec ip",
        "case $host in *h2) skew='unshare -T --monotonic 3600 --boottime 3600';; esac\nexec $skew ip",
    );
    std::fs::write(&shell, skewed).expect("the folder takes files");
    tool_mode(&shell);
    let built = Built::mpi("mpi/hosts_stream.c");
    let words = hosts
        .mpiexec_by(&shell, "-ppn 2")
        .and(built.path())
        .and_all("10 30000");
    let said = words.succeed(110);
    assert_eq!(said.matches(": 0 wrong bytes").count(), 4, "{said}");
    // A deadlock across them is still found, in its time.
    let built = Built::mpi("why/stands.c");
    let begun = Instant::now();
    let words = hosts
        .mpiexec_by(&shell, "-ppn 2 -deadlock end")
        .and(built.path())
        .and("circle");
    let output = run(&mut words.command(100));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("deadlock: 0 → 1 → 2 → 3 → 0"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
}

fn tool_mode(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("the file is ours");
}

/// Nothing that a job needs on a host is written to its disks.
#[test]
fn a_full_disk_for_temporary_files_stops_nothing() {
    let Some(hosts) = Hosts::make(2) else { return };
    let fill = "mkdir -p /var/tmp/full; mount -t tmpfs -o size=64k none /var/tmp/full; \
                export TMPDIR=/var/tmp/full; head -c 1000000 /dev/zero > /var/tmp/full/x 2>/dev/null";
    let built = Built::mpi("mpi/hosts.c");
    let words = hosts
        .mpiexec_by(&hosts.shell_that(fill), "-ppn 2")
        .and(built.path())
        .and("2");
    let said = words.succeed(110);
    assert_eq!(said.matches("is content").count(), 4, "{said}");
}

/// A remote shell that waits for an answer gets none, as nobody could know whom it asks.
#[test]
fn a_remote_shell_that_asks_is_reported() {
    let Some(hosts) = Hosts::make(2) else { return };
    let begun = Instant::now();
    let shell = hosts
        .shell_that("echo Are you sure you want to continue, yes or no; read answer; exit 255");
    let built = Built::mpi("mpi/hosts.c");
    let words = hosts
        .mpiexec_by(&shell, "-ppn 1")
        .and(built.path())
        .and("1");
    let output = run(&mut words.command(100));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&hosts.name(1)) || said.contains(&hosts.name(2)),
        "{said}"
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
    assert!(said.contains("Are you sure you want to continue"), "{said}");
}

/// A profile says how often it has looked at the ranks of each host, and whose ranks are missing.
#[test]
fn a_profile_names_the_host_that_is_lost() {
    let Some(hosts) = Hosts::make(2) else { return };
    let words = hosts.mpiexec("-continue-on-failure -ppn 2 -n 4");
    let words = words.and("sh").and("-c");
    let mut job = Job::start(&words.and("echo ready; while :; do :; done"), 100);
    job.until("ready", 4);
    let pid = job.pid().to_string();
    let profile = |words: &str| {
        let margay = Words::default().and(stage().join("bin/margay"));
        let margay = margay.and("profile").and(&pid).and_all("--seconds 1");
        margay.and_all(words).succeed(30)
    };
    let looks_at_hosts = || {
        let all: serde_json::Value = serde_json::from_str(&profile("--json")).expect("JSON");
        all["profile"]["hosts"].clone()
    };
    let all = looks_at_hosts();
    for (host, ranks) in [[0, 1], [2, 3]].into_iter().enumerate() {
        let of = &all[host];
        let [looks, asked] = ["looks", "asked"].map(|name| of[name].as_u64().unwrap_or(0));
        assert!(0 < looks && looks <= asked, "{all}");
        assert_eq!(of["host"], hosts.name(host as u32 + 1), "{all}");
        assert_eq!(of["ranks"], serde_json::json!(ranks), "{all}");
        assert!(of["silent_since_s"].is_null(), "{all}");
    }
    send("KILL", descendants_named(job.pid(), "margay-agent")[1]);
    let is_lost = || looks_at_hosts()[1]["silent_since_s"].is_f64();
    assert!((0..20).any(|_| is_lost()), "{}", profile(""));
    let text = profile("");
    let lost = format!("{}: 0 of 50 looks at ranks 2, 3", hosts.name(2));
    assert!(text.contains(&lost), "{text}");
    let missing = "no answer since 0.0 s: ranks 2, 3 are missing from then on";
    assert!(text.contains(missing), "{text}");
    send("TERM", job.pid());
    job.ended_with_nothing_left();
}
