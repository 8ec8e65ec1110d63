//! What is known of the ranks of a job, as values: who they are, where they stand, what they wait
//! for.
//!
//! The keepers of a registry (the shared memory of a host, agents between hosts, a model in tests)
//! answer in these terms. [`network`] is what users choose, [`place`] and [`markers`] are what
//! single libraries note there of themselves, [`hosts`] is what who starts a job on several hosts
//! notes for all of it, and [`detail`] what a rank tells of a long wait.

#![forbid(unsafe_code)]

pub mod account;
pub mod crash;
pub mod detail;
pub mod hosts;
pub mod markers;
pub mod network;
pub mod place;

/// Where a rank stands in its life.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The process has not called into the library yet.
    Starting = 0,
    /// Between init and finalize.
    Running = 1,
    /// Finalize is done.
    Finalized = 2,
    /// In use by libraries whose programs do not say when they end (NX, MPL): an exit with code 0
    /// is a normal end.
    Joined = 3,
}

impl Phase {
    /// The phase with that number; numbers of no phase are [`Finalized`](Phase::Finalized).
    #[must_use]
    pub fn from_number(number: u32) -> Phase {
        match number {
            0 => Phase::Starting,
            1 => Phase::Running,
            3 => Phase::Joined,
            _ => Phase::Finalized,
        }
    }
}

/// The kinds of event that a rank waits for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A message to arrive (receive, probe).
    Receive = 1,
    /// A message to be taken by its receiver.
    Send = 2,
    /// Other ranks to arrive in a collective operation.
    Collective = 3,
    /// One of several requests.
    Several = 4,
    /// An event of another job.
    Elsewhere = 5,
    /// A message to be taken by its receiver, with no room left to keep it meanwhile.
    FullSend = 6,
}

impl WaitKind {
    /// The kind with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<WaitKind> {
        Some(match number {
            1 => WaitKind::Receive,
            2 => WaitKind::Send,
            3 => WaitKind::Collective,
            4 => WaitKind::Several,
            5 => WaitKind::Elsewhere,
            6 => WaitKind::FullSend,
            _ => return None,
        })
    }
}

/// What a thread of a rank waits for: what `showmesh` shows and what explains a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The thread, by the system's number for it.
    pub thread: u32,
    /// Which kind of event.
    pub kind: WaitKind,
    /// World rank waited for, if it is one rank.
    pub peer: Option<u32>,
    /// Tag, if the wait has one.
    pub tag: Option<i32>,
    /// Context (communicator) of the wait.
    pub context: u32,
    /// Since when, in nanoseconds of the registry's clock.
    pub since_ns: u64,
    /// What has come of it.
    pub pulse: Pulse,
}

/// What a wait that has been entered has seen, so that an observer that looks twice knows whether
/// it is still alive and still in vain. Both numbers begin anew after their highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// How often the thread has looked since and found that nothing moves.
    pub looks: u16,
    /// How often something has moved, be it for this wait or for another operation of the rank.
    pub moves: u16,
}

impl Pulse {
    /// The pulse as one number.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self.looks) | u32::from(self.moves) << 16
    }

    /// The pulse of a [`number`](Self::number).
    #[must_use]
    pub fn from_number(number: u32) -> Pulse {
        Pulse {
            looks: number as u16,
            moves: (number >> 16) as u16,
        }
    }

    /// The pulse after one more look, after which something has moved or nothing has.
    #[must_use]
    pub fn after(self, moved: bool) -> Pulse {
        let Pulse { looks, moves } = self;
        match moved {
            true => Pulse {
                looks,
                moves: moves.wrapping_add(1),
            },
            false => Pulse {
                looks: looks.wrapping_add(1),
                moves,
            },
        }
    }
}

/// What the threads of a rank wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// One entry for each thread that waits and has a place in the registry, in no order.
    pub listed: Vec<Waiting>,
    /// How many further threads wait.
    pub unlisted: u32,
}

impl Waits {
    /// The wait that began first, if any thread waits.
    #[must_use]
    pub fn first(&self) -> Option<Waiting> {
        self.listed.iter().min_by_key(|w| w.since_ns).copied()
    }
}

/// Who a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id on its host, 0 while unknown.
    pub pid: u32,
    /// The core to which the launcher bound it.
    pub core: Option<u32>,
    /// Index of its program in a job of several programs.
    pub program: u32,
}

/// How near two ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Locality {
    /// They are on different hosts.
    Remote,
    /// They are on one host and share no memory.
    Host,
    /// They share memory.
    Memory,
}

/// The facts of a job that do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The job's number, as the launcher chose it.
    pub job: u64,
    /// Process id of the launcher, 0 without one.
    pub launcher: u32,
    /// When the job began, in nanoseconds of the registry's clock.
    pub started_ns: u64,
    /// The command line.
    pub command: String,
    /// Cores that its ranks on this host may use.
    pub cores: u32,
    /// The ranks go on when one of them dies.
    pub is_tolerant: bool,
}

/// Names a note: words that a rank, or who starts it, leaves for a library in all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteKey(pub u32);

/// The name of a library call as words; names are cut to 32 bytes.
pub type CallName = [u64; 4];

/// The words of a call's name.
#[must_use]
pub const fn call_name(name: &str) -> CallName {
    let bytes = name.as_bytes();
    let mut words = [0u64; 4];
    let mut i = 0;
    while i < bytes.len() && i < 32 {
        words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
        i += 1;
    }
    words
}

/// The name that words spell, empty for none.
#[must_use]
pub fn call_of(words: impl IntoIterator<Item = u64>) -> String {
    let bytes = words.into_iter().flat_map(u64::to_ne_bytes);
    let bytes: Vec<u8> = bytes.take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_calls_are_words_and_back() {
        assert_eq!(call_of(call_name("MPI_Recv")), "MPI_Recv");
        assert_eq!(call_of(call_name("")), "");
        let long = "x".repeat(40);
        assert_eq!(call_of(call_name(&long)), long[..32]);
    }

    #[test]
    fn numbers_of_kinds_and_phases_are_theirs() {
        for number in 0..10 {
            if let Some(kind) = WaitKind::from_number(number) {
                assert_eq!(kind as u32, number);
            }
        }
        assert_eq!(WaitKind::from_number(0), None);
        assert_eq!(WaitKind::from_number(7), None);
        let phases = [0, 1, 2, 3, 7].map(Phase::from_number);
        use Phase::{Finalized, Joined, Running, Starting};
        assert_eq!(phases, [Starting, Running, Finalized, Joined, Finalized]);
    }

    #[test]
    fn the_first_wait_is_the_oldest() {
        let wait = |thread, since_ns| Waiting {
            thread,
            kind: WaitKind::Receive,
            peer: None,
            tag: None,
            context: 0,
            since_ns,
            pulse: Pulse::default(),
        };
        let waits = Waits {
            listed: vec![wait(1, 9), wait(2, 3), wait(3, 5)],
            unlisted: 0,
        };
        assert_eq!(waits.first().map(|w| w.thread), Some(2));
        assert_eq!(Waits::default().first(), None);
    }
}
