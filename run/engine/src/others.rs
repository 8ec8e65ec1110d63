//! Processes of other jobs: a segment for them and the own one is a further world.

use std::sync::Arc;

use margay_net_shm::{Shm, Thresholds};
use margay_net_transport::World;
use margay_sys_shm::segment::{Phase, Segment};

/// A process in a segment that several jobs share.
pub struct Member {
    /// The number by which this rank knows it.
    pub process: u32,
    /// Whether messages to it go through this segment.
    pub routed: bool,
    /// Its own job's segment, and its rank there.
    pub home: (Arc<Segment>, u32),
}

/// The world of those who share `segment`, in the order of their ranks in it; this process is number `me`.
#[must_use]
pub fn world(
    segment: &Arc<Segment>,
    me: u32,
    members: Vec<Member>,
    thresholds: Arc<Thresholds>,
) -> World {
    segment.cell(me).identify(std::process::id(), None, 0);
    segment.cell(me).set_phase(Phase::Running);
    let mut world = World {
        key: segment.id(),
        transport: Box::new(Shm::new(segment, me, thresholds)),
        processes: Vec::with_capacity(members.len()),
        routed: Vec::with_capacity(members.len()),
        wakes: Vec::with_capacity(members.len()),
    };
    for Member {
        process,
        routed,
        home: (home, rank),
    } in members
    {
        world.processes.push(process);
        world.routed.push(routed);
        world
            .wakes
            .push(Box::new(move || home.cell(rank).bell().ring()));
    }
    world
}
