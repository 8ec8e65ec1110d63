//! `mpiexec -check`: each kind of error is found with its lines, and nothing in a right program.

use std::path::PathBuf;
use std::process::Output;

use margay_tests::jobs::text;
use margay_tests::{command, program, run, scratch, stage, succeed};

/// The program with one error for each name.
struct Wrong {
    folder: tempfile::TempDir,
}

impl Wrong {
    fn build() -> Wrong {
        let folder = scratch();
        succeed(
            command(stage().join("bin/mpicc"), 60)
                .arg("-g")
                .arg(source())
                .arg("-o")
                .arg(folder.path().join("wrong")),
        );
        Wrong { folder }
    }

    /// Runs it with one of its errors.
    fn run(&self, what: &str) -> Output {
        run(command(stage().join("bin/mpiexec"), 60)
            .args(["-n", "3", "-check"])
            .arg(self.folder.path().join("wrong"))
            .arg(what))
    }
}

fn source() -> PathBuf {
    program("check").join("wrong.c")
}

/// `wrong.c:12`: the line that the comment marks.
fn line(mark: &str) -> String {
    let text = std::fs::read_to_string(source()).unwrap();
    let wanted = format!("/* LINE {mark} */");
    let at = text
        .lines()
        .position(|line| line.ends_with(&wanted))
        .unwrap();
    format!("wrong.c:{}", at + 1)
}

#[test]
fn each_error_is_found_with_its_lines_and_is_the_exit_status() {
    let wrong = Wrong::build();
    for (what, kind, marks) in [
        (
            "type",
            "datatype mismatch",
            &["type sent", "type received"][..],
        ),
        (
            "order",
            "collective mismatch",
            &["order first", "order second"],
        ),
        ("operation", "operation mismatch", &["operation"]),
        ("root", "root mismatch", &["root"]),
        ("lost", "request", &["lost"]),
        ("leak", "leak", &["leak"]),
        ("written", "buffer in use", &["written"]),
        ("overlap", "buffer in use", &["overlap"]),
        ("argument", "invalid argument", &["argument"]),
        ("committed", "invalid argument", &["committed"]),
        ("epoch", "epoch", &["epoch"]),
        ("conflict", "conflicting accesses", &["conflict"]),
        ("race", "message race", &["race"]),
        ("unmatched", "unmatched message", &["unmatched"]),
        ("tag", "unmatched message", &["tag sent", "tag received"]),
        ("start", "request", &["start"]),
    ] {
        let output = wrong.run(what);
        let said = text(&output);
        assert!(!output.status.success(), "{what}: {said}");
        let is_it = |said: &&str| {
            said.contains(&format!("check: {kind}: "))
                && marks
                    .iter()
                    .all(|mark| said.contains(&format!("{} ", line(mark))))
        };
        assert!(said.lines().any(|said| is_it(&said)), "{what}: {said}");
    }
}

#[test]
fn a_right_program_is_right() {
    let output = Wrong::build().run("right");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("check: no errors found"), "{said}");
}

#[test]
fn what_ends_a_job_has_the_lines_of_the_program_and_is_no_error_free_end() {
    let wrong = Wrong::build();
    let said = text(&wrong.run("argument"));
    let error = format!(
        "got an error in MPI_Send at {} (see above)",
        line("argument")
    );
    assert!(said.contains(&error), "{said}");
    let said = text(&wrong.run("crossed"));
    assert!(said.contains("mpiexec: deadlock: "), "{said}");
    assert!(said.contains(&format!("{} in ", line("crossed"))), "{said}");
    let summary = "mpiexec: check: the job ended with code 1; no other error found";
    assert!(said.contains(summary), "{said}");
}

#[test]
fn the_exit_status_of_the_job_stays_and_programs_without_mpi_run() {
    let check = |program: &str, word: &str| {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        run(mpiexec.args(["-n", "2", "-check", "-quiet", program, "-c", word]))
    };
    let output = check("sh", "exit 7");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let output = check("sh", "true");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn a_fortran_program_has_its_own_lines() {
    let folder = scratch();
    let wrong = folder.path().join("wrong");
    succeed(
        command(stage().join("bin/mpif90"), 60)
            .arg("-g")
            .arg(program("check").join("wrong.f90"))
            .arg("-o")
            .arg(&wrong),
    );
    let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
    let output = run(mpiexec.args(["-n", "2", "-check"]).arg(&wrong));
    let said = text(&output);
    let mismatch = said
        .lines()
        .find(|l| l.contains("check: datatype mismatch: "));
    let names = |line: &str| {
        ["wrong.f90:11 ", "wrong.f90:13 "]
            .iter()
            .all(|place| line.contains(place))
    };
    assert!(mismatch.is_some_and(names), "{said}");
}
