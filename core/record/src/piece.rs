//! Pieces of what the recorders of several hosts write, on their way from the launcher to the
//! program that makes one trace of them. `docs/mtrace.md` draws them.

/// What a piece holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes of what the recorder of the host writes.
    Bytes = 0,
    /// By how many nanoseconds the clock of the host is ahead, and how many the question took: 8
    /// bytes each.
    Clock = 1,
}

impl Piece {
    /// Bytes before those of the piece.
    pub const HEAD: usize = 16;

    /// What stands before `length` bytes of a host.
    #[must_use]
    pub fn head(self, host: u32, length: usize) -> [u8; Piece::HEAD] {
        let mut head = [0; Piece::HEAD];
        head[..4].copy_from_slice(&host.to_le_bytes());
        head[4..8].copy_from_slice(&(self as u32).to_le_bytes());
        head[8..].copy_from_slice(&(length as u64).to_le_bytes());
        head
    }

    /// Reads that: the host, what follows where it is known, and its length.
    #[must_use]
    pub fn read(head: [u8; Piece::HEAD]) -> (u32, Option<Piece>, u64) {
        let [a, b, c, d] = std::array::from_fn(|word| {
            let bytes = std::array::from_fn(|byte| head[4 * word + byte]);
            u32::from_le_bytes(bytes)
        });
        let known = [Piece::Bytes, Piece::Clock];
        let piece = known.into_iter().find(|piece| *piece as u32 == b);
        (a, piece, u64::from(c) | u64::from(d) << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Piece::Clock.head(7, 1 << 33);
        assert_eq!(Piece::read(head), (7, Some(Piece::Clock), 1 << 33));
        assert_eq!(Piece::read([9; 16]).1, None);
    }
}
