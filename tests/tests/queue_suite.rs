//! The tests of the queue with its state in a database, and with its slots on four hosts: the same
//! test programs.
#![forbid(unsafe_code)]

use margay_tests::hosts::Hosts;
use margay_tests::postgres::Postgres;
use margay_tests::queue::{IN_DATABASE, ON_HOSTS};
use margay_tests::suite;

/// Tests of `queue` that name the file, or begin without a queue and name neither store nor hosts.
const OF_NO_STORE: &[&str] = &[
    "a_newer_store_and_a_damaged_one_are_refused",
    "a_store_of_each_older_version_is_brought_to_this_one",
    "from_nothing_to_a_job_and_back",
    "a_full_disk_accepts_nothing_and_loses_nothing",
    "energy_is_accounted_where_the_machine_reports_it",
];

/// The test programs, and those of their tests that are of the file alone.
const IN_STORES: [(&str, &[&str]); 8] = [
    ("queue", OF_NO_STORE),
    ("queue_rules", &[]),
    ("batch_order", &[]),
    ("batch_mail", &[]),
    ("queue_gangs", &[]),
    ("queue_shells", &[]),
    ("batch", &[]),
    ("batch_live", &[]),
];

/// The test programs, and those of their tests that are of one host.
const OF_HOSTS: [(&str, &[&str]); 7] = [
    ("queue", OF_NO_STORE),
    ("queue_rules", &[]),
    ("batch_order", &[]),
    ("batch_mail", &[]),
    ("queue_shells", &[]),
    // It asks for two slots of one host, of which each has one.
    (
        "batch",
        &[
            "pbs_s_commands_submit_show_and_end_jobs",
            // Its tables are those of one host.
            "tables_show_each_queue_with_its_rules",
        ],
    ),
    // Each job has a supervisor of its own on another host.
    (
        "batch_live",
        &["a_supervisor_has_one_job_after_the_other_and_none_is_left_behind"],
    ),
];

#[test]
fn the_tests_of_the_queue_pass_in_a_database() {
    if Postgres::shared().is_none() {
        return;
    }
    for (name, without) in IN_STORES {
        let mut tests = suite::of(name, without);
        suite::passes(name, tests.env(IN_DATABASE, "1"), "in a database");
    }
}

#[test]
fn the_tests_of_the_queue_pass_on_four_hosts() {
    if Hosts::make(1).is_none() {
        return;
    }
    for (name, without) in OF_HOSTS {
        let mut tests = suite::of(name, without);
        suite::passes(name, tests.env(ON_HOSTS, "4"), "on four hosts");
    }
}
