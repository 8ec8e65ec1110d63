//! Reductions of which each rank gets a part of its own. The ranks of each host follow each other.

use super::{Hosts, LATER, Parts};
use crate::args::{Part, Reduction};
use crate::bcast::bcast;
use crate::builder::Id;
use crate::gather::scatterv;
use crate::reduce::reduce;
use crate::reduce_scatter::reduce_scatter;
use crate::scan::{exscan, scan};
use crate::schedule::{Buffer, Region, Schedule, Step};
use crate::tuning::Tuning;

/// The same place of another buffer.
fn into(buffer: Buffer, region: Region) -> Region {
    Region { buffer, ..region }
}

/// As [`reduce_scatter`](crate::reduce_scatter). One rank of each host combines the operands of its
/// host, and deals out what comes of all; long ones are dealt out among the ranks of a host first,
/// so that all of them send and receive.
pub fn hosts_reduce_scatter(
    rank: u32,
    hosts: &Hosts,
    counts: &[u64],
    (size, commutative): (u64, bool),
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let between = hosts.across(rank);
    let mut parts = Parts::default();
    let input = if in_place { Buffer::Recv } else { Buffer::Send };
    let what = Reduction {
        count: counts.iter().sum(),
        size,
        commutative,
    };
    let of = |host: u32| {
        hosts
            .members(host)
            .iter()
            .map(|&rank| counts[rank as usize])
    };
    if what.bytes() >= tuning.allreduce_long && hosts.is_even() && local.size > 1 {
        return dealt_out(rank, hosts, counts, (what, input), tuning);
    }
    let sum = match local.rank {
        0 => parts.elements(what.count),
        _ => Buffer::Recv,
    };
    let part = reduce(local, 0, what, false, tuning);
    let mut done = parts.add(&part, members, 0, &[], |region| match region.buffer {
        Buffer::Send => into(input, region),
        _ => into(sum, region),
    });
    let mut dealt = (Vec::new(), Buffer::Send);
    if local.rank == 0 {
        let of_hosts: Vec<u64> = (0..hosts.count()).map(|host| of(host).sum()).collect();
        let all = parts.elements(of_hosts[between.rank as usize]);
        let part = reduce_scatter(between, &of_hosts, size, commutative, false, tuning);
        let heads = hosts.representatives(0);
        done = parts.add(&part, &heads, 0, &done, |region| match region.buffer {
            Buffer::Send => into(sum, region),
            _ => into(all, region),
        });
        let mut start = 0;
        let own = of(between.rank).map(|count| {
            let part = Part {
                start,
                bytes: count * size,
            };
            start += count as i64;
            part
        });
        dealt = (own.collect(), all);
    }
    let (own, all) = dealt;
    let part = scatterv(local, 0, &own, counts[rank as usize] * size, false);
    parts.add(&part, members, LATER, &done, |region| match region.buffer {
        Buffer::Send => into(all, region),
        _ => region,
    });
    parts.finish()
}

fn dealt_out(
    rank: u32,
    hosts: &Hosts,
    counts: &[u64],
    (what, input): (Reduction, Buffer),
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let between = hosts.across(rank);
    let (size, commutative) = (what.size, what.commutative);
    let mut parts = Parts::default();
    let of_place =
        |place: u32| (0..hosts.count()).map(move |host| hosts.members(host)[place as usize]);
    let count_of = |rank: u32| counts[rank as usize];
    let starts: Vec<u64> = (counts.iter())
        .scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        })
        .collect();
    let sorted = parts.elements(what.count);
    let mut at = 0;
    let mut moved = Vec::new();
    for other in (0..local.size).flat_map(of_place) {
        let count = count_of(other);
        let from = Region::elements(input, starts[other as usize], count, size);
        moved = parts.copy(from, Region::elements(sorted, at, count, size), &moved);
        at += count;
    }
    let sums: Vec<u64> = (0..local.size)
        .map(|place| of_place(place).map(count_of).sum())
        .collect();
    let sum = parts.elements(sums[local.rank as usize]);
    let part = reduce_scatter(local, &sums, size, commutative, false, tuning);
    let done = parts.add(&part, members, 0, &moved, |region| match region.buffer {
        Buffer::Send => into(sorted, region),
        _ => into(sum, region),
    });
    let own: Vec<u64> = of_place(local.rank).map(count_of).collect();
    let part = reduce_scatter(between, &own, size, commutative, false, tuning);
    let counterparts = hosts.counterparts(rank);
    parts.add(&part, &counterparts, 0, &done, |region| {
        match region.buffer {
            Buffer::Send => into(sum, region),
            _ => region,
        }
    });
    parts.finish()
}

/// As [`scan`](crate::scan), and with `excludes` as [`exscan`](crate::exscan). The last rank of
/// each host learns what the hosts before amount to, and its host from it.
pub fn hosts_scan(
    rank: u32,
    hosts: &Hosts,
    what: Reduction,
    (in_place, excludes): (bool, bool),
    tuning: &Tuning,
) -> Schedule {
    let (members, local) = hosts.local(rank);
    let between = hosts.across(rank);
    let mut parts = Parts::default();
    let whole = |buffer: Buffer| Region::at(buffer, 0, what.bytes());
    let is_last = local.rank + 1 == local.size;
    let mut done = Vec::new();
    let mut sum = Buffer::Recv;
    if excludes && is_last {
        sum = parts.elements(what.count);
        let input = if in_place { Buffer::Recv } else { Buffer::Send };
        done = parts.copy(whole(input), whole(sum), &done);
    }
    let part = match excludes {
        true => exscan(local, what, in_place, tuning),
        false => scan(local, what, in_place, tuning),
    };
    done = parts.add(&part, members, 0, &done, |region| region);
    let before = parts.elements(what.count);
    if is_last {
        if excludes && local.size > 1 {
            done = parts.combine(whole(Buffer::Recv), whole(sum), what.count, &done);
        }
        let part = exscan(between, what, false, tuning);
        let last = |host| hosts.members(host).last().copied().unwrap_or_default();
        let lasts: Vec<u32> = (0..hosts.count()).map(last).collect();
        done = parts.add(&part, &lasts, 0, &done, |region| match region.buffer {
            Buffer::Send => into(sum, region),
            _ => into(before, region),
        });
    }
    if between.rank == 0 {
        return parts.finish();
    }
    let part = bcast(local, local.size - 1, what.bytes(), tuning);
    done = parts.add(&part, members, LATER, &done, |region| into(before, region));
    match excludes && local.rank == 0 {
        true => parts.copy(whole(before), whole(Buffer::Recv), &done),
        false => parts.combine(whole(before), whole(Buffer::Recv), what.count, &done),
    };
    parts.finish()
}

impl Parts {
    /// `right = left op right`; returns what waits for it and for all before it.
    fn combine(&mut self, left: Region, right: Region, count: u64, after: &[Id]) -> Vec<Id> {
        if count == 0 {
            return after.to_vec();
        }
        let out = right;
        self.then(
            Step::Combine {
                left,
                right,
                out,
                count,
            },
            after,
        )
    }
}
