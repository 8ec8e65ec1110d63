//! `margay pfs top`: what each stripe directory and each client does, as rates between two looks at
//! the service's counters.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::show::bytes;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Clients that are shown.
const MOST_SHOWN: usize = 20;

/// A line of counters: kind and key, numbers, and words behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counters {
    numbers: Vec<u64>,
    words: String,
}

/// The counters of a look, by kind and key.
type Look = BTreeMap<(String, String), Counters>;

/// Numbers in each line.
const NUMBERS: usize = 5;

fn parse(text: &str) -> Look {
    let mut look = Look::new();
    for line in text.lines() {
        let mut parts = line.splitn(3 + NUMBERS, ' ');
        let (Some(kind), Some(key)) = (parts.next(), parts.next()) else {
            continue;
        };
        let numbers: Vec<u64> = parts
            .by_ref()
            .take(NUMBERS)
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        let words = parts.next().unwrap_or_default().to_owned();
        if numbers.len() == NUMBERS {
            look.insert(
                (kind.to_owned(), key.to_owned()),
                Counters { numbers, words },
            );
        }
    }
    look
}

/// The table of the rates between two looks.
fn table(before: &Look, now: &Look, seconds: f64) -> String {
    let rates = |kind: &str| {
        let lines = now.iter().filter(|((k, _), _)| k == kind);
        let mut rates: Vec<(&str, [f64; NUMBERS], &str)> = lines
            .map(|(at, counters)| {
                let mut rate = [0.0; NUMBERS];
                let old = before.get(at).map(|c| c.numbers.as_slice());
                for (n, value) in counters.numbers.iter().enumerate() {
                    let old = old.and_then(|old| old.get(n)).copied().unwrap_or(0);
                    rate[n] = value.saturating_sub(old) as f64 / seconds;
                }
                (at.1.as_str(), rate, counters.words.as_str())
            })
            .collect();
        if kind == "client" {
            rates.retain(|(_, rate, _)| rate.iter().any(|r| *r > 0.0));
            let weight = |rate: &[f64; NUMBERS]| rate[1] + rate[3] + rate[4];
            rates.sort_by(|a, b| weight(&b.1).total_cmp(&weight(&a.1)));
            rates.truncate(MOST_SHOWN);
        }
        rates
    };
    let mut text = String::new();
    // A string takes everything.
    for (_, _, words) in rates("service") {
        let _ = writeln!(text, "{words}");
    }
    heading(&mut text, "busy", "stripe directory");
    for (_, rate, words) in rates("disk") {
        row(
            &mut text,
            &rate,
            &format!("{:.0}%", rate[4] / 10_000.0),
            words,
        );
    }
    heading(&mut text, "names", "client (user/process@host)");
    for (who, rate, words) in rates("client") {
        row(
            &mut text,
            &rate,
            &format!("{:.0}", rate[4]),
            &format!("{who} {words}"),
        );
    }
    text
}

fn heading(text: &mut String, last: &str, whose: &str) {
    // A string takes everything.
    let _ = writeln!(
        text,
        "{:>9} {:>12} {:>9} {:>12} {last:>6}  {whose}",
        "reads/s", "read/s", "writes/s", "written/s"
    );
}

fn row(text: &mut String, rate: &[f64; NUMBERS], last: &str, whose: &str) {
    let (read, written) = (bytes(rate[1] as u64), bytes(rate[3] as u64));
    let _ = writeln!(
        text,
        "{:>9.0} {read:>12} {:>9.0} {written:>12} {last:>6}  {whose}",
        rate[0], rate[2]
    );
}

/// Shows the table once, or again and again until the service ends.
///
/// # Errors
/// In words: what `ask` says.
pub fn run(is_once: bool, ask: &dyn Fn() -> Result<String, String>) -> Result<(), String> {
    let mut before = (Instant::now(), parse(&ask()?));
    let mut stdout = io::stdout();
    let is_screen = stdout.is_terminal() && !is_once;
    loop {
        std::thread::sleep(EVERY);
        let now = (Instant::now(), parse(&ask()?));
        let seconds = now.0.duration_since(before.0).as_secs_f64();
        let text = table(&before.1, &now.1, seconds);
        let begin = if is_screen { "\x1b[H\x1b[J" } else { "" };
        let written = write!(stdout, "{begin}{text}").and_then(|()| stdout.flush());
        if is_once || written.is_err() {
            return Ok(());
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_by_time_and_idle_clients_are_not_shown() {
        let before = parse(
            "disk 0 10 4096 0 0 0 good /a b\nclient 0/7 1 1 1 1 5 cp\nclient 0/8 1 1 1 1 1 sleep\n",
        );
        let now = parse(
            "disk 0 20 8192 4 1024 1000000 good /a b\nclient 0/7 1 1 1 1 25 cp\nclient 0/8 1 1 1 1 1 sleep\nx\n",
        );
        let text = table(&before, &now, 2.0);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            ["5", "2.0", "KiB", "2", "512", "B", "50%", "good", "/a", "b"]
        );
        assert_eq!(lines[3], ["0", "0", "B", "0", "0", "B", "10", "0/7", "cp"]);
        assert_eq!(lines.len(), 4);
    }
}
