//! What members need to begin a region.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_core_openmp::format::Interface;
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
    /// Whether members show their affinity when they begin, and as LLVM's library does.
    shows_affinity: AtomicBool,
    shows_as_llvm: AtomicBool,
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
            shows_as_llvm: AtomicBool::new(false),
        }
    }

    /// Members show their affinity when they begin, as the library of this interface does; or not.
    #[inline]
    pub(super) fn show_affinity(&self, interface: Option<Interface>) {
        let as_llvm = interface == Some(Interface::Llvm);
        self.shows_affinity
            .store(interface.is_some(), Ordering::Relaxed);
        self.shows_as_llvm.store(as_llvm, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn shows_affinity(&self) -> Option<Interface> {
        if !self.shows_affinity.load(Ordering::Relaxed) {
            None
        } else if self.shows_as_llvm.load(Ordering::Relaxed) {
            Some(Interface::Llvm)
        } else {
            Some(Interface::Gnu)
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
