//! What is shown of the grid: the table of means, the list of cells in which a peer is faster, and
//! the files with these, the heat map and all figures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use margay_bench_common::host::Host;
use margay_bench_common::mpi::OURS;
use margay_bench_common::page::{self, empty_table, significant, to_the_right};
use serde::Serialize;

use super::cells::{Grid, Ratio, axes};
use super::picture;
use crate::report::bytes;

/// Significant digits of figures in the list.
const DIGITS: usize = 3;

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
mod tests {
    use super::*;
    use crate::grid::cells::tests::small;

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
