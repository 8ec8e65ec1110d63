//! What the launcher does when its job is stopped for others in its partition, and continued.

use super::Launcher;
use crate::guard::Command;
use crate::turns::{Said, Turns};

impl Launcher<'_> {
    /// The ranks were stopped or continued: limits of time count the time in which they run.
    pub(super) fn on_keeper(&mut self) {
        while let Some(turns) = &mut self.own.turns
            && let Some(said) = turns.next()
        {
            let was_out = match said {
                // Processes of other hosts are not the keeper's to stop.
                Said::Out if self.guard.relays() => {
                    self.guard.tell(Command::Halt);
                    continue;
                }
                Said::Out => continue,
                Said::In(was_out) => {
                    if self.guard.relays() {
                        self.guard.tell(Command::Resume);
                    }
                    was_out
                }
                Said::Gone => {
                    let was_out = turns.out_for();
                    self.guard.tell(Command::Resume);
                    if self.alive > 0 && self.ending.kill_at.is_none() {
                        let name = &self.job.launcher;
                        let text = format!(
                            "{name}: the job takes no turns any more: its keeper has died\n"
                        );
                        self.say(&text);
                    }
                    was_out
                }
            };
            self.timeout_at = self.timeout_at.map(|at| at + was_out);
            self.looks.postpone(was_out);
        }
    }

    /// The ranks are stopped on all hosts.
    pub(super) fn on_halted(&self) {
        if let Some(turns) = &self.own.turns {
            turns.halted();
        }
    }

    /// Whether the ranks are stopped until their next turn.
    pub(super) fn is_out(&self) -> bool {
        self.own.turns.as_ref().is_some_and(Turns::is_out)
    }
}
