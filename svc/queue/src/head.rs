//! The head: the jobs that wait or run, and what is done with them. Whoever calls has the only
//! access; nothing here waits for another process.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use margay_core_queue::{Decision, End, Job, JobId, Phase, decide, refusal};
use margay_svc_queue_wire::{Answer, JobRow, Machine, Order, Shared, Target, Usage};
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::{SIGTERM, take_defaults_in};

use crate::explain;
use crate::files::{Found, JobFolder};
use crate::prepare;
use crate::store::{Entry, Finish, Store};
use crate::{log, now_s};

/// How often a supervisor is started for a job that ends before it has claimed it.
const MOST_TRIES: u32 = 5;

/// What the head has at hand.
#[derive(Debug)]
pub struct Resources {
    pub host: String,
    pub slots: u32,
    pub memory_mib: u64,
    /// The queue's folder.
    pub folder: PathBuf,
    /// This program.
    pub program: PathBuf,
}

/// The supervisor of a running job.
#[derive(Debug)]
pub struct Supervisor {
    /// None when it could not be started, or has gone before it could be watched.
    pub process: Option<PidFd>,
    tries: u32,
}

/// The head.
#[derive(Debug)]
pub struct Head {
    store: Store,
    resources: Resources,
    entries: BTreeMap<JobId, Entry>,
    supervisors: HashMap<JobId, Supervisor>,
    /// Ends that are to be stored; more than none only while the store refuses.
    finishes: Vec<(JobId, Finish)>,
    /// How jobs ended that dependencies name.
    ended: RefCell<HashMap<JobId, Vec<End>>>,
    last: JobId,
    /// Something has changed since the last decision.
    is_changed: bool,
}

fn is_meant(target: Target, job: JobId, array: Option<JobId>, task: Option<u32>) -> bool {
    match target.task {
        None => job == target.job || array == Some(target.job),
        Some(index) => array == Some(target.job) && task == Some(index),
    }
}

impl Head {
    /// Opens the store and finds the jobs that run.
    ///
    /// # Errors
    /// In words.
    pub fn open(resources: Resources) -> Result<Head, String> {
        let store = Store::open(&resources.folder.join("queue.db"))?;
        let entries: BTreeMap<JobId, Entry> = store
            .live()?
            .into_iter()
            .map(|entry| (entry.job.id, entry))
            .collect();
        let mut head = Head {
            last: store.last()?,
            store,
            resources,
            entries,
            supervisors: HashMap::new(),
            finishes: Vec::new(),
            ended: RefCell::default(),
            is_changed: true,
        };
        head.clear_folders();
        let running: Vec<JobId> = head
            .entries
            .values()
            .filter(|entry| matches!(entry.job.phase, Phase::Running(_)))
            .map(|entry| entry.job.id)
            .collect();
        for id in running {
            head.look_after(id, 0);
        }
        Ok(head)
    }

    /// Removes folders of jobs that have ended: the head died before it could.
    fn clear_folders(&self) {
        let folders = std::fs::read_dir(self.resources.folder.join("jobs"));
        for folder in folders.into_iter().flatten().flatten() {
            let id = folder
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if id.is_none_or(|id| !self.entries.contains_key(&id)) {
                JobFolder(folder.path()).remove();
            }
        }
    }

    /// How people name a job.
    fn named(&self, id: JobId) -> String {
        self.entries
            .get(&id)
            .map_or_else(|| id.to_string(), Entry::shown)
    }

    fn folder(&self, id: JobId) -> JobFolder {
        JobFolder::of(&self.resources.folder, id)
    }

    /// Accepts jobs: all or none. They are on the disk when this returns.
    pub fn submit(&mut self, shared: &Shared, orders: &[Order]) -> Answer {
        let now_s = now_s();
        let mut next = self.last;
        let mut all = Vec::new();
        for (at, order) in orders.iter().enumerate() {
            match self.accept(order, &mut next, now_s) {
                Ok(entries) => all.push(entries),
                Err(text) if orders.len() > 1 => {
                    return Answer::Failed(format!(
                        "no job is accepted, because of number {}: {text}",
                        at + 1
                    ));
                }
                Err(text) => return Answer::Failed(format!("the job is not accepted: {text}")),
            }
        }
        if let Err(text) = self.store.add(shared, orders, &mut all) {
            return Answer::Failed(format!("the job is not accepted: {text}"));
        }
        self.last = next;
        self.is_changed = true;
        let accepted = all
            .iter()
            .map(|entries| (entries[0].job.id, entries.len()))
            .collect();
        let entries = all.into_iter().flatten();
        self.entries
            .extend(entries.map(|entry| (entry.job.id, entry)));
        Answer::Accepted(accepted)
    }

    /// The entries of an order: one, or one for each task.
    fn accept(&self, order: &Order, next: &mut JobId, now_s: u64) -> Result<Vec<Entry>, String> {
        prepare::check(order, self.resources.memory_mib)?;
        let wishes = &order.wishes;
        let slots = wishes.size.slots(self.resources.slots);
        if let Some(text) = refusal(self.resources.slots, slots) {
            return Err(text);
        }
        let known = |id: JobId| id > 0 && id <= *next;
        if let Some(wrong) = wishes.after.iter().find(|d| !known(d.job)) {
            return Err(format!(
                "there is no job {} to depend on; see margay queue --all",
                wrong.job
            ));
        }
        let tasks: Vec<Option<u32>> = match &wishes.array {
            Some(array) => array.indices.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let first = *next + 1;
        *next += tasks.len() as u64;
        let entry = |(id, task): (JobId, Option<u32>)| Entry {
            job: Job {
                id,
                array: task.map(|_| first),
                array_limit: wishes.array.as_ref().and_then(|array| array.limit),
                slots,
                limit_s: wishes.limit_s.flatten(),
                priority: wishes.priority.unwrap_or(0),
                is_held: wishes.is_held.unwrap_or(false),
                after: wishes.after.clone(),
                phase: Phase::Waiting,
            },
            task,
            name: prepare::name(order),
            account: wishes.account.clone(),
            partition: prepare::PARTITION.into(),
            order: 0,
            submitted: now_s,
            is_cancelled: false,
        };
        Ok((first..).zip(tasks).map(entry).collect())
    }

    /// What would be started now, and why the others wait; with one more job, if given.
    fn decision(&self, more: Option<&Job>, now_s: u64) -> Decision {
        let jobs: Vec<&Job> = self.entries.values().map(|e| &e.job).chain(more).collect();
        let ended = |id: JobId| {
            let mut known = self.ended.borrow_mut();
            let ends = known.entry(id).or_insert_with(|| {
                let rows = self.store.ended(Some(id)).unwrap_or_default();
                let end = |row: JobRow| match row.phase {
                    Phase::Ended(end) => Some(end),
                    _ => None,
                };
                rows.into_iter().filter_map(end).collect()
            });
            Some(ends.clone())
        };
        decide(self.resources.slots, &jobs, &ended, now_s)
    }

    /// Starts what can start. Returns whether it has to be tried again later.
    pub fn schedule(&mut self) -> bool {
        while self.is_changed {
            self.is_changed = false;
            let now_s = now_s();
            let decision = self.decision(None, now_s);
            if let Err(text) = self.begin(&decision.start, now_s) {
                log(&format!("jobs cannot be started: {text}"));
                self.is_changed = true;
                return true;
            }
            for (id, reason) in &decision.reasons {
                if matches!(reason, margay_core_queue::Reason::Never(_)) {
                    let note = explain::short(reason, &|id| self.named(id), now_s);
                    self.end(*id, End::Cancelled, note);
                }
            }
            if !self.store_ends() {
                return true;
            }
        }
        false
    }

    fn begin(&mut self, jobs: &[JobId], now_s: u64) -> Result<(), String> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.store.begin(jobs, now_s)?;
        for &id in jobs {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.job.phase = Phase::Running(now_s);
            }
        }
        for &id in jobs {
            self.start(id, 0);
        }
        Ok(())
    }

    /// Starts the supervisor of a job.
    fn start(&mut self, id: JobId, tries: u32) {
        let started = self.try_start(id);
        if let Err(text) = &started {
            log(&format!("job {id}: {text}"));
        }
        let process = started.ok();
        self.supervisors.insert(id, Supervisor { process, tries });
    }

    fn try_start(&mut self, id: JobId) -> Result<PidFd, String> {
        let entry = self.entries.get(&id).ok_or("it is gone")?;
        let folder = self.folder(id);
        let (shared, order) = self.store.order(entry.order)?;
        let order = prepare::job_order(entry, &shared, order, &self.resources.host, &folder);
        folder
            .make(&order)
            .map_err(|error| format!("cannot write {}: {error}", folder.0.display()))?;
        let mut command = Command::new(&self.resources.program);
        command
            .arg("supervise")
            .arg(&folder.0)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = take_defaults_in(&mut command)
            .spawn()
            .map_err(|error| format!("cannot start its supervisor: {error}"))?;
        PidFd::open(child.id()).map_err(|error| format!("cannot watch its supervisor: {error}"))
    }

    /// Looks at a running job whose supervisor has ended or is not known.
    fn look_after(&mut self, id: JobId, tries: u32) {
        let is_cancelled = self
            .entries
            .get(&id)
            .is_some_and(|entry| entry.is_cancelled);
        match self.folder(id).look() {
            Ok(Found::Ended(end)) => {
                let finish = Finish {
                    end: end.end,
                    ended: end.ended,
                    usage: end.usage,
                    note: end.note,
                };
                self.supervisors.remove(&id);
                self.finishes.push((id, finish));
            }
            Ok(Found::Supervised(pid)) => {
                let process = PidFd::open(pid).ok();
                if let (Some(process), true) = (&process, is_cancelled) {
                    process.signal(SIGTERM);
                }
                self.supervisors.insert(id, Supervisor { process, tries });
            }
            Ok(Found::Unclaimed) if is_cancelled => self.end(id, End::Cancelled, String::new()),
            Ok(Found::Unclaimed) if tries < MOST_TRIES => self.start(id, tries + 1),
            Ok(Found::Unclaimed) => {
                let note = "what should watch over it could not be started; see head.log";
                self.end(id, End::NotStarted, note.into());
            }
            Ok(Found::Abandoned) => {
                let note = "what watched over it was killed, or the machine went down";
                self.end(id, End::Lost, note.into());
            }
            Err(error) => {
                let note = format!("how it ended cannot be read: {error}");
                self.end(id, End::Lost, note);
            }
        }
    }

    fn end(&mut self, id: JobId, end: End, note: String) {
        self.supervisors.remove(&id);
        let finish = Finish {
            end,
            ended: now_s(),
            usage: Usage::default(),
            note,
        };
        self.finishes.push((id, finish));
    }

    /// Takes note of jobs that have ended. Returns whether it has to be tried again later.
    pub fn collect(&mut self) -> bool {
        let gone: Vec<(JobId, u32)> = self
            .supervisors
            .iter()
            .filter(|(_, s)| s.process.as_ref().is_none_or(PidFd::has_ended))
            .map(|(id, supervisor)| (*id, supervisor.tries))
            .collect();
        for (id, tries) in gone {
            self.look_after(id, tries);
        }
        let is_stored = self.store_ends();
        let is_blind = self.supervisors.values().any(|s| s.process.is_none());
        !is_stored || is_blind
    }

    /// Stores the ends that are known; returns whether all are stored.
    fn store_ends(&mut self) -> bool {
        if self.finishes.is_empty() {
            return true;
        }
        if let Err(text) = self.store.finish(&self.finishes) {
            log(&format!("ends of jobs cannot be stored: {text}"));
            return false;
        }
        for (id, _) in std::mem::take(&mut self.finishes) {
            if let Some(entry) = self.entries.remove(&id) {
                let mut known = self.ended.borrow_mut();
                known.remove(&id);
                entry.job.array.map(|array| known.remove(&array));
                if matches!(entry.job.phase, Phase::Running(_)) {
                    self.folder(id).remove();
                }
            }
        }
        self.is_changed = true;
        true
    }

    /// The handles of the supervisors.
    pub fn processes(&self) -> impl Iterator<Item = &PidFd> {
        self.supervisors
            .values()
            .filter_map(|supervisor| supervisor.process.as_ref())
    }

    /// The numbers of the live jobs that targets name; of all when none is named.
    ///
    /// # Errors
    /// When there is no such job, and there never was.
    pub fn live(&self, targets: &[Target]) -> Result<Vec<JobId>, String> {
        if targets.is_empty() {
            return Ok(self.entries.keys().copied().collect());
        }
        let mut found = Vec::new();
        for &target in targets {
            let before = found.len();
            found.extend(
                self.entries
                    .values()
                    .filter(|e| is_meant(target, e.job.id, e.job.array, e.task))
                    .map(|entry| entry.job.id),
            );
            if found.len() == before && self.ended_rows(target)?.is_empty() {
                return Err(format!("there is no job {target}; see margay queue --all"));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether a job waits or runs.
    #[must_use]
    pub fn is_live(&self, id: JobId) -> bool {
        self.entries.contains_key(&id)
    }

    fn ended_rows(&self, target: Target) -> Result<Vec<JobRow>, String> {
        let mut rows = self.store.ended(Some(target.job))?;
        rows.retain(|row| target.task.is_none() || row.shown == target.to_string());
        Ok(rows)
    }

    /// The rows of jobs: of all that wait or run, of those that have ended as well, or of some.
    ///
    /// # Errors
    /// In words.
    pub fn rows(&self, all: bool, targets: &[Target]) -> Result<Vec<JobRow>, String> {
        let live = self.live(targets)?;
        let mut rows = match targets {
            [] if all => self.store.ended(None)?,
            [] => Vec::new(),
            _ => {
                let mut rows = Vec::new();
                for &target in targets {
                    rows.extend(self.ended_rows(target)?);
                }
                rows
            }
        };
        let now_s = now_s();
        let reasons: HashMap<JobId, String> = self
            .decision(None, now_s)
            .reasons
            .into_iter()
            .map(|(id, reason)| (id, explain::short(&reason, &|id| self.named(id), now_s)))
            .collect();
        let note = |entry: &Entry| match reasons.get(&entry.job.id) {
            _ if entry.is_cancelled => "is being cancelled".to_owned(),
            Some(reason) => reason.clone(),
            None => String::new(),
        };
        let live = live.iter().filter_map(|id| self.entries.get(id));
        rows.extend(live.map(|entry| entry.row(note(entry))));
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        Ok(rows)
    }

    /// Ends jobs: those that wait at once, those that run in good time.
    ///
    /// # Errors
    /// In words; nothing is done then.
    pub fn cancel(&mut self, targets: &[Target]) -> Result<String, String> {
        let jobs = self.live(targets)?;
        let mut changed: Vec<Entry> = jobs
            .iter()
            .filter_map(|id| self.entries.get(id).cloned())
            .collect();
        for entry in &mut changed {
            entry.is_cancelled = true;
        }
        self.store.change(&changed)?;
        for entry in changed {
            let id = entry.job.id;
            match (entry.job.phase, self.supervisors.get(&id)) {
                (Phase::Waiting, _) => self.end(id, End::Cancelled, String::new()),
                (
                    _,
                    Some(Supervisor {
                        process: Some(process),
                        ..
                    }),
                ) => process.signal(SIGTERM),
                _ => {}
            }
            self.entries.insert(id, entry);
        }
        self.store_ends();
        self.is_changed = true;
        Ok(match jobs.len() {
            0 => "no job waits or runs\n".into(),
            _ => String::new(),
        })
    }

    /// Holds jobs that wait, or lets them go.
    ///
    /// # Errors
    /// In words; nothing is done then.
    pub fn hold(&mut self, targets: &[Target], is_held: bool) -> Result<String, String> {
        let jobs = self.live(targets)?;
        let mut changed: Vec<Entry> = jobs
            .iter()
            .filter_map(|id| self.entries.get(id))
            .filter(|entry| entry.job.phase == Phase::Waiting)
            .cloned()
            .collect();
        if changed.is_empty() {
            return Err(
                "none of these jobs waits; only a job that waits can be held or let go".into(),
            );
        }
        for entry in &mut changed {
            entry.job.is_held = is_held;
        }
        self.store.change(&changed)?;
        self.entries
            .extend(changed.into_iter().map(|entry| (entry.job.id, entry)));
        self.is_changed = true;
        Ok(String::new())
    }

    /// Says why a job does not run, or how it is.
    ///
    /// # Errors
    /// In words.
    pub fn explain(&self, target: Target) -> Result<String, String> {
        let now_s = now_s();
        let live = self.live(&[target])?;
        let decision = self.decision(None, now_s);
        let mut text = String::new();
        for id in live {
            let Some(entry) = self.entries.get(&id) else {
                continue;
            };
            let shown = entry.shown();
            let reason = decision.reasons.iter().find(|(other, _)| *other == id);
            match (entry.job.phase, reason) {
                (Phase::Running(since), _) => {
                    let passed = margay_core_queue::shown(now_s.saturating_sub(since));
                    text += &format!("job {shown} runs since {passed}\n");
                }
                (_, Some((_, reason))) => {
                    text += &explain::long(&shown, reason, &|id| self.named(id), now_s)
                }
                _ => text += &format!("job {shown} starts now\n"),
            }
        }
        for row in self.ended_rows(target)? {
            let state = margay_svc_queue_wire::state(row.phase);
            let note = if row.note.is_empty() {
                String::new()
            } else {
                format!(": {}", row.note)
            };
            text += &format!("job {} has ended ({state}){note}\n", row.shown);
        }
        Ok(text)
    }

    /// Says when a job would start that somebody might submit now.
    #[must_use]
    pub fn when(&self, slots: u32, limit_s: Option<u64>) -> Answer {
        if let Some(text) = refusal(self.resources.slots, slots) {
            return Answer::Failed(format!("such a job would not be accepted: {text}"));
        }
        let now_s = now_s();
        let job = Job {
            id: self.last + 1,
            array: None,
            array_limit: None,
            slots: slots.max(1),
            limit_s,
            priority: 0,
            is_held: false,
            after: vec![],
            phase: Phase::Waiting,
        };
        let decision = self.decision(Some(&job), now_s);
        let reason = decision.reasons.iter().find(|(id, _)| *id == job.id);
        Answer::Done(match reason {
            Some((_, reason)) => explain::long("of this size", reason, &|id| self.named(id), now_s),
            None => "such a job would start now\n".into(),
        })
    }

    /// The machine and how much of it is used.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let running = || {
            let entries = self.entries.values();
            entries.filter(|e| matches!(e.job.phase, Phase::Running(_)))
        };
        Machine {
            host: self.resources.host.clone(),
            slots: self.resources.slots,
            used: running().map(|entry| entry.job.slots).sum(),
            running: running().count(),
            waiting: self.entries.len() - running().count(),
            head: std::process::id(),
        }
    }

    /// Closes the store.
    ///
    /// # Errors
    /// In words.
    pub fn close(&mut self) -> Result<(), String> {
        self.store.close()
    }
}
