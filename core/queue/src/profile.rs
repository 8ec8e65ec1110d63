//! What is free from now on, as a step function of time.

/// An amount of what jobs share. Negative where more is promised than there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub slots: i64,
    pub memory_mib: i64,
}

impl Room {
    #[must_use]
    pub fn new(slots: u32, memory_mib: u64) -> Room {
        Room {
            slots: i64::from(slots),
            memory_mib: i64::try_from(memory_mib).unwrap_or(i64::MAX),
        }
    }

    /// Whether `need` finds room.
    #[must_use]
    pub fn holds(self, need: Room) -> bool {
        (need.slots <= 0 || self.slots >= need.slots)
            && (need.memory_mib <= 0 || self.memory_mib >= need.memory_mib)
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Room) -> Room {
        Room {
            slots: self.slots.max(other.slots),
            memory_mib: self.memory_mib.max(other.memory_mib),
        }
    }

    #[must_use]
    pub fn plus(self, other: Room) -> Room {
        Room {
            slots: self.slots.saturating_add(other.slots),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    #[must_use]
    pub fn minus(self, other: Room) -> Room {
        Room {
            slots: self.slots.saturating_sub(other.slots),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: u64,
    /// Free from `at` until the next step.
    free: Room,
}

/// Free room from now on. Between two dips it only grows, so that whether a job fits from now until
/// its end is decided by what is free now and at each dip before that end.
#[derive(Debug)]
pub(crate) struct Profile {
    /// In order; the first is now.
    steps: Vec<Step>,
    /// Times at which room is taken: starts of what is promised.
    dips: Vec<Step>,
}

impl Profile {
    /// `ends` are times in rising order with the room that becomes free then.
    pub fn new(now: u64, free: Room, ends: impl Iterator<Item = (u64, Room)>) -> Profile {
        let mut steps = vec![Step { at: now, free }];
        for (at, room) in ends {
            let last = steps[steps.len() - 1];
            let next = Step {
                at,
                free: last.free.plus(room),
            };
            if at <= last.at {
                let place = steps.len() - 1;
                steps[place].free = next.free;
            } else {
                steps.push(next);
            }
        }
        Profile {
            steps,
            dips: Vec::new(),
        }
    }

    /// What is free now.
    pub fn free(&self) -> Room {
        self.steps[0].free
    }

    /// Whether a job fits from now until `end`.
    pub fn fits_now(&self, need: Room, end: u64) -> bool {
        self.free().holds(need)
            && self
                .dips
                .iter()
                .all(|dip| dip.at >= end || dip.free.holds(need))
    }

    /// The longest time limit with which a job fits now, if it does with any.
    pub fn longest(&self, need: Room) -> Option<u64> {
        let full = self.dips.iter().filter(|dip| !dip.free.holds(need));
        let until = full.map(|dip| dip.at - self.steps[0].at).min()?;
        (self.free().holds(need) && until > 0).then_some(until)
    }

    /// The first time from which `need` is free for `limit_s` seconds, or for ever.
    pub fn earliest(&self, need: Room, limit_s: Option<u64>) -> Option<u64> {
        let mut since: Option<u64> = None;
        for step in &self.steps {
            if let Some(from) = since
                && limit_s.is_some_and(|limit| from.saturating_add(limit) <= step.at)
            {
                return since;
            }
            if step.free.holds(need) {
                since = since.or(Some(step.at));
            } else {
                since = None;
            }
        }
        since
    }

    /// Takes room from `from` until `end`.
    pub fn take(&mut self, need: Room, from: u64, end: u64) {
        let now = self.steps[0].at;
        let from = from.max(now);
        if end <= from {
            return;
        }
        let first = self.split(from);
        let last = if end == u64::MAX {
            self.steps.len()
        } else {
            self.split(end)
        };
        for step in &mut self.steps[first..last] {
            step.free = step.free.minus(need);
        }
        for dip in &mut self.dips {
            if dip.at >= from && dip.at < end {
                dip.free = dip.free.minus(need);
            }
        }
        if from > now {
            let step = self.steps[first];
            match self.dips.iter_mut().find(|dip| dip.at == from) {
                Some(dip) => dip.free = step.free,
                None => self.dips.push(step),
            }
        }
    }

    /// The place of the step that begins at `at`, which is made when there is none.
    fn split(&mut self, at: u64) -> usize {
        let place = self.steps.partition_point(|step| step.at < at);
        if self.steps.get(place).is_none_or(|step| step.at != at) {
            let free = self.steps[place - 1].free;
            self.steps.insert(place, Step { at, free });
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_between_what_is_promised() {
        let slots = |n| Room::new(n, 0);
        let ends = [(10, slots(2)), (10, slots(1)), (20, slots(5))];
        let mut profile = Profile::new(0, slots(2), ends.into_iter());
        assert_eq!(profile.earliest(slots(2), None), Some(0));
        assert_eq!(profile.earliest(slots(4), Some(5)), Some(10));
        assert_eq!(profile.earliest(slots(11), Some(5)), None);
        profile.take(slots(10), 20, 30);
        assert!(profile.fits_now(slots(2), 20));
        assert!(!profile.fits_now(slots(1), 21));
        assert_eq!(profile.earliest(slots(2), Some(21)), Some(30));
        assert_eq!(profile.earliest(slots(5), Some(10)), Some(10));
        profile.take(slots(2), 0, 20);
        assert!(!profile.fits_now(slots(1), 5));
        assert_eq!(profile.earliest(slots(10), None), Some(30));
    }

    #[test]
    fn memory_counts_where_it_was_asked_for() {
        let profile = Profile::new(0, Room::new(4, 100), std::iter::empty());
        assert!(profile.fits_now(Room::new(4, 100), 5));
        assert!(!profile.fits_now(Room::new(1, 101), 5));
        let full = Profile::new(
            0,
            Room::new(4, 0).minus(Room::new(0, 5)),
            std::iter::empty(),
        );
        assert!(full.fits_now(Room::new(1, 0), 5));
    }
}
