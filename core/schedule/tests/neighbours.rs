//! Neighbourhood collectives in grids and graphs.

mod sim;

use fastrand::Rng;
use margay_core_schedule::{
    Block, Neighbourhood, Part, neighbor_allgather, neighbor_allgatherv, neighbor_alltoall,
    neighbor_alltoallv, neighbor_alltoallw,
};
use sim::{Layout, Mode, Process, run_data};

/// A process's neighbours, and for each source the (process, index of the block there) that it
/// gets.
struct Node {
    neighbours: Neighbourhood,
    from: Vec<Option<(usize, usize)>>,
}

/// A grid of up to 3 dimensions, small ones wrapped around often, by the definition: what a process
/// sends to the one before arrives there as from the one after.
fn grid(rng: &mut Rng) -> Vec<Node> {
    let dims: Vec<usize> = (0..1 + rng.usize(..3))
        .map(|_| 1 + rng.usize(..4))
        .collect();
    let periodic: Vec<bool> = dims.iter().map(|_| rng.usize(..3) > 0).collect();
    let size: usize = dims.iter().product();
    (0..size)
        .map(|rank| {
            let mut list = vec![];
            let mut stride = size;
            for (d, &n) in dims.iter().enumerate() {
                stride /= n;
                let coord = rank / stride % n;
                let at = |c: usize| rank - coord * stride + c * stride;
                let wrap = |inside: bool, c: usize| (inside || periodic[d]).then(|| at(c));
                list.push(wrap(coord > 0, (coord + n - 1) % n));
                list.push(wrap(coord + 1 < n, (coord + 1) % n));
            }
            let ranks: Vec<Option<u32>> = list.iter().map(|p| p.map(|p| p as u32)).collect();
            let from = list
                .iter()
                .enumerate()
                .map(|(i, p)| p.map(|p| (p, i ^ 1)))
                .collect();
            Node {
                neighbours: Neighbourhood::cartesian(&ranks),
                from,
            }
        })
        .collect()
}

/// A random graph with multiple edges and edges to oneself.
fn graph(rng: &mut Rng) -> Vec<Node> {
    let size = 1 + rng.usize(..9);
    let edges: Vec<(usize, usize)> = (0..rng.usize(..4 * size))
        .map(|_| (rng.usize(..size), rng.usize(..size)))
        .collect();
    (0..size)
        .map(|rank| {
            let sources: Vec<u32> = edges
                .iter()
                .filter(|e| e.1 == rank)
                .map(|e| e.0 as u32)
                .collect();
            let destinations: Vec<u32> = edges
                .iter()
                .filter(|e| e.0 == rank)
                .map(|e| e.1 as u32)
                .collect();
            // The index of an edge among those that leave its source.
            let index = |i: usize| edges[..i].iter().filter(|e| e.0 == edges[i].0).count();
            let into = (0..edges.len()).filter(|&i| edges[i].1 == rank);
            let from = into.map(|i| Some((edges[i].0, index(i)))).collect();
            Node {
                neighbours: Neighbourhood::graph(&sources, &destinations),
                from,
            }
        })
        .collect()
}

fn value(process: usize, block: usize, at: usize) -> u64 {
    (process * 1_000_000 + block * 1000 + at) as u64
}

/// Bytes of block `block` of `process`, unless all are equal.
fn bytes(process: usize, block: usize) -> usize {
    Rng::with_seed((process * 100 + block) as u64).usize(..4)
}

fn parts(sizes: &[usize]) -> (Vec<Part>, usize) {
    let mut start = 0;
    let part = |&n: &usize| {
        start += n + 1;
        Part {
            start: (start - n - 1) as i64,
            bytes: n as u64,
        }
    };
    (sizes.iter().map(part).collect(), start)
}

#[test]
fn neighbours_exchange_by_edge() {
    for seed in 0..if cfg!(miri) { 2 } else { 400 } {
        let mut rng = Rng::with_seed(seed);
        let nodes = if seed % 2 == 0 {
            grid(&mut rng)
        } else {
            graph(&mut rng)
        };
        let mode = if seed % 4 < 2 {
            Mode::Rendezvous
        } else {
            Mode::Buffered
        };
        for form in 0..5 {
            let gather = form < 2;
            let equal = matches!(form, 0 | 2).then_some(3);
            let block_of = |i: usize| if gather { 0 } else { i };
            let size = |process: usize, block: usize| {
                equal.unwrap_or_else(|| bytes(process, block_of(block)))
            };
            let mut expected = vec![];
            let world = nodes
                .iter()
                .enumerate()
                .map(|(rank, node)| {
                    let out: Vec<usize> = (0..node.neighbours.destinations())
                        .map(|i| size(rank, i))
                        .collect();
                    let into: Vec<usize> = node
                        .from
                        .iter()
                        .map(|f| f.map_or(equal.unwrap_or(2), |(p, b)| size(p, b)))
                        .collect();
                    assert_eq!(into.len(), node.neighbours.sources());
                    let ((send, send_len), (recv, recv_len)) = (parts(&out), parts(&into));
                    let block = Block { count: 4, bytes: 3 };
                    let own = size(rank, 0);
                    let schedule = match form {
                        0 => neighbor_allgather(&node.neighbours, own as u64, block),
                        1 => neighbor_allgatherv(&node.neighbours, own as u64, &recv),
                        2 => neighbor_alltoall(&node.neighbours, block, block),
                        3 => neighbor_alltoallv(&node.neighbours, &send, &recv),
                        _ => neighbor_alltoallw(&node.neighbours, &send, &recv),
                    };
                    let mut source = vec![u64::MAX; send_len.max(own)];
                    if gather {
                        (0..own).for_each(|at| source[at] = value(rank, 0, at));
                    } else {
                        for (i, part) in send.iter().enumerate() {
                            (0..out[i]).for_each(|at| {
                                source[part.start as usize + at] = value(rank, i, at)
                            });
                        }
                    }
                    let mut wanted = vec![u64::MAX; recv_len];
                    for ((part, from), n) in recv.iter().zip(&node.from).zip(&into) {
                        if let Some((process, block)) = *from {
                            let cells = wanted[part.start as usize..]
                                .iter_mut()
                                .take(*n)
                                .enumerate();
                            cells
                                .for_each(|(at, cell)| *cell = value(process, block_of(block), at));
                        }
                    }
                    expected.push(wanted);
                    let target = (vec![u64::MAX; recv_len], Layout::BYTE);
                    let mut process = Process::new(schedule, (source, Layout::BYTE), target);
                    process.send_types = vec![Layout::BYTE; out.len()];
                    process.recv_types = vec![Layout::BYTE; into.len()];
                    process
                })
                .collect();
            for (process, wanted) in run_data(world, None, mode, &mut rng).iter().zip(expected) {
                assert_eq!(process.recv, wanted, "form {form}, seed {seed}");
            }
        }
    }
}
