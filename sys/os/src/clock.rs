//! Monotonic time, and clocks as values: code that needs the time is handed one.

use std::fmt;
use std::sync::Arc;

/// Time. May be used from any thread.
pub trait Clock: Send + Sync {
    /// Nanoseconds since a moment in the past; never goes back.
    fn now_ns(&self) -> u64;

    /// The processor's counter, for short times; a few nanoseconds cheaper.
    fn ticks(&self) -> u64;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    #[inline]
    fn ticks(&self) -> u64 {
        ticks()
    }
}

/// Any clock. That of this machine is asked by a direct call: schedulers ask for the time between
/// pieces of work that take tens of nanoseconds.
#[derive(Clone, Default)]
pub enum AnyClock {
    /// The clock of this machine.
    #[default]
    System,
    /// Another one.
    Other(Arc<dyn Clock>),
}

impl Clock for AnyClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        match self {
            AnyClock::System => now_ns(),
            AnyClock::Other(clock) => clock.now_ns(),
        }
    }

    #[inline]
    fn ticks(&self) -> u64 {
        match self {
            AnyClock::System => ticks(),
            AnyClock::Other(clock) => clock.ticks(),
        }
    }
}

impl fmt::Debug for AnyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AnyClock::System => "System",
            AnyClock::Other(_) => "Other",
        })
    }
}

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Nanoseconds of the monotonic clock. The origin is the machine's, so values of two processes
/// of one machine can be compared.
#[must_use]
pub fn now_ns() -> u64 {
    let ts = clock_gettime(ClockId::Monotonic);
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A counter that is read in a few nanoseconds, for telling short from long: it rises steadily,
/// once in a third to once in two nanoseconds on processors of today, or once a nanosecond where
/// there is no such counter. Values of two cores may differ a little.
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

/// A moment as the calendar and the clock on the wall show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    /// Days since Sunday.
    pub weekday: u32,
}

/// As `2026-11-24T06:47:20`.
impl std::fmt::Display for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }
}

/// Shows seconds since 1970 in the local time zone.
#[must_use]
pub fn local(at_s: u64) -> Local {
    let at = at_s.min(i64::MAX as u64 >> 1) as libc::time_t;
    // SAFETY: all zeros are a valid `tm`; both pointers are valid during the call, which writes the
    // second. A moment that it cannot show leaves the zeros.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const at, &raw mut tm);
        tm
    };
    Local {
        year: tm.tm_year.saturating_add(1900),
        month: (tm.tm_mon + 1) as u32,
        day: tm.tm_mday as u32,
        hour: tm.tm_hour as u32,
        minute: tm.tm_min as u32,
        second: tm.tm_sec as u32,
        weekday: tm.tm_wday as u32,
    }
}

/// When a day begins in the local time zone, in seconds since 1970; none when there is no such day.
#[must_use]
pub fn local_midnight(year: i32, month: i32, day: i32) -> Option<u64> {
    local_moment(year, month, day, 0)
}

/// The same of a second of that day, which has 86,400 by the clock on the wall.
#[must_use]
pub fn local_moment(year: i32, month: i32, day: i32, second: u32) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // SAFETY: all zeros are a valid `tm`, and the pointer is valid during the call.
    let at = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        tm.tm_year = year - 1900;
        tm.tm_mon = month - 1;
        tm.tm_mday = day;
        tm.tm_hour = (second / 3600) as i32;
        tm.tm_min = (second / 60 % 60) as i32;
        tm.tm_sec = (second % 60) as i32;
        // Whether summer time counts is looked up.
        tm.tm_isdst = -1;
        libc::mktime(&raw mut tm)
    };
    let at = u64::try_from(at).ok()?;
    // A day that the month does not have has become one of the next month.
    (local(at).day == day as u32).then_some(at)
}
