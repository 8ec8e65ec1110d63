//! One pass over the queue: which jobs start, which are preempted, and why the others wait.
//!
//! Jobs are looked at in their order. One that finds room starts. The first that does not is
//! promised the earliest time at which running jobs, by their time limits, leave enough; with
//! conservative backfill those behind it are promised theirs as well. A later job starts only if
//! it delays no promise. Where jobs without a time limit hold the room, that time is not known, and
//! nothing starts before the job that waits for it. The reasons that are shown come from this pass.

mod reserved;

use std::collections::{BTreeSet, HashMap};

use crate::job::{Dependency, Job, JobId, Phase, Tag};
use crate::places::{keep_free, take, take_parts};
use crate::profile::{Profile, Room};
use crate::rules::{Backfill, Counts};
use crate::scheduler::{QueuedJob, Scheduler};

/// Most jobs that are promised a time: their number squared is the time that a pass takes.
const MOST_PROMISED: usize = 200;

/// The same where somebody asks when a job starts.
const MOST_EXPECTED: usize = 2000;

/// What a pass is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Starts,
    Promises,
    /// Of some jobs, or of all.
    Reasons(Option<&'a BTreeSet<JobId>>),
}

/// Why a job does not start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is held until somebody releases it.
    Held,
    /// A job that it depends on has not come that far.
    Waits(Dependency),
    /// A dependency can no longer be met: it will never start.
    Never(Dependency),
    /// It is not to begin before this time.
    Begin(u64),
    /// As many tasks of its array run as may.
    ArrayLimit(u32),
    /// Its queue starts no jobs, or there is no such queue any more.
    QueueStopped,
    /// As many jobs, or slots, of its queue are in use as may, of all users or of its user.
    QueueLimit {
        slots: bool,
        of_user: bool,
        limit: u32,
    },
    /// Its account has used up its budget.
    Budget,
    /// Its reservation has not begun, or is over, or it would not end within it.
    Reservation(Outside),
    /// Too few slots of its reservation are free.
    ReservedSlots { free: u32, needed: u32 },
    /// It needs more slots than the machine has with all of its hosts, of which some have left
    /// since.
    Larger { slots: u32, needed: u32 },
    /// The same of memory, in MiB.
    LargerMemory { has: u64, needed: u64 },
    /// It needs more nodes than the partition has in which the jobs of its queue take turns.
    LargerGang { nodes: u32, needed: u32 },
    /// Hosts of that partition are away.
    GangAway,
    /// No hosts have what it asks for: as many slots of one host, or on as many hosts.
    NoPlace { slots: u32, nodes: Option<u32> },
    /// It is the first in the queue, and too few slots are free.
    Slots {
        free: u32,
        needed: u32,
        /// When there will be enough by the time limits of running jobs, if they all have one.
        expected: Option<u64>,
    },
    /// It is the first in the queue, and too little memory is free, in MiB.
    Memory {
        free: u64,
        needed: u64,
        expected: Option<u64>,
    },
    /// Enough slots are free, but not as it asks for: as many of one host, or on as many hosts.
    Places { slots: u32, nodes: Option<u32> },
    /// It is the first in the queue, and would run into a reservation.
    Reserved { expected: Option<u64> },
    /// Enough is free, but its start would delay another job. With a limit of this many seconds
    /// it would not, if any.
    WouldDelay { job: JobId, limit_s: Option<u64> },
    /// Jobs before it use the free slots.
    Behind(JobId),
}

/// How a job and its reservation do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// It begins at this time.
    Before(u64),
    /// It ends at this time, and the job's limit is later.
    EndsAt(u64),
    /// It is over or was removed.
    Over,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Jobs to start, in this order.
    pub start: Vec<JobId>,
    /// Running jobs that make room for the first of the queue and wait again.
    pub preempt: Vec<JobId>,
    /// Jobs that can never start.
    pub never: Vec<(JobId, Dependency)>,
    /// The first job without room, and when it starts by the time limits of the others.
    pub first: Option<(JobId, Option<u64>)>,
    /// How many of the jobs start before the first.
    pub backfilled: usize,
    /// Promised times of the first jobs that wait.
    pub promised: Vec<(JobId, u64)>,
    /// Why each of the waiting jobs does not start, where that was asked for.
    pub reasons: Vec<(JobId, Reason)>,
}

/// Why a job can never run on a machine of `slots` slots, if so.
#[must_use]
pub fn refusal(slots: u32, needed: u32) -> Option<String> {
    (needed > slots).then(|| {
        format!(
            "it asks for {needed} slots and the machine has {slots}; ask for at most {slots}, add hosts (margay node add HOST), \
             or start the queue with more: margay down, then margay up --slots {needed}"
        )
    })
}

/// What a pass counts as it goes.
struct Pass<'a> {
    state: &'a Scheduler,
    now: u64,
    /// How many jobs are promised a time.
    depth: usize,
    free: Room,
    /// What nobody has, neither within nor outside of reservations.
    there: Room,
    /// What there is when nothing runs.
    whole: Room,
    /// Of each host, where there are several.
    places: Vec<Room>,
    /// Made when the first job finds no room.
    profile: Option<Profile>,
    first: Option<JobId>,
    /// A promised time is not known: nothing may start any more.
    is_closed: bool,
    in_array: HashMap<JobId, u32>,
    in_queue: HashMap<Tag, Counts>,
    of_user: HashMap<(Tag, Tag), Counts>,
    in_reservation: HashMap<Tag, Room>,
    decision: Decision,
}

impl Scheduler {
    /// What to do at `now_s`. Nothing changes but the order of the queue.
    pub fn decide(&mut self, now_s: u64) -> Decision {
        self.rank_all(now_s);
        self.pass(now_s, self.depth(), Wanted::Starts)
    }

    /// The same with a reason for each job that waits, in the order of the queue.
    pub fn reasons(&mut self, now_s: u64) -> Decision {
        self.rank_all(now_s);
        let decision = self.pass(now_s, self.depth(), Wanted::Reasons(None));
        self.with_blocked(decision, self.jobs.keys())
    }

    /// The same with reasons for some jobs alone.
    pub fn reasons_of(&mut self, jobs: &BTreeSet<JobId>, now_s: u64) -> Decision {
        self.rank_all(now_s);
        let decision = self.pass(now_s, self.depth(), Wanted::Reasons(Some(jobs)));
        self.with_blocked(decision, jobs.iter())
    }

    /// Adds the reasons of jobs that no pass looks at.
    fn with_blocked<'a>(
        &self,
        mut decision: Decision,
        jobs: impl Iterator<Item = &'a JobId>,
    ) -> Decision {
        for id in jobs {
            let Some(queued) = self.jobs.get(id) else {
                continue;
            };
            if queued.job.phase != Phase::Waiting {
                continue;
            }
            let reason = match (self.lost.get(id), queued.unmet()) {
                (Some(lost), _) => Reason::Never(*lost),
                _ if queued.job.is_held => Reason::Held,
                (None, Some(unmet)) => Reason::Waits(unmet),
                (None, None) => continue,
            };
            decision.reasons.push((*id, reason));
        }
        decision
    }

    /// When a job starts at the latest, if those before it use their whole time limits: as if each
    /// of them were promised its time. None when that depends on jobs without a time limit, or the
    /// queue is too long to say.
    pub fn expected(&mut self, id: JobId, now_s: u64) -> Option<u64> {
        self.rank_all(now_s);
        let decision = self.pass(now_s, MOST_EXPECTED, Wanted::Promises);
        if decision.start.contains(&id) {
            return Some(now_s);
        }
        let mut promised = decision.promised.iter();
        promised.find(|(other, _)| *other == id).map(|(_, at)| *at)
    }

    fn depth(&self) -> usize {
        match self.settings.backfill {
            Backfill::Off => 0,
            Backfill::Easy => 1,
            Backfill::Conservative => MOST_PROMISED,
        }
    }

    fn pass(&self, now: u64, depth: usize, wanted: Wanted<'_>) -> Decision {
        let has_limits = self.queues.values().any(|rules| {
            rules.running.is_some()
                || rules.used_slots.is_some()
                || rules.running_of_user.is_some()
                || rules.used_slots_of_user.is_some()
        });
        let mut pass = Pass {
            state: self,
            now,
            depth,
            free: self.machine().minus(self.used),
            there: self.there(),
            whole: self.whole(),
            places: self.free_of_hosts(),
            profile: None,
            first: None,
            is_closed: false,
            in_array: HashMap::new(),
            in_queue: HashMap::new(),
            of_user: HashMap::new(),
            in_reservation: HashMap::new(),
            decision: Decision::default(),
        };
        if has_limits {
            pass.in_queue.clone_from(&self.in_queue);
            pass.of_user.clone_from(&self.of_user);
        }
        if !self.reservations.is_empty() {
            pass.in_reservation.clone_from(&self.in_reservation);
            pass.make_profile();
        }
        // Otherwise nobody starts behind who is full.
        let is_plain = self.reservations.is_empty() && !self.has_kept();
        pass.decision.never = self.lost.iter().map(|(id, d)| (*id, *d)).collect();
        let smallest = self.smallest().map_or(i64::MAX, i64::from);
        let may_preempt = self.accounts.values().any(|rules| rules.budget_s.is_some());
        let mut order = self.order();
        while let Some(id) = order.next() {
            // Nobody else can start: what is left is to make promises that somebody asked for.
            let is_full = pass.is_closed || pass.free.slots < smallest;
            let has_promised = match wanted {
                Wanted::Starts => pass.first.is_some(),
                Wanted::Promises => pass.decision.promised.len() >= depth || pass.is_closed,
                Wanted::Reasons(_) => false,
            };
            let is_behind = depth == 0 && wanted == Wanted::Starts && pass.first.is_some();
            if is_plain && (is_full && has_promised || is_behind) {
                break;
            }
            // Larger jobs cannot start, and need not be looked at when nothing is promised to them.
            let is_promised = pass.decision.promised.len() >= depth.max(1);
            if wanted == Wanted::Starts && is_promised && is_plain {
                order.most_slots = pass.free.slots;
            }
            // Nothing that comes later changes by a job that cannot start and is promised nothing.
            if let Wanted::Reasons(Some(jobs)) = wanted
                && is_full
                && pass.first.is_some()
                && (is_promised || pass.is_closed)
                && is_plain
                && !jobs.contains(&id)
            {
                continue;
            }
            let Some(queued) = self.jobs.get(&id) else {
                continue;
            };
            match pass.look(queued) {
                None => pass.start(queued),
                Some(reason) => {
                    if may_preempt && pass.first == Some(id) && !self.is_over(queued.job.account) {
                        pass.preempt(queued);
                    }
                    let is_asked = match wanted {
                        Wanted::Reasons(jobs) => jobs.is_none_or(|jobs| jobs.contains(&id)),
                        _ => false,
                    };
                    if is_asked {
                        pass.decision.reasons.push((id, reason));
                    }
                }
            }
        }
        pass.decision
    }

    /// Running jobs that would have to end for this one to start, those that hold most first, if
    /// that is known.
    #[must_use]
    pub fn in_its_way(&self, id: JobId, now_s: u64) -> Vec<JobId> {
        let Some(queued) = self.jobs.get(&id) else {
            return Vec::new();
        };
        let running = self.running.iter().filter_map(|id| self.jobs.get(id));
        let mut running: Vec<(Room, &Job)> = running
            .map(|queued| (self.left_by(queued), &queued.job))
            .collect();
        running.sort_by_key(|(room, job)| (std::cmp::Reverse(room.slots), job.id));
        let mut free = self.machine().minus(self.used);
        for reserved in self.reservations.values() {
            if (reserved.from_s..reserved.until_s).contains(&now_s) {
                free = free.minus(Room::new(reserved.slots, reserved.memory_mib));
            }
        }
        let mut found = Vec::new();
        for (room, job) in running {
            if free.holds(queued.need()) {
                return found;
            }
            if job.reservation.is_none() && room.slots > 0 {
                free = free.plus(room);
                found.push(job.id);
            }
        }
        if free.holds(queued.need()) {
            found
        } else {
            Vec::new()
        }
    }
}

fn slots(room: Room) -> u32 {
    u32::try_from(room.slots.max(0)).unwrap_or(u32::MAX)
}

fn no_place(job: &Job) -> Reason {
    Reason::NoPlace {
        slots: job.slots_together.max(1),
        nodes: job.nodes,
    }
}

impl Pass<'_> {
    /// Why a job does not start now.
    fn look(&mut self, queued: &QueuedJob) -> Option<Reason> {
        let reason = self.look_at_room(queued);
        let job = &queued.job;
        let is_placed = || self.state.place_on(&self.places, queued).is_some();
        if reason.is_some() || self.places.is_empty() || is_placed() {
            return reason;
        }
        if self.state.has_no_place(job) {
            return Some(no_place(job));
        }
        // Others do not take what it waits for.
        if queued.takes_turns {
            return Some(Reason::GangAway);
        }
        // Nothing that comes later scatters what it waits for.
        if self.first.is_none() {
            self.first = Some(job.id);
            let expected = self.promise(queued).filter(|at| *at > self.now);
            self.decision.first = Some((job.id, expected));
            keep_free(&mut self.places, &self.state.open_hosts(), job);
        }
        Some(Reason::Places {
            slots: job.slots_together.max(1),
            nodes: job.nodes,
        })
    }

    /// The same without a look at where the room is.
    fn look_at_room(&mut self, queued: &QueuedJob) -> Option<Reason> {
        let job = &queued.job;
        if let Some(reason) = self.limited(job) {
            return Some(reason);
        }
        if let Some(tag) = job.reservation {
            return self.look_reserved(queued, tag);
        }
        let (need, end) = (queued.need(), queued.end(self.now));
        let slots_there = self.state.slots_for(self.state.text(job.queue), 0);
        if queued.takes_turns && job.slots > slots_there {
            return Some(Reason::LargerGang {
                nodes: slots_there,
                needed: job.slots,
            });
        }
        // It takes room from nobody.
        if queued.takes_turns && need.memory_mib == 0 {
            return None;
        }
        let fits = match &self.profile {
            None => self.free.holds(need),
            Some(profile) => profile.fits_now(need, end),
        };
        if fits && !self.is_closed && (self.first.is_none() || self.depth > 0) {
            return None;
        }
        // Nobody waits behind it: it may be for ever.
        if self.whole.slots < need.slots {
            return Some(Reason::Larger {
                slots: slots(self.whole),
                needed: job.slots,
            });
        }
        if !self.whole.holds(need) {
            return Some(Reason::LargerMemory {
                has: u64::try_from(self.whole.memory_mib).unwrap_or(0),
                needed: job.memory_mib,
            });
        }
        if self.state.has_no_place(job) {
            return Some(no_place(job));
        }
        let Some(first) = self.first else {
            self.first = Some(job.id);
            let expected = self.promise(queued);
            self.decision.first = Some((job.id, expected));
            return Some(
                match (self.free.slots < need.slots, self.free.holds(need)) {
                    (true, _) => Reason::Slots {
                        free: slots(self.free),
                        needed: job.slots,
                        expected,
                    },
                    (false, false) => Reason::Memory {
                        free: u64::try_from(self.free.memory_mib.max(0)).unwrap_or(0),
                        needed: job.memory_mib,
                        expected,
                    },
                    (false, true) => Reason::Reserved { expected },
                },
            );
        };
        if self.decision.promised.len() < self.depth && !self.is_closed {
            self.promise(queued);
        }
        if !self.free.holds(need) {
            return Some(Reason::Behind(first));
        }
        let limit_s = match &self.profile {
            Some(profile) if !self.is_closed && self.depth > 0 => profile.longest(need),
            _ => None,
        };
        Some(Reason::WouldDelay {
            job: first,
            limit_s,
        })
    }

    /// Promises a job the earliest time at which it fits, and keeps it.
    fn promise(&mut self, queued: &QueuedJob) -> Option<u64> {
        self.make_profile();
        let profile = self.profile.as_mut()?;
        let need = queued.need();
        let expected = profile.earliest(need, queued.job.limit_s);
        match expected {
            Some(at) => {
                profile.take(need, at, queued.end(at));
                self.decision.promised.push((queued.job.id, at));
            }
            None => self.is_closed = true,
        }
        expected
    }

    fn make_profile(&mut self) {
        if self.profile.is_some() {
            return;
        }
        let now = self.now;
        let started = self.decision.start.iter();
        let mut new: Vec<(u64, Room)> = started
            .filter_map(|id| self.state.jobs.get(id))
            .filter(|queued| queued.job.reservation.is_none())
            .map(|queued| (queued.end(now), queued.need()))
            .collect();
        // A job that is over its limit ends at any moment.
        let running = self.state.ends();
        let running = running.iter();
        let running = running.map(|(end, room)| ((*end).max(now.saturating_add(1)), *room));
        if !new.is_empty() {
            new.sort_unstable_by_key(|(end, _)| *end);
        }
        let known = |(end, _): &(u64, Room)| *end != u64::MAX;
        let all = merged(running.filter(known), new.into_iter().filter(known));
        let mut profile = Profile::new(now, self.free, all);
        self.keep_reserved(&mut profile);
        self.free = profile.free();
        self.profile = Some(profile);
    }

    /// What keeps a job from being looked at, whatever is free.
    fn limited(&self, job: &Job) -> Option<Reason> {
        if let Some(begin) = job.begin_s.filter(|&begin| begin > self.now) {
            return Some(Reason::Begin(begin));
        }
        if let (Some(array), Some(limit)) = (job.array, job.array_limit) {
            let running = self.state.in_array.get(&array).copied().unwrap_or(0);
            let new = self.in_array.get(&array).copied().unwrap_or(0);
            if running + new >= limit {
                return Some(Reason::ArrayLimit(limit));
            }
        }
        let Some(rules) = self
            .state
            .queues
            .get(&job.queue)
            .filter(|rules| rules.is_started)
        else {
            return Some(Reason::QueueStopped);
        };
        let all = self.in_queue.get(&job.queue).copied().unwrap_or_default();
        let own = self
            .of_user
            .get(&(job.queue, job.user))
            .copied()
            .unwrap_or_default();
        for (limit, used, slots, of_user) in [
            (rules.running, all.jobs.saturating_add(1), false, false),
            (
                rules.used_slots,
                all.slots.saturating_add(job.slots),
                true,
                false,
            ),
            (
                rules.running_of_user,
                own.jobs.saturating_add(1),
                false,
                true,
            ),
            (
                rules.used_slots_of_user,
                own.slots.saturating_add(job.slots),
                true,
                true,
            ),
        ] {
            if let Some(limit) = limit.filter(|&limit| used > limit) {
                return Some(Reason::QueueLimit {
                    slots,
                    of_user,
                    limit,
                });
            }
        }
        let is_hard = self
            .state
            .accounts
            .get(&job.account)
            .is_some_and(|rules| rules.is_hard);
        (is_hard && self.state.is_over(job.account)).then_some(Reason::Budget)
    }

    fn start(&mut self, queued: &QueuedJob) {
        let job = &queued.job;
        self.decision.start.push(job.id);
        self.decision.backfilled += usize::from(self.first.is_some());
        if let Some(array) = job.array.filter(|_| job.array_limit.is_some()) {
            *self.in_array.entry(array).or_default() += 1;
        }
        let count = |counts: &mut Counts| {
            counts.jobs = counts.jobs.saturating_add(1);
            counts.slots = counts.slots.saturating_add(job.slots);
        };
        count(self.in_queue.entry(job.queue).or_default());
        count(self.of_user.entry((job.queue, job.user)).or_default());
        match queued.takes_turns {
            true => {
                let parts = self
                    .state
                    .place_on(&self.places, queued)
                    .unwrap_or_default();
                take_parts(&mut self.places, job, &parts, 0);
            }
            false => {
                take(&mut self.places, job);
            }
        }
        let need = queued.need();
        self.there = self.there.minus(need);
        if let Some(tag) = job.reservation {
            let used = self.in_reservation.entry(tag).or_default();
            *used = used.plus(need);
            return;
        }
        self.free = self.free.minus(need);
        if let Some(profile) = &mut self.profile {
            profile.take(need, self.now, queued.end(self.now));
        }
    }

    /// Finds jobs of accounts without budget that make room for the first, the youngest first.
    fn preempt(&mut self, first: &QueuedJob) {
        let mut free = self.free;
        let mut victims: Vec<(u64, &QueuedJob)> = Vec::new();
        for id in &self.state.running {
            let Some(queued) = self.state.jobs.get(id) else {
                continue;
            };
            let job = &queued.job;
            if queued.is_ending {
                free = free.plus(self.state.left_by(queued));
            } else if let Phase::Running(since) = job.phase
                && self.state.is_over(job.account)
                && job.reservation.is_none()
                && self.state.left_by(queued).slots > 0
            {
                victims.push((since, queued));
            }
        }
        victims.sort_by_key(|(since, queued)| std::cmp::Reverse((*since, queued.job.id)));
        let mut chosen = Vec::new();
        for (_, queued) in victims {
            if free.holds(first.need()) {
                break;
            }
            free = free.plus(self.state.left_by(queued));
            chosen.push(queued.job.id);
        }
        if free.holds(first.need()) && !self.runs_into(first, &chosen) {
            self.decision.preempt = chosen;
        }
    }
}

/// Two sequences in order of time as one.
fn merged(
    left: impl Iterator<Item = (u64, Room)>,
    right: impl Iterator<Item = (u64, Room)>,
) -> impl Iterator<Item = (u64, Room)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(l), Some(r)) if r.0 < l.0 => right.next(),
        (Some(_), _) => left.next(),
        _ => right.next(),
    })
}
