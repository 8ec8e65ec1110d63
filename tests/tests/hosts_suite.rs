//! The tests of one host, on several: the same test programs, with an `mpiexec` that divides its
//! ranks among hosts.
#![forbid(unsafe_code)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use margay_tests::hosts::Hosts;
use margay_tests::{scratch, stage, suite};

/// The test programs, and those of their tests that are of one host alone.
const TESTS: [(&str, &[&str]); 13] = [
    ("cancel", &[]),
    ("forks", &[]),
    ("fortran", &[]),
    ("model", &[]),
    (
        "mpi",
        &[
            // It is run with its word for several hosts by `hosts`.
            "communicators",
            // Calls that do not match have an error in shared memory; elsewhere some are deadlocks.
            "errors_have_their_class_and_say_what_and_where",
            // 2 GiB, which takes minutes between hosts.
            "counts_beyond_31_bits",
        ],
    ),
    ("mpl", &[]),
    (
        "nx",
        &[
            // A process that ends by _exit() may take with it what the network has not taken yet.
            "every_exit_with_code_0_is_a_normal_end",
            // Reports name the host of a process.
            "a_program_may_end_without_saying_so",
            "other_ends_are_reported",
            "plain_calls_name_themselves",
            // Partitions are of one host.
            "programs_make_change_and_remove_partitions",
        ],
    ),
    ("partitioned", &[]),
    ("progress", &[]),
    // Windows of a host whose memory may not be read have an error; those of several are messages.
    (
        "recover",
        &["who_waits_for_the_dead_at_a_window_gets_an_error_over_both_transports"],
    ),
    ("removed", &[]),
    // They name the programs of a launcher's host.
    ("session", &["process_sets_name_the_programs_of_a_job"]),
    // A target on another host takes part.
    ("window", &["a_target_that_computes_is_not_needed"]),
];

/// A tree that is the stage tree but for its `mpiexec`.
fn tree(hosts: &Hosts, folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("bin")).expect("the folder takes folders");
    let link_all = |from: &Path, to: &Path, without: &[&str]| {
        for entry in std::fs::read_dir(from).expect("the stage tree") {
            let name = entry.expect("an entry").file_name();
            if !without.iter().any(|&other| name == other) {
                symlink(from.join(&name), to.join(&name)).expect("the folder takes links");
            }
        }
    };
    link_all(&stage(), &tree, &["bin"]);
    link_all(&stage().join("bin"), &tree.join("bin"), &["mpiexec"]);
    // As many ranks on each host, rounded up.
    let script = format!(
        "#!/bin/sh\nn=1 last=\nfor word; do\n    case $last in -n | -np) n=$word ;; esac\n    last=$word\ndone\n\
         exec '{mpiexec}' -launcher-exec '{shell}' -host {names} -ppn $(((n + {number} - 1) / {number})) \"$@\"\n",
        mpiexec = stage().join("bin/mpiexec").display(),
        shell = hosts.shell().display(),
        names = hosts.names(),
        number = hosts.number,
    );
    let mpiexec = tree.join("bin/mpiexec");
    std::fs::write(&mpiexec, script).expect("the folder takes files");
    let mode = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&mpiexec, mode).expect("the file is ours");
    tree
}

/// Runs the test programs on a number of hosts, but for some.
fn run_on(number: u32, without: &[&str]) {
    let Some(hosts) = Hosts::make(number) else {
        return;
    };
    let folder = scratch();
    let tree = tree(&hosts, folder.path());
    for (name, skipped) in TESTS {
        if without.contains(&name) {
            continue;
        }
        let mut tests = suite::of(name, skipped);
        tests.env("MARGAY_STAGE", &tree);
        suite::passes(name, &mut tests, &format!("on {number} hosts"));
    }
}

// `model`, `fortran` and `cancel` run on one number of hosts: on one host they take 58, 29 and 26 s
// of processor time, and of the others only `mpi` (42) takes more than 12.

#[test]
fn the_tests_of_one_host_pass_on_two() {
    run_on(2, &["model"]);
}

#[test]
fn the_tests_of_one_host_pass_on_three() {
    run_on(3, &["cancel", "fortran"]);
}
