//! `mpiexec -check`: each kind of error is found with its lines, and nothing in a right program.

use std::process::Output;

use margay_tests::hosts::Hosts;
use margay_tests::jobs::{Job, Words, send, text};
use margay_tests::{command, program, run, scratch, stage, succeed};

/// A program with one error for each name.
struct Wrong {
    folder: tempfile::TempDir,
}

impl Wrong {
    fn build() -> Wrong {
        Wrong::build_of("wrong.c", "-O0")
    }

    fn build_of(source: &str, optimized: &str) -> Wrong {
        let folder = scratch();
        succeed(
            command(stage().join("bin/mpicc"), 60)
                .args(["-g", optimized, "-fopenmp"])
                .arg(program("check").join(source))
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

/// `wrong.c:12`: the line that the comment marks.
fn line(mark: &str) -> String {
    line_of("wrong.c", mark)
}

fn line_of(source: &str, mark: &str) -> String {
    let text = std::fs::read_to_string(program("check").join(source)).unwrap();
    let wanted = format!("/* LINE {mark} */");
    let at = text
        .lines()
        .position(|line| line.ends_with(&wanted))
        .unwrap();
    format!("{source}:{}", at + 1)
}

const NOT_LOOKED_AT: &str = "check: loads and stores of the program are not looked at: ";

/// Whether this system lets the program's own loads and stores be looked at; says why not.
fn sees_loads(loads: &Wrong) -> bool {
    let said = text(&loads.run("loaded"));
    let why = said.lines().find(|line| line.contains(NOT_LOOKED_AT));
    if let Some(why) = why {
        eprintln!("skipped: {why}");
    }
    why.is_none()
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
        ("received", "request", &["received"]),
        (
            "apart",
            "collective mismatch",
            &["apart copy", "apart world"],
        ),
        ("wanted", "message race", &["wanted"]),
        ("taken", "message race", &["taken first", "taken wanted"]),
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
    let right = Wrong::build();
    for what in ["right", "collect", "inactive", "parts"] {
        let output = right.run(what);
        let said = text(&output);
        assert!(output.status.success(), "{what}: {said}");
        assert!(said.contains("check: no errors found"), "{what}: {said}");
    }
}

/// The library uses numbers of handles again, so that one which is made by a call without a record
/// would be taken for one that was freed.
#[test]
fn handles_are_known_by_whatever_call_they_are_made() {
    let folder = scratch();
    let makers = folder.path().join("makers");
    succeed(
        command(stage().join("bin/mpicc"), 60)
            .args(["-mpi1", "-g", "-Wall", "-Wextra", "-Werror"])
            .arg(program("check/makers.c"))
            .arg("-o")
            .arg(&makers),
    );
    let mut mpiexec = command(stage().join("bin/mpiexec"), 100);
    let mpiexec = mpiexec.args(["-n", "2", "-check"]).arg(&makers);
    let said = text(&run(mpiexec.arg(folder.path().join("file"))));
    assert!(said.contains("done\n"), "{said}");
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
    // The calls of the hooks themselves are not shown.
    let said = text(&wrong.run("wanted"));
    let shown = format!("MPI_Recv from rank 1, tag 3, 4 bytes at {}", line("wanted"));
    assert!(said.contains(&shown), "{said}");
    assert!(!said.contains("margay_check"), "{said}");
    let said = text(&wrong.run("crossed"));
    assert!(said.contains("mpiexec: deadlock: "), "{said}");
    assert!(said.contains(&format!("{} in ", line("crossed"))), "{said}");
    let summary = "mpiexec: check: the job ended with code 1; no other error found";
    assert!(said.contains(summary), "{said}");
    // It is the program's last call, not one by which the hooks look at what it got.
    let said = text(&wrong.run("early"));
    let last = format!("its last MPI call was MPI_Recv at {}; ", line("early"));
    assert!(said.contains(&last), "{said}");
}

#[test]
fn a_checker_that_is_killed_takes_its_job_with_it() {
    let wrong = Wrong::build();
    let mpiexec = Words::default().and(stage().join("bin/mpiexec"));
    let words = mpiexec.and_all("-n 2 -check");
    let words = words.and(wrong.folder.path().join("wrong")).and("endless");
    let mut job = Job::start(&words, 60);
    job.until("begun", 2);
    send("KILL", job.pid());
    job.ended_with_nothing_left();
}

/// What ranks of other hosts record goes to the checker through their agents.
#[test]
fn ranks_of_several_hosts_are_looked_at() {
    let Some(hosts) = Hosts::make(2) else { return };
    let wrong = Wrong::build();
    for (word, expected) in [
        ("type", "check: datatype mismatch: "),
        ("right", "check: no errors found"),
    ] {
        let words = hosts.mpiexec("-n 3 -ppn 2 -check");
        let words = words.and(wrong.folder.path().join("wrong")).and(word);
        let end = Job::start(&words, 100).ended_with_nothing_left();
        assert!(end.err.contains(expected), "{word}: {}", end.err);
    }
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

/// Not the lines of the module by which Python calls, nor those of the interpreter, which stores.
#[test]
fn a_program_in_python_has_its_own_lines() {
    let source = program("check/wrong.py");
    let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
    let output = run(mpiexec.args(["-n", "2", "-check", "python3"]).arg(&source));
    let said = text(&output);
    let source = std::fs::read_to_string(source).unwrap();
    let line = |mark: &str| {
        let is_it = |line: &str| line.ends_with(&format!("# LINE {mark}"));
        format!("wrong.py:{}", source.lines().position(is_it).unwrap() + 1)
    };
    let mut expected = vec![
        format!(
            "1 MPI_INT (MPI_Send at {}), but rank 1 receives 1 MPI_FLOAT (MPI_Recv at {})",
            line("send"),
            line("receive")
        ),
        format!(
            "MPI_Comm_dup at {} has not been freed before MPI_Finalize at {}",
            line("copy"),
            line("end")
        ),
    ];
    if sees_loads(&Wrong::build_of("loads.c", "-O0")) {
        expected.push(format!(
            "the load or store at {} uses the buffer of MPI_Irecv at {}, which",
            line("store"),
            line("begun")
        ));
    }
    for expected in expected {
        assert!(said.contains(&expected), "no {expected:?}: {said}");
    }
}

/// gfortran's library has a handler for SIGTRAP, which gets the traps that are not of the watch
/// registers.
#[test]
fn loads_of_a_fortran_program_are_found_and_its_own_traps_are_its_own() {
    if !sees_loads(&Wrong::build_of("loads.c", "-O0")) {
        return;
    }
    let folder = scratch();
    let loads = folder.path().join("loads");
    let source = program("check/loads.f90");
    let mut compiler = command(stage().join("bin/mpif90"), 60);
    succeed(compiler.arg("-g").arg(&source).arg("-o").arg(&loads));
    let source = std::fs::read_to_string(source).unwrap();
    let line = |mark: &str| {
        let is_it = |line: &str| line.ends_with(&format!("! LINE {mark}"));
        format!("loads.f90:{}", source.lines().position(is_it).unwrap() + 1)
    };
    let run = |word: &str| {
        let mut mpiexec = command(stage().join("bin/mpiexec"), 60);
        let mpiexec = mpiexec.args(["-n", "2", "-check"]).arg(&loads);
        run(mpiexec.arg(word))
    };
    let said = text(&run("loaded"));
    let places = [line("loaded"), line("received into")];
    let is_it = |said: &str| {
        said.contains("check: buffer in use: ") && places.iter().all(|place| said.contains(place))
    };
    assert!(said.lines().any(is_it), "{said}");
    let said = text(&run("trap"));
    let backtrace = format!("/check/{}\n", line("trap"));
    assert!(said.contains("Backtrace for this error:"), "{said}");
    assert!(said.contains(&backtrace), "{said}");
    assert!(said.contains("was killed by SIGTRAP"), "{said}");
}

#[test]
fn loads_and_stores_of_memory_in_use_are_found_with_their_lines() {
    for optimized in ["-O0", "-O2"] {
        let loads = Wrong::build_of("loads.c", optimized);
        if !sees_loads(&loads) {
            return;
        }
        for (what, kind, operation) in [
            ("loaded", "buffer in use", "received into"),
            ("stored", "buffer in use", "received into"),
            ("end", "buffer in use", "received into"),
            ("copied", "buffer in use", "received into"),
            ("sent", "buffer in use", "sent call"),
            ("persistent", "buffer in use", "persistent call"),
            ("collective", "buffer in use", "collective call"),
            ("got", "buffer in use", "got call"),
            ("put", "buffer in use", "put call"),
            ("fenced", "conflicting accesses", "fenced call"),
            ("locked", "conflicting accesses", "locked call"),
            ("thread", "buffer in use", "thread call"),
        ] {
            let output = loads.run(what);
            let said = text(&output);
            assert!(!output.status.success(), "{what}, {optimized}: {said}");
            let places = [what, operation].map(|mark| format!("{} ", line_of("loads.c", mark)));
            let is_it = |said: &str| {
                said.contains(&format!("check: {kind}: "))
                    && places.iter().all(|place| said.contains(place))
            };
            assert!(said.lines().any(is_it), "{what}, {optimized}: {said}");
            let summary = format!("check: 1 error found: 1 {kind}");
            assert!(said.contains(&summary), "{what}, {optimized}: {said}");
        }
    }
}

#[test]
fn the_right_twins_of_these_programs_are_right() {
    for optimized in ["-O0", "-O3"] {
        let loads = Wrong::build_of("loads.c", optimized);
        for what in [
            "loaded_right",
            "sent_right",
            "persistent_right",
            "collective_right",
            "got_right",
            "put_right",
            "fenced_right",
            "locked_right",
            "waits_right",
            "thread_right",
            "beside_right",
        ] {
            let output = loads.run(what);
            let said = text(&output);
            assert!(output.status.success(), "{what}, {optimized}: {said}");
            assert!(said.contains("check: no errors found"), "{what}: {said}");
        }
    }
}

#[test]
fn errors_of_threads_are_found_with_their_lines_and_their_right_twins_are_right() {
    let threads = Wrong::build_of("threads.c", "-O0");
    for (what, kind, marks) in [
        ("level", "threads", &["level"][..]),
        (
            "serialized",
            "threads",
            &["serialized sent", "serialized received"],
        ),
        ("finalize", "threads", &["finalize"]),
        ("region", "threads", &["region"]),
        ("together", "collective mismatch", &["together"]),
        ("freed", "request", &["freed made", "freed"]),
    ] {
        let output = threads.run(what);
        let said = text(&output);
        assert!(!output.status.success(), "{what}: {said}");
        let is_at = |said: &str, mark| said.contains(&format!("{} ", line_of("threads.c", mark)));
        let is_it = |said: &str| {
            let is_kind = said.contains(&format!("check: {kind}: "));
            is_kind && marks.iter().all(|mark| is_at(said, mark))
        };
        assert!(said.lines().any(is_it), "{what}: {said}");
    }
    for what in [
        "serialized_right",
        "together_right",
        "freed_right",
        "started_right",
        "region_right",
        "funneled_right",
    ] {
        let output = threads.run(what);
        let said = text(&output);
        assert!(output.status.success(), "{what}: {said}");
        assert!(said.contains("check: no errors found"), "{what}: {said}");
    }
}

#[test]
fn calls_use_memory_until_they_are_complete_and_others_must_not() {
    let buffers = Wrong::build_of("buffers.c", "-O0");
    for (what, kind, marks) in [
        ("reduced", "buffer in use", ["reduced", "used"]),
        ("started", "buffer in use", ["started", "used"]),
        ("gathered", "buffer in use", ["gathered", "used"]),
        ("exchanged", "buffer in use", ["exchanged", "used"]),
        ("sent", "buffer in use", ["sent", "used in sum"]),
        ("probed", "datatype mismatch", ["probed sent", "probed"]),
        ("lost", "request", ["lost", "lost"]),
    ] {
        let said = text(&buffers.run(what));
        let marks = marks.map(|mark| format!("{} ", line_of("buffers.c", mark)));
        let is_it = |said: &str| {
            said.contains(&format!("check: {kind}: ")) && marks.iter().all(|m| said.contains(m))
        };
        assert!(said.lines().any(is_it), "{what}: {said}");
    }
    for what in [
        "complete_right",
        "nobody_right",
        "polled_right",
        "apart_right",
        "probed_right",
    ] {
        let output = buffers.run(what);
        let said = text(&output);
        assert!(output.status.success(), "{what}: {said}");
        assert!(said.contains("check: no errors found"), "{what}: {said}");
    }
}

#[test]
fn a_system_that_refuses_is_named_once_and_a_program_keeps_its_signal() {
    let loads = Wrong::build_of("loads.c", "-O0");
    let refused = Wrong::build_of("refused.c", "-O0");
    let output = run(command(refused.folder.path().join("wrong"), 60)
        .arg(stage().join("bin/mpiexec"))
        .args(["-n", "3", "-check"])
        .arg(loads.folder.path().join("wrong"))
        .arg("loaded"));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(NOT_LOOKED_AT).count(), 1, "{said}");
    assert!(said.contains("check: no errors found"), "{said}");
    if cfg!(target_arch = "x86_64") {
        assert!(said.contains("kernel.perf_event_paranoid"), "{said}");
        // A handler that was there before gets the program's traps alone.
        let said = text(&loads.run("signal"));
        assert!(said.contains("trapped 0 times, then 1"), "{said}");
        let is_seen = said.contains("check: buffer in use: ");
        assert_eq!(is_seen, sees_loads(&loads), "{said}");
        let said = text(&loads.run("signal_late"));
        assert!(said.contains(NOT_LOOKED_AT), "{said}");
        assert!(said.contains("trapped 0 times, then 1"), "{said}");
    }
    let output = loads.run("crash");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(128 + 5), "{said}");
    assert!(said.contains("was killed by SIGTRAP"), "{said}");
}
