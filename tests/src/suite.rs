//! Test programs that run once more, in another surrounding.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use crate::{command, run};

/// The test program of a name that was built last.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let folder = own.parent().expect("it is in a folder");
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let hash = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('-'));
        hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let all = entries.map(|entry| entry.expect("an entry").path());
    let when = |path: &PathBuf| {
        let changed = path.metadata().and_then(|of| of.modified());
        changed.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let last = all.filter(is_it).max_by_key(when);
    last.unwrap_or_else(|| {
        panic!("the test program {name} is not built: cargo test -p margay-tests --no-run")
    })
}

/// A test program, without some of its tests.
///
/// # Panics
/// When it is not built.
pub fn of(name: &str, without: &[&str]) -> Command {
    let mut tests = command(built(name), 900);
    tests.args(["--exact"]);
    for test in without {
        tests.args(["--skip", test]);
    }
    tests
}

/// Runs a test program, and prints how many tests have passed.
///
/// # Panics
/// When one has failed.
pub fn passes(name: &str, tests: &mut Command, place: &str) {
    let output = run(tests);
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {place}:\n{out}{err}");
    let counts = out.lines().find(|line| line.starts_with("test result"));
    println!("{name} {place}: {}", counts.unwrap_or_default());
}
