//! The trace in Perfetto's format: protobuf messages of `perfetto/trace/trace.proto`.

use std::collections::HashMap;
use std::io::{self, Write};

use margay_core_record::{Kind, Record};

use crate::analyse::Analysis;
use crate::format::{At, Trace, duration, name_of};

/// A message that is being written.
#[derive(Default)]
struct Proto(Vec<u8>);

impl Proto {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, message: &Proto) {
        self.bytes(field, &message.0);
    }
}

// Fields by their numbers.
const TRACE_PACKET: u64 = 1;
mod packet {
    pub const TIMESTAMP: u64 = 8;
    pub const SEQUENCE: u64 = 10;
    pub const TRACK_EVENT: u64 = 11;
    pub const TRACK_DESCRIPTOR: u64 = 60;
}
mod track {
    pub const UUID: u64 = 1;
    pub const PROCESS: u64 = 3;
    pub const THREAD: u64 = 4;
    pub const PARENT: u64 = 5;
}
mod event {
    pub const ANNOTATION: u64 = 4;
    pub const TYPE: u64 = 9;
    pub const TRACK: u64 = 11;
    pub const CATEGORY: u64 = 22;
    pub const NAME: u64 = 23;
    pub const FLOW: u64 = 47;
    pub const FLOW_END: u64 = 48;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
}
mod annotation {
    pub const UINT: u64 = 3;
    pub const INT: u64 = 4;
    pub const STRING: u64 = 6;
    pub const NAME: u64 = 10;
}

const SEQUENCE: u64 = 1;

/// A call whose messages are being gathered: when it begins and ends, and its event.
type Open = (u64, u64, Proto);

pub fn write(to: &mut impl Write, trace: &Trace, analysis: &Analysis) -> io::Result<()> {
    let mut flows: HashMap<At, Vec<(u64, u64)>> = HashMap::new();
    for (number, message) in (1..).zip(&analysis.messages) {
        flows
            .entry(message.from)
            .or_default()
            .push((event::FLOW, number));
        flows
            .entry(message.to)
            .or_default()
            .push((event::FLOW_END, number));
    }
    for (thread, of) in (0..).zip(trace.threads.iter().chain(&trace.openmp)) {
        let (process, track) = (1 + u64::from(of.rank), (1 << 40) + u64::from(thread));
        descriptors(to, (process, track), of.rank, of.thread)?;
        let mut open: Option<Open> = None;
        for (index, record) in (0..).zip(&of.records) {
            if !record.kind.is_further() {
                close(to, track, open.take())?;
                let end = record.start + duration(trace, record);
                open = Some((record.start, end, begin(trace, record, track)));
            }
            if let Some((.., event)) = &mut open {
                for &(field, number) in flows.get(&At { thread, index }).into_iter().flatten() {
                    event.fixed(field, number);
                }
            }
        }
        close(to, track, open)?;
    }
    Ok(())
}

/// What names the process of a rank and a thread of it.
fn descriptors(
    to: &mut impl Write,
    (process, thread): (u64, u64),
    rank: u32,
    tid: u32,
) -> io::Result<()> {
    // A rank's number as the number of its process, which must not be 0.
    let pid = u64::from(rank) + 1;
    let mut of_process = Proto::default();
    of_process.number(1, pid);
    of_process.bytes(6, format!("rank {rank}").as_bytes());
    let mut of_thread = Proto::default();
    of_thread.number(1, pid);
    of_thread.number(2, u64::from(tid));
    of_thread.bytes(5, format!("rank {rank} thread {tid}").as_bytes());
    for (uuid, field, inner, parent) in [
        (process, track::PROCESS, of_process, None),
        (thread, track::THREAD, of_thread, Some(process)),
    ] {
        let mut track = Proto::default();
        track.number(track::UUID, uuid);
        track.message(field, &inner);
        if let Some(parent) = parent {
            track.number(track::PARENT, parent);
        }
        packet(to, None, packet::TRACK_DESCRIPTOR, &track)?;
    }
    Ok(())
}

fn packet(to: &mut impl Write, at: Option<u64>, field: u64, inner: &Proto) -> io::Result<()> {
    let mut packet = Proto::default();
    if let Some(at) = at {
        packet.number(packet::TIMESTAMP, at);
    }
    packet.number(packet::SEQUENCE, SEQUENCE);
    packet.message(field, inner);
    let mut whole = Proto::default();
    whole.message(TRACE_PACKET, &packet);
    to.write_all(&whole.0)
}

/// The event that begins a call.
fn begin(trace: &Trace, record: &Record, track: u64) -> Proto {
    let site = trace.site(record.site);
    let name = match site.call.as_str() {
        "" => name_of(record.kind),
        call => call,
    };
    let mut event = Proto::default();
    event.number(event::TYPE, event::BEGIN);
    event.number(event::TRACK, track);
    event.bytes(event::CATEGORY, name_of(record.kind).as_bytes());
    event.bytes(event::NAME, name.as_bytes());
    let mut annotate = |name: &str, value: &dyn Fn(&mut Proto)| {
        let mut annotation = Proto::default();
        annotation.bytes(annotation::NAME, name.as_bytes());
        value(&mut annotation);
        event.message(event::ANNOTATION, &annotation);
    };
    annotate("at", &|a| {
        a.bytes(annotation::STRING, site.place().as_bytes())
    });
    if let Some(peer) = record.peer {
        annotate("rank", &|a| a.number(annotation::UINT, u64::from(peer)));
    }
    if !matches!(record.kind, Kind::Call | Kind::Threads) {
        let tag = i64::from(record.tag as i32) as u64;
        annotate("tag", &|a| a.number(annotation::INT, tag));
        annotate("bytes", &|a| a.number(annotation::UINT, record.bytes));
    }
    event
}

fn close(to: &mut impl Write, track: u64, open: Option<Open>) -> io::Result<()> {
    let Some((start, end, event)) = open else {
        return Ok(());
    };
    packet(to, Some(start), packet::TRACK_EVENT, &event)?;
    let mut ended = Proto::default();
    ended.number(event::TYPE, event::END);
    ended.number(event::TRACK, track);
    packet(to, Some(end), packet::TRACK_EVENT, &ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    /// Fields of a message: number and value, or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        let mut found = Vec::new();
        let varint = |bytes: &mut &[u8]| {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        };
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let (value, length) = match key & 7 {
                0 => (varint(&mut bytes), 0),
                1 => (0, 8),
                _ => (0, varint(&mut bytes) as usize),
            };
            found.push((key >> 3, value, bytes[..length].to_vec()));
            bytes = &bytes[length..];
        }
        found
    }

    #[test]
    fn packets_are_tracks_and_events() {
        let trace = small();
        let mut bytes = Vec::new();
        write(&mut bytes, &trace, &analyse(&trace)).unwrap();
        let packets = fields(&bytes);
        // A process, a thread, two calls of a begin and an end, for each rank.
        assert_eq!(packets.len(), 2 * (2 + 4));
        let first_event = fields(&packets[2].2);
        assert_eq!(first_event[0], (packet::TIMESTAMP, 5_000_000, vec![]));
        let event = fields(&first_event[2].2);
        let name = event
            .iter()
            .find(|(field, ..)| *field == event::NAME)
            .unwrap();
        assert_eq!(name.2, b"MPI_Send");
        let flow = event
            .iter()
            .find(|(field, ..)| *field == event::FLOW)
            .unwrap();
        assert_eq!(flow.2, 1_u64.to_le_bytes());
    }
}
