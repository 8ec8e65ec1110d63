//! Which cores this process may use, and how to give one up for a moment.

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;
use std::fs;

use margay_core_reduce::{Basic, Op, ReduceError};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity, sched_yield};

use crate::sweep::{Sweep, from_the_end};
#[cfg(target_arch = "x86_64")]
use crate::vectors;

/// The cores that this thread may run on (the affinity mask), in ascending order.
#[must_use]
pub fn affinity() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        // More cores than the fixed-size set can name: trust the online count.
        let n = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        return (0..n).collect();
    };
    cores(&set)
}

fn cores(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

/// Those of the cores that the kernel's fixed-size set can name.
pub(crate) fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &core in cores {
        if core < CpuSet::MAX_CPU {
            set.set(core);
        }
    }
    set
}

/// Binds the calling thread to one core. Returns whether the kernel agreed.
#[must_use]
pub fn bind_to(core: usize) -> bool {
    core < CpuSet::MAX_CPU && sched_setaffinity(None, &set_of(&[core])).is_ok()
}

/// The cores that a thread of this process may run on, in ascending order; none when there is no
/// such thread.
#[must_use]
pub fn affinity_of(thread: u32) -> Option<Vec<usize>> {
    let set = sched_getaffinity(number(thread).ok()?).ok()?;
    Some(cores(&set))
}

/// Binds a thread of this process, 0 for the calling one, to some cores.
///
/// # Errors
/// When the kernel refuses: there is no such thread, or it may use none of the cores.
pub fn bind_thread(thread: u32, cores: &[usize]) -> std::io::Result<()> {
    Ok(sched_setaffinity(number(thread)?, &set_of(cores))?)
}

/// A thread's number as the kernel takes it; 0, the calling thread, is none.
fn number(thread: u32) -> rustix::io::Result<Option<Pid>> {
    let number = i32::try_from(thread).map_err(|_| rustix::io::Errno::SRCH)?;
    Ok(Pid::from_raw(number))
}

/// Tells the kernel that the calling thread is in no hurry: when it wakes, it takes its core from
/// nobody, but waits until that is free or its turn comes (`SCHED_BATCH`). Does nothing to a thread
/// that has a policy of another kind than the usual one.
pub fn set_batch_scheduling() {
    // SAFETY: an all-zero sched_param is valid.
    let usual: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: no memory but `usual`, which is read.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const usual);
        }
    }
}

/// The kernel's number of the calling thread.
#[must_use]
pub fn thread_number() -> u32 {
    gettid().as_raw_pid() as u32
}

/// How many cores this process can keep busy: the affinity mask, cut by the cgroup's CPU quota
/// (a quota of half a core counts as one). At least 1.
#[must_use]
pub fn usable_cores() -> usize {
    let mask = affinity().len().max(1);
    match quota_cores() {
        Some(cores) => mask.min((cores.floor() as usize).max(1)),
        None => mask,
    }
}

/// The CPU quota of this process's cgroup in cores, or none when it is unlimited or cannot be
/// read. Looks at version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`), up to the root.
#[must_use]
pub fn quota_cores() -> Option<f64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least: Option<f64> = None;
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let version2 = controllers.is_empty();
        if !version2 && !controllers.split(',').any(|c| c == "cpu") {
            continue;
        }
        let root = if version2 {
            "/sys/fs/cgroup"
        } else {
            "/sys/fs/cgroup/cpu"
        };
        let mut at = path.trim_matches('/');
        loop {
            let limit = if version2 {
                parse_cpu_max(&read(&[root, at, "cpu.max"]))
            } else {
                parse_cfs(
                    &read(&[root, at, "cpu.cfs_quota_us"]),
                    &read(&[root, at, "cpu.cfs_period_us"]),
                )
            };
            if let Some(cores) = limit {
                least = Some(least.map_or(cores, |l: f64| l.min(cores)));
            }
            if at.is_empty() {
                break;
            }
            at = at.rfind('/').map_or("", |slash| &at[..slash]);
        }
    }
    least
}

/// The processor on which the calling thread runs now; none where the system does not say.
#[must_use]
pub fn current() -> Option<usize> {
    // SAFETY: no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Lets another runnable thread have the core.
pub fn yield_now() {
    sched_yield();
}

/// Asks for the cache line at an address, without waiting for it.
#[inline]
pub fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Tells the core that this is a spin loop.
#[inline]
pub fn pause() {
    std::hint::spin_loop();
}

/// Involuntary context switches of the calling thread so far: how often the kernel took the core
/// away because somebody else wanted it.
#[must_use]
pub fn involuntary_switches() -> u64 {
    involuntary_switches_of(libc::RUSAGE_THREAD)
}

/// The same of all threads of this process.
#[must_use]
pub fn involuntary_switches_of_process() -> u64 {
    involuntary_switches_of(libc::RUSAGE_SELF)
}

fn involuntary_switches_of(whom: libc::c_int) -> u64 {
    usage_of(whom).ru_nivcsw as u64
}

/// What a thread, this process or its children used.
pub(crate) fn usage_of(whom: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is a valid value and the kernel overwrites it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the result.
    unsafe { libc::getrusage(whom, &raw mut usage) };
    usage
}

/// How long the calling thread has waited for a core although it could have run, in nanoseconds;
/// none where the system does not tell. About 3 µs.
#[must_use]
pub fn run_delay_ns() -> Option<u64> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    times.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether the calling thread has a real-time policy, so that normal threads never take its core.
#[must_use]
pub fn has_real_time_policy() -> bool {
    // SAFETY: no memory arguments.
    let policy = unsafe { libc::sched_getscheduler(0) };
    matches!(
        policy & !libc::SCHED_RESET_ON_FORK,
        libc::SCHED_FIFO | libc::SCHED_RR
    )
}

/// Cores of the machine that are in service, those of other users included.
#[must_use]
pub fn online_cores() -> usize {
    // SAFETY: no memory arguments.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(cores).unwrap_or(0).max(1)
}

/// Threads of the whole machine that run now or wait for a core, the calling one included; none
/// where the system does not tell. About 5 µs.
#[must_use]
pub fn runnable_threads() -> Option<usize> {
    parse_runnable(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn parse_runnable(loadavg: &str) -> Option<usize> {
    let counts = loadavg.split_ascii_whitespace().nth(3)?;
    counts.split_once('/')?.0.parse().ok()
}

/// The widest vector instructions of this processor that the library's loops can use.
#[derive(Clone, Copy, Debug)]
pub struct Widest<'a> {
    sweep: Option<&'a Sweep>,
}

impl<'a> Widest<'a> {
    /// Operands are gone through from the start.
    pub const FORWARDS: Widest<'static> = Widest { sweep: None };

    /// For operands that mostly stay in the caches of this core from one call to the next: long
    /// ones are gone through from the end if the call before with this `sweep` was of the same
    /// ones. (For operands that come from another core, that is slower.)
    #[must_use]
    pub const fn alternating(sweep: &'a Sweep) -> Widest<'a> {
        Widest { sweep: Some(sweep) }
    }

    /// Reduces with these instructions, as [`margay_core_reduce::apply`] says. The loops for all
    /// types and operations are compiled here, once: in each crate that asks for them they would be
    /// 250 KB of the library.
    ///
    /// # Errors
    /// As [`margay_core_reduce::apply`].
    #[inline(never)]
    pub fn apply(
        self,
        op: Op,
        basic: Basic,
        inout: &mut [u8],
        input: &[u8],
    ) -> Result<(), ReduceError> {
        margay_core_reduce::apply_with(self, op, basic, inout, input)
    }

    /// Bytes of the blocks in which these operands are gone through from the end; all of them where
    /// that is from the start.
    #[inline]
    fn block(self, inout: &[u8], input: &[u8]) -> usize {
        let len = inout.len();
        let (changed, read) = (inout.as_ptr().addr(), input.as_ptr().addr());
        let turns = |sweep: &Sweep| sweep.is_reversed(changed, read, len);
        match self.sweep.is_some_and(turns) {
            true => 8 << 10,
            false => len,
        }
    }
}

/// Whether vectors of 64 bytes are worth it: the processor has the instructions that this library
/// uses, and is none of those of Intel's that lower their clock for them (before Ice Lake, the
/// first one with the last of these sets).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi2")
}

#[cfg(target_arch = "x86_64")]
impl margay_core_reduce::Vectors for Widest<'_> {
    #[inline]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        // Inlines `f`, so that its loops get these instructions. (No fused multiply-add: it rounds
        // differently.)
        #[target_feature(enable = "avx,avx2,avx512f,avx512bw,avx512dq,avx512vl")]
        fn with_avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        if has_avx512() {
            // SAFETY: the processor has the instructions and the system saves their registers.
            return unsafe { with_avx512(f) };
        }
        without_avx512(f)
    }

    #[inline]
    fn map<const N: usize>(
        self,
        inout: &mut [u8],
        input: &[u8],
        f: impl Fn([u8; N], [u8; N]) -> [u8; N],
    ) {
        // One call for either way: a loop that is compiled twice is not inlined everywhere.
        let (len, block) = (inout.len(), self.block(inout, input));
        if len >= vectors::SHORT && has_avx512() {
            // SAFETY: as in `run`.
            return unsafe { vectors::map_avx512(inout, input, block, f) };
        }
        without_avx512(
            #[inline(always)]
            || {
                for range in from_the_end(len, block) {
                    margay_core_reduce::each(&mut inout[range.clone()], &input[range], &f);
                }
            },
        );
    }
}

/// Calls `f`, compiled for vectors of 32 bytes if the processor has them.
#[cfg(target_arch = "x86_64")]
#[inline]
fn without_avx512<R>(f: impl FnOnce() -> R) -> R {
    // Inlines `f`, as in `Widest::run`.
    #[target_feature(enable = "avx,avx2")]
    fn with_avx2<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions and the system saves their registers.
        return unsafe { with_avx2(f) };
    }
    f()
}

#[cfg(not(target_arch = "x86_64"))]
impl margay_core_reduce::Vectors for Widest<'_> {
    #[inline]
    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline]
    fn map<const N: usize>(
        self,
        inout: &mut [u8],
        input: &[u8],
        f: impl Fn([u8; N], [u8; N]) -> [u8; N],
    ) {
        let (len, block) = (inout.len(), self.block(inout, input));
        for range in from_the_end(len, block) {
            margay_core_reduce::each(&mut inout[range.clone()], &input[range], &f);
        }
    }
}

fn read(parts: &[&str]) -> String {
    fs::read_to_string(parts.join("/")).unwrap_or_default()
}

fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then(|| quota / period)
}

fn parse_cfs(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_texts() {
        assert_eq!(parse_cpu_max("50000 100000\n"), Some(0.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max(""), None);
        assert_eq!(parse_cfs("150000\n", "100000\n"), Some(1.5));
        assert_eq!(parse_cfs("-1\n", "100000\n"), None);
    }

    #[test]
    fn this_thread_runs() {
        assert!(online_cores() >= affinity().len());
        assert!(runnable_threads().is_none_or(|threads| threads >= 1));
        assert_eq!(parse_runnable("0.20 0.18 0.12 3/93 8062\n"), Some(3));
        assert_eq!(parse_runnable("0.20 0.18\n"), None);
    }

    #[test]
    fn a_thread_is_bound_and_found_where_it_was_bound() {
        std::thread::spawn(|| {
            let me = thread_number();
            let core = affinity()[0];
            bind_thread(me, &[core]).unwrap();
            assert_eq!(affinity_of(me), Some(vec![core]));
            assert_eq!(affinity(), [core]);
            assert!(bind_thread(0, &[]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn some_core_is_usable() {
        assert!(usable_cores() >= 1);
        assert!(!affinity().is_empty());
    }
}
