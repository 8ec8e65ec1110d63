//! What a whole run of the suite found, as the JSON file holds it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use margay_bench_common::host::Host;
use margay_bench_common::mpi::OURS;
use margay_bench_common::page::today;
use serde::{Deserialize, Serialize};

use crate::lines::{Figure, Reported};
use crate::threads::plan::load_label;

/// Version of the JSON file.
pub const FORMAT: u32 = 1;

/// Significant digits of values as text.
pub const DIGITS: usize = 4;

/// What was run.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// The machine: `margay bench`.
    #[default]
    Machine,
    /// Threading runtimes: `margay bench threads`.
    Threads,
    /// Shapes of programs with OpenMP: `margay bench threads kernels`.
    Kernels,
    /// Files of a directory: `margay bench files`.
    Files,
}

/// One run of one program with one implementation; of threads, all its repetitions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// The executable's name.
    pub program: String,
    /// Ranks; 0 for a process without a launcher.
    pub ranks: usize,
    /// Size of teams of threads; `None` where it is the program's matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Whether other processes used all cores meanwhile. Kept reports call it `pressed`.
    #[serde(default, alias = "pressed", skip_serializing_if = "std::ops::Not::not")]
    pub contended: bool,
    /// How many other processes; `None` for one for each core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<usize>,
    /// `margay`, or the peer's name.
    pub implementation: String,
    /// Arguments of the program.
    pub arguments: String,
    /// How long it took from start to end.
    pub seconds: f64,
    /// What it printed.
    #[serde(flatten)]
    pub reported: Reported,
}

impl Run {
    /// Returns a figure of this run.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let figure = self.reported.figures.iter().find(|f| f.name == name)?;
        Some(figure.value)
    }

    /// Whether `other` measured the same in the same way, perhaps at another time.
    pub fn is_like(&self, other: &Self) -> bool {
        let way = |run: &Self| (run.ranks, run.threads, run.contended, run.busy);
        (&self.program, &self.implementation, way(self))
            == (&other.program, &other.implementation, way(other))
    }

    /// With what it was measured, and on how much.
    pub fn conditions(&self) -> String {
        let size = match self.threads {
            Some(threads) => format!("{threads} threads"),
            None => format!("{} ranks", self.ranks),
        };
        let load = load_label(self.contended, self.busy);
        format!("{}, {size}{load}", self.implementation)
    }
}

/// A whole run of the suite, as the JSON file holds it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// What was run.
    #[serde(default)]
    pub suite: Suite,
    /// The day, as year-month-day.
    pub date: String,
    /// Where it ran.
    pub host: Host,
    /// The directory whose files were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Whether sizes were the small ones.
    pub quick: bool,
    /// Seconds for everything, compiling included.
    pub seconds: f64,
    /// In the order of the plan.
    pub runs: Vec<Run>,
    /// Figures against each other, such as LINPACK against the library's LU.
    pub derived: Vec<Figure>,
    /// Runs that failed and why; checks that failed.
    pub failures: Vec<String>,
    /// Programs that were left out and why.
    pub left_out: Vec<String>,
}

impl Report {
    /// Returns a report of nothing yet, from today and this machine.
    pub fn new(suite: Suite, quick: bool) -> Self {
        Self {
            format: FORMAT,
            suite,
            date: today(),
            host: Host::detect(),
            directory: None,
            quick,
            seconds: 0.0,
            runs: Vec::new(),
            derived: Vec::new(),
            failures: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Takes a run in, or why it failed; checks that failed are failures too.
    pub fn add(&mut self, what: &str, run: Result<Run>) {
        match run {
            Ok(run) => {
                let failed = run.reported.checks.iter().filter(|check| !check.passed);
                self.failures.extend(failed.map(|check| {
                    format!(
                        "{} ({}): {} is {}, and at most {} is right",
                        run.program, run.implementation, check.name, check.value, check.limit
                    )
                }));
                self.runs.push(run);
            }
            Err(error) => self.failures.push(format!("{what}: {error:#}")),
        }
    }

    /// Returns our run of a program on this many ranks.
    pub fn ours(&self, program: &str, ranks: Option<usize>) -> Option<&Run> {
        self.runs.iter().find(|run| {
            run.program == program
                && run.implementation == OURS
                && ranks.is_none_or(|ranks| run.ranks == ranks)
        })
    }

    /// Reads a report from a file.
    ///
    /// # Errors
    /// When the file cannot be read or is none.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}: cannot be read", path.display()))?;
        let report: Self = serde_json::from_str(&text)
            .with_context(|| format!("{}: is no report of margay bench", path.display()))?;
        if report.format != FORMAT {
            bail!(
                "{}: has format {}, and this program reads {FORMAT}",
                path.display(),
                report.format
            );
        }
        Ok(report)
    }

    /// Returns how many verifications passed, and how many there were.
    pub fn checks(&self) -> (usize, usize) {
        let all = || self.runs.iter().flat_map(|run| &run.reported.checks);
        (all().filter(|check| check.passed).count(), all().count())
    }

    /// Returns what stands above the page and the picture.
    pub fn title(&self) -> String {
        let title = match self.suite {
            Suite::Machine => "Performance suite",
            Suite::Threads => "Threading runtimes",
            Suite::Kernels => "Kernels of programs with OpenMP",
            Suite::Files => "Files",
        };
        match &self.directory {
            Some(directory) => format!("{title} of {directory}"),
            None => title.to_owned(),
        }
    }
}

/// Returns the message length that a figure of Comtest is named for.
pub fn message_bytes(figure: &str) -> Option<f64> {
    figure.strip_suffix('B')?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::lines::{Check, parse};

    /// Returns a report of canned figures.
    pub(crate) fn canned(scale: f64) -> Report {
        let run = |program: &str, ranks, text: &str| Run {
            program: program.into(),
            ranks,
            implementation: OURS.into(),
            arguments: String::new(),
            seconds: 1.0,
            reported: parse(text).unwrap(),
            ..Run::default()
        };
        let rate = 100.0 * scale;
        let latency = 0.2 / scale;
        let mut livermore = String::from("library Margay 0.1\n");
        for kernel in 1..=24 {
            let _ = writeln!(
                livermore,
                "figure kernel-{kernel:02} MFLOPS {} 1",
                kernel * 100
            );
        }
        livermore += "figure arithmetic-mean MFLOPS 1250 1\nfigure geometric-mean MFLOPS 900 1\nfigure harmonic-mean MFLOPS 600 1";
        Report {
            format: FORMAT,
            suite: Suite::Machine,
            date: "2000-01-01".into(),
            host: Host {
                cores: 2,
                processor: "Canned(R) Processor".into(),
            },
            directory: None,
            quick: true,
            seconds: 9.0,
            runs: vec![
                run("livermore", 1, &livermore),
                run(
                    "comtest",
                    2,
                    &format!(
                        "figure latency us {latency} 2\nfigure 8B MB/s 40 2\nfigure 1024B MB/s 2000 2\n\
                         figure 65536B MB/s 15000 2\nfigure bandwidth MB/s 15000 2\nfigure n-half bytes 8000 -"
                    ),
                ),
                run(
                    "stream",
                    1,
                    "figure copy MB/s 10000 1\nfigure triad MB/s 12000 1",
                ),
                run(
                    "stream",
                    2,
                    "figure copy MB/s 19000 1\nfigure triad MB/s 21000 1",
                ),
                run(
                    "ladder",
                    1,
                    "figure level-1 MB/s 190000 1\nfigure memory MB/s 9000 1",
                ),
                run(
                    "evm",
                    1,
                    "figure plain MFLOPS 300 1\nfigure streaming MFLOPS 450 1",
                ),
                run(
                    "linpack",
                    2,
                    &format!(
                        "figure dgemm GFLOPS 160 -\nfigure N1000.NB192 GFLOPS 80 3\nfigure N4032.NB192 GFLOPS {rate} 1\n\
                         figure rmax GFLOPS {rate} -\ncheck N4032.NB192.residual-hpl passed 0.003 16\nnote BLAS: canned"
                    ),
                ),
                run("getrf", 0, "figure N4032 GFLOPS 125 1"),
            ],
            derived: vec![],
            failures: vec![],
            left_out: vec!["comtest-nx: no libnx".into()],
        }
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let reason = || format!("{:#}", Report::load(&path).unwrap_err());
        assert!(reason().contains("cannot be read"));
        std::fs::write(&path, "{}").unwrap();
        assert!(reason().contains("is no report of margay bench"));
        let mut report = canned(1.0);
        report.format = 9;
        std::fs::write(&path, serde_json::to_string(&report).unwrap()).unwrap();
        assert!(reason().contains("has format 9, and this program reads 1"));
    }

    #[test]
    fn failed_checks_are_counted() {
        let mut report = canned(1.0);
        report.runs[0].reported.checks.push(Check {
            name: "kernel-01".into(),
            passed: false,
            value: "nan".into(),
            limit: "0".into(),
        });
        assert_eq!(report.checks(), (1, 2));
    }
}
