//! The launcher's options: names, several programs, environment, directory, binding.

mod common;

use std::os::unix::fs::symlink;
use std::process::Command;

use common::*;

/// Returns the command under another of its names.
fn named(directory: &tempfile::TempDir, name: &str) -> Command {
    let path = directory.path().join(name);
    symlink(margay(), &path).unwrap();
    fresh(path)
}

#[test]
fn one_program_with_many_names() {
    let directory = tempfile::tempdir().unwrap();
    for (name, option) in [("mpiexec", "-n"), ("mpirun", "-np"), ("yod", "-sz")] {
        let done = run(named(&directory, name).args([option, "3", "echo", "x"]));
        assert_eq!(
            (done.code(), done.out.as_str()),
            (0, "x\nx\nx\n"),
            "{}",
            done.err
        );
        let done = run(fresh(directory.path().join(name)).arg("no-such-program"));
        assert!(done.err.starts_with(&format!("{name}: ")), "{}", done.err);
        let done = run(fresh(directory.path().join(name)).arg("--version"));
        assert_eq!(
            done.out,
            format!("{name} (Margay) {}\n", env!("CARGO_PKG_VERSION"))
        );
        let done = run(fresh(directory.path().join(name)).arg("--help"));
        assert!(
            done.out
                .contains(&format!("Usage: {name} [OPTIONS] PROGRAM")),
            "{}",
            done.out
        );
        assert_eq!(done.code(), 0);
    }
    let done = run(named(&directory, "showmesh").arg("--json"));
    assert!(done.out.contains("\"jobs\""), "{} {}", done.out, done.err);
}

#[test]
fn wrong_words_for_margay_itself_are_reported() {
    let margay = |words: &[&str]| run(fresh(margay()).args(words));
    let done = margay(&[]);
    assert_eq!(done.code(), 2);
    assert!(done.err.contains("Usage: margay <COMMAND>"), "{}", done.err);
    let done = margay(&["threads", "abc"]);
    assert_eq!((done.code(), done.err.lines().count()), (2, 1));
    assert!(
        done.err
            .contains("'abc' for '<PID>': give the number of a process"),
        "{}",
        done.err
    );
}

#[test]
fn several_programs_make_one_job() {
    let mut command = command("-n 1 -env A one sh -c");
    command.arg("echo a $MARGAY_RANK $MARGAY_SIZE $A");
    command.args([":", "-n", "2", "-env", "A", "two", "sh", "-c"]);
    command.arg("echo b $MARGAY_RANK $MARGAY_SIZE $A");
    command.args([":", "echo", "c"]);
    let done = run(&mut command);
    assert_eq!(done.sorted(), ["a 0 4 one", "b 1 4 two", "b 2 4 two", "c"]);
}

#[test]
fn without_a_number_every_usable_core_gets_a_rank() {
    let done = run(&mut command("echo x"));
    assert_eq!(done.out.lines().count(), margay_sys_os::cpu::usable_cores());
}

#[test]
fn only_what_the_options_say_changes_the_environment() {
    let mut command = command("-n 1 -x B=2 -genv C 3 -env D -4 -x UNCHANGED env");
    command.env("UNCHANGED", "yes");
    let done = run(&mut command);
    let plain = run(fresh("env").env("UNCHANGED", "yes"));
    // By these frameworks find themselves; tests/launchers.rs looks at them.
    let names = [
        "PMI_",
        "OMPI_",
        "MPI_",
        "MV2_",
        "MARGAY_LOCAL_RANK",
        "MARGAY_LOCAL_SIZE",
    ];
    let mut added: Vec<&str> = done
        .out
        .lines()
        .filter(|l| {
            !names.iter().any(|name| l.starts_with(name))
                && !plain.out.lines().any(|p| p == *l)
                && !l.starts_with(MARK)
                && !l.starts_with("_=")
        })
        .collect();
    added.sort_unstable();
    assert_eq!(added[..3], ["B=2", "C=3", "D=-4"]);
    assert_eq!(added[3], "GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
    assert!(added[4].starts_with("MARGAY_LAUNCHER=/"), "{added:?}");
    assert_eq!(added[5], "MARGAY_RANK=0");
    assert!(added[6].starts_with("MARGAY_SEGMENT_FD="), "{added:?}");
    assert_eq!(added[7], "MARGAY_SIZE=1");
    assert_eq!(added.len(), 8);
}

#[test]
fn the_working_directory_and_paths_relative_to_it() {
    let directory = tempfile::tempdir().unwrap();
    write_script(&directory.path().join("here"), "#!/bin/sh\npwd\n");
    let mut command = command("-n 2 -wdir");
    let done = run(command.arg(directory.path()).arg("./here"));
    let expected = directory.path().canonicalize().unwrap();
    let expected = expected.to_str().unwrap();
    assert_eq!(
        done.out.lines().collect::<Vec<_>>(),
        [expected, expected],
        "{}",
        done.err
    );
}

#[test]
fn ranks_are_bound_as_the_options_say() {
    let mask = margay_sys_os::cpu::affinity();
    let first = mask[0].to_string();
    let allowed = "grep Cpus_allowed_list /proc/self/status | tr -d '\\t'";
    let done = run(&mut shell(
        &format!("-n 1 -report-bindings -bind {first}"),
        allowed,
    ));
    assert_eq!(done.out, format!("Cpus_allowed_list:{first}\n"));
    assert!(
        done.err.contains(&format!(": core {first}")),
        "{}",
        done.err
    );
    let all = run(fresh("sh").args(["-c", allowed]));
    let done = run(&mut shell("-n 2 -bind none -report-bindings", allowed));
    assert_eq!(done.out, all.out.repeat(2));
    assert!(done.err.contains("not bound: -bind none"), "{}", done.err);
    let many = mask.len() + 1;
    let done = run(&mut shell(&format!("-n {many} -report-bindings"), allowed));
    assert_eq!(done.out, all.out.repeat(many));
    assert!(done.err.contains("more than the"), "{}", done.err);
    let done = run(&mut shell(
        &format!("-n {} -bind core", mask.len()),
        allowed,
    ));
    let mut cores: Vec<usize> = done
        .out
        .lines()
        .filter_map(|l| l.split(':').nth(1)?.parse().ok())
        .collect();
    cores.sort_unstable();
    assert_eq!(cores, mask, "{} {}", done.out, done.err);
}

#[test]
fn one_usable_core_is_enough() {
    let mut command = fresh("taskset");
    let core = margay_sys_os::cpu::affinity()[0].to_string();
    command.args(["-c", &core, margay(), "run", "-report-bindings"]);
    command.args(["-n", "4", "sh", "-c", "echo x"]);
    let done = run(&mut command);
    assert_eq!(
        (done.code(), done.out.as_str()),
        (0, "x\nx\nx\nx\n"),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("4 ranks are more than the 1 usable cores"),
        "{}",
        done.err
    );
}

#[test]
fn open_descriptors_of_a_rank_are_its_own() {
    let script = "ls /proc/self/fd | tr '\\n' ' '; echo";
    let numbers = |line: &str| -> Vec<u32> {
        let mut numbers: Vec<u32> = line
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    };
    // What the test was started with is inherited by everybody.
    let plain = numbers(&run(fresh("sh").args(["-c", script])).out);
    let done = run(&mut shell("-n 4", script));
    assert_eq!(done.out.lines().count(), 4);
    for line in done.out.lines() {
        let mut own = numbers(line);
        own.retain(|n| !plain.contains(n));
        assert!(own.len() == 1 && own[0] >= 100, "{line} besides {plain:?}");
    }
}

#[test]
fn limits_of_the_user_reach_the_ranks() {
    let script = format!("ulimit -Sn 77; {} run -n 2 sh -c 'ulimit -Sn'", margay());
    let done = run(fresh("sh").args(["-c", &script]));
    assert_eq!(done.out, "77\n77\n", "{}", done.err);
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        for name in ["margay", "mpiexec", "showmesh"] {
            let done = run(fresh(margay()).args(["completions", shell, name]));
            assert!(
                done.code() == 0 && done.out.contains(name),
                "{shell} {name}: {}",
                done.err
            );
        }
    }
    let done = run(fresh(margay()).args(["completions", "bash", "mpiexec"]));
    assert!(done.out.contains("--report-bindings"));
}
