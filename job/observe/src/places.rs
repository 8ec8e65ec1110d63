//! Where ranks are in their programs: their stacks.

use std::collections::HashMap;
use std::fs;

use margay_job_stacks::{Frame, Refused, Stack, Thread, stacks};
use margay_net_platform::Peers;
use margay_sys_os::process::running_threads;

use crate::elsewhere;

/// How deep scripts are looked through that start a rank's program.
const MOST_SHELLS: usize = 4;

/// A stack, or why it could not be read, in words.
pub type Read = Result<Stack, String>;

/// The stacks of some ranks, all read at one time.
#[derive(Default)]
pub struct Places(HashMap<u32, Read>);

impl Places {
    /// Reads those of all ranks that live: of each the thread that has waited longest, or else the
    /// main thread, or one that runs while that one sleeps. Those of other hosts come from their
    /// agents where this process is on the launcher's host.
    #[must_use]
    pub fn of(peers: &dyn Peers) -> Places {
        Places::of_ranks(peers, &Vec::from_iter(0..peers.size()))
    }

    /// Reads those of some ranks.
    #[must_use]
    pub fn of_ranks(peers: &dyn Peers, ranks: &[u32]) -> Places {
        let threads = ranks.iter().filter_map(|&rank| {
            // The process id of a rank on another host is not known before its end.
            let pid = peers.identity(rank).pid;
            let is_here = pid != 0 && !peers.has_exited(rank);
            Some((rank, is_here.then(|| thread_of(peers, rank, pid))?))
        });
        let (here, threads): (Vec<u32>, Vec<Thread>) = threads.unzip();
        let in_words = |read: Result<_, Refused>| read.map_err(|refused| refused.to_string());
        let read = stacks(&threads).into_iter().map(in_words);
        let mut all: HashMap<u32, Read> = here.into_iter().zip(read).collect();
        let is_away = |&&rank: &&u32| {
            let is_known = all.contains_key(&rank) || peers.has_exited(rank);
            !is_known && peers.reported(rank).is_some()
        };
        let away: Vec<u32> = ranks.iter().filter(is_away).copied().collect();
        if !away.is_empty() {
            all.extend(elsewhere::ask_stacks(peers.id(), &away));
        }
        Places(all)
    }

    /// The stack of a rank; None where none was read: it has ended, or its host has not answered.
    #[must_use]
    pub fn stack(&self, rank: u32) -> Option<&Read> {
        self.0.get(&rank)
    }

    /// The innermost function of the program itself.
    #[must_use]
    pub fn users(&self, rank: u32) -> Option<&Frame> {
        self.stack(rank)?.as_ref().ok()?.users()
    }

    /// Returns where a rank is: `at mesh.c:88 in smooth()`; None where no name is known.
    #[must_use]
    pub fn in_words(&self, rank: u32) -> Option<String> {
        let frame = self.users(rank)?;
        let has_name = frame.line.is_some() || !frame.function.is_empty();
        has_name.then(|| frame.to_string())
    }
}

fn thread_of(peers: &dyn Peers, rank: u32, pid: u32) -> Thread {
    let waits = peers.waits(rank);
    let longest = waits.listed.iter().min_by_key(|wait| wait.since_ns);
    if let Some(waiting) = longest
        && let Some(pid) = process_of(waiting.thread)
    {
        let tid = waiting.thread;
        return Thread { pid, tid };
    }
    let pid = program_of(pid);
    let running = running_threads(pid);
    let tid = match running.first() {
        Some(&other) if !running.contains(&pid) => other,
        _ => pid,
    };
    Thread { pid, tid }
}

/// The process of a thread.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The process of the program that a shell runs for a rank; the rank's own if it is none.
pub(crate) fn program_of(pid: u32) -> u32 {
    let mut pid = pid;
    for _ in 0..MOST_SHELLS {
        match children_of_shell(pid).first() {
            Some(&child) => pid = child,
            None => break,
        }
    }
    pid
}

/// The processes that a shell has started and that have not ended, the oldest first; none for a
/// program that is no shell.
#[must_use]
pub fn children_of_shell(pid: u32) -> Vec<u32> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if !["sh", "bash", "dash", "ksh", "zsh", "busybox"].contains(&&*name) {
        return Vec::new();
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let numbers = children.split_whitespace();
    numbers.filter_map(|child| child.parse().ok()).collect()
}
