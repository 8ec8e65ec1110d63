//! The tables by which a compiler registers reductions of tasks, in the program's memory.
//!
//! A table is, in words: the count of variables, the size of one member's copies in bytes, their
//! alignment, an allocator, the next table, two words for the runtime; then three words for each
//! variable: its address, the offset of its copy, and one for the runtime. The runtime writes the
//! copies' address over the alignment, and their end into its second word. The layout is known here
//! alone, so no index from outside reaches beyond a table.

use std::marker::PhantomData;

const COUNT: usize = 0;
const SIZE: usize = 1;
const ALIGN_THEN_BASE: usize = 2;
const NEXT: usize = 4;
const END: usize = 6;
const FIRST: usize = 7;
const WORDS: usize = 3;

/// A table of reductions, for the time of the call that registers it.
#[derive(Debug)]
pub struct ReductionTable<'c> {
    words: *mut usize,
    call: PhantomData<&'c mut usize>,
}

/// A variable of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Of the copy, in what a member has.
    pub offset: usize,
    /// Of the variable itself.
    pub address: usize,
}

impl<'c> ReductionTable<'c> {
    /// Takes the program's word.
    ///
    /// # Safety
    /// As long as `'c` lasts, there is a table at `at` that can be read and written, and so are the
    /// tables to which it refers one after the other, the last one to none. Nobody else writes
    /// there.
    #[must_use]
    pub unsafe fn claim(at: *mut usize) -> ReductionTable<'c> {
        ReductionTable {
            words: at,
            call: PhantomData,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> usize {
        self.words as usize
    }

    /// Bytes of one member's copies.
    #[must_use]
    pub fn size(&self) -> usize {
        // SAFETY: a word of the head.
        unsafe { self.word(SIZE) }
    }

    /// The alignment of the copies, until they are entered.
    #[must_use]
    pub fn align(&self) -> usize {
        // SAFETY: as above.
        unsafe { self.word(ALIGN_THEN_BASE) }
    }

    /// Enters where the copies begin and end.
    pub fn set_copies(&mut self, base: usize, end: usize) {
        // SAFETY: by the promise of `claim`: words of the table.
        unsafe {
            self.words.add(ALIGN_THEN_BASE).write(base);
            self.words.add(END).write(end);
        }
    }

    /// The variables.
    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        // SAFETY: a word of the head.
        let count = unsafe { self.word(COUNT) };
        (0..count).map(|at| {
            let first = FIRST + at * WORDS;
            // SAFETY: the words of a variable, of which the table has as many as it says.
            let (address, offset) = unsafe { (self.word(first), self.word(first + 1)) };
            Variable { offset, address }
        })
    }

    /// The table to which this one refers.
    #[must_use]
    pub fn next(self) -> Option<ReductionTable<'c>> {
        // SAFETY: a word of the head.
        let at = unsafe { self.word(NEXT) } as *mut usize;
        // SAFETY: by the promise of `claim` for this one.
        (!at.is_null()).then(|| unsafe { ReductionTable::claim(at) })
    }

    /// # Safety
    /// The table has a word with this index.
    unsafe fn word(&self, index: usize) -> usize {
        // SAFETY: by the caller's promise, and that of `claim`.
        unsafe { self.words.add(index).read() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_are_laid_out() {
        let mut second = [1usize, 16, 8, 0, 0, 0, 0, 5000, 8, 0];
        let mut first = [2, 32, 64, 0, 0, 0, 0, 1000, 0, 0, 2000, 24, 0];
        first[4] = second.as_mut_ptr() as usize;
        // SAFETY: two tables, of which the second refers to none.
        let mut table = unsafe { ReductionTable::claim(first.as_mut_ptr()) };
        let found: Vec<_> = table.variables().map(|v| (v.address, v.offset)).collect();
        assert_eq!(found, [(1000, 0), (2000, 24)]);
        assert_eq!((table.size(), table.align()), (32, 64));
        table.set_copies(4096, 8192);
        let next = table.next().unwrap();
        let only = next.variables().next().unwrap();
        assert_eq!((only.address, only.offset), (5000, 8));
        assert!(next.next().is_none());
        assert_eq!((first[2], first[6]), (4096, 8192));
    }
}
