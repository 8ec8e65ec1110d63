//! Slurm's commands.

mod cancel;
mod control;
mod fields;
mod format;
mod hostlist;
mod json;
mod machine;
mod sacct;
mod sbatch;
mod sinfo;
mod squeue;
mod srun;

use margay_svc_queue_wire::{Target, user};

pub use cancel::signal as signal_number;
pub use srun::task;

use crate::common::{Done, print};
use crate::words::{Usage, Words};

/// The names of the commands.
pub const NAMES: [&str; 8] = [
    "sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol", "srun", "salloc",
];

/// What their `--help` says.
pub const USAGES: [Usage; 8] = [
    Usage {
        name: "sbatch",
        form: "[OPTIONS] SCRIPT [ARGUMENTS...], or [OPTIONS] --wrap COMMAND",
        what: "Submits a batch script to Margay's queue. The options are Slurm's; `margay submit --help` describes them.",
        options: &[],
    },
    Usage {
        name: "squeue",
        form: "[OPTIONS]",
        what: "Lists the jobs that wait or run in Margay's queue. The options are Slurm's.",
        options: squeue::OPTIONS,
    },
    Usage {
        name: "scancel",
        form: "[OPTIONS] [JOB[_TASK]...]",
        what: "Ends jobs, or sends them a signal. The options are Slurm's.",
        options: cancel::OPTIONS,
    },
    Usage {
        name: "sinfo",
        form: "[OPTIONS]",
        what: "Lists partitions and nodes. The options are Slurm's.",
        options: sinfo::OPTIONS,
    },
    Usage {
        name: "sacct",
        form: "[OPTIONS]",
        what: "Lists jobs that run or have ended, and what they used. The options are Slurm's.",
        options: sacct::OPTIONS,
    },
    Usage {
        name: "scontrol",
        form: "show job|node|partition|config|hostnames [NAME], hold JOB..., release JOB..., requeue JOB..., update JobId=JOB ...",
        what: "Shows all that is known of jobs, nodes and partitions, and changes jobs.",
        options: control::OPTIONS,
    },
    Usage {
        name: "srun",
        form: "[OPTIONS] PROGRAM [ARGUMENTS...]",
        what: "Runs a program: in a job as a step of it, elsewhere in a job that it waits for. The options are Slurm's.",
        options: &[],
    },
    Usage {
        name: "salloc",
        form: "[OPTIONS] [COMMAND [ARGUMENTS...]]",
        what: "Runs a command, or your shell, while it holds a job. The options are Slurm's.",
        options: &[],
    },
];

fn print_help(name: &str) -> Done {
    let usage = USAGES.iter().find(|usage| usage.name == name);
    print(&usage.map_or_else(String::new, Usage::text))?;
    Ok(0)
}

/// By which words they print it.
pub const ASKS_FOR_HELP: &[&str] = &["--help", "--usage", "-h"];

/// The version that scripts see; they ask for it to know which options there are.
const VERSION: &str = "slurm 23.11.0 (margay)";

/// Runs a command.
///
/// # Errors
/// In words.
pub fn run(name: &str, words: &[String]) -> Done {
    if let [only] = words
        && ["-V", "--version"].contains(&only.as_str())
    {
        print(&format!("{VERSION}\n"))?;
        return Ok(0);
    }
    match name {
        "sbatch" => sbatch::run(words),
        "squeue" => squeue::run(words),
        "scancel" => cancel::run(words),
        "sinfo" => sinfo::run(words),
        "sacct" => sacct::run(words),
        "srun" => srun::srun(words),
        "salloc" => srun::salloc(words),
        _ => control::run(words),
    }
}

/// The names of users that are asked for: `-u` with names or numbers, or `--me`.
fn user_names(words: &Words, is_me: bool) -> Vec<String> {
    let own = margay_sys_os::port::user().to_string();
    let name = |name: String| if name == own { user() } else { name };
    let mut names: Vec<String> = words.list("user").into_iter().map(name).collect();
    if is_me {
        names.push(user());
    }
    names
}

/// Reads numbers of jobs as Slurm writes them: `12`, `12_3`, `12_[1-3,7]`, `12.0` for a step,
/// whose job is meant.
fn chosen(words: &[String]) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    // A list in brackets has been divided at its commas.
    let mut whole: Vec<String> = Vec::new();
    for word in words {
        match whole.last_mut() {
            Some(last) if last.contains('[') && !last.contains(']') => {
                last.push(',');
                last.push_str(word);
            }
            _ => whole.push(word.clone()),
        }
    }
    for word in &whole {
        let wrong = || format!("Invalid job id {word}");
        let plain = word.split('.').next().unwrap_or(word);
        match plain.split_once("_[") {
            None => targets.push(plain.parse().map_err(|_: String| wrong())?),
            Some((job, list)) => {
                let job = job.parse().map_err(|_| wrong())?;
                let list = list.strip_suffix(']').ok_or_else(wrong)?;
                let tasks = margay_core_queue::Array::parse(list).map_err(|_| wrong())?;
                targets.extend(tasks.indices.into_iter().map(|task| Target {
                    job,
                    task: Some(task),
                }));
            }
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_as_slurm_names_them() {
        let words = ["12", "7_[1-2", "5]", "9_3", "8.0"].map(str::to_owned);
        let shown: Vec<String> = chosen(&words)
            .unwrap()
            .iter()
            .map(Target::to_string)
            .collect();
        assert_eq!(shown, ["12", "7_1", "7_2", "7_5", "9_3", "8"]);
        assert!(chosen(&["7_[1".to_owned()]).is_err());
        assert!(chosen(&["x".to_owned()]).is_err());
    }
}
