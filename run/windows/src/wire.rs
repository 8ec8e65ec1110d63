//! The messages by which operations go that cannot be done from afar. `docs/windows.md` draws them.

use margay_core_datatype::Run;

/// Payload of one message: a longer operation goes in fragments.
pub(super) const PAYLOAD: u64 = 32 << 10;
/// Runs of one message; an element of several runs may add some.
pub(super) const RUNS: usize = 640;
/// Longest message.
pub(super) const LONGEST: usize = HEAD + RUN * (RUNS + 8) + PAYLOAD as usize;

const HEAD: usize = 32;
const RUN: usize = 32;

/// What a message asks for or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Verb {
    /// Store the payload.
    Put = 1,
    /// Answer with the bytes.
    Get = 2,
    /// Combine the payload with the bytes.
    Accumulate = 3,
    /// The same, and answer with the bytes before.
    Fetch = 4,
    /// The payload is a new element and one to compare with; answer with the element before.
    Swap = 5,
    /// The answer.
    Answer = 6,
    /// Give a lock.
    Enter = 7,
    /// The lock is given, or will never be.
    Granted = 8,
    /// A lock is given back; wants an answer.
    Leave = 9,
    /// The sender has posted its window to the receiver.
    Posted = 10,
    /// The sender has completed its access epoch.
    Completed = 11,
}

/// The start of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub verb: Verb,
    /// Of an answer: the target has not such memory. Of a lock: a rank has died as a holder.
    pub failed: bool,
    /// Handle of the operation; of lock messages the class.
    pub op: u16,
    /// Handle of the element type; of lock messages 1 for the lock of all targets.
    pub basic: u16,
    /// The origin's number of the operation.
    pub task: u32,
    /// Position in the operation's packed bytes; of a lock, the rank that has died.
    pub position: u64,
    /// Packed bytes that this message is about.
    pub bytes: u32,
}

impl Head {
    /// Returns a message about nothing but its verb.
    pub(super) fn plain(verb: Verb) -> Head {
        Head {
            verb,
            failed: false,
            op: 0,
            basic: 0,
            task: 0,
            position: 0,
            bytes: 0,
        }
    }

    /// Returns the message with these runs of the target's memory; the payload is to be appended.
    pub(super) fn encode(&self, runs: &[Run], payload: usize) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEAD + RUN * runs.len() + payload);
        message.extend([self.verb as u8, u8::from(self.failed)]);
        message.extend(self.op.to_ne_bytes());
        message.extend(self.basic.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(self.task.to_ne_bytes());
        message.extend((runs.len() as u32).to_ne_bytes());
        message.extend(self.position.to_ne_bytes());
        message.extend(self.bytes.to_ne_bytes());
        message.extend([0; 4]);
        for run in runs {
            message.extend(run.offset.to_ne_bytes());
            message.extend(run.block.to_ne_bytes());
            message.extend(run.count.to_ne_bytes());
            message.extend(run.stride.to_ne_bytes());
        }
        message
    }

    /// Head, runs and payload of a message. None for what is not one.
    pub(super) fn decode(message: &[u8]) -> Option<(Head, Vec<Run>, &[u8])> {
        let (head, rest) = message.split_at_checked(HEAD)?;
        let verb = match head[0] {
            1 => Verb::Put,
            2 => Verb::Get,
            3 => Verb::Accumulate,
            4 => Verb::Fetch,
            5 => Verb::Swap,
            6 => Verb::Answer,
            7 => Verb::Enter,
            8 => Verb::Granted,
            9 => Verb::Leave,
            10 => Verb::Posted,
            11 => Verb::Completed,
            _ => return None,
        };
        let short = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let runs = word(12) as usize;
        let (places, payload) = rest.split_at_checked(runs.checked_mul(RUN)?)?;
        let runs = places.chunks_exact(RUN).map(|run| {
            let long = |i: usize| {
                u64::from_ne_bytes(run[8 * i..8 * i + 8].try_into().expect("eight bytes"))
            };
            Run {
                offset: long(0) as i64,
                block: long(1),
                count: long(2),
                stride: long(3) as i64,
            }
        });
        let position = u64::from_ne_bytes(head[16..24].try_into().expect("eight bytes"));
        let head = Head {
            verb,
            failed: head[1] != 0,
            op: short(2),
            basic: short(4),
            task: word(8),
            position,
            bytes: word(24),
        };
        Some((head, runs.collect(), payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let head = Head {
            verb: Verb::Fetch,
            failed: true,
            op: 0x21,
            basic: 0x214,
            task: 77,
            position: 1 << 40,
            bytes: 16,
        };
        let run = Run {
            offset: -8,
            block: 8,
            count: 2,
            stride: 24,
        };
        let mut message = head.encode(&[run], 3);
        message.extend([1, 2, 3]);
        assert_eq!(message.len(), HEAD + RUN + 3);
        assert_eq!(
            Head::decode(&message),
            Some((head, vec![run], &[1, 2, 3][..]))
        );
        assert_eq!(Head::decode(&message[..HEAD + 4]), None);
        message[0] = 99;
        assert_eq!(Head::decode(&message), None);
    }
}
