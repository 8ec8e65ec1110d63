//! Ranks with teams of OpenMP: what `margay why` and profiles show of their members.

use std::path::PathBuf;

use margay_tests::hangs::Built;
use margay_tests::jobs::{Job, Words};
use margay_tests::{command, run, stage};
use serde_json::Value;

fn margay() -> PathBuf {
    stage().join("bin/margay")
}

fn build() -> Built {
    Built::by("mpicc", "hybrid.c", "-O1 -g -fopenmp")
}

#[test]
fn members_of_openmp_are_shown_with_their_waits_and_lines() {
    let built = build();
    let words = Words::mpiexec(100, 2, &margay(), "omp").and(built.path());
    let mut job = Job::start(&words.and_all("hangs"), 90);
    job.until("ready", 1);
    let pid = job.pid().to_string();
    let why = |options: &[&str]| {
        let output = run(command(margay(), 30).arg("why").args(options).arg(&pid));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let is_at = |job: &Value, mark: &str, waits_for: &str| {
        let members = job["teams"][0]["teams"][0]["members"].as_array();
        let place = format!("at {} in ", built.line(mark));
        members.into_iter().flatten().any(|of| {
            let text = of["text"].as_str().unwrap_or_default();
            text.starts_with(&place) && of["waits_for"] == waits_for
        })
    };
    // A member takes a while to get where it stays.
    let found = (0..200).find_map(|_| {
        let all: Value = serde_json::from_str(&why(&["--json"])).ok()?;
        let job = all["jobs"][0].clone();
        (is_at(&job, "barrier", "barrier") && is_at(&job, "receive", "")).then_some(job)
    });
    let text = why(&[]);
    if text.contains("no stack of rank 0: the system forbids") {
        println!("note: no process may be traced here; nothing is tested");
        return;
    }
    let found = found.unwrap_or_else(|| panic!("never as wanted: {text}"));
    let teams = found["teams"].as_array().unwrap();
    assert_eq!(teams.len(), 1, "{text}");
    assert_eq!(teams[0]["ranks"], serde_json::json!([0]));
    for line in [
        "OpenMP in rank 0: team 1, 4 members of hangs._omp_fn.0\n".to_owned(),
        format!(": waits: barrier at {} in meet()\n", built.line("barrier")),
        format!(
            " at {} in hangs (parallel region)()\n",
            built.line("receive")
        ),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}
