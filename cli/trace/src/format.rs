//! The stored trace, `.mtrace`: blocks with checksums, so that what was written before a cut is
//! read. `docs/mtrace.md` draws it.

mod blocks;
mod incoming;
mod sort;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use margay_core_record::{Kind, Record};
use margay_core_sums::{Series, crc32, records};

pub use blocks::{Blocks, Found};
pub use incoming::Incoming;

pub const VERSION: u8 = 1;
const MAGIC: [u8; 8] = [b'M', b'T', b'R', b'A', b'C', b'E', 0, VERSION];
const HEADER: usize = 64;
const HEAD: usize = 16;
/// A block that says to be longer is none.
const MOST_BLOCK: usize = 64 << 20;

const JOB: u32 = 1;
const SITE: u32 = 2;
const RECORDS: u32 = 3;
const SOURCE: u32 = 4;
const END: u32 = 5;
const PLACE: u32 = 6;
const NOTE: u32 = 7;
const RANK: u32 = 8;

/// What a trace is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub ranks: u32,
    /// Time 0 of the trace, in nanoseconds since 1970.
    pub started_ns: u64,
    pub job: u64,
    pub command: String,
    pub host: String,
}

/// From where a program calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteInfo {
    pub call: String,
    pub function: String,
    /// As the compiler was given it; empty for unknown.
    pub file: String,
    /// 0 for unknown.
    pub line: u32,
    pub module: String,
}

impl SiteInfo {
    /// Where it is: `mesh.c:88`, or the function, or the program.
    pub fn place(&self) -> String {
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        match (self.line, self.function.is_empty()) {
            (1.., _) => format!("{}:{}", name(&self.file), self.line),
            (0, false) => self.function.clone(),
            (0, true) => name(&self.module),
        }
    }
}

/// A call site before its line is looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub call: String,
    pub module: String,
    /// In the file of the program or library.
    pub offset: u64,
}

/// The records of one thread of a rank; times are nanoseconds since the trace began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecords {
    pub rank: u32,
    pub thread: u32,
    pub records: Vec<Record>,
    /// How many did not come into the trace.
    pub lost: u64,
}

/// A trace in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub head: Head,
    pub sites: BTreeMap<u16, SiteInfo>,
    pub threads: Vec<ThreadRecords>,
    /// What threads do in OpenMP: no calls.
    pub openmp: Vec<ThreadRecords>,
    /// How long calls took that were only counted.
    pub spent: Vec<ThreadRecords>,
    /// Files of the program's source, by the names that sites have.
    pub sources: BTreeMap<String, String>,
    /// Of a job on several hosts: where ranks run.
    pub hosts: BTreeMap<u32, String>,
    /// When it ended; the end of the last record where the trace was cut.
    pub end_ns: u64,
    /// It has no end: the file was cut, or is still written.
    pub is_cut: bool,
    /// Of a part of a trace: what was before it.
    pub before: HashMap<Series, u32>,
}

/// A record by its thread and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct At {
    pub thread: u32,
    pub index: u32,
}

/// Duration of a record; of one that has not ended, until the end of the trace.
pub fn duration(trace: &Trace, record: &Record) -> u64 {
    record
        .ticks
        .unwrap_or_else(|| trace.end_ns.saturating_sub(record.start))
}

pub fn end(trace: &Trace, record: &Record) -> u64 {
    record.start.saturating_add(duration(trace, record))
}

/// Why a file is no trace.
#[derive(Debug)]
pub enum TraceError {
    Io(io::Error),
    Magic,
    Version(u8),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(error) => write!(f, "{error}"),
            TraceError::Magic => f.write_str(
                "it is no trace of Margay (it does not begin with MTRACE); mpiexec -trace FILE makes one",
            ),
            TraceError::Version(version) => write!(
                f,
                "it is a trace of version {version}, this program reads version {VERSION}; use the margay that made it"
            ),
        }
    }
}

/// Writes a trace block by block.
pub struct Writer<W: Write> {
    to: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(mut to: W, head: &Head) -> io::Result<Writer<W>> {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&head.ranks.to_le_bytes());
        bytes[16..24].copy_from_slice(&head.started_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&head.job.to_le_bytes());
        to.write_all(&bytes)?;
        let mut writer = Writer { to, written: 0 };
        let mut text = Vec::new();
        put_text(&mut text, &head.command);
        put_text(&mut text, &head.host);
        writer.block(JOB, &text)?;
        Ok(writer)
    }

    fn block(&mut self, kind: u32, payload: &[u8]) -> io::Result<()> {
        let padding = payload.len().next_multiple_of(8) - payload.len();
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&kind.to_le_bytes());
        head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&crc32(payload).to_le_bytes());
        self.to.write_all(&head)?;
        self.to.write_all(payload)?;
        self.to.write_all(&[0; 8][..padding])
    }

    pub fn site(&mut self, number: u16, site: &SiteInfo) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(u32::from(number).to_le_bytes());
        bytes.extend(site.line.to_le_bytes());
        for text in [&site.call, &site.function, &site.file, &site.module] {
            put_text(&mut bytes, text);
        }
        self.block(SITE, &bytes)
    }

    /// Of a part: a call site, of which only its place in the program is known.
    pub fn place(&mut self, number: u16, place: &Place) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(u32::from(number).to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(place.offset.to_le_bytes());
        put_text(&mut bytes, &place.call);
        put_text(&mut bytes, &place.module);
        self.block(PLACE, &bytes)
    }

    /// Of a part: something for the user.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, text);
        self.block(NOTE, &bytes)
    }

    /// Of a job on several hosts: where a rank runs.
    pub fn rank(&mut self, rank: u32, host: &str) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(rank.to_le_bytes());
        put_text(&mut bytes, host);
        self.block(RANK, &bytes)
    }

    pub fn records(&mut self, of: &ThreadRecords) -> io::Result<()> {
        const AT_A_TIME: usize = 16_384;
        let mut lost = of.lost;
        let mut chunks = of.records.chunks(AT_A_TIME);
        loop {
            let chunk = chunks.next();
            if chunk.is_none() && lost == 0 {
                return Ok(());
            }
            let records = chunk.unwrap_or_default();
            let mut bytes = Vec::with_capacity(16 + 32 * records.len());
            bytes.extend(of.rank.to_le_bytes());
            bytes.extend(of.thread.to_le_bytes());
            bytes.extend(std::mem::take(&mut lost).to_le_bytes());
            for record in records {
                for word in record.pack() {
                    bytes.extend(word.to_le_bytes());
                }
            }
            self.written += records.len() as u64;
            self.block(RECORDS, &bytes)?;
        }
    }

    pub fn source(&mut self, file: &str, text: &str) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, file);
        bytes.extend(text.as_bytes());
        self.block(SOURCE, &bytes)
    }

    /// Writes the end. Returns how many records the trace has.
    pub fn end(mut self, end_ns: u64) -> io::Result<u64> {
        self.block(END, &end_ns.to_le_bytes())?;
        self.to.flush()?;
        Ok(self.written)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a whole trace.
pub fn write(to: impl Write, trace: &Trace) -> io::Result<()> {
    let mut writer = Writer::new(to, &trace.head)?;
    for (&number, site) in &trace.sites {
        writer.site(number, site)?;
    }
    for (&rank, host) in &trace.hosts {
        writer.rank(rank, host)?;
    }
    for thread in (trace.threads.iter())
        .chain(&trace.openmp)
        .chain(&trace.spent)
    {
        writer.records(thread)?;
    }
    for (file, text) in &trace.sources {
        writer.source(file, text)?;
    }
    writer.end(trace.end_ns).map(drop)
}

/// Reads a trace.
pub fn read_file(path: &Path) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(TraceError::Io)?;
    read(BufReader::with_capacity(1 << 20, file))
}

/// What the header says.
fn header(from: &mut impl Read) -> Result<Trace, TraceError> {
    let mut header = Vec::new();
    from.take(HEADER as u64)
        .read_to_end(&mut header)
        .map_err(TraceError::Io)?;
    let length = header.len().min(7);
    if length == 0 || header[..length] != MAGIC[..length] {
        return Err(TraceError::Magic);
    }
    if let Some(&version) = header.get(7)
        && version != VERSION
    {
        return Err(TraceError::Version(version));
    }
    header.resize(HEADER, 0);
    Ok(Trace {
        head: Head {
            ranks: u32::from_le_bytes(array(&header, 8)),
            started_ns: u64::from_le_bytes(array(&header, 16)),
            job: u64::from_le_bytes(array(&header, 24)),
            ..Head::default()
        },
        is_cut: true,
        ..Trace::default()
    })
}

pub fn read(mut from: impl Read) -> Result<Trace, TraceError> {
    let mut trace = header(&mut from)?;
    let mut threads: BTreeMap<(u32, u32), ThreadRecords> = BTreeMap::new();
    let mut payload = Vec::new();
    while let Some(kind) = next_block(&mut from, &mut payload).map_err(TraceError::Io)? {
        take(&mut trace, &mut threads, block(kind, &payload));
    }
    trace.threads = threads.into_values().collect();
    // A file may say anything; ranks that have records are there.
    let most = trace.threads.iter().map(|t| t.rank + 1).max();
    trace.head.ranks = trace.head.ranks.clamp(1, 1 << 24).max(most.unwrap_or(0));
    trace.sort();
    let all = trace.threads.iter().chain(&trace.openmp);
    let last = all.flat_map(|t| t.records.iter().rev());
    let ends = last.map(|r| r.start.saturating_add(r.ticks.unwrap_or(0)));
    trace.end_ns = ends.max().unwrap_or(0).max(trace.end_ns);
    Ok(trace)
}

/// The next block that is whole.
fn next_block(from: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<Option<u32>> {
    let mut head = Vec::with_capacity(HEAD);
    from.take(HEAD as u64).read_to_end(&mut head)?;
    if head.len() < HEAD {
        return Ok(None);
    }
    let length = u32::from_le_bytes(array(&head, 4)) as usize;
    if length > MOST_BLOCK {
        return Ok(None);
    }
    payload.clear();
    let padded = length.next_multiple_of(8);
    from.take(padded as u64).read_to_end(payload)?;
    if payload.len() < length {
        return Ok(None);
    }
    payload.truncate(length);
    let is_whole = crc32(payload) == u32::from_le_bytes(array(&head, 8));
    Ok(is_whole.then(|| u32::from_le_bytes(array(&head, 0))))
}

/// What a block holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    Job(String, String),
    Site(u16, SiteInfo),
    Records(ThreadRecords),
    Source(String, String),
    End(u64),
    Place(u16, Place),
    Note(String),
    Rank(u32, String),
    /// Of a later version, or nonsense.
    Unknown,
}

fn block(kind: u32, payload: &[u8]) -> Block {
    let mut rest = payload;
    match kind {
        JOB => Block::Job(text(&mut rest), text(&mut rest)),
        SITE => {
            let (number, line) = (word(&mut rest) as u16, word(&mut rest));
            let site = SiteInfo {
                call: text(&mut rest),
                function: text(&mut rest),
                file: text(&mut rest),
                module: text(&mut rest),
                line,
            };
            Block::Site(number, site)
        }
        RECORDS => {
            /// A rank beyond is none.
            const MOST: u32 = 1 << 24;
            let (rank, thread) = (word(&mut rest), word(&mut rest));
            let lost = long(&mut rest);
            if rank >= MOST {
                return Block::Unknown;
            }
            Block::Records(ThreadRecords {
                rank,
                thread,
                records: records(rest).collect(),
                lost,
            })
        }
        SOURCE => {
            let file = text(&mut rest);
            Block::Source(file, String::from_utf8_lossy(rest).into_owned())
        }
        END if rest.len() >= 8 => Block::End(long(&mut rest)),
        PLACE => {
            let (number, _) = (word(&mut rest) as u16, word(&mut rest));
            let offset = long(&mut rest);
            let (call, module) = (text(&mut rest), text(&mut rest));
            let place = Place {
                call,
                module,
                offset,
            };
            Block::Place(number, place)
        }
        NOTE => Block::Note(text(&mut rest)),
        RANK => Block::Rank(word(&mut rest), text(&mut rest)),
        _ => Block::Unknown,
    }
}

pub fn take(trace: &mut Trace, threads: &mut BTreeMap<(u32, u32), ThreadRecords>, block: Block) {
    match block {
        Block::Job(command, host) => {
            trace.head.command = command;
            trace.head.host = host;
        }
        Block::Site(number, site) => drop(trace.sites.insert(number, site)),
        Block::Records(new) => match threads.entry((new.rank, new.thread)) {
            Entry::Occupied(mut of) => {
                let of = of.get_mut();
                of.lost = of.lost.saturating_add(new.lost);
                of.records.extend(new.records);
            }
            Entry::Vacant(place) => drop(place.insert(new)),
        },
        Block::Rank(rank, host) => drop(trace.hosts.insert(rank, host)),
        Block::Source(file, text) => drop(trace.sources.insert(file, text)),
        Block::End(end_ns) => {
            trace.end_ns = end_ns;
            trace.is_cut = false;
        }
        // A part is no trace by itself.
        Block::Place(..) | Block::Note(_) | Block::Unknown => {}
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(0))
}

fn long(rest: &mut &[u8]) -> u64 {
    let low = u64::from(word(rest));
    low | u64::from(word(rest)) << 32
}

fn word(rest: &mut &[u8]) -> u32 {
    let value = u32::from_le_bytes(array(rest, 0));
    *rest = rest.get(4..).unwrap_or_default();
    value
}

/// A text: its length in bytes, then UTF-8.
fn text(rest: &mut &[u8]) -> String {
    let length = (word(rest) as usize).min(rest.len());
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    String::from_utf8_lossy(bytes).into_owned()
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text.as_bytes());
}

/// What a record is called where its site has no name.
pub fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Send | Kind::Sent => "send",
        Kind::Receive | Kind::Received => "receive",
        Kind::Post | Kind::Posted => "post",
        Kind::Collective => "collective",
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Threads => "openmp",
        Kind::Call | Kind::Total | Kind::Spent => "call",
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record(kind: Kind, start: u64, ticks: u64, site: u16, peer: u32) -> Record {
        Record {
            kind,
            start,
            ticks: Some(ticks),
            site,
            peer: (peer != u32::MAX).then_some(peer),
            tag: 7,
            context: 2,
            bytes: 800,
            request: 0,
        }
    }

    /// Two ranks: 0 computes, then sends; 1 waits for it. Then a barrier, to which 1 comes late.
    pub fn small() -> Trace {
        let site = |call: &str, line| SiteInfo {
            call: call.into(),
            function: "main()".into(),
            file: "/src/ring.c".into(),
            line,
            module: "/bin/ring".into(),
        };
        let barrier = |start, ticks| Record {
            context: 3,
            tag: 2,
            bytes: 0,
            ..record(Kind::Collective, start, ticks, 3, u32::MAX)
        };
        let thread = |rank, records| ThreadRecords {
            rank,
            thread: 10 + rank,
            records,
            lost: 0,
        };
        Trace {
            head: Head {
                ranks: 2,
                started_ns: 1_700_000_000_000_000_000,
                job: 77,
                command: "./ring".into(),
                host: "box".into(),
            },
            sites: BTreeMap::from([
                (1, site("MPI_Send", 20)),
                (2, site("MPI_Recv", 22)),
                (3, site("MPI_Barrier", 30)),
            ]),
            before: HashMap::new(),
            openmp: Vec::new(),
            spent: Vec::new(),
            threads: vec![
                thread(
                    0,
                    vec![
                        record(Kind::Send, 5_000_000, 1000, 1, 1),
                        barrier(6_000_000, 3_000_000),
                    ],
                ),
                thread(
                    1,
                    vec![
                        record(Kind::Receive, 1_000_000, 4_002_000, 2, 0),
                        barrier(8_990_000, 10_000),
                    ],
                ),
            ],
            sources: BTreeMap::from([("/src/ring.c".into(), "int main() {}\n".into())]),
            hosts: BTreeMap::from([(1, "crate".into())]),
            end_ns: 10_000_000,
            is_cut: false,
        }
    }

    pub fn bytes(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, trace).unwrap();
        bytes
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let trace = small();
        assert_eq!(read(&bytes(&trace)[..]).unwrap(), trace);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_threads_do_in_openmp_is_kept_apart() {
        let mut trace = small();
        let of_openmp = record(Kind::Threads, 2_000_000, 500, 3, u32::MAX);
        trace.threads[0].records.insert(0, of_openmp);
        let read = read(&bytes(&trace)[..]).unwrap();
        assert_eq!(read.threads, small().threads);
        assert_eq!(read.openmp[0].records, [of_openmp]);
        assert_eq!((read.openmp[0].rank, read.records()), (0, 5));
    }

    #[test]
    fn a_trace_of_version_1_that_was_put_together_by_hand_is_read() {
        let trace = read(&include_bytes!("old.mtrace")[..]).unwrap();
        assert_eq!((trace.head.command.as_str(), trace.head.job), ("./old", 77));
        assert_eq!((trace.end_ns, trace.is_cut, trace.lost()), (9000, false, 3));
        assert_eq!(trace.site(1).place(), "old.c:20");
        let sent = record(Kind::Send, 5000, 1000, 1, 1);
        assert_eq!(trace.threads[0].records, [sent]);
    }

    #[test]
    fn a_trace_that_is_cut_anywhere_is_read_up_to_there() {
        let whole = bytes(&small());
        let mut most = 0;
        for length in 1..whole.len() {
            let trace = read(&whole[..length]).unwrap();
            assert!(trace.is_cut, "{length}");
            assert!(trace.records() >= most);
            most = trace.records();
        }
        assert_eq!(most, 4);
        assert!(matches!(read(&b""[..]), Err(TraceError::Magic)));
        assert!(matches!(read(&b"ELF...."[..]), Err(TraceError::Magic)));
        let mut other = whole.clone();
        other[7] = 2;
        assert!(matches!(read(&other[..]), Err(TraceError::Version(2))));
    }

    #[test]
    fn damaged_bytes_are_no_reason_to_panic() {
        let whole = bytes(&small());
        for at in 8..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = read(&damaged[..]);
        }
    }
}
