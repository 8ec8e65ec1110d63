//! Cancelled sends and receives, over shared memory, where copying between processes is forbidden,
//! and where only bytes go.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words};
use margay_tests::succeed;

/// Runs the program over both transports.
fn passes(built: &Built, ranks: u32, arguments: &str) {
    for bytes_only in ["0", "1"] {
        let job = Words::mpiexec(300, ranks, &built.path(), arguments);
        let mut command = job.command(120);
        let said = succeed(command.env("MARGAY_BYTES_ONLY", bytes_only));
        assert_eq!(
            said, "ok\n",
            "{ranks} ranks, '{arguments}', bytes only: {bytes_only}"
        );
    }
}

#[test]
fn what_is_not_matched_is_cancelled_and_nothing_else() {
    let built = Built::mpi("mpi/cancel.c");
    for ranks in [1, 2, 5] {
        passes(&built, ranks, "");
    }
    let refuse = Built::plain("days/refuse.c", &[]);
    let job = Words::mpiexec(300, 2, &built.path(), "");
    let refused = Words::default()
        .and(refuse.path())
        .and_all("EPERM both")
        .then(&job);
    assert_eq!(refused.succeed(120), "ok\n");
}

#[test]
fn messages_to_spawned_processes_are_cancelled() {
    passes(&Built::mpi("mpi/cancel.c"), 2, "spawn");
}

#[test]
fn a_message_is_received_or_cancelled_never_both() {
    let built = Built::mpi("mpi/cancel.c");
    for seed in 1..=6 {
        for (ranks, threads) in [(1, 1), (2, 1), (4, 1), (2, 3)] {
            passes(&built, ranks, &format!("storm {seed} {threads}"));
        }
    }
}
