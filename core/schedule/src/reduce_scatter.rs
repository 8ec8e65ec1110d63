//! Reductions whose result is scattered.

use crate::args::{Ranks, Reduction};
use crate::builder::Builder;
use crate::exchange::{Exchanged, combine_by_rank, exchange};
use crate::halving::{Fold, Halving, Role};
use crate::reduce::fold_in;
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// `MPI_Reduce_scatter_block`. `block` is what each process gets; the operands are `size` times as
/// long.
pub fn reduce_scatter_block(
    ranks: Ranks,
    block: Reduction,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let counts = vec![block.count; ranks.size as usize];
    reduce_scatter(
        ranks,
        &counts,
        block.size,
        block.commutative,
        in_place,
        tuning,
    )
}

/// `MPI_Reduce_scatter`. `counts[i]` elements of `element` bytes of the result go to rank `i`, to
/// the beginning of its `Buffer::Recv`. The operand is in `Buffer::Send`, in place in
/// `Buffer::Recv`.
pub fn reduce_scatter(
    ranks: Ranks,
    counts: &[u64],
    element: u64,
    commutative: bool,
    in_place: bool,
    tuning: &Tuning,
) -> Schedule {
    let mut b = Builder::default();
    let mut offsets = vec![0];
    for count in counts {
        offsets.push(offsets.last().expect("never empty") + count);
    }
    let total = Reduction {
        count: offsets[ranks.size as usize],
        size: element,
        commutative,
    };
    let input = if in_place { Buffer::Recv } else { Buffer::Send };
    if commutative && ranks.size > 2 && total.bytes() <= tuning.reduce_scatter_short {
        halving(&mut b, ranks, &offsets, total, input);
    } else {
        direct(&mut b, ranks, &offsets, element, input, tuning);
    }
    b.finish()
}

/// Everybody gets its part of all operands and combines them in rank order.
fn direct(
    b: &mut Builder,
    ranks: Ranks,
    offsets: &[u64],
    element: u64,
    input: Buffer,
    tuning: &Tuning,
) {
    let Ranks { rank, size } = ranks;
    let part = |peer: u32| {
        let (start, end) = (offsets[peer as usize], offsets[peer as usize + 1]);
        Region::elements(input, start, end - start, element)
    };
    let own = part(rank);
    let count = offsets[rank as usize + 1] - offsets[rank as usize];
    let result = Region {
        buffer: Buffer::Recv,
        start: 0,
        ..own
    };
    if size == 1 {
        if input != Buffer::Recv {
            b.copy(own, result, &[]);
        }
        return;
    }
    let operands = b.temp_elements(count * u64::from(size));
    let slot = |peer: u32| Region::elements(operands, u64::from(peer) * count, count, element);
    let Exchanged { came, mut sent } =
        exchange(b, ranks, 0, tuning.window, part, &[], slot, |_| None);
    // In place, the result replaces operands that have to be gone by then.
    let direct = (input != Buffer::Recv).then_some(result);
    let (held, ready) = combine_by_rank(b, ranks, own, slot, &came, direct, element);
    if direct.is_none() {
        sent.push(ready);
        b.copy(held, result, &sent);
    }
}

/// Recursive halving. A process that stands for two passes the other's part on.
fn halving(b: &mut Builder, ranks: Ranks, offsets: &[u64], total: Reduction, input: Buffer) {
    let Ranks { rank, size } = ranks;
    let fold = Fold::new(size);
    let whole = Region::at(input, 0, total.bytes());
    let rounds = fold.size.ilog2();
    let count = |rank: u32| offsets[rank as usize + 1] - offsets[rank as usize];
    let result = Region::elements(Buffer::Recv, 0, count(rank), total.size);
    let role = fold.role(rank);
    let (Role::Active(new) | Role::Pair(new)) = role else {
        let partner = Peer::Local(rank - 1);
        let gone = b.send(partner, 0, whole, &[]);
        b.recv(
            partner,
            rounds + 1,
            result,
            &[gone.filter(|_| input == Buffer::Recv)],
        );
        return;
    };
    let work = b.temp_elements(total.count);
    let partner = Peer::Local(rank + 1);
    let (source, ready) = fold_in(b, role, partner, total, input, work);
    let halving = Halving {
        new,
        size: fold.size,
        peer: &|new| Peer::Local(fold.virtual_rank(new)),
        bounds: &|new| offsets[fold.virtual_rank(new) as usize],
        element: total.size,
        input: source,
        work,
        tag: 1,
    };
    let halved = halving.reduce(b, ready);
    let part = |rank: u32| Region::elements(work, offsets[rank as usize], count(rank), total.size);
    if let Role::Pair(_) = role {
        b.send(partner, rounds + 1, part(rank + 1), &[halved.ready]);
    }
    // In place, what was sent from the receive buffer has to be gone.
    b.copy(part(rank), result, &[halved.ready, halved.sent_input]);
}
