//! Barrier and broadcast.

use crate::args::Ranks;
use crate::builder::{Builder, Id};
use crate::schedule::{Buffer, Peer, Region, Schedule, TAGS};
use crate::tree::Tree;
use crate::tuning::Tuning;

/// `MPI_Barrier`: dissemination (Hensgen, Finkel and Manber, "Two algorithms for barrier
/// synchronization", 1988). In round `k` a process tells the one `2^k` after it that `2^k`
/// processes have arrived.
pub fn barrier(ranks: Ranks) -> Schedule {
    let Ranks { rank, size } = ranks;
    let mut b = Builder::default();
    let mut heard = vec![];
    let (mut distance, mut tag) = (1, 0);
    while distance < size {
        let from = Peer::Local((rank + size - distance) % size);
        let now = b.await_signal(from, tag, &[]);
        b.signal(Peer::Local((rank + distance) % size), tag, &heard);
        heard.push(now);
        distance *= 2;
        tag += 1;
    }
    b.finish()
}

/// `MPI_Bcast` of `bytes` packed bytes, which all processes have in `Buffer::Recv`. The types may
/// differ if their signatures agree.
pub fn bcast(ranks: Ranks, root: u32, bytes: u64, tuning: &Tuning) -> Schedule {
    let mut b = Builder::default();
    bcast_into(&mut b, ranks, root, Buffer::Recv, bytes, &[], 0, tuning);
    b.finish()
}

/// A broadcast as a part of a schedule, with tags from `tag`; it touches the buffer after `after`.
/// Returns the steps after which all data is there.
#[allow(clippy::too_many_arguments)]
pub(crate) fn bcast_into(
    b: &mut Builder,
    ranks: Ranks,
    root: u32,
    buffer: Buffer,
    bytes: u64,
    after: &[Option<Id>],
    tag: u32,
    tuning: &Tuning,
) -> Vec<Option<Id>> {
    let tree = Tree::new(ranks, root);
    if bytes >= tuning.bcast_chain && ranks.size <= tuning.bcast_chain_ranks && ranks.size > 2 {
        chain(b, ranks.size, tree, buffer, bytes, after, tag, tuning)
    } else if bytes >= tuning.bcast_long && ranks.size >= tuning.bcast_long_ranks.max(2) {
        let spread = if ranks.size <= tuning.direct_ranks {
            scatter_direct
        } else {
            scatter_ring
        };
        spread(b, ranks.size, tree, buffer, bytes, after, tag, tuning)
    } else {
        binomial(b, tree, Region::slice(buffer, 0, bytes), after, tag)
    }
}

fn binomial(
    b: &mut Builder,
    tree: Tree,
    region: Region,
    after: &[Option<Id>],
    tag: u32,
) -> Vec<Option<Id>> {
    let ready = match tree.parent() {
        Some(parent) => vec![b.recv(tree.peer(parent), tag, region, after)],
        None => after.to_vec(),
    };
    for child in tree.children().rev() {
        b.send(tree.peer(child), tag, region, &ready);
    }
    ready
}

/// The root sends everybody a slice, and everybody sends its own to all others.
#[allow(clippy::too_many_arguments)]
fn scatter_direct(
    b: &mut Builder,
    size: u32,
    tree: Tree,
    buffer: Buffer,
    bytes: u64,
    after: &[Option<Id>],
    tag: u32,
    tuning: &Tuning,
) -> Vec<Option<Id>> {
    // The root needs no slice: numbers from 1 on have one.
    let slice = slice_size(bytes, size - 1);
    let part = |v: u32| {
        let (start, end) = (
            (u64::from(v - 1) * slice).min(bytes),
            (u64::from(v) * slice).min(bytes),
        );
        Region::slice(buffer, start, end - start)
    };
    if tree.v == 0 {
        for v in 1..size {
            b.send(tree.peer(v), tag, part(v), after);
        }
        return after.to_vec();
    }
    let own = b.recv(tree.peer(0), tag, part(tree.v), after);
    let others = size - 1;
    let (mut received, mut sent) = (vec![], vec![]);
    for i in 1..others {
        let source = (tree.v - 1 + others - i) % others + 1;
        let destination = (tree.v - 1 + i) % others + 1;
        let mut wait = after.to_vec();
        wait.push(windowed(&received, tuning.window));
        received.push(b.recv(tree.peer(source), tag, part(source), &wait));
        let wait = [own, windowed(&sent, tuning.window)];
        sent.push(b.send(tree.peer(destination), tag, part(tree.v), &wait));
    }
    received.push(own);
    received
}

/// Slices go down a binomial tree, each to its own process, then round a ring (Barnett et al.,
/// "Interprocessor collective communication library", 1994). What the tree has already brought is
/// not sent again.
#[allow(clippy::too_many_arguments)]
fn scatter_ring(
    b: &mut Builder,
    size: u32,
    tree: Tree,
    buffer: Buffer,
    bytes: u64,
    after: &[Option<Id>],
    tag: u32,
    tuning: &Tuning,
) -> Vec<Option<Id>> {
    let slice = slice_size(bytes, size);
    let slices = |from: u32, to: u32| {
        let (start, end) = (
            (u64::from(from) * slice).min(bytes),
            (u64::from(to) * slice).min(bytes),
        );
        Region::slice(buffer, start, end - start)
    };
    let subtree = |v: u32| (v, v + tree.descendants(v));
    let (first, last) = subtree(tree.v);
    let scattered = match tree.parent() {
        Some(parent) => vec![b.recv(tree.peer(parent), tag, slices(first, last), after)],
        None => after.to_vec(),
    };
    for child in tree.children().rev() {
        let (from, to) = subtree(child);
        b.send(tree.peer(child), tag, slices(from, to), &scattered);
    }
    let (left, right) = ((tree.v + size - 1) % size, (tree.v + 1) % size);
    let (right_first, right_last) = subtree(right);
    let mut arrived: Vec<Option<Id>> = vec![None; size as usize];
    let mut sent = vec![];
    for step in 0..size - 1 {
        let tag = ring_tag(tag + 1, step);
        let (give, take) = (
            (tree.v + size - step) % size,
            (tree.v + size - step - 1) % size,
        );
        if !(first..last).contains(&take) {
            arrived[take as usize] = b.recv(tree.peer(left), tag, slices(take, take + 1), after);
        }
        if !(right_first..right_last).contains(&give) {
            let mut wait = vec![arrived[give as usize], windowed(&sent, tuning.window)];
            if (first..last).contains(&give) {
                wait.extend(&scattered);
            }
            sent.push(b.send(tree.peer(right), tag, slices(give, give + 1), &wait));
        }
    }
    arrived.into_iter().chain(scattered).collect()
}

/// Bytes of one of `n` slices: whole cache lines, so the last slices may be short or empty.
fn slice_size(bytes: u64, n: u32) -> u64 {
    bytes.div_ceil(u64::from(n)).next_multiple_of(64)
}

/// Segments go from each process to the next.
#[allow(clippy::too_many_arguments)]
fn chain(
    b: &mut Builder,
    size: u32,
    tree: Tree,
    buffer: Buffer,
    bytes: u64,
    after: &[Option<Id>],
    tag: u32,
    tuning: &Tuning,
) -> Vec<Option<Id>> {
    let mut received = vec![];
    let mut sent = vec![];
    let mut start = 0;
    let mut number = 0;
    while start < bytes {
        let segment = Region::slice(buffer, start, tuning.segment.max(1).min(bytes - start));
        let tag = ring_tag(tag, number);
        let mut ready = after.to_vec();
        if tree.v > 0 {
            ready.push(windowed(&received, tuning.window));
            received.push(b.recv(tree.peer(tree.v - 1), tag, segment, &ready));
            ready = vec![received[number as usize]];
        }
        if tree.v + 1 < size {
            ready.push(windowed(&sent, tuning.window));
            sent.push(b.send(tree.peer(tree.v + 1), tag, segment, &ready));
        }
        start += segment.bytes;
        number += 1;
    }
    if tree.v > 0 { received } else { after.to_vec() }
}

/// The tag of message `number` of a sequence to one process. Tags below `first` are taken.
pub(crate) fn ring_tag(first: u32, number: u32) -> u32 {
    first + number % (TAGS - first)
}

/// The step that must be complete before a sequence may go on, so that no more than `window` are
/// unfinished.
pub(crate) fn windowed(sequence: &[Option<Id>], window: u32) -> Option<Id> {
    let behind = sequence
        .len()
        .checked_sub(window.clamp(1, TAGS / 2) as usize)?;
    sequence[behind]
}
