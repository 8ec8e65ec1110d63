//! PBS's commands, which are those of NQS: as OpenPBS has them, and Torque where scripts use more.

mod change;
mod qmgr;
mod qstat;
mod qsub;

use margay_core_queue::Phase;
use margay_svc_queue_wire::{Cause, Detail, Request, Target, pbs_name};

use crate::common::{self, Done, complain, print};
use crate::words::Usage;

/// The names of the commands.
pub const NAMES: [&str; 10] = [
    "qsub", "qstat", "qdel", "qhold", "qrls", "qalter", "qsig", "qrerun", "qmgr", "pbsnodes",
];

/// What their `--help` says.
pub const USAGES: [Usage; 10] = [
    Usage {
        name: "qsub",
        form: "[OPTIONS] [SCRIPT [ARGUMENTS...]], or [OPTIONS] -- PROGRAM [ARGUMENTS...], or -I [OPTIONS]",
        what: "Submits a batch script to Margay's queue. The options are those of PBS and NQS; `margay submit --help` describes them.",
        options: &[],
    },
    Usage {
        name: "qstat",
        form: "[OPTIONS] [JOB|QUEUE...]",
        what: "Lists the jobs of Margay's queue, or its queues. The options are those of PBS.",
        options: qstat::OPTIONS,
    },
    Usage {
        name: "qdel",
        form: "[OPTIONS] JOB..., or all",
        what: "Ends jobs.",
        options: change::EACH,
    },
    Usage {
        name: "qhold",
        form: "[OPTIONS] JOB...",
        what: "Holds jobs that wait.",
        options: change::HOLD,
    },
    Usage {
        name: "qrls",
        form: "[OPTIONS] JOB...",
        what: "Releases jobs that are held.",
        options: change::HOLD,
    },
    Usage {
        name: "qalter",
        form: "[OPTIONS] JOB...",
        what: "Changes jobs that wait. The options are those of qsub.",
        options: &[],
    },
    Usage {
        name: "qsig",
        form: "[OPTIONS] JOB...",
        what: "Sends jobs a signal.",
        options: change::SIGNAL,
    },
    Usage {
        name: "qrerun",
        form: "[OPTIONS] JOB...",
        what: "Puts jobs that run back into the queue.",
        options: change::EACH,
    },
    Usage {
        name: "qmgr",
        form: "[OPTIONS]",
        what: "Shows and changes the queue's settings, by commands of -c or of the standard input.",
        options: qmgr::MANAGE,
    },
    Usage {
        name: "pbsnodes",
        form: "[OPTIONS] [NODE...]",
        what: "Shows the nodes.",
        options: qmgr::NODES,
    },
];

/// By which words they print it.
pub const ASKS_FOR_HELP: &[&str] = &["--help", "-h"];

/// Exit codes of PBS: no such job, no such queue, and a job that has ended.
const UNKNOWN_JOB: u8 = 153;
const UNKNOWN_QUEUE: u8 = 170;
const HAS_FINISHED: u8 = 35;

/// Runs a command.
///
/// # Errors
/// In words.
pub fn run(name: &str, words: &[String]) -> Done {
    if let [only] = words
        && only == "--version"
    {
        print("pbs_version = 22.05.11 (margay)\n")?;
        return Ok(0);
    }
    match name {
        "qsub" => qsub::run(words),
        "qstat" => qstat::run(words),
        "qalter" => change::alter(words),
        "qmgr" => qmgr::manage(words),
        "pbsnodes" => qmgr::nodes(words),
        "qhold" => change::hold(words, true),
        "qrls" => change::hold(words, false),
        "qsig" => change::signal(words),
        name => change::each(name, words),
    }
}

/// The name of a job.
fn shown(detail: &Detail, host: &str) -> String {
    pbs_name(detail.row.id, detail.array, host)
}

/// Reads the name of a job: `12`, `12.host`, `12[3].host`, and `12[].host` for a whole array.
fn target(word: &str) -> Result<Target, String> {
    let wrong = || format!("illegally formed job identifier: {word}");
    let number = word.split('.').next().unwrap_or(word);
    let (job, task) = match number.split_once(['[', '-']) {
        None => (number, None),
        Some((job, "]" | "")) => (job, None),
        Some((job, task)) => (job, Some(task.trim_end_matches(']'))),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(job) || !task.is_none_or(is_number) {
        return Err(wrong());
    }
    Ok(Target {
        job: job.parse().map_err(|_| wrong())?,
        task: task
            .map(|task| task.parse().map_err(|_| wrong()))
            .transpose()?,
    })
}

/// How a job is, as a letter.
fn state(detail: &Detail) -> char {
    match (detail.row.phase, detail.cause) {
        (Phase::Running(_), _) => 'R',
        (Phase::Ended(_), _) => 'F',
        (_, Some(Cause::Held | Cause::Dependency | Cause::Never)) => 'H',
        (_, Some(Cause::BeginTime)) => 'W',
        _ => 'Q',
    }
}

/// Does something with each of the jobs; a job that is not there or has ended gets a line as PBS
/// writes it.
fn for_each(name: &str, words: &[String], act: &dyn Fn(Target) -> Result<(), String>) -> Done {
    if words.is_empty() {
        return Err("which job? name it by its number".into());
    }
    let mut code = 0;
    let mut failed = |text: String, own: u8| {
        complain(&format!("{name}: {text}"));
        code = own;
    };
    for word in words {
        let target = match target(word) {
            Ok(target) => target,
            Err(text) => {
                failed(text, 1);
                continue;
            }
        };
        match common::details(true, vec![target]) {
            Err(text) if text.starts_with("there is no job") => {
                failed(format!("Unknown Job Id {word}"), UNKNOWN_JOB);
            }
            Err(text) => return Err(text),
            Ok(details) if details.iter().all(|detail| detail.row.ended.is_some()) => {
                failed(format!("Job has finished {word}"), HAS_FINISHED);
            }
            Ok(_) => {
                if let Err(text) = act(target) {
                    failed(text, 1);
                }
            }
        }
    }
    Ok(code)
}

/// Ends jobs.
fn cancel(target: Target) -> Result<(), String> {
    common::order(&Request::Cancel { jobs: vec![target] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_as_pbs_names_them() {
        let shown = |word: &str| target(word).map(|target| target.to_string());
        for (word, job) in [
            ("12", "12"),
            ("12.host.site", "12"),
            ("12[].host", "12"),
            ("12[3].host", "12_3"),
            ("12[3]", "12_3"),
            ("12-3", "12_3"),
        ] {
            assert_eq!(shown(word).as_deref(), Ok(job), "{word}");
        }
        for word in ["", "x", "12[x]", ".host", "-1"] {
            assert!(shown(word).is_err(), "{word}");
        }
    }
}
