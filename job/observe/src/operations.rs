//! The last operations of ranks with others, side by side: of ranks that call different ones, and
//! of those that are an operation ahead.

use std::collections::BTreeSet;

use margay_core_registry::WaitKind;
use margay_net_platform::Peers;

use crate::calls::{self, CallView, LastCalls};
use crate::waits::{Analysis, rank_ranges};

/// Ranks that are looked at.
const MOST_RANKS: usize = 16;
/// Groups of ranks that are shown.
const MOST_GROUPS: usize = 8;
/// Operations of a rank that are shown, and calls among which they are found.
const LAST_OPERATIONS: usize = 2;
const LOOKED_AT: usize = 20;

/// Operations that are the same, and the ranks that have called them last.
type Group = (Vec<String>, Vec<u32>);

/// Returns the last operations of some ranks with others in words, a line for those that have
/// called the same; of the first ones if they are many.
#[must_use]
pub fn lines(peers: &dyn Peers, ranks: &[u32]) -> Vec<String> {
    groups(peers, ranks).iter().map(line).collect()
}

/// The same of ranks that can never go on and wait in a collective operation, and of the others:
/// what these have called instead. Nothing where what ranks wait in says it.
#[must_use]
pub fn instead(peers: &dyn Peers, analysis: &Analysis) -> Vec<String> {
    let waits = |rank: u32| peers.waits(rank).listed.into_iter();
    let is_collective = |rank: &u32| {
        let mut waits = waits(*rank);
        waits.any(|wait| wait.kind == WaitKind::Collective && wait.peer.is_none())
    };
    let stuck = &analysis.stuck;
    if !stuck.iter().any(is_collective) {
        return Vec::new();
    }
    // Of many ranks some of each kind.
    let others = (0..peers.size()).filter(|rank| stuck.binary_search(rank).is_err());
    let some = stuck.iter().copied().take(MOST_RANKS / 2);
    let ranks: Vec<u32> = some.chain(others.take(MOST_RANKS / 2)).collect();
    let groups = groups(peers, &ranks);
    let has_left = |rank: &u32| stuck.binary_search(rank).is_err();
    let is_left = groups.iter().any(|(_, ranks)| ranks.iter().any(has_left));
    // Who is an operation ahead waits in the same call as the others.
    let last: BTreeSet<_> = groups.iter().map(|(of, _)| of.last()).collect();
    match groups.len() > 1 && (is_left || last.len() == 1) {
        true => groups.iter().map(line).collect(),
        false => Vec::new(),
    }
}

fn groups(peers: &dyn Peers, ranks: &[u32]) -> Vec<Group> {
    let ranks = &ranks[..ranks.len().min(MOST_RANKS)];
    let mut groups: Vec<Group> = Vec::new();
    let calls = calls::last_calls_of(peers, ranks, LOOKED_AT);
    for (&rank, calls) in ranks.iter().zip(calls) {
        let operations = last_operations(calls);
        match groups.iter_mut().find(|(other, _)| *other == operations) {
            _ if operations.is_empty() => {}
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((operations, vec![rank])),
        }
    }
    groups.truncate(MOST_GROUPS);
    groups
}

/// A rank whose part was done before an error was found has gone on, so that it is the operation
/// before its last one.
fn last_operations(calls: LastCalls) -> Vec<String> {
    let mut calls = calls.unwrap_or_default();
    calls.retain(|call| !call.what.is_empty() && call.line.is_some());
    let is_over = calls.last().is_some_and(|c| c.call == "MPI_Finalize");
    let shown = calls.len().min(LAST_OPERATIONS + usize::from(is_over));
    let last = calls.split_off(calls.len() - shown);
    last.iter().map(CallView::what_and_where).collect()
}

fn line((operations, ranks): &Group) -> String {
    let mut ranks = ranks.clone();
    ranks.sort_unstable();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    format!(
        "last operation{} of rank{} {}: {}",
        plural(operations.len()),
        plural(ranks.len()),
        rank_ranges(&ranks),
        operations.join(", then "),
    )
}
