//! What is run: interfaces, nodes, and the combinations of each job.

use margay_cli_bench_options::{FilesOptions, Interface};

/// One job: all combinations of an interface on a number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Decides the program.
    pub interface: Interface,
    /// Ranks of the job.
    pub nodes: usize,
    /// Numbers of modes.
    pub modes: Vec<usize>,
    /// Lengths of records in bytes.
    pub records: Vec<u32>,
    /// Megabytes of each node.
    pub sizes: Vec<u32>,
    /// Whether the time of writing includes that everything is stored.
    pub sync: bool,
    /// Fewer repetitions.
    pub quick: bool,
}

/// What the report tested: nodes, lengths of records, megabytes of each node ...
const NODES: [u32; 5] = [1, 2, 4, 8, 16];
const RECORDS: [u32; 8] = [
    8000, 65_000, 500_000, 1_000_000, 8192, 65_536, 524_288, 1_048_576,
];
const SIZES: [u32; 2] = [1, 20];
/// ... and what `--quick` takes of them.
const QUICK_NODES: [u32; 3] = [1, 2, 4];
const QUICK_RECORDS: [u32; 4] = [8000, 65_000, 65_536, 1_048_576];
const QUICK_SIZES: [u32; 2] = [1, 8];

/// Returns the jobs that the options choose, with `free` bytes of memory, and what was left out for
/// want of it.
pub fn units(options: &FilesOptions, free: Option<u64>) -> (Vec<Unit>, Vec<String>) {
    let pick = |chosen: &[u32], full: &[u32], quick: &[u32]| -> Vec<u32> {
        let default = if options.quick { quick } else { full };
        let mut values = if chosen.is_empty() { default } else { chosen }.to_vec();
        let mut seen = Vec::new();
        values.retain(|value| !seen.contains(value) && (seen.push(*value), true).1);
        values
    };
    let nodes = pick(&options.nodes, &NODES, &QUICK_NODES);
    let records = pick(&options.records, &RECORDS, &QUICK_RECORDS);
    let sizes = pick(&options.sizes, &SIZES, &QUICK_SIZES);
    let (mut units, mut left_out) = (Vec::new(), Vec::new());
    let mut lacking = |nodes: u32, size: u32| {
        let most = records.iter().copied().max().unwrap_or(0);
        // What a node has in memory.
        let bytes = u64::from(nodes) * ((u64::from(size) << 20) + u64::from(most));
        let lacks = free.is_some_and(|free| bytes > free / 2);
        let text = format!("{size} MB on {nodes} nodes: more than half of the free memory");
        if lacks && !left_out.contains(&text) {
            left_out.push(text);
        }
        lacks
    };
    for interface in Interface::all() {
        let names = interface.modes();
        let is_chosen = |mode: &usize| {
            let fits = |name: &String| name == names[*mode] || name == interface.name();
            options.modes.is_empty() || options.modes.iter().any(fits)
        };
        let modes: Vec<usize> = (0..names.len()).filter(is_chosen).collect();
        for nodes in &nodes {
            let mut sizes = sizes.clone();
            sizes.retain(|size| !lacking(*nodes, *size));
            if modes.is_empty() || sizes.is_empty() {
                continue;
            }
            units.push(Unit {
                interface,
                nodes: *nodes as usize,
                modes: modes.clone(),
                records: records.clone(),
                sizes,
                sync: options.sync,
                quick: options.quick,
            });
        }
    }
    (units, left_out)
}

fn list<T: ToString>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(T::to_string).collect();
    texts.join(",")
}

impl Unit {
    /// For the progress line.
    pub fn label(&self) -> String {
        format!("{}, {} nodes", self.interface.program(), self.nodes)
    }

    /// Returns the arguments of the program; `left_s`: the seconds that it has, 0: its default.
    pub fn arguments(&self, left_s: u64) -> Vec<String> {
        let mut words = vec!["-modes".to_owned(), list(&self.modes)];
        words.extend(["-records".to_owned(), list(&self.records)]);
        words.extend(["-sizes".to_owned(), list(&self.sizes)]);
        if self.quick {
            words.extend(["-ms", "10", "-rounds", "3"].map(str::to_owned));
        }
        if self.sync {
            words.push("-sync".to_owned());
        }
        if left_s > 0 {
            words.extend(["-limit-s".to_owned(), left_s.to_string()]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> FilesOptions {
        let words = std::iter::once("files").chain(arguments.split_whitespace());
        let matches = margay_cli_bench_options::files_command().get_matches_from(words);
        clap::FromArgMatches::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn everything_that_the_report_tested_is_in_the_plan() {
        let (units, left_out) = units(&options("."), None);
        assert!(left_out.is_empty());
        assert_eq!(units.len(), 10);
        let combinations = |unit: &Unit| unit.modes.len() * unit.records.len() * unit.sizes.len();
        assert_eq!(units.iter().map(combinations).sum::<usize>(), 960);
        let quick = super::units(&options(". --quick"), None).0;
        assert_eq!(quick.iter().map(combinations).sum::<usize>(), 288);
        assert!(quick[0].arguments(9).join(" ").ends_with("-limit-s 9"));
    }

    #[test]
    fn options_choose() {
        let (units, _) = units(
            &options(". --modes M_RECORD,collective --nodes 3,3 --records 4096 --sizes 2 --sync"),
            None,
        );
        assert_eq!(units.len(), 2);
        assert_eq!(
            units[0].arguments(0).join(" "),
            "-modes 3 -records 4096 -sizes 2 -sync"
        );
        assert_eq!((units[1].nodes, &units[1].modes[..]), (3, &[4][..]));
        let (units, _) = super::units(&options(". --modes mpi,M_LOG --nodes 1"), None);
        assert_eq!(units[0].modes, [1]);
        assert_eq!(units[1].modes, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_left_out_and_named() {
        let (units, left_out) = units(&options("."), Some(500 << 20));
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].starts_with("20 MB on 16 nodes"));
        let large = units.iter().find(|unit| unit.nodes == 16).unwrap();
        assert_eq!(large.sizes, [1]);
    }
}
