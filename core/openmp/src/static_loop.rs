//! The part of a loop that a thread, or a team of a league, has under a static schedule, in the
//! form in which LLVM's compilers ask for it: bounds that are included, and the distance to the
//! next part.

use crate::schedule::{Iterations, static_chunk};

/// A loop with both bounds, as the 64 bits of its type's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub lower: i64,
    pub upper: i64,
    pub step: i64,
    pub is_signed: bool,
}

/// How parts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticCut {
    /// One part for each.
    Blocks,
    /// Parts of this many iterations in turn.
    Chunks(u64),
    /// One part for each, its length a multiple of this number.
    Multiples(u64),
}

/// What one has of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of its first part; `lower` is beyond `upper` where it has none.
    pub lower: i64,
    pub upper: i64,
    /// From the beginning of a part to that of its next one.
    pub stride: i64,
    /// Whether it has the last iteration.
    pub has_last: bool,
}

impl Bounds {
    /// How many iterations; all ones where they are more than a word can count.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u64 {
        let (first, last) = if self.step < 0 {
            (self.upper, self.lower)
        } else {
            (self.lower, self.upper)
        };
        let is_empty = if self.is_signed {
            last < first
        } else {
            (last as u64) < first as u64
        };
        if is_empty {
            return 0;
        }
        let distance = last.wrapping_sub(first) as u64;
        match self.step.unsigned_abs() {
            // Dividing would take longer than all else here.
            0 | 1 => distance.saturating_add(1),
            width => distance / width + 1,
        }
    }

    /// The loop as numbered iterations.
    #[must_use]
    pub fn iterations(&self) -> Iterations {
        let count = self.count();
        Iterations {
            start: self.lower as u64,
            end: self.value(count) as u64,
            step: self.step as u64,
            count,
        }
    }

    #[inline]
    fn value(&self, number: u64) -> i64 {
        self.lower
            .wrapping_add((number as i64).wrapping_mul(self.step))
    }

    /// What number `at` of `many` has of it; none of a loop without iterations.
    #[must_use]
    pub fn part(&self, cut: StaticCut, at: u64, many: u64) -> Option<Part> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        if many <= 1 {
            return Some(Part {
                lower: self.lower,
                upper: self.upper,
                stride: self.value(count).wrapping_sub(self.lower),
                has_last: true,
            });
        }
        let (chunk, total) = match cut {
            StaticCut::Blocks => (0, count),
            StaticCut::Chunks(chunk) => {
                let chunk = chunk.max(1);
                (chunk, chunk.wrapping_mul(many))
            }
            StaticCut::Multiples(of) => {
                let block = count.div_ceil(many).checked_next_multiple_of(of.max(1));
                (block.unwrap_or(count), count)
            }
        };
        let stride = (total as i64).wrapping_mul(self.step);
        Some(match static_chunk(count, many, at, chunk, 0) {
            Some((first, end)) => {
                let last = match cut {
                    StaticCut::Chunks(chunk) => (count - 1) / chunk.max(1) % many == at,
                    _ => end == count,
                };
                Part {
                    lower: self.value(first),
                    upper: self.value(end - 1),
                    stride,
                    has_last: last,
                }
            }
            None => Part {
                lower: self.upper.wrapping_add(self.step),
                upper: self.upper,
                stride,
                has_last: false,
            },
        })
    }

    /// The same loop between other bounds.
    #[must_use]
    pub fn between(&self, lower: i64, upper: i64) -> Bounds {
        Bounds {
            lower,
            upper,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(lower: i64, upper: i64, step: i64) -> Bounds {
        Bounds {
            lower,
            upper,
            step,
            is_signed: true,
        }
    }

    #[test]
    fn iterations_are_counted_with_both_bounds() {
        assert_eq!(bounds(0, 9, 1).count(), 10);
        assert_eq!(bounds(0, 9, 3).count(), 4);
        assert_eq!(bounds(9, 0, -3).count(), 4);
        assert_eq!(bounds(1, 0, 1).count(), 0);
        assert_eq!(bounds(i64::MIN, i64::MAX, 1).count(), u64::MAX);
        let unsigned = Bounds {
            is_signed: false,
            ..bounds(0, -1, 1 << 62)
        };
        assert_eq!(unsigned.count(), 4);
        assert_eq!((unsigned.between(-1, 0)).count(), 0);
    }

    #[test]
    fn parts_cover_each_iteration_once_and_one_has_the_last() {
        for (step, count) in [(1, 0), (1, 1), (2, 7), (-3, 20), (1, 64)] {
            for many in 1..6 {
                for cut in [
                    StaticCut::Blocks,
                    StaticCut::Chunks(1),
                    StaticCut::Chunks(3),
                    StaticCut::Multiples(4),
                ] {
                    let all = bounds(10, 10 + (count - 1) * step, step);
                    let (mut seen, mut lasts) = (vec![0; count as usize], 0);
                    for at in 0..many {
                        let Some(part) = all.part(cut, at, many) else {
                            assert_eq!(count, 0);
                            continue;
                        };
                        lasts += u32::from(part.has_last);
                        let (mut lower, mut upper) = (part.lower, part.upper);
                        // As compiled code goes on.
                        while (lower - 10) / step < count && (upper - lower) * step >= 0 {
                            let mut value = lower;
                            while (value - 10) / step < count && (upper - value) * step >= 0 {
                                seen[((value - 10) / step) as usize] += 1;
                                value += step;
                            }
                            lower += part.stride;
                            upper += part.stride;
                            if !matches!(cut, StaticCut::Chunks(_)) {
                                break;
                            }
                        }
                    }
                    assert!(
                        seen.iter().all(|&times| times == 1),
                        "{cut:?} {many} {seen:?}"
                    );
                    assert_eq!(lasts, u32::from(count > 0), "{cut:?} {many} {count}");
                }
            }
        }
    }
}
