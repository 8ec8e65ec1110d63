//! What a rank does at the end of its process.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::mpsc::channel;

use margay_net_shm::platform;
use margay_net_transport::Thresholds;
use margay_run_engine::{Limits, Policy, Rank};
use margay_sys_shm::layout::Sizes;
use margay_sys_shm::segment::Segment;

#[test]
fn the_end_waits_for_who_is_inside_but_not_for_ever() {
    const SHORT_NS: u64 = 20_000_000;
    const LONG_NS: u64 = 60_000_000_000;
    let segment = Arc::new(Segment::create(Sizes::for_job(1)).unwrap());
    let platform = platform(&segment, 0, Arc::new(Thresholds::measured()), true);
    let rank = Rank::over(platform, Limits::default(), Policy::new(1, 1));
    assert!(rank.drain_within(SHORT_NS));
    let (tell_inside, inside) = channel();
    let (let_go, may_leave) = channel::<()>();
    let held = &rank;
    std::thread::scope(|threads| {
        threads.spawn(move || {
            held.with_engine(|_| {
                tell_inside.send(()).unwrap();
                may_leave.recv().unwrap();
            });
        });
        inside.recv().unwrap();
        assert!(!rank.drain_within(SHORT_NS));
        let_go.send(()).unwrap();
        assert!(rank.drain_within(LONG_NS));
    });
    // A callback that exits has a call of its own thread around it.
    rank.with_engine(|_| assert!(!rank.drain_within(SHORT_NS)));
}
