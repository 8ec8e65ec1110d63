//! What the processor, the system and the recorders count of ranks while they are looked at.

use std::collections::BTreeMap;
use std::time::Instant;

use margay_net_platform::Peers;
use margay_sys_os::counters::{Counters, PROCESSOR, Usage, refusal};
use serde::{Deserialize, Serialize};

use crate::traffic::Traffic;
use crate::waits::rank_ranges;

/// Counts of a rank. The field names are those of `margay profile --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankCounts {
    pub rank: u32,
    /// How long it was looked at.
    pub seconds: f64,
    pub cpu_s: f64,
    pub faults: u64,
    pub disk_faults: u64,
    pub switches: u64,
    pub forced: u64,
    /// Messages that it has sent, and their bytes, as far as its recorder had them.
    pub messages: u64,
    pub bytes: u64,
    /// By the processor, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
}

/// Counts of the processor, of the program's own instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    pub cycles: u64,
    pub instructions: u64,
    pub loads: u64,
    /// Loads that the first cache did not have.
    pub first_misses: u64,
    /// Those that came from memory.
    pub last_misses: u64,
}

impl RankCounts {
    /// Adds what was counted of the same rank at another time.
    pub(crate) fn add(&mut self, more: &RankCounts) {
        self.seconds += more.seconds;
        self.cpu_s += more.cpu_s;
        self.faults += more.faults;
        self.disk_faults += more.disk_faults;
        self.switches += more.switches;
        self.forced += more.forced;
        self.messages += more.messages;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.processor = match (self.processor, more.processor) {
            (Some(one), Some(other)) => Some(one.with(other)),
            (one, other) => one.or(other),
        };
    }
}

impl Processor {
    fn with(self, of: Processor) -> Processor {
        Processor {
            cycles: self.cycles + of.cycles,
            instructions: self.instructions + of.instructions,
            loads: self.loads + of.loads,
            first_misses: self.first_misses + of.first_misses,
            last_misses: self.last_misses + of.last_misses,
        }
    }
}

/// While ranks are looked at.
pub(crate) struct Counting {
    began: Instant,
    ranks: Vec<(u32, u32, Usage, Option<Counters>)>,
    traffic: Traffic,
    /// Messages and bytes by rank.
    sent: BTreeMap<u32, (u64, u64)>,
    refused: Option<String>,
}

impl Counting {
    pub(crate) fn of(peers: &dyn Peers, ranks: &[u32]) -> Counting {
        let mut refused = None;
        let begin = |&rank: &u32| {
            let pid = peers.identity(rank).pid;
            let counters = match &refused {
                None => (Counters::of(pid, &PROCESSOR))
                    .map_err(|error| refused = Some(refusal(&error)))
                    .ok(),
                Some(_) => None,
            };
            Some((rank, pid, Usage::of(pid)?, counters))
        };
        let ranks = ranks.iter().filter_map(begin).collect();
        let mut traffic = Traffic::default();
        // What was sent before does not count.
        traffic.look(peers);
        traffic.lost = 0;
        Counting {
            began: Instant::now(),
            ranks,
            traffic,
            sent: BTreeMap::new(),
            refused,
        }
    }

    /// Reads what has been sent, before newer records take its place.
    pub(crate) fn look(&mut self, peers: &dyn Peers) {
        for ((from, _), stream) in self.traffic.look(peers) {
            let (messages, bytes) = self.sent.entry(from).or_default();
            *messages += stream.messages;
            *bytes = bytes.saturating_add(stream.bytes);
        }
    }

    /// Of ranks that have not ended. With how many records were lost, and why the processor's
    /// counters are not known.
    pub(crate) fn finish(mut self, peers: &dyn Peers) -> (Vec<RankCounts>, u64, Option<String>) {
        self.look(peers);
        let sent = self.sent;
        let seconds = self.began.elapsed().as_secs_f64();
        let counts = |(rank, pid, before, counters): (u32, u32, Usage, Option<Counters>)| {
            let used = Usage::of(pid)?.since(&before);
            let (messages, bytes) = sent.get(&rank).copied().unwrap_or_default();
            Some(RankCounts {
                rank,
                seconds,
                cpu_s: used.cpu_s,
                faults: used.faults,
                disk_faults: used.disk_faults,
                switches: used.switches,
                forced: used.forced,
                messages,
                bytes,
                processor: counters.and_then(|mut counters| processor(&counters.read())),
            })
        };
        let counts = self.ranks.into_iter().filter_map(counts).collect();
        (counts, self.traffic.lost, self.refused)
    }
}

fn processor(counts: &[u64]) -> Option<Processor> {
    let &[cycles, instructions, loads, first_misses, last_misses] = counts else {
        return None;
    };
    Some(Processor {
        cycles,
        instructions,
        loads,
        first_misses,
        last_misses,
    })
}

/// The counts of ranks as lines of text, a line for each group of ranks.
pub(crate) fn lines(groups: &[Vec<&RankCounts>]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<16} {:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7}",
        "A SECOND", "CPU %", "FAULTS", "FROM DISK", "SWITCHES", "FORCED", "MESSAGES", "MB"
    )];
    for group in groups {
        let seconds = seconds(group);
        let mean = |of: fn(&RankCounts) -> f64| {
            group.iter().map(|counts| of(counts)).sum::<f64>() / seconds
        };
        lines.push(format!(
            "{:<16} {:>7.1} {:>9.0} {:>9.0} {:>9.0} {:>8.0} {:>8.0} {:>7.1}",
            name(group),
            100.0 * mean(|counts| counts.cpu_s),
            mean(|counts| counts.faults as f64),
            mean(|counts| counts.disk_faults as f64),
            mean(|counts| counts.switches as f64),
            mean(|counts| counts.forced as f64),
            mean(|counts| counts.messages as f64),
            mean(|counts| counts.bytes as f64) * 1e-6
        ));
    }
    let counted = |group: &Vec<&RankCounts>| {
        let all = group.iter().filter_map(|counts| counts.processor);
        all.reduce(Processor::with)
            .map(|sum| line_of_processor(&name(group), &sum, seconds(group)))
    };
    let processor: Vec<String> = groups.iter().filter_map(counted).collect();
    if !processor.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "{:<16} {:>7} {:>9} {:>9} {:>9} {:>8} {:>16}",
            "PROCESSOR",
            "GHZ",
            "PER CYCLE",
            "CACHE 1 %",
            "FURTHER %",
            "MEMORY %",
            "MB/S FROM MEMORY"
        ));
        lines.extend(processor);
    }
    lines
}

/// How long the ranks of a group were looked at, together.
fn seconds(group: &[&RankCounts]) -> f64 {
    let seconds: f64 = group.iter().map(|counts| counts.seconds).sum();
    seconds.max(1e-3)
}

fn name(group: &[&RankCounts]) -> String {
    let ranks: Vec<u32> = group.iter().map(|counts| counts.rank).collect();
    let name = rank_ranges(&ranks);
    match name.chars().count() {
        0..=16 => name,
        _ => name.chars().take(15).chain(['…']).collect(),
    }
}

/// Where the loads of the program come from, as the bound of the performance paper takes it, and
/// what that is in bytes of lines.
fn line_of_processor(name: &str, of: &Processor, seconds: f64) -> String {
    const LINE: f64 = 64.0;
    let part = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let memory = part(of.last_misses, of.loads).min(1.0);
    let beyond = part(of.first_misses, of.loads).clamp(memory, 1.0);
    format!(
        "{name:<16} {:>7.2} {:>9.2} {:>9.1} {:>9.1} {:>8.1} {:>16.0}",
        of.cycles as f64 / seconds * 1e-9,
        part(of.instructions, of.cycles),
        100.0 * (1.0 - beyond),
        100.0 * (beyond - memory),
        100.0 * memory,
        of.last_misses as f64 * LINE / seconds * 1e-6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shown_by_the_second_and_in_parts() {
        let processor = Processor {
            cycles: 6_000_000_000,
            instructions: 9_000_000_000,
            loads: 4_000_000_000,
            first_misses: 400_000_000,
            last_misses: 100_000_000,
        };
        let counts = |rank, processor| RankCounts {
            rank,
            seconds: 2.0,
            cpu_s: 2.0,
            faults: 40,
            messages: 10,
            bytes: 4_000_000,
            processor,
            ..RankCounts::default()
        };
        let [first, other] = [counts(0, Some(processor)), counts(3, None)];
        let lines = lines(&[vec![&first], vec![&other]]);
        let words: Vec<Vec<&str>> = (lines.iter())
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words[1], ["0", "100.0", "20", "0", "0", "0", "5", "2.0"]);
        assert_eq!(words[2][0], "3");
        let parts = ["0", "3.00", "1.50", "90.0", "7.5", "2.5", "3200"];
        assert_eq!(words[5], parts);
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn counts_at_two_times_are_added() {
        let first = RankCounts {
            rank: 2,
            seconds: 1.5,
            switches: 3,
            ..RankCounts::default()
        };
        let second = RankCounts {
            seconds: 0.5,
            switches: 4,
            processor: Some(Processor::default()),
            ..first.clone()
        };
        let mut all = first;
        all.add(&second);
        assert_eq!((all.rank, all.seconds, all.switches), (2, 2.0, 7));
        assert_eq!(all.processor, second.processor);
    }
}
