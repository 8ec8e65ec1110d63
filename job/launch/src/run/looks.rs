//! What the launcher looks for now and then while a job runs: ranks that others wait for in vain,
//! ranks that can never go on, and libraries of other implementations in ranks that ours should
//! have.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_core_registry::Phase;
use margay_job_observe::places::children_of_shell;
use margay_job_observe::standstill::Standstill;
use margay_job_observe::state;
use margay_net_platform::Peers;
use margay_sys_os::clock::now_ns;
use margay_sys_shm::environment::ENV_SINGLETON;

use super::Launcher;
use crate::plan::{Job, OnDeadlock};
use crate::{other_abi, report};

/// When a rank has ended without calling `MPI_Init`, the others are looked at this often: they may
/// wait for it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// By then ranks that were stopped have gone on.
const GOES_ON_WITHIN: Duration = Duration::from_millis(50);

/// When to look into ranks that have not called the library: soon and often, because a short
/// program ends soon, and then ever less often, because a program may load its library late.
const TIMES_MS: [u64; 11] = [15, 30, 60, 100, 160, 250, 500, 1000, 2000, 5000, 15_000];
/// The most ranks that are looked into at a time.
const MOST: usize = 8;

/// What is looked for, and when next.
pub(super) struct Looks {
    /// After a rank has ended without calling `MPI_Init`: when to look whether others wait for it.
    waits_at: Option<Instant>,
    /// Who waited in vain at the last look: rank, thread, since when in nanoseconds. A wait is in
    /// vain when it is still there at the next one: a rank may not yet have seen what has come.
    in_vain: Vec<(u32, u32, u64)>,
    /// When to look for libraries of other implementations.
    strangers: Schedule,
    standstill: Standstill,
    /// When to look whether ranks can never go on.
    standstill_at: Option<Instant>,
    /// How much longer the last wait took than the launcher wanted to wait.
    pub(super) late: Duration,
}

impl Looks {
    pub(super) fn new(job: &Job, started: Instant, ranks: u32) -> Looks {
        let is_wanted = job.on_deadlock != OnDeadlock::Ignore;
        Looks {
            waits_at: None,
            in_vain: Vec::new(),
            strangers: Schedule::new(started, ranks),
            standstill: Standstill::default(),
            standstill_at: is_wanted.then(|| started + LOOK_INTERVAL),
            late: Duration::ZERO,
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let times = [self.waits_at, self.strangers.next(), self.standstill_at];
        times.into_iter().flatten().min()
    }

    /// A rank has ended without calling `MPI_Init`.
    pub(super) fn somebody_left(&mut self) {
        self.waits_at
            .get_or_insert_with(|| Instant::now() + LOOK_INTERVAL);
    }

    /// The ranks were stopped for a while, which counts for nothing.
    pub(super) fn postpone(&mut self, by: Duration) {
        for at in [&mut self.waits_at, &mut self.standstill_at] {
            *at = at.map(|at| at + by);
        }
        // A rank that has not gone on yet would not be at rest.
        let soon = Instant::now() + GOES_ON_WITHIN;
        self.standstill_at = self.standstill_at.map(|at| at.max(soon));
        self.strangers.started += by;
        (self.standstill).postpone(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn stop(&mut self) {
        self.waits_at = None;
        self.standstill_at = None;
        self.strangers.stop();
    }
}

/// The times of looking.
struct Schedule {
    started: Instant,
    index: usize,
}

impl Schedule {
    /// A job of one rank is not looked into: alone is what it shall be.
    fn new(started: Instant, ranks: u32) -> Schedule {
        let alone = std::env::var_os(ENV_SINGLETON).is_some_and(|v| !v.is_empty() && v != "0");
        let index = if ranks > 1 && !alone {
            0
        } else {
            TIMES_MS.len()
        };
        Schedule { started, index }
    }

    fn next(&self) -> Option<Instant> {
        let time = TIMES_MS.get(self.index)?;
        Some(self.started + Duration::from_millis(*time))
    }

    fn stop(&mut self) {
        self.index = TIMES_MS.len();
    }

    /// Whether it is time; the next time is the first one that has not passed.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next().is_some_and(|at| now >= at);
        while self.next().is_some_and(|at| now >= at) {
            self.index += 1;
        }
        is_due
    }
}

/// The waits of these ranks: rank, thread, since when in nanoseconds.
fn waits_of(peers: &dyn Peers, ranks: &[u32]) -> Vec<(u32, u32, u64)> {
    let of_rank = |&rank: &u32| {
        let waits = peers.waits(rank).listed.into_iter();
        waits.map(move |wait| (rank, wait.thread, wait.since_ns))
    };
    ranks.iter().flat_map(of_rank).collect()
}

impl Launcher<'_> {
    /// Looks for all whose time has come.
    pub(super) fn look(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if is_due(self.looks.waits_at) {
            self.look_for_ranks_that_wait(now);
        }
        if is_due(self.looks.standstill_at) {
            self.look_for_standstill(now);
        }
        if self.looks.strangers.is_due(now) {
            self.look_for_strangers();
        }
    }

    /// Says, unless it has been said, which ranks can never go on as far as one look tells.
    pub(super) fn report_deadlock(&mut self) {
        let peers = &*self.peers;
        let analysis = state::analysis(peers, now_ns());
        let is_known = self.looks.standstill.has_reported(peers, &analysis.stuck);
        if analysis.stuck.is_empty() || !is_known {
            let text = report::deadlock(&self.job.launcher, peers, &analysis);
            self.say(&text);
        }
    }

    /// Says which ranks can never go on, once that is certain, and ends the job if the user wants
    /// that.
    fn look_for_standstill(&mut self, now: Instant) {
        if self.alive == 0 || self.ending.kill_at.is_some() {
            self.looks.standstill_at = None;
            return;
        }
        let (peers, now_ns) = (&*self.peers, now_ns());
        let found = self.looks.standstill.look(peers, now_ns);
        let next_ns = self.looks.standstill.next_ns();
        let pause = Duration::from_nanos(next_ns.saturating_sub(now_ns));
        self.looks.standstill_at = Some(now + pause);
        let Some(analysis) = found else {
            return;
        };
        let ends = self.job.on_deadlock == OnDeadlock::End;
        let text = report::standstill(self.job, peers, &analysis, ends);
        self.say(&text);
        if ends {
            self.verdict.end(1);
            self.end();
        }
    }

    /// A rank has ended without calling `MPI_Init`: says so once others wait in vain, and ends the
    /// job when nobody can go on.
    fn look_for_ranks_that_wait(&mut self, now: Instant) {
        let peers = &*self.peers;
        let analysis = state::analysis(peers, now_ns());
        let is_in_vain = !analysis.never_came.is_empty() && !analysis.stuck.is_empty();
        let waits = match is_in_vain {
            true => waits_of(peers, &analysis.stuck),
            false => Vec::new(),
        };
        let is_certain = is_in_vain && waits == self.looks.in_vain;
        self.looks.in_vain = waits;
        let going_on = self.alive > 0 && self.ending.kill_at.is_none();
        self.looks.waits_at = (going_on && !is_certain).then(|| now + LOOK_INTERVAL);
        if !going_on || !is_certain {
            return;
        }
        let mut living = (0..peers.size()).filter(|&r| !peers.has_exited(r));
        let ends = !self.job.continue_on_failure && living.all(|r| analysis.stuck.contains(&r));
        let text = report::never_came(self.job, peers, &analysis, ends);
        self.say(&text);
        if ends {
            self.verdict.end(1);
            self.end();
        }
    }

    /// A rank that has loaded another implementation's library, and none of ours, would run alone,
    /// as would all others of its program: N times the same work, and the same files written N
    /// times.
    fn look_for_strangers(&mut self) {
        if self.alive == 0 || self.ending.kill_at.is_some() {
            return self.looks.strangers.stop();
        }
        let peers = &*self.peers;
        let silent: Vec<u32> = (0..peers.size())
            .filter(|&r| !peers.has_exited(r) && peers.phase(r) == Phase::Starting)
            .take(MOST)
            .collect();
        if silent.is_empty() {
            // Those that are there have called the library.
            return self.looks.strangers.stop();
        }
        let own = other_abi::folder().unwrap_or_default();
        let found = silent.iter().find_map(|&rank| {
            let pid = peers.identity(rank).pid;
            stranger(pid, &own).map(|library| (rank, library))
        });
        if let Some((rank, library)) = found {
            let text = report::stranger(self.job, rank, &library);
            self.say(&text);
            self.looks.strangers.stop();
            self.verdict.end(1);
            self.end();
        }
    }
}

/// The library of another implementation that the process has loaded, or the program that a shell
/// runs for it.
fn stranger(pid: u32, own: &Path) -> Option<PathBuf> {
    let library = |pid: u32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        foreign_library(&maps, own)
    };
    library(pid).or_else(|| children_of_shell(pid).into_iter().find_map(library))
}

/// The first library of MPI in a process's table of mapped files, unless ours is there as well, be
/// it one of those in the folder `own`, which are loaded before the one that they need.
fn foreign_library(maps: &str, own: &Path) -> Option<PathBuf> {
    let files = maps.lines().filter_map(|line| {
        let at = line.find('/')?;
        Some(Path::new(line[at..].trim_end_matches(" (deleted)")))
    });
    let mut foreign = None;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libmpi_abi.so") || file.parent() == Some(own) {
            return None;
        }
        if name.starts_with("libmpi.so.") || name.starts_with("libmpich.so.") {
            foreign.get_or_insert_with(|| file.to_owned());
        }
    }
    foreign
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7f00-7f01 r--p 00000000 fe:00 1  ";

    #[test]
    fn a_library_of_another_implementation_is_found_unless_ours_is_there() {
        let own = Path::new("/m/lib/faces");
        let loading = format!("{LINE}/m/lib/faces/libmpi.so.12\n");
        assert_eq!(foreign_library(&loading, own), None);
        let other =
            format!("{LINE}/usr/lib/libc.so.6\n{LINE}/usr/lib/libmpi.so.40.30.4\n{LINE}[heap]\n");
        assert_eq!(
            foreign_library(&other, own),
            Some("/usr/lib/libmpi.so.40.30.4".into())
        );
        let ours = format!("{LINE}/m/lib/faces/libmpi.so.40\n{LINE}/m/lib/libmpi_abi.so.1\n");
        assert_eq!(foreign_library(&ours, own), None);
        assert_eq!(
            foreign_library(&format!("{LINE}/usr/lib/libc.so.6\n"), own),
            None
        );
    }

    #[test]
    fn looking_ends_and_does_not_catch_up() {
        let started = Instant::now();
        let mut schedule = Schedule::new(started, 2);
        assert!(!schedule.is_due(started));
        assert!(schedule.is_due(started + Duration::from_millis(200)));
        assert_eq!(schedule.next(), Some(started + Duration::from_millis(250)));
        assert!(schedule.is_due(started + Duration::from_secs(60)));
        assert_eq!(schedule.next(), None);
        assert_eq!(Schedule::new(started, 1).next(), None);
    }
}
