//! Why ranks wait: whose fault each wait is, what that rank did meanwhile, and which of five
//! patterns it is (Scalasca's late sender, late receiver, wrong order and imbalance; and ranks that
//! do one after the other what could be done at once).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::analyse::{Analysis, WaitKind};
use crate::blame::{Activity, Blame};
use crate::calls::Calls;
use crate::format::Trace;

/// Why others wait for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// As the wait is called.
    Late(WaitKind),
    /// The rank has more to do than the others at this place.
    Imbalance,
    /// Ranks work one after the other, or one serves the others one by one.
    Serial,
    /// It waits for one message while others are there.
    WrongOrder,
}

impl Why {
    pub fn name(self) -> &'static str {
        match self {
            Why::Late(kind) => kind.name(),
            Why::Imbalance => "load imbalance",
            Why::Serial => "serialisation",
            Why::WrongOrder => "wrong order",
        }
    }
}

/// A cause of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub why: Why,
    /// Who others wait for.
    pub ranks: Vec<u32>,
    /// The site of the call that comes late, or in which messages are awaited in the wrong order.
    pub site: u16,
    /// What the ranks do meanwhile.
    pub activity: Activity,
    /// How long others wait for that, added up, in nanoseconds.
    pub ns: u64,
    /// How long the rank takes before that call, and how long the others do on average; in
    /// nanoseconds, of an imbalance.
    pub takes: Option<(u64, u64)>,
}

fn most<K: Copy>(of: &BTreeMap<K, f64>) -> Option<K> {
    of.iter()
        .max_by(|one, other| one.1.total_cmp(other.1))
        .map(|(key, _)| *key)
}

/// The causes of all waits, those that cost most first.
pub fn causes(trace: &Trace, analysis: &Analysis) -> Vec<Cause> {
    /// Those that are looked at more closely.
    const LOOKED_AT: usize = 20;
    let calls = Calls::of(trace);
    let Blame { sums, wrong, .. } = Blame::of(trace, analysis, &calls);
    let mut causes: Vec<Cause> = Vec::new();
    for ((rank, site), ns) in wrong {
        causes.push(Cause {
            why: Why::WrongOrder,
            ranks: vec![rank],
            site,
            activity: Activity::In(site),
            ns: ns as u64,
            takes: None,
        });
    }
    for ((rank, _), sum) in sums {
        let (kind, site) = (most(&sum.of_kind), most(&sum.of_site));
        let (Some(kind), Some(site), Some(activity)) = (kind, site, most(&sum.of_activity)) else {
            continue;
        };
        let is_held = kind == WaitKind::Lock && matches!(activity, Activity::Between(..));
        let is_serial = is_held || 2.0 * sum.serving >= sum.ns;
        causes.push(Cause {
            why: if is_serial {
                Why::Serial
            } else {
                Why::Late(kind)
            },
            ranks: vec![rank],
            site,
            activity,
            ns: sum.ns as u64,
            takes: None,
        });
    }
    causes.sort_by_key(|cause| u64::MAX - cause.ns);
    let rest = causes.split_off(causes.len().min(LOOKED_AT));
    let mut before: BTreeMap<u16, Gaps> = BTreeMap::new();
    for cause in &causes {
        if let Activity::Between(_, next) = cause.activity {
            let gaps = || Gaps::before(trace, &calls, next);
            before.entry(next).or_insert_with(gaps);
        }
    }
    let mut causes = take_turns(causes, &before);
    for cause in &mut causes {
        cause.compare(&before);
    }
    causes.extend(rest);
    causes.sort_by_key(|cause| u64::MAX - cause.ns);
    causes
}

impl Cause {
    /// The site of the call after what the ranks do of their own.
    fn next(&self) -> Option<u16> {
        match (self.why, self.activity) {
            (Why::Late(_), Activity::Between(_, next)) => Some(next),
            _ => None,
        }
    }

    /// Tells a rank with more to do than the others from one that is late for another reason.
    fn compare(&mut self, before: &BTreeMap<u16, Gaps>) {
        let Some(gaps) = self.next().and_then(|next| before.get(&next)) else {
            return;
        };
        let (own, others) = gaps.split(self.ranks[0]);
        let all_come = matches!(
            self.why,
            Why::Late(
                WaitKind::Barrier | WaitKind::NxN | WaitKind::Collective | WaitKind::EarlyReduce
            )
        );
        let Some(others) = others.filter(|mean| all_come || 20 * mean >= own) else {
            return;
        };
        if 5 * own >= 6 * others {
            self.why = Why::Imbalance;
            self.takes = Some((own, others));
        }
    }
}

/// Makes one of the causes in which ranks do the same one after the other.
fn take_turns(causes: Vec<Cause>, before: &BTreeMap<u16, Gaps>) -> Vec<Cause> {
    let mut most: BTreeMap<u16, u64> = BTreeMap::new();
    for cause in &causes {
        if let Some(next) = cause.next() {
            let ns = most.entry(next).or_default();
            *ns = cause.ns.max(*ns);
        }
    }
    let mut turns: BTreeMap<u16, Cause> = BTreeMap::new();
    let mut left = Vec::new();
    for cause in causes {
        let next = cause.next().filter(|next| {
            5 * cause.ns >= most[next] && before.get(next).is_some_and(|gaps| gaps.are_turns)
        });
        let Some(next) = next else {
            left.push(cause);
            continue;
        };
        match turns.entry(next) {
            Entry::Vacant(entry) => {
                entry.insert(cause);
            }
            Entry::Occupied(mut entry) => {
                let all = entry.get_mut();
                all.ns += cause.ns;
                all.ranks.extend(cause.ranks);
                all.why = Why::Serial;
            }
        }
    }
    for cause in turns.values_mut() {
        cause.ranks.sort_unstable();
        cause.ranks.dedup();
    }
    left.extend(turns.into_values());
    left
}

/// What ranks do of their own before they call at one site.
struct Gaps {
    /// How long, in all.
    of_rank: BTreeMap<u32, u64>,
    /// Whether hardly two ranks do it at the same time, although several do.
    are_turns: bool,
}

impl Gaps {
    fn before(trace: &Trace, calls: &Calls, site: u16) -> Gaps {
        let mut of_rank: BTreeMap<u32, u64> = BTreeMap::new();
        let mut gaps = Vec::new();
        for (of, rank) in calls.threads().zip(trace.threads.iter().map(|of| of.rank)) {
            let (mut last, before) = (0, gaps.len());
            for call in of.iter().filter(|call| !call.is_local || call.site == site) {
                if call.site == site {
                    gaps.push((rank, last, call.start.max(last)));
                }
                last = call.end;
            }
            if gaps.len() > before {
                let sum: u64 = gaps[before..].iter().map(|(_, from, to)| to - from).sum();
                *of_rank.entry(rank).or_default() += sum;
            }
        }
        Gaps {
            of_rank,
            are_turns: are_turns(gaps),
        }
    }

    /// How long one rank takes in all, and the others that call there on average.
    fn split(&self, rank: u32) -> (u64, Option<u64>) {
        let own = self.of_rank.get(&rank).copied();
        let others = self.of_rank.len() as u64 - u64::from(own.is_some());
        let own = own.unwrap_or(0);
        let sum: u64 = self.of_rank.values().sum();
        (own, (sum - own).checked_div(others))
    }
}

/// Whether hardly two of these stretches of ranks, from when to when, are at the same time.
fn are_turns(mut gaps: Vec<(u32, u64, u64)>) -> bool {
    let longest = gaps.iter().map(|(_, from, to)| to - from).max();
    let longest = longest.unwrap_or(0);
    gaps.retain(|(_, from, to)| 20 * (to - from) > longest);
    gaps.sort_unstable_by_key(|&(_, from, _)| from);
    let ranks: BTreeSet<u32> = gaps.iter().map(|&(rank, ..)| rank).collect();
    let (mut sum, mut union, mut covered) = (0, 0, 0);
    for (_, from, to) in gaps {
        sum += to - from;
        union += to.saturating_sub(from.max(covered));
        covered = covered.max(to);
    }
    ranks.len() > 1 && 5 * union >= 4 * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::record;
    use crate::format::{Head, SiteInfo, ThreadRecords};
    use margay_core_record::{Kind, Record};

    const MS: u64 = 1_000_000;
    const SITES: [(u16, &str); 5] = [
        (1, "MPI_Send"),
        (2, "MPI_Recv"),
        (3, "MPI_Barrier"),
        (4, "MPI_Win_lock"),
        (5, "MPI_Win_unlock"),
    ];

    /// A record of a call from a millisecond to another.
    fn call(kind: Kind, from: u64, to: u64, site: u16, peer: u32) -> Record {
        record(kind, from * MS, (to - from) * MS, site, peer)
    }

    fn barrier(from: u64, to: u64) -> Record {
        call(Kind::Collective, from, to, 3, u32::MAX)
    }

    fn find(ranks: &[Vec<Record>]) -> Vec<Cause> {
        let site = |(number, call): (u16, &str)| {
            let site = SiteInfo {
                call: call.into(),
                file: "a.c".into(),
                line: 10 * u32::from(number),
                ..SiteInfo::default()
            };
            (number, site)
        };
        let threads = (ranks.iter().zip(0..)).map(|(records, rank)| ThreadRecords {
            rank,
            thread: rank,
            records: records.clone(),
            lost: 0,
        });
        let trace = Trace {
            head: Head {
                ranks: ranks.len() as u32,
                ..Head::default()
            },
            sites: SITES.map(site).into(),
            threads: threads.collect(),
            end_ns: 1000 * MS,
            ..Trace::default()
        };
        causes(&trace, &analyse(&trace))
    }

    #[test]
    fn who_comes_late_although_it_no_longer_waited_is_a_cause() {
        let trace = crate::format::tests::small();
        let causes = causes(&trace, &analyse(&trace));
        let causes: Vec<_> = causes.iter().map(|c| (c.ranks[0], c.site, c.ns)).collect();
        assert_eq!(causes, [(0, 1, 4_000_000), (1, 3, 2_990_000)]);
    }

    #[test]
    fn a_rank_with_more_to_do_is_an_imbalance() {
        let causes = find(&[
            vec![barrier(10, 60), barrier(70, 120)],
            vec![barrier(60, 61), barrier(120, 121)],
            vec![barrier(12, 60), barrier(70, 120)],
        ]);
        let first = &causes[0];
        assert_eq!((first.why, &first.ranks[..]), (Why::Imbalance, &[1][..]));
        assert_eq!(first.takes.map(|(own, _)| own), Some(119 * MS));
        assert!(causes[1..].iter().all(|cause| cause.ns < 10 * MS));
    }

    #[test]
    fn a_late_sender_is_found_behind_ranks_that_waited_for_it() {
        // Rank 2 waits for rank 1, which waits for rank 0.
        let causes = find(&[
            vec![call(Kind::Send, 50, 51, 1, 1)],
            vec![
                call(Kind::Receive, 0, 52, 2, 0),
                call(Kind::Send, 53, 54, 1, 2),
            ],
            vec![call(Kind::Receive, 0, 55, 2, 1)],
        ]);
        let first = &causes[0];
        assert_eq!(first.why, Why::Late(WaitKind::LateSender));
        assert_eq!((&first.ranks[..], first.site), (&[0][..], 1));
        assert_eq!(first.activity, Activity::Between(0, 1));
        assert!((100..=103).contains(&(first.ns / MS)), "{causes:?}");
    }

    #[test]
    fn ranks_that_take_turns_are_one_cause() {
        let causes = find(&[
            vec![call(Kind::Send, 20, 21, 1, 1), barrier(22, 61)],
            vec![
                call(Kind::Receive, 0, 21, 2, 0),
                call(Kind::Send, 40, 41, 1, 2),
                barrier(42, 61),
            ],
            vec![call(Kind::Receive, 0, 41, 2, 1), barrier(60, 61)],
        ]);
        let first = &causes[0];
        assert_eq!(first.why, Why::Serial, "{causes:?}");
        assert_eq!(first.ranks, [0, 1]);
    }

    #[test]
    fn one_that_serves_the_others_one_by_one_and_locks_are_serial() {
        let causes = find(&[
            vec![
                call(Kind::Send, 5, 6, 1, 1),
                call(Kind::Send, 55, 56, 1, 2),
                call(Kind::Send, 105, 106, 1, 3),
            ],
            vec![call(Kind::Receive, 0, 6, 2, 0)],
            vec![call(Kind::Receive, 0, 56, 2, 0)],
            vec![call(Kind::Receive, 0, 106, 2, 0)],
        ]);
        assert_eq!(
            (causes[0].why, causes[0].site),
            (Why::Serial, 1),
            "{causes:?}"
        );
        let lock = |from, to| call(Kind::Call, from, to, 4, u32::MAX);
        let unlock = |from, to| call(Kind::Call, from, to, 5, u32::MAX);
        let causes = find(&[
            vec![lock(0, 1), unlock(80, 81)],
            vec![lock(2, 81), unlock(82, 83)],
        ]);
        assert_eq!((causes[0].why, causes[0].ns), (Why::Serial, 77 * MS));
        assert_eq!(causes[0].activity, Activity::Between(4, 5));
    }

    #[test]
    fn who_takes_messages_in_the_wrong_order_wastes_the_wait() {
        // Rank 0 waits for rank 1, with the messages of 2 and 3 there, which it takes then.
        let find = |second: (u64, u64), third: (u64, u64)| {
            find(&[
                vec![
                    call(Kind::Receive, 0, 100, 2, 1),
                    call(Kind::Receive, second.0, second.1, 2, 2),
                    call(Kind::Receive, third.0, third.1, 2, 3),
                    barrier(190, 191),
                ],
                vec![call(Kind::Send, 99, 100, 1, 0), barrier(100, 191)],
                vec![call(Kind::Send, 1, 2, 1, 0), barrier(3, 191)],
                vec![call(Kind::Send, 1, 2, 1, 0), barrier(3, 191)],
            ])
        };
        // It works on each before it takes the next.
        let causes = find((130, 131), (160, 161));
        let of = |why| causes.iter().filter(move |cause| cause.why == why);
        let wrong: u64 = of(Why::WrongOrder).map(|cause| cause.ns).sum();
        assert!(wrong > 50 * MS, "{causes:?}");
        // Who takes them all before it works does not.
        let causes = find((100, 101), (101, 102));
        assert!(
            causes.iter().all(|cause| cause.why != Why::WrongOrder),
            "{causes:?}"
        );
    }
}
