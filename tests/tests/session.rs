//! Sessions, through the real launcher and without one.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words};
use margay_tests::{command, succeed};

#[test]
fn sessions_work_beside_before_after_and_without_a_world() {
    let built = Built::mpi("mpi/session.c");
    for arguments in ["with", "without"] {
        for ranks in [1, 2, 5] {
            let job = Words::mpiexec(60, ranks, &built.path(), arguments);
            assert_eq!(job.succeed(80), "ok\n", "{arguments}, {ranks} ranks");
        }
        assert_eq!(succeed(command(built.path(), 60).arg(arguments)), "ok\n");
    }
}

#[test]
fn process_sets_name_the_programs_of_a_job() {
    let built = Built::mpi("mpi/psets.c");
    let job = Words::mpiexec(60, 1, &built.path(), "1 of 3")
        .and(":")
        .and_all("-n 2")
        .and(built.path())
        .and_all("2 of 3");
    assert_eq!(job.succeed(80), "ok\n");
}
