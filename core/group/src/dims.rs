//! `MPI_Dims_create`.

use crate::error::TopologyError;

/// Fills the zeros of `dims` so that the product of all is `processes`, with numbers as close to
/// each other as possible (least difference of the largest and the smallest; of equal ones that
/// with the larger smallest number, then the larger second smallest and so on) in non-increasing
/// order. The greedy algorithms in use miss that: Träff and Lübbe, "Specification guideline
/// violations by MPI_Dims_create", EuroMPI 2015. This is an exact search over divisors, pruned by
/// the best that each prefix still allows.
pub fn dims_create(processes: i64, dims: &mut [i64]) -> Result<(), TopologyError> {
    let mut given = 1i64;
    for (dimension, &value) in dims.iter().enumerate() {
        if value < 0 {
            return Err(TopologyError::Dimension { dimension, value });
        }
        given = given.saturating_mul(value.max(1));
    }
    let free = dims.iter().filter(|&&d| d == 0).count();
    let indivisible = TopologyError::Indivisible { processes, given };
    if processes < 1 || processes % given != 0 || (free == 0 && processes != given) {
        return Err(indivisible);
    }
    if free == 0 {
        return Ok(());
    }
    let rest = processes / given;
    let divisors = divisors(rest);
    let mut search = Search {
        divisors: &divisors,
        best: None,
        prefix: Vec::with_capacity(free),
    };
    search.extend(rest, free);
    let best = search.best.expect("n * 1 * ... * 1 is always there").1;
    for (dim, value) in dims.iter_mut().filter(|d| **d == 0).zip(best) {
        *dim = value;
    }
    Ok(())
}

struct Search<'a> {
    /// Ascending.
    divisors: &'a [i64],
    /// Difference of the largest and the smallest, and the numbers.
    best: Option<(i64, Vec<i64>)>,
    prefix: Vec<i64>,
}

impl Search<'_> {
    /// Appends `slots` factors of `rest`, none above the last one of the prefix, in all ways that
    /// may beat the best.
    fn extend(&mut self, rest: i64, slots: usize) {
        let largest = self.prefix.first().copied();
        if slots == 1 {
            if self.prefix.last().is_some_and(|&last| rest > last) {
                return;
            }
            let spread = largest.unwrap_or(rest) - rest;
            self.prefix.push(rest);
            let beats = |best: &(i64, Vec<i64>)| {
                spread < best.0
                    || (spread == best.0 && self.prefix.iter().rev().gt(best.1.iter().rev()))
            };
            if self.best.as_ref().is_none_or(beats) {
                self.best = Some((spread, self.prefix.clone()));
            }
            self.prefix.pop();
            return;
        }
        let most = self.prefix.last().copied().unwrap_or(rest);
        let least = ceiling_root(rest, slots as u32);
        let from = self.divisors.partition_point(|&d| d < least);
        for i in from..self.divisors.len() {
            let factor = self.divisors[i];
            if factor > most {
                break;
            }
            if rest % factor != 0 {
                continue;
            }
            // The smallest of the factors to come is at most their geometric mean.
            let floor = floor_root(rest / factor, slots as u32 - 1);
            let bound = largest.unwrap_or(factor) - floor;
            if self.best.as_ref().is_some_and(|best| bound > best.0) {
                // Grows with the factor as long as the factor is the largest.
                if largest.is_none() {
                    break;
                }
                continue;
            }
            self.prefix.push(factor);
            self.extend(rest / factor, slots - 1);
            self.prefix.pop();
        }
    }
}

/// All divisors, ascending.
fn divisors(n: i64) -> Vec<i64> {
    let mut small = Vec::new();
    let mut large = Vec::new();
    let mut d = 1;
    while d <= n / d {
        if n % d == 0 {
            small.push(d);
            if d != n / d {
                large.push(n / d);
            }
        }
        d += 1;
    }
    small.extend(large.into_iter().rev());
    small
}

/// The largest integer whose `k`-th power is at most `n`.
fn floor_root(n: i64, k: u32) -> i64 {
    let mut root = (n as f64).powf(1.0 / f64::from(k)) as i64;
    while root.checked_pow(k).is_none_or(|p| p > n) {
        root -= 1;
    }
    while (root + 1).checked_pow(k).is_some_and(|p| p <= n) {
        root += 1;
    }
    root
}

/// The smallest integer whose `k`-th power is at least `n`.
fn ceiling_root(n: i64, k: u32) -> i64 {
    let root = floor_root(n, k);
    if root.pow(k) == n { root } else { root + 1 }
}
