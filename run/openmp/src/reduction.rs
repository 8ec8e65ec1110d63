//! Task reductions: each member's private copies of the variables that tasks reduce.
//!
//! The compiler registers a table for a taskgroup, a region or a work share, and asks in tasks where the copy of the member
//! that executes it is. A table is, in words: the count of variables, the size of one member's copies in bytes, their
//! alignment, an allocator, the next table, two words for the runtime; then for each variable three words: its address, the
//! offset of its copy, and one for the runtime. The runtime puts the copies' address in the place of the alignment, and
//! their end in the second word of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use margay_sys_threads::outlined::{Table, Zeroed};

const COUNT: usize = 0;
const SIZE: usize = 1;
const ALIGN_THEN_BASE: usize = 2;
const NEXT: usize = 4;
const END: usize = 6;
const FIRST: usize = 7;
const WORDS: usize = 3;

/// The reductions that are in force for a task; those of an outer construct are reached through the inner ones.
#[derive(Debug)]
pub struct Reductions {
    by_address: HashMap<usize, Copies>,
    blocks: Vec<Block>,
    outer: Option<Arc<Reductions>>,
}

/// All members' copies for one table.
#[derive(Clone, Debug)]
struct Block {
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
    base: usize,
    size: usize,
    offset: usize,
}

/// What is registered by the address of its first table, for those that the program unregisters.
static REGISTERED: Mutex<Option<HashMap<usize, Arc<Reductions>>>> = Mutex::new(None);

impl Reductions {
    /// Registers the tables from `first` on for a team of `members`; with copies of their own or, if given, those that
    /// another member has made for its tables of the same construct.
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
                reductions
                    .by_address
                    .insert(address, Copies { base, size, offset });
            }
            reductions.blocks.push(Block {
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

    /// Those of the construct outside.
    #[must_use]
    pub fn outer(&self) -> Option<Arc<Reductions>> {
        self.outer.clone()
    }

    /// Where member `member`'s copy is of the variable at `address`, which may also be that of another member's copy; and the
    /// variable's original address.
    fn find(&self, address: usize, member: u32) -> Option<(usize, usize)> {
        let index = member as usize;
        if let Some(copies) = self.by_address.get(&address) {
            return Some((copies.base + index * copies.size + copies.offset, address));
        }
        for block in &self.blocks {
            if (block.base..block.end).contains(&address) {
                let offset = (address - block.base) % block.size;
                let copy = block.base + index * block.size + offset;
                let original = block.variables.iter().find(|variable| variable.0 == offset);
                return Some((copy, original.map_or(0, |variable| variable.1)));
            }
        }
        self.outer.as_ref()?.find(address, member)
    }

    /// Replaces each of the first `count` words, addresses of variables or of copies, by the address of the member's copy; for
    /// the first `originals` of them, the original addresses go to the words from `count` on.
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
            let (copy, original) = self.find(address, member).ok_or(address)?;
            words.set(at, copy);
            if at < originals {
                words.set(count + at, original);
            }
        }
        Ok(())
    }
}

/// Keeps reductions until the program unregisters their first table.
pub fn keep(first: Table, reductions: &Arc<Reductions>) {
    REGISTERED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(first.address(), Arc::clone(reductions));
}

/// The program has combined the copies and needs them no longer. Returns what was registered.
pub fn release(first: Table) -> Option<Arc<Reductions>> {
    REGISTERED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_mut()?
        .remove(&first.address())
}
