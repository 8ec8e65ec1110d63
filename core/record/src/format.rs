//! The words of the note: header, lanes, call sites, records.

use margay_core_registry::{CallName, NoteKey};

/// The note that holds the recorder.
pub const KEY: NoteKey = NoteKey(u32::from_be_bytes(*b"recd"));
/// The version of all that is drawn in `docs/segment.md` under "Flight recorder".
pub const VERSION: u32 = 1;

/// Words of the header.
pub(crate) const HEADER: usize = 8;
/// Words of a thread's entry.
pub(crate) const LANE: usize = 8;
/// Words of a call site.
pub(crate) const SITE: usize = 8;
/// Words of a module: its length in bytes, then its path.
pub(crate) const MODULE: usize = 32;
/// Words of a record.
pub(crate) const RECORD: usize = 4;
/// The duration of a call that has not ended.
pub(crate) const OPEN: u32 = u32::MAX;
/// The peer of a record that has none.
pub const NO_PEER: u32 = u32::MAX;

pub(crate) mod header {
    pub(crate) const SHAPE: usize = 0;
    pub(crate) const SIZES: usize = 1;
    pub(crate) const TICKS: usize = 2;
    pub(crate) const NS: usize = 3;
    pub(crate) const SITES_USED: usize = 4;
    pub(crate) const MODULES_USED: usize = 5;
    pub(crate) const UNRECORDED: usize = 6;
}

pub(crate) mod lane {
    pub(crate) const THREAD: usize = 0;
    pub(crate) const WRITTEN: usize = 1;
    pub(crate) const LAST_SITE: usize = 2;
    pub(crate) const COUNTED: usize = 3;
}

/// How many of everything a note has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads with a ring of their own.
    pub lanes: usize,
    /// Records of a ring, a power of two.
    pub records: usize,
    /// Call sites.
    pub sites: usize,
    /// Programs and libraries in which call sites are.
    pub modules: usize,
}

impl Shape {
    /// The usual one, with rings of at least `records` records.
    #[must_use]
    pub fn with_records(records: usize) -> Shape {
        Shape {
            lanes: 8,
            records: records.clamp(64, 1 << 20).next_power_of_two(),
            sites: 1024,
            modules: 16,
        }
    }

    /// Words that such a note has.
    #[must_use]
    pub fn words(&self) -> usize {
        self.ring(self.lanes)
    }

    pub(crate) fn lane(&self, lane: usize) -> usize {
        HEADER + LANE * lane
    }

    pub(crate) fn site(&self, site: usize) -> usize {
        self.lane(self.lanes) + SITE * site
    }

    pub(crate) fn module(&self, module: usize) -> usize {
        self.site(self.sites) + MODULE * module
    }

    /// Where the ring of a thread begins: on a page of its own, counted from the note.
    pub(crate) fn ring(&self, lane: usize) -> usize {
        self.module(self.modules).next_multiple_of(512) + RECORD * self.records * lane
    }

    pub(crate) fn pack(&self) -> [u64; 2] {
        let (lanes, records) = (self.lanes as u64, self.records as u64);
        let (sites, modules) = (self.sites as u64, self.modules as u64);
        [
            u64::from(VERSION) | lanes << 32,
            records | sites << 32 | modules << 48,
        ]
    }

    /// The shape that a header names.
    pub(crate) fn unpack([first, second]: [u64; 2]) -> Shape {
        Shape {
            lanes: (first >> 32) as usize,
            records: (second & 0xffff_ffff) as usize,
            sites: (second >> 32 & 0xffff) as usize,
            modules: (second >> 48) as usize,
        }
    }
}

/// What a record tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A call without a message.
    Call = 1,
    /// A call that sends a message to `peer`.
    Send = 2,
    /// A call that has received a message from `peer`.
    Receive = 3,
    /// A call that posts a receive from `peer`, or from any.
    Post = 4,
    /// A collective operation: `peer` is the root in the communicator, `tag` the number of ranks.
    Collective = 5,
    /// A further message of the call before: sent.
    Sent = 6,
    /// A further message of the call before: received.
    Received = 7,
    /// A further receive that the call before posts.
    Posted = 8,
    /// Calls of one site that were only counted: `tag` of them, with `bytes` in all, in this time;
    /// `request` is the kind of their messages. Of a further kind, no calls but messages of calls
    /// that another one has.
    Total = 9,
    /// Bytes read from a file by the call.
    Read = 10,
    /// Bytes written to a file by the call.
    Write = 11,
    /// A region of threads, or a wait in one: no call. Recorded when it is over.
    Threads = 12,
    /// No call: how long those of one site took that were only counted, by one in some.
    Spent = 13,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Kind> {
        use Kind as K;
        const ALL: [Kind; 13] = [
            K::Call,
            K::Send,
            K::Receive,
            K::Post,
            K::Collective,
            K::Sent,
            K::Received,
            K::Posted,
            K::Total,
            K::Read,
            K::Write,
            K::Threads,
            K::Spent,
        ];
        ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// Whether it is a message of the call before, and no call.
    #[must_use]
    pub fn is_further(self) -> bool {
        matches!(self, Kind::Sent | Kind::Received | Kind::Posted)
    }

    /// The same of a further message of a call that has one already.
    #[must_use]
    pub fn further(self) -> Kind {
        match self {
            Kind::Send => Kind::Sent,
            Kind::Receive => Kind::Received,
            Kind::Post => Kind::Posted,
            other => other,
        }
    }
}

/// What happened, as a ring keeps it. Times are in the processor's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: Kind,
    /// When it began.
    pub start: u64,
    /// How long it took; none when it has not ended.
    pub ticks: Option<u64>,
    /// Number of its call site, 0 for unknown.
    pub site: u16,
    /// World rank of the other side; the root of a collective operation.
    pub peer: Option<u32>,
    pub tag: u32,
    /// The low 24 bits of the communicator's context.
    pub context: u32,
    pub bytes: u64,
    /// The low 16 bits of the request's number.
    pub request: u16,
}

impl Record {
    /// How many calls it stands for; none of a further message.
    #[must_use]
    pub fn calls(&self) -> u64 {
        match self.kind {
            Kind::Total if self.kind_of_total().is_some_and(Kind::is_further) => 0,
            Kind::Total => u64::from(self.tag),
            Kind::Spent => 0,
            kind => u64::from(!kind.is_further()),
        }
    }

    /// How many messages it says were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let is_sent = |kind| matches!(kind, Kind::Send | Kind::Sent);
        match self.kind {
            Kind::Total if self.kind_of_total().is_some_and(is_sent) => u64::from(self.tag),
            kind => u64::from(is_sent(kind)),
        }
    }

    fn kind_of_total(&self) -> Option<Kind> {
        Kind::of(u8::try_from(self.request).ok()?)
    }

    /// As its four words.
    #[must_use]
    pub fn pack(&self) -> [u64; RECORD] {
        let ticks = self.ticks.map_or(OPEN, short);
        let (peer, tag) = (self.peer.unwrap_or(NO_PEER), self.tag);
        [
            self.start,
            u64::from(ticks) | u64::from(self.site) << 32 | u64::from(self.request) << 48,
            u64::from(peer) | u64::from(tag) << 32,
            u64::from(short(self.bytes))
                | u64::from(self.context & 0xff_ffff) << 32
                | (self.kind as u64) << 56,
        ]
    }

    /// The record that these words are; none when they are none.
    #[must_use]
    pub fn unpack(words: [u64; RECORD]) -> Option<Record> {
        let [start, second, third, fourth] = words;
        let (peer, ticks) = (third as u32, second as u32);
        Some(Record {
            kind: Kind::of((fourth >> 56) as u8)?,
            start,
            ticks: (ticks != OPEN).then(|| long(ticks)),
            site: (second >> 32) as u16,
            peer: (peer != NO_PEER).then_some(peer),
            tag: (third >> 32) as u32,
            context: (fourth >> 32) as u32 & 0xff_ffff,
            bytes: long(fourth as u32),
            request: (second >> 48) as u16,
        })
    }
}

/// A number in 32 bits: exactly below 2^31, else in units of 2^20.
#[inline]
pub(crate) fn short(value: u64) -> u32 {
    const LARGE: u32 = 1 << 31;
    if value < u64::from(LARGE) {
        value as u32
    } else {
        LARGE | (value >> 20).min(u64::from(LARGE) - 2) as u32
    }
}

/// The number that [`short`] made so short.
pub(crate) fn long(value: u32) -> u64 {
    match value >> 31 {
        0 => u64::from(value),
        _ => u64::from(value & (u32::MAX >> 1)) << 20,
    }
}

/// From where a program calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// The function that is called.
    pub call: String,
    /// The return address in the rank's memory.
    pub address: u64,
    /// The address in its file, where the file is known.
    pub offset: u64,
    /// The program or library; empty when it is not known.
    pub module: String,
}

/// Words of a call site: address, base of its module, module + 1, name.
pub(crate) fn site_words(address: u64, base: u64, module: u64, name: &CallName) -> [u64; SITE] {
    let [a, b, c, d] = *name;
    [address, base, module, a, b, c, d, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_words_and_back() {
        let record = Record {
            kind: Kind::Receive,
            start: 1 << 60,
            ticks: None,
            site: 65_535,
            peer: Some(7),
            tag: u32::MAX,
            context: 0xab_cdef,
            bytes: 5 << 30,
            request: 40_000,
        };
        assert_eq!(Record::unpack(record.pack()), Some(record));
        let other = Record {
            ticks: Some(3),
            peer: None,
            bytes: 12,
            ..record
        };
        assert_eq!(Record::unpack(other.pack()), Some(other));
        assert_eq!(Record::unpack([0; 4]), None);
        assert_eq!(Record::unpack([u64::MAX; 4]), None);
        assert_eq!(long(short(u64::MAX)), ((1 << 31) - 2) << 20);
    }

    #[test]
    fn note_is_as_drawn() {
        let shape = Shape::with_records(1000);
        assert_eq!((shape.records, shape.lanes), (1024, 8));
        assert_eq!((shape.lane(1), shape.site(0)), (16, 72));
        assert_eq!(shape.module(0), 72 + 8 * 1024);
        assert_eq!(shape.ring(0), 9216);
        assert_eq!(shape.ring(1), 9216 + 4096);
        assert_eq!(shape.words(), 9216 + 8 * 4096);
        assert_eq!(Shape::unpack(shape.pack()), shape);
        for kind in 1..=13 {
            assert_eq!(Kind::of(kind).map(|k| k as u8), Some(kind));
        }
        assert_eq!((Kind::of(0), Kind::of(14)), (None, None));
    }
}
