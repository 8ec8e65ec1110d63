//! What is shown and changed of jobs beyond their rows.

use std::collections::HashMap;

use margay_core_queue::{JobId, Phase, Reason};
use margay_svc_queue_wire::{Bytes, Cause, Change, Detail, JobRow, Order, Shared, Target};

use super::rights::{check_priority, veil};
use super::{Head, ended_of};
use crate::callers::Caller;
use crate::files::{Found, SignalWish};
use crate::line::Message;
use crate::store::{Entry, Which};
use crate::{explain, now_s, prepare};

fn cause(reason: &Reason) -> Cause {
    match reason {
        Reason::Held => Cause::Held,
        Reason::Waits(_) => Cause::Dependency,
        Reason::Never(_) => Cause::Never,
        Reason::Begin(_) => Cause::BeginTime,
        Reason::ArrayLimit(_) => Cause::ArrayLimit,
        Reason::QueueStopped => Cause::Stopped,
        Reason::QueueLimit { .. } | Reason::Budget => Cause::Limit,
        Reason::Reservation(_) | Reason::ReservedSlots { .. } => Cause::Reservation,
        Reason::Larger { .. }
        | Reason::LargerMemory { .. }
        | Reason::LargerGang { .. }
        | Reason::GangAway
        | Reason::NoPlace { .. }
        | Reason::Slots { .. }
        | Reason::Memory { .. }
        | Reason::Places { .. }
        | Reason::Reserved { .. } => Cause::Resources,
        Reason::WouldDelay { .. } | Reason::Behind(_) => Cause::Priority,
    }
}

impl Head {
    /// All that is known of jobs, chosen as for [`rows`](Head::rows).
    ///
    /// # Errors
    /// In words.
    pub fn all_of(
        &mut self,
        targets: &[Target],
        has_steps: bool,
        caller: &Caller,
    ) -> Result<Vec<Detail>, String> {
        let jobs = self.live(targets)?;
        let now_s = now_s();
        let reasons = self.reasons_of(&jobs, now_s);
        let mut entries: Vec<(Entry, JobRow)> = Vec::new();
        for target in targets {
            entries.extend(self.store.ended_entries(ended_of(*target))?);
        }
        let live = jobs.iter().filter_map(|id| self.entries.get(id));
        entries.extend(live.map(|entry| {
            let reason = reasons.get(&entry.job.id);
            let note = reason.map(|r| explain::short(r, &|id| self.named(id), now_s));
            let row = self.row(entry, note.unwrap_or_default(), has_steps);
            (entry.clone(), row)
        }));
        entries.sort_by_key(|(entry, _)| entry.job.id);
        entries.dedup_by_key(|(entry, _)| entry.job.id);
        self.whole(entries, &reasons, caller)
    }

    /// All that is known of the next jobs that have ended, as [`Which::After`] says.
    ///
    /// # Errors
    /// In words.
    pub fn all_of_ended(&self, after: Which, caller: &Caller) -> Result<Vec<Detail>, String> {
        let entries = self.store.ended_entries(after)?;
        self.whole(entries, &HashMap::new(), caller)
    }

    fn whole(
        &self,
        entries: Vec<(Entry, JobRow)>,
        reasons: &HashMap<JobId, Reason>,
        caller: &Caller,
    ) -> Result<Vec<Detail>, String> {
        let mut orders: HashMap<i64, (Shared, Order)> = HashMap::new();
        let mut details = Vec::new();
        for (entry, row) in entries {
            if !orders.contains_key(&entry.order) {
                // Jobs of one order follow each other.
                if orders.len() > 1000 {
                    orders.clear();
                }
                let (shared, order) = self.store.order(entry.order)?;
                let of_home = shared.environment.iter();
                let of_home = of_home.filter(|v| v.0.as_encoded_bytes().starts_with(b"HOME="));
                let shared = Shared {
                    environment: of_home.cloned().collect(),
                    directory: shared.directory.clone(),
                    user: shared.user.clone(),
                    host: shared.host.clone(),
                    file_mask: None,
                    owner: None,
                };
                let mut order = Order::clone(&order);
                if let Some(array) = &mut order.wishes.array {
                    array.indices.clear();
                }
                orders.insert(entry.order, (shared, order));
            }
            let (shared, order) = &orders[&entry.order];
            let reason = reasons.get(&entry.job.id);
            let mut detail = self.detail(&entry, row, shared, order, reason);
            veil(&mut detail, caller);
            details.push(detail);
        }
        Ok(details)
    }

    fn detail(
        &self,
        entry: &Entry,
        row: JobRow,
        shared: &Shared,
        order: &Order,
        reason: Option<&Reason>,
    ) -> Detail {
        let parts = self.parts(entry.job.id, &order.wishes);
        let site = self.site(&parts, shared, order);
        let outputs = prepare::outputs(entry, shared, &order.wishes, site);
        // As the user named it: to look what is there could hold the head up.
        let place = |path: &str| {
            let path = std::path::Path::new(&shared.directory.0).join(path);
            Bytes(path.into_os_string())
        };
        Detail {
            array: entry.job.array.zip(entry.task),
            user: shared.user.clone(),
            wishes: order.wishes.clone(),
            directory: shared.directory.clone(),
            command: order.arguments.clone(),
            is_script: order.script.is_some(),
            stdout: place(&outputs.stdout),
            stderr: place(outputs.stderr.as_deref().unwrap_or(&outputs.stdout)),
            priority: entry.job.priority,
            is_held: entry.job.is_held,
            after: entry.job.after.clone(),
            cause: reason.map(cause),
            expected: match reason {
                Some(
                    Reason::Slots { expected, .. }
                    | Reason::Memory { expected, .. }
                    | Reason::Reserved { expected },
                ) => *expected,
                Some(Reason::Begin(at)) => Some(*at),
                _ => None,
            },
            row,
        }
    }

    /// The entries that targets name and that wait or run.
    fn chosen(&self, targets: &[Target], caller: &Caller) -> Result<Vec<Entry>, String> {
        let jobs = self.changeable(targets, caller)?;
        Ok(jobs
            .iter()
            .filter_map(|id| self.entries.get(id).cloned())
            .collect())
    }

    /// Changes jobs that wait; of those that run only the name.
    ///
    /// # Errors
    /// In words; nothing is changed then.
    pub fn change(
        &mut self,
        targets: &[Target],
        change: &Change,
        caller: &Caller,
    ) -> Result<String, String> {
        let mut changed = self.chosen(targets, caller)?;
        check_priority(change.priority, caller)?;
        if changed.is_empty() {
            return Err("none of these jobs waits or runs; what has ended stays as it is".into());
        }
        let name_alone = Change {
            name: change.name.clone(),
            ..Change::default()
        };
        for entry in &mut changed {
            if entry.job.phase != Phase::Waiting && *change != name_alone {
                return Err(format!(
                    "job {} runs already; only its name can be changed, the rest of jobs that wait",
                    entry.shown()
                ));
            }
            if let Some(name) = &change.name {
                prepare::check_name(name)?;
                entry.name.clone_from(name);
            }
            if let Some(limit_s) = change.limit_s {
                entry.job.limit_s = limit_s;
            }
            if let Some(priority) = change.priority {
                entry.job.priority = priority;
            }
            if let Some(account) = &change.account {
                prepare::check_account(account)?;
                entry.account = Some(account.clone());
            }
        }
        self.store.change(&changed)?;
        for mut entry in changed {
            entry.number(&mut self.scheduler);
            let new = &entry.job;
            self.scheduler.change(new.id, &|job| {
                (job.limit_s, job.priority) = (new.limit_s, new.priority);
                (job.account, job.user) = (new.account, new.user);
            });
            self.entries.insert(entry.job.id, entry);
        }
        self.is_changed = true;
        Ok(String::new())
    }

    /// Sends the processes of running jobs a signal.
    ///
    /// # Errors
    /// In words.
    pub fn signal(
        &mut self,
        targets: &[Target],
        signal: i32,
        to_script: bool,
        caller: &Caller,
    ) -> Result<String, String> {
        if !(1..=64).contains(&signal) {
            return Err(format!("there is no signal {signal}"));
        }
        let mut count = 0;
        for entry in self.chosen(targets, caller)? {
            let (id, folder) = (entry.job.id, self.folder(entry.job.id));
            let Some(supervisor) = self.supervisor(id) else {
                continue;
            };
            let listens = match folder.look() {
                Ok(Found::Supervised(_)) => true,
                // That of another head listens when it has claimed its job.
                Ok(Found::Unclaimed) => supervisor.has_line(),
                _ => false,
            };
            if listens {
                folder
                    .leave_signal(SignalWish { signal, to_script })
                    .map_err(|error| {
                        format!("cannot write to {}: {error}", folder.path.display())
                    })?;
                supervisor.say(&Message::Signals);
                count += 1;
            }
        }
        match count {
            0 => Err("none of these jobs runs; only processes of running jobs get signals".into()),
            _ => Ok(String::new()),
        }
    }

    /// Ends running jobs and puts them back.
    ///
    /// # Errors
    /// In words; nothing is done then.
    pub fn run_again(&mut self, targets: &[Target], caller: &Caller) -> Result<String, String> {
        let mut changed = self.chosen(targets, caller)?;
        changed.retain(|entry| entry.job.phase != Phase::Waiting && !entry.is_cancelled);
        if changed.is_empty() {
            return Err("none of these jobs runs; only a running job can be put back".into());
        }
        // A job that ends by a signal that nobody wished for good waits again.
        let jobs: Vec<JobId> = changed.iter().map(|entry| entry.job.id).collect();
        self.preempt(&jobs);
        Ok(String::new())
    }
}
