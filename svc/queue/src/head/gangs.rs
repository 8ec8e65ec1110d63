//! Queues whose jobs take turns in partitions: the cores of these, as their table has them now.

use margay_core_queue::{Gang, Phase};

use super::Head;
use crate::{gang, log};

/// How often the table is looked at while jobs wait.
const LOOK_EVERY_S: u64 = 5;

impl Head {
    /// Finds the partition of a queue.
    ///
    /// # Errors
    /// In words: why jobs cannot take turns there.
    pub(super) fn find_gang(&self, name: &str) -> Result<Gang, String> {
        let number = self
            .hosts
            .as_ref()
            .map(|hosts| |name: &str| Some(hosts.number(name)).filter(|at| *at < u32::MAX));
        let number = number
            .as_ref()
            .map(|number| number as &dyn Fn(&str) -> Option<u32>);
        gang::find(name, self.resources.readable.is_some(), number)
    }

    fn has_gangs(&self) -> bool {
        let mut queues = self.scheduler.settings().queues.values();
        queues.any(|rules| rules.gang.is_some())
    }

    /// Takes note of partitions that have changed. Jobs wait for one that is gone.
    pub(super) fn see_partitions(&mut self) {
        if !self.has_gangs() {
            return;
        }
        let stamp = gang::stamp();
        if self.partitions.replace(stamp) == Some(stamp) {
            return;
        }
        let mut settings = self.scheduler.settings().clone();
        for (name, rules) in &mut settings.queues {
            let Some(gang) = &mut rules.gang else {
                continue;
            };
            let found = self.find_gang(&gang.partition).unwrap_or_else(|text| {
                log(&format!("jobs of the queue {name} wait: {text}"));
                Gang::default()
            });
            (gang.cores, gang.hosts) = (found.cores, found.hosts);
        }
        if settings != *self.scheduler.settings() {
            self.scheduler.set(settings);
            self.is_changed = true;
        }
    }

    /// After how many seconds the table is looked at, although nothing happens until then.
    pub(super) fn partitions_pause_s(&self) -> Option<u64> {
        let mut jobs = self.entries.values().map(|entry| &entry.job);
        let is_awaited = self.has_gangs() && jobs.any(|job| job.phase == Phase::Waiting);
        is_awaited.then_some(LOOK_EVERY_S)
    }
}
