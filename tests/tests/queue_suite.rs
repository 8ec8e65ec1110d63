//! The tests of the queue with its state in a database: the same test programs.
#![forbid(unsafe_code)]

use margay_tests::postgres::Postgres;
use margay_tests::queue::IN_DATABASE;
use margay_tests::suite;

/// The test programs, and those of their tests that are of the file alone.
const TESTS: [(&str, &[&str]); 5] = [
    (
        "queue",
        &[
            "a_newer_store_and_a_damaged_one_are_refused",
            "a_store_of_each_older_version_is_brought_to_this_one",
            // They begin without a queue, and name no store.
            "from_nothing_to_a_job_and_back",
            "a_full_disk_accepts_nothing_and_loses_nothing",
            "energy_is_accounted_where_the_machine_reports_it",
        ],
    ),
    ("queue_gangs", &[]),
    ("queue_shells", &[]),
    ("batch", &[]),
    ("batch_live", &[]),
];

#[test]
fn the_tests_of_the_queue_pass_in_a_database() {
    if Postgres::shared().is_none() {
        return;
    }
    for (name, without) in TESTS {
        let mut tests = suite::of(name, without);
        suite::passes(name, tests.env(IN_DATABASE, "1"), "in a database");
    }
}
