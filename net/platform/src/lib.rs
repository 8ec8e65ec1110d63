//! What a rank stands on: a transport, a way to sleep and be woken, a clock, and a registry of its
//! peers.
//!
//! [`Peers`] is the only way by which engine, MPI, NX, MPL, launcher, displays, the search for
//! deadlocks and recovery learn about ranks. The shared memory of a host implements it
//! (`net/shm`), a model does for tests (`net/seeded`).

#![forbid(unsafe_code)]

pub mod asks;
mod outside;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use margay_core_registry::hosts::Report;
use margay_core_registry::{Facts, Identity, Locality, NoteKey, Phase, Pulse, Waiting, Waits};
use margay_net_transport::{Transport, WakeUp};
pub use margay_sys_os::clock::{Clock, SystemClock};
use margay_sys_os::kept::Words;
use margay_sys_shm::segment::Segment;

pub use outside::{Attending, Attention, Contact, Crossing, JobAddress, this_system};

/// Tells what the ranks of a job are, where they are and what they do. Ranks are world ranks; a
/// rank that is not in the job is a panic. May be used from any thread.
pub trait Peers: Send + Sync {
    /// Returns what distinguishes this job from all others that can be reached.
    fn id(&self) -> u64;

    /// Returns the number of ranks in the job.
    fn size(&self) -> u32;

    /// Returns the facts of the job.
    fn facts(&self) -> Facts;

    /// Cores that the ranks on this rank's host may use.
    fn cores(&self) -> u32;

    /// Whether the ranks go on when one of them dies.
    fn is_tolerant(&self) -> bool;

    /// Returns the identity of a rank.
    fn identity(&self, rank: u32) -> Identity;

    /// Returns the host of a rank, as a number from 0.
    fn host(&self, rank: u32) -> u32;

    /// Returns the name of a host.
    fn host_name(&self, host: u32) -> String;

    /// Returns how many ranks share the [`cores`](Self::cores) of a rank: those of its host, and of
    /// hosts that are containers of the same machine.
    fn sharers(&self, rank: u32) -> u32;

    /// Returns how near two ranks are.
    fn locality(&self, one: u32, other: u32) -> Locality;

    /// Returns the phase of a rank.
    fn phase(&self, rank: u32) -> Phase;

    /// Enters a new phase of a rank.
    fn set_phase(&self, rank: u32, phase: Phase);

    /// Returns the name of the current or last library call of a rank, empty before the first.
    fn call(&self, rank: u32) -> String;

    /// Returns where a rank writes the name of the call that begins.
    fn call_words(&self, rank: u32) -> Words;

    /// Returns what the threads of a rank wait for.
    fn waits(&self, rank: u32) -> Waits;

    /// Enters what a thread of a rank waits for, until the value is dropped.
    fn begin_wait(&self, rank: u32, waiting: &Waiting) -> Box<dyn Noted + '_>;

    /// Whether the process of a rank is known to be gone.
    fn has_exited(&self, rank: u32) -> bool;

    /// Whether a rank has died before it was finalized.
    fn has_failed(&self, rank: u32) -> bool {
        self.has_exited(rank) && self.phase(rank) != Phase::Finalized
    }

    /// Whether the process of a rank is there. Asks the system, which costs microseconds; nobody
    /// may have noticed a death yet.
    fn is_alive(&self, rank: u32) -> bool;

    /// Whether a thread of a rank's process runs, or is ready to, that is not one of `waiting` (the
    /// kernel's numbers). Asks the system, which costs microseconds for each thread.
    fn computes(&self, rank: u32, waiting: &[u32]) -> bool;

    /// What the host of a rank has reported of its process, where that is another host than this
    /// one; none for a rank of this host, of which the system can be asked.
    fn reported(&self, rank: u32) -> Option<Report>;

    /// Returns how many ranks have died before they were finalized. Cheap, so it can be polled;
    /// [`has_failed`](Self::has_failed) tells which ranks they are.
    fn failures(&self) -> u32;

    /// Enters that a rank aborts the job with `code`. Only the first one counts. Returns whether
    /// this was the first.
    fn abort(&self, rank: u32, code: i32) -> bool;

    /// Returns the rank that aborted the job and its code.
    fn aborted(&self) -> Option<(u32, i32)>;

    /// Wakes a rank that sleeps.
    fn wake(&self, rank: u32);

    /// Returns the note of a rank with that key; none where nobody has made it.
    fn note(&self, rank: u32, key: NoteKey) -> Option<Words>;

    /// As [`note`](Self::note), but makes the note, with `words` words of 0, where there is none
    /// yet. For one key and rank, one thread at a time may call this. None when the rank has no
    /// room for a further note.
    fn make_note(&self, rank: u32, key: NoteKey, words: usize) -> Option<Words>;
}

/// A wait that is entered; it is taken back when this is dropped.
pub trait Noted {
    /// Enters what has come of it so far.
    fn set_pulse(&self, pulse: Pulse);
}

/// What a rank stands on.
pub struct Platform {
    /// Moves packets.
    pub transport: Box<dyn Transport>,
    /// How the rank sleeps, and how its own threads wake each other.
    pub wake_up: Arc<dyn WakeUp>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// The other ranks of its job.
    pub peers: Arc<dyn Peers>,
    /// Memory that all ranks of the job share, where data may be exchanged through it.
    pub memory: Option<Arc<Segment>>,
    /// Memory that the ranks of this host share, where others are on other hosts.
    pub host_memory: Option<Arc<Segment>>,
    /// How other jobs are reached, where they can be.
    pub outside: Option<Arc<dyn Outside>>,
}

/// How processes of other jobs are reached. Where processes of several jobs meet, one makes a
/// *bridge*, a place in which each of them has a rank and through which they talk.
pub trait Outside: Send + Sync {
    /// Returns where the job of this process is found, by way of this process.
    fn address(&self) -> JobAddress;

    /// Returns the registry of another job.
    ///
    /// # Errors
    /// When it is not there (any more), or of another version.
    fn find(&self, job: JobAddress) -> io::Result<Arc<dyn Peers>>;

    /// Returns a new bridge for `ranks` processes. It lives as long as a process holds it.
    ///
    /// # Errors
    /// When the system has no memory for it.
    fn make_bridge(&self, ranks: u32) -> io::Result<(JobAddress, Arc<dyn Peers>)>;

    /// Joins a bridge as its rank `me`.
    ///
    /// # Errors
    /// As [`find`](Self::find), and when it has no such rank.
    fn join_bridge(
        &self,
        bridge: JobAddress,
        me: u32,
    ) -> io::Result<(Arc<dyn Peers>, Box<dyn Transport>)>;

    /// Whether what ranks of this job send to other hosts is encrypted.
    fn encrypts(&self) -> bool {
        false
    }

    /// Listens for processes of other jobs on other hosts.
    ///
    /// # Errors
    /// When there is no port or descriptor left, or this rank reaches no other hosts.
    fn listen(&self) -> io::Result<(TcpListener, Contact)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Joins a bridge over the network.
    ///
    /// # Errors
    /// When there is no descriptor left, or this rank reaches no other hosts.
    fn cross(&self, _crossing: Crossing) -> io::Result<(Arc<dyn Peers>, Box<dyn Transport>)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Lets this rank, when it sleeps, look every few milliseconds at what wakes nobody, until the
    /// value is dropped.
    fn attend(&self) -> Attending;
}
