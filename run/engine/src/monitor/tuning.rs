//! Sizes and times that may be set, also while messages are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use margay_net_transport::Thresholds;

use crate::call::Limits;
use crate::policy::Policy;

/// Something that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Tunable {
    /// [`Limits::eager`]
    Eager,
    /// [`Limits::credits`]
    Credits,
    /// [`Limits::credit_bytes`]
    CreditBytes,
    /// [`Limits::send_buffer`]
    SendBuffer,
    /// [`Thresholds::arena`]
    Arena,
    /// [`Thresholds::arena_end`]
    ArenaEnd,
    /// [`Thresholds::attach`]
    Attach,
    /// [`Thresholds::part`]
    Part,
    /// [`Thresholds::fabric`]
    Fabric,
    /// Spins before a waiting rank does anything else.
    Spins,
    /// Nanoseconds of waiting from which on it yields.
    YieldAfter,
    /// Nanoseconds of waiting from which on it sleeps.
    SleepAfter,
    /// Seconds after which connecting to other processes is given up; 0: never.
    ConnectTimeout,
}

/// The settings of a rank.
pub struct Tuning {
    limits: [AtomicU64; 4],
    thresholds: Arc<Thresholds>,
    policy: [AtomicU64; 3],
    connect_timeout: AtomicU64,
    /// A bit for each [`Tunable`] that somebody has set.
    set: AtomicU32,
}

impl Default for Tuning {
    fn default() -> Self {
        let Limits {
            eager,
            credits,
            credit_bytes,
            send_buffer,
        } = Limits::default();
        Tuning {
            limits: [eager, u64::from(credits), credit_bytes, send_buffer].map(AtomicU64::new),
            thresholds: Arc::new(Thresholds::measured()),
            policy: Policy::new(1, 1).numbers().map(AtomicU64::new),
            connect_timeout: AtomicU64::new(0),
            set: AtomicU32::new(0),
        }
    }
}

impl Tuning {
    /// Returns the value in force.
    #[must_use]
    pub fn get(&self, tunable: Tunable) -> u64 {
        self.cell(tunable).load(Ordering::Relaxed)
    }

    /// Sets a value; from then on nothing else changes it.
    pub fn set(&self, tunable: Tunable, value: u64) {
        self.set.fetch_or(1 << tunable as u32, Ordering::Relaxed);
        self.cell(tunable).store(value, Ordering::Relaxed);
    }

    /// Returns the limits in force.
    #[must_use]
    #[inline]
    pub fn limits(&self) -> Limits {
        let [eager, credits, credit_bytes, send_buffer] = &self.limits;
        Limits {
            eager: eager.load(Ordering::Relaxed),
            credits: credits.load(Ordering::Relaxed) as u32,
            credit_bytes: credit_bytes.load(Ordering::Relaxed),
            send_buffer: send_buffer.load(Ordering::Relaxed),
        }
    }

    /// Returns the waiting policy in force.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> Policy {
        let [spins, yield_after, sleep_after] = &self.policy;
        Policy::of_numbers([
            spins.load(Ordering::Relaxed),
            yield_after.load(Ordering::Relaxed),
            sleep_after.load(Ordering::Relaxed),
        ])
    }

    /// From which sizes on messages are copied directly: never, where ranks share no memory.
    #[must_use]
    pub fn thresholds(&self, shares_memory: bool) -> Arc<Thresholds> {
        if shares_memory {
            self.thresholds.clone()
        } else {
            Arc::new(Thresholds::bytes_only())
        }
    }

    /// Other limits, but where somebody has set one.
    pub(crate) fn suggest_limits(&self, limits: Limits) {
        for (tunable, value) in [
            (Tunable::Eager, limits.eager),
            (Tunable::Credits, u64::from(limits.credits)),
            (Tunable::CreditBytes, limits.credit_bytes),
            (Tunable::SendBuffer, limits.send_buffer),
        ] {
            self.suggest(tunable, value);
        }
    }

    /// The policy that fits the job, but where somebody has set a number of it.
    pub fn suggest_policy(&self, policy: Policy) {
        for (tunable, value) in [Tunable::Spins, Tunable::YieldAfter, Tunable::SleepAfter]
            .into_iter()
            .zip(policy.numbers())
        {
            self.suggest(tunable, value);
        }
    }

    fn suggest(&self, tunable: Tunable, value: u64) {
        if self.set.load(Ordering::Relaxed) & (1 << tunable as u32) == 0 {
            self.cell(tunable).store(value, Ordering::Relaxed);
        }
    }

    fn cell(&self, tunable: Tunable) -> &AtomicU64 {
        match tunable {
            Tunable::Eager => &self.limits[0],
            Tunable::Credits => &self.limits[1],
            Tunable::CreditBytes => &self.limits[2],
            Tunable::SendBuffer => &self.limits[3],
            Tunable::Arena => &self.thresholds.arena,
            Tunable::ArenaEnd => &self.thresholds.arena_end,
            Tunable::Attach => &self.thresholds.attach,
            Tunable::Part => &self.thresholds.part,
            Tunable::Fabric => &self.thresholds.fabric,
            Tunable::Spins => &self.policy[0],
            Tunable::YieldAfter => &self.policy[1],
            Tunable::SleepAfter => &self.policy[2],
            Tunable::ConnectTimeout => &self.connect_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_stays() {
        let tuning = Tuning::default();
        tuning.set(Tunable::Spins, 7);
        tuning.suggest_policy(Policy::new(1, 4));
        assert_eq!(tuning.get(Tunable::Spins), 7);
        assert_eq!(tuning.policy().spins(), 7);
        tuning.suggest_policy(Policy::new(4, 1));
        assert!(tuning.policy().is_oversubscribed());
        tuning.set(Tunable::Eager, 100);
        tuning.suggest_limits(Limits::default());
        assert_eq!(tuning.limits().eager, 100);
    }
}
