//! What the head says of jobs and of the machine.

use std::collections::HashMap;

use margay_core_queue::{End, Job, JobId, Phase, QueueRules, Reason, refusal};
use margay_svc_queue_wire::{Answer, JobRow, Machine, QueueRow, Target};
use serde_json::value::{RawValue, to_raw_value};

use super::Head;
use super::rights::veil_row;
use crate::callers::Caller;
use crate::explain;
use crate::now_s;
use crate::store::{Entry, Which};

/// Most jobs that an explanation names.
const MOST_DETAILS: usize = 10;

impl Head {
    /// The rows of jobs: of all that wait or run, or of some.
    ///
    /// # Errors
    /// In words.
    pub fn rows(
        &mut self,
        targets: &[Target],
        has_steps: bool,
        caller: &Caller,
    ) -> Result<Vec<JobRow>, String> {
        let live = self.live(targets)?;
        let mut rows = Vec::new();
        for &target in targets {
            rows.extend(self.ended_rows(target)?);
        }
        let now_s = now_s();
        let reasons: HashMap<JobId, Reason> = match live.is_empty() {
            true => HashMap::new(),
            false => self.reasons_of(&live, now_s),
        };
        let note = |entry: &Entry| match reasons.get(&entry.job.id) {
            _ if entry.is_cancelled => {
                let hindered = self.hindered(entry);
                hindered.unwrap_or_else(|| "is being cancelled".to_owned())
            }
            Some(reason) => explain::short(reason, &|id| self.named(id), now_s),
            None => self.hindered(entry).unwrap_or_default(),
        };
        let live = live.iter().filter_map(|id| self.entries.get(id));
        rows.extend(live.map(|entry| self.row(entry, note(entry), has_steps)));
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        rows.iter_mut().for_each(|row| veil_row(row, caller));
        Ok(rows)
    }

    /// The rows of the next jobs that have ended, as [`Which::After`] says.
    ///
    /// # Errors
    /// In words.
    pub fn rows_of_ended(&self, after: Which, caller: &Caller) -> Result<Vec<JobRow>, String> {
        let mut rows = self.store.ended(after)?;
        rows.iter_mut().for_each(|row| veil_row(row, caller));
        Ok(rows)
    }

    /// The row of a job that waits or runs; with its steps, which costs a look at a file.
    pub(super) fn row(&self, entry: &Entry, note: String, has_steps: bool) -> JobRow {
        let id = entry.job.id;
        let has_steps = has_steps && matches!(entry.job.phase, Phase::Running(_));
        let folder = has_steps.then(|| self.folder(id));
        JobRow {
            hosts: self.on_hosts(id),
            steps: folder.map_or_else(Vec::new, |folder| folder.steps_so_far()),
            ..entry.row(note)
        }
    }

    /// The rows of jobs that have ended, in the order of their numbers.
    ///
    /// # Errors
    /// In words.
    pub fn rows_of(&self, jobs: &[JobId]) -> Result<Vec<JobRow>, String> {
        let mut rows = Vec::new();
        for jobs in jobs.chunk_by(|one, next| one + 1 == *next) {
            if let [first, ..] = jobs {
                let last = jobs.last().unwrap_or(first);
                rows.extend(self.store.ended(Which::Between(*first, *last))?);
            }
        }
        Ok(rows)
    }

    /// Says why a job does not run, or how it is.
    ///
    /// # Errors
    /// In words.
    pub fn explain(&mut self, target: Target, caller: &Caller) -> Result<String, String> {
        let now_s = now_s();
        let live = self.live(&[target])?;
        let reasons = self.reasons_of(&live, now_s);
        let mut text = String::new();
        for (place, id) in live.into_iter().enumerate() {
            let Some(entry) = self.entries.get(&id) else {
                continue;
            };
            let shown = entry.shown();
            match (entry.job.phase, reasons.get(&id)) {
                (_, None) if let Some(why) = self.hindered(entry) => {
                    text += &format!("job {shown} {why}\n");
                }
                (Phase::Running(since), _) => {
                    let passed = margay_core_queue::shown(now_s.saturating_sub(since));
                    let hosts = explain::on(&self.on_hosts(id));
                    text += &format!("job {shown} runs since {passed}{hosts}\n");
                }
                (_, Some(reason)) => {
                    text += &explain::long(&shown, reason, &|id| self.named(id), now_s);
                    // For a long array the first tasks say enough.
                    if place < MOST_DETAILS {
                        text += &self.details(id, reason, now_s);
                    }
                }
                _ => text += &format!("job {shown} starts now\n"),
            }
        }
        for mut row in self.ended_rows(target)? {
            veil_row(&mut row, caller);
            let state = margay_svc_queue_wire::state(row.phase);
            let state = match row.phase {
                Phase::Ended(End::Exit(code)) if code != 0 => format!("{state}, exit code {code}"),
                _ => state.to_owned(),
            };
            let note = if row.note.is_empty() {
                String::new()
            } else {
                format!(": {}", row.note)
            };
            text += &format!("job {} has ended ({state}){note}\n", row.shown);
        }
        Ok(text)
    }

    /// What keeps a job from going on that the scheduler has no reason against.
    fn hindered(&self, entry: &Entry) -> Option<String> {
        let id = entry.job.id;
        if self.lacks_room(id) {
            let folder = self.resources.folder.display();
            return Some(format!(
                "waits for room on the disk with {folder}; make room there"
            ));
        }
        if self.logged.is_empty() {
            return None;
        }
        let has_ended = || self.finishes.iter().any(|(other, _)| *other == id);
        let state = match entry.job.phase {
            Phase::Waiting => "waits",
            _ if has_ended() => "has ended",
            _ => return None,
        };
        Some(format!("{state}: {}", self.logged))
    }

    pub(super) fn reasons_of(&mut self, jobs: &[JobId], now_s: u64) -> HashMap<JobId, Reason> {
        let decision = if jobs.len() == self.entries.len() {
            self.scheduler.reasons(now_s)
        } else {
            let jobs = jobs.iter().copied().collect();
            self.scheduler.reasons_of(&jobs, now_s)
        };
        decision.reasons.into_iter().collect()
    }

    /// What stands before a job, when it is expected to start, and what would let it start now.
    fn details(&mut self, id: JobId, reason: &Reason, now_s: u64) -> String {
        let waits_for_room = matches!(
            reason,
            Reason::Slots { .. }
                | Reason::Memory { .. }
                | Reason::Places { .. }
                | Reason::Reserved { .. }
                | Reason::WouldDelay { .. }
                | Reason::Behind(_)
        );
        if !waits_for_room {
            return String::new();
        }
        let mut text = String::new();
        match self.scheduler.before(id) {
            Some(0) | None => {}
            Some(1) => text += "  1 job of the queue stands before it\n",
            Some(count) => text += &format!("  {count} jobs of the queue stand before it\n"),
        }
        let is_first = !matches!(reason, Reason::WouldDelay { .. } | Reason::Behind(_));
        if !is_first && let Some(at) = self.scheduler.expected(id, now_s) {
            let wait = margay_core_queue::shown(at.saturating_sub(now_s));
            text += &format!("  by the time limits of the others it starts within {wait}\n");
        }
        let in_its_way = self.scheduler.in_its_way(id, now_s);
        if is_first && !in_its_way.is_empty() {
            let names: Vec<String> = in_its_way.iter().map(|id| self.named(*id)).collect();
            let more = names.len().saturating_sub(MOST_DETAILS);
            let mut names = names[..names.len().min(MOST_DETAILS)].join(", ");
            if more > 0 {
                names += &format!(" and {more} more");
            }
            text += &format!("  it would start now if these had ended: {names}\n");
        }
        text
    }

    /// Says when a job would start that somebody might submit now.
    #[must_use]
    pub fn when(&mut self, slots: u32, nodes: Option<u32>, limit_s: Option<u64>) -> Answer {
        let queue = self.scheduler.settings().default_queue.clone();
        if let Some(text) = refusal(self.slots_for(&queue), slots) {
            return Answer::Failed(format!("such a job would not be accepted: {text}"));
        }
        let now_s = now_s();
        let job = Job {
            id: self.last + 1,
            slots: slots.max(1),
            nodes,
            limit_s,
            queue: self.scheduler.tag(&queue),
            ..Job::default()
        };
        let id = job.id;
        self.scheduler.add(job, &|_| Vec::new());
        let reasons = self.scheduler.reasons(now_s).reasons;
        let reason = reasons.iter().find(|(other, _)| *other == id);
        let answer = match reason {
            Some((_, reason)) => {
                let text = explain::long("of this size", reason, &|id| self.named(id), now_s);
                text + &self.details(id, reason, now_s)
            }
            None => "such a job would start now\n".into(),
        };
        self.scheduler.end(id, End::Cancelled, now_s);
        Answer::Done(answer)
    }

    fn used_slots(&self) -> u32 {
        self.scheduler.running().map(|job| job.slots).sum()
    }

    /// The queues, with sums that each change of a job keeps up to date.
    fn queue_rows(&self) -> Vec<Box<RawValue>> {
        let settings = self.scheduler.settings();
        let row = |(name, rules): (&String, &QueueRules)| {
            let (running, waiting) = self.scheduler.queue_counts(name);
            let parts = rules.gang.iter().flat_map(|gang| &gang.hosts);
            let row = QueueRow {
                name: name.clone(),
                is_default: *name == settings.default_queue,
                slots: self.slots_for(name),
                used: running.slots,
                running: running.jobs,
                waiting,
                hosts: parts.filter_map(|part| self.host_name(part.host)).collect(),
                rules: rules.clone(),
            };
            to_raw_value(&row).ok()
        };
        settings.queues.iter().filter_map(row).collect()
    }

    /// The machine and how much of it is used.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            host: self.resources.host.clone(),
            slots: self.resources.slots,
            // Those that take turns share theirs.
            used: self.used_slots().min(self.resources.slots),
            running: self.scheduler.running().count(),
            waiting: self
                .entries
                .len()
                .saturating_sub(self.scheduler.running().count()),
            head: std::process::id(),
            hosts: self.host_rows(),
            queues: self.queue_rows(),
            groups: match (&self.resources.readable, &self.resources.groups) {
                (None, _) => String::new(),
                (Some(_), Ok(groups)) => groups.shown(),
                (Some(_), Err(why)) => format!("no control groups: {why}"),
            },
            standbys: self.store.standbys().unwrap_or_default(),
            last: self.last,
        }
    }
}
