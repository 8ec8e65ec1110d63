//! All-gather.

use crate::args::{Block, Part, Ranks};
use crate::bcast::{ring_tag, windowed};
use crate::builder::{Builder, Id};
use crate::exchange::exchange;
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// `MPI_Allgather`. `recv` is one process's block in the receive buffer; what is sent has equally
/// many bytes.
pub fn allgather(ranks: Ranks, recv: Block, in_place: bool, tuning: &Tuning) -> Schedule {
    let blocks = |first: u32, n: u32| {
        Region::at(
            Buffer::Recv,
            i64::from(first) * recv.count,
            u64::from(n) * recv.bytes,
        )
    };
    let total = recv.bytes * u64::from(ranks.size);
    let mut b = Builder::default();
    if total <= tuning.allgather_short && ranks.size.is_power_of_two() {
        recursive_doubling(&mut b, ranks, blocks, in_place);
        return b.finish();
    }
    if total <= tuning.allgather_short {
        let sizes = vec![recv.bytes; ranks.size as usize];
        bruck(&mut b, ranks, &sizes, blocks, in_place, true);
    } else {
        long(&mut b, ranks, blocks, in_place, tuning);
    }
    b.finish()
}

/// `MPI_Allgatherv`. `recv` has a part for each rank; what is sent has as many bytes as this rank's
/// part.
pub fn allgatherv(ranks: Ranks, recv: &[Part], in_place: bool, tuning: &Tuning) -> Schedule {
    let sizes: Vec<u64> = recv.iter().map(|part| part.bytes).collect();
    // Parts may lie anywhere, so only one at a time is a region.
    let blocks = |first: u32, _: u32| recv[first as usize].region(Buffer::Recv);
    let total: u64 = sizes.iter().sum();
    let mut b = Builder::default();
    if total <= tuning.allgather_short && ranks.size > 2 {
        bruck(&mut b, ranks, &sizes, blocks, in_place, false);
    } else {
        long(&mut b, ranks, blocks, in_place, tuning);
    }
    b.finish()
}

/// Copies this rank's block to its place.
fn place_own(b: &mut Builder, own: Region, in_place: bool) -> Option<Id> {
    if in_place {
        None
    } else {
        b.copy(Region::at(Buffer::Send, 0, own.bytes), own, &[])
    }
}

/// In round `k` neighbouring groups of `2^k` exchange all they have, in place.
fn recursive_doubling(
    b: &mut Builder,
    ranks: Ranks,
    blocks: impl Fn(u32, u32) -> Region,
    in_place: bool,
) {
    let mut have = vec![place_own(b, blocks(ranks.rank, 1), in_place)];
    let (mut group, mut tag) = (1, 0);
    while group < ranks.size {
        let first = |rank: u32| rank & !(group - 1);
        let partner = ranks.rank ^ group;
        let came = b.recv(
            Peer::Local(partner),
            tag,
            blocks(first(partner), group),
            &[],
        );
        b.send(
            Peer::Local(partner),
            tag,
            blocks(first(ranks.rank), group),
            &have,
        );
        have.push(came);
        group *= 2;
        tag += 1;
    }
}

/// In round `k` a process sends the up to `2^k` blocks that it has, its own first, to the one `2^k`
/// before it (Bruck et al., "Efficient algorithms for all-to-all communications in multiport
/// message-passing systems", 1997). `adjacent`: blocks of consecutive ranks make one region.
fn bruck(
    b: &mut Builder,
    ranks: Ranks,
    sizes: &[u64],
    blocks: impl Fn(u32, u32) -> Region,
    in_place: bool,
    adjacent: bool,
) {
    let Ranks { rank, size } = ranks;
    // Offsets in the temporary, where this rank's block is first and that of the rank before it
    // last.
    let mut offsets = vec![0];
    for i in 0..size {
        offsets.push(offsets[i as usize] + sizes[((rank + i) % size) as usize]);
    }
    let slice = |temp: Buffer, from: u32, to: u32| {
        let (start, end) = (offsets[from as usize], offsets[to as usize]);
        Region::slice(temp, start, end - start)
    };
    let temp = b.temp_bytes(offsets[size as usize]);
    let own = if in_place {
        blocks(rank, 1)
    } else {
        Region::at(Buffer::Send, 0, sizes[rank as usize])
    };
    let mut have = vec![b.copy(own, slice(temp, 0, 1), &[])];
    let (mut distance, mut tag) = (1, 0);
    while distance < size {
        let n = distance.min(size - distance);
        let from = Peer::Local((rank + distance) % size);
        let came = b.recv(from, tag, slice(temp, distance, distance + n), &[]);
        b.send(
            Peer::Local((rank + size - distance) % size),
            tag,
            slice(temp, 0, n),
            &have,
        );
        have.push(came);
        distance *= 2;
        tag += 1;
    }
    if adjacent {
        b.copy(
            slice(temp, 0, size - rank),
            blocks(rank, size - rank),
            &have,
        );
        b.copy(slice(temp, size - rank, size), blocks(0, rank), &have);
        return;
    }
    for i in 0..size {
        // What round k brings is complete without the later rounds.
        let round = if i == 0 { 0 } else { i.ilog2() as usize + 1 };
        b.copy(
            slice(temp, i, i + 1),
            blocks((rank + i) % size, 1),
            &[have[round]],
        );
    }
}

/// Each block goes to all directly, or round the ring; in place.
fn long(
    b: &mut Builder,
    ranks: Ranks,
    blocks: impl Fn(u32, u32) -> Region,
    in_place: bool,
    tuning: &Tuning,
) {
    if ranks.size > tuning.direct_ranks {
        return ring(b, ranks, blocks, in_place, tuning);
    }
    let place = blocks(ranks.rank, 1);
    place_own(b, place, in_place);
    let own = if in_place {
        place
    } else {
        Region::at(Buffer::Send, 0, place.bytes)
    };
    exchange(
        b,
        ranks,
        0,
        tuning.window,
        |_| own,
        &[],
        |peer| blocks(peer, 1),
        |_| None,
    );
}

fn ring(
    b: &mut Builder,
    ranks: Ranks,
    blocks: impl Fn(u32, u32) -> Region,
    in_place: bool,
    tuning: &Tuning,
) {
    let Ranks { rank, size } = ranks;
    let (left, right) = (
        Peer::Local((rank + size - 1) % size),
        Peer::Local((rank + 1) % size),
    );
    let mut came = place_own(b, blocks(rank, 1), in_place);
    let mut sent = vec![];
    for step in 0..size - 1 {
        let tag = ring_tag(0, step);
        let next = b.recv(left, tag, blocks((rank + size - step - 1) % size, 1), &[]);
        let wait = [came, windowed(&sent, tuning.window)];
        sent.push(b.send(right, tag, blocks((rank + size - step) % size, 1), &wait));
        came = next;
    }
}
