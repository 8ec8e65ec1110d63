//! A whole machine of random users: partitions and their permissions, jobs of the queue and their
//! dependencies, limits, budgets, reservations and hosts, and the applications of jobs that take
//! turns in partitions. After each of 100,000 operations all that is decided is what a plain
//! sequential model says, which knows lists alone and searches them from end to end.

mod reserved;
mod rules;
mod turns;

use std::collections::BTreeMap;

use crate::plain::{Model, Numbers, OWNER, SHAPE, operate};
use margay_core_partitions::{Table, Turns};
use margay_core_queue::{After, Dependency, End, Host, Job, Phase, Scheduler, Settings};
use reserved::Lecture;
use turns::Application;

/// Slots of a machine of one host.
const SLOTS: u32 = 8;
/// Its memory. What jobs ask for is counted where the machine is one host.
const MEMORY: u32 = 16;
/// Slots of each host of a machine of several.
const OF_HOST: u32 = 3;
/// Slot seconds that the account `rich` may use.
const BUDGET_S: u64 = 150;
const MS: u64 = 1_000_000;

/// A job as the plain model has it.
#[derive(Clone)]
struct Plain {
    job: Job,
    user: usize,
    is_rich: bool,
    is_night: bool,
    after: Option<Dependency>,
    /// It is for the reservation `lecture`, and waits where there is none.
    is_reserved: bool,
    /// It has been asked to make room.
    is_ending: bool,
}

impl Plain {
    fn is_running(&self) -> bool {
        matches!(self.job.phase, Phase::Running(_))
    }

    fn since(&self) -> Option<u64> {
        match self.job.phase {
            Phase::Running(since) => Some(since),
            _ => None,
        }
    }
}

/// Slots and memory.
#[derive(Clone, Copy, Default)]
struct Amount(i64, i64);

impl Amount {
    fn of(job: &Job) -> Amount {
        Amount(i64::from(job.slots), job.memory_mib as i64)
    }

    fn holds(self, need: Amount) -> bool {
        self.0 >= need.0 && (need.1 == 0 || self.1 >= need.1)
    }

    fn plus(self, other: Amount) -> Amount {
        Amount(self.0 + other.0, self.1 + other.1)
    }

    fn minus(self, other: Amount) -> Amount {
        Amount(self.0 - other.0, self.1 - other.1)
    }
}

#[derive(Clone, Copy)]
struct PlainHost {
    is_up: bool,
}

/// The rules of the queue `night`.
struct Night {
    is_started: bool,
    running: u32,
    user_slots: u32,
}

#[derive(Debug, Default, PartialEq)]
struct Decided {
    start: Vec<u64>,
    preempt: Vec<u64>,
    never: Vec<u64>,
}

/// How often what was tried.
#[derive(Debug, Default)]
struct Counts {
    backfilled: usize,
    preempted: usize,
    never: usize,
    lost: usize,
    turns: usize,
    refused: usize,
    reserved: usize,
}

// Fields: each part of the machine, and the plain model of it.
struct World {
    table: Table,
    model: Model,
    scheduler: Scheduler,
    settings: Settings,
    night: Night,
    lecture: Option<Lecture>,
    jobs: Vec<Plain>,
    hosts: Vec<PlainHost>,
    spent_s: u64,
    turns: Turns,
    applications: BTreeMap<u64, Application>,
    next_application: u64,
    now: u64,
    now_ns: u64,
    counts: Counts,
}

impl World {
    fn new(hosts: usize) -> World {
        let mut settings = Settings::default();
        let budget = format!("account rich budget={BUDGET_S}s");
        for line in ["queue night priority=1 running=3 user-slots=4", &budget] {
            let words: Vec<&str> = line.split(' ').collect();
            settings.change(&words, SLOTS, 0).unwrap();
        }
        let mut world = World {
            table: Table::new(SHAPE, OWNER, OWNER),
            model: Model::new(),
            scheduler: Scheduler::new(SLOTS, MEMORY.into(), settings.clone()),
            settings,
            night: Night {
                is_started: true,
                running: 3,
                user_slots: 4,
            },
            lecture: None,
            jobs: Vec::new(),
            hosts: vec![PlainHost { is_up: true }; hosts],
            spent_s: 0,
            turns: Turns::default(),
            applications: BTreeMap::new(),
            next_application: 0,
            now: 1,
            now_ns: MS,
            counts: Counts::default(),
        };
        world.tell_hosts();
        world
    }

    fn tell_hosts(&mut self) {
        let host = |host: &PlainHost| Host {
            slots: OF_HOST,
            memory_mib: 0,
            is_up: host.is_up,
        };
        self.scheduler
            .set_hosts(self.hosts.iter().map(host).collect());
    }

    fn slots(&self) -> u32 {
        match self.hosts.len() {
            0 => SLOTS,
            hosts => OF_HOST * hosts as u32,
        }
    }

    /// The slots of a job that are of use to others: not those of hosts that are down.
    fn counted(&self, job: &Job) -> u32 {
        if self.hosts.is_empty() {
            return job.slots;
        }
        let up = job
            .parts
            .iter()
            .filter(|part| self.hosts[part.host as usize].is_up);
        up.map(|part| part.slots).sum()
    }

    /// What others get of it when it ends.
    fn amount(&self, job: &Job) -> Amount {
        Amount(i64::from(self.counted(job)), job.memory_mib as i64)
    }

    /// A job, or an array of some.
    fn submit(&mut self, numbers: &mut Numbers) {
        let first = self.jobs.len() as u64 + 1;
        let is_array = numbers.below(5) == 0;
        let limit = (is_array && numbers.below(3) > 0).then(|| 1 + numbers.below(2) as u32);
        for _ in 0..if is_array { 4 } else { 1 } {
            self.submit_one(numbers, is_array.then_some(first), limit);
        }
    }

    fn submit_one(&mut self, numbers: &mut Numbers, array: Option<u64>, limit: Option<u32>) {
        let id = self.jobs.len() as u64 + 1;
        let user = numbers.below(4);
        let (is_rich, is_night) = (numbers.below(2) == 0, numbers.below(3) == 0);
        let after = (id > 1 && numbers.below(5) == 0).then(|| {
            let after = numbers.of(&[After::Ok, After::Any, After::NotOk, After::Start]);
            let job = id - 1 - numbers.below(id.min(6) as usize - 1) as u64;
            // The number of an array's first task means all of them where it does not say so.
            let is_task = self.of(job).job.array == Some(job);
            Dependency {
                after,
                job,
                is_task,
            }
        });
        let queue = if is_night { "night" } else { "compute" };
        let account = if is_rich { "rich" } else { "poor" };
        let memory_mib = match self.hosts.len() {
            0 => numbers.below(3) * numbers.below(MEMORY as usize / 2 + 1),
            _ => 0,
        };
        let is_reserved = numbers.below(5) == 0;
        let lecture = self.scheduler.tag("lecture");
        let job = Job {
            id,
            reservation: is_reserved.then_some(lecture),
            array,
            array_limit: limit,
            memory_mib: memory_mib as u64,
            slots: 1 + numbers.below(self.slots() as usize) as u32,
            limit_s: (numbers.below(5) > 0).then(|| 1 + numbers.below(40) as u64),
            priority: numbers.below(3) as i64,
            is_held: numbers.below(10) == 0,
            after: after.into_iter().collect(),
            user: self.scheduler.tag(&format!("user{user}")),
            account: self.scheduler.tag(account),
            queue: self.scheduler.tag(queue),
            ..Job::default()
        };
        let jobs = &self.jobs;
        let ended = |(id, _): (u64, bool)| match jobs[id as usize - 1].job.phase {
            Phase::Ended(end) => vec![end],
            _ => Vec::new(),
        };
        self.scheduler.add(job.clone(), &ended);
        self.jobs.push(Plain {
            job,
            user,
            is_rich,
            is_night,
            after,
            is_reserved,
            is_ending: false,
        });
    }

    fn of(&self, id: u64) -> &Plain {
        &self.jobs[id as usize - 1]
    }

    /// What a dependency has come to: met, or never to be met.
    fn standing(&self, dependency: Dependency) -> (bool, bool) {
        match (dependency.after, self.of(dependency.job).job.phase) {
            (After::Start, phase) => (phase != Phase::Waiting, false),
            (_, Phase::Ended(_)) if dependency.after == After::Any => (true, false),
            (After::Ok, Phase::Ended(end)) => (end.is_ok(), !end.is_ok()),
            (After::NotOk, Phase::Ended(end)) => (!end.is_ok(), end.is_ok()),
            _ => (false, false),
        }
    }

    /// A dependency that was met once stays so, also when its job waits again.
    fn drop_met(&mut self) {
        for at in 0..self.jobs.len() {
            if let Some(dependency) = self.jobs[at].after
                && self.jobs[at].job.phase == Phase::Waiting
                && self.standing(dependency).0
            {
                self.jobs[at].after = None;
            }
        }
    }

    fn is_over(&self) -> bool {
        let running = self.jobs.iter().filter(|job| job.is_rich);
        let used = running.filter_map(|job| {
            let passed = self.now - job.since()?;
            Some(passed * u64::from(job.job.slots))
        });
        self.spent_s + used.sum::<u64>() >= BUDGET_S
    }

    /// Decides until nothing changes, beside the plain model.
    fn settle(&mut self, step: usize) {
        loop {
            self.drop_met();
            let expected = self.decide();
            let real = self.scheduler.decide(self.now);
            let real_never = real.never.iter().map(|(id, _)| *id).collect();
            self.counts.backfilled += real.backfilled;
            let real = Decided {
                start: real.start,
                preempt: real.preempt,
                never: real_never,
            };
            assert_eq!(real, expected, "step {step}, at {}", self.now);
            for id in &real.never {
                self.end(*id, End::Cancelled);
            }
            for id in &real.start {
                self.start(*id);
            }
            self.counts.never += real.never.len();
            self.counts.preempted += real.preempt.len();
            for id in &real.preempt {
                self.scheduler.ending(*id);
                self.jobs[*id as usize - 1].is_ending = true;
            }
            if real == Decided::default() {
                break;
            }
        }
        self.check_room(step);
        self.check_hosts(step);
        self.turn(step);
    }

    fn start(&mut self, id: u64) {
        self.counts.reserved += usize::from(self.is_kept(self.of(id)));
        self.scheduler.start(id, self.now);
        let parts = self.scheduler.job(id).unwrap().parts.clone();
        let job = &mut self.jobs[id as usize - 1].job;
        (job.phase, job.parts) = (Phase::Running(self.now), parts);
        if !self.hosts.is_empty() {
            let job = &self.of(id).job;
            let slots: u32 = job.parts.iter().map(|part| part.slots).sum();
            assert_eq!(slots, job.slots, "job {id}");
            assert_eq!(self.counted(job), slots, "job {id} has a host that is down");
        }
    }

    /// No host has more than it has slots for, and the scheduler counts as the jobs say.
    fn check_hosts(&self, step: usize) {
        for host in 0..self.hosts.len() {
            let running = self.jobs.iter().filter(|job| job.is_running());
            let parts = running.flat_map(|job| &job.job.parts);
            let of_it = parts.filter(|part| part.host as usize == host);
            let used: u32 = of_it.map(|part| part.slots).sum();
            assert!(used <= OF_HOST, "step {step}: host {host} has {used}");
            assert_eq!(self.scheduler.used_of(host), used, "step {step}: {host}");
        }
    }

    fn charge(&mut self, id: u64) {
        let job = self.of(id);
        if let (Some(since), true) = (job.since(), job.is_rich) {
            self.spent_s += (self.now - since) * u64::from(job.job.slots);
        }
    }

    fn end(&mut self, id: u64, end: End) {
        self.charge(id);
        self.scheduler.end(id, end, self.now);
        let job = &mut self.jobs[id as usize - 1];
        job.job.phase = Phase::Ended(end);
        job.job.parts.clear();
        self.leave(id);
    }

    fn requeue(&mut self, id: u64) {
        self.charge(id);
        self.scheduler.requeue(id, self.now);
        let job = &mut self.jobs[id as usize - 1];
        (job.job.phase, job.is_ending) = (Phase::Waiting, false);
        job.job.parts.clear();
        self.leave(id);
    }

    /// Time passes: jobs come to their limits, and what leaves its nodes has been stopped.
    fn pass(&mut self, numbers: &mut Numbers) {
        let leaving = self.applications.iter().filter(|(_, own)| own.leaves);
        let leaving: Vec<u64> = leaving.map(|(id, _)| *id).collect();
        self.now_ns += numbers.below(15 * MS as usize) as u64;
        for id in leaving {
            self.turns.has_left(id, self.now_ns);
            let own = self.applications.get_mut(&id).unwrap();
            (own.is_in, own.leaves) = (false, false);
        }
        self.now += numbers.below(3) as u64;
        for id in 1..=self.jobs.len() as u64 {
            let job = self.of(id);
            let end = job.since().and_then(|since| Some(since + job.job.limit_s?));
            // Its processes take a moment to end.
            if end.is_some_and(|end| self.now >= end) && numbers.below(4) > 0 {
                self.end(id, End::TimeLimit);
            }
        }
    }

    /// One of the jobs of a phase.
    fn some(&self, numbers: &mut Numbers, is_meant: impl Fn(&Plain) -> bool) -> Option<u64> {
        let meant: Vec<u64> = (self.jobs.iter())
            .filter(|job| is_meant(job))
            .map(|job| job.job.id)
            .collect();
        (!meant.is_empty()).then(|| numbers.of(&meant))
    }

    fn step(&mut self, numbers: &mut Numbers, step: usize) {
        let live = self
            .jobs
            .iter()
            .filter(|job| !matches!(job.job.phase, Phase::Ended(_)))
            .count();
        match numbers.below(19) {
            0 | 1 => {
                operate(numbers, &mut self.table, &mut self.model, step);
                self.refresh();
            }
            2..=4 if live < 14 => self.submit(numbers),
            5 => {
                if let Some(id) = self.some(numbers, Plain::is_running) {
                    self.end(id, End::Exit(numbers.below(2) as i32));
                }
            }
            6 => {
                let is_live = |job: &Plain| !matches!(job.job.phase, Phase::Ended(_));
                let id = self.some(numbers, is_live);
                if let Some(id) = id.filter(|_| numbers.below(3) == 0) {
                    self.end(id, End::Cancelled);
                }
            }
            7 => {
                let is_waiting = |job: &Plain| job.job.phase == Phase::Waiting;
                if let Some(id) = self.some(numbers, is_waiting) {
                    let (is_held, priority) = (numbers.below(4) == 0, numbers.below(3) as i64);
                    let change = |job: &mut Job| (job.is_held, job.priority) = (is_held, priority);
                    self.scheduler.change(id, &change);
                    change(&mut self.jobs[id as usize - 1].job);
                }
            }
            8 => {
                // A job that made room has ended.
                if let Some(id) = self.some(numbers, |job| job.is_running() && job.is_ending) {
                    self.requeue(id);
                }
            }
            9 => self.night(numbers),
            18 => self.reserve(numbers),
            10 if !self.hosts.is_empty() => {
                let host = numbers.below(self.hosts.len());
                self.hosts[host].is_up = numbers.below(3) > 0;
                self.tell_hosts();
            }
            11 => {
                // What ran on a host that is down is lost, and waits again or does not.
                let is_away =
                    |job: &Plain| job.is_running() && self.counted(&job.job) < job.job.slots;
                if let Some(id) = self.some(numbers, is_away) {
                    self.counts.lost += 1;
                    match numbers.below(2) {
                        0 => self.requeue(id),
                        _ => self.end(id, End::Lost),
                    }
                }
            }
            12..=14 if self.applications.len() < 12 => {
                for _ in 0..4 {
                    if let Some(id) = self.some(numbers, Plain::is_running) {
                        self.join(id, numbers);
                    }
                }
            }
            _ => self.pass(numbers),
        }
        self.settle(step);
    }

    /// The rules of a queue change.
    fn night(&mut self, numbers: &mut Numbers) {
        let night = &mut self.night;
        night.is_started = numbers.below(4) > 0;
        night.running = 1 + numbers.below(4) as u32;
        night.user_slots = 2 + numbers.below(6) as u32;
        let line = format!(
            "queue night started={} running={} user-slots={}",
            if night.is_started { "yes" } else { "no" },
            night.running,
            night.user_slots
        );
        let words: Vec<&str> = line.split(' ').collect();
        self.settings.change(&words, SLOTS, self.now).unwrap();
        self.scheduler.set(self.settings.clone());
    }
}

#[test]
fn a_hundred_thousand_operations_of_a_machine_agree_with_a_plain_model() {
    let (rounds, steps) = if cfg!(miri) { (2, 60) } else { (200, 500) };
    let mut numbers = Numbers(1818);
    let mut all = Counts::default();
    for round in 0..rounds {
        let hosts = if round % 2 == 0 {
            0
        } else {
            2 + numbers.below(3)
        };
        let mut world = World::new(hosts);
        for step in 0..steps {
            world.step(&mut numbers, round * steps + step);
        }
        let counts = world.counts;
        all.backfilled += counts.backfilled;
        all.preempted += counts.preempted;
        all.never += counts.never;
        all.lost += counts.lost;
        all.turns += counts.turns;
        all.refused += counts.refused;
        all.reserved += counts.reserved;
    }
    let tried = [
        all.backfilled,
        all.preempted,
        all.never,
        all.lost,
        all.turns,
        all.refused,
        all.reserved,
    ];
    assert!(
        cfg!(miri) || tried.iter().all(|&count| count > 100),
        "{all:?}"
    );
}
