//! In which order jobs are looked at: priorities, shares with decay, budgets.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, HashMap, btree_set};

use super::Scheduler;
use crate::job::{Job, JobId, Phase, Tag};
use crate::usage::{Part, factors};

/// How often the order of the queue follows what running jobs use, in seconds, where many run.
const RANKED_EVERY_S: u64 = 10;

/// How many running jobs and groups are few.
const FEW: usize = 500;

/// Jobs that are ready and differ in nothing but their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    priority: i64,
    account: Tag,
    user: Tag,
    slots: u32,
}

/// The place of a group in the queue: lower ones come first, and lower numbers among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Its account has used up its budget.
    is_over: bool,
    priority: Reverse<i64>,
    fair_account: Reverse<u16>,
    fair_user: Reverse<u16>,
}

/// Jobs that are ready, in the order of the queue.
pub(crate) struct Order<'a> {
    heap: BinaryHeap<Reverse<(Rank, JobId, usize)>>,
    groups: Vec<(i64, btree_set::Iter<'a, JobId>)>,
    /// Larger jobs are left out.
    pub most_slots: i64,
}

impl Iterator for Order<'_> {
    type Item = JobId;

    fn next(&mut self) -> Option<JobId> {
        loop {
            let mut top = self.heap.peek_mut()?;
            let Reverse((_, id, group)) = *top;
            let (slots, jobs) = &mut self.groups[group];
            let is_left_out = *slots > self.most_slots;
            match jobs.next().filter(|_| !is_left_out) {
                Some(next) => top.0.1 = *next,
                None => {
                    PeekMut::pop(top);
                }
            }
            if !is_left_out {
                return Some(id);
            }
        }
    }
}

impl Scheduler {
    /// Whether the order of jobs does not depend on what was used.
    pub(super) fn is_constant(&self) -> bool {
        !self.usage.is_fair() && self.accounts.values().all(|rules| rules.budget_s.is_none())
    }

    pub(super) fn group(&self, job: &Job) -> Group {
        let of_queue = self
            .queues
            .get(&job.queue)
            .map_or(0, |rules| rules.priority);
        // Who wants it makes no difference without shares and budgets.
        let (account, user) = match self.is_constant() {
            true => (0, 0),
            false => (job.account, job.user),
        };
        Group {
            priority: job.priority.saturating_add(of_queue),
            account,
            user,
            slots: match super::takes_turns(&self.queues, job) {
                true => 0,
                false => job.slots,
            },
        }
    }

    pub(super) fn rank(&self, group: &Group) -> Rank {
        let account = self.factors.0.get(&group.account).copied().unwrap_or(1000);
        let user = self
            .factors
            .1
            .get(&(group.account, group.user))
            .copied()
            .unwrap_or(1000);
        Rank {
            is_over: self.is_over(group.account),
            priority: Reverse(group.priority),
            fair_account: Reverse(account),
            fair_user: Reverse(user),
        }
    }

    /// The jobs that are ready, in their order.
    pub(crate) fn order(&self) -> Order<'_> {
        let mut groups = Vec::with_capacity(self.ready.len());
        let mut heap = Vec::with_capacity(self.ready.len());
        for (group, (rank, jobs)) in &self.ready {
            let mut jobs = jobs.iter();
            if let Some(first) = jobs.next() {
                heap.push(Reverse((*rank, *first, groups.len())));
                groups.push((i64::from(group.slots), jobs));
            }
        }
        Order {
            heap: BinaryHeap::from(heap),
            groups,
            most_slots: i64::MAX,
        }
    }

    /// The fewest slots that a job needs that is ready.
    pub(crate) fn smallest(&self) -> Option<u32> {
        self.ready.keys().map(|group| group.slots).min()
    }

    /// Whether an account has used up its budget.
    pub(crate) fn is_over(&self, account: Tag) -> bool {
        self.over.get(&account).copied().unwrap_or(false)
    }

    /// Adds what a job used that ended at `at_s`, to shares and budgets.
    pub fn charge(&mut self, user: Tag, account: Tag, slot_s: f64, at_s: u64) {
        self.usage.charge(user, account, slot_s, at_s);
        let rules = self.accounts.get(&account);
        if rules.is_some_and(|rules| rules.budget_s.is_some() && at_s >= rules.since_s) {
            self.usage.spend(account, slot_s);
        }
    }

    /// Forgets all charges, before they are made anew by changed rules.
    pub fn forget_charges(&mut self) {
        self.usage.clear();
        self.ranked_s = None;
    }

    pub(super) fn charge_running(&mut self, id: JobId, now_s: u64) {
        let Some(job) = self.job(id) else {
            return;
        };
        if let Phase::Running(since) = job.phase {
            let slot_s = now_s.saturating_sub(since) as f64 * f64::from(job.slots);
            let (user, account) = (job.user, job.account);
            self.charge(user, account, slot_s, now_s);
        }
    }

    /// What an account has spent of its budget, with what runs.
    #[must_use]
    pub fn spent(&self, account: Tag, now_s: u64) -> f64 {
        let running = self.running.iter().filter_map(|id| self.job(*id));
        let running = running.filter(|job| job.account == account);
        let used = running.map(|job| used_since(job, now_s)).sum::<f64>();
        self.usage.spent(account) + used
    }

    /// Puts the queue in order, as budgets and shares are now.
    pub(crate) fn rank_all(&mut self, now_s: u64) {
        let is_constant = self.is_constant();
        let every_s = RANKED_EVERY_S.max(self.settings.half_life_s.unwrap_or(0) / 1000);
        let is_due = match self.ranked_s {
            None => true,
            Some(_) if is_constant => false,
            Some(at) => {
                let is_short = self.ready.len() + self.running.len() <= FEW;
                is_short || now_s >= at.saturating_add(every_s)
            }
        };
        if !is_due {
            return;
        }
        self.ranked_s = Some(now_s);
        let (mut of_accounts, mut of_users) = self.usage.now(now_s);
        let mut spent: HashMap<Tag, f64> = HashMap::new();
        for id in &self.running {
            if let Some(job) = self.job(*id) {
                let used = used_since(job, now_s);
                *of_accounts.entry(job.account).or_default() += used;
                *of_users.entry((job.account, job.user)).or_default() += used;
                *spent.entry(job.account).or_default() += used;
            }
        }
        self.over = self
            .accounts
            .iter()
            .filter_map(|(tag, rules)| {
                let used = self.usage.spent(*tag) + spent.get(tag).copied().unwrap_or(0.0);
                Some((*tag, used >= rules.budget_s? as f64))
            })
            .collect();
        if self.usage.is_fair() {
            self.factors = self.fair(&of_accounts, &of_users);
        } else {
            self.factors = Default::default();
        }
        let groups: Vec<Group> = self.ready.keys().copied().collect();
        for group in groups {
            let rank = self.rank(&group);
            if let Some(ready) = self.ready.get_mut(&group) {
                ready.0 = rank;
            }
        }
    }

    fn fair(
        &self,
        of_accounts: &HashMap<Tag, f64>,
        of_users: &HashMap<(Tag, Tag), f64>,
    ) -> (HashMap<Tag, u16>, HashMap<(Tag, Tag), u16>) {
        // Those that want something count as well.
        let mut users: BTreeMap<(Tag, Tag), f64> = of_users.iter().map(|(k, v)| (*k, *v)).collect();
        for queued in self.jobs.values() {
            users
                .entry((queued.job.account, queued.job.user))
                .or_default();
        }
        let mut accounts: BTreeMap<Tag, f64> = BTreeMap::new();
        for (account, _) in users.keys() {
            let used = of_accounts.get(account).copied().unwrap_or(0.0);
            accounts.insert(*account, used);
        }
        let shares = |tag: Tag| self.accounts.get(&tag).map_or(1, |rules| rules.shares);
        let parts: Vec<Part<Tag>> = accounts
            .iter()
            .map(|(&key, &used)| Part {
                key,
                used,
                shares: shares(key),
            })
            .collect();
        let by_account = factors(&parts);
        let mut by_user = HashMap::new();
        for account in accounts.keys() {
            let own = users.range((*account, 0)..=(*account, Tag::MAX));
            let parts: Vec<Part<(Tag, Tag)>> = own
                .map(|(&key, &used)| {
                    let of_user = self.settings.users.get(self.text(key.1));
                    Part {
                        key,
                        used,
                        shares: of_user.copied().unwrap_or(1),
                    }
                })
                .collect();
            by_user.extend(factors(&parts));
        }
        (by_account, by_user)
    }
}

fn used_since(job: &Job, now_s: u64) -> f64 {
    match job.phase {
        Phase::Running(since) => now_s.saturating_sub(since) as f64 * f64::from(job.slots),
        _ => 0.0,
    }
}
