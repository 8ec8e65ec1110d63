//! Writing a recorder: what a thread does at the begin and the end of a call, and at messages.
//!
//! Each ring has one writer, so all stores are plain ones; the number of records is stored last.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_core_registry::CallName;

use crate::format::{
    Kind, MODULE, NO_PEER, OPEN, RECORD, Record, Shape, header, lane, short, site_words,
};
use crate::read::moment;

/// Calls in this many nanoseconds each, or less, are counted.
const COUNT_BELOW_NS: u64 = 2_000;
/// Records between two looks at the rate.
const RATE_RECORDS: u64 = 64;
/// Counted calls between two looks at the rate.
const RATE_CALLS: u64 = 16;
/// How much slower calls must become before they are recorded again.
const HYSTERESIS: u64 = 2;
/// After how long sums of counted calls become records, in looks at the rate (about 10 ms).
const SUM_LOOKS: u64 = 1024;
/// Sums that are kept at a time.
const SUMS: usize = 64;
/// Call sites that are found without a search.
const CACHED: usize = 256;

/// Time, as the recorder needs it.
pub trait Timer: Send + Sync {
    /// The processor's counter.
    fn ticks() -> u64;
    /// Nanoseconds of the monotonic clock.
    fn now_ns() -> u64;
    /// The program or library in which an address is: where it lies, and its path.
    fn module_of(address: u64) -> Option<(u64, Vec<u8>)>;
}

/// From where a call comes.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The name of the function that is called.
    pub call: &'static CallName,
    /// The return address, 0 for unknown.
    pub from: u64,
}

/// A call that has begun, for [`Recorder::end`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Call {
    /// The record of the call around it, 0 for none.
    outer: u64,
}

/// A message that a call sends, receives or waits for, or a collective operation.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub kind: Kind,
    pub peer: u32,
    pub tag: u32,
    pub context: u32,
    pub bytes: u64,
    pub request: u32,
}

/// Sums of calls of one site with one peer.
#[derive(Default)]
struct Sum {
    /// Site, peer and kind; 0 for a free one.
    key: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
    context: AtomicU64,
}

impl Sum {
    /// Only its thread writes to it.
    #[inline]
    fn add(&self, calls: u64, bytes: u64) {
        let sum = self.calls.load(Relaxed).wrapping_add(calls);
        self.calls.store(sum, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }
}

/// What a thread knows of its own ring. Only that thread uses it.
#[derive(Default)]
#[repr(align(128))]
struct LaneState {
    is_taken: AtomicBool,
    written: AtomicU64,
    /// 1 + the position of the record of the call that has not ended; 0 for none.
    open: AtomicU64,
    /// The record of that call has its message.
    has_message: AtomicBool,
    /// Calls are counted: how many until the next look at the rate; 0 when they are recorded.
    left: AtomicU64,
    looks: AtomicU64,
    looked: AtomicU64,
    /// Ticks of 16 calls above which they are recorded again.
    limit: AtomicU64,
    /// The site of the call that began last.
    site: AtomicU64,
    /// When the sums begin.
    since: AtomicU64,
    sums: Box<[Sum]>,
    /// The key of the sum in which the call that goes on was counted, with its first message.
    counted_in: AtomicU64,
}

impl LaneState {
    /// Where the sum with this key is, if it is there.
    #[inline]
    fn sum_of(&self, key: u64) -> &Sum {
        let (peer, site, kind) = (key as u32, (key >> 32) as u16, key >> 48);
        &self.sums[(usize::from(site) ^ peer as usize ^ (kind as usize) << 3) & (SUMS - 1)]
    }
}

/// A cached call site. Threads may enter two at a time: `from` is 0 meanwhile.
#[derive(Default)]
struct Cached {
    from: AtomicU64,
    /// The address of the name, and the site in the upper 16 bits.
    call: AtomicU64,
}

/// Writes the flight recorder of a rank into words `W`.
pub struct Recorder<W, T> {
    words: W,
    shape: Shape,
    lanes: Box<[LaneState]>,
    cache: Box<[Cached]>,
    timer: PhantomData<fn() -> T>,
}

use Ordering::{Acquire, Relaxed, Release};

impl<W: Deref<Target = [AtomicU64]>, T: Timer> Recorder<W, T> {
    /// Returns a recorder that writes into `words`; none when they are fewer than the shape needs.
    #[must_use]
    pub fn new(words: W, shape: Shape) -> Option<Recorder<W, T>> {
        if words.len() < shape.words() || !shape.records.is_power_of_two() {
            return None;
        }
        let [first, second] = shape.pack();
        let (ticks, ns) = moment(T::ticks, T::now_ns);
        words[header::TICKS].store(ticks, Relaxed);
        words[header::NS].store(ns, Relaxed);
        words[header::SIZES].store(second, Relaxed);
        words[header::SHAPE].store(first, Release);
        let lane = || LaneState {
            sums: (0..SUMS).map(|_| Sum::default()).collect(),
            ..LaneState::default()
        };
        Some(Recorder {
            lanes: (0..shape.lanes).map(|_| lane()).collect(),
            cache: (0..CACHED).map(|_| Cached::default()).collect(),
            words,
            shape,
            timer: PhantomData,
        })
    }

    /// Gives the calling thread a ring. None when all are taken.
    pub fn take_lane(&self, thread: u32) -> Option<usize> {
        let free = |lane: &LaneState| {
            (lane.is_taken)
                .compare_exchange(false, true, Acquire, Relaxed)
                .is_ok()
        };
        let index = self.lanes.iter().position(free)?;
        self.words[self.shape.lane(index) + lane::THREAD].store(u64::from(thread), Relaxed);
        Some(index)
    }

    /// What was only counted becomes records, and the next calls are recorded: nothing may come
    /// after them.
    pub fn settle(&self, index: usize) {
        let lane = &self.lanes[index];
        if lane.left.load(Relaxed) == 0 || lane.open.load(Relaxed) != 0 {
            return;
        }
        self.flush(index, T::ticks());
        lane.looked.store(T::now_ns(), Relaxed);
        lane.looks.store(0, Relaxed);
        lane.left.store(0, Relaxed);
    }

    /// The thread that had this ring has ended; another one may have it.
    pub fn leave_lane(&self, index: usize) {
        if let Some(lane) = self.lanes.get(index) {
            self.settle(index);
            lane.open.store(0, Relaxed);
            lane.is_taken.store(false, Release);
        }
    }

    /// A call for which there is no ring.
    #[cold]
    pub fn unrecorded(&self) {
        self.words[header::UNRECORDED].fetch_add(1, Relaxed);
    }

    /// The calling thread, whose ring this is, begins a call.
    #[inline]
    pub fn begin(&self, index: usize, origin: Origin) -> Call {
        let lane = &self.lanes[index];
        let outer = lane.open.load(Relaxed);
        let site = self.site(origin);
        lane.site.store(site, Relaxed);
        let left = lane.left.load(Relaxed);
        if left > 1 {
            lane.left.store(left - 1, Relaxed);
            lane.has_message.store(false, Relaxed);
            return Call { outer };
        }
        let now = T::ticks();
        if left == 1 && self.still_counts(index, now) {
            lane.has_message.store(false, Relaxed);
            return Call { outer };
        }
        self.open(index, site, now);
        Call { outer }
    }

    #[inline]
    fn open(&self, index: usize, site: u64, start: u64) {
        let lane = &self.lanes[index];
        let at = lane.written.load(Relaxed);
        let second = u64::from(OPEN) | site << 32;
        self.put(
            index,
            [start, second, u64::from(NO_PEER), (Kind::Call as u64) << 56],
        );
        lane.open.store(at + 1, Relaxed);
        lane.has_message.store(false, Relaxed);
        if at & (RATE_RECORDS - 1) == RATE_RECORDS - 1 {
            self.look_at_rate(index, start);
        }
    }

    /// The number of the site of the call that the thread began last: what a request that it makes
    /// keeps, so that a wait for it can be explained however long ago that was.
    #[inline]
    #[must_use]
    pub fn call_site(&self, index: usize) -> u16 {
        self.lanes[index].site.load(Relaxed) as u16
    }

    /// That call ends.
    #[inline]
    pub fn end(&self, index: usize, call: Call) {
        let lane = &self.lanes[index];
        let open = lane.open.load(Relaxed);
        if open == call.outer {
            // It was only counted.
            if !lane.has_message.load(Relaxed) {
                self.sum(index, Kind::Call, NO_PEER, 0).add(1, 0);
            }
            return;
        }
        let at = open.wrapping_sub(1);
        let now = T::ticks();
        let there = lane.written.load(Relaxed).wrapping_sub(at) <= self.shape.records as u64;
        if there {
            let ring = self.record(index, at);
            let start = self.words[ring].load(Relaxed);
            let ticks = short(now.saturating_sub(start)).min(OPEN - 1);
            let second = self.words[ring + 1].load(Relaxed);
            self.words[ring + 1].store(second & !u64::from(OPEN) | u64::from(ticks), Relaxed);
        }
        lane.open.store(call.outer, Relaxed);
        // What comes next in the call around it is a further record.
        lane.has_message.store(true, Relaxed);
    }

    /// The call that goes on sends, receives or posts this.
    #[inline]
    pub fn message(&self, index: usize, message: Message) {
        let lane = &self.lanes[index];
        let open = lane.open.load(Relaxed);
        if lane.left.load(Relaxed) != 0 && open == 0 {
            let is_first = !lane.has_message.load(Relaxed);
            lane.has_message.store(true, Relaxed);
            let (kind, further) = (message.kind, message.kind.further());
            // One call, however many messages it has.
            let (kind, number) = match is_first {
                true => (kind, 1),
                false => (further, u64::from(kind != further)),
            };
            let sum = self.sum(index, kind, message.peer, message.context);
            if is_first {
                lane.counted_in.store(sum.key.load(Relaxed), Relaxed);
            }
            return sum.add(number, message.bytes);
        }
        let third = u64::from(message.peer) | u64::from(message.tag) << 32;
        let fourth = |kind: Kind| {
            u64::from(short(message.bytes))
                | u64::from(message.context & 0xff_ffff) << 32
                | (kind as u64) << 56
        };
        let request = u64::from(message.request as u16) << 48;
        let at = open.wrapping_sub(1);
        let is_there =
            open != 0 && lane.written.load(Relaxed).wrapping_sub(at) <= self.shape.records as u64;
        if is_there {
            let ring = self.record(index, at);
            let second = self.words[ring + 1].load(Relaxed);
            // Its own record has no message, although calls within it may have had some since.
            let own = self.words[ring + 3].load(Relaxed) >> 56;
            let is_posted = message.kind == Kind::Receive
                && own == Kind::Post as u64
                && second >> 48 == request >> 48;
            if is_posted || own == Kind::Call as u64 {
                lane.has_message.store(true, Relaxed);
                self.words[ring + 1].store(second & (u64::MAX >> 16) | request, Relaxed);
                self.words[ring + 2].store(third, Relaxed);
                self.words[ring + 3].store(fourth(message.kind), Relaxed);
                return;
            }
        }
        let further = message.kind.further();
        self.put(index, [T::ticks(), request, third, fourth(further)]);
    }

    /// The call that goes on has waited for `ns` nanoseconds: it is recorded even where calls are
    /// counted.
    #[cold]
    pub fn waits(&self, index: usize, ns: u64) {
        let lane = &self.lanes[index];
        if lane.left.load(Relaxed) == 0 || lane.open.load(Relaxed) != 0 {
            return;
        }
        let now = T::ticks();
        let had_message = lane.has_message.load(Relaxed);
        if had_message {
            self.uncount(index);
        }
        self.flush(index, now);
        lane.left.store(0, Relaxed);
        let passed_ns = T::now_ns().saturating_sub(self.words[header::NS].load(Relaxed));
        let passed = now.saturating_sub(self.words[header::TICKS].load(Relaxed));
        let ticks = (ns as f64 * passed as f64 / passed_ns.max(1) as f64) as u64;
        self.open(index, lane.site.load(Relaxed), now.saturating_sub(ticks));
        lane.has_message.store(had_message, Relaxed);
    }

    /// The call that goes on was counted with its message, and gets a record of its own.
    fn uncount(&self, index: usize) {
        let lane = &self.lanes[index];
        let key = lane.counted_in.load(Relaxed);
        let sum = lane.sum_of(key);
        if sum.key.load(Relaxed) != key {
            // A later message of the call took its place: it is a record already.
            return;
        }
        let kind = Kind::of((key >> 48) as u8).filter(|kind| kind.further() != *kind);
        sum.add(u64::MAX, 0);
        if let Some(kind) = kind {
            let context = sum.context.load(Relaxed) as u32;
            self.sum(index, kind.further(), key as u32, context)
                .add(1, 0);
        }
    }

    #[inline]
    fn record(&self, index: usize, position: u64) -> usize {
        self.shape.ring(index) + RECORD * (position as usize & (self.shape.records - 1))
    }

    #[inline]
    fn put(&self, index: usize, words: [u64; RECORD]) {
        let lane = &self.lanes[index];
        let at = lane.written.load(Relaxed);
        let ring = self.record(index, at);
        for (word, value) in self.words[ring..ring + RECORD].iter().zip(words) {
            word.store(value, Relaxed);
        }
        lane.written.store(at + 1, Relaxed);
        self.words[self.shape.lane(index) + lane::WRITTEN].store(at + 1, Release);
    }

    /// Whether a thread calls too often for records, so that calls are counted from now on.
    #[cold]
    fn look_at_rate(&self, index: usize, now: u64) {
        let lane = &self.lanes[index];
        let now_ns = T::now_ns();
        let passed_ns = now_ns.saturating_sub(lane.looked.swap(now_ns, Relaxed));
        if passed_ns >= RATE_RECORDS * COUNT_BELOW_NS {
            return;
        }
        let ns = now_ns.saturating_sub(self.words[header::NS].load(Relaxed));
        let ticks = now.saturating_sub(self.words[header::TICKS].load(Relaxed));
        if ns < 1000 {
            return;
        }
        let limit_ns = RATE_CALLS * COUNT_BELOW_NS * HYSTERESIS;
        let limit = limit_ns as f64 * ticks as f64 / ns as f64;
        lane.limit.store(limit as u64, Relaxed);
        lane.looked.store(now, Relaxed);
        lane.since.store(now, Relaxed);
        lane.looks.store(0, Relaxed);
        lane.left.store(RATE_CALLS, Relaxed);
    }

    /// At the last of some counted calls: whether the next ones are counted as well.
    #[cold]
    fn still_counts(&self, index: usize, now: u64) -> bool {
        let lane = &self.lanes[index];
        let passed = now.saturating_sub(lane.looked.swap(now, Relaxed));
        if passed > lane.limit.load(Relaxed) {
            self.flush(index, now);
            lane.looked.store(T::now_ns(), Relaxed);
            lane.left.store(0, Relaxed);
            return false;
        }
        lane.left.store(RATE_CALLS, Relaxed);
        let looks = lane.looks.load(Relaxed) + 1;
        lane.looks.store(looks, Relaxed);
        let entry = self.shape.lane(index);
        self.words[entry + lane::LAST_SITE].store(lane.site.load(Relaxed), Relaxed);
        self.words[entry + lane::COUNTED].store(looks * RATE_CALLS, Relaxed);
        if looks >= SUM_LOOKS {
            self.flush(index, now);
            lane.looks.store(0, Relaxed);
        }
        true
    }

    /// The sum for a message of the call that goes on, or of a call without any.
    #[inline]
    fn sum(&self, index: usize, kind: Kind, peer: u32, context: u32) -> &Sum {
        let lane = &self.lanes[index];
        let site = lane.site.load(Relaxed);
        let key = u64::from(peer) | site << 32 | (kind as u64) << 48;
        let sum = lane.sum_of(key);
        if sum.key.load(Relaxed) != key {
            self.begin_sum(index, sum, key, context);
        }
        sum
    }

    #[cold]
    fn begin_sum(&self, index: usize, sum: &Sum, key: u64, context: u32) {
        if sum.key.load(Relaxed) != 0 {
            self.flush_sum(index, sum, T::ticks());
        }
        sum.key.store(key, Relaxed);
        sum.context.store(u64::from(context), Relaxed);
    }

    /// Sums become records.
    #[cold]
    fn flush(&self, index: usize, now: u64) {
        let lane = &self.lanes[index];
        for sum in &lane.sums {
            if sum.key.load(Relaxed) != 0 {
                self.flush_sum(index, sum, now);
            }
        }
        lane.since.store(now, Relaxed);
        self.words[self.shape.lane(index) + lane::COUNTED].store(0, Relaxed);
    }

    fn flush_sum(&self, index: usize, sum: &Sum, now: u64) {
        let key = sum.key.swap(0, Relaxed);
        let since = self.lanes[index].since.load(Relaxed);
        let peer = key as u32;
        let record = Record {
            kind: Kind::Total,
            start: since,
            ticks: Some(now.saturating_sub(since)),
            site: (key >> 32) as u16,
            peer: (peer != NO_PEER).then_some(peer),
            tag: sum.calls.swap(0, Relaxed).min(u64::from(u32::MAX)) as u32,
            context: sum.context.load(Relaxed) as u32,
            bytes: sum.bytes.swap(0, Relaxed),
            request: (key >> 48) as u16,
        };
        self.put(index, record.pack());
    }

    /// The number of a call site.
    #[inline]
    fn site(&self, origin: Origin) -> u64 {
        let call = std::ptr::from_ref(origin.call).addr() as u64 & (u64::MAX >> 16);
        let hash = (origin.from ^ origin.from >> 8 ^ call >> 5) as usize;
        let cached = &self.cache[hash & (CACHED - 1)];
        // 0 stands for an entry that changes.
        let from = origin.from | 1 << 63;
        if cached.from.load(Acquire) == from {
            let known = cached.call.load(Acquire);
            if known & (u64::MAX >> 16) == call && cached.from.load(Relaxed) == from {
                return known >> 48;
            }
        }
        let site = self.look_up(origin);
        cached.from.store(0, Release);
        cached.call.store(call | site << 48, Release);
        cached.from.store(from, Release);
        site
    }

    /// Finds or enters a call site in the table. Two threads may enter the same one twice.
    #[cold]
    fn look_up(&self, origin: Origin) -> u64 {
        let most = self.shape.sites - 1;
        let used = (self.words[header::SITES_USED].load(Acquire) as usize).min(most);
        for site in 1..=used {
            let at = self.shape.site(site);
            let same_name = (self.words[at + 3..at + 7].iter().zip(origin.call))
                .all(|(word, name)| word.load(Relaxed) == *name);
            if same_name && self.words[at].load(Relaxed) == origin.from {
                return site as u64;
            }
        }
        if used >= most {
            return 0;
        }
        let site = self.words[header::SITES_USED].fetch_add(1, Relaxed) as usize + 1;
        if site > most {
            return 0;
        }
        let (base, module) = match origin.from {
            0 => (0, 0),
            from => self.module(from),
        };
        let at = self.shape.site(site);
        let words = site_words(origin.from, base, module, origin.call);
        for (word, value) in self.words[at..].iter().zip(words) {
            word.store(value, Relaxed);
        }
        site as u64
    }

    /// The base and 1 + the number of the module of an address; zeros when it is not known.
    fn module(&self, address: u64) -> (u64, u64) {
        let Some((base, path)) = T::module_of(address) else {
            return (0, 0);
        };
        if path.len() > 8 * (MODULE - 1) {
            return (0, 0);
        }
        let mut words = [0_u64; MODULE];
        words[0] = path.len() as u64;
        for (word, bytes) in words[1..].iter_mut().zip(path.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        let used =
            (self.words[header::MODULES_USED].load(Relaxed) as usize).min(self.shape.modules);
        for module in 0..used {
            let at = self.shape.module(module);
            let known = &self.words[at..at + MODULE];
            if known.iter().zip(words).all(|(k, w)| k.load(Relaxed) == w) {
                return (base, module as u64 + 1);
            }
        }
        let used = self.words[header::MODULES_USED].fetch_add(1, Relaxed) as usize;
        if used >= self.shape.modules {
            return (0, 0);
        }
        let at = self.shape.module(used);
        for (word, value) in self.words[at..].iter().zip(words) {
            word.store(value, Relaxed);
        }
        (base, used as u64 + 1)
    }
}
