//! What the tests of NX and MPL share: programs of `programs/nx` and `programs/mpl`, compiled with
//! the libraries.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{command, program, scratch, stage, succeed};

/// One of the libraries beside MPI.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    /// Its name, and the folder of its programs.
    pub name: &'static str,
    /// The linker's options for it, and for others that its programs use.
    pub libraries: &'static [&'static str],
    /// Variables that its programs run with.
    pub environment: &'static [(&'static str, &'static str)],
}

impl Voice {
    /// Compiles a C program without a warning.
    pub fn compile(&self, folder: &Path, name: &str) -> PathBuf {
        let executable = folder.join(name);
        succeed(
            command(stage().join("bin/mpicc"), 120)
                .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g"])
                .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
                .arg(program(self.name).join(format!("{name}.c")))
                .args(self.libraries)
                .arg("-o")
                .arg(&executable),
        );
        executable
    }

    /// Compiles a Fortran program of fixed form.
    pub fn compile_fortran(&self, folder: &Path, name: &str) -> PathBuf {
        let executable = folder.join(name);
        succeed(
            command(stage().join("bin/mpif77"), 120)
                .args(["-g", "-O2", "-w"])
                .arg(program(self.name).join(format!("{name}.f")))
                .args(self.libraries)
                .arg("-o")
                .arg(&executable),
        );
        executable
    }

    /// A program that says "ok" on 1, 2 and 4 ranks, with shared memory and without, and alone.
    ///
    /// # Panics
    /// When it says anything else.
    pub fn is_ok(&self, name: &str, arguments: &[&str]) {
        let folder = scratch();
        let executable = self.compile(folder.path(), name);
        for ranks in [1, 2, 4] {
            for bytes_only in ["0", "1"] {
                let output = succeed(
                    mpiexec(ranks)
                        .env("MARGAY_BYTES_ONLY", bytes_only)
                        .envs(self.environment.iter().copied())
                        .arg(&executable)
                        .args(arguments),
                );
                assert_eq!(output, "ok\n", "{name} on {ranks} ranks");
            }
        }
        let mut alone = command(&executable, 60);
        alone.envs(self.environment.iter().copied()).args(arguments);
        assert_eq!(succeed(&mut alone), "ok\n", "{name} alone");
    }

    /// A program that includes the header compiles in C and C++ without a warning, and by what
    /// pkg-config says, and runs.
    ///
    /// # Panics
    /// When it does not.
    pub fn header_is_clean(&self, text: &str) {
        let folder = scratch();
        let source = folder.path().join("header.c");
        std::fs::write(&source, text).expect("a source file");
        for (compiler, language, standard) in [
            ("mpicc", "c", "c99"),
            ("mpicc", "c", "c11"),
            ("mpicxx", "c++", "c++17"),
        ] {
            succeed(
                command(stage().join("bin").join(compiler), 120)
                    .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
                    .args(["-x", language])
                    .arg(format!("-std={standard}"))
                    .arg(&source),
            );
        }
        let flags = succeed(
            command("pkg-config", 60)
                .env("PKG_CONFIG_PATH", stage().join("lib/pkgconfig"))
                .args(["--cflags", "--libs", self.name]),
        );
        let executable = folder.path().join("header");
        succeed(
            command("cc", 120)
                .arg(&source)
                .args(flags.split_whitespace())
                .arg("-o")
                .arg(&executable),
        );
        succeed(&mut command(&executable, 60));
    }
}

/// The launcher with a number of ranks, ended after a minute.
pub fn mpiexec(ranks: u32) -> Command {
    launcher("mpiexec", ["-n", &ranks.to_string()])
}

/// The launcher under one of its names with options, ended after a minute.
pub fn launcher(name: &str, options: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = command(stage().join("bin").join(name), 60);
    command.args(options);
    command
}

/// What a command said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
