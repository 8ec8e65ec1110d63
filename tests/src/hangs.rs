//! Programs that hang or crash at lines that comments mark.

use std::path::PathBuf;
use std::process::Command;

use crate::jobs::{Job, Words};
use crate::{command, program, scratch, stage, succeed};

/// A program that was compiled from a file of `programs/why`; its folder goes away with it.
pub struct Built {
    /// Where it is.
    pub folder: tempfile::TempDir,
    source: &'static str,
}

impl Built {
    /// Compiles a file of `programs/why`, with one of the stage tree's compilers or another.
    #[must_use]
    pub fn by(compiler: &str, source: &'static str, flags: &str) -> Built {
        let folder = scratch();
        succeed(command("chmod", 10).arg("755").arg(folder.path()));
        let built = Built { folder, source };
        let ours = stage().join("bin").join(compiler);
        let compiler = if ours.exists() { ours } else { compiler.into() };
        succeed(
            command(compiler, 300)
                .current_dir(built.folder.path())
                .args(flags.split_whitespace())
                .arg(program("why").join(source))
                .args(if source == "receives.c" {
                    &["-lnx"][..]
                } else {
                    &[]
                })
                .arg("-o")
                .arg(built.path()),
        );
        built
    }

    /// Compiles `hangs.c` with mpicc.
    #[must_use]
    pub fn mpi(flags: &str) -> Built {
        Built::by("mpicc", "hangs.c", flags)
    }

    /// The program.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    /// `hangs.c:12`: the line that the comment marks.
    #[must_use]
    pub fn line(&self, mark: &str) -> String {
        let text = std::fs::read_to_string(program("why").join(self.source)).unwrap();
        let wanted = format!("LINE {mark}");
        let is_it = |line: &str| line.trim_end_matches(" */").ends_with(&wanted);
        let at = text.lines().position(is_it).unwrap();
        format!("{}:{}", self.source, at + 1)
    }

    /// Starts it on this many ranks with these arguments.
    #[must_use]
    pub fn start(&self, ranks: u32, what: &str) -> Job {
        Job::start(&Words::mpiexec(100, ranks, &self.path(), what), 90)
    }
}

/// Where nobody may trace there is nothing to test but that it is said.
#[must_use]
pub fn may_trace() -> bool {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let status = format!("/proc/{}/syscall", sleeper.id());
    let may = std::fs::read_to_string(status).is_ok();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    if !may {
        println!("note: no process may be traced here; nothing is tested");
    }
    may
}
