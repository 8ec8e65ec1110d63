//! Grids and graphs.

use margay_core_group::{Cart, DistGraph, Edge, Graph, TopologyError, dims_create};

fn dims(processes: i64, mut dims: Vec<i64>) -> Vec<i64> {
    dims_create(processes, &mut dims).unwrap();
    dims
}

/// All non-increasing factorisations of `n`.
fn factorisations(n: i64, slots: usize, most: i64) -> Vec<Vec<i64>> {
    if slots == 0 {
        return if n == 1 { vec![vec![]] } else { vec![] };
    }
    let mut all = vec![];
    for f in (1..=n.min(most)).filter(|f| n % f == 0) {
        for mut tail in factorisations(n / f, slots - 1, f) {
            tail.insert(0, f);
            all.push(tail);
        }
    }
    all
}

#[test]
fn dims_are_as_close_as_possible() {
    for n in 1..=300 {
        for d in 1..=4 {
            let found = dims(n, vec![0; d]);
            let best = factorisations(n, d, n)
                .into_iter()
                .min_by_key(|f| {
                    let ascending: Vec<i64> = f.iter().rev().copied().collect();
                    (f[0] - f[d - 1], std::cmp::Reverse(ascending))
                })
                .unwrap();
            assert_eq!(found, best, "{n} in {d}");
        }
    }
}

#[test]
fn dims_of_the_standard_s_examples() {
    assert_eq!(dims(6, vec![0, 0]), [3, 2]);
    assert_eq!(dims(7, vec![0, 0]), [7, 1]);
    assert_eq!(dims(6, vec![0, 3, 0]), [2, 3, 1]);
    let mut given = [0, 3, 0];
    assert_eq!(
        dims_create(7, &mut given),
        Err(TopologyError::Indivisible {
            processes: 7,
            given: 3
        })
    );
    assert_eq!(
        dims_create(6, &mut [-1, 0]),
        Err(TopologyError::Dimension {
            dimension: 0,
            value: -1
        })
    );
    assert_eq!(
        dims_create(4, &mut [2, 3]),
        Err(TopologyError::Indivisible {
            processes: 4,
            given: 6
        })
    );
    assert_eq!(dims_create(1, &mut []), Ok(()));
    assert!(dims_create(2, &mut []).is_err());
}

#[test]
fn dims_of_large_numbers_are_found_at_once() {
    assert_eq!(dims(1 << 30, vec![0; 3]), [1 << 10; 3]);
    assert_eq!(
        dims(735_134_400, vec![0; 20]).iter().product::<i64>(),
        735_134_400
    );
    assert_eq!(dims(2_147_483_647, vec![0; 3]), [2_147_483_647, 1, 1]);
    assert_eq!(
        dims(367_567_200, vec![0; 6]).iter().product::<i64>(),
        367_567_200
    );
}

#[test]
fn ranks_are_numbered_by_rows() {
    let cart = Cart::new(&[3, 4, 2], &[true, false, true]).unwrap();
    assert_eq!(cart.size(), 24);
    for rank in 0..24 {
        let coords = cart.coords(rank).unwrap();
        assert_eq!(coords, [rank / 8, rank / 2 % 4, rank % 2]);
        assert_eq!(cart.rank(&coords), Ok(rank as u32));
    }
    assert_eq!(cart.rank(&[-1, 0, 5]), cart.rank(&[2, 0, 1]));
    assert_eq!(
        cart.rank(&[0, 4, 0]),
        Err(TopologyError::Coordinate {
            dimension: 1,
            value: 4,
            size: 4
        })
    );
    assert_eq!(
        cart.coords(24),
        Err(TopologyError::NoSuchRank { rank: 24, size: 24 })
    );
    assert_eq!((cart.map(23), cart.map(24)), (Some(23), None));
    assert_eq!(Cart::new(&[], &[]).unwrap().size(), 1);
    assert_eq!(
        Cart::new(&[2, 0], &[true, true]),
        Err(TopologyError::Dimension {
            dimension: 1,
            value: 0
        })
    );
    assert_eq!(
        Cart::new(&[1 << 20, 1 << 20], &[true, true]),
        Err(TopologyError::TooLarge)
    );
}

#[test]
fn shifts_wrap_or_end() {
    let cart = Cart::new(&[3, 4], &[true, false]).unwrap();
    assert_eq!(cart.shift(1, 0, 1), Ok((Some(9), Some(5))));
    assert_eq!(cart.shift(1, 0, -4), Ok((Some(5), Some(9))));
    assert_eq!(cart.shift(1, 1, 2), Ok((None, Some(3))));
    assert_eq!(cart.shift(1, 1, 0), Ok((Some(1), Some(1))));
    assert_eq!(cart.shift(0, 1, i64::MIN), Ok((None, None)));
    assert_eq!(
        cart.shift(0, 2, 1),
        Err(TopologyError::NoSuchDimension {
            dimension: 2,
            dimensions: 2
        })
    );
    assert_eq!(
        cart.neighbours(4),
        Ok(vec![Some(0), Some(8), None, Some(5)])
    );
}

#[test]
fn subgrids_partition_the_grid() {
    let cart = Cart::new(&[3, 4, 2], &[true, false, true]).unwrap();
    for remain in [
        [true, false, true],
        [false, false, false],
        [true, true, true],
        [false, true, false],
    ] {
        let mut seen = std::collections::HashSet::new();
        for rank in 0..24 {
            let (sub, colour, key) = cart.sub(rank, &remain).unwrap();
            let coords = cart.coords(rank).unwrap();
            let kept: Vec<i64> = (0..3).filter(|&d| remain[d]).map(|d| coords[d]).collect();
            assert_eq!(sub.coords(i64::from(key)).unwrap(), kept);
            assert!(seen.insert((colour, key)), "two ranks with one place");
            assert!(colour < 24 / sub.size());
        }
    }
}

#[test]
fn graphs_list_neighbours() {
    // The standard's example 8.3.
    let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
    assert_eq!(graph.nodes(), 4);
    assert_eq!(graph.neighbours(0).unwrap(), [1, 3]);
    assert_eq!(graph.neighbours(2).unwrap(), [3]);
    assert_eq!(graph.neighbours(3).unwrap(), [0, 2]);
    assert_eq!(
        graph.neighbours(4),
        Err(TopologyError::NoSuchRank { rank: 4, size: 4 })
    );
    assert_eq!(
        Graph::new(&[2, 1], &[0, 1]),
        Err(TopologyError::Index { node: 1, value: 1 })
    );
    assert_eq!(
        Graph::new(&[1, 1], &[0, 1]),
        Err(TopologyError::Index { node: 1, value: 1 })
    );
    assert_eq!(
        Graph::new(&[1, 2], &[0, 2]),
        Err(TopologyError::EdgeTarget {
            position: 1,
            value: 2,
            nodes: 2
        })
    );
    assert!(Graph::new(&[], &[]).is_ok());
}

#[test]
fn distributed_graphs_keep_the_order_of_edges() {
    let edges = [(0, 1, 5), (1, 1, 6), (2, 1, 7), (1, 0, 8)];
    let edges = || {
        edges.map(|(source, destination, weight)| Edge {
            source,
            destination,
            weight,
        })
    };
    let graph = DistGraph::from_edges(1, true, edges());
    assert_eq!(
        (graph.sources, graph.source_weights),
        (vec![0, 1, 2], vec![5, 6, 7])
    );
    assert_eq!(
        (graph.destinations, graph.destination_weights),
        (vec![1, 0], vec![6, 8])
    );
    assert!(
        DistGraph::from_edges(1, false, edges())
            .source_weights
            .is_empty()
    );
}
