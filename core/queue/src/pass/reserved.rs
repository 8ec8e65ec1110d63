//! What a pass does with reservations.

use super::{Outside, Pass, Reason, slots};
use crate::job::{JobId, Phase, Tag};
use crate::profile::{Profile, Room};
use crate::scheduler::{QueuedJob, Scheduler};

impl Scheduler {
    /// What nobody has, whatever it is for.
    pub(super) fn there(&self) -> Room {
        let places = self.free_of_hosts();
        if !places.is_empty() {
            return places.into_iter().fold(Room::default(), Room::plus);
        }
        let reserved = self.in_reservation.values();
        reserved.fold(self.machine().minus(self.used), |left, used| {
            left.minus(*used)
        })
    }
}

impl Pass<'_> {
    /// Takes what reservations keep. Jobs of one that has become smaller, or is later now, keep
    /// what they have, and so do those that have not ended when it is over.
    pub(super) fn keep_reserved(&self, profile: &mut Profile) {
        for (tag, reservation) in &self.state.reservations {
            let room = Room::new(reservation.slots, reservation.memory_mib);
            let used = self.state.in_reservation.get(tag).copied();
            let used = used.unwrap_or_default();
            let (from, until) = (reservation.from_s, reservation.until_s);
            let (more, end) = if (from..until).contains(&self.now) {
                (used.minus(room).max(Room::default()), until)
            } else {
                (used, from.max(self.now.saturating_add(1)))
            };
            profile.take(more, self.now, end);
            if until > self.now {
                profile.take(room, from, until);
            }
        }
    }

    /// Why a job does not start in its reservation now.
    pub(super) fn look_reserved(&self, queued: &QueuedJob, tag: Tag) -> Option<Reason> {
        let Some(reservation) = self.state.reservations.get(&tag) else {
            return Some(Reason::Reservation(Outside::Over));
        };
        if self.now < reservation.from_s {
            return Some(Reason::Reservation(Outside::Before(reservation.from_s)));
        }
        if self.now >= reservation.until_s {
            return Some(Reason::Reservation(Outside::Over));
        }
        if queued.end(self.now) > reservation.until_s {
            return Some(Reason::Reservation(Outside::EndsAt(reservation.until_s)));
        }
        let used = self.in_reservation.get(&tag).copied().unwrap_or_default();
        let free = Room::new(reservation.slots, reservation.memory_mib).minus(used);
        let need = queued.need();
        // Jobs that ran when the reservation was made may have its room.
        (!free.holds(need) || !self.there.holds(need)).then(|| Reason::ReservedSlots {
            free: slots(free).min(slots(self.there)),
            needed: queued.job.slots,
        })
    }

    /// Whether a job that starts now would run into a reservation, although these have ended and
    /// those that have been asked to.
    pub(super) fn runs_into(&self, job: &QueuedJob, ended: &[JobId]) -> bool {
        let state = self.state;
        let (now, end) = (self.now, job.end(self.now));
        let all = state.reservations.values();
        let begins = all.map(|reservation| reservation.from_s);
        let mut begins = begins.filter(|from| (now.saturating_add(1)..end).contains(from));
        begins.any(|at| {
            let mut free = state.machine();
            for queued in state.unreserved() {
                let since = match queued.job.phase {
                    Phase::Running(since) => since,
                    _ => now,
                };
                let is_gone = queued.is_ending || ended.contains(&queued.job.id);
                let away = queued.need().minus(state.left_by(queued));
                free = free.minus(match is_gone || queued.end(since).max(now + 1) <= at {
                    true => away,
                    false => queued.need(),
                });
            }
            let started = self
                .decision
                .start
                .iter()
                .filter_map(|id| state.jobs.get(id));
            let started = started.filter(|queued| queued.job.reservation.is_none());
            for queued in started.filter(|queued| queued.end(now) > at) {
                free = free.minus(queued.need());
            }
            for reservation in state.reservations.values() {
                if (reservation.from_s..reservation.until_s).contains(&at) {
                    free = free.minus(Room::new(reservation.slots, reservation.memory_mib));
                }
            }
            !free.holds(job.need())
        })
    }
}
