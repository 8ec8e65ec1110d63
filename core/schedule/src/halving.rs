//! The parts that reductions of long vectors are made of: folding the processes to a power of two,
//! and recursive halving (Rabenseifner, "Optimization of collective reduction operations", 2004;
//! Thakur, Rabenseifner and Gropp, 2005).

use crate::builder::{Builder, Id};
use crate::schedule::{Buffer, Peer, Region, Temp};

/// Of the first `2 * rest` virtual ranks, the odd ones hand their data to the even ones and stand
/// by, so that a power of two of processes is left, numbered anew in the old order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fold {
    /// Processes that are left.
    pub size: u32,
    rest: u32,
}

/// What a process does in a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Takes part with this new number.
    Active(u32),
    /// Takes part with this new number, for itself and for the virtual rank after it.
    Pair(u32),
    /// Is represented by the virtual rank before it.
    Folded,
}

impl Fold {
    pub fn new(processes: u32) -> Fold {
        let size = 1 << processes.ilog2();
        Fold {
            size,
            rest: processes - size,
        }
    }

    pub fn role(&self, v: u32) -> Role {
        match v {
            _ if v >= 2 * self.rest => Role::Active(v - self.rest),
            _ if v.is_multiple_of(2) => Role::Pair(v / 2),
            _ => Role::Folded,
        }
    }

    /// The virtual rank with a new number; for `new == size` the end.
    pub fn virtual_rank(&self, new: u32) -> u32 {
        if new < self.rest {
            2 * new
        } else {
            new + self.rest
        }
    }
}

/// Recursive halving of a vector among a power of two of processes. In each round a process gives
/// one half of what it still has to its partner and combines the other half with the partner's.
/// Operands change places, so the operation must be commutative.
pub(crate) struct Halving<'a> {
    /// Own number and number of processes.
    pub new: u32,
    pub size: u32,
    pub peer: &'a dyn Fn(u32) -> Peer,
    /// Process `i` ends up with elements `bounds(i) .. bounds(i + 1)`.
    pub bounds: &'a dyn Fn(u32) -> u64,
    /// Bytes of an element.
    pub element: u64,
    /// Where the vector is, and where results go (at the same place as in the vector). They may be
    /// one buffer.
    pub input: Buffer,
    pub work: Buffer,
    /// Tag of the first round.
    pub tag: u32,
}

pub(crate) struct Halved {
    /// After this, this rank's elements in `work` are complete.
    pub ready: Option<Id>,
    /// For each round, the last first, the step that sends from `work`, if it did: it must be
    /// complete before what it sent is overwritten.
    pub sent: Vec<Option<Id>>,
    /// The step that sends from `input`, if that is another buffer.
    pub sent_input: Option<Id>,
}

impl Halving<'_> {
    /// Region of the elements of processes `from .. to`.
    pub fn region(&self, buffer: Buffer, from: u32, to: u32) -> Region {
        let (start, end) = ((self.bounds)(from), (self.bounds)(to));
        Region::elements(buffer, start, end - start, self.element)
    }

    /// Adds the rounds. `ready`: after this step the input is complete.
    pub fn reduce(&self, b: &mut Builder, mut ready: Option<Id>) -> Halved {
        let temp = b.temp_elements(0);
        let mut used = 0;
        let mut sent = vec![];
        let mut sent_input = None;
        let mut source = self.input;
        let mut half = self.size / 2;
        let mut tag = self.tag;
        while half > 0 {
            let (low, partner) = (self.new & !(2 * half - 1), self.new ^ half);
            let (keep, give) = if partner > self.new {
                (low, low + half)
            } else {
                (low + half, low)
            };
            let kept = self.region(source, keep, keep + half);
            let target = self.region(self.work, keep, keep + half);
            let operand = Region {
                buffer: temp,
                start: used,
                ..kept
            };
            used += (kept.bytes / self.element.max(1)) as i64;
            let came = b.recv((self.peer)(partner), tag, operand, &[]);
            let gone = b.send(
                (self.peer)(partner),
                tag,
                self.region(source, give, give + half),
                &[ready],
            );
            if source == self.work {
                sent.push(gone);
            } else {
                sent_input = gone;
                sent.push(None);
            }
            let done = b.combine(operand, kept, target, self.element, &[came, ready]);
            // Without elements of its own a process has nothing to wait for later either.
            ready = done;
            source = self.work;
            half /= 2;
            tag += 1;
        }
        b.resize(temp, Temp::Elements(used as u64));
        sent.reverse();
        Halved {
            ready,
            sent,
            sent_input,
        }
    }

    /// The inverse movement: in each round partners exchange all complete elements that they have.
    /// Tags follow those of the halving.
    pub fn gather_to_all(&self, b: &mut Builder, halved: &Halved) -> Vec<Option<Id>> {
        let mut have = vec![halved.ready];
        for (round, &sent) in (0..).zip(&halved.sent) {
            let (group, tag) = (1 << round, self.tag + self.size.ilog2() + round);
            let partner = self.new ^ group;
            let first = |new: u32| new & !(group - 1);
            let theirs = self.region(self.work, first(partner), first(partner) + group);
            let own = self.region(self.work, first(self.new), first(self.new) + group);
            let came = b.recv((self.peer)(partner), tag, theirs, &[sent]);
            b.send((self.peer)(partner), tag, own, &have);
            have.push(came);
        }
        have
    }

    /// As `gather_to_all`, but to process 0 only.
    pub fn gather_to_first(&self, b: &mut Builder, halved: &Halved) -> Vec<Option<Id>> {
        let mut have = vec![halved.ready];
        for (round, &sent) in (0..).zip(&halved.sent) {
            let (group, tag) = (1 << round, self.tag + self.size.ilog2() + round);
            let partner = self.new ^ group;
            if self.new & group != 0 {
                let own = self.region(self.work, self.new, self.new + group);
                b.send((self.peer)(partner), tag, own, &have);
                return have;
            }
            let theirs = self.region(self.work, partner, partner + group);
            have.push(b.recv((self.peer)(partner), tag, theirs, &[sent]));
        }
        have
    }
}
