//! `margay bench`.

use std::time::Instant;

use anyhow::{Context, Result};
use margay_bench_common::host::free_bytes;
use margay_bench_common::mpi::{Installation, OURS};
use margay_bench_common::page::progress_bar;
use margay_bench_common::process;
use margay_cli_bench_options::{BenchOptions, Part, Reporting};

use crate::compare;
use crate::derive::derive;
use crate::files;
use crate::install;
use crate::lines;
use crate::page;
use crate::plan::{self, Unit};
use crate::report::{Report, Run, Suite};
use crate::threads;

/// Runs the suite; false when something failed or, with `--compare`, got slower.
///
/// # Errors
/// When options are wrong or nothing can be run at all.
pub fn bench(options: &BenchOptions) -> Result<bool> {
    match &options.part {
        Some(Part::Threads(options)) => {
            return publish(&options.reporting, || threads::measure(options));
        }
        Some(Part::Files(options)) => {
            return publish(&options.reporting, || files::measure(options));
        }
        None => {}
    }
    publish(&options.reporting, || {
        let ours = install::ours()?;
        let peer = options.with_mpi.as_deref().map(install::peer).transpose()?;
        let mut report = measure(options, &ours, peer.as_ref());
        report.derived = derive(&report);
        Ok(report)
    })
}

/// Prints, compares and saves what `measure` gives; false when something failed or got slower.
fn publish(options: &Reporting, measure: impl FnOnce() -> Result<Report>) -> Result<bool> {
    let old = options.compare.as_deref().map(Report::load).transpose()?;
    let started = Instant::now();
    let mut report = measure()?;
    report.seconds = started.elapsed().as_secs_f64();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "{}\n\n{}",
            page::table(&report, false, false),
            page::notes(&report)
        );
    }
    let mut good = report.failures.is_empty();
    if let Some(old) = &old {
        let changes = compare::compare(old, &report);
        let text = compare::describe(old, &report, &changes);
        good &= !changes.iter().any(compare::Change::is_slower);
        tell(options.json, text.trim_end());
    }
    for path in page::save(&report, &options.output)? {
        tell(options.json, &format!("written: {}", path.display()));
    }
    Ok(good)
}

/// A line for the user, which must not get among JSON.
fn tell(json: bool, text: &str) {
    if json {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

fn measure(options: &BenchOptions, ours: &Installation, peer: Option<&Installation>) -> Report {
    let mut report = Report::new(Suite::Machine, options.quick);
    let cores = options
        .ranks
        .map_or(report.host.cores, |ranks| ranks as usize);
    let mut plan: Vec<(Unit, &Installation)> = Vec::new();
    for unit in plan::units(&options.only, cores, free_bytes(), options.quick) {
        if !install::has(ours, unit.program) {
            let library = unit.program.form.map_or("", |(_, library)| library);
            report.left_out.push(format!(
                "{}: the tree has no lib{library}",
                unit.program.name
            ));
            continue;
        }
        let on_peer = peer.filter(|_| unit.messages && unit.program.form.is_none());
        plan.push((unit.clone(), ours));
        plan.extend(on_peer.map(|peer| (unit, peer)));
    }
    let bar = progress_bar(plan.len());
    for (unit, installation) in &plan {
        let what = format!("{} ({})", unit.label(), installation.name);
        bar.set_message(what.clone());
        report.add(&what, run(unit, installation, ours));
        bar.inc(1);
    }
    bar.finish_and_clear();
    report
}

fn run(unit: &Unit, installation: &Installation, ours: &Installation) -> Result<Run> {
    let program = install::compile(installation, &install::sources(ours), unit.program)?;
    let mut command = if unit.ranks == 0 {
        process::bounded(plan::LIMIT_S)
    } else {
        installation.launch(unit.ranks, plan::LIMIT_S)
    };
    command.arg(program).args(&unit.arguments);
    let started = Instant::now();
    let output = process::run(&mut command, true)?;
    let reported = lines::parse(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        errors.lines().last().unwrap_or_default().to_owned()
    })?;
    Ok(Run {
        program: unit.program.name.to_owned(),
        ranks: unit.ranks,
        implementation: if unit.ranks == 0 {
            OURS.to_owned()
        } else {
            installation.name.clone()
        },
        arguments: unit.arguments.join(" "),
        seconds: started.elapsed().as_secs_f64(),
        reported,
        ..Run::default()
    })
}
