//! A million random graphs, compared with a search through all sets of ranks.
//!
//! `MARGAY_TEST_SEEDS=10000000 cargo test -p margay-core-waitfor` tries as many.

use margay_core_waitfor::{Condition, Found, Rank, find, freed_by};

/// A generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn condition(&mut self, ranks: u64, depth: u32) -> Condition {
        let parts = |own: &mut Random| {
            let n = own.below(4);
            (0..n).map(|_| own.condition(ranks, depth + 1)).collect()
        };
        match self.below(if depth > 1 { 5 } else { 8 }) {
            0 => Condition::Anybody,
            5 | 6 => Condition::Any(parts(self)),
            7 => Condition::All(parts(self)),
            _ => Condition::Rank(self.below(ranks) as u32),
        }
    }

    fn ranks(&mut self) -> Vec<Rank> {
        let n = 1 + self.below(6);
        let rank = |own: &mut Random| match own.below(8) {
            0 => Rank::Goes,
            1 => Rank::Ended,
            _ => {
                let threads = 1 + own.below(3);
                Rank::Waits((0..threads).map(|_| own.condition(n, 0)).collect())
            }
        };
        (0..n).map(|_| rank(self)).collect()
    }
}

fn is_met(condition: &Condition, set: u32) -> bool {
    match condition {
        Condition::Rank(rank) => set & (1 << rank) != 0,
        Condition::All(parts) => parts.iter().all(|part| is_met(part, set)),
        Condition::Any(parts) => parts.iter().any(|part| is_met(part, set)),
        Condition::Anybody => set != 0,
    }
}

/// The least set with all that must be in it: the ranks that are in every such set.
fn least(ranks: &[Rank], also: u32) -> u32 {
    let is_closed = |set: &u32| {
        also & !set == 0
            && ranks.iter().enumerate().all(|(rank, what)| {
                let must = match what {
                    Rank::Goes => true,
                    Rank::Ended => false,
                    Rank::Waits(threads) => threads.iter().any(|t| is_met(t, *set)),
                };
                !must || set & (1 << rank) != 0
            })
    };
    let all = (1 << ranks.len()) - 1;
    (0..=all).filter(is_closed).fold(all, |a, b| a & b)
}

fn names(condition: &Condition, all: u32, set: &mut u32) {
    match condition {
        Condition::Rank(rank) => *set |= 1 << rank,
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| names(part, all, set));
        }
        Condition::Anybody => *set |= all,
    }
}

fn members(set: u32) -> Vec<u32> {
    (0..32).filter(|rank| set & (1 << rank) != 0).collect()
}

/// The least sets of stuck ranks that are not empty and that name no stuck rank outside.
fn knots(ranks: &[Rank], stuck: u32) -> Vec<Vec<u32>> {
    let all = (1u32 << ranks.len()) - 1;
    let named = |set: u32| {
        let mut found = 0;
        for rank in members(set) {
            if let Rank::Waits(threads) = &ranks[rank as usize] {
                threads.iter().for_each(|t| names(t, all, &mut found));
            }
        }
        found & stuck
    };
    let closed: Vec<u32> = (1..=all)
        .filter(|set| set & !stuck == 0 && named(*set) & !set == 0)
        .collect();
    let is_least = |set: &&u32| {
        !closed
            .iter()
            .any(|other| other != *set && other & !**set == 0)
    };
    let mut found: Vec<Vec<u32>> = closed
        .iter()
        .filter(is_least)
        .map(|set| members(*set))
        .collect();
    found.sort();
    found
}

#[test]
fn random_graphs_are_judged_as_a_search_through_all_sets_does() {
    let seeds = option_env!("MARGAY_TEST_SEEDS").and_then(|n| n.parse().ok());
    let seeds: u64 = seeds.unwrap_or(match () {
        () if cfg!(miri) => 50,
        // Under an emulator a million take two minutes.
        () if cfg!(not(target_arch = "x86_64")) => 100_000,
        () => 1_000_000,
    });
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let ranks = Random(seed).ranks();
        let goes = least(&ranks, 0);
        let waits = (0..)
            .zip(&ranks)
            .filter(|(_, r)| matches!(r, Rank::Waits(_)));
        let waits = waits.fold(0u32, |set, (rank, _)| set | 1 << rank);
        let stuck = waits & !goes;
        let wanted = Found {
            stuck: members(stuck),
            knots: knots(&ranks, stuck),
        };
        seen.count(&ranks, &wanted);
        assert_eq!(find(&ranks), wanted, "seed {seed}: {ranks:?}");
        for rank in 0..ranks.len() as u32 {
            let freed = least(&ranks, 1 << rank) & !goes & !(1 << rank);
            assert_eq!(
                freed_by(&ranks, rank),
                members(freed),
                "seed {seed}: {ranks:?}"
            );
        }
    }
    // What is promised is promised of each of these.
    let least = seeds / 100;
    assert!(
        seen.free > least
            && seen.stuck > least
            && seen.several_knots > least
            && seen.stuck_with_threads > least
            && seen.stuck_with_deaths > least
            && seen.stuck_beside_others > least
            && seen.stuck_in_and_or > least,
        "of {seeds} graphs: {seen:?}"
    );
}

/// How many graphs were of each kind.
#[derive(Debug, Default)]
struct Seen {
    /// Nobody is stuck, although ranks wait.
    free: u64,
    stuck: u64,
    several_knots: u64,
    /// A stuck rank has several threads.
    stuck_with_threads: u64,
    /// Beside a rank that has ended.
    stuck_with_deaths: u64,
    /// Beside a rank that waits and goes on.
    stuck_beside_others: u64,
    /// A stuck rank has a condition with an AND in an OR, or the other way round.
    stuck_in_and_or: u64,
}

impl Seen {
    fn count(&mut self, ranks: &[Rank], found: &Found) {
        let waits = |rank: &&Rank| matches!(rank, Rank::Waits(_));
        let waiting = ranks.iter().filter(waits).count();
        if found.stuck.is_empty() {
            self.free += u64::from(waiting > 0);
            return;
        }
        let stuck = found.stuck.iter().map(|rank| &ranks[*rank as usize]);
        let threads: Vec<&[Condition]> = stuck
            .filter_map(|rank| match rank {
                Rank::Waits(threads) => Some(&threads[..]),
                _ => None,
            })
            .collect();
        let has_ended = ranks.contains(&Rank::Ended);
        let is_nested = |c: &Condition| match c {
            Condition::All(parts) => parts.iter().any(|p| matches!(p, Condition::Any(_))),
            Condition::Any(parts) => parts.iter().any(|p| matches!(p, Condition::All(_))),
            _ => false,
        };
        self.stuck += 1;
        self.several_knots += u64::from(found.knots.len() > 1);
        self.stuck_with_threads += u64::from(threads.iter().any(|t| t.len() > 1));
        self.stuck_with_deaths += u64::from(has_ended);
        self.stuck_beside_others += u64::from(found.stuck.len() < waiting);
        self.stuck_in_and_or += u64::from(threads.iter().any(|t| t.iter().any(is_nested)));
    }
}

#[test]
fn a_chain_of_many_ranks_is_judged_without_recursion() {
    let n = 20_000;
    let waits = |rank: u32| Rank::Waits(vec![Condition::Rank(rank)]);
    let chain: Vec<Rank> = (0..n).map(|rank| waits((rank + n - 1) % n)).collect();
    let found = find(&chain);
    assert_eq!((found.stuck.len(), found.knots.len()), (n as usize, 1));
    let mut open = chain;
    open[0] = Rank::Goes;
    assert_eq!(find(&open), Found::default());
}
