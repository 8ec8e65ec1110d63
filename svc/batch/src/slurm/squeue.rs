//! `squeue`: the jobs that wait or run.

use std::collections::BTreeMap;

use margay_core_queue::{JobId, Phase, ranges};
use margay_svc_queue_wire::{Detail, Machine};

use super::fields::{View, is_state, is_state_name};
use super::format::{Column, Fields, Letter, heading};
use super::hostlist::expanded;
use super::{chosen, json, user_names};
use crate::common::{self, Done, date, now_s, print};
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const OPTIONS: &[Known] = &[
    ('A', "account", Value),
    ('a', "all", Nothing),
    ('h', "noheader", Nothing),
    ('i', "iterate", Value),
    ('j', "jobs", Value),
    ('L', "licenses", Value),
    ('l', "long", Nothing),
    ('M', "clusters", Value),
    ('n', "name", Value),
    ('O', "Format", Value),
    ('o', "format", Value),
    ('P', "priority", Nothing),
    ('p', "partition", Value),
    ('q', "qos", Value),
    ('r', "array", Nothing),
    ('S', "sort", Value),
    ('s', "steps", Value),
    ('t', "states", Value),
    ('u', "user", Value),
    ('v', "verbose", Nothing),
    ('w', "nodelist", Value),
    (' ', "hide", Nothing),
    (' ', "json", Nothing),
    (' ', "local", Nothing),
    (' ', "me", Nothing),
    (' ', "noconvert", Nothing),
    (' ', "start", Nothing),
    (' ', "array-unique", Nothing),
];

const USUAL: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

/// The fields of a job.
const FIELDS: Fields = Fields {
    of: "job",
    letters: LETTERS,
};

const LETTERS: &[Letter] = &[
    ('A', "JOBID", "jobidraw"),
    ('a', "ACCOUNT", "account"),
    ('B', "EXEC_HOST", "exec_host"),
    ('b', "TRES_PER_NODE", "tres-per-node"),
    ('C', "CPUS", "numcpus"),
    ('c', "MIN_CPUS", "mincpus"),
    ('D', "NODES", "numnodes"),
    ('d', "MIN_TMP_DISK", "mintmpdisk"),
    ('E', "DEPENDENCY", "dependency"),
    ('e', "END_TIME", "endtime"),
    ('F', "ARRAY_JOB_ID", "arrayjobid"),
    ('f', "FEATURES", "features"),
    ('G', "GROUP", "groupid"),
    ('g', "GROUP", "groupname"),
    ('h', "OVER_SUBSCRIBE", "oversubscribe"),
    ('i', "JOBID", "jobid"),
    ('j', "NAME", "name"),
    ('K', "ARRAY_TASK_ID", "arraytaskid"),
    ('k', "COMMENT", "comment"),
    ('L', "TIME_LEFT", "timeleft"),
    ('l', "TIME_LIMIT", "timelimit"),
    ('M', "TIME", "timeused"),
    ('m', "MIN_MEMORY", "minmemory"),
    ('N', "NODELIST", "nodelist"),
    ('n', "REQ_NODES", "reqnodelist"),
    ('o', "COMMAND", "command"),
    ('P', "PARTITION", "partition"),
    ('p', "PRIORITY", "priority"),
    ('Q', "PRIORITY", "priority"),
    ('q', "QOS", "qos"),
    ('R', "NODELIST(REASON)", "reasonlist"),
    ('r', "REASON", "reason"),
    ('S', "START_TIME", "starttime"),
    ('T', "STATE", "state"),
    ('t', "ST", "statecompact"),
    ('U', "UID", "userid"),
    ('u', "USER", "username"),
    ('V', "SUBMIT_TIME", "submittime"),
    ('v', "RESERVATION", "reservation"),
    ('W', "LICENSES", "licenses"),
    ('w', "WCKEY", "wckey"),
    ('x', "EXC_NODES", "exc_nodes"),
    ('Y', "SCHEDNODES", "schednodes"),
    ('y', "NICE", "nice"),
    ('Z', "WORK_DIR", "workdir"),
];

/// Waiting tasks of an array that wait for the same share a line.
fn gathered(details: &[Detail]) -> Vec<(&Detail, Option<String>)> {
    let mut places: BTreeMap<JobId, usize> = BTreeMap::new();
    let mut lines: Vec<(&Detail, Vec<u32>)> = Vec::new();
    for detail in details {
        let array = detail.array.filter(|_| detail.row.phase == Phase::Waiting);
        match array {
            None => lines.push((detail, Vec::new())),
            Some((array, task)) => {
                let place = *places.entry(array).or_insert_with(|| {
                    lines.push((detail, Vec::new()));
                    lines.len() - 1
                });
                lines[place].1.push(task);
            }
        }
    }
    let limit = |detail: &Detail| {
        let limit = detail.wishes.array.as_ref()?.limit?;
        Some(format!("%{limit}"))
    };
    lines
        .into_iter()
        .map(|(detail, tasks)| {
            let text = format!("{}{}", ranges(&tasks), limit(detail).unwrap_or_default());
            (detail, (!tasks.is_empty()).then_some(text))
        })
        .collect()
}

/// Runs the command.
///
/// # Errors
/// In words.
pub fn run(words: &[String]) -> Done {
    let words = Words::divide(words, OPTIONS)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if words.has("iterate") {
        return Err("--iterate is not supported; use watch squeue, or margay top".into());
    }
    let format = || {
        let usual = match (words.has("start"), words.has("long")) {
            (true, _) => START,
            (_, true) => LONG,
            _ => USUAL,
        };
        words
            .value("format")
            .map(str::to_owned)
            .or_else(|| variable("SQUEUE_FORMAT").filter(|_| !words.has("long")))
            .unwrap_or_else(|| usual.into())
    };
    let parts = match (words.value("Format"), variable("SQUEUE_FORMAT2")) {
        (Some(format), _) => FIELDS.names(format),
        (None, Some(format)) if !words.has("format") => FIELDS.names(&format),
        _ => FIELDS.letters(&format())?,
    };
    let states = words.list("states");
    if let Some(wrong) = states.iter().find(|state| !is_state_name(state)) {
        return Err(format!("Invalid job state specified: {wrong}"));
    }
    let targets = chosen(&words.list("jobs"))?;
    let details = match targets[..] {
        [] => common::details_of_all(!states.is_empty()),
        _ => common::details(true, targets),
    };
    let mut details = match details {
        Ok(details) => details,
        Err(text) if text.starts_with("there is no job") => {
            return Err("Invalid job id specified".into());
        }
        Err(text) => return Err(text),
    };
    let users = user_names(&words, words.has("me"));
    let lists = [
        ("name", words.list("name")),
        ("account", words.list("account")),
        ("partition", words.list("partition")),
    ];
    let machine = common::machine()?;
    let wanted = expanded(words.value("nodelist").unwrap_or_default())?;
    details.retain(|detail| {
        let row = &detail.row;
        let view = View::new(detail, &machine);
        let is_asked = match states.is_empty() {
            true => row.ended.is_none(),
            false => states.iter().any(|state| is_state(state, row.phase)),
        };
        let is_user = users.is_empty() || users.contains(&detail.user);
        let is_there = |node: &String| wanted.contains(node);
        let has_nodes = wanted.is_empty() || view.node_names().iter().any(is_there);
        let in_lists = lists.iter().all(|(name, list)| {
            list.is_empty() || view.value(name).is_some_and(|value| list.contains(&value))
        });
        let is_start = !words.has("start") || row.phase == Phase::Waiting;
        is_asked && is_user && in_lists && is_start && has_nodes
    });
    show(&words, &parts, &details, &machine)
}

fn show(words: &Words, parts: &[Column], details: &[Detail], machine: &Machine) -> Done {
    let mut text = String::new();
    if !words.has("noheader") {
        if words.has("long") {
            text += &format!("{}\n", date(now_s()));
        }
        text += &format!("{}\n", heading(parts).trim_end());
    }
    let mut lines = match words.has("array") {
        true => details.iter().map(|detail| (detail, None)).collect(),
        false => gathered(details),
    };
    sort(&mut lines, words.value("sort"), machine);
    let views = lines.iter().map(|(detail, tasks)| View {
        tasks: tasks.as_deref(),
        ..View::new(detail, machine)
    });
    if words.has("json") {
        let jobs = views.map(|view| json::queued(&view)).collect();
        return print(&json::answer(jobs)).map(|()| 0);
    }
    for view in views {
        let line = FIELDS.line(parts, &|name| view.value(name))?;
        text += &format!("{}\n", line.trim_end());
    }
    print(&text)?;
    Ok(0)
}

/// Sorts by a list of fields such as `-p,i`; without one, jobs that wait come first, as with Slurm.
fn sort(lines: &mut [(&Detail, Option<String>)], by: Option<&str>, machine: &Machine) {
    let Some(by) = by else {
        let rank = |detail: &Detail| {
            let is_running = detail.row.phase != Phase::Waiting;
            (
                is_running,
                std::cmp::Reverse(detail.priority),
                detail.row.id,
            )
        };
        lines.sort_by_key(|(detail, _)| rank(detail));
        return;
    };
    for item in by.split(',').rev() {
        let (is_down, letter) = match item.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, item.trim_start_matches('+')),
        };
        let known = LETTERS.iter().find(|known| letter.starts_with(known.0));
        let Some(&(_, _, name)) = known else { continue };
        lines.sort_by(|a, b| {
            let value = |detail: &Detail| {
                let text = View::new(detail, machine).value(name).unwrap_or_default();
                let number = text.parse::<i64>().ok();
                (number, text)
            };
            let order = value(a.0).cmp(&value(b.0));
            if is_down { order.reverse() } else { order }
        });
    }
}
