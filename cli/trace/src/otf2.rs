//! The trace as an archive of OTF2, which Vampir, Scalasca, Cube and others read: a folder with the
//! anchor file, definitions of all, and a file of events for each thread.
//!
//! | module | subject |
//! | --- | --- |
//! | `bytes` | numbers, records, chunks |
//! | `folder` | the folder appears when it is whole |
//! | `operation` | what a call is, by its name |
//! | `communicators` | which ranks a communicator has |
//! | `regions` | calls by the lines from which they come |
//! | `requests` | receives that one call posts and another one completes |
//! | `events` | from the records of a thread to its events |
//!
//! The layout of files and records is that of version 3.0 of the format.

mod bytes;
mod communicators;
mod events;
mod folder;
mod operation;
mod regions;
mod requests;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::format::{ThreadRecords, Trace};
use bytes::{ChunkWriter, DEFINITION_CHUNK, EVENT_CHUNK, Fields, LITTLE_ENDIAN, mark};
use communicators::{Communicators, Members};
use events::{Events, LONG, NOT_ENDED};
use folder::Folder;
use operation::paradigm::{MPI, OPENMP};
use regions::Regions;

/// Each has two files, and all of them are in one definition.
const MOST_RANKS: u32 = 1 << 19;
/// No definition.
const NONE: u32 = u32::MAX;

/// Kinds of definitions by their numbers.
mod definition {
    pub const CLOCK: u8 = 5;
    pub const PARADIGM: u8 = 6;
    pub const STRING: u8 = 10;
    pub const ATTRIBUTE: u8 = 11;
    pub const SYSTEM_NODE: u8 = 12;
    pub const LOCATION_GROUP: u8 = 13;
    pub const LOCATION: u8 = 14;
    pub const REGION: u8 = 15;
    pub const GROUP: u8 = 18;
    pub const METRIC_MEMBER: u8 = 19;
    pub const METRIC_CLASS: u8 = 20;
    pub const COMMUNICATOR: u8 = 22;
    pub const SYSTEM_DOMAIN: u8 = 27;
    pub const LOCATION_PROPERTY: u8 = 29;
}

/// Kinds of groups, and what they were before OTF2 1.2.
#[derive(Clone, Copy)]
enum GroupKind {
    Locations = 4,
    Ranks = 5,
    Own = 6,
}

impl GroupKind {
    fn old(self) -> u8 {
        match self {
            GroupKind::Locations => 6,
            GroupKind::Ranks => 4,
            GroupKind::Own => 5,
        }
    }
}

/// A thread of a rank.
struct Location {
    number: u64,
    name: String,
    rank: u32,
    events: u64,
    lost: u64,
}

/// Writes an archive. Returns its anchor file.
///
/// # Errors
/// In words. Then nothing is left of it.
pub fn write(path: &Path, trace: &Trace) -> Result<PathBuf, String> {
    let ranks = trace.head.ranks;
    if ranks > MOST_RANKS {
        return Err(format!(
            "the trace is of {ranks} ranks; OTF2 is written for {MOST_RANKS} at most, as each has two files"
        ));
    }
    let mut folder = Folder::new(path)?;
    archive(&mut folder, trace)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    folder.publish()?;
    Ok(path.join(folder::ANCHOR))
}

fn archive(folder: &mut Folder<'_>, trace: &Trace) -> io::Result<()> {
    let communicators = Communicators::of(trace);
    let mut regions = Regions::of_trace(trace);
    let mut locations = Vec::new();
    let mut last = trace.end_ns;
    let mut threads = trace.threads.iter().peekable();
    let mut openmp = trace.openmp.iter().peekable();
    for rank in 0..trace.head.ranks {
        let nothing = ThreadRecords {
            rank,
            ..ThreadRecords::default()
        };
        let first = threads.next_if(|of| of.rank == rank);
        let mut next = Some((first.unwrap_or(&nothing), "thread"));
        let mut place = 0;
        while let Some((of, what)) = next {
            let number = u64::from(rank) | place << 32;
            let file = ChunkWriter::new(folder.events(number)?, EVENT_CHUNK);
            let records = (trace, of);
            let (events, end) = Events::write(file, records, &communicators, &mut regions)?;
            // Nothing is defined for one thread alone.
            ChunkWriter::new(folder.definitions_of(number)?, DEFINITION_CHUNK).finish()?;
            last = last.max(end);
            locations.push(Location {
                number,
                name: match place {
                    0 => format!("rank {rank}"),
                    _ => format!("rank {rank} {what} {}", of.thread),
                },
                rank,
                events,
                lost: of.lost,
            });
            place += 1;
            let further = threads.next_if(|of| of.rank == rank);
            // What a thread does in OpenMP is apart from its calls, as those of others may be among
            // these.
            let of_openmp = || Some((openmp.next_if(|of| of.rank == rank)?, "OpenMP, thread"));
            next = further.map(|of| (of, "thread")).or_else(of_openmp);
        }
    }
    let mut definitions = Definitions::new(folder.definitions()?);
    definitions.clock(trace, last)?;
    definitions.system(trace, &locations)?;
    definitions.regions(&regions)?;
    definitions.communicators(&communicators, trace.head.ranks)?;
    definitions.metrics(&regions)?;
    let number = definitions.finish()?;
    anchor(folder.anchor()?, trace, locations.len() as u64, number)
}

/// The file that says what the others are.
fn anchor(mut to: impl Write, trace: &Trace, locations: u64, definitions: u64) -> io::Result<()> {
    const FORMAT: [u8; 2] = [3, 2];
    const VERSION: [u8; 3] = [3, 0, 0];
    /// Files of the file system, without compression.
    const STORED: [u8; 2] = [1, 1];
    let mut hasher = DefaultHasher::new();
    let facts = (trace.head.job, trace.head.started_ns, trace.end_ns);
    (facts, trace.head.ranks, definitions).hash(&mut hasher);
    let mut fields = Fields(vec![mark::HEADER, LITTLE_ENDIAN]);
    fields.text("OTF2");
    fields.0.extend(FORMAT);
    fields.0.extend(VERSION);
    fields
        .fixed(EVENT_CHUNK as u64)
        .fixed(DEFINITION_CHUNK as u64);
    fields.0.extend(STORED);
    fields.fixed(locations).fixed(definitions);
    fields.text(&trace.head.host);
    fields.text(concat!("margay ", env!("CARGO_PKG_VERSION")));
    fields.text(&trace.head.command);
    // No properties, no snapshots, no thumbnails.
    fields.0.extend([0; 4]);
    fields.fixed(hasher.finish() | 1);
    fields.0.extend([0; 8]);
    fields.0.extend([mark::END_OF_FILE, mark::END_OF_BUFFER, 0]);
    to.write_all(&fields.0)?;
    to.flush()
}

/// Writes the file of definitions.
struct Definitions {
    to: ChunkWriter<File>,
    strings: HashMap<String, u32>,
    groups: u32,
    /// How many definitions there are.
    number: u64,
}

impl Definitions {
    fn new(to: File) -> Definitions {
        Definitions {
            to: ChunkWriter::new(to, DEFINITION_CHUNK),
            strings: HashMap::new(),
            groups: 0,
            number: 0,
        }
    }

    fn put(&mut self, kind: u8, fields: &Fields) -> io::Result<()> {
        self.number += 1;
        self.to.definition(kind, fields)
    }

    /// The number of a text, which is defined when it occurs first.
    fn string(&mut self, text: &str) -> io::Result<u32> {
        if text.is_empty() {
            return Ok(NONE);
        }
        if let Some(&known) = self.strings.get(text) {
            return Ok(known);
        }
        let next = self.strings.len() as u32;
        self.strings.insert(text.to_owned(), next);
        let mut fields = Fields::default();
        fields.word(next).text(text);
        self.put(definition::STRING, &fields)?;
        Ok(next)
    }

    /// Nanoseconds since the begin of the trace, whose date is known of our own traces.
    fn clock(&mut self, trace: &Trace, last: u64) -> io::Result<()> {
        const A_SECOND: u64 = 1_000_000_000;
        let date = match trace.head.started_ns {
            0 => u64::MAX,
            date => date,
        };
        let mut fields = Fields::default();
        fields.long(A_SECOND).long(0).long(last).long(date);
        self.put(definition::CLOCK, &fields)
    }

    /// Machine, host, ranks, threads.
    fn system(&mut self, trace: &Trace, locations: &[Location]) -> io::Result<()> {
        const MACHINE: u32 = 0;
        /// The first of the hosts.
        const HOST: u32 = 1;
        const PROCESSES: u8 = 0;
        const FORK_AND_JOIN: u8 = 1;
        let mut paradigms = vec![(MPI, "MPI", PROCESSES)];
        if !trace.openmp.is_empty() {
            paradigms.push((OPENMP, "OpenMP", FORK_AND_JOIN));
        }
        for (paradigm, name, class) in paradigms {
            let name = self.string(name)?;
            let mut fields = Fields::default();
            fields.byte(paradigm).word(name).byte(class);
            self.put(definition::PARADIGM, &fields)?;
        }
        let mut hosts: Vec<&str> = locations.iter().map(|l| trace.host(l.rank)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let name = |host| match host {
            "" => "unknown",
            host => host,
        };
        let nodes = (HOST..).zip(&hosts);
        let nodes = nodes.map(|(node, host)| (node, name(host), "node", MACHINE, 1));
        let machine = (MACHINE, "machine", "machine", NONE, 0);
        for (node, name, class, parent, domain) in std::iter::once(machine).chain(nodes) {
            let (name, class) = (self.string(name)?, self.string(class)?);
            let mut fields = Fields::default();
            fields.word(node).word(name).word(class).word(parent);
            self.put(definition::SYSTEM_NODE, &fields)?;
            let mut fields = Fields::default();
            fields.word(node).byte(domain);
            self.put(definition::SYSTEM_DOMAIN, &fields)?;
        }
        for location in locations {
            let host = hosts.partition_point(|host| *host < trace.host(location.rank));
            self.location(location, HOST + host as u32)?;
        }
        let main: Vec<u64> = (0..u64::from(trace.head.ranks)).collect();
        self.group("", GroupKind::Locations, &main)?;
        let (name, text) = (
            self.string("not ended")?,
            self.string("the call had not ended when the trace ended")?,
        );
        const BYTE: u8 = 1;
        let mut fields = Fields::default();
        fields.word(NOT_ENDED).word(name).byte(BYTE).word(text);
        self.put(definition::ATTRIBUTE, &fields)
    }

    fn location(&mut self, of: &Location, host: u32) -> io::Result<()> {
        const PROCESS: u8 = 1;
        const CPU_THREAD: u8 = 1;
        if of.number == u64::from(of.rank) {
            let name = self.string(&format!("MPI Rank {}", of.rank))?;
            let mut fields = Fields::default();
            fields.word(of.rank).word(name).byte(PROCESS).word(host);
            fields.word(NONE);
            self.put(definition::LOCATION_GROUP, &fields)?;
        }
        let name = self.string(&of.name)?;
        let mut fields = Fields::default();
        fields.long(of.number).word(name).byte(CPU_THREAD);
        fields.long(of.events).word(of.rank);
        self.put(definition::LOCATION, &fields)?;
        if of.lost == 0 {
            return Ok(());
        }
        let name = self.string("records that were lost")?;
        let mut fields = Fields::default();
        fields.long(of.number).word(name).word(NONE);
        fields.byte(LONG).long(of.lost);
        self.put(definition::LOCATION_PROPERTY, &fields)
    }

    fn group(&mut self, name: &str, kind: GroupKind, members: &[u64]) -> io::Result<u32> {
        let number = self.groups;
        self.groups += 1;
        let name = self.string(name)?;
        let mut fields = Fields::default();
        fields.word(number).word(name).byte(kind.old());
        fields.word(members.len() as u32);
        for &member in members {
            fields.long(member);
        }
        fields.byte(kind as u8).byte(MPI).word(0);
        self.put(definition::GROUP, &fields)?;
        Ok(number)
    }

    fn regions(&mut self, regions: &Regions) -> io::Result<()> {
        for (number, region) in (0..).zip(&regions.all) {
            let name = self.string(&region.name)?;
            let description = self.string(&region.description)?;
            let file = self.string(&region.file)?;
            let mut fields = Fields::default();
            fields.word(number).word(name).word(description);
            fields.byte(region.old_type()).word(file);
            fields.word(region.line).word(region.line).word(name);
            fields.byte(region.role).byte(region.paradigm).word(0);
            self.put(definition::REGION, &fields)?;
        }
        Ok(())
    }

    fn communicators(&mut self, communicators: &Communicators, ranks: u32) -> io::Result<()> {
        let mut all = None;
        for (number, (name, members)) in (0..).zip(communicators.iter()) {
            let group = match (members, all) {
                (Members::Own, _) => self.group("", GroupKind::Own, &[])?,
                (Members::These(members), _) => {
                    let members: Vec<u64> = members.iter().map(|&rank| rank.into()).collect();
                    self.group("", GroupKind::Ranks, &members)?
                }
                (Members::All | Members::Unknown, Some(all)) => all,
                (Members::All | Members::Unknown, None) => {
                    let members: Vec<u64> = (0..u64::from(ranks)).collect();
                    *all.insert(self.group("", GroupKind::Ranks, &members)?)
                }
            };
            let name = self.string(&name)?;
            let mut fields = Fields::default();
            fields
                .word(number)
                .word(name)
                .word(group)
                .word(NONE)
                .word(0);
            self.put(definition::COMMUNICATOR, &fields)?;
        }
        Ok(())
    }

    /// How many calls of a region were only counted, and their bytes, since the begin.
    fn metrics(&mut self, regions: &Regions) -> io::Result<()> {
        const OTHER: u8 = 0;
        const SINCE_THE_BEGIN: u8 = 0;
        const DECIMAL: u8 = 1;
        const NOW_AND_THEN: u8 = 1;
        const CPU: u8 = 2;
        for (number, &region) in (0..).zip(&regions.with_metric) {
            let region = &regions.all[region as usize];
            let of = format!("{}, {}:{}", region.name, region.file, region.line);
            let members = [2 * number, 2 * number + 1];
            for (member, what, unit) in [(members[0], "calls", "#"), (members[1], "bytes", "B")] {
                let name = self.string(&format!("counted {what} of {of}"))?;
                let unit = self.string(unit)?;
                let mut fields = Fields::default();
                fields.word(member).word(name).word(NONE);
                fields.byte(OTHER).byte(SINCE_THE_BEGIN).byte(LONG);
                fields.byte(DECIMAL).long(0).word(unit);
                self.put(definition::METRIC_MEMBER, &fields)?;
            }
            let mut fields = Fields::default();
            fields
                .word(number)
                .byte(2)
                .word(members[0])
                .word(members[1]);
            fields.byte(NOW_AND_THEN).byte(CPU);
            self.put(definition::METRIC_CLASS, &fields)?;
        }
        Ok(())
    }

    /// Returns how many there are.
    fn finish(self) -> io::Result<u64> {
        self.to.finish()?;
        Ok(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SiteInfo;
    use crate::format::tests::{record, small};
    use events::tests::events_of;
    use margay_core_record::Kind;
    use std::fs;

    #[test]
    fn an_archive_has_a_file_for_all_and_two_for_each_rank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.otf2");
        let mut trace = small();
        // A rank without records.
        trace.head.ranks = 3;
        let anchor = write(&path, &trace).unwrap();
        assert_eq!(anchor, path.join("traces.otf2"));
        let read = |name: &str| fs::read(path.join(name)).unwrap();
        let anchor = read("traces.otf2");
        assert_eq!(anchor[..12], *b"\x03\x42OTF2\0\x03\x02\x03\0\0");
        assert_eq!(
            anchor[12..30],
            [0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 1, 1]
        );
        assert_eq!(anchor[30..38], 3_u64.to_le_bytes());
        assert!(anchor.ends_with(&[2, 1, 0]));
        let texts = anchor[46..].split(|&byte| byte == 0);
        let texts: Vec<_> = texts.take(3).map(String::from_utf8_lossy).collect();
        assert_eq!((&*texts[0], &*texts[2]), ("box", "./ring"));
        let definitions = read("traces.def");
        let first = &definitions[18..40];
        let date = 1_700_000_000_000_000_000_u64.to_le_bytes();
        assert_eq!(first[..2], [definition::CLOCK, 19]);
        assert_eq!(first[2..13], [4, 0, 202, 154, 59, 0, 3, 128, 150, 152, 8]);
        assert_eq!(first[13..21], date);
        for text in [
            "MPI_Recv",
            "/src/ring.c",
            "communicator 1",
            "called from main() at ring.c:22",
        ] {
            let wanted = format!("{text}\0").into_bytes();
            let found = definitions.windows(wanted.len()).filter(|at| *at == wanted);
            assert_eq!(found.count(), 1, "{text}");
        }
        // Program, send, barrier with their ends; a message, an operation.
        assert_eq!(events_of(&read("traces/0.evt")).len(), 6 + 1 + 2);
        assert_eq!(events_of(&read("traces/2.evt")).len(), 0);
        assert_eq!(fs::read_dir(path.join("traces")).unwrap().count(), 6);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    /// The same with a region of two threads of rank 0, which meet at a barrier.
    fn with_openmp() -> Trace {
        let mut trace = small();
        for (number, call) in [(4, "omp parallel"), (5, "omp barrier")] {
            let site = SiteInfo {
                call: call.into(),
                ..trace.sites[&3].clone()
            };
            trace.sites.insert(number, site);
        }
        let of = |start, ticks, site| record(Kind::Threads, start, ticks, site, u32::MAX);
        let thread = |thread, records| ThreadRecords {
            rank: 0,
            thread,
            records,
            lost: 0,
        };
        trace.openmp = vec![
            thread(
                10,
                vec![of(500_000, 4_000_000, 4), of(1_000_000, 2_000_000, 5)],
            ),
            thread(12, vec![of(2_900_000, 100_000, 5)]),
        ];
        trace
    }

    #[test]
    fn what_threads_do_in_openmp_is_a_location_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.otf2");
        let trace = with_openmp();
        write(&path, &trace).unwrap();
        // Each as program, region and barrier.
        let first = fs::read(path.join("traces/4294967296.evt")).unwrap();
        assert_eq!(events_of(&first).len(), 6);
        assert!(path.join("traces/8589934592.evt").exists());
        assert!(!path.join("traces/4294967297.evt").exists());
        let definitions = fs::read(path.join("traces.def")).unwrap();
        for text in ["OpenMP", "rank 0 OpenMP, thread 12", "omp barrier"] {
            let wanted = format!("{text}\0").into_bytes();
            assert!(definitions.windows(wanted.len()).any(|at| at == wanted));
        }
    }

    #[test]
    fn an_archive_replaces_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut trace = small();
        write(&path, &trace).unwrap();
        trace.threads.pop();
        trace.head.ranks = 1;
        write(&path, &trace).unwrap();
        assert_eq!(fs::read_dir(path.join("traces")).unwrap().count(), 2);
        fs::write(path.join("mine.txt"), "").unwrap();
        let why = write(&path, &trace).unwrap_err();
        assert!(
            why.contains("has other files than those of an OTF2 archive"),
            "{why}"
        );
        let why = write(&path.join("mine.txt"), &trace).unwrap_err();
        assert!(why.contains("is there and is no folder"), "{why}");
        let why = write(&folder.path().join("no/where"), &trace).unwrap_err();
        assert!(why.contains("No such file"), "{why}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 4);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        trace.head.ranks = MOST_RANKS + 1;
        let why = write(&folder.path().join("big"), &trace).unwrap_err();
        assert!(why.contains("524289 ranks"), "{why}");
    }
}
