//! The trace of a job on several hosts: on each of them a recorder writes a part, and here the
//! parts become one trace while they come.
//!
//! The standard input brings them, in [pieces](Piece).

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use margay_core_record::{Piece, Record};
use margay_sys_os::clock;

use crate::format::{Block, Head, Incoming, Place, SiteInfo, ThreadRecords, Trace};
use crate::sink::{End, Sink, Wanted};

/// A longer piece is none.
const MOST_PIECE: u64 = 64 << 20;

/// Clocks of two hosts drift apart by no more than one part of this: a crystal has 50 millionths,
/// and what the network's time corrects comes to it.
const DRIFT: u64 = 10_000;

/// What a host adds.
struct Part {
    host: String,
    incoming: Incoming,
    clock: Ahead,
    /// For each of its call sites, the number in the trace.
    sites: HashMap<u16, u16>,
    /// Those of its ranks that are known.
    ranks: HashSet<u32>,
    is_whole: bool,
    /// Why no more of it is read.
    failed: Option<String>,
}

/// How far a clock is ahead of ours. It is read again and again, and the host looked at it some
/// time between question and answer: each reading gives bounds, and together they are narrower
/// than those of the soonest answer (Marzullo, "Maintaining the time in a distributed system",
/// 1983).
#[derive(Default)]
struct Ahead {
    /// Nanoseconds, and when the last of the readings was taken by our clock.
    bounds: Option<(i64, i64, u64)>,
}

impl Ahead {
    fn read(&mut self, ahead: i64, took: u64, now: u64) {
        let half = (took / 2 + 1) as i64;
        let (mut low, mut high) = (ahead.saturating_sub(half), ahead.saturating_add(half));
        if let Some((lowest, highest, then)) = self.bounds {
            let drift = (now.saturating_sub(then) / DRIFT) as i64;
            let both = (low.max(lowest - drift), high.min(highest + drift));
            // A clock can jump, where a machine slept.
            if both.0 <= both.1 {
                (low, high) = both;
            }
        }
        self.bounds = Some((low, high, now));
    }

    fn ns(&self) -> i64 {
        self.bounds.map_or(0, |(low, high, _)| {
            low.wrapping_add(high.wrapping_sub(low) / 2)
        })
    }
}

struct Gathering {
    sink: Sink,
    parts: Vec<Part>,
    /// Time 0 of the trace by the clock of this host.
    began: u64,
    numbers: HashMap<Place, u16>,
    infos: Vec<SiteInfo>,
    sources: HashMap<String, String>,
    end_ns: u64,
    notes: Vec<String>,
}

/// Gathers the parts of a job until its input ends. Returns the trace, if it is kept.
///
/// # Errors
/// In words, when it cannot be written.
pub fn run(
    mut input: impl Read,
    (ranks, job, command): (u32, u64, String),
    hosts: &[String],
    wanted: Wanted,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Trace>, String> {
    let began = clock::now_ns();
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let head = Head {
        ranks,
        started_ns: wall.map_or(0, |wall| wall.as_nanos() as u64),
        job,
        command,
        host: hosts.join(","),
    };
    let part = |host: &String| Part {
        host: host.clone(),
        incoming: Incoming::default(),
        clock: Ahead::default(),
        sites: HashMap::new(),
        ranks: HashSet::new(),
        is_whole: false,
        failed: None,
    };
    let mut gathering = Gathering {
        sink: Sink::new(wanted, head)?,
        parts: hosts.iter().map(part).collect(),
        began,
        numbers: HashMap::new(),
        infos: Vec::new(),
        sources: HashMap::new(),
        end_ns: 0,
        notes: Vec::new(),
    };
    // What is in the file so far can be read while the job runs.
    while let Ok(Some((host, what, bytes))) = piece(&mut input) {
        gathering.take(host as usize, what, &bytes);
        gathering.sink.flush();
    }
    Ok(gathering.finish(say))
}

/// The host of a piece, what that is where it is known, and its bytes.
type Taken = (u32, Option<Piece>, Vec<u8>);

/// The next piece of the input.
fn piece(input: &mut impl Read) -> io::Result<Option<Taken>> {
    let (mut head, mut bytes) = (Vec::new(), Vec::new());
    input.take(Piece::HEAD as u64).read_to_end(&mut head)?;
    let Ok(head) = <[u8; Piece::HEAD]>::try_from(head) else {
        return Ok(None);
    };
    let (host, what, length) = Piece::read(head);
    if length > MOST_PIECE {
        return Ok(None);
    }
    input.take(length).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == length).then_some((host, what, bytes)))
}

impl Gathering {
    fn take(&mut self, host: usize, what: Option<Piece>, bytes: &[u8]) {
        let Some(part) = self.parts.get_mut(host) else {
            return;
        };
        match what {
            Some(Piece::Bytes) if part.failed.is_none() => {
                part.incoming.add(bytes);
                loop {
                    let part = &mut self.parts[host];
                    match part.incoming.next() {
                        Ok(Some(block)) => self.take_block(host, block),
                        Ok(None) => return,
                        Err(error) => {
                            part.failed = Some(error.to_string());
                            return;
                        }
                    }
                }
            }
            Some(Piece::Clock) => {
                if let Some((&ahead, took)) = bytes.split_first_chunk::<8>()
                    && let Ok(took) = <[u8; 8]>::try_from(took)
                {
                    let took = u64::from_le_bytes(took);
                    let ahead = i64::from_le_bytes(ahead);
                    part.clock.read(ahead, took, clock::now_ns());
                }
            }
            _ => {}
        }
    }

    fn take_block(&mut self, host: usize, block: Block) {
        let part = &mut self.parts[host];
        match block {
            Block::Place(number, place) => {
                let next = self.infos.len() + 1;
                let of_trace = match self.numbers.get(&place) {
                    Some(&known) => known,
                    // Site 0 is an unknown one.
                    None => match u16::try_from(next) {
                        Err(_) => 0,
                        Ok(new) => {
                            self.sink.place(new, &place);
                            self.infos.push(SiteInfo {
                                call: place.call.clone(),
                                module: place.module.clone(),
                                ..SiteInfo::default()
                            });
                            *self.numbers.entry(place).or_insert(new)
                        }
                    },
                };
                part.sites.insert(number, of_trace);
            }
            Block::Site(number, info) => {
                let of_trace = part.sites.get(&number).copied().unwrap_or(0);
                let known = usize::from(of_trace).checked_sub(1);
                if let Some(known) = known.and_then(|at| self.infos.get_mut(at)) {
                    *known = info;
                }
            }
            Block::Records(of) => {
                let shift = part.shift(self.began);
                let moved = |record: Record| Record {
                    start: (record.start).saturating_add_signed(shift),
                    site: part.sites.get(&record.site).copied().unwrap_or(0),
                    ..record
                };
                let of = ThreadRecords {
                    records: of.records.into_iter().map(moved).collect(),
                    ..of
                };
                let ends = (of.records.iter())
                    .map(|record| record.start.saturating_add(record.ticks.unwrap_or(0)));
                self.end_ns = ends.fold(self.end_ns, u64::max);
                if part.ranks.insert(of.rank) {
                    self.sink.rank(of.rank, &part.host);
                }
                self.sink.records(of);
            }
            Block::Source(file, text) => drop(self.sources.insert(file, text)),
            Block::Note(text) => self.notes.push(format!("host {}: {text}", part.host)),
            Block::End(end_ns) => {
                part.is_whole = true;
                let end_ns = end_ns.saturating_add_signed(part.shift(self.began));
                self.end_ns = self.end_ns.max(end_ns);
            }
            Block::Job(..) | Block::Rank(..) | Block::Unknown => {}
        }
    }

    fn finish(mut self, say: &mut dyn FnMut(&str)) -> Option<Trace> {
        for part in &self.parts {
            let Part { host, failed, .. } = part;
            if let Some(why) = failed {
                let note = format!("what host {host} recorded cannot be read: {why}");
                self.notes.push(note);
            } else if !part.is_whole {
                let note = format!(
                    "the records of host {host} have no end: the host or its recorder was lost"
                );
                self.notes.push(note);
            }
        }
        let mut sources: Vec<_> = self.sources.into_iter().collect();
        sources.sort_unstable();
        let end = End {
            sites: self.infos,
            sources,
            end_ns: self.end_ns,
        };
        self.sink.finish(end, &self.notes, say)
    }
}

impl Part {
    /// What is added to its times, which count from its time 0, for those of the trace. A part's
    /// header has that by the clock of its host.
    fn shift(&self, began: u64) -> i64 {
        let zero = self.incoming.started_ns().unwrap_or(0) as i64;
        (zero.wrapping_sub(self.clock.ns())).wrapping_sub(began as i64)
    }
}

#[cfg(test)]
mod tests {
    use margay_core_record::Kind;

    use super::*;
    use crate::format::tests::record;
    use crate::format::{Writer, read_file};
    use crate::sink::Output;

    fn framed(host: u32, what: Piece, bytes: &[u8]) -> Vec<u8> {
        [&what.head(host, bytes.len()), bytes].concat()
    }

    /// A part with a call at 1000 ns by the launcher's clock, from the site with that number.
    fn part(rank: u32, zero: u64, site: u16, line: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let head = Head {
            ranks: 2,
            started_ns: zero,
            ..Head::default()
        };
        let mut writer = Writer::new(&mut bytes, &head).unwrap();
        let place = Place {
            call: "MPI_Send".into(),
            module: "/bin/a".into(),
            offset: 77,
        };
        let info = SiteInfo {
            call: "MPI_Send".into(),
            file: "a.c".into(),
            line,
            ..SiteInfo::default()
        };
        writer.place(site, &place).unwrap();
        let of = ThreadRecords {
            rank,
            thread: rank,
            records: vec![record(Kind::Send, 1000, 5, site, 1 - rank)],
            lost: 1,
        };
        writer.records(&of).unwrap();
        writer.site(site, &info).unwrap();
        writer.source("a.c", "main").unwrap();
        writer.note("is tired").unwrap();
        writer.end(2000).unwrap();
        bytes
    }

    fn gathered(input: &[u8]) -> (Trace, Vec<String>) {
        let name = format!("margay-gather-{}-{input:p}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let wanted = Wanted {
            output: Output::File(path.clone()),
            keeps: true,
        };
        let mut said = Vec::new();
        let mut say = |text: &str| said.push(text.to_owned());
        let hosts = ["a".to_owned(), "b".to_owned()];
        let job = (2, 9, "./a".to_owned());
        let kept = run(input, job, &hosts, wanted, &mut say).unwrap().unwrap();
        assert_eq!(read_file(&path).unwrap(), kept);
        std::fs::remove_file(path).unwrap();
        (kept, said)
    }

    #[test]
    fn readings_of_a_clock_bound_each_other() {
        let mut clock = Ahead::default();
        // One question came late, and one answer.
        clock.read(1040, 100, 0);
        clock.read(960, 100, 0);
        assert_eq!(clock.ns(), 1000);
        // The clocks drift, and bounds that are old are worth less.
        clock.read(1500, 900, 1_000_000);
        assert_eq!(clock.ns(), 1080);
        // A jump.
        clock.read(1_000_000, 10, 1_000_000);
        assert_eq!(clock.ns(), 1_000_000);
    }

    #[test]
    fn parts_become_one_trace_by_one_clock_whatever_pieces_they_come_in() {
        let now = clock::now_ns();
        // The second host's clock is a second ahead, of which slow answers say little.
        let second = 1_000_000_000i64;
        let ahead = |ahead: i64, took: u64| [ahead.to_le_bytes(), took.to_le_bytes()].concat();
        let (a, b) = (part(0, now, 1, 7), part(1, now + second as u64, 2, 7));
        for size in [1, 7, 64, 1 << 20] {
            let mut input = framed(1, Piece::Clock, &ahead(3 * second, 5_000_000_000));
            input.extend(framed(1, Piece::Clock, &ahead(second, 10)));
            input.extend(framed(1, Piece::Clock, &ahead(0, 3_000_000_000)));
            let (mut first, mut other) = (a.chunks(size), b.chunks(size));
            loop {
                let next = [(0, first.next()), (1, other.next())];
                if next.iter().all(|(_, bytes)| bytes.is_none()) {
                    break;
                }
                for (host, bytes) in next {
                    input.extend(
                        bytes
                            .map(|bytes| framed(host, Piece::Bytes, bytes))
                            .unwrap_or_default(),
                    );
                }
            }
            let (trace, said) = gathered(&input);
            assert_eq!((trace.head.ranks, &trace.head.host[..]), (2, "a,b"));
            assert_eq!((trace.sites.len(), trace.site(1).line), (1, 7));
            assert_eq!((trace.records(), trace.lost()), (2, 2));
            let [a, b] = [0, 1].map(|rank: usize| &trace.threads[rank].records[0]);
            assert_eq!((a.site, a.start), (b.site, b.start));
            assert_eq!(trace.sources["a.c"], "main");
            assert_eq!([trace.host(0), trace.host(1)], ["a", "b"]);
            assert!(said.contains(&"host b: is tired".to_owned()), "{said:?}");
        }
    }

    #[test]
    fn a_part_that_is_cut_or_damaged_is_named_and_the_others_are_whole() {
        let now = clock::now_ns();
        let (a, b) = (part(0, now, 1, 7), part(1, now, 2, 7));
        for length in 0..b.len() {
            let input = [
                framed(0, Piece::Bytes, &a),
                framed(1, Piece::Bytes, &b[..length]),
            ]
            .concat();
            let (trace, said) = gathered(&input);
            assert!(trace.records() >= 1);
            let named = said
                .iter()
                .any(|text| text.contains("records of host b have no end"));
            assert!(named, "{length}: {said:?}");
        }
        for at in 0..b.len() {
            let mut damaged = b.clone();
            damaged[at] ^= 0xff;
            let input = [
                framed(1, Piece::Bytes, &damaged),
                framed(0, Piece::Bytes, &a),
            ]
            .concat();
            let (trace, _) = gathered(&input);
            assert!(trace.threads.iter().any(|thread| thread.rank == 0));
        }
        let input = framed(0, Piece::Bytes, &a);
        for length in 0..input.len() {
            gathered(&input[..length]);
        }
    }
}
