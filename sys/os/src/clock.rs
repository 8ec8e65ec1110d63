//! Monotonic time.

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Nanoseconds of the monotonic clock. The origin is the machine's, so values of two processes
/// of one machine can be compared.
#[must_use]
pub fn now_ns() -> u64 {
    let ts = clock_gettime(ClockId::Monotonic);
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A counter that is read in a few nanoseconds, for telling short from long: it rises steadily, once in a third to once in
/// two nanoseconds on processors of today, or once a nanosecond where there is no such counter. Values of two cores may
/// differ a little.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor of this kind has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    now_ns()
}

/// The resolution of [`now_ns`] in seconds, as the kernel tells it.
#[must_use]
pub fn resolution_s() -> f64 {
    let ts = clock_getres(ClockId::Monotonic);
    ts.tv_sec as f64 + ts.tv_nsec as f64 * 1e-9
}
