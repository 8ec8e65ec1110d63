//! What an administrator says: queues with limits, accounts with shares and budgets, reservations,
//! and how the next job is chosen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::{Job, Part};

/// The queue that there always is.
pub const QUEUE: &str = "compute";

/// Which jobs may start before the first that finds no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backfill {
    /// None: first come, first served.
    Off,
    /// Those that do not delay the first (D. Lifka, "The ANL/IBM SP Scheduling System", 1995).
    #[default]
    Easy,
    /// Those that delay none of the jobs before them (A. Mu'alem, D. Feitelson, "Utilization,
    /// Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
    /// Backfilling", 2001).
    Conservative,
}

/// A partition of the machine with gang scheduling, in which jobs take turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    pub partition: String,
    /// Its cores, which no other jobs get.
    pub cores: Vec<usize>,
    /// On a machine of several hosts: its slots of each, by their numbers.
    #[serde(skip)]
    pub hosts: Vec<Part>,
}

/// What a queue allows and gives. What is `None` has no limit.
// Fields: each is a word of `margay set queue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueRules {
    /// Is added to the priority of its jobs.
    pub priority: i64,
    /// The time limit of jobs that name none.
    pub default_limit_s: Option<u64>,
    /// The longest time limit.
    pub most_limit_s: Option<u64>,
    /// Most slots of a job.
    pub most_slots: Option<u32>,
    /// Most memory of a job, in MiB.
    pub most_memory_mib: Option<u64>,
    /// The memory of jobs that name none, in MiB.
    pub default_memory_mib: Option<u64>,
    /// Jobs that run at once, and their slots: of all users and of each.
    pub running: Option<u32>,
    pub used_slots: Option<u32>,
    pub running_of_user: Option<u32>,
    pub used_slots_of_user: Option<u32>,
    /// Jobs that wait or run: of all users and of each.
    pub jobs: Option<u32>,
    pub jobs_of_user: Option<u32>,
    /// Who may submit to it; everybody when both are empty.
    pub users: Vec<String>,
    pub accounts: Vec<String>,
    /// Its jobs run in this partition, and need none of the other slots.
    pub gang: Option<Gang>,
    /// Jobs are accepted.
    pub is_open: bool,
    /// Jobs are started.
    pub is_started: bool,
}

impl Default for QueueRules {
    fn default() -> QueueRules {
        QueueRules {
            priority: 0,
            default_limit_s: None,
            most_limit_s: None,
            most_slots: None,
            most_memory_mib: None,
            default_memory_mib: None,
            running: None,
            used_slots: None,
            running_of_user: None,
            used_slots_of_user: None,
            jobs: None,
            jobs_of_user: None,
            users: Vec::new(),
            accounts: Vec::new(),
            gang: None,
            is_open: true,
            is_started: true,
        }
    }
}

/// How many jobs wait or run, of all users of a queue and of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub jobs: u32,
    pub slots: u32,
}

impl QueueRules {
    /// Gives a job what it did not ask for.
    pub fn complete(&self, job: &mut Job, says_unlimited: bool) {
        if !says_unlimited {
            job.limit_s = job.limit_s.or(self.default_limit_s);
        }
        if job.memory_mib == 0 {
            job.memory_mib = self.default_memory_mib.unwrap_or(0);
        }
    }

    /// Why the queue `name` does not accept a job of this user and account, if so. `all` and `own`
    /// are what it has already: of all users and of this one; `more` is how many come at once.
    #[must_use]
    pub fn refusal(
        &self,
        name: &str,
        job: &Job,
        [user, account]: [&str; 2],
        [all, own]: [u32; 2],
        more: u32,
    ) -> Option<String> {
        let over =
            |limit: Option<u32>, has: u32| limit.filter(|&limit| has.saturating_add(more) > limit);
        if !self.is_open {
            return Some(format!("the queue '{name}' accepts no jobs at present"));
        }
        let is_listed =
            self.users.iter().any(|u| u == user) || self.accounts.iter().any(|a| a == account);
        let is_for_all = self.users.is_empty() && self.accounts.is_empty();
        if !is_for_all && !is_listed {
            return Some(format!(
                "the queue '{name}' is for other users or accounts; choose another one, see margay set"
            ));
        }
        if let Some(most) = self.most_slots.filter(|&most| job.slots > most) {
            return Some(format!(
                "it asks for {} slots and the queue '{name}' gives a job at most {most}",
                job.slots
            ));
        }
        if let Some(most) = self.most_memory_mib.filter(|&most| job.memory_mib > most) {
            return Some(format!(
                "it asks for {} MiB of memory and the queue '{name}' gives a job at most {most}",
                job.memory_mib
            ));
        }
        if let Some(most) = self.most_limit_s {
            match job.limit_s {
                Some(limit) if limit <= most => {}
                Some(limit) => {
                    return Some(format!(
                        "its time limit is {} and the queue '{name}' allows at most {}",
                        crate::shown(limit),
                        crate::shown(most)
                    ));
                }
                None => {
                    return Some(format!(
                        "it has no time limit and the queue '{name}' allows at most {}; say it: -t {}",
                        crate::shown(most),
                        crate::shown(most)
                    ));
                }
            }
        }
        if let Some(limit) = over(self.jobs, all) {
            return Some(format!(
                "the queue '{name}' has {all} jobs and holds at most {limit}; try again when some have ended"
            ));
        }
        if let Some(limit) = over(self.jobs_of_user, own) {
            return Some(format!(
                "you have {own} jobs in the queue '{name}', which holds at most {limit} of each user"
            ));
        }
        None
    }
}

/// What an account may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountRules {
    /// Its part of the machine, beside the shares of the others.
    pub shares: u32,
    /// Slot seconds that it may use since `since_s`. When they are used up its jobs come after all
    /// others, and are preempted for these.
    pub budget_s: Option<u64>,
    pub since_s: u64,
    /// Jobs do not start at all without budget.
    pub is_hard: bool,
}

impl Default for AccountRules {
    fn default() -> AccountRules {
        AccountRules {
            shares: 1,
            budget_s: None,
            since_s: 0,
            is_hard: false,
        }
    }
}

/// A part of the machine that is kept for some, for some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub slots: u32,
    pub memory_mib: u64,
    pub from_s: u64,
    pub until_s: u64,
    /// Who may use it; everybody when both are empty.
    pub users: Vec<String>,
    pub accounts: Vec<String>,
}

/// A host that is started anew is back within it, and one that was cut off for a moment.
const LOST_AFTER_S: u64 = 60;

/// All that an administrator says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub backfill: Backfill,
    /// Users and accounts that have used less go first: in this time what was used counts half.
    /// None: first come, first served.
    pub half_life_s: Option<u64>,
    /// Where jobs go that name no queue.
    pub default_queue: String,
    /// Who may do what root may, beside root.
    pub operators: Vec<String>,
    pub queues: BTreeMap<String, QueueRules>,
    pub accounts: BTreeMap<String, AccountRules>,
    /// Shares of users within their accounts; 1 for those that are not here.
    pub users: BTreeMap<String, u32>,
    pub reservations: BTreeMap<String, Reservation>,
    /// How long the host of a job that an earlier head has begun may be away before the job counts
    /// as lost, in seconds.
    pub lost_after_s: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            backfill: Backfill::Easy,
            half_life_s: None,
            default_queue: QUEUE.into(),
            operators: Vec::new(),
            queues: BTreeMap::from([(QUEUE.into(), QueueRules::default())]),
            accounts: BTreeMap::new(),
            users: BTreeMap::new(),
            reservations: BTreeMap::new(),
            lost_after_s: LOST_AFTER_S,
        }
    }
}
