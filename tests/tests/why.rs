//! `margay why` and the reports of the launcher: which lines ranks are at, from real stacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use margay_tests::hangs::{Built, may_trace};
use margay_tests::jobs::{Ended, Job, Words, send};
use margay_tests::{command, program, run, scratch, stage, succeed};
use serde_json::Value;

fn margay() -> PathBuf {
    stage().join("bin/margay")
}

/// Asks until the answer is as it shall be: a rank takes a while to get where it stays.
fn why(job: &Job, wanted: impl Fn(&Value) -> bool) -> (Value, String) {
    let pid = job.pid().to_string();
    for _ in 0..200 {
        let output = run(command(margay(), 30).args(["why", "--json", &pid]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Ok(all) = serde_json::from_str::<Value>(&text)
            && wanted(&all["jobs"][0])
        {
            let text = succeed(command(margay(), 30).args(["why", &pid]));
            return (all["jobs"][0].clone(), text);
        }
    }
    let output = run(command(margay(), 30).args(["why", &pid]));
    panic!("never as wanted: {output:?}");
}

/// The classes that are in a state, with the texts of their innermost functions.
fn places(job: &Value, state: &str) -> Vec<(Vec<u64>, String)> {
    let classes = job["classes"].as_array().unwrap();
    let ranks = |class: &Value| {
        let ranks = class["ranks"].as_array().unwrap();
        ranks.iter().map(|r| r.as_u64().unwrap()).collect()
    };
    let text = |class: &Value| class["stack"][0]["text"].as_str().unwrap_or("").to_owned();
    let in_state = classes.iter().filter(|class| class["state"] == state);
    in_state.map(|class| (ranks(class), text(class))).collect()
}

#[test]
fn a_deadlock_of_receives_has_lines_in_all_reports() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let place = format!("at {} in receive()", built.line("receive"));
    let mut job = Job::start(&Words::mpiexec(12, 2, &built.path(), "receives"), 60);
    job.until("ready", 2);
    let (json, text) = why(&job, |job| job["deadlocks"] == serde_json::json!([[0, 1]]));
    let expected = [(vec![0], place.clone()), (vec![1], place.clone())];
    assert_eq!(places(&json, "waiting"), expected);
    assert_eq!(json["classes"][0]["stack"][1]["function"], "main()");
    for line in [
        "deadlock: 0 → 1 → 0".into(),
        format!(
            "rank 0 waits in MPI_Recv for rank 1, tag 5 at {}, for ",
            built.line("receive")
        ),
        format!("    receive() {}", built.line("receive")),
        "    main() hangs.c:".into(),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(124), "{err}");
    for line in [
        format!("rank 0: waiting in MPI_Recv for rank 1, tag 5 {place}\n"),
        "deadlock: 0 → 1 → 0\n".into(),
    ] {
        assert!(err.contains(&line), "{line}: {err}");
    }
}

#[test]
fn the_last_calls_of_a_running_job_are_shown_with_their_lines() {
    let built = Built::mpi("-O2 -g");
    let place = built.line("receive");
    let mut job = built.start(2, "receives");
    job.until("ready", 2);
    let pid = job.pid().to_string();
    let calls = |options: &[&str]| {
        succeed(
            command(margay(), 30)
                .args(["why", "--calls=2"])
                .args(options)
                .arg(&pid),
        )
    };
    // Each waits in its last call, sooner or later.
    let waits = |rank: &Value| {
        let last = rank["calls"].as_array().and_then(|calls| calls.last());
        last.is_some_and(|last| {
            last["call"] == "MPI_Recv" && last["took_s"].is_null() && last["place"] == place
        })
    };
    let both_wait = || {
        let all: Value = serde_json::from_str(&calls(&["--json"])).unwrap();
        let ranks = all["jobs"][0]["ranks"].as_array().unwrap().clone();
        ranks.len() == 2 && ranks.iter().all(waits)
    };
    assert!((0..200).any(|_| both_wait()), "{}", calls(&["--json"]));
    let text = calls(&[]);
    for (rank, other) in [(0, 1), (1, 0)] {
        assert!(text.contains(&format!("rank {rank}: its last ")), "{text}");
        let said = format!("MPI_Recv from rank {other}, tag 5");
        let line = text.lines().find(|line| line.contains(&said));
        let ends = format!(" at {place}, not finished");
        assert!(line.is_some_and(|line| line.ends_with(&ends)), "{text}");
    }
    send("INT", job.pid());
    job.ended();
}

#[test]
fn stores_that_the_rank_does_itself_are_recorded_where_that_is_asked_for() {
    let built = Built::mpi("-O2 -g");
    let stores = |what: &str| {
        let mut job = built.start(2, what);
        job.until("ready", 2);
        let pid = job.pid().to_string();
        let calls = || {
            let why = ["why", "--calls=20", "--json", &pid];
            let text = succeed(command(margay(), 30).args(why));
            let all: Value = serde_json::from_str(&text).unwrap();
            let calls = all["jobs"][0]["ranks"][0]["calls"].as_array();
            let calls = calls.cloned().unwrap_or_default();
            let has_come = calls.last().is_some_and(|call| call["call"] == "MPI_Recv");
            has_come.then_some(calls)
        };
        let calls = (0..200).find_map(|_| calls()).expect("a rank that waits");
        let place_of = |name: &str| {
            let call = calls.iter().find(|call| call["call"] == name)?;
            Some(call["place"].as_str().unwrap_or_default().to_owned())
        };
        let found = (place_of("MPI_Put"), place_of("MPI_Win_flush"));
        assert!(place_of("MPI_Win_lock_all").is_some(), "{calls:?}");
        send("INT", job.pid());
        job.ended();
        found
    };
    assert_eq!(stores("stores"), (None, None));
    let (put, flush) = stores("stores 64");
    assert_eq!(put, Some(built.line("put")));
    assert!(flush.is_some());
}

#[test]
fn an_interrupt_names_the_lines_of_a_deadlock() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(2, "receives");
    job.until("ready", 2);
    why(&job, |job| job["deadlocks"] == serde_json::json!([[0, 1]]));
    send("INT", job.pid());
    let err = job.ended().err;
    let place = format!("tag 5 at {} in receive()\n", built.line("receive"));
    assert!(
        err.contains(&format!("rank 1: waiting in MPI_Recv for rank 0, {place}")),
        "{err}"
    );
}

#[test]
fn who_is_late_to_a_barrier_is_named_with_its_line() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(4, "barrier");
    job.until("ready", 4);
    let (json, text) = why(&job, |job| {
        places(job, "waiting")
            .iter()
            .any(|(ranks, _)| ranks == &[0, 2, 3])
            && job["late"][0]["rank"] == 1
    });
    assert_eq!(json["late"][0]["waiting_ranks"], 3);
    let waiting = format!("at {} in main()", built.line("barrier"));
    assert_eq!(places(&json, "waiting"), [(vec![0, 2, 3], waiting)]);
    // One of the two lines of the loop, in the function that was inlined.
    let computing = &json["classes"].as_array().unwrap()[1]["stack"];
    assert_eq!(computing[0]["function"], "step()", "{text}");
    assert_eq!(computing[1]["function"], "compute()", "{text}");
    assert!(
        text.contains("rank 1 is late: 3 ranks wait for it"),
        "{text}"
    );
    assert!(text.contains("rank 1 is computing at hangs.c:"), "{text}");
}

#[test]
fn a_running_job_is_profiled_by_function_and_line() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(3, "barrier");
    job.until("ready", 3);
    why(&job, |job| !places(job, "waiting").is_empty());
    let pid = job.pid().to_string();
    let profile = |words: &[&str]| {
        let mut margay = command(margay(), 30);
        margay.args(["profile", &pid, "--seconds", "1"]).args(words);
        succeed(&mut margay)
    };
    let json: Value = serde_json::from_str(&profile(&["--json", "--rate", "100"])).unwrap();
    let json = &json["profile"];
    let first = &json["places"][0];
    assert_eq!(first["function"], "step()", "{json}");
    let lines = ["step", "compute"].map(|mark| built.line(mark));
    assert!(
        lines.contains(&first["place"].as_str().unwrap().to_owned()),
        "{json}"
    );
    assert_eq!(first["ranks"][0]["name"], 1, "{json}");
    let looks = |rank: usize, of: &str| json["ranks"][rank][of].as_u64().unwrap();
    for (rank, what) in [(0, "waits"), (1, "runs"), (2, "waits")] {
        let all = looks(rank, "runs") + looks(rank, "waits") + looks(rank, "sleeps");
        assert!(
            all > 0 && 2 * looks(rank, what) > all,
            "rank {rank}: {json}"
        );
    }
    let hosts = json["hosts"].as_array().unwrap();
    assert_eq!(
        (hosts.len(), &hosts[0]["asked"]),
        (1, &100.into()),
        "{json}"
    );
    let taken = hosts[0]["looks"].as_u64().unwrap();
    assert!(0 < taken && taken <= 100, "{json}");
    assert_eq!(json["waits"][0]["name"], "MPI_Barrier", "{json}");
    let whole = json["functions"].as_array().unwrap();
    assert!(whole.iter().any(|f| f["name"] == "main()"), "{json}");
    let counted = &json["counted"];
    assert!(counted[1]["cpu_s"].as_f64().unwrap() > 0.0, "{json}");
    assert!(counted[1]["faults"].is_u64() && counted[2]["switches"].is_u64());
    let has_processor = counted[1]["processor"]["cycles"].is_u64();
    assert_ne!(has_processor, json["uncounted"].is_string(), "{json}");
    let text = profile(&[]);
    assert!(text.contains(" of 50 looks at ranks 0-2"), "{text}");
    let mut heads = text.lines().filter(|line| line.starts_with("A SECOND"));
    assert!(heads.next().is_some(), "{text}");
    let processor = if has_processor {
        "PROCESSOR "
    } else {
        "counters of the processor: "
    };
    assert!(text.contains(processor), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        text.contains("step()") && text.contains("MPI_Barrier"),
        "{text}"
    );
    let none = run(command(margay(), 30).args(["profile", "1"]));
    let err = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        !none.status.success() && err.contains("process 1 ("),
        "{err}"
    );
}

#[test]
fn an_error_names_the_lines_of_calls_that_do_not_match() {
    let built = Built::mpi("-O1 -g");
    let report = |what: &str| {
        let ended = Job::start(&Words::mpiexec(60, 2, &built.path(), what), 60).ended();
        assert!(!ended.status.success(), "{what}: {}", ended.err);
        ended.err
    };
    let err = report("further");
    let scatter = format!(
        "MPI_Scatter of 2 ranks, root 0, 4 bytes at {}",
        built.line("further")
    );
    let line = err
        .lines()
        .find(|line| line.contains("last operations of rank 0: "));
    assert!(
        line.is_some_and(|line| line.contains(&format!("{scatter}, then MPI_Allreduce"))),
        "{err}"
    );
    let err = report("differ");
    for (call, mark) in [("MPI_Allreduce", "allreduce"), ("MPI_Bcast", "bcast")] {
        let of_ranks = format!("{call} of 2 ranks");
        let line = err
            .lines()
            .find(|line| line.contains("last operation") && line.contains(&of_ranks));
        let at = format!(" at {}", built.line(mark));
        assert!(
            line.is_some_and(|line| line.contains(&at)),
            "{call}{at}: {err}"
        );
    }
}

#[test]
fn a_crash_shows_where_the_others_are() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(4, "barrier");
    let pids = job.ranks_when_ready(4);
    why(&job, |job| {
        places(job, "waiting")
            .iter()
            .any(|(ranks, _)| ranks == &[0, 2, 3])
    });
    send("SEGV", pids[1]);
    let Ended { status, err, .. } = job.ended();
    assert_eq!(status.code(), Some(139), "{err}");
    let others = format!(
        "mpiexec: meanwhile, ranks 0, 2, 3: waiting in MPI_Barrier for the other ranks at {} in main()",
        built.line("barrier")
    );
    assert_eq!(err.lines().last(), Some(&*others), "{err}");
}

#[test]
fn a_core_file_shows_where_a_rank_has_crashed() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") {
        return println!("note: core files are not written where the program runs");
    }
    let built = Built::mpi("-O2 -g");
    let limited = |limit: &str| {
        let words = Words::mpiexec(60, 2, &built.path(), "crash");
        let limited = words.after(&format!("{{ ulimit -c {limit} || exit 77; }}"));
        let mut command = limited.command(90);
        // The rank would write down by itself where it is.
        command.env("MARGAY_CRASH", "0");
        run(command.current_dir(built.folder.path()))
    };
    let output = limited("unlimited");
    if output.status.code() == Some(77) {
        return println!("note: core files are not allowed");
    }
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let place = built.line("crash");
    for line in [
        format!("mpiexec: rank 1 crashed at {place} in crash()\n"),
        format!("mpiexec:     crash() {place}\n"),
        "mpiexec:     main() hangs.c:".into(),
    ] {
        assert!(err.contains(&line), "{line}: {err}");
    }
    assert!(!err.contains("hint"), "{err}");
    let output = limited("0");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        err.contains("hint: allow core files (ulimit -c unlimited)"),
        "{err}"
    );
    assert!(!err.contains("crashed at"), "{err}");
}

#[test]
fn ranks_in_python_show_its_files_and_lines() {
    if !may_trace() {
        return;
    }
    let script = program("why").join("solver.py");
    let text = std::fs::read_to_string(&script).unwrap();
    let line = |mark: &str| {
        let is_it = |line: &str| line.ends_with(&format!("# LINE {mark}"));
        let at = text.lines().position(is_it).unwrap();
        format!("solver.py:{}", at + 1)
    };
    let library = stage().join("lib/libmpi_abi.so.1");
    let arguments = format!("{} {}", script.display(), library.display());
    let mut job = Job::start(
        &Words::mpiexec(100, 2, Path::new("python3"), &arguments),
        90,
    );
    job.until("ready", 2);
    let computes = format!("at {} in relax()", line("relax"));
    let waits = format!("at {} in exchange()", line("exchange"));
    let (json, shown) = why(&job, |job| {
        let of = |state: &str, text: &str| {
            let places = places(job, state);
            places.iter().any(|(_, place)| place.starts_with(text))
        };
        of("computing", &computes) && of("waiting", "at solver.py:")
    });
    let innermost = &places(&json, "waiting")[0].1;
    // Since 3.11 functions have the names of their classes.
    assert!(
        *innermost == waits || *innermost == waits.replace(" in ", " in Grid."),
        "{shown}"
    );
    for part in [
        format!("main() {}", line("main")),
        format!("<module> {}", line("script")),
    ] {
        assert!(shown.contains(&part), "{part}: {shown}");
    }
}

#[test]
fn a_message_with_another_tag_is_named() {
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(2, "tags");
    job.until("ready", 2);
    let (json, _) = why(&job, |job| job["deadlocks"] == serde_json::json!([[0, 1]]));
    let findings = json["findings"].as_array().unwrap();
    let tags = "rank 0 sends tag 8 to rank 1, which waits for tag 7 from it";
    assert!(findings.iter().any(|line| line == tags), "{findings:?}");
}

#[test]
fn the_operation_of_a_request_that_is_waited_for_is_named() {
    let built = Built::mpi("-O2 -g");
    let answer = |what: &str, expected: &[String]| {
        let mut job = built.start(2, what);
        job.until("ready", 2);
        let is_there = |job: &Value| {
            let classes = job["classes"].as_array().unwrap();
            let is = |text: &String| classes.iter().any(|class| class["waiting"] == **text);
            expected.iter().all(is)
        };
        why(&job, is_there);
    };
    let waitall = format!(
        "MPI_Waitall for rank 1, tag 7 (MPI_Irecv at {}, request 2 of 2)",
        built.line("second")
    );
    let wait = format!(
        "MPI_Wait for the other ranks (MPI_Ibcast with root 0 at {})",
        built.line("broadcast")
    );
    answer("requests", &[waitall, wait]);
    let persistent = format!(
        "MPI_Wait for rank 1, tag 5 (MPI_Recv_init at {}, started at {})",
        built.line("init"),
        built.line("start")
    );
    answer("persistent", &[persistent]);
}

#[test]
fn messages_that_nobody_has_asked_for_are_named() {
    let built = Built::mpi("-O2 -g");
    let mut job = Job::start(&Words::mpiexec(12, 2, &built.path(), "unexpected"), 60);
    job.until("ready", 2);
    let expected = [
        format!(
            "rank 1 has 1 message from rank 0 with tag 8 (MPI_Send at {}) that no receive matches; it waits for tag 7",
            built.line("tag")
        ),
        format!(
            "rank 1 has 2 messages from rank 0 with tag 7 (MPI_Send at {}) that no receive matches; it waits for one on another communicator",
            built.line("communicator")
        ),
    ];
    let (_, text) = why(&job, |job| job["unexpected"] == serde_json::json!(expected));
    for line in &expected {
        assert!(text.contains(line), "{text}");
    }
    let err = job.ended().err;
    for line in &expected {
        // Of the deadlock, and of the time limit.
        assert_eq!(err.matches(line).count(), 2, "{err}");
    }
}

#[test]
fn without_debug_information_functions_are_named() {
    if !may_trace() {
        return;
    }
    let place = |flags: &str, strips: bool| {
        let built = Built::mpi(flags);
        if strips {
            succeed(command("strip", 30).arg(built.path()));
        }
        let mut job = built.start(2, "receives");
        job.until("ready", 2);
        let (json, _) = why(&job, |job| places(job, "waiting").len() == 2);
        places(&json, "waiting").remove(0).1
    };
    assert_eq!(place("-O2", false), "in receive() of program");
    let stripped = place("-O2 -g", true);
    assert!(stripped.starts_with("at program+0x"), "{stripped}");
    let built = Built::mpi("-O0 -g -gz -gdwarf-4 -fno-omit-frame-pointer");
    let compressed = place("-O0 -g -gz -gdwarf-4 -fno-omit-frame-pointer", false);
    assert_eq!(
        compressed,
        format!("at {} in receive()", built.line("receive"))
    );
}

#[test]
fn debug_information_may_be_in_a_file_of_its_own() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let separate = built.folder.path().join("program.debug");
    let objcopy = |arguments: &[&str]| succeed(command("objcopy", 30).args(arguments));
    let (program, debug) = (built.path(), separate.to_str().unwrap().to_owned());
    let program = program.to_str().unwrap();
    objcopy(&["--only-keep-debug", program, &debug]);
    objcopy(&["--strip-all", program]);
    objcopy(&[&format!("--add-gnu-debuglink={debug}"), program]);
    let mut job = built.start(2, "receives");
    job.until("ready", 2);
    let (json, _) = why(&job, |job| places(job, "waiting").len() == 2);
    let place = format!("at {} in receive()", built.line("receive"));
    assert_eq!(places(&json, "waiting")[0].1, place);
}

#[test]
fn names_of_cpp_and_fortran_are_those_of_the_source() {
    if !may_trace() {
        return;
    }
    let built = Built::by("c++", "mesh.cpp", "-O2 -g");
    let mut job = built.start(2, "");
    job.until("ready", 2);
    let (json, text) = why(&job, |job| places(job, "starting").len() == 1);
    let place = &places(&json, "starting")[0];
    assert_eq!(place.0, [0, 1], "{text}");
    assert!(place.1.ends_with("in mesh::Grid<>::smooth()"), "{text}");
    if !Path::new("/usr/bin/gfortran").exists() {
        return println!("note: no gfortran");
    }
    let built = Built::by("mpifort", "mesh.f90", "-O2 -g -fno-inline");
    let mut job = built.start(3, "");
    job.until("ready", 3);
    let (json, text) = why(&job, |job| {
        places(job, "waiting").len() == 1 && job["late"][0]["rank"] == 1
    });
    let waiting = &places(&json, "waiting")[0];
    let barrier = format!("at {}", built.line("barrier"));
    assert!(waiting.1.starts_with(&barrier), "{text}");
    let late = &places(&json, "computing")[0].1;
    assert!(late.ends_with("in mesh::smooth()"), "{text}");
}

#[test]
fn nodes_of_nx_have_lines_too() {
    if !may_trace() {
        return;
    }
    let built = Built::by("mpicc", "receives.c", "-O2 -g");
    let mut job = built.start(2, "");
    job.until("ready", 2);
    let (json, text) = why(&job, |job| !places(job, "waiting").is_empty());
    let place = format!("at {} in main()", built.line("receive"));
    assert_eq!(places(&json, "waiting")[0].1, place, "{text}");
    assert!(text.contains("crecv"), "{text}");
}

/// A program that knows nothing of the library, and has all others in it.
#[test]
fn static_programs_have_lines() {
    if !may_trace() {
        return;
    }
    let flags = "-static -O1 -g";
    let folder = scratch();
    let probe = folder.path().join("probe.cpp");
    std::fs::write(&probe, "int main() {}").unwrap();
    let works = run(command("c++", 60)
        .args(["-static", "-o", "/dev/null"])
        .arg(&probe));
    if !works.status.success() {
        return println!("note: no static libraries");
    }
    let built = Built::by("c++", "mesh.cpp", flags);
    let mut job = built.start(1, "");
    job.until("ready", 1);
    let (json, _) = why(&job, |job| places(job, "starting").len() == 1);
    let place = &places(&json, "starting")[0].1;
    assert!(
        place.starts_with("at mesh.cpp:") && place.contains("smooth"),
        "{place}"
    );
}

#[test]
fn a_stopped_rank_stays_stopped_and_goes_on_later() {
    if !may_trace() {
        return;
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(2, "barrier");
    let pids = job.ranks_when_ready(2);
    send("STOP", pids[1]);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[1])).unwrap();
        stat[stat.rfind(')').unwrap() + 2..].chars().next().unwrap()
    };
    let (_, text) = why(&job, |job| !places(job, "stopped").is_empty());
    assert!(
        text.contains("rank 1 is stopped by a signal at hangs.c:"),
        "{text}"
    );
    // Who has looked lets it go, and it runs for a moment until it finds that it is to stand.
    let began = std::time::Instant::now();
    while state() != 'T' {
        assert!(began.elapsed().as_secs() < 20, "it goes on");
        std::thread::yield_now();
    }
    send("CONT", pids[1]);
    why(&job, |job| !places(job, "computing").is_empty());
}

#[test]
fn a_rank_under_a_debugger_is_left_alone() {
    if !may_trace() || !Path::new("/usr/bin/gdb").exists() {
        return println!("note: no gdb");
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(2, "receives");
    let pids = job.ranks_when_ready(2);
    let mut gdb = Command::new("gdb")
        .args(["-q", "-nx", "-p", &pids[0].to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A process has one tracer: gdb would not wait for `margay why` to let go of it.
    let status = format!("/proc/{}/status", pids[0]);
    let traced = format!("TracerPid:\t{}\n", gdb.id());
    let is_traced = || std::fs::read_to_string(&status).is_ok_and(|text| text.contains(&traced));
    let start = Instant::now();
    while !is_traced() {
        assert!(start.elapsed().as_secs() < 60, "gdb does not attach");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (json, text) = why(&job, |job| {
        job["unread"].as_array().is_some_and(|u| !u.is_empty())
    });
    let why_not = json["unread"][0]["why"].as_str().unwrap();
    assert!(
        why_not.contains(&format!("process {} traces it", gdb.id())),
        "{text}"
    );
    gdb.kill().unwrap();
    gdb.wait().unwrap();
}

#[test]
fn jobs_that_are_not_there_are_answered_in_a_line() {
    let refused = |number: u32| {
        let output = run(command(margay(), 30).args(["why", &number.to_string()]));
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let text = refused(ended.id());
    assert!(text.starts_with("margay: there is no job "), "{text}");
    let text = refused(std::process::id());
    assert!(text.contains("is no launcher of a job"), "{text}");
}

#[test]
fn the_jobs_of_other_users_are_refused() {
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    if !Words::from(nobody).and_all("true").work() {
        return println!("note: not root, so there is no other user to be");
    }
    let built = Built::mpi("-O2 -g");
    let mut job = built.start(2, "receives");
    job.until("ready", 2);
    // The stage tree may lie where nobody else can read.
    let copy = built.folder.path().join("margay");
    succeed(command("cp", 30).arg(margay()).arg(&copy));
    let output = run(&mut Words::from(nobody)
        .and(&copy)
        .and_all(&format!("why {}", job.pid()))
        .command(30));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(
        out.is_empty() && err.contains("belongs to another user"),
        "{out}{err}"
    );
}
