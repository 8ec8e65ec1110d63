//! Collectives that are divided by hosts, for random placements: against the definitions of the
//! operations.

mod sim;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use fastrand::Rng;
use margay_core_schedule::{
    Block, Hosts, Part, Ranks, Reduction, Schedule, hosts_allgather, hosts_allgatherv,
    hosts_allreduce, hosts_alltoall, hosts_barrier, hosts_bcast, hosts_gather, hosts_reduce,
    hosts_reduce_scatter, hosts_scan, hosts_scatter,
};
use sim::{Layout, Mode, Process, check_hazards, for_all, for_sizes, run, run_data, world};

/// Numbers of hosts for `size` ranks: equal or unequal blocks, dealt out in turn, or at random.
fn placement(size: u32, rng: &mut Rng) -> Vec<u32> {
    let hosts = 1 + rng.u32(..size.min(9));
    match rng.u32(..4) {
        0 => (0..size)
            .map(|rank| 7 + rank / size.div_ceil(hosts))
            .collect(),
        1 => {
            let mut host = 0;
            let next = |_| {
                host += rng.u32(..3) / 2;
                host
            };
            (0..size).map(next).collect()
        }
        2 => (0..size).map(|rank| rank % hosts).collect(),
        _ => (0..size).map(|_| rng.u32(..hosts)).collect(),
    }
}

fn hosts(size: u32, rng: &mut Rng) -> Option<Hosts> {
    Hosts::new(placement(size, rng))
}

fn none() -> (Vec<u64>, Layout) {
    (vec![], Layout::BYTE)
}

#[test]
fn hosts_are_numbered_by_their_lowest_ranks() {
    let hosts = Hosts::new([5, 5, 2, 9, 2]).unwrap();
    assert_eq!(hosts.count(), 3);
    assert_eq!(
        [0, 1, 2].map(|host| hosts.members(host).to_vec()),
        [vec![0, 1], vec![2, 4], vec![3]]
    );
    assert_eq!((hosts.host(4), hosts.place(4)), (1, 1));
    assert!(!hosts.is_blocked() && !hosts.is_even());
    assert_eq!(hosts.representatives(4), [0, 4, 3]);
    assert!(!hosts.may_reduce(false) && hosts.may_reduce(true));
    let even = Hosts::new([1, 1, 0, 0]).unwrap();
    assert!(even.is_blocked() && even.is_even());
    assert_eq!(even.counterparts(3), [1, 3]);
    assert_eq!(Hosts::new([4, 4, 4]), None, "one host");
    assert_eq!(Hosts::new([1, 2, 3]), None, "one rank each");
}

/// Ranks that reach a step only after a signal from another one know of all whom that one knew.
#[test]
fn barriers_let_nobody_through_early() {
    for_sizes(&mut |size, _, mode, rng| {
        let Some(hosts) = hosts(size, rng) else {
            return;
        };
        // A rank that never starts: nobody may finish. Each step of a schedule is there only to
        // pass on that ranks have come, so the last one that depends on nothing decides.
        let schedules: Vec<Schedule> = (0..size).map(|rank| hosts_barrier(rank, &hosts)).collect();
        assert!(schedules.iter().all(|schedule| !schedule.is_empty()));
        let late = rng.u32(..size);
        let finished = finished_without(&schedules, late);
        assert!(finished.is_empty(), "{finished:?} without {late} of {size}");
        let world = world(size, |ranks| {
            Process::new(hosts_barrier(ranks.rank, &hosts), none(), none())
        });
        run_data(world, None, mode, rng);
    });
}

/// Sender, receiver and tag.
type Message = (u32, u32, u32);

/// The ranks that finish although `late` does nothing.
fn finished_without(schedules: &[Schedule], late: u32) -> Vec<u32> {
    use margay_core_schedule::{Peer, Progress, Step};
    let mut progress: Vec<Progress> = schedules.iter().map(Progress::new).collect();
    let mut sent: Vec<Message> = Vec::new();
    let mut waiting: Vec<(u32, u32, Message)> = Vec::new();
    loop {
        let mut any = false;
        for (rank, schedule) in (0..).zip(schedules) {
            while rank != late
                && let Some(step) = progress[rank as usize].next()
            {
                any = true;
                match schedule.steps()[step as usize] {
                    Step::Send {
                        to: Peer::Local(to),
                        tag,
                        ..
                    } => {
                        sent.push((rank, to, tag));
                        progress[rank as usize].complete(schedule, step);
                    }
                    Step::Recv {
                        from: Peer::Local(from),
                        tag,
                        ..
                    } => waiting.push((rank, step, (from, rank, tag))),
                    _ => unreachable!("a barrier has only signals"),
                }
            }
        }
        let met = |waiting: &[(u32, u32, Message)], sent: &[Message]| {
            let place = |wanted: &Message| sent.iter().position(|message| message == wanted);
            let mut all = waiting.iter().enumerate();
            all.find_map(|(at, (.., wanted))| Some((at, place(wanted)?)))
        };
        while let Some((at, sent_at)) = met(&waiting, &sent) {
            any = true;
            let (rank, step, _) = waiting.swap_remove(at);
            sent.swap_remove(sent_at);
            progress[rank as usize].complete(&schedules[rank as usize], step);
        }
        if !any {
            break;
        }
    }
    let done = (0..).zip(&progress).filter(|(_, p)| p.is_done());
    done.map(|(rank, _)| rank).collect()
}

#[test]
fn bcast_gives_everybody_the_root_s_data() {
    for_all(&mut |size, root, tuning, mode, rng| {
        let Some(hosts) = hosts(size, rng) else {
            return;
        };
        for bytes in [0, 1 + rng.usize(..40), 150 + rng.usize(..900)] {
            let processes = world(size, |Ranks { rank, .. }| {
                let (layout, count) = Layout::dividing(bytes, rng);
                let mut buffer = vec![u64::MAX; count * layout.extent];
                for at in (0..bytes).filter(|_| rank == root) {
                    buffer[layout.cell(0, at)] = at as u64;
                }
                let schedule = hosts_bcast(rank, &hosts, root, bytes as u64, tuning);
                Process::new(schedule, none(), (buffer, layout))
            });
            for process in run_data(processes, None, mode, rng) {
                for at in 0..bytes {
                    let cell = process.recv_type.cell(0, at);
                    assert_eq!(process.recv[cell], at as u64, "root {root} of {size}");
                }
            }
        }
    });
}

#[test]
fn allgather_collects_blocks_everywhere() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for hosts in equal_hosts(size) {
            let (bytes, in_place) = (rng.usize(..4), rng.bool());
            let block = block(bytes);
            let value = |rank: u32, at: usize| u64::from(rank) << 20 | at as u64;
            let processes = world(size, |Ranks { rank, .. }| {
                let own: Vec<u64> = (0..bytes).map(|at| value(rank, at)).collect();
                let mut recv = vec![u64::MAX; bytes * size as usize];
                if in_place {
                    recv[bytes * rank as usize..][..bytes].copy_from_slice(&own);
                }
                let send = if in_place { vec![] } else { own };
                let schedule = hosts_allgather(rank, &hosts, block, in_place, tuning);
                Process::new(schedule, (send, Layout::BYTE), (recv, Layout::BYTE))
            });
            let wanted: Vec<u64> = (0..size)
                .flat_map(|rank| (0..bytes).map(move |at| value(rank, at)))
                .collect();
            for process in run_data(processes, None, mode, rng) {
                assert_eq!(
                    process.recv,
                    wanted,
                    "{} hosts, {size} ranks",
                    hosts.count()
                );
            }
        }
    });
}

/// Equal numbers of ranks on each host, which follow each other: several divisions of `size`.
fn equal_hosts(size: u32) -> impl Iterator<Item = Hosts> {
    let divisors = (2..size).filter(move |hosts| size.is_multiple_of(*hosts));
    divisors.take(3).map(move |count| {
        let hosts = Hosts::new((0..size).map(|rank| rank / (size / count))).unwrap();
        assert!(hosts.is_even() && hosts.is_blocked());
        hosts
    })
}

/// Blocks of `bytes`, in which an element is a byte.
fn block(bytes: usize) -> Block {
    Block {
        count: bytes as i64,
        bytes: bytes as u64,
    }
}

/// What byte `at` of the block from one rank to another is.
fn byte(from: u32, to: u32, at: usize) -> u64 {
    u64::from(from) << 40 | u64::from(to) << 20 | at as u64
}

fn row(pairs: impl Iterator<Item = (u32, u32)>, bytes: usize) -> Vec<u64> {
    pairs
        .flat_map(|(from, to)| (0..bytes).map(move |at| byte(from, to, at)))
        .collect()
}

#[test]
fn gather_and_scatter_move_blocks_from_and_to_the_root() {
    for_all(&mut |size, root, tuning, mode, rng| {
        for hosts in equal_hosts(size) {
            let bytes = rng.usize(..4);
            let in_place = rng.bool();
            let own = |rank: u32, to: bool| match to {
                true => row([(rank, root)].into_iter(), bytes),
                false => row([(root, rank)].into_iter(), bytes),
            };
            let untouched = |ranks: u32| vec![u64::MAX; bytes * ranks as usize];
            let gathered = row((0..size).map(|rank| (rank, root)), bytes);
            let blocks = (block(bytes), block(bytes));
            let processes = world(size, |Ranks { rank, .. }| {
                let is_own = in_place && rank == root;
                let mut recv = untouched(if rank == root { size } else { 0 });
                if is_own {
                    recv[bytes * root as usize..][..bytes].copy_from_slice(&own(root, true));
                }
                let send = if is_own { vec![] } else { own(rank, true) };
                let schedule = hosts_gather(rank, &hosts, root, blocks, is_own, tuning);
                Process::new(schedule, (send, Layout::BYTE), (recv, Layout::BYTE))
            });
            let done = run_data(processes, None, mode, rng);
            assert_eq!(done[root as usize].recv, gathered, "root {root} of {size}");
            let dealt = row((0..size).map(|rank| (root, rank)), bytes);
            let processes = world(size, |Ranks { rank, .. }| {
                let is_own = in_place && rank == root;
                let send = if rank == root { dealt.clone() } else { vec![] };
                let recv = untouched(u32::from(!is_own));
                let schedule = hosts_scatter(rank, &hosts, root, blocks, is_own, tuning);
                Process::new(schedule, (send, Layout::BYTE), (recv, Layout::BYTE))
            });
            for (rank, process) in (0..).zip(run_data(processes, None, mode, rng)) {
                if !(in_place && rank == root) {
                    assert_eq!(process.recv, own(rank, false), "root {root} of {size}");
                }
            }
        }
    });
}

#[test]
fn alltoall_gives_each_rank_its_block_of_every_rank() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for hosts in equal_hosts(size) {
            let (bytes, in_place) = (rng.usize(..4), rng.bool());
            let blocks = (block(bytes), block(bytes));
            let processes = world(size, |Ranks { rank, .. }| {
                let own = row((0..size).map(|to| (rank, to)), bytes);
                let (send, recv) = match in_place {
                    true => (vec![], own),
                    false => (own, vec![u64::MAX; bytes * size as usize]),
                };
                let schedule = hosts_alltoall(rank, &hosts, blocks, in_place, tuning);
                Process::new(schedule, (send, Layout::BYTE), (recv, Layout::BYTE))
            });
            for (rank, process) in (0..).zip(run_data(processes, None, mode, rng)) {
                let wanted = row((0..size).map(|from| (from, rank)), bytes);
                assert_eq!(
                    process.recv,
                    wanted,
                    "{} hosts, {size} ranks",
                    hosts.count()
                );
            }
        }
    });
}

/// Hosts of which each has ranks that follow each other, as many as the others or not.
fn hosts_in_order(size: u32, rng: &mut Rng) -> Option<Hosts> {
    hosts(size, rng).filter(Hosts::is_blocked)
}

#[test]
fn allgatherv_places_blocks_of_any_lengths_anywhere() {
    for_sizes(&mut |size, tuning, mode, rng| {
        let Some(hosts) = hosts_in_order(size, rng) else {
            return;
        };
        let in_place = rng.bool();
        let bytes: Vec<usize> = (0..size).map(|_| rng.usize(..4)).collect();
        // Each rank has places of its own, forwards or backwards, with gaps.
        let places = |rank: u32| {
            let mut end = 0;
            let mut parts = vec![Part::default(); size as usize];
            for i in 0..size {
                let of = if rank.is_multiple_of(2) {
                    i
                } else {
                    size - 1 - i
                } as usize;
                parts[of] = Part {
                    start: end,
                    bytes: bytes[of] as u64,
                };
                end += bytes[of] as i64 + i64::from(rank.is_multiple_of(3));
            }
            (parts, end as usize)
        };
        let own = |rank: u32| row([(rank, 0)].into_iter(), bytes[rank as usize]);
        let processes = world(size, |Ranks { rank, .. }| {
            let (parts, end) = places(rank);
            let mut recv = vec![u64::MAX; end];
            if in_place {
                let start = parts[rank as usize].start as usize;
                recv[start..][..bytes[rank as usize]].copy_from_slice(&own(rank));
            }
            let send = if in_place { vec![] } else { own(rank) };
            let schedule = hosts_allgatherv(rank, &hosts, &parts, in_place, tuning);
            Process::new(schedule, (send, Layout::BYTE), (recv, Layout::BYTE))
        });
        for (rank, process) in (0..).zip(run_data(processes, None, mode, rng)) {
            let (parts, end) = places(rank);
            let mut wanted = vec![u64::MAX; end];
            for (of, part) in (0..).zip(&parts) {
                wanted[part.start as usize..][..part.bytes as usize].copy_from_slice(&own(of));
            }
            assert_eq!(process.recv, wanted, "rank {rank} of {size}");
        }
    });
}

/// Ranks in the order of their combination, and a hash of the expression.
#[derive(Debug, Clone, Default, PartialEq)]
struct Value {
    ranks: Rc<Vec<u16>>,
    expression: u64,
    at: usize,
}

impl Value {
    fn combine(left: &Value, right: &Value) -> Value {
        assert_eq!(left.at, right.at, "elements from different places");
        assert!(!left.ranks.is_empty() && !right.ranks.is_empty());
        let mut hasher = DefaultHasher::new();
        let (a, b) = (left.expression, right.expression);
        (a.min(b), a.max(b)).hash(&mut hasher);
        Value {
            ranks: Rc::new(
                left.ranks
                    .iter()
                    .chain(right.ranks.iter())
                    .copied()
                    .collect(),
            ),
            expression: hasher.finish(),
            at: left.at,
        }
    }

    fn check(&self, size: u32, at: usize, commutative: bool) {
        let mut ranks = self.ranks.to_vec();
        if commutative {
            ranks.sort_unstable();
        }
        assert!(ranks.iter().copied().eq(0..size as u16), "{:?}", self.ranks);
        assert_eq!(self.at, at);
    }
}

const LAYOUT: Layout = Layout { size: 1, extent: 2 };

fn operand(rank: u32, count: u64) -> Vec<Value> {
    let mut cells = vec![Value::default(); count as usize * LAYOUT.extent];
    for at in 0..count as usize {
        cells[LAYOUT.cell(0, at)] = Value {
            ranks: Rc::new(vec![rank as u16]),
            expression: u64::from(rank) + 1,
            at,
        };
    }
    cells
}

fn process(
    schedule: Schedule,
    rank: u32,
    count: u64,
    in_place: bool,
    result: bool,
) -> Process<Value> {
    let operand = operand(rank, count);
    let (send, recv) = match in_place {
        true => (vec![], operand),
        false => {
            let len = if result { operand.len() } else { 0 };
            (operand, vec![Value::default(); len])
        }
    };
    Process::new(schedule, (send, LAYOUT), (recv, LAYOUT))
}

fn reduction(size: u32, hosts: &Hosts, rng: &mut Rng) -> Reduction {
    let counts = [0, 1, u64::from(size), u64::from(size) * 2 + rng.u64(..9)];
    Reduction {
        count: counts[rng.usize(..4)],
        size: 1,
        commutative: !hosts.is_blocked() || rng.bool(),
    }
}

fn run_twice(
    build: &mut dyn FnMut() -> Vec<Process<Value>>,
    mode: Mode,
    rng: &mut Rng,
) -> Vec<Process<Value>> {
    let first = build();
    if first.len() > 11 {
        return run(first, None, &Value::combine, mode, rng);
    }
    first.iter().for_each(check_hazards);
    let again = run(build(), None, &Value::combine, mode, rng);
    let first = run(first, None, &Value::combine, mode, rng);
    for (a, b) in again.iter().zip(&first) {
        assert!(
            a.recv == b.recv,
            "the result depends on the order of events"
        );
    }
    first
}

#[test]
fn reduce_brings_the_result_to_the_root() {
    for_all(&mut |size, root, tuning, mode, rng| {
        let Some(hosts) = hosts(size, rng) else {
            return;
        };
        let what = reduction(size, &hosts, rng);
        let in_place = rng.bool();
        let mut build = || {
            world(size, |Ranks { rank, .. }| {
                let own = in_place && rank == root;
                let schedule = hosts_reduce(rank, &hosts, root, what, own, tuning);
                process(schedule, rank, what.count, own, rank == root)
            })
        };
        let result = run_twice(&mut build, mode, rng);
        for at in 0..what.count as usize {
            let value = &result[root as usize].recv[LAYOUT.cell(0, at)];
            value.check(size, at, what.commutative);
        }
    });
}

#[test]
fn allreduce_gives_everybody_the_same_bits() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for _ in 0..3 {
            let Some(hosts) = hosts(size, rng) else {
                return;
            };
            let what = reduction(size, &hosts, rng);
            let in_place = rng.bool();
            let mut build = || {
                world(size, |Ranks { rank, .. }| {
                    let schedule = hosts_allreduce(rank, &hosts, what, in_place, tuning);
                    process(schedule, rank, what.count, in_place, true)
                })
            };
            let result = run_twice(&mut build, mode, rng);
            for process in &result {
                for at in 0..what.count as usize {
                    let cell = LAYOUT.cell(0, at);
                    process.recv[cell].check(size, at, what.commutative);
                    let first = &result[0].recv[cell];
                    assert_eq!(process.recv[cell].expression, first.expression, "bits");
                }
            }
        }
    });
}

#[test]
fn reduce_scatter_gives_each_rank_its_part() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for _ in 0..3 {
            let Some(hosts) = hosts_in_order(size, rng) else {
                return;
            };
            let (in_place, commutative) = (rng.bool(), rng.bool());
            let counts: Vec<u64> = (0..size).map(|_| rng.u64(..4)).collect();
            let total: u64 = counts.iter().sum();
            let mut build = || {
                world(size, |Ranks { rank, .. }| {
                    let kind = (1, commutative);
                    let schedule =
                        hosts_reduce_scatter(rank, &hosts, &counts, kind, in_place, tuning);
                    process(schedule, rank, total, in_place, true)
                })
            };
            let result = run_twice(&mut build, mode, rng);
            let mut start = 0;
            for (process, &count) in result.iter().zip(&counts) {
                for at in 0..count as usize {
                    let value = &process.recv[LAYOUT.cell(0, at)];
                    value.check(size, start + at, commutative);
                }
                start += count as usize;
            }
        }
    });
}

#[test]
fn scans_combine_the_ranks_so_far_in_their_order() {
    for_sizes(&mut |size, tuning, mode, rng| {
        for excludes in [false, true] {
            let Some(hosts) = hosts_in_order(size, rng) else {
                return;
            };
            let what = reduction(size, &hosts, rng);
            let in_place = rng.bool();
            let mut build = || {
                world(size, |Ranks { rank, .. }| {
                    let ways = (in_place, excludes);
                    let schedule = hosts_scan(rank, &hosts, what, ways, tuning);
                    process(schedule, rank, what.count, in_place, true)
                })
            };
            let result = run_twice(&mut build, mode, rng);
            for (rank, process) in (0..).zip(&result) {
                let to = if excludes { rank } else { rank + 1 };
                for at in 0..what.count as usize {
                    let value = &process.recv[LAYOUT.cell(0, at)];
                    match to {
                        // Nothing comes to the first one.
                        0 if in_place => assert_eq!(*value.ranks, [0]),
                        0 => assert!(value.ranks.is_empty()),
                        _ => value.check(to, at, false),
                    }
                }
            }
        }
    });
}
