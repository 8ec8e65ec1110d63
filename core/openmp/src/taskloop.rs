//! How a taskloop is cut into tasks.

/// What the program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This many tasks, or, for 0, as many as the team has members.
    Tasks(u64),
    /// Tasks of at least this many iterations and fewer than twice as many.
    Grain(u64),
    /// Tasks of exactly this many iterations, but for the last.
    StrictGrain(u64),
}

/// A taskloop's tasks: `tasks` of them, of which the first `longer` have one iteration more than
/// `width`; the last of a strict grain may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    pub tasks: u64,
    pub width: u64,
    pub longer: u64,
    count: u64,
}

impl Tasks {
    /// Cuts `count` iterations, at least one.
    #[must_use]
    pub fn cut(count: u64, cut: Cut, members: u64) -> Tasks {
        let tasks = match cut {
            Cut::StrictGrain(grain) => {
                let width = grain.clamp(1, count.max(1));
                return Tasks {
                    tasks: count.div_ceil(width),
                    width,
                    longer: 0,
                    count,
                };
            }
            Cut::Tasks(0) => members,
            Cut::Tasks(tasks) => tasks,
            Cut::Grain(grain) => count / grain.max(1),
        };
        let tasks = tasks.clamp(1, count.max(1));
        Tasks {
            tasks,
            width: count / tasks,
            longer: count % tasks,
            count,
        }
    }

    /// The iterations `[first, end)` of task `number`.
    #[must_use]
    pub fn of(&self, number: u64) -> (u64, u64) {
        let first = number * self.width + number.min(self.longer);
        let end = first + self.width + u64::from(number < self.longer);
        (first, end.min(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_the_loop_and_keep_to_the_grain() {
        // Miri takes a thousand times as long.
        for count in (1..200).step_by(if cfg!(miri) { 61 } else { 1 }) {
            for size in 1..40 {
                for cut in [
                    Cut::Tasks(size),
                    Cut::Grain(size),
                    Cut::StrictGrain(size),
                    Cut::Tasks(0),
                ] {
                    let tasks = Tasks::cut(count, cut, 3);
                    let mut at = 0;
                    for number in 0..tasks.tasks {
                        let (first, end) = tasks.of(number);
                        assert!(first == at && end > first);
                        match cut {
                            Cut::Grain(grain) if count >= grain => {
                                assert!(end - first >= grain && end - first < 2 * grain);
                            }
                            Cut::StrictGrain(grain) if number + 1 < tasks.tasks => {
                                assert_eq!(end - first, grain);
                            }
                            _ => {}
                        }
                        at = end;
                    }
                    assert_eq!(at, count);
                }
            }
        }
    }
}
