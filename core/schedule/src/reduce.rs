//! Reduction to one process.

use crate::args::{Ranks, Reduction};
use crate::builder::{Builder, Id};
use crate::exchange::{Exchanged, combine_by_rank, exchange};
use crate::halving::{Fold, Halving, Role};
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tree::Tree;
use crate::tuning::Tuning;

/// `MPI_Reduce`. The operand is in `Buffer::Send`, at the root in place in `Buffer::Recv`; the
/// result goes to the root's `Buffer::Recv`. The result does not depend on whether it is done in
/// place.
pub fn reduce(
    ranks: Ranks,
    root: u32,
    reduction: Reduction,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let Ranks { rank, size } = ranks;
    let mut b = Builder::default();
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let input = if in_place && rank == root {
        Buffer::Recv
    } else {
        Buffer::Send
    };
    let output = (rank == root).then_some(Buffer::Recv);
    if reduction.bytes() == 0 {
        return b.finish();
    }
    if size == 1 {
        if input != Buffer::Recv {
            b.copy(whole(input), whole(Buffer::Recv), &[]);
        }
        return b.finish();
    }
    let long = reduction.bytes() >= tuning.reduce_long && reduction.count >= u64::from(size);
    if long && size <= tuning.direct_ranks {
        direct(&mut b, ranks, reduction, input, Some(root), tuning);
        return b.finish();
    }
    if reduction.commutative && long {
        in_slices(&mut b, ranks, root, reduction, input, output);
        return b.finish();
    }
    // The tree's root is the lowest rank unless operands may change places.
    let top = if reduction.commutative { root } else { 0 };
    let up = tree(&mut b, ranks, top, reduction, input, output, 0, tuning);
    if rank == top {
        if rank != root {
            b.send(Peer::Local(root), 1, whole(up.buffer), &[up.last]);
        }
    } else if rank == root {
        // In place, the result replaces an operand that has to be gone by then.
        b.recv(Peer::Local(top), 1, whole(Buffer::Recv), &[up.last]);
    }
    b.finish()
}

/// What [`tree`] leaves behind.
pub(crate) struct Up {
    /// Where the combined operands are, at the top the result.
    pub buffer: Buffer,
    /// At the top: the step that completes the result. Elsewhere: the one that sends it on.
    pub last: Option<Id>,
}

/// Adds a reduction along a binomial tree to the rank `top`, in rank order from there on. At the
/// top the result goes to `output`, if it is given, else wherever [`Up`] says.
#[allow(clippy::too_many_arguments)]
pub(crate) fn tree(
    b: &mut Builder,
    ranks: Ranks,
    top: u32,
    reduction: Reduction,
    input: Buffer,
    output: Option<Buffer>,
    tag: u32,
    tuning: &Tuning,
) -> Up {
    let tree = Tree::new(ranks, top);
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let children: Vec<u32> = tree.children().collect();
    // Each operand has a temporary of its own as far as memory allows, so that it can be received
    // at any time.
    let ahead = tuning.operands_ahead / reduction.bytes().max(1);
    let slots: Vec<Buffer> = (0..children.len().min(ahead.max(2) as usize))
        .map(|_| b.temp_elements(reduction.count))
        .collect();
    let mut held = input;
    let mut combined: Vec<Option<Id>> = vec![];
    for (k, &child) in children.iter().enumerate() {
        let slot = slots[k % slots.len()];
        // A slot is used again after the combination that took its contents as left operand.
        let free = (k >= slots.len())
            .then(|| combined[k + 1 - slots.len()])
            .flatten();
        let came = b.recv(tree.peer(child), tag, whole(slot), &[free]);
        let last = tree.v == 0 && k + 1 == children.len();
        let target = output.filter(|&out| last && out != held).unwrap_or(slot);
        let before = combined.last().copied().flatten();
        combined.push(b.combine(
            whole(held),
            whole(slot),
            whole(target),
            reduction.size,
            &[came, before],
        ));
        held = target;
    }
    let done = combined.last().copied().flatten();
    match (tree.parent(), output) {
        (Some(parent), _) => Up {
            buffer: held,
            last: b.send(tree.peer(parent), tag, whole(held), &[done]),
        },
        (None, Some(out)) if out != held => Up {
            buffer: out,
            last: b.copy(whole(held), whole(out), &[done]),
        },
        (None, _) => Up {
            buffer: held,
            last: done,
        },
    }
}

/// Everybody gets one slice of all operands, combines it in rank order, and sends it to the root
/// (to all, if there is none). For vectors of at least as many elements as there are processes.
pub(crate) fn direct(
    b: &mut Builder,
    ranks: Ranks,
    reduction: Reduction,
    input: Buffer,
    root: Option<u32>,
    tuning: &Tuning,
) {
    let Ranks { rank, size } = ranks;
    let part = |buffer: Buffer, peer: u32| {
        let (start, end) = (
            slice(reduction.count, peer, size),
            slice(reduction.count, peer + 1, size),
        );
        Region::elements(buffer, start, end - start, reduction.size)
    };
    let own = part(input, rank);
    let count = own.bytes / reduction.size;
    let operands = b.temp_elements(count * u64::from(size));
    let slot =
        |peer: u32| Region::elements(operands, u64::from(peer) * count, count, reduction.size);
    let Exchanged { came, sent } = exchange(
        b,
        ranks,
        0,
        tuning.window,
        |peer| part(input, peer),
        &[],
        slot,
        |_| None,
    );
    let receives = root.is_none_or(|root| root == rank);
    let result = receives.then(|| part(Buffer::Recv, rank));
    let (held, ready) = combine_by_rank(b, ranks, own, slot, &came, result, reduction.size);
    let nothing = |_| Region::NOTHING;
    let to = |peer: u32| part(Buffer::Recv, peer);
    // In place, slices replace operands that have to be gone by then.
    let free = |peer: u32| sent[peer as usize].filter(|_| input == Buffer::Recv);
    match root {
        None => exchange(b, ranks, 1, tuning.window, |_| held, &[ready], to, free),
        Some(root) if root == rank => exchange(b, ranks, 1, tuning.window, nothing, &[], to, free),
        Some(root) => {
            let to_root = |peer: u32| if peer == root { held } else { Region::NOTHING };
            exchange(
                b,
                ranks,
                1,
                tuning.window,
                to_root,
                &[ready],
                nothing,
                |_| None,
            )
        }
    };
}

/// Recursive halving (Rabenseifner), and the slices gathered at the root.
fn in_slices(
    b: &mut Builder,
    ranks: Ranks,
    root: u32,
    reduction: Reduction,
    input: Buffer,
    output: Option<Buffer>,
) {
    // Virtual ranks from the root, which so is process 0 of those that are left.
    let tree = Tree::new(ranks, root);
    let fold = Fold::new(ranks.size);
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let role = fold.role(tree.v);
    let (Role::Active(new) | Role::Pair(new)) = role else {
        b.send(tree.peer(tree.v - 1), 0, whole(input), &[]);
        return;
    };
    let work = output.unwrap_or_else(|| b.temp_elements(reduction.count));
    let (input, ready) = fold_in(b, role, tree.peer(tree.v + 1), reduction, input, work);
    let halving = Halving {
        new,
        size: fold.size,
        peer: &|new| tree.peer(fold.virtual_rank(new)),
        bounds: &|new| slice(reduction.count, new, fold.size),
        element: reduction.size,
        input,
        work,
        tag: 1,
    };
    let halved = halving.reduce(b, ready);
    halving.gather_to_first(b, &halved);
}

/// Combines the folded partner's vector into `work`. Returns where the vector is now and the step
/// that brings it there.
pub(crate) fn fold_in(
    b: &mut Builder,
    role: Role,
    partner: Peer,
    reduction: Reduction,
    input: Buffer,
    work: Buffer,
) -> (Buffer, Option<Id>) {
    if !matches!(role, Role::Pair(_)) {
        return (input, None);
    }
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let operand = b.temp_elements(reduction.count);
    let came = b.recv(partner, 0, whole(operand), &[]);
    (
        work,
        b.combine(
            whole(operand),
            whole(input),
            whole(work),
            reduction.size,
            &[came],
        ),
    )
}

/// Where the slice of process `i` of `n` begins.
pub(crate) fn slice(count: u64, i: u32, n: u32) -> u64 {
    let (i, n) = (u64::from(i), u64::from(n));
    count / n * i + (count % n).min(i)
}
