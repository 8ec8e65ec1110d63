//! The page that shows a trace in a browser: one HTML file with everything in it.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;

use margay_core_record::Kind;
use margay_core_sums::Window;

use crate::analyse::{Analysis, analyse, critical_path};
use crate::format::{At, ThreadRecords, Trace, duration};
use crate::json::{Json, quote};
use crate::levels::{self, Large, Wanted};

const PAGE: &str = include_str!("view.html");
/// Where the page has the trace.
const DATA: &str = "\"@TRACE@\"";
/// What the page does with sums, and where.
const SCRIPT: &str = include_str!("levels.js");
const LEVELS: &str = "/*@LEVELS@*/";
/// Calls that a page shows one by one. Of more, those that last longest are taken.
const MOST_CALLS: usize = 1_000_000;
/// Messages that a page shows.
const MOST_MESSAGES: usize = 300_000;

/// Returns the page of a trace, with all its calls.
pub fn page(trace: &Trace, analysis: &Analysis) -> String {
    let mut json = Json::object();
    head(&mut json, trace, trace.lost());
    calls(&mut json, trace, analysis, 0..trace.head.ranks);
    let path: Vec<_> = critical_path(trace, analysis);
    let mut rows = String::new();
    for stretch in &path {
        let rank = trace
            .threads
            .get(stretch.thread as usize)
            .map_or(0, |t| t.rank);
        let _ = write!(rows, "{rank} {} {},", stretch.from_ns, stretch.to_ns);
    }
    json.text("path", &rows);
    with(&json.end())
}

/// Returns the page of a trace that has too many calls for it: with its sums.
pub fn page_of_sums(large: &Large) -> String {
    let mut json = Json::object();
    head(&mut json, &large.trace, large.lost);
    json.number("records", large.records as f64);
    json.array("levels", &[&large.whole], |json, grid| {
        levels::write(json, grid)
    });
    with(&json.end())
}

fn with(data: &str) -> String {
    PAGE.replacen(DATA, data, 1).replacen(LEVELS, SCRIPT, 1)
}

/// What the page asks for of a large trace: the sums of a window, and its calls if they are few.
pub fn part(large: &Large, window: Window) -> io::Result<String> {
    let mut json = Json::object();
    json.array("grid", &[large.grid(window)?], |json, grid| {
        levels::write(json, grid)
    });
    let found = large.calls(window)?;
    let found: Vec<_> = found.into_iter().collect();
    json.array("calls", &found, |json, (trace, is_whole)| {
        let analysis = match is_whole {
            true => analyse(trace),
            false => Analysis::default(),
        };
        json.number("whole", f64::from(u8::from(*is_whole)));
        calls(json, trace, &analysis, window.first..window.last);
    });
    Ok(json.end())
}

/// The calls of a large trace that fit.
pub fn found(large: &Large, wanted: &Wanted, from: u64) -> io::Result<String> {
    let (count, first) = large.find(wanted, from)?;
    let mut json = Json::object();
    json.number("count", count as f64);
    let rows = first.iter().fold(String::new(), |mut rows, hit| {
        let (start, rank, ns, site) = hit;
        let _ = write!(rows, "{start} {rank} {ns} {site},");
        rows
    });
    json.text("hits", &rows);
    Ok(json.end())
}

/// What is known of a trace without its calls.
fn head(json: &mut Json, trace: &Trace, lost: u64) {
    json.text("command", &trace.head.command);
    json.text("host", &trace.head.host);
    json.number("ranks", f64::from(trace.head.ranks));
    json.number("end", trace.end_ns as f64);
    json.number("lost", lost as f64);
    json.number("cut", f64::from(u8::from(trace.is_cut)));
    let sites: Vec<_> = trace.sites.iter().collect();
    json.array("sites", &sites, |json, (number, site)| {
        json.number("n", f64::from(**number));
        json.text("call", &site.call);
        json.text("at", &site.place());
        json.text("file", &site.file);
        json.number("line", f64::from(site.line));
    });
    let sources: Vec<_> = trace.sources.iter().collect();
    json.array("sources", &sources, |json, (file, text)| {
        json.text("file", file);
        json.text("text", text);
    });
    let mut names = String::from("[");
    for kind in crate::analyse::WaitKind::ALL {
        quote(&mut names, kind.name());
        names.push(',');
    }
    json.text("wait_names", names.trim_end_matches(','));
}

/// The calls of some ranks, as rows of numbers, which are shorter than objects. Times are in
/// nanoseconds, relative to the row before.
fn calls(json: &mut Json, trace: &Trace, analysis: &Analysis, ranks: Range<u32>) {
    let mut left_out = 0_u64;
    let is_shown = |rank: u32| ranks.contains(&rank);
    for (name, threads) in [("threads", &trace.threads), ("openmp", &trace.openmp)] {
        let least = least_duration(trace, threads);
        let shown: Vec<_> = threads.iter().filter(|of| is_shown(of.rank)).collect();
        json.array(name, &shown, |json, of| {
            json.number("rank", f64::from(of.rank));
            json.number("thread", f64::from(of.thread));
            json.text("host", trace.hosts.get(&of.rank).map_or("", String::as_str));
            let (rows, short) = rows(trace, of, least);
            left_out += short;
            json.text("calls", &rows);
        });
    }
    json.number("left_out", left_out as f64);
    let mut rows = String::new();
    let rank = |at: At| trace.threads[at.thread as usize].rank;
    let messages = analysis.messages.iter();
    let messages = messages.filter(|m| is_shown(rank(m.from)) || is_shown(rank(m.to)));
    for message in messages.take(MOST_MESSAGES) {
        let _ = write!(
            rows,
            "{} {} {} {} {} {},",
            rank(message.from),
            rank(message.to),
            message.sent_ns,
            message.received_ns,
            message.bytes,
            message.tag as i32
        );
    }
    json.text("messages", &rows);
    let mut rows = String::new();
    let earlier = trace.threads.iter().filter(|of| of.rank < ranks.start);
    let earlier = earlier.count() as u32;
    for wait in analysis.waits.iter().filter(|w| is_shown(rank(w.at))) {
        let record = |at: At| &trace.threads[at.thread as usize].records[at.index as usize];
        let _ = write!(
            rows,
            "{} {} {} {} {} {},",
            wait.at.thread - earlier,
            record(wait.at).start,
            wait.ns,
            wait.kind as u8,
            rank(wait.because),
            record(wait.because).start
        );
    }
    json.text("waits", &rows);
}

/// The calls of a thread that last at least so long, and how many do not.
fn rows(trace: &Trace, of: &ThreadRecords, least: u64) -> (String, u64) {
    let (mut rows, mut left_out, mut last) = (String::new(), 0, 0);
    for record in of.records.iter().filter(|r| !r.kind.is_further()) {
        let ns = duration(trace, record);
        if ns < least {
            left_out += 1;
            continue;
        }
        let peer = record.peer.map_or(-1, i64::from);
        let open = i32::from(record.ticks.is_none());
        let _ = write!(
            rows,
            "{} {ns} {} {} {peer} {} {} {open},",
            record.start.saturating_sub(last),
            record.site,
            record.kind as u8,
            record.tag as i32,
            record.bytes
        );
        last = record.start;
    }
    (rows, left_out)
}

/// The shortest call that the page shows, so that it shows [`MOST_CALLS`].
fn least_duration(trace: &Trace, threads: &[ThreadRecords]) -> u64 {
    let calls = threads.iter().flat_map(|t| &t.records);
    let mut lengths: Vec<u64> = calls
        .filter(|r| !r.kind.is_further() && r.kind != Kind::Total)
        .map(|r| duration(trace, r))
        .collect();
    if lengths.len() <= MOST_CALLS {
        return 0;
    }
    let at = lengths.len() - MOST_CALLS;
    *lengths.select_nth_unstable(at).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    #[test]
    fn a_page_has_the_trace_and_needs_no_network() {
        let trace = small();
        let page = page(&trace, &analyse(&trace));
        assert!(!page.contains(DATA) && page.contains("ring.c:20"));
        for word in ["http://", "https://", "src=\"", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
