//! How a rank of the segment waits.

use std::sync::Arc;

use margay_net_platform::Attention;
use margay_net_transport::WakeUp;
use margay_sys_os::cpu;
use margay_sys_shm::segment::Segment;

pub(crate) struct ShmWakeUp {
    segment: Arc<Segment>,
    me: u32,
    attention: Attention,
}

impl ShmWakeUp {
    pub(crate) fn new(segment: &Arc<Segment>, me: u32, attention: Attention) -> Self {
        ShmWakeUp {
            segment: segment.clone(),
            me,
            attention,
        }
    }
}

impl WakeUp for ShmWakeUp {
    #[inline]
    fn pause(&self) {
        cpu::pause();
    }

    fn yield_core(&self) {
        cpu::yield_now();
    }

    fn sleep(&self, timeout_ns: u64, has_work: &mut dyn FnMut() -> bool) {
        self.segment
            .registry()
            .event_count(self.me)
            .sleep(self.attention.limit(timeout_ns), has_work);
    }

    fn wake_own(&self) {
        self.segment.wake(self.me);
    }
}
