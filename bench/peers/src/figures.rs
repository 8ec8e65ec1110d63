//! Figures: what a benchmark program reports, and medians over repetitions.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use margay_bench_common::statistics::median;
use serde::Serialize;

/// What was measured. Ordered as the tables are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Point {
    /// The test's place in the tables (see [`Test`]).
    pub test: Test,
    /// Ranks of the job.
    pub ranks: usize,
    /// What kind of the test: memory of `malloc` or `alloc` (MPI_Alloc_mem), threads of a rank,
    /// where a computation runs, the OpenMP library; or `-`.
    pub buffer: String,
    /// Bytes of a message, or of a rank's contribution.
    pub bytes: u64,
}

/// The tests, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Test {
    Latency,
    OneWay,
    BothWays,
    Put,
    Get,
    Accumulate,
    Exchange,
    Window,
    Overlap,
    Together,
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Allgather,
    Alltoall,
    Hybrid,
    Start,
}

impl Test {
    const NAMES: [(&'static str, Self); 18] = [
        ("latency", Self::Latency),
        ("oneway", Self::OneWay),
        ("bothways", Self::BothWays),
        ("put", Self::Put),
        ("get", Self::Get),
        ("accumulate", Self::Accumulate),
        ("exchange", Self::Exchange),
        ("window", Self::Window),
        ("overlap", Self::Overlap),
        ("together", Self::Together),
        ("barrier", Self::Barrier),
        ("bcast", Self::Bcast),
        ("reduce", Self::Reduce),
        ("allreduce", Self::Allreduce),
        ("allgather", Self::Allgather),
        ("alltoall", Self::Alltoall),
        ("hybrid", Self::Hybrid),
        ("start", Self::Start),
    ];

    /// Returns the name in the programs' output and in the tables.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, test)| *test == self)
            .expect("every test has a name")
            .0
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, test)| *test)
    }

    /// Returns what the figures of this test mean.
    pub fn unit(self) -> Unit {
        match self {
            Self::OneWay | Self::BothWays => Unit::MegabytesPerSecond,
            Self::Start => Unit::Milliseconds,
            Self::Overlap => Unit::Share,
            _ => Unit::Microseconds,
        }
    }
}

/// Units of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Less is better.
    #[serde(rename = "us")]
    Microseconds,
    /// Less is better.
    #[serde(rename = "ms")]
    Milliseconds,
    /// 10^6 bytes a second; more is better.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Part of 1; more is better.
    #[serde(rename = "share")]
    Share,
}

impl Unit {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::MegabytesPerSecond => "MB/s",
            Self::Share => "share",
        }
    }

    /// Whether the larger figure is the better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::MegabytesPerSecond | Self::Share)
    }

    /// Ratio of times: `ours` to `theirs`, below 1 when ours is the faster. Shares have none.
    pub fn ratio(self, ours: f64, theirs: f64) -> Option<f64> {
        match self {
            Self::MegabytesPerSecond => Some(theirs / ours),
            Self::Microseconds | Self::Milliseconds => Some(ours / theirs),
            Self::Share => None,
        }
    }
}

/// One figure of one run: the median and the best of its batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Median of the batches of the run.
    pub median: f64,
    /// Best batch of the run.
    pub best: f64,
}

/// What one run of a program reported.
#[derive(Debug, Default)]
pub struct Reported {
    /// First line of the library's version string.
    pub library: Option<String>,
    /// The file of the OpenMP library that was loaded, of programs that report it.
    pub openmp: Option<String>,
    /// The figures in the order of the output.
    pub figures: Vec<(Point, Figure)>,
}

/// Reads a program's standard output; lines of another form belong to the implementation and are
/// passed over.
///
/// # Errors
/// When a figure's line is damaged, or no figure is there at all.
pub fn parse(output: &str, ranks: usize) -> Result<Reported> {
    let mut reported = Reported::default();
    for line in output.lines() {
        if let Some(library) = line.strip_prefix("library ") {
            reported.library = Some(library.trim().to_owned());
        } else if let Some(openmp) = line.strip_prefix("openmp ") {
            reported.openmp = Some(openmp.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("figure ") {
            let figure = parse_figure(rest, ranks)
                .with_context(|| format!("damaged line of figures: {line}"))?;
            reported.figures.push(figure);
        }
    }
    if reported.figures.is_empty() {
        bail!("the program reported no figures");
    }
    Ok(reported)
}

fn parse_figure(rest: &str, ranks: usize) -> Option<(Point, Figure)> {
    let line = Line::parse(rest)?;
    let point = Point {
        test: Test::from_name(line.test)?,
        ranks,
        buffer: line.buffer.to_owned(),
        bytes: line.bytes,
    };
    Some((point, line.figure))
}

/// The words of a line of figures.
pub(crate) struct Line<'a> {
    pub(crate) test: &'a str,
    pub(crate) buffer: &'a str,
    pub(crate) bytes: u64,
    pub(crate) figure: Figure,
}

impl Line<'_> {
    /// From what stands behind the line's first word.
    pub(crate) fn parse(rest: &str) -> Option<Line<'_>> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [
            test,
            "buffer",
            buffer,
            "bytes",
            bytes,
            _unit,
            median,
            "min",
            best,
        ] = words[..]
        else {
            return None;
        };
        Some(Line {
            test,
            buffer,
            bytes: bytes.parse().ok()?,
            figure: Figure {
                median: median.parse().ok()?,
                best: best.parse().ok()?,
            },
        })
    }
}

/// All runs of one point with one implementation.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Median over the repetitions of the runs' medians.
    pub median: f64,
    /// Best batch of all runs.
    pub best: f64,
    /// The runs' medians in the order of the repetitions.
    pub runs: Vec<f64>,
}

/// Every figure of a benchmark run: point, then implementation, then its runs.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<Point, BTreeMap<String, Vec<Figure>>>);

impl Figures {
    /// Adds one run's figure.
    pub fn add(&mut self, point: Point, implementation: &str, figure: Figure) {
        self.0
            .entry(point)
            .or_default()
            .entry(implementation.to_owned())
            .or_default()
            .push(figure);
    }

    /// Returns the points in the order of the tables, with each implementation's summary.
    pub fn summaries(&self) -> impl Iterator<Item = (&Point, BTreeMap<&str, Summary>)> {
        self.0.iter().map(|(point, runs)| {
            let unit = point.test.unit();
            (
                point,
                runs.iter()
                    .map(|(name, runs)| (name.as_str(), summarize(runs, unit)))
                    .collect(),
            )
        })
    }
}

fn summarize(runs: &[Figure], unit: Unit) -> Summary {
    let best = runs
        .iter()
        .map(|run| run.best)
        .reduce(if unit.more_is_better() {
            f64::max
        } else {
            f64::min
        });
    let runs: Vec<f64> = runs.iter().map(|run| run.median).collect();
    Summary {
        median: median(&runs),
        best: best.unwrap_or(f64::NAN),
        runs,
    }
}

#[cfg(test)]
mod tests {
    use margay_bench_common::mpi::OURS;

    use super::*;

    #[test]
    fn output_is_read_with_noise_of_the_implementation() {
        let output = "warning: something\nlibrary Margay 0.1\nfigure latency buffer malloc bytes 8 us 0.25 min 0.2\n";
        let reported = parse(output, 2).unwrap();
        assert_eq!(reported.library.as_deref(), Some("Margay 0.1"));
        let (point, figure) = &reported.figures[0];
        assert_eq!(
            (point.test, point.ranks, point.bytes, point.buffer.as_str()),
            (Test::Latency, 2, 8, "malloc")
        );
        assert_eq!(
            *figure,
            Figure {
                median: 0.25,
                best: 0.2
            }
        );
    }

    #[test]
    fn damaged_and_missing_figures_are_errors() {
        assert!(parse("", 2).is_err());
        for line in [
            "figure latency",
            "figure nothing buffer - bytes 8 us 1 min 1",
            "figure bcast buffer - bytes x us 1 min 1",
        ] {
            assert!(parse(line, 2).unwrap_err().to_string().contains(line));
        }
    }

    #[test]
    fn ratios_are_of_times() {
        assert_eq!(Unit::Microseconds.ratio(1.0, 2.0), Some(0.5));
        assert_eq!(Unit::MegabytesPerSecond.ratio(2000.0, 1000.0), Some(0.5));
        assert_eq!(Unit::Share.ratio(0.9, -0.1), None);
    }

    #[test]
    fn the_best_run_of_a_bandwidth_is_the_highest() {
        let mut figures = Figures::default();
        let point = Point {
            test: Test::OneWay,
            ranks: 2,
            buffer: "malloc".into(),
            bytes: 8,
        };
        for (median, best) in [(10.0, 12.0), (20.0, 22.0), (15.0, 30.0)] {
            figures.add(point.clone(), OURS, Figure { median, best });
        }
        let (_, by_name) = figures.summaries().next().unwrap();
        assert_eq!((by_name[OURS].median, by_name[OURS].best), (15.0, 30.0));
    }
}
