//! What a rank does now, as its registry has it, and what the waits of all ranks amount to.

use margay_core_registry::detail::{self, Detail};
use margay_core_registry::{Phase, Waiting};
use margay_net_platform::Peers;
use margay_sys_os::process::{ProcessFacts, running_threads};

use crate::posted::{self, Posted};
use crate::waits::{Analysis, Doing, Lasting, analyse};
use crate::words::{self, describe};

/// A wait that has lasted this long is taken for a wait and not for a message on its way.
pub const SETTLED_S: f64 = 0.5;

/// The most messages that nobody has asked for that are listed of a job, a line each.
const MOST_LINES: usize = 16;

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

/// Returns what a rank waits for in words, with the lines that `posted` knows.
#[must_use]
pub fn wait_in_words(peers: &dyn Peers, posted: &Posted, rank: u32, waiting: &Waiting) -> String {
    let detail = detail(peers, rank, waiting);
    let awaited = detail.and_then(|detail| detail.awaited);
    let post = |site| posted.by(rank, site);
    describe(&peers.call(rank), waiting, awaited.as_ref(), &post)
}

/// Returns the messages in words that ranks have that wait, and that they have not asked for.
#[must_use]
pub fn unexpected_lines(peers: &dyn Peers, ranks: &[u32]) -> Vec<String> {
    let details = |&rank: &u32| {
        let waits = peers.waits(rank).listed.into_iter();
        waits.filter_map(move |waiting| Some((rank, waiting, detail(peers, rank, &waiting)?)))
    };
    let details: Vec<(u32, Waiting, Detail)> = ranks.iter().flat_map(details).collect();
    // Those beyond are not shown.
    let messages = (details.iter()).flat_map(|(rank, _, detail)| {
        let of_rank = detail.unexpected.iter();
        of_rank.map(|message| (*rank, *message))
    });
    let messages: Vec<_> = messages.take(MOST_LINES).collect();
    let mut sends = posted::sends(peers, &messages).into_iter();
    let lines = details.iter().flat_map(|(rank, waiting, detail)| {
        let count = detail.unexpected.len();
        let sent: Vec<_> = sends.by_ref().take(count).collect();
        words::unexpected_lines(*rank, waiting, detail, &sent)
    });
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!("and {more} lines more of such messages"));
    }
    lines
}

/// Returns the state of a rank in words, without times, so that ranks in the same state can be
/// grouped.
#[must_use]
pub fn state_in_words(peers: &dyn Peers, posted: &Posted, rank: u32, now_ns: u64) -> String {
    let call = peers.call(rank);
    let last = match peers.phase(rank) {
        Phase::Starting if peers.has_exited(rank) => {
            return "ended without calling MPI_Init".into();
        }
        Phase::Starting => ", has not called MPI_Init".into(),
        _ if call.is_empty() => String::new(),
        _ => format!(", last MPI call {call}"),
    };
    let activity = || Activity::of_rank(peers, rank);
    match doing(peers, rank, now_ns) {
        Doing::Finished => "finished".into(),
        Doing::Waiting(waits) => {
            let wait = wait_in_words(peers, posted, rank, &waits.first().0);
            match activity() {
                Activity::Stopped => format!("stopped by a signal while it waited in {wait}"),
                _ => format!("waiting in {wait}"),
            }
        }
        Doing::Running => match activity() {
            Activity::Stopped => format!("stopped by a signal{last}"),
            Activity::Asleep => format!("outside MPI and using no CPU{last}"),
            Activity::Active => format!("computing{last}"),
        },
    }
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
