//! Memory checkers find nothing of ours: no error, nothing lost, nothing left at the end.
#![forbid(unsafe_code)]

use margay_tests::jobs::{Built, Words};

const VALGRIND: &str = "valgrind --quiet --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all \
                        --error-exitcode=99";

#[test]
fn valgrind_has_nothing_to_say() {
    let built = Built::mpi("tidy.c");
    let checked = Words::from(VALGRIND).and(built.path());
    checked.succeed(180);
    for ranks in [2, 3] {
        let launcher = Words::mpiexec(150, ranks, "valgrind".as_ref(), "");
        let words = VALGRIND.strip_prefix("valgrind").expect("the program");
        launcher.and_all(words).and(built.path()).succeed(180);
    }
}
