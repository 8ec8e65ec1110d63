//! What a trace means: which messages belong together, and who waited for whom, in the terms of
//! Scalasca (Geimer et al., Concurrency and Computation 22(6), 2010).

use std::collections::BTreeMap;

use margay_core_record::{Kind, Record};
use margay_core_sums::{Channel, Series};
use rustc_hash::FxHashMap as HashMap;

use crate::calls::{Calls, Timed};
use crate::format::{At, Trace, end};

/// Why time passes in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    LateSender,
    LateReceiver,
    Barrier,
    NxN,
    LateBroadcast,
    EarlyReduce,
    Collective,
    Lock,
    LatePost,
    LateComplete,
}

impl WaitKind {
    pub const ALL: [WaitKind; 10] = [
        WaitKind::LateSender,
        WaitKind::LateReceiver,
        WaitKind::Barrier,
        WaitKind::NxN,
        WaitKind::LateBroadcast,
        WaitKind::EarlyReduce,
        WaitKind::Collective,
        WaitKind::Lock,
        WaitKind::LatePost,
        WaitKind::LateComplete,
    ];

    pub fn name(self) -> &'static str {
        match self {
            WaitKind::LateSender => "late sender",
            WaitKind::LateReceiver => "late receiver",
            WaitKind::Barrier => "wait at barrier",
            WaitKind::NxN => "wait at NxN",
            WaitKind::LateBroadcast => "late broadcast",
            WaitKind::EarlyReduce => "early reduce",
            WaitKind::Collective => "wait at collective",
            WaitKind::Lock => "wait for lock",
            WaitKind::LatePost => "late post",
            WaitKind::LateComplete => "late complete",
        }
    }
}

/// A message of which both ends are in the trace.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub from: At,
    pub to: At,
    pub bytes: u64,
    pub tag: u32,
    /// When the call began that sends it, and when the call ended in which it came.
    pub sent_ns: u64,
    pub received_ns: u64,
}

/// Time in a call that passed because another rank was late.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub kind: WaitKind,
    pub at: At,
    /// The call of the other rank.
    pub because: At,
    pub ns: u64,
}

/// What was found in a trace.
#[derive(Default)]
pub struct Analysis {
    pub messages: Vec<Message>,
    pub waits: Vec<Wait>,
    /// Collective operations: when each thread was through.
    pub operations: Vec<Vec<(u32, u64)>>,
    /// Ends of messages whose other end is not in the trace.
    pub unmatched: u64,
}

/// A call and what belongs to it.
#[derive(Clone, Copy)]
struct End {
    at: At,
    /// The call itself, for a further message of it.
    call: At,
    begin: u64,
    end: u64,
    bytes: u64,
    /// When the receive was posted, where that is another call.
    posted: u64,
}

impl End {
    /// The call in which its thread waits for what happens at this moment, and since when: its own
    /// call, or the one that waits for the request that it has made.
    fn blocked(&self, calls: &Calls, moment: u64) -> Option<(At, u64)> {
        let own = self.begin < moment && moment <= self.end;
        let waiting = || {
            calls
                .waiting(self.call.thread, moment)
                .map(|c| (c.at, c.start))
        };
        own.then_some((self.call, self.begin)).or_else(waiting)
    }
}

/// What the ranks do in a collective operation: rank, call, record.
type Instance = Vec<(u32, End, Record)>;

pub fn analyse(trace: &Trace) -> Analysis {
    let mut sends: HashMap<Channel, Vec<End>> = HashMap::default();
    let mut receives: HashMap<Channel, Vec<End>> = HashMap::default();
    let mut collectives: HashMap<(u32, u32), Instance> = HashMap::default();
    for (thread, of) in trace.threads.iter().enumerate() {
        let mut call: Option<(At, u64, u64)> = None;
        let mut posted: HashMap<u16, u64> = HashMap::default();
        let mut count: HashMap<u32, u32> = HashMap::default();
        for (index, record) in of.records.iter().enumerate() {
            let at = At {
                thread: thread as u32,
                index: index as u32,
            };
            if !record.kind.is_further() {
                call = Some((at, record.start, end(trace, record)));
            }
            let (call_at, begin, end) = call.unwrap_or((at, record.start, end(trace, record)));
            let is_post = matches!(record.kind, Kind::Post | Kind::Posted);
            if is_post {
                posted.insert(record.request, record.start);
            }
            let this = End {
                at,
                call: call_at,
                begin,
                end,
                bytes: record.bytes,
                posted: posted
                    .get(&record.request)
                    .copied()
                    .unwrap_or(begin)
                    .min(begin),
            };
            match Series::of(of.rank, of.thread, record) {
                Some(Series::Sent(channel)) => sends.entry(channel).or_default().push(this),
                Some(Series::Received(channel)) => receives.entry(channel).or_default().push(this),
                Some(series @ Series::Operation(..)) => {
                    let before = || trace.before.get(&series).copied().unwrap_or(0);
                    let number = count.entry(record.context).or_insert_with(before);
                    let instance = (record.context, *number);
                    *number += 1;
                    let all = collectives.entry(instance).or_default();
                    all.push((of.rank, this, *record));
                }
                None => {}
            }
        }
    }
    let calls = Calls::of(trace);
    let mut analysis = Analysis::default();
    for (channel, received) in receives {
        let sent = sends.remove(&channel).unwrap_or_default();
        analysis.unmatched += sent.len().abs_diff(received.len()) as u64;
        // In a part of a trace, what was sent before it is received in it, or was received before.
        let before = |series| trace.before.get(&series).copied().unwrap_or(0) as usize;
        let earlier = before(Series::Sent(channel));
        let later = before(Series::Received(channel));
        let sent = sent.iter().skip(later.saturating_sub(earlier));
        let received = received.iter().skip(earlier.saturating_sub(later));
        for (send, receive) in sent.zip(received) {
            analysis.message(&calls, send, receive, channel.3);
        }
    }
    analysis.unmatched += sends.values().map(|left| left.len() as u64).sum::<u64>();
    let mut instances: Vec<_> = collectives.into_values().collect();
    instances.sort_by_key(|all| all.iter().map(|(_, e, _)| e.begin).min());
    for all in &instances {
        analysis.collective(trace, &calls, all);
    }
    analysis.windows(trace, &calls);
    analysis.messages.sort_by_key(|m| (m.sent_ns, m.from));
    analysis.waits.sort_by_key(|w| w.at);
    analysis.merge();
    analysis
}

impl Analysis {
    fn message(&mut self, calls: &Calls, send: &End, receive: &End, tag: u32) {
        self.messages.push(Message {
            from: send.at,
            to: receive.at,
            bytes: send.bytes.max(receive.bytes),
            tag,
            sent_ns: send.begin,
            received_ns: receive.end.max(send.begin),
        });
        let late_sender = send.begin.min(receive.end).saturating_sub(receive.begin);
        let ready = receive.posted;
        if late_sender > 0 {
            self.waits.push(Wait {
                kind: WaitKind::LateSender,
                at: receive.call,
                because: send.call,
                ns: late_sender,
            });
        } else if ready > send.begin
            && let Some((at, since)) = send.blocked(calls, ready)
        {
            self.waits.push(Wait {
                kind: WaitKind::LateReceiver,
                at,
                because: receive.call,
                ns: ready - since,
            });
        }
    }

    fn collective(&mut self, trace: &Trace, calls: &Calls, all: &[(u32, End, Record)]) {
        let Some((_, last, _)) = all.iter().max_by_key(|(_, e, _)| e.begin) else {
            return;
        };
        let name = trace.site(all[0].2.site).call;
        let root = |(rank, _, record): &&(u32, End, Record)| record.peer == Some(*rank);
        let of_root = all.iter().find(root).map(|(_, e, _)| *e);
        let through = |(_, this, _): &(u32, End, Record)| {
            let waiting = calls.waiting(this.call.thread, last.begin);
            let end = waiting
                .filter(|_| this.end < last.begin)
                .map_or(this.end, |call| call.end);
            (this.call.thread, end)
        };
        self.operations.push(all.iter().map(through).collect());
        let is = |words: &[&str]| words.iter().any(|word| name.to_lowercase().contains(word));
        for (_, this, _) in all {
            let (kind, because) = if is(&["barrier", "sync"]) {
                (WaitKind::Barrier, Some(*last))
            } else if is(&["bcast", "scatter"]) && !is(&["reduce_scatter"]) {
                (WaitKind::LateBroadcast, of_root)
            } else if is(&["allreduce", "allgather", "alltoall", "reduce_scatter"]) {
                (WaitKind::NxN, Some(*last))
            } else if is(&["reduce", "gather"]) {
                let is_root = of_root.is_some_and(|root| root.at == this.at);
                (WaitKind::EarlyReduce, is_root.then_some(*last))
            } else {
                (WaitKind::Collective, Some(*last))
            };
            let Some(because) = because.filter(|because| because.at != this.at) else {
                continue;
            };
            if let Some((at, since)) = this.blocked(calls, because.begin) {
                self.waits.push(Wait {
                    kind,
                    at,
                    because: because.call,
                    ns: because.begin - since,
                });
            }
        }
    }

    /// Waits for what another rank does with a window. Which target and which window it is the
    /// records do not say: it is the last call within the wait that may have ended it.
    fn windows(&mut self, trace: &Trace, calls: &Calls) {
        const PUT: [&str; 4] = ["MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Fetch_and_op"];
        let starts: Vec<&str> = ["MPI_Win_start", "MPI_Win_complete"]
            .into_iter()
            .chain(PUT)
            .collect();
        let rules = [
            (WaitKind::Lock, vec!["MPI_Win_lock"], "MPI_Win_unlock"),
            (WaitKind::LatePost, starts, "MPI_Win_post"),
            (
                WaitKind::LateComplete,
                vec!["MPI_Win_wait"],
                "MPI_Win_complete",
            ),
        ];
        for (kind, waiting, ending) in rules {
            let is = |site: u16, name: &str| trace.sites.get(&site).is_some_and(|s| s.call == name);
            let every = || calls.threads().flatten();
            let mut ends: Vec<_> = every().filter(|call| is(call.site, ending)).collect();
            ends.sort_by_key(|end| end.start);
            let waits = |call: &&Timed| !call.is_local && waiting.iter().any(|w| is(call.site, w));
            for wait in every().filter(waits) {
                let before = ends.partition_point(|end| end.start < wait.end);
                let within = ends[..before].iter().rev();
                let mut within = within.take_while(|end| end.start > wait.start);
                if let Some(last) = within.find(|end| end.at.thread != wait.at.thread) {
                    self.waits.push(Wait {
                        kind,
                        at: wait.at,
                        because: last.at,
                        ns: last.start - wait.start,
                    });
                }
            }
        }
    }

    /// Of several messages of one call the latest counts: the waits for them overlap.
    fn merge(&mut self) {
        let mut merged: BTreeMap<At, Wait> = BTreeMap::new();
        for wait in self.waits.drain(..) {
            let longest = merged.entry(wait.at).or_insert(wait);
            if wait.ns > longest.ns {
                *longest = wait;
            }
        }
        self.waits = merged.into_values().collect();
    }
}

/// A stretch of the critical path: on this rank from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub thread: u32,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The critical path: from the end of the trace back to its beginning, at each wait going over to
/// the rank that was late.
pub fn critical_path(trace: &Trace, analysis: &Analysis) -> Vec<Stretch> {
    const MOST: usize = 1_000_000;
    let mut of_thread: HashMap<u32, Vec<&Wait>> = HashMap::default();
    for wait in &analysis.waits {
        of_thread.entry(wait.at.thread).or_default().push(wait);
    }
    let record = |at: At| &trace.threads[at.thread as usize].records[at.index as usize];
    let ends = trace.threads.iter().enumerate().filter_map(|(thread, of)| {
        let last = of.records.iter().map(|r| end(trace, r)).max()?;
        Some((last, thread as u32))
    });
    let Some((mut now, mut thread)) = ends.max() else {
        return Vec::new();
    };
    let mut path = Vec::new();
    while path.len() < MOST {
        let waits = of_thread.get(&thread).map_or(&[][..], |waits| &waits[..]);
        // The last wait before now whose cause lies before now.
        let at = waits.partition_point(|w| record(w.at).start < now);
        let before = waits[..at].iter().rev();
        let found = before
            .map(|wait| (wait, record(wait.at).start + wait.ns))
            .find(|&(wait, until)| until <= now && record(wait.because).start < now);
        let Some((wait, until)) = found else {
            break;
        };
        path.push(Stretch {
            thread,
            from_ns: until,
            to_ns: now,
        });
        thread = wait.because.thread;
        now = until;
    }
    path.push(Stretch {
        thread,
        from_ns: 0,
        to_ns: now,
    });
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::small;

    #[test]
    fn late_senders_and_barriers_are_found() {
        let trace = small();
        let analysis = analyse(&trace);
        assert_eq!((analysis.messages.len(), analysis.unmatched), (1, 0));
        let waits: Vec<_> = analysis
            .waits
            .iter()
            .map(|w| (w.kind, w.at.thread, w.ns))
            .collect();
        assert_eq!(
            waits,
            [
                (WaitKind::Barrier, 0, 2_990_000),
                (WaitKind::LateSender, 1, 4_000_000)
            ]
        );
        let path = critical_path(&trace, &analysis);
        let ranks: Vec<u32> = path.iter().map(|s| s.thread).collect();
        assert_eq!(ranks, [0, 1]);
        assert_eq!(path.last().map(|s| s.to_ns), Some(9_000_000));
    }
}
