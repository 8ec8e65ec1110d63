//! Task reductions: each member's private copies of the variables that tasks reduce.
//!
//! The compiler registers a table for a taskgroup, a region or a work share. In tasks it asks for
//! the address of the copy of the member that executes the task. A table is, in words: the count of
//! variables, the size of one member's copies in bytes, their alignment, an allocator, the next
//! table, two words for the runtime; then three words for each variable: its address, the offset of
//! its copy, and one for the runtime. The runtime writes the copies' address over the alignment,
//! and their end into its second word.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_sys_threads::outlined::{Table, Zeroed};

const COUNT: usize = 0;
const SIZE: usize = 1;
const ALIGN_THEN_BASE: usize = 2;
const NEXT: usize = 4;
const END: usize = 6;
const FIRST: usize = 7;
const WORDS: usize = 3;

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
    /// Offset and original address of each variable.
    variables: Vec<(usize, usize)>,
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
        first: Table,
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
        while let Some(table) = next {
            let at = reductions.blocks.len();
            let size = table.get(SIZE);
            let (base, end, memory) = match made.and_then(|made| made.blocks.get(at)) {
                Some(block) => (block.base, block.end, block.memory.clone()),
                None => {
                    let bytes = size * members as usize;
                    let memory = Arc::new(Zeroed::new(bytes, table.get(ALIGN_THEN_BASE)));
                    let base = memory.address();
                    (base, base + bytes, Some(memory))
                }
            };
            table.set(ALIGN_THEN_BASE, base);
            table.set(END, end);
            let variables: Vec<(usize, usize)> = (0..table.get(COUNT))
                .map(|at| table.tail(FIRST + at * WORDS))
                .map(|entry| (entry.get(1), entry.get(0)))
                .collect();
            for &(offset, address) in &variables {
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
            next = table.follow(NEXT);
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
                let original = block.variables.iter().find(|variable| variable.0 == offset);
                return Some(FoundCopy {
                    address: block.base + index * block.size + offset,
                    original: original.map_or(0, |variable| variable.1),
                    offset,
                    table: block.table,
                });
            }
        }
        self.outer.as_ref()?.find(address, member)
    }

    /// Replaces each of the first `count` words, addresses of variables or of copies, by the
    /// address of the member's copy. The original addresses of the first `originals` of them go to
    /// the words from `count` on.
    ///
    /// # Errors
    /// The address that belongs to no reduction.
    pub fn remap(
        &self,
        words: Table,
        count: usize,
        originals: usize,
        member: u32,
    ) -> Result<(), usize> {
        for at in 0..count {
            let address = words.get(at);
            let found = self.find(address, member).ok_or(address)?;
            words.set(at, found.address);
            if at < originals {
                words.set(count + at, found.original);
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
    pub fn insert(&self, first: Table, reductions: &Arc<Reductions>) {
        self.lock().insert(first.address(), Arc::clone(reductions));
    }

    /// The program has combined the copies and needs them no longer. Returns the reductions.
    pub fn remove(&self, first: Table) -> Option<Arc<Reductions>> {
        self.lock().remove(&first.address())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Arc<Reductions>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
