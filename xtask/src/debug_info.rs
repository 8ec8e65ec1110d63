//! Debug information apart: what debuggers read goes to a file of its own, and the program keeps
//! that file's name.
//!
//! The files stand in a tree like the stage tree, in folders `.debug`, where debuggers look for
//! them when they are copied over it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::output;
use crate::put::put;

/// Returns the folder beside the stage tree.
///
/// # Errors
/// When the tree's folder has no name.
pub fn folder(stage: &Path) -> Result<PathBuf> {
    let mut name = stage
        .file_name()
        .with_context(|| format!("{}: a folder without a name", stage.display()))?
        .to_owned();
    name.push("-debug");
    Ok(stage.with_file_name(name))
}

/// Puts a program or library into the tree at `inside`, and its debug information beside the tree.
///
/// # Errors
/// When binutils are missing, or a file cannot be written.
pub fn split(built: &Path, stage: &Path, inside: &str) -> Result<()> {
    let inside = Path::new(inside);
    let name = inside.file_name().context("a path without a name")?;
    let name = format!("{}.debug", name.to_string_lossy());
    let part = inside.parent().unwrap_or(Path::new(""));
    let scratch = tempfile::tempdir()?;
    let (debug, program) = (scratch.path().join(&name), scratch.path().join("program"));
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        output(
            Command::new("objcopy")
                .current_dir(scratch.path())
                .args(arguments)
                .arg(from)
                .arg(to),
        )
        .context("objcopy is needed; install binutils")
    };
    objcopy(
        &["--only-keep-debug", "--compress-debug-sections=zlib"],
        built,
        &debug,
    )?;
    // The program's bytes hold the file's checksum.
    let link = format!("--add-gnu-debuglink={name}");
    objcopy(&["--strip-unneeded", &link], built, &program)?;
    put(
        &fs::read(&debug)?,
        &folder(stage)?.join(part).join(".debug").join(&name),
        0o644,
    )?;
    put(&fs::read(&program)?, &stage.join(inside), 0o755)
}

#[cfg(test)]
mod tests {
    use super::*;
    use goblin::elf::Elf;

    #[test]
    fn a_program_runs_without_its_debug_information_and_names_the_file_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let (source, built) = (folder.path().join("a.c"), folder.path().join("built"));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut cc = Command::new("cc");
        output(cc.arg("-g").arg(&source).arg("-o").arg(&built)).unwrap();
        let stage = folder.path().join("tree");
        split(&built, &stage, "bin/a").unwrap();
        output(&mut Command::new(stage.join("bin/a"))).unwrap();

        let sections = |path: &Path| -> Vec<String> {
            let bytes = fs::read(path).unwrap();
            let elf = Elf::parse(&bytes).unwrap();
            let names = elf.section_headers.iter();
            names
                .filter_map(|section| elf.shdr_strtab.get_at(section.sh_name))
                .map(str::to_owned)
                .collect()
        };
        let has = |sections: &[String], name: &str| sections.iter().any(|s| s == name);
        let program = sections(&stage.join("bin/a"));
        assert!(has(&program, ".gnu_debuglink") && !has(&program, ".debug_info"));
        let debug = folder.path().join("tree-debug/bin/.debug/a.debug");
        assert!(has(&sections(&debug), ".debug_info"));
        assert!(
            fs::read(stage.join("bin/a"))
                .unwrap()
                .windows(8)
                .any(|bytes| bytes == b"a.debug\0")
        );
    }
}
