//! Task reductions: each member's private copies of the variables that tasks reduce.
//!
//! The compiler registers a table ([`ReductionTable`]) for a taskgroup, a region or a work share.
//! In tasks it asks for the address of the copy of the member that executes the task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_sys_threads::outlined::Zeroed;
use margay_sys_threads::reduction_table::{ReductionTable, Variable};

/// The reductions that are in force for a task. Those of outer constructs are linked from the inner
/// ones.
#[derive(Debug)]
pub struct Reductions {
    by_address: HashMap<usize, Copies>,
    blocks: Vec<Block>,
    outer: Option<Arc<Reductions>>,
}

/// All members' copies for one table.
#[derive(Clone, Debug)]
struct Block {
    /// Where the program's table is.
    table: usize,
    base: usize,
    end: usize,
    /// Bytes of one member.
    size: usize,
    variables: Vec<Variable>,
    memory: Option<Arc<Zeroed>>,
}

#[derive(Clone, Copy, Debug)]
struct Copies {
    table: usize,
    base: usize,
    size: usize,
    offset: usize,
}

/// A member's copy of a variable.
#[derive(Clone, Copy, Debug)]
pub struct FoundCopy {
    pub address: usize,
    /// The address of the variable itself.
    pub original: usize,
    /// The copy's offset in what the member has.
    pub offset: usize,
    /// The address of the table that the program has registered.
    pub table: usize,
}

impl Reductions {
    /// Registers the tables from `first` on for a team of `members`. The copies are `made` by
    /// another member for its tables of the same construct or, without one, new.
    #[must_use]
    pub fn new(
        first: ReductionTable<'_>,
        members: u32,
        made: Option<&Reductions>,
        outer: Option<Arc<Reductions>>,
    ) -> Arc<Reductions> {
        let mut reductions = Reductions {
            by_address: HashMap::new(),
            blocks: Vec::new(),
            outer,
        };
        let mut next = Some(first);
        while let Some(mut table) = next {
            let at = reductions.blocks.len();
            let size = table.size();
            let (base, end, memory) = match made.and_then(|made| made.blocks.get(at)) {
                Some(block) => (block.base, block.end, block.memory.clone()),
                None => {
                    let bytes = size * members as usize;
                    let memory = Arc::new(Zeroed::new(bytes, table.align()));
                    let base = memory.address();
                    (base, base + bytes, Some(memory))
                }
            };
            table.set_copies(base, end);
            let variables: Vec<Variable> = table.variables().collect();
            for &Variable { offset, address } in &variables {
                reductions.by_address.insert(
                    address,
                    Copies {
                        table: table.address(),
                        base,
                        size,
                        offset,
                    },
                );
            }
            reductions.blocks.push(Block {
                table: table.address(),
                base,
                end,
                size,
                variables,
                memory,
            });
            next = table.next();
        }
        Arc::new(reductions)
    }

    /// The reductions of the enclosing construct.
    #[must_use]
    pub fn outer(&self) -> Option<Arc<Reductions>> {
        self.outer.clone()
    }

    /// The address of a member's copy of the variable at `address`, which may be the original or
    /// any member's copy.
    pub(crate) fn find(&self, address: usize, member: u32) -> Option<FoundCopy> {
        let index = member as usize;
        if let Some(copies) = self.by_address.get(&address) {
            let own = copies.base + index * copies.size;
            return Some(FoundCopy {
                address: own + copies.offset,
                original: address,
                offset: copies.offset,
                table: copies.table,
            });
        }
        for block in &self.blocks {
            if (block.base..block.end).contains(&address) {
                let offset = (address - block.base) % block.size;
                let original = block.variables.iter().find(|v| v.offset == offset);
                return Some(FoundCopy {
                    address: block.base + index * block.size + offset,
                    original: original.map_or(0, |variable| variable.address),
                    offset,
                    table: block.table,
                });
            }
        }
        self.outer.as_ref()?.find(address, member)
    }

    /// Replaces each of the first `count` words, addresses of variables or of copies, by the
    /// address of the member's copy. The original addresses of the first of them go to the words
    /// behind those.
    ///
    /// # Errors
    /// The address that belongs to no reduction.
    ///
    /// # Panics
    /// When there are fewer than `count` words.
    pub fn remap(&self, words: &mut [usize], count: usize, member: u32) -> Result<(), usize> {
        let (addresses, originals) = words.split_at_mut(count);
        let mut originals = originals.iter_mut();
        for word in addresses {
            let found = self.find(*word, member).ok_or(*word)?;
            *word = found.address;
            if let Some(original) = originals.next() {
                *original = found.original;
            }
        }
        Ok(())
    }
}

/// The reductions that the program will unregister, by the addresses of their first tables.
#[derive(Debug, Default)]
pub struct RegisteredReductions(Mutex<HashMap<usize, Arc<Reductions>>>);

impl RegisteredReductions {
    /// Keeps reductions until the program unregisters their first table.
    pub fn insert(&self, first: usize, reductions: &Arc<Reductions>) {
        self.lock().insert(first, Arc::clone(reductions));
    }

    /// The program has combined the copies and needs them no longer. Returns the reductions.
    pub fn remove(&self, first: usize) -> Option<Arc<Reductions>> {
        self.lock().remove(&first)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Arc<Reductions>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
