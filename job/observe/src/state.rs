//! What a rank does now, as its registry has it, and what the waits of all ranks amount to.

use margay_core_registry::detail::{self, Detail};
use margay_core_registry::{Phase, Waiting};
use margay_net_platform::Peers;
use margay_sys_os::process::{ProcessFacts, running_threads};

use crate::waits::{Analysis, Doing, Lasting, analyse};

/// A wait that has lasted this long is taken for a wait and not for a message on its way.
pub const SETTLED_S: f64 = 0.5;

/// Finds out which rank waits for which at `now_ns` of the registry's clock.
#[must_use]
pub fn analysis(peers: &dyn Peers, now_ns: u64) -> Analysis {
    let mut doing = all_doing(peers, now_ns);
    let mut analysis = analyse(&doing, SETTLED_S);
    // A thread that computes may send what the others wait for. The system is asked only about
    // ranks that seem stuck.
    let mut any = false;
    for &rank in &analysis.stuck {
        if let Doing::Waiting(waits) = &doing[rank as usize]
            && peers.computes(rank, &waits.threads())
        {
            doing[rank as usize] = Doing::Running;
            any = true;
        }
    }
    if any {
        analysis = analyse(&doing, SETTLED_S);
    }
    (analysis.absent, analysis.never_came) = without_init(peers, &doing);
    analysis
}

/// Returns the ranks that have not called `MPI_Init` although others have and wait: those that
/// live, and those that have ended. Their programs may have nothing to do with MPI, or use another
/// library.
fn without_init(peers: &dyn Peers, doing: &[Doing]) -> (Vec<u32>, Vec<u32>) {
    let mut ranks = 0..peers.size();
    let uses_mpi = ranks.any(|r| matches!(peers.phase(r), Phase::Running | Phase::Finalized));
    let waits = |d: &Doing| matches!(d, Doing::Waiting(waits) if waits.first().1 >= SETTLED_S);
    if !uses_mpi || !doing.iter().any(waits) {
        return Default::default();
    }
    // Of ranks on other hosts nothing may be known but how they end.
    let is_reported = |r: u32| peers.reported(r).is_some_and(|report| report.pid != 0);
    let is_here = |r: u32| peers.identity(r).pid != 0 || peers.has_exited(r) || is_reported(r);
    let starting = (0..peers.size()).filter(|&r| peers.phase(r) == Phase::Starting && is_here(r));
    starting.partition(|&r| !peers.has_exited(r))
}

/// When the youngest wait began because of which [`analysis`] finds less at `now_ns` than it would
/// if the waits lasted. None when it finds all.
#[must_use]
pub fn unsettled_since(peers: &dyn Peers, now_ns: u64) -> Option<u64> {
    let doing = all_doing(peers, now_ns);
    let found = analyse(&doing, 0.0);
    if found == analyse(&doing, SETTLED_S) {
        return None;
    }
    let since = |&rank: &u32| {
        let waits = peers.waits(rank).listed.into_iter();
        waits.map(|wait| wait.since_ns).max()
    };
    found.stuck.iter().filter_map(since).max()
}

pub(crate) fn all_doing(peers: &dyn Peers, now_ns: u64) -> Vec<Doing> {
    (0..peers.size())
        .map(|rank| doing(peers, rank, now_ns))
        .collect()
}

/// Returns what a rank does at `now_ns`.
#[must_use]
pub fn doing(peers: &dyn Peers, rank: u32, now_ns: u64) -> Doing {
    if peers.has_exited(rank) || peers.phase(rank) == Phase::Finalized {
        return Doing::Finished;
    }
    let waits = peers.waits(rank);
    let waits_unlisted = waits.unlisted;
    let lasting = |w: Waiting| (w, now_ns.saturating_sub(w.since_ns) as f64 * 1e-9);
    match Lasting::new(waits.listed.into_iter().map(lasting).collect()) {
        // What a thread that is not listed waits for is not known.
        Some(waits) if waits_unlisted == 0 => Doing::Waiting(waits),
        _ => Doing::Running,
    }
}

/// What a rank tells of one of its waits; none before it has become long.
#[must_use]
pub fn detail(peers: &dyn Peers, rank: u32, waiting: &Waiting) -> Option<Detail> {
    detail::read(&peers.note(rank, detail::KEY)?, waiting)
}

/// What the system says of a rank's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A thread of it runs or could run; or nothing is known.
    Active,
    /// All threads sleep.
    Asleep,
    /// Stopped, by SIGSTOP or a debugger.
    Stopped,
}

impl Activity {
    /// Of a rank, wherever it is.
    #[must_use]
    pub fn of_rank(peers: &dyn Peers, rank: u32) -> Activity {
        match peers.reported(rank).map(|report| report.activity) {
            None => Activity::of(peers.identity(rank).pid),
            Some(number) => [Activity::Asleep, Activity::Stopped]
                .into_iter()
                .find(|activity| activity.number() == number)
                .unwrap_or(Activity::Active),
        }
    }

    /// As it stands in the report of a host.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Activity::Active => 0,
            Activity::Asleep => 1,
            Activity::Stopped => 2,
        }
    }

    /// Of a process of this machine; 0 is none.
    #[must_use]
    pub fn of(pid: u32) -> Activity {
        match ProcessFacts::of(pid).map(|facts| facts.state) {
            Some('T' | 't') => Activity::Stopped,
            Some('S' | 'D' | 'I') if running_threads(pid).is_empty() => Activity::Asleep,
            _ => Activity::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Activity;
    use margay_sys_os::signal::{SIGSTOP, send};

    #[test]
    fn a_process_that_sleeps_or_is_stopped_does_not_compute() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        // A program that starts sleeps now and then, so only one look can be asked for.
        let becomes = |wanted| {
            let began = std::time::Instant::now();
            while Activity::of(sleeper.id()) != wanted {
                assert!(began.elapsed().as_secs() < 20, "never {wanted:?}");
                std::thread::yield_now();
            }
        };
        becomes(Activity::Asleep);
        send(sleeper.id(), SIGSTOP).unwrap();
        becomes(Activity::Stopped);
        assert_eq!(Activity::of(std::process::id()), Activity::Active);
        assert_eq!(Activity::of(0), Activity::Active);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
