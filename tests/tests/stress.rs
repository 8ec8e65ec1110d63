//! Threads of a rank that call the library at the same time (MPI_THREAD_MULTIPLE).
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words};

#[test]
fn threads_may_do_anything_at_any_time() {
    let built = Built::mpi("threads.c");
    for (ranks, arguments) in [
        (1, "4 500"),
        (2, "4 500"),
        (3, "3 300"),
        (4, "4 300"),
        (2, "8 150"),
    ] {
        Words::mpiexec(90, ranks, &built.path(), arguments).succeed(120);
    }
}

#[test]
fn a_wildcard_receive_holds_one_message_and_nothing_else() {
    let built = Built::mpi("wildcards.c");
    for ranks in [2, 4, 7] {
        Words::mpiexec(90, ranks, &built.path(), "20000").succeed(120);
    }
}
