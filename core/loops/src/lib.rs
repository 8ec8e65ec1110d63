//! Loop schedules as values: how many iterations the next chunk of a parallel loop has.
//!
//! The names are those of the literature: *static*, one block a thread; *simple* (chunk
//! scheduling), blocks of the given size; *self* scheduling (Tang and Yew, 1986), one iteration at
//! a time; *guided* self-scheduling (Polychronopoulos and Kuck, 1987), a thread's share of what is
//! left; *factoring* (Hummel, Schonberg and Flynn, 1992), rounds of equal chunks, each round half
//! of what is left. Every schedule honours a minimum chunk.

#![forbid(unsafe_code)]

/// How a loop's iterations become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// One block a thread.
    Static,
    /// Blocks of the minimum chunk.
    Simple,
    /// One iteration at a time, or the minimum chunk.
    SelfScheduling,
    /// What is left, divided by the threads.
    Guided,
    /// Half of what is left, divided by the threads.
    Factoring,
}

impl Schedule {
    /// Iterations of the next chunk when `left` (at least 1) are left for `threads` (at least 1) in
    /// a loop of `total`. At least `min_chunk`, at least 1, at most `left`.
    #[must_use]
    #[inline]
    pub fn chunk(self, total: u64, left: u64, threads: u64, min_chunk: u64) -> u64 {
        let chunk = match self {
            Schedule::Static => divide(total, threads),
            Schedule::Simple | Schedule::SelfScheduling => 1,
            Schedule::Guided => divide(left, threads),
            Schedule::Factoring => divide(left, threads.saturating_mul(2)),
        };
        chunk.max(min_chunk).max(1).min(left)
    }

    /// Whether the chunks depend on the number of threads.
    #[must_use]
    #[inline]
    pub fn counts_threads(self) -> bool {
        !matches!(self, Schedule::Simple | Schedule::SelfScheduling)
    }

    /// Whether all chunks but the last are equal.
    #[must_use]
    pub fn is_even(self) -> bool {
        !matches!(self, Schedule::Guided | Schedule::Factoring)
    }
}

/// Rounded up. Most loops fit in 32 bits, whose division takes half the time on many processors.
fn divide(iterations: u64, by: u64) -> u64 {
    match (u32::try_from(iterations), u32::try_from(by)) {
        (Ok(iterations), Ok(by)) => u64::from(iterations.div_ceil(by)),
        _ => iterations.div_ceil(by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(schedule: Schedule, total: u64, threads: u64, min_chunk: u64) -> Vec<u64> {
        let mut left = total;
        let mut chunks = Vec::new();
        while left > 0 {
            let chunk = schedule.chunk(total, left, threads, min_chunk);
            chunks.push(chunk);
            left -= chunk;
        }
        chunks
    }

    #[test]
    fn chunks_as_the_papers_have_them() {
        assert_eq!(chunks(Schedule::Static, 10, 4, 1), [3, 3, 3, 1]);
        assert_eq!(chunks(Schedule::Simple, 10, 4, 4), [4, 4, 2]);
        assert_eq!(chunks(Schedule::SelfScheduling, 3, 4, 0), [1, 1, 1]);
        assert_eq!(
            chunks(Schedule::Guided, 20, 4, 1),
            [5, 4, 3, 2, 2, 1, 1, 1, 1]
        );
        assert_eq!(
            chunks(Schedule::Factoring, 16, 2, 1),
            [4, 3, 3, 2, 1, 1, 1, 1]
        );
        assert_eq!(chunks(Schedule::Guided, 20, 4, 6), [6, 6, 6, 2]);
    }

    #[test]
    fn every_loop_ends_and_honours_its_minimum() {
        for schedule in [
            Schedule::Static,
            Schedule::Simple,
            Schedule::SelfScheduling,
            Schedule::Guided,
            Schedule::Factoring,
        ] {
            // Miri takes a thousand times as long.
            for total in (0..70).step_by(if cfg!(miri) { 69 } else { 1 }) {
                for threads in 1..9 {
                    for min_chunk in 0..5 {
                        let chunks = chunks(schedule, total, threads, min_chunk);
                        assert_eq!(chunks.iter().sum::<u64>(), total);
                        let all_but_last = &chunks[..chunks.len().saturating_sub(1)];
                        assert!(all_but_last.iter().all(|&chunk| chunk >= min_chunk));
                    }
                }
            }
        }
    }
}
