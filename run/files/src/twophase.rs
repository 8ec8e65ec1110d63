//! Collective access in two phases: ranks exchange data so that a few of them, the aggregators,
//! read or write long extents (del Rosario, Bordawekar and Choudhary, "Improved parallel I/O via a
//! two-phase run-time access strategy", 1993; Thakur, Gropp and Lusk, "Data sieving and collective
//! I/O in ROMIO", 1999).
//!
//! The range of the file that the ranks access is cut into one domain for each aggregator, each
//! domain into windows of `cb_buffer_size` bytes. Every rank sends each aggregator the extents of
//! its domain that the rank accesses; then, window by window, data travels in one message between a
//! rank and an aggregator, without a head: both know its length from the extents. An aggregator
//! writes exactly the bytes that it was given: it never reads what nobody wrote in order to write
//! it back, so other processes may write in between.

use std::collections::VecDeque;
use std::sync::Arc;

use margay_core_datatype::Datatype;
use margay_core_group::Group;
use margay_core_schedule as schedule;
use margay_core_schedule::{Block, Ranks};
use margay_run_engine::{
    Buffer, Collective, Data, Envelope, Execution, Pattern, Port, Started, copy,
};
use margay_sys_os::user::Mem;

use super::File;
use super::hints::{Hints, Switch};
use super::independent::Access;
use super::runs::{Clip, Runs};
use super::window::Aggregator;
use margay_run_mpi::comm::Comm;
use margay_run_mpi::error::*;

/// Mean extents from this many bytes on are written by their owners even when they interleave:
/// moving them to an aggregator would cost more than the calls that it saves.
const LONG_EXTENTS: u64 = 64 << 10;

/// What a collective operation on a file needs of it.
#[derive(Clone)]
pub(super) struct Io {
    pub file: Arc<File>,
    pub byte: Arc<Datatype>,
}

/// Numbers that keep the messages of one operation apart from those of others.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    /// Of the collectives that the operation consists of.
    pub collectives: [u32; 3],
    /// Of its messages: extents, then data.
    pub extents: u32,
    pub data: u32,
}

/// Tags of messages of collective accesses lie below; those of the shared pointer above.
pub(super) const POINTER_TAGS: u32 = 1 << 24;

impl Tags {
    /// For the next operation. All ranks begin them in the same order.
    pub fn next(comm: &Comm) -> Tags {
        let collectives = [comm.next_tag(), comm.next_tag(), comm.next_tag()];
        let base = collectives[0] % (POINTER_TAGS / 2) * 2;
        Tags {
            collectives,
            extents: base,
            data: base + 1,
        }
    }
}

impl Io {
    fn ranks(&self) -> Ranks {
        Ranks {
            rank: self.file.comm.rank,
            size: self.file.comm.size(),
        }
    }

    fn group(&self) -> &Arc<Group> {
        &self.file.comm.group
    }

    fn execution(
        &self,
        schedule: schedule::Schedule,
        tag: u32,
        send: Option<Mem>,
        recv: &Mem,
    ) -> Execution {
        let typed = |mem: Mem| Buffer::Typed {
            mem,
            datatype: self.byte.clone(),
        };
        Execution::new(Collective {
            schedule: Arc::new(schedule),
            context: self.file.comm.collective(),
            sequence: tag,
            me: self.file.comm.rank,
            local: self.group().clone(),
            remote: None,
            send: send.map_or(Buffer::None, typed),
            recv: typed(recv.clone()),
            reduction: None,
        })
    }

    /// Every rank's words.
    pub async fn gather<const N: usize>(
        &self,
        port: &Port,
        tag: u32,
        words: [i64; N],
    ) -> Vec<[i64; N]> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let n = self.file.comm.size() as usize;
        let recv = Mem::owned(bytes.len() * n);
        let block = Block {
            count: bytes.len() as i64,
            bytes: bytes.len() as u64,
        };
        let tuning = schedule::Tuning::default();
        let plan = schedule::allgather(self.ranks(), block, false, &tuning);
        port.collective(self.execution(plan, tag, Some(Mem::from_vec(bytes)), &recv))
            .await;
        recv.with_bytes(0, 8 * N * n, |all| {
            all.chunks_exact(8 * N)
                .map(|one| {
                    let mut words = one.chunks_exact(8).map(word);
                    std::array::from_fn(|_| words.next().expect("N words"))
                })
                .collect()
        })
    }

    /// One word to and from every rank.
    async fn exchange(&self, port: &Port, tag: u32, words: &[i64]) -> Vec<i64> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = bytes.len();
        let recv = Mem::owned(length);
        let block = Block { count: 8, bytes: 8 };
        let tuning = schedule::Tuning::default();
        let plan = schedule::alltoall(self.ranks(), block, block, false, &tuning);
        port.collective(self.execution(plan, tag, Some(Mem::from_vec(bytes)), &recv))
            .await;
        recv.with_bytes(0, length, |all| all.chunks_exact(8).map(word).collect())
    }

    fn process(&self, rank: u32) -> u32 {
        self.group().process(rank).expect("a rank of the file")
    }

    fn send(&self, port: &Port, data: Data, to: u32, tag: u32) -> Started {
        let envelope = Envelope {
            context: self.file.comm.point_to_point(),
            source: self.file.comm.rank,
            tag,
        };
        port.send(data, self.process(to), envelope)
    }

    fn receive(&self, port: &Port, data: Data, from: u32, tag: u32) -> Started {
        let pattern = Pattern::new(self.file.comm.point_to_point(), Some(from), Some(tag));
        port.receive(data, pattern, Some(self.process(from)))
    }
}

fn word(bytes: &[u8]) -> i64 {
    i64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// A collective access of this rank, as a script. Returns the bytes of this rank that were read or
/// written.
///
/// `access` may be an error: then this rank takes part with no bytes and returns it.
pub(super) async fn collective(
    io: Io,
    port: Port,
    tags: Tags,
    access: Result<Access>,
    hints: Arc<Hints>,
    atomic: bool,
) -> Result<u64> {
    let summary = access.as_ref().map_or(Ok(Summary::default()), Summary::of);
    // An error is reported after all ranks have learned of it.
    let (access, summary) = match (access, summary) {
        (Ok(access), Ok(summary)) => (Ok(access), summary),
        (Err(error), _) | (_, Err(error)) => (Err(error), Summary::default()),
    };
    let all: Vec<Summary> = io
        .gather(&port, tags.collectives[0], summary.words())
        .await
        .into_iter()
        .map(Summary::from_words)
        .collect();
    let write = all.iter().any(|s| s.write);
    if !two_phase(&all, &hints, write, atomic) {
        return io.file.perform(&access?, &hints, atomic);
    }
    let plan = Plan::new(&all, &hints);
    let mine = access.as_ref().ok().filter(|access| access.data.size() > 0);
    let (result, moved) = exchange(&io, &port, tags, &plan, mine, write).await;
    let class = result
        .as_ref()
        .err()
        .map_or(0, |error| i64::from(error.code()));
    let classes = io.gather(&port, tags.collectives[2], [class]).await;
    access?;
    result?;
    match classes.iter().position(|class| class[0] != 0) {
        None => Ok(moved),
        Some(rank) => {
            let class = classes[rank][0] as i32;
            let verb = if write { "write" } else { "read" };
            let text = format!("rank {rank} of the file could not {verb} its part for the others");
            Err(Error::new(class, text))
        }
    }
}

/// What a rank sends the others about its access.
#[derive(Clone, Copy, Default)]
struct Summary {
    low: i64,
    high: i64,
    bytes: u64,
    extents: u64,
    write: bool,
    /// Some bytes come behind later ones, or twice.
    scattered: bool,
}

impl Summary {
    fn of(access: &Access) -> Result<Summary> {
        let bytes = access.data.size();
        let mut summary = Summary {
            write: access.write,
            ..Summary::default()
        };
        if bytes > 0 {
            access.extents()?;
            (summary.low, summary.high) = access.view.hull(access.start, bytes)?;
            summary.bytes = bytes;
            summary.scattered = !access.view.ascends(access.start, bytes);
            let (blocks, size) = access.view.grain();
            let tiles = bytes as f64 / size as f64;
            summary.extents = (tiles * blocks as f64).ceil() as u64;
        }
        Ok(summary)
    }

    fn words(self) -> [i64; 5] {
        [
            self.low,
            self.high,
            self.bytes as i64,
            self.extents as i64,
            i64::from(self.write) | i64::from(self.scattered) << 1,
        ]
    }

    fn from_words(words: [i64; 5]) -> Summary {
        Summary {
            low: words[0],
            high: words[1],
            bytes: words[2] as u64,
            extents: words[3] as u64,
            write: words[4] & 1 != 0,
            scattered: words[4] & 2 != 0,
        }
    }
}

/// Whether the access goes through aggregators; the same answer on all ranks.
fn two_phase(all: &[Summary], hints: &Hints, write: bool, atomic: bool) -> bool {
    let mut ranges: Vec<_> = all.iter().filter(|s| s.bytes > 0).collect();
    // Atomic accesses hold a lock on the whole range of a rank, which only that rank can take.
    if ranges.is_empty() || all.len() == 1 || atomic || all.iter().any(|s| s.scattered) {
        return false;
    }
    match if write { hints.cb_write } else { hints.cb_read } {
        Switch::Enable => true,
        Switch::Disable => false,
        Switch::Automatic => {
            ranges.sort_by_key(|s| s.low);
            let interleaved = ranges.windows(2).any(|w| w[1].low < w[0].high);
            let bytes: u64 = ranges.iter().map(|s| s.bytes).sum();
            let extents: u64 = ranges.iter().map(|s| s.extents).sum();
            interleaved && bytes / extents.max(1) < LONG_EXTENTS
        }
    }
}

/// Which rank aggregates which part of the file.
struct Plan {
    /// Ranks of the aggregators and where their domains begin and end.
    domains: Vec<(u32, i64, i64)>,
    window: i64,
    /// Windows of the longest domain.
    rounds: i64,
}

impl Plan {
    fn new(all: &[Summary], hints: &Hints) -> Plan {
        let busy = || all.iter().filter(|s| s.bytes > 0);
        let low = busy().map(|s| s.low).min().unwrap_or(0);
        let high = busy().map(|s| s.high).max().unwrap_or(0);
        let size = all.len() as i64;
        let aggregators = i64::from(hints.cb_nodes).clamp(1, size);
        // Domains begin at multiples of the unit unless that would leave aggregators without work.
        let unit = (hints.alignment() as i64)
            .min((high - low) / aggregators)
            .max(1);
        let first = low - low % unit;
        let length = ((high - first) as u64)
            .div_ceil(aggregators as u64)
            .next_multiple_of(unit as u64) as i64;
        // Whole units, unless one has not the room.
        let room = hints.cb_buffer_size as i64;
        let window = if room < unit {
            room
        } else {
            room - room % unit
        };
        let domains = (0..aggregators)
            .map(|i| {
                let begin = first.saturating_add(i.saturating_mul(length)).min(high);
                let end = begin.saturating_add(length).min(high);
                ((i * size / aggregators) as u32, begin, end)
            })
            .collect();
        Plan {
            domains,
            window,
            rounds: (length as u64).div_ceil(window as u64) as i64,
        }
    }

    /// Returns the end of a window of a domain.
    fn limit(&self, domain: (u32, i64, i64), round: i64) -> i64 {
        let (_, begin, end) = domain;
        begin
            .saturating_add((round + 1).saturating_mul(self.window))
            .min(end)
    }
}

/// A rank's part of one domain.
#[derive(Default)]
struct Share {
    /// The extents.
    runs: Runs,
    /// Packed bytes of the access for each window that has some: (round, first, bytes).
    windows: VecDeque<(i64, u64, u64)>,
}

/// Cuts an access into domains and windows.
fn shares(plan: &Plan, access: &Access) -> Result<Vec<Share>> {
    let mut clip = Clip::new(access.extents()?);
    let mut packed = 0;
    let mut all = Vec::with_capacity(plan.domains.len());
    for &domain in &plan.domains {
        let mut share = Share::default();
        let (_, begin, end) = domain;
        while let Some(offset) = clip.next_offset().filter(|&offset| offset < end) {
            let round = (offset - begin) / plan.window;
            let first = packed;
            while let Some(run) = clip.take(plan.limit(domain, round)) {
                packed += run.bytes();
                share.runs.push(run);
            }
            share.windows.push_back((round, first, packed - first));
        }
        all.push(share);
    }
    Ok(all)
}

/// The two phases. Returns what went wrong here, and the bytes of this rank that were moved.
async fn exchange(
    io: &Io,
    port: &Port,
    tags: Tags,
    plan: &Plan,
    access: Option<&Access>,
    write: bool,
) -> (Result<()>, u64) {
    let mut failed = Ok(());
    let mut shares = match access.map(|access| shares(plan, access)) {
        Some(Ok(shares)) => shares,
        Some(Err(error)) => {
            failed = Err(error);
            Vec::new()
        }
        None => Vec::new(),
    };
    shares.resize_with(plan.domains.len(), Share::default);
    let sources = tell(io, port, tags, plan, &mut shares).await;
    let domain = (plan.domains.iter()).find(|domain| domain.0 == io.file.comm.rank);
    let aggregator = domain.map(|&(_, begin, end)| Aggregator::new((begin, end), sources));
    let nowhere = Data::bytes(Mem::empty(), 0);
    let data = access.map_or(&nowhere, |access| &access.data);
    let mut rounds = Rounds {
        io,
        port,
        tag: tags.data,
        plan,
        data,
        aggregator,
    };
    let mut moved = 0;
    for round in 0..plan.rounds {
        let own = own_parts(plan, &mut shares, round);
        let done = if write {
            rounds.write(round, own).await
        } else {
            // Nothing comes from behind the file's end, so what comes is what lies before it.
            let (done, got) = rounds.read(round, own).await;
            moved += got;
            done
        };
        if failed.is_ok() {
            failed = done;
        }
    }
    (failed, if write { data.size() } else { moved })
}

/// Sends every aggregator the extents of its domain. Returns those of all ranks for this rank's
/// domain.
async fn tell(
    io: &Io,
    port: &Port,
    tags: Tags,
    plan: &Plan,
    shares: &mut [Share],
) -> Vec<(u32, Runs)> {
    let me = io.file.comm.rank;
    let mut lengths = vec![0; io.file.comm.size() as usize];
    let mut sends = Vec::new();
    let mut sources = Vec::new();
    let mut encoded = Vec::new();
    for (&(rank, ..), share) in plan.domains.iter().zip(shares) {
        let runs = std::mem::take(&mut share.runs);
        if rank == me {
            if !share.windows.is_empty() {
                sources.push((me, runs));
            }
            continue;
        }
        let bytes = runs.encode();
        lengths[rank as usize] = bytes.len() as i64;
        encoded.push((rank, bytes));
    }
    let lengths = io.exchange(port, tags.collectives[1], &lengths).await;
    for (rank, bytes) in encoded.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let length = bytes.len() as u64;
        let data = Data::bytes(Mem::from_vec(bytes), length);
        sends.push(io.send(port, data, rank, tags.extents));
    }
    let mut receives = Vec::new();
    for (rank, &length) in lengths
        .iter()
        .enumerate()
        .filter(|(_, length)| **length > 0)
    {
        let mem = Mem::owned(length as usize);
        let data = Data::bytes(mem.clone(), length as u64);
        receives.push((
            rank as u32,
            mem,
            io.receive(port, data, rank as u32, tags.extents),
        ));
    }
    for (rank, mem, receive) in receives {
        let length = receive.await.bytes as usize;
        sources.push((rank, mem.with_bytes(0, length, Runs::decode)));
    }
    for send in sends {
        send.await;
    }
    // Where ranks write the same bytes, those of the last one stay.
    sources.sort_by_key(|source| source.0);
    sources
}

/// This rank's packed bytes for the windows of a round: (aggregator, first, bytes).
fn own_parts(plan: &Plan, shares: &mut [Share], round: i64) -> Vec<(u32, u64, u64)> {
    let mut parts = Vec::new();
    for (&(rank, ..), share) in plan.domains.iter().zip(shares) {
        if let Some(&(next, first, bytes)) = share.windows.front()
            && next == round
        {
            share.windows.pop_front();
            parts.push((rank, first, bytes));
        }
    }
    parts
}

/// What the rounds of an exchange work with.
struct Rounds<'a> {
    io: &'a Io,
    port: &'a Port,
    tag: u32,
    plan: &'a Plan,
    data: &'a Data,
    aggregator: Option<Aggregator>,
}

impl Rounds<'_> {
    /// Everybody's data of one window of each domain goes to the aggregators, which write it.
    async fn write(&mut self, round: i64, own: Vec<(u32, u64, u64)>) -> Result<()> {
        let (io, port, tag) = (self.io, self.port, self.tag);
        let me = io.file.comm.rank;
        let mut parts = Vec::new();
        if let Some(aggregator) = &mut self.aggregator {
            aggregator.open(self.plan.window, round);
            for (rank, bytes) in aggregator.amounts() {
                let mem = Mem::owned(if rank == me { 0 } else { bytes as usize });
                let data = Data::bytes(mem.clone(), bytes);
                let receive = (rank != me).then(|| io.receive(port, data, rank, tag));
                parts.push((rank, bytes, mem, receive));
            }
        }
        let mut sends = Vec::new();
        let mut local = None;
        for (rank, first, bytes) in own {
            let part = self.data.range(first, bytes);
            if rank == me {
                local = Some(part);
            } else {
                sends.push(io.send(port, part, rank, tag));
            }
        }
        let mut result = Ok(());
        if let Some(aggregator) = &mut self.aggregator {
            for (rank, bytes, mem, receive) in parts {
                let packed = match (receive, &local) {
                    (Some(receive), _) => {
                        receive.await;
                        Data::bytes(mem, bytes)
                    }
                    (None, Some(local)) => local.clone(),
                    (None, None) => continue,
                };
                aggregator.put(rank, &packed);
            }
            result = aggregator.write(&*io.file.storage);
        }
        for send in sends {
            send.await;
        }
        result
    }

    /// The aggregators read one window of each domain and send everybody what it asked for, as far
    /// as the file goes. Returns the bytes that this rank got, too.
    async fn read(&mut self, round: i64, own: Vec<(u32, u64, u64)>) -> (Result<()>, u64) {
        let (io, port, tag) = (self.io, self.port, self.tag);
        let me = io.file.comm.rank;
        let mut local = None;
        let mut receives = Vec::new();
        for (rank, first, bytes) in own {
            let part = self.data.range(first, bytes);
            if rank == me {
                local = Some(part);
            } else {
                receives.push(io.receive(port, part, rank, tag));
            }
        }
        let mut result = Ok(());
        let mut sends = Vec::new();
        let mut own_bytes = 0;
        if let Some(aggregator) = &mut self.aggregator {
            aggregator.open(self.plan.window, round);
            result = aggregator.read(&*io.file.storage);
            for (rank, packed) in aggregator.get() {
                match (&local, rank == me) {
                    (Some(local), true) => {
                        own_bytes = packed.size();
                        copy(&packed, &local.range(0, own_bytes));
                    }
                    _ => sends.push(io.send(port, packed, rank, tag)),
                }
            }
        }
        let mut got = own_bytes;
        for receive in receives {
            got += receive.await.bytes;
        }
        for send in sends {
            send.await;
        }
        (result, got)
    }
}
