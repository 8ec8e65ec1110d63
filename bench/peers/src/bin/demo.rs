//! `make demo`: compile `examples/crucible.c`, run it on 1, 2 and 4 ranks, check, show a table and
//! write a picture.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use margay_bench_peers::demo::{Demo, prefix};

/// Convection in a crucible on 1, 2 and 4 ranks: a table, a check that all agree, a picture.
#[derive(Parser)]
#[command(name = "demo")]
struct Options {
    /// An installation with bin/mpicc and bin/mpiexec [default: the stage tree]
    #[arg(long)]
    prefix: Option<PathBuf>,
    /// Time steps [default: as examples/crucible.par says]
    #[arg(long)]
    steps: Option<u32>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match Demo::new(prefix(options.prefix.as_deref())).and_then(|demo| demo.run(options.steps)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
