//! Collectives that move data, against their definitions.

mod sim;

use fastrand::Rng;
use margay_core_schedule::{
    Block, Part, Ranks, allgather, allgatherv, alltoall, alltoallv, alltoallw, barrier, bcast,
    gather, gatherv, scatter, scatterv,
};
use sim::{Layout, Process, for_all, for_sizes, run_data, world};

/// What is in a buffer that nothing has been written to.
const UNTOUCHED: u64 = u64::MAX;

/// The value of packed position `at` of what `from` has for `to`.
fn value(from: u32, to: u32, at: usize) -> u64 {
    u64::from(from) << 40 | u64::from(to) << 20 | at as u64
}

/// A buffer of blocks or parts, each with a type, at random places.
struct Parts {
    layouts: Vec<Layout>,
    parts: Vec<Part>,
    /// First cell of each part.
    cells: Vec<usize>,
    len: usize,
}

impl Parts {
    /// Parts of the given sizes in any order with gaps. `each`: a type for each part and
    /// displacements in cells.
    fn scattered(bytes: &[usize], each: bool, rng: &mut Rng) -> Parts {
        let common = Layout {
            size: 1,
            extent: 1 + rng.usize(..2),
        };
        let mut order: Vec<usize> = (0..bytes.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.usize(..i + 1));
        }
        let mut parts = Parts {
            layouts: vec![common; bytes.len()],
            parts: vec![Part::default(); bytes.len()],
            cells: vec![0; bytes.len()],
            len: 0,
        };
        let mut next = 0;
        for i in order {
            let (layout, count) = if each {
                Layout::dividing(bytes[i], rng)
            } else {
                (common, bytes[i])
            };
            next += rng.usize(..3);
            let unit = if each { 1 } else { layout.extent };
            parts.layouts[i] = layout;
            parts.parts[i] = Part {
                start: next as i64,
                bytes: bytes[i] as u64,
            };
            parts.cells[i] = next * unit;
            next += count * if each { layout.extent } else { 1 };
            parts.len = next * unit;
        }
        parts
    }

    fn blocks(layout: Layout, count: usize, n: u32) -> Parts {
        let each = count * layout.extent;
        let part = |i: usize| Part {
            start: (i * count) as i64,
            bytes: (count * layout.size) as u64,
        };
        Parts {
            layouts: vec![layout; n as usize],
            parts: (0..n as usize).map(part).collect(),
            cells: (0..n as usize).map(|i| i * each).collect(),
            len: each * n as usize,
        }
    }

    fn layout(&self) -> Layout {
        self.layouts.first().copied().unwrap_or(Layout::BYTE)
    }

    fn empty(&self) -> Vec<u64> {
        vec![UNTOUCHED; self.len]
    }

    /// Writes part `i`.
    fn fill(&self, memory: &mut [u64], i: usize, value: impl Fn(usize) -> u64) {
        for at in 0..self.parts[i].bytes as usize {
            memory[self.layouts[i].cell(self.cells[i], at)] = value(at);
        }
    }
}

fn none() -> (Vec<u64>, Layout) {
    (vec![], Layout::BYTE)
}

#[test]
fn barriers_let_nobody_through_early() {
    for size in 1..=sim::MOST {
        let schedules: Vec<_> = (0..size)
            .map(|rank| barrier(Ranks { rank, size }))
            .collect();
        // With one process held back, nobody can finish: everybody depends on everybody.
        let rounds = 32 - u32::leading_zeros(size - 1);
        for schedule in &schedules {
            assert_eq!(schedule.steps().len() as u32, 2 * rounds);
        }
        let world = world(size, |ranks| Process::new(barrier(ranks), none(), none()));
        run_data(
            world,
            None,
            sim::Mode::Rendezvous,
            &mut Rng::with_seed(u64::from(size)),
        );
        // Who has heard, directly or not, of whom, by the rounds' dependencies.
        let mut knows: Vec<std::collections::HashSet<u32>> =
            (0..size).map(|r| [r].into()).collect();
        for round in 0..rounds {
            let before = knows.clone();
            for rank in 0..size {
                let from = (rank + size - (1 << round) % size) % size;
                knows[rank as usize].extend(&before[from as usize]);
            }
        }
        assert!(knows.iter().all(|set| set.len() as u32 == size));
    }
}

#[test]
fn bcast_gives_everybody_the_root_s_data() {
    for_all(&mut |size, root, tuning, mode, rng| {
        for bytes in [
            0,
            1 + rng.usize(..40),
            64 * size as usize + rng.usize(..300),
        ] {
            let processes = world(size, |ranks| {
                let (layout, count) = Layout::dividing(bytes, rng);
                let parts = Parts::blocks(layout, count, 1);
                let mut buffer = parts.empty();
                if ranks.rank == root {
                    parts.fill(&mut buffer, 0, |at| value(root, 0, at));
                }
                Process::new(
                    bcast(ranks, root, bytes as u64, tuning),
                    none(),
                    (buffer, layout),
                )
            });
            for process in run_data(processes, None, mode, rng) {
                let parts = Parts::blocks(process.recv_type, bytes / process.recv_type.size, 1);
                let mut wanted = parts.empty();
                parts.fill(&mut wanted, 0, |at| value(root, 0, at));
                assert_eq!(process.recv, wanted, "{bytes} bytes, root {root} of {size}");
            }
        }
    });
}

/// A block's type and its parameters, of a given number of bytes.
fn block(bytes: usize, rng: &mut Rng) -> (Layout, usize, Block) {
    let (layout, count) = Layout::dividing(bytes, rng);
    (
        layout,
        count,
        Block {
            count: count as i64,
            bytes: bytes as u64,
        },
    )
}

#[test]
fn gather_and_scatter_move_equal_blocks() {
    for_all(&mut |size, root, tuning, mode, rng| {
        let bytes = rng.usize(..9);
        let in_place = rng.usize(..2) == 0;
        let (one, all) = (block(bytes, rng), block(bytes, rng));
        let own = Parts::blocks(one.0, one.1, 1);
        let whole = Parts::blocks(all.0, all.1, size);
        let mut wanted = whole.empty();
        (0..size as usize).for_each(|i| whole.fill(&mut wanted, i, |at| value(i as u32, root, at)));

        let processes = world(size, |ranks| {
            let at_root = ranks.rank == root;
            let mut send = own.empty();
            own.fill(&mut send, 0, |at| value(ranks.rank, root, at));
            let mut recv = if at_root { whole.empty() } else { vec![] };
            if at_root && in_place {
                whole.fill(&mut recv, root as usize, |at| value(root, root, at));
                send.clear();
            }
            let schedule = gather(ranks, root, one.2, all.2, in_place, tuning);
            Process::new(schedule, (send, one.0), (recv, all.0))
        });
        let result = run_data(processes, None, mode, rng);
        assert_eq!(
            result[root as usize].recv, wanted,
            "gather to {root} of {size}"
        );

        let processes = world(size, |ranks| {
            let at_root = ranks.rank == root;
            let send = if at_root { wanted.clone() } else { vec![] };
            let schedule = scatter(ranks, root, all.2, one.2, in_place, tuning);
            Process::new(schedule, (send, all.0), (own.empty(), one.0))
        });
        for (rank, process) in run_data(processes, None, mode, rng).iter().enumerate() {
            let mut wanted = own.empty();
            if !(in_place && rank as u32 == root) {
                own.fill(&mut wanted, 0, |at| value(rank as u32, root, at));
            }
            assert_eq!(
                process.recv, wanted,
                "scatter from {root} to {rank} of {size}"
            );
        }
    });
}

#[test]
fn gatherv_and_scatterv_move_parts_to_their_places() {
    for_all(&mut |size, root, _, mode, rng| {
        let sizes: Vec<usize> = (0..size).map(|_| rng.usize(..5)).collect();
        let in_place = rng.usize(..2) == 0;
        let whole = Parts::scattered(&sizes, false, rng);
        let mut wanted = whole.empty();
        (0..size as usize).for_each(|i| whole.fill(&mut wanted, i, |at| value(i as u32, root, at)));
        let own = |rank: u32| Parts::blocks(Layout::BYTE, sizes[rank as usize], 1);
        let at_root = |rank: u32| rank == root;

        let processes = world(size, |ranks| {
            let own = own(ranks.rank);
            let mut send = own.empty();
            own.fill(&mut send, 0, |at| value(ranks.rank, root, at));
            let mut recv = if at_root(ranks.rank) {
                whole.empty()
            } else {
                vec![]
            };
            if at_root(ranks.rank) && in_place {
                whole.fill(&mut recv, root as usize, |at| value(root, root, at));
                send.clear();
            }
            let parts = if at_root(ranks.rank) {
                &whole.parts[..]
            } else {
                &[]
            };
            let schedule = gatherv(ranks, root, own.parts[0].bytes, parts, in_place);
            Process::new(schedule, (send, Layout::BYTE), (recv, whole.layout()))
        });
        let result = run_data(processes, None, mode, rng);
        assert_eq!(result[root as usize].recv, wanted);

        let processes = world(size, |ranks| {
            let own = own(ranks.rank);
            let (send, parts) = if at_root(ranks.rank) {
                (wanted.clone(), &whole.parts[..])
            } else {
                (vec![], &[][..])
            };
            let schedule = scatterv(ranks, root, parts, own.parts[0].bytes, in_place);
            Process::new(
                schedule,
                (send, whole.layout()),
                (own.empty(), Layout::BYTE),
            )
        });
        for (rank, process) in run_data(processes, None, mode, rng).iter().enumerate() {
            let rank = rank as u32;
            let mut wanted = own(rank).empty();
            if !(in_place && at_root(rank)) {
                own(rank).fill(&mut wanted, 0, |at| value(rank, root, at));
            }
            assert_eq!(process.recv, wanted);
        }
    });
}

#[test]
fn allgather_collects_blocks_and_parts_everywhere() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for in_place in [false, true] {
            let bytes = rng.usize(..7);
            let (one, all) = (block(bytes, rng), block(bytes, rng));
            let sizes: Vec<usize> = (0..size).map(|_| rng.usize(..4)).collect();
            for equal in [true, false] {
                let whole = if equal {
                    Parts::blocks(all.0, all.1, size)
                } else {
                    Parts::scattered(&sizes, false, rng)
                };
                let own = |rank: u32| {
                    if equal {
                        Parts::blocks(one.0, one.1, 1)
                    } else {
                        Parts::blocks(Layout::BYTE, sizes[rank as usize], 1)
                    }
                };
                let processes = world(size, |ranks| {
                    let own = own(ranks.rank);
                    let mut send = own.empty();
                    own.fill(&mut send, 0, |at| value(ranks.rank, 0, at));
                    let mut recv = whole.empty();
                    if in_place {
                        whole.fill(&mut recv, ranks.rank as usize, |at| {
                            value(ranks.rank, 0, at)
                        });
                        send.clear();
                    }
                    let schedule = if equal {
                        allgather(ranks, all.2, in_place, tuning)
                    } else {
                        allgatherv(ranks, &whole.parts, in_place, tuning)
                    };
                    Process::new(schedule, (send, own.layout()), (recv, whole.layout()))
                });
                let mut wanted = whole.empty();
                (0..size as usize)
                    .for_each(|i| whole.fill(&mut wanted, i, |at| value(i as u32, 0, at)));
                for process in run_data(processes, None, mode, rng) {
                    assert_eq!(
                        process.recv, wanted,
                        "{size} processes, in place: {in_place}, equal: {equal}"
                    );
                }
            }
        }
    });
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    Equal,
    Counts,
    Types,
}

#[test]
fn alltoall_transposes() {
    for_sizes(&mut |size, tuning, mode, rng| {
        // Everything in every combination for small worlds, one choice for large ones.
        let forms = [Form::Equal, Form::Counts, Form::Types];
        let one = rng.usize(..3);
        for form in if size <= 20 {
            &forms[..]
        } else {
            &forms[one..=one]
        } {
            let form = *form;
            let choices = if size <= 9 {
                vec![false, true]
            } else {
                vec![rng.usize(..2) == 0]
            };
            for in_place in choices {
                transpose(size, form, in_place, tuning, mode, rng);
            }
        }
    });
}

fn transpose(
    size: u32,
    form: Form,
    in_place: bool,
    tuning: &margay_core_schedule::Tuning,
    mode: sim::Mode,
    rng: &mut Rng,
) {
    let n = size as usize;
    let equal = rng.usize(..4);
    let (one, two) = (block(equal, rng), block(equal, rng));
    let seed = rng.u64(..);
    let bytes = |from: usize, to: usize| {
        // In place, both directions are equal.
        let (a, b) = if in_place {
            (from.min(to), from.max(to))
        } else {
            (from, to)
        };
        if form == Form::Equal {
            equal
        } else {
            Rng::with_seed(seed ^ value(a as u32, b as u32, 0)).usize(..4)
        }
    };
    let row = |from: usize| (0..n).map(|to| bytes(from, to)).collect::<Vec<usize>>();
    let column = |to: usize| (0..n).map(|from| bytes(from, to)).collect::<Vec<usize>>();
    let mut expected = vec![];
    let processes = world(size, |ranks| {
        let me = ranks.rank as usize;
        let each = form == Form::Types;
        let (send, recv) = if form == Form::Equal {
            (
                Parts::blocks(one.0, one.1, size),
                Parts::blocks(two.0, two.1, size),
            )
        } else {
            (
                Parts::scattered(&row(me), each, rng),
                Parts::scattered(&column(me), each, rng),
            )
        };
        let mut target = recv.empty();
        let mut wanted = recv.empty();
        let mut source = send.empty();
        for i in 0..n {
            recv.fill(&mut wanted, i, |at| value(i as u32, ranks.rank, at));
            if in_place {
                recv.fill(&mut target, i, |at| value(ranks.rank, i as u32, at));
            } else {
                send.fill(&mut source, i, |at| value(ranks.rank, i as u32, at));
            }
        }
        if in_place {
            source.clear();
        }
        expected.push(wanted);
        let schedule = match form {
            Form::Equal => alltoall(ranks, one.2, two.2, in_place, tuning),
            Form::Counts => alltoallv(ranks, &send.parts, &recv.parts, in_place, tuning),
            Form::Types => alltoallw(ranks, &send.parts, &recv.parts, in_place, tuning),
        };
        let mut process = Process::new(schedule, (source, send.layout()), (target, recv.layout()));
        (process.send_types, process.recv_types) = (send.layouts, recv.layouts);
        process
    });
    for (process, wanted) in run_data(processes, None, mode, rng).iter().zip(expected) {
        assert_eq!(
            process.recv, wanted,
            "{form:?} among {size}, in place: {in_place}"
        );
    }
}

/// More messages between two processes than there are tags.
#[test]
fn long_chains_use_tags_again() {
    let tuning = margay_core_schedule::Tuning {
        bcast_chain: 0,
        bcast_chain_ranks: u32::MAX,
        segment: 1,
        window: u32::MAX,
        ..Default::default()
    };
    for mode in [sim::Mode::Rendezvous, sim::Mode::Buffered] {
        let processes = world(3, |ranks| {
            let data = (0..1000)
                .map(|i| if ranks.rank == 1 { i } else { UNTOUCHED })
                .collect();
            Process::new(bcast(ranks, 1, 1000, &tuning), none(), (data, Layout::BYTE))
        });
        let combine = |_: &u64, _: &u64| unreachable!("nothing to combine");
        for process in sim::run(processes, None, &combine, mode, &mut Rng::with_seed(1)) {
            assert_eq!(process.recv, (0..1000).collect::<Vec<u64>>());
        }
    }
}
