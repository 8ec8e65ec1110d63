//! What users and accounts have used: fair shares with decay, and budgets.

use std::collections::HashMap;

use crate::job::Tag;

/// Slot seconds, which decay.
#[derive(Clone, Copy, Debug, Default)]
struct Decayed {
    value: f64,
    at_s: u64,
}

impl Decayed {
    fn at(self, now_s: u64, half_life_s: u64) -> f64 {
        let passed = now_s.saturating_sub(self.at_s) as f64;
        self.value * (-passed / half_life_s.max(1) as f64).exp2()
    }

    fn add(&mut self, more: f64, now_s: u64, half_life_s: u64) {
        // What came before the last change is as old as it: half-lives are long beside that.
        let now_s = now_s.max(self.at_s);
        self.value = self.at(now_s, half_life_s) + more;
        self.at_s = now_s;
    }
}

/// What was used, by account and by user of an account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    half_life_s: Option<u64>,
    accounts: HashMap<Tag, Decayed>,
    users: HashMap<(Tag, Tag), Decayed>,
    /// Slot seconds since the budget was made.
    spent: HashMap<Tag, f64>,
}

/// Slot seconds of one account or user, and its shares.
pub(crate) struct Part<K> {
    pub key: K,
    pub used: f64,
    pub shares: u32,
}

/// How far each is below its share: 1000 for who has used nothing, 500 for who has used just its
/// share, less for who has used more (the factor of Slurm's fair share, in thousandths).
pub(crate) fn factors<K: Copy + Eq + std::hash::Hash>(parts: &[Part<K>]) -> HashMap<K, u16> {
    let all_used: f64 = parts.iter().map(|part| part.used).sum();
    let all_shares: f64 = parts.iter().map(|part| f64::from(part.shares)).sum();
    let factor = |part: &Part<K>| {
        let used = if all_used > 0.0 {
            part.used / all_used
        } else {
            0.0
        };
        let share = f64::from(part.shares) / all_shares.max(1.0);
        let factor = match (used > 0.0, share > 0.0) {
            (false, _) => 1.0,
            (true, true) => (-used / share).exp2(),
            (true, false) => 0.0,
        };
        (factor * 1000.0).round() as u16
    };
    parts.iter().map(|part| (part.key, factor(part))).collect()
}

impl Usage {
    pub fn set_half_life(&mut self, half_life_s: Option<u64>) {
        self.half_life_s = half_life_s;
    }

    pub fn is_fair(&self) -> bool {
        self.half_life_s.is_some()
    }

    /// Adds what a job has used that has ended at `at_s`.
    pub fn charge(&mut self, user: Tag, account: Tag, slot_s: f64, at_s: u64) {
        if let Some(half_life) = self.half_life_s {
            let of_account = self.accounts.entry(account).or_default();
            of_account.add(slot_s, at_s, half_life);
            let of_user = self.users.entry((account, user)).or_default();
            of_user.add(slot_s, at_s, half_life);
        }
    }

    /// Adds what counts for an account's budget.
    pub fn spend(&mut self, account: Tag, slot_s: f64) {
        *self.spent.entry(account).or_default() += slot_s;
    }

    pub fn spent(&self, account: Tag) -> f64 {
        self.spent.get(&account).copied().unwrap_or(0.0)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.accounts.clear();
        self.users.clear();
        self.spent.clear();
    }

    /// What accounts, and users of accounts, have used as it counts now.
    pub fn now(&self, now_s: u64) -> (HashMap<Tag, f64>, HashMap<(Tag, Tag), f64>) {
        let half_life = self.half_life_s.unwrap_or(1);
        let accounts = self.accounts.iter();
        let users = self.users.iter();
        (
            accounts
                .map(|(k, used)| (*k, used.at(now_s, half_life)))
                .collect(),
            users
                .map(|(k, used)| (*k, used.at(now_s, half_life)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_decays_and_shares_weigh() {
        let mut usage = Usage::default();
        usage.set_half_life(Some(100));
        usage.charge(1, 9, 80.0, 1000);
        usage.charge(2, 9, 20.0, 1100);
        let (accounts, users) = usage.now(1100);
        assert!((accounts[&9] - 60.0).abs() < 1e-6);
        assert!((users[&(9, 1)] - 40.0).abs() < 1e-6);
        let part = |key, used, shares| Part { key, used, shares };
        let factor = factors(&[part(1, 50.0, 1), part(2, 50.0, 1), part(3, 0.0, 2)]);
        assert_eq!((factor[&1], factor[&3]), (250, 1000));
        let factor = factors(&[part(1, 30.0, 3), part(2, 10.0, 1)]);
        assert_eq!((factor[&1], factor[&2]), (500, 500));
    }
}
