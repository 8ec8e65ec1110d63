//! The flight recorder of ranks in Python: calls have the lines of Python, not those of the module
//! by which it calls.

use std::path::Path;

use margay_tests::jobs::{Ended, Job, Words};
use margay_tests::{command, program, scratch, stage, succeed};
use serde_json::Value;

/// `calls.py:15`: the line that the comment marks.
fn line(mark: &str) -> String {
    let text = std::fs::read_to_string(program("why").join("calls.py")).unwrap();
    let is_it = |line: &str| line.ends_with(&format!("# LINE {mark}"));
    let at = text.lines().position(is_it).unwrap();
    format!("calls.py:{}", at + 1)
}

/// The launcher with options, then the program.
fn words(options: &str, more: &str) -> Words {
    let mpiexec = Words::default().and(stage().join("bin/mpiexec"));
    mpiexec
        .and_all(&format!("-timeout 100 -n 2 {options}"))
        .and(Path::new("python3"))
        .and(program("why").join("calls.py"))
        .and(stage().join("lib/libmpi_abi.so.1"))
        .and_all(more)
}

#[test]
fn a_profile_and_a_trace_have_the_lines_of_python() {
    let folder = scratch();
    let (json, trace) = (folder.path().join("p.json"), folder.path().join("t.mtrace"));
    let options = format!("-profile={} -trace {}", json.display(), trace.display());
    let Ended { status, err, .. } = Job::start(&words(&options, ""), 90).ended();
    assert!(status.success(), "{err}");
    let profile: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for (call, mark, calls) in [
        ("MPI_Send", "send", 10),
        ("MPI_Recv", "receive", 10),
        ("MPI_Barrier", "thread", 2),
    ] {
        let sites = profile["sites"].as_array().unwrap().iter();
        let of: Vec<&Value> = sites.filter(|site| site["call"] == call).collect();
        assert_eq!(of.len(), 1, "{profile}");
        assert_eq!(of[0]["place"], line(mark), "{profile}");
        assert_eq!(of[0]["calls"], calls, "{profile}");
    }
    // The source comes with the trace.
    let page = folder.path().join("t.html");
    let mut view = command(stage().join("bin/margay"), 30);
    succeed(view.arg("view").arg(&trace).arg("--html").arg(&page));
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("# LINE receive"), "the source is in the page");
}

#[test]
fn the_last_calls_have_the_lines_of_python() {
    let mut job = Job::start(&words("", "wait"), 90);
    job.until("ready", 2);
    let pid = job.pid().to_string();
    let calls = || {
        let mut why = command(stage().join("bin/margay"), 30);
        let text = succeed(why.args(["why", "--calls=2", "--json", &pid]));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let waits = |rank: &Value| {
        let last = rank["calls"].as_array().and_then(|calls| calls.last());
        last.is_some_and(|last| {
            last["call"] == "MPI_Recv"
                && last["took_s"].is_null()
                && last["place"] == line("receive")
        })
    };
    let all_wait = || {
        let all = calls();
        let ranks = all["jobs"][0]["ranks"].as_array().unwrap();
        ranks.len() == 2 && ranks.iter().all(waits)
    };
    assert!((0..200).any(|_| all_wait()), "{}", calls());
}
