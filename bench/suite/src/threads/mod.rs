//! `margay bench threads`: threading runtimes side by side, in turn in one run, alone and under a background load.

pub mod plan;
pub mod runtime;
pub mod table;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use margay_bench_common::mpi::Installation;
use margay_bench_common::page::progress_bar;
use margay_bench_common::process::{self, BackgroundLoad};
use margay_bench_common::statistics::median;
use margay_cli_bench_options::ThreadsOptions;

use crate::install;
use crate::lines::{self, Figure, Reported};
use crate::report::{Report, Run, Suite};
use plan::Unit;
use runtime::{Runtime, busy};

/// Measures everything that the options choose.
///
/// # Errors
/// When this program stands in no installed tree or the background load does not compile. What fails later is in the report.
pub fn measure(options: &ThreadsOptions) -> Result<Report> {
    let ours = install::ours()?;
    let mut report = Report::new(Suite::Threads, options.quick);
    let (runtimes, missing) = runtime::find(ours.prefix(), &options.with);
    report.left_out = missing;
    let busy_program = busy(&install::sources(&ours))?;
    let cores = report.host.cores;
    let units = plan::units(&options.only, &options.threads, cores, options.quick);
    let repetitions = |unit: &plan::Unit| unit.repetitions(options.quick);
    let runs: usize = units.iter().map(repetitions).sum();
    let bar = progress_bar(runs * runtimes.len());
    for unit in &units {
        let mut measured: Vec<Option<Result<Run>>> = runtimes.iter().map(|_| None).collect();
        for _ in 0..repetitions(unit) {
            for (runtime, run) in runtimes.iter().zip(&mut measured) {
                bar.set_message(format!("{}: {}", runtime.name, unit.label()));
                if runtime.measures(unit) {
                    let another = one(unit, runtime, &ours, &busy_program, cores);
                    *run = Some(match run.take() {
                        Some(Ok(before)) => another.map(|run| merged(before, run)),
                        Some(error) => error,
                        None => another,
                    });
                }
                bar.inc(1);
            }
        }
        for (runtime, run) in runtimes.iter().zip(measured) {
            if let Some(run) = run {
                report.add(&format!("{} ({})", unit.label(), runtime.name), run);
            }
        }
    }
    bar.finish_and_clear();
    report.runs.iter_mut().for_each(settle);
    report.derived = table::derive(&report);
    Ok(report)
}

/// One process of one program, with others beside it where the unit says so.
fn one(
    unit: &Unit,
    runtime: &Runtime,
    ours: &Installation,
    busy_program: &Path,
    cores: usize,
) -> Result<Run> {
    let program = runtime.compile(&install::sources(ours), unit.kernel)?;
    let arguments = unit.arguments();
    let mut command = process::bounded(plan::LIMIT_S);
    runtime.prepare(&mut command, unit.threads)?;
    command.arg(program).args(&arguments);
    let beside = if unit.contended { cores } else { 0 };
    let load = BackgroundLoad::start(busy_program, beside, plan::LIMIT_S)?;
    let started = Instant::now();
    let output = process::run(&mut command, true)?;
    let seconds = started.elapsed().as_secs_f64();
    drop(load);
    let mut reported = lines::parse(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    reported.library = runtime.verified(&reported.library)?;
    Ok(Run {
        program: unit.kernel.name(),
        threads: Some(unit.threads),
        contended: unit.contended,
        implementation: runtime.name.to_owned(),
        arguments: arguments.join(" "),
        seconds,
        reported,
        ..Run::default()
    })
}

/// Appends the figures and checks of another repetition.
fn merged(mut before: Run, after: Run) -> Run {
    before.seconds += after.seconds;
    before.reported.figures.extend(after.reported.figures);
    before.reported.checks.extend(after.reported.checks);
    before
}

/// Makes one figure of those of all repetitions: the median and the largest noise; of the longest round the longest of all.
fn settle(run: &mut Run) {
    let all = std::mem::take(&mut run.reported);
    let mut names: Vec<&str> = Vec::new();
    for figure in &all.figures {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let figures = names.iter().map(|name| {
        let same: Vec<&Figure> = all.figures.iter().filter(|f| f.name == *name).collect();
        let values: Vec<f64> = same.iter().map(|figure| figure.value).collect();
        let value = if name.ends_with(table::MAXIMUM) {
            values.iter().copied().fold(f64::MIN, f64::max)
        } else {
            median(&values)
        };
        let noises = same.iter().filter_map(|figure| figure.noise);
        Figure {
            name: (*name).to_owned(),
            unit: same[0].unit.clone(),
            value,
            noise: noises.reduce(f64::max),
        }
    });
    run.reported = Reported {
        figures: figures.collect(),
        library: all.library.clone(),
        checks: all.checks.clone(),
        notes: all.notes.clone(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_become_one_figure() {
        let run = |median: f64, max: f64| {
            Run {
            reported: lines::parse(&format!(
                "library none\ncheck flat passed 0 0\nfigure flat us {median} {median}\nfigure flat.max us {max} -"
            ))
            .unwrap(),
            ..Run::default()
        }
        };
        let mut all = merged(merged(run(3.0, 10.0), run(1.0, 50.0)), run(2.0, 20.0));
        settle(&mut all);
        assert_eq!(all.figure("flat"), Some(2.0));
        assert_eq!(all.figure("flat.max"), Some(50.0));
        assert_eq!(all.reported.figures[0].noise, Some(3.0));
        assert_eq!(all.reported.figures.len(), 2);
        assert_eq!(all.reported.checks.len(), 3);
    }
}
