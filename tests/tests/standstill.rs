//! What the launcher says of its own accord of ranks that can never go on, and that it says nothing
//! of those that can.

use std::time::{Duration, Instant};

use margay_tests::jobs::{Built, Ended, Job, Words, send};
use margay_tests::{program, run, stage};

/// A job of `stands.c`, with options of `mpiexec`.
fn start(built: &Built, options: &str, ranks: u32, what: &str) -> Job {
    let words = Words::default()
        .and(stage().join("bin/mpiexec"))
        .and_all(&format!("-timeout 100 {options} -n {ranks}"))
        .and(built.path())
        .and_all(what);
    let mut job = Job::start(&words, 110);
    job.until("ready", ranks as usize);
    job
}

fn stands() -> Built {
    Built::mpi("why/stands.c")
}

/// `stands.c:12`: the line of the receive.
fn line_of_receive() -> String {
    line_of("stands.c", "receive")
}

/// The line of a program that has this mark.
fn line_of(name: &str, mark: &str) -> String {
    let text = std::fs::read_to_string(program(&format!("why/{name}"))).unwrap();
    let mark = format!("/* LINE {mark} */");
    let at = text.lines().position(|line| line.contains(&mark));
    format!("{name}:{}", at.unwrap() + 1)
}

/// Where nobody may trace, no line is known.
fn may_trace() -> bool {
    let reads = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let may = reads(sleeper.id());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    may
}

/// What meets a rank in `MPI_Finalize` ends with an error that says so, also a barrier, which
/// `MPI_Finalize` is itself.
#[test]
fn an_operation_that_meets_the_end_of_a_rank_says_so() {
    let built = Built::mpi("why/last.c");
    for what in ["barrier", "sum"] {
        for ranks in [2, 3, 7] {
            let end = start(&built, "", ranks, what).ended_with_nothing_left();
            assert_eq!(end.status.code(), Some(16), "{}", end.err);
            let said = "rank 0 is in MPI_Finalize, and takes part in nothing any more";
            assert!(end.err.contains(said), "{}", end.err);
            let last = "last operation of rank 0: MPI_Finalize";
            assert!(end.err.contains(last), "{}", end.err);
        }
    }
}

/// Who has only to send in a collective operation is done with it although nobody else is in it, so
/// that all seem to wait in `MPI_Finalize`, or have been through that.
#[test]
fn a_rank_that_is_an_operation_ahead_is_named() {
    let built = Built::mpi("why/ahead.c");
    let end = line_of("ahead.c", "finalize");
    for (what, call) in [("gather", "MPI_Gather"), ("reduce", "MPI_Reduce")] {
        let line = line_of("ahead.c", what);
        for ranks in [2, 3, 6] {
            let Ended { status, err, .. } = start(&built, "-deadlock end", ranks, what).ended();
            assert_eq!(status.code(), Some(1), "{what} {ranks}: {err}");
            let last = ranks - 1;
            let others = match last {
                1 => "rank 0".to_owned(),
                2 => "ranks 0, 1".to_owned(),
                _ => format!("ranks 0-{}", last - 1),
            };
            let of = format!("of {ranks} ranks");
            for said in [
                "waiting in MPI_Finalize for the other ranks".to_owned(),
                format!(
                    "last operations of rank {last}: {call} {of}, root 0, 4 bytes at {line}, then MPI_Finalize {of}, 0 bytes at {end}\n"
                ),
                format!("last operation of {others}: MPI_Finalize {of}, 0 bytes at {end}\n"),
            ] {
                assert!(err.contains(&said), "{what} {ranks} lacks {said}: {err}");
            }
            assert!(!err.contains("none of which can continue"), "{err}");
        }
    }
}

#[test]
fn a_deadlock_is_reported_once_with_lines_and_the_job_goes_on() {
    let built = stands();
    let began = Instant::now();
    let mut job = start(&built, "", 3, "circle");
    job.until_error("deadlock: 0 → 1 → 2 → 0\n");
    assert!(began.elapsed() >= Duration::from_secs(2));
    // A second one would come a few looks later.
    std::thread::sleep(Duration::from_secs(4));
    send("INT", job.pid());
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(130), "{err}");
    assert_eq!(err.matches("deadlock: ").count(), 1, "{err}");
    assert!(
        err.contains("hint: the job goes on waiting; -deadlock end"),
        "{err}"
    );
    let waits = "rank 1: waiting in MPI_Recv for rank 2, tag 5";
    assert!(err.contains(waits), "{err}");
    if may_trace() {
        let place = format!("{waits} at {} in receive()\n", line_of_receive());
        assert!(err.contains(&place), "{err}");
    }
}

#[test]
fn a_job_that_can_never_go_on_is_ended_where_that_is_wanted() {
    let built = stands();
    for (what, expected) in [("circle", "0 → 1 → 0"), ("circle-of-threads", "0 → 1 → 0")] {
        if what != "circle" && !may_trace() {
            continue;
        }
        let Ended { status, err, .. } = start(&built, "-deadlock end", 2, what).ended();
        assert_eq!(status.code(), Some(1), "{err}");
        assert!(err.contains(&format!("deadlock: {expected}\n")), "{err}");
        assert!(
            err.ends_with("the job has been ended (-deadlock end)\n"),
            "{err}"
        );
    }
    let mut command = Words::mpiexec(60, 2, &built.path(), "circle").command(60);
    let ended = run(command.env("MARGAY_DEADLOCK", "end"));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let ended = run(command.env("MARGAY_DEADLOCK", "stay"));
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(err.contains("choose report, end or ignore"), "{err}");
}

#[test]
fn ranks_that_stand_still_are_reported_while_others_go_on() {
    let built = stands();
    let mut job = start(&built, "", 4, "some");
    job.until_error("deadlock: 0 → 1 → 0\n");
    send("INT", job.pid());
    let err = job.ended().err;
    assert!(!err.contains("ranks 2, 3"), "{err}");
}

#[test]
fn nothing_is_said_where_that_is_wanted() {
    let built = stands();
    let mut job = start(&built, "-deadlock ignore", 2, "circle");
    std::thread::sleep(Duration::from_secs(5));
    send("KILL", job.ranks_when_ready(2)[0]);
    let err = job.ended().err;
    assert!(!err.contains("deadlock"), "{err}");
}

/// All would be reported if one look were enough.
#[test]
fn programs_that_are_only_slow_are_left_alone() {
    let built = stands();
    let slow = [
        "sleeping-thread",
        "reading-thread",
        "testing",
        "asleep",
        "generalized",
        "passive",
        "large",
    ];
    let jobs = slow.map(|what| (what, start(&built, "-deadlock end", 2, what)));
    for (what, job) in jobs {
        let Ended { status, out, err } = job.ended();
        assert!(status.success(), "{what}: {err}");
        assert_eq!((out.matches("done").count(), &*err), (2, ""), "{what}");
    }
}

#[test]
fn a_rank_that_was_stopped_while_it_waited_is_left_alone() {
    let built = stands();
    let mut job = start(&built, "-deadlock end", 2, "stopped");
    let ranks = job.ranks_when_ready(2);
    let [sender, waiter] = ranks[..] else {
        panic!("{ranks:?}")
    };
    job.shown(|job| job["rank"][1]["state"] == "waiting");
    send("STOP", waiter);
    send("USR1", sender);
    std::thread::sleep(Duration::from_secs(7));
    send("CONT", waiter);
    let Ended { status, err, .. } = job.ended();
    assert!(status.success() && err.is_empty(), "{err}");
}
