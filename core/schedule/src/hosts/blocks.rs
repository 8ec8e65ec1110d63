//! Operations with a block for each rank, where hosts have equally many ranks that follow each
//! other: between two hosts there are few long messages instead of one for each pair of ranks.

use super::{Hosts, LATER, Parts};
use crate::allgather::allgatherv;
use crate::alltoall::alltoall;
use crate::args::{Block, Part};
use crate::bcast::bcast;
use crate::builder::Id;
use crate::gather::{gather, gatherv, scatter};
use crate::schedule::{Buffer, Region, Schedule, Step, Temp};
use crate::tuning::Tuning;

/// `ranks` of such blocks, in a temporary of bytes.
fn bytes_of(block: u64, ranks: u32) -> Block {
    let bytes = block * u64::from(ranks);
    Block {
        count: bytes as i64,
        bytes,
    }
}

/// The same place of a temporary of bytes, in which an element is a byte.
fn in_bytes(temp: Buffer, region: Region) -> Region {
    Region::slice(temp, region.skip + region.start as u64, region.bytes)
}

/// As [`gather`](crate::gather): the root's counterpart on each host collects the blocks of its
/// host.
pub fn hosts_gather(
    rank: u32,
    hosts: &Hosts,
    root: u32,
    (send, recv): (Block, Block),
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let (heads, between, head) = hosts.heads(rank, root);
    let mut parts = Parts::default();
    if local.rank != head {
        let part = gather(local, head, send, Block::default(), false, tuning);
        parts.add(&part, members, 0, &[], |region| region);
        return parts.finish();
    }
    if rank != root {
        let all = bytes_of(send.bytes, local.size);
        let temp = parts.bytes(all.bytes);
        let own = bytes_of(send.bytes, 1);
        let part = gather(local, head, send, own, false, tuning);
        let done = parts.add(&part, members, 0, &[], |region| match region.buffer {
            Buffer::Recv => in_bytes(temp, region),
            _ => region,
        });
        let to = hosts.host(root);
        let part = gather(between, to, all, Block::default(), false, tuning);
        parts.add(&part, &heads, 0, &done, |region| in_bytes(temp, region));
        return parts.finish();
    }
    let first = i64::from(members[0]) * recv.count;
    let part = gather(local, head, send, recv, in_place, tuning);
    let done = parts.add(&part, members, 0, &[], |region| match region.buffer {
        Buffer::Recv => Region {
            start: region.start + first,
            ..region
        },
        _ => region,
    });
    let all = recv.of(local.size);
    let part = gather(between, between.rank, all, all, true, tuning);
    parts.add(&part, &heads, 0, &done, |region| region);
    parts.finish()
}

/// As [`allgatherv`](crate::allgatherv), where the ranks of each host follow each other. The blocks
/// go packed, because where they are to lie is a matter of each rank.
pub fn hosts_allgatherv(
    rank: u32,
    hosts: &Hosts,
    recv: &[Part],
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let mut parts = Parts::default();
    let mut total = 0;
    let packed: Vec<Part> = (recv.iter())
        .map(|part| {
            let start = total as i64;
            total += part.bytes;
            Part { start, ..*part }
        })
        .collect();
    let temp = parts.bytes(total);
    let of = |host: u32| {
        let ranks = hosts
            .members(host)
            .iter()
            .map(|&rank| packed[rank as usize]);
        let bytes = ranks.clone().map(|part| part.bytes).sum();
        let start = ranks.map(|part| part.start).min().unwrap_or_default();
        Part { start, bytes }
    };
    let own = recv[rank as usize];
    let mine: Vec<Part> = members.iter().map(|&rank| packed[rank as usize]).collect();
    let part = gatherv(local, 0, own.bytes, &mine, false);
    let mut done = parts.add(&part, members, 0, &[], |region| match region.buffer {
        Buffer::Recv => in_bytes(temp, region),
        _ if in_place => own.region(Buffer::Recv),
        _ => region,
    });
    if local.rank == 0 {
        let all: Vec<Part> = (0..hosts.count()).map(of).collect();
        let part = allgatherv(hosts.across(rank), &all, true, tuning);
        let heads = hosts.representatives(0);
        done = parts.add(&part, &heads, 0, &done, |region| in_bytes(temp, region));
    }
    let part = bcast(local, 0, total, tuning);
    done = parts.add(&part, members, LATER, &done, |region| {
        in_bytes(temp, region)
    });
    for (from, to) in packed.iter().zip(recv) {
        let from = Region::slice(temp, from.start as u64, from.bytes);
        parts.copy(from, to.region(Buffer::Recv), &done);
    }
    parts.finish()
}

/// As [`scatter`](crate::scatter): one rank of each host gets the blocks of its host.
pub fn hosts_scatter(
    rank: u32,
    hosts: &Hosts,
    root: u32,
    (send, recv): (Block, Block),
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let (heads, between, head) = hosts.heads(rank, root);
    let mut parts = Parts::default();
    if local.rank != head {
        let part = scatter(local, head, Block::default(), recv, false, tuning);
        parts.add(&part, members, 0, &[], |region| region);
        return parts.finish();
    }
    if rank != root {
        let all = bytes_of(recv.bytes, local.size);
        let temp = parts.bytes(all.bytes);
        let from = hosts.host(root);
        let part = scatter(between, from, Block::default(), all, false, tuning);
        let done = parts.add(&part, &heads, 0, &[], |region| in_bytes(temp, region));
        let own = bytes_of(recv.bytes, 1);
        let part = scatter(local, head, own, recv, false, tuning);
        parts.add(&part, members, 0, &done, |region| match region.buffer {
            Buffer::Send => in_bytes(temp, region),
            _ => region,
        });
        return parts.finish();
    }
    let all = send.of(local.size);
    let part = scatter(between, between.rank, all, all, true, tuning);
    parts.add(&part, &heads, 0, &[], |region| region);
    let first = i64::from(members[0]) * send.count;
    let part = scatter(local, head, send, recv, in_place, tuning);
    parts.add(&part, members, 0, &[], |region| match region.buffer {
        Buffer::Send => Region {
            start: region.start + first,
            ..region
        },
        _ => region,
    });
    parts.finish()
}

/// As [`alltoall`](crate::alltoall): within its host each rank gets what is for its counterparts on
/// all hosts, and exchanges that with them. All ranks send equally many messages: one to each other
/// rank of the host, and one to each other host.
pub fn hosts_alltoall(
    rank: u32,
    hosts: &Hosts,
    (send, recv): (Block, Block),
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let between = hosts.across(rank);
    let (ranks, count, bytes) = (local.size, between.size, recv.bytes);
    let mut parts = Parts::default();
    let own = match in_place {
        true => (Buffer::Recv, recv.count),
        false => (Buffer::Send, send.count),
    };
    let (outgoing, met) = (
        parts.bytes(bytes * u64::from(ranks * count)),
        parts.bytes(bytes * u64::from(ranks * count)),
    );
    let block = |temp: Buffer, number: u32| Region::slice(temp, u64::from(number) * bytes, bytes);
    // One copy after the other, so that the last one stands for all.
    let mut moved = Vec::new();
    for (host, other) in (0..count).flat_map(|host| (0..ranks).map(move |other| (host, other))) {
        let to = hosts.members(host)[other as usize];
        let from = Region::at(own.0, i64::from(to) * own.1, bytes);
        moved = parts.copy(from, block(outgoing, other * count + host), &moved);
    }
    let row = bytes_of(bytes, count);
    let part = alltoall(local, row, row, false, tuning);
    let mut moved = parts.add(&part, members, 0, &moved, |region| match region.buffer {
        Buffer::Recv => in_bytes(met, region),
        _ => in_bytes(outgoing, region),
    });
    for (host, other) in (0..count).flat_map(|host| (0..ranks).map(move |other| (host, other))) {
        let from = block(met, other * count + host);
        moved = parts.copy(from, block(outgoing, host * ranks + other), &moved);
    }
    let all = bytes_of(bytes, ranks);
    let part = alltoall(between, all, all, false, tuning);
    let counterparts = hosts.counterparts(rank);
    parts.add(&part, &counterparts, 0, &moved, |region| {
        match region.buffer {
            // Whole hosts, each of `all.count`.
            Buffer::Recv => Region {
                start: region.start / all.count.max(1) * i64::from(ranks) * recv.count,
                ..region
            },
            _ => in_bytes(outgoing, region),
        }
    });
    parts.finish()
}

impl Hosts {
    /// Whether the blocks of an all-to-all go host by host: the ranks of each host follow each
    /// other, all hosts have equally many, and moving the blocks within the hosts costs less than
    /// the messages that it saves. The same on all ranks.
    pub fn exchange_blocks(&self, bytes: u64, tuning: &Tuning) -> bool {
        let of_a_host = self.members(0).len() as u64 * bytes;
        self.is_blocked() && self.is_even() && of_a_host <= tuning.hosts_blocks
    }

    /// The same of a gather and a scatter. Short blocks go along a tree of all ranks, which nobody
    /// waits for but those on the way.
    pub fn collect_blocks(&self, bytes: u64, tuning: &Tuning) -> bool {
        bytes > tuning.gather_tree && self.exchange_blocks(bytes, tuning)
    }
}

impl Block {
    /// The blocks of `ranks` that follow each other.
    pub(crate) fn of(self, ranks: u32) -> Block {
        Block {
            count: self.count * i64::from(ranks),
            bytes: self.bytes * u64::from(ranks),
        }
    }
}

impl Parts {
    fn bytes(&mut self, bytes: u64) -> Buffer {
        self.temps.push(Temp::Bytes(bytes));
        Buffer::Temp(self.temps.len() as u32 - 1)
    }

    /// A copy; returns what waits for it and for all before it.
    pub(super) fn copy(&mut self, from: Region, to: Region, after: &[Id]) -> Vec<Id> {
        match from.bytes {
            0 => after.to_vec(),
            _ => self.then(Step::Copy { from, to }, after),
        }
    }

    /// A step behind those; returns what waits for it.
    pub(super) fn then(&mut self, step: Step, after: &[Id]) -> Vec<Id> {
        let id = self.steps.len() as Id;
        self.steps.push(step);
        self.edges.extend(after.iter().map(|&before| (before, id)));
        vec![id]
    }
}
