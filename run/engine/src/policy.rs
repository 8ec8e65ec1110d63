//! How long a waiting rank spins, from when on it yields, and from when on it sleeps; `wait.rs`
//! says why.

/// How a rank waits.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Polls without anything between them.
    pub(crate) spins: u32,
    /// From then on it yields between polls, in nanoseconds of waiting.
    pub(crate) yield_after_ns: u64,
    /// From then on the rank sleeps, in nanoseconds of waiting.
    pub(crate) sleep_after_ns: u64,
}

impl Policy {
    /// The policy for `ranks` on `cores`.
    #[must_use]
    pub fn new(ranks: u32, cores: u32) -> Policy {
        if ranks <= cores {
            Policy {
                spins: 2000,
                yield_after_ns: 50_000,
                sleep_after_ns: 2_000_000,
            }
        } else {
            Policy::OVERSUBSCRIBED
        }
    }

    pub(crate) const OVERSUBSCRIBED: Policy = Policy {
        spins: 1,
        yield_after_ns: 0,
        sleep_after_ns: 400_000,
    };

    /// For hosts that are containers of one machine and share its cores, too few for all ranks: the
    /// ranks of each host are a group of their own to the scheduler, and a yield does not leave the
    /// group. A rank of another host gets the core when this one sleeps.
    pub const OVERSUBSCRIBED_BY_HOSTS: Policy = Policy {
        spins: 1,
        yield_after_ns: 0,
        sleep_after_ns: 0,
    };

    /// Under contention. A yield forfeits a turn to all other processes (as the kernel's fair
    /// scheduler implements it), a sleep frees the core and keeps the turn: the wake brings the
    /// rank back at once.
    pub(crate) const CONTENDED: Policy = Policy {
        spins: 200,
        yield_after_ns: u64::MAX,
        sleep_after_ns: 50_000,
    };

    /// Contended and oversubscribed.
    pub(crate) const OVERSUBSCRIBED_AND_CONTENDED: Policy = Policy {
        spins: 1,
        yield_after_ns: u64::MAX,
        sleep_after_ns: 0,
    };

    /// Spins, nanoseconds until it yields, nanoseconds until it sleeps.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        [
            u64::from(self.spins),
            self.yield_after_ns,
            self.sleep_after_ns,
        ]
    }

    /// The policy with these [`numbers`](Self::numbers).
    #[inline]
    pub(crate) fn of_numbers(numbers: [u64; 3]) -> Policy {
        let [spins, yield_after_ns, sleep_after_ns] = numbers;
        Policy {
            spins: spins as u32,
            yield_after_ns,
            sleep_after_ns,
        }
    }

    /// Spins before anything else is done.
    #[must_use]
    #[inline]
    pub fn spins(&self) -> u32 {
        self.spins
    }

    /// Whether cores are short.
    #[must_use]
    #[inline]
    pub fn is_oversubscribed(&self) -> bool {
        self.yield_after_ns == 0
    }
}
