//! MPI implementations below a prefix: our own and its peers, compiled and launched with in the
//! same way.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process::bounded;

/// What our own implementation is called in tables and files.
pub const OURS: &str = "margay";

/// An MPI implementation below a prefix with `bin/mpicc` and `bin/mpiexec`.
#[derive(Clone, Debug)]
pub struct Installation {
    /// [`OURS`], or the peer's name.
    pub name: String,
    prefix: PathBuf,
    kind: Kind,
}

/// Implementations that need settings of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OpenMpi,
    Intel,
    Other,
}

impl Installation {
    /// Returns the installation below `prefix`, called `name`.
    ///
    /// # Errors
    /// When it has no compiler wrapper or launcher.
    pub fn below(name: &str, prefix: &Path) -> Result<Self> {
        for tool in ["bin/mpicc", "bin/mpiexec"] {
            if !prefix.join(tool).exists() {
                bail!(
                    "{} has no {tool}; name the folder above an MPI's bin",
                    prefix.display()
                );
            }
        }
        let has = |tool: &str| prefix.join(tool).exists();
        let kind = match name {
            OURS => Kind::Other,
            "openmpi" => Kind::OpenMpi,
            "impi-devel" => Kind::Intel,
            _ if has("bin/ompi_info") => Kind::OpenMpi,
            _ if has("bin/impi_info") => Kind::Intel,
            _ => Kind::Other,
        };
        Ok(Self {
            name: name.to_owned(),
            prefix: prefix.to_path_buf(),
            kind,
        })
    }

    /// Returns the folder above `bin`, `lib` and `include`.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns the compiler wrapper, bounded to `limit_s` seconds.
    #[must_use]
    pub fn compiler(&self, limit_s: u32) -> Command {
        let mut command = self.prepared(limit_s);
        command.arg(self.prefix.join("bin/mpicc"));
        command
    }

    /// Returns the launcher for `ranks` ranks of a program, bounded to `limit_s` seconds.
    ///
    /// Each peer gets the settings that were found to be its fastest, above all when ranks
    /// outnumber cores.
    #[must_use]
    pub fn launch(&self, ranks: usize, limit_s: u32) -> Command {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.prepared(limit_s);
        command.arg(self.prefix.join("bin/mpiexec"));
        command.args(["-n", &ranks.to_string()]);
        match self.kind {
            Kind::OpenMpi => {
                command
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.arg("--oversubscribe");
                if ranks > cores {
                    command.args(["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"]);
                }
            }
            Kind::Intel => {
                command.env("I_MPI_FABRICS", "shm");
                if ranks > cores {
                    command.env("I_MPI_THREAD_YIELD", "2");
                }
            }
            Kind::Other => {}
        }
        command
    }

    /// Returns a command without standard input and with what all programs of the implementation
    /// need.
    fn prepared(&self, limit_s: u32) -> Command {
        let mut command = bounded(limit_s);
        command.stdin(Stdio::null());
        if self.kind == Kind::Intel {
            command.env("I_MPI_ROOT", &self.prefix);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a prefix with empty files of these names.
    fn prefix(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    fn words(command: &Command) -> String {
        let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn a_prefix_without_tools_is_refused_with_the_remedy() {
        let folder = prefix(&["bin/mpicc"]);
        let error = Installation::below("x", folder.path()).unwrap_err();
        let report = error.to_string();
        assert!(
            report.contains("has no bin/mpiexec; name the folder"),
            "{report}"
        );
    }

    #[test]
    fn peers_are_known_by_their_tools_and_get_their_settings() {
        let many = 4096;
        let open = prefix(&["bin/mpicc", "bin/mpiexec", "bin/ompi_info"]);
        let launch = Installation::below("x", open.path())
            .unwrap()
            .launch(many, 9);
        let report = words(&launch);
        assert!(
            report.ends_with("--oversubscribe --mca mpi_yield_when_idle 1 --bind-to none"),
            "{report}"
        );
        let intel = prefix(&["bin/mpicc", "bin/mpiexec", "bin/impi_info"]);
        let launch = Installation::below("x", intel.path())
            .unwrap()
            .launch(many, 9);
        let names: Vec<_> = launch.get_envs().map(|(name, _)| name).collect();
        for name in ["I_MPI_ROOT", "I_MPI_FABRICS", "I_MPI_THREAD_YIELD"] {
            assert!(names.iter().any(|set| *set == name), "{names:?}");
        }
        let ours = Installation::below(OURS, open.path()).unwrap();
        assert!(words(&ours.launch(2, 9)).ends_with("mpiexec -n 2"));
    }
}
