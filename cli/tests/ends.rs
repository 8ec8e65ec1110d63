//! How jobs end: exit status, reports, time limit, errors before the start.

mod common;

use std::fs;
use std::time::Duration;

use common::*;

fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn success_is_silent() {
    let done = run(&mut command("-n 4 true"));
    assert_eq!(
        (done.code(), done.out.as_str(), done.err.as_str()),
        (0, "", "")
    );
    let done = run(&mut command("-n 3 %act init call:MPI_Barrier fin"));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
}

#[test]
fn many_ranks_start_and_end() {
    let done = run(&mut command("-n 64 true"));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
}

#[test]
fn the_first_failure_gives_the_status_and_one_report() {
    let done = run(&mut shell(
        "-n 4",
        "[ $MARGAY_RANK = 2 ] && exit 7; sleep 100",
    ));
    assert_eq!(done.code(), 7);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(
        done.err.starts_with("margay run: rank 2 (pid "),
        "{}",
        done.err
    );
    assert!(done.err.contains(&format!(
        " on {}) exited with code 7 before MPI_Init",
        host()
    )));
    assert!(done.took < PROMPT, "{:?}", done.took);
}

#[test]
fn a_crash_is_reported_with_its_last_call() {
    let line = "-n 3 %act init call:MPI_Allreduce only:1 kill:11 all sleep:20000";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 139);
    let report = done.err.lines().next().unwrap();
    assert!(report.contains("rank 1 (pid "), "{report}");
    assert!(
        report.contains("was killed by SIGSEGV (invalid memory access"),
        "{report}"
    );
    assert!(
        report.contains("its last MPI call was MPI_Allreduce"),
        "{report}"
    );
    assert!(report.ends_with("the job has been ended"), "{report}");
    let mut others = done.err.lines().skip(1);
    assert!(others.next().unwrap().contains("hint: "), "{}", done.err);
    // Nothing of one that has not been started yet.
    assert!(
        others.all(|l| l.contains(": meanwhile, rank")),
        "{}",
        done.err
    );
    assert!(done.took < PROMPT);
    let done = run(&mut command(
        "-n 2 %act init call:MPI_Init only:1 kill:11 all sleep:20000",
    ));
    let expected = ") outside MPI, after MPI_Init; the job has been ended";
    assert!(done.err.contains(expected), "{}", done.err);
    let done = run(command("-quiet")
        .args(["-n", "2"])
        .arg(act())
        .args(["init", "kill:9"]));
    assert_eq!((done.code(), done.err.lines().count()), (137, 1));
}

#[test]
fn a_crash_while_waiting_tells_on_whom() {
    let line = "-n 2 %act init call:MPI_Recv wait:recv:1:5 only:0 sleep:100 kill:6 all sleep:20000";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 134);
    let expected = "while it waited in MPI_Recv for rank 1, tag 5; the job has been ended";
    assert!(done.err.contains(expected), "{}", done.err);
}

#[test]
fn a_crash_that_is_survived_or_quiet_says_nothing_of_the_others() {
    let line = "init fin only:1 kill:11";
    for option in ["-quiet", "-continue-on-failure"] {
        let done = run(command(option)
            .args(["-n", "2"])
            .arg(act())
            .args(line.split(' ')));
        assert!(done.err.contains("was killed by SIGSEGV"), "{}", done.err);
        assert!(!done.err.contains("meanwhile"), "{}", done.err);
    }
}

#[test]
fn leaving_without_finalize_ends_the_job() {
    let line = "-n 3 %act init call:MPI_Send only:2 exit:0 all sleep:20000";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 1);
    assert!(done.err.contains("rank 2 "), "{}", done.err);
    assert!(
        done.err.contains("exited with code 0 without MPI_Finalize"),
        "{}",
        done.err
    );
    assert!(done.took < PROMPT);
}

#[test]
fn who_has_joined_may_leave_with_code_0_alone() {
    let done = run(&mut command("-n 3 %act join call:mynode exit:0"));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    // Nor is that a failure for the ranks that go on.
    let line = "-n 3 -continue-on-failure %act join call:mynode only:1 sleep:300 all exit:0";
    let done = run(&mut command(line));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    for (end, code, text) in [
        ("exit:3", 3, "exited with code 3; its last call was mynode"),
        ("kill:11", 139, "was killed by SIGSEGV"),
    ] {
        let line = format!("-n 3 %act join call:mynode only:2 {end} all sleep:20000");
        let done = run(&mut command(&line));
        assert_eq!(done.code(), code, "{}", done.err);
        assert!(done.err.contains(text), "{}", done.err);
    }
}

#[test]
fn an_abort_is_reported_with_its_code() {
    let done = run(&mut command(
        "-n 3 %act init only:1 abort:42 all sleep:20000",
    ));
    assert_eq!(done.code(), 42);
    assert!(done.err.contains("rank 1 "), "{}", done.err);
    assert!(
        done.err.contains("called MPI_Abort with code 42"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1);
    assert!(done.took < PROMPT);
    // What the library says of an error handler that ends the job.
    let done = run(&mut command(
        "-n 2 %act init call:MPI_Recv only:1 abort:6 all sleep:20000",
    ));
    assert_eq!(done.code(), 6);
    let expected = "got an error in MPI_Recv (see above), and its error handler (MPI_ERRORS_ARE_FATAL or \
         MPI_ERRORS_ABORT) ended the job with code 6";
    assert!(done.err.contains(expected), "{}", done.err);
}

#[test]
fn a_code_after_finalize_counts_and_harms_nobody() {
    let line = "-n 3 %act init fin only:1 exit:5 all sleep:300 print:done";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 5);
    assert_eq!(done.out, "done\ndone\n");
    assert!(
        done.err.contains("exited with code 5 after MPI_Finalize"),
        "{}",
        done.err
    );
}

#[test]
fn ranks_that_resist_are_killed_within_a_second() {
    let script = "trap '' TERM; [ $MARGAY_RANK = 0 ] && exit 3; while :; do sleep 0.1; done";
    let done = run(&mut shell("-n 3", script));
    assert_eq!(done.code(), 3);
    assert!(done.took < PROMPT, "{:?}", done.took);
}

#[test]
fn the_last_words_come_before_the_report() {
    let done = run(&mut shell(
        "-n 1",
        "echo 'assertion failed' >&2; printf half >&2; exit 1",
    ));
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines[..2], ["assertion failed", "half"]);
    assert!(lines[2].contains("exited with code 1"), "{}", done.err);
}

#[test]
fn the_time_limit_tells_who_waits_for_whom() {
    let line = "-timeout 1.2 -n 4 %act init only:0 call:MPI_Send wait:send:1:3 all only:1 \
                call:MPI_Recv wait:recv:0:any all sleep:20000";
    let done = run(&mut command(line));
    assert_eq!(done.code(), 124);
    let expected = [
        "margay run: the job's time limit of 1.2 s is over (-timeout); it has been ended",
        "margay run: rank 0: waiting in MPI_Send until rank 1 takes its message, tag 3",
        "margay run: rank 1: waiting in MPI_Recv for rank 0",
        "margay run: ranks 2, 3: outside MPI and using no CPU",
        "margay run: deadlock: 0 → 1 → 0",
    ];
    begin_with(&done.err, &expected);
    assert!(done.took < Duration::from_secs(4));
    let done = run(&mut command("-timeout 20 -n 2 true"));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
}

#[test]
fn the_time_limit_tells_who_is_stopped() {
    let done = run(&mut command(
        "-timeout 1.5 -n 3 %act init call:MPI_Send only:2 sleep:20000 all kill:19",
    ));
    assert_eq!(done.code(), 124, "{}", done.err);
    for line in [
        "ranks 0, 1: stopped by a signal, last MPI call MPI_Send",
        "rank 2: outside MPI and using no CPU, last MPI call MPI_Send",
    ] {
        assert!(done.err.contains(line), "{}", done.err);
    }
}

#[test]
fn the_environment_may_limit_the_time() {
    let done = run(command("-n 2 sleep 20").env("MPIEXEC_TIMEOUT", "0.5"));
    assert_eq!(done.code(), 124);
    let expected = "the job's time limit of 0.5 s is over (MPIEXEC_TIMEOUT); it has been ended";
    assert!(done.err.contains(expected), "{}", done.err);
    let done = run(command("-timeout 25 -n 1 true").env("MPIEXEC_TIMEOUT", "no"));
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    let done = run(command("-n 1 true").env("MPIEXEC_TIMEOUT", "no"));
    assert_eq!(done.code(), 2);
    assert!(done.err.contains("MPIEXEC_TIMEOUT is 'no'"), "{}", done.err);
}

/// The lines are these, but that the places where ranks are may follow.
fn begin_with(text: &str, expected: &[&str]) {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{expected}: {text}");
    }
}

#[test]
fn an_interrupt_tells_of_a_deadlock() {
    let mut running = Running::start(&mut command(
        "-n 2 %act init call:MPI_Recv only:0 wait:recv:1:5 all only:1 wait:recv:0:5 all print:ready sleep:60000",
    ));
    running.until("ready\nready\n");
    std::thread::sleep(Duration::from_millis(700));
    send("INT", running.pid());
    let done = running.end();
    assert_eq!(done.code(), 130);
    let expected = [
        "margay run: deadlock: 0 → 1 → 0",
        "margay run: rank 0: waiting in MPI_Recv for rank 1, tag 5",
        "margay run: rank 1: waiting in MPI_Recv for rank 0, tag 5",
    ];
    begin_with(&done.err, &expected);
    let mut running = Running::start(&mut command("-n 2 %act init print:ready sleep:60000"));
    running.until("ready\nready\n");
    send("INT", running.pid());
    assert_eq!(running.end().err, "");
}

#[test]
fn a_limit_of_file_size_is_reported() {
    reported_in_a_line("ulimit -f 10", 2, "(ulimit -f) is ");
}

/// Under this limit a job of this many ranks does not start, and one line says what it is about.
fn reported_in_a_line(limit: &str, ranks: u32, about: &str) {
    let script = format!("{limit}; exec {} run -n {ranks} true", margay());
    let done = run(fresh("sh").args(["-c", &script]));
    assert_eq!(
        (done.code(), done.err.lines().count()),
        (1, 1),
        "{}",
        done.err
    );
    assert!(done.err.contains(about), "{}", done.err);
}

#[test]
fn output_that_cannot_be_written_is_reported_with_a_remedy() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["run", "-V"],
    ] {
        let mut command = fresh(margay());
        let child = command.args(words).stdout(full());
        let mut child = child.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let done = finish(&mut child, std::time::Instant::now());
        assert_eq!(done.code(), 1, "{words:?}: {}", done.err);
        assert!(done.err.contains("cannot print: No space"), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    let mut command = command("-n 1 echo hello");
    let mut child = command
        .stdout(full())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let done = finish(&mut child, std::time::Instant::now());
    assert_eq!(done.code(), 1);
    assert!(done.err.contains("make room where it goes"), "{}", done.err);
}

/// Runs a line that must fail before any rank starts: one line of error.
fn refused(line: &str) -> (i32, String) {
    let done = run(&mut command(line));
    assert_eq!(done.out, "");
    assert_eq!(done.err.lines().count(), 1, "{line}: {}", done.err);
    assert!(done.err.starts_with("margay run: "), "{}", done.err);
    (done.code(), done.err)
}

#[test]
fn programs_that_cannot_run_take_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(refused("-n 2 no-such-program").0, 127);
    assert_eq!(refused(&format!("-n 2 {}", path("nothing"))).0, 127);
    assert_eq!(refused("-n 2 /usr").0, 126);
    fs::write(path("plain"), "x").unwrap();
    let (code, text) = refused(&format!("-n 2 {}", path("plain")));
    assert!(code == 126 && text.contains("chmod +x"), "{text}");
    write_script(&directory.path().join("script"), "echo hello\n");
    let (code, text) = refused(&format!("-n 2 {}", path("script")));
    assert!(code == 126 && text.contains("#!/bin/sh"), "{text}");
    write_script(&directory.path().join("lost"), "#!/no/such/shell\n");
    let (_, text) = refused(&format!("-n 2 {}", path("lost")));
    assert!(
        text.contains("needs the interpreter /no/such/shell"),
        "{text}"
    );
    let mut elf = fs::read(margay()).unwrap();
    let (machine, name) = if cfg!(target_arch = "aarch64") {
        (62u16, "x86_64")
    } else {
        (183, "aarch64")
    };
    elf.truncate(8192);
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    let foreign = directory.path().join("foreign");
    write_script(&foreign, "");
    fs::write(&foreign, elf).unwrap();
    let (code, text) = refused(&format!("-n 2 {}", path("foreign")));
    let expected = format!(
        "is built for {name}, this machine is {}",
        std::env::consts::ARCH
    );
    assert!(code == 126 && text.contains(&expected), "{text}");
    // The second program fails: the first one's ranks go, and the error is still one line.
    let done = run(&mut command("-n 2 sleep 20 : -n 1 no-such-program"));
    assert_eq!((done.code(), done.err.lines().count()), (127, 1));
    let done = run(&mut command(&format!(
        "-n 2 sleep 20 : -n 1 {}",
        path("script")
    )));
    assert_eq!(
        (done.code(), done.err.lines().count()),
        (126, 1),
        "{}",
        done.err
    );
    assert!(done.took < PROMPT);
}

#[test]
fn wrong_use_takes_one_line() {
    for line in [
        "-n 0 true",
        "-n -1 true",
        "-n many true",
        "-n 99999999 true",
        "-n 4",
        "-nonsense true",
        "-n 2 true :",
        "-timeout never true",
        "-output sideways true",
        "-n 2 -output rank:2 true",
        "-n 2 -stdin 2 true",
        "-bind 4000 true",
        "-n 60000 -bind core true",
        "-n 2 -wdir /no/such true",
        "-n 2 -host far-away:x true",
    ] {
        let (code, text) = refused(line);
        assert_eq!(code, 2, "{line}: {text}");
    }
    let (_, text) = refused("--frobnicate true");
    assert_eq!(
        text,
        "margay run: there is no option '--frobnicate'; see margay run --help\n"
    );
    let (_, text) = refused("-timout 3 true");
    let expected = "there is no option '-timout'; is --timeout meant?; see margay run --help\n";
    assert!(text.ends_with(expected), "{text}");
    let (_, text) = refused("-host far-away:x true");
    assert!(text.contains("'x' is not a number of ranks"), "{text}");
}

#[test]
fn too_few_file_descriptors_are_reported() {
    reported_in_a_line("ulimit -n 64", 100, "ulimit -n");
}
