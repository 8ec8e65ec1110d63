//! Figures against each other: what a kernel reaches of what another one says is possible.

use margay_bench_common::mpi::OURS;

use crate::lines::Figure;
use crate::report::{Report, Run};

/// Bytes that an element vector multiply must move for each operation: two elements read, one
/// written.
const EVM_BYTES: f64 = 24.0;

/// Returns all comparisons that the runs allow.
pub fn derive(report: &Report) -> Vec<Figure> {
    let mut derived = Vec::new();
    let mut add = |name: String, ours: Option<f64>, other: Option<f64>| {
        if let (Some(ours), Some(other)) = (ours, other)
            && other > 0.0
        {
            derived.push(Figure {
                name,
                unit: "percent".into(),
                value: 100.0 * ours / other,
                noise: None,
            });
        }
    };
    for run in report.runs.iter().filter(|run| run.program == "evm") {
        let triad = report
            .ours("stream", Some(run.ranks))
            .and_then(|stream| stream.figure("triad"));
        let bound = triad.map(|megabytes_per_s| megabytes_per_s / EVM_BYTES);
        for way in ["plain", "blocked", "streaming"] {
            let ranks = if run.ranks == 1 { "rank" } else { "ranks" };
            let name = format!("evm {way} of STREAM's bandwidth, {} {ranks}", run.ranks);
            add(name, run.figure(way), bound);
        }
    }
    if let (Some(linpack), Some(getrf)) =
        (report.ours("linpack", None), report.ours("getrf", Some(0)))
        && let Some(figure) = getrf.reported.figures.first()
    {
        let start = format!("{}.", figure.name);
        let same = |f: &&Figure| f.name.starts_with(&start) && f.unit == figure.unit;
        let ours = linpack.reported.figures.iter().find(same).map(|f| f.value);
        let name = format!("linpack of dgetrf, {}", figure.name);
        add(name, ours, Some(figure.value));
    }
    if let Some(mpi) = report.ours("comtest", None) {
        for form in ["nx", "mpl"] {
            if let Some(run) = report.ours(&format!("comtest-{form}"), None) {
                let name = format!("comtest bandwidth through {form} of MPI's");
                add(name, run.figure("bandwidth"), mpi.figure("bandwidth"));
                let name = format!("comtest latency through {form} of MPI's");
                add(name, run.figure("latency"), mpi.figure("latency"));
            }
        }
    }
    let mut peers: Vec<&Run> = report.runs.iter().collect();
    peers.retain(|run| run.implementation != OURS);
    for peer in peers {
        let Some(ours) = report.ours(&peer.program, Some(peer.ranks)) else {
            continue;
        };
        for figure in ["latency", "bandwidth", "rmax"] {
            let name = format!("{} {figure} of {}'s", peer.program, peer.implementation);
            add(name, ours.figure(figure), peer.figure(figure));
        }
    }
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::canned;

    #[test]
    fn parts_are_of_what_ran_on_as_many_ranks() {
        let mut report = canned(1.0);
        let mut peer = report.runs[1].clone();
        peer.implementation = "other".into();
        peer.reported.figures[0].value = 0.4;
        report.runs.push(peer);
        let derived = derive(&report);
        let value = |name: &str| {
            let found = derived.iter().find(|figure| figure.name == name);
            found.unwrap_or_else(|| panic!("{name}: {derived:?}")).value
        };
        assert_eq!(value("evm plain of STREAM's bandwidth, 1 rank"), 60.0);
        assert_eq!(value("evm streaming of STREAM's bandwidth, 1 rank"), 90.0);
        assert_eq!(value("linpack of dgetrf, N4032"), 80.0);
        assert_eq!(value("comtest latency of other's"), 50.0);
    }
}
