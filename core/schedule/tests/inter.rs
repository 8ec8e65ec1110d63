//! Collectives between two groups.

mod sim;

use std::rc::Rc;

use fastrand::Rng;
use margay_core_schedule::{
    Block, Inter, InterRoot, Part, Ranks, Reduction, Schedule, Tuning, inter_allgather,
    inter_allgatherv, inter_allreduce, inter_alltoall, inter_alltoallv, inter_alltoallw,
    inter_barrier, inter_bcast, inter_gather, inter_gatherv, inter_reduce, inter_reduce_scatter,
    inter_reduce_scatter_block, inter_scatter, inter_scatterv,
};
use sim::{Layout, Mode, Process, check_hazards, run, run_data, tunings};

const PAIRS: [(u32, u32); 12] = [
    (1, 1),
    (1, 2),
    (2, 1),
    (3, 3),
    (1, 9),
    (4, 7),
    (8, 5),
    (10, 10),
    (16, 3),
    (13, 21),
    (33, 2),
    (20, 47),
];

/// Calls `f` for each pair of groups, each tuning and both modes.
fn for_pairs(mut f: impl FnMut((u32, u32), &Tuning, Mode, &mut Rng)) {
    for (i, pair) in PAIRS.into_iter().enumerate() {
        for (j, tuning) in tunings().iter().enumerate() {
            for mode in [Mode::Rendezvous, Mode::Buffered] {
                f(pair, tuning, mode, &mut Rng::with_seed((i * 10 + j) as u64));
            }
        }
    }
}

/// All processes of both groups: (whether in the first group, what it knows of the two).
fn members((a, b): (u32, u32)) -> impl Iterator<Item = (bool, Inter)> {
    let group = |first: bool, size: u32, remote_size: u32| {
        (0..size).map(move |rank| {
            (
                first,
                Inter {
                    local: Ranks { rank, size },
                    remote_size,
                },
            )
        })
    };
    group(true, a, b).chain(group(false, b, a))
}

/// The process's role when the root is `root` in the first or second group.
fn role(first: bool, inter: Inter, root_first: bool, root: u32) -> InterRoot {
    match (first == root_first, inter.local.rank == root) {
        (true, true) => InterRoot::Myself,
        (true, false) => InterRoot::Neighbour,
        (false, _) => InterRoot::Remote(root),
    }
}

/// What a process of a group has for another at a position.
fn value(first: bool, from: u32, to: u32, at: usize) -> u64 {
    u64::from(first) << 60 | u64::from(from) << 40 | u64::from(to) << 20 | at as u64
}

fn process(schedule: Schedule, send: Vec<u64>, recv: usize) -> Process<u64> {
    Process::new(
        schedule,
        (send, Layout::BYTE),
        (vec![u64::MAX; recv], Layout::BYTE),
    )
}

fn part(sizes: &[usize]) -> Vec<Part> {
    let mut start = 0;
    sizes
        .iter()
        .map(|&n| {
            start += n;
            Part {
                start: (start - n) as i64,
                bytes: n as u64,
            }
        })
        .collect()
}

#[test]
fn barriers_end() {
    for_pairs(|pair, _, mode, rng| {
        let world = members(pair)
            .map(|(_, inter)| process(inter_barrier(inter), vec![], 0))
            .collect();
        run_data(world, Some(pair.0 as usize), mode, rng);
    });
}

#[test]
fn rooted_operations_go_between_the_root_and_the_other_group() {
    for_pairs(|pair, tuning, mode, rng| {
        let split = Some(pair.0 as usize);
        let root_first = rng.usize(..2) == 0;
        let (root_group, others) = if root_first { pair } else { (pair.1, pair.0) };
        let root = rng.usize(..root_group as usize) as u32;
        let role = |first, inter| role(first, inter, root_first, root);
        let bytes = rng.usize(..200);
        let n = bytes as u64;

        let world = members(pair).map(|(first, inter)| {
            let mut p = process(
                inter_bcast(inter, role(first, inter), n, tuning),
                vec![],
                bytes,
            );
            if role(first, inter) == InterRoot::Myself {
                p.recv = (0..n).collect();
            }
            p
        });
        for ((first, _), p) in members(pair).zip(run_data(world.collect(), split, mode, rng)) {
            assert!(first == root_first || p.recv == (0..n).collect::<Vec<u64>>());
        }

        // Equal blocks and parts, to the root and from it.
        let equal = rng.usize(..4);
        for sizes in [
            vec![equal; others as usize],
            (0..others).map(|_| rng.usize(..4)).collect(),
        ] {
            let same = sizes.iter().all(|&s| s == equal);
            let block = Block {
                count: equal as i64,
                bytes: equal as u64,
            };
            let parts = part(&sizes);
            let total: usize = sizes.iter().sum();
            let own = |inter: Inter| sizes[inter.local.rank as usize];
            let all: Vec<u64> = (0..others)
                .flat_map(|i| (0..sizes[i as usize]).map(move |at| value(true, i, 0, at)))
                .collect();
            let mine = |inter: Inter| {
                (0..own(inter))
                    .map(|at| value(true, inter.local.rank, 0, at))
                    .collect()
            };

            let world = members(pair).map(|(first, inter)| {
                let role = role(first, inter);
                let (send, bytes, recv) = match role {
                    InterRoot::Remote(_) => (mine(inter), own(inter) as u64, 0),
                    _ => (vec![], 0, total),
                };
                let schedule = if same {
                    inter_gather(inter, role, Block { count: 1, bytes }, block)
                } else {
                    inter_gatherv(
                        role,
                        bytes,
                        if role == InterRoot::Myself {
                            &parts
                        } else {
                            &[]
                        },
                    )
                };
                process(schedule, send, recv)
            });
            for ((first, inter), p) in
                members(pair).zip(run_data(world.collect(), split, mode, rng))
            {
                assert!(role(first, inter) != InterRoot::Myself || p.recv == all);
            }

            let world = members(pair).map(|(first, inter)| {
                let role = role(first, inter);
                let (send, recv) = match role {
                    InterRoot::Remote(_) => (vec![], own(inter)),
                    _ => (all.clone(), 0),
                };
                let schedule = if same {
                    inter_scatter(
                        inter,
                        role,
                        block,
                        Block {
                            count: 1,
                            bytes: recv as u64,
                        },
                    )
                } else {
                    inter_scatterv(
                        role,
                        if role == InterRoot::Myself {
                            &parts
                        } else {
                            &[]
                        },
                        recv as u64,
                    )
                };
                process(schedule, send, recv)
            });
            for ((first, inter), p) in
                members(pair).zip(run_data(world.collect(), split, mode, rng))
            {
                if first != root_first {
                    assert_eq!(p.recv, mine(inter));
                }
            }
        }
    });
}

#[test]
fn everybody_gets_what_the_other_group_has() {
    for_pairs(|pair, tuning, mode, rng| {
        let split = Some(pair.0 as usize);
        let group = |first: bool| if first { pair.0 } else { pair.1 };
        // bytes[first][rank] that each process gives.
        let equal = [rng.usize(..4), rng.usize(..4)];
        for same in [true, false] {
            let sizes: Vec<Vec<usize>> = [false, true]
                .map(|first| {
                    (0..group(first))
                        .map(|_| {
                            if same {
                                equal[usize::from(first)]
                            } else {
                                rng.usize(..4)
                            }
                        })
                        .collect()
                })
                .into();
            let world = members(pair).map(|(first, inter)| {
                let n = sizes[usize::from(first)][inter.local.rank as usize];
                let theirs = &sizes[usize::from(!first)];
                let send: Vec<u64> = (0..n)
                    .map(|at| value(first, inter.local.rank, 0, at))
                    .collect();
                let schedule = if same {
                    let other = equal[usize::from(!first)];
                    let block = Block {
                        count: other as i64,
                        bytes: other as u64,
                    };
                    inter_allgather(inter, n as u64, block, tuning)
                } else {
                    inter_allgatherv(inter, n as u64, &part(theirs), tuning)
                };
                process(schedule, send, theirs.iter().sum())
            });
            for ((first, inter), p) in
                members(pair).zip(run_data(world.collect(), split, mode, rng))
            {
                let theirs = &sizes[usize::from(!first)];
                let wanted: Vec<u64> = (0..inter.remote_size)
                    .flat_map(|i| (0..theirs[i as usize]).map(move |at| value(!first, i, 0, at)))
                    .collect();
                assert_eq!(p.recv, wanted);
            }
        }
    });
}

#[test]
fn everybody_exchanges_with_the_other_group() {
    for_pairs(|pair, tuning, mode, rng| {
        let split = Some(pair.0 as usize);
        let equal = [rng.usize(..3), rng.usize(..3)];
        for form in 0..3 {
            // Bytes from `from` in group `first` to `to` in the other one.
            let seed = rng.u64(..);
            let bytes = |first: bool, from: u32, to: u32| match form {
                0 => equal[usize::from(first)],
                _ => Rng::with_seed(seed ^ value(first, from, to, 0)).usize(..4),
            };
            let world = members(pair).map(|(first, inter)| {
                let me = inter.local.rank;
                let out: Vec<usize> = (0..inter.remote_size)
                    .map(|to| bytes(first, me, to))
                    .collect();
                let into: Vec<usize> = (0..inter.remote_size)
                    .map(|from| bytes(!first, from, me))
                    .collect();
                let send: Vec<u64> = (0..inter.remote_size)
                    .flat_map(|to| (0..out[to as usize]).map(move |at| value(first, me, to, at)))
                    .collect();
                let block = |n: usize| Block {
                    count: n as i64,
                    bytes: n as u64,
                };
                let schedule = match form {
                    0 => {
                        let (out, into) = (equal[usize::from(first)], equal[usize::from(!first)]);
                        inter_alltoall(inter, block(out), block(into), tuning)
                    }
                    1 => inter_alltoallv(inter, &part(&out), &part(&into), tuning),
                    _ => inter_alltoallw(inter, &part(&out), &part(&into), tuning),
                };
                let mut p = process(schedule, send, into.iter().sum());
                p.send_types = vec![Layout::BYTE; inter.remote_size as usize];
                p.recv_types = p.send_types.clone();
                p
            });
            for ((first, inter), p) in
                members(pair).zip(run_data(world.collect(), split, mode, rng))
            {
                let me = inter.local.rank;
                let wanted: Vec<u64> = (0..inter.remote_size)
                    .flat_map(|from| {
                        (0..bytes(!first, from, me)).map(move |at| value(!first, from, me, at))
                    })
                    .collect();
                assert_eq!(p.recv, wanted, "form {form}");
            }
        }
    });
}

type Sequence = Rc<Vec<(bool, u32, usize)>>;

fn concatenate(left: &Sequence, right: &Sequence) -> Sequence {
    assert!(!left.is_empty() && !right.is_empty());
    Rc::new(left.iter().chain(right.iter()).copied().collect())
}

#[test]
fn reductions_combine_the_other_group_in_rank_order() {
    for_pairs(|pair, tuning, mode, rng| {
        let split = Some(pair.0 as usize);
        let root_first = rng.usize(..2) == 0;
        let root = rng.usize(..if root_first { pair.0 } else { pair.1 } as usize) as u32;
        let commutative = rng.usize(..2) == 0;
        for form in 0..4 {
            // Elements of each operand; in the last two forms what all get together.
            let count = match form {
                2 => (pair.0 * pair.1) as usize,
                _ => rng.usize(..9),
            };
            let counts = |first: bool| -> Vec<u64> {
                let n = if first { pair.0 } else { pair.1 } as usize;
                let share = |i: usize| match (form, i) {
                    (2, _) => count / n,
                    // Ones and zeros, and the rest to the middle.
                    (_, i) if i == n / 2 => count.saturating_sub(n / 3),
                    (_, i) => usize::from(i < n / 3 && i < count),
                };
                (0..n).map(|i| share(i) as u64).collect()
            };
            let reduction = Reduction {
                count: count as u64,
                size: 1,
                commutative,
            };
            let world: Vec<Process<Sequence>> = members(pair)
                .map(|(first, inter)| {
                    let rank = inter.local.rank as usize;
                    let mut recv = count;
                    let schedule = match form {
                        0 => inter_reduce(
                            inter,
                            role(first, inter, root_first, root),
                            reduction,
                            tuning,
                        ),
                        1 => inter_allreduce(inter, reduction, tuning),
                        2 => {
                            recv = counts(first)[rank] as usize;
                            let block = Reduction {
                                count: recv as u64,
                                ..reduction
                            };
                            inter_reduce_scatter_block(inter, block, tuning)
                        }
                        _ => {
                            recv = counts(first)[rank] as usize;
                            inter_reduce_scatter(inter, &counts(first), 1, commutative, tuning)
                        }
                    };
                    let send = (0..count)
                        .map(|at| Rc::new(vec![(first, rank as u32, at)]))
                        .collect();
                    Process::new(
                        schedule,
                        (send, Layout::BYTE),
                        (vec![Rc::default(); recv], Layout::BYTE),
                    )
                })
                .collect();
            if world.len() <= 11 {
                world.iter().for_each(check_hazards);
            }
            let result = run(world, split, &concatenate, mode, rng);
            let combined = |first: bool, n: u32, at: usize| {
                (0..n).map(|rank| (first, rank, at)).collect::<Vec<_>>()
            };
            for ((first, inter), p) in members(pair).zip(result) {
                let start: usize = match form {
                    0 if role(first, inter, root_first, root) != InterRoot::Myself => continue,
                    0 | 1 => 0,
                    _ => counts(first)[..inter.local.rank as usize]
                        .iter()
                        .sum::<u64>() as usize,
                };
                for (i, found) in p.recv.iter().enumerate() {
                    assert_eq!(
                        **found,
                        combined(!first, inter.remote_size, start + i),
                        "form {form}"
                    );
                }
            }
        }
    });
}
