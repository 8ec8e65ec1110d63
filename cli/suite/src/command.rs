//! `margay bench`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};

use crate::compare;
use crate::derive::derive;
use crate::host::free_bytes;
use crate::install::{Installation, OURS};
use crate::lines;
use crate::plan::{self, Kernel, Unit};
use crate::process;
use crate::report::{Report, Run, Suite};
use crate::threads::{self, ThreadsOptions};

/// Measure this machine with the performance suite: Livermore loops, Comtest, STREAM, memory ladder, EVM, matrix multiply, MP LINPACK.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchOptions {
    #[command(subcommand)]
    part: Option<Part>,

    /// Smaller sizes: under three minutes instead of under ten on two cores
    #[arg(long)]
    pub quick: bool,

    /// Only these kernels, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KERNEL")]
    pub only: Vec<Kernel>,

    /// Ranks of the runs on all cores [default: the usable cores]
    #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: Option<u32>,

    /// Run the message parts with the MPI below this folder too, for comparison
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::DirPath)]
    pub with_mpi: Option<PathBuf>,

    #[command(flatten)]
    reporting: Reporting,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
enum Part {
    Threads(ThreadsOptions),
}

/// What becomes of the figures.
#[derive(Clone, Debug, Args)]
pub struct Reporting {
    /// Say what got slower since this report, and end with 1 when something did
    #[arg(long, value_name = "OLD.json", value_hint = ValueHint::FilePath)]
    compare: Option<PathBuf>,

    /// Print the report as JSON instead of as a table
    #[arg(long)]
    json: bool,

    /// Folder for the report as JSON, Markdown and SVG
    #[arg(long, value_name = "FOLDER", default_value = "margay-bench", value_hint = ValueHint::DirPath)]
    output: PathBuf,
}

/// Runs the suite; false when something failed or, with `--compare`, got slower.
///
/// # Errors
/// When options are wrong or nothing can be run at all.
pub fn bench(options: &BenchOptions) -> Result<bool> {
    if let Some(Part::Threads(options)) = &options.part {
        return options.reporting.report(|| threads::measure(options));
    }
    options.reporting.report(|| {
        let ours = Installation::ours()?;
        let peer = options
            .with_mpi
            .as_deref()
            .map(Installation::peer)
            .transpose()?;
        let mut report = measure(options, &ours, peer.as_ref());
        report.derived = derive(&report);
        Ok(report)
    })
}

impl Reporting {
    /// Prints, compares and saves what `measure` gives; false when something failed or got slower.
    fn report(&self, measure: impl FnOnce() -> Result<Report>) -> Result<bool> {
        let old = self.compare.as_deref().map(Report::load).transpose()?;
        let started = Instant::now();
        let mut report = measure()?;
        report.seconds = started.elapsed().as_secs_f64();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("{}\n\n{}", report.table(false, false), report.notes());
        }
        let mut good = report.failures.is_empty();
        if let Some(old) = &old {
            let changes = compare::compare(old, &report);
            let text = compare::describe(old, &report, &changes);
            good &= !changes.iter().any(compare::Change::is_slower);
            tell(self.json, text.trim_end());
        }
        for path in report.save(&self.output)? {
            tell(self.json, &format!("written: {}", path.display()));
        }
        Ok(good)
    }
}

/// A line for the user, which must not get among JSON.
fn tell(json: bool, text: &str) {
    if json {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

/// Shows how many of `steps` are done, and which is under way.
pub fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {msg}")
        .expect("the template is a constant");
    let bar = ProgressBar::new(steps as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn measure(options: &BenchOptions, ours: &Installation, peer: Option<&Installation>) -> Report {
    let mut report = Report::new(Suite::Machine, options.quick);
    let cores = options
        .ranks
        .map_or(report.host.cores, |ranks| ranks as usize);
    let mut plan: Vec<(Unit, &Installation)> = Vec::new();
    for unit in plan::units(&options.only, cores, free_bytes(), options.quick) {
        if !ours.has(unit.program) {
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
    let program = installation.compile(&ours.sources(), unit.program)?;
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
