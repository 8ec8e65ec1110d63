//! What one host learns of the ranks of others: how they ended, and at the launcher's host what
//! they do.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_core_registry::detail::{self, Awaited, Detail, Unexpected};
use margay_core_registry::hosts::{self, Report, Table};
use margay_core_registry::{CallName, Phase, Pulse, WaitKind, Waiting};
use margay_job_observe::state::Activity;
use margay_sys_os::clock::now_ns;
use margay_sys_os::process::{ProcessFacts, is_at_rest, running_threads};
use margay_sys_os::signal::SIGKILL;
use margay_sys_shm::segment::Segment;
use margay_sys_shm::waits::Noted;

use super::wire::{Broken, Reader, Writer, kind};

/// How a rank has ended, and what it did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) rank: u32,
    pub(super) status: ExitStatus,
    pid: u32,
    phase: Phase,
    call: CallName,
    /// Who has aborted the job, as far as its host knows, and the code.
    aborted: Option<(u32, i32)>,
}

impl Ended {
    /// What the segment of its own host says of a rank.
    pub(super) fn of(segment: &Arc<Segment>, rank: u32, status: ExitStatus) -> Ended {
        let registry = segment.registry();
        let mut call = CallName::default();
        for (to, word) in call.iter_mut().zip(segment.call_words(rank).iter()) {
            *to = word.load(Ordering::Relaxed);
        }
        Ended {
            rank,
            status,
            pid: registry.identity(rank).pid,
            phase: registry.phase(rank),
            call,
            aborted: registry.aborted(),
        }
    }

    /// What is said of a rank on a host that is lost: that it was killed there.
    pub(super) fn lost(segment: &Arc<Segment>, rank: u32) -> Ended {
        let report = segment.note(0, hosts::KEY);
        let report = report.and_then(|note| Table::read(&note)?.reported(rank));
        Ended {
            pid: report.map_or(0, |report| report.pid),
            ..Ended::of(segment, rank, ExitStatus::from_raw(SIGKILL))
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new(kind::ENDED);
        to.number(self.rank.into());
        to.number(self.status.into_raw() as u32 as u64);
        to.number(self.pid.into()).number(self.phase as u64);
        for word in self.call {
            to.number(word);
        }
        let (by, code) = self.aborted.map_or((0, 0), |(by, code)| (by + 1, code));
        to.number(by.into()).number(code as u32 as u64);
        to.done()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Ended, Broken> {
        let from = &mut Reader(body);
        let (rank, status) = (from.small()?, from.small::<u32>()?);
        let (pid, phase) = (from.small()?, Phase::from_number(from.small()?));
        let mut call = CallName::default();
        for word in &mut call {
            *word = from.number()?;
        }
        let (by, code) = (from.small::<u32>()?, from.small::<u32>()? as i32);
        Ok(Ended {
            rank,
            status: ExitStatus::from_raw(status as i32),
            pid,
            phase,
            call,
            aborted: by.checked_sub(1).map(|by| (by, code)),
        })
    }

    /// Enters it in the segment of another host. A rank that it has not is left out.
    pub(super) fn enter(&self, segment: &Arc<Segment>) {
        let registry = segment.registry();
        let ranks = segment.ranks();
        if self.rank >= ranks || registry.has_exited(self.rank) {
            return;
        }
        for (word, &value) in segment.call_words(self.rank).iter().zip(&self.call) {
            word.store(value, Ordering::Relaxed);
        }
        if let Some((by, code)) = self.aborted.filter(|&(by, _)| by < ranks) {
            registry.abort(by, code);
        }
        registry.set_pid(self.rank, self.pid);
        registry.set_phase(self.rank, self.phase);
        registry.set_exited(self.rank, self.status.success());
        if registry.has_failed(self.rank) {
            registry.add_failure();
        }
    }
}

/// A wait that has lasted this long may last: only then the system is asked whether its process can
/// go on by itself, which costs some system calls for each thread.
const LASTING_NS: u64 = 1_000_000_000;

/// What a rank does.
#[derive(Clone, Debug, PartialEq)]
struct Doing {
    rank: u32,
    phase: Phase,
    call: CallName,
    waits: Vec<Waiting>,
    /// What the rank tells of one of them.
    detail: Option<(usize, Detail)>,
    report: Report,
}

impl Doing {
    fn of(segment: &Arc<Segment>, rank: u32) -> Doing {
        let registry = segment.registry();
        let pid = registry.identity(rank).pid;
        let waits = registry.waits(rank);
        // Of a rank one of whose threads has no place it is not known whether it can go on.
        let listed = match waits.unlisted {
            0 => waits.listed,
            _ => Vec::new(),
        };
        let now = now_ns();
        let lasts = |wait: &Waiting| now.saturating_sub(wait.since_ns) >= LASTING_NS;
        let is_waiting = !listed.is_empty() && listed.iter().all(lasts);
        let threads: Vec<u32> = listed.iter().map(|wait| wait.thread).collect();
        let running = || running_threads(pid);
        let facts = ProcessFacts::of(pid);
        let note = segment.note(rank, detail::KEY);
        let detail = note.and_then(|note| {
            let mut waits = listed.iter().enumerate();
            waits.find_map(|(at, wait)| Some((at, detail::read(&note, wait)?)))
        });
        let mut call = CallName::default();
        for (to, word) in call.iter_mut().zip(segment.call_words(rank).iter()) {
            *to = word.load(Ordering::Relaxed);
        }
        Doing {
            rank,
            phase: registry.phase(rank),
            call,
            report: Report {
                pid,
                activity: Activity::of(pid).number(),
                is_at_rest: is_waiting && is_at_rest(pid, &threads),
                computes: !is_waiting || running().iter().any(|t| !threads.contains(t)),
                cpu_ms: facts.map_or(0, |facts| (facts.cpu_seconds * 1e3) as u64),
                core: facts.map_or(0, |facts| facts.last_core as u16),
            },
            waits: listed,
            detail,
        }
    }

    fn encode(&self, to: &mut Writer) {
        to.number(self.rank.into()).number(self.phase as u64);
        for word in self.call {
            to.number(word);
        }
        let report = &self.report;
        let facts = u64::from(report.is_at_rest) | u64::from(report.computes) << 1;
        to.number(report.pid.into()).number(report.activity.into());
        to.number(facts).number(report.cpu_ms);
        to.number(report.core.into());
        to.number(self.waits.len() as u64);
        for wait in &self.waits {
            to.number(wait.thread.into()).number(wait.kind as u64);
            let peer = wait.peer.map_or(0, |peer| u64::from(peer) + 1);
            let tag = wait.tag.map_or(0, |tag| u64::from(tag as u32) + 1);
            to.number(peer).number(tag).number(wait.context.into());
            to.number(wait.since_ns).number(wait.pulse.number().into());
        }
        to.number(self.detail.is_some().into());
        if let Some((at, detail)) = &self.detail {
            to.number(*at as u64);
            encode_detail(detail, to);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Doing, Broken> {
        let (rank, phase) = (from.small()?, Phase::from_number(from.small()?));
        let mut call = CallName::default();
        for word in &mut call {
            *word = from.number()?;
        }
        let (pid, activity) = (from.small()?, from.small()?);
        let (facts, cpu_ms) = (from.number()?, from.number()?);
        let core = from.small()?;
        let count = from.number()?;
        let wait = |_| {
            let (thread, kind) = (from.small()?, WaitKind::from_number(from.small()?));
            let (peer, tag) = (from.number()?, from.number()?);
            Ok(Waiting {
                thread,
                kind: kind.ok_or(Broken)?,
                peer: peer.checked_sub(1).map(|peer| peer as u32),
                tag: tag.checked_sub(1).map(|tag| tag as u32 as i32),
                context: from.small()?,
                since_ns: from.number()?,
                pulse: Pulse::from_number(from.small()?),
            })
        };
        let waits: Vec<Waiting> = (0..count).map(wait).collect::<Result<_, Broken>>()?;
        let detail = match from.number()? {
            0 => None,
            _ => Some((from.small::<u32>()? as usize, decode_detail(from)?)),
        };
        Ok(Doing {
            rank,
            phase,
            call,
            waits,
            detail,
            report: Report {
                pid,
                activity,
                is_at_rest: facts & 1 != 0,
                computes: facts & 2 != 0,
                cpu_ms,
                core,
            },
        })
    }
}

fn encode_detail(detail: &Detail, to: &mut Writer) {
    to.number(detail.awaited.is_some().into());
    if let Some(awaited) = &detail.awaited {
        for word in awaited.made_by {
            to.number(word);
        }
        let root = awaited.root.map_or(0, |root| u64::from(root) + 1);
        to.number(awaited.site.into())
            .number(awaited.started.into());
        to.number(root).number(awaited.index.into());
        to.number(awaited.total.into());
    }
    to.number(detail.unexpected.len() as u64);
    for kind in &detail.unexpected {
        to.number(kind.from.into()).number((kind.tag as u32).into());
        to.number(kind.context.into()).number(kind.messages.into());
    }
    to.number(detail.more.into());
}

fn decode_detail(from: &mut Reader<'_>) -> Result<Detail, Broken> {
    let awaited = match from.number()? {
        0 => None,
        _ => {
            let mut made_by = CallName::default();
            for word in &mut made_by {
                *word = from.number()?;
            }
            Some(Awaited {
                made_by,
                site: from.small()?,
                started: from.small()?,
                root: from.number()?.checked_sub(1).map(|root| root as u32),
                index: from.small()?,
                total: from.small()?,
            })
        }
    };
    let kinds = from.number()?.min(detail::MOST as u64);
    let kind = |_| {
        Ok(Unexpected {
            from: from.small()?,
            tag: from.small::<u32>()? as i32,
            context: from.small()?,
            messages: from.small()?,
        })
    };
    Ok(Detail {
        awaited,
        unexpected: (0..kinds).map(kind).collect::<Result<_, Broken>>()?,
        more: from.small()?,
    })
}

/// At an agent: what its ranks did when it was sent last.
#[derive(Default)]
pub(super) struct Reporter(HashMap<u32, Doing>);

impl Reporter {
    /// Returns the message about those of `ranks` that do something else than at the last time;
    /// none where nobody does.
    pub(super) fn news(
        &mut self,
        segment: &Arc<Segment>,
        ranks: impl Iterator<Item = u32>,
    ) -> Option<Vec<u8>> {
        let registry = segment.registry();
        let lives = |rank: &u32| !registry.has_exited(*rank);
        let doing = ranks.filter(lives).map(|rank| Doing::of(segment, rank));
        let news: Vec<Doing> = doing
            .filter(|doing| self.0.get(&doing.rank) != Some(doing))
            .collect();
        if news.is_empty() {
            return None;
        }
        let mut to = Writer::new(kind::DOING);
        to.number(now_ns()).number(news.len() as u64);
        for doing in news {
            doing.encode(&mut to);
            self.0.insert(doing.rank, doing);
        }
        Some(to.done())
    }
}

/// At the relay: what is entered in the launcher's segment of the ranks of one host.
#[derive(Default)]
pub(super) struct Mirror {
    /// What has to be added to that host's clock to have that of this one.
    offset_ns: Option<u64>,
    waits: HashMap<u32, Vec<(Waiting, Noted)>>,
}

impl Mirror {
    /// Enters a message of a [`Reporter`]; ranks that `is_own` does not name are left out.
    pub(super) fn enter(
        &mut self,
        segment: &Arc<Segment>,
        body: &[u8],
        is_own: impl Fn(u32) -> bool,
    ) -> Result<(), Broken> {
        let from = &mut Reader(body);
        let sent_ns = from.number()?;
        let offset = *(self.offset_ns).get_or_insert_with(|| now_ns().wrapping_sub(sent_ns));
        for _ in 0..from.number()? {
            let mut doing = Doing::decode(from)?;
            let has_exited = |rank| segment.registry().has_exited(rank);
            if !is_own(doing.rank) || has_exited(doing.rank) {
                continue;
            }
            for wait in &mut doing.waits {
                wait.since_ns = wait.since_ns.wrapping_add(offset);
            }
            self.enter_rank(segment, doing);
        }
        Ok(())
    }

    fn enter_rank(&mut self, segment: &Arc<Segment>, doing: Doing) {
        let (rank, registry) = (doing.rank, segment.registry());
        for (word, &value) in segment.call_words(rank).iter().zip(&doing.call) {
            word.store(value, Ordering::Relaxed);
        }
        registry.set_phase(rank, doing.phase);
        if let Some(note) = segment.note(0, hosts::KEY)
            && let Some(table) = Table::read(&note)
        {
            table.report(rank, &doing.report);
        }
        if let Some((at, detail)) = &doing.detail
            && let Some(wait) = doing.waits.get(*at)
            && let Some(note) = segment.make_note(rank, detail::KEY, detail::WORDS)
        {
            detail::write(&note, wait, detail);
        }
        let entered = self.waits.entry(rank).or_default();
        let same = |(a, b): (&(Waiting, Noted), &Waiting)| {
            let pulse = b.pulse;
            Waiting { pulse, ..a.0 } == *b
        };
        if entered.len() == doing.waits.len() && entered.iter().zip(&doing.waits).all(same) {
            for ((_, noted), wait) in entered.iter().zip(&doing.waits) {
                registry.set_pulse(rank, noted, wait.pulse);
            }
            return;
        }
        for (_, noted) in entered.drain(..) {
            registry.end_wait(rank, noted);
        }
        entered.extend(doing.waits.iter().map(|wait| {
            let noted = registry.begin_wait(rank, wait);
            registry.set_pulse(rank, &noted, wait.pulse);
            (*wait, noted)
        }));
    }

    /// A rank has ended.
    pub(super) fn end(&mut self, segment: &Arc<Segment>, rank: u32) {
        for (_, noted) in self.waits.remove(&rank).into_iter().flatten() {
            segment.registry().end_wait(rank, noted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_registry::call_name;
    use margay_sys_shm::layout::Sizes;

    #[test]
    fn the_end_of_a_rank_is_known_on_another_host() {
        let segment = || Arc::new(Segment::create(Sizes::for_job(3)).unwrap());
        let (here, there) = (segment(), segment());
        let registry = here.registry();
        registry.identify(2, 77, None, 0);
        registry.set_phase(2, Phase::Running);
        registry.abort(2, 9);
        for (word, value) in here.call_words(2).iter().zip(call_name("MPI_Abort")) {
            word.store(value, Ordering::Relaxed);
        }
        let ended = Ended::of(&here, 2, ExitStatus::from_raw(9 << 8));
        let read = Ended::decode(&ended.encode()[5..]).unwrap();
        assert_eq!(read, ended);
        for _ in 0..2 {
            read.enter(&there);
        }
        let registry = there.registry();
        assert!(registry.has_failed(2) && !registry.has_failed(1));
        assert_eq!(registry.failures(), 1);
        assert_eq!(registry.aborted(), Some((2, 9)));
        assert_eq!(
            (registry.call(2).as_str(), registry.identity(2).pid),
            ("MPI_Abort", 77)
        );
    }
    #[test]
    fn what_a_rank_does_is_known_at_the_launchers_host() {
        let segment = || Arc::new(Segment::create(Sizes::for_job(2)).unwrap());
        let (there, here) = (segment(), segment());
        let locations = [0, 1].map(|host| hosts::Location { host, port: 0 });
        let known = [hosts::Host::default(), hosts::Host::default()];
        let words = hosts::words(2, 2);
        let note = here.make_note(0, hosts::KEY, words).unwrap();
        let table = Table::write(
            &note,
            &[0; hosts::SECRET],
            (u32::MAX, false),
            &known,
            &locations,
        );
        let registry = there.registry();
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        registry.identify(1, sleeper.id(), None, 0);
        registry.set_phase(1, Phase::Running);
        let waiting = Waiting {
            thread: sleeper.id(),
            kind: WaitKind::Receive,
            peer: Some(0),
            tag: Some(-3),
            context: 4,
            since_ns: now_ns().saturating_sub(5_000_000_000),
            pulse: Pulse::default(),
        };
        let noted = registry.begin_wait(1, &waiting);
        let (mut reporter, mut mirror) = (Reporter::default(), Mirror::default());
        let mut pass = |owns: bool| {
            let news = reporter.news(&there, [1].into_iter());
            if let Some(news) = &news {
                mirror
                    .enter(&here, &news[5..], |rank| owns && rank == 1)
                    .unwrap();
            }
            news.is_some()
        };
        assert!(pass(true) && !pass(true), "sent once");
        let seen = here.registry().waits(1).listed;
        assert_eq!(seen.len(), 1);
        let as_seen = |seen: &Waiting| (seen.kind, seen.peer, seen.tag, seen.context);
        assert_eq!(as_seen(&seen[0]), as_seen(&waiting));
        let report = table.reported(1).unwrap();
        assert!(report.pid == sleeper.id() && report.is_at_rest && !report.computes);
        // What it tells of the wait is known for the wait as it stands here.
        let said = Detail {
            awaited: Some(Awaited {
                made_by: call_name("MPI_Irecv"),
                site: 65_535,
                started: 3,
                root: Some(0),
                index: 1,
                total: 2,
            }),
            unexpected: vec![Unexpected {
                from: 1,
                tag: -7,
                context: 9,
                messages: 4,
            }],
            more: 2,
        };
        let note = there.make_note(1, detail::KEY, detail::WORDS).unwrap();
        detail::write(&note, &waiting, &said);
        assert!(pass(true) && !pass(true), "sent once");
        let note = here.note(1, detail::KEY).unwrap();
        assert_eq!(detail::read(&note, &seen[0]), Some(said));
        // A pulse alone leaves the wait what it is.
        let pulse = Pulse::default().after(false);
        registry.set_pulse(1, &noted, pulse);
        assert!(pass(true));
        assert_eq!(
            here.registry().waits(1).listed,
            [Waiting { pulse, ..seen[0] }]
        );
        registry.end_wait(1, noted);
        assert!(pass(true));
        assert!(here.registry().waits(1).listed.is_empty());
        // Nobody speaks for the ranks of others.
        registry.set_phase(1, Phase::Finalized);
        assert!(pass(false));
        assert_eq!(here.registry().phase(1), Phase::Running);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
