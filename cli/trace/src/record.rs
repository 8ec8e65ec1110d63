//! Draining the rings of a running job into a trace, beside the ranks: a rank never waits for it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_core_record::{Clock, KEY, Reader, Record, Site, moment};
use margay_job_stacks::callers;
use margay_net_platform::Peers;
use margay_net_shm::SegmentPeers;
use margay_sys_os::{clock, process};
use margay_sys_shm::segment::Segment;

use crate::format::{Head, SiteInfo, ThreadRecords, Trace, Writer};

/// Between two looks at the rings. At 500,000 records a second a ring of 16,384 is full after six.
const LOOK: Duration = Duration::from_millis(5);
/// What is read of a file of source at most.
const MOST_SOURCE: u64 = 1 << 20;
/// Files of source that come into a trace.
const MOST_SOURCES: usize = 64;

/// What is made of a job.
pub struct Wanted {
    /// Where the trace goes; none when only the profile is wanted.
    pub file: Option<PathBuf>,
    /// The trace stays in memory, for the profile.
    pub keeps: bool,
}

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
    writer: Option<Writer<BufWriter<File>>>,
    failed: Option<String>,
    kept: Option<Trace>,
    records: u64,
    lost: u64,
}

/// Records the job whose segment this is until it ends. Returns its trace, if it is kept.
///
/// # Errors
/// In words, when nothing can be recorded.
pub fn run(
    segment: Segment,
    wanted: &Wanted,
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
        started_ns: wall.map_or(0, |wall| wall.as_nanos() as u64),
        job: facts.job,
        command: facts.command,
        host: process::host_name(),
    };
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot write the trace {}: {error}", path.display())
    };
    let writer = match &wanted.file {
        Some(path) => {
            let file = create(path).map_err(|error| failed(path, &error))?;
            let writer = Writer::new(BufWriter::with_capacity(1 << 20, file), &head);
            Some(writer.map_err(|error| failed(path, &error))?)
        }
        None => None,
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
        writer,
        failed: None,
        kept: wanted.keeps.then(|| Trace {
            head,
            ..Trace::default()
        }),
        records: 0,
        lost: 0,
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
    let trace = recording.finish(end_ns, wanted, say);
    Ok(trace)
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
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.fail(error.to_string());
        }
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
        self.lost += of.lost;
        self.records += of.records.len() as u64;
        let new = self.sites.all.get(self.announced..).unwrap_or_default();
        if let Some(writer) = &mut self.writer {
            let mut written = Ok(());
            for (site, number) in new.iter().zip(self.announced as u16 + 1..) {
                let info = SiteInfo {
                    call: site.call.clone(),
                    module: site.module.clone(),
                    ..SiteInfo::default()
                };
                written = written.and_then(|()| writer.site(number, &info));
            }
            if let Err(error) = written.and_then(|()| writer.records(&of)) {
                self.fail(error.to_string());
            }
        }
        self.announced = self.sites.all.len();
        if let Some(kept) = &mut self.kept {
            let known =
                (kept.threads.iter_mut()).find(|t| (t.rank, t.thread) == (of.rank, of.thread));
            match known {
                Some(known) => {
                    known.records.extend(of.records);
                    known.lost += of.lost;
                }
                None => kept.threads.push(of),
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.failed = Some(why);
        self.writer = None;
    }

    fn finish(mut self, end_ns: u64, wanted: &Wanted, say: &mut dyn FnMut(&str)) -> Option<Trace> {
        let places: Vec<(&str, u64)> = (self.sites.all.iter())
            .map(|site| (site.module.as_str(), site.offset))
            .collect();
        let frames = callers(&places);
        let infos: Vec<SiteInfo> = (self.sites.all.iter().zip(frames))
            .map(|(site, frame)| SiteInfo {
                call: site.call.clone(),
                function: match site.module.is_empty() {
                    true => String::new(),
                    false => frame.function_text(),
                },
                file: frame.file.unwrap_or_default(),
                line: frame.line.unwrap_or(0),
                module: site.module.clone(),
            })
            .collect();
        let sources = sources(&infos);
        if let Some(mut writer) = self.writer.take() {
            let mut written = Ok(());
            for (info, number) in infos.iter().zip(1..) {
                written = written.and_then(|()| writer.site(number, info));
            }
            for (file, text) in &sources {
                written = written.and_then(|()| writer.source(file, text));
            }
            if let Err(error) = written.and_then(|()| writer.end(end_ns)) {
                self.fail(error.to_string());
            }
        }
        if let Some(path) = &wanted.file {
            let path = path.display();
            match &self.failed {
                Some(why) => say(&format!(
                    "the trace {path} is incomplete: {why}; the program was not held up"
                )),
                None => say(&format!("trace: {} records in {path}", self.records)),
            }
        }
        if self.lost != 0 {
            say(&format!(
                "{} records were overwritten before they could be written to the trace; MARGAY_RECORD=65536 makes longer rings",
                self.lost
            ));
        }
        for (rank, why) in self.damaged.iter().enumerate() {
            if let Some(why) = why {
                say(&format!("rank {rank} has no trace: {why}"));
            }
        }
        let mut trace = self.kept?;
        trace.sites = (1..).zip(infos).collect();
        trace.sources = sources.into_iter().collect();
        trace.end_ns = end_ns;
        trace.threads.sort_by_key(|t| (t.rank, t.thread));
        for thread in &mut trace.threads {
            thread.records.sort_by_key(|record| record.start);
        }
        Some(trace)
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

/// Creates a file that is written while the launcher waits. A pipe is refused: the job would end
/// only when somebody reads it.
///
/// # Errors
/// When it cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(facts) if facts.file_type().is_fifo() => {
            let why = "it is a pipe, whose reader could hold the job up; name a file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        _ => File::create(path),
    }
}

/// Writes text to a stream that may be gone.
pub fn print(mut to: impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}
