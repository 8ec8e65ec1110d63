//! The supervisors of running jobs: giving them jobs, and what is done when one has ended.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use margay_core_queue::{End, JobId};
use margay_job_launch::energy::ENV_FOLDER;
use margay_sys_os::process::PidFd;
use margay_sys_os::signal::{SIGTERM, SIGUSR1, take_defaults_in};
use margay_sys_os::{cpu, extent};

use super::Head;
use crate::files::{Found, JobFolder, LeftAt};
use crate::gang;
use crate::line::{HeadLine, Heard, Message};
use crate::site::HostPart;
use crate::store::{Finish, Ordered};
use crate::{log, now_s, prepare};

/// How often a supervisor is given a job that ends before it has claimed it.
const MOST_TRIES: u32 = 5;

/// A disk with less room counts as full: a job's folder takes some pages.
const FULL_BYTES: u64 = 64 << 10;

/// How often a job is put back into the queue after it had started.
const MOST_RUNS: u32 = 16;

/// How long a supervisor without a job is kept for the next one.
const KEPT: Duration = Duration::from_secs(5);

/// A supervisor.
#[derive(Debug)]
pub struct Supervisor {
    process: PidFd,
    /// None for that of another head, and when it has ended the line: then it is ending itself.
    line: Option<HeadLine>,
}

impl Supervisor {
    /// Says something for the job that it runs.
    pub fn say(&self, message: &Message) {
        if self.line.as_ref().is_some_and(|line| line.say(message)) {
            return;
        }
        match message {
            Message::End => self.process.signal(SIGTERM),
            Message::Signals => self.process.signal(SIGUSR1),
            Message::Run(_) => {}
        }
    }

    /// Whether it hears all that is said, also before it has claimed its job.
    pub fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// What is readable when there is something to hear.
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.line {
            Some(line) => line.as_fd(),
            None => self.process.as_fd(),
        }
    }
}

/// A running job as the head watches it.
#[derive(Debug)]
pub struct Watched {
    /// None when it could not be started, or has gone before it could be watched.
    supervisor: Option<Supervisor>,
    tries: u32,
}

/// A supervisor without a job.
#[derive(Debug)]
pub struct IdleSupervisor {
    supervisor: Supervisor,
    since: Instant,
}

impl Head {
    /// The supervisor of a running job.
    pub(super) fn supervisor(&self, id: JobId) -> Option<&Supervisor> {
        self.watched.get(&id)?.supervisor.as_ref()
    }

    /// Gives a job, whose order may be known, to a supervisor.
    pub(super) fn start(&mut self, id: JobId, tries: u32, order: Option<Ordered>) {
        let number = self.entries.get(&id).map_or(0, |entry| entry.order);
        let order = order.map_or_else(|| self.store.order(number), Ok);
        let (tries, started) = match order {
            Ok(order) => (tries, self.try_start(id, order)),
            // The store is away: that is no try.
            Err(text) if self.store.missing().is_some() => (tries.saturating_sub(1), Err(text)),
            Err(text) => (tries, Err(text)),
        };
        if let Err(text) = &started {
            log(&format!("job {id}: {text}"));
        }
        let is_cancelled = (self.entries.get(&id)).is_some_and(|entry| entry.is_cancelled);
        let supervisor = started.ok();
        if let (Some(supervisor), true) = (&supervisor, is_cancelled) {
            supervisor.say(&Message::End);
        }
        self.watched.insert(id, Watched { supervisor, tries });
    }

    fn try_start(&mut self, id: JobId, order: Ordered) -> Result<Supervisor, String> {
        let entry = self.entries.get(&id).ok_or("it is gone")?;
        let folder = self.folder(id);
        let (shared, order) = order;
        let owner = shared.owner.as_ref().map(|owner| owner.uid);
        if self.resources.readable.is_some() && owner.unwrap_or(0) != entry.uid {
            return Err(format!("it is of user {}, and its order is not", entry.uid));
        }
        let parts = self.parts(id, &order.wishes);
        let away = self.away(&parts, &shared, &order);
        let site = self.site(&parts, &shared, &order);
        let mut order =
            prepare::job_order(entry, &shared, &order, site, away, &folder, &self.resources);
        order.left = self.left_at(id);
        order.shares = self.shares(&parts, entry.job.slots);
        let rules = self.scheduler.settings().queues.get(&entry.partition);
        order.gang = rules.and_then(|rules| Some(rules.gang.as_ref()?.partition.clone()));
        let priority = rules.map_or(0, |rules| rules.priority);
        order.turn_priority = gang::priority(priority.saturating_add(entry.job.priority));
        if let Some(hosts) = &self.hosts {
            // Another job with its number is that of a later head.
            let name = format!("{id}-{}-{}", entry.runs, now_s());
            gang::set_hosts(&mut order, hosts.shell(), name)?;
        } else {
            if order.gang.is_some() && order.user.is_some() {
                gang::set_folder(&mut order);
            }
            let kept = self.scheduler.kept();
            if order.gang.is_none() && !kept.is_empty() {
                order.cores = cpu::affinity();
                order.cores.retain(|core| !kept.contains(core));
            }
        }
        folder
            .make(&order)
            .map_err(|error| format!("cannot write {}: {error}", folder.path.display()))?;
        let run = Message::Run(folder.name());
        let is_given = |supervisor: &Supervisor| {
            let line = supervisor.line.as_ref();
            line.is_some_and(|line| line.say(&run))
        };
        while let Some(IdleSupervisor { supervisor, .. }) = self.idle.pop() {
            // One that was killed takes nothing.
            if is_given(&supervisor) {
                return Ok(supervisor);
            }
        }
        let supervisor = self
            .new_supervisor()
            .map_err(|error| format!("cannot start its supervisor: {error}"))?;
        is_given(&supervisor);
        Ok(supervisor)
    }

    /// The part of all slots of each of its hosts that a job has.
    fn shares(&self, parts: &[HostPart], slots: u32) -> Vec<f64> {
        let share = |own: u32, all: u32| f64::from(own) / f64::from(all.max(own).max(1));
        let of = |part: &HostPart| share(part.slots, self.slots_of(&part.host));
        match parts {
            [] => vec![share(slots, self.resources.slots)],
            parts => parts.iter().map(of).collect(),
        }
    }

    fn new_supervisor(&self) -> std::io::Result<Supervisor> {
        let (line, other) = HeadLine::pair()?;
        let mut command = Command::new(&self.resources.program);
        command
            .arg("supervise")
            .arg(self.resources.folder.join("jobs"))
            .stdin(Stdio::from(other))
            .stdout(Stdio::null());
        // A remote shell needs what this process has: where keys are, for example.
        if self.hosts.is_none() && !self.store.has_parts() {
            command.env_clear();
        }
        // Where the system has its counters is no secret.
        if let Some(folder) = std::env::var_os(ENV_FOLDER) {
            command.env(ENV_FOLDER, folder);
        }
        let child = take_defaults_in(&mut command).spawn()?;
        Ok(Supervisor {
            process: PidFd::open(child.id())?,
            line: Some(line),
        })
    }

    /// Where a job runs that a head of another place has begun.
    fn left_at(&self, id: JobId) -> Option<LeftAt> {
        let left = self.left.get(&id)?;
        let place = &left.place;
        let runs = self.entries.get(&id).map_or(0, |entry| entry.runs);
        Some(LeftAt {
            host: place.host.clone(),
            folder: JobFolder::of(Path::new(&place.folder), id, runs).path,
            queue: self.resources.queue.clone(),
            start: left.start.clone(),
            shell: self.resources.shell.clone(),
            lost_after_s: self.scheduler.settings().lost_after_s,
        })
    }

    /// Looks at a running job whose supervisor has ended it, has gone or is not known.
    pub(super) fn look_after(&mut self, id: JobId, tries: u32) {
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
                    // Names of files may hold anything.
                    note: end.note.replace(char::is_control, "?"),
                    hosts: Vec::new(),
                    steps: end.steps,
                };
                self.watched.remove(&id);
                if !end.has_begun || finish.end == End::Lost {
                    self.suspect(id);
                }
                if !end.has_begun && self.waits_again(id) {
                    self.requeue(id);
                } else if !self.doubt(id, &finish) {
                    self.conclude(id, finish);
                }
            }
            Ok(Found::Supervised(pid)) => {
                let process = PidFd::open(pid).ok();
                let supervisor = process.map(|process| Supervisor {
                    process,
                    line: None,
                });
                if let (Some(supervisor), true) = (&supervisor, is_cancelled) {
                    supervisor.say(&Message::End);
                }
                self.watched.insert(id, Watched { supervisor, tries });
            }
            // It runs elsewhere, and goes on without who followed it.
            Ok(Found::Abandoned) if self.left.contains_key(&id) => {
                self.folder(id).remove();
                self.start(id, tries, None);
            }
            Ok(Found::Unclaimed) if is_cancelled && !self.left.contains_key(&id) => {
                self.end(id, End::Cancelled, String::new())
            }
            // On a full disk nothing begins: the job waits for room.
            Ok(Found::Unclaimed) if tries < MOST_TRIES || self.is_disk_full() => {
                self.start(id, (tries + 1).min(MOST_TRIES), None)
            }
            Ok(Found::Unclaimed) => {
                let note = "what should watch over it could not be started; see head.log";
                self.end(id, End::NotStarted, note.into());
            }
            Ok(Found::Abandoned) => {
                self.end_rest(id);
                if self.runs_again(id, End::Lost) {
                    self.watched.remove(&id);
                    return self.requeue(id);
                }
                let note = "what watched over it was killed, or the machine went down";
                self.end(id, End::Lost, note.into());
            }
            Err(error) => {
                let note = format!("how it ended cannot be read: {error}");
                self.end(id, End::Lost, note);
            }
        }
    }

    /// Puts a job back that has ended so and waits again, or notes its end.
    pub(super) fn conclude(&mut self, id: JobId, finish: Finish) {
        match self.runs_again(id, finish.end) {
            true => self.requeue(id),
            false => self.finish(id, finish),
        }
    }

    /// Ends what a job has left whose supervisor was killed.
    fn end_rest(&self, id: JobId) {
        let folder = self.folder(id);
        if let Ok(groups) = &self.resources.groups
            && let Err(error) = groups.of(&folder.name()).remove()
        {
            log(&format!(
                "job {id}: some of its processes do not end: {error}"
            ));
        }
        if !folder.end_rest() {
            log(&format!("job {id}: some of its processes do not end"));
        }
    }

    /// Whether a job that has not begun, as its host could not be reached, waits again.
    fn waits_again(&self, id: JobId) -> bool {
        let entry = self.entries.get(&id);
        entry.is_some_and(|entry| !entry.is_cancelled && entry.runs < MOST_RUNS)
    }

    /// Whether a job that is to run has not begun, as the disk has no room for its folder.
    pub(super) fn lacks_room(&self, id: JobId) -> bool {
        let has_failed = self
            .watched
            .get(&id)
            .is_some_and(|watched| watched.tries > 0);
        has_failed && self.is_disk_full()
    }

    /// Whether the disk with the jobs' folders has no room for another one.
    fn is_disk_full(&self) -> bool {
        let space = extent::space(&self.resources.folder);
        space.is_ok_and(|(_, free)| free < FULL_BYTES)
    }

    /// Whether a job that has ended so waits again.
    fn runs_again(&self, id: JobId, end: End) -> bool {
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.is_cancelled) else {
            return false;
        };
        let wishes = match end {
            End::Cancelled => return self.folder(id).is_preempted(),
            // Its host has left.
            End::Lost if self.folder(id).is_preempted() => true,
            End::Lost | End::NotStarted => entry.is_requeued,
            End::Exit(code) => entry.requeue_codes.contains(&code),
            End::Signal(_) | End::TimeLimit | End::MemoryLimit => false,
        };
        wishes && entry.runs < MOST_RUNS
    }

    /// Looks at a job that ran when the machine went down. What its supervisor wrote may be lost,
    /// as it did not wait for the disk: so it never counts as not begun.
    pub(super) fn look_back(&mut self, id: JobId) {
        match self.folder(id).look() {
            Ok(Found::Ended(_)) => self.look_after(id, 0),
            _ if self.runs_again(id, End::Lost) => self.requeue(id),
            _ => self.end(id, End::Lost, "the machine went down".into()),
        }
    }

    /// Takes note of the jobs of which the descriptors are readable ([`descriptors`]), and of those
    /// that have none. Returns whether it has to be tried again later.
    ///
    /// [`descriptors`]: Head::descriptors
    pub fn collect(&mut self, readable: &[JobId]) -> bool {
        let unwatched = self.watched.iter().filter(|(_, w)| w.supervisor.is_none());
        let unwatched: Vec<JobId> = unwatched.map(|(id, _)| *id).collect();
        for &id in readable.iter().chain(&unwatched) {
            let Some(watched) = self.watched.get_mut(&id) else {
                continue;
            };
            let tries = watched.tries;
            let is_over = match &mut watched.supervisor {
                None => true,
                Some(supervisor) => match supervisor.line.as_ref().map(HeadLine::hear) {
                    Some(Heard::Nothing) => false,
                    Some(Heard::Ended) => {
                        let since = Instant::now();
                        let supervisor = watched.supervisor.take();
                        let idle =
                            supervisor.map(|supervisor| IdleSupervisor { supervisor, since });
                        self.idle.extend(idle);
                        true
                    }
                    // It is ending: when it has, its job has ended, or is killed with it.
                    Some(Heard::Closed) => {
                        supervisor.line = None;
                        false
                    }
                    None => supervisor.process.has_ended(),
                },
            };
            if is_over {
                self.look_after(id, tries);
            }
        }
        self.watched.values().any(|w| w.supervisor.is_none())
    }

    /// What is readable when there is something to [collect](Head::collect), for each job.
    pub fn descriptors(&self) -> impl Iterator<Item = (JobId, BorrowedFd<'_>)> {
        self.watched.iter().filter_map(|(id, watched)| {
            let supervisor = watched.supervisor.as_ref()?;
            Some((*id, supervisor.descriptor()))
        })
    }

    /// Lets supervisors go that have had no job for some time. Returns when to do so again.
    pub fn dismiss(&mut self) -> Option<Duration> {
        self.idle.retain(|idle| idle.since.elapsed() < KEPT);
        let first = self.idle.iter().map(|idle| idle.since).min()?;
        Some(KEPT.saturating_sub(first.elapsed()))
    }

    /// Lets all supervisors without a job go; returns their processes, which end at once.
    pub fn dismiss_all(&mut self) -> Vec<PidFd> {
        let idle = std::mem::take(&mut self.idle).into_iter();
        idle.map(|idle| idle.supervisor.process).collect()
    }
}
