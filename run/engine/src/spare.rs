//! Temporary memory of collective operations, kept for the next ones.
//!
//! malloc gives long blocks back to the system at once, and touching each page of a fresh one costs
//! as much as copying four.

use margay_sys_os::user::Mem;

/// Shorter blocks are malloc's business.
const LEAST: usize = 8 << 10;
/// Bytes that are kept altogether.
const MOST: usize = 16 << 20;
/// Blocks that are kept.
const BLOCKS: usize = 8;

#[derive(Default)]
pub(crate) struct Spare {
    blocks: Vec<Mem>,
}

impl Spare {
    /// `bytes` of memory with any contents.
    pub(crate) fn take(&mut self, bytes: usize) -> Mem {
        if bytes >= LEAST
            && let Some(at) = self
                .blocks
                .iter()
                .position(|b| (bytes..=2 * bytes).contains(&b.reach()))
        {
            return self.blocks.swap_remove(at);
        }
        Mem::owned(bytes)
    }

    /// Keeps a block that nobody uses any more, instead of the oldest ones if there are too many.
    pub(crate) fn give(&mut self, block: Mem) {
        if !(LEAST..=MOST).contains(&block.reach()) || !block.is_sole() {
            return;
        }
        self.blocks.push(block);
        let total = |blocks: &[Mem]| blocks.iter().map(Mem::reach).sum::<usize>();
        while self.blocks.len() > BLOCKS || total(&self.blocks) > MOST {
            self.blocks.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_for_one_of_its_size() {
        let mut spare = Spare::default();
        let block = spare.take(100_000);
        let address = block.address();
        spare.give(block);
        assert_ne!(spare.take(200_001).address(), address);
        let again = spare.take(90_000);
        assert_eq!(again.address(), address);
        let clone = again.clone();
        spare.give(again);
        assert_ne!(spare.take(90_000).address(), address);
        drop(clone);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spare = Spare::default();
        for _ in 0..20 {
            let blocks: Vec<Mem> = (0..12).map(|_| spare.take(3 << 20)).collect();
            blocks.into_iter().for_each(|block| spare.give(block));
            assert!(spare.blocks.iter().map(Mem::reach).sum::<usize>() <= MOST);
        }
        spare.give(Mem::owned(MOST + 1));
        spare.give(Mem::owned(10));
        assert!(spare.blocks.iter().all(|block| block.reach() == 3 << 20));
    }
}
