//! What all processes of the program share: communicators with their messages and collective calls,
//! and windows with their accesses.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::accesses::Accesses;
use crate::finding::{Call, Finding};
use crate::state::{MPI_ANY_SOURCE, Moment};
use crate::takers::{Asked, Takers};
use crate::types::Data;

/// A communicator as all its members see it.
#[derive(Default)]
pub struct Comm {
    /// World ranks, by rank in it.
    pub members: Vec<u32>,
    /// Those of the other group.
    pub remote: Vec<u32>,
    pub is_inter: bool,
    /// Its members are not all ranks of the job: nothing is compared.
    pub is_opaque: bool,
    /// A collective call on it has failed somewhere: which calls belong together is not known.
    pub is_lost: bool,
    /// How many collective calls each process has made.
    pub made: HashMap<usize, u64>,
    pub slots: BTreeMap<u64, Slot>,
    pub messages: Messages,
}

/// The calls that belong together.
#[derive(Default)]
pub struct Slot {
    pub calls: Vec<Collective>,
    pub returned: usize,
}

/// A collective call of one process.
#[derive(Clone)]
pub struct Collective {
    pub process: usize,
    /// Rank in the communicator.
    pub rank: usize,
    pub call: Call,
    pub name: String,
    pub is_in_place: [bool; 2],
    pub counts: [Vec<i64>; 2],
    pub types: [Vec<u64>; 2],
    pub root: i64,
    pub op: u64,
    pub moment: Moment,
}

impl Comm {
    /// The rank of a process in its own group.
    pub fn rank_of(&self, world_rank: u32) -> Option<usize> {
        self.members.iter().position(|&m| m == world_rank)
    }

    /// The group in which peers of point-to-point calls are.
    pub fn peers(&self) -> &[u32] {
        if self.is_inter {
            &self.remote
        } else {
            &self.members
        }
    }
}

/// A message: ranks in the communicator.
pub struct Sent {
    pub call: Call,
    pub data: Data,
    pub from: usize,
    pub to: usize,
    pub tag: i64,
    pub moment: Moment,
    /// Of the receive that got it.
    pub taken_by: Option<usize>,
}

pub struct Posted {
    pub call: Call,
    pub data: Option<Data>,
    pub at: usize,
    /// What it asks for.
    pub source: i64,
    pub tag: i64,
    /// What it got, once that is known.
    pub got: Option<(usize, i64)>,
    pub is_gone: bool,
    /// When it was over.
    pub ended: Option<Moment>,
    pub message: Option<usize>,
    /// It is among the receives of any source that others are compared with.
    pub is_kept: bool,
}

impl Posted {
    /// What it asks for, beside its receiver.
    pub fn asked(&self) -> Asked<'_> {
        Asked {
            is_any: self.source == MPI_ANY_SOURCE,
            tag: self.tag,
            data: self.data.as_ref(),
        }
    }
}

#[derive(Default)]
pub struct Messages {
    pub sent: BTreeMap<usize, Sent>,
    pub next_sent: usize,
    pub posted: BTreeMap<usize, Posted>,
    pub next_posted: usize,
    /// By receiver: receives in the order in which they were posted.
    pub order: BTreeMap<usize, VecDeque<usize>>,
    /// Sends, and receives, that wait for their counterpart: by sender, receiver, tag.
    pub sends: BTreeMap<(usize, usize, i64), VecDeque<usize>>,
    pub receives: BTreeMap<(usize, usize, i64), VecDeque<usize>>,
    /// Receives of any source that have got their message.
    pub any: Takers,
    /// Which receive got what is not known any more.
    pub is_unknown: bool,
}

/// A window of the job.
#[derive(Default)]
pub struct Window {
    pub members: Vec<u32>,
    pub units: BTreeMap<usize, i64>,
    pub accesses: Accesses,
    /// How many fences each process has made; all there can be once it has freed the window.
    pub fences: BTreeMap<usize, u32>,
    /// How often each process has got from it.
    pub gets: BTreeMap<usize, u32>,
    /// Conflicts with loads and stores of the owner, until it is known whether the processes have
    /// other means to order them.
    pub late: Vec<Late>,
}

/// A conflict of a load or store of a window's owner with an access of another process.
pub struct Late {
    pub owner: usize,
    pub other: usize,
    /// What another process gets may be what it waits for, when it gets it again.
    pub is_void_if_got_again: bool,
    pub found: Finding,
}
