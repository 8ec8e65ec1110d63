//! What is run: programs, ranks and arguments, and how often.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::process::run_quietly;
use margay_bench_suite::threads::runtime;

use crate::figures::{self, Figure, Point, Reported, Test};
use crate::peers;
use crate::tree;

/// Subsets that can be chosen by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Point-to-point: latency, bandwidth one way and both ways.
    P2p,
    /// One-sided operations on allocated memory and on the program's.
    Rma,
    /// Several threads of a rank that send and receive at once.
    Threads,
    /// A nonblocking operation while the program computes.
    Overlap,
    /// Collective operations.
    Coll,
    /// Ranks with nested OpenMP regions, with each OpenMP library.
    Hybrid,
    /// A program from start to end.
    Start,
}

impl Group {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 7] = [
        Self::P2p,
        Self::Rma,
        Self::Threads,
        Self::Overlap,
        Self::Coll,
        Self::Hybrid,
        Self::Start,
    ];
}

/// The C programs in `bench/peers/programs`.
pub const PROGRAMS: [&str; 9] = [
    "p2p",
    "rma",
    "threads",
    "overlap",
    "coll",
    "hybrid",
    "start",
    "grid_pairs",
    "grid_coll",
];

/// The OpenMP libraries of [`Group::Hybrid`]; a peer's best pair is chosen from all but our own.
const OPENMP: [&str; 5] = [
    OURS,
    "libgomp",
    "libgomp-passive",
    "libomp",
    "libomp-passive",
];

/// Threads of a team in [`Group::Hybrid`], on both levels.
const HYBRID_THREADS: usize = 4;

/// One run of one program.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The subset it belongs to; also decides the program.
    pub group: Group,
    /// Ranks of the job.
    pub ranks: usize,
    arguments: Vec<String>,
}

/// How long one run may take, in seconds.
pub(crate) const LIMIT_S: u32 = 120;

/// Returns all runs of the chosen groups; `quick` takes fewer rank counts and shorter batches.
pub fn units(groups: &[Group], quick: bool) -> Vec<Unit> {
    let batch_ms = if quick { "3" } else { "8" };
    let mut units = Vec::new();
    for &group in groups {
        match group {
            Group::P2p => {
                for test in ["latency", "oneway", "bothways"] {
                    for buffer in ["malloc", "alloc"] {
                        let arguments =
                            ["--test", test, "--buffer", buffer, "--batch-ms", batch_ms];
                        units.push(Unit {
                            group,
                            ranks: 2,
                            arguments: arguments.map(str::to_owned).to_vec(),
                        });
                    }
                }
            }
            Group::Rma => {
                for buffer in ["malloc", "alloc"] {
                    let arguments = ["--buffer", buffer, "--batch-ms", batch_ms];
                    units.push(Unit {
                        group,
                        ranks: 2,
                        arguments: arguments.map(str::to_owned).to_vec(),
                    });
                }
            }
            Group::Threads => {
                let threads: &[&str] = if quick { &["2"] } else { &["1", "2"] };
                units.extend(threads.iter().map(|threads| {
                    Unit {
                        group,
                        ranks: 2,
                        arguments: ["--threads", threads, "--batch-ms", batch_ms]
                            .map(str::to_owned)
                            .to_vec(),
                    }
                }));
            }
            Group::Overlap => units.push(Unit {
                group,
                ranks: 2,
                arguments: ["--batch-ms", "20"].map(str::to_owned).to_vec(),
            }),
            Group::Coll => {
                let arguments = [
                    "--batch-ms",
                    batch_ms,
                    "--max-bytes",
                    if quick { "65536" } else { "1048576" },
                ];
                let ranks: &[usize] = if quick { &[2, 8] } else { &[2, 4, 8, 16] };
                units.extend(ranks.iter().map(|&ranks| Unit {
                    group,
                    ranks,
                    arguments: arguments.map(str::to_owned).to_vec(),
                }));
            }
            Group::Hybrid => {
                let threads = HYBRID_THREADS.to_string();
                let arguments = ["--threads", &threads, "--batch-ms", "30"];
                units.push(Unit {
                    group,
                    ranks: 4,
                    arguments: arguments.map(str::to_owned).to_vec(),
                });
            }
            Group::Start => {
                let ranks: &[usize] = if quick {
                    &[2, 64]
                } else {
                    &[1, 2, 4, 8, 16, 32, 64]
                };
                units.extend(ranks.iter().map(|&ranks| Unit {
                    group,
                    ranks,
                    arguments: Vec::new(),
                }));
            }
        }
    }
    units
}

impl Unit {
    /// Returns the program's name.
    pub fn program(&self) -> &'static str {
        match self.group {
            Group::P2p => "p2p",
            Group::Rma => "rma",
            Group::Threads => "threads",
            Group::Overlap => "overlap",
            Group::Coll => "coll",
            Group::Hybrid => "hybrid",
            Group::Start => "start",
        }
    }

    /// For the progress line: program, the test's name and ranks.
    pub fn label(&self) -> String {
        let test = match self.group {
            Group::P2p => format!(" {} {}", self.arguments[1], self.arguments[3]),
            Group::Rma | Group::Threads => format!(" {}", self.arguments[1]),
            Group::Overlap | Group::Coll | Group::Hybrid | Group::Start => String::new(),
        };
        format!("{}{test}, {} ranks", self.program(), self.ranks)
    }

    /// Runs the program once with one implementation; `programs` holds that implementation's
    /// executables.
    ///
    /// # Errors
    /// When the job fails, takes too long or reports nothing.
    pub fn run(&self, implementation: &Installation, programs: &Path) -> Result<Reported> {
        if self.group == Group::Hybrid {
            return self.run_hybrid(implementation, programs);
        }
        let mut command = implementation.launch(self.ranks, LIMIT_S);
        if self.group == Group::Overlap {
            peers::with_progress_thread(implementation, &mut command);
        }
        command
            .arg(programs.join(self.program()))
            .args(&self.arguments);
        let started = Instant::now();
        let output = run_quietly(&mut command)
            .with_context(|| format!("{}: {}", implementation.name, self.label()))?;
        if self.group != Group::Start {
            return figures::parse(&output, self.ranks);
        }
        let took_ms = started.elapsed().as_secs_f64() * 1e3;
        let point = Point {
            test: Test::Start,
            ranks: self.ranks,
            buffer: "-".into(),
            bytes: 0,
        };
        Ok(Reported {
            library: None,
            openmp: None,
            figures: vec![(
                point,
                Figure {
                    median: took_ms,
                    best: took_ms,
                },
            )],
        })
    }
}

impl Unit {
    /// Runs the program once with each OpenMP library. The kind of a figure is the library; kind
    /// `best` is the pair that stands for the implementation: ours with our own library, a peer
    /// with the best of the others.
    fn run_hybrid(&self, implementation: &Installation, programs: &Path) -> Result<Reported> {
        let (libraries, missing) = runtime::find(&tree::stage(), &OPENMP.map(str::to_owned));
        let mut all = Reported::default();
        for library in &libraries {
            let mut command = implementation.launch(self.ranks, LIMIT_S);
            library.prepare(&mut command, HYBRID_THREADS)?;
            command
                .arg(programs.join(self.program()))
                .args(&self.arguments)
                .args(["--openmp", library.name]);
            let what = || {
                format!(
                    "{}: {} with {}",
                    implementation.name,
                    self.label(),
                    library.name
                )
            };
            let output = run_quietly(&mut command).with_context(what)?;
            let reported = figures::parse(&output, self.ranks)?;
            library
                .verified(reported.openmp.as_deref().unwrap_or_default())
                .with_context(what)?;
            all.library = reported.library;
            all.figures.extend(reported.figures);
        }
        let stands = |library: &str| (library == OURS) == (implementation.name == OURS);
        let pairs = all
            .figures
            .iter()
            .filter(|(point, _)| stands(&point.buffer));
        let Some((point, figure)) = pairs.min_by(|a, b| a.1.median.total_cmp(&b.1.median)) else {
            bail!(
                "{}: {}: {}",
                implementation.name,
                self.label(),
                missing.join("; ")
            );
        };
        let best = Point {
            buffer: "best".into(),
            ..point.clone()
        };
        all.figures.push((best, *figure));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_holds_what_the_targets_are_measured_on() {
        let units = units(&Group::ALL, false);
        for (group, ranks) in [
            (Group::P2p, 2),
            (Group::Rma, 2),
            (Group::Threads, 2),
            (Group::Overlap, 2),
            (Group::Coll, 2),
            (Group::Coll, 8),
            (Group::Coll, 16),
            (Group::Hybrid, 4),
            (Group::Start, 64),
        ] {
            assert!(
                units
                    .iter()
                    .any(|unit| unit.group == group && unit.ranks == ranks),
                "{group:?} {ranks}"
            );
        }
        assert_eq!(units[0].label(), "p2p latency malloc, 2 ranks");
    }
}
