//! PICL's trace format (Worley, ORNL/TM-12125, 1992), which ParaGraph reads: a line for each begin
//! and end of an event.
//!
//! `type event time processor task count [description data...]`: type -3 begins, -4 ends; event -21
//! sends, -52 receives, -901 is the trace itself; description 2 says that the data are integers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

use margay_core_record::{Kind, Record};

use crate::format::{Head, SiteInfo, ThreadRecords, Trace, duration};

const BEGIN: i64 = -3;
const END: i64 = -4;
const MARK: i64 = -2;
const SEND: i64 = -21;
const RECEIVE: i64 = -52;
const BARRIER: i64 = -401;
const BROADCAST: i64 = -402;
const TRACE: i64 = -901;
/// A rank beyond is none.
const MOST_RANKS: i64 = 1 << 20;

pub fn write(to: &mut impl Write, trace: &Trace) -> io::Result<()> {
    // Lines stand in the order of their times; ends before begins of the same time.
    let mut lines: Vec<(u64, u32, u32, String)> = Vec::new();
    let mut order = 0;
    let mut push = |ns: u64, rank: u32, words: String| {
        order += 1;
        let seconds = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        lines.push((ns, rank, order, words.replacen('@', &seconds, 1)));
    };
    let mut of_rank: BTreeMap<u32, Vec<&ThreadRecords>> = BTreeMap::new();
    for of in &trace.threads {
        of_rank.entry(of.rank).or_default().push(of);
    }
    for rank in 0..trace.head.ranks {
        push(0, rank, format!("{BEGIN} {TRACE} @ {rank} 0 0"));
        for (task, of) in of_rank.get(&rank).into_iter().flatten().enumerate() {
            let events = events(trace, of);
            for (event, begin, end, before, after) in events {
                push(
                    begin,
                    rank,
                    format!("{BEGIN} {event} @ {rank} {task} {before}"),
                );
                push(end, rank, format!("{END} {event} @ {rank} {task} {after}"));
            }
        }
        push(trace.end_ns, rank, format!("{END} {TRACE} @ {rank} 0 0"));
    }
    lines.sort_by_key(|&(ns, rank, order, _)| (ns, rank, order));
    for (.., line) in &lines {
        writeln!(to, "{line}")?;
    }
    Ok(())
}

/// An event, when it begins and ends, and the data of both.
type Event = (i64, u64, u64, String, String);

fn events(trace: &Trace, of: &ThreadRecords) -> Vec<Event> {
    let mut events = Vec::new();
    let data = |numbers: &[i64]| {
        let mut text = numbers.len().to_string();
        if !numbers.is_empty() {
            text += " 2";
        }
        for number in numbers {
            let _ = write!(text, " {number}");
        }
        text
    };
    for record in &of.records {
        let peer = record.peer.map_or(-1, i64::from);
        let (tag, bytes) = (i64::from(record.tag as i32), record.bytes as i64);
        let begin = record.start;
        let end = begin + duration(trace, record);
        let call = trace.site(record.site).call.to_lowercase();
        let event = match record.kind {
            Kind::Send | Kind::Sent => (SEND, data(&[bytes, tag, peer, 0]), data(&[])),
            Kind::Receive | Kind::Received => {
                (RECEIVE, data(&[tag, peer, 0]), data(&[bytes, tag, peer, 0]))
            }
            Kind::Collective if call.contains("barrier") || call.contains("sync") => {
                (BARRIER, data(&[]), data(&[]))
            }
            Kind::Collective if call.contains("bcast") => {
                (BROADCAST, data(&[bytes, peer]), data(&[]))
            }
            Kind::Post | Kind::Posted => continue,
            // An event of the user's, by the number of its call site.
            _ => (i64::from(record.site), data(&[]), data(&[])),
        };
        events.push((event.0, begin, end, event.1, event.2));
    }
    events
}

/// Reads a trace in PICL's format; lines that are none are left out.
pub fn read(from: impl BufRead) -> io::Result<Trace> {
    let mut trace = Trace {
        head: Head {
            command: "PICL".into(),
            ..Head::default()
        },
        ..Trace::default()
    };
    let mut threads: BTreeMap<(u32, u32), Vec<Record>> = BTreeMap::new();
    // Events that have begun: their record's place.
    let mut open: HashMap<(u32, u32, i64), usize> = HashMap::new();
    let mut sites: BTreeMap<i64, u16> = BTreeMap::new();
    let mut understood = 0_u64;
    for line in from.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some(entry) = Line::of(&words) else {
            continue;
        };
        understood += 1;
        trace.end_ns = trace.end_ns.max(entry.ns);
        trace.head.ranks = trace.head.ranks.max(entry.rank + 1);
        if entry.event == TRACE {
            continue;
        }
        let next = sites.len() as u16 + 1;
        let site = *sites.entry(entry.event).or_insert(next);
        let of = threads.entry((entry.rank, entry.task)).or_default();
        let key = (entry.rank, entry.task, entry.event);
        match entry.kind {
            BEGIN | MARK => {
                let record = entry.record(site);
                if entry.kind == BEGIN {
                    open.insert(key, of.len());
                }
                of.push(record);
            }
            END => {
                let Some(record) = open.remove(&key).and_then(|at| of.get_mut(at)) else {
                    continue;
                };
                record.ticks = Some(entry.ns.saturating_sub(record.start));
                if entry.event == RECEIVE && entry.data.len() >= 3 {
                    let [bytes, tag, peer] = [entry.data[0], entry.data[1], entry.data[2]];
                    record.bytes = bytes.max(0) as u64;
                    record.tag = tag as u32;
                    record.peer = u32::try_from(peer).ok();
                }
            }
            _ => {}
        }
    }
    if understood == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it has no line of a PICL trace",
        ));
    }
    trace.sites = (sites.iter())
        .map(|(&event, &number)| {
            let call = match event {
                SEND => "send0".to_owned(),
                RECEIVE => "recv0".to_owned(),
                BARRIER => "barrier0".to_owned(),
                BROADCAST => "bcast0".to_owned(),
                event => format!("event {event}"),
            };
            let site = SiteInfo {
                call,
                ..SiteInfo::default()
            };
            (number, site)
        })
        .collect();
    trace.threads = (threads.into_iter())
        .map(|((rank, thread), mut records)| {
            records.sort_by_key(|record| record.start);
            ThreadRecords {
                rank,
                thread,
                records,
                lost: 0,
            }
        })
        .collect();
    Ok(trace)
}

/// A line of a trace.
struct Line {
    kind: i64,
    event: i64,
    ns: u64,
    rank: u32,
    task: u32,
    data: Vec<i64>,
}

impl Line {
    fn of(words: &[&str]) -> Option<Line> {
        let number = |at: usize| words.get(at)?.parse::<i64>().ok();
        let seconds: f64 = words.get(2)?.parse().ok()?;
        if !(0.0..1e9).contains(&seconds) {
            return None;
        }
        let rank = number(3).filter(|rank| (0..MOST_RANKS).contains(rank))?;
        // Some writers name no task, or -1.
        let task = number(4)?.max(0);
        let count = usize::try_from(number(5)?).ok()?;
        let data = (7..)
            .take(count.min(words.len()))
            .map_while(number)
            .collect();
        Some(Line {
            kind: number(0)?,
            event: number(1)?,
            ns: (seconds * 1e9).round() as u64,
            rank: rank as u32,
            task: u32::try_from(task).ok()?,
            data,
        })
    }

    /// The record of an event that begins.
    fn record(&self, site: u16) -> Record {
        let data = |at: usize| self.data.get(at).copied().unwrap_or(-1);
        let (kind, bytes, tag, peer) = match self.event {
            SEND => (Kind::Send, data(0), data(1), data(2)),
            RECEIVE => (Kind::Receive, 0, data(0), data(1)),
            BARRIER => (Kind::Collective, 0, 0, -1),
            BROADCAST => (Kind::Collective, data(0), 0, data(1)),
            _ => (Kind::Call, 0, -1, -1),
        };
        Record {
            kind,
            start: self.ns,
            ticks: if self.kind == MARK { Some(0) } else { None },
            site,
            peer: u32::try_from(peer).ok(),
            tag: tag as u32,
            context: if kind == Kind::Collective { 1 } else { 0 },
            bytes: bytes.max(0) as u64,
            request: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    /// As the backend of a benchmark language writes it: 32 KiB from 0 to 1, 256 bytes back.
    const OLD: &str = "-3 -901 0.00000 0 0 0
-3 -901 0.00000 1 1 0
-3 -21 0.00001 0 0 4 2 32768 1 1 1
-4 -21 0.00001 0 0 0
-3 -52 0.00001 1 1 3 2 1 0 0
-3 -52 0.00002 0 0 3 2 1 1 1
-4 -52 0.00002 1 1 4 2 32768 1 0 0
-3 -21 0.00002 1 1 4 2 256 1 0 0
-4 -21 0.00002 1 1 0
-4 -52 0.00003 0 0 4 2 256 1 1 1
-4 -901 0.00003 1 1 0
-4 -901 0.00004 0 0 0
";

    #[test]
    fn old_traces_are_read() {
        let trace = read(OLD.as_bytes()).unwrap();
        assert_eq!((trace.head.ranks, trace.end_ns), (2, 40_000));
        let analysis = analyse(&trace);
        let messages: Vec<_> = analysis
            .messages
            .iter()
            .map(|m| (m.from.thread, m.bytes))
            .collect();
        assert_eq!(messages, [(0, 32_768), (1, 256)]);
        assert!(read(&b"no trace\n"[..]).is_err());
        for end in 1..OLD.len() {
            let _ = read(&OLD.as_bytes()[..end]);
        }
    }

    #[test]
    fn messages_survive_the_way_there_and_back() {
        let trace = small();
        let mut bytes = Vec::new();
        write(&mut bytes, &trace).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(
            text.contains("-3 -21 0.005000000 0 0 4 2 800 7 1 0\n"),
            "{text}"
        );
        assert!(
            text.contains("-4 -52 0.005002000 1 0 4 2 800 7 0 0\n"),
            "{text}"
        );
        let again = read(&bytes[..]).unwrap();
        let pairs = |trace: &Trace| -> Vec<_> {
            let messages = analyse(trace).messages;
            messages
                .iter()
                .map(|m| (m.sent_ns, m.received_ns, m.bytes, m.tag))
                .collect()
        };
        assert_eq!(pairs(&again), pairs(&trace));
        assert_eq!(analyse(&again).waits.len(), analyse(&trace).waits.len());
    }
}
