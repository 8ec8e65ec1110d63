//! How often the ranks of each host were looked at, of how often was asked.

use std::collections::BTreeMap;
use std::time::Duration;

use margay_core_registry::Phase;
use margay_net_platform::Peers;
use serde::{Deserialize, Serialize};

use crate::waits::rank_ranges;

/// Looks at the ranks of a host. The field names are those of `margay profile --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostLooks {
    pub host: String,
    pub ranks: Vec<u32>,
    pub looks: u64,
    /// Looks that the rate makes in that time.
    pub asked: u64,
    /// Since when the host has not answered, in seconds from the first look. Null: it has.
    pub silent_since_s: Option<f64>,
}

/// Looks that a rate makes in some time, of which `looks` were taken.
pub(crate) fn asked(rate: u32, within: Duration, looks: u64) -> u64 {
    let whole = (within.as_secs_f64() * f64::from(rate)).round() as u64;
    whole.max(looks)
}

/// What hosts have answered, of those that were asked again and again.
#[derive(Default)]
pub(crate) struct Answers {
    hosts: BTreeMap<u32, HostLooks>,
    /// Since when each host is silent.
    silent: BTreeMap<u32, Duration>,
    /// For how long they were asked.
    pub(crate) within: Duration,
}

impl Answers {
    /// None yet, of the hosts of `ranks`.
    pub(crate) fn of(peers: &dyn Peers, ranks: &[u32]) -> Answers {
        let mut answers = Answers::default();
        for &rank in ranks {
            let host = peers.host(rank);
            let looks = answers.hosts.entry(host).or_default();
            looks.ranks.push(rank);
            if looks.host.is_empty() {
                looks.host = peers.host_name(host);
            }
        }
        answers
    }

    /// All hosts are asked, at this time since the first look.
    pub(crate) fn ask(&mut self, now: Duration) {
        for &host in self.hosts.keys() {
            self.silent.entry(host).or_insert(now);
        }
    }

    /// A host has answered.
    pub(crate) fn add(&mut self, peers: &dyn Peers, answer: &[HostLooks]) {
        for of in answer {
            let Some(host) = of.ranks.first().map(|&rank| peers.host(rank)) else {
                continue;
            };
            self.silent.remove(&host);
            if let Some(looks) = self.hosts.get_mut(&host) {
                looks.looks += of.looks;
            }
        }
    }

    /// The looks at each host. One that is silent because its ranks have finalized is not.
    pub(crate) fn finish(self, peers: &dyn Peers, rate: u32, whole: Duration) -> Vec<HostLooks> {
        let finish = |(host, mut looks): (u32, HostLooks)| {
            let mut ranks = looks.ranks.iter();
            let is_over = ranks.all(|&rank| peers.phase(rank) == Phase::Finalized);
            let since = self.silent.get(&host).filter(|_| !is_over);
            looks.silent_since_s = since.map(Duration::as_secs_f64);
            let within = match since {
                Some(_) => whole,
                None => self.within,
            };
            looks.asked = asked(rate, within, looks.looks);
            looks
        };
        self.hosts.into_iter().map(finish).collect()
    }
}

/// As lines of at most 80 columns: hosts that are silent first, then those of which the smallest
/// part of the looks was taken.
pub(crate) fn lines(hosts: &[HostLooks]) -> Vec<String> {
    /// Hosts that are named.
    const MOST: usize = 20;
    let part = |of: &HostLooks| of.looks as f64 / of.asked.max(1) as f64;
    let mut hosts: Vec<&HostLooks> = hosts.iter().collect();
    hosts.sort_by(|a, b| {
        let silent = b.silent_since_s.is_some().cmp(&a.silent_since_s.is_some());
        silent.then(part(a).total_cmp(&part(b)))
    });
    let mut lines = Vec::new();
    for of in hosts.iter().take(MOST) {
        let at = match hosts.len() {
            1 => String::new(),
            _ => format!("{}: ", shortened(&of.host, 22)),
        };
        let ranks = match of.ranks[..] {
            [rank] => format!("rank {rank}"),
            _ => format!("ranks {}", shortened(&rank_ranges(&of.ranks), 20)),
        };
        lines.push(format!("{at}{} of {} looks at {ranks}", of.looks, of.asked));
        if let Some(seconds) = of.silent_since_s {
            lines.push(format!(
                "  no answer since {seconds:.1} s: {ranks} are missing from then on"
            ));
        }
    }
    if hosts.len() > MOST {
        lines.push(format!("and {} more hosts", hosts.len() - MOST));
    }
    let is_slow = |of: &&HostLooks| of.silent_since_s.is_none() && part(of) < 0.9;
    if hosts.iter().any(is_slow) {
        lines.push("a look took longer than the time between two: take a lower --rate".to_owned());
    }
    lines
}

fn shortened(text: &str, columns: usize) -> String {
    match text.chars().count() <= columns {
        true => text.to_owned(),
        false => text.chars().take(columns - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_were_left_out_are_named_and_who_is_silent_comes_first() {
        let of = |host: &str, first, looks, silent_since_s| HostLooks {
            host: host.into(),
            ranks: vec![first, first + 1],
            looks,
            asked: 100,
            silent_since_s,
        };
        let text = lines(&[
            of("a", 0, 100, None),
            of("b", 2, 13, None),
            of("c", 4, 40, Some(0.4)),
        ]);
        assert_eq!(
            text,
            [
                "c: 40 of 100 looks at ranks 4, 5",
                "  no answer since 0.4 s: ranks 4, 5 are missing from then on",
                "b: 13 of 100 looks at ranks 2, 3",
                "a: 100 of 100 looks at ranks 0, 1",
                "a look took longer than the time between two: take a lower --rate",
            ]
        );
        assert_eq!(
            lines(&[of("a", 0, 95, None)]),
            ["95 of 100 looks at ranks 0, 1"]
        );
    }

    #[test]
    fn no_more_looks_are_taken_than_asked() {
        assert_eq!(asked(50, Duration::from_millis(999), 50), 50);
        assert_eq!(asked(50, Duration::from_millis(1000), 51), 51);
        assert_eq!(asked(100, Duration::from_millis(1001), 13), 100);
    }
}
