//! The evaluation as tables.

use std::fmt::Write as _;

use margay_bench_common::page::{empty_table, significant, to_the_right};

use super::evaluation::{BUCKETS, Cell, Evaluation, PARAMETERS, evaluations};
use crate::report::{DIGITS, Report};

/// Returns the tables of every interface: how often values are in the buckets, the best and the
/// worst combinations, and the highest rates.
pub fn tables(report: &Report, markdown: bool) -> String {
    let mut text = String::new();
    for evaluation in evaluations(report) {
        let heading = if markdown { "## " } else { "" };
        let _ = writeln!(text, "{heading}{}\n", title(&evaluation));
        if !evaluation.cells.is_empty() {
            let _ = writeln!(text, "{}\n", buckets(&evaluation, markdown));
            let _ = writeln!(text, "{}\n", extremes(&evaluation, markdown));
        }
        let _ = writeln!(
            text,
            "Highest MB/s by length of records\n\n{}\n",
            highest(&evaluation, markdown)
        );
    }
    text.trim_end().to_owned()
}

/// What stands above an interface's tables and panels.
pub fn title(evaluation: &Evaluation) -> String {
    let count = evaluation.cells.len();
    let range = match (evaluation.cells.first(), evaluation.cells.last()) {
        (Some(least), Some(most)) => format!(
            ", {} to {} MB/s",
            significant(least.rate, DIGITS),
            significant(most.rate, DIGITS)
        ),
        _ => String::new(),
    };
    format!("{}: {count} combinations{range}", evaluation.interface())
}

/// What stands above a bucket.
pub fn bucket_title(evaluation: &Evaluation, bucket: usize) -> String {
    let range = match evaluation.bucket(bucket) {
        [] => String::new(),
        [one] => significant(one.rate, 3),
        [first, .., last] => {
            format!(
                "{} to {}",
                significant(first.rate, 3),
                significant(last.rate, 3)
            )
        }
    };
    format!("{}: {range}", bucket + 1)
}

/// Returns how often each value is in each bucket.
fn buckets(evaluation: &Evaluation, markdown: bool) -> String {
    let mut table = empty_table(markdown);
    let mut head = vec!["parameter".to_owned(), "value".to_owned()];
    head.extend((0..BUCKETS).map(|bucket| bucket_title(evaluation, bucket)));
    table.set_header(head);
    for parameter in PARAMETERS {
        for (n, frequency) in evaluation.frequencies(parameter).into_iter().enumerate() {
            let name = if n == 0 { parameter.name() } else { "" };
            let mut row = vec![name.to_owned(), frequency.value];
            row.extend(frequency.counts.map(|count| count.to_string()));
            table.add_row(row);
        }
    }
    to_the_right(&mut table, 2..2 + BUCKETS);
    table.to_string()
}

/// Returns the fastest and the slowest combinations, and those that the frequencies predict.
fn extremes(evaluation: &Evaluation, markdown: bool) -> String {
    let mut table = empty_table(markdown);
    table.set_header([
        "combination",
        "mode",
        "nodes",
        "record",
        "size",
        "direction",
        "MB/s",
    ]);
    let mut add = |name: String, cell: &Cell| {
        let mut row = vec![name];
        row.extend(PARAMETERS.map(|parameter| parameter.of(cell)));
        row.push(significant(cell.rate, DIGITS));
        table.add_row(row);
    };
    for (best, name, end) in [(true, "best", "top"), (false, "worst", "bottom")] {
        let extreme = if best {
            evaluation.cells.last()
        } else {
            evaluation.cells.first()
        };
        if let Some(cell) = extreme {
            add(name.to_owned(), cell);
        }
        if let Some((cell, place)) = evaluation.predicted(best) {
            add(
                format!("predicted {name}, place {place} from the {end}"),
                cell,
            );
        }
    }
    to_the_right(&mut table, [2, 3, 6]);
    table.to_string()
}

/// Returns the highest rate of each mode and direction by length of records.
fn highest(evaluation: &Evaluation, markdown: bool) -> String {
    let records = records(evaluation);
    let mut table = empty_table(markdown);
    let mut head = vec!["mode".to_owned(), "direction".to_owned()];
    head.extend(records.iter().map(u64::to_string));
    table.set_header(head);
    for mode in modes(evaluation) {
        for writes in [true, false] {
            let direction = if writes { "write" } else { "read" };
            let mut row = vec![mode.to_owned(), direction.to_owned()];
            row.extend(records.iter().map(|record| {
                let rate = highest_rate(evaluation, mode, writes, *record);
                rate.map_or("-".to_owned(), |rate| significant(rate, DIGITS))
            }));
            table.add_row(row);
        }
    }
    to_the_right(&mut table, 2..2 + records.len());
    table.to_string()
}

/// Returns the lengths of records, the shortest first.
pub fn records(evaluation: &Evaluation) -> Vec<u64> {
    let mut records: Vec<u64> = evaluation.all.iter().map(|cell| cell.record).collect();
    records.sort_unstable();
    records.dedup();
    records
}

/// Returns the modes in the order in which they were measured.
pub fn modes(evaluation: &Evaluation) -> Vec<&str> {
    let mut modes: Vec<&str> = Vec::new();
    for cell in &evaluation.all {
        if !modes.contains(&cell.mode.as_str()) {
            modes.push(&cell.mode);
        }
    }
    modes
}

/// Returns the highest rate with any number of nodes and any size.
pub fn highest_rate(evaluation: &Evaluation, mode: &str, writes: bool, record: u64) -> Option<f64> {
    let same = |cell: &&Cell| cell.mode == mode && cell.writes == writes && cell.record == record;
    let cells = evaluation.all.iter().filter(same);
    cells.map(|cell| cell.rate).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::evaluation::tests::canned;

    #[test]
    fn tables_have_buckets_predictions_and_the_redundant_mode_apart() {
        let text = tables(&canned(), true);
        for part in [
            "## NX: 16 combinations, 80.00 to 7864 MB/s",
            "1: 80.0 to 240",
            "| mode              | M_UNIX   |",
            "| predicted best, place 1 from the top",
            "| predicted worst, place 1 from the bottom",
            "| M_GLOBAL | write     | 16000 | 131072 |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("M_GLOBAL").count(), 2, "{text}");
    }
}
