//! `margay-bench`: the program that `margay bench` runs. It takes the same options.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::FromArgMatches;
use margay_cli_bench_options::{BenchOptions, command};

fn main() -> ExitCode {
    let matches = command().get_matches();
    let options = BenchOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match margay_bench_suite::bench(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("margay bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
