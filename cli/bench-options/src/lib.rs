//! The options of `margay bench`, `margay bench threads` and `margay bench files`.
//!
//! `margay` takes help, manual pages and completions from this definition, and the program that
//! measures, `margay-bench`, its parser. They are a crate of their own so that `margay` does not
//! link what draws pictures and prints tables.
#![forbid(unsafe_code)]

mod files;
mod machine;
mod threads;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

pub use files::{CHOICES, FilesOptions, Interface, MPI_MODES, NX_MODES};
pub use machine::Kernel;
pub use threads::{Chapter, RUNTIMES, ThreadKernel, ThreadsOptions};

/// The program that runs the suite, beside `margay` in the same folder.
pub const PROGRAM: &str = "margay-bench";

/// Measure this machine with the performance suite: Livermore loops, Comtest, STREAM, memory
/// ladder, EVM, matrix multiply, MP LINPACK.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchOptions {
    /// What else than the machine is measured.
    #[command(subcommand)]
    pub part: Option<Part>,

    /// Smaller sizes: under three minutes instead of under ten on two cores
    #[arg(long)]
    pub quick: bool,

    /// Only these kernels, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KERNEL")]
    pub only: Vec<Kernel>,

    /// Ranks of the runs on all cores [default: the usable cores]
    #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: Option<u32>,

    /// Run the message parts with the MPI below this folder too, for comparison
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    pub with_mpi: Option<PathBuf>,

    /// What becomes of the figures.
    #[command(flatten)]
    pub reporting: Reporting,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Part {
    // A doc comment here would stand in the help in place of the options' own.
    Threads(ThreadsOptions),
    Files(FilesOptions),
}

/// What becomes of the figures.
#[derive(Clone, Debug, Args)]
pub struct Reporting {
    /// Say what got slower since this report, and end with 1 when something did
    #[arg(long, value_name = "OLD.json", value_hint = ValueHint::FilePath)]
    pub compare: Option<PathBuf>,

    /// Print the report as JSON instead of as a table
    #[arg(long)]
    pub json: bool,

    /// Folder for the report as JSON, Markdown and SVG
    #[arg(long, value_name = "FOLDER", default_value = "margay-bench", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
}

/// Returns the parser of `margay bench`.
#[must_use]
pub fn command() -> clap::Command {
    BenchOptions::augment_args(named("margay bench"))
}

/// Returns the parser of `margay bench threads`.
#[must_use]
pub fn threads_command() -> clap::Command {
    ThreadsOptions::augment_args(named("margay bench threads"))
}

/// Returns the parser of `margay bench files`.
#[must_use]
pub fn files_command() -> clap::Command {
    FilesOptions::augment_args(named("margay bench files"))
}

/// Returns a command that calls itself `name`, and whose page is called the same with dashes.
fn named(name: &'static str) -> clap::Command {
    clap::Command::new(name.replace(' ', "-"))
        .version(concat!("(Margay) ", env!("CARGO_PKG_VERSION")))
        .display_name(name)
        .bin_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        command().debug_assert();
        threads_command().debug_assert();
        files_command().debug_assert();
    }
}
