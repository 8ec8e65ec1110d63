//! How a rank of the segment waits.

use std::sync::Arc;

use margay_net_transport::Bell;
use margay_sys_os::cpu;
use margay_sys_shm::segment::Segment;

pub(crate) struct ShmBell {
    segment: Arc<Segment>,
    me: u32,
}

impl ShmBell {
    pub(crate) fn new(segment: &Arc<Segment>, me: u32) -> Self {
        ShmBell {
            segment: segment.clone(),
            me,
        }
    }
}

impl Bell for ShmBell {
    #[inline]
    fn pause(&self) {
        cpu::pause();
    }

    fn give_way(&self) {
        cpu::yield_now();
    }

    fn sleep(&self, timeout_ns: u64, look: &mut dyn FnMut() -> bool) {
        self.segment
            .registry()
            .bell(self.me)
            .sleep(timeout_ns, look);
    }

    fn wake_own(&self) {
        self.segment.wake(self.me);
    }
}
