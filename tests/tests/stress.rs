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

/// Every seed is a program. MARGAY_TEST_SEEDS widens the search: by this many times 20 programs for
/// each shape of job.
#[test]
fn random_programs_give_what_the_model_says() {
    let built = Built::mpi("model/programs.c");
    let wished = std::env::var("MARGAY_TEST_SEEDS").ok();
    let seeds: u32 = wished.and_then(|n| n.parse().ok()).unwrap_or(1);
    let refuse = Built::plain("days/refuse.c", &[]);
    for (ranks, threads) in [(1, 3), (2, 1), (2, 3), (3, 2), (4, 1), (5, 2), (8, 1)] {
        for seed in 0..seeds {
            let first = 1 + seed * 20 + ranks * 1_000_000;
            let arguments = format!("{first} 20 25 {threads}");
            let job = Words::mpiexec(110, ranks, &built.path(), &arguments);
            job.succeed(120);
            // Where messages can only travel as bytes.
            if (seed + ranks) % 4 == 0 {
                let narrow = Words::default().and(refuse.path()).and_all("EPERM both");
                narrow.then(&job).succeed(120);
            }
        }
    }
}

#[test]
fn a_wildcard_receive_holds_one_message_and_nothing_else() {
    let built = Built::mpi("wildcards.c");
    for ranks in [2, 4, 7] {
        Words::mpiexec(90, ranks, &built.path(), "20000").succeed(120);
    }
}
