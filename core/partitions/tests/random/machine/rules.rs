//! What a machine decides, from end to end: the rules of docs/jobs.md.

use margay_core_queue::Phase;

use super::{Amount, Decided, MEMORY, OF_HOST, Plain, SLOTS, World};

impl World {
    /// What is free at a time, by the limits of those that run and of those that start now, and
    /// beside the reservation. Some of those that run may be gone by then.
    fn free_at(&self, time: u64, free: Amount, new: &[u64], gone: &[u64]) -> Amount {
        let ends = |job: &Plain| {
            let since = job.since().unwrap_or(self.now);
            let limit = job.job.limit_s?;
            Some((since + limit).max(self.now + 1))
        };
        let is_over = |job: &&Plain| ends(job).is_some_and(|end| end <= time);
        let counts = |job: &&Plain| job.is_running() && !self.is_kept(job);
        let is_gone = |job: &&Plain| is_over(job) || gone.contains(&job.job.id);
        let running = self.jobs.iter().filter(counts).filter(is_gone);
        let free = running.fold(free, |sum, job| sum.plus(self.amount(&job.job)));
        let new = new.iter().map(|id| self.of(*id)).filter(is_over);
        let free = new.fold(free, |sum, job| sum.plus(Amount::of(&job.job)));
        let before = free.plus(self.reserved_at(self.now));
        before.minus(self.reserved_at(time))
    }

    /// The times at which more or less is free than just before.
    fn moments(&self) -> Vec<u64> {
        let limits = self.jobs.iter().filter_map(|job| {
            let since = job.since().unwrap_or(self.now);
            Some((since + job.job.limit_s?).max(self.now + 1))
        });
        let lecture = self.lecture.iter();
        let lecture = lecture.flat_map(|own| [own.from, own.until, self.now + 1]);
        let all = limits.chain(lecture).filter(|at| *at > self.now);
        all.chain([self.now]).collect()
    }

    /// What has to be decided now: the rules as docs/jobs.md has them, word for word.
    pub(super) fn decide(&self) -> Decided {
        let mut decided = Decided::default();
        let waiting = self.jobs.iter();
        let waiting = waiting.filter(|job| job.job.phase == Phase::Waiting);
        let mut ready = Vec::new();
        for job in waiting {
            match job.after.map(|dependency| self.standing(dependency)) {
                Some((false, true)) => decided.never.push(job.job.id),
                Some((false, false)) => {}
                _ if job.job.is_held => {}
                _ => ready.push(job),
            }
        }
        let is_over = self.is_over();
        let rank = |job: &&Plain| {
            let priority = job.job.priority + i64::from(job.is_night);
            (job.is_rich && is_over, -priority, job.job.id)
        };
        ready.sort_by_key(rank);
        let running: Vec<&Plain> = self.jobs.iter().filter(|job| job.is_running()).collect();
        let up = self.hosts.iter().filter(|host| host.is_up).count() as u32;
        let all = if self.hosts.is_empty() {
            SLOTS
        } else {
            up * OF_HOST
        };
        let all = Amount(all.into(), MEMORY.into());
        let take = |left: Amount, job: &&Plain| left.minus(self.amount(&job.job));
        // What nobody has, for whom it may be.
        let mut there = running.iter().fold(all, take);
        let others = running.iter().filter(|job| !self.is_kept(job));
        let mut free = others.fold(all, take).minus(self.reserved_at(self.now));
        let mut kept = self.kept_now();
        let moments = self.moments();
        // The first without room, and when it has some.
        let mut first: Option<(&Plain, Option<u64>)> = None;
        for job in ready {
            if self.is_limited(job, &decided.start) {
                continue;
            }
            let need = Amount::of(&job.job);
            if job.is_reserved {
                if self.is_within(job) && kept.holds(need) && there.holds(need) {
                    (kept, there) = (kept.minus(need), there.minus(need));
                    decided.start.push(job.job.id);
                }
                continue;
            }
            let new = decided.start.clone();
            let new: Vec<u64> = new
                .into_iter()
                .filter(|id| !self.of(*id).is_reserved)
                .collect();
            // Whether it has room from a time until its end, beside who has been promised some.
            let fits = |from: u64, gone: &[u64], free: Amount| {
                let end = job.job.limit_s.map_or(u64::MAX, |limit| from + limit);
                let promise = first.and_then(|(large, at)| Some((large, at?)));
                let times = moments.iter().copied().chain(promise.map(|(_, at)| at));
                times
                    .filter(|at| (from..end).contains(at))
                    .chain([from])
                    .all(|time| {
                        let left = self.free_at(time, free, &new, gone);
                        let is_promised = promise.filter(|(large, at)| {
                            let end = large.job.limit_s.map_or(u64::MAX, |limit| at + limit);
                            (*at..end).contains(&time)
                        });
                        let of_first = is_promised.map(|(large, _)| Amount::of(&large.job));
                        left.minus(of_first.unwrap_or_default()).holds(need)
                    })
            };
            // Where nobody knows when the first finds room nothing starts before it.
            let is_closed = matches!(first, Some((_, None)));
            if !is_closed && fits(self.now, &[], free) {
                (free, there) = (free.minus(need), there.minus(need));
                decided.start.push(job.job.id);
                continue;
            }
            if first.is_some() {
                continue;
            }
            let times = moments.iter().copied();
            let at = times.filter(|at| fits(*at, &[], free)).min();
            if !(job.is_rich && is_over) {
                let victims = self.victims(need, free);
                let gone = self.jobs.iter().filter(|other| other.is_ending);
                let gone = gone
                    .map(|other| other.job.id)
                    .chain(victims.iter().copied());
                if fits(self.now, &gone.collect::<Vec<_>>(), free) {
                    decided.preempt = victims;
                }
            }
            first = Some((job, at));
        }
        decided
    }

    fn is_limited(&self, job: &Plain, new: &[u64]) -> bool {
        let is_beside = |other: &&Plain| other.is_running() || new.contains(&other.job.id);
        if let (Some(array), Some(limit)) = (job.job.array, job.job.array_limit) {
            let tasks = self
                .jobs
                .iter()
                .filter(|other| other.job.array == Some(array));
            if tasks.filter(is_beside).count() >= limit as usize {
                return true;
            }
        }
        if !job.is_night {
            return false;
        }
        let beside = self
            .jobs
            .iter()
            .filter(|other| other.is_night && is_beside(other));
        let of_user = beside.clone().filter(|other| other.user == job.user);
        let slots: u32 = of_user.map(|other| other.job.slots).sum();
        !self.night.is_started
            || beside.count() as u32 + 1 > self.night.running
            || slots + job.job.slots > self.night.user_slots
    }

    /// The youngest jobs of an account without budget, as many as are needed.
    fn victims(&self, need: Amount, mut free: Amount) -> Vec<u64> {
        let mut victims = Vec::new();
        let running = self.jobs.iter().filter(|job| job.is_running());
        let (ending, mut others): (Vec<&Plain>, Vec<&Plain>) =
            running.partition(|job| job.is_ending);
        free = (ending.iter()).fold(free, |sum, job| sum.plus(self.amount(&job.job)));
        others.retain(|job| {
            let is_meant = job.is_rich && !job.is_reserved;
            is_meant && self.is_over() && self.counted(&job.job) > 0
        });
        others.sort_by_key(|job| std::cmp::Reverse((job.since(), job.job.id)));
        for job in others {
            if free.holds(need) {
                break;
            }
            free = free.plus(self.amount(&job.job));
            victims.push(job.job.id);
        }
        if free.holds(need) {
            victims
        } else {
            Vec::new()
        }
    }
}
