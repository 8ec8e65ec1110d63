//! `margay bench threads`: threading runtimes side by side, in turn in one run, alone and under a
//! background load.

pub mod plan;
pub mod runtime;
pub mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use margay_bench_common::mpi::Installation;
use margay_bench_common::page::progress_bar;
use margay_bench_common::process::{self, BackgroundLoad};
use margay_bench_common::statistics::median;
use margay_cli_bench_options::{Chapter, ThreadsOptions};

use crate::install;
use crate::lines::{self, Figure, Reported};
use crate::report::{Report, Run, Suite};
use plan::Unit;
use runtime::{Runtime, busy};

/// Measures everything that the options choose.
///
/// # Errors
/// When this program stands in no installed tree or the background load does not compile. What
/// fails later is in the report.
pub fn measure(options: &ThreadsOptions) -> Result<Report> {
    let ours = install::ours()?;
    let suite = match options.chapter {
        Chapter::Constructs => Suite::Threads,
        Chapter::Kernels => Suite::Kernels,
    };
    let mut report = Report::new(suite, options.quick);
    let names = match options.chapter {
        Chapter::Kernels if options.with.is_empty() => {
            runtime::OF_KERNELS.map(str::to_owned).to_vec()
        }
        _ => options.with.clone(),
    };
    let (runtimes, missing) = runtime::find(ours.prefix(), &names);
    report.left_out = missing;
    let busy_program = busy(&install::sources(&ours))?;
    let cores = report.host.cores;
    let units = plan::units(options, cores);
    if units.is_empty() {
        let names: Vec<String> = options.only.iter().map(|kernel| kernel.name()).collect();
        bail!(
            "--only {}: no kernel of this chapter; name the other one, `margay bench threads kernels` or `constructs`",
            names.join(",")
        );
    }
    let times: Vec<usize> = units.iter().map(|u| u.repetitions(options)).collect();
    let bar = progress_bar(times.iter().sum::<usize>() * runtimes.len());
    let mut measured: Vec<Vec<Option<Result<Run>>>> = units
        .iter()
        .map(|_| runtimes.iter().map(|_| None).collect())
        .collect();
    let limit = Duration::from_secs(60 * u64::from(options.limit));
    let started = Instant::now();
    let mut skipped = Vec::new();
    // Repetitions of a unit are far from each other: the machine changes in seconds. Runtimes are
    // measured in turn, close together.
    for repetition in 0..times.iter().copied().max().unwrap_or(0) {
        for ((unit, measured), times) in units.iter().zip(&mut measured).zip(&times) {
            if repetition >= *times {
                continue;
            }
            if started.elapsed() > limit {
                skipped.push(format!("{} (repetition {})", unit.label(), repetition + 1));
                continue;
            }
            for (runtime, run) in runtimes.iter().zip(measured) {
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
    }
    if let Some(first) = skipped.first() {
        report.left_out.push(format!(
            "{} of {} runs: the limit of {} minutes was reached before {first}; --limit sets another",
            skipped.len(),
            times.iter().sum::<usize>(),
            options.limit
        ));
    }
    for (unit, measured) in units.iter().zip(measured) {
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
    let load = BackgroundLoad::start(busy_program, unit.beside(cores), plan::LIMIT_S)?;
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
        busy: unit.busy.filter(|busy| *busy > 0),
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

/// Makes one figure of those of all repetitions: the median and the largest noise, also that
/// between the repetitions; of the longest round the longest of all. What has been wrong once has
/// no figure.
fn settle(run: &mut Run) {
    let all = std::mem::take(&mut run.reported);
    let is_wrong = |name: &str| {
        let failed = all.checks.iter().filter(|check| !check.passed);
        failed.into_iter().any(|check| {
            let rest = name.strip_prefix(check.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let mut names: Vec<&str> = Vec::new();
    for figure in &all.figures {
        if !names.contains(&figure.name.as_str()) && !is_wrong(&figure.name) {
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
            noise: noises
                .reduce(f64::max)
                .map(|noise| noise.max(between(&values, value))),
        }
    });
    run.reported = Reported {
        figures: figures.collect(),
        library: all.library.clone(),
        checks: all.checks.clone(),
        notes: all.notes.clone(),
    };
}

/// The median distance of several repetitions from their median, in percent of it, as a standard
/// deviation: see `suite_noise`.
fn between(values: &[f64], middle: f64) -> f64 {
    if values.len() < 2 || middle <= 0.0 {
        return 0.0;
    }
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    148.26 * median(&distances) / middle
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
        let noise = all.reported.figures[0].noise.unwrap();
        assert!((noise - 74.13).abs() < 0.01, "that between them: {noise}");
        assert_eq!(all.reported.figures.len(), 2);
        assert_eq!(all.reported.checks.len(), 3);
    }

    #[test]
    fn what_was_wrong_once_is_no_time() {
        let run = |text: &str| Run {
            reported: lines::parse(&format!("library none\n{text}")).unwrap(),
            ..Run::default()
        };
        let figures = "check lu passed 0 0\nfigure lu us 1 1\nfigure lu.max us 2 -\ncheck lulu passed 0 0\nfigure lulu us 3 1";
        let mut all = merged(run(figures), run("check lu failed 7 0"));
        settle(&mut all);
        let names: Vec<&str> = all
            .reported
            .figures
            .iter()
            .map(|f| f.name.as_str())
            .collect();
        assert_eq!(names, ["lulu"]);
    }
}
