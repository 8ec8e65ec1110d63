//! Ordered sets of processes.

use std::sync::Arc;

use crate::error::GroupError;

/// An ordered set of processes. Cheap to clone, and safe to share between threads.
///
/// A group whose processes are equally spaced (the world, its halves, rows and columns of a grid)
/// takes constant memory; any other 12 bytes for each process. A rank is translated to its process
/// in constant time, a process to its rank in constant or logarithmic time.
#[derive(Debug, Clone)]
pub struct Group {
    members: Members,
}

#[derive(Debug, Clone)]
enum Members {
    /// `first`, `first + stride`, ...; `stride` is 1 for at most one process.
    Strided {
        first: u32,
        stride: i64,
        size: u32,
    },
    Listed(Arc<Listed>),
}

#[derive(Debug)]
struct Listed {
    processes: Box<[u32]>,
    /// (process, rank), ascending.
    ranks: Box<[(u32, u32)]>,
}

/// The result of comparing groups (`MPI_Group_compare`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The same processes in the same order.
    Identical,
    /// The same processes in another order.
    Similar,
    Unequal,
}

impl Group {
    /// The group without processes.
    pub fn empty() -> Group {
        Group::range(0, 0)
    }

    /// Processes `first` to `first + size - 1`, in this order.
    pub fn range(first: u32, size: u32) -> Group {
        Group {
            members: Members::Strided {
                first,
                stride: 1,
                size,
            },
        }
    }

    /// The given processes in the given order; each may occur once.
    pub fn from_processes(processes: Vec<u32>) -> Result<Group, GroupError> {
        if let Some(group) = Group::strided(&processes) {
            return Ok(group);
        }
        let mut ranks: Vec<(u32, u32)> = processes
            .iter()
            .enumerate()
            .map(|(rank, &p)| (p, rank as u32))
            .collect();
        ranks.sort_unstable();
        if let Some(pair) = ranks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(GroupError::DuplicateProcess { process: pair[0].0 });
        }
        let listed = Listed {
            processes: processes.into(),
            ranks: ranks.into(),
        };
        Ok(Group {
            members: Members::Listed(Arc::new(listed)),
        })
    }

    /// Number of processes.
    #[inline]
    pub fn size(&self) -> u32 {
        match &self.members {
            Members::Strided { size, .. } => *size,
            Members::Listed(listed) => listed.processes.len() as u32,
        }
    }

    /// The process of a rank.
    #[inline]
    pub fn process(&self, rank: u32) -> Option<u32> {
        match &self.members {
            Members::Strided {
                first,
                stride,
                size,
            } => (rank < *size).then(|| (i64::from(*first) + i64::from(rank) * stride) as u32),
            Members::Listed(listed) => listed.processes.get(rank as usize).copied(),
        }
    }

    /// The rank of a process.
    #[inline]
    pub fn rank(&self, process: u32) -> Option<u32> {
        match &self.members {
            Members::Strided {
                first,
                stride,
                size,
            } => {
                let distance = i64::from(process) - i64::from(*first);
                // The usual case needs no division.
                let rank = if *stride == 1 {
                    distance
                } else if distance % stride == 0 {
                    distance / stride
                } else {
                    return None;
                };
                (0..i64::from(*size)).contains(&rank).then_some(rank as u32)
            }
            Members::Listed(listed) => {
                let at = listed
                    .ranks
                    .binary_search_by_key(&process, |&(p, _)| p)
                    .ok()?;
                Some(listed.ranks[at].1)
            }
        }
    }

    /// The processes in rank order.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        (0..self.size()).map(|rank| self.process(rank).expect("a rank of the group"))
    }

    /// The rank in `other` of the process that has `rank` here (`MPI_Group_translate_ranks`);
    /// `None` when `other` does not have it.
    pub fn translate(&self, rank: u32, other: &Group) -> Option<u32> {
        other.rank(self.process(rank)?)
    }

    /// Whether the groups have the same processes, in the same order.
    pub fn compare(&self, other: &Group) -> Comparison {
        if self.size() != other.size() {
            Comparison::Unequal
        } else if self.processes().eq(other.processes()) {
            Comparison::Identical
        } else if self.processes().all(|p| other.rank(p).is_some()) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// All processes of this group, then those of `other` that are not here.
    pub fn union(&self, other: &Group) -> Group {
        let more = other.processes().filter(|&p| self.rank(p).is_none());
        Group::from_distinct(self.processes().chain(more).collect())
    }

    /// The processes of this group that `other` has too, in this group's order.
    pub fn intersection(&self, other: &Group) -> Group {
        Group::from_distinct(
            self.processes()
                .filter(|&p| other.rank(p).is_some())
                .collect(),
        )
    }

    /// The processes of this group that `other` has not, in this group's order.
    pub fn difference(&self, other: &Group) -> Group {
        Group::from_distinct(
            self.processes()
                .filter(|&p| other.rank(p).is_none())
                .collect(),
        )
    }

    /// The processes of the given ranks, in the given order (`MPI_Group_incl`).
    pub fn incl(&self, ranks: &[i64]) -> Result<Group, GroupError> {
        self.mark(ranks.iter().copied().enumerate())?;
        Ok(self.pick(ranks.iter().copied()))
    }

    /// The processes of all other ranks (`MPI_Group_excl`).
    pub fn excl(&self, ranks: &[i64]) -> Result<Group, GroupError> {
        let marked = self.mark(ranks.iter().copied().enumerate())?;
        Ok(self.pick((0..i64::from(self.size())).filter(|&rank| !marked[rank as usize])))
    }

    /// [`Group::incl`] of the ranks that the triples (first, last, stride) describe.
    pub fn range_incl(&self, ranges: &[[i64; 3]]) -> Result<Group, GroupError> {
        let ranks = self.expand(ranges)?;
        self.mark(ranks.iter().copied())?;
        Ok(self.pick(ranks.iter().map(|&(_, rank)| rank)))
    }

    /// [`Group::excl`] of the ranks that the triples (first, last, stride) describe.
    pub fn range_excl(&self, ranges: &[[i64; 3]]) -> Result<Group, GroupError> {
        let marked = self.mark(self.expand(ranges)?.into_iter())?;
        Ok(self.pick((0..i64::from(self.size())).filter(|&rank| !marked[rank as usize])))
    }

    /// The ranks of triples, each with the triple's position.
    fn expand(&self, ranges: &[[i64; 3]]) -> Result<Vec<(usize, i64)>, GroupError> {
        let size = self.size();
        let mut ranks = Vec::new();
        for (index, &[first, last, stride]) in ranges.iter().enumerate() {
            if stride == 0 || (first < last && stride < 0) || (first > last && stride > 0) {
                return Err(GroupError::Stride {
                    index,
                    first,
                    last,
                    stride,
                });
            }
            // Checked before expanding, which bounds the list.
            let steps = (i128::from(last) - i128::from(first)) / i128::from(stride);
            let end = (i128::from(first) + steps * i128::from(stride)) as i64;
            for rank in [first, end] {
                if rank < 0 || rank >= i64::from(size) {
                    return Err(GroupError::NoSuchRank { index, rank, size });
                }
            }
            ranks.extend((0..=steps as i64).map(|step| (index, first + step * stride)));
        }
        Ok(ranks)
    }

    /// Checks ranks, given with the position to report, and marks them.
    fn mark(&self, ranks: impl Iterator<Item = (usize, i64)>) -> Result<Vec<bool>, GroupError> {
        let size = self.size();
        let mut marked = vec![false; size as usize];
        for (index, rank) in ranks {
            match usize::try_from(rank)
                .ok()
                .and_then(|rank| marked.get_mut(rank))
            {
                None => return Err(GroupError::NoSuchRank { index, rank, size }),
                Some(mark) if *mark => return Err(GroupError::DuplicateRank { index, rank }),
                Some(mark) => *mark = true,
            }
        }
        Ok(marked)
    }

    /// The processes of checked ranks.
    fn pick(&self, ranks: impl Iterator<Item = i64>) -> Group {
        Group::from_distinct(
            ranks
                .map(|rank| self.process(rank as u32).expect("a checked rank"))
                .collect(),
        )
    }

    fn from_distinct(processes: Vec<u32>) -> Group {
        Group::from_processes(processes).expect("processes of a group are distinct")
    }

    /// The constant-size form of equally spaced processes.
    fn strided(processes: &[u32]) -> Option<Group> {
        let first = processes.first().copied().unwrap_or(0);
        let stride = match processes {
            [a, b, ..] => i64::from(*b) - i64::from(*a),
            _ => 1,
        };
        let spaced = processes
            .windows(2)
            .all(|pair| i64::from(pair[1]) - i64::from(pair[0]) == stride);
        let size = processes.len() as u32;
        (stride != 0 && spaced).then_some(Group {
            members: Members::Strided {
                first,
                stride,
                size,
            },
        })
    }
}
