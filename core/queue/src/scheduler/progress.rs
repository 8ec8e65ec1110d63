//! How far jobs have come that others depend on.

use std::collections::BTreeSet;

use super::{Ends, Scheduler};
use crate::job::{After, Awaited, Dependency, JobId, Phase};

/// How far the tasks have come that dependencies name by one number.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    waiting: usize,
    running: usize,
    ok: usize,
    failed: usize,
    pub(super) dependents: BTreeSet<JobId>,
}

/// How it stands with a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Met,
    Open,
    Lost,
}

impl Named {
    fn count(&mut self, phase: Phase) -> &mut usize {
        match phase {
            Phase::Waiting => &mut self.waiting,
            Phase::Running(_) => &mut self.running,
            Phase::Ended(end) if end.is_ok() => &mut self.ok,
            Phase::Ended(_) => &mut self.failed,
        }
    }

    fn standing(&self, after: After) -> Standing {
        let live = self.waiting + self.running;
        let all = live + self.ok + self.failed;
        let (is_met, is_lost) = match after {
            After::Start => (self.waiting == 0, false),
            After::Any => (live == 0, false),
            After::Ok => (live == 0 && self.failed == 0, self.failed > 0),
            // As Slurm has it for arrays: any task that failed is enough, when all have ended.
            After::NotOk => (live == 0 && self.failed > 0, live == 0),
        };
        match (is_met && all > 0, is_lost || all == 0) {
            (true, _) => Standing::Met,
            (false, true) => Standing::Lost,
            (false, false) => Standing::Open,
        }
    }
}

/// By which others may wait for a job: as a task, by its own number, and by that of its array.
fn names_of(id: JobId, array: Option<JobId>) -> impl Iterator<Item = Awaited> {
    let own = Some(id).filter(|id| Some(*id) != array);
    let whole = own.into_iter().chain(array).map(|id| (id, false));
    std::iter::once((id, true)).chain(whole)
}

impl Scheduler {
    pub(super) fn depend(&mut self, id: JobId, dependency: Dependency, ended: Ends<'_>) {
        let on = dependency.awaited();
        let (job, is_task) = on;
        if !self.named.contains_key(&on) {
            let mut named = Named::default();
            for end in ended(on) {
                *named.count(Phase::Ended(end)) += 1;
            }
            let tasks = self.jobs.range(job..);
            let of_it = tasks.take_while(|(id, queued)| {
                **id == job || !is_task && queued.job.array == Some(job)
            });
            for (_, queued) in of_it {
                *named.count(queued.job.phase) += 1;
            }
            self.named.insert(on, named);
        }
        let Some(named) = self.named.get_mut(&on) else {
            return;
        };
        match named.standing(dependency.after) {
            Standing::Met => {}
            standing => {
                named.dependents.insert(id);
                if let Some(queued) = self.jobs.get_mut(&id) {
                    queued.unmet.push(dependency);
                }
                if standing == Standing::Lost {
                    self.lost.insert(id, dependency);
                }
            }
        }
        self.drop_named(on);
    }

    pub(super) fn drop_named(&mut self, on: Awaited) {
        if self
            .named
            .get(&on)
            .is_some_and(|named| named.dependents.is_empty())
        {
            self.named.remove(&on);
        }
    }

    /// Follows a change of phase for those that depend on it.
    pub(super) fn note_phase(
        &mut self,
        id: JobId,
        array: Option<JobId>,
        old: Option<Phase>,
        new: Option<Phase>,
    ) {
        for on in names_of(id, array) {
            let Some(named) = self.named.get_mut(&on) else {
                continue;
            };
            if let Some(old) = old {
                let count = named.count(old);
                *count = count.saturating_sub(1);
            }
            if let Some(new) = new {
                *named.count(new) += 1;
            }
            let dependents: Vec<JobId> = named.dependents.iter().copied().collect();
            let named = named.clone();
            for id in dependents {
                self.look_again(id, on, &named);
            }
            self.drop_named(on);
        }
    }

    /// Whether others wait for a job's start or end.
    #[must_use]
    pub fn is_awaited(&self, id: JobId) -> bool {
        let array = self.jobs.get(&id).and_then(|queued| queued.job.array);
        names_of(id, array).any(|on| self.named.contains_key(&on))
    }

    fn look_again(&mut self, id: JobId, on: Awaited, named: &Named) {
        let Some(queued) = self.jobs.get_mut(&id) else {
            return;
        };
        let mut is_lost = None;
        queued.unmet.retain(|dependency| {
            let standing = match dependency.awaited() == on {
                true => named.standing(dependency.after),
                false => Standing::Open,
            };
            if standing == Standing::Lost {
                is_lost = Some(*dependency);
            }
            standing != Standing::Met
        });
        let depends = queued
            .unmet
            .iter()
            .any(|dependency| dependency.awaited() == on);
        match is_lost {
            Some(dependency) => {
                self.lost.insert(id, dependency);
            }
            // A task that came later, or runs again, has changed what was lost.
            None if self.lost.get(&id).is_some_and(|lost| lost.awaited() == on) => {
                self.lost.remove(&id);
            }
            None => {}
        }
        if !depends {
            if let Some(named) = self.named.get_mut(&on) {
                named.dependents.remove(&id);
            }
            self.place(id);
        }
    }
}
