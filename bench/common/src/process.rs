//! Commands that are run to their end: what they print, and why they failed; and a background load.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// What `timeout` ends with when it had to stop its command.
const TIMED_OUT: i32 = 124;

/// Returns a command under `timeout`, which ends it after `limit_s` seconds.
pub fn bounded(limit_s: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &limit_s.to_string()]);
    command
}

/// Runs a command and gives what it printed when it ended with 0 or, if `may_fail`, with 1.
///
/// # Errors
/// When it cannot be started, took too long or ended otherwise; carries the last lines of its
/// standard error.
pub fn run(command: &mut Command, may_fail: bool) -> Result<Output> {
    let program = PathBuf::from(command.get_program());
    let what = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let output = command
        .output()
        .with_context(|| format!("{what} cannot be started"))?;
    if output.status.code() == Some(TIMED_OUT) && what == "timeout" {
        let limit_s = command.get_args().nth(2).unwrap_or_default();
        bail!("did not end within {} s", limit_s.to_string_lossy());
    }
    let accepted = output.status.success() || (may_fail && output.status.code() == Some(1));
    if !accepted {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = errors
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let shown = last[last.len().saturating_sub(4)..].join("\n  ");
        bail!("{what} ended with {}:\n  {shown}", output.status);
    }
    Ok(output)
}

/// Runs a command that must end with 0 and gives its standard output.
///
/// # Errors
/// As [`run`].
pub fn run_quietly(command: &mut Command) -> Result<String> {
    run(command, false).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Other processes that use the cores while something is measured; they end when this is dropped,
/// or with this process.
#[derive(Debug, Default)]
pub struct BackgroundLoad(Vec<Child>);

impl BackgroundLoad {
    /// Starts `count` processes of `program` (`programs/threads/busy.c`), each for at most
    /// `limit_s` seconds.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, count: usize, limit_s: u32) -> Result<Self> {
        let mut load = Self::default();
        for _ in 0..count {
            let child = Command::new(program)
                .arg(limit_s.to_string())
                .stdin(Stdio::null())
                .spawn()
                .with_context(|| format!("{} cannot be started", program.display()))?;
            load.0.push(child);
        }
        Ok(load)
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has ended by itself cannot be ended, and that is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_carry_the_reason() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert_eq!(
            run_quietly(&mut shell("echo figures")).unwrap(),
            "figures\n"
        );
        let error = run_quietly(&mut shell("echo why >&2; exit 1")).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
        assert!(run(&mut shell("exit 1"), true).is_ok());
        assert!(run(&mut shell("exit 3"), true).is_err());
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let error = run_quietly(bounded(1).args(["sleep", "30"])).unwrap_err();
        assert_eq!(error.to_string(), "did not end within 1 s");
    }

    #[test]
    fn a_background_load_ends_with_its_owner() {
        // `sleep` takes the same argument as the program.
        let load = BackgroundLoad::start(Path::new("sleep"), 2, 60).unwrap();
        let folders: Vec<PathBuf> = load
            .0
            .iter()
            .map(|child| PathBuf::from(format!("/proc/{}", child.id())))
            .collect();
        assert!(folders.iter().all(|folder| folder.exists()));
        drop(load);
        assert!(folders.iter().all(|folder| !folder.exists()));
        assert!(BackgroundLoad::start(Path::new("nothing-of-this-name"), 1, 1).is_err());
    }
}
