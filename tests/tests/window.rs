//! One-sided communication, three times: where ranks share memory and attach to each other, where
//! the kernel refuses attaching, and over pipes that only carry bytes. Fewer ranks than cores, and
//! more.
#![forbid(unsafe_code)]

use std::path::Path;

use margay_tests::jobs::{Built, Words};

/// The commands that run a program on `ranks` in the three ways.
fn ways(program: &Path, refuse: &Path, ranks: u32, arguments: &str) -> [Words; 3] {
    let shared = Words::mpiexec(100, ranks, program, arguments);
    let refused = Words::default()
        .and(refuse)
        .and_all("EPERM both")
        .then(&shared);
    let bytes = shared.after("export MARGAY_BYTES_ONLY=1");
    [shared, refused, bytes]
}

fn is_ok(source: &str, ranks: &[u32], arguments: &str) {
    let (built, refuse) = (Built::mpi(source), Built::plain("days/refuse.c", &[]));
    for &n in ranks {
        for words in ways(&built.path(), &refuse.path(), n, arguments) {
            assert_eq!(words.succeed(120), "ok\n", "{words:?}");
        }
    }
}

#[test]
fn windows_operations_and_synchronization() {
    is_ok("mpi/window.c", &[1, 2, 3, 5], "");
}

#[test]
fn errors_have_their_class_and_go_to_the_window() {
    is_ok("mpi/window_errors.c", &[1, 2, 3], "");
}

/// Only where ranks attach to each other does nothing need a target that computes.
#[test]
fn a_target_that_computes_is_not_needed() {
    let built = Built::mpi("mpi/window_away.c");
    for ranks in [2, 3, 5] {
        let words = Words::mpiexec(100, ranks, &built.path(), "");
        assert_eq!(words.succeed(120), "ok\n", "{words:?}");
    }
}

#[test]
fn random_programs_leave_what_the_model_says() {
    let wished = std::env::var("MARGAY_TEST_SEEDS").ok();
    let seeds: u64 = wished.and_then(|n| n.parse().ok()).unwrap_or(2) * 10;
    is_ok(
        "mpi/window_model.c",
        &[1, 2, 3, 4, 5],
        &format!("1 {seeds}"),
    );
}
