//! Which rank waits for which, and whether any rank can still go on. Pure.
//!
//! A rank that computes may go on. A rank that waits for one rank may go on if that one may; a rank
//! that waits for any message, for one of several requests, or in a collective operation may go on
//! if some other rank may. The ranks that are left after this has been carried on as far as it goes
//! can never go on: that is a deadlock (the knot of the OR model, with waits for one rank as the
//! special case of a cycle). A rank several of whose threads wait may go on if one of them may.
//! Which ranks belong to a collective operation is not known here, so a deadlock inside a part of
//! the ranks is only reported when the waits for single ranks show it: every reported deadlock is
//! real, but not every deadlock is reported.
//!
//! A wait counts only when it has lasted for a while: a message may be on its way.

use margay_core_registry::{WaitKind, Waiting};
use margay_core_waitfor::{Condition, Rank};

/// What a rank does, as far as waiting goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    /// Computing, starting, or outside of the library.
    Running,
    /// Finalized, or its process has ended.
    Finished,
    /// Waiting, with all threads that are in the library.
    Waiting(Lasting),
}

/// What the threads of a rank wait for, and for how many seconds; at least one, that which has
/// lasted longest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Lasting(Vec<(Waiting, f64)>);

impl Lasting {
    /// None when nobody waits.
    #[must_use]
    pub fn new(waits: Vec<(Waiting, f64)>) -> Option<Lasting> {
        let mut lasting: Vec<(Waiting, f64)> = Vec::with_capacity(waits.len());
        for wait in waits {
            let at = lasting.partition_point(|other| other.1 >= wait.1);
            lasting.insert(at, wait);
        }
        (!lasting.is_empty()).then_some(Lasting(lasting))
    }

    /// The threads that wait: the kernel's numbers.
    #[must_use]
    pub fn threads(&self) -> Vec<u32> {
        self.0.iter().map(|(waiting, _)| waiting.thread).collect()
    }

    /// Returns the wait that has lasted longest.
    #[must_use]
    pub fn first(&self) -> (Waiting, f64) {
        self.0[0]
    }

    /// The waits of the further threads.
    #[must_use]
    pub fn further(&self) -> &[(Waiting, f64)] {
        &self.0[1..]
    }
}

/// What the waits of a job amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Ranks that wait on each other in a circle, each beginning with its lowest rank.
    pub cycles: Vec<Vec<u32>>,
    /// Ranks that can never go on, those of the cycles included, ascending.
    pub stuck: Vec<u32>,
    /// Ranks that wait for a rank that has finished: (the rank that waits, the rank that it waits
    /// for).
    pub abandoned: Vec<(u32, u32)>,
    /// Ranks that have finished, ascending.
    pub finished: Vec<u32>,
    /// Messages that a rank waits to send to one that waits for another message of the same sender.
    pub mismatches: Vec<Mismatch>,
    /// Ranks that have not called `MPI_Init`, while others have and wait.
    pub absent: Vec<u32>,
    /// Ranks that have ended without having called it, while others have and wait.
    pub never_came: Vec<u32>,
}

/// A message and a receive that do not match, between ranks that can never go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub sender: u32,
    pub receiver: u32,
    /// The tags of the message and of the receives where they differ; else the communicators do.
    pub tags: Option<(i32, Vec<i32>)>,
}

impl Mismatch {
    /// Enters that of a message and a receive; receives by several threads are one.
    fn enter(self, all: &mut Vec<Mismatch>) {
        let (sender, receiver) = (self.sender, self.receiver);
        let mut before = all.iter_mut();
        let before = before.find(|other| (other.sender, other.receiver) == (sender, receiver));
        match (&self.tags, before.map(|other| &mut other.tags)) {
            (Some((sent, wanted)), Some(Some((before, also)))) if sent == before => {
                also.extend(wanted);
                also.sort_unstable();
                also.dedup();
            }
            (None, Some(None)) => {}
            _ => all.push(self),
        }
    }

    /// Of a rank's wait and of that of the rank for which it waits.
    fn of(sender: u32, send: &Waiting, receiver: u32, receive: &Waiting) -> Option<Mismatch> {
        let sends = matches!(send.kind, WaitKind::Send | WaitKind::FullSend);
        let meets = sends && receive.kind == WaitKind::Receive && receive.peer == Some(sender);
        let tags = (send.tag?, receive.tag?);
        let differs = match send.context == receive.context {
            true => (tags.0 != tags.1).then_some(Some((tags.0, vec![tags.1]))),
            // With another tag as well, the two may have nothing to do with each other.
            false => (tags.0 == tags.1).then_some(None),
        };
        Some(Mismatch {
            sender,
            receiver,
            tags: differs.filter(|_| meets)?,
        })
    }
}

/// Finds the ranks that can never go on. A wait counts when it has lasted `settled_s` seconds.
#[must_use]
pub fn analyse(ranks: &[Doing], settled_s: f64) -> Analysis {
    let n = ranks.len();
    // The waits of a rank all of whose waiting threads have waited for a while.
    let settled = |r: usize| match &ranks[r] {
        // Other jobs are not looked at: something may come from them at any time.
        Doing::Waiting(Lasting(waits))
            if waits
                .iter()
                .all(|(w, s)| *s >= settled_s && w.kind != WaitKind::Elsewhere) =>
        {
            Some(waits)
        }
        _ => None,
    };
    let finished = |r: usize| ranks[r] == Doing::Finished;
    let known = |w: &Waiting| w.peer.map(|p| p as usize).filter(|&p| p < n);
    // The one rank for which all threads of a rank wait.
    let peer = |r: usize| {
        let mut peers = settled(r)?.iter().map(|(w, _)| known(w));
        let first = peers.next()??;
        peers.all(|other| other == Some(first)).then_some(first)
    };
    let condition = |w: &Waiting| match w.peer.filter(|&p| (p as usize) < n) {
        Some(peer) => Condition::Rank(peer),
        None => Condition::Anybody,
    };
    let states: Vec<Rank> = (0..n)
        .map(|r| match settled(r) {
            Some(waits) => Rank::Waits(waits.iter().map(|(w, _)| condition(w)).collect()),
            None if finished(r) => Rank::Ended,
            None => Rank::Goes,
        })
        .collect();
    let stuck = margay_core_waitfor::find(&states).stuck;
    let abandoned = (0..n)
        .filter_map(|r| {
            peer(r)
                .filter(|&p| finished(p))
                .map(|p| (r as u32, p as u32))
        })
        .collect();
    let waits = |r: u32| settled(r as usize).into_iter().flatten();
    let mut mismatches = Vec::new();
    for &sender in &stuck {
        for (send, _) in waits(sender) {
            let receiver = send.peer.filter(|p| stuck.binary_search(p).is_ok());
            let Some(receiver) = receiver else {
                continue;
            };
            let of = |(receive, _): &_| Mismatch::of(sender, send, receiver, receive);
            for mismatch in waits(receiver).filter_map(of) {
                mismatch.enter(&mut mismatches);
            }
        }
    }
    Analysis {
        cycles: cycles(n, peer),
        mismatches,
        finished: (0..n).filter(|&r| finished(r)).map(|r| r as u32).collect(),
        stuck,
        abandoned,
        ..Analysis::default()
    }
}

impl Analysis {
    /// Returns the analysis in words, one finding a line; empty when everybody may go on.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .cycles
            .iter()
            .map(|cycle| {
                let mut path: Vec<String> = cycle.iter().map(u32::to_string).collect();
                path.push(path[0].clone());
                format!("deadlock: {}", path.join(" → "))
            })
            .collect();
        for (who, whom) in &self.abandoned {
            let how = match self.never_came.contains(whom) {
                true => "ended without calling MPI_Init",
                false => "finished",
            };
            lines.push(format!("rank {who} waits for rank {whom}, which has {how}"));
        }
        let in_cycle = |r: &u32| self.cycles.iter().any(|c| c.contains(r));
        let others: Vec<u32> = self
            .stuck
            .iter()
            .copied()
            .filter(|r| !in_cycle(r) && !self.abandoned.iter().any(|(w, _)| w == r))
            .collect();
        let named = |r: &u32| self.abandoned.iter().any(|(_, whom)| whom == r);
        let finished: Vec<u32> = (self.finished.iter().copied())
            .filter(|r| !named(r) && !self.never_came.contains(r))
            .collect();
        if !others.is_empty() {
            let list = rank_ranges(&others);
            let many = if others.len() == 1 { "" } else { "s" };
            lines.push(match (&others[..], &finished[..], lines.is_empty()) {
                ([who], [], true) => {
                    format!("rank {who} waits for ranks none of which can continue")
                }
                ([who], [whom], true) => {
                    format!("rank {who} waits for rank {whom}, which has finished")
                }
                ([who], whom, true) => {
                    let whom = rank_ranges(whom);
                    format!(
                        "rank {who} waits for others, all of which have finished (ranks {whom})"
                    )
                }
                (_, _, true) => format!(
                    "deadlock: rank{many} {list} wait for each other, and none of them can continue"
                ),
                _ => format!("rank{many} {list} therefore cannot continue either"),
            });
        }
        for Mismatch {
            sender,
            receiver,
            tags,
        } in &self.mismatches
        {
            lines.push(match tags {
                Some((sent, wanted)) => {
                    let many = if wanted.len() == 1 { "" } else { "s" };
                    let wanted: Vec<String> = wanted.iter().map(i32::to_string).collect();
                    let wanted = wanted.join(", ");
                    format!(
                        "rank {sender} sends tag {sent} to rank {receiver}, which waits for tag{many} {wanted} from it"
                    )
                }
                None => format!(
                    "rank {sender} sends to rank {receiver} on another communicator than that on which rank {receiver} receives from it"
                ),
            });
        }
        // Ranks that wait on each other in a circle wait for nobody else.
        let never: Vec<u32> = (self.never_came.iter().copied())
            .filter(|r| !named(r) && !others.is_empty())
            .collect();
        // Of one rank that waits the line above says it.
        let finished = match others.len() > 1 {
            true => finished,
            false => Vec::new(),
        };
        for (ranks, how) in [
            (&finished, "finished"),
            (&never, "ended without calling MPI_Init"),
            (&self.absent, "not called MPI_Init"),
        ] {
            match ranks.len() {
                0 => {}
                1 => lines.push(format!("rank {} has {how}", ranks[0])),
                _ => lines.push(format!("ranks {} have {how}", rank_ranges(ranks))),
            }
        }
        lines
    }
}

/// Returns ranks as text: `0-3, 8`.
#[must_use]
pub fn rank_ranges(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    parts.join(", ")
}

/// Returns the cycles of a graph in which every node has at most one successor.
fn cycles(n: usize, next: impl Fn(usize) -> Option<usize>) -> Vec<Vec<u32>> {
    // 0 is not seen; else 1 + the walk that saw it.
    let mut seen = vec![0usize; n];
    let mut found = Vec::new();
    for start in 0..n {
        let mut at = start;
        while seen[at] == 0 {
            seen[at] = start + 1;
            match next(at) {
                Some(to) => at = to,
                None => break,
            }
        }
        let closed = seen[at] == start + 1 && next(at).is_some();
        if !closed {
            continue;
        }
        let mut cycle = vec![at as u32];
        let mut to = next(at);
        while let Some(node) = to.filter(|&node| node != at) {
            cycle.push(node as u32);
            to = next(node);
        }
        let lowest = (0..cycle.len()).min_by_key(|&i| cycle[i]).unwrap_or(0);
        cycle.rotate_left(lowest);
        found.push(cycle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_core_registry::Pulse;

    #[test]
    fn ranks_that_never_called_mpi_init_are_named() {
        let with = |ranks: &[Doing], absent: &[u32], never_came: &[u32]| {
            let analysis = Analysis {
                absent: absent.to_vec(),
                never_came: never_came.to_vec(),
                ..analyse(ranks, 0.5)
            };
            analysis.lines()
        };
        let collective = on(WaitKind::Collective, None);
        assert_eq!(
            with(
                &[on(WaitKind::Receive, Some(1)), Doing::Finished],
                &[],
                &[1]
            ),
            ["rank 0 waits for rank 1, which has ended without calling MPI_Init"]
        );
        assert_eq!(
            with(
                &[collective.clone(), Doing::Finished, Doing::Finished],
                &[],
                &[1, 2]
            ),
            [
                "rank 0 waits for ranks none of which can continue",
                "ranks 1, 2 have ended without calling MPI_Init"
            ]
        );
        assert_eq!(
            with(&[collective, Doing::Running], &[1], &[]),
            ["rank 1 has not called MPI_Init"]
        );
        let circle = [
            on(WaitKind::Receive, Some(1)),
            on(WaitKind::Receive, Some(0)),
            Doing::Finished,
        ];
        assert_eq!(with(&circle, &[], &[2]), ["deadlock: 0 → 1 → 0"]);
    }

    #[test]
    fn a_message_with_another_tag_or_communicator_is_named() {
        let waits = |kind, peer, tag, context| {
            let Doing::Waiting(Lasting(mut waits)) = on(kind, Some(peer)) else {
                unreachable!("it waits");
            };
            (waits[0].0.tag, waits[0].0.context) = (tag, context);
            Doing::Waiting(Lasting(waits))
        };
        let pair = |sent, sent_on, wanted, wanted_on| {
            lines(&[
                waits(WaitKind::Send, 1, Some(sent), sent_on),
                waits(WaitKind::Receive, 0, wanted, wanted_on),
            ])
        };
        let circle = "deadlock: 0 → 1 → 0";
        assert_eq!(
            pair(8, 0, Some(7), 0),
            [
                circle,
                "rank 0 sends tag 8 to rank 1, which waits for tag 7 from it"
            ]
        );
        assert_eq!(
            pair(7, 4, Some(7), 0)[1],
            "rank 0 sends to rank 1 on another communicator than that on which rank 1 receives from it"
        );
        // Any tag would do, and what differs in both may have nothing to do with each other.
        assert_eq!(pair(8, 0, None, 0), [circle]);
        assert_eq!(pair(8, 4, Some(7), 0), [circle]);
    }

    fn on(kind: WaitKind, peer: Option<u32>) -> Doing {
        threads(&[(kind, peer, 5.0)])
    }

    /// A rank whose threads wait: for what, and for how many seconds.
    fn threads(waits: &[(WaitKind, Option<u32>, f64)]) -> Doing {
        let waiting = |&(kind, peer, seconds): &_| {
            let waiting = Waiting {
                thread: 1,
                kind,
                peer,
                tag: None,
                context: 0,
                since_ns: 0,
                pulse: Pulse::default(),
            };
            (waiting, seconds)
        };
        Doing::Waiting(Lasting(waits.iter().map(waiting).collect()))
    }

    fn from(peer: u32) -> Doing {
        on(WaitKind::Receive, Some(peer))
    }

    fn lines(ranks: &[Doing]) -> Vec<String> {
        analyse(ranks, 1.0).lines()
    }

    #[test]
    fn a_cycle_is_a_deadlock() {
        assert_eq!(lines(&[from(1), from(0)]), ["deadlock: 0 → 1 → 0"]);
        assert_eq!(lines(&[from(0)]), ["deadlock: 0 → 0"]);
        let three = [Doing::Running, from(3), from(1), from(2)];
        assert_eq!(lines(&three), ["deadlock: 1 → 3 → 2 → 1"]);
    }

    #[test]
    fn who_waits_for_the_cycle_is_stuck_too() {
        let ranks = [from(1), from(0), from(0), from(2), Doing::Running];
        let analysis = analyse(&ranks, 1.0);
        assert_eq!(analysis.cycles, [[0, 1]]);
        assert_eq!(analysis.stuck, [0, 1, 2, 3]);
        assert_eq!(
            analysis.lines(),
            [
                "deadlock: 0 → 1 → 0",
                "ranks 2, 3 therefore cannot continue either"
            ]
        );
    }

    #[test]
    fn two_cycles_are_two_deadlocks() {
        let ranks = [from(2), from(3), from(0), from(1)];
        assert_eq!(analyse(&ranks, 1.0).cycles, [[0, 2], [1, 3]]);
    }

    #[test]
    fn somebody_who_computes_may_free_all() {
        let barrier = on(WaitKind::Collective, None);
        let any = on(WaitKind::Receive, None);
        assert!(lines(&[barrier.clone(), barrier, Doing::Running]).is_empty());
        assert!(lines(&[any, from(2), Doing::Running]).is_empty());
        assert!(lines(&[from(1), Doing::Running]).is_empty());
    }

    #[test]
    fn nobody_left_to_go_on_is_a_deadlock() {
        let barrier = on(WaitKind::Collective, None);
        let any = on(WaitKind::Several, None);
        let expected = ["deadlock: ranks 0-2 wait for each other, and none of them can continue"];
        assert_eq!(lines(&[barrier, from(0), any]), expected);
    }

    #[test]
    fn waiting_for_who_has_finished() {
        let expected = [
            "rank 0 waits for rank 1, which has finished",
            "rank 2 therefore cannot continue either",
        ];
        assert_eq!(lines(&[from(1), Doing::Finished, from(0)]), expected);
    }

    #[test]
    fn waiting_in_a_collective_operation_for_ranks_that_have_finished() {
        let collective = || on(WaitKind::Collective, None);
        let end = || Doing::Finished;
        for (ranks, expected) in [
            (
                vec![end(), collective()],
                &["rank 1 waits for rank 0, which has finished"][..],
            ),
            (
                vec![end(), collective(), end()],
                &["rank 1 waits for others, all of which have finished (ranks 0, 2)"],
            ),
            (
                vec![collective(), collective(), end()],
                &[
                    "deadlock: ranks 0, 1 wait for each other, and none of them can continue",
                    "rank 2 has finished",
                ],
            ),
        ] {
            assert_eq!(lines(&ranks), expected);
        }
    }

    #[test]
    fn threads_that_wait_for_the_same_rank_are_in_its_circle() {
        let both = |peer, others| {
            threads(&[
                (WaitKind::Receive, Some(peer), 5.0),
                (WaitKind::Receive, Some(others), 5.0),
            ])
        };
        let circle = ["deadlock: 0 → 1 → 0"];
        assert_eq!(lines(&[both(1, 1), both(0, 0)]), circle);
        let expected = ["deadlock: ranks 0-2 wait for each other, and none of them can continue"];
        assert_eq!(lines(&[both(1, 2), both(0, 2), from(0)]), expected);
    }

    #[test]
    fn a_young_wait_proves_nothing() {
        let young = threads(&[(WaitKind::Receive, Some(0), 0.01)]);
        assert!(lines(&[from(1), young]).is_empty());
    }

    #[test]
    fn a_rank_goes_on_when_one_of_its_threads_does() {
        let two = |seconds| {
            threads(&[
                (WaitKind::Receive, Some(1), 5.0),
                (WaitKind::Receive, Some(2), seconds),
            ])
        };
        assert!(lines(&[two(5.0), from(0), Doing::Running]).is_empty());
        assert!(lines(&[two(0.01), from(0), from(0)]).is_empty());
        let expected = ["deadlock: ranks 0-2 wait for each other, and none of them can continue"];
        assert_eq!(lines(&[two(5.0), from(0), from(0)]), expected);
        let elsewhere = threads(&[
            (WaitKind::Receive, Some(1), 5.0),
            (WaitKind::Elsewhere, None, 5.0),
        ]);
        assert!(lines(&[elsewhere, from(0)]).is_empty());
    }

    #[test]
    fn odd_peers_do_no_harm() {
        assert_eq!(analyse(&[from(99)], 1.0).stuck, [0]);
        assert_eq!(analyse(&[], 1.0), Analysis::default());
    }

    #[test]
    fn ranks_are_ranges() {
        assert_eq!(rank_ranges(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6, 7");
    }

    /// Every rank that is reported as stuck stays so when the waits are carried out in any order.
    #[test]
    fn random_waits_agree_with_a_simulation() {
        let mut numbers = fastrand::Rng::with_seed(7);
        let mut random = move |below: u64| numbers.u64(..below);
        for _ in 0..2000 {
            let n = 1 + random(7) as usize;
            let ranks: Vec<Doing> = (0..n)
                .map(|_| match random(7) {
                    6 => {
                        let mut wait = || (WaitKind::Receive, Some(random(n as u64) as u32), 5.0);
                        threads(&[wait(), wait()])
                    }
                    0 => Doing::Running,
                    1 => Doing::Finished,
                    2 => on(WaitKind::Receive, None),
                    _ => from(random(n as u64) as u32),
                })
                .collect();
            let mut free: Vec<bool> = ranks.iter().map(|d| *d == Doing::Running).collect();
            for _ in 0..n {
                for r in 0..n {
                    if let Doing::Waiting(Lasting(waits)) = &ranks[r] {
                        let freed = waits.iter().any(|(w, _)| match w.peer {
                            Some(p) => free[p as usize],
                            None => (0..n).any(|o| o != r && free[o]),
                        });
                        free[r] |= freed;
                    }
                }
            }
            let expected: Vec<u32> = (0..n)
                .filter(|&r| !free[r] && ranks[r] != Doing::Finished)
                .map(|r| r as u32)
                .collect();
            assert_eq!(analyse(&ranks, 1.0).stuck, expected, "{ranks:?}");
        }
    }
}
