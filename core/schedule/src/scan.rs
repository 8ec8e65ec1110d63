//! Prefix reductions (Hillis and Steele, "Data parallel algorithms", 1986): in round `k` a process
//! gets the combination of the `2^k` ranks that lie before those it already has. Rank order is
//! kept.

use crate::args::{Ranks, Reduction};
use crate::builder::{Builder, Id};
use crate::schedule::{Buffer, Peer, Region, Schedule};
use crate::tuning::Tuning;

/// `MPI_Scan`. The operand is in `Buffer::Send`, in place in `Buffer::Recv`; the result in
/// `Buffer::Recv`.
pub fn scan(ranks: Ranks, reduction: Reduction, in_place: bool, tuning: &Tuning) -> Schedule {
    let mut b = Builder::default();
    let input = if in_place { Buffer::Recv } else { Buffer::Send };
    prefix(&mut b, ranks, 0, reduction, input, None, 0, tuning);
    b.finish()
}

/// `MPI_Exscan`. As [`scan`]; rank 0 gets nothing, and its `Buffer::Recv` is left alone.
pub fn exscan(ranks: Ranks, reduction: Reduction, in_place: bool, tuning: &Tuning) -> Schedule {
    let Ranks { rank, size } = ranks;
    let mut b = Builder::default();
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let mut operand = Buffer::Send;
    let mut saved = None;
    if in_place {
        operand = Buffer::Recv;
        // Out of the way of what comes from the rank before; rank 0 gets nothing.
        if rank > 0 && rank + 1 < size {
            operand = b.temp_elements(reduction.count);
            saved = b.copy(whole(Buffer::Recv), whole(operand), &[]);
        }
    }
    // Everybody takes the operand of the rank before; then it is a scan without rank 0.
    let shifted = if rank > 0 {
        b.recv(Peer::Local(rank - 1), 0, whole(Buffer::Recv), &[saved])
    } else {
        None
    };
    if rank + 1 < size {
        b.send(Peer::Local(rank + 1), 0, whole(operand), &[saved]);
    }
    if rank > 0 {
        prefix(
            &mut b,
            ranks,
            1,
            reduction,
            Buffer::Recv,
            shifted,
            1,
            tuning,
        );
    }
    b.finish()
}

/// The prefix reduction of ranks `first ..`, of which this is one. `ready`: after this step the
/// input is complete.
#[allow(clippy::too_many_arguments)]
fn prefix(
    b: &mut Builder,
    ranks: Ranks,
    first: u32,
    reduction: Reduction,
    input: Buffer,
    mut ready: Option<Id>,
    mut tag: u32,
    tuning: &Tuning,
) {
    let Ranks { rank, size } = ranks;
    let whole = |buffer: Buffer| Region::at(buffer, 0, reduction.bytes());
    let before = rank - first;
    let operands = if before == 0 {
        0
    } else {
        before.ilog2() as usize + 1
    };
    let ahead = tuning.operands_ahead / reduction.bytes().max(1);
    let slots: Vec<Buffer> = (0..operands.min(ahead.max(2) as usize))
        .map(|_| b.temp_elements(reduction.count))
        .collect();
    let mut combined: Vec<Option<Id>> = vec![];
    let mut held = input;
    let mut distance = 1;
    while first + distance < size {
        let gone = if rank + distance < size {
            b.send(Peer::Local(rank + distance), tag, whole(held), &[ready])
        } else {
            None
        };
        if before >= distance {
            let slot = slots[combined.len() % slots.len()];
            let free = combined
                .len()
                .checked_sub(slots.len())
                .and_then(|k| combined[k]);
            let came = b.recv(Peer::Local(rank - distance), tag, whole(slot), &[free]);
            // The result replaces what has just been sent.
            let sent = gone.filter(|_| held == Buffer::Recv);
            let (left, right, out) = (whole(slot), whole(held), whole(Buffer::Recv));
            ready = b.combine(left, right, out, reduction.size, &[came, ready, sent]);
            combined.push(ready);
            held = Buffer::Recv;
        }
        distance *= 2;
        tag += 1;
    }
    if held != Buffer::Recv {
        b.copy(whole(held), whole(Buffer::Recv), &[ready]);
    }
}
