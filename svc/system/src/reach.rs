//! The way to another host: a remote shell, as the launcher uses it.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use margay_job_launch::hosts::{named_shell, remote_words};

/// The variable that names another remote shell.
const VARIABLE: &str = "MARGAY_RSH";

/// The words of a remote shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reach(Vec<OsString>);

impl Reach {
    /// The remote shell that the environment names, else ssh.
    pub(crate) fn usual() -> Reach {
        let named = std::env::var(VARIABLE).unwrap_or_default();
        Reach::of(&named)
    }

    /// The remote shell of these words; ssh where there are none.
    pub(crate) fn of(text: &str) -> Reach {
        Reach(named_shell(text))
    }

    /// As the user would write it.
    pub(crate) fn text(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// A command of the shell there.
    pub(crate) fn command(&self, host: &str, command: &str) -> Command {
        let mut words = remote_words(host, &self.0).into_iter();
        let mut own = Command::new(words.next().unwrap_or_default());
        own.args(words).arg(command);
        own
    }

    /// Runs a command of the shell there, which prints nothing.
    ///
    /// # Errors
    /// In words that name the host.
    pub(crate) fn run(&self, host: &str, command: &str) -> Result<(), String> {
        let output = self.command(host, command).stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            format!("host {host}: cannot run '{}': {error}; install it, or name another remote shell in {VARIABLE}", self.text())
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        Err(format!("host {host}: {}", said.join("; ")))
    }
}
