//! Gather and scatter.

use crate::args::{Block, Part, Ranks};
use crate::builder::Builder;
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tree::Tree;
use crate::tuning::Tuning;

/// `MPI_Gather`. `recv` has a meaning at the root only, `send` elsewhere, and at the root unless it
/// is in place.
pub fn gather(
    ranks: Ranks,
    root: u32,
    send: Block,
    recv: Block,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let Ranks { rank, size } = ranks;
    let mut b = Builder::default();
    let block = if rank == root { recv.bytes } else { send.bytes };
    // Ranks first .. first + n in the root's buffer.
    let blocks = |first: u32, n: u32| {
        Region::at(
            Buffer::Recv,
            i64::from(first) * recv.count,
            u64::from(n) * block,
        )
    };
    if rank == root && !in_place {
        b.copy(Region::at(Buffer::Send, 0, block), blocks(rank, 1), &[]);
    }
    if block > tuning.gather_tree || size <= 2 {
        if rank != root {
            b.send(
                Peer::Local(root),
                0,
                Region::at(Buffer::Send, 0, block),
                &[],
            );
        } else {
            for peer in others(ranks) {
                b.recv(Peer::Local(peer), 0, blocks(peer, 1), &[]);
            }
        }
        return b.finish();
    }
    let tree = Tree::new(ranks, root);
    let Some(parent) = tree.parent() else {
        for child in tree.children() {
            let (first, n) = (tree.rank(child), tree.descendants(child));
            if first + n <= size {
                b.recv(tree.peer(child), 0, blocks(first, n), &[]);
            } else {
                // The subtree goes past the last rank, to the beginning of the buffer.
                let bytes = u64::from(n) * block;
                let temp = b.temp_bytes(bytes);
                let came = b.recv(tree.peer(child), 0, Region::slice(temp, 0, bytes), &[]);
                let tail = u64::from(size - first) * block;
                b.copy(
                    Region::slice(temp, 0, tail),
                    blocks(first, size - first),
                    &[came],
                );
                b.copy(
                    Region::slice(temp, tail, bytes - tail),
                    blocks(0, first + n - size),
                    &[came],
                );
            }
        }
        return b.finish();
    };
    let own = Region::at(Buffer::Send, 0, block);
    let n = tree.descendants(tree.v);
    if n == 1 {
        b.send(tree.peer(parent), 0, own, &[]);
        return b.finish();
    }
    let temp = b.temp_bytes(u64::from(n) * block);
    let mut collected = vec![b.copy(own, Region::slice(temp, 0, block), &[])];
    for child in tree.children() {
        let at = u64::from(child - tree.v) * block;
        let part = Region::slice(temp, at, u64::from(tree.descendants(child)) * block);
        collected.push(b.recv(tree.peer(child), 0, part, &[]));
    }
    b.send(
        tree.peer(parent),
        0,
        Region::slice(temp, 0, u64::from(n) * block),
        &collected,
    );
    b.finish()
}

/// `MPI_Gatherv`. `recv` has a part for each rank, at the root only; `send_bytes` is what this
/// process sends.
pub fn gatherv(
    ranks: Ranks,
    root: u32,
    send_bytes: u64,
    recv: &[Part],
    in_place: bool,
) -> Schedule {
    let mut b = Builder::default();
    let own = Region::at(Buffer::Send, 0, send_bytes);
    if ranks.rank != root {
        b.send(Peer::Local(root), 0, own, &[]);
        return b.finish();
    }
    let part = |rank: u32| recv[rank as usize].region(Buffer::Recv);
    if !in_place {
        b.copy(own, part(root), &[]);
    }
    for peer in others(ranks) {
        b.recv(Peer::Local(peer), 0, part(peer), &[]);
    }
    b.finish()
}

/// `MPI_Scatter`. `send` has a meaning at the root only, `recv` elsewhere, and at the root unless
/// it is in place.
pub fn scatter(
    ranks: Ranks,
    root: u32,
    send: Block,
    recv: Block,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let Ranks { rank, size } = ranks;
    let mut b = Builder::default();
    let block = if rank == root { send.bytes } else { recv.bytes };
    let blocks = |first: u32, n: u32| {
        Region::at(
            Buffer::Send,
            i64::from(first) * send.count,
            u64::from(n) * block,
        )
    };
    let own = Region::at(Buffer::Recv, 0, block);
    let tree = Tree::new(ranks, root);
    if block > tuning.gather_tree || size <= 2 {
        if rank != root {
            b.recv(Peer::Local(root), 0, own, &[]);
        } else {
            for peer in others(ranks) {
                b.send(Peer::Local(peer), 0, blocks(peer, 1), &[]);
            }
        }
    } else if let Some(parent) = tree.parent() {
        let n = tree.descendants(tree.v);
        if n == 1 {
            b.recv(tree.peer(parent), 0, own, &[]);
            return b.finish();
        }
        let bytes = u64::from(n) * block;
        let temp = b.temp_bytes(bytes);
        let came = b.recv(tree.peer(parent), 0, Region::slice(temp, 0, bytes), &[]);
        for child in tree.children().rev() {
            let at = u64::from(child - tree.v) * block;
            let part = Region::slice(temp, at, u64::from(tree.descendants(child)) * block);
            b.send(tree.peer(child), 0, part, &[came]);
        }
        b.copy(Region::slice(temp, 0, block), own, &[came]);
    } else {
        for child in tree.children().rev() {
            let (first, n) = (tree.rank(child), tree.descendants(child));
            if first + n <= size {
                b.send(tree.peer(child), 0, blocks(first, n), &[]);
            } else {
                let bytes = u64::from(n) * block;
                let temp = b.temp_bytes(bytes);
                let tail = u64::from(size - first) * block;
                let one = b.copy(
                    blocks(first, size - first),
                    Region::slice(temp, 0, tail),
                    &[],
                );
                let two = b.copy(
                    blocks(0, first + n - size),
                    Region::slice(temp, tail, bytes - tail),
                    &[],
                );
                b.send(
                    tree.peer(child),
                    0,
                    Region::slice(temp, 0, bytes),
                    &[one, two],
                );
            }
        }
    }
    if rank == root && !in_place {
        b.copy(blocks(rank, 1), own, &[]);
    }
    b.finish()
}

/// `MPI_Scatterv`. `send` has a part for each rank, at the root only; `recv_bytes` is what this
/// process receives.
pub fn scatterv(
    ranks: Ranks,
    root: u32,
    send: &[Part],
    recv_bytes: u64,
    in_place: bool,
) -> Schedule {
    let mut b = Builder::default();
    let own = Region::at(Buffer::Recv, 0, recv_bytes);
    if ranks.rank != root {
        b.recv(Peer::Local(root), 0, own, &[]);
        return b.finish();
    }
    let part = |rank: u32| send[rank as usize].region(Buffer::Send);
    for peer in others(ranks) {
        b.send(Peer::Local(peer), 0, part(peer), &[]);
    }
    if !in_place {
        b.copy(part(root), own, &[]);
    }
    b.finish()
}

/// The other ranks, beginning after the caller's, so that not everybody begins with the same.
fn others(ranks: Ranks) -> impl Iterator<Item = u32> {
    (1..ranks.size).map(move |i| (ranks.rank + i) % ranks.size)
}

impl Part {
    pub(crate) fn region(&self, buffer: Buffer) -> Region {
        Region::at(buffer, self.start, self.bytes)
    }
}
