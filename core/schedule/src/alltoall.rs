//! All-to-all.

use crate::args::{Block, Part, Ranks};
use crate::builder::{Builder, Id};
use crate::exchange::exchange;
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// `MPI_Alltoall`. Both blocks have equally many bytes; in place, `send` has no meaning.
pub fn alltoall(
    ranks: Ranks,
    send: Block,
    recv: Block,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let bytes = recv.bytes;
    let mut b = Builder::default();
    let (source, count) = if in_place {
        (Buffer::Recv, recv.count)
    } else {
        (Buffer::Send, send.count)
    };
    let from =
        |first: u32, n: u32| Region::at(source, i64::from(first) * count, u64::from(n) * bytes);
    let to = |first: u32, n: u32| {
        Region::at(
            Buffer::Recv,
            i64::from(first) * recv.count,
            u64::from(n) * bytes,
        )
    };
    if bytes <= tuning.alltoall_short && ranks.size >= tuning.alltoall_short_ranks {
        bruck(&mut b, ranks, bytes, from, to);
        return b.finish();
    }
    if !in_place {
        spread(
            &mut b,
            ranks,
            |peer| from(peer, 1),
            |peer| to(peer, 1),
            None,
            tuning,
        );
        return b.finish();
    }
    // Everything is moved out of the way first.
    let temp = b.temp_bytes(bytes * u64::from(ranks.size));
    let saved = b.copy(
        from(0, ranks.size),
        Region::slice(temp, 0, bytes * u64::from(ranks.size)),
        &[],
    );
    let from = |peer: u32| Region::slice(temp, u64::from(peer) * bytes, bytes);
    spread(&mut b, ranks, from, |peer| to(peer, 1), saved, tuning);
    b.finish()
}

/// `MPI_Alltoallv`. A part for each rank; in place, `send` has no meaning.
pub fn alltoallv(
    ranks: Ranks,
    send: &[Part],
    recv: &[Part],
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let from = |peer: u32| send[peer as usize].region(Buffer::Send);
    let to = |peer: u32| recv[peer as usize].region(Buffer::Recv);
    parts(ranks, from, to, in_place, tuning)
}

/// `MPI_Alltoallw`. As [`alltoallv`], with displacements in bytes; part `i` is described by type
/// `i` ([`Buffer::SendOf`], [`Buffer::RecvOf`]).
pub fn alltoallw(
    ranks: Ranks,
    send: &[Part],
    recv: &[Part],
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let from = |peer: u32| send[peer as usize].region(Buffer::SendOf(peer));
    let to = |peer: u32| recv[peer as usize].region(Buffer::RecvOf(peer));
    parts(ranks, from, to, in_place, tuning)
}

fn parts(
    ranks: Ranks,
    from: impl Fn(u32) -> Region,
    to: impl Fn(u32) -> Region,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let mut b = Builder::default();
    if !in_place {
        spread(&mut b, ranks, from, to, None, tuning);
        return b.finish();
    }
    let mut offsets = vec![0];
    for peer in 0..ranks.size {
        // A rank's part for itself stays where it is.
        let bytes = if peer == ranks.rank {
            0
        } else {
            to(peer).bytes
        };
        offsets.push(offsets[peer as usize] + bytes);
    }
    let temp = b.temp_bytes(offsets[ranks.size as usize]);
    let saved = |peer: u32| {
        let (start, end) = (offsets[peer as usize], offsets[peer as usize + 1]);
        Region::slice(temp, start, end - start)
    };
    // One after another, so that the last one stands for all.
    let mut moved = None;
    for peer in 0..ranks.size {
        moved = b.copy(to(peer), saved(peer), &[moved]).or(moved);
    }
    let to = |peer: u32| {
        if peer == ranks.rank {
            Region::NOTHING
        } else {
            to(peer)
        }
    };
    spread(&mut b, ranks, saved, to, moved, tuning);
    b.finish()
}

/// Exchanges everything directly and copies this rank's part.
fn spread(
    b: &mut Builder,
    ranks: Ranks,
    from: impl Fn(u32) -> Region,
    to: impl Fn(u32) -> Region,
    saved: Option<Id>,
    tuning: &Tuning,
) {
    exchange(b, ranks, 0, tuning.window, &from, &[saved], &to, |_| saved);
    b.copy(from(ranks.rank), to(ranks.rank), &[saved]);
}

/// In round `k` all blocks whose distance has bit `k` move `2^k` ranks on together (Bruck et al.,
/// 1997).
fn bruck(
    b: &mut Builder,
    ranks: Ranks,
    bytes: u64,
    from: impl Fn(u32, u32) -> Region,
    to: impl Fn(u32, u32) -> Region,
) {
    let Ranks { rank, size } = ranks;
    let slice = |temp: Buffer, first: u32, n: u32| {
        Region::slice(temp, u64::from(first) * bytes, u64::from(n) * bytes)
    };
    // Block i is for the rank i after the caller's.
    let blocks = b.temp_bytes(bytes * u64::from(size));
    // Copies are made one after another: the last one stands for all.
    let mut done = b.copy(from(rank, size - rank), slice(blocks, 0, size - rank), &[]);
    done = b
        .copy(from(0, rank), slice(blocks, size - rank, rank), &[done])
        .or(done);
    let (mut distance, mut tag) = (1, 0);
    while distance < size {
        // Runs of consecutive blocks that move.
        let runs: Vec<(u32, u32)> = (distance..size)
            .step_by(2 * distance as usize)
            .map(|first| (first, distance.min(size - first)))
            .collect();
        let moving: u32 = runs.iter().map(|run| run.1).sum();
        let outgoing = b.temp_bytes(u64::from(moving) * bytes);
        let incoming = b.temp_bytes(u64::from(moving) * bytes);
        let from = Peer::Local((rank + size - distance) % size);
        let came = b.recv(from, tag, slice(incoming, 0, moving), &[]);
        let mut at = 0;
        for &(first, n) in &runs {
            done = b.copy(slice(blocks, first, n), slice(outgoing, at, n), &[done]);
            at += n;
        }
        let to = Peer::Local((rank + distance) % size);
        b.send(to, tag, slice(outgoing, 0, moving), &[done]);
        // What has come takes the places of what has left.
        at = 0;
        for &(first, n) in &runs {
            done = b.copy(
                slice(incoming, at, n),
                slice(blocks, first, n),
                &[done, came],
            );
            at += n;
        }
        distance *= 2;
        tag += 1;
    }
    // Block i has come from the rank i before the caller's: they lie in descending order.
    for i in 0..size {
        b.copy(
            slice(blocks, i, 1),
            to((rank + size - i) % size, 1),
            &[done],
        );
    }
}
