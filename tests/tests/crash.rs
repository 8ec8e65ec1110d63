//! Where a rank was when it crashed: written down by itself, without core files.
#![forbid(unsafe_code)]

use std::process::Output;

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Built, Words, mark, nothing_is_left, text};
use margay_tests::{program, run};

const SOURCE: &str = "mpi/crash.c";

/// The line that a comment marks, as reports have it.
fn place(mark: &str) -> String {
    let source = std::fs::read_to_string(program(SOURCE)).expect("the source is there");
    let mark = format!("/* {mark} */");
    let at = source.lines().position(|line| line.contains(&mark));
    format!("crash.c:{}", at.expect("the comment is there") + 1)
}

/// Runs the program without core files.
fn crash(built: &Built, how: &str, variables: &[(&str, &str)]) -> Output {
    let words = Words::mpiexec(60, 3, &built.path(), how);
    let mut command = words.after("ulimit -c 0").command(90);
    command.envs(variables.iter().copied());
    let mark = mark(&mut command);
    let output = run(&mut command);
    nothing_is_left(&mark);
    output
}

#[test]
fn a_crash_is_reported_with_its_line_and_stack() {
    let built = Built::mpi(SOURCE);
    for (how, marked, stack, signal) in [
        ("null", "null", &["smooth", "main"][..], 11),
        // Whichever line of the function comes to the stack's end.
        ("stack", "", &["deeper", "deeper", "deeper"], 11),
        ("abort", "abort", &["main"], 6),
        ("divide", "divide", &["main"], 8),
        ("raise", "raise", &["main"], 7),
        ("thread", "null", &["smooth", "thread"], 11),
        ("threads", "null", &["smooth", "thread"], 11),
        ("queue", "queue", &["main"], 11),
    ] {
        if how == "divide" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let output = crash(&built, how, &[]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(128 + signal), "{how}: {said}");
        let place = if marked.is_empty() {
            "crash.c:".into()
        } else {
            place(marked)
        };
        let mut lines = said.lines();
        let first = lines.find(|line| line.starts_with("mpiexec: rank 1 crashed at "));
        let first = first.unwrap_or_else(|| panic!("{how}: {said}"));
        let at = format!("mpiexec: rank 1 crashed at {place}");
        assert!(first.starts_with(&at), "{how}: {said}");
        assert!(
            first.ends_with(&format!(" in {}()", stack[0])),
            "{how}: {said}"
        );
        for function in stack.iter().filter(|_| stack.len() > 1) {
            let line = lines.next().unwrap_or_default();
            let wanted = format!("mpiexec:     {function}() crash.c:");
            assert!(line.starts_with(&wanted), "{how}: {said}");
        }
        assert!(!said.contains("hint: allow core files"), "{how}: {said}");
    }
}

/// Of ranks that crash together one is shown.
#[test]
fn of_many_crashes_the_first_one_is_shown() {
    let built = Built::mpi(SOURCE);
    let said = text(&crash(&built, "null all", &[]));
    assert_eq!(said.matches(" crashed at crash.c:").count(), 1, "{said}");
}

#[test]
fn handlers_of_the_program_stay_its_own() {
    let built = Built::mpi(SOURCE);
    for how in ["before", "after"] {
        let output = crash(&built, how, &[]);
        let said = text(&output);
        assert!(said.contains("the program's own handler\n"), "{said}");
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(!said.contains("crashed at"), "{said}");
    }
}

#[test]
fn a_child_that_crashes_is_no_rank() {
    let built = Built::mpi(SOURCE);
    let output = crash(&built, "child", &[]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(!text(&output).contains("crashed at"), "{}", text(&output));
}

#[test]
fn who_wants_no_handlers_gets_none() {
    let built = Built::mpi(SOURCE);
    let output = crash(&built, "null", &[("MARGAY_CRASH", "0")]);
    assert_eq!(output.status.code(), Some(139), "{}", text(&output));
    assert!(!text(&output).contains("crashed at"), "{}", text(&output));
}

#[test]
fn a_crash_on_another_host_is_reported_with_its_line() {
    let Some(hosts) = Hosts::make(2) else { return };
    let built = Built::mpi(SOURCE);
    let words = hosts.mpiexec("-ppn 1").and(built.path()).and("null");
    let output = run(&mut words.command(90));
    let line = format!("mpiexec: rank 1 crashed at {} in smooth()\n", place("null"));
    assert_eq!(output.status.code(), Some(139), "{}", text(&output));
    assert!(text(&output).contains(&line), "{}", text(&output));
}
