//! Collectives that reduce, by an operation that remembers what it combined and how.

mod sim;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use fastrand::Rng;
use margay_core_schedule::{
    Ranks, Reduction, Schedule, allreduce, exscan, reduce, reduce_scatter, reduce_scatter_block,
    scan,
};
use sim::{Layout, Mode, Process, check_hazards, for_all, for_sizes, run, world};

/// Ranks in the order of their combination, and a hash of the expression: equal hashes are equal
/// bits in floating point.
#[derive(Debug, Clone, Default, PartialEq)]
struct Value {
    ranks: Rc<Vec<u16>>,
    expression: u64,
    /// Position in the vector; only equal ones may be combined.
    at: usize,
}

impl Value {
    fn new(rank: u32, at: usize) -> Value {
        Value {
            ranks: Rc::new(vec![rank as u16]),
            expression: u64::from(rank) + 1,
            at,
        }
    }

    fn combine(left: &Value, right: &Value) -> Value {
        assert_eq!(
            left.at, right.at,
            "elements from different places are combined"
        );
        assert!(
            !left.ranks.is_empty() && !right.ranks.is_empty(),
            "an operand is not there yet"
        );
        let ranks = left
            .ranks
            .iter()
            .chain(right.ranks.iter())
            .copied()
            .collect();
        // Commutative for equal bits: a + b and b + a are the same in IEEE arithmetic.
        let (a, b) = (
            left.expression.min(right.expression),
            left.expression.max(right.expression),
        );
        let expression = {
            let mut hasher = DefaultHasher::new();
            (a, b).hash(&mut hasher);
            hasher.finish()
        };
        Value {
            ranks: Rc::new(ranks),
            expression,
            at: left.at,
        }
    }

    /// Checks that this combines `from .. to`, in order unless the operation is commutative.
    fn check(&self, from: u32, to: u32, at: usize, commutative: bool, what: &str) {
        let mut ranks = self.ranks.to_vec();
        if commutative {
            ranks.sort_unstable();
        }
        assert!(
            ranks.iter().copied().eq(from as u16..to as u16),
            "{what}: {:?}",
            self.ranks
        );
        assert_eq!(self.at, at, "{what}");
    }
}

/// A case: what is reduced, and how.
struct Case {
    layout: Layout,
    reduction: Reduction,
    in_place: bool,
}

impl Case {
    fn random(size: u32, rng: &mut Rng) -> Case {
        let n = size as usize;
        let counts = [0, 1, n.saturating_sub(1), n, n + rng.usize(..2 * n + 3)];
        let layout = Layout {
            size: 1 + rng.usize(..2),
            extent: 2 + rng.usize(..2),
        };
        let reduction = Reduction {
            count: counts[rng.usize(..5)] as u64,
            size: layout.size as u64,
            commutative: rng.usize(..3) > 0,
        };
        Case {
            layout,
            reduction,
            in_place: rng.usize(..2) == 0,
        }
    }

    /// The operand of `rank`, with `count` elements.
    fn operand(&self, rank: u32, count: u64) -> Vec<Value> {
        let mut cells = vec![Value::default(); count as usize * self.layout.extent];
        for at in 0..count as usize * self.layout.size {
            cells[self.layout.cell(0, at)] = Value::new(rank, at);
        }
        cells
    }

    /// A process with a send buffer, or everything in the receive buffer.
    fn process(
        &self,
        ranks: Ranks,
        schedule: Schedule,
        in_place: bool,
        result: bool,
        count: u64,
    ) -> Process<Value> {
        let operand = self.operand(ranks.rank, count);
        let (send, recv) = if in_place {
            (vec![], operand)
        } else {
            let len = if result { operand.len() } else { 0 };
            (operand, vec![Value::default(); len])
        };
        Process::new(schedule, (send, self.layout), (recv, self.layout))
    }

    /// Value at a packed position of a result.
    fn value<'a>(&self, cells: &'a [Value], at: usize) -> &'a Value {
        &cells[self.layout.cell(0, at)]
    }
}

/// Runs the world of `build` twice in different orders; the results must be the same.
fn run_twice(
    build: &mut dyn FnMut() -> Vec<Process<Value>>,
    split: Option<usize>,
    mode: Mode,
    rng: &mut Rng,
) -> Vec<Process<Value>> {
    let first = build();
    if first.len() <= 11 {
        first.iter().for_each(check_hazards);
        let again = run(build(), split, &Value::combine, mode, rng);
        let first = run(first, split, &Value::combine, mode, rng);
        for (a, b) in again.iter().zip(&first) {
            assert!(
                a.recv == b.recv,
                "the result depends on the order of events"
            );
        }
        return first;
    }
    run(first, split, &Value::combine, mode, rng)
}

#[test]
fn reduce_brings_the_result_to_the_root() {
    for_all(&mut |size, root, tuning, mode, rng| {
        let case = Case::random(size, rng);
        let Reduction {
            count, commutative, ..
        } = case.reduction;
        let mut build = || {
            world(size, |ranks| {
                let in_place = case.in_place && ranks.rank == root;
                let schedule = reduce(ranks, root, case.reduction, in_place, tuning);
                case.process(ranks, schedule, in_place, ranks.rank == root, count)
            })
        };
        let result = run_twice(&mut build, None, mode, rng);
        for at in 0..count as usize * case.layout.size {
            let value = case.value(&result[root as usize].recv, at);
            value.check(
                0,
                size,
                at,
                commutative,
                &format!("reduce to {root} of {size}"),
            );
        }
    });
}

#[test]
fn allreduce_gives_everybody_the_same_bits() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for _ in 0..2 {
            let case = Case::random(size, rng);
            let Reduction {
                count, commutative, ..
            } = case.reduction;
            let mut build = || {
                world(size, |ranks| {
                    let schedule = allreduce(ranks, case.reduction, case.in_place, tuning);
                    case.process(ranks, schedule, case.in_place, true, count)
                })
            };
            let result = run_twice(&mut build, None, mode, rng);
            for process in &result {
                for at in 0..count as usize * case.layout.size {
                    let value = case.value(&process.recv, at);
                    value.check(0, size, at, commutative, &format!("allreduce of {size}"));
                    let expression = case.value(&result[0].recv, at).expression;
                    assert_eq!(
                        value.expression, expression,
                        "different bits, {size} processes"
                    );
                }
            }
        }
    });
}

#[test]
fn reduce_scatter_deals_the_result_out() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for equal in [true, false] {
            let case = Case::random(size, rng);
            let block = rng.usize(..3) as u64;
            let counts: Vec<u64> = (0..size)
                .map(|_| if equal { block } else { rng.usize(..4) as u64 })
                .collect();
            let total: u64 = counts.iter().sum();
            let Reduction {
                size: element,
                commutative,
                ..
            } = case.reduction;
            let mut build = || {
                world(size, |ranks| {
                    let schedule = if equal {
                        let block = Reduction {
                            count: block,
                            ..case.reduction
                        };
                        reduce_scatter_block(ranks, block, case.in_place, tuning)
                    } else {
                        reduce_scatter(ranks, &counts, element, commutative, case.in_place, tuning)
                    };
                    let mut process = case.process(ranks, schedule, case.in_place, true, total);
                    if !case.in_place {
                        process
                            .recv
                            .truncate(counts[ranks.rank as usize] as usize * case.layout.extent);
                    }
                    process
                })
            };
            let result = run_twice(&mut build, None, mode, rng);
            let mut start = 0;
            for (process, count) in result.iter().zip(&counts) {
                for at in 0..*count as usize * case.layout.size {
                    let value = case.value(&process.recv, at);
                    value.check(
                        0,
                        size,
                        start + at,
                        commutative,
                        &format!("reduce_scatter of {size}"),
                    );
                }
                start += *count as usize * case.layout.size;
            }
        }
    });
}

#[test]
fn scans_combine_the_ranks_before() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for exclusive in [false, true] {
            let case = Case::random(size, rng);
            let count = case.reduction.count.min(20);
            let reduction = Reduction {
                count,
                ..case.reduction
            };
            let mut build = || {
                world(size, |ranks| {
                    let form = if exclusive { exscan } else { scan };
                    let schedule = form(ranks, reduction, case.in_place, tuning);
                    case.process(ranks, schedule, case.in_place, true, count)
                })
            };
            let result = run_twice(&mut build, None, mode, rng);
            for (rank, process) in result.iter().enumerate() {
                if exclusive && rank == 0 {
                    let untouched = if case.in_place {
                        case.operand(0, count)
                    } else {
                        vec![Value::default(); process.recv.len()]
                    };
                    assert!(process.recv == untouched, "exscan at rank 0");
                    continue;
                }
                let to = if exclusive { rank } else { rank + 1 } as u32;
                for at in 0..count as usize * case.layout.size {
                    // Rank order is kept whether it has to be or not.
                    case.value(&process.recv, at).check(
                        0,
                        to,
                        at,
                        false,
                        &format!("scan at {rank} of {size}"),
                    );
                }
            }
        }
    });
}
