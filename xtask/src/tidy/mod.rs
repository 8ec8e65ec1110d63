//! The rules of the house that a program can check. `ARCHITECTURE.md` says what they are and why.
//!
//! | module | rules |
//! | --- | --- |
//! | [`registry`] | which code may touch the registry in the shared segment; all other code asks `Peers` |
//! | [`rust`] | where unsafe code and system calls may stand, what is left open, tests that are switched off |
//! | [`layers`] | the direction in which crates depend on each other; every crate is in the workspace |
//! | [`pure`] | `core/` reads no clock and asks no operating system |
//! | [`fuzz`] | every fuzz target is run |
//! | [`map`] | the README's map names what is there |
//! | [`size`] | the length of functions and files, the number of a struct's fields |
//! | [`statics`] | state hangs off values: no mutable statics |
//! | [`links`] | links between pages, in the checkout and in the installed tree |
//! | [`text`] | what must not stand in any file; scripts |
//! | [`vocabulary`] | words that have a standard one instead |
//! | [`waits`] | the list of the places that wait |

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use ignore::WalkBuilder;

pub mod fuzz;
pub mod layers;
pub mod links;
pub mod map;
pub mod pure;
pub mod registry;
pub mod rust;
pub mod size;
pub mod statics;
pub mod text;
pub mod vocabulary;
pub mod waits;

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the workspace.
    pub path: String,
    /// Line, from 1; 0: the file as a whole.
    pub line: usize,
    /// The rule and what breaks it, with the remedy.
    pub what: String,
}

impl Finding {
    /// Returns a finding at a line, or with 0 about the whole file.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A file of the project: its path from the root, with `/`, and its bytes.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root of the workspace.
    pub path: String,
    /// The text; `None` when it is not UTF-8.
    pub text: Option<String>,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A file of a test's house.
#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> File {
    File {
        path: path.into(),
        text: Some(text.into()),
        executable: false,
    }
}

/// Checks the workspace at `root`: all files that git would not ignore.
///
/// # Errors
/// When files or the workspace's metadata cannot be read; broken rules are no errors but findings.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = files(root)?;
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()?;
    let crates = layers::crates(&metadata, root);
    let mut findings = layers::check(&crates);
    findings.extend(layers::check_members(&crates, &files));
    findings.extend(fuzz::check(&files));
    findings.extend(map::check(&files));
    findings.extend(statics::check(&files));
    findings.extend(links::check(&files));
    findings.extend(waits::check(&files));
    for file in &files {
        findings.extend(text::check(file));
        findings.extend(vocabulary::check(file));
        findings.extend(size::check(file));
        findings.extend(registry::check(file));
        if file.path.ends_with(".rs") {
            let text = file.text.as_deref().unwrap_or("");
            findings.extend(rust::check(&file.path, text));
            findings.extend(pure::check(&file.path, text));
        }
    }
    for root_file in crates.iter().flat_map(|each| &each.roots) {
        let text = files
            .iter()
            .find(|file| file.path == *root_file)
            .and_then(|file| file.text.as_deref());
        findings.extend(rust::check_root(root_file, text.unwrap_or("")));
    }
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Returns all files of the workspace at `root` that git would not ignore.
///
/// # Errors
/// When one cannot be read.
pub fn files(root: &Path) -> Result<Vec<File>> {
    use std::os::unix::fs::PermissionsExt;
    let mut files = Vec::new();
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .require_git(false)
        .filter_entry(|e| e.file_name() != ".git")
        .build();
    for entry in walk {
        let entry = entry?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        let shown = path
            .strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        let bytes = std::fs::read(path).with_context(|| shown.clone())?;
        let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
        files.push(File {
            path: shown,
            text: String::from_utf8(bytes).ok(),
            executable,
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
