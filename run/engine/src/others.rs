//! Processes of other jobs: a bridge between them and this process is a further world.

use std::io;
use std::sync::Arc;

use margay_net_platform::{Crossing, JobAddress, Peers};
use margay_net_transport::{Transport, World};

use crate::rank::Rank;

/// A process on a bridge.
pub struct Member {
    /// The number by which this rank knows it.
    pub process: u32,
    /// Whether messages to it go over this bridge.
    pub routed: bool,
    /// Its own job's registry, and its rank there.
    pub home: (Arc<dyn Peers>, u32),
}

/// A bridge that this process has joined.
pub struct Joined {
    /// The processes on it.
    pub peers: Arc<dyn Peers>,
    world: World,
}

impl Joined {
    fn on((peers, transport): (Arc<dyn Peers>, Box<dyn Transport>)) -> Joined {
        let world = World {
            key: peers.id(),
            transport,
            processes: Vec::new(),
            routed: Vec::new(),
            wakes: Vec::new(),
        };
        Joined { peers, world }
    }

    /// Returns the world of the processes on the bridge, in the order of their ranks there.
    #[must_use]
    pub fn world(mut self, members: Vec<Member>) -> World {
        for Member {
            process,
            routed,
            home: (home, rank),
        } in members
        {
            self.world.processes.push(process);
            self.world.routed.push(routed);
            self.world.wakes.push(Box::new(move || home.wake(rank)));
        }
        self.world
    }
}

impl Rank {
    /// Joins a bridge as its rank `me`.
    ///
    /// # Errors
    /// When it is not there, has no such rank, or this rank reaches no other jobs.
    pub fn join_bridge(&self, bridge: JobAddress, me: u32) -> io::Result<Joined> {
        let Some(outside) = self.outside() else {
            return Err(io::Error::other("this rank reaches no other jobs"));
        };
        Ok(Joined::on(outside.join_bridge(bridge, me)?))
    }

    /// Joins a bridge over the network.
    ///
    /// # Errors
    /// When there is no descriptor left, or this rank reaches no other hosts.
    pub fn cross(&self, crossing: Crossing) -> io::Result<Joined> {
        let Some(outside) = self.outside() else {
            return Err(io::Error::other("this rank reaches no other jobs"));
        };
        Ok(Joined::on(outside.cross(crossing)?))
    }
}
