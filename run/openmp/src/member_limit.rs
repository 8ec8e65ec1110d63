//! How many members a region may have by the limits of the process: each waiting member needs a
//! stack, which needs address space and mappings.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use margay_sys_os::{cpu, memory};

use crate::scheduler::warn;

/// Mappings that a member may need: its stack and that of the thread whose thread-local variables
/// it has, each with a guard page.
const MAPPINGS: u64 = 4;

/// What the C library's allocator reserves for a thread that allocates, 64 MiB of address space ...
const ARENA_BYTES: u64 = 64 << 20;
/// ... for this many threads for each core.
const ARENAS_OF_A_CORE: u64 = 8;

/// What is known of the limits.
#[derive(Debug, Default)]
pub(crate) struct MemberLimit {
    /// Regions with as many members have been found possible.
    checked: AtomicU32,
    has_warned: AtomicBool,
}

impl MemberLimit {
    /// How many members a region may have for which `wanted` are asked.
    #[inline]
    pub(crate) fn allowed(&self, wanted: u32, stack_bytes: usize) -> u32 {
        if wanted <= self.checked.load(Ordering::Relaxed) {
            wanted
        } else {
            self.check(wanted, stack_bytes)
        }
    }

    #[cold]
    fn check(&self, wanted: u32, stack_bytes: usize) -> u32 {
        let (most, limit) = most(
            memory::address_space_left(),
            memory::mappings_left(),
            stack_bytes as u64,
            cpu::online_cores() as u64 * ARENAS_OF_A_CORE,
        );
        if u64::from(wanted) <= most {
            self.checked.store(wanted, Ordering::Relaxed);
            return wanted;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            warn(&format!(
                "{wanted} threads are asked for, and {limit} has room for {most}; regions have fewer threads from here \
                 on. Raise that limit, or ask for fewer threads (OMP_NUM_THREADS) or smaller stacks (OMP_STACKSIZE)"
            ));
        }
        most as u32
    }
}

/// The most members, at least 1, and the limit by which there are no more, with at most this many
/// arenas of the allocator. An eighth of the address space and of the mappings is left to the
/// program.
fn most(
    address_space: Option<u64>,
    mappings: Option<u64>,
    stack_bytes: u64,
    arenas: u64,
) -> (u64, &'static str) {
    let by_space = address_space.map_or(u64::MAX, |left| {
        let usable = left - left / 8;
        let with_arenas = usable / stack_bytes.saturating_add(ARENA_BYTES);
        if with_arenas < arenas {
            with_arenas
        } else {
            (usable - arenas * ARENA_BYTES) / stack_bytes.max(1)
        }
    });
    let by_mappings = mappings.map_or(u64::MAX, |left| (left - left / 8) / MAPPINGS);
    if by_space <= by_mappings {
        // The first member has the stack of the thread that encounters the region.
        let most = by_space.saturating_add(1);
        (most, "the limit of address space (ulimit -v)")
    } else {
        let most = by_mappings.saturating_add(1);
        (most, "the limit of mappings (vm.max_map_count)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_allows_less_decides_and_is_named() {
        let stack = 8 << 20;
        assert_eq!(most(None, None, stack, 16).0, u64::MAX);
        let (members, limit) = most(Some(256 << 20), Some(65_000), stack, 16);
        assert_eq!(members, 4);
        assert!(limit.contains("ulimit -v"));
        assert_eq!(most(Some(8 << 30), None, stack, 16).0, 769);
        let (members, limit) = most(None, Some(800), stack, 16);
        assert_eq!(members, 176);
        assert!(limit.contains("max_map_count"));
        assert_eq!(most(Some(0), Some(65_000), stack, 16).0, 1);
    }

    #[test]
    fn regions_of_usual_sizes_have_room() {
        let limit = MemberLimit::default();
        assert_eq!(limit.allowed(4, 64 << 10), 4);
        assert_eq!(limit.checked.load(Ordering::Relaxed), 4);
    }
}
