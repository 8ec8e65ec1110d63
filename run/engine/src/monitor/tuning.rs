//! Sizes and times that may be set, also while messages are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use margay_net_shm::Thresholds;

use crate::call::Limits;
use crate::wait::Policy;

/// Something that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Knob {
    /// [`Limits::eager`]
    Eager,
    /// [`Limits::tokens`]
    Tokens,
    /// [`Limits::token_bytes`]
    TokenBytes,
    /// [`Thresholds::arena`]
    Arena,
    /// [`Thresholds::arena_end`]
    ArenaEnd,
    /// [`Thresholds::attach`]
    Attach,
    /// [`Thresholds::part`]
    Part,
    /// Looks before a waiting rank does anything else.
    Looks,
    /// Nanoseconds of waiting from which on it yields.
    YieldAfter,
    /// Nanoseconds of waiting from which on it sleeps.
    SleepAfter,
    /// Seconds after which connecting to other processes is given up; 0: never.
    ConnectTimeout,
}

/// The settings of a rank.
pub struct Tuning {
    limits: [AtomicU64; 3],
    thresholds: Arc<Thresholds>,
    policy: [AtomicU64; 3],
    connect_timeout: AtomicU64,
    /// A bit for each [`Knob`] that somebody has set.
    set: AtomicU32,
}

impl Default for Tuning {
    fn default() -> Self {
        let Limits {
            eager,
            tokens,
            token_bytes,
        } = Limits::default();
        Tuning {
            limits: [eager, u64::from(tokens), token_bytes].map(AtomicU64::new),
            thresholds: Arc::new(Thresholds::measured()),
            policy: Policy::new(1, 1).numbers().map(AtomicU64::new),
            connect_timeout: AtomicU64::new(0),
            set: AtomicU32::new(0),
        }
    }
}

impl Tuning {
    /// The value in force.
    #[must_use]
    pub fn get(&self, knob: Knob) -> u64 {
        self.cell(knob).load(Ordering::Relaxed)
    }

    /// Sets a value; from then on nothing else changes it.
    pub fn set(&self, knob: Knob, value: u64) {
        self.set.fetch_or(1 << knob as u32, Ordering::Relaxed);
        self.cell(knob).store(value, Ordering::Relaxed);
    }

    /// The limits in force.
    #[must_use]
    #[inline]
    pub fn limits(&self) -> Limits {
        let [eager, tokens, token_bytes] = &self.limits;
        Limits {
            eager: eager.load(Ordering::Relaxed),
            tokens: tokens.load(Ordering::Relaxed) as u32,
            token_bytes: token_bytes.load(Ordering::Relaxed),
        }
    }

    /// The waiting policy in force.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> Policy {
        let [looks, yield_after, sleep_after] = &self.policy;
        Policy::of_numbers([
            looks.load(Ordering::Relaxed),
            yield_after.load(Ordering::Relaxed),
            sleep_after.load(Ordering::Relaxed),
        ])
    }

    /// From which sizes on messages are copied directly.
    #[must_use]
    pub fn thresholds(&self) -> &Arc<Thresholds> {
        &self.thresholds
    }

    /// Other limits, but where somebody has set one.
    pub(crate) fn suggest_limits(&self, limits: Limits) {
        let values = [limits.eager, u64::from(limits.tokens), limits.token_bytes];
        for (knob, value) in [Knob::Eager, Knob::Tokens, Knob::TokenBytes]
            .into_iter()
            .zip(values)
        {
            self.suggest(knob, value);
        }
    }

    /// The policy that fits the job, but where somebody has set a number of it.
    pub fn suggest_policy(&self, policy: Policy) {
        for (knob, value) in [Knob::Looks, Knob::YieldAfter, Knob::SleepAfter]
            .into_iter()
            .zip(policy.numbers())
        {
            self.suggest(knob, value);
        }
    }

    fn suggest(&self, knob: Knob, value: u64) {
        if self.set.load(Ordering::Relaxed) & (1 << knob as u32) == 0 {
            self.cell(knob).store(value, Ordering::Relaxed);
        }
    }

    fn cell(&self, knob: Knob) -> &AtomicU64 {
        match knob {
            Knob::Eager => &self.limits[0],
            Knob::Tokens => &self.limits[1],
            Knob::TokenBytes => &self.limits[2],
            Knob::Arena => &self.thresholds.arena,
            Knob::ArenaEnd => &self.thresholds.arena_end,
            Knob::Attach => &self.thresholds.attach,
            Knob::Part => &self.thresholds.part,
            Knob::Looks => &self.policy[0],
            Knob::YieldAfter => &self.policy[1],
            Knob::SleepAfter => &self.policy[2],
            Knob::ConnectTimeout => &self.connect_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_stays() {
        let tuning = Tuning::default();
        tuning.set(Knob::Looks, 7);
        tuning.suggest_policy(Policy::new(1, 4));
        assert_eq!(tuning.get(Knob::Looks), 7);
        assert_eq!(tuning.policy().looks(), 7);
        tuning.suggest_policy(Policy::new(4, 1));
        assert!(tuning.policy().is_crowded());
        tuning.set(Knob::Eager, 100);
        tuning.suggest_limits(Limits::default());
        assert_eq!(tuning.limits().eager, 100);
    }
}
