//! Whether ranks of a running job can never go on any more: proven by looks at a distance, so that
//! nobody has to ask.
//!
//! One look proves little: a message may be on its way, its receiver may be stopped or starved of
//! its core, and a thread that sleeps may send the next moment. So ranks are reported only when
//!
//! - the waits of all their threads make them stuck, for [`SETTLED_S`] at the least;
//! - all that they could be freed by is at rest: no thread of theirs runs, sleeps for a time or
//!   waits for input, none is stopped or has a debugger ([`is_at_rest`]). A rank that has finalized
//!   may join again, so it counts only when its process has ended;
//! - at a later look the very same waits are there, each has looked for its event meanwhile, and
//!   nothing has moved in any of them ([`Pulse`]). What was sent before the first look has been
//!   found by then.
//!
//! Of ranks on other hosts, these report what their registries say and whether all is at rest. A
//! message between hosts may be on its way for long, because lost packets are sent again; but data
//! that the other side has not acknowledged after 8 s ends the connection, so waits that have
//! lasted longer (`REPORTED_BETWEEN_HOSTS_NS`) are not for such a message.
//!
//! Looking costs a read of shared memory; the system is asked only about ranks that seem stuck, and
//! ever less often when that has not proven it.

use std::collections::BTreeMap;

use margay_core_registry::{Phase, Pulse, Waiting};
use margay_net_platform::Peers;
use margay_sys_os::process::is_at_rest;

use crate::places::process_of;
use crate::state::{SETTLED_S, all_doing};
use crate::waits::{Analysis, Doing, analyse};

/// How long the youngest wait has lasted when ranks are reported, in nanoseconds.
const REPORTED_NS: u64 = 2_000_000_000;
/// The same for a job on several hosts: the time after which a connection is lost, and as much
/// again as reports may be late.
const REPORTED_BETWEEN_HOSTS_NS: u64 = 12_000_000_000;
/// Between two looks at the same waits: the time in which a thread that sleeps looks twice, in
/// nanoseconds.
const DISTANCE_NS: u64 = 1_000_000_000;
/// How often the waits are looked at, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;
/// The longest time between two questions to the system about the same waits, in nanoseconds.
const MOST_INTERVAL_NS: u64 = 60_000_000_000;

/// What threads of ranks wait for.
type RankWaits = BTreeMap<u32, Vec<Waiting>>;

/// Looks at a job again and again. Times are those of the registry's clock, in nanoseconds.
#[derive(Debug, Default)]
pub struct Standstill {
    /// What may be a standstill.
    suspected: Option<Suspected>,
    /// Waits about which the system was asked in vain.
    doubted: Option<Doubted>,
    /// What has been reported.
    reported: RankWaits,
    next_ns: u64,
}

#[derive(Debug)]
struct Suspected {
    seen_ns: u64,
    /// How long the ranks were stopped since then.
    away_ns: u64,
    analysis: Analysis,
    waits: RankWaits,
}

#[derive(Debug)]
struct Doubted {
    waits: RankWaits,
    pause_ns: u64,
    until_ns: u64,
}

impl Standstill {
    /// When to look next.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether all these ranks have been reported, with the waits that they have now.
    #[must_use]
    pub fn has_reported(&self, peers: &dyn Peers, ranks: &[u32]) -> bool {
        let now = waits_of(peers, ranks);
        now.iter().all(|(rank, waits)| self.knows(*rank, waits))
    }

    fn knows(&self, rank: u32, waits: &[Waiting]) -> bool {
        let same = |reported: &Vec<Waiting>| are_same(reported, waits, |_, _| true);
        self.reported.get(&rank).is_some_and(same)
    }

    /// The ranks were stopped for a while, which does not count: what was seen before still is when
    /// they have run for as long as it takes, in several turns together.
    pub fn postpone(&mut self, by_ns: u64) {
        if let Some(suspected) = &mut self.suspected {
            suspected.away_ns += by_ns;
        }
        self.doubted = None;
    }

    /// Looks once. Returns the ranks that can never go on, when that has become certain and has not
    /// been reported: once for each set of ranks, and when a set grows, not before it has doubled
    /// or no rank is left that can.
    pub fn look(&mut self, peers: &dyn Peers, now_ns: u64) -> Option<Analysis> {
        self.next_ns = now_ns + INTERVAL_NS;
        if let Some(suspected) = self.suspected.take() {
            let now = waits_of(peers, &suspected.analysis.stuck);
            if are_all_same(&suspected.waits, &now, |a, b| a.moves == b.moves) {
                let youngest = now.values().flatten().map(|wait| wait.since_ns).max();
                let ripe_ns = match suspected.away_ns {
                    0 => (suspected.seen_ns + DISTANCE_NS).max(youngest? + reported_ns(peers)),
                    // How long the waits have lasted is not how long their ranks have run.
                    away_ns => suspected.seen_ns + away_ns + reported_ns(peers),
                };
                let looked = are_all_same(&suspected.waits, &now, |a, b| a.looks != b.looks);
                if now_ns >= ripe_ns && looked {
                    self.reported = now;
                    return Some(suspected.analysis);
                }
                if now_ns < ripe_ns {
                    self.next_ns = ripe_ns.min(self.next_ns);
                }
                self.suspected = Some(suspected);
                return None;
            }
        }
        self.suspect(peers, now_ns);
        if let Some(suspected) = &self.suspected {
            let youngest = suspected.waits.values().flatten().map(|wait| wait.since_ns);
            let ripe_ns = youngest.max().unwrap_or_default() + reported_ns(peers);
            self.next_ns = ripe_ns.max(now_ns + DISTANCE_NS);
        }
        None
    }

    /// Looks for ranks that seem stuck, and asks the system whether all is at rest that could free
    /// them.
    fn suspect(&mut self, peers: &dyn Peers, now_ns: u64) {
        let mut doing = all_doing(peers, now_ns);
        for (rank, doing) in (0..).zip(&mut doing) {
            let may_join = !peers.has_exited(rank) && peers.phase(rank) == Phase::Finalized;
            if *doing == Doing::Finished && may_join {
                *doing = Doing::Running;
            }
        }
        let analysis = analyse(&doing, SETTLED_S);
        let waits = waits_of(peers, &analysis.stuck);
        if !self.is_news(&waits, &doing) || self.is_doubted(&waits, now_ns) {
            return;
        }
        let restless = |(rank, waits): &(&u32, &Vec<Waiting>)| !are_at_rest(peers, **rank, waits);
        let restless: Vec<u32> = waits
            .iter()
            .filter(restless)
            .map(|(&rank, _)| rank)
            .collect();
        for &rank in &restless {
            doing[rank as usize] = Doing::Running;
        }
        let analysis = match restless.is_empty() {
            true => analysis,
            false => analyse(&doing, SETTLED_S),
        };
        let now = waits_of(peers, &analysis.stuck);
        let stayed = now.iter().all(|(rank, now)| {
            let before = &waits[rank];
            are_same(before, now, |_, _| true)
        });
        if stayed && self.is_news(&now, &doing) {
            self.suspected = Some(Suspected {
                seen_ns: now_ns,
                away_ns: 0,
                analysis,
                waits: now,
            });
        }
        if !restless.is_empty() {
            self.doubt(waits, now_ns);
        }
    }

    /// Whether ranks that are stuck are worth a report.
    fn is_news(&self, waits: &RankWaits, doing: &[Doing]) -> bool {
        let new = waits
            .iter()
            .filter(|(rank, waits)| !self.knows(**rank, waits))
            .count();
        let known = waits.len() - new;
        let goes =
            |(rank, doing): (u32, &Doing)| *doing != Doing::Finished && !waits.contains_key(&rank);
        new > 0 && (new >= known || !(0..).zip(doing).any(goes))
    }

    fn is_doubted(&self, waits: &RankWaits, now_ns: u64) -> bool {
        let doubted = self.doubted.as_ref();
        doubted.is_some_and(|doubted| {
            now_ns < doubted.until_ns && are_all_same(&doubted.waits, waits, |_, _| true)
        })
    }

    fn doubt(&mut self, waits: RankWaits, now_ns: u64) {
        let before = self.doubted.take();
        let same = before.filter(|before| are_all_same(&before.waits, &waits, |_, _| true));
        let pause_ns = same.map_or(INTERVAL_NS, |before| before.pause_ns * 2);
        self.doubted = Some(Doubted {
            waits,
            pause_ns: pause_ns.min(MOST_INTERVAL_NS),
            until_ns: now_ns + pause_ns.min(MOST_INTERVAL_NS),
        });
    }
}

/// How long the youngest wait has lasted when ranks are reported.
fn reported_ns(peers: &dyn Peers) -> u64 {
    let is_away = (0..peers.size()).any(|rank| peers.reported(rank).is_some());
    match is_away {
        true => REPORTED_BETWEEN_HOSTS_NS,
        false => REPORTED_NS,
    }
}

fn waits_of(peers: &dyn Peers, ranks: &[u32]) -> RankWaits {
    let waits = ranks.iter().map(|&rank| (rank, peers.waits(rank).listed));
    waits.collect()
}

/// Whether nothing but a rank's waits can make it go on.
fn are_at_rest(peers: &dyn Peers, rank: u32, waits: &[Waiting]) -> bool {
    if let Some(report) = peers.reported(rank) {
        return report.is_at_rest;
    }
    let threads: Vec<u32> = waits.iter().map(|wait| wait.thread).collect();
    let process = threads.first().and_then(|&thread| process_of(thread));
    process.is_some_and(|pid| is_at_rest(pid, &threads))
}

/// Whether these are the same waits, with `pulses` that go together.
fn are_same(before: &[Waiting], now: &[Waiting], pulses: impl Fn(Pulse, Pulse) -> bool) -> bool {
    let without_pulse = |wait: &Waiting| Waiting {
        pulse: Pulse::default(),
        ..*wait
    };
    before.len() == now.len()
        && before.iter().zip(now).all(|(before, now)| {
            without_pulse(before) == without_pulse(now) && pulses(before.pulse, now.pulse)
        })
}

fn are_all_same(
    before: &RankWaits,
    now: &RankWaits,
    pulses: impl Fn(Pulse, Pulse) -> bool + Copy,
) -> bool {
    before.len() == now.len()
        && before
            .iter()
            .zip(now)
            .all(|((rank, before), (other, now))| rank == other && are_same(before, now, pulses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_registry::WaitKind;
    use margay_net_platform::Noted;
    use margay_net_shm::SegmentPeers;
    use margay_sys_shm::layout::Sizes;
    use margay_sys_shm::segment::Segment;
    use std::cell::Cell;
    use std::process::{Child, Command};
    use std::sync::Arc;

    const SECOND: u64 = 1_000_000_000;

    /// Processes that sleep and have one thread, which is said to wait in the library.
    struct Ranks(Vec<Child>, Arc<dyn Peers>);

    /// A wait that has been entered, and its pulse.
    struct Entered<'a>(Box<dyn Noted + 'a>, Cell<Pulse>);

    impl Entered<'_> {
        fn has_looked(&self, moved: bool) {
            self.1.set(self.1.get().after(moved));
            self.0.set_pulse(self.1.get());
        }
    }

    impl Ranks {
        fn new(ranks: u32) -> Ranks {
            let sizes = Sizes {
                ranks,
                heap_bytes: 1 << 16,
                arena_bytes: 1 << 21,
            };
            let segment = Arc::new(Segment::create(sizes).unwrap());
            let start = |rank| {
                let child = Command::new("sleep").arg("100").spawn().unwrap();
                segment.registry().identify(rank, child.id(), None, 0);
                segment.registry().set_phase(rank, Phase::Running);
                child
            };
            let children = (0..ranks).map(start).collect();
            Ranks(children, SegmentPeers::of(&segment))
        }

        fn wait(&self, rank: u32, peer: u32) -> Entered<'_> {
            self.wait_of(self.0[rank as usize].id(), rank, peer)
        }

        fn wait_of(&self, thread: u32, rank: u32, peer: u32) -> Entered<'_> {
            let waiting = Waiting {
                thread,
                kind: WaitKind::Receive,
                peer: Some(peer),
                tag: None,
                context: 0,
                since_ns: 10 * SECOND,
                pulse: Pulse::default(),
            };
            Entered(self.1.begin_wait(rank, &waiting), Cell::default())
        }
    }

    impl Drop for Ranks {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    #[test]
    fn a_circle_is_reported_once_when_all_have_looked_in_vain() {
        let _turn = crate::one_segment();
        let ranks = Ranks::new(3);
        let waits = [ranks.wait(0, 1), ranks.wait(1, 0)];
        let mut standstill = Standstill::default();
        let mut look = |at: u64| {
            let found = standstill.look(&*ranks.1, at);
            (found.map(|a| a.stuck), standstill.next_ns())
        };
        assert_eq!(look(10 * SECOND), (None, 11 * SECOND));
        assert_eq!(look(11 * SECOND), (None, 12 * SECOND));
        // Nobody has looked for its message since.
        assert_eq!(look(12 * SECOND), (None, 13 * SECOND));
        waits[0].has_looked(false);
        assert_eq!(look(13 * SECOND), (None, 14 * SECOND));
        waits[1].has_looked(false);
        assert_eq!(look(14 * SECOND).0, Some(vec![0, 1]));
        assert_eq!(look(15 * SECOND).0, None);
        assert_eq!(look(30 * SECOND).0, None);
        assert!(standstill.has_reported(&*ranks.1, &[0, 1]));
        // One more is no news, but that nobody is left is.
        assert!(!standstill.has_reported(&*ranks.1, &[0, 2]));
        let third = ranks.wait(2, 0);
        assert_eq!(standstill.look(&*ranks.1, 31 * SECOND), None);
        for wait in waits.iter().chain([&third]) {
            wait.has_looked(false);
        }
        let found = standstill.look(&*ranks.1, 32 * SECOND).unwrap();
        assert_eq!(found.stuck, [0, 1, 2]);
    }

    #[test]
    fn what_moves_or_may_be_woken_is_not_reported() {
        let _turn = crate::one_segment();
        let ranks = Ranks::new(2);
        let mut waits = vec![ranks.wait(0, 1), ranks.wait(1, 0)];
        let mut standstill = Standstill::default();
        for at in 11..20 {
            assert_eq!(standstill.look(&*ranks.1, at * SECOND), None);
            waits[0].has_looked(true);
            waits[1].has_looked(false);
        }
        drop(waits.pop());
        assert_eq!(standstill.look(&*ranks.1, 20 * SECOND), None);
        // Its process has a thread that does not wait in the library: the one of which it is made.
        waits.push(ranks.wait_of(std::process::id(), 1, 0));
        for at in 21..30 {
            assert_eq!(standstill.look(&*ranks.1, at * SECOND), None);
            waits.iter().for_each(|wait| wait.has_looked(false));
        }
    }

    #[test]
    fn a_rank_that_is_stopped_is_not_reported() {
        use margay_sys_os::signal::{SIGSTOP, send};
        let _turn = crate::one_segment();
        let ranks = Ranks::new(2);
        let waits = [ranks.wait(0, 1), ranks.wait(1, 0)];
        let pid = ranks.0[1].id();
        send(pid, SIGSTOP).unwrap();
        let is_stopped = || crate::state::Activity::of(pid) == crate::state::Activity::Stopped;
        while !is_stopped() {
            std::thread::yield_now();
        }
        let mut standstill = Standstill::default();
        for at in 11..30 {
            assert_eq!(standstill.look(&*ranks.1, at * SECOND), None);
            waits.iter().for_each(|wait| wait.has_looked(false));
        }
    }
}
