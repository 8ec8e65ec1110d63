//! Which jobs are accepted.

use std::collections::HashSet;

use margay_core_queue::{
    After, BeginTime, Dependency, Job, JobId, LocalTime, Phase, TaskDependency, Wishes, refusal,
};
use margay_svc_queue_wire::Order;
use margay_sys_os::clock::{local, local_moment};

use super::Head;
use crate::prepare;
use crate::store::{Entry, Which};

/// Why a job finds no place on the hosts, although they have as many slots.
fn no_place(job: &Job) -> String {
    match job.nodes {
        Some(1) => format!(
            "it asks for {} slots of one host, and no host has as many; see margay node",
            job.slots
        ),
        Some(nodes) => format!(
            "it asks for {} slots on {nodes} hosts, and the hosts do not have as many; see margay node",
            job.slots
        ),
        None => format!(
            "it asks for {} slots, {} of one host each, and no host has as many; see margay node",
            job.slots,
            job.slots_together.max(1)
        ),
    }
}

/// When a job may begin, in seconds since 1970, by this host's time zone; none where it may at
/// once.
fn begin(wishes: &Wishes, now_s: u64) -> Result<Option<u64>, String> {
    let begin = wishes.begin.map(|begin| moment_of(begin, now_s));
    Ok(begin.transpose()?.filter(|&at| at > now_s))
}

/// The moment that a time means by this host's time zone, in seconds since 1970.
///
/// # Errors
/// In words, when there is no such day.
pub(super) fn moment_of(time: BeginTime, now_s: u64) -> Result<u64, String> {
    let local_time = |at| {
        let shown = local(at);
        LocalTime {
            year: shown.year,
            month: shown.month,
            day: shown.day,
            second: shown.hour * 3600 + shown.minute * 60 + shown.second,
        }
    };
    let moment = |t: LocalTime| local_moment(t.year, t.month as i32, t.day as i32, t.second);
    time.moment(now_s, local_time, moment)
}

impl Head {
    /// Of several queues, as Slurm's scripts name them, the first that there is.
    fn queue_of(&self, order: &Order) -> String {
        let settings = self.scheduler.settings();
        let asked = order.wishes.partition.as_deref();
        let known = |name: &&str| settings.queues.contains_key(*name);
        let first_known = asked.and_then(|names| names.split(',').find(known));
        first_known
            .or(asked)
            .unwrap_or(&settings.default_queue)
            .to_owned()
    }

    /// The slots that a job of a queue can have.
    pub(super) fn slots_for(&self, queue: &str) -> u32 {
        self.scheduler.slots_for(queue, self.resources.slots)
    }

    /// Whether a job of this size can run in its queue.
    fn has_slots_for(&self, order: &Order, queue: &str, slots: u32) -> Result<(), String> {
        let there = self.slots_for(queue);
        let rules = self.scheduler.settings().queues.get(queue);
        let Some(gang) = rules.and_then(|rules| rules.gang.as_ref()) else {
            return match refusal(there, slots) {
                Some(_) if there == 0 => Err(format!(
                    "all slots are in partitions of other queues than '{queue}'; ask for one of these, or give it some"
                )),
                Some(_) if there < self.resources.slots => Err(format!(
                    "it asks for {slots} slot{}, and the queue '{queue}' has {there} beside the partitions of others; ask for \
                     {there} at most, or in one of these",
                    if slots == 1 { "" } else { "s" }
                )),
                Some(text) => Err(text),
                None => Ok(()),
            };
        };
        let why = if super::refuses_interactive(
            std::slice::from_ref(order),
            &self.resources.program,
            "",
        )
        .is_some()
        {
            format!(
                "interactive jobs take no turns, as those of the queue '{queue}' do; ask for it in another one (-p)"
            )
        } else if order.wishes.reservation.is_some() {
            format!(
                "jobs of the queue '{queue}' take turns and run in no reservation; name another one (-p)"
            )
        } else if slots > there {
            format!(
                "it asks for {slots} slots and the partition '{}' of the queue '{queue}' has {there} nodes; ask for no more",
                gang.partition
            )
        } else {
            return Ok(());
        };
        Err(why)
    }

    /// The entries of an order of a user: one, or one for each task. `before` are accepted with it,
    /// those of each order, with their number.
    pub(super) fn accept(
        &mut self,
        order: &Order,
        who: (&str, u32),
        (before, count): (&[Vec<Entry>], usize),
        next: &mut JobId,
        now_s: u64,
    ) -> Result<Vec<Entry>, String> {
        let wishes = &order.wishes;
        let name = prepare::name(order);
        let mut after = wishes.after.clone();
        if wishes.is_singleton {
            after.extend(self.all_of_name(&name, who.1, before));
        }
        let queue = self.queue_of(order);
        let slots_there = self.slots_for(&queue);
        prepare::check(order, slots_there, self.resources.memory_mib)?;
        let slots = wishes.size.slots(slots_there);
        self.has_slots_for(order, &queue, slots)?;
        let known = |id: JobId| id > 0 && id <= *next;
        let whole = wishes.after.iter().map(|dependency| dependency.job);
        let mut all = whole.chain(wishes.after_tasks.iter().map(|dependency| dependency.array));
        if let Some(wrong) = all.find(|&job| !known(job)) {
            return Err(format!(
                "there is no job {wrong} to depend on; see margay queue --all"
            ));
        }
        let tasks: Vec<Option<u32>> = match &wishes.array {
            Some(array) => array.indices.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let first = *next + 1;
        let mut entry = Entry {
            job: Job {
                id: first,
                array: wishes.array.as_ref().map(|_| first),
                array_limit: wishes.array.as_ref().and_then(|array| array.limit),
                slots,
                slots_together: match wishes.size.is_exclusive {
                    true => 1,
                    false => wishes.size.cpus_per_task.unwrap_or(1),
                },
                nodes: wishes.size.hosts(),
                memory_mib: wishes.size.memory(slots_there).unwrap_or(0),
                limit_s: wishes.limit_s.flatten(),
                priority: wishes.priority.unwrap_or(0),
                is_held: wishes.is_held.unwrap_or(false),
                begin_s: begin(wishes, now_s)?,
                after,
                ..Job::default()
            },
            task: None,
            name,
            account: wishes.account.clone().filter(|account| !account.is_empty()),
            partition: queue,
            reservation: wishes.reservation.clone(),
            user: who.0.to_owned(),
            uid: who.1,
            order: 0,
            submitted: now_s,
            runs: 0,
            is_requeued: wishes.is_requeued.unwrap_or(false),
            requeue_codes: wishes.requeue_codes.clone(),
            is_cancelled: false,
            is_mailed: !wishes.mail.is_empty(),
            is_locked: false,
        };
        self.allow(&mut entry, wishes.limit_s == Some(None), count, tasks.len())?;
        if self.scheduler.has_no_place(&entry.job) {
            return Err(no_place(&entry.job));
        }
        *next += tasks.len() as u64;
        let task = |(id, task): (JobId, Option<u32>)| {
            let mut entry = entry.clone();
            entry.job.id = id;
            entry.task = task;
            for dependency in &wishes.after_tasks {
                let own = self.of_task(dependency, task)?;
                entry.job.after.push(own);
            }
            Ok(entry)
        };
        (first..).zip(tasks).map(task).collect()
    }

    /// A dependency of a job, or of this task of an array, on a task of another one.
    fn of_task(&self, asked: &TaskDependency, own: Option<u32>) -> Result<Dependency, String> {
        let (after, array) = (asked.after, asked.array);
        let Some(index) = asked.task.or(own) else {
            return Err(format!(
                "aftercorr:{array} is for an array, whose tasks wait for those of job {array} with their numbers; a single \
                 job waits with afterok:{array}"
            ));
        };
        let live = self.task(array, index);
        let ended = || -> Result<Option<JobId>, String> {
            let rows = self.store.ended(Which::Task(array, index))?;
            Ok(rows.first().map(|row| row.id))
        };
        let job = match live {
            Some(job) => Some(job),
            None => ended()?,
        };
        let job = job.ok_or_else(|| {
            format!("job {array} has no task {index} to depend on; see margay queue --all {array}")
        })?;
        Ok(Dependency {
            after,
            job,
            is_task: true,
        })
    }

    /// What a job waits for that waits for all earlier ones of its name and user: not for those for
    /// which one of these waits already.
    fn all_of_name(&self, name: &str, uid: u32, before: &[Vec<Entry>]) -> Vec<Dependency> {
        let after = After::Any;
        let mut found = Vec::new();
        let mut awaited = HashSet::new();
        let live = self.entries.values().rev();
        let earlier = before.iter().rev().flat_map(|entries| entries.iter().rev());
        for entry in earlier.chain(live) {
            if entry.uid != uid || entry.name != name {
                continue;
            }
            let job = entry.job.array.unwrap_or(entry.job.id);
            if awaited.insert(job) {
                found.push(Dependency::on(after, job));
            }
            let waits = entry.job.phase == Phase::Waiting;
            // One that waits for a task does not wait for its array.
            let is_whole = |d: &&Dependency| d.after == after && !d.is_task;
            let of_it = entry.job.after.iter().filter(|d| waits && is_whole(d));
            awaited.extend(of_it.map(|dependency| dependency.job));
        }
        found
    }

    /// Looks whether the rules allow a job, and gives it what its queue gives.
    fn allow(
        &mut self,
        entry: &mut Entry,
        says_unlimited: bool,
        before: usize,
        tasks: usize,
    ) -> Result<(), String> {
        entry.number(&mut self.scheduler);
        let settings = self.scheduler.settings();
        let name = &entry.partition;
        let Some(rules) = settings.queues.get(name) else {
            let names: Vec<&str> = settings.queues.keys().map(String::as_str).collect();
            let first = name.split(',').next().unwrap_or(name).escape_debug();
            return Err(format!(
                "there is no partition or queue '{}'; there are: {}; to make it: margay set queue {first}",
                name.escape_debug(),
                names.join(" ")
            ));
        };
        rules.complete(&mut entry.job, says_unlimited);
        let account = entry.account.as_deref().unwrap_or_default();
        let [all, own] = self.scheduler.counts(entry.job.queue, entry.job.user);
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let has = [all.saturating_add(before), own.saturating_add(before)];
        let more = u32::try_from(tasks).unwrap_or(u32::MAX);
        if let Some(text) = rules.refusal(name, &entry.job, [&entry.user, account], has, more) {
            return Err(text);
        }
        let Some(reservation) = &entry.reservation else {
            return Ok(());
        };
        let Some(rules) = settings.reservations.get(reservation) else {
            return Err(format!(
                "there is no reservation '{}'; see margay set",
                reservation.escape_debug()
            ));
        };
        let is_open = rules.users.is_empty() && rules.accounts.is_empty();
        let is_listed = rules.users.contains(&entry.user)
            || rules.accounts.iter().any(|other| other == account);
        if !is_open && !is_listed {
            return Err(format!(
                "the reservation '{reservation}' is for other users or accounts"
            ));
        }
        if entry.job.slots > rules.slots {
            return Err(format!(
                "it asks for {} slots and the reservation '{reservation}' has {}",
                entry.job.slots, rules.slots
            ));
        }
        match entry.job.limit_s {
            Some(limit) if limit <= rules.until_s.saturating_sub(rules.from_s) => Ok(()),
            _ => Err(format!(
                "a job in the reservation '{reservation}' needs a time limit that ends with it, at most {}",
                margay_core_queue::shown(rules.until_s.saturating_sub(rules.from_s))
            )),
        }
    }
}
