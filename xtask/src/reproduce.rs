//! Whether the build can be reproduced: the same commit, built in another folder, makes the same
//! bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::output;
use crate::stage;
use crate::{debug_info, wheel, workspace};

/// Builds stage tree and wheel here and of a clone of the last commit in another folder, and
/// compares them byte by byte.
///
/// # Errors
/// When there is something that is not committed, a build fails, or the two differ.
pub fn run() -> Result<()> {
    let git =
        |arguments: &[&str]| output(Command::new("git").current_dir(workspace()).args(arguments));
    if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
        bail!("there are changes that are not committed, which a clone does not have; commit them");
    }
    let scratch = tempfile::tempdir()?;
    let clone = scratch.path().join("a clone in another folder");
    let there = clone.to_str().context("a folder whose name is no text")?;
    git(&["clone", "--quiet", "--no-hardlinks", ".", there])?;

    let tree = stage::folder();
    stage::build(&tree)?;
    let own = wheel::build(&tree, &scratch.path().join("dist"))?;
    for task in ["stage", "wheel"] {
        eprintln!(
            "reproduce: cargo xtask {task} in a clone, {there}: some minutes, in which cargo may be silent"
        );
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let done = cargo
            .current_dir(&clone)
            .args(["xtask", task])
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("MARGAY_STAGE")
            .status()?;
        if !done.success() {
            bail!("cargo xtask {task} failed in {there}");
        }
    }
    let again = clone.join("stage");
    let mut findings = differences(&tree, &again)?;
    findings.extend(differences(
        &debug_info::folder(&tree)?,
        &debug_info::folder(&again)?,
    )?);
    findings.extend(differences(
        &scratch.path().join("dist"),
        &clone.join("dist"),
    )?);
    if !findings.is_empty() {
        bail!("the second build differs:\n{}", findings.join("\n"));
    }
    println!(
        "the same bytes from two folders: {} and {}",
        tree.display(),
        own.file_name().unwrap_or_default().display()
    );
    Ok(())
}

/// Returns the files and links in which two folders differ.
fn differences(a: &Path, b: &Path) -> Result<Vec<String>> {
    let (first, second) = (contents(a)?, contents(b)?);
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let mut findings = Vec::new();
    for name in names {
        match (first.get(name), second.get(name)) {
            (Some(one), Some(other)) if one == other => {}
            (Some(Entry::File(one)), Some(Entry::File(other))) => {
                let same = one.iter().zip(other).take_while(|(x, y)| x == y).count();
                findings.push(format!("{name} differs from byte {same} on"));
            }
            (Some(_), Some(_)) => findings.push(format!("{name} differs")),
            (Some(_), None) => findings.push(format!("{name} is missing in {}", b.display())),
            _ => findings.push(format!("{name} is missing in {}", a.display())),
        }
    }
    Ok(findings)
}

#[derive(PartialEq, Eq)]
enum Entry {
    File(Vec<u8>),
    Link(PathBuf),
}

/// Everything below a folder by its path inside.
fn contents(folder: &Path) -> Result<BTreeMap<String, Entry>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in
            fs::read_dir(&next).with_context(|| format!("{}: cannot be read", next.display()))?
        {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let inside = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                all.insert(inside, Entry::Link(fs::read_link(&path)?));
            } else {
                all.insert(inside, Entry::File(fs::read(&path)?));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_kind_of_difference_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for tree in [&a, &b] {
            fs::create_dir_all(tree.join("lib")).unwrap();
            fs::write(tree.join("lib/x"), "the same").unwrap();
            symlink("x", tree.join("lib/link")).unwrap();
        }
        assert_eq!(differences(&a, &b).unwrap(), Vec::<String>::new());
        fs::write(b.join("lib/x"), "the sand").unwrap();
        fs::write(a.join("only"), "").unwrap();
        fs::remove_file(b.join("lib/link")).unwrap();
        symlink("y", b.join("lib/link")).unwrap();
        assert_eq!(
            differences(&a, &b).unwrap(),
            [
                "lib/link differs".to_owned(),
                "lib/x differs from byte 6 on".to_owned(),
                format!("only is missing in {}", b.display()),
            ]
        );
    }
}
