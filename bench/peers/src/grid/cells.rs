//! The cells of the grid: figures of all implementations at one point, and their ratios.

use std::collections::BTreeMap;

use margay_bench_common::mpi::OURS;
use margay_bench_common::statistics::median;
use serde::Serialize;

use super::{Family, GridUnit};
use crate::figures::Figure;

/// Where a figure stands in the grid; ordered as tables and pictures are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    #[serde(skip)]
    family: Family,
    /// The family's place of the operation.
    #[serde(skip)]
    place: usize,
    /// The operation's name.
    pub operation: String,
    /// Ranks of the job.
    pub ranks: usize,
    /// `written` or `untouched`.
    pub data: &'static str,
    /// Bytes of a message, or of a rank's contribution.
    pub bytes: u64,
}

/// A cell with its figures.
#[derive(Debug, Serialize)]
pub struct Ratio<'a> {
    /// Where it stands.
    #[serde(flatten)]
    pub cell: &'a Cell,
    /// Median of the repetitions in microseconds, by implementation.
    pub us: BTreeMap<&'a str, f64>,
    pub(super) best_peer: &'a str,
    /// Our time divided by the best peer's.
    pub ratio: f64,
}

/// All figures of the grid.
#[derive(Debug, Default)]
pub struct Grid(BTreeMap<Cell, BTreeMap<String, Vec<f64>>>);

impl Grid {
    /// Adds what one run of a unit has shown.
    pub fn add(&mut self, unit: &GridUnit, implementation: &str, figures: &[(u64, Figure)]) {
        let (_, operations) = super::FAMILIES[unit.family as usize];
        let place = operations.iter().position(|&name| name == unit.operation);
        for (bytes, figure) in figures {
            let cell = Cell {
                family: unit.family,
                place: place.unwrap_or(usize::MAX),
                operation: unit.name(),
                ranks: unit.ranks,
                data: unit.data,
                bytes: *bytes,
            };
            let by_name = self.0.entry(cell).or_default();
            let runs = by_name.entry(implementation.to_owned()).or_default();
            runs.push(figure.median);
        }
    }

    /// Returns the cells that we and a peer have figures of.
    pub fn ratios(&self) -> Vec<Ratio<'_>> {
        let mut all = Vec::new();
        for (cell, runs) in &self.0 {
            let Some((best_peer, ratio)) = to_best_peer(runs) else {
                continue;
            };
            let us = runs
                .iter()
                .map(|(name, runs)| (name.as_str(), median(runs)));
            all.push(Ratio {
                cell,
                us: us.collect(),
                best_peer,
                ratio,
            });
        }
        all
    }
}

/// The best peer and our ratio to it, where we and a peer have figures.
fn to_best_peer(runs: &BTreeMap<String, Vec<f64>>) -> Option<(&str, f64)> {
    let ours = median(runs.get(OURS)?);
    let peers = runs.iter().filter(|(name, _)| *name != OURS);
    let (best_peer, theirs) = peers
        .map(|(name, runs)| (name.as_str(), median(runs)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    (ours > 0.0 && theirs > 0.0).then_some((best_peer, ours / theirs))
}

/// Returns the names of the operations in the order of the tables, and the numbers of ranks.
pub(super) fn axes<'a>(ratios: &[Ratio<'a>]) -> (Vec<&'a str>, Vec<usize>) {
    let mut operations: Vec<&str> = ratios.iter().map(|r| r.cell.operation.as_str()).collect();
    operations.dedup();
    let mut ranks: Vec<usize> = ratios.iter().map(|r| r.cell.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    (operations, ranks)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::grid::units;

    /// A grid of the two first operations at two sizes: twice as fast as the peer at 8 B, and half
    /// as fast at 64 B.
    pub(in crate::grid) fn small() -> Grid {
        let mut grid = Grid::default();
        let figure = |us| Figure {
            median: us,
            best: us,
        };
        for unit in units(false).iter().filter(|unit| unit.ranks <= 4).take(2) {
            grid.add(unit, OURS, &[(8, figure(1.0)), (64, figure(2.0))]);
            grid.add(unit, "mpich", &[(8, figure(2.0)), (64, figure(1.0))]);
            grid.add(unit, "openmpi", &[(8, figure(9.0))]);
        }
        grid
    }

    #[test]
    fn ratios_are_to_the_best_peer() {
        let grid = small();
        let ratios = grid.ratios();
        let found: Vec<_> = ratios
            .iter()
            .map(|r| (r.cell.bytes, r.best_peer, r.ratio))
            .collect();
        assert_eq!(
            found,
            [
                (8, "mpich", 0.5),
                (64, "mpich", 2.0),
                (8, "mpich", 0.5),
                (64, "mpich", 2.0)
            ]
        );
    }
}
