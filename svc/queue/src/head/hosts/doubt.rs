//! Jobs of several hosts that have ended badly: when one of their hosts has gone, what the job has
//! there or its `mpiexec` may see that before the head does. Then the job was lost, and has not
//! failed. So the hosts are asked, and the end counts when all have answered or one has gone. A
//! host that goes down process by process may answer once more: it is asked again a little later.

use std::time::{Duration, Instant};

use margay_core_queue::{End, JobId};

use crate::away::LOST_AFTER;
use crate::head::Head;
use crate::head::hosts::Hosts;
use crate::log;
use crate::store::Finish;

/// After how long hosts are asked again. The processes of a host that is shut down, or whose cgroup
/// is killed, go within less.
const AGAIN: Duration = Duration::from_secs(1);

/// A job whose end is in doubt.
#[derive(Debug)]
pub struct Doubt {
    id: JobId,
    finish: Finish,
    /// Its other hosts.
    hosts: Vec<usize>,
    /// Those that have not answered yet.
    asked: Vec<usize>,
    /// When they are asked once more; none before all have answered, and afterwards.
    again: Option<Instant>,
    is_asked_again: bool,
    /// When nothing of the job runs any more on a host that has gone, and which in words.
    lost: Option<(Instant, String)>,
}

impl Doubt {
    /// Something was heard of a host: that it is there, or since when it is silent, and why.
    pub fn hear(&mut self, host: usize, silent: Option<(Instant, String)>) {
        if !self.asked.contains(&host) {
            return;
        }
        self.asked.retain(|other| *other != host);
        let lost = silent.map(|(since, why)| (since + LOST_AFTER, why));
        self.lost = self.lost.take().max(lost);
        if self.asked.is_empty() && !self.is_asked_again {
            self.again = Some(Instant::now() + AGAIN);
        }
    }

    /// Whether its hosts are to be asked once more, now.
    fn is_due_again(&mut self) -> bool {
        if self.lost.is_some() || self.again.is_none_or(|at| at > Instant::now()) {
            return false;
        }
        (self.again, self.is_asked_again) = (None, true);
        self.asked.clone_from(&self.hosts);
        true
    }

    /// How long it is until something is to be done; none while that is not known.
    fn left(&self) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        match (&self.lost, self.again) {
            (Some((at, _)), _) => Some(until(*at)),
            (None, Some(at)) => Some(until(at)),
            (None, None) => self.asked.is_empty().then_some(Duration::ZERO),
        }
    }

    /// Whether nothing more can be learnt of it.
    fn is_over(&self) -> bool {
        let is_open = self.lost.is_none() && self.again.is_some();
        !is_open && self.left() == Some(Duration::ZERO)
    }
}

impl Hosts {
    /// Asks the hosts that a doubt waits for, but those that are silent already.
    fn ask_about(&self, doubt: &mut Doubt) {
        for at in doubt.asked.clone() {
            match self.known[at].silence() {
                None => self.agents.ask_now(at),
                silent => doubt.hear(at, silent),
            }
        }
    }
}

impl Head {
    /// Whether the end of a job is in doubt; it is concluded later then.
    pub(in crate::head) fn doubt(&mut self, id: JobId, finish: &Finish) -> bool {
        let is_bad = match finish.end {
            End::Exit(code) => code != 0,
            End::Signal(_) => true,
            End::TimeLimit | End::MemoryLimit | End::Cancelled | End::NotStarted | End::Lost => {
                false
            }
        };
        let (Some(hosts), Some(job)) = (&self.hosts, self.scheduler.job(id)) else {
            return false;
        };
        if !is_bad || job.parts.len() < 2 {
            return false;
        }
        let known = job.parts.iter().map(|part| part.host as usize);
        let other = |at: &usize| hosts.known.get(*at).is_some_and(|host| !host.is_here);
        let asked: Vec<usize> = known.filter(other).collect();
        let mut doubt = Doubt {
            id,
            finish: finish.clone(),
            asked: asked.clone(),
            hosts: asked,
            again: None,
            is_asked_again: false,
            lost: None,
        };
        hosts.ask_about(&mut doubt);
        self.doubts.push(doubt);
        self.settle_doubts();
        true
    }

    /// Concludes the ends that are in doubt no more.
    pub(in crate::head) fn settle_doubts(&mut self) {
        let is_cancelled = |id: JobId| self.entries.get(&id).is_none_or(|entry| entry.is_cancelled);
        let is_settled = |doubt: &mut Doubt| {
            if is_cancelled(doubt.id) {
                doubt.lost = None;
                return true;
            }
            doubt.is_over()
        };
        if let Some(hosts) = &self.hosts {
            for doubt in &mut self.doubts {
                if doubt.is_due_again() {
                    hosts.ask_about(doubt);
                }
            }
        }
        let settled: Vec<Doubt> = self.doubts.extract_if(.., is_settled).collect();
        for doubt in settled {
            let Doubt {
                id,
                mut finish,
                lost,
                ..
            } = doubt;
            if let Some((_, note)) = lost {
                log(&format!("job {id} is lost: {note}"));
                (finish.end, finish.note) = (End::Lost, note);
            }
            self.conclude(id, finish);
        }
    }

    /// After how many seconds an end is to be concluded, if one is.
    pub(in crate::head) fn doubts_pause_s(&self) -> Option<u64> {
        let left = self.doubts.iter().filter_map(Doubt::left).min()?;
        Some(left.as_secs() + 1)
    }
}
