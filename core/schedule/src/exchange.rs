//! Everybody with everybody, directly: the fewest rounds there can be.

use crate::args::Ranks;
use crate::bcast::windowed;
use crate::builder::{Builder, Id};
use crate::schedule::{Peer, Region};

/// The receives from and sends to each rank (for this rank: none).
pub(crate) struct Exchanged {
    pub came: Vec<Option<Id>>,
    pub sent: Vec<Option<Id>>,
}

/// Sends `send(peer)` to each other rank after `ready`, and receives `recv(peer)` from each after
/// `free(peer)`. Each rank begins with its neighbours, so that not all send to one, and has no more
/// than `window` messages in flight. In step `i` everybody talks to the ranks `i` before and after
/// it, and waits for earlier steps only: so somebody can always go on.
#[allow(clippy::too_many_arguments)]
pub(crate) fn exchange(
    b: &mut Builder,
    ranks: Ranks,
    tag: u32,
    window: u32,
    send: impl Fn(u32) -> Region,
    ready: &[Option<Id>],
    recv: impl Fn(u32) -> Region,
    free: impl Fn(u32) -> Option<Id>,
) -> Exchanged {
    let Ranks { rank, size } = ranks;
    let mut exchanged = Exchanged {
        came: vec![None; size as usize],
        sent: vec![None; size as usize],
    };
    let (mut received, mut sent) = (vec![], vec![]);
    let mut wait = ready.to_vec();
    wait.push(None);
    for i in 1..size {
        let (source, destination) = ((rank + size - i) % size, (rank + i) % size);
        let (from, to) = (Peer::Local(source), Peer::Local(destination));
        received.push(b.recv(
            from,
            tag,
            recv(source),
            &[windowed(&received, window), free(source)],
        ));
        exchanged.came[source as usize] = received[i as usize - 1];
        wait[ready.len()] = windowed(&sent, window);
        sent.push(b.send(to, tag, send(destination), &wait));
        exchanged.sent[destination as usize] = sent[i as usize - 1];
    }
    exchanged
}

/// Combines the operands of all ranks in rank order: `own`, and those that have come to
/// `slot(peer)`. The result goes to `result` if that is given, else where the returned region says.
/// `slot(rank)` is free for use.
pub(crate) fn combine_by_rank(
    b: &mut Builder,
    ranks: Ranks,
    own: Region,
    slot: impl Fn(u32) -> Region,
    came: &[Option<Id>],
    result: Option<Region>,
    element: u64,
) -> (Region, Option<Id>) {
    let Ranks { rank, size } = ranks;
    let mut held = if rank == 0 { own } else { slot(0) };
    let mut ready = came[0];
    for peer in 1..size {
        let right = if peer == rank { own } else { slot(peer) };
        // A result that replaces this rank's operand must not be combined from it on the left.
        let out = result
            .filter(|&out| peer + 1 == size && out != held)
            .unwrap_or_else(|| slot(peer));
        ready = b.combine(held, right, out, element, &[came[peer as usize], ready]);
        held = out;
    }
    match result {
        Some(result) if result != held => (result, b.copy(held, result, &[ready])),
        _ => (held, ready),
    }
}
