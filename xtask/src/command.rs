//! Commands that are run for what they print.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// What a command prints.
///
/// # Errors
/// When it cannot be started or fails, with what it says.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command
        .output()
        .with_context(|| format!("{command:?} cannot be started"))?;
    if !done.status.success() {
        let report = String::from_utf8_lossy(&done.stderr);
        bail!("{command:?} failed: {}", report.trim());
    }
    Ok(done.stdout)
}
