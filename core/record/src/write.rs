//! Writing a recorder: what a thread does at the begin and the end of a call, and at messages.
//!
//! Each ring has one writer, so all stores are plain ones; the number of records is stored last.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::counted::{CACHED, Cached, RATE_CALLS, Recent, RecentCall, SUMS, Sum};
use crate::format::{
    Kind, MODULE, NO_PEER, OPEN, RECORD, Record, Shape, header, lane, short, site_words,
};
use crate::origin::{NameCell, Origin};
use crate::read::moment;

/// Calls in this many nanoseconds each, or less, are counted.
const COUNT_BELOW_NS: u64 = 2_000;
/// Records between two looks at the rate.
const RATE_RECORDS: u64 = 64;
/// How much slower calls must become before they are recorded again.
const HYSTERESIS: u64 = 2;
/// After how long sums of counted calls become records, in looks at the rate (about 10 ms).
const SUM_LOOKS: u64 = 512;

/// Time, as the recorder needs it.
pub trait Timer: Send + Sync {
    /// Keeps the names of calls.
    type Name: NameCell;
    /// The processor's counter.
    fn ticks() -> u64;
    /// Nanoseconds of the monotonic clock.
    fn now_ns() -> u64;
    /// The program or library in which an address is: where it lies, and its path.
    fn module_of(address: u64) -> Option<(u64, Vec<u8>)>;
}

/// A call that has begun, for [`Recorder::end`]: the record of the call around it, 0 for none, and
/// in the upper 16 bits the ring. One word, which is passed in a register.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Call(u64);

impl Call {
    #[inline]
    fn new(index: usize, outer: u64) -> Call {
        Call(outer | (index as u64) << 48)
    }

    #[inline]
    fn index(self) -> usize {
        (self.0 >> 48) as usize
    }

    #[inline]
    fn outer(self) -> u64 {
        self.0 & (u64::MAX >> 16)
    }
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

/// In place of the record of a call: the one that goes on is only counted, but timed.
const TIMED: u64 = u64::MAX >> 16;

// Fields: each is one word that a call loads or stores without another.
/// What a thread knows of its own ring. Only that thread uses it.
#[derive(Default)]
#[repr(align(128))]
struct LaneState<N: NameCell> {
    is_taken: AtomicBool,
    written: AtomicU64,
    /// 1 + the position of the record of the call that has not ended; 0 for none.
    open: AtomicU64,
    /// The record of that call has its message.
    has_message: AtomicBool,
    /// Calls are counted: how many until the next look at the rate; 0 when they are recorded.
    left: AtomicU64,
    /// The counted calls since the last look at the rate, each where `left` was when it began.
    recent: Recent<N>,
    /// The position of a record at which to look at the rate.
    look_at: AtomicU64,
    looks: AtomicU64,
    looked: AtomicU64,
    /// Ticks of `RATE_CALLS` calls above which they are recorded again.
    limit: AtomicU64,
    /// The site of the call that began last, if that is recorded.
    site: AtomicU64,
    /// When the sums begin.
    since: AtomicU64,
    /// Of a call that is timed: when it began, and its site in the cache.
    timed_at: AtomicU64,
    timed_slot: AtomicU64,
    timed_call: AtomicU64,
    /// Made when calls are counted for the first time: most threads never are that fast.
    sums: OnceLock<Box<[Sum; SUMS]>>,
    cache: OnceLock<Box<[Cached; CACHED]>>,
    /// The key of the sum in which the call that goes on was counted, with its first message.
    counted_in: AtomicU64,
}

impl<N: NameCell> LaneState<N> {
    #[inline]
    fn sums(&self) -> &[Sum; SUMS] {
        (self.sums).get_or_init(|| Box::new(std::array::from_fn(|_| Sum::default())))
    }

    #[inline]
    fn cache(&self) -> &[Cached; CACHED] {
        (self.cache).get_or_init(|| Box::new(std::array::from_fn(|_| Cached::default())))
    }

    /// No call goes on that has a record.
    fn is_counting(&self) -> bool {
        matches!(self.open.load(Relaxed), 0 | TIMED)
    }

    /// The call that began last, where it is only counted.
    #[inline]
    fn last(&self) -> &RecentCall<N> {
        self.recent.at(self.left.load(Relaxed))
    }

    /// Where the sum with this key is, if it is there.
    #[inline]
    fn sum_of(&self, key: u64) -> &Sum {
        let (peer, site, kind) = (key as u32, (key >> 32) as u16, key >> 48);
        &self.sums()[(usize::from(site) ^ peer as usize ^ (kind as usize) << 3) & (SUMS - 1)]
    }
}

/// Writes the flight recorder of a rank into words `W`.
pub struct Recorder<W, T: Timer> {
    words: W,
    shape: Shape,
    lanes: Box<[LaneState<T::Name>]>,
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
        Some(Recorder {
            lanes: (0..shape.lanes).map(|_| LaneState::default()).collect(),
            words,
            shape,
            timer: PhantomData,
        })
    }

    /// Gives the calling thread a ring. None when all are taken.
    pub fn take_lane(&self, thread: u32) -> Option<usize> {
        let free = |lane: &LaneState<T::Name>| {
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
        if lane.left.load(Relaxed) == 0 || !lane.is_counting() {
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

    /// What the calling thread, whose ring this is, has done in a library of threads since `start`.
    pub fn threads(&self, index: usize, origin: Origin, start: u64) {
        let ticks = short(T::ticks().saturating_sub(start)).min(OPEN - 1);
        let site = self.site(index, origin);
        let second = u64::from(ticks) | site << 32;
        let fourth = (Kind::Threads as u64) << 56;
        self.put(index, [start, second, u64::from(NO_PEER), fourth]);
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
        let call = Call::new(index, lane.open.load(Relaxed));
        let left = lane.left.load(Relaxed);
        if left > 1 {
            lane.left.store(left - 1, Relaxed);
            lane.recent.at(left - 1).set(origin);
        } else {
            self.begin_timed(index, left, origin);
        }
        call
    }

    /// A call begins that is recorded, or one with which it is time to look at the rate.
    #[inline(never)]
    fn begin_timed(&self, index: usize, left: u64, origin: Origin) {
        let now = T::ticks();
        if left == 1 && self.still_counts(index, now, origin) {
            self.lanes[index].last().set(origin);
            return self.time(index, origin);
        }
        let site = self.site(index, origin);
        self.lanes[index].site.store(site, Relaxed);
        self.open(index, site, now);
    }

    /// A call begins that is counted and stands for all of [`RATE_CALLS`] with its time.
    fn time(&self, index: usize, origin: Origin) {
        let lane = &self.lanes[index];
        if lane.open.load(Relaxed) != 0 {
            return;
        }
        let call = self.cached(index, origin).call.load(Relaxed);
        lane.timed_slot.store(slot_of(origin) as u64, Relaxed);
        lane.timed_call.store(call, Relaxed);
        lane.open.store(TIMED, Relaxed);
        lane.timed_at.store(T::ticks(), Relaxed);
    }

    /// That call ends.
    fn end_timed(&self, index: usize) {
        let lane = &self.lanes[index];
        let ticks = T::ticks().saturating_sub(lane.timed_at.load(Relaxed));
        let cached = &lane.cache()[lane.timed_slot.load(Relaxed) as usize & (CACHED - 1)];
        if cached.call.load(Relaxed) == lane.timed_call.load(Relaxed) {
            let sum = cached.ticks.load(Relaxed) + ticks * RATE_CALLS;
            cached.ticks.store(sum, Relaxed);
        }
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
        if at >= lane.look_at.load(Relaxed) {
            lane.look_at.store(at + RATE_RECORDS, Relaxed);
            self.look_at_rate(index, start);
        }
    }

    /// The number of the site of the call that the thread began last: what a request that it makes
    /// keeps, so that a wait for it can be explained however long ago that was.
    #[inline]
    #[must_use]
    pub fn call_site(&self, index: usize) -> u16 {
        self.last_site(index) as u16
    }

    /// The site of the call that the thread began last.
    #[inline]
    fn last_site(&self, index: usize) -> u64 {
        let lane = &self.lanes[index];
        match lane.left.load(Relaxed) {
            0 => lane.site.load(Relaxed),
            _ => (lane.last().origin()).map_or(0, |origin| self.site(index, origin)),
        }
    }

    /// That call ends.
    #[inline]
    pub fn end(&self, call: Call) {
        // Else it is only counted.
        if let Some(lane) = self.lanes.get(call.index())
            && lane.open.load(Relaxed) != call.outer()
        {
            self.end_recorded(call);
        }
    }

    #[inline(never)]
    fn end_recorded(&self, call: Call) {
        let index = call.index();
        let lane = &self.lanes[index];
        if lane.open.load(Relaxed) == TIMED {
            self.end_timed(index);
            lane.open.store(call.outer(), Relaxed);
            return;
        }
        let at = lane.open.load(Relaxed).wrapping_sub(1);
        let now = T::ticks();
        let there = lane.written.load(Relaxed).wrapping_sub(at) <= self.shape.records as u64;
        if there {
            let ring = self.record(index, at);
            let start = self.words[ring].load(Relaxed);
            let ticks = short(now.saturating_sub(start)).min(OPEN - 1);
            let second = self.words[ring + 1].load(Relaxed);
            self.words[ring + 1].store(second & !u64::from(OPEN) | u64::from(ticks), Relaxed);
        }
        lane.open.store(call.outer(), Relaxed);
        // What comes next in the call around it is a further record.
        lane.has_message.store(true, Relaxed);
    }

    /// The call that goes on sends, receives or posts this.
    #[inline]
    pub fn message(&self, index: usize, message: Message) {
        let lane = &self.lanes[index];
        let open = lane.open.load(Relaxed);
        if lane.left.load(Relaxed) != 0 && lane.is_counting() {
            let is_first = !lane.last().has_message();
            lane.last().set_message();
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
        if lane.left.load(Relaxed) == 0 || !lane.is_counting() {
            return;
        }
        let now = T::ticks();
        let had_message = lane.last().has_message();
        let site = self.last_site(index);
        if had_message {
            self.uncount(index);
        }
        lane.last().clear();
        self.flush(index, now);
        lane.left.store(0, Relaxed);
        let passed_ns = T::now_ns().saturating_sub(self.words[header::NS].load(Relaxed));
        let passed = now.saturating_sub(self.words[header::TICKS].load(Relaxed));
        let ticks = (ns as f64 * passed as f64 / passed_ns.max(1) as f64) as u64;
        lane.site.store(site, Relaxed);
        self.open(index, site, now.saturating_sub(ticks));
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

    /// When a call begins after some that were counted: whether it is counted as well.
    fn still_counts(&self, index: usize, now: u64, origin: Origin) -> bool {
        let lane = &self.lanes[index];
        let passed = now.saturating_sub(lane.looked.swap(now, Relaxed));
        if passed > lane.limit.load(Relaxed) {
            self.flush(index, now);
            lane.looked.store(T::now_ns(), Relaxed);
            lane.left.store(0, Relaxed);
            return false;
        }
        self.enter_recent(index);
        lane.left.store(RATE_CALLS, Relaxed);
        let looks = lane.looks.load(Relaxed) + 1;
        lane.looks.store(looks, Relaxed);
        let entry = self.shape.lane(index);
        self.words[entry + lane::LAST_SITE].store(self.site(index, origin), Relaxed);
        self.words[entry + lane::COUNTED].store(looks * RATE_CALLS, Relaxed);
        if looks >= SUM_LOOKS {
            self.flush(index, now);
            lane.looks.store(0, Relaxed);
        }
        true
    }

    /// The sum for a message of the call that goes on.
    #[inline]
    fn sum(&self, index: usize, kind: Kind, peer: u32, context: u32) -> &Sum {
        let lane = &self.lanes[index];
        let site = self.last_site(index);
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
        self.enter_recent(index);
        for sum in lane.sums() {
            if sum.key.load(Relaxed) != 0 {
                self.flush_sum(index, sum, now);
            }
        }
        for cached in lane.cache() {
            self.flush_calls(index, cached, now);
        }
        lane.since.store(now, Relaxed);
        self.words[self.shape.lane(index) + lane::COUNTED].store(0, Relaxed);
    }

    fn flush_sum(&self, index: usize, sum: &Sum, now: u64) {
        let key = sum.key.swap(0, Relaxed);
        let calls = sum.calls.swap(0, Relaxed);
        let (bytes, context) = (sum.bytes.swap(0, Relaxed), sum.context.load(Relaxed) as u32);
        self.put_total(index, key, (calls, bytes, context), now);
    }

    /// Counted calls without a message become a record.
    fn flush_calls(&self, index: usize, cached: &Cached, now: u64) {
        let calls = cached.calls.load(Relaxed);
        let ticks = cached.ticks.load(Relaxed);
        let site = cached.call.load(Relaxed) >> 48;
        if ticks != 0 {
            cached.ticks.store(0, Relaxed);
            let since = self.lanes[index].since.load(Relaxed);
            let second = u64::from(short(ticks).min(OPEN - 1)) | site << 32;
            let fourth = (Kind::Spent as u64) << 56;
            self.put(index, [since, second, u64::from(NO_PEER), fourth]);
        }
        if calls != 0 {
            cached.calls.store(0, Relaxed);
            let key = u64::from(NO_PEER) | site << 32 | (Kind::Call as u64) << 48;
            self.put_total(index, key, (calls, 0, 0), now);
        }
    }

    fn put_total(&self, index: usize, key: u64, total: (u64, u64, u32), now: u64) {
        let (calls, bytes, context) = total;
        let since = self.lanes[index].since.load(Relaxed);
        let peer = key as u32;
        let record = Record {
            kind: Kind::Total,
            start: since,
            ticks: Some(now.saturating_sub(since)),
            site: (key >> 32) as u16,
            peer: (peer != NO_PEER).then_some(peer),
            tag: calls.min(u64::from(u32::MAX)) as u32,
            context,
            bytes,
            request: (key >> 48) as u16,
        };
        self.put(index, record.pack());
    }

    /// The counted calls of which only the origin is noted are counted by their site.
    fn enter_recent(&self, index: usize) {
        let lane = &self.lanes[index];
        for recent in lane.recent.all(lane.left.load(Relaxed)) {
            if let Some(origin) = recent.origin()
                && !recent.has_message()
            {
                let calls = &self.cached(index, origin).calls;
                calls.store(calls.load(Relaxed) + 1, Relaxed);
            }
            recent.clear();
        }
    }

    /// The number of a call site.
    #[inline]
    fn site(&self, index: usize, origin: Origin) -> u64 {
        self.cached(index, origin).call.load(Relaxed) >> 48
    }

    #[inline]
    fn cached(&self, index: usize, origin: Origin) -> &Cached {
        let call = address(origin);
        let cached = &self.lanes[index].cache()[slot_of(origin)];
        let known = cached.call.load(Relaxed) & (u64::MAX >> 16);
        if cached.from.load(Relaxed) != origin.from || known != call {
            self.replace(index, cached, origin);
        }
        cached
    }

    /// Another site gets the place of a cached one.
    #[cold]
    fn replace(&self, index: usize, cached: &Cached, origin: Origin) {
        self.flush_calls(index, cached, T::ticks());
        let site = self.look_up(origin);
        cached.from.store(origin.from, Relaxed);
        cached.call.store(address(origin) | site << 48, Relaxed);
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

/// The place of a call site in the cache.
#[inline]
fn slot_of(origin: Origin) -> usize {
    (origin.from ^ origin.from >> 8 ^ address(origin) >> 5) as usize & (CACHED - 1)
}

/// Where the name of the function that is called stands, in 48 bits.
fn address(origin: Origin) -> u64 {
    std::ptr::from_ref(origin.call).addr() as u64 & (u64::MAX >> 16)
}
