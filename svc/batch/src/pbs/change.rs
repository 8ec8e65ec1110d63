//! `qdel`, `qhold`, `qrls`, `qalter`, `qsig` and `qrerun`: what is done with jobs.

use margay_core_queue::Wishes;
use margay_core_queue::script::pbs;
use margay_svc_queue_wire::{Change, Request};

use super::{cancel, for_each};
use crate::common::{self, Done};
use crate::slurm::signal_number;
use crate::words::Takes::{Nothing, Value};
use crate::words::{Known, Words};

pub(crate) const EACH: &[Known] = &[
    ('W', "", Value),
    ('m', "", Value),
    ('p', "", Nothing),
    ('x', "", Nothing),
    ('f', "", Nothing),
];

/// `qdel` and `qrerun`.
///
/// # Errors
/// In words.
pub fn each(name: &str, words: &[String]) -> Done {
    let words = Words::divide(words, EACH)?;
    if name == "qdel" && words.rest == ["all"] {
        common::order(&Request::Cancel { jobs: vec![] })?;
        return Ok(0);
    }
    for_each(name, &words.rest, &|target| match name {
        "qdel" => cancel(target),
        _ => common::order(&Request::Requeue { jobs: vec![target] }),
    })
}

pub(crate) const HOLD: &[Known] = &[('h', "", Value), ('t', "", Value)];

/// `qhold` and `qrls`.
///
/// # Errors
/// In words.
pub fn hold(words: &[String], is_held: bool) -> Done {
    let words = Words::divide(words, HOLD)?;
    let name = if is_held { "qhold" } else { "qrls" };
    for_each(name, &words.rest, &|target| {
        let jobs = vec![target];
        common::order(&Request::Hold { jobs, is_held })
    })
}

pub(crate) const SIGNAL: &[Known] = &[('s', "", Value)];

/// `qsig`.
///
/// # Errors
/// In words.
pub fn signal(words: &[String]) -> Done {
    let words = Words::divide(words, SIGNAL)?;
    let signal = signal_number(words.value("s").unwrap_or("TERM"))?;
    for_each("qsig", &words.rest, &|target| {
        common::order(&Request::Signal {
            jobs: vec![target],
            signal,
            to_script: false,
        })
    })
}

/// `qalter`.
///
/// # Errors
/// In words.
pub fn alter(words: &[String]) -> Done {
    // Which kind of hold, or with `n` none.
    let mut is_held = None;
    let mut rest = Vec::new();
    let mut all = words.iter();
    while let Some(word) = all.next() {
        match word.strip_prefix("-h") {
            Some("") => is_held = Some(all.next().map(String::as_str) != Some("n")),
            Some(kind) => is_held = Some(kind != "n"),
            None => rest.push(word.clone()),
        }
    }
    let mut asked = Wishes::default();
    let line = pbs::command(&rest, &mut asked)?;
    let jobs = rest.get(line.end..).unwrap_or_default();
    let change = Change {
        name: asked.name.take(),
        limit_s: asked.limit_s.take(),
        priority: asked.priority.take(),
        account: asked.account.take(),
    };
    if asked != Wishes::default() {
        return Err(
            "of a job that waits these can be altered: -A, -h, -N, -p and -l walltime; submit it again for \
             the rest"
                .into(),
        );
    }
    for_each("qalter", jobs, &|target| {
        let jobs = vec![target];
        if change != Change::default() {
            let (jobs, change) = (jobs.clone(), change.clone());
            common::order(&Request::Change { jobs, change })?;
        }
        match is_held {
            Some(is_held) => common::order(&Request::Hold { jobs, is_held }),
            None => Ok(()),
        }
    })
}
