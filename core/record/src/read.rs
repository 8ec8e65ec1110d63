//! Reading a recorder from outside, whatever is in it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use margay_core_registry::call_of;

use crate::format::{MODULE, RECORD, Record, SITE, Shape, Site, VERSION, header, lane};

/// Records next to the one that is being written, which a processor may write out of order.
const UNSURE: u64 = 16;
/// The most that a shape may say, so that sums of it stay in range.
const MOST: usize = 1 << 24;

/// Why a recorder cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// It was written by another version.
    Version(u32),
    /// Its header contradicts the size of the note.
    Header,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damaged::Version(version) => write!(
                f,
                "its flight recorder has version {version}, this one reads version {VERSION}; use the margay that \
                 started the job"
            ),
            Damaged::Header => write!(
                f,
                "its flight recorder has been overwritten (the header contradicts the size): look for writes beyond \
                 arrays, for example with -fsanitize=address"
            ),
        }
    }
}

/// The ring of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// How many records have been written; the last ones are there.
    pub written: u64,
    /// The site of the last call, also of one that is only counted.
    pub last_site: u16,
    /// Calls that were counted and whose sum is not yet a record.
    pub counted: u64,
}

/// From the processor's ticks to nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ticks: u64,
    ns: u64,
    ns_per_tick: f64,
}

/// Reads the processor's counter and the monotonic clock at the same moment, as near as some tries
/// get: the thread may lose its core between the two.
pub fn moment(ticks: impl Fn() -> u64, now_ns: impl Fn() -> u64) -> (u64, u64) {
    const TRIES: usize = 8;
    let tried = (0..TRIES).map(|_| {
        let before = now_ns();
        let ticks = ticks();
        let passed = now_ns().saturating_sub(before);
        (passed, (ticks, before + passed / 2))
    });
    let best = tried.min_by_key(|(passed, _)| *passed);
    best.map_or((0, 0), |(_, moment)| moment)
}

impl Clock {
    /// Returns the clock of two moments, each in ticks and nanoseconds. Of moments that are too
    /// near to each other or contradictory, one of a nanosecond a tick that meets the second.
    #[must_use]
    pub fn between(first: (u64, u64), second: (u64, u64)) -> Clock {
        let passed = second
            .0
            .checked_sub(first.0)
            .zip(second.1.checked_sub(first.1));
        let ns_per_tick = match passed {
            Some((ticks, ns)) if ticks > 1000 && ns > 100 => ns as f64 / ticks as f64,
            _ => 1.0,
        };
        Clock {
            ticks: second.0,
            ns: second.1,
            ns_per_tick: if (0.01..100.0).contains(&ns_per_tick) {
                ns_per_tick
            } else {
                1.0
            },
        }
    }

    /// When that was, in nanoseconds of the monotonic clock.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let difference = ticks.wrapping_sub(self.ticks) as i64;
        let ns = (difference as f64 * self.ns_per_tick) as i64;
        self.ns.saturating_add_signed(ns)
    }

    /// How long that is, in nanoseconds.
    #[must_use]
    pub fn span_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// Reads the recorder of a rank.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    words: &'a [AtomicU64],
    shape: Shape,
}

impl<'a> Reader<'a> {
    /// Returns the reader of a note.
    ///
    /// # Errors
    /// When it is no recorder.
    pub fn of(words: &'a [AtomicU64]) -> Result<Reader<'a>, Damaged> {
        let at = |index: usize| words.get(index).map_or(0, |w| w.load(Ordering::Acquire));
        let first = at(header::SHAPE);
        if words.len() < crate::format::HEADER || first == 0 {
            return Err(Damaged::Header);
        }
        let shape = Shape::unpack([first, at(header::SIZES)]);
        if first as u32 != VERSION {
            return Err(match first as u32 {
                version @ 1..=255 => Damaged::Version(version),
                _ => Damaged::Header,
            });
        }
        let is_sound = shape.lanes <= 1024
            && shape.records.is_power_of_two()
            && shape.records <= MOST
            && shape.words() <= words.len();
        is_sound
            .then_some(Reader { words, shape })
            .ok_or(Damaged::Header)
    }

    fn word(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    /// Records that a ring has room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shape.records as u64
    }

    /// Records of threads for which there was no ring.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.word(header::UNRECORDED)
    }

    /// The moment when it began, in ticks and nanoseconds.
    #[must_use]
    pub fn began(&self) -> (u64, u64) {
        (self.word(header::TICKS), self.word(header::NS))
    }

    /// The threads that have a ring.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, Lane)> + '_ {
        (0..self.shape.lanes).filter_map(|index| {
            let lane = self.lane(index);
            (lane.thread != 0).then_some((index, lane))
        })
    }

    /// A thread's ring.
    #[must_use]
    pub fn lane(&self, index: usize) -> Lane {
        let at = self.shape.lane(index.min(self.shape.lanes));
        let written = self.words[at + lane::WRITTEN].load(Ordering::Acquire);
        Lane {
            thread: self.word(at + lane::THREAD) as u32,
            written,
            last_site: self.word(at + lane::LAST_SITE) as u16,
            counted: self.word(at + lane::COUNTED),
        }
    }

    /// Copies the records of a ring from position `from` on. Returns those that are still whole,
    /// each with its position, and how many had been overwritten or are none.
    pub fn records(&self, index: usize, from: u64, into: &mut Vec<(u64, Record)>) -> u64 {
        let lane = self.lane(index);
        let room = self.capacity();
        let first = from.max(lane.written.saturating_sub(room));
        let begin = into.len();
        let ring = self.shape.ring(index);
        let mut lost = first.saturating_sub(from);
        for position in first..lane.written {
            let at = ring + RECORD * (position & (room - 1)) as usize;
            let words = std::array::from_fn(|word| self.word(at + word));
            match Record::unpack(words) {
                Some(record) => into.push((position, record)),
                None => lost += 1,
            }
        }
        // What the thread has written over meanwhile, or is writing over, is taken back.
        fence(Ordering::Acquire);
        let now = self.lane(index).written;
        let whole_from = match now > lane.written || lane.written >= room {
            true => (now + UNSURE.min(room / 4)).saturating_sub(room),
            false => 0,
        };
        let torn = into[begin..].partition_point(|(position, _)| *position < whole_from);
        into.drain(begin..begin + torn);
        lost + torn as u64
    }

    /// How many call sites are known; their numbers begin with 1.
    #[must_use]
    pub fn sites(&self) -> usize {
        (self.word(header::SITES_USED) as usize).min(self.shape.sites.saturating_sub(1))
    }

    /// A call site by its number; none when there is no such.
    #[must_use]
    pub fn site(&self, number: u16) -> Option<Site> {
        let number = usize::from(number);
        if number == 0 || number > self.sites() {
            return None;
        }
        let at = self.shape.site(number);
        let words: [u64; SITE] = std::array::from_fn(|word| self.word(at + word));
        let module = (words[2] as usize).checked_sub(1);
        let call: String = printable(&call_of(words[3..7].iter().copied()));
        Some(Site {
            call,
            address: words[0],
            offset: words[0].wrapping_sub(words[1]),
            module: module.and_then(|m| self.module(m)).unwrap_or_default(),
        })
    }

    fn module(&self, number: usize) -> Option<String> {
        if number >= self.shape.modules {
            return None;
        }
        let at = self.shape.module(number);
        let length = self.word(at) as usize;
        if length > 8 * (MODULE - 1) {
            return None;
        }
        let bytes = (1..MODULE).flat_map(|word| self.word(at + word).to_ne_bytes());
        let bytes: Vec<u8> = bytes.take(length).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Names go to terminals.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
