//! A parallel file system for the demonstration, over four directories, of which one is removed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use margay_bench_common::process::run_quietly;

const NAME: &str = "demo";

/// Stripe directories, with parity for one of them.
const DIRECTORIES: [&str; 4] = ["disk1", "disk2", "disk3", "disk4"];

/// A mounted file system, which is gone with the value.
pub struct Files {
    margay: PathBuf,
    folder: PathBuf,
}

impl Files {
    /// Makes it in a folder and mounts it.
    ///
    /// # Errors
    /// When a command fails, as where nothing can be mounted.
    pub fn mount(prefix: &Path, folder: &Path) -> Result<Files> {
        let files = Files {
            margay: prefix.join("bin/margay"),
            folder: folder.join("pfs"),
        };
        // What a demonstration that was killed has left.
        files.remove();
        std::fs::create_dir_all(files.path())
            .with_context(|| format!("{}: cannot be made", files.path().display()))?;
        files.pfs(&[&["create", NAME][..], &DIRECTORIES].concat())?;
        files.pfs(&["mount", NAME, "mnt"])?;
        Ok(files)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Removes a stripe directory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn lose_one(&self) -> Result<()> {
        let lost = self.folder.join(DIRECTORIES[1]);
        std::fs::remove_dir_all(&lost).with_context(|| format!("{}", lost.display()))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.margay);
        command.arg("pfs").args(words).current_dir(&self.folder);
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        command
    }

    fn pfs(&self, words: &[&str]) -> Result<()> {
        run_quietly(&mut self.command(words)).map(drop)
    }

    fn remove(&self) {
        if self.folder.exists() {
            // Where it does not run, that is refused; what is mounted still is not removed.
            let _ = self.command(&["stop", NAME]).output();
            let _ = std::fs::remove_dir(self.path());
            if !self.path().exists() {
                let _ = std::fs::remove_dir_all(&self.folder);
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}
