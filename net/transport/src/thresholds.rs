//! From which sizes on messages are copied directly.

use std::sync::atomic::{AtomicU64, Ordering};

/// From which size on a way is taken, in bytes. See [`Thresholds::measured`] for the reasons.
///
/// They may change at any time, from any thread.
#[derive(Debug)]
pub struct Thresholds {
    /// A buffer in the arena is copied once from there, by the receiver alone.
    pub arena: AtomicU64,
    /// From here on two copying beat one in spite of their system calls, also out of the arena.
    pub arena_end: AtomicU64,
    /// Any other buffer is copied by cross-memory attach.
    pub attach: AtomicU64,
    /// Longest part that one side claims.
    pub part: AtomicU64,
    /// A message to another host is read by its receiver through a fabric that can.
    pub fabric: AtomicU64,
}

impl Thresholds {
    /// Everything goes through the pipes.
    #[must_use]
    pub fn bytes_only() -> Thresholds {
        Thresholds {
            arena: AtomicU64::new(u64::MAX),
            arena_end: AtomicU64::new(0),
            attach: AtomicU64::new(u64::MAX),
            part: AtomicU64::new(4096),
            fabric: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the thresholds for this processor, from measurements (`make bench`, two ranks on two
    /// cores, half round trip).
    ///
    /// | processor | pipe, 64 KiB | attach, 64 KiB | pipe, 1 MiB | attach, 1 MiB |
    /// | --- | --- | --- | --- | --- |
    /// | AMD EPYC (Zen 5), shared level-3 cache | 1.5 µs | 3.1 µs | 17 µs | 41 µs (huge pages: 9) |
    /// | Intel Xeon (Sapphire Rapids), mesh | 9.5 µs | 3.7 µs | 95 µs | 40 µs |
    ///
    /// Where a line that another core wrote is slow to read, copying once beats copying twice from
    /// 16 KiB on, in spite of the system calls. Where it is fast, a well-fed pipe wins up to the
    /// sizes of huge pages. The arena saves the system call and the second copy on both. A message
    /// is split into two parts, one for each side, as long as each part stays in a level-2 cache.
    #[must_use]
    pub fn measured() -> Self {
        let dear_lines = margay_sys_os::processor::is_intel();
        Thresholds {
            arena: AtomicU64::new(8 << 10),
            arena_end: AtomicU64::new(512 << 10),
            attach: AtomicU64::new(if dear_lines { 16 << 10 } else { 512 << 10 }),
            part: AtomicU64::new(512 << 10),
            fabric: AtomicU64::new(256 << 10),
        }
    }

    /// Returns the part of a message of `bytes` that one side claims at a time: half of it, in
    /// whole pages.
    #[must_use]
    pub fn part_of(&self, bytes: u64) -> u64 {
        let longest = self.part.load(Ordering::Relaxed).max(4096);
        (bytes / 2).next_multiple_of(4096).min(longest)
    }
}
