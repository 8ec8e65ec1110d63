//! Who may do what with which job, and who sees what of it.

use margay_core_queue::{JobId, Phase, Wishes};
use margay_svc_queue_wire::{Bytes, Detail, JobRow, Order, Target};

use super::Head;
use crate::callers::Caller;

/// Jobs of one user who is not root that wait or run, in the queue that all share: the memory of
/// the head is everybody's.
const MOST_JOBS: usize = 100_000;

impl Head {
    /// The jobs that targets name and that wait or run; of all, those that the caller may change.
    ///
    /// # Errors
    /// When there is no such job, or it is somebody else's.
    pub fn changeable(&self, targets: &[Target], caller: &Caller) -> Result<Vec<JobId>, String> {
        let mut jobs = self.live(targets)?;
        let others = |id: &JobId| self.entries.get(id).filter(|entry| !caller.may(entry.uid));
        if !targets.is_empty()
            && let Some(entry) = jobs.iter().find_map(others)
        {
            return Err(format!(
                "job {} is of the user {}, who has the right to change it, as root has",
                entry.shown(),
                entry.user
            ));
        }
        jobs.retain(|id| others(id).is_none());
        Ok(jobs)
    }

    /// The numbers of a caller's jobs that wait or run, of arrays with the number of their tasks.
    ///
    /// # Errors
    /// In words.
    pub fn numbers(&self, caller: &Caller) -> Result<Vec<(JobId, usize)>, String> {
        let mut numbers: Vec<(JobId, usize)> = Vec::new();
        for id in self.changeable(&[], caller)? {
            let array = self.entries.get(&id).and_then(|entry| entry.job.array);
            let number = array.unwrap_or(id);
            match numbers.last_mut() {
                Some((last, count)) if *last == number => *count += 1,
                _ => numbers.push((number, 1)),
            }
        }
        Ok(numbers)
    }

    /// How many jobs of a caller wait or run, where that is limited.
    pub(super) fn count_of(&self, caller: &Caller) -> usize {
        if caller.is_master {
            return 0;
        }
        let all = self.entries.values();
        all.filter(|entry| entry.uid == caller.uid).count()
    }

    /// Whether a caller may have this job as well, as it is asked for, with the jobs that it has.
    pub(super) fn has_room_for(
        &self,
        order: &Order,
        caller: &Caller,
        has: usize,
    ) -> Result<(), String> {
        let wishes = &order.wishes;
        check_priority(wishes.priority, caller)?;
        let tasks = wishes.array.as_ref().map_or(1, |array| array.indices.len());
        if !caller.is_master && has + tasks > MOST_JOBS {
            return Err(format!(
                "a user may have {MOST_JOBS} jobs that wait or run, and {has} are there; wait until some have ended"
            ));
        }
        Ok(())
    }
}

/// Whether a caller may give a job this priority.
///
/// # Errors
/// In words.
pub fn check_priority(priority: Option<i64>, caller: &Caller) -> Result<(), String> {
    match priority {
        Some(asked) if asked > 0 && !caller.is_master => Err(format!(
            "the right to give a priority above 0 is root's, and it asks for {asked}; leave it out"
        )),
        _ => Ok(()),
    }
}

/// Takes out of a row what is for its user alone: notes name files, steps what was run.
pub fn veil_row(row: &mut JobRow, caller: &Caller) {
    if !caller.may(row.uid) && matches!(row.phase, Phase::Ended(_)) {
        row.note.clear();
        row.steps.iter_mut().for_each(|step| step.name.clear());
    }
}

/// Takes out of all that is known of a job what is for its user alone.
pub fn veil(detail: &mut Detail, caller: &Caller) {
    if caller.may(detail.row.uid) {
        return;
    }
    veil_row(&mut detail.row, caller);
    detail.wishes = Wishes {
        size: detail.wishes.size,
        dialect: detail.wishes.dialect,
        ..Wishes::default()
    };
    detail.command = Vec::new();
    detail.is_script = false;
    for path in [
        &mut detail.directory,
        &mut detail.stdout,
        &mut detail.stderr,
    ] {
        *path = Bytes::default();
    }
}
