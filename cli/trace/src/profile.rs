//! The profile of a trace: who spent how much where, and who waited for whom.

use std::collections::BTreeMap;
use std::fmt::Write;

use margay_core_record::Kind;
use margay_core_topology::list_text;

use crate::analyse::{Analysis, WaitKind};
use crate::blame::Activity;
use crate::causes::{Cause, Why, causes};
use crate::format::{At, ThreadRecords, Trace, duration};
use crate::json::Json;

/// Sums of calls.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    ns: u64,
    most_ns: u64,
    bytes: u64,
    wait_ns: u64,
}

impl Sums {
    fn add(&mut self, calls: u64, ns: u64, bytes: u64) {
        self.calls += calls;
        self.ns += ns;
        self.most_ns = self.most_ns.max(ns);
        self.bytes += bytes;
    }

    fn join(&mut self, more: &Sums) {
        self.calls += more.calls;
        self.ns += more.ns;
        self.most_ns = self.most_ns.max(more.most_ns);
        self.bytes += more.bytes;
        self.wait_ns += more.wait_ns;
    }
}

/// A call site: the function and where it is called.
type SiteKey = (String, String);

/// What was found of a trace, in sums.
pub struct Profile<'a> {
    trace: &'a Trace,
    of_call: Vec<(String, Sums)>,
    of_site: Vec<(SiteKey, Sums)>,
    /// Regions and waits of OpenMP, of all threads together.
    openmp: Vec<(SiteKey, Sums)>,
    /// Time in calls, of each rank.
    of_rank: Vec<u64>,
    waits: Vec<(WaitKind, u64)>,
    /// Who was late, where, for whom it cost how much.
    causes: Vec<Cause>,
    /// Messages and bytes from one rank to another.
    matrix: BTreeMap<(u32, u32), (u64, u64)>,
    /// Messages by the power of two of their size.
    sizes: BTreeMap<u32, (u64, u64)>,
    files: [u64; 2],
    unmatched: u64,
}

/// Rank, site and time of calls that were only counted. Their time is that of one in some: it is
/// made less where that is more than passed meanwhile outside of calls that were recorded.
fn spent(trace: &Trace, of: &ThreadRecords) -> Vec<(u32, u16, u64)> {
    let is_same = |thread: &&ThreadRecords| (thread.rank, thread.thread) == (of.rank, of.thread);
    let thread = trace.threads.iter().find(is_same);
    let records = thread.map_or(&[][..], |thread| &thread.records);
    // While calls are counted, the sums of all sites begin at the same time.
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for total in records.iter().filter(|record| record.kind == Kind::Total) {
        let end = total.start.saturating_add(duration(trace, total));
        let known = ends.entry(total.start).or_default();
        *known = end.max(*known);
    }
    let mut found = Vec::new();
    for all in of.records.chunk_by(|a, b| a.start == b.start) {
        let from = all[0].start;
        let to = ends.get(&from).copied().unwrap_or(trace.end_ns);
        let within = records.partition_point(|record| record.start < from);
        let within = records[within..]
            .iter()
            .take_while(|record| record.start < to);
        let recorded = within.filter(|r| !r.kind.is_further() && r.kind != Kind::Total);
        let recorded: u64 = recorded.map(|r| duration(trace, r)).sum();
        let most = to.saturating_sub(from).saturating_sub(recorded);
        let sum: u64 = all.iter().map(|record| duration(trace, record)).sum();
        let share = (most as f64 / sum.max(1) as f64).min(1.0);
        found.extend(all.iter().map(|record| {
            let ns = duration(trace, record) as f64 * share;
            (of.rank, record.site, ns as u64)
        }));
    }
    found
}

impl<'a> Profile<'a> {
    pub fn of(trace: &'a Trace, analysis: &Analysis) -> Profile<'a> {
        let mut of_call: BTreeMap<String, Sums> = BTreeMap::new();
        let mut of_site: BTreeMap<SiteKey, Sums> = BTreeMap::new();
        let mut of_rank = vec![0; trace.head.ranks as usize];
        let mut matrix: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let mut sizes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut files = [0; 2];
        let mut sites: BTreeMap<u16, Sums> = BTreeMap::new();
        let key = |site: u16| {
            let site = trace.site(site);
            (site.call.clone(), site.place())
        };
        for of in &trace.threads {
            for record in &of.records {
                let is_total = record.kind == Kind::Total;
                let (calls, sent) = (record.calls(), record.sent());
                if let Some(peer) = record.peer.filter(|_| sent > 0) {
                    let (messages, bytes) = matrix.entry((of.rank, peer)).or_default();
                    *messages += sent;
                    *bytes += record.bytes;
                    let each = record.bytes.checked_div(sent).unwrap_or(0);
                    let (messages, bytes) = sizes.entry(64 - each.leading_zeros()).or_default();
                    *messages += sent;
                    *bytes += record.bytes;
                }
                match record.kind {
                    Kind::Read => files[0] += record.bytes,
                    Kind::Write => files[1] += record.bytes,
                    _ => {}
                }
                if record.kind.is_further() {
                    continue;
                }
                // How long calls took that were only counted is in records of their own.
                let ns = if is_total { 0 } else { duration(trace, record) };
                of_rank[of.rank as usize] += ns;
                let sums = sites.entry(record.site).or_default();
                sums.add(calls, ns, record.bytes);
            }
        }
        for (rank, site, ns) in trace.spent.iter().flat_map(|of| spent(trace, of)) {
            of_rank[rank as usize] += ns;
            sites.entry(site).or_default().ns += ns;
        }
        let mut openmp: BTreeMap<SiteKey, Sums> = BTreeMap::new();
        for record in trace.openmp.iter().flat_map(|of| &of.records) {
            let sums = openmp.entry(key(record.site)).or_default();
            sums.add(record.calls(), duration(trace, record), 0);
        }
        let mut waits: BTreeMap<WaitKind, u64> = BTreeMap::new();
        for wait in &analysis.waits {
            let record = |at: At| &trace.threads[at.thread as usize].records[at.index as usize];
            *waits.entry(wait.kind).or_default() += wait.ns;
            if let Some(sums) = sites.get_mut(&record(wait.at).site) {
                sums.wait_ns += wait.ns;
            }
        }
        // Sites of one line are one.
        for (site, sums) in sites {
            let (call, place) = key(site);
            of_call.entry(call.clone()).or_default().join(&sums);
            of_site.entry((call, place)).or_default().join(&sums);
        }
        let mut of_call: Vec<_> = of_call.into_iter().collect();
        of_call.sort_by_key(|(_, sums)| u64::MAX - sums.ns);
        let longest_first = |of: BTreeMap<SiteKey, Sums>| {
            let mut of: Vec<_> = of.into_iter().collect();
            of.sort_by_key(|(_, sums)| u64::MAX - sums.ns);
            of
        };
        let mut waits: Vec<_> = waits.into_iter().collect();
        waits.sort_by_key(|(_, ns)| u64::MAX - ns);
        Profile {
            trace,
            of_call,
            of_site: longest_first(of_site),
            openmp: longest_first(openmp),
            of_rank,
            waits,
            causes: causes(trace, analysis),
            matrix,
            sizes,
            files,
            unmatched: analysis.unmatched,
        }
    }

    /// Time of all ranks together.
    fn whole_ns(&self) -> u64 {
        self.trace.end_ns * u64::from(self.trace.head.ranks)
    }

    fn share(&self, ns: u64) -> f64 {
        100.0 * ns as f64 / self.whole_ns().max(1) as f64
    }

    /// Seconds that the rank with the most computation computes longer than the mean.
    fn imbalance(&self) -> (u32, f64) {
        let computes = |ns: &u64| self.trace.end_ns.saturating_sub(*ns);
        let most = (self.of_rank.iter().zip(0..)).min_by_key(|(ns, _)| **ns);
        let (most_ns, rank) = most.map_or((0, 0), |(ns, rank)| (computes(ns), rank));
        let sum: u64 = self.of_rank.iter().map(computes).sum();
        let mean = sum as f64 / self.of_rank.len().max(1) as f64;
        (rank, (most_ns as f64 - mean) * 1e-9)
    }

    /// As text for a terminal of 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let trace = self.trace;
        let inside: u64 = self.of_rank.iter().sum();
        let line = |text: &mut String, words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(
            &mut text,
            format!(
                "profile of {}: {} ranks, {:.3} s; {:.1} % of the time in calls",
                trace.head.command,
                trace.head.ranks,
                trace.end_ns as f64 * 1e-9,
                self.share(inside)
            ),
        );
        let (rank, seconds) = self.imbalance();
        line(
            &mut text,
            format!(
                "load imbalance: rank {rank} computes {seconds:.3} s longer than the mean of all"
            ),
        );
        let _ = writeln!(
            text,
            "\n{:<22} {:>10} {:>10} {:>6} {:>10} {:>12}",
            "CALL", "COUNT", "SECONDS", "%", "LONGEST", "BYTES"
        );
        for (call, sums) in &self.of_call {
            let _ = writeln!(
                text,
                "{:<22} {:>10} {:>10.3} {:>6.1} {:>10.6} {:>12}",
                cut(call, 22),
                sums.calls,
                seconds_of(sums.ns),
                self.share(sums.ns),
                seconds_of(sums.most_ns),
                amount(sums.bytes)
            );
        }
        let _ = writeln!(
            text,
            "\n{:<22} {:<24} {:>9} {:>10} {:>10}",
            "CALL", "AT", "COUNT", "SECONDS", "WAITING"
        );
        for ((call, place), sums) in self.of_site.iter().take(20) {
            let _ = writeln!(
                text,
                "{:<22} {:<24} {:>9} {:>10.3} {:>10.3}",
                cut(call, 22),
                cut(place, 24),
                sums.calls,
                seconds_of(sums.ns),
                seconds_of(sums.wait_ns)
            );
        }
        self.openmp_text(&mut text);
        if !self.waits.is_empty() {
            let _ = writeln!(text, "\n{:<22} {:>10} {:>6}", "WAITING", "SECONDS", "%");
        }
        for (kind, ns) in &self.waits {
            let _ = writeln!(
                text,
                "{:<22} {:>10.3} {:>6.1}",
                kind.name(),
                seconds_of(*ns),
                self.share(*ns)
            );
        }
        if !self.causes.is_empty() {
            text.push_str("\nWHY\n");
        }
        // Of those that would be shown as 0.000 s, the first only.
        let shown = (self.causes.iter().enumerate()).filter(|(n, c)| *n == 0 || c.ns >= 500_000);
        for (_, cause) in shown.take(5) {
            self.cause(&mut text, cause);
        }
        self.traffic(&mut text);
        text
    }

    /// Regions and waits of OpenMP.
    fn openmp_text(&self, text: &mut String) {
        for (number, ((name, place), sums)) in self.openmp.iter().take(20).enumerate() {
            if number == 0 {
                let _ = writeln!(
                    text,
                    "\n{:<22} {:<24} {:>9} {:>10} {:>10}",
                    "OPENMP", "AT", "COUNT", "SECONDS", "LONGEST"
                );
            }
            let _ = writeln!(
                text,
                "{:<22} {:<24} {:>9} {:>10.3} {:>10.6}",
                cut(name, 22),
                cut(place, 24),
                sums.calls,
                seconds_of(sums.ns),
                seconds_of(sums.most_ns)
            );
        }
    }

    /// A cause in two lines.
    fn cause(&self, text: &mut String, cause: &Cause) {
        let trace = self.trace;
        let place = |site| cut(&trace.site(site).place(), 24);
        let call = |site| format!("{} ({})", place(site), cut(&trace.site(site).call, 22));
        let who = match cause.ranks[..] {
            [rank] => format!("rank {rank}"),
            _ => format!("ranks {}", cut(&list_text(&cause.ranks), 20)),
        };
        let (what, seconds) = (cause.why.name(), seconds_of(cause.ns));
        let _ = writeln!(
            text,
            "{seconds:.3} s: {what}: {who} at {}",
            call(cause.site)
        );
        let _ = match (cause.why, cause.activity, cause.takes) {
            (Why::WrongOrder, ..) => {
                writeln!(text, "    waits for one message while others are there")
            }
            (_, Activity::In(site), _) if site == cause.site => {
                writeln!(text, "    in this call")
            }
            (_, Activity::In(site), _) => writeln!(text, "    in {} before", call(site)),
            (_, Activity::Between(from, to), takes) => {
                let _ = write!(text, "    works from {} to {}", self.from(from), place(to));
                let _ = match takes {
                    Some((own, others)) => writeln!(
                        text,
                        ",\n    {:.3} s in all, other ranks {:.3} s on average",
                        seconds_of(own),
                        seconds_of(others)
                    ),
                    None => writeln!(text),
                };
                Ok(())
            }
        };
    }

    /// Where a stretch of work begins.
    fn from(&self, site: u16) -> String {
        match site {
            0 => "its start".to_owned(),
            site => cut(&self.trace.site(site).place(), 24),
        }
    }

    fn traffic(&self, text: &mut String) {
        const MOST_RANKS: u32 = 8;
        const MOST_PAIRS: usize = 10;
        if self.matrix.is_empty() {
            return;
        }
        let ranks = self.trace.head.ranks;
        if ranks <= MOST_RANKS {
            let _ = write!(text, "\nBYTES FROM \\ TO");
            for to in 0..ranks {
                let _ = write!(text, "{to:>8}");
            }
            text.push('\n');
            for from in 0..ranks {
                let _ = write!(text, "{from:>15}");
                for to in 0..ranks {
                    let bytes = self.matrix.get(&(from, to)).map_or(0, |(_, bytes)| *bytes);
                    let _ = write!(text, "{:>8}", amount(bytes));
                }
                text.push('\n');
            }
        } else {
            let mut pairs: Vec<_> = self.matrix.iter().collect();
            pairs.sort_by_key(|(_, (_, bytes))| u64::MAX - bytes);
            let _ = writeln!(
                text,
                "\n{:>6} {:>6} {:>10} {:>10}",
                "FROM", "TO", "MESSAGES", "BYTES"
            );
            for ((from, to), (messages, bytes)) in pairs.into_iter().take(MOST_PAIRS) {
                let _ = writeln!(
                    text,
                    "{from:>6} {to:>6} {messages:>10} {:>10}",
                    amount(*bytes)
                );
            }
        }
        let _ = writeln!(
            text,
            "\n{:<16} {:>10} {:>10}",
            "MESSAGES OF", "COUNT", "BYTES"
        );
        for (power, (messages, bytes)) in &self.sizes {
            let upto = match power {
                0 => "0 bytes".to_owned(),
                power => format!(
                    "up to {}",
                    amount(1_u64.checked_shl(*power).unwrap_or(u64::MAX))
                ),
            };
            let _ = writeln!(text, "{upto:<16} {messages:>10} {:>10}", amount(*bytes));
        }
        if self.files != [0, 0] {
            let [read, written] = self.files;
            let _ = writeln!(
                text,
                "\nfiles: {} read, {} written",
                amount(read),
                amount(written)
            );
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> String {
        let sums = |json: &mut Json, sums: &Sums| {
            json.number("calls", sums.calls as f64);
            json.number("seconds", seconds_of(sums.ns));
            json.number("longest_s", seconds_of(sums.most_ns));
            json.number("bytes", sums.bytes as f64);
            json.number("waiting_s", seconds_of(sums.wait_ns));
        };
        let mut json = Json::object();
        json.number("version", 1.0);
        json.text("command", &self.trace.head.command);
        json.number("ranks", f64::from(self.trace.head.ranks));
        json.number("seconds", seconds_of(self.trace.end_ns));
        json.array("calls", &self.of_call, |json, (call, of)| {
            json.text("call", call);
            sums(json, of);
        });
        json.array("sites", &self.of_site, |json, ((call, place), of)| {
            json.text("call", call);
            json.text("place", place);
            sums(json, of);
        });
        json.array("openmp", &self.openmp, |json, ((name, place), of)| {
            json.text("name", name);
            json.text("place", place);
            json.number("count", of.calls as f64);
            json.number("seconds", seconds_of(of.ns));
            json.number("longest_s", seconds_of(of.most_ns));
        });
        let ranks: Vec<(usize, &u64)> = self.of_rank.iter().enumerate().collect();
        json.array("ranks_in_calls", &ranks, |json, (rank, ns)| {
            json.number("rank", *rank as f64);
            json.number("seconds", seconds_of(**ns));
        });
        json.array("waits", &self.waits, |json, (kind, ns)| {
            json.text("kind", kind.name());
            json.number("seconds", seconds_of(*ns));
        });
        json.array("causes", &self.causes, |json, cause| {
            let site = self.trace.site(cause.site);
            json.text("kind", cause.why.name());
            json.number("rank", f64::from(cause.ranks[0]));
            json.text("ranks", &list_text(&cause.ranks));
            json.text("call", &site.call);
            json.text("place", &site.place());
            if let Activity::Between(from, to) = cause.activity {
                json.text("works_from", &self.from(from));
                json.text("works_to", &self.trace.site(to).place());
            }
            json.number("seconds", seconds_of(cause.ns));
        });
        let (rank, seconds) = self.imbalance();
        json.number("imbalance_rank", f64::from(rank));
        json.number("imbalance_s", seconds);
        let pairs: Vec<_> = self.matrix.iter().collect();
        json.array("matrix", &pairs, |json, ((from, to), (messages, bytes))| {
            json.number("from", f64::from(*from));
            json.number("to", f64::from(*to));
            json.number("messages", *messages as f64);
            json.number("bytes", *bytes as f64);
        });
        let sizes: Vec<_> = self.sizes.iter().collect();
        json.array("sizes", &sizes, |json, (power, (messages, bytes))| {
            json.number("below_bytes", (**power as f64).exp2());
            json.number("messages", *messages as f64);
            json.number("bytes", *bytes as f64);
        });
        json.number("read_bytes", self.files[0] as f64);
        json.number("written_bytes", self.files[1] as f64);
        json.number("lost", self.trace.lost() as f64);
        json.number("unmatched", self.unmatched as f64);
        json.end() + "\n"
    }
}

fn seconds_of(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

fn cut(text: &str, most: usize) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(most)
        .collect()
}

/// A number of bytes in few letters.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 10_000 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = "";
    for next in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    #[test]
    fn a_profile_names_who_was_late() {
        let trace = small();
        let profile = Profile::of(&trace, &analyse(&trace));
        let text = profile.text();
        assert!(
            text.contains("0.004 s: late sender: rank 0 at ring.c:20 (MPI_Send)"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("wait at barrier"), "{text}");
        let json = profile.json();
        assert!(
            json.contains("\"from\":0,\"to\":1,\"messages\":1,\"bytes\":800"),
            "{json}"
        );
    }

    #[test]
    fn counted_calls_take_no_more_time_than_has_passed() {
        use crate::format::tests::record;
        let mut trace = small();
        let inside = |trace: &Trace| Profile::of(trace, &analyse(trace)).of_rank;
        let before = inside(&trace);
        // In a millisecond 0.1 ms are in a recorded call, and the others seem to take 4 ms.
        let of = |kind, start, ns, site| record(kind, start, ns, site, u32::MAX);
        trace.threads[0].records.extend([
            of(Kind::Total, 0, 1_000_000, 1),
            of(Kind::Total, 0, 1_000_000, 2),
            of(Kind::Call, 500_000, 100_000, 3),
            of(Kind::Spent, 0, 3_000_000, 1),
            of(Kind::Spent, 0, 1_000_000, 2),
            // And here they take a tenth of it.
            of(Kind::Total, 1_000_000, 1_000_000, 1),
            of(Kind::Spent, 1_000_000, 100_000, 1),
        ]);
        trace.sort();
        let spent: Vec<_> = trace
            .spent
            .iter()
            .flat_map(|of| spent(&trace, of))
            .collect();
        assert_eq!(spent, [(0, 1, 675_000), (0, 2, 225_000), (0, 1, 100_000)]);
        assert_eq!(inside(&trace), [before[0] + 1_100_000, before[1]]);
    }

    #[test]
    fn openmp_has_a_table_of_its_own() {
        let mut trace = small();
        let calls = Profile::of(&trace, &analyse(&trace)).of_rank;
        let waited = |ns| crate::format::tests::record(Kind::Threads, 10, ns, 3, u32::MAX);
        trace.threads[1]
            .records
            .extend([7_000_000, 5_000_000].map(waited));
        trace.sort();
        let profile = Profile::of(&trace, &analyse(&trace));
        assert_eq!(profile.of_rank, calls);
        let text = profile.text();
        let row = text.lines().skip_while(|line| !line.starts_with("OPENMP"));
        let row = row.take(2).last().unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            ["MPI_Barrier", "ring.c:30", "2", "0.012", "0.007000"]
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(
            profile
                .json()
                .contains("\"seconds\":0.012,\"longest_s\":0.007")
        );
    }

    #[test]
    fn amounts_are_short() {
        let short = [0, 9999, 10_000, 1 << 20, u64::MAX].map(amount);
        assert_eq!(short, ["0", "9999", "9.8K", "1.0M", "16.0E"]);
    }
}
