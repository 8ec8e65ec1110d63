//! The system calls in which a thread may be found waiting, and how each goes on after others have
//! run on the thread.
//!
//! Only calls at which a library is between two steps: none that changes memory (`mmap`,
//! `madvise`), since an allocator calls those in the middle of its work.

use std::ffi::{c_int, c_long};
use std::time::{Duration, Instant};

use super::registers::{Call, Registers};

/// How a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It is made again.
    Again,
    /// It is made again. On a socket with a limit of time, which would begin anew, it is left
    /// alone.
    Transfer,
    /// A futex without a limit of time: asked now and then while others run, and made again when it
    /// has changed.
    Futex,
    /// A sleep, the arguments that hold the time and what is left of it, and the clock of an
    /// absolute time.
    Sleep {
        request: usize,
        left: usize,
        until: Option<c_int>,
    },
    /// A call that asks for events, and the argument with its limit of time.
    Events { limit: usize, unit: LimitUnit },
}

/// How a limit of time is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitUnit {
    /// As a number, negative for none.
    Milliseconds,
    /// As a pointer to a `timespec`, null for none.
    Timespec,
}

/// How a waiting thread goes on with this call; none where it has to be left alone.
pub(super) fn wait_of(call: &Call) -> Option<Wait> {
    let [_, second, third, fourth, ..] = call.arguments;
    let number: c_long = call.number;
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => {
            return Some(Wait::Events {
                limit: 2,
                unit: LimitUnit::Milliseconds,
            });
        }
        libc::SYS_epoll_wait => {
            return Some(Wait::Events {
                limit: 3,
                unit: LimitUnit::Milliseconds,
            });
        }
        // As `pselect6` below.
        libc::SYS_select => return Some(Wait::Again),
        _ => {}
    }
    match number {
        libc::SYS_futex => futex_wait_of(second, fourth),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => Some(Wait::Transfer),
        libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_flock
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_semop => Some(Wait::Again),
        // The kernel has written what is left of the limit of time.
        libc::SYS_pselect6 => Some(Wait::Again),
        // With a limit of time it would begin anew.
        libc::SYS_rt_sigtimedwait => (third == 0).then_some(Wait::Again),
        libc::SYS_fcntl => {
            let waits = second == libc::F_SETLKW as u64 || second == libc::F_OFD_SETLKW as u64;
            waits.then_some(Wait::Again)
        }
        libc::SYS_nanosleep => Some(Wait::Sleep {
            request: 0,
            left: 1,
            until: None,
        }),
        libc::SYS_clock_nanosleep => {
            let is_absolute = second & libc::TIMER_ABSTIME as u64 != 0;
            Some(Wait::Sleep {
                request: 2,
                left: 3,
                until: is_absolute.then_some(call.arguments[0] as c_int),
            })
        }
        libc::SYS_ppoll => Some(Wait::Events {
            limit: 2,
            unit: LimitUnit::Timespec,
        }),
        libc::SYS_epoll_pwait => Some(Wait::Events {
            limit: 3,
            unit: LimitUnit::Milliseconds,
        }),
        _ => None,
    }
}

/// Bits of a futex operation that do not say which it is.
const FUTEX_FLAGS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;

fn futex_wait_of(operation: u64, limit: u64) -> Option<Wait> {
    const WAIT: u64 = libc::FUTEX_WAIT as u64;
    const WAIT_BITSET: u64 = libc::FUTEX_WAIT_BITSET as u64;
    match (operation & !FUTEX_FLAGS, limit) {
        (WAIT | WAIT_BITSET, 0) => Some(Wait::Futex),
        // The limit is a point in time.
        (WAIT_BITSET, _) => Some(Wait::Again),
        // It would begin anew each time.
        _ => None,
    }
}

/// Whether the call of a [`Wait::Transfer`] has a limit of time.
pub(super) fn has_time_limit(call: &Call) -> bool {
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO]
        .into_iter()
        .any(|option| {
            let mut limit = libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            };
            let mut size = size_of::<libc::timeval>() as libc::socklen_t;
            // SAFETY: room for the answer, of the size that is passed. What is no socket is
            // refused.
            let asked = unsafe {
                libc::getsockopt(
                    call.arguments[0] as c_int,
                    libc::SOL_SOCKET,
                    option,
                    (&raw mut limit).cast(),
                    &raw mut size,
                )
            };
            asked == 0 && (limit.tv_sec != 0 || limit.tv_usec != 0)
        })
}

/// The shortest and the longest time for which a thread whose waiting members have nobody to run
/// rests before it asks again.
const MIN_REST: Duration = Duration::from_micros(50);
const MAX_REST: Duration = Duration::from_millis(1);

/// How long to rest between two turns of a member that waits: not at all while others use their
/// turns, longer and longer while they wait, too.
struct Rest(Duration);

impl Rest {
    fn new() -> Rest {
        Rest(Duration::ZERO)
    }

    /// Lets others run. Returns how long to rest then, and whether others are left to run.
    fn after(&mut self, others: &mut dyn FnMut() -> bool) -> (Duration, bool) {
        let begin = Instant::now();
        let more = others();
        self.0 = if begin.elapsed() > 2 * MIN_REST {
            Duration::ZERO
        } else {
            (self.0 * 2).clamp(MIN_REST, MAX_REST)
        };
        (self.0, more)
    }
}

/// A thread waits in `call`, or has just been interrupted there: lets others run, and then the call
/// go on. `others` runs them, and returns whether there is more to run.
pub(super) fn go_on(
    registers: &mut Registers<'_>,
    call: &Call,
    wait: Wait,
    is_next: bool,
    others: &mut dyn FnMut() -> bool,
) {
    let result = match wait {
        Wait::Futex => wait_for_futex(call, others),
        Wait::Sleep {
            request,
            left,
            until,
        } if !is_next => {
            sleep(call, request, left, until, others);
            Some(0)
        }
        Wait::Events { limit, unit } if !is_next => wait_for_events(call, limit, unit, others),
        // The others have not begun yet, and begin when the thread goes on.
        Wait::Again | Wait::Transfer | Wait::Sleep { .. } | Wait::Events { .. } => {
            others();
            None
        }
    };
    match result {
        Some(result) => registers.end_call(result, is_next),
        None => registers.make_again(call, is_next),
    }
}

fn system_call(call: &Call) -> i64 {
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the program makes this call with these arguments at this moment, up to its limit of
    // time.
    let result = unsafe { libc::syscall(call.number, a, b, c, d, e, f) };
    if result == -1 {
        // SAFETY: the errno of this thread.
        -i64::from(unsafe { *libc::__errno_location() })
    } else {
        result
    }
}

fn timespec_of(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as c_long,
    }
}

fn duration_of(time: libc::timespec) -> Duration {
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

/// A member that waits for a futex in the kernel occupies the thread; so it asks now and then, and
/// waits there only when there is nobody else. Returns the result if the wait is over.
fn wait_for_futex(call: &Call, others: &mut dyn FnMut() -> bool) -> Option<i64> {
    let private = call.arguments[1] & libc::FUTEX_PRIVATE_FLAG as u64;
    let mut rest = Rest::new();
    loop {
        let (time, more) = rest.after(others);
        if !more {
            return None;
        }
        let limit = timespec_of(time);
        let mut asked = *call;
        asked.arguments[1] = libc::FUTEX_WAIT as u64 | private;
        asked.arguments[3] = (&raw const limit).expose_provenance() as u64;
        match -system_call(&asked) as c_int {
            libc::ETIMEDOUT | libc::EINTR => {}
            // Woken, and nobody else is woken in its place.
            0 => return Some(0),
            // It has changed, which the kernel tells the program.
            _ => return None,
        }
    }
}

/// What a pointer among the arguments refers to.
///
/// # Safety
/// The kernel has taken the argument for a pointer to a time.
unsafe fn time_at(call: &Call, argument: usize) -> Option<libc::timespec> {
    let at = call.arguments[argument] as usize;
    // SAFETY: by the caller's promise; the call is not over for the program.
    (at != 0).then(|| unsafe { *std::ptr::with_exposed_provenance::<libc::timespec>(at) })
}

fn nap(time: Duration) {
    let request = timespec_of(time);
    // SAFETY: the request is valid; a caller that is interrupted asks again.
    unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
}

/// Lets others run until a sleep is over. Where the program has not asked what is left of it, it
/// lasts for the whole time from now on: longer, by as much as it took to notice it.
fn sleep(
    call: &Call,
    request: usize,
    left: usize,
    until: Option<c_int>,
    others: &mut dyn FnMut() -> bool,
) {
    // SAFETY: the kernel has taken the argument for that.
    let asked = unsafe { time_at(call, request) };
    // SAFETY: as above; the kernel has written there when it interrupted the sleep, unless that is
    // up to a point in time.
    let left = until.is_none().then(|| unsafe { time_at(call, left) });
    let Some(asked) = left.flatten().or(asked).map(duration_of) else {
        return;
    };
    let begin = Instant::now();
    let time_left = || match until {
        None => asked.saturating_sub(begin.elapsed()),
        Some(clock) => {
            let mut now = timespec_of(Duration::ZERO);
            // SAFETY: room for the answer; the kernel knows the clock.
            unsafe { libc::clock_gettime(clock, &raw mut now) };
            asked.saturating_sub(duration_of(now))
        }
    };
    let mut rest = Rest::new();
    loop {
        let left = time_left();
        if left.is_zero() {
            return;
        }
        let (time, more) = rest.after(others);
        nap(time_left().min(if more { time } else { MAX_REST }));
    }
}

/// Lets others run until there are events, or the limit of time is reached. Returns the result,
/// none to ask the kernel again.
fn wait_for_events(
    call: &Call,
    limit: usize,
    unit: LimitUnit,
    others: &mut dyn FnMut() -> bool,
) -> Option<i64> {
    let given = call.arguments[limit];
    let time = match unit {
        LimitUnit::Milliseconds => u64::try_from(given as i32).ok().map(Duration::from_millis),
        // SAFETY: the kernel has taken the argument for that; what it has written there is the time
        // that is left.
        LimitUnit::Timespec => unsafe { time_at(call, limit) }.map(duration_of),
    };
    let Some(time) = time else {
        others();
        return None;
    };
    let begin = Instant::now();
    let mut rest = Rest::new();
    loop {
        let (pause, _) = rest.after(others);
        let mut none = timespec_of(Duration::ZERO);
        let mut asked = *call;
        asked.arguments[limit] = match unit {
            LimitUnit::Milliseconds => 0,
            LimitUnit::Timespec => (&raw mut none).expose_provenance() as u64,
        };
        let result = system_call(&asked);
        if result != 0 && result != -i64::from(libc::EINTR) {
            return Some(result);
        }
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Some(0);
        }
        nap(left.min(pause));
    }
}

/// A `write` has ended with `written` bytes, fewer than asked for, because the thread was
/// interrupted: lets others run and writes the rest, a piece at a time that fits. Returns the
/// result.
pub(super) fn write_rest(call: &Call, written: i64, others: &mut dyn FnMut() -> bool) -> i64 {
    let [descriptor, from, size, ..] = call.arguments;
    let mut written = written as u64;
    let mut rest = Rest::new();
    while written < size {
        let (time, _) = rest.after(others);
        let mut room = libc::pollfd {
            fd: descriptor as c_int,
            events: libc::POLLOUT,
            revents: 0,
        };
        let limit_ms = time.as_millis() as c_int;
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&raw mut room, 1, limit_ms) } <= 0 {
            nap(time);
            continue;
        }
        let mut piece = *call;
        piece.arguments[1] = from + written;
        piece.arguments[2] = (size - written).min(libc::PIPE_BUF as u64);
        match system_call(&piece) {
            error if error < 0 && error != -i64::from(libc::EINTR) => break,
            count => written += count.max(0) as u64,
        }
    }
    written as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: c_long, arguments: [u64; 6]) -> Call {
        Call { number, arguments }
    }

    #[test]
    fn calls_that_change_memory_and_unknown_ones_are_left_alone() {
        for number in [
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_brk,
            libc::SYS_madvise,
            libc::SYS_io_getevents,
        ] {
            assert_eq!(wait_of(&call(number, [0; 6])), None);
        }
        let with_limit = call(libc::SYS_rt_sigtimedwait, [8, 8, 8, 8, 0, 0]);
        assert_eq!(wait_of(&with_limit), None);
    }

    #[test]
    fn futexes_are_waited_for_unless_their_time_would_begin_anew() {
        let futex = |operation: c_int, limit| {
            wait_of(&call(
                libc::SYS_futex,
                [8, operation as u64, 0, limit, 0, 0],
            ))
        };
        let private = libc::FUTEX_PRIVATE_FLAG;
        assert_eq!(futex(libc::FUTEX_WAIT | private, 0), Some(Wait::Futex));
        assert_eq!(futex(libc::FUTEX_WAIT | private, 8), None);
        let absolute = libc::FUTEX_WAIT_BITSET | private | libc::FUTEX_CLOCK_REALTIME;
        assert_eq!(futex(absolute, 8), Some(Wait::Again));
        assert_eq!(futex(absolute, 0), Some(Wait::Futex));
        assert_eq!(futex(libc::FUTEX_WAKE, 0), None);
        assert_eq!(futex(libc::FUTEX_LOCK_PI, 0), None);
    }

    #[test]
    fn a_sleep_lasts_its_time_while_others_run() {
        let request = timespec_of(Duration::from_millis(20));
        let at = (&raw const request).expose_provenance() as u64;
        let asked = call(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]);
        let begin = Instant::now();
        let mut turns = 0;
        sleep(&asked, 0, 1, None, &mut || {
            turns += 1;
            true
        });
        assert!(begin.elapsed() >= Duration::from_millis(20));
        assert!(turns > 5);
    }

    #[test]
    fn a_futex_that_has_changed_ends_the_wait_and_so_does_nobody_else_to_run() {
        let word = 5_u32;
        let at = (&raw const word).expose_provenance() as u64;
        let wait = |value| {
            call(
                libc::SYS_futex,
                [at, libc::FUTEX_WAIT as u64, value, 0, 0, 0],
            )
        };
        assert_eq!(wait_for_futex(&wait(4), &mut || true), None);
        let mut turns = 0;
        let mut others = || {
            turns += 1;
            turns < 3
        };
        assert_eq!(wait_for_futex(&wait(5), &mut others), None);
        assert_eq!(turns, 3);
    }
}
