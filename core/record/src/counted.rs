//! What a thread counts of calls that come too fast for records, until the counts become records.
//! Only that thread uses it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::origin::{NameCell, Origin};

/// Counted calls between two looks at the rate, with which their sites are entered.
pub(crate) const RATE_CALLS: u64 = 31;
/// Sums that are kept at a time.
pub(crate) const SUMS: usize = 64;
/// Call sites that are found without a search.
pub(crate) const CACHED: usize = 256;

/// Sums of calls of one site with one peer.
#[derive(Default)]
pub(crate) struct Sum {
    /// Site, peer and kind; 0 for a free one.
    pub(crate) key: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) context: AtomicU64,
}

impl Sum {
    #[inline]
    pub(crate) fn add(&self, calls: u64, bytes: u64) {
        let sum = self.calls.load(Relaxed).wrapping_add(calls);
        self.calls.store(sum, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }
}

/// A call site that its thread has used.
#[derive(Default)]
pub(crate) struct Cached {
    pub(crate) from: AtomicU64,
    /// The address of the name, and the site in the upper 16 bits; 0 for a free one.
    pub(crate) call: AtomicU64,
    /// Calls without a message that were counted.
    pub(crate) calls: AtomicU64,
    /// How long counted calls take, in ticks: those that are timed, for all of them.
    pub(crate) ticks: AtomicU64,
}

/// Room for the calls between two looks at the rate, and one that is not used: a power of two.
const RECENT: usize = RATE_CALLS as usize + 1;

/// No address has this bit.
const HAS_MESSAGE: u64 = 1 << 63;

/// Calls that are counted, but not yet by their site. A call that is too short for a record is too
/// short for the search of its site as well: that is done for many at once. Each stands where the
/// number of calls until the next look at the rate says.
pub(crate) struct Recent<N>([RecentCall<N>; RECENT]);

impl<N: NameCell> Default for Recent<N> {
    fn default() -> Self {
        Recent(std::array::from_fn(|_| RecentCall::default()))
    }
}

impl<N> Recent<N> {
    /// The call with which this many were left.
    #[inline]
    pub(crate) fn at(&self, left: u64) -> &RecentCall<N> {
        &self.0[left as usize & (RECENT - 1)]
    }

    /// The calls since the last look at the rate, when `left` are left.
    pub(crate) fn all(&self, left: u64) -> &[RecentCall<N>] {
        &self.0[(left as usize).clamp(1, RECENT)..]
    }
}

/// A counted call; without `call` it is none.
#[derive(Default)]
pub(crate) struct RecentCall<N> {
    /// The return address; with [`HAS_MESSAGE`] the call was counted with its message.
    from: AtomicU64,
    call: N,
}

impl<N: NameCell> RecentCall<N> {
    #[inline]
    pub(crate) fn set(&self, origin: Origin) {
        self.from.store(origin.from, Relaxed);
        self.call.set(Some(origin.call));
    }

    pub(crate) fn clear(&self) {
        self.call.set(None);
    }

    #[inline]
    pub(crate) fn origin(&self) -> Option<Origin> {
        let from = self.from.load(Relaxed) & !HAS_MESSAGE;
        self.call.get().map(|call| Origin { call, from })
    }

    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        self.from.load(Relaxed) & HAS_MESSAGE != 0
    }

    /// Notes that it was counted with a message.
    #[inline]
    pub(crate) fn set_message(&self) {
        self.from
            .store(self.from.load(Relaxed) | HAS_MESSAGE, Relaxed);
    }
}
