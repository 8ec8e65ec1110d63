//! Partitioned communication, with and without threads, also where messages can only travel as
//! bytes.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words};

#[test]
fn partitions_arrive_as_they_get_ready() {
    let built = Built::mpi("mpi/partitioned.c");
    for (ranks, arguments) in [(1, ""), (2, ""), (2, "single"), (3, ""), (5, "single")] {
        let said = Words::mpiexec(60, ranks, &built.path(), arguments).succeed(90);
        assert_eq!(said, "ok\n", "{ranks} ranks {arguments}");
    }
}

#[test]
fn partitions_arrive_without_direct_copies() {
    let built = Built::mpi("mpi/partitioned.c");
    let refuse = Built::plain("days/refuse.c", &[]);
    let job = Words::mpiexec(60, 2, &built.path(), "");
    let said = Words::default()
        .and(refuse.path())
        .and_all("EPERM both")
        .then(&job)
        .succeed(90);
    assert_eq!(said, "ok\n");
}
