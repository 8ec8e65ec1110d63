//! What the launcher does when its job is stopped for others in its partition, and continued.

use std::io;
use std::time::{Duration, Instant};

use margay_sys_os::descriptor::PollSet;
use margay_sys_os::process::{ProcessFacts, parent};
use margay_sys_os::signal::{Received, SIGCONT};

use super::Launcher;
use crate::guard::Command;
use crate::turns::{Said, Turns};

/// How often the launcher of a job with a limit of time looks at it, at least. It was stopped when
/// so much more time has passed than it wanted to wait.
const TICK: Duration = Duration::from_millis(100);

/// Whether this process is below another one, other than the first of the machine.
fn is_ancestor(other: u32) -> bool {
    let above = |&pid: &u32| ProcessFacts::of(pid).map(|facts| facts.parent);
    std::iter::successors(Some(parent()), above)
        .take_while(|&pid| pid > 1)
        .any(|pid| pid == other)
}

impl Launcher<'_> {
    /// The ranks were stopped or continued: limits of time count the time in which they run.
    pub(super) fn on_keeper(&mut self) {
        while let Some(turns) = &mut self.own.turns
            && let Some(said) = turns.news()
        {
            let was_out = match said {
                // Processes of other hosts are not the keeper's to stop.
                Said::Out if self.guard.relays() => {
                    self.guard.tell(Command::Halt);
                    continue;
                }
                Said::Out | Said::Refused(_) => continue,
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

    /// Waits, and notes how much longer that took than it wanted to wait.
    pub(super) fn wait(&mut self, poll: &mut PollSet, limit: Option<Duration>) -> io::Result<()> {
        let begun = Instant::now();
        poll.wait(limit)?;
        let more = limit.and_then(|limit| begun.elapsed().checked_sub(limit));
        self.looks.late = more.unwrap_or_default();
        Ok(())
    }

    /// Passes a signal on to the ranks. When it continues the launcher, which was stopped with them
    /// for the turn of another job of the queue, that time does not count either; that the machine
    /// has too much to do is no reason. Who has stopped all below itself continues all that it has
    /// stopped, and not what a program has stopped for itself.
    pub(super) fn pass_on(&mut self, Received { signal, sender }: Received) {
        let late = std::mem::take(&mut self.looks.late);
        if signal == SIGCONT && late >= TICK {
            self.timeout_at = self.timeout_at.map(|at| at + late);
            self.looks.postpone(late);
        }
        if signal != SIGCONT || !is_ancestor(sender) {
            self.guard.tell(Command::Signal(signal));
        }
    }

    /// When it looks at the time, if that has a limit.
    pub(super) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let has_limit = self.timeout_at.is_some() && !self.is_out();
        has_limit.then(|| now + TICK)
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
