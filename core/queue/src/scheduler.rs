//! The jobs that wait or run, in the order in which they are looked at. Each change costs little,
//! whatever the length of the queue; what is decided is in [`pass`](crate::pass).

mod hosts;
mod progress;
mod ranks;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::job::{Awaited, Dependency, End, Job, JobId, Phase, Tag};
use crate::places::Host;
use crate::profile::Room;
use crate::rules::{AccountRules, Counts, QueueRules, Reservation, Settings};
use crate::usage::Usage;
use progress::Named;
use ranks::{Group, Rank};

/// How often budgets are looked at while jobs wait, in seconds.
const BUDGETS_EVERY_S: u64 = 5;

/// A job with what keeps it from being looked at.
#[derive(Clone, Debug)]
pub(crate) struct QueuedJob {
    pub job: Job,
    /// Dependencies that are not met yet.
    unmet: Vec<Dependency>,
    /// Its place, while nothing but room keeps it from starting.
    group: Option<Group>,
    /// It has been asked to end.
    pub is_ending: bool,
    /// It needs no slots but those of its queue's partition, where it takes turns.
    pub takes_turns: bool,
}

/// Says how jobs ended that are no longer known: a job, or the tasks of an array.
pub type Ends<'a> = &'a dyn Fn(Awaited) -> Vec<End>;

/// The jobs that wait or run, and the rules.
// Fields: the rules, the jobs, and sums over them that each change keeps up to date.
#[derive(Debug, Default)]
pub struct Scheduler {
    machine: Room,
    /// Where there are several.
    pub(crate) hosts: Vec<Host>,
    /// What jobs use of each of them.
    in_hosts: Vec<Room>,
    pub(crate) settings: Settings,
    tags: HashMap<String, Tag>,
    pub(crate) texts: Vec<String>,
    pub(crate) queues: HashMap<Tag, QueueRules>,
    pub(crate) accounts: HashMap<Tag, AccountRules>,
    pub(crate) reservations: HashMap<Tag, Reservation>,
    /// The cores of partitions in which jobs of some queues take turns.
    kept: BTreeSet<usize>,
    /// The same of each host of several: its slots.
    kept_slots: Vec<u32>,
    pub(crate) jobs: BTreeMap<JobId, QueuedJob>,
    ready: HashMap<Group, (Rank, BTreeSet<JobId>)>,
    pub(crate) running: BTreeSet<JobId>,
    /// Outside of reservations: what becomes free when, by the time limits.
    pub(crate) ends: BTreeMap<u64, Room>,
    pub(crate) used: Room,
    pub(crate) in_reservation: HashMap<Tag, Room>,
    pub(crate) in_array: HashMap<JobId, u32>,
    pub(crate) in_queue: HashMap<Tag, Counts>,
    pub(crate) of_user: HashMap<(Tag, Tag), Counts>,
    /// Jobs that wait or run, by queue, and by queue and user.
    all_in_queue: HashMap<Tag, u32>,
    all_of_user: HashMap<(Tag, Tag), u32>,
    named: HashMap<Awaited, Named>,
    /// Jobs whose dependency cannot be met any more.
    pub(crate) lost: BTreeMap<JobId, Dependency>,
    /// Times before which some jobs are not to begin.
    begins: BTreeSet<u64>,
    usage: Usage,
    over: HashMap<Tag, bool>,
    factors: (HashMap<Tag, u16>, HashMap<(Tag, Tag), u16>),
    ranked_s: Option<u64>,
}

fn add<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Counts>, key: K, slots: u32, is_more: bool) {
    let counts = map.entry(key).or_default();
    if is_more {
        counts.jobs += 1;
        counts.slots = counts.slots.saturating_add(slots);
    } else {
        counts.jobs = counts.jobs.saturating_sub(1);
        counts.slots = counts.slots.saturating_sub(slots);
    }
}

impl QueuedJob {
    pub fn need(&self) -> Room {
        let slots = match self.takes_turns {
            true => 0,
            false => self.job.slots.max(1),
        };
        Room::new(slots, self.job.memory_mib)
    }

    /// When it ends by its limit, if it starts at `from`.
    pub fn end(&self, from: u64) -> u64 {
        let limit = self.job.limit_s.unwrap_or(u64::MAX);
        from.saturating_add(limit)
    }

    pub fn unmet(&self) -> Option<Dependency> {
        self.unmet.first().copied()
    }
}

impl Scheduler {
    /// Without jobs, on a machine of this size.
    #[must_use]
    pub fn new(slots: u32, memory_mib: u64, settings: Settings) -> Scheduler {
        let mut scheduler = Scheduler {
            machine: Room::new(slots, memory_mib),
            ..Scheduler::default()
        };
        // No name: what has no account, for example.
        scheduler.tag("");
        scheduler.set(settings);
        scheduler
    }

    /// The number of a text.
    pub fn tag(&mut self, text: &str) -> Tag {
        if let Some(&tag) = self.tags.get(text) {
            return tag;
        }
        let tag = self.texts.len() as Tag;
        self.texts.push(text.to_owned());
        self.tags.insert(text.to_owned(), tag);
        tag
    }

    /// The text of a number.
    #[must_use]
    pub fn text(&self, tag: Tag) -> &str {
        self.texts.get(tag as usize).map_or("", String::as_str)
    }

    /// The rules.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the rules.
    pub fn set(&mut self, settings: Settings) {
        self.usage.set_half_life(settings.half_life_s);
        let queues = settings.queues.iter();
        self.queues = queues
            .map(|(k, v)| (self_tag(&mut self.tags, &mut self.texts, k), v.clone()))
            .collect();
        let accounts = settings.accounts.iter();
        self.accounts = accounts
            .map(|(k, v)| (self_tag(&mut self.tags, &mut self.texts, k), v.clone()))
            .collect();
        let reservations = settings.reservations.iter();
        self.reservations = reservations
            .map(|(k, v)| (self_tag(&mut self.tags, &mut self.texts, k), v.clone()))
            .collect();
        self.settings = settings;
        self.ranked_s = None;
        let cores = self.queues.values().filter_map(|rules| rules.gang.as_ref());
        self.kept = cores.flat_map(|gang| &gang.cores).copied().collect();
        self.keep_slots();
        for queued in self.jobs.values_mut() {
            queued.takes_turns = takes_turns(&self.queues, &queued.job);
        }
        // What runs in a reservation that is gone counts with the others.
        let running: Vec<JobId> = self.running.iter().copied().collect();
        self.ends.clear();
        self.used = Room::default();
        self.in_hosts.fill(Room::default());
        self.in_reservation.clear();
        for id in running {
            self.occupy(id, true);
        }
        let ready: Vec<JobId> = self
            .ready
            .values()
            .flat_map(|(_, jobs)| jobs)
            .copied()
            .collect();
        for id in ready {
            self.place(id);
        }
    }

    /// The cores of partitions in which jobs of some queues take turns, and no others run.
    #[must_use]
    pub fn kept(&self) -> &BTreeSet<usize> {
        &self.kept
    }

    /// The slots that a job of a queue can have on a machine that has this many.
    #[must_use]
    pub fn slots_for(&self, queue: &str, all: u32) -> u32 {
        let rules = self.settings.queues.get(queue);
        let count = |cores: usize| u32::try_from(cores).unwrap_or(u32::MAX);
        let gang = rules.and_then(|rules| rules.gang.as_ref());
        match (gang, self.hosts.is_empty()) {
            (Some(gang), true) => count(gang.cores.len()),
            (Some(gang), false) => gang.hosts.iter().map(|part| part.slots).sum(),
            (None, true) => all.saturating_sub(count(self.kept.len())),
            (None, false) => all.saturating_sub(self.kept_slots.iter().sum()),
        }
    }

    /// A job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|queued| &queued.job)
    }

    /// When to decide again, although nothing else happens until then.
    pub fn next_moment(&mut self, now_s: u64) -> Option<u64> {
        self.begins = self.begins.split_off(&now_s.saturating_add(1));
        let has_budgets = self.accounts.values().any(|rules| rules.budget_s.is_some());
        let is_used = !self.ready.is_empty() && !self.running.is_empty();
        let of_budgets = (has_budgets && is_used).then(|| now_s.saturating_add(BUDGETS_EVERY_S));
        let of_reservations = self
            .reservations
            .values()
            .flat_map(|r| [r.from_s, r.until_s]);
        let later = of_reservations.filter(|at| *at > now_s);
        later
            .chain(self.begins.first().copied())
            .chain(of_budgets)
            .min()
    }

    /// The jobs that run.
    pub fn running(&self) -> impl Iterator<Item = &Job> {
        self.running.iter().filter_map(|id| self.job(*id))
    }

    /// Jobs of a queue that wait or run: of all users and of one.
    #[must_use]
    pub fn counts(&self, queue: Tag, user: Tag) -> [u32; 2] {
        let all = self.all_in_queue.get(&queue).copied().unwrap_or(0);
        let own = self.all_of_user.get(&(queue, user)).copied().unwrap_or(0);
        [all, own]
    }

    /// Jobs of a queue that run, with their slots, and how many of it wait.
    #[must_use]
    pub fn queue_counts(&self, queue: &str) -> (Counts, u32) {
        let Some(tag) = self.tags.get(queue) else {
            return (Counts::default(), 0);
        };
        let running = self.in_queue.get(tag).copied().unwrap_or_default();
        let all = self.all_in_queue.get(tag).copied().unwrap_or(0);
        (running, all.saturating_sub(running.jobs))
    }

    /// How many jobs are looked at before this one.
    #[must_use]
    pub fn before(&self, id: JobId) -> Option<usize> {
        let own = self.jobs.get(&id)?.group?;
        let rank = self.rank(&own);
        let before = |(other, jobs): &(Rank, BTreeSet<JobId>)| match other.cmp(&rank) {
            Ordering::Less => jobs.len(),
            Ordering::Equal => jobs.range(..id).count(),
            Ordering::Greater => 0,
        };
        Some(self.ready.values().map(before).sum())
    }

    /// Adds a job that waits or runs. `ended` says how those have ended that it depends on.
    pub fn add(&mut self, job: Job, ended: Ends<'_>) {
        let (id, queue, user) = (job.id, job.queue, job.user);
        *self.all_in_queue.entry(queue).or_default() += 1;
        *self.all_of_user.entry((queue, user)).or_default() += 1;
        self.begins.extend(job.begin_s);
        let phase = job.phase;
        let after = if phase == Phase::Waiting {
            job.after.clone()
        } else {
            Vec::new()
        };
        self.note_phase(id, job.array, None, Some(phase));
        let takes_turns = takes_turns(&self.queues, &job);
        self.jobs.insert(
            id,
            QueuedJob {
                takes_turns,
                job,
                unmet: Vec::new(),
                group: None,
                is_ending: false,
            },
        );
        for dependency in after {
            self.depend(id, dependency, ended);
        }
        match phase {
            Phase::Running(_) => self.run(id, true),
            _ => self.place(id),
        }
    }

    /// Puts a job into the queue, or takes it out of it.
    fn place(&mut self, id: JobId) {
        let Some(queued) = self.jobs.get(&id) else {
            return;
        };
        let is_ready =
            queued.job.phase == Phase::Waiting && !queued.job.is_held && queued.unmet.is_empty();
        let new = is_ready.then(|| self.group(&queued.job));
        let old = queued.group;
        if old == new {
            return;
        }
        self.take_out(id, old);
        if let Some(new) = new {
            let rank = self.rank(&new);
            let group = self
                .ready
                .entry(new)
                .or_insert_with(|| (rank, BTreeSet::new()));
            group.1.insert(id);
        }
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.group = new;
        }
    }

    fn take_out(&mut self, id: JobId, group: Option<Group>) {
        let Some(group) = group else {
            return;
        };
        if let Some((_, jobs)) = self.ready.get_mut(&group) {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.ready.remove(&group);
            }
        }
    }

    /// Counts a job as one that runs, or no longer.
    fn run(&mut self, id: JobId, is_more: bool) {
        let Some(queued) = self.jobs.get(&id) else {
            return;
        };
        let job = &queued.job;
        let (queue, user, slots, array) = (job.queue, job.user, job.slots, job.array);
        add(&mut self.in_queue, queue, slots, is_more);
        add(&mut self.of_user, (queue, user), slots, is_more);
        if let Some(array) = array {
            let count = self.in_array.entry(array).or_default();
            *count = if is_more {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if *count == 0 {
                self.in_array.remove(&array);
            }
        }
        self.occupy(id, is_more);
        if is_more {
            self.running.insert(id);
        } else {
            self.running.remove(&id);
        }
    }

    /// Takes the room of a running job, or frees it.
    fn occupy(&mut self, id: JobId, is_more: bool) {
        let Some(queued) = self.jobs.get(&id) else {
            return;
        };
        let Phase::Running(since) = queued.job.phase else {
            return;
        };
        for (host, part) in queued.parts() {
            if let Some(room) = self.in_hosts.get_mut(host) {
                *room = if is_more {
                    room.plus(part)
                } else {
                    room.minus(part)
                };
            }
        }
        let need = queued.need();
        let change = |room: &mut Room| {
            *room = if is_more {
                room.plus(need)
            } else {
                room.minus(need)
            };
        };
        let reserved = queued
            .job
            .reservation
            .filter(|tag| self.reservations.contains_key(tag));
        match reserved {
            Some(tag) => change(self.in_reservation.entry(tag).or_default()),
            None => {
                change(&mut self.used);
                let end = queued.end(since);
                let at_end = self.ends.entry(end).or_default();
                change(at_end);
                if *at_end == Room::default() {
                    self.ends.remove(&end);
                }
            }
        }
    }

    /// A waiting job runs now. On a machine of several hosts its parts say where.
    pub fn start(&mut self, id: JobId, now_s: u64) {
        self.choose_hosts(id);
        self.shift(id, Phase::Running(now_s));
        self.run(id, true);
    }

    /// A running job waits again.
    pub fn requeue(&mut self, id: JobId, now_s: u64) {
        self.charge_running(id, now_s);
        self.run(id, false);
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.is_ending = false;
            queued.job.parts.clear();
        }
        self.shift(id, Phase::Waiting);
    }

    fn shift(&mut self, id: JobId, new: Phase) {
        let Some(queued) = self.jobs.get_mut(&id) else {
            return;
        };
        let old = std::mem::replace(&mut queued.job.phase, new);
        let array = queued.job.array;
        self.place(id);
        self.note_phase(id, array, Some(old), Some(new));
    }

    /// A job has ended, at `now_s`.
    pub fn end(&mut self, id: JobId, end: End, now_s: u64) {
        self.charge_running(id, now_s);
        if self.running.contains(&id) {
            self.run(id, false);
        }
        let Some(queued) = self.jobs.get_mut(&id) else {
            return;
        };
        let old = std::mem::replace(&mut queued.job.phase, Phase::Ended(end));
        let (array, queue, user) = (queued.job.array, queued.job.queue, queued.job.user);
        let unmet = std::mem::take(&mut queued.unmet);
        self.place(id);
        self.jobs.remove(&id);
        self.lost.remove(&id);
        for dependency in unmet {
            if let Some(named) = self.named.get_mut(&dependency.awaited()) {
                named.dependents.remove(&id);
            }
            self.drop_named(dependency.awaited());
        }
        if let Some(count) = self.all_in_queue.get_mut(&queue) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = self.all_of_user.get_mut(&(queue, user)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.all_of_user.remove(&(queue, user));
            }
        }
        self.note_phase(id, array, Some(old), Some(Phase::Ended(end)));
    }

    /// A running job has been asked to end, and its room is awaited.
    pub fn ending(&mut self, id: JobId) {
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.is_ending = true;
        }
    }

    /// Changes what may change of a waiting job: hold, priority, limits, size, queue.
    pub fn change(&mut self, id: JobId, change: &dyn Fn(&mut Job)) {
        let Some(queued) = self.jobs.get_mut(&id) else {
            return;
        };
        if queued.job.phase != Phase::Waiting {
            return;
        }
        let mut new = queued.job.clone();
        change(&mut new);
        let old = (queued.job.queue, queued.job.user);
        let now = (new.queue, new.user);
        let group = queued.group.take();
        self.take_out(id, group);
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.takes_turns = takes_turns(&self.queues, &new);
            queued.job = new;
        }
        if old != now {
            for (key, step) in [(old, -1), (now, 1)] {
                let all = self.all_in_queue.entry(key.0).or_default();
                *all = all.saturating_add_signed(step);
                let own = self.all_of_user.entry(key).or_default();
                *own = own.saturating_add_signed(step);
            }
        }
        self.place(id);
    }
}

fn takes_turns(queues: &HashMap<Tag, QueueRules>, job: &Job) -> bool {
    queues
        .get(&job.queue)
        .is_some_and(|rules| rules.gang.is_some())
}

fn self_tag(tags: &mut HashMap<String, Tag>, texts: &mut Vec<String>, text: &str) -> Tag {
    if let Some(&tag) = tags.get(text) {
        return tag;
    }
    let tag = texts.len() as Tag;
    texts.push(text.to_owned());
    tags.insert(text.to_owned(), tag);
    tag
}
