//! Ranks that die while the others recover, through the real launcher.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words, text};
use margay_tests::run;

fn tolerant(ranks: u32, built: &Built, arguments: &str) -> Words {
    Words::mpiexec(30, ranks, "-continue-on-failure".as_ref(), "-quiet")
        .and(built.path())
        .and_all(arguments)
}

#[test]
fn the_living_get_errors_for_what_cannot_be_done() {
    let built = Built::mpi("mpi/recover.c");
    let output = run(&mut tolerant(4, &built, "report").command(60));
    assert!(output.stdout == b"ok\n", "{}", text(&output));
    assert_eq!(output.status.code(), Some(137), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("rank 1 (pid")
            && said.contains("was killed by SIGKILL")
            && said.contains("the other ranks continue"),
        "{said}"
    );
}

#[test]
fn revoking_lets_go_who_waits() {
    let built = Built::mpi("mpi/recover.c");
    let job = Words::mpiexec(30, 4, &built.path(), "revoked");
    assert_eq!(job.succeed(60), "ok\n");
}

#[test]
fn ranks_die_at_any_moment_and_the_others_finish() {
    let built = Built::mpi("mpi/recover.c");
    for seed in 1..=6 {
        let ranks = 4 + seed % 5;
        let output = run(&mut tolerant(ranks, &built, &format!("random {seed} 2")).command(60));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.ends_with(&format!("of {ranks}\n")),
            "{seed}: {}",
            text(&output)
        );
    }
}

/// A seed chooses what is done, which ranks die, when, and how many at once; all live ranks must
/// have seen the same agreements. MARGAY_TEST_SEEDS widens the search: this many times twelve jobs.
#[test]
fn survivors_agree_wherever_ranks_die_over_both_transports() {
    let built = Built::mpi("mpi/deaths.c");
    let wished = std::env::var("MARGAY_TEST_SEEDS").ok();
    let seeds: u32 = 12 * wished.and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 1..=seeds {
        let (ranks, deaths) = (3 + seed % 6, 1 + seed % 3);
        let spawn = if seed % 4 == 0 { " spawn" } else { "" };
        let job = tolerant(ranks, &built, &format!("{seed} {deaths} 30{spawn}"));
        for bytes_only in ["0", "1"] {
            let output = run(job.command(60).env("MARGAY_BYTES_ONLY", bytes_only));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                said.ends_with(&format!("of {ranks}\n")),
                "seed {seed}, MARGAY_BYTES_ONLY={bytes_only}: {}",
                text(&output)
            );
        }
    }
}

/// The moment of death moves through the operations, most of which hold the key of an RMA queue or
/// the lock of elements. How often an error reported it is no matter of the test, but that
/// everybody ends, nobody waits and the live ranks work on.
#[test]
fn who_dies_in_a_window_leaves_nobody_waiting() {
    let built = Built::mpi("mpi/window_deaths.c");
    for (who, ranks) in [("target", 2), ("target", 4), ("origin", 3), ("holder", 3)] {
        for step in 0..6 {
            let delay_us = 3000 + 731 * step;
            let output =
                run(&mut tolerant(ranks, &built, &format!("{who} {delay_us}")).command(60));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                said.starts_with("ok ") && said.ends_with(&format!(" of {}\n", ranks - 1)),
                "{who} of {ranks} dies after {delay_us} us: {}",
                text(&output)
            );
        }
    }
}

#[test]
fn who_waits_for_the_dead_at_a_window_gets_an_error_over_both_transports() {
    let built = Built::mpi("mpi/window_abandoned.c");
    let ways = [
        "exclusive",
        "shared",
        "all",
        "asks",
        "posts",
        "completes",
        "tests",
        "target",
    ];
    for way in ways {
        for (ranks, bytes_only) in [(3, "0"), (4, "0"), (3, "1"), (4, "1")] {
            let job = tolerant(ranks, &built, way);
            let output = run(job.command(60).env("MARGAY_BYTES_ONLY", bytes_only));
            assert!(
                output.stdout == b"ok\n",
                "{way} on {ranks} ranks, MARGAY_BYTES_ONLY={bytes_only}: {}",
                text(&output)
            );
        }
    }
}
