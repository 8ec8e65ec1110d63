//! `margay bench files`: a directory's files as Forschungszentrum Jülich evaluated its Paragon's
//! (KFA-ZAM-IB-9409, 5.2): every combination of nodes, mode of access, length of records, size and
//! direction, sorted, cut into four buckets, and how often each value is in each bucket.
//!
//! | module | subject |
//! | --- | --- |
//! | [`plan`] | what is run |
//! | [`evaluation`] | buckets, frequencies, and what they predict |
//! | `table`, `panels` | the evaluation as tables and as panels of the picture |

pub mod evaluation;
pub(crate) mod panels;
pub mod plan;
pub mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use margay_bench_common::host::free_bytes;
use margay_bench_common::mpi::Installation;
use margay_bench_common::page::progress_bar;
use margay_bench_common::process;
use margay_cli_bench_options::{FilesOptions, Interface};

use crate::install;
use crate::lines;
use crate::plan::find;
use crate::report::{Report, Run, Suite};
use plan::Unit;

/// What a combination may take beyond the time limit before its job is ended, in seconds.
const GRACE_S: u64 = 120;

/// Measures everything that the options choose.
///
/// # Errors
/// When this program stands in no installed tree or no file can be made in the directory. What
/// fails later is in the report.
pub fn measure(options: &FilesOptions) -> Result<Report> {
    let directory = usable(&options.directory)?;
    let ours = install::ours()?;
    let peer = options.with_mpi.as_deref().map(install::peer).transpose()?;
    let mut report = Report::new(Suite::Files, options.quick);
    report.directory = Some(options.directory.display().to_string());
    let mut plan: Vec<(Unit, &Installation)> = Vec::new();
    let (units, left_out) = plan::units(options, free_bytes());
    report.left_out = left_out;
    for unit in units {
        let program = find(unit.interface.program());
        if !install::has(&ours, program) {
            let missing = format!("{}: the tree has no libnx", program.name);
            if !report.left_out.contains(&missing) {
                report.left_out.push(missing);
            }
            continue;
        }
        let of_peer = peer.as_ref().filter(|_| unit.interface == Interface::Mpi);
        plan.push((unit.clone(), &ours));
        plan.extend(of_peer.map(|peer| (unit, peer)));
    }
    let bar = progress_bar(plan.len());
    let deadline = Instant::now() + Duration::from_secs(60 * u64::from(options.limit));
    for (unit, installation) in &plan {
        let what = format!("{} ({})", unit.label(), installation.name);
        bar.set_message(what.clone());
        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            report.left_out.push(format!(
                "{what}: the limit of {} minutes was reached; --limit sets another",
                options.limit
            ));
        } else {
            report.add(&what, run(unit, installation, &ours, &directory, left));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Returns the whole path of a directory in which a file can be made.
fn usable(directory: &Path) -> Result<std::path::PathBuf> {
    let shown = directory.display();
    let whole = std::fs::canonicalize(directory)
        .with_context(|| format!("{shown}: cannot be used; name a directory that is there"))?;
    if !whole.is_dir() {
        bail!("{shown}: is no directory; name the one in which files are to be measured");
    }
    let trial = whole.join(format!(".margay-bench-files-trial-{}", std::process::id()));
    std::fs::File::create_new(&trial)
        .and_then(|_| std::fs::remove_file(&trial))
        .with_context(|| {
            format!("{shown}: no file can be made here; name a directory that you may write to")
        })?;
    Ok(whole)
}

fn run(
    unit: &Unit,
    installation: &Installation,
    ours: &Installation,
    directory: &Path,
    left_s: u64,
) -> Result<Run> {
    let program = find(unit.interface.program());
    let executable = install::compile(installation, &install::sources(ours), program)?;
    let executable = std::fs::canonicalize(executable)?;
    let limit = u32::try_from(left_s + GRACE_S).unwrap_or(u32::MAX);
    let mut command = installation.launch(unit.nodes, limit);
    let arguments = unit.arguments(left_s);
    command
        .arg(executable)
        .args(&arguments)
        .current_dir(directory);
    let started = Instant::now();
    let output = process::run(&mut command, true)?;
    let reported = lines::parse(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        errors.lines().last().unwrap_or_default().to_owned()
    })?;
    Ok(Run {
        program: program.name.to_owned(),
        ranks: unit.nodes,
        implementation: installation.name.clone(),
        arguments: unit.arguments(0).join(" "),
        seconds: started.elapsed().as_secs_f64(),
        reported,
        ..Run::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_used_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let report = |path: &Path| format!("{:#}", usable(path).unwrap_err());
        assert!(report(&folder.path().join("none")).contains("name a directory that is there"));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(report(&file).contains("is no directory"));
        assert!(report(Path::new("/proc/self")).contains("no file can be made here"));
        usable(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
