//! What a rank stands on where all ranks share a segment.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

use margay_core_registry::hosts::{self, Report, Table};
use margay_core_registry::{Facts, Identity, Locality, NoteKey, Phase, Pulse, Waiting, Waits};
use margay_net_platform::{
    Attending, Attention, JobAddress, Noted, Outside, Peers, Platform, SystemClock, this_system,
};
use margay_net_transport::{Thresholds, Transport};
use margay_sys_os::kept::Words;
use margay_sys_os::{clock, cpu, process};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::mapping::SegmentError;
use margay_sys_shm::segment::Segment;
use margay_sys_shm::waits;

use crate::{Shm, ShmWakeUp};

/// Returns the platform of rank `me` of the job in `segment`. Where ranks may not share memory,
/// they exchange bytes through it all the same.
///
/// # Panics
/// When `me` is not a rank of the segment.
#[must_use]
pub fn platform(
    segment: &Arc<Segment>,
    me: u32,
    thresholds: Arc<Thresholds>,
    shares_memory: bool,
) -> Platform {
    let attention = Attention::default();
    let outside = SegmentOutside {
        segment: segment.clone(),
        thresholds: thresholds.clone(),
        attention: attention.clone(),
        system: OnceLock::new(),
    };
    Platform {
        transport: Box::new(Shm::new(segment, me, thresholds)),
        wake_up: Arc::new(ShmWakeUp::new(segment, me, attention)),
        clock: Arc::new(SystemClock),
        peers: SegmentPeers::of(segment),
        memory: shares_memory.then(|| segment.clone()),
        host_memory: None,
        outside: Some(Arc::new(outside)),
    }
}

/// The registry that lies in a segment.
pub struct SegmentPeers(Arc<Segment>);

impl SegmentPeers {
    /// Returns the registry of `segment`.
    #[must_use]
    pub fn of(segment: &Arc<Segment>) -> Arc<dyn Peers> {
        Arc::new(SegmentPeers(segment.clone()))
    }

    /// Asks the table of hosts, where the job is on several.
    fn hosts<R>(&self, ask: impl FnOnce(Table<'_>) -> Option<R>) -> Option<R> {
        let note = self.0.note(0, hosts::KEY)?;
        ask(Table::read(&note)?)
    }
}

struct InSegment<'a>(&'a Segment, u32, Option<waits::Noted>);

impl Noted for InSegment<'_> {
    fn set_pulse(&self, pulse: Pulse) {
        if let Some(noted) = &self.2 {
            self.0.registry().set_pulse(self.1, noted, pulse);
        }
    }
}

impl Drop for InSegment<'_> {
    fn drop(&mut self) {
        if let Some(noted) = self.2.take() {
            self.0.registry().end_wait(self.1, noted);
        }
    }
}

impl Peers for SegmentPeers {
    fn id(&self) -> u64 {
        // The segments of several hosts have numbers of their own, and the numbers of launchers are
        // not unique among hosts. The secret is; a hash of 8 bytes does not give it away.
        let of_hosts = self.hosts(|table| {
            let mut hasher = DefaultHasher::new();
            table.secret().hash(&mut hasher);
            Some(hasher.finish())
        });
        of_hosts.unwrap_or_else(|| self.0.id())
    }

    fn size(&self) -> u32 {
        self.0.ranks()
    }

    fn facts(&self) -> Facts {
        self.0.registry().facts()
    }

    fn cores(&self) -> u32 {
        self.0.registry().cores()
    }

    fn is_tolerant(&self) -> bool {
        self.0.registry().is_tolerant()
    }

    fn identity(&self, rank: u32) -> Identity {
        self.0.registry().identity(rank)
    }

    fn host(&self, rank: u32) -> u32 {
        let ranks = self.size();
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let location = self.hosts(|table| table.location(rank));
        location.map_or(0, |location| location.host)
    }

    fn sharers(&self, rank: u32) -> u32 {
        let host = self.host(rank);
        let sharers = self.hosts(|table| Some(table.ranks_on_cores_of(host)));
        sharers.unwrap_or(self.size())
    }

    fn locality(&self, one: u32, other: u32) -> Locality {
        let ranks = self.size();
        assert!(one.max(other) < ranks, "ranks {one}, {other} of {ranks}");
        if self.host(one) == self.host(other) {
            Locality::Memory
        } else {
            Locality::Remote
        }
    }

    fn host_name(&self, host: u32) -> String {
        let known = self.hosts(|table| table.host(host));
        known.map_or_else(process::host_name, |host| host.name)
    }

    fn phase(&self, rank: u32) -> Phase {
        self.0.registry().phase(rank)
    }

    fn set_phase(&self, rank: u32, phase: Phase) {
        self.0.registry().set_phase(rank, phase);
    }

    fn call(&self, rank: u32) -> String {
        self.0.registry().call(rank)
    }

    fn call_words(&self, rank: u32) -> Words {
        self.0.call_words(rank)
    }

    fn waits(&self, rank: u32) -> Waits {
        self.0.registry().waits(rank)
    }

    fn begin_wait(&self, rank: u32, waiting: &Waiting) -> Box<dyn Noted + '_> {
        let noted = self.0.registry().begin_wait(rank, waiting);
        Box::new(InSegment(&self.0, rank, Some(noted)))
    }

    fn has_exited(&self, rank: u32) -> bool {
        self.0.registry().has_exited(rank)
    }

    fn is_alive(&self, rank: u32) -> bool {
        let pid = self.identity(rank).pid;
        !self.has_exited(rank) && (pid == 0 || process::is_alive(pid))
    }

    fn computes(&self, rank: u32, waiting: &[u32]) -> bool {
        if let Some(report) = self.reported(rank) {
            return report.computes;
        }
        let pid = self.identity(rank).pid;
        pid != 0
            && process::running_threads(pid)
                .iter()
                .any(|thread| !waiting.contains(thread))
    }

    fn reported(&self, rank: u32) -> Option<Report> {
        self.hosts(|table| table.reported(rank))
    }

    fn failures(&self) -> u32 {
        self.0.registry().failures()
    }

    fn abort(&self, rank: u32, code: i32) -> bool {
        self.0.registry().abort(rank, code)
    }

    fn aborted(&self) -> Option<(u32, i32)> {
        self.0.registry().aborted()
    }

    fn wake(&self, rank: u32) {
        self.0.wake(rank);
    }

    fn note(&self, rank: u32, key: NoteKey) -> Option<Words> {
        self.0.note(rank, key)
    }

    fn make_note(&self, rank: u32, key: NoteKey, words: usize) -> Option<Words> {
        self.0.make_note(rank, key, words)
    }
}

/// Other jobs of the machine are reached by their segments, as long as a process of theirs holds
/// them.
struct SegmentOutside {
    segment: Arc<Segment>,
    thresholds: Arc<Thresholds>,
    attention: Attention,
    /// Where this process is; asked for once, when it meets others.
    system: OnceLock<u64>,
}

impl SegmentOutside {
    fn address_of(&self, segment: &Segment) -> JobAddress {
        JobAddress {
            id: segment.id(),
            system: *self.system.get_or_init(this_system),
            pid: std::process::id(),
            descriptor: segment.fd().as_raw_fd(),
        }
    }

    fn open(&self, job: JobAddress) -> io::Result<Arc<Segment>> {
        if !job.is_near(&self.address()) {
            return Err(io::Error::other("it is on another host"));
        }
        if job.id == self.segment.id() {
            return Ok(self.segment.clone());
        }
        let joined = Segment::join_of(job.pid, job.descriptor, job.id).map_err(refused)?;
        Ok(Arc::new(joined))
    }
}

fn refused(error: SegmentError) -> io::Error {
    io::Error::other(error.to_string())
}

impl Outside for SegmentOutside {
    fn address(&self) -> JobAddress {
        self.address_of(&self.segment)
    }

    fn find(&self, job: JobAddress) -> io::Result<Arc<dyn Peers>> {
        Ok(SegmentPeers::of(&self.open(job)?))
    }

    fn make_bridge(&self, ranks: u32) -> io::Result<(JobAddress, Arc<dyn Peers>)> {
        let segment = Segment::create(Sizes::for_bridge(ranks)).map_err(refused)?;
        segment.registry().describe(&Facts {
            started_ns: clock::now_ns(),
            cores: cpu::usable_cores() as u32,
            ..Facts::default()
        });
        let segment = Arc::new(segment);
        Ok((self.address_of(&segment), SegmentPeers::of(&segment)))
    }

    fn join_bridge(
        &self,
        bridge: JobAddress,
        me: u32,
    ) -> io::Result<(Arc<dyn Peers>, Box<dyn Transport>)> {
        let segment = self.open(bridge)?;
        if me >= segment.ranks() {
            let text = format!("a bridge for {} has no rank {me}", segment.ranks());
            return Err(io::Error::other(text));
        }
        let registry = segment.registry();
        registry.identify(me, std::process::id(), None, 0);
        registry.set_phase(me, Phase::Running);
        let transport = Shm::new(&segment, me, self.thresholds.clone());
        Ok((SegmentPeers::of(&segment), Box::new(transport)))
    }

    fn attend(&self) -> Attending {
        self.attention.begin()
    }
}
