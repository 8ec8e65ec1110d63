//! What a rank does now, read from its cell, and what the waits of all ranks amount to.

use margay_sys::clock::now_ns;
use margay_sys::segment::{Phase, Segment};

use crate::waits::{Analysis, Doing, analyse, describe};

/// A wait that has lasted so long is taken for a wait and not for a message on its way.
pub const SETTLED_S: f64 = 0.5;

/// Who waits for whom now.
#[must_use]
pub fn analysis(segment: &Segment) -> Analysis {
    let doing: Vec<Doing> = (0..segment.ranks()).map(|r| doing(segment, r)).collect();
    analyse(&doing, SETTLED_S)
}

/// What a rank does now.
#[must_use]
pub fn doing(segment: &Segment, rank: u32) -> Doing {
    let cell = segment.cell(rank);
    if cell.exited() || cell.phase() == Phase::Finalized {
        return Doing::Finished;
    }
    match cell.waiting() {
        Some(w) => {
            let since = now_ns().saturating_sub(w.since_ns) as f64 * 1e-9;
            Doing::Waiting(w, since)
        }
        None => Doing::Going,
    }
}

/// The state of a rank in words, without times, so that ranks in the same state can be grouped.
#[must_use]
pub fn state_in_words(segment: &Segment, rank: u32) -> String {
    let cell = segment.cell(rank);
    let call = cell.call();
    match (doing(segment, rank), cell.phase()) {
        (Doing::Finished, _) => "finished".into(),
        (Doing::Waiting(w, _), _) => format!("waiting in {}", describe(&call, &w)),
        (Doing::Going, Phase::Starting) => "running, has not called MPI_Init".into(),
        (Doing::Going, _) if call.is_empty() => "computing".into(),
        (Doing::Going, _) => format!("computing, last MPI call {call}"),
    }
}
