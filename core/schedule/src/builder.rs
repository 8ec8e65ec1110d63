//! Putting schedules together.

use crate::schedule::{Buffer, Peer, Region, Schedule, Step, Temp};

/// Number of a step.
pub(crate) type Id = u32;

/// A schedule in the making. Steps without data are not made: sends, receives and copies of 0 bytes
/// return `None`, and a dependency on `None` is none. Both sides of a message know its size, so
/// they leave it out together.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    steps: Vec<Step>,
    edges: Vec<(Id, Id)>,
    temps: Vec<Temp>,
}

impl Builder {
    pub fn finish(self) -> Schedule {
        Schedule::new(self.steps, &self.edges, self.temps)
    }

    pub fn send(&mut self, to: Peer, tag: u32, region: Region, after: &[Option<Id>]) -> Option<Id> {
        (region.bytes > 0).then(|| self.push(Step::Send { to, tag, region }, after))
    }

    pub fn recv(
        &mut self,
        from: Peer,
        tag: u32,
        region: Region,
        after: &[Option<Id>],
    ) -> Option<Id> {
        (region.bytes > 0).then(|| self.push(Step::Recv { from, tag, region }, after))
    }

    /// Copies as many bytes as both regions have: those that a user gives may differ by mistake.
    pub fn copy(&mut self, from: Region, to: Region, after: &[Option<Id>]) -> Option<Id> {
        let bytes = from.bytes.min(to.bytes);
        let (from, to) = (Region { bytes, ..from }, Region { bytes, ..to });
        (bytes > 0).then(|| self.push(Step::Copy { from, to }, after))
    }

    /// `out = left op right` of regions of `size`-byte elements.
    pub fn combine(
        &mut self,
        left: Region,
        right: Region,
        out: Region,
        size: u64,
        after: &[Option<Id>],
    ) -> Option<Id> {
        assert!(
            left.bytes == right.bytes && right.bytes == out.bytes,
            "a combination has one length"
        );
        (out.bytes > 0).then(|| {
            let count = out.bytes / size;
            self.push(
                Step::Combine {
                    left,
                    right,
                    out,
                    count,
                },
                after,
            )
        })
    }

    /// A message without data.
    pub fn signal(&mut self, to: Peer, tag: u32, after: &[Option<Id>]) -> Option<Id> {
        Some(self.push(
            Step::Send {
                to,
                tag,
                region: Region::NOTHING,
            },
            after,
        ))
    }

    /// Waits for a message without data.
    pub fn await_signal(&mut self, from: Peer, tag: u32, after: &[Option<Id>]) -> Option<Id> {
        Some(self.push(
            Step::Recv {
                from,
                tag,
                region: Region::NOTHING,
            },
            after,
        ))
    }

    pub fn temp_bytes(&mut self, bytes: u64) -> Buffer {
        self.temps.push(Temp::Bytes(bytes));
        Buffer::Temp(self.temps.len() as u32 - 1)
    }

    pub fn temp_elements(&mut self, count: u64) -> Buffer {
        self.temps.push(Temp::Elements(count));
        Buffer::Temp(self.temps.len() as u32 - 1)
    }

    /// Gives a temporary its final size.
    pub fn resize(&mut self, temp: Buffer, size: Temp) {
        let Buffer::Temp(index) = temp else {
            unreachable!("only temporaries have a size")
        };
        self.temps[index as usize] = size;
    }

    fn push(&mut self, step: Step, after: &[Option<Id>]) -> Id {
        let id = self.steps.len() as Id;
        self.steps.push(step);
        self.edges
            .extend(after.iter().flatten().map(|&before| (before, id)));
        id
    }
}

impl Region {
    pub(crate) const NOTHING: Region = Region {
        buffer: Buffer::Recv,
        start: 0,
        skip: 0,
        bytes: 0,
    };

    /// `bytes` packed bytes from element `start`.
    pub(crate) fn at(buffer: Buffer, start: i64, bytes: u64) -> Region {
        Region {
            buffer,
            start,
            skip: 0,
            bytes,
        }
    }

    /// Packed bytes `skip .. skip + bytes` of a temporary of bytes, or of the elements from 0.
    pub(crate) fn slice(buffer: Buffer, skip: u64, bytes: u64) -> Region {
        Region {
            buffer,
            start: 0,
            skip,
            bytes,
        }
    }

    /// `count` elements of `size` bytes from element `start`.
    pub(crate) fn elements(buffer: Buffer, start: u64, count: u64, size: u64) -> Region {
        Region {
            buffer,
            start: start as i64,
            skip: 0,
            bytes: count * size,
        }
    }
}
