//! How a rank waits for its neighbours in memory and for its sockets at the same time.
//!
//! One thread of the rank sleeps on descriptors: the set of sockets, and the doorbell that those
//! ring who change its futex word. Further threads sleep on the word. When the first one leaves
//! while others sleep, it wakes them, and one of them takes its place. A thread that finds the
//! place taken looks again after it has announced itself: either it sees that the place is free by
//! then, or the one that leaves sees it asleep.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use margay_net_ofi::Sleep;
use margay_net_platform::Attention;
use margay_net_transport::WakeUp;
use margay_sys_os::cpu;
use margay_sys_os::descriptor::PollSet;
use margay_sys_os::sockets::Epoll;
use margay_sys_shm::doorbell::Doorbell;
use margay_sys_shm::segment::Segment;

pub(crate) struct HostsWakeUp {
    segment: Arc<Segment>,
    me: u32,
    doorbell: Doorbell,
    sockets: Arc<Epoll>,
    soon: Arc<AtomicU64>,
    /// What a fabric has to be asked before the rank sleeps.
    fabric: Option<Arc<Sleep>>,
    attention: Attention,
    /// A thread sleeps on the descriptors, or is about to.
    is_watched: AtomicBool,
    /// That thread's.
    poll: Mutex<PollSet>,
}

impl HostsWakeUp {
    pub(crate) fn new(
        segment: &Arc<Segment>,
        me: u32,
        (sockets, soon, fabric): (Arc<Epoll>, Arc<AtomicU64>, Option<Arc<Sleep>>),
        attention: Attention,
    ) -> io::Result<HostsWakeUp> {
        Ok(HostsWakeUp {
            segment: segment.clone(),
            me,
            doorbell: segment.doorbell(me)?,
            sockets,
            soon,
            fabric,
            attention,
            is_watched: AtomicBool::new(false),
            poll: Mutex::new(PollSet::default()),
        })
    }

    fn watch(&self, timeout_ns: u64) {
        let timeout_ns = self.attention.limit(timeout_ns);
        let limit = match self.soon.load(Ordering::Relaxed) {
            0 => timeout_ns,
            soon => soon.min(timeout_ns),
        };
        let limit = match &self.fabric {
            Some(fabric) => fabric.limit(limit),
            None => limit,
        };
        let mut poll = self.poll.lock().unwrap_or_else(PoisonError::into_inner);
        poll.clear();
        poll.add_readable(self.sockets.as_fd());
        let doorbell = poll.add_readable(self.doorbell.as_fd());
        // A wait that fails is looked at by who waits, as one that ends early.
        let _ = poll.wait(Some(Duration::from_nanos(limit)));
        if poll.ready(doorbell).readable {
            self.doorbell.silence();
        }
    }
}

impl WakeUp for HostsWakeUp {
    #[inline]
    fn pause(&self) {
        cpu::pause();
    }

    fn yield_core(&self) {
        cpu::yield_now();
    }

    fn sleep(&self, timeout_ns: u64, has_work: &mut dyn FnMut() -> bool) {
        let count = self.segment.registry().event_count(self.me);
        if self.is_watched.swap(true, Ordering::SeqCst) {
            count.sleep(timeout_ns, || {
                has_work() || !self.is_watched.load(Ordering::SeqCst)
            });
            return;
        }
        let look = || match &self.fabric {
            Some(fabric) => fabric.announce(has_work),
            None => has_work(),
        };
        count.sleep_by(timeout_ns, look, |timeout_ns| self.watch(timeout_ns));
        self.is_watched.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if count.has_sleepers() {
            count.wake();
        }
    }

    fn wake_own(&self) {
        self.segment.wake(self.me);
    }
}
