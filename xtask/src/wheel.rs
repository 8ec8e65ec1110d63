//! The Python wheel: the stage tree in the form that `pip` installs into an environment.
//!
//! Its `data` scheme is the environment's prefix, so the tree's bin, lib, include and share become those of the environment,
//! where loaders of MPI look for a library. A wheel has no symbolic links, so links become copies; programs and libraries
//! are stripped.

use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use goblin::elf::Elf;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

use crate::workspace;

const NAME: &str = "margay_mpi";

/// A file of the wheel.
struct Member {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

/// Packs the stage tree; returns the wheel's path. Wheels of other versions in `folder` stay.
///
/// # Errors
/// When there is no stage tree, or a file cannot be read or written.
pub fn build(stage: &Path, folder: &Path) -> Result<PathBuf> {
    if !stage.join("bin/margay").exists() {
        bail!(
            "{} holds no stage tree; run `make stage` first",
            stage.display()
        );
    }
    let version = version(stage)?;
    let scratch = folder.join(format!(".wheel{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("{}", scratch.display()))?;
    let members = tree(stage, &version, &scratch);
    fs::remove_dir_all(&scratch)?;
    let mut members = members?;
    let tag = tag(&members)?;
    members.push(Member {
        path: format!("{NAME}/__init__.py"),
        bytes: fs::read(workspace().join("abi/python/__init__.py"))?,
        mode: 0o644,
    });
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
    let wheel = folder.join(format!("{NAME}-{version}-py3-none-{tag}.whl"));
    let partial = wheel.with_extension("partial");
    fs::write(&partial, zipped(&members)?)
        .and_then(|()| fs::rename(&partial, &wheel))
        .with_context(|| format!("{}: cannot be written", wheel.display()))?;
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

/// All files of the stage tree.
fn tree(stage: &Path, version: &str, scratch: &Path) -> Result<Vec<Member>> {
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
            // Programs are of the scheme `scripts`, because an environment decides where these are.
            let place = match inside.strip_prefix("bin/") {
                Some(program) => format!("scripts/{program}"),
                None => format!("data/{inside}"),
            };
            members.push(Member {
                path: format!("{NAME}-{version}.data/{place}"),
                bytes: stripped(&path, scratch)?,
                mode: fs::metadata(&path)?.permissions().mode() & 0o777,
            });
        }
    }
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

/// A file's bytes, without symbols that only debuggers read.
fn stripped(path: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(bytes);
    }
    let copy = scratch.join("program");
    let done = Command::new("strip")
        .arg("--strip-unneeded")
        .arg("-o")
        .arg(&copy)
        .arg(path)
        .status()
        .context("strip cannot be started; install binutils")?;
    if !done.success() {
        bail!("strip failed for {}", path.display());
    }
    Ok(fs::read(&copy)?)
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

/// The platform's tag: the oldest glibc that has all symbols that the programs and libraries want.
fn tag(members: &[Member]) -> Result<String> {
    let mut glibc = (2, 17); // the oldest of the manylinux tags with a number
    for member in members.iter().filter(|m| m.bytes.starts_with(b"\x7fELF")) {
        let elf = Elf::parse(&member.bytes).with_context(|| member.path.clone())?;
        for library in &elf.libraries {
            let own = members
                .iter()
                .any(|m| m.path.ends_with(&format!("/{library}")));
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

fn zipped(members: &[Member]) -> Result<Vec<u8>> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for member in members {
        // The same tree makes the same wheel: no times.
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(member.mode);
        archive.start_file(&member.path, options)?;
        archive.write_all(&member.bytes)?;
    }
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
