//! Output in the order of ranks: the lowest rank that has not ended is passed on as it comes, the
//! output of the others is kept until their turn.

use std::io;

use crate::spool::{Full, Spool};

/// The state of ordered output.
#[derive(Debug)]
pub struct Ordered {
    current: u32,
    kept: Vec<Spool>,
    ended: Vec<bool>,
    /// Nothing more can be kept.
    is_full: bool,
}

impl Ordered {
    /// For a job of `ranks` ranks.
    #[must_use]
    pub fn new(ranks: u32) -> Ordered {
        Ordered {
            current: 0,
            kept: (0..ranks).map(|_| Spool::default()).collect(),
            ended: vec![false; ranks as usize],
            is_full: false,
        }
    }

    /// Returns the rank whose output is passed on now.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Whether the output of `rank` must be kept now.
    #[must_use]
    pub fn spools(&self, rank: u32) -> bool {
        rank > self.current || (rank == self.current && !self.kept[rank as usize].is_empty())
    }

    /// Keeps output for later.
    ///
    /// # Errors
    /// When there is no room; once, for later output is then passed over.
    pub fn keep(&mut self, rank: u32, bytes: &[u8]) -> Result<(), Full> {
        if self.is_full {
            return Ok(());
        }
        let kept = self.kept[rank as usize].append(bytes);
        self.is_full = kept.is_err();
        kept
    }

    /// The output of `rank` is complete.
    pub fn end(&mut self, rank: u32) {
        self.ended[rank as usize] = true;
    }

    /// Takes kept output of the current rank; 0 when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.kept.get_mut(self.current as usize) {
            Some(spool) => spool.take(buffer),
            None => Ok(0),
        }
    }

    /// Goes on to the next rank if the current one is complete. Call when nothing is kept of it.
    pub fn advance(&mut self) -> bool {
        let complete = self.ended.get(self.current as usize) == Some(&true);
        if complete {
            self.current += 1;
        }
        complete
    }

    /// Whether there is something to take, or to go on to the next rank.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let current = self.current as usize;
        self.ended.get(current) == Some(&true)
            || self.kept.get(current).is_some_and(|s| !s.is_empty())
    }

    /// Whether everything has been passed on.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.current as usize == self.ended.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_their_turn() {
        let mut o = Ordered::new(3);
        let mut buffer = [0; 8];
        assert!(!o.spools(0) && o.spools(1));
        o.keep(1, b"one").unwrap();
        o.end(1);
        assert_eq!(o.take(&mut buffer).unwrap(), 0);
        assert!(!o.advance());
        o.end(0);
        assert!(o.advance());
        assert!(o.spools(1) && o.is_due(), "what was kept goes first");
        assert_eq!(o.take(&mut buffer).unwrap(), 3);
        assert!(!o.spools(1));
        assert!(o.advance() && !o.advance());
        assert!(!o.is_over() && !o.is_due());
        o.end(2);
        assert!(o.advance() && o.is_over() && !o.advance());
    }
}
