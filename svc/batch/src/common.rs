//! What the commands of all systems have in common: asking the head, submitting, times.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use margay_core_queue::{End, JobId, Phase};
use margay_svc_queue_wire::{
    Answer, Detail, JobRow, Machine, Order, Request, Shared, Target, ask, each_ended,
};

/// What a command ended with: its exit code.
pub type Done = Result<u8, String>;

/// Prints on the standard output.
///
/// # Errors
/// In words.
pub fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot print: {error}"))
}

/// Prints on the standard error.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn other() -> String {
    "the head of the queue answers something else; is it of another version?".into()
}

/// Asks for something that has no answer but that it is done.
///
/// # Errors
/// In words.
pub fn order(request: &Request) -> Result<(), String> {
    match ask(request)? {
        Answer::Done(_) => Ok(()),
        Answer::Failed(text) => Err(text),
        _ => Err(other()),
    }
}

/// All that is known of jobs: of these, or of all that wait or run; with the steps of those that
/// run.
///
/// # Errors
/// In words.
pub fn details(has_steps: bool, jobs: Vec<Target>) -> Result<Vec<Detail>, String> {
    shown(ask(&Request::Show { has_steps, jobs })?)
}

/// The same of all jobs that wait or run, without their steps; or, `with_ended`, of all jobs.
///
/// # Errors
/// In words.
pub fn details_of_all(with_ended: bool) -> Result<Vec<Detail>, String> {
    match with_ended {
        true => details_since(0),
        false => details(false, vec![]),
    }
}

/// The same of all jobs that wait, run, or have ended at this second since 1970 or later, in the
/// order of their numbers: a queue has hundreds of thousands that ended before.
///
/// # Errors
/// In words.
pub fn details_since(since: u64) -> Result<Vec<Detail>, String> {
    // One that ends meanwhile is in both.
    let mut all: BTreeMap<JobId, Detail> = BTreeMap::new();
    let mut add = |details: Vec<Detail>| {
        let last = details.last().and_then(|detail| detail.row.end());
        all.extend(details.into_iter().map(|detail| (detail.row.id, detail)));
        last
    };
    add(details(true, vec![])?);
    each_ended(since, true, |answer| Ok(add(shown(answer)?)))?;
    Ok(all.into_values().collect())
}

fn shown(answer: Answer) -> Result<Vec<Detail>, String> {
    match answer {
        Answer::Details(values) => {
            let details = values
                .iter()
                .map(|value| serde_json::from_slice(value.get().as_bytes()));
            details.collect::<Result<_, _>>().map_err(|_| other())
        }
        Answer::Failed(text) => Err(text),
        _ => Err(other()),
    }
}

/// The shell of scripts that name none, with PBS and LoadLeveler.
#[must_use]
pub fn login_shell() -> String {
    let shell = std::env::var("SHELL").ok();
    shell
        .filter(|shell| shell.starts_with('/'))
        .unwrap_or_else(|| "/bin/sh".into())
}

/// The machine.
///
/// # Errors
/// In words.
pub fn machine() -> Result<Machine, String> {
    match ask(&Request::Machine)? {
        Answer::Machine(machine) => Ok(machine),
        Answer::Failed(text) => Err(text),
        _ => Err(other()),
    }
}

/// Waits until jobs have ended, and returns their rows.
///
/// # Errors
/// In words.
pub fn wait(jobs: Vec<Target>) -> Result<Vec<JobRow>, String> {
    match margay_svc_queue_wire::wait(jobs, true, &mut complain)? {
        Answer::Jobs(rows) => Ok(rows),
        Answer::Failed(text) => Err(text),
        _ => Err(other()),
    }
}

/// The exit code that stands for how a job ended.
#[must_use]
pub fn exit_code(row: &JobRow) -> u8 {
    match row.phase {
        Phase::Ended(End::Exit(code)) => u8::try_from(code).unwrap_or(1),
        Phase::Ended(End::Signal(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        _ => 1,
    }
}

/// Submits a job or an array; returns its number.
///
/// # Errors
/// In words.
pub fn submit(shared: Shared, order: Order) -> Result<JobId, String> {
    let orders = vec![order];
    match ask(&Request::Submit { shared, orders })? {
        Answer::Accepted(accepted) => accepted.first().map(|first| first.0).ok_or_else(other),
        Answer::Failed(text) => Err(text),
        _ => Err(other()),
    }
}

/// Reads a script: of a file, or of the standard input.
///
/// # Errors
/// In words.
pub fn script(file: Option<&str>) -> Result<Vec<u8>, String> {
    let read = match file {
        None | Some("-") => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        }
        Some(file) => std::fs::read(file),
    };
    read.map_err(|error| format!("cannot read {}: {error}", file.unwrap_or("-")))
}

/// The name of a file without its folder.
#[must_use]
pub fn base_name(file: &str) -> Option<String> {
    let name = Path::new(file).file_name()?;
    Some(name.to_string_lossy().into_owned()).filter(|name| name != "-")
}

/// Seconds since 1970.
#[must_use]
pub fn now_s() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// `2026-11-24T06:47:20`, local time.
#[must_use]
pub fn date(at: u64) -> String {
    margay_sys_os::clock::local(at).to_string()
}

/// Reads `2026-11-24[T06:47[:20]]`, `06:47[:20]`, `today`, `now`, `now-2hours`, or seconds since
/// 1970.
///
/// # Errors
/// In words.
pub fn moment(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is no time; write for example 2026-11-24T06:47:00 or now-2hours");
    let now = now_s();
    let local = margay_sys_os::clock::local(now);
    let midnight = now
        - (u64::from(local.hour) * 3600 + u64::from(local.minute) * 60 + u64::from(local.second))
            .min(now);
    match text {
        "now" => return Ok(now),
        "today" | "midnight" => return Ok(midnight),
        _ => {}
    }
    if let Some(back) = text.strip_prefix("now-") {
        let digits = back.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = back[..digits].parse().map_err(|_| wrong())?;
        let unit = match back[digits..].trim_end_matches('s') {
            "" | "second" => 1,
            "minute" | "min" => 60,
            "hour" => 3600,
            "day" => 86400,
            "week" => 7 * 86400,
            _ => return Err(wrong()),
        };
        return Ok(now.saturating_sub(count.saturating_mul(unit)));
    }
    let clock = |text: &str| -> Result<u64, String> {
        let parts: Vec<u64> = text
            .split(':')
            .map(|part| part.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        match parts[..] {
            [hours, minutes] => Ok(hours * 3600 + minutes * 60),
            [hours, minutes, seconds] => Ok(hours * 3600 + minutes * 60 + seconds),
            _ => Err(wrong()),
        }
    };
    let (day, rest) = match text.split_once('T') {
        Some((day, rest)) => (Some(day), clock(rest)?),
        None if text.contains(':') => (None, clock(text)?),
        None if text.contains('-') => (Some(text), 0),
        None => return text.parse().map_err(|_| wrong()),
    };
    let Some(day) = day else {
        return Ok(midnight + rest);
    };
    let parts: Vec<i32> = day
        .split('-')
        .map(|part| part.parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    match parts[..] {
        [year, month, day] => margay_sys_os::clock::local_midnight(year, month, day)
            .map(|midnight| midnight + rest)
            .ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Columns with a heading, each as wide as its widest text.
#[must_use]
pub fn table(lines: &[Vec<String>]) -> String {
    let count = lines.first().map_or(0, Vec::len);
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|n| width(n).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        text += cells.join(" ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_shown() {
        for at in [0, 86_400 * 200, 1_790_000_000, now_s()] {
            assert_eq!(moment(&date(at)), Ok(at), "{}", date(at));
        }
        let now = moment("now").unwrap();
        assert!(moment("today").unwrap() <= now);
        assert!(now - moment("now-2hours").unwrap() >= 7199);
        for text in ["", "x", "now-", "now-2x", "2026-13-45", "1:2:3:4"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
