//! Processes that have a variable in common, though who started them has gone.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use super::watch::kill_checked;
use super::{ProcessFacts, all_processes};

/// Pauses between two looks at what was killed.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LAST_PAUSE: Duration = Duration::from_millis(20);

/// Kills all processes whose environment began with this variable (`NAME=VALUE`) and their
/// descendants; with a process that leads a session, or with one of the session that `leader` led,
/// the whole session. This process's own session is left alone. Returns whether none was left
/// within `within`. What runs with another user's rights is only found by root.
#[must_use]
pub fn kill_marked(variable: &[u8], leader: Option<u32>, within: Duration) -> bool {
    let end = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    // Members of a session are known by it also when its leader has been killed.
    let mut sessions = HashSet::new();
    loop {
        let family = marked(variable, leader, &mut sessions);
        if family.is_empty() {
            return true;
        }
        family.iter().for_each(kill_checked);
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Those that live now; adds the sessions that are theirs alone.
fn marked(variable: &[u8], leader: Option<u32>, sessions: &mut HashSet<u32>) -> Vec<ProcessFacts> {
    let Some(own) = ProcessFacts::of(std::process::id()) else {
        return Vec::new();
    };
    let mut everybody: Vec<ProcessFacts> = all_processes().filter_map(ProcessFacts::of).collect();
    everybody.retain(|facts| facts.session != own.session && facts.session != 0);
    let mut family = HashSet::new();
    loop {
        let more: Vec<_> = everybody
            .iter()
            .filter(|facts| !family.contains(&facts.pid))
            .filter(|facts| {
                sessions.contains(&facts.session)
                    || family.contains(&facts.parent)
                    || family.is_empty() && has_variable(facts.pid, variable)
            })
            .collect();
        if more.is_empty() {
            break;
        }
        family.extend(more.iter().map(|facts| facts.pid));
        let is_theirs =
            |facts: &&&ProcessFacts| facts.session == facts.pid || Some(facts.session) == leader;
        sessions.extend(more.iter().filter(is_theirs).map(|facts| facts.session));
    }
    let lives = |facts: &ProcessFacts| family.contains(&facts.pid) && facts.state != 'Z';
    everybody.retain(lives);
    everybody
}

/// Whether a process began with this variable.
fn has_variable(pid: u32, variable: &[u8]) -> bool {
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    all.split(|&byte| byte == 0).any(|one| one == variable)
}
