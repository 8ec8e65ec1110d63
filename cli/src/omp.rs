//! `margay omp`: a program that gcc or gfortran built for OpenMP, with Margay's library in place of the compiler's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::options::OmpOptions;

/// Replaces this process by the program.
pub fn run(options: &OmpOptions) -> Result<(), String> {
    let (name, arguments) = options
        .command
        .split_first()
        .ok_or("say which program to run")?;
    let folder = library()?;
    let program = find(name)?;
    let bytes = fs::read(&program).unwrap_or_default();
    if let Some(told) = objection(&program, &bytes) {
        return Err(told);
    }
    if !names_libgomp(&bytes) {
        eprintln!(
            "margay omp: {} does not use libgomp itself, so this has no effect unless a library that it loads does; \
             a program is built for it with gcc -fopenmp or gfortran -fopenmp",
            program.display()
        );
    }
    let mut path = folder.into_os_string();
    if let Some(others) = env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    let failed = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .env("LD_LIBRARY_PATH", path)
        .exec();
    Err(format!("{}: cannot be run: {failed}", program.display()))
}

/// Returns the folder with `libgomp.so.1`, beside this command.
fn library() -> Result<PathBuf, String> {
    let command =
        env::current_exe().map_err(|e| format!("cannot find the path of this program: {e}"))?;
    let folder = command
        .parent()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/gomp"))
        .filter(|folder| folder.join("libgomp.so.1").exists());
    folder.ok_or_else(|| {
        format!(
            "{}: there is no lib/gomp/libgomp.so.1 beside it; use the margay of an installed tree",
            command.display()
        )
    })
}

/// Returns the program's file: the name itself if it has a slash, otherwise as the shell finds it.
fn find(name: &OsStr) -> Result<PathBuf, String> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let direct = PathBuf::from(name);
    if direct.components().count() > 1 {
        return if is_program(&direct) {
            Ok(direct)
        } else {
            Err(format!("{}: no such program", direct.display()))
        };
    }
    let path: OsString = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| {
            let name = name.to_string_lossy();
            format!("{name}: not found in PATH; a program in this folder is ./{name}")
        })
}

/// Why the library can have no effect on a program, if that can be seen.
fn objection(program: &Path, bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let names = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let program = program.display();
    if names(b"libgomp.so.1\0") {
        return None;
    }
    if names(b"GOMP_parallel\0") {
        return Some(format!(
            "{program}: OpenMP is linked into it statically, so no other library can take its place; link it without -static"
        ));
    }
    if names(b"libomp.so") || names(b"libiomp5.so") {
        return Some(format!(
            "{program}: it was built for libomp (clang, icx), whose calls are others; build it with gcc -fopenmp"
        ));
    }
    None
}

/// Whether a program itself, and not only perhaps a library that it loads, uses libgomp.
fn names_libgomp(bytes: &[u8]) -> bool {
    let text = b"libgomp.so.1\0";
    !bytes.starts_with(b"\x7fELF") || bytes.windows(text.len()).any(|part| part == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_libgomp_are_told_apart() {
        let told = |bytes: &[u8]| objection(Path::new("p"), &[b"\x7fELF", bytes].concat());
        assert!(told(b"libgomp.so.1\0").is_none());
        assert!(told(b"GOMP_parallel\0").unwrap().contains("statically"));
        assert!(told(b"libomp.so.5\0").unwrap().contains("clang"));
        assert!(told(b"ld-linux").is_none() && !names_libgomp(b"\x7fELF ld-linux"));
        assert!(
            objection(Path::new("p"), b"#!/bin/sh\n").is_none() && names_libgomp(b"#!/bin/sh\n")
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let error = find("no-such-program-anywhere".as_ref()).unwrap_err();
        assert!(error.contains("not found in PATH"), "{error}");
    }
}
