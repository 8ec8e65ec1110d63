//! The cells of the grid: figures of all implementations at one point, ratios, tables and files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use margay_bench_common::host::Host;
use margay_bench_common::mpi::OURS;
use margay_bench_common::page::{self, empty_table, significant, to_the_right};
use margay_bench_common::statistics::median;
use serde::Serialize;

use super::{Family, GridUnit, picture};
use crate::figures::Figure;
use crate::report::bytes;

/// Significant digits of figures in the list.
const DIGITS: usize = 3;

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
    best_peer: &'a str,
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

/// Geometric mean of ratios, how many there are and how many of them are above 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mean {
    mean: f64,
    cells: usize,
    above: usize,
}

fn mean(ratios: impl Iterator<Item = f64>) -> Option<Mean> {
    let (mut logarithms, mut cells, mut above) = (0.0, 0, 0);
    for ratio in ratios {
        logarithms += ratio.ln();
        cells += 1;
        above += usize::from(ratio > 1.0);
    }
    (cells > 0).then(|| Mean {
        mean: (logarithms / cells as f64).exp(),
        cells,
        above,
    })
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

/// Returns the table of geometric means: a line for each operation, a column for each number of
/// ranks.
fn table(ratios: &[Ratio<'_>], markdown: bool) -> String {
    let (operations, ranks) = axes(ratios);
    let mut table = empty_table(markdown);
    let mut head = vec!["operation".to_owned()];
    head.extend(ranks.iter().map(|n| format!("{n} ranks")));
    head.extend(["all", "cells", "above 1", "worst"].map(str::to_owned));
    table.set_header(&head);
    let line = |name: &str, of: &dyn Fn(&Ratio<'_>) -> bool| {
        let chosen = || ratios.iter().filter(|r| of(r));
        let mut cells = vec![name.to_owned()];
        for &n in &ranks {
            let at = mean(chosen().filter(|r| r.cell.ranks == n).map(|r| r.ratio));
            cells.push(at.map_or(String::new(), |at| format!("{:.2}", at.mean)));
        }
        if let Some(all) = mean(chosen().map(|r| r.ratio)) {
            let worst = chosen().map(|r| r.ratio).fold(0.0, f64::max);
            cells.push(format!("{:.2}", all.mean));
            cells.extend([all.cells.to_string(), all.above.to_string()]);
            cells.push(format!("{worst:.2}"));
        }
        cells
    };
    for name in &operations {
        table.add_row(line(name, &|r| r.cell.operation == *name));
    }
    table.add_row(line("all", &|_| true));
    to_the_right(&mut table, 1..head.len());
    table.to_string()
}

/// Returns the list of cells above 1, the worst first.
fn above(ratios: &[Ratio<'_>], markdown: bool) -> String {
    let mut above: Vec<&Ratio<'_>> = ratios.iter().filter(|r| r.ratio > 1.0).collect();
    above.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let mut table = empty_table(markdown);
    let head = [
        "operation",
        "ranks",
        "bytes",
        "buffers",
        "us",
        "best peer",
        "its us",
        "ratio",
    ];
    table.set_header(head);
    for r in above {
        table.add_row([
            r.cell.operation.clone(),
            r.cell.ranks.to_string(),
            bytes(r.cell.bytes),
            r.cell.data.to_owned(),
            significant(r.us[OURS], DIGITS),
            r.best_peer.to_owned(),
            significant(r.us[r.best_peer], DIGITS),
            format!("{:.2}", r.ratio),
        ]);
    }
    to_the_right(&mut table, [1, 2, 4, 6, 7]);
    table.to_string()
}

/// What is known beside the figures.
#[derive(Debug, Serialize)]
pub struct Circumstances {
    /// The day, as year-month-day.
    pub date: String,
    /// Processor and number of usable cores.
    pub host: Host,
    /// Repetitions asked for.
    pub repetitions: usize,
    /// Name and version of each implementation.
    pub implementations: Vec<String>,
    /// Runs that failed, and why.
    pub failures: Vec<String>,
}

impl Circumstances {
    fn notes(&self) -> String {
        let mut text = String::new();
        let host = &self.host;
        let _ = writeln!(
            text,
            "{}, {} cores, {}; medians of {} repetitions. ratio: our time to the best peer's in this run; means are geometric.\n\
             Pairs of ranks r and r + half of all, all at once; collectives: bytes of a rank's contribution; time of the slowest rank.\n\
             written: a rank writes what it sends before each call, inside of the measured time.",
            self.date, host.cores, host.processor, self.repetitions
        );
        for line in &self.implementations {
            let _ = writeln!(text, "{line}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "failed: {failure}");
        }
        text
    }

    /// Returns what the terminal shows: the table of means, notes, the cells above 1.
    #[must_use]
    pub fn text(&self, grid: &Grid) -> String {
        let ratios = grid.ratios();
        let (table, above) = (table(&ratios, false), above(&ratios, false));
        format!("{table}\n\n{}\ncells above 1:\n{above}", self.notes())
    }

    /// Writes table, heat map and figures into `folder` and returns their paths.
    ///
    /// # Errors
    /// When the folder or a file cannot be written, or the picture not be drawn.
    pub fn save(&self, grid: &Grid, folder: &Path, suffix: &str) -> Result<[PathBuf; 3]> {
        let ratios = grid.ratios();
        let name = format!("{}-{}-grid{suffix}", self.date, self.host.class());
        let title = format!("{} on {}", self.date, self.host.class());
        let page = format!(
            "# The grid, {title}\n\n```\n{}```\n\n![ratios]({name}.svg)\n\n{}\n\n## Cells above 1\n\n{}\n",
            self.notes(),
            table(&ratios, true),
            above(&ratios, true)
        );
        let lines: Result<Vec<String>, _> = ratios.iter().map(serde_json::to_string).collect();
        let json = format!(
            "{{\"run\":{},\n\"cells\":[\n{}\n]}}\n",
            serde_json::to_string(self)?,
            lines?.join(",\n")
        );
        let svg = picture::draw(&ratios, &title)?;
        page::save(folder, &name, [("md", page), ("svg", svg), ("json", json)])
    }
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

    #[test]
    fn means_are_geometric_and_cells_above_one_are_counted() {
        let all = mean([0.5, 2.0].into_iter()).unwrap();
        assert!((all.mean - 1.0).abs() < 1e-12);
        assert_eq!((all.cells, all.above), (2, 1));
        assert_eq!(mean(std::iter::empty()), None);
    }

    #[test]
    fn the_list_has_the_cells_above_one_alone() {
        let grid = small();
        let list = above(&grid.ratios(), true);
        assert_eq!(list.matches("64 B").count(), 2);
        assert!(!list.contains("| 8 B"), "{list}");
    }

    #[test]
    fn three_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let circumstances = Circumstances {
            date: "2000-01-01".into(),
            host: Host::detect(),
            repetitions: 1,
            implementations: vec!["margay: 1".into()],
            failures: vec![],
        };
        let paths = circumstances
            .save(&small(), folder.path(), "-partial")
            .unwrap();
        let texts = paths.map(|path| std::fs::read_to_string(path).unwrap());
        assert!(texts[0].contains("-grid-partial.svg") && texts[0].contains("latency"));
        assert!(texts[1].starts_with("<svg"));
        let json: serde_json::Value = serde_json::from_str(&texts[2]).unwrap();
        assert_eq!(json["cells"].as_array().unwrap().len(), 4);
        assert!(circumstances.text(&small()).contains("cells above 1:"));
    }
}
