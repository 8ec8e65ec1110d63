//! Environments of Python with packages from the index, kept in `target` between runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, run, succeed};

/// A folder in `target` for what tests fetch.
///
/// # Panics
/// When it cannot be made.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target")
        .join(name);
    fs::create_dir_all(&folder).expect("a folder in target");
    folder.canonicalize().expect("it was made just now")
}

/// The environment `target/NAME/venv` with these packages, made once.
///
/// # Panics
/// When a package cannot be fetched.
pub fn environment(name: &str, packages: &[&str]) -> PathBuf {
    let folder = folder(name);
    let venv = folder.join("venv");
    // Tests run side by side; the first one makes it.
    let lock = File::create(folder.join("lock")).expect("a file in target");
    lock.lock().expect("a lock on a file of our own");
    let file = folder.join("has");
    let mark = packages.join("\n");
    if fs::read_to_string(&file).is_ok_and(|old| old == mark) {
        return venv;
    }
    let _ = fs::remove_file(&file);
    empty(&venv);
    fetch(pip(&venv, 300).arg("install").args(packages));
    fs::write(&file, mark).expect("a file in target");
    venv
}

/// Makes an environment without packages unless it is there.
///
/// # Panics
/// When Python cannot.
pub fn empty(venv: &Path) {
    if !venv.join("bin/python").exists() {
        succeed(command("python3", 120).args(["-m", "venv"]).arg(venv));
    }
}

/// The environment's `pip`.
pub fn pip(venv: &Path, limit_s: u32) -> Command {
    let mut pip = command(venv.join("bin/python"), limit_s);
    pip.args(["-m", "pip", "--disable-pip-version-check"]);
    pip
}

/// Runs what needs the package index.
///
/// # Panics
/// When it fails, with the remedy.
pub fn fetch(command: &mut Command) {
    let output = run(command);
    assert!(
        output.status.success(),
        "a package cannot be fetched; this test needs the Python package index once, later what is in target serves\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
