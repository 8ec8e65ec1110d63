//! Tables and files of results: medians, the ratio to the best peer, the targets and what misses
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use margay_bench_common::host::Host;
use margay_bench_common::mpi::OURS;
use margay_bench_common::page::{self, empty_table, significant, to_the_right};
use serde::Serialize;

use crate::figures::{Figures, Point, Summary, Test, Unit};

/// What the project asks of itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    /// Largest ratio of our time to the best peer's in the same run.
    AtMost(f64),
    /// Smallest figure of ours.
    AtLeast(f64),
}

use Goal::{AtLeast, AtMost};

struct Target {
    test: Test,
    ranks: &'static [usize],
    bytes: &'static [u64],
    buffers: &'static [&'static str],
    goal: Goal,
}

/// Significant digits of figures in the table.
const DIGITS: usize = 3;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * 1024;

#[rustfmt::skip]
const TARGETS: [Target; 16] = [
    Target { test: Test::Latency, ranks: &[2], bytes: &[8], buffers: &["malloc", "alloc"], goal: AtMost(0.75) },
    Target { test: Test::Latency, ranks: &[2], bytes: &[4 * KIB], buffers: &["malloc", "alloc"], goal: AtMost(0.6) },
    Target { test: Test::Latency, ranks: &[2], bytes: &[64 * KIB], buffers: &["malloc", "alloc"], goal: AtMost(0.7) },
    Target { test: Test::Latency, ranks: &[2], bytes: &[MIB, 4 * MIB], buffers: &["malloc"], goal: AtMost(0.45) },
    Target { test: Test::Put, ranks: &[2], bytes: &[8, 64 * KIB], buffers: &["alloc"], goal: AtMost(0.9) },
    Target { test: Test::Get, ranks: &[2], bytes: &[8, 64 * KIB], buffers: &["alloc"], goal: AtMost(0.9) },
    Target { test: Test::Accumulate, ranks: &[2], bytes: &[8, 64 * KIB], buffers: &["alloc"], goal: AtMost(0.9) },
    Target { test: Test::Exchange, ranks: &[2], bytes: &[8], buffers: &["2"], goal: AtMost(1.0) },
    Target { test: Test::Window, ranks: &[2], bytes: &[8], buffers: &["2"], goal: AtMost(1.0) },
    Target { test: Test::Overlap, ranks: &[2], bytes: &[MIB, 4 * MIB], buffers: &["core", "device"], goal: AtLeast(0.9) },
    Target { test: Test::Barrier, ranks: &[2], bytes: &[0], buffers: &["malloc"], goal: AtMost(1.0) },
    Target { test: Test::Allreduce, ranks: &[2], bytes: &[8], buffers: &["malloc"], goal: AtMost(1.0) },
    Target { test: Test::Barrier, ranks: &[8, 16], bytes: &[0], buffers: &["malloc"], goal: AtMost(0.2) },
    Target { test: Test::Allreduce, ranks: &[8, 16], bytes: &[8], buffers: &["malloc"], goal: AtMost(0.2) },
    Target { test: Test::Hybrid, ranks: &[4], bytes: &[0], buffers: &["best"], goal: AtMost(1.0) },
    Target { test: Test::Start, ranks: &[64], bytes: &[0], buffers: &["-"], goal: AtMost(0.08) },
];
const TARGETS_64_KIB: [Test; 2] = [Test::Alltoall, Test::Bcast];

/// Returns the goal at a point, where one is set.
fn target(point: &Point) -> Option<Goal> {
    if TARGETS_64_KIB.contains(&point.test)
        && [8, 16].contains(&point.ranks)
        && point.bytes == 64 * KIB
    {
        return Some(AtMost(0.5));
    }
    let fits = |target: &&Target| {
        target.test == point.test
            && target.ranks.contains(&point.ranks)
            && target.bytes.contains(&point.bytes)
            && target.buffers.contains(&point.buffer.as_str())
    };
    TARGETS.iter().find(fits).map(|target| target.goal)
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    point: Point,
    unit: Unit,
    figures: BTreeMap<String, Summary>,
    best_peer: Option<String>,
    /// Our time divided by the best peer's.
    ratio: Option<f64>,
    /// What the project asks of itself: the largest ratio, or of a share the smallest figure.
    target: Option<Goal>,
}

impl Row {
    fn new(point: &Point, figures: BTreeMap<&str, Summary>) -> Self {
        let unit = point.test.unit();
        let best_peer = figures
            .iter()
            .filter(|(name, _)| **name != OURS)
            .min_by(|a, b| {
                let order = a.1.median.total_cmp(&b.1.median);
                if unit.more_is_better() {
                    order.reverse()
                } else {
                    order
                }
            })
            .map(|(name, _)| (*name).to_owned());
        let ours = figures.get(OURS).map(|summary| summary.median);
        let theirs = best_peer.as_ref().map(|name| figures[name.as_str()].median);
        Self {
            point: point.clone(),
            unit,
            ratio: ours
                .zip(theirs)
                .and_then(|(ours, theirs)| unit.ratio(ours, theirs)),
            target: target(point),
            best_peer,
            figures: figures
                .into_iter()
                .map(|(name, summary)| (name.to_owned(), summary))
                .collect(),
        }
    }

    /// Whether the goal is reached, where there is one and what it takes was measured.
    fn reaches(&self) -> Option<bool> {
        match self.target? {
            AtMost(most) => self.ratio.map(|ratio| ratio <= most),
            AtLeast(least) => self.figures.get(OURS).map(|ours| ours.median >= least),
        }
    }

    fn cells(&self, implementations: &[String]) -> Vec<String> {
        let mut cells = vec![
            self.point.test.name().to_owned(),
            self.point.ranks.to_string(),
            if matches!(self.point.test, Test::Barrier | Test::Hybrid | Test::Start) {
                "-".into()
            } else {
                bytes(self.point.bytes)
            },
            if self.point.test <= Test::Together || self.point.test == Test::Hybrid {
                self.point.buffer.clone()
            } else {
                "-".into()
            },
            self.unit.name().to_owned(),
        ];
        for name in implementations {
            cells.push(self.figures.get(name).map_or("failed".into(), |summary| {
                significant(summary.median, DIGITS)
            }));
        }
        cells.push(
            self.ratio
                .map_or(String::new(), |ratio| format!("{ratio:.2}")),
        );
        cells.push(match self.target {
            None => String::new(),
            Some(AtMost(most)) => format!("{most:.2}"),
            Some(AtLeast(least)) => format!("share {least:.2}"),
        });
        cells.push(if self.reaches() == Some(false) {
            "miss".into()
        } else {
            String::new()
        });
        cells
    }
}

/// A whole run, as the JSON file holds it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The day, as year-month-day.
    pub date: String,
    /// Processor and number of usable cores.
    pub host: Host,
    /// Repetitions asked for; the figure in the table is the median over those that were run
    /// (`runs`).
    pub repetitions: usize,
    /// Name and version of what was measured, in the order of the columns.
    pub implementations: Vec<Measured>,
    /// Peers and runs that failed, and why.
    pub failures: Vec<String>,
    rows: Vec<Row>,
}

/// One implementation as it introduced itself.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Column.
    pub name: String,
    /// First line of MPI_Get_library_version.
    pub library: String,
}

impl Report {
    /// Puts the figures into rows.
    pub fn new(
        date: String,
        repetitions: usize,
        implementations: Vec<Measured>,
        failures: Vec<String>,
        figures: &Figures,
    ) -> Self {
        let rows = figures
            .summaries()
            .map(|(point, by_name)| Row::new(point, by_name))
            .collect();
        Self {
            date,
            host: Host::detect(),
            repetitions,
            implementations,
            failures,
            rows,
        }
    }

    /// Returns the table for the terminal, or as Markdown.
    pub fn table(&self, markdown: bool) -> String {
        let names: Vec<String> = self
            .implementations
            .iter()
            .map(|measured| measured.name.clone())
            .collect();
        let mut head = vec!["test", "ranks", "bytes", "kind", "unit"];
        head.extend(names.iter().map(String::as_str));
        head.extend(["ratio", "target", ""]);
        let mut table = empty_table(markdown);
        table.set_header(&head);
        for row in &self.rows {
            table.add_row(row.cells(&names));
        }
        let numbers = (1..head.len() - 1).filter(|column| ![3, 4].contains(column));
        to_the_right(&mut table, numbers);
        table.to_string()
    }

    /// Returns what to know beside the table: versions, failures and missed targets.
    pub fn notes(&self) -> String {
        let mut text = String::new();
        let host = &self.host;
        let _ = writeln!(
            text,
            "{}, {} cores, {}; medians of {} repetitions. ratio: our time to the best peer's in this run.\n\
             Point-to-point: time on rank 0. Collectives: time of the slowest rank. Start: launcher from start to end.\n\
             exchange, window: time of one of several threads of a rank, kind: how many. overlap: share of a nonblocking Allreduce \
             that hides behind a computation as long, with a progress thread, kind: where the computation runs. together: time of both \
             with a computation that is as long for all. hybrid: a step with 4 by 4 threads in nested OpenMP regions on each rank, \
             kind: the OpenMP library; best: ours with our own, peers with the best of the others.",
            self.date, host.cores, host.processor, self.repetitions
        );
        for measured in &self.implementations {
            let _ = writeln!(text, "{}: {}", measured.name, measured.library);
        }
        for failure in &self.failures {
            let _ = writeln!(text, "failed: {failure}");
        }
        let verdicts: Vec<bool> = self.rows.iter().filter_map(Row::reaches).collect();
        if !verdicts.is_empty() {
            let reached = verdicts.iter().filter(|reached| **reached).count();
            let _ = writeln!(text, "targets: {reached} of {} reached", verdicts.len());
        }
        text
    }

    /// Writes the JSON file and the Markdown table into `folder` and gives their paths.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn save(&self, folder: &Path, suffix: &str) -> Result<[PathBuf; 2]> {
        let name = format!("{}-{}{suffix}", self.date, self.host.class());
        let files = [
            ("json", serde_json::to_string_pretty(self)? + "\n"),
            (
                "md",
                format!(
                    "# {} on {}\n\n```\n{}```\n\n{}\n",
                    self.date,
                    self.host.class(),
                    self.notes(),
                    self.table(true)
                ),
            ),
        ];
        page::save(folder, &name, files)
    }
}

/// A number of bytes as tables show it.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        n if n >= MIB && n % MIB == 0 => format!("{} MiB", n / MIB),
        n if n >= KIB && n % KIB == 0 => format!("{} KiB", n / KIB),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figure;

    fn point(test: Test, ranks: usize, bytes: u64) -> Point {
        let buffer = if test == Test::Start { "-" } else { "malloc" };
        Point {
            test,
            ranks,
            buffer: buffer.into(),
            bytes,
        }
    }

    fn report(figures: &[(Test, &str, f64)]) -> Report {
        let mut all = Figures::default();
        for &(test, name, value) in figures {
            all.add(
                point(test, 2, 8),
                name,
                Figure {
                    median: value,
                    best: value,
                },
            );
        }
        let measured = |name: &str| Measured {
            name: name.to_owned(),
            library: format!("{name} 1"),
        };
        let implementations = vec![measured(OURS), measured("mpich"), measured("openmpi")];
        Report::new("2000-01-01".into(), 1, implementations, vec![], &all)
    }

    #[test]
    fn a_ratio_above_its_target_is_a_miss() {
        let report = report(&[
            (Test::Latency, OURS, 0.8),
            (Test::Latency, "mpich", 1.0),
            (Test::Latency, "openmpi", 2.0),
        ]);
        let row = &report.rows[0];
        assert_eq!(
            (row.best_peer.as_deref(), row.ratio, row.target),
            (Some("mpich"), Some(0.8), Some(AtMost(0.75)))
        );
        assert_eq!(row.reaches(), Some(false));
        assert!(report.table(false).contains("miss"));
        assert!(report.notes().contains("targets: 0 of 1 reached"));
    }

    #[test]
    fn the_best_peer_of_a_bandwidth_is_the_fastest() {
        let report = report(&[
            (Test::OneWay, OURS, 30.0),
            (Test::OneWay, "mpich", 10.0),
            (Test::OneWay, "openmpi", 15.0),
        ]);
        assert_eq!(
            (report.rows[0].best_peer.as_deref(), report.rows[0].ratio),
            (Some("openmpi"), Some(0.5))
        );
    }

    #[test]
    fn a_peer_without_a_figure_is_named_in_its_cell() {
        let report = report(&[(Test::Latency, OURS, 0.5), (Test::Latency, "mpich", 1.0)]);
        assert!(report.table(true).contains("failed"));
        assert_eq!(report.rows[0].reaches(), Some(true));
    }

    #[test]
    fn every_figure_to_reach_has_its_target() {
        let at = |test, ranks, bytes| target(&point(test, ranks, bytes));
        assert_eq!(at(Test::Latency, 2, 8), Some(AtMost(0.75)));
        assert_eq!(at(Test::Latency, 2, 4096), Some(AtMost(0.6)));
        assert_eq!(at(Test::Latency, 2, 65536), Some(AtMost(0.7)));
        assert_eq!(at(Test::Latency, 2, 4 * MIB), Some(AtMost(0.45)));
        assert_eq!(at(Test::Barrier, 16, 0), Some(AtMost(0.2)));
        assert_eq!(at(Test::Allreduce, 8, 8), Some(AtMost(0.2)));
        assert_eq!(at(Test::Allreduce, 2, 8), Some(AtMost(1.0)));
        assert_eq!(at(Test::Bcast, 8, 65536), Some(AtMost(0.5)));
        assert_eq!(at(Test::Alltoall, 16, 65536), Some(AtMost(0.5)));
        assert_eq!(at(Test::Start, 64, 0), Some(AtMost(0.08)));
        assert_eq!(at(Test::Start, 32, 0), None);
    }

    #[test]
    fn a_share_is_held_against_its_goal_itself() {
        let mut all = Figures::default();
        let point = Point {
            test: Test::Overlap,
            ranks: 2,
            buffer: "device".into(),
            bytes: MIB,
        };
        let figure = |value| Figure {
            median: value,
            best: value,
        };
        all.add(point.clone(), OURS, figure(0.8));
        all.add(point, "mpich", figure(-0.1));
        let row = Row::new(
            all.summaries().next().unwrap().0,
            all.summaries().next().unwrap().1,
        );
        assert_eq!(
            (row.ratio, row.target, row.reaches()),
            (None, Some(AtLeast(0.9)), Some(false))
        );
    }
}
