//! Who can still go on among ranks whose threads wait for each other.
//!
//! A thread waits for a [`Condition`] over ranks: one of them, all of some, any of some. A rank
//! goes on when it does not wait, or when the condition of one of its threads may come true, which
//! it does when the ranks in it go on. Ranks that have ended never do. What is left after this has
//! been carried on as far as it goes is stuck: it can never go on, whatever happens next (the least
//! fixed point of the AND/OR graph). A knot is the innermost part of it: ranks that wait for nobody
//! stuck outside of the knot.
#![forbid(unsafe_code)]

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// This rank goes on.
    Rank(u32),
    /// Each of these comes true; true when there are none.
    All(Vec<Condition>),
    /// One of these comes true; never when there are none.
    Any(Vec<Condition>),
    /// Any rank at all goes on.
    Anybody,
}

impl Condition {
    fn is_met(&self, goes: &[bool], going: usize) -> bool {
        match self {
            Condition::Rank(rank) => goes.get(*rank as usize).copied().unwrap_or(false),
            Condition::All(parts) => parts.iter().all(|part| part.is_met(goes, going)),
            Condition::Any(parts) => parts.iter().any(|part| part.is_met(goes, going)),
            Condition::Anybody => going > 0,
        }
    }

    /// Adds the ranks that it names.
    fn names(&self, all: u32, to: &mut Vec<u32>) {
        match self {
            Condition::Rank(rank) => to.push(*rank),
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().for_each(|part| part.names(all, to));
            }
            Condition::Anybody => to.extend(0..all),
        }
    }
}

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rank {
    /// It may do anything the next moment.
    Goes,
    /// It has ended, and does nothing more.
    Ended,
    /// All of its threads wait; it goes on when one of them does.
    Waits(Vec<Condition>),
}

/// What the waits of ranks amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Ranks that wait and can never go on, ascending.
    pub stuck: Vec<u32>,
    /// Parts of these whose ranks wait for each other and for nobody else that is stuck; each
    /// ascending, in the order of their first ranks. A rank that waits for ranks that have ended,
    /// or for nobody, is a knot of its own.
    pub knots: Vec<Vec<u32>>,
}

/// Finds the ranks that can never go on.
#[must_use]
pub fn find(ranks: &[Rank]) -> Found {
    let goes = going(ranks, None);
    let stuck: Vec<u32> = (0..)
        .zip(ranks)
        .filter(|(rank, what)| matches!(what, Rank::Waits(_)) && !goes[*rank as usize])
        .map(|(rank, _)| rank)
        .collect();
    Found {
        knots: knots(ranks, &stuck),
        stuck,
    }
}

/// The ranks that could go on if this one did, itself left out, ascending: whom it keeps from going
/// on.
#[must_use]
pub fn freed_by(ranks: &[Rank], rank: u32) -> Vec<u32> {
    let before = going(ranks, None);
    let after = going(ranks, Some(rank));
    let pairs = (0..).zip(before.into_iter().zip(after));
    let freed = pairs.filter(|(other, (before, after))| *other != rank && !before && *after);
    freed.map(|(other, _)| other).collect()
}

/// Which ranks go on, if `also` does as well.
fn going(ranks: &[Rank], also: Option<u32>) -> Vec<bool> {
    let mut goes: Vec<bool> = (0..)
        .zip(ranks)
        .map(|(rank, what)| *what == Rank::Goes || also == Some(rank))
        .collect();
    loop {
        let going = goes.iter().filter(|&&g| g).count();
        for (rank, what) in ranks.iter().enumerate() {
            if let (Rank::Waits(threads), false) = (what, goes[rank]) {
                goes[rank] = threads.iter().any(|thread| thread.is_met(&goes, going));
            }
        }
        if goes.iter().filter(|&&g| g).count() == going {
            return goes;
        }
    }
}

/// The strongly connected parts of the stuck ranks from which no other part is reached.
fn knots(ranks: &[Rank], stuck: &[u32]) -> Vec<Vec<u32>> {
    let place = |rank: u32| stuck.binary_search(&rank).ok();
    let next: Vec<Vec<usize>> = stuck
        .iter()
        .map(|&rank| {
            let mut named = Vec::new();
            if let Rank::Waits(threads) = &ranks[rank as usize] {
                let all = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
                threads
                    .iter()
                    .for_each(|thread| thread.names(all, &mut named));
            }
            let mut places: Vec<usize> = named.into_iter().filter_map(place).collect();
            places.sort_unstable();
            places.dedup();
            places
        })
        .collect();
    let part = parts(&next);
    let parts = part.iter().max().map_or(0, |most| most + 1);
    let mut is_last = vec![true; parts];
    for (from, to) in next.iter().enumerate() {
        if to.iter().any(|&to| part[to] != part[from]) {
            is_last[part[from]] = false;
        }
    }
    let mut found: Vec<Vec<u32>> = vec![Vec::new(); parts];
    for (at, &rank) in stuck.iter().enumerate() {
        found[part[at]].push(rank);
    }
    let mut found: Vec<Vec<u32>> = (found.into_iter().zip(is_last))
        .filter_map(|(ranks, is_last)| is_last.then_some(ranks))
        .collect();
    found.sort();
    found
}

/// The number of the strongly connected part of each node (Tarjan's algorithm, without recursion:
/// chains of waits may be as long as there are ranks).
fn parts(next: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let n = next.len();
    let (mut index, mut low, mut part) = (vec![NONE; n], vec![NONE; n], vec![NONE; n]);
    let (mut stack, mut count, mut parts) = (Vec::new(), 0, 0);
    for start in 0..n {
        if index[start] != NONE {
            continue;
        }
        // Nodes on the way, each with the edge to follow next.
        let mut way = vec![(start, 0)];
        while let Some((node, edge)) = way.pop() {
            if edge == 0 {
                index[node] = count;
                low[node] = count;
                count += 1;
                stack.push(node);
            }
            let mut follow = None;
            for (at, &to) in next[node].iter().enumerate().skip(edge) {
                if index[to] == NONE {
                    follow = Some((at, to));
                    break;
                }
                if part[to] == NONE {
                    low[node] = low[node].min(index[to]);
                }
            }
            if let Some((at, to)) = follow {
                way.push((node, at + 1));
                way.push((to, 0));
                continue;
            }
            if low[node] == index[node] {
                while let Some(member) = stack.pop() {
                    part[member] = parts;
                    if member == node {
                        break;
                    }
                }
                parts += 1;
            }
            if let Some((parent, _)) = way.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
        }
    }
    part
}
