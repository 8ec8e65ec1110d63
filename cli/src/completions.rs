//! Completions of shells, made from the definition of the options.

use std::io::Write;

use clap_complete::Shell;

use crate::options::{margay_command, mesh_command, run_command};
use crate::poe;

/// Prints the completions of one command for a shell.
///
/// # Errors
/// When the standard output takes no more.
pub fn print(shell: Shell, command: &str) -> Result<(), String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(command), command, &mut text);
    std::io::stdout()
        .write_all(&text)
        .map_err(|e| format!("cannot print the completions: {e}"))
}

fn definition(command: &str) -> clap::Command {
    match command {
        "margay" => margay_command(),
        "showmesh" => mesh_command(command),
        "poe" => poe::command(),
        _ => run_command(command),
    }
}
