//! The scheduler's delays with a clock that stands still until the test lets it go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_run_threads::{AnyClock, Config, Offer, Pool, STEAL_DELAY_NS, Worker};
use margay_sys_os::clock::Clock;

#[derive(Default)]
struct StoppedClock {
    now_ns: AtomicU64,
    asked: AtomicU64,
}

impl StoppedClock {
    fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Returns when an idle worker has gone through its loop some times.
    fn wait_for_idle_worker(&self) {
        let until = self.asked.load(Ordering::SeqCst) + 50;
        while self.asked.load(Ordering::SeqCst) < until {
            std::thread::yield_now();
        }
    }
}

impl Clock for StoppedClock {
    fn now_ns(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.now_ns.load(Ordering::SeqCst)
    }

    fn ticks(&self) -> u64 {
        1
    }
}

/// Lets the clock go on at the end, also of a test that fails: idle workers of a pool that ends
/// look up when they scan next.
struct GoOn(Arc<StoppedClock>);

impl Drop for GoOn {
    fn drop(&mut self) {
        self.0.advance(1 << 61);
    }
}

struct OnePart {
    tag: u32,
    is_open: AtomicBool,
}

impl Offer<Worker> for OnePart {
    fn help(self: Arc<Self>, _: &Worker) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    fn tag(&self) -> u32 {
        self.tag
    }
}

#[test]
fn a_short_offer_is_left_alone_for_the_steal_delay_of_the_pools_clock() {
    let clock = Arc::new(StoppedClock::default());
    clock.advance(1_000_000_000);
    let config = Config {
        workers: 2,
        spin_ns: 1 << 60,
        ..Config::default()
    };
    let pool = Pool::new(config, AnyClock::Other(clock.clone()));
    let _before_the_pool = GoOn(clock.clone());
    pool.enter(|worker| {
        let offer = Arc::new(OnePart {
            tag: worker.tag(),
            is_open: AtomicBool::new(true),
        });
        clock.wait_for_idle_worker();
        let published = worker.publish_offer(offer.clone(), true);
        // The other worker scans what others have published once in a microsecond.
        for _ in 1..STEAL_DELAY_NS / 1_000 {
            clock.advance(1_000);
            clock.wait_for_idle_worker();
            assert!(offer.is_open());
        }
        while offer.is_open() {
            clock.advance(1_000);
            clock.wait_for_idle_worker();
        }
        worker.retract_offer(published);
    });
}
