//! What must be true of everything that leaves the house: it runs with an old glibc, names nothing
//! of the machine on which it was built, and is small.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use goblin::elf::Elf;
use regex::bytes::Regex;

use crate::glibc::version::{OLDEST, Version};
use crate::workspace;

/// The most bytes of all files of the stage tree together.
pub const TREE_LIMIT: u64 = 20_000_000;

/// The most bytes of the wheel.
pub const WHEEL_LIMIT: u64 = 6_000_000;

/// Text that is copied from the workspace and may name any path.
const COPIED: [&str; 2] = ["share/doc/", "share/margay/"];

/// Checks the stage tree.
///
/// # Errors
/// All that is wrong, file by file.
pub fn tree(folder: &Path, machine: &Machine) -> Result<()> {
    let mut findings = Vec::new();
    let mut sizes = Vec::new();
    for (path, inside) in files(folder)? {
        let bytes =
            fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
        sizes.push((bytes.len() as u64, inside.clone()));
        if !COPIED.iter().any(|copied| inside.starts_with(copied)) {
            findings.extend(file(&inside, &bytes, machine)?);
        }
    }
    let total = sizes.iter().map(|(size, _)| size).sum();
    findings.extend(too_large("the stage tree", total, TREE_LIMIT, &mut sizes));
    refuse(&findings)
}

/// An error of all findings, if there are any.
///
/// # Errors
/// The findings.
pub fn refuse(findings: &[String]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("this must not be handed on:\n{}", findings.join("\n"))
}

/// Returns all regular files below a folder, links left out, with their paths inside; in order.
///
/// # Errors
/// When a folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in
            fs::read_dir(&next).with_context(|| format!("{}: cannot be read", next.display()))?
        {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let inside = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                all.push((path, inside));
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Returns what is wrong with a file.
///
/// # Errors
/// When it looks like a program or an archive and is none.
pub fn file(name: &str, bytes: &[u8], machine: &Machine) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut unpacked = Vec::new();
    let mut text = bytes;
    if bytes.starts_with(b"\x7fELF") {
        for need in too_new(bytes).with_context(|| name.to_owned())? {
            findings.push(format!(
                "{name} needs {need}, which glibc {OLDEST} does not have"
            ));
        }
    } else if bytes.starts_with(b"\x1f\x8b") {
        // Fortran's modules are packed.
        GzDecoder::new(bytes)
            .read_to_end(&mut unpacked)
            .with_context(|| format!("{name} cannot be unpacked"))?;
        text = &unpacked;
    }
    findings.extend(
        machine
            .found(text)
            .map(|found| format!("{name} holds a path of this machine: {found}")),
    );
    Ok(findings)
}

/// Returns what a program or library needs from the C library or the compiler's that the oldest
/// does not have, as `name@version`.
///
/// # Errors
/// When the bytes are no such file.
pub fn too_new(bytes: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(bytes)?;
    let mut needs = Vec::new();
    for need in elf.verneed.iter().flat_map(|section| section.iter()) {
        for auxiliary in need.iter() {
            let version = elf.dynstrtab.get_at(auxiliary.vna_name).unwrap_or_default();
            let is_judged = version.starts_with("GLIBC") || version.starts_with("GCC");
            if !is_judged || Version::parse(version).is_some_and(|version| version.is_old()) {
                continue;
            }
            let wanted = elf
                .dynsyms
                .iter()
                .zip(elf.versym.iter().flat_map(|section| section.iter()))
                .filter(|(_, own)| own.version() == auxiliary.vna_other)
                .filter_map(|(symbol, _)| elf.dynstrtab.get_at(symbol.st_name));
            let before = needs.len();
            needs.extend(wanted.map(|name| format!("{name}@{version}")));
            if needs.len() == before {
                needs.push(version.to_owned());
            }
        }
    }
    Ok(needs)
}

/// Returns a finding when something has more bytes than the limit, with the largest of the files in
/// it.
pub fn too_large(
    what: &str,
    total: u64,
    limit: u64,
    sizes: &mut [(u64, String)],
) -> Option<String> {
    if total <= limit {
        return None;
    }
    sizes.sort_by(|a, b| b.cmp(a));
    let largest: Vec<String> = sizes
        .iter()
        .take(5)
        .map(|(size, name)| format!("{name} {size}"))
        .collect();
    Some(format!(
        "{what} has {total} bytes and may have {limit}; the largest: {}",
        largest.join(", ")
    ))
}

/// Folders of the machine on which is built, which nothing may name.
pub struct Machine(Option<Regex>);

impl Machine {
    /// Returns the workspace, the build folder, the toolchain, the packages of others, and what is
    /// named.
    ///
    /// # Errors
    /// When the compiler does not say where it is.
    pub fn of_this_build(more: &[&Path]) -> Result<Self> {
        let mut folders = vec![
            workspace().to_path_buf(),
            cargo_home()?,
            sysroot()?,
            std::env::temp_dir().join("margay-fortran-"),
        ];
        folders.extend(more.iter().map(|folder| folder.to_path_buf()));
        Ok(Self::of(&folders))
    }

    /// These folders, and what their names mean where they are links.
    fn of(folders: &[PathBuf]) -> Self {
        let mut names = Vec::new();
        for folder in folders {
            let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
            for name in [folder, &real] {
                let name = name.to_string_lossy();
                // The root is in every path.
                if name.len() > 1 {
                    names.push(regex::escape(name.trim_end_matches('/')));
                }
            }
        }
        let any = format!(r"(?s-u)(?:{})[^\x00\n]{{0,80}}", names.join("|"));
        Self((!names.is_empty()).then(|| Regex::new(&any).expect("names are escaped")))
    }

    /// Returns the first place that names one of them.
    fn found(&self, bytes: &[u8]) -> Option<String> {
        let found = self.0.as_ref()?.find(bytes)?;
        Some(String::from_utf8_lossy(found.as_bytes()).into_owned())
    }
}

/// Returns where cargo keeps packages.
///
/// # Errors
/// When neither `CARGO_HOME` nor `HOME` is set.
pub fn cargo_home() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_HOME") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// Returns where the compiler and its standard library are.
///
/// # Errors
/// When the compiler does not say so.
pub fn sysroot() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    let printed = crate::command::output(
        command
            .current_dir(workspace())
            .args(["--print", "sysroot"]),
    )?;
    Ok(String::from_utf8(printed)?.trim_end().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn machine() -> Machine {
        Machine::of(&["/machine/of mine".into(), "/".into()])
    }

    #[test]
    fn a_path_of_the_machine_is_found_in_text_programs_and_packed_modules() {
        let text = b"built in \"/machine/of mine/src/lib.rs\"\n";
        let found = file("a", text, &machine()).unwrap();
        assert_eq!(
            found,
            ["a holds a path of this machine: /machine/of mine/src/lib.rs\""]
        );
        let mut program = fs::read("/proc/self/exe").unwrap();
        program.extend_from_slice(text);
        assert!(
            file("b", &program, &machine())
                .unwrap()
                .iter()
                .any(|finding| finding.starts_with("b holds a path"))
        );
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(file("c", &packed, &machine()).unwrap().len(), 1);
        assert!(
            file("d", b"/machine/of another", &machine())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_tree_is_checked_but_not_its_copied_text() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "/machine/of mine").unwrap();
        };
        write("share/doc/margay/README.md");
        tree(folder.path(), &machine()).unwrap();
        write("lib/pkgconfig/mpi.pc");
        let error = tree(folder.path(), &machine()).unwrap_err().to_string();
        assert!(error.contains("lib/pkgconfig/mpi.pc holds"), "{error}");
    }

    #[test]
    fn what_is_too_large_is_reported_with_the_largest_files() {
        let mut sizes = vec![(3, "a".into()), (5, "b".into())];
        assert_eq!(too_large("it", 8, 8, &mut sizes), None);
        assert_eq!(
            too_large("it", 8, 7, &mut sizes).unwrap(),
            "it has 8 bytes and may have 7; the largest: b 5, a 3"
        );
    }
}
