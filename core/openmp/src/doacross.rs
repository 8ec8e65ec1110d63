//! The loops of a doacross nest as LLVM's compilers describe them: by the values of their
//! variables.

/// A loop whose variable has the values `lower`, `lower + step`, ... up to an inclusive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub lower: i64,
    pub step: i64,
    /// How many iterations it has.
    pub count: u64,
}

impl Dimension {
    /// The loop from `lower` to `upper`, both included. A step of 0 counts as 1.
    #[must_use]
    pub fn new(lower: i64, upper: i64, step: i64) -> Dimension {
        let step = if step == 0 { 1 } else { step };
        let distance = if step > 0 {
            i128::from(upper) - i128::from(lower)
        } else {
            i128::from(lower) - i128::from(upper)
        };
        let count = if distance < 0 {
            0
        } else {
            distance / i128::from(step.unsigned_abs()) + 1
        };
        Dimension {
            lower,
            step,
            count: u64::try_from(count).unwrap_or(u64::MAX),
        }
    }

    /// The number of the iteration with this value, from 0; none if there is no such iteration.
    #[must_use]
    pub fn number(&self, value: i64) -> Option<u64> {
        let distance = i128::from(value) - i128::from(self.lower);
        let number = u64::try_from(distance / i128::from(self.step)).ok()?;
        let is_before = distance != 0 && (distance < 0) != (self.step < 0);
        (!is_before && number < self.count).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_numbers_within_the_loop() {
        let up = Dimension::new(3, 10, 3);
        assert_eq!(up.count, 3);
        let numbers: Vec<Option<u64>> = [3, 6, 9, 12, 0, 2].map(|value| up.number(value)).to_vec();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), None, None, None]);
        let down = Dimension::new(5, -1, -2);
        assert_eq!(
            (down.count, down.number(-1), down.number(7)),
            (4, Some(3), None)
        );
        assert_eq!(Dimension::new(1, 0, 1).count, 0);
        assert_eq!(Dimension::new(i64::MIN, i64::MAX, 1).count, u64::MAX);
    }
}
