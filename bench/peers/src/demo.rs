//! The demonstration: convection in a crucible on 1, 2 and 4 ranks, like Table 1 of report
//! KFA-ZAM-IB-9409.

mod files;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use margay_bench_common::page::{empty_table, to_the_right};
use margay_bench_common::process::run_quietly;
use serde::Deserialize;

use crate::picture::{self, Field};
use crate::tree;
use files::Files;

/// Ranks along phi and z of the runs that the table shows.
const CONFIGURATIONS: [(usize, usize); 3] = [(1, 1), (2, 1), (2, 2)];

/// How long one run may take, in seconds.
const LIMIT_S: &str = "120";

/// What a run of crucible reports as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Outcome {
    seconds: f64,
    mflops: f64,
    mean_temperature_k: f64,
    kinetic_energy_j_per_kg: f64,
    divergence_per_s: f64,
    /// Of the whole final state, bit by bit.
    checksum: String,
}

/// The demonstration below one installation.
pub struct Demo {
    /// Folder with `bin/mpicc` and `bin/mpiexec`.
    prefix: PathBuf,
    /// Folder for what is made.
    folder: PathBuf,
    bar: ProgressBar,
}

impl Demo {
    /// Prepares the folder and compiles the program.
    ///
    /// # Errors
    /// When the tools are missing or the compilation fails.
    pub fn new(prefix: PathBuf) -> Result<Self> {
        let folder = tree::target().join("demo");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{}: cannot be made", folder.display()))?;
        let mpicc = prefix.join("bin/mpicc");
        ensure!(
            mpicc.exists(),
            "{}: not there; run `make stage` first",
            tree::shown(&mpicc)
        );
        let source = tree::workspace().join("examples/crucible.c");
        run_quietly(
            Command::new(mpicc)
                .args(["-std=c99", "-O3"])
                .arg(source)
                .arg("-o")
                .arg(folder.join("crucible"))
                .arg("-lm"),
        )?;
        let style =
            ProgressStyle::with_template("{elapsed_precise} [{bar:40}] {percent:>3} % {msg}")?;
        Ok(Self {
            prefix,
            folder,
            bar: ProgressBar::new(1).with_style(style),
        })
    }

    /// Runs all configurations and the restart, prints the table, writes the picture. `steps`
    /// overrides the file.
    ///
    /// # Errors
    /// When a run fails or results differ between the numbers of ranks.
    pub fn run(&self, steps: Option<u32>) -> Result<()> {
        let field = self.folder.join("temperature.field");
        let mut outcomes = Vec::new();
        for grid in CONFIGURATIONS {
            let mut arguments: Vec<String> = steps
                .map(|steps| format!("steps={steps}"))
                .into_iter()
                .collect();
            if outcomes.is_empty() {
                arguments.push(format!("field_out={}", field.display()));
            }
            outcomes.push(self.crucible(grid, &arguments)?);
        }
        let restart = self.restart_check()?;
        self.bar.finish_and_clear();

        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!(
            "Convection in a crucible, 30 x 90 x 40 elements, {cores} usable cores\n{}",
            table(&outcomes)
        );
        let first = &outcomes[0];
        println!(
            "mean temperature {:.4} K, kinetic energy {:.4e} J/kg, divergence at most {:.1e} /s",
            first.mean_temperature_k, first.kinetic_energy_j_per_kg, first.divergence_per_s
        );
        println!("{}", agreement(&outcomes)?);
        println!("{restart}");
        let png = self.folder.join("crucible.png");
        picture::write(&Field::read(&field)?, &png)?;
        println!("picture: {}", tree::shown(&png));
        Ok(())
    }

    /// A run that stops, writes its state to a parallel file system, and goes on with another
    /// number of ranks and a disk less must end as one that never stopped.
    fn restart_check(&self) -> Result<String> {
        let can_mount = std::fs::File::open("/dev/fuse").is_ok();
        let files = can_mount
            .then(|| Files::mount(&self.prefix, &self.folder))
            .transpose()
            .context("no parallel file system for the restart (`margay pfs`)")?;
        let folder = files.as_ref().map_or(self.folder.clone(), Files::path);
        let state = folder.join("state.restart");
        let unbroken = self.crucible((2, 1), &["steps=40".into()])?;
        self.crucible(
            (1, 2),
            &[
                "steps=15".into(),
                format!("restart_out={}", state.display()),
            ],
        )?;
        if let Some(files) = &files {
            files.lose_one()?;
        }
        let resumed = self.crucible(
            (2, 2),
            &["steps=25".into(), format!("restart_in={}", state.display())],
        )?;
        std::fs::remove_file(&state)?;
        ensure!(
            unbroken.checksum == resumed.checksum,
            "a restarted run ends with checksum {}, an unbroken one with {}",
            resumed.checksum,
            unbroken.checksum
        );
        let place = match files {
            Some(_) => {
                "on a parallel file system of 4 directories, of which one was removed before it was read"
            }
            None => "in a file: there is no /dev/fuse to mount a parallel file system by",
        };
        Ok(format!(
            "restart: 15 steps on 1x2 ranks and 25 more on 2x2 end bit by bit as 40 steps on 2x1; the state lay {place}"
        ))
    }

    /// One run on `px` x `py` ranks; its progress lines move the bar.
    fn crucible(&self, (px, py): (usize, usize), arguments: &[String]) -> Result<Outcome> {
        let result = self.folder.join("result.json");
        let ranks = px * py;
        self.bar.set_position(0);
        self.bar.set_message(format!("{px}x{py}"));
        let mut child = Command::new("timeout")
            .args(["-k", "5", LIMIT_S])
            .arg(self.prefix.join("bin/mpiexec"))
            .args(["-n", &ranks.to_string()])
            .arg(self.folder.join("crucible"))
            .arg(tree::workspace().join("examples/crucible.par"))
            .args([
                format!("px={px}"),
                format!("py={py}"),
                format!("result_out={}", result.display()),
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the launcher cannot be started")?;
        let errors = self.follow(
            child.stderr.take().expect("standard error is piped"),
            px,
            py,
        );
        let status = child.wait()?;
        if !status.success() {
            bail!(
                "crucible on {px}x{py} ranks ended with {status} (limit {LIMIT_S} s):\n  {}",
                errors.join("\n  ")
            );
        }
        let text = std::fs::read_to_string(&result)
            .with_context(|| format!("{}: cannot be read", result.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: not a result of crucible", result.display()))
    }

    /// Reads standard error to its end; gives the lines that are no progress.
    fn follow(&self, errors: impl Read, px: usize, py: usize) -> Vec<String> {
        let mut others = Vec::new();
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            match progress(&line) {
                Some((done, all)) => {
                    self.bar.set_length(all);
                    self.bar.set_position(done);
                    self.bar.set_message(format!("{px}x{py} ranks: {line}"));
                }
                None => others.push(line),
            }
        }
        others
    }
}

/// Steps done and to do from a line of crucible's progress.
fn progress(line: &str) -> Option<(u64, u64)> {
    let (done, all) = line
        .strip_prefix("step ")?
        .split_whitespace()
        .next()?
        .split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// Whether all numbers of ranks reached the same state.
fn agreement(outcomes: &[Outcome]) -> Result<String> {
    let first = &outcomes[0];
    for ((px, py), outcome) in CONFIGURATIONS.iter().zip(outcomes) {
        ensure!(
            outcome.checksum == first.checksum
                && outcome.kinetic_energy_j_per_kg == first.kinetic_energy_j_per_kg,
            "{px}x{py} ranks end with checksum {}, one rank with {}: the answer depends on the number of ranks",
            outcome.checksum,
            first.checksum
        );
    }
    Ok(format!(
        "all configurations agree bit by bit: checksum {}",
        first.checksum
    ))
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = empty_table(false);
    table.set_header([
        "processor\nconfiguration",
        "ranks",
        "execution\ntime (s)",
        "speed-up",
        "MFLOPS",
    ]);
    for ((px, py), outcome) in CONFIGURATIONS.iter().zip(outcomes) {
        table.add_row([
            format!("{px}x{py}"),
            (px * py).to_string(),
            format!("{:.2}", outcome.seconds),
            format!("{:.2}", outcomes[0].seconds / outcome.seconds),
            format!("{:.0}", outcome.mflops),
        ]);
    }
    to_the_right(&mut table, 0..5);
    table
}

/// Returns the installation to demonstrate: the stage tree, or another prefix.
pub fn prefix(given: Option<&Path>) -> PathBuf {
    given.map_or_else(tree::stage, Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seconds: f64, checksum: &str) -> Outcome {
        Outcome {
            seconds,
            mflops: 100.0,
            mean_temperature_k: 1700.0,
            kinetic_energy_j_per_kg: 1e-4,
            divergence_per_s: 1e-5,
            checksum: checksum.into(),
        }
    }

    #[test]
    fn progress_lines_are_distinguished() {
        assert_eq!(progress("step 45/900    5 %  t = 0.2 s"), Some((45, 900)));
        assert_eq!(progress("step by step"), None);
        assert_eq!(progress("mpiexec: rank 1 died"), None);
    }

    #[test]
    fn results_that_differ_are_an_error() {
        let same = [outcome(2.0, "a"), outcome(1.0, "a"), outcome(1.0, "a")];
        assert!(agreement(&same).is_ok());
        let different = [outcome(2.0, "a"), outcome(1.0, "b"), outcome(1.0, "a")];
        assert!(
            agreement(&different)
                .unwrap_err()
                .to_string()
                .starts_with("2x1 ranks")
        );
    }

    #[test]
    fn the_table_holds_speed_up_against_one_rank() {
        let text = table(&[outcome(4.0, "a"), outcome(2.0, "a"), outcome(1.6, "a")]).to_string();
        for cell in ["1x1", "2x2", "2.00", "2.50"] {
            assert!(text.contains(cell), "{text}");
        }
    }
}
