//! Random nested OpenMP programs on Margay's library, against what executing them in order would
//! give. All are interpreted by one C program (`tests/programs/openmp/random.c`), so that a seed is
//! a program; what differs or hangs is reported with the seed.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use margay_tests::{command, program, run, scratch, stage, succeed};

fn compiled(folder: &Path) -> PathBuf {
    let executable = folder.join("random");
    let mut gcc = command("gcc", 120);
    gcc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fopenmp"]);
    gcc.arg(program("openmp").join("random.c"));
    succeed(gcc.arg("-o").arg(&executable));
    executable
}

/// The command with the library of the stage tree.
fn with_library(mut command: Command) -> Command {
    let folder = stage().join("lib/gomp");
    assert!(
        folder.join("libgomp.so.1").exists(),
        "{}: no libgomp.so.1; run `make stage` first",
        folder.display()
    );
    command.env("LD_LIBRARY_PATH", folder);
    for name in [
        "OMP_THREAD_LIMIT",
        "OMP_DYNAMIC",
        "OMP_PROC_BIND",
        "OMP_PLACES",
    ] {
        command.env_remove(name);
    }
    command
}

fn text(output: &Output) -> String {
    let all = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Runs programs from `seed` on for `seconds`, none of which may differ, hang or use another
/// library.
fn agree(mut command: Command, seed: u32, seconds: u32, variables: &[(&str, &str)]) {
    command.args([
        "-w",
        "60",
        "-n",
        "0",
        "-s",
        &seed.to_string(),
        "-t",
        &seconds.to_string(),
    ]);
    command.envs(variables.iter().copied());
    let output = run(&mut command);
    let report = text(&output);
    assert!(
        output.status.success(),
        "{variables:?}, {}\n{report}",
        output.status
    );
    assert!(
        report.contains(&format!("runtime {}", stage().join("lib/gomp").display())),
        "{report}"
    );
    assert!(!report.contains("\n0 programs"), "{report}");
}

/// The first seed, the environment, and options.
type Programs<'a> = (u32, &'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn random_programs_agree_with_the_model() {
    let folder = scratch();
    let executable = compiled(folder.path());
    let runs: [Programs; 4] = [
        (
            1,
            &[("OMP_NUM_THREADS", "4"), ("OMP_MAX_ACTIVE_LEVELS", "4")],
            &[],
        ),
        (
            100_001,
            &[
                ("OMP_NUM_THREADS", "8"),
                ("OMP_MAX_ACTIVE_LEVELS", "4"),
                ("OMP_CANCELLATION", "true"),
            ],
            &["-x"],
        ),
        (
            200_001,
            &[
                ("OMP_NUM_THREADS", "2"),
                ("OMP_MAX_ACTIVE_LEVELS", "1"),
                ("OMP_WAIT_POLICY", "passive"),
            ],
            &["-u", "2"],
        ),
        (
            300_001,
            &[
                ("OMP_NUM_THREADS", "16"),
                ("OMP_MAX_ACTIVE_LEVELS", "2"),
                ("OMP_WAIT_POLICY", "active"),
            ],
            &["-u", "3", "-x"],
        ),
    ];
    for (seed, variables, options) in runs {
        let mut random = with_library(command(&executable, 120));
        random.args(options);
        agree(random, seed, 4, variables);
    }
}

#[test]
fn random_programs_of_16_threads_on_one_core() {
    let folder = scratch();
    let executable = compiled(folder.path());
    let cpu = margay_sys_os::cpu::affinity()[0].to_string();
    let mut random = with_library(command("taskset", 120));
    random.args(["-c", &cpu]).arg(executable);
    agree(
        random,
        400_001,
        5,
        &[("OMP_NUM_THREADS", "16"), ("OMP_MAX_ACTIVE_LEVELS", "4")],
    );
}

#[test]
fn random_programs_that_also_wait_in_the_kernel() {
    let folder = scratch();
    let executable = compiled(folder.path());
    for (seed, threads, levels) in [(500_001, "4", "4"), (600_001, "16", "2")] {
        let mut random = with_library(command(&executable, 120));
        random.arg("-k");
        let variables = [
            ("OMP_NUM_THREADS", threads),
            ("OMP_MAX_ACTIVE_LEVELS", levels),
        ];
        agree(random, seed, 3, &variables);
    }
}

#[test]
fn faults_are_found_and_reported_with_the_seed() {
    let folder = scratch();
    let executable = compiled(folder.path());
    let faults = [
        "count",
        "barrier",
        "depend",
        "ordered",
        "threadprivate",
        "taskwait",
        "hang",
    ];
    for fault in faults {
        let mut random = with_library(command(&executable, 60));
        random.args(["-x", "-n", "60", "-w", "2", "-b", fault]);
        random.envs([("OMP_NUM_THREADS", "4"), ("OMP_MAX_ACTIVE_LEVELS", "4")]);
        let output = run(&mut random);
        let report = text(&output);
        let expected = if fault == "hang" { 3 } else { 1 };
        // A fault in the middle of a program may also make it hang, which is reported all the same.
        assert!(
            matches!(output.status.code(), Some(1 | 3)),
            "{fault}: {report}"
        );
        assert!(
            fault != "hang" || output.status.code() == Some(expected),
            "{report}"
        );
        assert!(report.contains("seed "), "{fault}: {report}");
    }
}
