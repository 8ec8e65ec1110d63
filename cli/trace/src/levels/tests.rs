use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use margay_core_record::{Kind, Record};
use margay_core_sums::Window;

use super::large::{Large, Wanted};
use crate::analyse::{Analysis, analyse};
use crate::format::{At, Head, SiteInfo, ThreadRecords, Trace, Writer, read_file};

const RANKS: u32 = 6;
const ROUNDS: u32 = 400;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    *state >> 33
}

/// Writes a trace in blocks of a few records: messages of two tags to both neighbours, of which
/// some come early and some late, and reductions.
fn write(path: &Path) {
    let mut of_rank: Vec<Vec<Record>> = vec![Vec::new(); RANKS as usize];
    let mut state = 3;
    let mut sent = vec![0; RANKS as usize];
    for round in 0..u64::from(ROUNDS) {
        let began = round * 10_000;
        let record = |kind, start, ns, site, peer: Option<u32>, tag| Record {
            kind,
            start,
            ticks: Some(ns),
            site,
            peer,
            tag,
            context: 1,
            bytes: 8,
            request: 0,
        };
        for rank in 0..RANKS {
            let of = &mut of_rank[rank as usize];
            let late = next(&mut state) % 3000;
            sent[rank as usize] = began + late;
            let tag = (round % 2) as u32;
            let right = (rank + 1) % RANKS;
            of.push(record(Kind::Send, began + late, 100, 1, Some(right), tag));
        }
        // Every fifth message is received a round later, two at a time.
        if round % 5 != 3 {
            for rank in 0..RANKS {
                let of = &mut of_rank[rank as usize];
                let left = (rank + RANKS - 1) % RANKS;
                let begin = (began + 3200).min(sent[rank as usize] + 150);
                let end = sent[left as usize].max(begin) + 200;
                let tags = [(round % 2) as u32, (1 - round % 2) as u32];
                let count = if round % 5 == 4 { 2 } else { 1 };
                for (place, tag) in tags.into_iter().take(count).enumerate() {
                    let kind = if place == 0 {
                        Kind::Receive
                    } else {
                        Kind::Received
                    };
                    of.push(record(kind, begin, end - begin, 2, Some(left), tag));
                }
            }
        }
        if round % 3 == 0 {
            for rank in 0..RANKS {
                let begin = began + 4000 + next(&mut state) % 2000;
                let of = &mut of_rank[rank as usize];
                of.push(record(
                    Kind::Collective,
                    begin,
                    began + 6500 - begin,
                    3,
                    None,
                    RANKS,
                ));
            }
        }
    }
    let mut bytes = Vec::new();
    let head = Head {
        ranks: RANKS,
        command: "./a".into(),
        ..Head::default()
    };
    let mut writer = Writer::new(&mut bytes, &head).unwrap();
    for (site, call) in (1..).zip(["MPI_Send", "MPI_Recv", "MPI_Allreduce"]) {
        let info = SiteInfo {
            call: call.into(),
            line: 10,
            ..SiteInfo::default()
        };
        writer.site(site, &info).unwrap();
    }
    let most = of_rank.iter().map(Vec::len).max().unwrap();
    for begin in (0..most).step_by(7) {
        for (rank, of) in (0..).zip(&of_rank) {
            let part = ThreadRecords {
                rank,
                thread: 70 + rank,
                records: of[begin.min(of.len())..(begin + 7).min(of.len())].to_vec(),
                lost: 0,
            };
            writer.records(&part).unwrap();
        }
    }
    writer.end(u64::from(ROUNDS) * 10_000).unwrap();
    fs::write(path, bytes).unwrap();
}

type Facts = BTreeSet<(u32, u64, u32, u64, u64)>;

/// Messages and waits of which both ends lie in a window.
fn facts(trace: &Trace, analysis: &Analysis, window: &Window) -> (Facts, Facts) {
    let record = |at: At| &trace.threads[at.thread as usize].records[at.index as usize];
    let is_in = |at: At| {
        let (start, end) = (record(at).start, crate::format::end(trace, record(at)));
        start >= window.from && end < window.to
    };
    let rank = |at: At| trace.threads[at.thread as usize].rank;
    let messages = analysis.messages.iter();
    let messages = messages.filter(|m| is_in(m.from) && is_in(m.to));
    let messages = messages.map(|m| {
        (
            rank(m.from),
            m.sent_ns,
            rank(m.to),
            m.received_ns,
            u64::from(m.tag),
        )
    });
    let waits = analysis.waits.iter();
    let waits = waits.filter(|w| is_in(w.at) && is_in(w.because));
    let waits = waits.map(|w| {
        let because = record(w.because).start;
        (
            rank(w.at),
            record(w.at).start,
            rank(w.because),
            because,
            w.ns,
        )
    });
    (messages.collect(), waits.collect())
}

#[test]
fn a_part_of_a_trace_has_the_messages_and_waits_that_the_whole_has_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtrace");
    write(&path);
    let (large, trace) = (Large::open(&path).unwrap(), read_file(&path).unwrap());
    assert_eq!(large.records as usize, trace.records());
    let analysis = analyse(&trace);
    let mut state = 11;
    let mut found = (0, 0);
    for _ in 0..100 {
        let from = next(&mut state) % (trace.end_ns - 100_000);
        let window = Window {
            from,
            to: from + next(&mut state) % 100_000 + 1,
            first: 0,
            last: RANKS,
        };
        let (part, is_whole) = large.calls(window).unwrap().unwrap();
        assert!(is_whole && part.records() < trace.records());
        let expected = facts(&trace, &analysis, &window);
        found = (found.0 + expected.0.len(), found.1 + expected.1.len());
        assert_eq!(
            facts(&part, &analyse(&part), &window),
            expected,
            "{window:?}"
        );
    }
    assert!(found.0 > 500 && found.1 > 500, "{found:?}");
}

#[test]
fn sums_and_hits_are_those_of_all_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtrace");
    write(&path);
    let (large, trace) = (Large::open(&path).unwrap(), read_file(&path).unwrap());
    let calls = trace.threads.iter().flat_map(|of| &of.records);
    let calls: Vec<&Record> = calls.filter(|r| !r.kind.is_further()).collect();
    let sum: u64 = calls.iter().map(|r| r.ticks.unwrap()).sum();
    assert_eq!(large.whole.busy.iter().sum::<u64>(), sum);
    let all = Window {
        from: 0,
        to: trace.end_ns,
        first: 0,
        last: RANKS,
    };
    assert_eq!(large.grid(all).unwrap().busy, large.whole.busy);
    let wanted = Wanted {
        sites: vec![3],
        tag: None,
    };
    let (count, hits) = large.find(&wanted, 2_000_000).unwrap();
    let of_site = calls.iter().filter(|r| r.site == 3);
    assert_eq!(count, of_site.clone().count() as u64);
    let later = of_site.filter(|r| r.start >= 2_000_000).count();
    assert_eq!(hits.len(), later);
    assert!(hits.is_sorted());
}

#[test]
fn a_trace_that_is_cut_or_damaged_has_what_is_before_that() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtrace");
    write(&path);
    let whole = fs::read(&path).unwrap();
    for length in (64..whole.len()).step_by(997) {
        fs::write(&path, &whole[..length]).unwrap();
        let (large, trace) = (Large::open(&path).unwrap(), read_file(&path).unwrap());
        assert_eq!(large.records as usize, trace.records(), "{length}");
        assert!(large.trace.is_cut && large.trace.end_ns == trace.end_ns);
        let mut damaged = whole.clone();
        damaged[length] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        let (large, trace) = (Large::open(&path).unwrap(), read_file(&path).unwrap());
        assert_eq!(large.records as usize, trace.records(), "{length}");
    }
}
