//! A reservation, which comes, changes and goes.

use super::{Amount, MEMORY, Plain, SLOTS, World};
use crate::plain::Numbers;

/// What is kept from a time until another one.
#[derive(Clone, Copy)]
pub(super) struct Lecture {
    pub(super) room: Amount,
    pub(super) from: u64,
    pub(super) until: u64,
}

impl World {
    /// Whether a job has room of the reservation, and not of the others.
    pub(super) fn is_kept(&self, job: &Plain) -> bool {
        job.is_reserved && self.lecture.is_some()
    }

    /// What running jobs have of it.
    fn used_of_lecture(&self) -> Amount {
        let running = self.jobs.iter().filter(|job| job.is_running());
        let kept = running.filter(|job| self.is_kept(job));
        kept.fold(Amount::default(), |sum, job| sum.plus(Amount::of(&job.job)))
    }

    /// What others do not get at a time: what is kept, or what its jobs have before it begins, when
    /// it has become smaller, and until they have ended.
    pub(super) fn reserved_at(&self, time: u64) -> Amount {
        let Some(own) = self.lecture else {
            return Amount::default();
        };
        let used = self.used_of_lecture();
        let is_active = (own.from..own.until).contains(&self.now);
        if (own.from..own.until).contains(&time) {
            return match is_active {
                true => Amount(own.room.0.max(used.0), own.room.1.max(used.1)),
                false => own.room,
            };
        }
        match time < own.from || time == self.now {
            true => used,
            false => Amount::default(),
        }
    }

    /// What is free in it now.
    pub(super) fn kept_now(&self) -> Amount {
        let room = self.lecture.map_or(Amount::default(), |own| own.room);
        room.minus(self.used_of_lecture())
    }

    /// Whether a job that starts now begins and ends within it.
    pub(super) fn is_within(&self, job: &Plain) -> bool {
        let Some((own, limit)) = self.lecture.zip(job.job.limit_s) else {
            return false;
        };
        own.from <= self.now && self.now + limit <= own.until
    }

    pub(super) fn reserve(&mut self, numbers: &mut Numbers) {
        if self.lecture.is_some() && numbers.below(3) == 0 {
            self.lecture = None;
            let words = ["remove", "reservation", "lecture"];
            self.settings
                .change(&words, self.slots(), self.now)
                .unwrap();
        } else {
            let slots = 1 + numbers.below(self.slots() as usize);
            let memory = match self.hosts.is_empty() {
                true => numbers.below(MEMORY as usize + 1),
                false => 0,
            };
            let from = self.now + numbers.below(20) as u64;
            let time = 1 + numbers.below(60) as u64;
            let line = format!(
                "reservation lecture slots={slots} memory={memory}M start={from} time={time}s"
            );
            let words: Vec<&str> = line.split(' ').collect();
            self.settings
                .change(&words, self.slots(), self.now)
                .unwrap();
            self.lecture = Some(Lecture {
                room: Amount(slots as i64, memory as i64),
                from,
                until: from + time,
            });
        }
        self.scheduler.set(self.settings.clone());
    }

    /// Nobody has what others have.
    pub(super) fn check_room(&self, step: usize) {
        if self.hosts.is_empty() {
            let running = self.jobs.iter().filter(|job| job.is_running());
            let used = running.fold(Amount::default(), |sum, job| sum.plus(Amount::of(&job.job)));
            let is_held = used.0 <= SLOTS.into() && used.1 <= MEMORY.into();
            assert!(is_held, "step {step}: {} slots, {} MiB", used.0, used.1);
        }
    }
}
