//! `make bench`: our benchmark programs with Margay and its peers, in turn, in one run.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use margay_bench_common::host::Host;
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::page::{progress_bar, today};
use margay_bench_common::process::run_quietly;
use margay_bench_peers::figures::Figures;
use margay_bench_peers::grid::cells::Grid;
use margay_bench_peers::grid::report::Circumstances;
use margay_bench_peers::grid::{self, GridUnit};
use margay_bench_peers::peers::{self, PEERS};
use margay_bench_peers::plan::{Group, PROGRAMS, Unit, units};
use margay_bench_peers::report::{Measured, Report};
use margay_bench_peers::tree;

/// Compile the benchmark programs with every implementation, run them in turn, print and keep a
/// table.
#[derive(Parser)]
#[command(name = "bench")]
struct Options {
    /// Only these groups, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// The grid instead: all operations at all sizes, as a heat map of ratios; hours.
    #[arg(long, conflicts_with = "only")]
    grid: bool,
    /// Of the grid, operations whose names contain one of these words, separated by commas.
    #[arg(long, value_delimiter = ',', requires = "grid")]
    operations: Vec<String>,
    /// Fewer rank counts, sizes and repetitions.
    #[arg(long)]
    quick: bool,
    /// Repetitions, in which the implementations take turns [default: 5, grid: 3, quick: 2, both:
    /// 1]
    #[arg(long)]
    repetitions: Option<usize>,
    /// These peers, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = PEERS)]
    peers: Vec<String>,
    /// Leave our own implementation out.
    #[arg(long)]
    peers_only: bool,
    /// Folder for the results.
    #[arg(long, default_value_os_t = tree::workspace().join("bench/results"))]
    results: PathBuf,
}

/// What the repetitions of one unit may cost one implementation: when it is spent, the rest of them
/// are left out. Keeps a peer that takes milliseconds where others take microseconds from taking
/// most of the run.
const UNIT_BUDGET: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.grid {
        measure_grid(&options)
    } else {
        bench(&options)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; false when a run of ours failed.
fn bench(options: &Options) -> Result<bool> {
    let mut failures = Vec::new();
    let installed = install(options, &mut failures)?;
    let groups = if options.only.is_empty() {
        &Group::ALL[..]
    } else {
        &options.only
    };
    let plan = units(groups, options.quick);
    let repetitions = options
        .repetitions
        .unwrap_or(if options.quick { 2 } else { 5 });

    let mut figures = Figures::default();
    let mut libraries = BTreeMap::new();
    in_turn(
        &plan,
        repetitions,
        &installed,
        Unit::label,
        |unit, implementation, programs| {
            run(
                unit,
                implementation,
                programs,
                &mut figures,
                &mut libraries,
                &mut failures,
            );
        },
    );

    let measured = installed.iter().map(|(implementation, _)| {
        let library = libraries
            .get(&implementation.name)
            .cloned()
            .unwrap_or_else(|| "version not asked".into());
        Measured {
            name: implementation.name.clone(),
            library,
        }
    });
    let ours_failed = failures.iter().any(|failure| failure.starts_with(OURS));
    let report = Report::new(today(), repetitions, measured.collect(), failures, &figures);
    println!("{}\n\n{}", report.table(false), report.notes());
    let whole = options.only.is_empty() && !options.quick && !options.peers_only;
    for path in report.save(&options.results, if whole { "" } else { "-partial" })? {
        println!("written: {}", tree::shown(&path));
    }
    Ok(!ours_failed)
}

/// Calls `run` for each unit and repetition with each implementation in turn.
fn in_turn<U>(
    plan: &[U],
    repetitions: usize,
    installed: &[(Installation, PathBuf)],
    label: impl Fn(&U) -> String,
    mut run: impl FnMut(&U, &Installation, &Path),
) {
    let bar = progress_bar(plan.len() * repetitions * installed.len());
    for unit in plan {
        let mut spent = vec![Duration::ZERO; installed.len()];
        for _ in 0..repetitions {
            for ((implementation, programs), spent) in installed.iter().zip(&mut spent) {
                if *spent < UNIT_BUDGET {
                    bar.set_message(format!("{}: {}", implementation.name, label(unit)));
                    let started = Instant::now();
                    run(unit, implementation, programs);
                    *spent += started.elapsed();
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
}

/// Measures the grid; false when a run of ours failed.
fn measure_grid(options: &Options) -> Result<bool> {
    let mut failures = Vec::new();
    let installed = install(options, &mut failures)?;
    let mut plan = grid::units(options.quick);
    if !options.operations.is_empty() {
        plan.retain(|unit| {
            let name = unit.name();
            options.operations.iter().any(|word| name.contains(word))
        });
    }
    let usual = if options.quick { 1 } else { 3 };
    let repetitions = options.repetitions.unwrap_or(usual);
    let (mut cells, mut libraries) = (Grid::default(), BTreeMap::new());
    in_turn(
        &plan,
        repetitions,
        &installed,
        GridUnit::label,
        |unit, implementation, programs| match unit.run(implementation, programs) {
            Ok((library, figures)) => {
                cells.add(unit, &implementation.name, &figures);
                libraries.insert(implementation.name.clone(), library);
            }
            Err(error) => {
                let failure = format!("{error:#}");
                if !failures.contains(&failure) {
                    failures.push(failure);
                }
            }
        },
    );
    let ours_failed = failures.iter().any(|failure| failure.starts_with(OURS));
    let implementations = libraries
        .iter()
        .map(|(name, library)| format!("{name}: {library}"));
    let circumstances = Circumstances {
        date: today(),
        host: Host::detect(),
        repetitions,
        implementations: implementations.collect(),
        failures,
    };
    let whole = !options.quick && !options.peers_only && options.operations.is_empty();
    let suffix = if whole { "" } else { "-partial" };
    for path in circumstances.save(&cells, &options.results, suffix)? {
        println!("written: {}", tree::shown(&path));
    }
    println!("{}", circumstances.text(&cells));
    Ok(!ours_failed)
}

/// Returns every implementation with the folder of its executables. A peer that cannot be had is
/// named among the failures.
fn install(options: &Options, failures: &mut Vec<String>) -> Result<Vec<(Installation, PathBuf)>> {
    let mut installed = Vec::new();
    if !options.peers_only {
        let ours = peers::ours()?;
        let programs = compile(&ours)?;
        installed.push((ours, programs));
    }
    let bar = progress_bar(options.peers.len());
    for name in &options.peers {
        bar.set_message(format!("installing {name}"));
        let peer = peers::peer(name).and_then(|peer| Ok((compile(&peer)?, peer)));
        match peer {
            Ok((programs, peer)) => installed.push((peer, programs)),
            Err(error) => failures.push(format!("{name}: not measured: {error:#}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(installed)
}

fn compile(implementation: &Installation) -> Result<PathBuf> {
    let folder = tree::target()
        .join("bench-programs")
        .join(&implementation.name);
    std::fs::create_dir_all(&folder)?;
    for program in PROGRAMS {
        let source = tree::workspace().join(format!("bench/peers/programs/{program}.c"));
        let mut command = peers::compile(implementation, &source, &folder.join(program));
        if program == "hybrid" {
            command.arg("-fopenmp");
        }
        run_quietly(&mut command)?;
    }
    Ok(folder)
}

/// One run. A unit that an implementation fails once is reported once; the figures of the other
/// repetitions stay.
fn run(
    unit: &Unit,
    implementation: &Installation,
    programs: &Path,
    figures: &mut Figures,
    libraries: &mut BTreeMap<String, String>,
    failures: &mut Vec<String>,
) {
    match unit.run(implementation, programs) {
        Ok(reported) => {
            if let Some(library) = reported.library {
                libraries.insert(implementation.name.clone(), library);
            }
            for (point, figure) in reported.figures {
                figures.add(point, &implementation.name, figure);
            }
        }
        Err(error) => {
            let failure = format!("{error:#}");
            if !failures.contains(&failure) {
                failures.push(failure);
            }
        }
    }
}
