//! The tools interface, and the environment variables that set its control variables.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words, text};
use margay_tests::run;

#[test]
fn variables_count_and_events_are_reported() {
    let built = Built::mpi("mpi/tools.c");
    for ranks in [1, 2, 4] {
        let said = Words::mpiexec(60, ranks, &built.path(), "").succeed(90);
        assert_eq!(said, "ok\n", "{ranks} ranks");
    }
}

#[test]
fn the_environment_sets_control_variables() {
    let built = Built::mpi("mpi/tools.c");
    let mut command = Words::mpiexec(60, 2, &built.path(), "12288").command(90);
    let output = run(command
        .env("MARGAY_EAGER_LIMIT", "12k")
        .env("MARGAY_CREDITS", "few"));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let complaint = "MPI_Init: MARGAY_CREDITS is 'few', which is not a number from 0 to 4294967295";
    assert_eq!(said.matches(complaint).count(), 1, "{said}");
}
