//! The hosts of a machine of several: what is free on each, and which of them are there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{QueuedJob, Scheduler};
use crate::job::{Job, JobId, Part, Phase};
use crate::places::{Host, parts_of, place};
use crate::profile::Room;

impl Scheduler {
    /// Says which hosts there are; none is a machine of one host. Jobs that run keep their places,
    /// which are numbers in this list: a host keeps its number for as long as jobs run. Where there
    /// was one host before, it is the first.
    pub fn set_hosts(&mut self, hosts: Vec<Host>) {
        let is_new = hosts.len() != self.hosts.len();
        let was_one = self.hosts.is_empty();
        self.hosts = hosts;
        if !is_new {
            return;
        }
        self.in_hosts = vec![Room::default(); self.hosts.len()];
        let running: Vec<JobId> = self.running.iter().copied().collect();
        for id in running {
            let Some(queued) = self.jobs.get_mut(&id) else {
                continue;
            };
            if was_one && queued.job.parts.is_empty() {
                let slots = queued.job.slots;
                queued.job.parts.push(Part { host: 0, slots });
            }
            for (host, part) in parts_of(&queued.job) {
                if let Some(room) = self.in_hosts.get_mut(host) {
                    *room = room.plus(part);
                }
            }
        }
    }

    /// What jobs use of a host, in slots.
    #[must_use]
    pub fn used_of(&self, host: usize) -> u32 {
        let room = self.in_hosts.get(host).copied().unwrap_or_default();
        u32::try_from(room.slots.max(0)).unwrap_or(u32::MAX)
    }

    /// Why a job can never run on these hosts, although they have slots enough, if so.
    #[must_use]
    pub fn has_no_place(&self, job: &Job) -> bool {
        let whole: Vec<Room> = self.hosts.iter().map(Host::room).collect();
        !whole.is_empty() && place(&whole, job).is_none()
    }

    /// The room of a machine of one host, without that of partitions of queues.
    fn one_host(&self) -> Room {
        let kept = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        let slots = Room::new(kept, 0);
        let left = self.machine.minus(slots);
        Room {
            slots: left.slots.max(0),
            ..left
        }
    }

    /// The room of the machine with all of its hosts, also those that are away.
    pub(crate) fn whole(&self) -> Room {
        match &self.hosts[..] {
            [] => self.one_host(),
            hosts => hosts
                .iter()
                .fold(Room::default(), |sum, host| sum.plus(host.room())),
        }
    }

    /// The room of the machine: that of its hosts that are there. What runs on one that is away
    /// counts as if it had just this room.
    pub(crate) fn machine(&self) -> Room {
        if self.hosts.is_empty() {
            return self.one_host();
        }
        let there = self.hosts.iter().filter(|host| host.is_up);
        let sum = there.fold(Room::default(), |sum, host| sum.plus(host.room()));
        if self.hosts.iter().all(|host| host.is_up) {
            return sum;
        }
        let all = self.unreserved();
        all.fold(sum, |sum, queued| sum.plus(self.away(&queued.job)))
    }

    /// The jobs that run outside of reservations.
    pub(crate) fn unreserved(&self) -> impl Iterator<Item = &QueuedJob> {
        let running = self.running.iter().filter_map(|id| self.jobs.get(id));
        running.filter(|queued| {
            let reserved = queued.job.reservation.as_ref();
            reserved.is_none_or(|tag| !self.reservations.contains_key(tag))
        })
    }

    /// What a job has on hosts that are away: nobody gets it when the job ends.
    fn away(&self, job: &Job) -> Room {
        let is_away = |host: usize| self.hosts.get(host).is_none_or(|host| !host.is_up);
        let away = parts_of(job).filter(|(host, _)| is_away(*host));
        away.fold(Room::default(), |sum, (_, part)| sum.plus(part))
    }

    /// What others get when a running job ends.
    pub(crate) fn left_by(&self, queued: &QueuedJob) -> Room {
        queued.need().minus(self.away(&queued.job))
    }

    /// What becomes free when, by the time limits.
    pub(crate) fn ends(&self) -> Cow<'_, BTreeMap<u64, Room>> {
        let mut ends = Cow::Borrowed(&self.ends);
        if self.hosts.iter().any(|host| !host.is_up) {
            for queued in self.unreserved() {
                if let Phase::Running(since) = queued.job.phase
                    && let Some(room) = ends.to_mut().get_mut(&queued.end(since))
                {
                    *room = room.minus(self.away(&queued.job));
                }
            }
        }
        ends
    }

    /// What is free on each host.
    pub(crate) fn free_of_hosts(&self) -> Vec<Room> {
        let free = |(host, used): (&Host, &Room)| match host.is_up {
            true => host.room().minus(*used),
            false => Room::default(),
        };
        self.hosts.iter().zip(&self.in_hosts).map(free).collect()
    }

    pub(super) fn choose_hosts(&mut self, id: JobId) {
        if self.hosts.is_empty() {
            return;
        }
        let free = self.free_of_hosts();
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.job.parts = place(&free, &queued.job).unwrap_or_default();
        }
    }
}
