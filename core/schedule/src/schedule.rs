//! What a schedule is, and the bookkeeping of executing one.

use std::fmt;

/// Tags in a schedule are below this.
pub const TAGS: u32 = 256;

/// A process, seen from the one that executes the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A rank of this process's group: of the communicator, or of the local group of an
    /// intercommunicator.
    Local(u32),
    /// A rank of an intercommunicator's remote group.
    Remote(u32),
}

/// Which memory a region lies in, and which datatype describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The user's send buffer, in the operation's send type.
    Send,
    /// The user's receive buffer, in the operation's receive type. The only user buffer of a
    /// broadcast (on the root too) and of everything that is done in place.
    Recv,
    /// The user's send buffer, in the send type with this index: `MPI_Alltoallw` and
    /// `MPI_Neighbor_alltoallw`.
    SendOf(u32),
    /// The user's receive buffer, in the receive type with this index.
    RecvOf(u32),
    /// The temporary with this index in [`Schedule::temps`].
    Temp(u32),
}

/// What a step reads or writes: packed bytes `skip .. skip + bytes` of the elements that begin at
/// `start`.
///
/// | buffer | unit of `start` | what is there |
/// | --- | --- | --- |
/// | `Send`, `Recv` | elements (extents of the type) from the user's address | elements of the type, one extent apart |
/// | `SendOf(i)`, `RecvOf(i)` | bytes from the user's address | elements of type `i` |
/// | `Temp(i)`, which is [`Temp::Bytes`] | always 0 | dense bytes |
/// | `Temp(i)`, which is [`Temp::Elements`] | elements | elements of the reduction's type, one extent apart |
///
/// So the region concerns `(skip + bytes).div_ceil(size)` elements of a type of `size` bytes. Where
/// a region is not made of whole elements (a long broadcast in slices) it begins and ends within
/// one. A region of 0 bytes touches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub buffer: Buffer,
    pub start: i64,
    pub skip: u64,
    pub bytes: u64,
}

/// Memory that the executor provides while the schedule runs. Its contents are undefined at the
/// start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temp {
    /// This many bytes of packed data.
    Bytes(u64),
    /// This many elements of the reduction's type, laid out one extent apart as in a user's buffer.
    Elements(u64),
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Sends a region as one message.
    Send { to: Peer, tag: u32, region: Region },
    /// Receives one message of exactly the region's bytes.
    Recv {
        from: Peer,
        tag: u32,
        region: Region,
    },
    /// Copies packed data from a region to another of equally many bytes.
    Copy { from: Region, to: Region },
    /// `out[i] = left[i] op right[i]` for `count` elements of the reduction's type. `left` comes
    /// from lower ranks than `right` whenever the operation is not commutative. `out` either equals
    /// `right` (then this is `MPI_Reduce_local(left, right)`) or overlaps neither.
    Combine {
        left: Region,
        right: Region,
        out: Region,
        count: u64,
    },
}

/// One process's part of a collective: steps, and which of them must be complete before another may
/// start.
///
/// Steps are numbered in an order in which they could be executed one after another. Each pair of
/// processes uses a tag at most once in each direction, except that after [`TAGS`] messages it
/// starts again from the first. Messages with equal tags are kept apart by order: executors start
/// steps that become ready together by ascending number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    steps: Box<[Step]>,
    /// For each step, how many others it waits for.
    waits: Box<[u32]>,
    /// For each step, where its successors begin in `successors`; one more at the end.
    offsets: Box<[u32]>,
    successors: Box<[u32]>,
    temps: Box<[Temp]>,
}

impl Schedule {
    /// From steps, pairs (earlier, later) of step numbers, and temporaries. A pair may occur twice.
    pub(crate) fn new(steps: Vec<Step>, edges: &[(u32, u32)], temps: Vec<Temp>) -> Schedule {
        let mut waits = vec![0; steps.len()];
        let mut offsets = vec![0; steps.len() + 1];
        for &(before, after) in edges {
            debug_assert!(before < after, "a step can only wait for earlier ones");
            waits[after as usize] += 1;
            offsets[before as usize + 1] += 1;
        }
        for i in 0..steps.len() {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut successors = vec![0; edges.len()];
        for &(before, after) in edges {
            let slot = &mut next[before as usize];
            successors[*slot as usize] = after;
            *slot += 1;
        }
        Schedule {
            steps: steps.into(),
            waits: waits.into(),
            offsets: offsets.into(),
            successors: successors.into(),
            temps: temps.into(),
        }
    }

    /// All steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many completions step `step` waits for.
    pub fn waits(&self, step: u32) -> u32 {
        self.waits[step as usize]
    }

    /// The steps that wait for `step`. One may be listed twice; then it waits for two completions.
    pub fn successors(&self, step: u32) -> &[u32] {
        let step = step as usize;
        &self.successors[self.offsets[step] as usize..self.offsets[step + 1] as usize]
    }

    /// The temporaries to provide.
    pub fn temps(&self) -> &[Temp] {
        &self.temps
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// How far an execution of a schedule is. The executor starts every step that [`Progress::next`]
/// gives and reports it to [`Progress::complete`] when it is done, at once or later. A schedule may
/// be executed many times, and several times at once, each with a `Progress` of its own.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// For each step, completions it still waits for.
    waits: Vec<u32>,
    /// Steps that may start, the next one last.
    ready: Vec<u32>,
    /// Steps not complete.
    left: u32,
}

impl Progress {
    /// At the beginning of `schedule`.
    pub fn new(schedule: &Schedule) -> Progress {
        let mut progress = Progress::default();
        progress.restart(schedule);
        progress
    }

    /// Back to the beginning, of this or another schedule, keeping the memory.
    pub fn restart(&mut self, schedule: &Schedule) {
        self.waits.clear();
        self.waits.extend_from_slice(&schedule.waits);
        self.left = schedule.steps.len() as u32;
        self.ready.clear();
        self.ready.extend(
            (0..self.left)
                .rev()
                .filter(|&step| schedule.waits[step as usize] == 0),
        );
    }

    /// The next step to start. `None` when all that can be started have been.
    #[inline]
    #[allow(clippy::should_implement_trait)] // not an iterator: completions bring new steps
    pub fn next(&mut self) -> Option<u32> {
        self.ready.pop()
    }

    /// Reports that `step`, once given by [`Progress::next`], is complete.
    pub fn complete(&mut self, schedule: &Schedule, step: u32) {
        debug_assert_eq!(
            self.waits[step as usize], 0,
            "step {step} completed before it could start"
        );
        self.left -= 1;
        // From the last, so that the first is on top.
        for &next in schedule.successors(step).iter().rev() {
            let waits = &mut self.waits[next as usize];
            *waits -= 1;
            if *waits == 0 {
                self.ready.push(next);
            }
        }
    }

    /// Whether all steps are complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Steps that are not complete.
    pub fn left(&self) -> u32 {
        self.left
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Local(rank) => write!(f, "rank {rank}"),
            Peer::Remote(rank) => write!(f, "remote rank {rank}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_follows_the_dependencies() {
        let nothing = Region {
            buffer: Buffer::Recv,
            start: 0,
            skip: 0,
            bytes: 0,
        };
        let step = Step::Copy {
            from: nothing,
            to: nothing,
        };
        let schedule = Schedule::new(
            vec![step; 5],
            &[(0, 2), (1, 2), (1, 2), (2, 4), (0, 3)],
            vec![],
        );
        let mut progress = Progress::new(&schedule);
        for _ in 0..2 {
            assert_eq!(
                (progress.next(), progress.next(), progress.next()),
                (Some(0), Some(1), None)
            );
            progress.complete(&schedule, 1);
            assert_eq!(progress.next(), None);
            progress.complete(&schedule, 0);
            assert_eq!(
                (progress.next(), progress.next(), progress.next()),
                (Some(2), Some(3), None)
            );
            progress.complete(&schedule, 2);
            progress.complete(&schedule, 3);
            assert_eq!((progress.next(), progress.is_done()), (Some(4), false));
            progress.complete(&schedule, 4);
            assert!(progress.is_done() && progress.next().is_none());
            progress.restart(&schedule);
        }
        assert!(Progress::new(&Schedule::default()).is_done());
    }
}
