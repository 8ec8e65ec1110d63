//! Slurm's commands.

mod cancel;
mod control;
mod fields;
mod format;
mod sacct;
mod sbatch;
mod sinfo;
mod squeue;
mod srun;

use margay_svc_queue_wire::Target;

pub use cancel::signal as signal_number;
pub use srun::task;

use crate::common::{Done, print, user};
use crate::words::Words;

/// The names of the commands.
pub const NAMES: [&str; 8] = [
    "sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol", "srun", "salloc",
];

/// The version that scripts see; they ask for it to know which options there are.
const VERSION: &str = "slurm 23.11.0 (margay)";

/// The partition that there always is.
const PARTITION: &str = "compute";

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
