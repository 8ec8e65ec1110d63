//! What a rank does now, as its registry has it, and what the waits of all ranks amount to.

use margay_core_registry::{Phase, Waiting};
use margay_net_platform::Peers;

use crate::waits::{Analysis, Doing, Lasting, analyse, describe};

/// A wait that has lasted this long is taken for a wait and not for a message on its way.
pub const SETTLED_S: f64 = 0.5;

/// Finds out which rank waits for which at `now_ns` of the registry's clock.
#[must_use]
pub fn analysis(peers: &dyn Peers, now_ns: u64) -> Analysis {
    let mut doing: Vec<Doing> = (0..peers.size())
        .map(|rank| doing(peers, rank, now_ns))
        .collect();
    let mut analysis = analyse(&doing, SETTLED_S);
    // A thread that computes may send what the others wait for. The system is asked only about ranks that seem stuck.
    let mut any = false;
    for &rank in &analysis.stuck {
        if let Doing::Waiting(waits) = &doing[rank as usize]
            && peers.computes(rank, &waits.threads())
        {
            doing[rank as usize] = Doing::Running;
            any = true;
        }
    }
    if any {
        analysis = analyse(&doing, SETTLED_S);
    }
    analysis
}

/// Returns what a rank does at `now_ns`.
#[must_use]
pub fn doing(peers: &dyn Peers, rank: u32, now_ns: u64) -> Doing {
    if peers.has_exited(rank) || peers.phase(rank) == Phase::Finalized {
        return Doing::Finished;
    }
    let waits = peers.waits(rank);
    let waits_unlisted = waits.unlisted;
    let lasting = |w: Waiting| (w, now_ns.saturating_sub(w.since_ns) as f64 * 1e-9);
    match Lasting::new(waits.listed.into_iter().map(lasting).collect()) {
        // What a thread that is not listed waits for is not known.
        Some(waits) if waits_unlisted == 0 => Doing::Waiting(waits),
        _ => Doing::Running,
    }
}

/// Returns the state of a rank in words, without times, so that ranks in the same state can be
/// grouped.
#[must_use]
pub fn state_in_words(peers: &dyn Peers, rank: u32, now_ns: u64) -> String {
    let call = peers.call(rank);
    match (doing(peers, rank, now_ns), peers.phase(rank)) {
        (Doing::Finished, _) => "finished".into(),
        (Doing::Waiting(waits), _) => {
            format!("waiting in {}", describe(&call, &waits.first().0))
        }
        (Doing::Running, Phase::Starting) => "running, has not called MPI_Init".into(),
        (Doing::Running, _) if call.is_empty() => "computing".into(),
        (Doing::Running, _) => format!("computing, last MPI call {call}"),
    }
}
