//! The events of a thread, from its records: calls that begin and end one inside the other, and
//! what they send, receive and do together.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use margay_core_record::{Kind, Record};

use super::bytes::ChunkWriter;
use super::communicators::Communicators;
use super::operation::Operation;
use super::regions::Regions;
use super::requests::requests;
use crate::format::{ThreadRecords, Trace};

/// Kinds of events by their numbers.
mod event {
    pub const ENTER: u8 = 12;
    pub const LEAVE: u8 = 13;
    pub const SEND: u8 = 14;
    pub const RECEIVE_REQUEST: u8 = 17;
    pub const RECEIVE: u8 = 18;
    pub const REQUESTED_RECEIVE: u8 = 19;
    pub const COLLECTIVE_BEGIN: u8 = 22;
    pub const COLLECTIVE_END: u8 = 23;
    pub const METRIC: u8 = 31;
}

/// The attribute of a call that has not ended.
pub const NOT_ENDED: u32 = 0;
/// The type of a value of 64 bits.
pub const LONG: u8 = 4;
/// No rank is the root.
const NO_ROOT: u32 = u32::MAX;

/// A collective operation that goes on.
struct Collective {
    operation: Operation,
    place: u32,
    root: u32,
    given: u64,
    got: u64,
}

/// What is known of a call at its begin and belongs to its end.
enum Later {
    Nothing,
    Received(usize),
    Collective(Collective),
}

/// A call that has begun.
struct Frame {
    region: u32,
    start: u64,
    end: u64,
    later: Later,
}

/// The sums of calls that were only counted, until the next record.
#[derive(Default)]
struct Counted {
    start: u64,
    end: u64,
    of_region: BTreeMap<u32, (u64, u64)>,
}

/// Writes the events of a thread.
pub struct Events<'a, W> {
    to: ChunkWriter<W>,
    trace: &'a Trace,
    of: &'a ThreadRecords,
    communicators: &'a Communicators,
    regions: &'a mut Regions,
    /// Receives that one call posts and another one completes: numbers of their requests, by the
    /// places of both records.
    requests: HashMap<usize, u64>,
    stack: Vec<Frame>,
    counted: Counted,
    /// Calls and bytes that have been counted of each region.
    sums: HashMap<u32, (u64, u64)>,
    /// The time of the last event.
    now: u64,
}

impl<'a, W: Write> Events<'a, W> {
    /// Writes them all. Returns how many they are and the time of the last one.
    pub fn write(
        to: ChunkWriter<W>,
        (trace, of): (&'a Trace, &'a ThreadRecords),
        communicators: &'a Communicators,
        regions: &'a mut Regions,
    ) -> io::Result<(u64, u64)> {
        let mut events = Events {
            requests: requests(of, regions),
            to,
            trace,
            of,
            communicators,
            regions,
            stack: Vec::new(),
            counted: Counted::default(),
            sums: HashMap::new(),
            now: 0,
        };
        if let Some(first) = of.records.first() {
            events.now = first.start;
            let program = events.regions.program();
            events.enter(program, first.start, u64::MAX)?;
            for (index, record) in of.records.iter().enumerate() {
                events.record(index, record)?;
            }
            events.count(u64::MAX)?;
            events.leave_until(u64::MAX - 1)?;
            while events.stack.len() > 1 {
                events.leave_at(trace.end_ns)?;
            }
            events.leave_at(events.now)?;
        }
        let number = events.to.events;
        let last = events.now;
        events.to.finish()?;
        Ok((number, last))
    }

    fn record(&mut self, index: usize, record: &Record) -> io::Result<()> {
        match record.kind {
            Kind::Total => self.total(record),
            kind if kind.is_further() => self.further(index, record),
            // What a call does after its first operation is a record without a call site.
            Kind::Collective | Kind::Read | Kind::Write
                if record.site == 0 && record.ticks == Some(0) =>
            {
                Ok(())
            }
            _ => self.call(index, record),
        }
    }

    fn call(&mut self, index: usize, record: &Record) -> io::Result<()> {
        let start = record.start;
        self.count(start)?;
        self.leave_until(start)?;
        let ticks = record.ticks.map(|ticks| start.saturating_add(ticks));
        let mut end = ticks.unwrap_or(u64::MAX);
        // Of two calls that overlap one is inside the other, or they follow each other; times are
        // not exact. What changes less is right.
        while let Some(outer) = self.stack.last()
            && outer.end < end
        {
            let until = ticks.unwrap_or(self.trace.end_ns);
            if outer.end - start > until.saturating_sub(outer.end) {
                end = outer.end;
                break;
            }
            self.leave_at(start)?;
        }
        let region = self.regions.of(record);
        match record.ticks {
            Some(_) => self.enter(region, start, end)?,
            None => self.enter_unended(region, start, end)?,
        }
        match record.kind {
            Kind::Send => self.message(event::SEND, start, index),
            Kind::Post => self.post(start, index),
            Kind::Receive => {
                self.set_later(Later::Received(index));
                Ok(())
            }
            Kind::Collective => self.collective(record, region),
            _ => Ok(()),
        }
    }

    fn further(&mut self, index: usize, record: &Record) -> io::Result<()> {
        let time = record.start;
        // The end of a long call is known to 1/2048 of its duration.
        let is_over = |frame: &Frame| {
            let inexact = 2 + (frame.end.saturating_sub(frame.start) >> 11);
            frame.end.saturating_add(inexact) < time
        };
        while let Some(frame) = self.stack.last()
            && is_over(frame)
        {
            self.leave_at(frame.end)?;
        }
        for frame in &mut self.stack {
            frame.end = frame.end.max(time);
        }
        match record.kind {
            Kind::Sent => self.message(event::SEND, time, index),
            Kind::Received => {
                self.receive_before(time, record)?;
                self.receive(time, index)
            }
            _ => self.post(time, index),
        }
    }

    fn enter(&mut self, region: u32, start: u64, end: u64) -> io::Result<()> {
        let time = self.at(start);
        self.to.single(time, event::ENTER, u64::from(region))?;
        self.push(region, time, end);
        Ok(())
    }

    fn enter_unended(&mut self, region: u32, start: u64, end: u64) -> io::Result<()> {
        let time = self.at(start);
        let enter = (event::ENTER, u64::from(region));
        self.to.single_with(time, enter, (NOT_ENDED, 1))?;
        self.push(region, time, end);
        Ok(())
    }

    fn push(&mut self, region: u32, start: u64, end: u64) {
        self.stack.push(Frame {
            region,
            start,
            end,
            later: Later::Nothing,
        });
    }

    /// Ends the calls that are over at a time.
    fn leave_until(&mut self, time: u64) -> io::Result<()> {
        while let Some(frame) = self.stack.last()
            && frame.end <= time
        {
            self.leave_at(frame.end)?;
        }
        Ok(())
    }

    /// Ends the innermost call.
    fn leave_at(&mut self, time: u64) -> io::Result<()> {
        let time = self.at(time);
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        match frame.later {
            Later::Nothing => {}
            Later::Received(index) => {
                self.regions.moves_messages(frame.region);
                self.receive(time, index)?;
            }
            Later::Collective(collective) => self.collective_end(time, &collective)?,
        }
        self.to.single(time, event::LEAVE, u64::from(frame.region))
    }

    /// Times do not go back.
    fn at(&mut self, time: u64) -> u64 {
        self.now = self.now.max(time);
        self.now
    }

    fn set_later(&mut self, later: Later) {
        if let Some(frame) = self.stack.last_mut() {
            frame.later = later;
        }
    }

    /// What the innermost call has received comes at its end, as more may have happened in it
    /// before, but before what it has received further from the same sender: such messages stay in
    /// order.
    fn receive_before(&mut self, time: u64, further: &Record) -> io::Result<()> {
        let Some(frame) = self.stack.last_mut() else {
            return Ok(());
        };
        let Later::Received(index) = frame.later else {
            return Ok(());
        };
        let channel = |record: &Record| (record.context, record.peer, record.tag);
        if channel(&self.of.records[index]) != channel(further) {
            return Ok(());
        }
        frame.later = Later::Nothing;
        self.receive(time, index)
    }

    fn receive(&mut self, time: u64, index: usize) -> io::Result<()> {
        let kind = match self.requests.contains_key(&index) {
            true => event::REQUESTED_RECEIVE,
            false => event::RECEIVE,
        };
        self.message(kind, time, index)
    }

    /// A message between ranks of the trace.
    fn message(&mut self, kind: u8, time: u64, index: usize) -> io::Result<()> {
        let time = self.at(time);
        if let Some(frame) = self.stack.last() {
            self.regions.moves_messages(frame.region);
        }
        let record = &self.of.records[index];
        let ranks = self.trace.head.ranks;
        let (Some(peer), Some((place, members))) =
            (record.peer, self.communicators.get(record.context))
        else {
            return Ok(());
        };
        let Some(other) = members.rank(self.of.rank, peer, ranks) else {
            return Ok(());
        };
        let request = self.requests.get(&index);
        self.to.event(time, kind, |fields| {
            fields.word(other).word(*place).word(record.tag);
            fields.long(record.bytes);
            if let Some(&request) = request {
                fields.long(request);
            }
        })
    }

    /// A receive is posted, which another call completes.
    fn post(&mut self, time: u64, index: usize) -> io::Result<()> {
        let time = self.at(time);
        if let Some(frame) = self.stack.last() {
            self.regions.moves_messages(frame.region);
        }
        match self.requests.get(&index) {
            Some(&request) => self.to.single(time, event::RECEIVE_REQUEST, request),
            None => Ok(()),
        }
    }

    /// An operation that blocks and has ended. When one that does not block ends is not recorded.
    fn collective(&mut self, record: &Record, region: u32) -> io::Result<()> {
        let operation = self.regions.operation(region);
        let known = self.communicators.get(record.context);
        let (Some(operation), Some((place, members)), Some(_)) = (operation, known, record.ticks)
        else {
            return Ok(());
        };
        let (rank, ranks) = (self.of.rank, self.trace.head.ranks);
        let root = record.peer.filter(|_| operation.has_root());
        let size = members.size(ranks).unwrap_or(record.tag);
        let (given, got) = operation.volume(record.bytes, root == Some(rank), size);
        self.set_later(Later::Collective(Collective {
            operation,
            place: *place,
            root: root
                .and_then(|root| members.rank(rank, root, ranks))
                .unwrap_or(NO_ROOT),
            given,
            got,
        }));
        self.to.event(self.now, event::COLLECTIVE_BEGIN, |_| {})
    }

    fn collective_end(&mut self, time: u64, of: &Collective) -> io::Result<()> {
        self.to.event(time, event::COLLECTIVE_END, |fields| {
            fields.byte(of.operation as u8).word(of.place).word(of.root);
            fields.long(of.given).long(of.got);
        })
    }

    fn total(&mut self, record: &Record) -> io::Result<()> {
        if record.start != self.counted.start {
            self.count(record.start)?;
            self.counted.start = record.start;
        }
        let region = self.regions.of(record);
        let end = record.start.saturating_add(record.ticks.unwrap_or(0));
        self.counted.end = self.counted.end.max(end);
        let (calls, bytes) = self.counted.of_region.entry(region).or_default();
        *calls += record.calls();
        *bytes = bytes.saturating_add(record.bytes);
        Ok(())
    }

    /// A stretch of time in which calls were only counted: a region of its own between the calls,
    /// and the sums at its end.
    fn count(&mut self, until: u64) -> io::Result<()> {
        let counted = std::mem::take(&mut self.counted);
        if counted.of_region.is_empty() {
            return Ok(());
        }
        let end = counted.end.min(until);
        self.leave_until(end)?;
        let is_long = end > self.now.max(counted.start);
        if is_long {
            let region = self.regions.counted();
            self.enter(region, counted.start, end)?;
        }
        let time = self.at(end);
        for (region, (calls, bytes)) in counted.of_region {
            let sums = self.sums.entry(region).or_default();
            *sums = (sums.0 + calls, sums.1.saturating_add(bytes));
            let metric = self.regions.metric(region);
            self.to.event(time, event::METRIC, |fields| {
                fields.word(metric).byte(2);
                fields.byte(LONG).long(sums.0).byte(LONG).long(sums.1);
            })?;
        }
        match is_long {
            true => self.leave_at(end),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::format::tests::{record, small};
    use crate::otf2::bytes::{EVENT_CHUNK, mark};

    /// What an event says: time, kind, its numbers.
    pub type Said = (u64, u8, Vec<u64>);

    fn number(bytes: &mut &[u8]) -> u64 {
        let (&length, rest) = bytes.split_first().unwrap();
        if length == u8::MAX {
            *bytes = rest;
            return u64::MAX;
        }
        let (value, rest) = rest.split_at(usize::from(length));
        *bytes = rest;
        value
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }

    /// The events of a file with one chunk. Attributes are events without a time.
    pub fn events_of(file: &[u8]) -> Vec<Said> {
        let mut rest = &file[18..];
        let mut said = Vec::new();
        let mut time = 0;
        loop {
            let kind = rest[0];
            rest = &rest[1..];
            match kind {
                mark::END_OF_FILE => return said,
                mark::TIME => {
                    time = u64::from_le_bytes(rest[..8].try_into().unwrap());
                    rest = &rest[8..];
                }
                event::ENTER | event::LEAVE | event::RECEIVE_REQUEST => {
                    said.push((time, kind, vec![number(&mut rest)]));
                }
                _ => {
                    let (mut fields, after) = rest[1..].split_at(usize::from(rest[0]));
                    rest = after;
                    let mut numbers = Vec::new();
                    while !fields.is_empty() {
                        // Some fields are bytes.
                        let place = numbers.len();
                        let is_byte = match kind {
                            event::COLLECTIVE_END => place == 0,
                            event::METRIC => [1, 2, 4].contains(&place),
                            mark::ATTRIBUTES => place > 1,
                            _ => false,
                        };
                        if is_byte {
                            numbers.push(u64::from(fields[0]));
                            fields = &fields[1..];
                        } else {
                            numbers.push(number(&mut fields));
                        }
                    }
                    said.push((time, kind, numbers));
                }
            }
        }
    }

    /// What the first rank of [`small`] does if these are its records, without its program.
    fn said(records: Vec<Record>) -> Vec<Said> {
        let mut trace = small();
        trace.threads[0].records = records;
        let communicators = Communicators::of(&trace);
        let mut regions = Regions::of_trace(&trace);
        let mut bytes = Vec::new();
        let to = ChunkWriter::new(&mut bytes, EVENT_CHUNK);
        let what = (&trace, &trace.threads[0]);
        let (number, last) = Events::write(to, what, &communicators, &mut regions).unwrap();
        let mut said = events_of(&bytes);
        let events = said.iter().filter(|said| said.1 != mark::ATTRIBUTES);
        assert_eq!(events.count() as u64, number);
        assert_eq!(said.last().map_or(0, |said| said.0), last);
        assert!(said.is_sorted_by_key(|said| said.0), "{said:?}");
        if !said.is_empty() {
            said.pop();
            said.remove(0);
        }
        said
    }

    /// The regions of [`small`]: sends, receives, barriers.
    const SENDS: u64 = 0;
    const RECEIVES: u64 = 1;
    const BARRIER: u64 = 2;
    /// Those that are made later: the program, then what is no call.
    const COUNTED: u64 = 4;

    fn call(start: u64, ticks: u64) -> Record {
        record(Kind::Call, start, ticks, 2, u32::MAX)
    }

    fn further(kind: Kind, start: u64, request: u16) -> Record {
        Record {
            request,
            ..record(kind, start, 0, 0, 1)
        }
    }

    #[test]
    fn a_send_and_a_barrier() {
        let records = small().threads[0].records.clone();
        let barrier = 0;
        assert_eq!(
            said(records),
            [
                (5_000_000, event::ENTER, vec![SENDS]),
                (5_000_000, event::SEND, vec![1, 0, 7, 800]),
                (5_001_000, event::LEAVE, vec![SENDS]),
                (6_000_000, event::ENTER, vec![BARRIER]),
                (6_000_000, event::COLLECTIVE_BEGIN, vec![]),
                (
                    9_000_000,
                    event::COLLECTIVE_END,
                    vec![barrier, 0, u64::MAX, 0, 0]
                ),
                (9_000_000, event::LEAVE, vec![BARRIER]),
            ]
        );
        assert_eq!(said(Vec::new()), []);
    }

    #[test]
    fn messages_of_one_call_stay_in_order() {
        let mut first = record(Kind::Receive, 100, 50, 2, 1);
        first.bytes = 1;
        let mut second = further(Kind::Received, 120, 0);
        second.bytes = 2;
        let mut other = further(Kind::Received, 115, 0);
        (other.tag, other.bytes) = (8, 3);
        let sent = further(Kind::Sent, 110, 0);
        let kinds: Vec<_> = said(vec![first, sent, other, second])
            .into_iter()
            .map(|(time, kind, numbers)| (time, kind, numbers.last().copied()))
            .collect();
        assert_eq!(
            kinds,
            [
                (100, event::ENTER, Some(RECEIVES)),
                (110, event::SEND, Some(800)),
                (115, event::RECEIVE, Some(3)),
                (120, event::RECEIVE, Some(1)),
                (120, event::RECEIVE, Some(2)),
                (150, event::LEAVE, Some(RECEIVES)),
            ]
        );
    }

    #[test]
    fn what_one_call_posts_and_another_one_receives_has_a_request() {
        let post = |start, kind| Record {
            request: 9,
            ..record(kind, start, 10, 3, 1)
        };
        let said = said(vec![
            post(100, Kind::Post),
            post(200, Kind::Receive),
            // Posted and received by one call, then never received.
            post(300, Kind::Send),
            further(Kind::Posted, 301, 4),
            further(Kind::Received, 302, 4),
            further(Kind::Posted, 303, 5),
            // Of another tag.
            post(400, Kind::Post),
            Record {
                tag: 8,
                ..post(500, Kind::Receive)
            },
            post(600, Kind::Receive),
        ]);
        let found: Vec<_> = said
            .iter()
            .filter(|said| ![event::ENTER, event::LEAVE].contains(&said.1))
            .map(|said| (said.0, said.1, *said.2.last().unwrap()))
            .collect();
        assert_eq!(
            found,
            [
                (100, event::RECEIVE_REQUEST, 0),
                (210, event::REQUESTED_RECEIVE, 0),
                (300, event::SEND, 800),
                (302, event::RECEIVE, 800),
                (400, event::RECEIVE_REQUEST, 1),
                (510, event::RECEIVE, 800),
                (610, event::REQUESTED_RECEIVE, 1),
            ]
        );
    }

    #[test]
    fn a_receive_that_blocks_completes_no_other() {
        let post = Record {
            request: 0,
            ..record(Kind::Post, 100, 10, 3, 1)
        };
        // Site 2 is MPI_Recv.
        let said = said(vec![post, record(Kind::Receive, 200, 10, 2, 1)]);
        let kinds: Vec<u8> = said.iter().map(|said| said.1).collect();
        let (enter, leave) = (event::ENTER, event::LEAVE);
        assert_eq!(kinds, [enter, leave, enter, event::RECEIVE, leave]);
    }

    #[test]
    fn calls_are_inside_each_other_or_follow_each_other() {
        let times = |records| -> Vec<(u64, bool)> {
            let said = said(records);
            said.iter()
                .map(|said| (said.0, said.1 == event::ENTER))
                .collect()
        };
        let nested = [(100, true), (110, true), (120, false), (200, false)];
        assert_eq!(times(vec![call(100, 100), call(110, 10)]), nested);
        // The end of the outer one is rounded.
        let rounded = [(100, true), (110, true), (200, false), (200, false)];
        assert_eq!(times(vec![call(100, 100), call(110, 95)]), rounded);
        // The begin of the second one is rounded.
        let one_by_one = [(100, true), (197, false), (197, true), (297, false)];
        assert_eq!(times(vec![call(100, 100), call(197, 100)]), one_by_one);
    }

    #[test]
    fn calls_that_have_not_ended_say_so_and_end_with_the_trace() {
        let unended = Record {
            ticks: None,
            ..record(Kind::Collective, 9_500_000, 0, 3, u32::MAX)
        };
        let within = call(9_600_000, 10);
        assert_eq!(
            said(vec![unended, within]),
            [
                (9_500_000, mark::ATTRIBUTES, vec![1, 0, 1, 1]),
                (9_500_000, event::ENTER, vec![BARRIER]),
                (9_600_000, event::ENTER, vec![RECEIVES]),
                (9_600_010, event::LEAVE, vec![RECEIVES]),
                (10_000_000, event::LEAVE, vec![BARRIER]),
            ]
        );
    }

    #[test]
    fn calls_that_were_only_counted_are_sums_between_the_others() {
        let total = |start, ticks, site, calls| Record {
            tag: calls,
            ..record(Kind::Total, start, ticks, site, 1)
        };
        let said = said(vec![
            call(100, 10),
            total(100, 200, 1, 1000),
            total(100, 300, 1, 500),
            total(100, 300, 2, 7),
            total(400, 100, 1, 3),
            call(450, 100),
        ]);
        assert_eq!(
            said,
            [
                (100, event::ENTER, vec![RECEIVES]),
                (110, event::LEAVE, vec![RECEIVES]),
                (110, event::ENTER, vec![COUNTED]),
                (400, event::METRIC, vec![0, 2, 4, 1500, 4, 1600]),
                (400, event::METRIC, vec![1, 2, 4, 7, 4, 800]),
                (400, event::LEAVE, vec![COUNTED]),
                (400, event::ENTER, vec![COUNTED]),
                (450, event::METRIC, vec![0, 2, 4, 1503, 4, 2400]),
                (450, event::LEAVE, vec![COUNTED]),
                (450, event::ENTER, vec![RECEIVES]),
                (550, event::LEAVE, vec![RECEIVES]),
            ]
        );
    }

    #[test]
    fn records_that_nobody_wrote_are_no_reason_to_panic() {
        let odd = [0, 1, 99, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let kinds = (1..12).filter_map(Kind::of);
        let mut records = Vec::new();
        for (number, kind) in kinds.enumerate() {
            for (start, ticks) in odd.iter().zip(odd.iter().rev()) {
                records.push(Record {
                    ticks: (number % 3 > 0).then_some(*ticks),
                    request: number as u16 % 4,
                    context: number as u32 * 3,
                    bytes: *ticks,
                    ..record(kind, *start, 0, number as u16, number as u32 % 5)
                });
            }
        }
        records.sort_by_key(|record| record.start);
        said(records);
    }
}
