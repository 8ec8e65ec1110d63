//! `margay omp`: a program that was built for OpenMP, with Margay's library in place of the
//! compiler's.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_core_openmp::environment::ENV_COPIES;

use crate::options::OmpOptions;

/// Why the program does not run: in one line, and the exit status.
pub struct Failed {
    /// What is wrong.
    pub text: String,
    /// 127 where there is no program, else 1.
    pub status: u8,
}

impl From<String> for Failed {
    fn from(text: String) -> Failed {
        Failed { text, status: 1 }
    }
}

/// Replaces this process by the program. Returns when that fails.
pub fn run(options: &OmpOptions) -> Failed {
    match start(options) {
        Ok(never) => match never {},
        Err(failed) => failed,
    }
}

fn start(options: &OmpOptions) -> Result<Infallible, Failed> {
    let (name, arguments) = options
        .command
        .split_first()
        .ok_or_else(|| "say which program to run".to_owned())?;
    let folder = library()?;
    let program = find(name).map_err(|text| Failed { text, status: 127 })?;
    let bytes = fs::read(&program).unwrap_or_default();
    if let Some(report) = secure(&program).or_else(|| objection(&program, &bytes)) {
        return Err(report.into());
    }
    if !names_openmp(&bytes) {
        eprintln!(
            "margay omp: {} itself is not linked with libgomp or libomp; libraries that it loads later, such as modules of \
             Python, run on Margay's threads (margay omp --verbose names their copies at the end); a program of your own is \
             built for it with gcc -fopenmp, gfortran -fopenmp or clang -fopenmp",
            program.display()
        );
    }
    let file = folder.join("libgomp.so.1");
    if options.verbose {
        eprintln!(
            "margay omp: {} runs with {}",
            program.display(),
            file.display()
        );
    }
    let mut command = Command::new(&program);
    if options.verbose {
        command.env(ENV_COPIES, "verbose");
    }
    let failed = command
        .arg0(name)
        .args(arguments)
        .env(
            "LD_LIBRARY_PATH",
            list(folder.as_os_str(), "LD_LIBRARY_PATH"),
        )
        .env("LD_PRELOAD", list(preloaded(&file), "LD_PRELOAD"))
        .exec();
    Err(format!("{}: cannot be run: {failed}", program.display()).into())
}

/// Returns what the loader is to load before all other libraries, so that its symbols are found
/// before those of copies under other names (`libgomp-HASH.so.1.0.0` in Python's wheels). Paths in
/// its list end at blanks and colons: the loader finds the name by `LD_LIBRARY_PATH` then.
fn preloaded(file: &Path) -> &OsStr {
    let bytes = file.as_os_str().as_bytes();
    if bytes.iter().any(|byte| b" :\t\n".contains(byte)) {
        OsStr::new("libgomp.so.1")
    } else {
        file.as_os_str()
    }
}

/// Returns a list of the environment with `first` in front.
fn list(first: &OsStr, variable: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
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

/// Why the loader heeds no variables for a program, if it runs with the rights of another user.
fn secure(program: &Path) -> Option<String> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2000;
    let (file, own) = fs::metadata(program)
        .ok()
        .zip(fs::metadata("/proc/self").ok())?;
    let is_other = (file.mode() & SET_USER != 0 && file.uid() != own.uid())
        || (file.mode() & SET_GROUP != 0 && file.gid() != own.gid());
    is_other.then(|| {
        format!(
            "{}: it runs with the rights of another user or group (setuid, setgid), so the loader takes no other \
             library for it; run a copy without these bits",
            program.display()
        )
    })
}

/// Why the library can have no effect on a program, if that can be seen.
fn objection(program: &Path, bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    let names = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let program = program.display();
    if names_openmp(bytes) {
        return None;
    }
    if names(b"GOMP_parallel\0") || names(b"__kmpc_fork_call\0") {
        return Some(format!(
            "{program}: OpenMP is linked into it statically, so no other library can take its place; link it without -static"
        ));
    }
    None
}

/// Whether a program itself, and not only perhaps a library that it loads, uses gcc's, LLVM's or
/// Intel's library, also under the name of a bundled copy.
fn names_openmp(bytes: &[u8]) -> bool {
    let names = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let all: [&[u8]; 6] = [
        b"libgomp.so.1\0",
        b"\0libgomp-",
        b"\0libomp.so",
        b"\0libomp-",
        b"\0libiomp5.so\0",
        b"\0libiomp5-",
    ];
    !bytes.starts_with(b"\x7fELF") || all.iter().any(|text| names(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_libgomp_are_distinguished() {
        let report = |bytes: &[u8]| objection(Path::new("p"), &[b"\x7fELF", bytes].concat());
        assert!(report(b"libgomp.so.1\0").is_none());
        assert!(report(b"GOMP_parallel\0").unwrap().contains("statically"));
        assert!(
            report(b"__kmpc_fork_call\0")
                .unwrap()
                .contains("statically")
        );
        for library in [
            &b"\0libomp.so.5\0"[..],
            b"\0libomp.so\0",
            b"\0libiomp5.so\0",
        ] {
            assert!(report(&[library, b"__kmpc_fork_call\0"].concat()).is_none());
        }
        assert!(report(b"libc\0libgomp-a34b3233.so.1.0.0\0GOMP_parallel\0").is_none());
        assert!(report(b"ld-linux").is_none() && !names_openmp(b"\x7fELF ld-linux"));
        assert!(
            objection(Path::new("p"), b"#!/bin/sh\n").is_none() && names_openmp(b"#!/bin/sh\n")
        );
    }

    #[test]
    fn a_folder_with_a_blank_is_found_by_the_loaders_path() {
        let plain = Path::new("/opt/margay/lib/gomp/libgomp.so.1");
        assert_eq!(preloaded(plain), plain.as_os_str());
        let blank = Path::new("/opt/my margay/lib/gomp/libgomp.so.1");
        assert_eq!(preloaded(blank), "libgomp.so.1");
    }

    #[test]
    fn a_missing_program_is_reported() {
        let error = find("no-such-program-anywhere".as_ref()).unwrap_err();
        assert!(error.contains("not found in PATH"), "{error}");
    }
}
