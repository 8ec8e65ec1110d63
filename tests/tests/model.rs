//! Collectives, datatypes and point-to-point messages against a plain model, with random shapes and
//! seeds, through the real library; every rank computes from the seed alone what must come out.
//! MARGAY_TEST_SEEDS widens the search.
#![forbid(unsafe_code)]

use std::path::Path;

use margay_tests::jobs::{Built, Words};

/// How many seeds for each number of ranks.
fn seeds() -> u64 {
    let wished = std::env::var("MARGAY_TEST_SEEDS").ok();
    wished.and_then(|n| n.parse().ok()).unwrap_or(2)
}

fn play(program: &Path, ranks: u32, seed: u64, rounds: u32) {
    let seed = seed * 100 + u64::from(ranks);
    Words::mpiexec(60, ranks, program, &format!("{seed} {rounds}")).succeed(90);
}

#[test]
fn collectives_give_what_the_model_says() {
    let built = Built::mpi("model/collectives.c");
    for seed in 0..seeds() {
        for ranks in 1..=9 {
            play(&built.path(), ranks, seed, 120);
        }
    }
}

#[test]
fn messages_give_what_the_model_says() {
    let built = Built::mpi("model/messages.c");
    for seed in 0..seeds() {
        for ranks in 1..=9 {
            play(&built.path(), ranks, seed, 200);
        }
    }
}

#[test]
fn collectives_between_two_groups_give_what_the_model_says() {
    let built = Built::mpi("model/inter.c");
    for seed in 0..seeds() {
        for ranks in [2, 3, 4, 5, 8] {
            play(&built.path(), ranks, seed, 200);
        }
    }
}

#[test]
fn files_hold_what_the_model_says() {
    let built = Built::mpi("model/files.c");
    let folder = margay_tests::scratch();
    let file = folder.path().join("file");
    let job = |seed: u64, ranks: u32| {
        let seed = seed * 100 + u64::from(ranks);
        let words = format!("{seed} 80 {}", file.display());
        Words::mpiexec(60, ranks, &built.path(), &words)
    };
    for seed in 0..seeds() {
        for ranks in 1..=5 {
            job(seed, ranks).succeed(90);
            assert!(!file.exists(), "deleted on close");
        }
    }
    // Over pipes alone, and while threads of the library move what is under way.
    for variable in ["MARGAY_BYTES_ONLY=1", "MARGAY_PROGRESS_THREAD=1"] {
        let environment = Words::from("env").and_all(variable);
        environment.then(&job(77, 4)).succeed(90);
    }
}

/// Where the system refuses cross-memory attach, all goes through pipes; on one core, everybody
/// waits by yielding.
#[test]
fn the_model_holds_in_narrow_surroundings() {
    let refuse = Built::plain("days/refuse.c", &[]);
    let core = margay_sys_os::cpu::affinity()[0];
    for source in ["model/collectives.c", "model/messages.c"] {
        let built = Built::mpi(source);
        for ranks in [2, 5] {
            let job = Words::mpiexec(60, ranks, &built.path(), &format!("77{ranks} 120"));
            Words::default()
                .and(refuse.path())
                .and_all("EPERM both")
                .then(&job)
                .succeed(90);
            Words::from(format!("taskset -c {core}").as_str())
                .then(&job)
                .succeed(90);
        }
    }
}
