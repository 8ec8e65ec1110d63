//! Who sends how much to whom, from the flight recorders of the ranks.

use std::collections::{BTreeMap, HashMap};

use margay_core_record::{KEY, Reader, Record};
use margay_net_platform::Peers;

/// Messages from one rank to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub messages: u64,
    pub bytes: u64,
}

/// Reads again and again what the ranks of a job have sent since the look before.
#[derive(Default)]
pub struct Traffic {
    /// How many records of each thread of a rank have been read.
    read: HashMap<(u32, usize), u64>,
    /// Records that had been overwritten before they were read.
    pub lost: u64,
}

impl Traffic {
    /// Returns what each rank has sent to which since the last look, by sender and receiver; at the
    /// first look, what their recorders have.
    pub fn look(&mut self, peers: &dyn Peers) -> BTreeMap<(u32, u32), Stream> {
        let mut found: BTreeMap<(u32, u32), Stream> = BTreeMap::new();
        let mut records = Vec::new();
        for rank in 0..peers.size() {
            let Some(words) = peers.note(rank, KEY) else {
                continue;
            };
            let Ok(reader) = Reader::of(&words) else {
                continue;
            };
            for (index, lane) in reader.lanes() {
                records.clear();
                let from = self.read.entry((rank, index)).or_default();
                self.lost += reader.records(index, *from, &mut records);
                *from = lane.written;
                for (_, record) in &records {
                    if let Some((peer, sent)) = sent(record)
                        && peer < peers.size()
                    {
                        let stream = found.entry((rank, peer)).or_default();
                        stream.messages += sent.messages;
                        stream.bytes = stream.bytes.saturating_add(sent.bytes);
                    }
                }
            }
        }
        found
    }
}

/// What a record says of messages that were sent.
fn sent(record: &Record) -> Option<(u32, Stream)> {
    let (messages, bytes) = (record.sent(), record.bytes);
    let peer = record.peer.filter(|_| messages > 0)?;
    Some((peer, Stream { messages, bytes }))
}

#[cfg(test)]
mod tests {
    use margay_core_record::Kind;

    use super::*;

    #[test]
    fn records_of_sends_are_counted() {
        let record = Record {
            kind: Kind::Send,
            start: 0,
            ticks: None,
            site: 1,
            peer: Some(3),
            tag: 5,
            context: 0,
            bytes: 8,
            request: 0,
        };
        let stream = |messages, bytes| Some((3, Stream { messages, bytes }));
        assert_eq!(sent(&record), stream(1, 8));
        let total = Record {
            kind: Kind::Total,
            request: Kind::Send as u16,
            bytes: 400,
            tag: 50,
            ..record
        };
        assert_eq!(sent(&total), stream(50, 400));
        for kind in [Kind::Receive, Kind::Call, Kind::Collective] {
            assert_eq!(sent(&Record { kind, ..record }), None);
        }
        assert_eq!(
            sent(&Record {
                peer: None,
                ..record
            }),
            None
        );
    }
}
