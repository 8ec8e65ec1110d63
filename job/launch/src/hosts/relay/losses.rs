//! Hosts that are lost, and ranks that cannot be reached: the end of the job, or, where the others
//! go on when ranks die (`-continue-on-failure`), that of the ranks of a host.

use std::io;
use std::time::{Duration, Instant};

use margay_core_registry::hosts::{self, Table, UNANSWERED};
use margay_job_observe::state::Activity;
use margay_sys_os::clock;

use super::super::mirror::Ended;
use super::super::wire::{self, Writer, kind};
use super::Relay;

/// A rank cannot reach another one.
pub(super) struct LostLink {
    /// When it is judged, if no end of a rank explains it.
    pub(super) until: Instant,
    /// Who cannot reach whom.
    ranks: [u32; 2],
    /// Their hosts.
    hosts: [usize; 2],
    text: String,
}

impl LostLink {
    /// Whether that rank is the one that cannot be reached.
    pub(super) fn is_of(&self, rank: u32) -> bool {
        self.ranks[1] == rank
    }
}

impl Relay {
    /// An agent is gone.
    pub(super) fn lose(&mut self, at: usize, text: String) {
        self.hosts[at].give_up();
        self.answers.end_of_host(at);
        self.records.end_of_host(at);
        let is_news = self.kill_by.is_none();
        for output in self.outputs.values_mut().filter(|o| o.host == at) {
            output.is_over = true;
        }
        self.flush_outputs();
        if !is_news {
            return;
        }
        if !self.is_tolerant || !self.is_running {
            self.complain(text, 1);
        } else {
            let living = self.living(at);
            self.go_on(text, &living);
            self.end_living(at);
        }
        self.lose_those_behind(at);
    }

    /// Who was reached through a host that is gone is not reached any more, and ends by itself.
    fn lose_those_behind(&mut self, at: usize) {
        let goes_on = self.is_tolerant && self.is_running;
        for behind in self.behind(at) {
            match goes_on && self.hosts[behind].is_there() {
                true => {
                    let (host, lost) = (&self.hosts[behind].host, &self.hosts[at].host);
                    let text = format!("host {host} was reached through {lost}");
                    self.lose(behind, text);
                }
                false => self.hosts[behind].give_up(),
            }
        }
    }

    /// The ranks of a host whose end is not known.
    fn living(&self, at: usize) -> Vec<u32> {
        let own = (0..).zip(&self.host_of).filter(|&(_, of)| *of == at as u32);
        let living = own.filter(|&(rank, _)| !self.segment.registry().has_exited(rank));
        living.map(|(rank, _)| rank).collect()
    }

    /// No process is left on a host: its ranks have ended, though their guard, which was to kill
    /// them, says nothing of each.
    pub(super) fn end_living(&mut self, at: usize) {
        if self.is_tolerant && self.is_running && self.kill_by.is_none() {
            for rank in self.living(at) {
                self.end_rank(at, Ended::lost(&self.segment, rank));
            }
        }
    }

    /// Says that these ranks are lost, and that the job goes on without them.
    fn go_on(&mut self, text: String, ranks: &[u32]) {
        if ranks.is_empty() {
            return;
        }
        let (many, count) = match ranks.len() {
            1 => ("rank", "counts"),
            _ => ("ranks", "count"),
        };
        let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
        // Elsewhere such an end is that of the job.
        let text = text.trim_end_matches("; the job has been ended");
        let text = format!("{text}; {many} {} {count} as dead", list.join(", "));
        self.complain(text, 0);
    }

    /// A rank cannot reach another one. Where the others go on, one of the two hosts is given up:
    /// its ranks are killed if its agent can still be reached, and that ends them by itself if not,
    /// so that who counts as dead is dead.
    pub(super) fn judge_lost_link(&mut self, at: usize) {
        let link = self.lost.remove(at);
        if !self.is_tolerant || self.kill_by.is_some() {
            return self.complain(format!("{}; the job has been ended", link.text), 1);
        }
        let at = self.more_cut_off(link.hosts);
        self.lost.retain(|other| !other.hosts.contains(&at));
        if !self.living(at).is_empty() {
            let host = &self.hosts[at].host;
            let text = format!("{}; the ranks of host {host} are ended", link.text);
            self.complain(text, 0);
            self.hosts[at].say(&Writer::new(kind::KILL).done());
        }
    }

    /// Of two hosts between which there is no way, the one that more others cannot reach either; in
    /// doubt the later one.
    fn more_cut_off(&self, [one, other]: [usize; 2]) -> usize {
        let cut_off_from = |host: usize| {
            let links = self.lost.iter().filter(|link| link.hosts.contains(&host));
            let mut others: Vec<usize> = links
                .flat_map(|link| link.hosts)
                .chain([one, other])
                .filter(|&other| other != host)
                .collect();
            others.sort_unstable();
            others.dedup();
            (others.len(), host)
        };
        match cut_off_from(one) > cut_off_from(other) {
            true => one,
            false => other,
        }
    }

    /// Whether a rank has waited in the library for so long that it would have answered who
    /// connects to it. One that computes does not, and one that is stopped does not.
    fn would_answer(&self, rank: u32) -> bool {
        let now = clock::now_ns();
        let note = self.segment.note(0, hosts::KEY);
        let report = note.and_then(|note| Table::read(&note)?.reported(rank));
        let is_stopped = report.is_none_or(|r| r.activity == Activity::Stopped.number());
        let waits = self.segment.registry().waits(rank);
        let lasts = |since_ns: u64| now.saturating_sub(since_ns) >= 1_000_000 * wire::SILENCE_MS;
        !is_stopped && waits.listed.iter().any(|wait| lasts(wait.since_ns))
    }

    fn addresses_of(&self, host: usize) -> String {
        let addresses = self.hosts[host].addresses.iter();
        let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
        addresses.join(", ")
    }

    /// A rank cannot reach another one. That one's end may be on its way to us, and others may not
    /// have noticed yet which host it is that is cut off.
    pub(super) fn note_lost(&mut self, rank: u32, to: u32, errno: i32) {
        let at = |rank: u32| self.host_of.get(rank as usize).map(|&at| at as usize);
        let (Some(here), Some(there)) = (at(rank), at(to)) else {
            return;
        };
        let name = |at: usize| &self.hosts[at].host;
        let pair = format!(
            "rank {rank} on host {} cannot reach rank {to} on host {}",
            name(here),
            name(there)
        );
        let text = match errno {
            UNANSWERED if !self.would_answer(to) => return,
            UNANSWERED => format!(
                "{pair}: something else takes the connections to one of its addresses ({}) and does not answer, and the \
                 others cannot be reached: a firewall between the hosts (-port-range names the ports), or an address that \
                 several hosts have",
                self.addresses_of(there)
            ),
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                format!(
                    "{pair} ({error}): a firewall between the hosts (-port-range names the ports), or the network is down"
                )
            }
        };
        let pause_s = if self.is_tolerant { 3 } else { 1 };
        self.lost.push(LostLink {
            until: Instant::now() + Duration::from_secs(pause_s),
            ranks: [rank, to],
            hosts: [here, there],
            text,
        });
    }
}
