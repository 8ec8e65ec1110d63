//! The options of `margay bench files`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::Reporting;

/// NX's modes of access, by their numbers.
pub const NX_MODES: [&str; 6] = [
    "M_UNIX", "M_LOG", "M_SYNC", "M_RECORD", "M_GLOBAL", "M_ASYNC",
];

/// The ways of MPI-IO that are measured, by their numbers: each but `collective` does what the mode
/// of NX with its number does, or `independent` what M_ASYNC does.
pub const MPI_MODES: [&str; 6] = [
    "atomic",
    "shared",
    "ordered",
    "strided",
    "collective",
    "independent",
];

/// What can be chosen: an interface with all of its modes, or a mode.
pub const CHOICES: [&str; 14] = [
    "nx",
    "mpi",
    "M_UNIX",
    "M_LOG",
    "M_SYNC",
    "M_RECORD",
    "M_GLOBAL",
    "M_ASYNC",
    "atomic",
    "shared",
    "ordered",
    "strided",
    "collective",
    "independent",
];

/// Measure the files of a directory: nodes by modes of access by lengths of records by sizes,
/// sorted into four buckets, through NX and MPI-IO.
#[derive(Clone, Debug, Args)]
pub struct FilesOptions {
    /// Where the file is made: in a parallel file system, on a local disk, in memory
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,

    /// Fewer nodes, records and sizes: about a minute instead of about ten
    #[arg(long)]
    pub quick: bool,

    /// Only these modes of NX (all: nx) and ways of MPI-IO (all: mpi), separated by commas
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_parser = CHOICES)]
    pub modes: Vec<String>,

    /// Numbers of nodes, separated by commas [default: 1,2,4,8,16; quick 1,2,4]
    #[arg(long, value_delimiter = ',', value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: Vec<u32>,

    /// Lengths of records in bytes, separated by commas [default:
    /// 8000,65000,500000,1000000,8192,65536,524288,1048576; quick 8000,65000,65536,1048576]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=1 << 30))]
    pub records: Vec<u32>,

    /// Megabytes of each node, separated by commas [default: 1,20; quick 1,8]
    #[arg(long, value_delimiter = ',', value_name = "MEGABYTES", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sizes: Vec<u32>,

    /// The time of writing includes that everything is stored
    #[arg(long)]
    pub sync: bool,

    /// Stop after this time; what is left out is counted
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,

    /// Measure MPI-IO with the MPI below this folder too, for comparison
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    pub with_mpi: Option<PathBuf>,

    /// What becomes of the figures.
    #[command(flatten)]
    pub reporting: Reporting,
}

/// Through what files are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// NX's six modes.
    Nx,
    /// MPI-IO.
    Mpi,
}

impl Interface {
    /// Returns both, in the order in which they are measured.
    #[must_use]
    pub fn all() -> [Self; 2] {
        [Self::Nx, Self::Mpi]
    }

    /// Returns its name among [`CHOICES`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nx => "nx",
            Self::Mpi => "mpi",
        }
    }

    /// Returns its modes, by their numbers.
    #[must_use]
    pub fn modes(self) -> [&'static str; 6] {
        match self {
            Self::Nx => NX_MODES,
            Self::Mpi => MPI_MODES,
        }
    }

    /// Returns the name of its program.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Nx => "files-nx",
            Self::Mpi => "files-mpi",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_can_be_chosen_and_nothing_else() {
        let mut all: Vec<&str> = Interface::all().map(Interface::name).to_vec();
        all.extend(Interface::all().iter().flat_map(|i| i.modes()));
        assert_eq!(all, CHOICES);
    }
}
