//! The evaluation: the sorted combinations, four buckets, how often each value of a parameter is in
//! each of them, and the combinations that these frequencies predict to be the best and the worst.

use margay_bench_common::mpi::OURS;

use crate::report::{Report, Run};

/// Parts into which the sorted combinations are cut.
pub const BUCKETS: usize = 4;

/// The mode that is in no bucket, as in the report: each byte counts for every node, although one
/// node moves it, so its rates say nothing of the file system.
const REDUNDANT: &str = "M_GLOBAL";

/// A combination of parameters, and what it reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Whether the file is written, or read.
    pub writes: bool,
    /// Ranks that take part.
    pub nodes: usize,
    /// The mode's name.
    pub mode: String,
    /// Bytes of a record.
    pub record: u64,
    /// Megabytes of each node.
    pub megabytes: u64,
    /// MB/s of all nodes together.
    pub rate: f64,
}

/// The parameters, in the order of tables and panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Mode of access.
    Mode,
    /// Number of nodes.
    Nodes,
    /// Length of records.
    Record,
    /// Size; in MiB where records are multiples of 1024, a distinction of the report.
    Size,
    /// Written or read.
    Direction,
}

/// All of them.
pub const PARAMETERS: [Parameter; 5] = [
    Parameter::Mode,
    Parameter::Nodes,
    Parameter::Record,
    Parameter::Size,
    Parameter::Direction,
];

impl Parameter {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Nodes => "nodes",
            Self::Record => "bytes of a record",
            Self::Size => "size of a node",
            Self::Direction => "direction",
        }
    }

    /// Returns its value in a combination.
    pub fn of(self, cell: &Cell) -> String {
        match self {
            Self::Mode => cell.mode.clone(),
            Self::Nodes => cell.nodes.to_string(),
            Self::Record => cell.record.to_string(),
            Self::Size if cell.record.is_multiple_of(1024) => format!("{} MiB", cell.megabytes),
            Self::Size => format!("{} MB", cell.megabytes),
            Self::Direction => if cell.writes { "write" } else { "read" }.to_owned(),
        }
    }
}

/// How often a value is in each bucket, the slowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// The value, see [`Parameter::of`].
    pub value: String,
    /// Combinations with it.
    pub counts: [usize; BUCKETS],
}

impl Frequency {
    /// Returns the part of its combinations that a bucket has.
    fn share(&self, bucket: usize) -> f64 {
        let all: usize = self.counts.iter().sum();
        self.counts[bucket] as f64 / all.max(1) as f64
    }
}

/// The combinations of one interface, with one implementation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The program, `files-nx` or `files-mpi`.
    pub program: String,
    /// Whose library it was.
    pub implementation: String,
    /// The slowest first.
    pub cells: Vec<Cell>,
    /// In the order in which they were measured, those of M_GLOBAL included.
    pub all: Vec<Cell>,
}

/// Returns the evaluation of every interface and implementation that was measured.
pub fn evaluations(report: &Report) -> Vec<Evaluation> {
    let mut evaluations: Vec<Evaluation> = Vec::new();
    for run in &report.runs {
        let cells: Vec<Cell> = cells(run).collect();
        let same = |e: &&mut Evaluation| {
            (&e.program, &e.implementation) == (&run.program, &run.implementation)
        };
        match evaluations.iter_mut().find(same) {
            Some(evaluation) => evaluation.all.extend(cells),
            None => evaluations.push(Evaluation {
                program: run.program.clone(),
                implementation: run.implementation.clone(),
                cells: Vec::new(),
                all: cells,
            }),
        }
    }
    for evaluation in &mut evaluations {
        evaluation.cells.clone_from(&evaluation.all);
        evaluation.cells.retain(|cell| cell.mode != REDUNDANT);
        evaluation
            .cells
            .sort_unstable_by(|a, b| f64::total_cmp(&a.rate, &b.rate));
    }
    evaluations.retain(|evaluation| !evaluation.all.is_empty());
    evaluations
}

/// Returns the combinations of a run: figures are named mode-direction-record-megabytes.
fn cells(run: &Run) -> impl Iterator<Item = Cell> {
    run.reported.figures.iter().filter_map(|figure| {
        let mut words = figure.name.rsplitn(4, '-');
        let megabytes = words.next()?.parse().ok()?;
        let record = words.next()?.parse().ok()?;
        let writes = match words.next()? {
            "write" => true,
            "read" => false,
            _ => return None,
        };
        Some(Cell {
            writes,
            nodes: run.ranks,
            mode: words.next()?.to_owned(),
            record,
            megabytes,
            rate: figure.value,
        })
    })
}

impl Evaluation {
    /// Returns the name of what files were accessed through, and whose it was if not ours.
    pub fn interface(&self) -> String {
        let name = match self.program.as_str() {
            "files-nx" => "NX",
            _ => "MPI-IO",
        };
        if self.implementation == OURS {
            name.to_owned()
        } else {
            format!("{name} of {}", self.implementation)
        }
    }

    /// Returns the combinations of a bucket; of fewer combinations than buckets some are empty.
    pub fn bucket(&self, bucket: usize) -> &[Cell] {
        let at = |part: usize| self.cells.len() * part / BUCKETS;
        &self.cells[at(bucket)..at(bucket + 1)]
    }

    /// Returns how often each value of a parameter is in each bucket, in the order in which the
    /// values were measured.
    pub fn frequencies(&self, parameter: Parameter) -> Vec<Frequency> {
        let mut frequencies: Vec<Frequency> = Vec::new();
        for cell in self.all.iter().filter(|cell| cell.mode != REDUNDANT) {
            let value = parameter.of(cell);
            if !frequencies.iter().any(|known| known.value == value) {
                let counts = [0, 1, 2, 3].map(|bucket| {
                    let cells = self.bucket(bucket).iter();
                    cells.filter(|cell| parameter.of(cell) == value).count()
                });
                frequencies.push(Frequency { value, counts });
            }
        }
        frequencies
    }

    /// Returns the combination that the frequencies predict to be the best, or the worst, and its
    /// place from that end of the table, from 1 on. `None` where it was not measured.
    ///
    /// It has of each parameter the value that is found most in the last, or first, bucket.
    pub fn predicted(&self, best: bool) -> Option<(&Cell, usize)> {
        let bucket = if best { BUCKETS - 1 } else { 0 };
        let mut rest: Vec<&Cell> = self.cells.iter().collect();
        // The length of records before the size, whose unit it decides.
        for parameter in PARAMETERS {
            let frequencies = self.frequencies(parameter);
            let possible = |f: &&Frequency| rest.iter().any(|cell| parameter.of(cell) == f.value);
            let chosen = frequencies
                .iter()
                .filter(possible)
                .max_by(|a, b| f64::total_cmp(&a.share(bucket), &b.share(bucket)))?;
            rest.retain(|cell| parameter.of(cell) == chosen.value);
        }
        let cell = *rest.first()?;
        let place = self.cells.iter().position(|other| other == cell)?;
        let from_end = if best {
            self.cells.len() - place
        } else {
            place + 1
        };
        Some((cell, from_end))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::lines::parse;

    /// Returns a report in which rates grow with nodes and records, and M_RECORD is the best mode.
    pub(crate) fn canned() -> Report {
        let mut report = Report::new(crate::report::Suite::Files, true);
        report.directory = Some("/mnt/scratch".into());
        for nodes in [1, 2] {
            let mut text = String::from("library Margay 0.1\nnote on tmpfs\n");
            for (mode, factor) in [("M_UNIX", 1), ("M_RECORD", 3), ("M_GLOBAL", 50)] {
                for record in [8000, 65_536] {
                    for (direction, part) in [("write", 2), ("read", 1)] {
                        let rate = nodes * factor * record / 100 * part;
                        let _ =
                            writeln!(text, "figure {mode}-{direction}-{record}-1 MB/s {rate} 1");
                    }
                }
                let _ = writeln!(text, "check contents-{mode}-write passed 0 0");
            }
            report.runs.push(Run {
                program: "files-nx".into(),
                ranks: nodes,
                implementation: OURS.into(),
                reported: parse(&text).unwrap(),
                ..Run::default()
            });
        }
        report
    }

    #[test]
    fn buckets_are_equal_and_leave_the_redundant_mode_out() {
        let [evaluation] = &evaluations(&canned())[..] else {
            panic!("one interface")
        };
        assert_eq!((evaluation.all.len(), evaluation.cells.len()), (24, 16));
        for bucket in 0..BUCKETS {
            assert_eq!(evaluation.bucket(bucket).len(), 4);
        }
        assert!(evaluation.bucket(0).last().unwrap().rate <= evaluation.bucket(1)[0].rate);
        let records = evaluation.frequencies(Parameter::Record);
        assert_eq!(records[0].value, "8000");
        assert_eq!(records[0].counts.iter().sum::<usize>(), 8);
        assert_eq!(records[0].counts[0], 4);
        assert_eq!(records[1].counts[3], 4);
        let sizes = evaluation.frequencies(Parameter::Size);
        let sizes: Vec<&str> = sizes.iter().map(|size| size.value.as_str()).collect();
        assert_eq!(sizes, ["1 MB", "1 MiB"]);
    }

    #[test]
    fn frequencies_predict_the_best_and_the_worst() {
        let evaluation = &evaluations(&canned())[0];
        let (best, place) = evaluation.predicted(true).unwrap();
        assert_eq!(
            (place, best.mode.as_str(), best.record),
            (1, "M_RECORD", 65_536)
        );
        assert!(best.writes && best.nodes == 2);
        let (worst, place) = evaluation.predicted(false).unwrap();
        assert_eq!(
            (place, worst.mode.as_str(), worst.record),
            (1, "M_UNIX", 8000)
        );
        assert!(!worst.writes && worst.nodes == 1);
    }

    #[test]
    fn few_combinations_are_evaluated_as_well() {
        let mut report = canned();
        report.runs.truncate(1);
        report.runs[0].reported.figures.truncate(1);
        let evaluation = &evaluations(&report)[0];
        assert_eq!(evaluation.bucket(3).len(), 1);
        assert!(evaluation.bucket(0).is_empty());
        assert_eq!(evaluation.predicted(true).unwrap().1, 1);
        report.runs[0].reported.figures.clear();
        assert!(evaluations(&report).is_empty());
    }
}
