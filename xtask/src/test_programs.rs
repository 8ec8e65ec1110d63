//! All tests of the workspace, several test programs at a time.
//!
//! `cargo test` runs one test program after the other, and the tests of jobs wait more than they
//! compute: for a time limit, for a report after two seconds, for a host that does not answer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, MetadataCommand};

use crate::workspace;

/// Programs whose single tests take a minute or more: begun last, they would run alone at the end.
const FIRST: [&str; 2] = ["tests/tests/mpi4py.rs", "run/threads/tests/random.rs"];

/// The programs that take longest are listed at the end, this many.
const LISTED: usize = 12;

/// A test program, or the doc tests of all crates.
struct Program {
    name: String,
    command: Command,
}

/// How a program ended.
struct Ended {
    name: String,
    took: Duration,
    /// What went wrong, if something did.
    failure: Option<String>,
}

/// Builds all tests of the workspace and runs them, `at_once` programs at a time, and among them
/// the commands `beside`, which are lines of the shell. The output of each is printed whole when it
/// has ended.
///
/// # Errors
/// When the tests cannot be built, or some fail: all others are run nevertheless.
pub fn run(at_once: usize, beside: &[String]) -> Result<()> {
    let mut all: Vec<Program> = beside.iter().map(|line| shell(line)).collect();
    all.extend(programs()?);
    conclude(run_all(all, at_once))
}

fn run_all(programs: Vec<Program>, at_once: usize) -> Vec<Ended> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                // The lock is held for this call alone.
                let take = || locked(&waiting).pop_front();
                while let Some(mut next) = take() {
                    let since = Instant::now();
                    let result = finish(&mut next.command);
                    let took = since.elapsed();
                    // One after the other: outputs are not mixed.
                    let mut all = locked(&ended);
                    all.push(report(next.name, took, result));
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the test programs. Those of jobs come first: they take longest.
fn programs() -> Result<Vec<Program>> {
    let mut cargo = cargo();
    cargo.args([
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let mut building = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    let messages = BufReader::new(building.stdout.take().context("it is piped")?);
    let mut all = Vec::new();
    for message in Message::parse_stream(messages) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
            && let Some(executable) = artifact.executable
        {
            let folder = artifact
                .manifest_path
                .parent()
                .context("a crate's folder")?;
            let source = artifact.target.src_path;
            let name = source.strip_prefix(workspace()).unwrap_or(&source);
            let mut command = Command::new(&executable);
            command
                .current_dir(folder)
                .env("CARGO_MANIFEST_DIR", folder);
            all.push(Program {
                name: name.to_string(),
                command,
            });
        }
    }
    let status = building.wait()?;
    if !status.success() {
        bail!("the tests cannot be built: {status}");
    }
    all.extend(doc_tests()?);
    all.sort_by_key(|program| {
        let name = &program.name;
        (
            !FIRST.contains(&name.as_str()),
            !name.starts_with("tests/"),
            name.clone(),
        )
    });
    Ok(all)
}

/// Runs the doc tests of the crates that have some. Rustdoc takes half a second to find that a
/// crate has none.
fn doc_tests() -> Result<Option<Program>> {
    let metadata = MetadataCommand::new()
        .current_dir(workspace())
        .no_deps()
        .exec()?;
    let mut command = cargo();
    command.args(["test", "--doc"]);
    let mut names = Vec::new();
    for package in &metadata.packages {
        let libraries = (package.targets.iter()).filter(|target| target.is_lib() && target.doctest);
        for library in libraries {
            let root = library.src_path.as_std_path();
            if has_doc_tests(root.parent().context("a crate's folder")?)? {
                command.args(["-p", package.name.as_str()]);
                names.push(package.name.to_string());
            }
        }
    }
    let name = format!("doc tests of {}", names.join(", "));
    Ok((!names.is_empty()).then_some(Program { name, command }))
}

fn has_doc_tests(sources: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(sources)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            has_doc_tests(&path)?
        } else {
            path.extension() == Some("rs".as_ref())
                && tests_in_docs(&std::fs::read_to_string(path)?)
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a block in a doc comment is one that rustdoc runs or compiles.
fn tests_in_docs(source: &str) -> bool {
    let mut is_in_block = false;
    source.lines().any(|line| {
        let line = line.trim_start();
        let doc = line.strip_prefix("//!").or(line.strip_prefix("///"));
        let Some(language) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else {
            return false;
        };
        is_in_block = !is_in_block;
        is_in_block && language.trim() != "text"
    })
}

fn shell(line: &str) -> Program {
    let mut command = Command::new("sh");
    command.current_dir(workspace()).args(["-c", line]);
    Program {
        name: line.to_owned(),
        command,
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// Runs a program to its end. Returns what it printed, and how it failed if it did.
fn finish(command: &mut Command) -> Result<(String, Option<String>)> {
    // A file and no pipe: what a test leaves running cannot hold up the end.
    let mut output = tempfile::tempfile()?;
    let status = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .status()
        .with_context(|| format!("{command:?} cannot be started"))?;
    let text = whole(&mut output)?;
    Ok((text, (!status.success()).then(|| status.to_string())))
}

fn whole(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn report(name: String, took: Duration, result: Result<(String, Option<String>)>) -> Ended {
    let (text, failure) = match result {
        Ok(done) => done,
        Err(error) => (String::new(), Some(format!("{error:#}"))),
    };
    println!("     Running {name}\n{}", text.trim_end());
    if let Some(failure) = &failure {
        println!("FAILED: {name}: {failure}");
    }
    println!();
    Ended {
        name,
        took,
        failure,
    }
}

/// Lists what took longest, and what failed.
fn conclude(mut ended: Vec<Ended>) -> Result<()> {
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("{} test programs; the longest:", ended.len());
    for one in ended.iter().take(LISTED) {
        println!("{:8.1} s  {}", one.took.as_secs_f64(), one.name);
    }
    let mut failed: Vec<String> = (ended.iter())
        .filter_map(|one| Some(format!("{}: {}", one.name, one.failure.as_ref()?)))
        .collect();
    failed.sort();
    if !failed.is_empty() {
        bail!("{} failed:\n{}", failed.len(), failed.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, script: &str) -> Program {
        let mut command = Command::new("timeout");
        command.args(["60", "sh", "-c", script]);
        Program {
            name: name.to_owned(),
            command,
        }
    }

    /// Each waits for the other one.
    #[test]
    fn programs_run_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let both = [("a", "b"), ("b", "a")].map(|(own, other)| {
            let wait = format!("touch {own}; while [ ! -e {other} ]; do sleep 0.01; done");
            let mut program = program(own, &wait);
            program.command.current_dir(folder.path());
            program
        });
        let ended = run_all(both.into(), 2);
        assert!(ended.iter().all(|one| one.failure.is_none()));
        conclude(ended).unwrap();
    }

    #[test]
    fn a_failure_stops_no_other_and_is_named_with_its_reason() {
        let all = [("a", "exit 3"), ("b", "true"), ("c", "kill -9 $$")];
        let ended = run_all(all.map(|(name, what)| program(name, what)).into(), 1);
        assert_eq!(ended.len(), 3);
        let said = conclude(ended).unwrap_err().to_string();
        assert!(
            said.starts_with("2 failed:\na: exit status: 3\nc: "),
            "{said}"
        );
        let missing = Program {
            name: "d".to_owned(),
            command: Command::new("/no/such/program"),
        };
        let said = conclude(run_all(vec![missing], 1)).unwrap_err().to_string();
        assert!(said.contains("cannot be started"), "{said}");
    }

    #[test]
    fn doc_tests_are_found_in_doc_comments_alone() {
        for (source, wanted) in [
            ("//! ```\n//! f();\n//! ```\n", true),
            ("    /// ```no_run\n    /// f();\n    /// ```\n", true),
            ("/// ```text\n/// f()\n/// ```\nfn f() {}\n", false),
            (
                "/// ```text\n/// a\n/// ```\n/// ```\n/// f();\n/// ```\n",
                true,
            ),
            ("// ```\nlet text = \"```\";\n", false),
        ] {
            assert_eq!(tests_in_docs(source), wanted, "{source}");
        }
        let found = doc_tests().unwrap().unwrap();
        assert!(found.name.contains("margay-run-threads"), "{}", found.name);
    }

    #[test]
    fn what_a_program_prints_is_kept_whole() {
        let mut printing = program("a", "echo out; echo err >&2; exit 1");
        let (text, failure) = finish(&mut printing.command).unwrap();
        assert_eq!((text.as_str(), failure.is_some()), ("out\nerr\n", true));
    }
}
