//! The queue under the commands of other batch systems, for scripts and habits that have them: each
//! is the one definition of what a job asks for and of what the head does, with other options and
//! other output. What they print is what scripts parse.
#![forbid(unsafe_code)]

mod api;
mod common;
mod interactive;
mod loadleveler;
mod machine;
mod pbs;
mod slurm;
mod top;
mod words;

use std::ffi::OsString;

pub use interactive::{ATTEND, attend, attended_by};
pub use slurm::task;

/// A batch system whose commands there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Slurm,
    Pbs,
    LoadLeveler,
}

const SYSTEMS: [(System, &str, &[&str]); 3] = [
    (System::Slurm, "slurm", &slurm::NAMES),
    (System::Pbs, "pbs", &pbs::NAMES),
    (System::LoadLeveler, "ll", &loadleveler::NAMES),
];

/// The help that a command is asked for; none where it is asked for something else.
fn help(system: System, command: &str, words: &[String]) -> Option<String> {
    let (usages, asks): (&[words::Usage], &[&str]) = match system {
        System::Slurm => (&slurm::USAGES, slurm::ASKS_FOR_HELP),
        System::Pbs => (&pbs::USAGES, pbs::ASKS_FOR_HELP),
        System::LoadLeveler => (&loadleveler::USAGES, loadleveler::ASKS_FOR_HELP),
    };
    let usage = usages.iter().find(|usage| usage.name == command)?;
    usage.asked(words, asks)
}

/// The system that has a command of this name.
#[must_use]
pub fn system_of(command: &str) -> Option<System> {
    let found = SYSTEMS.iter().find(|system| system.2.contains(&command));
    found.map(|system| system.0)
}

/// The system of a name, as `margay` has it.
#[must_use]
pub fn system(name: &str) -> Option<System> {
    let found = SYSTEMS.iter().find(|system| system.1 == name);
    found.map(|system| system.0)
}

/// Runs a command that is none of another system: `api` or `top`.
///
/// # Errors
/// In words.
pub fn own(command: &str, words: &[String]) -> Result<u8, String> {
    match command {
        "api" => api::serve(words),
        _ => top::run(words),
    }
}

/// Runs a command of a batch system; returns its exit code.
#[must_use]
pub fn run(system: System, command: &str, words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if system_of(command) != Some(system) {
        let known = SYSTEMS.iter().find(|known| known.0 == system);
        let names = known.map_or_else(String::new, |known| known.2.join(", "));
        common::complain(&format!(
            "margay: there is no command '{command}'; there are {names}"
        ));
        return 2;
    }
    if let Some(help) = help(system, command, &words) {
        return match common::print(&help) {
            Ok(()) => 0,
            Err(_) => 1,
        };
    }
    let done = match system {
        System::Slurm => slurm::run(command, &words).map_err(|text| format!("error: {text}")),
        System::Pbs => pbs::run(command, &words),
        System::LoadLeveler => loadleveler::run(command, &words),
    };
    match done {
        Ok(code) => code,
        Err(text) => {
            common::complain(&format!("{command}: {text}"));
            1
        }
    }
}
