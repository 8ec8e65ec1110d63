//! Collectives on intercommunicators: each group gets what the other one gives. In place does not
//! exist here.

use crate::args::{Block, Inter, InterRoot, Part, Ranks, Reduction};
use crate::bcast::{bcast_into, windowed};
use crate::builder::Builder;
use crate::reduce::tree;
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// The local group's operations take their tags from here on; below, messages go between the
/// groups.
const LOCAL: u32 = 1;

/// `MPI_Barrier`: nobody leaves before all of the other group have come. Up a tree in each group,
/// across between the two first ranks, and down again.
pub fn inter_barrier(inter: Inter) -> Schedule {
    let mut b = Builder::default();
    let tree = crate::tree::Tree::new(inter.local, 0);
    let mut arrived = vec![];
    for child in tree.children() {
        arrived.push(b.await_signal(tree.peer(child), LOCAL, &[]));
    }
    let released = match tree.parent() {
        Some(parent) => {
            b.signal(tree.peer(parent), LOCAL, &arrived);
            b.await_signal(tree.peer(parent), LOCAL + 1, &[])
        }
        None => {
            b.signal(Peer::Remote(0), 0, &arrived);
            arrived.push(b.await_signal(Peer::Remote(0), 0, &[]));
            None
        }
    };
    let wait = if released.is_some() {
        vec![released]
    } else {
        arrived
    };
    for child in tree.children().rev() {
        b.signal(tree.peer(child), LOCAL + 1, &wait);
    }
    b.finish()
}

/// `MPI_Bcast` of `bytes` packed bytes in `Buffer::Recv` from the root to the other group.
pub fn inter_bcast(inter: Inter, root: InterRoot, bytes: u64, tuning: &Tuning) -> Schedule {
    let mut b = Builder::default();
    let whole = Region::at(Buffer::Recv, 0, bytes);
    match root {
        InterRoot::Neighbour => {}
        InterRoot::Myself => {
            b.send(Peer::Remote(0), 0, whole, &[]);
        }
        InterRoot::Remote(root) => {
            let came = if inter.local.rank == 0 {
                b.recv(Peer::Remote(root), 0, whole, &[])
            } else {
                None
            };
            bcast_into(
                &mut b,
                inter.local,
                0,
                Buffer::Recv,
                bytes,
                &[came],
                LOCAL,
                tuning,
            );
        }
    }
    b.finish()
}

/// `MPI_Gather` from the other group to the root.
pub fn inter_gather(inter: Inter, root: InterRoot, send: Block, recv: Block) -> Schedule {
    let parts = equal_parts(root, inter.remote_size, recv);
    inter_gatherv(root, send.bytes, &parts)
}

/// `MPI_Gatherv`. `recv` has a part for each remote rank, at the root only.
pub fn inter_gatherv(root: InterRoot, send_bytes: u64, recv: &[Part]) -> Schedule {
    let mut b = Builder::default();
    match root {
        InterRoot::Neighbour => {}
        InterRoot::Myself => {
            for (peer, part) in recv.iter().enumerate() {
                b.recv(Peer::Remote(peer as u32), 0, part.region(Buffer::Recv), &[]);
            }
        }
        InterRoot::Remote(root) => {
            b.send(
                Peer::Remote(root),
                0,
                Region::at(Buffer::Send, 0, send_bytes),
                &[],
            );
        }
    }
    b.finish()
}

/// `MPI_Scatter` from the root to the other group.
pub fn inter_scatter(inter: Inter, root: InterRoot, send: Block, recv: Block) -> Schedule {
    let parts = equal_parts(root, inter.remote_size, send);
    inter_scatterv(root, &parts, recv.bytes)
}

/// `MPI_Scatterv`. `send` has a part for each remote rank, at the root only.
pub fn inter_scatterv(root: InterRoot, send: &[Part], recv_bytes: u64) -> Schedule {
    let mut b = Builder::default();
    match root {
        InterRoot::Neighbour => {}
        InterRoot::Myself => {
            for (peer, part) in send.iter().enumerate() {
                b.send(Peer::Remote(peer as u32), 0, part.region(Buffer::Send), &[]);
            }
        }
        InterRoot::Remote(root) => {
            b.recv(
                Peer::Remote(root),
                0,
                Region::at(Buffer::Recv, 0, recv_bytes),
                &[],
            );
        }
    }
    b.finish()
}

/// `MPI_Allgather`. `send_bytes` go to each process of the other group; a block comes from each of
/// them. The two directions may differ in size.
pub fn inter_allgather(inter: Inter, send_bytes: u64, recv: Block, tuning: &Tuning) -> Schedule {
    let own = Region::at(Buffer::Send, 0, send_bytes);
    spread(
        inter,
        |_| own,
        |i| Region::at(Buffer::Recv, i64::from(i) * recv.count, recv.bytes),
        tuning,
    )
}

/// `MPI_Allgatherv`. `recv` has a part for each remote rank.
pub fn inter_allgatherv(inter: Inter, send_bytes: u64, recv: &[Part], tuning: &Tuning) -> Schedule {
    let own = Region::at(Buffer::Send, 0, send_bytes);
    spread(
        inter,
        |_| own,
        |i| recv[i as usize].region(Buffer::Recv),
        tuning,
    )
}

/// `MPI_Alltoall`. A block to and from each remote rank.
pub fn inter_alltoall(inter: Inter, send: Block, recv: Block, tuning: &Tuning) -> Schedule {
    spread(
        inter,
        |i| Region::at(Buffer::Send, i64::from(i) * send.count, send.bytes),
        |i| Region::at(Buffer::Recv, i64::from(i) * recv.count, recv.bytes),
        tuning,
    )
}

/// `MPI_Alltoallv`. A part to and from each remote rank.
pub fn inter_alltoallv(inter: Inter, send: &[Part], recv: &[Part], tuning: &Tuning) -> Schedule {
    spread(
        inter,
        |i| send[i as usize].region(Buffer::Send),
        |i| recv[i as usize].region(Buffer::Recv),
        tuning,
    )
}

/// `MPI_Alltoallw`. As [`inter_alltoallv`], with displacements in bytes; part `i` is described by
/// type `i`.
pub fn inter_alltoallw(inter: Inter, send: &[Part], recv: &[Part], tuning: &Tuning) -> Schedule {
    spread(
        inter,
        |i| send[i as usize].region(Buffer::SendOf(i)),
        |i| recv[i as usize].region(Buffer::RecvOf(i)),
        tuning,
    )
}

/// `MPI_Reduce` of the other group's operands to the root's `Buffer::Recv`.
pub fn inter_reduce(
    inter: Inter,
    root: InterRoot,
    reduction: Reduction,
    tuning: &Tuning,
) -> Schedule {
    let mut b = Builder::default();
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    match root {
        InterRoot::Neighbour => {}
        InterRoot::Myself => {
            b.recv(Peer::Remote(0), 0, whole(Buffer::Recv), &[]);
        }
        InterRoot::Remote(root) => {
            let up = tree(
                &mut b,
                inter.local,
                0,
                reduction,
                Buffer::Send,
                None,
                LOCAL,
                tuning,
            );
            if inter.local.rank == 0 {
                b.send(Peer::Remote(root), 0, whole(up.buffer), &[up.last]);
            }
        }
    }
    b.finish()
}

/// `MPI_Allreduce`: everybody gets the combination of the other group's operands.
pub fn inter_allreduce(inter: Inter, reduction: Reduction, tuning: &Tuning) -> Schedule {
    let mut b = Builder::default();
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let up = tree(
        &mut b,
        inter.local,
        0,
        reduction,
        Buffer::Send,
        None,
        LOCAL,
        tuning,
    );
    let mut came = None;
    if inter.local.rank == 0 {
        came = b.recv(Peer::Remote(0), 0, whole(Buffer::Recv), &[]);
        b.send(Peer::Remote(0), 0, whole(up.buffer), &[up.last]);
    }
    bcast_into(
        &mut b,
        inter.local,
        0,
        Buffer::Recv,
        reduction.bytes(),
        &[came],
        LOCAL + 1,
        tuning,
    );
    b.finish()
}

/// `MPI_Reduce_scatter_block`: the combination of the other group's operands is dealt out in equal
/// blocks.
pub fn inter_reduce_scatter_block(inter: Inter, block: Reduction, tuning: &Tuning) -> Schedule {
    let counts = vec![block.count; inter.local.size as usize];
    inter_reduce_scatter(inter, &counts, block.size, block.commutative, tuning)
}

/// `MPI_Reduce_scatter`: `counts[i]` elements of `element` bytes go to local rank `i`. The sum of
/// the counts is the same in both groups and is the length of every operand.
pub fn inter_reduce_scatter(
    inter: Inter,
    counts: &[u64],
    element: u64,
    commutative: bool,
    tuning: &Tuning,
) -> Schedule {
    let mut b = Builder::default();
    let Ranks { rank, .. } = inter.local;
    let total = Reduction {
        count: counts.iter().sum(),
        size: element,
        commutative,
    };
    let own = Region::elements(Buffer::Recv, 0, counts[rank as usize], element);
    let up = tree(
        &mut b,
        inter.local,
        0,
        total,
        Buffer::Send,
        None,
        LOCAL,
        tuning,
    );
    if rank != 0 {
        b.recv(Peer::Local(0), LOCAL + 1, own, &[]);
        return b.finish();
    }
    let theirs = b.temp_elements(total.count);
    let came = b.recv(
        Peer::Remote(0),
        0,
        Region::at(theirs, 0, total.bytes()),
        &[],
    );
    b.send(
        Peer::Remote(0),
        0,
        Region::at(up.buffer, 0, total.bytes()),
        &[up.last],
    );
    let mut start = 0;
    for (peer, &count) in counts.iter().enumerate() {
        let part = Region::elements(theirs, start, count, element);
        if peer == 0 {
            b.copy(part, own, &[came]);
        } else {
            b.send(Peer::Local(peer as u32), LOCAL + 1, part, &[came]);
        }
        start += count;
    }
    b.finish()
}

/// Exchanges with all remote ranks, beginning with this rank's number, a window at a time.
fn spread(
    inter: Inter,
    from: impl Fn(u32) -> Region,
    to: impl Fn(u32) -> Region,
    tuning: &Tuning,
) -> Schedule {
    let mut b = Builder::default();
    let (rank, local, remote) = (inter.local.rank, inter.local.size, inter.remote_size);
    let mut received = vec![];
    let mut sent = vec![];
    // In step i, ranks r of one group and s of the other meet with r + s = i (modulo the larger
    // group), as both see it.
    let steps = local.max(remote);
    for i in 0..steps {
        let peer = (i + steps - rank) % steps;
        if peer >= remote {
            continue;
        }
        received.push(b.recv(
            Peer::Remote(peer),
            0,
            to(peer),
            &[windowed(&received, tuning.window)],
        ));
        sent.push(b.send(
            Peer::Remote(peer),
            0,
            from(peer),
            &[windowed(&sent, tuning.window)],
        ));
    }
    b.finish()
}

/// A part for each remote rank at the root, none elsewhere.
fn equal_parts(root: InterRoot, remote_size: u32, block: Block) -> Vec<Part> {
    match root {
        InterRoot::Myself => (0..remote_size)
            .map(|i| Part {
                start: i64::from(i) * block.count,
                bytes: block.bytes,
            })
            .collect(),
        _ => vec![],
    }
}
