//! `poe`: the launcher with the options and variables of the SP2's Parallel Operating Environment.

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use common::*;

/// `poe` with words separated by spaces, and a shell script as the program when there is one.
struct Poe(tempfile::TempDir);

impl Poe {
    fn new() -> Poe {
        let folder = tempfile::tempdir().unwrap();
        symlink(margay(), folder.path().join("poe")).unwrap();
        Poe(folder)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = fresh(self.0.path().join("poe"));
        command.args(words.split_whitespace());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MP_")) {
            command.env_remove(name);
        }
        command
    }

    fn script(&self, words: &str, script: &str, behind: &str) -> Command {
        let mut command = self.command(words);
        command.args(["sh", "-c", script]);
        command.args(behind.split_whitespace());
        command
    }
}

#[test]
fn options_stand_before_and_behind_the_program() {
    let poe = Poe::new();
    let done = run(&mut poe.script(
        "-procs 2",
        "echo $MARGAY_SIZE $0 $1",
        "a -stdoutmode ordered b -labelio yes",
    ));
    assert_eq!(done.out, "[0] 2 a b\n[1] 2 a b\n", "{}", done.err);
    let done = run(poe
        .script("", "echo $0 $1", "-procs 2")
        .env("MP_NOARGLIST", "yes")
        .env("MP_PROCS", "1"));
    assert_eq!(done.out, "-procs 2\n");
    let done = run(poe
        .script("", "echo $0 $1", "-procs 1 ++ -procs 2")
        .env("MP_FENCE", "++"));
    assert_eq!(done.out, "-procs 2\n");
}

#[test]
fn options_win_over_variables() {
    let poe = Poe::new();
    let script =
        "echo $MARGAY_RANK of $MARGAY_SIZE $MP_EAGER_LIMIT $MP_CSS_INTERRUPT $MP_INFOLEVEL";
    let with = |words: &str, variables: &[(&str, &str)]| {
        let done = run(poe
            .script(words, script, "")
            .envs(variables.iter().copied()));
        assert_eq!(done.code(), 0, "{}", done.err);
        done.out
    };
    let set = [
        ("MP_PROCS", "2"),
        ("MP_LABELIO", "yes"),
        ("MP_STDOUTMODE", "1"),
        ("MP_EAGER_LIMIT", "8K"),
        ("MP_CSS_INTERRUPT", "YES"),
        ("MP_INFOLEVEL", "0"),
    ];
    assert_eq!(with("", &set), "[1] 1 of 2 8192 yes 0\n");
    let over =
        "-procs 3 -labelio no -stdoutmode 2 -eager_limit 4096 -css_interrupt no -infolevel 1";
    assert_eq!(with(over, &set), "2 of 3 4096 no 1\n");
}

#[test]
fn input_goes_to_all_to_one_or_to_none() {
    let poe = Poe::new();
    let script = "n=$(wc -c); echo $MARGAY_RANK $((n))";
    for (mode, expected) in [
        ("", ["0 5", "1 5"]),
        ("-stdinmode all", ["0 5", "1 5"]),
        ("-stdinmode 1", ["0 0", "1 5"]),
        ("-stdinmode none", ["0 0", "1 0"]),
    ] {
        let done = run_with_input(&mut poe.script("-procs 2", script, mode), b"12345");
        assert_eq!(done.sorted(), expected, "{mode}: {}", done.err);
    }
}

#[test]
fn ordered_output_comes_task_by_task() {
    let poe = Poe::new();
    let script = "sleep 0.$((2 - MARGAY_RANK))1; echo $MARGAY_RANK a; echo $MARGAY_RANK b";
    let done = run(&mut poe.script("-procs 3 -stdoutmode ordered", script, ""));
    assert_eq!(done.out, "0 a\n0 b\n1 a\n1 b\n2 a\n2 b\n");
    let done = run(&mut poe.script("-procs 3 -stdoutmode 1", script, ""));
    assert_eq!(done.out, "1 a\n1 b\n");
}

#[test]
fn a_command_file_gives_each_task_its_program() {
    let poe = Poe::new();
    let file = poe.0.path().join("programs");
    std::fs::write(&file, "echo ocean 1\n! a remark\necho air\n").unwrap();
    let mut command = poe.command("-pgmmodel mpmd -stdoutmode ordered -cmdfile");
    let done = run(command.arg(&file));
    assert_eq!(done.out, "ocean 1\nair\n", "{}", done.err);
}

#[test]
fn a_host_file_names_this_machine_or_a_pool() {
    let poe = Poe::new();
    let hosts = poe.0.path().join("host.list");
    std::fs::write(&hosts, "! the machine\nlocalhost\n* others\n").unwrap();
    let done = run(poe
        .command("-procs 1 -euilib us -resd no echo here")
        .env("MP_HOSTFILE", &hosts));
    assert_eq!(
        (done.code(), done.out.as_str()),
        (0, "here\n"),
        "{}",
        done.err
    );
    std::fs::write(&hosts, "@3\n@4\n").unwrap();
    let done = run(poe.command("echo here").env("MP_HOSTFILE", &hosts));
    assert_eq!(done.code(), 2);
    assert!(
        done.err.contains("the pools '3' and '4'") && done.err.contains("MP_HOSTFILE"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn errors_name_the_variable_or_the_option() {
    let poe = Poe::new();
    let done = run(poe.command("echo x").env("MP_STDOUTMODE", "sorted"));
    assert_eq!(done.code(), 2);
    assert!(
        done.err
            .starts_with("poe: invalid value 'sorted' of the variable MP_STDOUTMODE: choose"),
        "{}",
        done.err
    );
    let done = run(poe
        .command("echo x -stdoutmode sorted")
        .env("MP_STDOUTMODE", "ordered"));
    assert!(done.err.contains("for '--stdoutmode"), "{}", done.err);
    let done = run(&mut poe.command("-nonsense echo x"));
    assert_eq!(
        (done.code(), done.err.as_str()),
        (2, "poe: there is no option '-nonsense'\n")
    );
    let done = run(&mut poe.command("-procs 2"));
    assert!(
        done.err.contains("there is no program to run"),
        "{}",
        done.err
    );
}

#[test]
fn commands_come_from_the_standard_input_and_the_tasks_get_the_rest() {
    let poe = Poe::new();
    let mut command = poe.command("-procs 2 -stdinmode 0 -stdoutmode ordered");
    let done = run_with_input(&mut command, b"# comment\ncat\nfor the tasks\n");
    assert_eq!(
        (done.out.as_str(), done.code()),
        ("for the tasks\n", 0),
        "{}",
        done.err
    );
    let mut command = poe.command("-procs 2 -pgmmodel mpmd -stdinmode 1 -stdoutmode ordered");
    let done = run_with_input(&mut command, b"echo first\ncat\nrest\n");
    assert_eq!(done.out, "first\nrest\n", "{}", done.err);
    let done = run_with_input(&mut poe.command("-procs 2"), b"");
    assert_eq!(done.code(), 2);
    assert!(
        done.err.contains("there is no program to run"),
        "{}",
        done.err
    );
    let mut command = poe.command("-procs 2 -pgmmodel mpmd");
    let done = run_with_input(&mut command, b"echo one\n");
    assert!(
        done.err
            .contains("the standard input has 1 lines for 2 tasks"),
        "{}",
        done.err
    );
}

#[test]
fn jobs_run_one_after_the_other_until_one_fails_badly() {
    let poe = Poe::new();
    let file = poe.0.path().join("jobs");
    let line = format!(
        "-procs 2 -stdoutmode 0 -newjob yes -cmdfile {}",
        file.display()
    );
    let three = poe.0.path().join("three");
    std::fs::write(&three, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&three, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&file, format!("echo one\n{}\necho two\n", three.display())).unwrap();
    let done = run(&mut poe.command(&line));
    assert_eq!(
        (done.out.as_str(), done.code()),
        ("one\ntwo\n", 0),
        "{}",
        done.err
    );
    std::fs::write(&file, "echo one\nfalse\necho two\n").unwrap();
    let done = run(&mut poe.command(&line));
    assert_eq!(
        (done.out.as_str(), done.code()),
        ("one\n", 1),
        "{}",
        done.err
    );
    let mut command = poe.command("-procs 1 -newjob yes");
    let done = run_with_input(&mut command, b"echo one\ncat\necho two\nquit\necho three\n");
    assert_eq!(
        (done.out.as_str(), done.code()),
        ("one\ntwo\n", 0),
        "{}",
        done.err
    );
}

#[test]
fn the_hosts_of_tasks_are_written_to_a_file() {
    let poe = Poe::new();
    let file = poe.0.path().join("hosts");
    let line = format!("true -procs 3 -savehostfile {}", file.display());
    let done = run(&mut poe.command(&line));
    assert_eq!(done.code(), 0, "{}", done.err);
    let hosts = std::fs::read_to_string(file).unwrap();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(hosts, name.repeat(3));
}
