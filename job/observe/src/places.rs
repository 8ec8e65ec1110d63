//! Where ranks are in their programs: their stacks.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use margay_job_stacks::{Frame, Refused, Stack, Thread, stacks};
use margay_net_platform::Peers;
use margay_sys_os::process::running_threads;

use crate::elsewhere;

/// How deep scripts are looked through that start a rank's program.
const MOST_SHELLS: usize = 4;

/// A stack, or why it could not be read, in words.
pub type Read = Result<Stack, String>;

/// Waiting threads of a rank that are read beyond the one that has waited longest.
const MOST_FURTHER: usize = 15;

/// The stacks of some ranks, all read at one time.
#[derive(Default)]
pub struct Places {
    of_ranks: HashMap<u32, Read>,
    /// Of further threads that wait, by rank and the kernel's number of the thread.
    further: BTreeMap<(u32, u32), Stack>,
}

impl Places {
    /// Reads those of all ranks that live: of each the threads that wait, or else the main thread,
    /// or one that runs while that one sleeps. Those of other hosts come from their agents where
    /// this process is on the launcher's host.
    #[must_use]
    pub fn of(peers: &dyn Peers) -> Places {
        Places::of_ranks(peers, &Vec::from_iter(0..peers.size()))
    }

    /// Reads those of some ranks.
    #[must_use]
    pub fn of_ranks(peers: &dyn Peers, ranks: &[u32]) -> Places {
        let mut wanted: Vec<(u32, Thread)> = Vec::new();
        for &rank in ranks {
            // The process id of a rank on another host is not known before its end.
            let pid = peers.identity(rank).pid;
            if pid != 0 && !peers.has_exited(rank) {
                let threads = threads_of(peers, rank, pid).into_iter();
                wanted.extend(threads.map(|thread| (rank, thread)));
            }
        }
        let threads: Vec<Thread> = wanted.iter().map(|(_, thread)| *thread).collect();
        let mut all = Places::default();
        for ((rank, thread), read) in wanted.into_iter().zip(stacks(&threads)) {
            match (all.of_ranks.contains_key(&rank), read) {
                (false, read) => {
                    let in_words = read.map_err(|refused: Refused| refused.to_string());
                    all.of_ranks.insert(rank, in_words);
                }
                (true, Ok(stack)) => {
                    all.further.insert((rank, thread.tid), stack);
                }
                (true, Err(_)) => {}
            }
        }
        let is_away = |&&rank: &&u32| {
            let is_known = all.of_ranks.contains_key(&rank) || peers.has_exited(rank);
            !is_known && peers.reported(rank).is_some()
        };
        let away: Vec<u32> = ranks.iter().filter(is_away).copied().collect();
        if !away.is_empty() {
            let more = elsewhere::ask_stacks(peers.id(), &away);
            all.of_ranks.extend(more.of_ranks);
            all.further.extend(more.further);
        }
        all
    }

    /// The stack of a rank's thread, which is there from now on if it was not: that which stands
    /// for the rank, or a further one.
    pub(crate) fn stack_to_fill(&mut self, rank: u32, thread: Option<u32>) -> &mut Stack {
        let read = match thread {
            Some(thread) => return self.further.entry((rank, thread)).or_default(),
            None => self.of_ranks.entry(rank).or_insert(Ok(Stack::default())),
        };
        if read.is_err() {
            *read = Ok(Stack::default());
        }
        read.as_mut().expect("it was made one")
    }

    /// Notes why the stack of a rank cannot be read.
    pub(crate) fn refuse(&mut self, rank: u32, why: &str) {
        self.of_ranks.insert(rank, Err(why.to_owned()));
    }

    /// The stack of a rank; None where none was read: it has ended, or its host has not answered.
    #[must_use]
    pub fn stack(&self, rank: u32) -> Option<&Read> {
        self.of_ranks.get(&rank)
    }

    /// The stacks of the further threads of a rank that wait, with the kernel's numbers of these.
    pub fn further(&self, rank: u32) -> impl Iterator<Item = (u32, &Stack)> {
        let of_rank = self.further.range((rank, 0)..=(rank, u32::MAX));
        of_rank.map(|((_, thread), stack)| (*thread, stack))
    }

    /// The stack of a further thread of a rank that waits.
    #[must_use]
    pub fn further_stack(&self, rank: u32, thread: u32) -> Option<&Stack> {
        self.further.get(&(rank, thread))
    }

    /// The innermost function of the program itself.
    #[must_use]
    pub fn users(&self, rank: u32) -> Option<&Frame> {
        self.stack(rank)?.as_ref().ok()?.users()
    }

    /// Returns where a rank is: `at mesh.c:88 in smooth()`; None where no name is known.
    #[must_use]
    pub fn in_words(&self, rank: u32) -> Option<String> {
        in_words(self.users(rank)?)
    }

    /// The same of a further thread that waits.
    #[must_use]
    pub fn further_in_words(&self, rank: u32, thread: u32) -> Option<String> {
        in_words(self.further_stack(rank, thread)?.users()?)
    }
}

fn in_words(frame: &Frame) -> Option<String> {
    let has_name = frame.line.is_some() || !frame.function.is_empty();
    has_name.then(|| frame.to_string())
}

/// The threads whose stacks are read of a rank; that which stands for it comes first.
fn threads_of(peers: &dyn Peers, rank: u32, pid: u32) -> Vec<Thread> {
    let mut waits = peers.waits(rank).listed;
    if let Some(longest) = (0..waits.len()).min_by_key(|&at| waits[at].since_ns) {
        waits[..=longest].rotate_right(1);
    }
    if let Some(longest) = waits.first()
        && let Some(pid) = process_of(longest.thread)
    {
        let waits = waits.iter().take(1 + MOST_FURTHER);
        return waits
            .map(|wait| Thread {
                pid,
                tid: wait.thread,
            })
            .collect();
    }
    let pid = program_of(pid);
    let running = running_threads(pid);
    let tid = match running.first() {
        Some(&other) if !running.contains(&pid) => other,
        _ => pid,
    };
    vec![Thread { pid, tid }]
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
