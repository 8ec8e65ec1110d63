//! Recorded workloads through the scheduler of the queue.
#![forbid(unsafe_code)]

use std::fs;

use margay_tests::{command, run, stage};
use serde_json::Value;

#[test]
fn recorded_workloads_are_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let make = ["make-log", "300", "64", "1"];
    let log = run(command(stage().join("bin/margay-queue"), 60).args(make));
    assert!(log.status.success());
    let file = folder.path().join("log.swf");
    fs::write(&file, &log.stdout).unwrap();
    let replay = || {
        let mut margay = command(stage().join("bin/margay"), 60);
        run(margay.args(["queue", "--json", "--replay"]).arg(&file))
    };
    let rows: Vec<Value> = serde_json::from_slice(&replay().stdout).unwrap();
    let kinds: Vec<&str> = rows
        .iter()
        .map(|row| row["backfill"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["none", "easy", "conservative"]);
    for row in &rows {
        let (jobs, delays) = (row["jobs"].as_u64(), row["delays"].as_u64());
        assert_eq!((jobs, delays), (Some(300), Some(0)), "{row}");
    }
    fs::write(&file, "1 2 3\n").unwrap();
    let refused = replay();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("line 1"),
        "{text}"
    );
}
