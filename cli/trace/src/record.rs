//! Draining the rings of a running job into a trace, beside the ranks: a rank never waits for it.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use margay_core_record::{Clock, KEY, Reader, Record, Site, moment};
use margay_job_stacks::callers;
use margay_net_platform::Peers;
use margay_net_shm::SegmentPeers;
use margay_sys_os::{clock, process};
use margay_sys_shm::segment::Segment;

use crate::format::{Head, Place, SiteInfo, ThreadRecords, Trace};
use crate::sink::{End, Output, Sink, Wanted};

/// Between two looks at the rings. At 500,000 records a second a ring of 16,384 is full after six.
const LOOK: Duration = Duration::from_millis(5);
/// What is read of a file of source at most.
const MOST_SOURCE: u64 = 1 << 20;
/// Files of source that come into a trace.
const MOST_SOURCES: usize = 64;

/// The call sites of all ranks: equal ones have one number.
#[derive(Default)]
struct Sites {
    numbers: HashMap<(String, String, u64), u16>,
    all: Vec<Site>,
    /// For each rank, the numbers of its sites.
    of_rank: Vec<Vec<u16>>,
}

impl Sites {
    fn number(&mut self, rank: u32, site: u16, reader: &Reader<'_>) -> u16 {
        let (rank, at) = (rank as usize, usize::from(site));
        if let Some(&known) = self.of_rank[rank].get(at)
            && known != 0
        {
            return known;
        }
        let Some(found) = reader.site(site) else {
            return 0;
        };
        let key = (found.call.clone(), found.module.clone(), found.offset);
        let next = self.all.len() + 1;
        let number = *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(found);
            u16::try_from(next).unwrap_or(0)
        });
        let of_rank = &mut self.of_rank[rank];
        of_rank.resize(of_rank.len().max(at + 1), 0);
        of_rank[at] = number;
        number
    }
}

/// Where a thread's ring has been read to.
#[derive(Clone, Copy, Default)]
struct Progress {
    from: u64,
}

struct Recording {
    peers: Arc<dyn Peers>,
    segment: Arc<Segment>,
    sites: Sites,
    progress: HashMap<(u32, usize), Progress>,
    damaged: Vec<Option<String>>,
    /// A moment at the beginning, in ticks and nanoseconds.
    first: (u64, u64),
    announced: usize,
    sink: Sink,
}

/// Records the job whose segment this is until it ends. Returns its trace, if it is kept.
///
/// # Errors
/// In words, when nothing can be recorded.
pub fn run(
    segment: Segment,
    wanted: Wanted,
    ended: &mut dyn FnMut() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Trace>, String> {
    let segment = Arc::new(segment);
    let peers = SegmentPeers::of(&segment);
    let facts = peers.facts();
    let first = moment(clock::ticks, clock::now_ns);
    let now_ns = first.1;
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let head = Head {
        ranks: peers.size(),
        started_ns: match wanted.output {
            // The launcher's host knows how far the clocks of all hosts are apart.
            Output::Part => now_ns,
            _ => wall.map_or(0, |wall| wall.as_nanos() as u64),
        },
        job: facts.job,
        command: facts.command,
        host: process::host_name(),
    };
    let mut recording = Recording {
        sites: Sites {
            of_rank: vec![Vec::new(); peers.size() as usize],
            ..Sites::default()
        },
        damaged: vec![None; peers.size() as usize],
        peers,
        segment,
        progress: HashMap::new(),
        first,
        announced: 0,
        sink: Sink::new(wanted, head)?,
    };
    let launcher = process::parent();
    loop {
        // At the first look some time has passed, from which the pace of the counter is known.
        std::thread::sleep(LOOK);
        let is_over = recording.is_over() || process::parent() != launcher || ended();
        recording.look(is_over);
        if is_over {
            break;
        }
    }
    let end_ns = clock::now_ns().saturating_sub(now_ns);
    Ok(recording.finish(end_ns, say))
}

impl Recording {
    /// All ranks have ended.
    fn is_over(&self) -> bool {
        (0..self.segment.ranks()).all(|rank| self.peers.has_exited(rank))
    }

    fn look(&mut self, is_last: bool) {
        let now = moment(clock::ticks, clock::now_ns);
        let clock = Clock::between(self.first, now);
        for rank in 0..self.segment.ranks() {
            if self.damaged[rank as usize].is_none() {
                self.look_at(rank, &clock, is_last);
            }
        }
        // What is in the file so far can be read while the job runs.
        self.sink.flush();
    }

    fn look_at(&mut self, rank: u32, clock: &Clock, is_last: bool) {
        let Some(words) = self.peers.note(rank, KEY) else {
            return;
        };
        let reader = match Reader::of(&words) {
            Ok(reader) => reader,
            // The rank may be about to write the header.
            Err(_) if !is_last => return,
            Err(why) => {
                self.damaged[rank as usize] = Some(why.to_string());
                return;
            }
        };
        let mut read = Vec::new();
        let lanes: Vec<_> = reader.lanes().collect();
        for (index, lane) in lanes {
            let progress = self.progress.entry((rank, index)).or_default();
            if lane.written <= progress.from {
                continue;
            }
            read.clear();
            let lost = reader.records(index, progress.from, &mut read);
            // A call that has not ended waits for the next look, with all that comes after it.
            let whole = match is_last {
                true => read.len(),
                false => (read.iter())
                    .position(|(_, record)| record.ticks.is_none())
                    .unwrap_or(read.len()),
            };
            progress.from = match (read.get(whole), read.last()) {
                (Some(&(position, _)), _) => position,
                (None, Some(&(position, _))) => position + 1,
                (None, None) => lane.written,
            };
            let records: Vec<Record> = (read[..whole].iter())
                .map(|(_, record)| self.sites_of(rank, record, &reader, clock))
                .collect();
            let of = ThreadRecords {
                rank,
                thread: lane.thread,
                records,
                lost,
            };
            self.keep(of);
        }
    }

    fn sites_of(
        &mut self,
        rank: u32,
        record: &Record,
        reader: &Reader<'_>,
        clock: &Clock,
    ) -> Record {
        let site = match record.site {
            0 => 0,
            site => self.sites.number(rank, site, reader),
        };
        Record {
            start: clock.ns(record.start).saturating_sub(self.first.1),
            ticks: record.ticks.map(|ticks| clock.span_ns(ticks)),
            site,
            ..*record
        }
    }

    fn keep(&mut self, of: ThreadRecords) {
        let new = self.sites.all.get(self.announced..).unwrap_or_default();
        for (site, number) in new.iter().zip(self.announced as u16 + 1..) {
            let place = Place {
                call: site.call.clone(),
                module: site.module.clone(),
                offset: site.offset,
            };
            self.sink.place(number, &place);
        }
        self.announced = self.sites.all.len();
        self.sink.records(of);
    }

    fn finish(self, end_ns: u64, say: &mut dyn FnMut(&str)) -> Option<Trace> {
        let places: Vec<(&str, u64)> = (self.sites.all.iter())
            .map(|site| (site.module.as_str(), site.offset))
            .collect();
        let frames = callers(&places);
        let infos: Vec<SiteInfo> = (self.sites.all.iter().zip(frames))
            .map(|(site, frame)| SiteInfo {
                call: site.call.clone(),
                function: match site.module.is_empty() || frame.is_python {
                    true => String::new(),
                    false => frame.function_text(),
                },
                file: frame.file.unwrap_or_default(),
                line: frame.line.unwrap_or(0),
                module: match frame.is_python {
                    true => frame.module,
                    false => site.module.clone(),
                },
            })
            .collect();
        let damaged = self.damaged.iter().enumerate();
        let notes: Vec<String> = damaged
            .filter_map(|(rank, why)| Some(format!("rank {rank} has no trace: {}", why.as_ref()?)))
            .collect();
        let end = End {
            sources: sources(&infos),
            sites: infos,
            end_ns,
        };
        self.sink.finish(end, &notes, say)
    }
}

/// The files of source of call sites, as far as they are here.
fn sources(sites: &[SiteInfo]) -> Vec<(String, String)> {
    let mut names: Vec<&str> = sites.iter().map(|site| site.file.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let read = |name: &str| {
        let facts = fs::metadata(name).ok()?;
        if !facts.is_file() || facts.len() > MOST_SOURCE {
            return None;
        }
        Some((
            name.to_owned(),
            String::from_utf8_lossy(&fs::read(name).ok()?).into_owned(),
        ))
    };
    names
        .into_iter()
        .filter_map(read)
        .take(MOST_SOURCES)
        .collect()
}
