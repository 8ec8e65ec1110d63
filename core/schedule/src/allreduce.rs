//! Reduction to all processes.

use crate::args::{Ranks, Reduction};
use crate::bcast::{bcast_into, ring_tag, windowed};
use crate::builder::Builder;
use crate::halving::{Fold, Halving, Role};
use crate::reduce::{direct, fold_in, slice, tree};
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// `MPI_Allreduce`. The operand is in `Buffer::Send`, in place in `Buffer::Recv`; the result in
/// `Buffer::Recv`. All processes get the same bits.
pub fn allreduce(ranks: Ranks, reduction: Reduction, in_place: bool, tuning: &Tuning) -> Schedule {
    let mut b = Builder::default();
    let input = if in_place { Buffer::Recv } else { Buffer::Send };
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    if reduction.bytes() == 0 {
        return b.finish();
    }
    if ranks.size == 1 {
        if !in_place {
            b.copy(whole(input), whole(Buffer::Recv), &[]);
        }
        return b.finish();
    }
    let bytes = reduction.bytes();
    let long = bytes >= tuning.allreduce_long;
    let sliceable = reduction.count >= u64::from(ranks.size);
    let commutative = reduction.commutative;
    if long && sliceable && ranks.size <= tuning.direct_ranks {
        direct(&mut b, ranks, reduction, input, None, tuning);
    } else if long
        && sliceable
        && commutative
        && bytes >= tuning.allreduce_ring
        && !ranks.size.is_power_of_two()
    {
        ring(&mut b, ranks, reduction, input, tuning);
    } else if long && sliceable && commutative {
        halving(&mut b, ranks, reduction, input);
    } else if long && !commutative {
        // Rank order forbids slices to be combined out of turn; a tree at least combines each
        // operand once only.
        let up = tree(
            &mut b,
            ranks,
            0,
            reduction,
            input,
            Some(Buffer::Recv),
            0,
            tuning,
        );
        bcast_into(&mut b, ranks, 0, Buffer::Recv, bytes, &[up.last], 1, tuning);
    } else {
        doubling(&mut b, ranks, reduction, input);
    }
    b.finish()
}

/// Recursive doubling: in round `k` neighbouring groups of `2^k` exchange their results, and both
/// sides compute the same expression, lower ranks on the left.
fn doubling(b: &mut Builder, ranks: Ranks, reduction: Reduction, input: Buffer) {
    let Ranks { rank, size } = ranks;
    let fold = Fold::new(size);
    let result = Region::at(Buffer::Recv, 0, reduction.bytes());
    let mut held = Region {
        buffer: input,
        ..result
    };
    let rounds = fold.size.ilog2();
    let role = fold.role(rank);
    let (Role::Active(new) | Role::Pair(new)) = role else {
        let partner = Peer::Local(rank - 1);
        let gone = b.send(partner, 0, held, &[]);
        b.recv(
            partner,
            rounds + 1,
            result,
            &[gone.filter(|_| input == Buffer::Recv)],
        );
        return;
    };
    // An operand and a result for each round, so that nothing that is still being sent is
    // overwritten.
    let temp = b.temp_elements(2 * u64::from(rounds + 1) * reduction.count);
    let mut used = 0;
    let mut next = || {
        used += 1;
        Region {
            buffer: temp,
            start: (used - 1) * reduction.count as i64,
            ..result
        }
    };
    let mut ready = None;
    let mut first_send = None;
    if let Role::Pair(_) = role {
        let operand = next();
        let came = b.recv(Peer::Local(rank + 1), 0, operand, &[]);
        let sum = next();
        ready = b.combine(held, operand, sum, reduction.size, &[came]);
        held = sum;
    }
    for round in 0..rounds {
        let partner = new ^ (1 << round);
        let peer = Peer::Local(fold.virtual_rank(partner));
        let operand = next();
        let came = b.recv(peer, round + 1, operand, &[]);
        let gone = b.send(peer, round + 1, held, &[ready]);
        if held.buffer == Buffer::Recv {
            first_send = gone;
        }
        let last = round + 1 == rounds;
        // In place, the operand in the receive buffer must not be the left one of what replaces it.
        let direct = last && held.buffer != Buffer::Recv;
        let sum = if direct { result } else { next() };
        let (left, right) = if partner < new {
            (operand, held)
        } else {
            (held, operand)
        };
        ready = b.combine(
            left,
            right,
            sum,
            reduction.size,
            &[came, ready, first_send.filter(|_| direct)],
        );
        held = sum;
    }
    if held.buffer != Buffer::Recv {
        ready = b.copy(held, result, &[ready, first_send]);
    }
    if let Role::Pair(_) = role {
        b.send(Peer::Local(rank + 1), rounds + 1, result, &[ready]);
    }
}

/// Recursive halving, and the slices exchanged again (Rabenseifner).
fn halving(b: &mut Builder, ranks: Ranks, reduction: Reduction, input: Buffer) {
    let Ranks { rank, size } = ranks;
    let fold = Fold::new(size);
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let rounds = fold.size.ilog2();
    let end = 2 * rounds + 1;
    let role = fold.role(rank);
    let (Role::Active(new) | Role::Pair(new)) = role else {
        let partner = Peer::Local(rank - 1);
        let gone = b.send(partner, 0, whole(input), &[]);
        b.recv(
            partner,
            end,
            whole(Buffer::Recv),
            &[gone.filter(|_| input == Buffer::Recv)],
        );
        return;
    };
    let partner = Peer::Local(rank + 1);
    let (input, ready) = fold_in(b, role, partner, reduction, input, Buffer::Recv);
    let halving = Halving {
        new,
        size: fold.size,
        peer: &|new| Peer::Local(fold.virtual_rank(new)),
        bounds: &|new| slice(reduction.count, new, fold.size),
        element: reduction.size,
        input,
        work: Buffer::Recv,
        tag: 1,
    };
    let halved = halving.reduce(b, ready);
    let complete = halving.gather_to_all(b, &halved);
    if let Role::Pair(_) = role {
        b.send(partner, end, whole(Buffer::Recv), &complete);
    }
}

/// Each slice goes round the ring once to be combined and once more to be copied (Patarasuk and
/// Yuan, "Bandwidth optimal all-reduce algorithms", 2009).
fn ring(b: &mut Builder, ranks: Ranks, reduction: Reduction, input: Buffer, tuning: &Tuning) {
    let Ranks { rank, size } = ranks;
    let (left, right) = (
        Peer::Local((rank + size - 1) % size),
        Peer::Local((rank + 1) % size),
    );
    let behind = |n: u32| (rank + 2 * size - n) % size;
    let region = |buffer: Buffer, i: u32| {
        let (start, end) = (
            slice(reduction.count, i, size),
            slice(reduction.count, i + 1, size),
        );
        Region::elements(buffer, start, end - start, reduction.size)
    };
    let operands = b.temp_elements(reduction.count);
    let mut sent = vec![];
    let mut ready = None;
    for step in 0..size - 1 {
        let (tag, take) = (ring_tag(0, step), behind(step + 1));
        let operand = region(operands, take);
        let came = b.recv(left, tag, operand, &[]);
        let source = if step == 0 { input } else { Buffer::Recv };
        let wait = [ready, windowed(&sent, tuning.window)];
        sent.push(b.send(right, tag, region(source, behind(step)), &wait));
        let (own, result) = (region(input, take), region(Buffer::Recv, take));
        ready = b.combine(operand, own, result, reduction.size, &[came]);
    }
    for step in 0..size - 1 {
        let (tag, give, take) = (
            ring_tag(0, size - 1 + step),
            behind(step + size - 1),
            behind(step + size),
        );
        // What comes replaces what was sent in the first time round.
        let came = b.recv(
            left,
            tag,
            region(Buffer::Recv, take),
            &[sent[step as usize]],
        );
        let wait = [ready, windowed(&sent, tuning.window)];
        sent.push(b.send(right, tag, region(Buffer::Recv, give), &wait));
        ready = came;
    }
}
