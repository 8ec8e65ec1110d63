//! Binomial trees over virtual ranks: the root is 0, and the parent of `v` is `v` without its
//! lowest set bit, so that the descendants of `v` are the ranks that follow it.

use crate::args::Ranks;
use crate::schedule::Peer;

/// A process's place in a binomial tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree {
    pub v: u32,
    root: u32,
    size: u32,
}

impl Tree {
    pub fn new(ranks: Ranks, root: u32) -> Tree {
        Tree {
            v: (ranks.rank + ranks.size - root) % ranks.size,
            root,
            size: ranks.size,
        }
    }

    /// The process at a virtual rank, which may exceed the size by less than the size.
    pub fn peer(&self, v: u32) -> Peer {
        Peer::Local(self.rank(v))
    }

    /// The rank at a virtual rank.
    pub fn rank(&self, v: u32) -> u32 {
        (v % self.size + self.root) % self.size
    }

    pub fn parent(&self) -> Option<u32> {
        (self.v != 0).then(|| self.v & (self.v - 1))
    }

    /// Children, the one with the fewest descendants first.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let Tree { v, size, .. } = *self;
        let most = if v == 0 {
            size.next_power_of_two().ilog2()
        } else {
            v.trailing_zeros()
        };
        (0..most)
            .map(move |bit| v + (1 << bit))
            .filter(move |&child| child < size)
    }

    /// Processes in the subtree of virtual rank `v`, which are `v .. v + descendants(v)`.
    pub fn descendants(&self, v: u32) -> u32 {
        if v == 0 {
            self.size
        } else {
            (1 << v.trailing_zeros()).min(self.size - v)
        }
    }
}
