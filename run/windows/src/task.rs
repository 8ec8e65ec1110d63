//! An operation under way as messages.

use margay_core_datatype::{Basic, Cursor, Run};
use margay_core_reduce::Op;
use margay_run_engine::{Data, ReqId, copy};
use margay_sys_os::user::Mem;

use super::operation::{Job, Kind, Remote};
use super::wire::{Head, PAYLOAD, RUNS, Verb};

/// An operation, which goes to its target in fragments; the answers may come in any order.
pub(super) struct Task {
    pub target: u32,
    pub promise: Option<ReqId>,
    job: Job,
    /// Walks over the target's elements.
    cursor: Cursor,
    /// Displacement of the elements from the window's base, or their address in a dynamic window.
    at: i64,
    answered: u64,
    pub failed: bool,
}

impl Task {
    pub(super) fn new(target: u32, job: Job, at: i64, remote: &Remote) -> Task {
        Task {
            target,
            promise: None,
            cursor: Cursor::new(remote.datatype.flat(), remote.count),
            job,
            at,
            answered: 0,
            failed: false,
        }
    }

    /// Whether all fragments have been made.
    pub(super) fn is_sent(&self) -> bool {
        self.cursor.position() == self.job.bytes
    }

    /// Returns the next fragment of the operation that the origin numbers `number`.
    pub(super) fn fragment(&mut self, number: u32) -> Vec<u8> {
        let element = self.job.basic.size();
        let position = self.cursor.position();
        let most = (PAYLOAD / element * element).min(self.job.bytes - position);
        let mut runs = Vec::new();
        let mut bytes = 0;
        while bytes < most && (runs.len() < RUNS || bytes % element != 0) {
            let Some(run) = self.cursor.next_run(most - bytes) else {
                break;
            };
            bytes += run.bytes();
            let offset = self.at.wrapping_add(run.offset);
            runs.push(Run { offset, ..run });
        }
        let head = Head {
            verb: match self.job.kind {
                Kind::Put => Verb::Put,
                Kind::Get => Verb::Get,
                Kind::Accumulate => Verb::Accumulate,
                Kind::Fetch => Verb::Fetch,
                Kind::Swap => Verb::Swap,
            },
            failed: false,
            op: self.job.op.handle() as u16,
            basic: self.job.basic.handle() as u16,
            task: number,
            position,
            bytes: bytes as u32,
        };
        let mut message = head.encode(&runs, bytes as usize);
        if let Some(origin) = &self.job.origin {
            let packed = Mem::owned(bytes as usize);
            copy(
                &origin.part(position, bytes),
                &Data::bytes(packed.clone(), bytes),
            );
            packed.with_bytes(0, bytes as usize, |b| message.extend(b));
        }
        if let Some(compare) = &self.job.compare {
            compare.with_bytes(0, bytes as usize, |b| message.extend(b));
        }
        message
    }

    /// A fragment was answered. Returns whether that was the last.
    pub(super) fn answer(&mut self, head: &Head, payload: &[u8]) -> bool {
        self.failed |= head.failed;
        let bytes = u64::from(head.bytes);
        if let Some(result) = &self.job.result
            && !head.failed
        {
            let packed = Data::bytes(Mem::from_vec(payload.to_vec()), bytes);
            copy(&packed, &result.part(head.position, bytes));
        }
        self.answered += bytes;
        self.answered == self.job.bytes
    }
}

/// Operation and element type of a message. None for what no origin sends.
pub(super) fn operation(head: &Head) -> Option<(Op, Basic)> {
    let op = Op::from_handle(u64::from(head.op))?;
    let basic = Basic::from_handle(u64::from(head.basic))?;
    margay_core_reduce::is_valid(op, basic).then_some((op, basic))
}
