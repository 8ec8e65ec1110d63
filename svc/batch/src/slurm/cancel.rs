//! `scancel`: ends jobs, or sends them a signal.

use margay_core_queue::Phase;
use margay_svc_queue_wire::{Request, Target};

use super::fields::{is_state, is_state_name};
use super::{chosen, user_names};
use crate::common::{self, Done, complain};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const OPTIONS: &[Known] = &[
    ('A', "account", Value),
    ('b', "batch", Nothing),
    ('f', "full", Nothing),
    ('H', "hurry", Nothing),
    ('n', "name", Value),
    (' ', "jobname", Value),
    (' ', "me", Nothing),
    ('p', "partition", Value),
    ('Q', "quiet", Nothing),
    ('q', "qos", Value),
    ('s', "signal", Value),
    ('t', "state", Value),
    ('u', "user", Value),
    ('v', "verbose", Nothing),
    ('w', "nodelist", Value),
    (' ', "ctld", Nothing),
];

/// The number of a signal by its name or number.
///
/// # Errors
/// In words.
pub fn signal(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    const NAMES: [(&str, i32); 15] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ABRT", 6),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
        ("CONT", 18),
        ("STOP", 19),
        ("TSTP", 20),
        ("URG", 23),
        ("WINCH", 28),
    ];
    let named = NAMES
        .iter()
        .find(|known| known.0 == name)
        .map(|known| known.1);
    named
        .or_else(|| name.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| format!("Unknown job signal: {text}"))
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    let states = words.list("state");
    if let Some(wrong) = states.iter().find(|state| !is_state_name(state)) {
        return Err(format!("Invalid job state specified: {wrong}"));
    }
    let names: Vec<String> = [words.list("name"), words.list("jobname")].concat();
    let users = user_names(&words, words.has("me"));
    let lists = ["account", "partition", "nodelist"].map(|name| words.list(name));
    let is_by_filter = !states.is_empty()
        || !names.is_empty()
        || !users.is_empty()
        || lists.iter().any(|list| !list.is_empty());
    let items: Vec<String> = words
        .rest
        .iter()
        .flat_map(|word| word.split(','))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect();
    if items.is_empty() && !is_by_filter {
        return Err("No job identification provided".into());
    }
    let (targets, mut has_failed) = named(&items, words.has("quiet"))?;
    if items.is_empty() || is_by_filter {
        let mut details = match (items.is_empty(), targets.is_empty()) {
            (false, true) => vec![],
            _ => common::details(false, targets.clone())?,
        };
        details.retain(|detail| {
            let row = &detail.row;
            let list = |list: &[String], value: &str| {
                list.is_empty() || list.iter().any(|item| item == value)
            };
            row.ended.is_none()
                && (states.is_empty() || states.iter().any(|state| is_state(state, row.phase)))
                && list(&names, &row.name)
                && list(&users, &detail.user)
                && list(&lists[0], row.account.as_deref().unwrap_or_default())
                && list(&lists[1], &row.partition)
        });
        let targets = details
            .iter()
            .filter_map(|detail| detail.row.shown.parse().ok());
        let targets: Vec<Target> = targets.collect();
        return match targets.is_empty() {
            true => Ok(u8::from(has_failed)),
            false => end(&words, targets).map(|code| code | u8::from(has_failed)),
        };
    }
    for target in targets {
        if let Err(text) = end(&words, vec![target]) {
            complain(&format!("scancel: error: {text}"));
            has_failed = true;
        }
    }
    Ok(u8::from(has_failed))
}

/// The jobs of these numbers that there are, and whether one is missing.
fn named(items: &[String], is_quiet: bool) -> Result<(Vec<Target>, bool), String> {
    let mut found = Vec::new();
    let mut has_failed = false;
    for target in chosen(items)? {
        match common::details(true, vec![target]) {
            Ok(_) => found.push(target),
            Err(text) if text.starts_with("there is no job") => {
                if !is_quiet {
                    complain(&format!(
                        "scancel: error: Kill job error on job id {target}: Invalid job id specified"
                    ));
                }
                has_failed = true;
            }
            Err(text) => return Err(text),
        }
    }
    Ok((found, has_failed))
}

fn end(words: &Words, jobs: Vec<Target>) -> Done {
    let Some(number) = words.value("signal") else {
        common::order(&Request::Cancel { jobs })?;
        return Ok(0);
    };
    let signal = signal(number)?;
    let details = common::details(true, jobs)?;
    let (running, waiting): (Vec<_>, Vec<_>) = details
        .iter()
        .filter(|detail| detail.row.ended.is_none())
        .partition(|detail| detail.row.phase != Phase::Waiting);
    let shown = |list: Vec<&margay_svc_queue_wire::Detail>| -> Vec<Target> {
        let targets = list.iter().map(|detail| detail.row.shown.parse());
        targets.filter_map(Result::ok).collect()
    };
    // A job that waits has no processes; what would end it does so.
    let (running, waiting) = (shown(running), shown(waiting));
    if !waiting.is_empty() && [9, 15].contains(&signal) {
        common::order(&Request::Cancel { jobs: waiting })?;
    }
    if !running.is_empty() {
        common::order(&Request::Signal {
            jobs: running,
            signal,
            to_script: words.has("batch"),
        })?;
    }
    Ok(0)
}
