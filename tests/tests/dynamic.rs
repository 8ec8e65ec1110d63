//! Spawned processes and connected jobs, through the real launcher and without one.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words, mark, nothing_is_left};
use margay_tests::{command, succeed};

fn built() -> Built {
    Built::mpi("mpi/spawn.c")
}

#[test]
fn processes_are_spawned_by_jobs_and_by_a_program_alone() {
    let built = built();
    for ranks in [1, 3] {
        let job = Words::mpiexec(60, ranks, &built.path(), "spawn");
        assert_eq!(job.succeed(80), "ok\n", "{ranks} ranks");
    }
    let mut alone = command(built.path(), 60);
    let mark = mark(&mut alone);
    assert_eq!(succeed(alone.arg("spawn")), "ok\n");
    nothing_is_left(&mark);
}

#[test]
fn they_work_where_reading_other_processes_is_forbidden_and_where_only_bytes_go() {
    let (built, refuse) = (built(), Built::plain("days/refuse.c", &[]));
    let job = Words::mpiexec(60, 2, &built.path(), "spawn");
    let refused = Words::default()
        .and(refuse.path())
        .and_all("EPERM both")
        .then(&job);
    assert_eq!(refused.succeed(80), "ok\n");
    let mut bytes = job.command(80);
    assert_eq!(succeed(bytes.env("MARGAY_BYTES_ONLY", "1")), "ok\n");
}

#[test]
fn halves_of_a_job_connect() {
    let built = built();
    let service = format!("halves {}", std::process::id());
    for ranks in [2, 5] {
        let job = Words::mpiexec(60, ranks, &built.path(), "halves").and(&service);
        assert_eq!(job.succeed(80), "ok\n", "{ranks} ranks");
    }
}

#[test]
fn connecting_and_accepting_end_after_a_time() {
    let built = built();
    let job = Words::mpiexec(60, 2, &built.path(), "deadline");
    let mut command = job.command(80);
    let said = succeed(command.env("MARGAY_CONNECT_TIMEOUT", "1"));
    assert_eq!(said, "ok\n");
}

#[test]
fn jobs_connect_by_a_published_name_and_over_a_socket() {
    let built = built();
    for (servers, users) in [
        (Some(3), Some(2)),
        (None, Some(2)),
        (Some(2), None),
        (None, None),
    ] {
        let service = format!("service {} {servers:?} {users:?}", std::process::id());
        let words = |ranks: Option<u32>, what: &str| match ranks {
            Some(ranks) => Words::mpiexec(60, ranks, &built.path(), what).and(&service),
            None => Words::default().and(built.path()).and(what).and(&service),
        };
        let (serve, uses) = (words(servers, "serve"), words(users, "use"));
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve.succeed(80));
            assert_eq!(uses.succeed(80), "ok\n", "{service}");
            assert_eq!(server.join().expect("no panic"), "ok\n", "{service}");
        });
    }
}

/// The launcher stays until the children have ended, and passes on what they write.
#[test]
fn disconnected_children_outlive_their_parents() {
    let built = built();
    let job = Words::mpiexec(60, 2, &built.path(), "orphan");
    let mut said: Vec<String> = job.succeed(80).lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["ok", "stayed"]);
}
