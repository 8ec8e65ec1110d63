//! `mpiexec -profile` of programs that are slow for one cause each: the first line of WHY names the
//! rank, and the line of its work or of its late call.

use std::path::Path;

use margay_tests::{command, program, run, scratch, stage, succeed};

/// A word of the program, the ranks that are late, and what that is; empty where more than one
/// name is right.
const CAUSES: [(&str, &str, &str); 20] = [
    ("late-sender", "rank 1", ""),
    ("late-isend", "rank 2", ""),
    ("late-receiver", "rank 0", ""),
    ("large-message", "rank 2", ""),
    ("barrier", "rank 2", "load imbalance"),
    ("allreduce", "rank 1", "load imbalance"),
    ("alltoall", "rank 3", "load imbalance"),
    ("iallreduce", "rank 3", "load imbalance"),
    ("late-root", "rank 0", "late broadcast"),
    ("scatter", "rank 1", "late broadcast"),
    ("early-reduce", "rank 3", ""),
    ("gather", "rank 2", ""),
    ("chain", "ranks 0-2", "serialisation"),
    ("server", "rank 0", ""),
    ("order", "rank 0", "wrong order"),
    ("lock", "rank", "serialisation"),
    ("post", "rank 1", ""),
    ("file", "rank 2", ""),
    ("faults", "rank 1", "load imbalance"),
    ("flood", "rank 0", ""),
];

/// The lines of the first cause.
fn first_cause(folder: &Path, word: &str) -> String {
    let mut job = command(stage().join("bin/mpiexec"), 120);
    job.args(["-n", "4", "-profile"]).arg(folder.join("causes"));
    let output = run(job.arg(word).current_dir(folder));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{word}: {text}");
    let why = text.lines().skip_while(|line| *line != "WHY").skip(1);
    let mut number = 0;
    let first = why.take_while(|line| {
        number += 1;
        number == 1 || line.starts_with("    ")
    });
    first.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_first_cause_is_the_one_that_was_planted() {
    let folder = scratch();
    let source = program("trace").join("causes.c");
    let mpicc = stage().join("bin/mpicc");
    succeed(
        command(mpicc, 300)
            .args(["-g", "-O1", "-o"])
            .arg(folder.path().join("causes"))
            .arg(&source),
    );
    let source = std::fs::read_to_string(source).unwrap();
    let mut wrong = Vec::new();
    for (word, ranks, what) in CAUSES {
        let mark = format!("LINE {word} */");
        let line = source
            .lines()
            .position(|line| line.contains(&mark))
            .unwrap()
            + 1;
        let cause = first_cause(folder.path(), word);
        let is_named = cause.contains(&format!("{what}: {ranks}"))
            || what.is_empty() && cause.contains(&format!(": {ranks} at "));
        if !is_named || !cause.contains(&format!("causes.c:{line}")) {
            wrong.push(format!("{word} (line {line}):\n{cause}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
