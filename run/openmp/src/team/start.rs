//! What members need to begin a region.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_sys_os::static_ref::StaticRef;
use margay_sys_threads::outlined::Posted;

use super::{InitialThread, lock};
use crate::icv::Icv;
use crate::reduction::Reductions;

/// What members need to begin, except the loop, which is in the first work share. Written before
/// members can be claimed; a claim makes it visible.
#[derive(Debug)]
pub(super) struct RegionStart {
    pub(super) body: Posted,
    pub(super) icv: StaticRef<Icv>,
    /// Number and count of the league's teams, the number in the upper half.
    league: AtomicU64,
    has_reductions: AtomicBool,
    reductions: Mutex<Option<Arc<Reductions>>>,
    pub(super) initial: StaticRef<InitialThread>,
    /// Whether members show their affinity when they begin.
    pub(super) shows_affinity: AtomicBool,
}

impl RegionStart {
    pub(super) fn new() -> RegionStart {
        RegionStart {
            body: Posted::default(),
            icv: StaticRef::none(),
            league: AtomicU64::new(0),
            has_reductions: AtomicBool::new(false),
            reductions: Mutex::default(),
            initial: StaticRef::none(),
            shows_affinity: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn set_league(&self, (number, count): (u32, u32)) {
        let both = u64::from(number) << 32 | u64::from(count);
        self.league.store(both, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn league(&self) -> (u32, u32) {
        let both = self.league.load(Ordering::Relaxed);
        ((both >> 32) as u32, both as u32)
    }

    #[inline]
    pub(super) fn set_reductions(&self, reductions: Option<Arc<Reductions>>) {
        let has = reductions.is_some();
        if has || self.has_reductions.load(Ordering::Relaxed) {
            *lock(&self.reductions) = reductions;
            self.has_reductions.store(has, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn reductions(&self) -> Option<Arc<Reductions>> {
        if self.has_reductions.load(Ordering::Relaxed) {
            lock(&self.reductions).clone()
        } else {
            None
        }
    }
}
