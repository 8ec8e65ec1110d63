//! The hosts of a machine of several: what is free on each, and which of them are there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::zip;

use super::{QueuedJob, Scheduler};
use crate::job::{Job, JobId, Part, Phase};
use crate::places::{Host, parts_of, place};
use crate::profile::Room;

impl QueuedJob {
    /// What it takes on the hosts where it has slots: those that take turns share theirs.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Room)> {
        let takes_turns = self.takes_turns;
        parts_of(&self.job).map(move |(host, part)| match takes_turns {
            true => (host, Room { slots: 0, ..part }),
            false => (host, part),
        })
    }
}

impl Scheduler {
    /// Notes which slots of hosts are those of partitions. Applications of several never run on
    /// a host together.
    pub(super) fn keep_slots(&mut self) {
        self.kept_slots.clear();
        let gangs = self.queues.values().filter_map(|rules| rules.gang.as_ref());
        for part in gangs.flat_map(|gang| &gang.hosts) {
            let host = part.host as usize;
            self.kept_slots
                .resize(self.kept_slots.len().max(host + 1), 0);
            self.kept_slots[host] = self.kept_slots[host].max(part.slots);
        }
    }

    /// Whether some of the machine is that of partitions in which jobs take turns.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty() || !self.kept_slots.is_empty()
    }

    /// The hosts as jobs have them that take no turns.
    pub(crate) fn open_hosts(&self) -> Vec<Host> {
        let all = zip(&self.hosts, self.rooms());
        let open = |(host, room): (&Host, Room)| Host {
            slots: u32::try_from(room.slots).unwrap_or(0),
            ..*host
        };
        all.map(open).collect()
    }

    /// What each host has for jobs that take no turns.
    fn rooms(&self) -> impl Iterator<Item = Room> {
        self.hosts.iter().enumerate().map(|(at, host)| {
            let kept = self.kept_slots.get(at).copied().unwrap_or(0);
            let room = host.room().minus(Room::new(kept, 0));
            Room {
                slots: room.slots.max(0),
                ..room
            }
        })
    }

    /// Where a job gets its slots when this much is free on each host. A job that takes turns gets
    /// those of its partition, on hosts on which the fewest others do.
    pub(crate) fn place_on(&self, free: &[Room], queued: &QueuedJob) -> Option<Vec<Part>> {
        if !queued.takes_turns {
            return place(free, &queued.job);
        }
        let rules = self.queues.get(&queued.job.queue);
        let gang = rules.and_then(|rules| rules.gang.as_ref())?;
        let turners = self.running.iter().filter_map(|id| self.jobs.get(id));
        let mut load = vec![0; free.len()];
        for part in turners
            .filter(|own| own.takes_turns)
            .flat_map(|own| &own.job.parts)
        {
            if let Some(load) = load.get_mut(part.host as usize) {
                *load += 1;
            }
        }
        let most = load.iter().copied().max().unwrap_or(0);
        (0..=most).find_map(|most| {
            let mut rooms = vec![Room::default(); free.len()];
            for part in &gang.hosts {
                let host = part.host as usize;
                if self.hosts.get(host).is_some_and(|host| host.is_up) && load[host] <= most {
                    rooms[host] = Room {
                        slots: part.slots.into(),
                        ..free[host]
                    };
                }
            }
            place(&rooms, &queued.job)
        })
    }

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
            for (host, part) in queued.parts() {
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

    /// Whether jobs run on a host, with or without slots of their own.
    #[must_use]
    pub fn is_used(&self, host: usize) -> bool {
        let mut parts = self.running().flat_map(|job| &job.parts);
        parts.any(|part| part.host as usize == host)
    }

    /// Why a job can never run on these hosts, although they have slots enough, if so.
    #[must_use]
    pub fn has_no_place(&self, job: &Job) -> bool {
        let mut whole: Vec<Room> = self.rooms().collect();
        let rules = self.queues.get(&job.queue);
        if let Some(gang) = rules.and_then(|rules| rules.gang.as_ref()) {
            whole.iter_mut().for_each(|room| room.slots = 0);
            for part in &gang.hosts {
                if let Some(room) = whole.get_mut(part.host as usize) {
                    room.slots = part.slots.into();
                }
            }
        }
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
            _ => self.rooms().fold(Room::default(), Room::plus),
        }
    }

    /// The room of the machine: that of its hosts that are there. What runs on one that is away
    /// counts as if it had just this room.
    pub(crate) fn machine(&self) -> Room {
        if self.hosts.is_empty() {
            return self.one_host();
        }
        let there = zip(&self.hosts, self.rooms()).filter(|(host, _)| host.is_up);
        let sum = there.fold(Room::default(), |sum, (_, room)| sum.plus(room));
        if self.hosts.iter().all(|host| host.is_up) {
            return sum;
        }
        let all = self.unreserved();
        all.fold(sum, |sum, queued| sum.plus(self.away(queued)))
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
    fn away(&self, queued: &QueuedJob) -> Room {
        let is_away = |host: usize| self.hosts.get(host).is_none_or(|host| !host.is_up);
        let away = queued.parts().filter(|(host, _)| is_away(*host));
        away.fold(Room::default(), |sum, (_, part)| sum.plus(part))
    }

    /// What others get when a running job ends.
    pub(crate) fn left_by(&self, queued: &QueuedJob) -> Room {
        queued.need().minus(self.away(queued))
    }

    /// What becomes free when, by the time limits.
    pub(crate) fn ends(&self) -> Cow<'_, BTreeMap<u64, Room>> {
        let mut ends = Cow::Borrowed(&self.ends);
        if self.hosts.iter().any(|host| !host.is_up) {
            for queued in self.unreserved() {
                if let Phase::Running(since) = queued.job.phase
                    && let Some(room) = ends.to_mut().get_mut(&queued.end(since))
                {
                    *room = room.minus(self.away(queued));
                }
            }
        }
        ends
    }

    /// What is free on each host.
    pub(crate) fn free_of_hosts(&self) -> Vec<Room> {
        let free = |((host, room), used): ((&Host, Room), &Room)| match host.is_up {
            true => room.minus(*used),
            false => Room::default(),
        };
        let all = zip(&self.hosts, self.rooms());
        zip(all, &self.in_hosts).map(free).collect()
    }

    pub(super) fn choose_hosts(&mut self, id: JobId) {
        if self.hosts.is_empty() {
            return;
        }
        let free = self.free_of_hosts();
        let own = self.jobs.get(&id);
        let parts = own.and_then(|queued| self.place_on(&free, queued));
        if let Some(queued) = self.jobs.get_mut(&id) {
            queued.job.parts = parts.unwrap_or_default();
        }
    }
}
