//! Manual pages and completions, made from the definition of the options.

use std::fs;
use std::path::Path;

use clap_complete::Shell;

use crate::options::{
    COMMANDS, margay_command, markers_command, mesh_command, run_command, threads_command,
};
use crate::poe;

/// Prints the completions of one command for a shell.
pub fn completions(shell: Shell, command: &str) -> Result<(), String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(command), command, &mut text);
    use std::io::Write;
    std::io::stdout()
        .write_all(&text)
        .map_err(|e| format!("cannot print the completions: {e}"))
}

/// Writes the manual pages of all commands into `directory`.
pub fn manual(directory: &Path) -> Result<(), String> {
    let told = |path: &Path, e: std::io::Error| format!("cannot write '{}': {e}", path.display());
    fs::create_dir_all(directory).map_err(|e| told(directory, e))?;
    for name in COMMANDS {
        page(directory, name, definition(name))?;
    }
    page(directory, "margay-run", run_command("margay run"))?;
    page(directory, "margay-mesh", mesh_command("margay mesh"))?;
    page(directory, "margay-markers", markers_command())?;
    page(directory, "margay-threads", threads_command())?;
    page(
        directory,
        "margay-bench",
        margay_cli_bench_options::command(),
    )?;
    page(
        directory,
        "margay-bench-threads",
        margay_cli_bench_options::threads_command(),
    )
}

fn page(directory: &Path, name: &str, command: clap::Command) -> Result<(), String> {
    let path = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .manual("Margay")
        .render(&mut text)
        .and_then(|()| fs::write(&path, &text))
        .map_err(|e| format!("cannot write '{}': {e}", path.display()))
}

fn definition(command: &str) -> clap::Command {
    match command {
        "margay" => margay_command(),
        "showmesh" => mesh_command(command),
        "poe" => poe::command(),
        _ => run_command(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let directory = tempfile::tempdir().unwrap();
        manual(directory.path()).unwrap();
        for name in COMMANDS {
            assert!(directory.path().join(format!("{name}.1")).is_file());
        }
        for (name, options) in [
            (
                "mpiexec",
                &["np", "timeout", "stdin", "report\\-bindings"][..],
            ),
            ("margay-threads", &["json"]),
            ("margay-bench", &["with\\-mpi", "compare"]),
            ("margay-bench-threads", &["threads", "compare"]),
        ] {
            let page = directory.path().join(format!("{name}.1"));
            let page = fs::read_to_string(page).unwrap();
            for option in options {
                assert!(page.contains(option), "{name}: {option}");
            }
        }
    }
}
