//! The Python wheel: the stage tree in the form that `pip` installs into an environment.
//!
//! Its `data` scheme is the environment's prefix, so the tree's bin, lib, include and share become
//! those of the environment, where loaders of MPI look for a library. A wheel has no symbolic
//! links: links to programs become small programs that start them, links to libraries become
//! stand-ins that need them, and other links become copies.

use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use goblin::elf::Elf;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

use crate::command::output;
use crate::put::put;
use crate::tools::Tools;
use crate::verify::{self, Machine};
use crate::{debug_info, stub, workspace};

const NAME: &str = "margay_mpi";

/// A file of the wheel.
struct Member {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

/// Packs the stage tree; returns the wheel's path. Wheels of other versions in `folder` stay. The
/// debug information becomes an archive beside the wheel.
///
/// # Errors
/// When there is no stage tree, a file cannot be read or written, or the wheel is not fit to be
/// handed on ([`verify`]).
pub fn build(stage: &Path, folder: &Path) -> Result<PathBuf> {
    if !stage.join("bin/margay").exists() {
        bail!(
            "{} holds no stage tree; run `make stage` first",
            stage.display()
        );
    }
    let version = version(stage)?;
    let target = MetadataCommand::new()
        .current_dir(workspace())
        .no_deps()
        .exec()?
        .target_directory;
    let tools = Tools::new(target.as_std_path())?;
    let mut members = tree(stage, &version, &tools)?;
    let tag = tag(&members)?;
    for (path, file) in [
        (format!("{NAME}/__init__.py"), "__init__.py"),
        (format!("{NAME}/queue.py"), "queue.py"),
        (format!("_{NAME}_finder.py"), "finder.py"),
        (format!("{NAME}.pth"), "start.pth"),
    ] {
        members.push(Member {
            path,
            bytes: fs::read(workspace().join("abi/python").join(file))?,
            mode: 0o644,
        });
    }
    let information = format!("{NAME}-{version}.dist-info");
    let readme = fs::read_to_string(workspace().join("abi/python/README.md"))?;
    for (name, text) in [
        ("METADATA", metadata(&version, &readme)),
        ("WHEEL", wheel_file(&tag)),
        (
            "licenses/LICENSE",
            fs::read_to_string(workspace().join("LICENSE"))?,
        ),
    ] {
        members.push(Member {
            path: format!("{information}/{name}"),
            bytes: text.into_bytes(),
            mode: 0o644,
        });
    }
    let record = format!("{information}/RECORD");
    let list = record_of(&members, &record);
    members.push(Member {
        path: record,
        bytes: list.into_bytes(),
        mode: 0o644,
    });
    let packed = zipped(&members, Effort::Most)?;
    verify(
        &members,
        &packed,
        &Machine::of_this_build(&[target.as_std_path(), stage])?,
    )?;
    let debug = debug_members(&debug_info::folder(stage)?)?;
    let wheel = write(
        folder,
        &format!("{NAME}-{version}-py3-none-{tag}.whl"),
        &packed,
    )?;
    write(
        folder,
        &format!("margay-debug-{version}-{tag}.zip"),
        &zipped(&debug, Effort::Usual)?,
    )?;
    Ok(wheel)
}

fn version(stage: &Path) -> Result<String> {
    let output = Command::new(stage.join("bin/margay"))
        .arg("--version")
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .split_whitespace()
        .last()
        .context("margay tells no version")?
        .to_owned())
}

/// Writes a file beside its place and renames it.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = folder.join(name);
    put(bytes, &path, 0o644)?;
    Ok(path)
}

/// What must be true of a wheel's files and of the whole.
fn verify(members: &[Member], packed: &[u8], machine: &Machine) -> Result<()> {
    let mut findings = Vec::new();
    for member in members {
        // The text of the tree was copied and may name any path; so was that of the package.
        if member.bytes.starts_with(b"\x7fELF") || member.bytes.starts_with(b"\x1f\x8b") {
            findings.extend(verify::file(&member.path, &member.bytes, machine)?);
        }
    }
    let sizes = members
        .iter()
        .map(|member| (member.bytes.len() as u64, member.path.clone()));
    findings.extend(verify::too_large(
        "the wheel",
        packed.len() as u64,
        verify::WHEEL_LIMIT,
        &mut sizes.collect::<Vec<_>>(),
    ));
    verify::refuse(&findings)
}

/// Returns all files of the stage tree.
fn tree(stage: &Path, version: &str, tools: &Tools) -> Result<Vec<Member>> {
    let scratch = tempfile::tempdir()?;
    let alias = alias(tools, scratch.path())?;
    let mut members = Vec::new();
    let mut folders = vec![stage.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)
            .with_context(|| format!("{}: cannot be read", folder.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(stage)?.to_string_lossy().into_owned();
            // A page under another name would be one more copy.
            if inside.starts_with("share/man/") && path.is_symlink() {
                continue;
            }
            // Programs that `margay` starts: services of a machine and its performance suite, which
            // are no part of a Python environment. `margay` names a whole tree as the remedy.
            let folders = [
                "bin/margay-",
                "share/margay/bench/",
                "share/margay/compat/",
                "lib/check/",
                "lib/pfs/",
            ];
            if folders.iter().any(|folder| inside.starts_with(folder)) {
                continue;
            }
            // Programs are of the scheme `scripts`, because an environment decides where these are.
            let place = match inside.strip_prefix("bin/") {
                Some(program) => format!("scripts/{program}"),
                None => format!("data/{inside}"),
            };
            let bytes =
                fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
            let bytes = match fs::read_link(&path) {
                Ok(_) if !bytes.starts_with(b"\x7fELF") => bytes,
                Ok(points_at) if inside.starts_with("bin/") => {
                    if points_at != Path::new("margay") {
                        bail!("{inside} links to {}, not to margay", points_at.display());
                    }
                    alias.clone()
                }
                Ok(_) => {
                    let name = path.file_name().context("a path without a name")?;
                    stub::stand_in(&tools.cc(), &bytes, scratch.path(), &name.to_string_lossy())?
                }
                Err(_) => bytes,
            };
            let is_program = fs::metadata(&path)?.permissions().mode() & 0o100 != 0;
            members.push(Member {
                path: format!("{NAME}-{version}.data/{place}"),
                bytes,
                mode: if is_program { 0o755 } else { 0o644 },
            });
        }
    }
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

/// Returns the program that starts `margay` under another name.
fn alias(tools: &Tools, scratch: &Path) -> Result<Vec<u8>> {
    let made = scratch.join("alias");
    output(
        Command::new(tools.cc())
            .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-s"])
            .arg(workspace().join("abi/python/alias.c"))
            .arg("-o")
            .arg(&made),
    )?;
    Ok(fs::read(&made)?)
}

/// Returns the files with debug information.
fn debug_members(folder: &Path) -> Result<Vec<Member>> {
    let files = verify::files(folder)?.into_iter();
    files
        .map(|(path, inside)| {
            Ok(Member {
                path: inside,
                bytes: fs::read(&path)
                    .with_context(|| format!("{}: cannot be read", path.display()))?,
                mode: 0o644,
            })
        })
        .collect()
}

/// Libraries that every system of the manylinux kind has.
const SYSTEM: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
];

/// Returns the platform's tag: the oldest glibc that has all symbols that the programs and
/// libraries want.
fn tag(members: &[Member]) -> Result<String> {
    let mut glibc = (2, 17); // the oldest of the manylinux tags with a number
    for member in members.iter().filter(|m| m.bytes.starts_with(b"\x7fELF")) {
        let elf = Elf::parse(&member.bytes).with_context(|| member.path.clone())?;
        for library in &elf.libraries {
            // Stand-ins name it by its path from their own.
            let name = library.strip_prefix("$ORIGIN/").unwrap_or(library);
            let own = members
                .iter()
                .any(|m| m.path.ends_with(&format!("/{name}")));
            if !own && !SYSTEM.contains(library) && !library.starts_with("ld-linux-") {
                bail!(
                    "{} needs {library}, which not every system has",
                    member.path
                );
            }
        }
        glibc = glibc.max(newest_glibc(&elf));
    }
    Ok(format!(
        "manylinux_{}_{}_{}",
        glibc.0,
        glibc.1,
        std::env::consts::ARCH
    ))
}

fn newest_glibc(elf: &Elf) -> (u32, u32) {
    let mut newest = (2, 0);
    for need in elf.verneed.iter().flat_map(|section| section.iter()) {
        for auxiliary in need.iter() {
            let name = elf.dynstrtab.get_at(auxiliary.vna_name).unwrap_or_default();
            let Some(version) = name.strip_prefix("GLIBC_") else {
                continue;
            };
            let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
            newest = newest.max((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)));
        }
    }
    newest
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: margay-mpi\nVersion: {version}\nSummary: MPI 5.0 with the standard ABI, a launcher and \
         compiler wrappers\nLicense: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.9\nKeywords: MPI\n\
         Classifier: Operating System :: POSIX :: Linux\nClassifier: Topic :: System :: Distributed Computing\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}

fn wheel_file(tag: &str) -> String {
    format!("Wheel-Version: 1.0\nGenerator: margay\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
}

/// Each file with its digest and size; the list itself without.
fn record_of(members: &[Member], record: &str) -> String {
    let mut list = String::new();
    for member in members {
        let digest = base64_url(&Sha256::digest(&member.bytes));
        writeln!(
            list,
            "{},sha256={digest},{}",
            member.path,
            member.bytes.len()
        )
        .expect("a string grows");
    }
    writeln!(list, "{record},,").expect("a string grows");
    list
}

/// Base 64 as names of files take it, without padding.
fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut word = 0u32;
        for i in 0..3 {
            word = word << 8 | u32::from(group.get(i).copied().unwrap_or(0));
        }
        for i in 0..=group.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

/// How hard the bytes of an archive are compressed.
#[derive(Clone, Copy)]
enum Effort {
    Usual,
    /// By zopfli, which finds a form that is 3 % smaller, in 100 times the time.
    Most,
}

impl Effort {
    fn level(self) -> i64 {
        match self {
            Effort::Usual => 9,
            Effort::Most => 11,
        }
    }
}

/// An archive of all members. Members are compressed side by side.
fn zipped(members: &[Member], effort: Effort) -> Result<Vec<u8>> {
    let alone: Vec<Vec<u8>> = members
        .par_iter()
        .map(|member| zipped_alone(member, effort))
        .collect::<Result<_>>()?;
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for bytes in alone {
        archive.raw_copy_file(zip::ZipArchive::new(Cursor::new(bytes))?.by_index(0)?)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// An archive of one member.
fn zipped_alone(member: &Member, effort: Effort) -> Result<Vec<u8>> {
    // The same tree makes the same wheel: no times.
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .compression_level(Some(effort.level()))
        .with_zopfli_buffer(None)
        .last_modified_time(zip::DateTime::default())
        .unix_permissions(member.mode);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file(&member.path, options)?;
    archive.write_all(&member.bytes)?;
    Ok(archive.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_as_records_want_them() {
        assert_eq!(
            base64_url(&Sha256::digest(b"")),
            "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
        );
        assert_eq!(base64_url(b"a"), "YQ");
        assert_eq!(base64_url(b"ab"), "YWI");
        assert_eq!(base64_url(b"abc"), "YWJj");
    }

    #[test]
    fn the_tag_names_the_newest_glibc_that_a_program_needs() {
        let own = std::env::current_exe().unwrap();
        let member = |bytes| Member {
            path: "x.data/scripts/program".into(),
            bytes,
            mode: 0o755,
        };
        let tagged = tag(&[member(fs::read(own).unwrap())]).unwrap();
        assert!(
            tagged.starts_with("manylinux_2_") && tagged.ends_with(std::env::consts::ARCH),
            "{tagged}"
        );
        let scripts = tag(&[member(b"#!/bin/sh\n".to_vec())]).unwrap();
        assert_eq!(
            scripts,
            format!("manylinux_2_17_{}", std::env::consts::ARCH)
        );
    }
}
