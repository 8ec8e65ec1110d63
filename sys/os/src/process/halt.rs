//! All processes below one, stopped for a time and continued.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use super::{ProcessFacts, descendants_of};
use crate::cpu;
use crate::signal::{self, SIGCONT, SIGSTOP};

/// Processes that come while the others are stopped are looked for from this on, then less and less
/// often.
const FIRST_SWEEP: Duration = Duration::from_millis(1);
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Whether the processes below one are stopped, and which of them were so before: what a program
/// has stopped itself stays stopped when the others go on.
#[derive(Debug, Default)]
pub struct Halt {
    /// When processes that have come since are looked for, and how long after that again.
    sweep: Option<(Instant, Duration)>,
    stopped: HashSet<u32>,
    kept: HashSet<u32>,
    is_held: bool,
}

impl Halt {
    /// Whether they are stopped.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.sweep.is_some()
    }

    /// When it wants to [sweep](Halt::sweep).
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.sweep.map(|(at, _)| at)
    }

    /// In how long that is.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        let next = self.next()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// The user stops them, too: none of them is taken for stopped by itself.
    pub fn hold(&mut self) {
        self.is_held = true;
        self.kept.clear();
    }

    /// From now on what comes is stopped.
    pub fn begin(&mut self) {
        self.sweep = Some((Instant::now() + FIRST_SWEEP, 2 * FIRST_SWEEP));
    }

    /// Stops all processes below one, parents first; those that they made meanwhile, too.
    pub fn stop(&mut self, of: u32) {
        self.begin();
        self.stop_all(of);
    }

    /// Stops what has come since, when it is time.
    pub fn sweep(&mut self, of: u32) {
        let now = Instant::now();
        if let Some((_, pause)) = self.sweep.filter(|(at, _)| now >= *at) {
            self.sweep = Some((now + pause, (pause * 2).min(LAST_SWEEP)));
            // It may want the next one sooner.
            self.stop_all(of);
        }
    }

    fn stop_all(&mut self, of: u32) {
        let parent = Starting::of(of);
        let mut seen = HashSet::new();
        loop {
            let mut all = descendants_of(of);
            all.retain(|pid| seen.insert(*pid));
            if all.is_empty() {
                return;
            }
            // First, so that the signals follow each other closely. One that has ended needs none.
            let all: Vec<ProcessFacts> = all.into_iter().filter_map(ProcessFacts::of).collect();
            for facts in all {
                let pid = facts.pid;
                if parent.as_ref().is_some_and(|own| own.is_starting(&facts)) {
                    self.begin();
                    continue;
                }
                if facts.state == 'T' && !self.is_held {
                    if !self.stopped.contains(&pid) {
                        self.kept.insert(pid);
                    }
                    continue;
                }
                // It may have ended since.
                let _ = signal::send(pid, SIGSTOP);
                self.stopped.insert(pid);
                self.kept.remove(&pid);
            }
        }
    }

    /// Continues them.
    pub fn go_on(&mut self, of: u32) {
        continue_all(of, &self.kept);
        *self = Halt::default();
    }
}

/// A process whose children share its memory until they execute their programs (vfork). It waits
/// for that where no signal but SIGKILL reaches it: a child that is stopped before would keep it
/// there, also when the others are to end.
struct Starting {
    facts: ProcessFacts,
    name: String,
}

impl Starting {
    fn of(pid: u32) -> Option<Starting> {
        Some(Starting {
            facts: ProcessFacts::of(pid)?,
            name: name_of(pid)?,
        })
    }

    /// Whether a process is a child that has not executed its program yet.
    fn is_starting(&self, child: &ProcessFacts) -> bool {
        child.parent == self.facts.pid
            && child.address_space == self.facts.address_space
            && name_of(child.pid).is_some_and(|name| name == self.name)
    }
}

fn name_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok()
}

/// Continues all processes below one, children first.
pub fn continue_descendants(of: u32) {
    continue_all(of, &HashSet::new());
}

/// Continues all processes below one but these, children first. Those of this thread's core come
/// last: one that has slept gets the core at once, and the others would wait until its slice is
/// over.
fn continue_all(of: u32, except: &HashSet<u32>) {
    let own = cpu::current().and_then(|core| u32::try_from(core).ok());
    let all = descendants_of(of).into_iter();
    let all: Vec<ProcessFacts> = all.filter_map(ProcessFacts::of).collect();
    // Which child of `of` each is, or is below.
    let mut child_of: HashMap<u32, u32> = HashMap::new();
    let mut last: HashSet<u32> = HashSet::new();
    for facts in &all {
        let child = child_of.get(&facts.parent).copied();
        let child = child.unwrap_or(facts.pid);
        child_of.insert(facts.pid, child);
        if Some(facts.last_core) == own {
            last.insert(child);
        }
    }
    let is_last = |facts: &&ProcessFacts| last.contains(&child_of[&facts.pid]);
    let first = all.iter().rev().filter(|facts| !is_last(facts));
    let in_turn = first.chain(all.iter().rev().filter(is_last));
    for facts in in_turn.filter(|facts| !except.contains(&facts.pid)) {
        // One that has ended goes nowhere.
        let _ = signal::send(facts.pid, SIGCONT);
    }
}
