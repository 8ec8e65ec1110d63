//! Bad days: deadlocks, floods, what the system refuses or lacks, and ranks that die inside a
//! collective. Real ranks under the real launcher.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use margay_sys_os::terminal::Pty;
use margay_tests::jobs::{
    Built, Ended, Job, SOON, Words, cpu_seconds, host, mark, nothing_is_left, send, text,
};
use margay_tests::{command, run, scratch, stage, succeed};

fn days() -> Built {
    Built::mpi("days/days.c")
}

/// All sizes and ways of moving data, checked.
fn sweep(built: &Built, ranks: u32) -> Words {
    Words::mpiexec(100, ranks, &built.path(), "sweep")
}

fn whole(words: &Words) {
    assert_eq!(words.succeed(120), "whole\n", "{words:?}");
}

/// `unshare` with these flags, as root or in a user namespace of our own. None, with a note, where
/// the system allows neither; what the test wants to take away then stays.
fn apart(flags: &str) -> Option<Words> {
    for start in ["unshare", "unshare -U -r"] {
        let words = Words::from(start).and_all(flags);
        if words.clone().and_all("true").work() {
            return Some(words);
        }
    }
    println!("note: this system does not let us try 'unshare {flags}'");
    None
}

// ---- Programs that are wrong or rude ----

/// The memory of a job holds the course of one program for each rank.
#[test]
fn a_second_program_as_the_same_rank_is_refused() {
    let built = days();
    let output = run(command(stage().join("bin/mpiexec"), 60)
        .args(["-n", "2", "sh", "-c", "\"$0\" sweep; exec \"$0\" sweep"])
        .arg(built.path()));
    let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(utf8(&output.stdout), "whole\n");
    let errors = utf8(&output.stderr);
    assert!(
        errors.contains("has already taken part in this job as rank"),
        "{errors}"
    );
    assert!(
        errors.contains("start each program with an mpiexec of its own"),
        "{errors}"
    );
    assert_ne!(output.status.code(), Some(0));
}

/// Example 2 of the SP2's paper with a message that no buffer takes.
#[test]
fn a_deadlock_burns_no_core_and_is_shown() {
    let built = days();
    let words = Words::mpiexec(8, 2, &built.path(), "deadlock 8");
    let mut job = Job::start(&words, 60);
    let shown = job.shown(|job| job["deadlocks"].as_array().is_some_and(|d| !d.is_empty()));
    assert_eq!(shown["deadlocks"], serde_json::json!([[0, 1]]));
    assert_eq!(
        shown["findings"],
        serde_json::json!(["deadlock: 0 → 1 → 0"])
    );
    for (rank, peer) in [(0, 1), (1, 0)] {
        let rank = &shown["rank"][rank];
        assert_eq!(rank["state"], "waiting");
        assert_eq!(rank["call"], "MPI_Send");
        assert_eq!(rank["waiting"]["rank"], peer);
        assert_eq!(rank["waiting"]["tag"], 5);
    }

    waits_without_burning(&shown);
    let mark = job.mark().to_owned();
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(124), "{err}");
    assert!(err.contains("the job's time limit of 8 s is over"), "{err}");
    assert!(
        err.contains("rank 0: waiting in MPI_Send until rank 1 takes its message, tag 5"),
        "{err}"
    );
    assert!(err.contains("deadlock: 0 → 1 → 0"), "{err}");
    nothing_is_left(&mark);
}

/// As the deadlock, in a collective that can never complete, with more ranks than cores.
#[test]
fn a_stuck_collective_burns_no_core_and_is_shown() {
    let built = days();
    let words = Words::mpiexec(8, 4, &built.path(), "stuck");
    let mut job = Job::start(&words, 60);
    let shown = job.shown(|job| job["findings"].as_array().is_some_and(|f| !f.is_empty()));
    for rank in 0..3 {
        assert_eq!(shown["rank"][rank]["call"], "MPI_Barrier", "{shown}");
        assert_eq!(shown["rank"][rank]["state"], "waiting", "{shown}");
    }
    assert_eq!(shown["rank"][3]["waiting"]["rank"], 0, "{shown}");
    waits_without_burning(&shown);
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(124), "{err}");
    assert!(
        err.contains("ranks 0-2: waiting in MPI_Barrier for the other ranks"),
        "{err}"
    );
    assert!(
        err.contains("rank 3: waiting in MPI_Recv for rank 0, tag 3"),
        "{err}"
    );
    assert!(err.contains("deadlock: "), "{err}");
}

/// The ranks of a job, as `showmesh` shows it, use less than a twentieth of a core in three
/// seconds.
fn waits_without_burning(job: &serde_json::Value) {
    let ranks = job["rank"].as_array().unwrap();
    let pids: Vec<u32> = ranks
        .iter()
        .map(|r| r["pid"].as_u64().unwrap() as u32)
        .collect();
    let used = || pids.iter().map(|&pid| cpu_seconds(pid)).sum::<f64>();
    let (start, before) = (Instant::now(), used());
    std::thread::sleep(Duration::from_secs(3));
    let share = (used() - before) / start.elapsed().as_secs_f64();
    assert!(share < 0.05, "{share} cores burnt by waiting");
}

/// A rank that does not receive slows its senders down; memory stays bounded, and all arrives in
/// order.
#[test]
fn a_flood_of_messages_waits_outside() {
    const MOST_KIB: u64 = 64 << 10;
    let built = days();
    for (ranks, arguments) in [
        (2, "flood 1000000 8"),
        (2, "flood 100000 1000"),
        (4, "flood 100000 40"),
    ] {
        let out = Words::mpiexec(300, ranks, &built.path(), arguments).succeed(320);
        let mut printed = 0;
        for line in out.lines().filter(|line| line.starts_with("rank ")) {
            let kib: u64 = line.split(' ').nth(3).unwrap().parse().unwrap();
            assert!(kib < MOST_KIB, "{arguments}: {line}");
            printed += 1;
        }
        assert_eq!(printed, ranks);
        assert!(out.lines().any(|line| line == "whole"), "{out}");
    }
}

/// 6 MB of messages to a rank that does not receive, whether it is in the library or not.
#[test]
fn a_sender_runs_ahead_of_its_receiver() {
    let built = days();
    for (messages, bytes) in [(6_000, 1000), (24_000, 40), (100, 60_000), (30_000, 0)] {
        let go = |how: &str| Words::mpiexec(100, 2, &built.path(), how).succeed(120);
        assert_eq!(go(&format!("ahead {messages} {bytes}")), "whole\n");
        let folder = scratch();
        let file = folder.path().join("sent");
        let how = format!("asleep {messages} {bytes} {}", file.display());
        assert_eq!(go(&how), "whole\n");
    }
}

/// As above, with messages that are offered for direct copying from the program's memory: from
/// 16 KiB on by this setting, and of memory that the library allocated on every processor. The
/// sender takes its memory back before the receiver comes for it, or just as it does.
#[test]
fn a_sender_runs_ahead_with_messages_that_it_has_offered() {
    let built = days();
    for how in ["ahead 100 60000", "shared 100 60000", "late 1000 20000"] {
        let mut command = Words::mpiexec(100, 2, &built.path(), how).command(120);
        let output = run(command.env("MARGAY_ATTACH_LIMIT", "16384"));
        assert_eq!(output.stdout, b"whole\n", "{how}: {}", text(&output));
    }
    mourned("100 20000", "16384");
}

/// Beyond the bound a send waits, and the report of the deadlock names what moves the bound.
#[test]
fn a_sender_that_is_too_far_ahead_waits_and_gets_the_reason() {
    let built = days();
    let ahead = |limit_s, send_buffer: &str| {
        let mut command =
            Words::mpiexec(limit_s, 2, &built.path(), "ahead 20000 1000").command(120);
        run(command.env("MARGAY_SEND_BUFFER", send_buffer))
    };
    let output = ahead(100, "40000000");
    assert_eq!(output.stdout, b"whole\n", "{}", text(&output));
    for send_buffer in ["0", "8388608"] {
        let output = ahead(8, send_buffer);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(124), "{said}");
        assert!(
            said.contains("until rank 1 takes its message")
                && said.contains("MARGAY_SEND_BUFFER")
                && said.contains("deadlock: 0 → 1 → 0"),
            "{said}"
        );
    }
}

/// What was kept for a rank that died makes room again, and nothing of the others' is lost.
#[test]
fn what_was_sent_ahead_survives_the_death_of_another_receiver() {
    mourned("3100 1000", "524288");
}

fn mourned(messages: &str, attach_limit: &str) {
    let built = days();
    let job = Words::mpiexec(100, 3, "-continue-on-failure".as_ref(), "-quiet");
    let job = job
        .and(built.path())
        .and_all(&format!("mourned {messages}"));
    let output = run(job.command(120).env("MARGAY_ATTACH_LIMIT", attach_limit));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("all received\n"), "{}", text(&output));
    assert_eq!(output.status.code(), Some(137), "{}", text(&output));
}

// ---- What the system refuses ----

#[test]
fn refused_attach_is_no_loss_but_of_speed() {
    let (built, refuse) = (days(), Built::plain("days/refuse.c", &[]));
    let refused = |how: &str| Words::default().and(refuse.path()).and_all(how);
    for how in ["EPERM both", "ENOSYS both", "EPERM read", "EPERM write"] {
        whole(&refused(how).then(&sweep(&built, 3)));
    }
    // Only some of the ranks are refused, each something else.
    let mut mixed = Words::mpiexec(100, 1, &built.path(), "sweep");
    for how in ["EPERM both", "EPERM read", "ENOSYS write"] {
        mixed = mixed
            .and_all(": -n 1")
            .then(&refused(how))
            .and(built.path())
            .and("sweep");
    }
    whole(&mixed);
}

/// A user who is not root, whose ranks nobody may read, from the start or from some point on.
#[test]
fn any_user_may_run_jobs_and_hide_from_the_others() {
    let built = days();
    // The stage tree may lie where nobody else can read.
    let folder = scratch();
    succeed(command("chmod", 10).arg("755").arg(folder.path()));
    let tree = folder.path().join("tree");
    succeed(command("cp", 60).arg("-a").arg(stage()).arg(&tree));
    let mut nobody = Words::from("setpriv --reuid=65534 --regid=65534 --clear-groups");
    if !nobody.clone().and_all("true").work() {
        println!("note: not root, so this user is not root already");
        nobody = Words::default();
    }
    for what in ["sweep", "unreadable", "darkening"] {
        let moved = Words::default()
            .and(tree.join("bin/mpiexec"))
            .and_all("-timeout 100 -n 3 env")
            .and(format!("LD_LIBRARY_PATH={}", tree.join("lib").display()))
            .and(built.path())
            .and(what);
        whole(&nobody.clone().then(&moved));
    }
}

#[test]
fn limits_suffice_or_are_named_in_one_line() {
    let built = days();
    let limited = |limit: &str| sweep(&built, 4).after(&format!("ulimit {limit}"));
    whole(&limited("-n 64"));
    whole(&limited("-v 4000000"));
    whole(&limited("-s 256"));
    // The job's memory, sparse but a file, shrinks to it.
    whole(&limited("-f 2000000"));
    whole(&limited("-f 400000"));
    for (limit, remedy) in [
        ("-n 12", "ulimit -n"),
        ("-v 300000", "ulimit -v"),
        ("-f 100", "ulimit -f"),
    ] {
        let output = run(&mut limited(limit).command(60));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(
            err.starts_with("mpiexec: ") && err.contains(remedy),
            "{err}"
        );
    }
}

// ---- What the machine lacks ----

/// 128 MB of shared memory are used here; the job's memory has no name in /dev/shm.
#[test]
fn a_small_dev_shm_does_not_matter() {
    let built = days();
    let job = sweep(&built, 4);
    match apart("-m") {
        Some(apart) => {
            let small = job.after("mount -t tmpfs -o size=64m tmpfs /dev/shm");
            whole(&apart.then(&small));
        }
        None => whole(&job),
    }
}

/// No network, not even a loopback, and a name that nobody can look up.
#[test]
fn no_network_and_an_unknown_name_do_not_matter() {
    let built = days();
    let folder = scratch();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let job = sweep(&built, 3);
    match apart("-n -u -m") {
        Some(apart) => {
            let script = format!(
                "hostname no-such-host && mount --bind {} /etc/hosts",
                hosts.display()
            );
            whole(&apart.then(&job.after(&script)));
        }
        None => whole(&job),
    }
}

/// No home, no /tmp, nothing to write to.
#[test]
fn no_place_to_write_does_not_matter() {
    let built = days();
    let job = sweep(&built, 2);
    let bare = job.after("unset TMPDIR XDG_RUNTIME_DIR; export HOME=/nonexistent; cd /");
    whole(&bare);
    if let Some(apart) = apart("-m") {
        let read_only = "for d in /tmp /var/tmp \"$HOME\"; do \
                         mount --bind $d $d && mount -o remount,ro,bind $d || exit 1; done";
        whole(&apart.then(&job.after(read_only)));
    }
    whole(&Words::from("env -i").then(&job));
}

#[test]
fn one_core_is_enough() {
    let built = days();
    let core = margay_sys_os::cpu::affinity()[0];
    for ranks in [2, 5] {
        whole(&Words::from(format!("taskset -c {core}").as_str()).then(&sweep(&built, ranks)));
    }
}

/// A control group of our own; it goes away with the value.
struct Quota(PathBuf);

impl Quota {
    /// Half a core. None, with a note, where the system lets us make no group; how a quota is read
    /// is tested with the code that reads it.
    fn half_a_core() -> Option<Quota> {
        let name = format!("margay-test-{}", std::process::id());
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = |line: &str| {
            line.splitn(3, ':')
                .nth(2)
                .map(|path| path.trim_matches('/').to_owned())
        };
        for line in membership.lines() {
            let (root, file, text) = if line.starts_with("0::") {
                ("/sys/fs/cgroup", "cpu.max", "50000 100000")
            } else if line
                .split(':')
                .nth(1)
                .is_some_and(|c| c.split(',').any(|c| c == "cpu"))
            {
                ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000")
            } else {
                continue;
            };
            let group = Path::new(root).join(own(line)?).join(&name);
            if fs::create_dir(&group).is_ok() {
                let quota = Quota(group);
                if fs::write(quota.0.join(file), text).is_ok() {
                    return Some(quota);
                }
            }
        }
        println!("note: this system does not let us make a control group with a quota");
        None
    }

    fn of(&self, words: &Words) -> Words {
        words.after(&format!("echo $$ > {}/cgroup.procs", self.0.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel needs a moment until the last process is gone.
        let end = Instant::now() + SOON;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn half_a_core_is_enough() {
    let built = days();
    let Some(quota) = Quota::half_a_core() else {
        whole(&sweep(&built, 2));
        return;
    };
    whole(&quota.of(&sweep(&built, 2)));
    let bound = Words::default()
        .and(stage().join("bin/mpiexec"))
        .and_all("-report-bindings -n 2 true");
    let output = run(&mut quota.of(&bound).command(60));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("more than the 1 usable core"), "{err}");
}

// ---- Ranks that die inside a collective ----

/// Four ranks that reduce for ever, and their process ids.
fn reducing(built: &Built) -> (Job, Vec<u32>) {
    let mut job = Job::start(&Words::mpiexec(60, 4, &built.path(), "loop"), 90);
    let pids = job.ranks_when_ready(4);
    (job, pids)
}

#[test]
fn a_rank_killed_in_a_collective_ends_the_job() {
    let built = days();
    for (signal, code, meaning) in [("KILL", 137, "SIGKILL"), ("SEGV", 139, "SIGSEGV")] {
        let (job, pids) = reducing(&built);
        let mark = job.mark().to_owned();
        let start = Instant::now();
        send(signal, pids[2]);
        let Ended { status, err, .. } = job.ended();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert_eq!(status.code(), Some(code), "{err}");
        let report = err.lines().next().unwrap_or_default();
        let who = format!(
            "mpiexec: rank 2 (pid {} on {}) was killed by {meaning}",
            pids[2],
            host()
        );
        assert!(report.starts_with(&who), "{err}");
        assert!(report.contains("MPI_Allreduce"), "{err}");
        assert!(report.ends_with("the job has been ended"), "{err}");
        assert_eq!(err.matches("was killed by").count(), 1, "one report: {err}");
        nothing_is_left(&mark);
    }
}

#[test]
fn a_launcher_killed_in_a_collective_leaves_nothing() {
    let built = days();
    let (job, pids) = reducing(&built);
    let mark = job.mark().to_owned();
    send("KILL", job.pid());
    nothing_is_left(&mark);
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_terminal_that_hangs_up_leaves_nothing() {
    let built = days();
    let mut command = Command::new(stage().join("bin/mpiexec"));
    margay_sys_os::signal::take_defaults_in(&mut command)
        .args(["-timeout", "60", "-n", "4"])
        .arg(built.path())
        .arg("loop");
    let mark = mark(&mut command);
    let (mut child, mut master) = Pty::open().unwrap().spawn(&mut command).unwrap();
    let mut seen = String::new();
    let mut bytes = [0; 4096];
    while seen.matches("ready").count() < 4 {
        let n = std::io::Read::read(&mut master, &mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    drop(master);
    nothing_is_left(&mark);
    assert_eq!(child.wait().unwrap().code(), Some(129));
}

#[test]
fn leaving_and_aborting_in_a_collective_end_the_job() {
    let built = days();
    for (arguments, code, what) in [
        ("abort 42", 42, "called MPI_Abort with code 42"),
        (
            "leave 7",
            7,
            "exited with code 7 without MPI_Finalize; its last MPI call was MPI_Barrier",
        ),
        (
            "leave 0",
            1,
            "exited with code 0 without MPI_Finalize; its last MPI call was MPI_Barrier",
        ),
    ] {
        let job = Job::start(&Words::mpiexec(60, 3, &built.path(), arguments), 90);
        let mark = job.mark().to_owned();
        let Ended { status, err, .. } = job.ended();
        assert_eq!(status.code(), Some(code), "{err}");
        assert!(err.contains("mpiexec: rank 2 (pid "), "{err}");
        assert!(err.contains(&format!(" on {}) {what}", host())), "{err}");
        assert!(err.contains("the job has been ended"), "{err}");
        assert_eq!(err.matches("mpiexec: rank").count(), 1, "one report: {err}");
        nothing_is_left(&mark);
    }
}

/// Without the launcher a program is a world of one.
#[test]
fn a_program_started_by_itself_runs() {
    let built = days();
    let output = run(command(built.path(), 100).arg("sweep"));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "whole\n",
        "{}",
        text(&output)
    );
}
