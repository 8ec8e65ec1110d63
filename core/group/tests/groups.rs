//! Groups against plain lists.

use margay_core_group::{Comparison, Group, GroupError};

fn group(processes: &[u32]) -> Group {
    Group::from_processes(processes.to_vec()).unwrap()
}

fn list(group: &Group) -> Vec<u32> {
    group.processes().collect()
}

/// Lists of several shapes: equally spaced up and down, with gaps, shuffled, single, empty.
fn samples() -> Vec<Vec<u32>> {
    vec![
        vec![],
        vec![7],
        (0..10).collect(),
        (0..10).rev().collect(),
        (3..40).step_by(4).collect(),
        vec![5, 1, 9, 0, 33],
        vec![0, 1, 2, 4],
        (0..64).map(|i| i * 29 % 64).collect(),
        vec![u32::MAX, 0],
        vec![u32::MAX - 1, u32::MAX],
    ]
}

#[test]
fn ranks_and_processes_are_inverse() {
    for processes in samples() {
        let g = group(&processes);
        assert_eq!(
            (g.size() as usize, list(&g)),
            (processes.len(), processes.clone())
        );
        assert_eq!(g.process(g.size()), None);
        for process in (0..70).chain([u32::MAX - 1, u32::MAX]) {
            let rank = processes
                .iter()
                .position(|&p| p == process)
                .map(|r| r as u32);
            assert_eq!(g.rank(process), rank, "{process} in {processes:?}");
        }
    }
}

#[test]
fn set_operations_keep_the_standard_s_order() {
    for a in samples() {
        for b in samples() {
            let (ga, gb) = (group(&a), group(&b));
            let mut union = a.clone();
            union.extend(b.iter().filter(|p| !a.contains(p)));
            assert_eq!(list(&ga.union(&gb)), union);
            let common: Vec<u32> = a.iter().copied().filter(|p| b.contains(p)).collect();
            assert_eq!(list(&ga.intersection(&gb)), common);
            let only: Vec<u32> = a.iter().copied().filter(|p| !b.contains(p)).collect();
            assert_eq!(list(&ga.difference(&gb)), only);
            let expected = if a == b {
                Comparison::Identical
            } else if common.len() == a.len() && a.len() == b.len() {
                Comparison::Similar
            } else {
                Comparison::Unequal
            };
            assert_eq!(ga.compare(&gb), expected, "{a:?} and {b:?}");
            for (rank, process) in a.iter().enumerate() {
                let there = b.iter().position(|p| p == process).map(|r| r as u32);
                assert_eq!(ga.translate(rank as u32, &gb), there);
            }
        }
    }
}

#[test]
fn including_and_excluding() {
    let g = group(&[5, 1, 9, 0, 33]);
    assert_eq!(list(&g.incl(&[4, 0, 2]).unwrap()), [33, 5, 9]);
    assert_eq!(list(&g.incl(&[]).unwrap()), []);
    assert_eq!(list(&g.excl(&[4, 0, 2]).unwrap()), [1, 0]);
    assert_eq!(list(&g.excl(&[]).unwrap()), list(&g));
    assert_eq!(
        g.incl(&[0, 5]).unwrap_err(),
        GroupError::NoSuchRank {
            index: 1,
            rank: 5,
            size: 5
        }
    );
    assert_eq!(
        g.excl(&[-1]).unwrap_err(),
        GroupError::NoSuchRank {
            index: 0,
            rank: -1,
            size: 5
        }
    );
    assert_eq!(
        g.incl(&[3, 1, 3]).unwrap_err(),
        GroupError::DuplicateRank { index: 2, rank: 3 }
    );
    assert_eq!(
        Group::from_processes(vec![3, 1, 3]).unwrap_err(),
        GroupError::DuplicateProcess { process: 3 }
    );
    assert_eq!(
        Group::empty().incl(&[0]).unwrap_err().to_string(),
        "entry 0 is rank 0; the group is empty and has no ranks"
    );
}

#[test]
fn ranges() {
    let g = Group::range(100, 20);
    assert_eq!(
        list(
            &g.range_incl(&[[6, 10, 2], [19, 15, -3], [0, 0, 5]])
                .unwrap()
        ),
        [106, 108, 110, 119, 116, 100]
    );
    assert_eq!(list(&g.range_excl(&[[1, 18, 1]]).unwrap()), [100, 119]);
    // The last rank need not be reached, nor exist.
    assert_eq!(list(&g.range_incl(&[[15, 22, 4]]).unwrap()), [115, 119]);
    for (range, error) in [
        (
            [0, 5, 0],
            GroupError::Stride {
                index: 0,
                first: 0,
                last: 5,
                stride: 0,
            },
        ),
        (
            [0, 5, -1],
            GroupError::Stride {
                index: 0,
                first: 0,
                last: 5,
                stride: -1,
            },
        ),
        (
            [5, 0, 1],
            GroupError::Stride {
                index: 0,
                first: 5,
                last: 0,
                stride: 1,
            },
        ),
        (
            [18, 20, 1],
            GroupError::NoSuchRank {
                index: 0,
                rank: 20,
                size: 20,
            },
        ),
        (
            [-1, 3, 1],
            GroupError::NoSuchRank {
                index: 0,
                rank: -1,
                size: 20,
            },
        ),
        (
            [0, i64::MAX, 1],
            GroupError::NoSuchRank {
                index: 0,
                rank: i64::MAX,
                size: 20,
            },
        ),
    ] {
        assert_eq!(g.range_incl(&[range]).unwrap_err(), error);
    }
    assert_eq!(
        g.range_excl(&[[0, 4, 2], [4, 8, 4]]).unwrap_err(),
        GroupError::DuplicateRank { index: 1, rank: 4 }
    );
}
