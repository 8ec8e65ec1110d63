//! Loops as numbered iterations, and how schedules cut them.

/// The kind of a schedule, with the numbers of `omp_sched_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    Static = 1,
    Dynamic = 2,
    Guided = 3,
    Auto = 4,
    /// Chunks that shrink by equal amounts: trapezoid self-scheduling (Tzen and Ni, IEEE
    /// Transactions on Parallel and Distributed Systems 4(1), 1993), LLVM's
    /// `kmp_sched_trapezoidal`.
    Trapezoidal = 101,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Kind> {
        match number {
            1 => Some(Kind::Static),
            2 => Some(Kind::Dynamic),
            3 => Some(Kind::Guided),
            4 => Some(Kind::Auto),
            101 => Some(Kind::Trapezoidal),
            _ => None,
        }
    }
}

/// A schedule: the kind, the chunk in iterations (0: the kind's default), whether it has to be
/// monotonic, and whether a guided one gives whole chunks only, as loops of vectors need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    pub kind: Kind,
    pub chunk: u64,
    pub monotonic: bool,
    pub whole_chunks: bool,
}

impl Schedule {
    /// A schedule that need not be monotonic, nor give whole chunks.
    #[must_use]
    pub const fn new(kind: Kind, chunk: u64) -> Schedule {
        Schedule {
            kind,
            chunk,
            monotonic: false,
            whole_chunks: false,
        }
    }
}

/// A loop: iteration `i` has the value `start + i * step` (in 64 bits, wrapping), for `i` below
/// `count`. The same for signed and for unsigned loops, whose numbers differ in `count` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iterations {
    pub start: u64,
    pub end: u64,
    pub step: u64,
    pub count: u64,
}

impl Iterations {
    /// `for (long i = start; step > 0 ? i < end : i > end; i += step)`. A step of 0 counts as 1.
    #[must_use]
    pub fn signed(start: i64, end: i64, step: i64) -> Iterations {
        let distance = if step < 0 {
            i128::from(start) - i128::from(end)
        } else {
            i128::from(end) - i128::from(start)
        };
        let width = i128::from(step.unsigned_abs().max(1));
        let count = if distance <= 0 {
            0
        } else {
            (distance + width - 1) / width
        };
        Iterations {
            start: start as u64,
            end: end as u64,
            step: step as u64,
            count: count as u64,
        }
    }

    /// The same for unsigned numbers; `up` is the direction, and a downward step is the two's
    /// complement.
    #[must_use]
    pub fn unsigned(up: bool, start: u64, end: u64, step: u64) -> Iterations {
        let (distance, width) = if up {
            (end.saturating_sub(start), step)
        } else {
            (start.saturating_sub(end), step.wrapping_neg())
        };
        Iterations {
            start,
            end,
            step,
            count: distance.div_ceil(width.max(1)),
        }
    }

    /// The value of iteration `index`; that of the first beyond the last is the loop's end.
    #[inline]
    #[must_use]
    pub fn value(&self, index: u64) -> u64 {
        if index >= self.count {
            self.end
        } else {
            self.start.wrapping_add(index.wrapping_mul(self.step))
        }
    }
}

/// The chunk number `trip` (from 0) of a member under the static schedule: iterations `[first,
/// end)`, or none. With a chunk of 0 each member gets one block, and blocks differ by at most one
/// iteration.
#[must_use]
pub fn static_chunk(
    count: u64,
    members: u64,
    member: u64,
    chunk: u64,
    trip: u64,
) -> Option<(u64, u64)> {
    if chunk == 0 {
        if trip > 0 {
            return None;
        }
        let (width, longer) = (count / members, count % members);
        let first = member * width + member.min(longer);
        let end = first + width + u64::from(member < longer);
        return (first < end).then_some((first, end));
    }
    let number = u128::from(trip) * u128::from(members) + u128::from(member);
    let first = number * u128::from(chunk);
    if first >= u128::from(count) {
        return None;
    }
    let first = first as u64;
    Some((first, first + chunk.min(count - first)))
}

/// Which member has iteration `index` under the static schedule.
#[must_use]
pub fn static_owner(count: u64, members: u64, chunk: u64, index: u64) -> u64 {
    if let Some(number) = index.checked_div(chunk) {
        return number % members;
    }
    let (width, longer) = (count / members, count % members);
    let in_longer = longer * (width + 1);
    if index < in_longer {
        index / (width + 1)
    } else {
        longer + (index - in_longer) / width.max(1)
    }
}

/// How many of `left` iterations the guided schedule gives to the next member: a share, at least
/// the chunk.
#[inline]
#[must_use]
pub fn guided_share(left: u64, members: u64, chunk: u64, whole_chunks: bool) -> u64 {
    let chunk = chunk.max(1);
    let share = left.div_ceil(members).max(chunk);
    let share = match share.checked_next_multiple_of(chunk) {
        Some(whole) if whole_chunks => whole,
        _ => share,
    };
    share.min(left)
}

/// How many iterations the next member gets under the trapezoidal schedule, when `left` of `count`
/// are left: half of a member's part at first, `chunk` at the end.
#[must_use]
pub fn trapezoid_share(left: u64, count: u64, members: u64, chunk: u64) -> u64 {
    let last = chunk.max(1) as f64;
    let first = (count as f64 / (2.0 * members as f64)).max(last);
    // Sizes fall linearly from chunk to chunk, so the square falls linearly with what is left.
    let square = last * last + (first * first - last * last) * (left as f64 / count.max(1) as f64);
    (square.sqrt() as u64).max(1).min(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_counted_at_the_limits_of_their_types() {
        assert_eq!(Iterations::signed(0, 10, 3).count, 4);
        assert_eq!(Iterations::signed(10, 0, -3).count, 4);
        assert_eq!(Iterations::signed(5, 5, 1).count, 0);
        assert_eq!(Iterations::signed(6, 5, 1).count, 0);
        assert_eq!(Iterations::signed(i64::MIN, i64::MAX, 1).count, u64::MAX);
        assert_eq!(Iterations::signed(i64::MAX, i64::MIN, i64::MIN).count, 2);
        assert_eq!(
            Iterations::unsigned(true, 1, u64::MAX, u64::MAX - 1).count,
            1
        );
        assert_eq!(
            Iterations::unsigned(false, 10, 0, 3_u64.wrapping_neg()).count,
            4
        );
        let down = Iterations::signed(10, 0, -3);
        let values: Vec<i64> = (0..5).map(|i| down.value(i) as i64).collect();
        assert_eq!(values, [10, 7, 4, 1, 0]);
    }

    #[test]
    fn static_chunks_cover_each_iteration_once_and_know_their_owner() {
        for count in [0, 1, 7, 64, 100] {
            // Miri takes a thousand times as long.
            for members in (1..9).step_by(if cfg!(miri) { 3 } else { 1 }) {
                for chunk in [0, 1, 3, 200] {
                    let mut seen = vec![0; count as usize];
                    for member in 0..members {
                        let mut trip = 0;
                        while let Some((first, end)) =
                            static_chunk(count, members, member, chunk, trip)
                        {
                            for index in first..end {
                                seen[index as usize] += 1;
                                assert_eq!(static_owner(count, members, chunk, index), member);
                            }
                            trip += 1;
                        }
                    }
                    assert!(seen.iter().all(|&times| times == 1));
                }
            }
        }
    }

    #[test]
    fn guided_shares_end() {
        let (mut left, mut shares) = (1000_u64, 0);
        while left > 0 {
            let share = guided_share(left, 4, 7, false);
            assert!(share >= 7.min(left));
            left -= share;
            shares += 1;
        }
        assert!(shares > 8);
    }

    #[test]
    fn guided_shares_of_loops_of_vectors_are_whole_chunks() {
        assert_eq!(guided_share(203, 4, 8, true), 56);
        assert_eq!(guided_share(7, 4, 8, true), 7);
        assert_eq!(guided_share(u64::MAX, 1, 8, true), u64::MAX);
    }

    #[test]
    fn trapezoid_shares_fall_from_half_a_part_to_the_chunk() {
        let (count, members, chunk) = (10_000, 4, 10);
        let (mut left, mut shares) = (count, Vec::new());
        while left > 0 {
            let share = trapezoid_share(left, count, members, chunk);
            shares.push(share);
            left -= share;
        }
        assert_eq!(shares[0], 1250);
        assert!(shares.is_sorted_by(|a, b| a >= b) && shares.len() < 25);
        // The last but one: the last may be a rest.
        let end = shares[shares.len() - 2];
        assert!((chunk..300).contains(&end), "{shares:?}");
    }
}
