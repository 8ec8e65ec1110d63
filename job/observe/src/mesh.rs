//! The jobs of this machine, as `margay mesh` (`showmesh`) shows them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use margay_core_registry::{Phase, WaitKind, Waiting, account};
use margay_job_registry::Jobs;
use margay_job_stacks::Frame;
use margay_net_platform::Peers;
use margay_sys_os::clock::now_ns;
use margay_sys_os::counters::Usage;
use margay_sys_os::process::ProcessFacts;
use serde::Serialize;

use crate::calls::{self, CallView};
use crate::places::Places;
use crate::posted::Posted;
use crate::state::{self, Activity};
use crate::teams::{self, ProcessView};
use crate::traffic::{Stream, Traffic};
use crate::waits::{Analysis, Doing};
use crate::words::wait_in_words;

/// For how long the ranks of a new job are taken for starting. A program without MPI never says
/// that it has started.
const STARTING_S: f64 = 1.0;

/// A job that is running. The field names are those of `margay mesh --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobView {
    /// The job's number: the process id of its launcher.
    pub job: u64,
    /// Its command line.
    pub command: String,
    /// To whom an NX program says that it is to be charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many cores it may use.
    pub cores: u32,
    /// Since when it runs, in seconds.
    pub running_s: f64,
    /// Which rank waits for which without an end, in words; empty when all may go on.
    pub findings: Vec<String>,
    /// Ranks that wait on each other in a circle.
    pub deadlocks: Vec<Vec<u32>>,
    /// Both of these, not in words.
    #[serde(skip)]
    pub analysis: Analysis,
    /// Its ranks, in order.
    pub rank: Vec<RankView>,
    /// A look a little later may tell more: its ranks are being started, or have waited for too
    /// short a time.
    #[serde(skip)]
    pub is_unsettled: bool,
    /// When the youngest wait began that was too short to tell.
    #[serde(skip)]
    pub unsettled_since: Option<u64>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankView {
    /// Its number.
    pub rank: u32,
    /// Its host, in a job on several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its process id on its host; 0 before it has started.
    pub pid: u32,
    /// The core that it is bound to.
    pub bound_core: Option<u32>,
    /// The core that it ran on last.
    pub last_core: Option<u32>,
    /// What it does.
    pub state: State,
    /// The MPI call that it is in, or that it called last; empty before the first.
    pub call: String,
    /// What it waits for, while it waits: the thread that has waited longest.
    pub waiting: Option<WaitView>,
    /// What its further threads wait for, that which has waited longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_waits: Vec<WaitView>,
    /// CPU time that it has used, in seconds.
    pub cpu_s: f64,
    /// Page faults so far, and how many of them waited for a disk; 0 of a rank on another host.
    pub faults: u64,
    pub disk_faults: u64,
    /// CPU time since the last sample divided by the time that has passed, in percent of a core.
    pub cpu_percent: f64,
    /// Its teams of OpenMP, while there are some and the user may read its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ProcessView>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has not called the library yet.
    Starting,
    /// It runs its own code, or makes progress in the library.
    Computing,
    /// It is in its own code and uses no CPU.
    Outside,
    /// Its process is stopped, by a signal or a debugger.
    Stopped,
    /// It waits in the library.
    Waiting,
    /// It has called finalize.
    Finished,
    /// It had joined its job, and its process has ended before it called finalize.
    Failed,
}

impl State {
    /// Whether it does nothing any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, State::Finished | State::Failed)
    }
}

/// What a rank waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitView {
    /// `receive`, `send`, `collective` or `several`.
    pub kind: &'static str,
    /// The rank that it waits for, if it is one.
    pub rank: Option<u32>,
    /// The tag, if the wait has one.
    pub tag: Option<i32>,
    /// The context (communicator) of the wait.
    pub context: u32,
    /// Since when, in seconds.
    pub since_s: f64,
    /// The same in words.
    pub text: String,
    /// The thread: the kernel's number.
    pub thread: u32,
}

/// Samples the jobs of this machine again and again. All that it sees is what the user may see: a
/// launcher of somebody else's is passed over.
#[derive(Default)]
pub struct Mesh {
    jobs: Jobs,
    /// What each process had used at the last sample, by host and number.
    last: HashMap<(u32, u32), Sample>,
    /// Processes without Margay's threads, and until when that is taken for granted: they may load
    /// the library later.
    without_threads: HashMap<u32, Instant>,
    /// Of each job, when the youngest wait began that was too short to tell at the last sample.
    unsettled: HashMap<u64, u64>,
}

#[derive(Clone, Copy)]
struct Sample {
    cpu_s: f64,
    at: Instant,
    percent: f64,
    /// It was seen how the value changed.
    is_change: bool,
}

/// Hosts report about once a second what their processes have used.
const REPORTED: Duration = Duration::from_millis(500);
/// A value that has stayed the same for so long will not change.
const AT_REST: Duration = Duration::from_secs(3);

impl Sample {
    /// What a process has used by now, as its host says. What other hosts report is a step every
    /// now and then: only from one step to another it is known in what time it was used.
    fn after(
        last: Option<&Sample>,
        now: Instant,
        (cpu_s, is_away): (f64, bool),
        running_s: f64,
    ) -> Sample {
        let percent = |used: f64, passed: f64| match passed > 0.0 {
            true => (100.0 * used / passed).max(0.0),
            false => 0.0,
        };
        let Some(last) = last else {
            return Sample {
                cpu_s,
                at: now,
                percent: percent(cpu_s, running_s),
                is_change: false,
            };
        };
        let (used, passed) = (cpu_s - last.cpu_s, now - last.at);
        let percent = match is_away {
            true if used == 0.0 && passed >= AT_REST => 0.0,
            true if used == 0.0 || (last.is_change && passed < REPORTED) => return *last,
            true if !last.is_change => last.percent,
            _ => percent(used, passed.as_secs_f64()),
        };
        Sample {
            cpu_s,
            at: now,
            percent,
            is_change: used != 0.0,
        }
    }
}

/// How long a process without Margay's threads is not searched again for them: the search reads
/// tables of all its libraries.
const AGAIN: Duration = Duration::from_secs(5);

impl Mesh {
    /// Returns the jobs that run now, the oldest first. The CPU percentage counts from the last
    /// sample, or from the job's start.
    pub fn look(&mut self) -> Vec<JobView> {
        let now = Instant::now();
        let mut next = HashMap::new();
        let without = &mut self.without_threads;
        without.retain(|_, until| *until > now);
        let mut threads = |pid: u32| {
            if without.contains_key(&pid) {
                return None;
            }
            let Ok(view) = teams::look(pid) else {
                without.insert(pid, now + AGAIN);
                return None;
            };
            (!view.teams.is_empty()).then_some(view)
        };
        let mut jobs: Vec<JobView> = self
            .jobs
            .look()
            .into_iter()
            .map(|peers| {
                let percent = |process: (u32, u32), (cpu_s, is_away): (f64, bool), running_s| {
                    let last = self.last.get(&process);
                    let sample = Sample::after(last, now, (cpu_s, is_away), running_s);
                    next.insert(process, sample);
                    sample.percent
                };
                view(peers, now_ns(), percent, &mut threads, &Posted::default())
            })
            .collect();
        self.last = next;
        // Ranks that go on wait for something else at each sample.
        for job in &mut jobs {
            let before = self.unsettled.get(&job.job).copied();
            job.is_unsettled |= before.is_some() && before == job.unsettled_since;
        }
        let unsettled = (jobs.iter()).filter_map(|job| Some((job.job, job.unsettled_since?)));
        self.unsettled = unsettled.collect();
        jobs
    }
}

/// Where a rank is, and what it has called last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankDetail {
    /// The functions of the program, the innermost first: `smooth() mesh.c:88`.
    pub stack: Vec<String>,
    /// Its last calls, the newest last.
    pub calls: Vec<String>,
    /// What the system has counted of it; empty of a rank on another host.
    pub counted: String,
}

fn in_words(usage: Usage) -> String {
    format!(
        "{:.1} s CPU, {} page faults, {} from disk, {} switches, {} forced",
        usage.cpu_s, usage.faults, usage.disk_faults, usage.switches, usage.forced
    )
}

impl Mesh {
    /// Looks closely at a rank: its stack, and its last `most` calls. None when its job has ended.
    pub fn detail(&mut self, job: u64, rank: u32, most: usize) -> Option<RankDetail> {
        let jobs = self.jobs.look();
        let peers = jobs.into_iter().find(|peers| peers.facts().job == job)?;
        let calls = match calls::last_calls(peers, rank, most) {
            Ok(calls) => calls.iter().map(CallView::line).collect(),
            Err(why) => vec![why],
        };
        let places = Places::of_ranks(peers, &[rank]);
        let line = |frame: &Frame| format!("{} {}", frame.function_text(), frame.place_text());
        let stack = match places.stack(rank) {
            Some(Ok(stack)) => stack.users_frames().map(line).collect(),
            Some(Err(refused)) => vec![format!("no stack: {refused}")],
            None => vec!["no stack: it has ended, or is on another host".to_owned()],
        };
        let is_here = peers.reported(rank).is_none();
        let usage = is_here.then(|| Usage::of(peers.identity(rank).pid));
        let counted = usage.flatten().map_or_else(String::new, in_words);
        Some(RankDetail {
            stack,
            calls,
            counted,
        })
    }

    /// Returns what the ranks of a job have sent to each other since `traffic` looked last.
    pub fn traffic(
        &mut self,
        job: u64,
        traffic: &mut Traffic,
    ) -> Option<BTreeMap<(u32, u32), Stream>> {
        let jobs = self.jobs.look();
        let peers = jobs.into_iter().find(|peers| peers.facts().job == job)?;
        Some(traffic.look(peers))
    }
}

impl WaitView {
    /// Without words.
    fn of(waiting: &Waiting, since_s: f64) -> WaitView {
        WaitView {
            kind: match waiting.kind {
                WaitKind::Receive => "receive",
                WaitKind::Send | WaitKind::FullSend => "send",
                WaitKind::Collective => "collective",
                WaitKind::Several => "several",
                WaitKind::Elsewhere => "elsewhere",
            },
            rank: waiting.peer,
            tag: waiting.tag,
            context: waiting.context,
            since_s,
            text: String::new(),
            thread: waiting.thread,
        }
    }
}

pub(crate) fn view(
    peers: &dyn Peers,
    now_ns: u64,
    mut percent: impl FnMut((u32, u32), (f64, bool), f64) -> f64,
    threads: &mut impl FnMut(u32) -> Option<ProcessView>,
    posted: &Posted,
) -> JobView {
    let job = peers.facts();
    let running_s = now_ns.saturating_sub(job.started_ns) as f64 * 1e-9;
    let analysis = state::analysis(peers, now_ns);
    let unsettled_since = state::unsettled_since(peers, now_ns);
    let mut is_starting = false;
    let is_on_several = (0..peers.size()).any(|rank| peers.reported(rank).is_some());
    let rank = (0..peers.size())
        .map(|rank| {
            let identity = peers.identity(rank);
            let reported = peers.reported(rank);
            // It may have ended before its host had reported anything.
            let pid =
                (reported.map(|report| report.pid).filter(|&pid| pid != 0)).unwrap_or(identity.pid);
            let lives = pid != 0 && !peers.has_exited(rank);
            let facts = (lives && reported.is_none())
                .then(|| ProcessFacts::of(pid))
                .flatten();
            let away = reported.filter(|_| lives);
            let cpu_s = match away {
                Some(report) => report.cpu_ms as f64 * 1e-3,
                None => facts.map_or(0.0, |f| f.cpu_seconds),
            };
            let call = peers.call(rank);
            let process = (peers.host(rank), pid);
            let cpu_percent = match away.is_some() || facts.is_some() {
                true => percent(process, (cpu_s, away.is_some()), running_s),
                false => 0.0,
            };
            let mut further_waits = Vec::new();
            let (state, waiting) = match state::doing(peers, rank, now_ns) {
                // A program without the library ends in its first phase.
                Doing::Finished
                    if peers.has_failed(rank) && peers.phase(rank) != Phase::Starting =>
                {
                    (State::Failed, None)
                }
                Doing::Finished => (State::Finished, None),
                Doing::Running => (running(peers, rank, cpu_percent), None),
                Doing::Waiting(waits) => {
                    let view = |(w, since_s): &(Waiting, f64)| WaitView {
                        text: wait_in_words(peers, posted, rank, w),
                        ..WaitView::of(w, *since_s)
                    };
                    further_waits.extend(waits.further().iter().map(view));
                    let view = view(&waits.first());
                    (State::Waiting, Some(view))
                }
            };
            is_starting |= state == State::Starting;
            RankView {
                rank,
                host: is_on_several.then(|| peers.host_name(peers.host(rank))),
                pid,
                bound_core: identity.core,
                last_core: match away {
                    Some(report) => Some(report.core.into()),
                    None => facts.map(|f| f.last_core),
                },
                state,
                call,
                waiting,
                further_waits,
                cpu_s,
                faults: facts.map_or(0, |f| f.faults),
                disk_faults: facts.map_or(0, |f| f.disk_faults),
                cpu_percent,
                threads: facts.and_then(|_| threads(pid)),
            }
        })
        .collect();
    let account = |rank: u32| account::name(peers.note(rank, account::KEY).as_deref());
    JobView {
        job: job.job,
        command: job.command,
        account: (0..peers.size()).find_map(account),
        ranks: peers.size(),
        cores: job.cores,
        running_s,
        findings: analysis.lines(),
        deadlocks: analysis.cycles.clone(),
        analysis,
        rank,
        is_unsettled: running_s < STARTING_S && (is_starting || unsettled_since.is_some()),
        unsettled_since,
    }
}

/// The state of a rank that does not wait in the library.
fn running(peers: &dyn Peers, rank: u32, cpu_percent: f64) -> State {
    match Activity::of_rank(peers, rank) {
        Activity::Stopped => State::Stopped,
        _ if peers.phase(rank) == Phase::Starting => State::Starting,
        Activity::Asleep if cpu_percent < 1.0 => State::Outside,
        _ => State::Computing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_report_in_steps_is_no_peak() {
        let began = Instant::now();
        let mut last = None;
        let mut seen = Vec::new();
        // A process that computes all the time, as reports of each second say.
        for tick in 0..60u32 {
            let now = began + Duration::from_millis(100) * tick;
            let reported = f64::from((tick + 5) / 10);
            let sample = Sample::after(last.as_ref(), now, (reported, true), 2.0);
            seen.push(sample.percent.round());
            last = Some(sample);
        }
        assert!(seen[..15].iter().all(|&percent| percent == 0.0), "{seen:?}");
        assert!(
            seen[16..].iter().all(|&percent| percent == 100.0),
            "{seen:?}"
        );
        let rest = began + Duration::from_secs(20);
        assert_eq!(
            Sample::after(last.as_ref(), rest, (6.0, true), 2.0).percent,
            0.0
        );
    }
    use margay_core_registry::{Facts, Pulse, call_name};
    use margay_net_shm::SegmentPeers;
    use margay_sys_shm::layout::Sizes;
    use margay_sys_shm::segment::Segment;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn segment(ranks: u32) -> Arc<Segment> {
        let sizes = Sizes {
            ranks,
            heap_bytes: 1 << 16,
            arena_bytes: 1 << 21,
        };
        Arc::new(Segment::create(sizes).unwrap())
    }

    #[test]
    fn a_job_of_this_process_is_seen() {
        let _turn = crate::one_segment();
        let segment = segment(3);
        let me = std::process::id();
        // The ranks' process: it sleeps, while this one computes.
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = sleeper.id();
        segment.registry().describe(&Facts {
            job: u64::from(me),
            launcher: me,
            started_ns: now_ns(),
            command: "a.out".into(),
            cores: 2,
            is_tolerant: false,
        });
        let peers = SegmentPeers::of(&segment);
        let mut waits = Vec::new();
        let long_ago = now_ns().saturating_sub(3_000_000_000);
        for (rank, peer) in [(0, 1), (1, 0)] {
            segment.registry().identify(rank, pid, Some(rank), 0);
            peers.set_phase(rank, Phase::Running);
            for (word, value) in peers.call_words(rank).iter().zip(call_name("MPI_Send")) {
                word.store(value, Ordering::Relaxed);
            }
            let waiting = Waiting {
                thread: pid,
                kind: WaitKind::Send,
                peer: Some(peer),
                tag: Some(7),
                context: 0,
                since_ns: long_ago,
                pulse: Pulse::default(),
            };
            waits.push(peers.begin_wait(rank, &waiting));
        }
        segment.registry().set_exited(2, true);
        let mut mesh = Mesh::default();
        let jobs = mesh.look();
        let job = jobs.iter().find(|j| j.job == u64::from(me)).unwrap();
        assert_eq!(
            (job.ranks, job.cores, job.command.as_str()),
            (3, 2, "a.out")
        );
        assert_eq!(job.deadlocks, [[0, 1]]);
        assert_eq!(job.findings, ["deadlock: 0 → 1 → 0"]);
        assert!(!job.is_unsettled);
        // When the waits were younger nothing could be said yet, and nothing is waited for when a
        // rank goes on.
        assert_eq!(
            state::unsettled_since(&*peers, long_ago + 100_000_000),
            Some(long_ago)
        );
        peers.set_phase(2, Phase::Running);
        segment.registry().set_exited(2, false);
        let later = long_ago + 3_000_000_000;
        assert_eq!(state::unsettled_since(&*peers, later), None);
        segment.registry().set_exited(2, true);
        assert_eq!(job.rank[0].state, State::Waiting);
        assert_eq!(job.rank[2].state, State::Finished);
        assert_eq!(job.rank[0].threads, None, "it has no library of ours");
        assert!(mesh.without_threads.contains_key(&pid));
        let wait = job.rank[1].waiting.as_ref().unwrap();
        assert_eq!(wait.text, "MPI_Send until rank 0 takes its message, tag 7");
        assert!(wait.since_s >= 3.0);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        drop(waits);
        drop((peers, segment, mesh));
        assert!(
            Mesh::default()
                .look()
                .iter()
                .all(|j| j.job != u64::from(me))
        );
    }
}
