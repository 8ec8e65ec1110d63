//! Whose fault waits are.
//!
//! The cost of a wait is divided among what the rank that was waited for did longer than the one
//! that waited, since both were last in step, and its own waits meanwhile, whose causes pay in turn
//! (Böhme, Geimer, Wolf, Arnold: "Identifying the root causes of wait states in large-scale
//! parallel applications", ICPP 2010). So a rank that works no more than the others is not blamed
//! for having begun late.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::analyse::{Analysis, Message, Wait, WaitKind};
use crate::calls::Calls;
use crate::format::{At, Trace, end};

/// What a rank does while others wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Something of the program's own, after a call at one site and before a call at another; 0 is
    /// the start of the program, or unknown.
    Between(u16, u16),
    /// A call.
    In(u16),
}

impl Activity {
    /// The activity without where it begins.
    pub fn key(self) -> Activity {
        match self {
            Activity::Between(_, next) => Activity::Between(0, next),
            within => within,
        }
    }

    pub fn is_outside(self) -> bool {
        matches!(self, Activity::Between(..))
    }
}

/// What is known of a rank's activity.
#[derive(Default)]
pub struct Sum {
    /// What it cost others, in nanoseconds.
    pub ns: f64,
    /// Of this, after it had served another rank meanwhile.
    pub serving: f64,
    pub of_kind: BTreeMap<WaitKind, f64>,
    /// By the call that comes late.
    pub of_site: BTreeMap<u16, f64>,
    /// By the call after which it begins: the first round of a loop begins elsewhere.
    pub of_activity: BTreeMap<Activity, f64>,
}

/// How long a thread does something, in nanoseconds.
#[derive(Clone, Copy)]
struct Piece {
    activity: Activity,
    ns: u64,
    /// Of this, after the moment from which on it counts as serving.
    after: u64,
}

/// What a thread does between two moments.
#[derive(Default)]
struct Parts {
    /// Each activity once: there are a thousand calls in some stretches, at few sites.
    own: Vec<Piece>,
    /// The last one.
    last: Option<Piece>,
    /// Waits by their numbers, and how long.
    waits: Vec<(usize, u64)>,
}

impl Parts {
    fn add(&mut self, activity: Activity, from: u64, to: u64, served: u64) {
        let piece = Piece {
            activity,
            ns: to - from,
            after: to.saturating_sub(from.max(served)),
        };
        self.last = Some(piece);
        match self.own.iter_mut().find(|own| own.activity == activity) {
            Some(own) => {
                own.ns += piece.ns;
                own.after += piece.after;
            }
            None => self.own.push(piece),
        }
    }

    fn length(&self, key: Activity) -> u64 {
        let same = self.own.iter().filter(|own| own.activity.key() == key);
        same.map(|own| own.ns).sum()
    }

    fn sum(&self, is_outside: bool) -> u64 {
        let is_same = |own: &&Piece| own.activity.is_outside() == is_outside;
        self.own.iter().filter(is_same).map(|own| own.ns).sum()
    }

    fn waited(&self) -> u64 {
        self.waits.iter().map(|(_, ns)| ns).sum()
    }
}

/// The division of all waits of a trace.
pub struct Blame<'a> {
    trace: &'a Trace,
    calls: &'a Calls<'a>,
    waits: &'a [Wait],
    of_thread: Vec<Vec<usize>>,
    of_call: HashMap<At, usize>,
    syncs: Syncs,
    served: Served,
    wasted: HashMap<At, u64>,
    /// What each wait costs, with those that come of it; 0 for one that has been divided.
    cost: Vec<f64>,
    /// By rank, and by activity without where it begins.
    pub sums: BTreeMap<(u32, Activity), Sum>,
    /// Of ranks that take messages in the wrong order, by the call in which they wait.
    pub wrong: BTreeMap<(u32, u16), f64>,
}

impl<'a> Blame<'a> {
    /// Calls of a rank that one division looks at.
    const MOST: usize = 1000;

    /// Divides all waits.
    pub fn of(trace: &'a Trace, analysis: &'a Analysis, calls: &'a Calls<'a>) -> Blame<'a> {
        let waits = &analysis.waits[..];
        let mut of_thread = vec![Vec::new(); trace.threads.len()];
        for (number, wait) in waits.iter().enumerate() {
            of_thread[wait.at.thread as usize].push(number);
        }
        let number = |(number, wait): (usize, &Wait)| (wait.at, number);
        let mut blame = Blame {
            trace,
            calls,
            waits,
            of_thread,
            of_call: waits.iter().enumerate().map(number).collect(),
            syncs: Syncs::of(trace, analysis),
            served: Served::of(trace, analysis),
            wasted: wasted(trace, analysis, calls),
            cost: waits.iter().map(|wait| wait.ns as f64).collect(),
            sums: BTreeMap::new(),
            wrong: BTreeMap::new(),
        };
        // A wait comes of earlier ones only.
        let mut order: Vec<usize> = (0..waits.len()).collect();
        order.sort_by_key(|&number| u64::MAX - blame.end(number));
        for number in order {
            blame.divide(number);
        }
        blame
    }

    fn end(&self, number: usize) -> u64 {
        let wait = &self.waits[number];
        start(self.trace, wait.at).saturating_add(wait.ns)
    }

    fn rank(&self, at: At) -> u32 {
        self.trace.threads[at.thread as usize].rank
    }

    fn divide(&mut self, number: usize) {
        let wait = self.waits[number];
        let cost = std::mem::take(&mut self.cost[number]);
        let cost = cost - self.of_the_order(&wait, cost);
        let (waiting, late) = (wait.at.thread, wait.because.thread);
        let (begin, until) = (start(self.trace, wait.at), start(self.trace, wait.because));
        let since = self.syncs.last((waiting, begin), (late, until));
        let served = self.served.since(self.trace, &wait, self.rank(wait.at));
        let served = served.unwrap_or(u64::MAX);
        let parts = |since: (u64, u64)| {
            let (first, own) = self.bounded((waiting, since.0, begin), (late, since.1, until));
            let waiting = self.parts(wait.at, first, begin, served);
            (waiting, self.parts(wait.because, own, until, served))
        };
        let (mut waiting, mut late) = parts(since);
        // Who takes a message that has lain there was not in step then.
        if late.own.iter().map(|own| own.ns).sum::<u64>() + late.waited() < wait.ns / 2 {
            let both = since.0.min(since.1);
            (waiting, late) = parts((both, both));
        }
        let more = |of: fn(&Parts) -> u64| of(&late).saturating_sub(of(&waiting)) as f64;
        let outside = more(|parts| parts.sum(true));
        let inside = more(|parts| parts.sum(false));
        let waits = more(Parts::waited);
        let all = outside + inside + waits;
        if all == 0.0 {
            let last = late.last.unwrap_or(Piece {
                activity: Activity::In(site(self.trace, wait.because)),
                ns: 0,
                after: 0,
            });
            return self.enter(&wait, &[(last, 1.0)], cost);
        }
        for &(earlier, ns) in &late.waits {
            self.cost[earlier] += cost * waits / all * ns as f64 / late.waited() as f64;
        }
        for (is_outside, more) in [(true, outside), (false, inside)] {
            let of_kind = |own: &&Piece| own.activity.is_outside() == is_outside;
            // The part of what it does that it does longer than the one that waits.
            let longer = |own: &Piece| {
                let key = own.activity.key();
                let ns = late.length(key);
                let longer = ns.saturating_sub(waiting.length(key));
                longer as f64 * own.ns as f64 / ns.max(1) as f64
            };
            let pieces = late.own.iter().filter(of_kind);
            let mut shares: Vec<_> = pieces.map(|own| (*own, longer(own))).collect();
            let sum: f64 = shares.iter().map(|(_, longer)| longer).sum();
            if more == 0.0 || sum == 0.0 {
                continue;
            }
            for (_, share) in &mut shares {
                *share /= sum;
            }
            self.enter(&wait, &shares, cost * more / all);
        }
    }

    /// What of a wait's cost is due to the order in which messages are taken, which is entered.
    fn of_the_order(&mut self, wait: &Wait, cost: f64) -> f64 {
        let begin = start(self.trace, wait.at);
        let end = begin.saturating_add(wait.ns);
        let each = cost / wait.ns.max(1) as f64;
        let mut left = wait.ns;
        let own = self.wasted.get(&wait.at).copied().unwrap_or(0).min(left);
        left -= own;
        let mut found = vec![(wait.at, own)];
        // A sender waits for its receiver, which waits for another one's message.
        if wait.kind == WaitKind::LateReceiver {
            let of_receiver = &self.of_thread[wait.because.thread as usize];
            // They are in the order of time.
            let first = of_receiver.partition_point(|&number| self.end(number) <= begin);
            let meanwhile = of_receiver[first..]
                .iter()
                .map(|&number| &self.waits[number]);
            let meanwhile = meanwhile.take_while(|other| start(self.trace, other.at) < end);
            let others = meanwhile.filter(|other| {
                other.kind == WaitKind::LateSender && other.because.thread != wait.at.thread
            });
            for other in others {
                let from = start(self.trace, other.at);
                let to = from.saturating_add(other.ns).min(end);
                let ns = to.saturating_sub(from.max(begin)).min(left);
                left -= ns;
                found.push((other.at, ns));
            }
        }
        for (at, ns) in found.into_iter().filter(|(_, ns)| *ns > 0) {
            let key = (self.rank(at), site(self.trace, at));
            *self.wrong.entry(key).or_default() += each * ns as f64;
        }
        each * (wait.ns - left) as f64
    }

    /// Enters shares of a cost, each for a piece of what the late rank did.
    fn enter(&mut self, wait: &Wait, shares: &[(Piece, f64)], cost: f64) {
        let (rank, site) = (self.rank(wait.because), site(self.trace, wait.because));
        for (piece, share) in shares {
            let (activity, ns) = (piece.activity, share * cost);
            let sum = self.sums.entry((rank, activity.key())).or_default();
            sum.ns += ns;
            sum.serving += ns * piece.after as f64 / piece.ns.max(1) as f64;
            *sum.of_kind.entry(wait.kind).or_default() += ns;
            *sum.of_site.entry(site).or_default() += ns;
            *sum.of_activity.entry(activity).or_default() += ns;
        }
    }

    /// Two stretches of time, each of a thread, from when on at most [`Self::MOST`] calls are in
    /// them: from the same moment, where one has more.
    fn bounded(&self, one: (u32, u64, u64), other: (u32, u64, u64)) -> (u64, u64) {
        let bound = |(thread, from, to): (u32, u64, u64)| {
            let first = self.calls.first_after(thread, from);
            let end = self.calls.first_after(thread, to);
            let earliest = end.checked_sub(Self::MOST).filter(|&least| least > first)?;
            self.calls
                .thread(thread)
                .get(earliest)
                .map(|call| call.start)
        };
        match bound(one).max(bound(other)) {
            Some(from) => (from.max(one.1).min(one.2), from.max(other.1).min(other.2)),
            None => (one.1, other.1),
        }
    }

    /// What the thread of a call does from a moment until that call; `served` is when it counts as
    /// serving.
    fn parts(&self, until: At, from: u64, to: u64, served: u64) -> Parts {
        let of = self.calls.thread(until.thread);
        let first = self.calls.first_after(until.thread, from);
        let mut before = of[..first].iter().rev().take(Self::MOST);
        let mut last = before
            .find(|call| !call.is_local)
            .map_or(0, |call| call.site);
        let mut parts = Parts::default();
        let mut now = from;
        for call in of[first..].iter().take_while(|call| call.start < to) {
            if call.is_local {
                continue;
            }
            if now < call.start {
                parts.add(Activity::Between(last, call.site), now, call.start, served);
                now = call.start;
            }
            if let Some(&number) = self.of_call.get(&call.at) {
                let end = self.end(number).min(to);
                if now < end {
                    parts.waits.push((number, end - now));
                    now = end;
                }
            }
            let end = call.end.min(to);
            if now < end {
                parts.add(Activity::In(call.site), now, end, served);
                now = end;
            }
            last = call.site;
        }
        if now < to {
            let next = site(self.trace, until);
            parts.add(Activity::Between(last, next), now, to, served);
        }
        parts
    }
}

pub fn start(trace: &Trace, at: At) -> u64 {
    trace.threads[at.thread as usize].records[at.index as usize].start
}

pub fn site(trace: &Trace, at: At) -> u16 {
    trace.threads[at.thread as usize].records[at.index as usize].site
}

/// When threads have been in step: both ends of a message, and operations of several ranks.
struct Syncs {
    /// By the two threads: when on the one, when on the other.
    messages: HashMap<(u32, u32), Vec<(u64, u64)>>,
    /// Of each thread when it was through, and the number of the operation.
    of_thread: HashMap<u32, Vec<(u64, usize)>>,
    operations: Vec<HashMap<u32, u64>>,
}

impl Syncs {
    /// Operations before, among which one is looked for that both took part in.
    const MOST: usize = 64;

    fn of(trace: &Trace, analysis: &Analysis) -> Syncs {
        let end = |at: At| {
            let record = &trace.threads[at.thread as usize].records[at.index as usize];
            end(trace, record)
        };
        let mut messages: HashMap<(u32, u32), Vec<(u64, u64)>> = HashMap::default();
        for message in &analysis.messages {
            let (from, to) = (message.from.thread, message.to.thread);
            let (sent, received) = (end(message.from), message.received_ns);
            let of = messages.entry((from, to)).or_default();
            of.push((sent, received));
            let of = messages.entry((to, from)).or_default();
            of.push((received, sent));
        }
        messages.values_mut().for_each(|of| of.sort_unstable());
        let mut of_thread: HashMap<u32, Vec<(u64, usize)>> = HashMap::default();
        for (number, operation) in analysis.operations.iter().enumerate() {
            for &(thread, moment) in operation {
                of_thread.entry(thread).or_default().push((moment, number));
            }
        }
        of_thread.values_mut().for_each(|of| of.sort_unstable());
        let operations = analysis.operations.iter();
        Syncs {
            messages,
            of_thread,
            operations: operations.map(|of| of.iter().copied().collect()).collect(),
        }
    }

    /// When two threads were in step last, each before its moment; 0 where they never were.
    fn last(&self, (one, before): (u32, u64), (other, until): (u32, u64)) -> (u64, u64) {
        let messages = self
            .messages
            .get(&(one, other))
            .map_or(&[][..], Vec::as_slice);
        let earlier = messages.partition_point(|&(moment, _)| moment <= before);
        let mut earlier = messages[..earlier].iter().rev().take(Self::MOST);
        let message = earlier.find(|(_, there)| *there <= until).copied();
        let operations = self.of_thread.get(&one).map_or(&[][..], Vec::as_slice);
        let earlier = operations.partition_point(|&(moment, _)| moment <= before);
        let earlier = operations[..earlier].iter().rev().take(Self::MOST);
        let there = |&(moment, number): &(u64, usize)| {
            let there = *self.operations[number].get(&other)?;
            (there <= until).then_some((moment, there))
        };
        let operation = earlier.filter_map(|&entry| there(&entry)).next();
        message.max(operation).unwrap_or((0, 0))
    }
}

/// When each thread has served which rank, and at which site: its sends as they begin, its receives
/// as they end.
struct Served {
    sends: HashMap<u32, Vec<(u64, u32, u16)>>,
    receives: HashMap<u32, Vec<(u64, u32, u16)>>,
}

impl Served {
    fn of(trace: &Trace, analysis: &Analysis) -> Served {
        let mut sends: HashMap<u32, Vec<(u64, u32, u16)>> = HashMap::default();
        let mut receives: HashMap<u32, Vec<(u64, u32, u16)>> = HashMap::default();
        let rank = |at: At| trace.threads[at.thread as usize].rank;
        for message in &analysis.messages {
            let (from, to) = (message.from, message.to);
            let sent = (message.sent_ns, rank(to), site(trace, from));
            sends.entry(from.thread).or_default().push(sent);
            let received = (message.received_ns, rank(from), site(trace, to));
            receives.entry(to.thread).or_default().push(received);
        }
        for of in sends.values_mut().chain(receives.values_mut()) {
            of.sort_unstable();
        }
        Served { sends, receives }
    }

    /// When the rank that is waited for has served another one than the rank that waits, meanwhile,
    /// at the same site.
    fn since(&self, trace: &Trace, wait: &Wait, waiting: u32) -> Option<u64> {
        let of_thread = match wait.kind {
            WaitKind::LateSender => &self.sends,
            WaitKind::LateReceiver => &self.receives,
            _ => return None,
        };
        let served = of_thread.get(&wait.because.thread)?;
        let (begin, until) = (start(trace, wait.at), start(trace, wait.because));
        let first = served.partition_point(|&(moment, ..)| moment <= begin);
        let mut within = served[first..]
            .iter()
            .take_while(|(moment, ..)| *moment < until);
        let here = site(trace, wait.because);
        let found = within.find(|&&(_, rank, site)| rank != waiting && site == here);
        found.map(|(moment, ..)| *moment)
    }
}

/// How long of each wait for a message its rank could have worked on other messages, which were
/// there and which it takes later. Only of ranks that work on each message as they take it: where
/// all messages are taken before the work begins, their order does not matter.
fn wasted(trace: &Trace, analysis: &Analysis, calls: &Calls) -> HashMap<At, u64> {
    /// Messages that are looked at for one wait.
    const MOST: usize = 64;
    let mut received: HashMap<u32, Vec<(u64, At, &Message, u64)>> = HashMap::default();
    for message in &analysis.messages {
        let call = calls.call_of(message.to);
        let entry = (start(trace, call), call, message, calls.gap_after(call));
        received.entry(message.to.thread).or_default().push(entry);
    }
    for of in received.values_mut() {
        of.sort_by_key(|&(start, ..)| start);
    }
    let mut wasted = HashMap::default();
    let mut used: HashSet<At> = HashSet::default();
    let late = |wait: &&Wait| wait.kind == WaitKind::LateSender;
    for wait in analysis.waits.iter().filter(late) {
        let begin = start(trace, wait.at);
        let end = begin.saturating_add(wait.ns);
        let work = calls.gap_after(wait.at);
        let Some(received) = received.get(&wait.at.thread).filter(|_| work > 0) else {
            continue;
        };
        let first = received.partition_point(|&(start, ..)| start <= begin);
        let mut could = 0;
        for &(_, call, message, own) in received[first..].iter().take(MOST) {
            let is_there = message.sent_ns < end && message.from.thread != wait.because.thread;
            if is_there && own > 0 && own <= 4 * work && could < wait.ns && used.insert(call) {
                could += own.min(end - message.sent_ns.max(begin));
            }
        }
        if could > 0 {
            wasted.insert(wait.at, could.min(wait.ns));
        }
    }
    wasted
}
