//! Recorded workloads through the scheduler: how long jobs would have waited with each backfill.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use margay_core_queue::replay::Outcome;
use margay_core_queue::{Backfill, Settings, swf};

/// Runs the log of a file with each kind of backfill, and prints how each went.
///
/// # Errors
/// In words.
pub fn replay(file: &Path, json: bool) -> Result<(), String> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let log =
        swf::read(&String::from_utf8_lossy(&text)).map_err(|error| format!("{shown}, {error}"))?;
    let widest = log.jobs.iter().map(|job| job.processors).max();
    let Some(slots) = log.processors.or(widest) else {
        return Err(format!("{shown} has no jobs that ran"));
    };
    let kinds = [
        ("none", Backfill::Off),
        ("easy", Backfill::Easy),
        ("conservative", Backfill::Conservative),
    ];
    if !json {
        print(&format!(
            "{} jobs on {slots} slots ({} without size or time left out)\n\
             BACKFILL       SLOWDOWN       WAIT  USED  BEFORE  QUEUE  DELAYS  DECISIONS     TIME\n",
            log.jobs.len(),
            log.skipped
        ))?;
    }
    let mut objects = Vec::new();
    for (name, backfill) in kinds {
        let settings = Settings {
            backfill,
            ..Settings::default()
        };
        let begun = Instant::now();
        let outcome = margay_core_queue::replay::replay(&log, slots, settings);
        let seconds = begun.elapsed().as_secs_f64();
        if json {
            objects.push(object(name, &outcome, seconds));
        } else {
            print(&line(name, &outcome, seconds))?;
        }
    }
    match json {
        true => print(&format!("{}\n", serde_json::Value::from(objects))),
        false => Ok(()),
    }
}

fn line(name: &str, outcome: &Outcome, seconds: f64) -> String {
    format!(
        "{name:<13}{:>10.1}{:>11.0}{:>5.0}%{:>8}{:>7}{:>8}{:>11}{seconds:>8.1}s\n",
        outcome.slowdown,
        outcome.wait_s,
        outcome.utilization * 100.0,
        outcome.backfilled,
        outcome.most_waiting,
        outcome.delays,
        outcome.decisions,
    )
}

fn object(name: &str, outcome: &Outcome, seconds: f64) -> serde_json::Value {
    serde_json::json!({
        "backfill": name,
        "jobs": outcome.jobs,
        "refused": outcome.refused,
        "bounded_slowdown": outcome.slowdown,
        "wait_s": outcome.wait_s,
        "utilization": outcome.utilization,
        "makespan_s": outcome.makespan_s,
        "backfilled": outcome.backfilled,
        "most_waiting": outcome.most_waiting,
        "delays": outcome.delays,
        "decisions": outcome.decisions,
        "replay_s": seconds,
    })
}

/// Prints the log of a machine that never was, from a seed.
///
/// # Errors
/// In words.
pub fn make(jobs: &str, slots: &str, seed: &str) -> Result<(), String> {
    let wrong = |text: &str| format!("'{text}' is no number that fits");
    let log = swf::make(
        jobs.parse().map_err(|_| wrong(jobs))?,
        slots.parse().map_err(|_| wrong(slots))?,
        seed.parse().map_err(|_| wrong(seed))?,
    );
    print(&swf::write(&log))
}

fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot print: {error}"))
}
