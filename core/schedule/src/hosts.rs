//! Collectives of processes on several hosts: within each host first, then between one process of
//! each, then within each again, so that what goes from host to host goes once.
//!
//! Each part is a schedule of its own among some of the processes; [`Parts`] puts them together.
//! Reductions combine the ranks of a host first and then the hosts, in the order of their lowest
//! ranks. That is rank order where the ranks of each host follow each other; elsewhere, operations
//! that do not commute are not divided.

mod blocks;
mod parts_of_sums;

pub use blocks::{hosts_allgatherv, hosts_alltoall, hosts_gather, hosts_scatter};
pub use parts_of_sums::{hosts_reduce_scatter, hosts_scan};

use crate::allgather::{allgather, allgatherv};
use crate::allreduce::allreduce;
use crate::args::{Block, Part, Ranks, Reduction};
use crate::bcast::{barrier, bcast, ring_tag};
use crate::builder::{Builder, Id};
use crate::gather::gather;
use crate::reduce::{reduce, slice};
use crate::reduce_scatter::reduce_scatter;
use crate::schedule::{Buffer, Peer, Region, Schedule, Step, TAGS, Temp};
use crate::tuning::Tuning;

/// Tags of a part behind another one of the same processes begin here.
const LATER: u32 = TAGS / 2;

/// Which ranks are on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// The host of each rank, and its number among the ranks of the host.
    places: Box<[(u32, u32)]>,
    /// The ranks of each host, ascending; hosts in the order of their lowest ranks.
    members: Box<[Box<[u32]>]>,
}

impl Hosts {
    /// From a number for each rank that the ranks of a host have in common. None where there is
    /// nothing to divide: all ranks are on one host, or each has one for itself.
    pub fn new(numbers: impl IntoIterator<Item = u32>) -> Option<Hosts> {
        let mut known: Vec<u32> = Vec::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let mut places = Vec::new();
        for (rank, number) in (0..).zip(numbers) {
            // Mostly the host of the rank before, or the next one of a few.
            let last = places.last().map_or(0, |&(host, _)| host as usize);
            let host = match known.get(last) == Some(&number) {
                true => last,
                false => known.iter().position(|&k| k == number).unwrap_or_else(|| {
                    known.push(number);
                    members.push(Vec::new());
                    known.len() - 1
                }),
            };
            places.push((host as u32, members[host].len() as u32));
            members[host].push(rank);
        }
        let is_divided = members.len() > 1 && members.len() < places.len();
        is_divided.then(|| Hosts {
            places: places.into(),
            members: members.into_iter().map(Vec::into).collect(),
        })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.members.len() as u32
    }

    /// The host of a rank.
    pub fn host(&self, rank: u32) -> u32 {
        self.places[rank as usize].0
    }

    /// The number of a rank among those of its host.
    pub fn place(&self, rank: u32) -> u32 {
        self.places[rank as usize].1
    }

    /// The ranks of a host, ascending.
    pub fn members(&self, host: u32) -> &[u32] {
        &self.members[host as usize]
    }

    /// Whether the ranks of each host follow each other.
    pub fn is_blocked(&self) -> bool {
        let follow = |ranks: &[u32]| ranks.windows(2).all(|two| two[0] + 1 == two[1]);
        self.members.iter().all(|ranks| follow(ranks))
    }

    /// Whether all hosts have equally many ranks.
    pub fn is_even(&self) -> bool {
        let len = self.members[0].len();
        self.members.iter().all(|ranks| ranks.len() == len)
    }

    /// One rank of each host: the lowest, on the host of `root` that one.
    pub fn representatives(&self, root: u32) -> Vec<u32> {
        let hosts = self.members.iter().zip(0..);
        hosts
            .map(|(ranks, host)| match host == self.host(root) {
                true => root,
                false => ranks[0],
            })
            .collect()
    }

    /// The ranks with the same number on their hosts, where all hosts have equally many.
    pub fn counterparts(&self, rank: u32) -> Vec<u32> {
        let place = self.place(rank) as usize;
        self.members.iter().map(|ranks| ranks[place]).collect()
    }

    /// Whether a reduction may combine the ranks of each host first.
    pub fn may_reduce(&self, commutative: bool) -> bool {
        commutative || self.is_blocked()
    }

    fn local(&self, rank: u32) -> (&[u32], Ranks) {
        let members = self.members(self.host(rank));
        let ranks = Ranks {
            rank: self.place(rank),
            size: members.len() as u32,
        };
        (members, ranks)
    }

    /// The [representatives](Self::representatives) of the hosts, the place of `rank`'s host among
    /// them, and the number on that host of the one that speaks for it.
    fn heads(&self, rank: u32, root: u32) -> (Vec<u32>, Ranks, u32) {
        let heads = self.representatives(root);
        let between = self.across(rank);
        let head = self.place(heads[between.rank as usize]);
        (heads, between, head)
    }

    fn across(&self, rank: u32) -> Ranks {
        Ranks {
            rank: self.host(rank),
            size: self.count(),
        }
    }
}

/// A schedule that is put together from schedules among some of the processes.
#[derive(Default)]
struct Parts {
    steps: Vec<Step>,
    edges: Vec<(Id, Id)>,
    temps: Vec<Temp>,
}

impl Parts {
    fn elements(&mut self, count: u64) -> Buffer {
        self.temps.push(Temp::Elements(count));
        Buffer::Temp(self.temps.len() as u32 - 1)
    }

    /// Adds a schedule of `members`, whose tags begin at `tag` and whose steps wait for `after`;
    /// `place` says where its user buffers are. Returns the steps that end it.
    fn add(
        &mut self,
        part: &Schedule,
        members: &[u32],
        tag: u32,
        after: &[Id],
        place: impl Fn(Region) -> Region,
    ) -> Vec<Id> {
        let first = self.steps.len() as Id;
        let temps = self.temps.len() as u32;
        self.temps.extend_from_slice(part.temps());
        let peer = |peer: Peer| match peer {
            Peer::Local(rank) => Peer::Local(members[rank as usize]),
            remote @ Peer::Remote(_) => remote,
        };
        let region = |region: Region| match region.buffer {
            Buffer::Temp(own) => Region {
                buffer: Buffer::Temp(temps + own),
                ..region
            },
            _ => place(region),
        };
        let mut ends = Vec::new();
        for (step, what) in (0..).zip(part.steps()) {
            self.steps.push(match *what {
                Step::Send {
                    to,
                    tag: own,
                    region: from,
                } => Step::Send {
                    to: peer(to),
                    tag: (tag + own) % TAGS,
                    region: region(from),
                },
                Step::Recv {
                    from,
                    tag: own,
                    region: to,
                } => Step::Recv {
                    from: peer(from),
                    tag: (tag + own) % TAGS,
                    region: region(to),
                },
                Step::Copy { from, to } => Step::Copy {
                    from: region(from),
                    to: region(to),
                },
                Step::Combine {
                    left,
                    right,
                    out,
                    count,
                } => Step::Combine {
                    left: region(left),
                    right: region(right),
                    out: region(out),
                    count,
                },
            });
            let successors = part.successors(step);
            self.edges
                .extend(successors.iter().map(|&to| (first + step, first + to)));
            if successors.is_empty() {
                ends.push(first + step);
            }
            if part.waits(step) == 0 {
                self.edges
                    .extend(after.iter().map(|&before| (before, first + step)));
            }
        }
        if ends.is_empty() {
            ends.extend_from_slice(after);
        }
        ends
    }

    fn finish(self) -> Schedule {
        Schedule::new(self.steps, &self.edges, self.temps)
    }
}

/// As [`barrier`](crate::barrier).
pub fn hosts_barrier(rank: u32, hosts: &Hosts) -> Schedule {
    let (members, local) = hosts.local(rank);
    let mut parts = Parts::default();
    let (mut up, mut down) = (Builder::default(), Builder::default());
    if local.rank > 0 {
        up.signal(Peer::Local(0), 0, &[]);
        down.await_signal(Peer::Local(0), 0, &[]);
    } else {
        for other in 1..local.size {
            up.await_signal(Peer::Local(other), 0, &[]);
            down.signal(Peer::Local(other), 0, &[]);
        }
    }
    let mut done = parts.add(&up.finish(), members, 0, &[], |region| region);
    if local.rank == 0 {
        let leaders = hosts.representatives(0);
        let between = barrier(hosts.across(rank));
        done = parts.add(&between, &leaders, 0, &done, |region| region);
    }
    parts.add(&down.finish(), members, 0, &done, |region| region);
    parts.finish()
}

/// As [`bcast`](crate::bcast). Long data goes from host to host in segments, each of which is
/// passed on within the host while the next one comes.
pub fn hosts_bcast(rank: u32, hosts: &Hosts, root: u32, bytes: u64, tuning: &Tuning) -> Schedule {
    let (members, local) = hosts.local(rank);
    let (heads, between, head) = hosts.heads(rank, root);
    let from = hosts.host(root);
    let mut parts = Parts::default();
    let whole = |region| region;
    if bytes <= 2 * tuning.segment || hosts.count() == 2 && bytes < tuning.bcast_long {
        let mut done = Vec::new();
        if local.rank == head {
            let part = bcast(between, from, bytes, tuning);
            done = parts.add(&part, &heads, 0, &[], whole);
        }
        let part = bcast(local, head, bytes, tuning);
        parts.add(&part, members, 0, &done, whole);
        return parts.finish();
    }
    let mut ends: Vec<Vec<Id>> = Vec::new();
    let window = tuning.window.clamp(1, TAGS / 2) as usize;
    for (number, start) in (0u32..).zip((0..bytes).step_by(tuning.segment.max(1) as usize)) {
        let segment = tuning.segment.max(1).min(bytes - start);
        let place = |region: Region| Region {
            skip: region.skip + start,
            ..region
        };
        let before = (number as usize).checked_sub(window);
        let mut done = before.map_or(Vec::new(), |before| ends[before].clone());
        let tag = ring_tag(0, number);
        if local.rank == head {
            let part = next_in_chain(between, from, segment);
            done = parts.add(&part, &heads, tag, &done, place);
        }
        let part = bcast(local, head, segment, tuning);
        ends.push(parts.add(&part, members, tag, &done, place));
    }
    parts.finish()
}

/// From the host before to the next one, in the order of hosts from that of the root on.
fn next_in_chain(between: Ranks, from: u32, bytes: u64) -> Schedule {
    let Ranks { rank, size } = between;
    let mut b = Builder::default();
    let data = Region::at(Buffer::Recv, 0, bytes);
    let came = match rank == from {
        true => None,
        false => b.recv(Peer::Local((rank + size - 1) % size), 0, data, &[]),
    };
    if (rank + 1) % size != from {
        b.send(Peer::Local((rank + 1) % size), 0, data, &[came]);
    }
    b.finish()
}

/// As [`reduce`](crate::reduce); [`Hosts::may_reduce`] holds.
pub fn hosts_reduce(
    rank: u32,
    hosts: &Hosts,
    root: u32,
    reduction: Reduction,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let (heads, between, head) = hosts.heads(rank, root);
    let mut parts = Parts::default();
    let is_own = in_place && rank == root;
    let within = reduce(local, head, reduction, is_own, tuning);
    if local.rank != head {
        parts.add(&within, members, 0, &[], |region| region);
        return parts.finish();
    }
    // What the host's ranks amount to: at the root where the result goes.
    let sum = match rank == root {
        true => Buffer::Recv,
        false => parts.elements(reduction.count),
    };
    let place = |region: Region| Region {
        buffer: match region.buffer {
            Buffer::Recv => sum,
            other => other,
        },
        ..region
    };
    let done = parts.add(&within, members, 0, &[], place);
    let part = reduce(between, hosts.host(root), reduction, rank == root, tuning);
    parts.add(&part, &heads, 0, &done, |region| Region {
        buffer: sum,
        ..region
    });
    parts.finish()
}

/// As [`allreduce`](crate::allreduce); [`Hosts::may_reduce`] holds. Long data is dealt out among
/// the ranks of each host, so that all of them send and receive.
pub fn hosts_allreduce(
    rank: u32,
    hosts: &Hosts,
    reduction: Reduction,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let between = hosts.across(rank);
    let mut parts = Parts::default();
    let input = if in_place { Buffer::Recv } else { Buffer::Send };
    let sliceable = hosts.is_even() && reduction.count >= u64::from(local.size);
    if reduction.count * reduction.size >= tuning.allreduce_long && sliceable && local.size > 1 {
        let bounds: Vec<u64> = (0..=local.size)
            .map(|i| slice(reduction.count, i, local.size))
            .collect();
        let counts: Vec<u64> = bounds.windows(2).map(|two| two[1] - two[0]).collect();
        let own = Reduction {
            count: counts[local.rank as usize],
            ..reduction
        };
        let start = bounds[local.rank as usize] as i64;
        let sum = parts.elements(own.count);
        let size = reduction.size;
        let part = reduce_scatter(local, &counts, size, reduction.commutative, false, tuning);
        let done = parts.add(&part, members, 0, &[], |region| Region {
            buffer: match region.buffer {
                Buffer::Recv => sum,
                _ => input,
            },
            ..region
        });
        let part = allreduce(between, own, false, tuning);
        let counterparts = hosts.counterparts(rank);
        let done = parts.add(&part, &counterparts, 0, &done, |region| {
            match region.buffer {
                Buffer::Recv => Region {
                    start: region.start + start,
                    ..region
                },
                _ => Region {
                    buffer: sum,
                    ..region
                },
            }
        });
        let shares: Vec<Part> = (bounds.iter().zip(&counts))
            .map(|(&start, &count)| Part {
                start: start as i64,
                bytes: count * size,
            })
            .collect();
        let part = allgatherv(local, &shares, true, tuning);
        parts.add(&part, members, LATER, &done, |region| region);
        return parts.finish();
    }
    let within = reduce(local, 0, reduction, in_place && local.rank == 0, tuning);
    let mut done = parts.add(&within, members, 0, &[], |region| Region {
        buffer: match region.buffer {
            Buffer::Send => input,
            other => other,
        },
        ..region
    });
    if local.rank == 0 {
        let part = allreduce(between, reduction, true, tuning);
        done = parts.add(&part, &hosts.representatives(0), 0, &done, |region| region);
    }
    let part = bcast(local, 0, reduction.count * reduction.size, tuning);
    parts.add(&part, members, LATER, &done, |region| region);
    parts.finish()
}

/// As [`allgather`](crate::allgather), where hosts have equally many ranks that follow each other.
pub fn hosts_allgather(
    rank: u32,
    hosts: &Hosts,
    recv: Block,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let (first, len) = (i64::from(members[0]), local.size);
    let own = i64::from(rank) * recv.count;
    let mut parts = Parts::default();
    let send = Block {
        count: recv.count,
        bytes: recv.bytes,
    };
    let part = gather(local, 0, send, recv, in_place && local.rank == 0, tuning);
    let mut done = parts.add(&part, members, 0, &[], |region| match region.buffer {
        Buffer::Recv => Region {
            start: region.start + first * recv.count,
            ..region
        },
        _ if in_place => Region {
            buffer: Buffer::Recv,
            start: region.start + own,
            ..region
        },
        _ => region,
    });
    if local.rank == 0 {
        let block = Block {
            count: recv.count * i64::from(len),
            bytes: recv.bytes * u64::from(len),
        };
        let part = allgather(hosts.across(rank), block, true, tuning);
        done = parts.add(&part, &hosts.representatives(0), 0, &done, |region| region);
    }
    let total = recv.bytes * u64::from(len) * u64::from(hosts.count());
    let part = bcast(local, 0, total, tuning);
    parts.add(&part, members, LATER, &done, |region| region);
    parts.finish()
}
