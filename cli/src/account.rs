//! `margay account`: what jobs that have ended used, as the queue's store has it.

use std::collections::BTreeMap;

use margay_svc_queue_wire::JobRow;
use serde_json::{Map, Value};

use crate::queue_answer::{each_ended, print, table};
use crate::queue_options::AccountOptions;

/// A line: its words, and as numbers where they are some.
type Line = Vec<Value>;

/// The sums of an account.
#[derive(Default)]
struct Sum {
    jobs: u64,
    slot_s: u64,
    cpu_s: f64,
    max_rss_kib: u64,
    /// Of those jobs of which it is known.
    energy_j: Option<f64>,
}

/// Shows what was used.
///
/// # Errors
/// In words.
pub fn account(options: &AccountOptions) -> Result<(), String> {
    options.which.choose();
    let (head, lines): (&[&str], Vec<Line>) = if options.jobs {
        let mut rows = Vec::new();
        each_ended(|row| rows.push(row))?;
        rows.sort_by_key(|row| row.id);
        let head = &[
            "job",
            "name",
            "account",
            "slots",
            "slot_s",
            "cpu_s",
            "max_rss_kib",
            "energy_j",
        ];
        (head, rows.iter().map(of_job).collect())
    } else {
        let head = &[
            "user",
            "account",
            "jobs",
            "slot_s",
            "cpu_s",
            "max_rss_kib",
            "energy_j",
        ];
        let of_queues = &[
            "queue",
            "jobs",
            "slot_s",
            "cpu_s",
            "max_rss_kib",
            "energy_j",
        ];
        match (options.queues, options.users) {
            (true, _) => (of_queues, sums(&|row| vec![&row.partition])?),
            (_, true) => (head, sums(&|row| vec![&row.user, account_of(row)])?),
            _ => (&head[1..], sums(&|row| vec![account_of(row)])?),
        }
    };
    print(&if options.json {
        let object = |line: Line| -> Value {
            let pairs = head.iter().map(|word| (*word).to_owned()).zip(line);
            pairs.collect::<Map<String, Value>>().into()
        };
        format!("{}\n", lines.into_iter().map(object).collect::<Value>())
    } else {
        let words = |line: &Line| line.iter().map(shown).collect::<Vec<String>>();
        let first = head.iter().map(|word| (*word).to_owned()).collect();
        let all: Vec<Vec<String>> = std::iter::once(first)
            .chain(lines.iter().map(words))
            .collect();
        if options.csv { csv(&all) } else { table(&all) }
    })
}

/// The slots of a job times the seconds that it had them.
fn slot_s(row: &JobRow) -> u64 {
    let times = row.ended.zip(row.started);
    let seconds = times.map_or(0, |(ended, started)| ended.saturating_sub(started));
    seconds.saturating_mul(u64::from(row.slots))
}

fn account_of(row: &JobRow) -> &str {
    row.account.as_deref().unwrap_or("-")
}

fn of_job(row: &JobRow) -> Line {
    vec![
        row.shown.clone().into(),
        row.name.clone().into(),
        account_of(row).into(),
        row.slots.into(),
        slot_s(row).into(),
        row.usage.cpu_s.into(),
        row.usage.max_rss_kib.into(),
        row.usage.energy_j().into(),
    ]
}

/// A line for each of what these words name, of all jobs that have ended.
fn sums(names: &dyn Fn(&JobRow) -> Vec<&str>) -> Result<Vec<Line>, String> {
    let mut sums: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
    each_ended(|row| {
        let names = names(&row).into_iter().map(str::to_owned);
        let sum = sums.entry(names.collect()).or_default();
        sum.jobs += 1;
        sum.slot_s = sum.slot_s.saturating_add(slot_s(&row));
        sum.cpu_s += row.usage.cpu_s;
        sum.max_rss_kib = sum.max_rss_kib.max(row.usage.max_rss_kib);
        if let Some(energy) = row.usage.energy_j() {
            *sum.energy_j.get_or_insert(0.0) += energy;
        }
    })?;
    let line = |(names, sum): (Vec<String>, Sum)| {
        let mut line: Line = names.into_iter().map(Value::from).collect();
        line.extend([
            sum.jobs.into(),
            sum.slot_s.into(),
            sum.cpu_s.into(),
            sum.max_rss_kib.into(),
            sum.energy_j.into(),
        ]);
        line
    };
    Ok(sums.into_iter().map(line).collect())
}

fn shown(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, _) => "not reported".into(),
        (Value::Number(number), Some(float)) if number.is_f64() => format!("{float:.3}"),
        _ => value.to_string(),
    }
}

/// Comma-separated values, as RFC 4180 has them but with plain ends of lines.
fn csv(lines: &[Vec<String>]) -> String {
    let word = |word: &String| {
        if word.contains(['"', ',']) {
            format!("\"{}\"", word.replace('"', "\"\""))
        } else {
            word.clone()
        }
    };
    let line = |line: &Vec<String>| line.iter().map(word).collect::<Vec<_>>().join(",") + "\n";
    lines.iter().map(line).collect()
}
