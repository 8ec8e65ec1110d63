//! The figures of threading runtimes as tables: medians, longest rounds, and how much of the
//! processor they took.

use std::fmt::Write as _;

use margay_bench_common::mpi::OURS;
use margay_bench_common::page::{empty_table, significant, to_the_right};

use super::plan::load_label;
use super::runtime::{IML, NAMES, SEQUENTIAL};
use crate::lines::Figure;
use crate::report::{DIGITS, Report, Run};

/// What the names of longest rounds end with.
pub const MAXIMUM: &str = ".max";

/// Values whose noise is above this many percent are marked ...
const NOISY_PERCENT: f64 = 20.0;
/// ... with this.
const NOISY: &str = "~";

/// What the names of parts of the processor end with.
const PROCESSOR: &str = ".cpu-wall";

/// The tables: for each what stands above it, the end of its figures' names, and whether less is
/// better.
const TABLES: [(&str, &str, bool); 3] = [
    ("Median of the rounds", "", true),
    ("Longest round", MAXIMUM, true),
    ("Processor time over time", PROCESSOR, false),
];

/// A line of all tables: what was measured, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the program.
    pub program: String,
    /// Name of the figure.
    pub figure: String,
    /// Unit of the median and of the longest round.
    pub unit: String,
    /// Size of teams.
    pub threads: usize,
    /// Whether others contended.
    pub contended: bool,
    /// How many others, see [`Run::busy`].
    pub busy: Option<usize>,
}

/// Returns every line, in the order of the runs.
pub fn rows(report: &Report) -> Vec<Row> {
    let mut rows = Vec::new();
    for run in &report.runs {
        for figure in &run.reported.figures {
            let row = Row {
                program: run.program.clone(),
                figure: figure.name.clone(),
                unit: figure.unit.clone(),
                threads: run.threads.unwrap_or(1),
                contended: run.contended,
                busy: run.busy,
            };
            let derived = figure.name.ends_with(MAXIMUM) || figure.name.ends_with(PROCESSOR);
            if !derived && !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    rows
}

impl Row {
    /// Returns the figure of a runtime whose name ends with `ending`.
    fn figure<'a>(&self, report: &'a Report, runtime: &str, ending: &str) -> Option<&'a Figure> {
        let fits = |run: &&Run| {
            run.program == self.program
                && run.implementation == runtime
                && run.threads == Some(self.threads)
                && run.contended == self.contended
                && run.busy == self.busy
        };
        let run = report.runs.iter().find(fits)?;
        let name = format!("{}{ending}", self.figure);
        run.reported
            .figures
            .iter()
            .find(|figure| figure.name == name)
    }

    /// Returns the value of that figure.
    pub fn value(&self, report: &Report, runtime: &str, ending: &str) -> Option<f64> {
        Some(self.figure(report, runtime, ending)?.value)
    }

    /// Returns the value as text, marked when it is noisy.
    fn text(&self, report: &Report, runtime: &str, ending: &str) -> String {
        self.figure(report, runtime, ending)
            .map_or("-".into(), |figure| {
                let is_noisy = figure.noise.is_some_and(|noise| noise > NOISY_PERCENT);
                let mark = if is_noisy { NOISY } else { "" };
                format!("{mark}{}", significant(figure.value, DIGITS))
            })
    }

    /// The size of teams and what ran beside.
    pub fn size(&self) -> String {
        let load = load_label(self.contended, self.busy);
        format!("{}{load}", self.threads).replace(", contended", " contended")
    }

    /// Returns a runtime's median over what the sequential program would take on as many cores as
    /// there are, at most a core for each thread.
    fn of_ideal(&self, report: &Report, runtime: &str) -> Option<f64> {
        let alone = Self {
            threads: 1,
            contended: false,
            busy: None,
            ..self.clone()
        };
        let sequential = alone.value(report, SEQUENTIAL, "")?;
        let cores = self.threads.min(report.host.cores) as f64;
        let ideal = (!self.contended && sequential > 0.0).then_some(sequential / cores)?;
        Some(self.value(report, runtime, "")? / ideal)
    }

    /// Ours over the best of the peers; OpenMP is held against other OpenMP only.
    fn ratio(&self, report: &Report, ours: &str, ending: &str) -> Option<f64> {
        let peers = NAMES.iter().filter(|name| match **name {
            OURS | IML | SEQUENTIAL => false,
            "tbb" => ours != OURS,
            _ => true,
        });
        let values = peers.filter_map(|name| self.value(report, name, ending));
        let best = values.reduce(f64::min).filter(|best| *best > 0.0)?;
        Some(self.value(report, ours, ending)? / best)
    }
}

/// Ours against the peers and against the ideal, for every line, in percent.
pub fn derive(report: &Report) -> Vec<Figure> {
    let mut derived = Vec::new();
    for row in rows(report) {
        let load = load_label(row.contended, row.busy);
        let what = format!(
            "{} {}, {} threads{load}",
            row.program, row.figure, row.threads
        );
        for name in [OURS, IML] {
            for (of, ratio) in [
                ("the best peer", row.ratio(report, name, "")),
                (
                    "the best peer's longest round",
                    row.ratio(report, name, MAXIMUM),
                ),
                ("the ideal", row.of_ideal(report, name)),
            ] {
                derived.extend(ratio.map(|ratio| Figure {
                    name: format!("{what}: {name} of {of}"),
                    unit: "percent".into(),
                    value: 100.0 * ratio,
                    noise: None,
                }));
            }
        }
    }
    derived
}

/// Returns all tables, each under its title.
pub fn tables(report: &Report, markdown: bool) -> String {
    let rows = rows(report);
    let measured = |name: &&&str| report.runs.iter().any(|run| run.implementation == **name);
    let names: Vec<&str> = NAMES.iter().filter(measured).copied().collect();
    let ours: Vec<&str> = names
        .iter()
        .filter(|name| [OURS, IML].contains(name))
        .copied()
        .collect();
    let mut text = String::new();
    for (title, ending, compared) in TABLES {
        let mut head = vec![
            "kernel".to_owned(),
            "figure".into(),
            "threads".into(),
            "unit".into(),
        ];
        head.extend(names.iter().map(|name| (*name).to_owned()));
        let ratios = if compared { &ours[..] } else { &[] };
        head.extend(ratios.iter().map(|name| format!("{name}/best")));
        let ideals = if ending.is_empty() { &ours[..] } else { &[] };
        head.extend(ideals.iter().map(|name| format!("{name}/ideal")));
        let mut table = empty_table(markdown);
        table.set_header(&head);
        for row in &rows {
            let unit = if compared {
                row.unit.clone()
            } else {
                "cpu/wall".into()
            };
            let mut cells = vec![row.program.clone(), row.figure.clone(), row.size(), unit];
            cells.extend(names.iter().map(|name| row.text(report, name, ending)));
            cells.extend(ratios.iter().map(|name| {
                row.ratio(report, name, ending)
                    .map_or(String::new(), |ratio| format!("{ratio:.2}"))
            }));
            cells.extend(ideals.iter().map(|name| {
                row.of_ideal(report, name)
                    .map_or(String::new(), |ratio| format!("{ratio:.2}"))
            }));
            table.add_row(cells);
        }
        to_the_right(&mut table, 4..head.len());
        let (before, after) = if markdown { ("## ", "\n") } else { ("", "") };
        let _ = write!(text, "{before}{title}\n{after}{table}\n\n");
    }
    if text.contains(NOISY) {
        let _ = writeln!(text, "{NOISY}: noise above {NOISY_PERCENT} %");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lines::parse;
    use crate::report::Suite;

    /// Returns a report of canned figures.
    pub(crate) fn canned() -> Report {
        let mut report = Report::new(Suite::Threads, true);
        for (implementation, median, contended) in [
            (OURS, 0.5, false),
            (IML, 0.1, false),
            ("libgomp", 1.0, false),
            ("libomp", 7.0, false),
            ("tbb", 0.2, false),
            (OURS, 2.0, true),
            ("libgomp", 2950.0, true),
        ] {
            report.runs.push(Run {
                program: "fork".into(),
                threads: Some(2),
                contended,
                implementation: implementation.into(),
                reported: parse(&format!(
                    "library x\nfigure flat us {median} 2\nfigure flat.max us {} -\nfigure flat.cpu-wall cpu/wall 1.5 -",
                    10.0 * median
                ))
                .unwrap(),
                ..Run::default()
            });
        }
        report
    }

    #[test]
    fn lines_are_compared_with_the_best_peer() {
        let report = canned();
        let rows = rows(&report);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[0].ratio(&report, OURS, ""),
            Some(0.5),
            "of libgomp, not of tbb"
        );
        assert_eq!(rows[0].ratio(&report, IML, MAXIMUM), Some(0.5), "of tbb");
        assert_eq!(rows[1].ratio(&report, IML, ""), None);
        let text = tables(&report, false);
        for part in [
            "Median of the rounds",
            "Longest round",
            "2950",
            "29500",
            "2 contended",
            "margay/best",
            "1.500",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains(NOISY), "{text}");
        let mut noisy = report.clone();
        noisy.runs[0].reported.figures[0].noise = Some(30.0);
        let text = tables(&noisy, false);
        assert!(
            text.contains("~0.500") && text.ends_with("~: noise above 20 %"),
            "{text}"
        );
        assert!(tables(&report, true).starts_with("## Median of the rounds\n\n|"));
    }
}
