//! The grid: every operation, every size from 1 B to 4 MiB, several numbers of ranks, with buffers
//! that are written before each call and untouched ones. [`cells`] makes ratios of the figures,
//! [`mod@report`] tables and files, [`picture`] the heat map.

pub mod cells;
pub mod picture;
pub mod report;

use std::path::Path;

use anyhow::{Context, Result};
use margay_bench_common::mpi::Installation;
use margay_bench_common::process::run_quietly;

use crate::figures::{Figure, Line};
use crate::plan::LIMIT_S;

/// What belongs together in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Messages and one-sided operations between pairs of ranks.
    Pairs,
    /// Blocking collective operations.
    Blocking,
    /// Nonblocking ones, each awaited at once.
    Nonblocking,
    /// Messages of two threads of a rank at once.
    Threads,
}

const FAMILIES: [(Family, &[&str]); 4] = [
    (
        Family::Pairs,
        &[
            "latency",
            "oneway",
            "bothways",
            "put",
            "get",
            "puts",
            "gets",
            "accumulate",
            "get_accumulate",
            "fetch_and_op",
            "compare_and_swap",
        ],
    ),
    (Family::Blocking, &COLLECTIVES),
    (Family::Nonblocking, &COLLECTIVES),
    (Family::Threads, &["exchange", "window"]),
];

const COLLECTIVES: [&str; 16] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
];

/// Threads of a rank in [`Family::Threads`].
const THREADS: &str = "2";

/// One run of one program: one operation at all sizes.
#[derive(Clone, Debug)]
pub struct GridUnit {
    /// Its family; also decides the program.
    pub family: Family,
    /// The operation's name in the program.
    pub operation: &'static str,
    /// Ranks of the job.
    pub ranks: usize,
    /// `written`: buffers are written before each call, or `untouched`.
    pub data: &'static str,
    step: &'static str,
    batch_ms: &'static str,
}

/// Returns all runs; `quick` takes fewer numbers of ranks and sizes, and written buffers alone.
#[must_use]
pub fn units(quick: bool) -> Vec<GridUnit> {
    let ranks: &[usize] = if quick { &[2, 8] } else { &[2, 4, 8, 16] };
    let data: &[&str] = if quick {
        &["written"]
    } else {
        &["written", "untouched"]
    };
    let (step, batch_ms) = if quick { ("16", "1") } else { ("4", "3") };
    let mut units = Vec::new();
    for (family, operations) in FAMILIES {
        for &ranks in ranks
            .iter()
            .filter(|&&n| family != Family::Threads || n == 2)
        {
            for &data in data {
                units.extend(operations.iter().map(|&operation| GridUnit {
                    family,
                    operation,
                    ranks,
                    data,
                    step,
                    batch_ms,
                }));
            }
        }
    }
    units
}

impl GridUnit {
    /// Returns the operation's name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self.family {
            Family::Nonblocking => format!("i{}", self.operation),
            Family::Threads => format!("{} of {THREADS} threads", self.operation),
            Family::Pairs | Family::Blocking => self.operation.to_owned(),
        }
    }

    /// For the progress line: operation, buffers and ranks.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} {}, {} ranks", self.name(), self.data, self.ranks)
    }

    /// Runs the program once with one implementation; `programs` holds that implementation's
    /// executables. Returns how its library calls itself, and the time at each size in
    /// microseconds.
    ///
    /// # Errors
    /// When the job fails, takes too long or reports something else.
    pub fn run(
        &self,
        implementation: &Installation,
        programs: &Path,
    ) -> Result<(String, Vec<(u64, Figure)>)> {
        let (program, form) = match self.family {
            Family::Pairs => ("grid_pairs", None),
            Family::Threads => ("threads", None),
            Family::Blocking => ("grid_coll", Some("blocking")),
            Family::Nonblocking => ("grid_coll", Some("nonblocking")),
        };
        let mut command = implementation.launch(self.ranks, LIMIT_S);
        command.arg(programs.join(program));
        command.args(["--operation", self.operation, "--data", self.data]);
        command.args(["--step", self.step, "--batch-ms", self.batch_ms]);
        if let Some(form) = form {
            command.args(["--form", form]);
        }
        let what = || format!("{}: {}", implementation.name, self.label());
        let output = run_quietly(&mut command).with_context(what)?;
        let library = output
            .lines()
            .find_map(|line| line.strip_prefix("library "));
        let lines = output
            .lines()
            .filter_map(|line| line.strip_prefix("figure "));
        let figures: Option<Vec<_>> = lines
            .map(|rest| Line::parse(rest).map(|line| (line.bytes, line.figure)))
            .collect();
        figures
            .filter(|figures| !figures.is_empty())
            .context("the program reported no figures, or damaged ones")
            .with_context(what)
            .map(|figures| (library.unwrap_or("version not asked").to_owned(), figures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_every_operation_with_both_kinds_of_buffers() {
        let units = units(false);
        let count = |family| units.iter().filter(|unit| unit.family == family).count();
        assert_eq!(count(Family::Pairs), 11 * 4 * 2);
        assert_eq!(count(Family::Blocking), 16 * 4 * 2);
        assert_eq!(count(Family::Nonblocking), 16 * 4 * 2);
        assert_eq!(count(Family::Threads), 2 * 2);
        assert_eq!(units[0].label(), "latency written, 2 ranks");
        assert!(units.iter().any(|unit| unit.name() == "iexscan"));
    }
}
