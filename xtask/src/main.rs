//! `cargo xtask ...`: the project's own commands.
#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;
use std::process::{self, ExitCode};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use xtask::{header, recording, reproduce, stage, test_programs, tidy, wheel, workspace};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything optimized and assemble the usable tree.
    Stage {
        /// Where to [default: stage/ in the workspace]
        folder: Option<PathBuf>,
    },
    /// Copy the stage tree.
    Install {
        /// Folder that gets bin, lib, include and share.
        prefix: PathBuf,
    },
    /// Pack the stage tree as a Python wheel, and its debug information beside it.
    Wheel {
        /// Where to [default: dist/ in the workspace]
        folder: Option<PathBuf>,
    },
    /// Build a clone of the last commit in another folder and compare stage tree, debug information
    /// and wheel byte by byte.
    Reproduce,
    /// Print mpi.h and the list of symbols from the definitions of the functions.
    Header {
        /// Only say whether they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Print the generated part of the Fortran bindings.
    Fortran {
        /// Where to.
        folder: PathBuf,
    },
    /// Print the lists in the guides (variables, calls, errors) from their definitions.
    Docs {
        /// Only say whether they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Record docs/deadlock.svg anew: a program that hangs, and what the launcher says about it.
    Recording,
    /// Build all tests and run them, several test programs at a time.
    Test {
        /// How many programs at a time [default: one more than there are cores]
        #[arg(long)]
        at_once: Option<usize>,
        /// A line of the shell that is run among them, as if it were a test program.
        #[arg(long)]
        beside: Vec<String>,
    },
    /// Check the rules of the house that a program can check.
    Tidy,
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Stage { folder } => stage::build(&folder.unwrap_or_else(stage::folder)),
        Command::Install { prefix } => stage::install(&stage::folder(), &prefix),
        Command::Wheel { folder } => {
            let folder = folder.unwrap_or_else(|| workspace().join("dist"));
            let wheel = wheel::build(&stage::folder(), &folder)?;
            println!("{}", wheel.display());
            Ok(())
        }
        Command::Reproduce => reproduce::run(),
        Command::Header { check } => {
            header::run(workspace(), check).map_err(|error| anyhow!(error))
        }
        Command::Fortran { folder } => stage::fortran_sources(&folder),
        Command::Docs { check } => docs(check),
        Command::Recording => recording::write(&stage::folder()),
        Command::Test { at_once, beside } => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            test_programs::run(at_once.unwrap_or(cores + 1), &beside)
        }
        Command::Tidy => {
            let findings = tidy::check(workspace())?;
            for finding in &findings {
                println!("{finding}");
            }
            if !findings.is_empty() {
                bail!("{} findings", findings.len());
            }
            println!("tidy: the house is in order");
            Ok(())
        }
    }
}

/// Runs the program that links the product's tables.
fn docs(check: bool) -> Result<()> {
    let mut cargo = process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace())
        .args(["run", "--quiet", "--package", "xtask-docs", "--"]);
    if check {
        cargo.arg("--check");
    }
    let status = cargo.status().context("cargo cannot be started")?;
    if !status.success() {
        bail!("the guide's lists: {status}");
    }
    Ok(())
}
