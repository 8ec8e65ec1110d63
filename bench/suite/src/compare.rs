//! What got slower since an older report, against the noise that both runs measured.

use std::fmt::Write as _;

use margay_bench_common::page::significant;

use crate::lines::Figure;
use crate::report::{DIGITS, Report, Run};

/// Changes below this many percent say nothing, however small the noise.
const LEAST_PERCENT: f64 = 2.0;

/// A change counts when it is this many times the noise of both runs together.
const NOISES: f64 = 2.0;

/// One figure that both reports have.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Program, ranks and figure.
    pub name: String,
    /// Unit of both values.
    pub unit: String,
    /// Value of the older report.
    pub old: f64,
    /// Value of this one.
    pub new: f64,
    /// How much slower, in percent of the old value; below 0: faster.
    pub slower_percent: f64,
    /// Percent from which on it is taken for a change.
    pub threshold_percent: f64,
}

impl Change {
    /// Slower than the noise explains.
    pub fn is_slower(&self) -> bool {
        self.slower_percent > self.threshold_percent
    }

    /// Faster than the noise explains.
    pub fn is_faster(&self) -> bool {
        -self.slower_percent > self.threshold_percent
    }
}

/// Whether more is better of a unit; `None` for what is no speed.
fn more_is_better(unit: &str) -> Option<bool> {
    match unit {
        "MB/s" | "MFLOPS" | "GFLOPS" | "MFLOPS/rank" => Some(true),
        "ns" | "us" | "ms" => Some(false),
        _ => None,
    }
}

/// Names of figures that describe scatter or a limit, and so are no speed although they have its
/// unit.
fn is_speed(name: &str) -> bool {
    !name.contains("deviation") && !name.contains("bound") && !name.ends_with(".max")
}

/// Returns the noise of a figure; of one that was measured once, the median of its run's others.
fn noise_of(run: &Run, figure: &Figure) -> f64 {
    figure.noise.unwrap_or_else(|| {
        let mut others: Vec<f64> = run
            .reported
            .figures
            .iter()
            .filter_map(|f| f.noise)
            .collect();
        others.sort_by(f64::total_cmp);
        others.get(others.len() / 2).copied().unwrap_or(0.0)
    })
}

/// Returns every speed that both reports have, in the order of `new`.
pub fn compare(old: &Report, new: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for run in &new.runs {
        let before = old.runs.iter().find(|other| other.is_like(run));
        let Some(before) = before else { continue };
        for figure in &run.reported.figures {
            let same = |f: &&Figure| f.name == figure.name && f.unit == figure.unit;
            let (Some(other), Some(more)) = (
                before.reported.figures.iter().find(same),
                more_is_better(&figure.unit),
            ) else {
                continue;
            };
            if !is_speed(&figure.name) || other.value <= 0.0 || figure.value <= 0.0 {
                continue;
            }
            // As times: how much longer the same work takes.
            let longer = if more {
                other.value / figure.value
            } else {
                figure.value / other.value
            };
            let noise = noise_of(run, figure).hypot(noise_of(before, other));
            changes.push(Change {
                name: format!("{} {} ({})", run.program, figure.name, run.conditions()),
                unit: figure.unit.clone(),
                old: other.value,
                new: figure.value,
                slower_percent: 100.0 * (longer - 1.0),
                threshold_percent: (NOISES * noise).max(LEAST_PERCENT),
            });
        }
    }
    changes
}

/// Returns the comparison as text: what got slower, what got faster, and how many stayed.
pub fn describe(old: &Report, new: &Report, changes: &[Change]) -> String {
    let mut text = format!("against {} on {}:\n", old.date, old.host.class());
    if old.host != new.host {
        let _ = writeln!(text, "  the machines differ, so changes may be theirs");
    }
    if old.quick != new.quick {
        let _ = writeln!(
            text,
            "  one has quick sizes and the other has not, so only what has no size compares"
        );
    }
    let mut moved: Vec<&Change> = changes
        .iter()
        .filter(|change| change.is_slower() || change.is_faster())
        .collect();
    moved.sort_by(|a, b| b.slower_percent.total_cmp(&a.slower_percent));
    for change in &moved {
        let _ = writeln!(
            text,
            "  {} by {:.1} % (noise allows {:.1} %): {}: {} -> {} {}",
            if change.is_slower() {
                "slower"
            } else {
                "faster"
            },
            change.slower_percent.abs(),
            change.threshold_percent,
            change.name,
            significant(change.old, DIGITS),
            significant(change.new, DIGITS),
            change.unit
        );
    }
    let _ = writeln!(
        text,
        "  {} of {} figures within the noise",
        changes.len() - moved.len(),
        changes.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::canned;

    fn slower(old: &Report, new: &Report) -> Vec<String> {
        let changes = compare(old, new);
        let found = changes.iter().filter(|change| change.is_slower());
        found.map(|change| change.name.clone()).collect()
    }

    #[test]
    fn the_same_report_has_no_changes() {
        let report = canned(1.0);
        let changes = compare(&report, &report);
        assert!(changes.len() > 30);
        assert!(
            changes
                .iter()
                .all(|change| !change.is_slower() && !change.is_faster())
        );
        let text = describe(&report, &report, &changes);
        assert!(text.contains(&format!(
            "{0} of {0} figures within the noise",
            changes.len()
        )));
    }

    #[test]
    fn rates_that_fell_and_times_that_rose_are_slower() {
        let (old, new) = (canned(1.0), canned(0.8));
        let names = slower(&old, &new);
        assert_eq!(
            names,
            [
                "comtest latency (margay, 2 ranks)",
                "linpack N4032.NB192 (margay, 2 ranks)",
                "linpack rmax (margay, 2 ranks)"
            ]
        );
        let changes = compare(&old, &new);
        assert!(
            (changes
                .iter()
                .find(|c| c.is_slower())
                .unwrap()
                .slower_percent
                - 25.0)
                .abs()
                < 1e-9
        );
        let text = describe(&old, &new, &changes);
        assert!(
            text.contains("slower by 25.0 % (noise allows 5.7 %): comtest latency"),
            "{text}"
        );
        assert!(slower(&new, &old).is_empty());
        assert!(describe(&new, &old, &compare(&new, &old)).contains("faster by 20.0 %"));
    }

    #[test]
    fn changes_within_the_noise_do_not_count() {
        assert!(
            slower(&canned(1.0), &canned(0.985)).is_empty(),
            "2 percent is the least"
        );
        let (mut old, mut new) = (canned(1.0), canned(0.9));
        for report in [&mut old, &mut new] {
            for run in &mut report.runs {
                for figure in &mut run.reported.figures {
                    figure.noise = figure.noise.map(|_| 10.0);
                }
            }
        }
        assert!(
            slower(&old, &new).is_empty(),
            "noise of 10 percent covers 11"
        );
    }

    #[test]
    fn other_machines_and_sizes_are_reported() {
        let (old, mut new) = (canned(1.0), canned(1.0));
        new.host.cores = 64;
        new.quick = false;
        let text = describe(&old, &new, &compare(&old, &new));
        assert!(text.contains("the machines differ") && text.contains("quick sizes"));
    }
}
