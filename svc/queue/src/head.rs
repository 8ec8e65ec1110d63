//! The head: the jobs that wait or run, and what is done with them. A caller has the only
//! access; nothing here waits for another process.

mod accept;
mod change;
mod gangs;
mod hosts;
mod inform;
mod rights;
mod show;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use margay_core_queue::{Awaited, BeginTime, End, JobId, Phase, Reason, Scheduler};
use margay_svc_queue_wire::{Answer, JobRow, Order, Shared, Target, Usage};
use margay_sys_os::clock::local;

use crate::agents::Agents;
use crate::callers::Caller;
use crate::explain;
use crate::files::{self, JobFolder};
use crate::gang;
use crate::groups::Groups;
use crate::line::Message;
use crate::resources::Resources;
use crate::store::{Entry, Finish, Left, Missing, Ordered, Regained, Store, Which};
use crate::{log, machine_start, now_s};
use hosts::Doubt;
pub use hosts::{ANSWERED_WITHIN, Hosts, refuses_interactive};
use watch::{IdleSupervisor, Watched};

/// The head.
// Fields: the store, the machine, the jobs, and what is to be stored or looked at.
#[derive(Debug)]
pub struct Head {
    store: Store,
    resources: Resources,
    /// Where there are several.
    hosts: Option<Hosts>,
    /// What keeps hosts that may come, on a machine of one.
    spare_agents: Option<Agents>,
    entries: BTreeMap<JobId, Entry>,
    scheduler: Scheduler,
    watched: HashMap<JobId, Watched>,
    /// Running jobs that heads of other places have begun.
    left: HashMap<JobId, Left>,
    /// Where running jobs have their slots, as the store knows.
    stored_parts: HashMap<JobId, String>,
    idle: Vec<IdleSupervisor>,
    /// Jobs of several hosts of which it is not known whether they failed or were lost.
    doubts: Vec<Doubt>,
    /// Which table of partitions was looked at for queues whose jobs take turns.
    partitions: Option<gang::Stamp>,
    /// Ends that are to be stored; more than none only while the store refuses.
    finishes: Vec<(JobId, Finish)>,
    /// Jobs that wait again, likewise.
    requeues: Vec<JobId>,
    last: JobId,
    /// Something has changed since the last decision.
    is_changed: bool,
    /// What jobs did was stored and may not be on the disk.
    is_unwritten: bool,
    /// Jobs have ended since somebody asked.
    have_ended: bool,
    /// What sends letters.
    letters: inform::Letters,
    /// Why the store refuses, as the log has it already.
    logged: String,
}

/// How jobs and tasks ended that others depend on.
type Ends = HashMap<Awaited, Vec<End>>;

/// Whether the machine has started anew since a head remembered it.
fn has_restarted(folder: &Path) -> Result<bool, String> {
    match std::fs::read_to_string(folder.join("machine-start")) {
        Ok(old) => Ok(old.trim_end() != machine_start()?),
        // A new queue, or one of an older version, whose folders are on the disk.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!(
            "cannot read {}/machine-start: {error}",
            folder.display()
        )),
    }
}

fn remember_start(folder: &Path) -> Result<(), String> {
    let (new, path) = (
        folder.join("machine-start.new"),
        folder.join("machine-start"),
    );
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(machine_start().map_err(io::Error::other)?.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The jobs of a target that have ended.
fn ended_of(target: Target) -> Which {
    match target.task {
        Some(index) => Which::Task(target.job, index),
        None => Which::Of(target.job),
    }
}

impl Head {
    /// Finds the jobs that run.
    ///
    /// # Errors
    /// In words.
    pub fn open(
        resources: Resources,
        hosts: Result<Hosts, Agents>,
        store: Store,
    ) -> Result<Head, String> {
        let settings = store.settings()?;
        let (hosts, spare_agents) = match hosts {
            Ok(hosts) => (Some(hosts), None),
            Err(agents) => (None, Some(agents)),
        };
        let has_restarted = has_restarted(&resources.folder)?;
        let scheduler = Scheduler::new(resources.slots, resources.memory_mib, settings);
        let mut head = Head {
            last: store.last()?,
            left: store.left()?.into_iter().collect(),
            stored_parts: store.parts()?.into_iter().collect(),
            store,
            resources,
            hosts,
            spare_agents,
            entries: BTreeMap::new(),
            scheduler,
            watched: HashMap::new(),
            idle: Vec::new(),
            doubts: Vec::new(),
            partitions: None,
            finishes: Vec::new(),
            requeues: Vec::new(),
            is_changed: true,
            is_unwritten: false,
            have_ended: false,
            letters: inform::Letters::default(),
            logged: String::new(),
        };
        head.charge_all()?;
        head.use_hosts();
        let live = head.store.live()?;
        let ends = head.ends(&live)?;
        for entry in live {
            head.take(entry, &ends);
        }
        head.clear_folders();
        let running: Vec<JobId> = head
            .entries
            .values()
            .filter(|entry| matches!(entry.job.phase, Phase::Running(_)))
            .map(|entry| entry.job.id)
            .collect();
        for id in running {
            match has_restarted && !head.left.contains_key(&id) {
                false => head.look_after(id, 0),
                true => head.look_back(id),
            }
        }
        if has_restarted {
            // Nothing of the time before is looked for again.
            head.step(&[], now_s())?;
        }
        remember_start(&head.resources.folder)?;
        Ok(head)
    }

    /// How what these jobs wait for has ended.
    fn ends<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> Result<Ends, String> {
        let after = entries.into_iter().flat_map(|entry| &entry.job.after);
        let after: HashSet<Awaited> = after.map(|dependency| dependency.awaited()).collect();
        let ended = |(id, is_task): Awaited| -> Result<(Awaited, Vec<End>), String> {
            let which = match is_task {
                true => Which::Between(id, id),
                false => Which::Of(id),
            };
            let rows = self.store.ended(which)?.into_iter();
            let ends = rows.filter_map(|row| match row.phase {
                Phase::Ended(end) => Some(end),
                _ => None,
            });
            Ok(((id, is_task), ends.collect()))
        };
        after.into_iter().map(ended).collect()
    }

    /// Gives the scheduler a job that waits or runs.
    fn take(&mut self, mut entry: Entry, ends: &Ends) {
        entry.number(&mut self.scheduler);
        if let Phase::Running(_) = entry.job.phase {
            entry.job.parts = self.find_parts(entry.job.id, entry.runs, entry.job.slots);
        }
        let ended = |on: Awaited| ends.get(&on).cloned().unwrap_or_default();
        self.scheduler.add(entry.job.clone(), &ended);
        self.entries.insert(entry.job.id, entry);
    }

    /// Charges all that has ended to shares and budgets, where there are any.
    fn charge_all(&mut self) -> Result<(), String> {
        self.scheduler.forget_charges();
        let settings = self.scheduler.settings();
        if settings.half_life_s.is_none() && settings.accounts.is_empty() {
            return Ok(());
        }
        let scheduler = &mut self.scheduler;
        self.store.each_ended(|row| {
            if let (Some(started), Some(ended)) = (row.started, row.ended) {
                let slot_s = ended.saturating_sub(started) as f64 * f64::from(row.slots);
                let user = scheduler.tag(&row.user);
                let account = scheduler.tag(row.account.as_deref().unwrap_or_default());
                scheduler.charge(user, account, slot_s, ended);
            }
        })
    }

    /// Removes folders of jobs that have ended: the head died before it could.
    fn clear_folders(&self) {
        let is_live = |name: &str| {
            let id = name.split('.').next().and_then(|id| id.parse().ok());
            let live = id.filter(|id| self.entries.contains_key(id));
            live.is_some_and(|id| self.folder(id).name() == name)
        };
        for (name, group) in self.resources.groups.iter().flat_map(Groups::all) {
            if !is_live(&name)
                && let Err(error) = group.remove()
            {
                log(&format!(
                    "job {name}: some of its processes do not end: {error}"
                ));
            }
        }
        let (jobs, queue) = (self.resources.folder.join("jobs"), &self.resources.queue);
        files::clear(&jobs, queue, &is_live);
        if let Some(folders) = &self.resources.readable {
            files::clear(folders, queue, &is_live);
        }
    }

    /// How people name a job.
    fn named(&self, id: JobId) -> String {
        self.entries
            .get(&id)
            .map_or_else(|| id.to_string(), Entry::shown)
    }

    fn folder(&self, id: JobId) -> JobFolder {
        let runs = self.entries.get(&id).map_or(0, |entry| entry.runs);
        JobFolder::of(&self.resources.folder, id, runs)
            .with_readable(self.resources.readable.as_deref())
    }

    /// Accepts jobs: all or none. They are on the disk when this returns.
    pub fn submit(&mut self, mut shared: Shared, orders: &[Order], caller: &Caller) -> Answer {
        if let (true, Some(text)) = (
            caller.is_elsewhere,
            refuses_interactive(orders, &self.resources.program, &self.resources.host),
        ) {
            return Answer::Failed(text);
        }
        self.see_partitions();
        let now_s = now_s();
        // What the kernel says of the user counts, not what the request says.
        shared.owner = None;
        if let Some((owner, name)) = &caller.as_user {
            shared.owner = Some(owner.clone());
            shared.user.clone_from(name);
        }
        let has = self.count_of(caller);
        let mut next = self.last;
        let (mut all, mut count) = (Vec::new(), 0);
        for (at, order) in orders.iter().enumerate() {
            let who = (&*shared.user, caller.uid);
            let accepted = self
                .has_room_for(order, caller, has + count)
                .and_then(|()| self.accept(order, who, (&all, count), &mut next, now_s));
            match accepted {
                Ok(entries) => {
                    count += entries.len();
                    all.push(entries);
                }
                Err(text) if orders.len() > 1 => {
                    return Answer::Failed(format!(
                        "no job is accepted, because of number {}: {text}",
                        at + 1
                    ));
                }
                Err(text) => return Answer::Failed(format!("the job is not accepted: {text}")),
            }
        }
        // Before: when the jobs are stored nothing may fail any more.
        let ends = self.ends(all.iter().flatten());
        let stored = ends.and_then(|ends| self.store.add(&shared, orders, &mut all).map(|()| ends));
        let ends = match stored {
            Ok(ends) => ends,
            Err(text) => return Answer::Failed(format!("the job is not accepted: {text}")),
        };
        self.last = next;
        self.is_changed = true;
        let accepted = all
            .iter()
            .map(|entries| (entries[0].job.id, entries.len()))
            .collect();
        for entry in all.into_iter().flatten() {
            self.take(entry, &ends);
        }
        Answer::Accepted(accepted)
    }

    /// Stores what has ended, and starts what can start: in one change, which is one wait for the
    /// disk. Returns whether it has to be tried again later.
    pub fn schedule(&mut self) -> bool {
        while self.is_changed {
            self.see_partitions();
            self.is_changed = false;
            let now_s = now_s();
            let decision = self.scheduler.decide(now_s);
            for (id, dependency) in &decision.never {
                let note = explain::short(&Reason::Never(*dependency), &|id| self.named(id), now_s);
                self.end(*id, End::Cancelled, note);
            }
            if let Err(text) = self.step(&decision.start, now_s) {
                let text = format!("what jobs do cannot be stored: {text}");
                if text != self.logged {
                    log(&text);
                }
                self.logged = text;
                self.is_changed = true;
                return true;
            }
            self.logged.clear();
            self.preempt(&decision.preempt);
        }
        false
    }

    /// Ends running jobs that make room for others: they wait again when they have ended.
    fn preempt(&mut self, jobs: &[JobId]) {
        for &id in jobs {
            if let Some(supervisor) = self.supervisor(id) {
                // A head that comes after this one finds the mark.
                if let Err(error) = self.folder(id).mark_preempted() {
                    log(&format!("job {id} cannot be preempted: {error}"));
                    continue;
                }
                supervisor.say(&Message::End);
                self.scheduler.ending(id);
            }
        }
    }

    /// Whether something was stored since the last call that may not be on the disk.
    pub fn take_unwritten(&mut self) -> bool {
        std::mem::take(&mut self.is_unwritten)
    }

    /// Whether jobs have ended since the last call.
    pub fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.have_ended)
    }

    /// After how many seconds to decide again, although nothing else happens until then.
    pub fn pause_s(&mut self) -> Option<u64> {
        let now_s = now_s();
        let next = self.scheduler.next_moment(now_s);
        let next = next.map(|next| next.saturating_sub(now_s).max(1));
        next.into_iter()
            .chain(self.partitions_pause_s())
            .chain(self.doubts_pause_s())
            .min()
    }

    /// Time has passed.
    pub fn look_again(&mut self) {
        self.is_changed = true;
    }

    /// Stores all that has happened and that these jobs run, and starts them. When it cannot be
    /// stored nothing has changed.
    fn step(&mut self, start: &[JobId], now_s: u64) -> Result<(), String> {
        let requeues = self.requeues.iter().filter_map(|id| self.entries.get(id));
        let requeues: Vec<(JobId, u32)> = requeues.map(|e| (e.job.id, e.runs + 1)).collect();
        if start.is_empty() && requeues.is_empty() && self.finishes.is_empty() {
            return Ok(());
        }
        // Before: a job that is stored as running has all that it needs.
        let order = |id| self.store.order(self.entries.get(id)?.order).ok();
        let orders: Vec<Option<Ordered>> = start.iter().map(order).collect();
        self.store.step(&self.finishes, &requeues, start, now_s)?;
        self.is_unwritten = true;
        self.have_ended |= !self.finishes.is_empty();
        for (id, finish) in std::mem::take(&mut self.finishes) {
            self.inform(id, Some(&finish));
            let folder = self.folder(id);
            self.left.remove(&id);
            if let Some(entry) = self.entries.remove(&id)
                && matches!(entry.job.phase, Phase::Running(_))
            {
                folder.remove();
            }
        }
        self.requeues.clear();
        for (id, runs) in requeues {
            self.left.remove(&id);
            self.folder(id).remove();
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.job.phase = Phase::Waiting;
                entry.runs = runs;
            }
        }
        for &id in start {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.job.phase = Phase::Running(now_s);
            }
            self.is_changed |= self.scheduler.is_awaited(id);
            self.scheduler.start(id, now_s);
        }
        self.store_parts(start);
        for (&id, order) in start.iter().zip(orders) {
            self.start(id, 0, order);
            self.inform(id, None);
        }
        Ok(())
    }

    fn end(&mut self, id: JobId, end: End, note: String) {
        self.watched.remove(&id);
        let finish = Finish {
            end,
            ended: now_s(),
            usage: Usage::default(),
            note,
            hosts: Vec::new(),
            steps: Vec::new(),
        };
        self.finish(id, finish);
    }

    /// Its room is free from now on; others start when its end is stored with them.
    fn finish(&mut self, id: JobId, mut finish: Finish) {
        // An end that waits to be stored stays the first one.
        if self.scheduler.job(id).is_none() {
            return;
        }
        finish.hosts = self.on_hosts(id);
        self.scheduler.end(id, finish.end, finish.ended);
        self.finishes.push((id, finish));
        self.is_changed = true;
    }

    fn requeue(&mut self, id: JobId) {
        self.scheduler.requeue(id, now_s());
        self.requeues.push(id);
        self.is_changed = true;
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
            match target.task {
                Some(index) => found.extend(self.task(target.job, index)),
                // The tasks of an array follow each other.
                None => found.extend(
                    self.entries
                        .range(target.job..)
                        .take_while(|(id, entry)| {
                            **id == target.job || entry.job.array == Some(target.job)
                        })
                        .map(|(id, _)| *id),
                ),
            }
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

    /// A task of an array that waits or runs. Numbers of tasks rise with their indices.
    fn task(&self, array: JobId, index: u32) -> Option<JobId> {
        let last = array.saturating_add(u64::from(index));
        self.entries
            .range(array..=last)
            .rev()
            .find(|(_, entry)| {
                entry.job.array == Some(array) && entry.task.is_some_and(|task| task <= index)
            })
            .filter(|(_, entry)| entry.task == Some(index))
            .map(|(id, _)| *id)
    }

    fn ended_rows(&self, target: Target) -> Result<Vec<JobRow>, String> {
        self.store.ended(ended_of(target))
    }

    /// Ends jobs: those that wait at once, those that run in good time.
    ///
    /// # Errors
    /// In words; nothing is done then.
    pub fn cancel(&mut self, targets: &[Target], caller: &Caller) -> Result<String, String> {
        let jobs = self.changeable(targets, caller)?;
        let mut changed: Vec<Entry> = jobs
            .iter()
            .filter_map(|id| self.entries.get(id).cloned())
            .collect();
        for entry in &mut changed {
            entry.is_cancelled = true;
        }
        let stored = self.store.change(&changed);
        let is_waiting = |entry: &Entry| entry.job.phase == Phase::Waiting;
        let (waiting, running): (Vec<Entry>, Vec<Entry>) =
            changed.into_iter().partition(is_waiting);
        // What runs ends also where the disk is full: it may be what fills it.
        let problem = stored.err().filter(|_| !waiting.is_empty());
        let waiting = waiting.into_iter().filter(|_| problem.is_none());
        for entry in running.into_iter().chain(waiting) {
            let id = entry.job.id;
            match (entry.job.phase, self.supervisor(id)) {
                (Phase::Waiting, _) => self.end(id, End::Cancelled, String::new()),
                (_, Some(supervisor)) => supervisor.say(&Message::End),
                _ => {}
            }
            self.entries.insert(id, entry);
        }
        self.is_changed = true;
        self.settle_doubts();
        self.schedule();
        if let Some(text) = problem {
            return Err(format!(
                "{text}; jobs that wait are not cancelled, those that run are"
            ));
        }
        match (&jobs[..], targets) {
            ([], []) => Ok("no job waits or runs\n".into()),
            ([], _) => self.ends_of(targets),
            _ => Ok(String::new()),
        }
    }

    /// How jobs have ended, a line for each.
    fn ends_of(&self, targets: &[Target]) -> Result<String, String> {
        let mut text = String::new();
        for &target in targets {
            for row in self.ended_rows(target)? {
                let state = margay_svc_queue_wire::state(row.phase);
                text += &format!("job {} has ended ({state})\n", row.shown);
            }
        }
        Ok(text)
    }

    /// Holds jobs that wait, or lets them go.
    ///
    /// # Errors
    /// In words; nothing is done then.
    pub fn hold(
        &mut self,
        targets: &[Target],
        is_held: bool,
        caller: &Caller,
    ) -> Result<String, String> {
        let jobs = self.changeable(targets, caller)?;
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
            if entry.is_locked && !caller.is_master {
                return Err(format!(
                    "job {} is held by root, who alone has the right to let it go",
                    entry.shown()
                ));
            }
            entry.job.is_held = is_held;
            entry.is_locked = is_held && caller.is_master && !caller.is_owner_of(entry.uid);
        }
        self.store.change(&changed)?;
        for entry in changed {
            self.scheduler
                .change(entry.job.id, &|job| job.is_held = is_held);
            self.entries.insert(entry.job.id, entry);
        }
        self.is_changed = true;
        Ok(String::new())
    }

    /// Changes the rules, or shows them.
    ///
    /// # Errors
    /// In words; nothing has changed then.
    pub fn set(&mut self, words: &[String]) -> Result<String, String> {
        if words.is_empty() {
            let date = |at| local(at).to_string();
            return Ok(self.scheduler.settings().words(&date));
        }
        // Times of day are this host's.
        let word = |word: &String| {
            let time = word.strip_prefix("start=")?;
            let is_other = time == "now" || time.starts_with('+') || time.parse::<u64>().is_ok();
            let time = BeginTime::of_slurm(time).ok().filter(|_| !is_other)?;
            Some(accept::moment_of(time, now_s()).map(|at| format!("start={at}")))
        };
        let words: Vec<String> = (words.iter())
            .map(|own| word(own).unwrap_or_else(|| Ok(own.clone())))
            .collect::<Result<_, _>>()?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut settings = self.scheduler.settings().clone();
        settings.change(&words, self.resources.slots, now_s())?;
        let of_queue = match words[..] {
            ["queue", name, ..] => settings.queues.get_mut(name),
            _ => None,
        };
        if let Some(gang) = of_queue.and_then(|rules| rules.gang.as_mut()) {
            *gang = self.find_gang(&gang.partition)?;
        }
        self.store.set(&settings)?;
        self.scheduler.set(settings);
        self.charge_all()?;
        self.is_changed = true;
        Ok(String::new())
    }

    /// Looks whether the store is still this head's: without it nothing is answered.
    ///
    /// # Errors
    /// In words, when it is not.
    pub fn hear_store(&self) -> Result<(), String> {
        self.store.hear()
    }

    /// What is to be looked for, when the connection to the store is broken.
    pub fn missing_store(&self) -> Option<Missing> {
        self.store.missing()
    }

    /// Goes on with the store that has been found again: all that may have been stored or not is
    /// stored once more.
    ///
    /// # Errors
    /// In words: it is broken as well.
    pub fn put_store_back(&mut self, regained: Regained) -> Result<(), String> {
        let doubtful = self.store.put_back(regained)?;
        let changed = doubtful.iter().filter_map(|id| self.entries.get(id));
        let changed: Vec<Entry> = changed.cloned().collect();
        self.store.change(&changed)?;
        self.store.set(self.scheduler.settings())?;
        self.is_changed = true;
        Ok(())
    }

    /// Closes the store.
    ///
    /// # Errors
    /// In words.
    pub fn close(&mut self) -> Result<(), String> {
        if let Ok(groups) = &self.resources.groups {
            groups.close();
        }
        self.store.close()
    }
}
