//! Cartesian grids of processes.

use crate::error::TopologyError;

/// A grid of processes, numbered with the last coordinate varying fastest. A grid without
/// dimensions is one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    dims: Box<[i64]>,
    periods: Box<[bool]>,
    /// Ranks from one coordinate to the next, for each dimension.
    strides: Box<[i64]>,
    size: u32,
}

impl Cart {
    /// A grid with the given size in each dimension, which wraps around where `periods` says so.
    pub fn new(dims: &[i64], periods: &[bool]) -> Result<Cart, TopologyError> {
        same_length(dims.len(), periods.len())?;
        let mut strides = vec![0; dims.len()];
        let mut size = 1i64;
        for (dimension, &value) in dims.iter().enumerate().rev() {
            if value < 1 {
                return Err(TopologyError::Dimension { dimension, value });
            }
            strides[dimension] = size;
            size = size
                .checked_mul(value)
                .filter(|&n| n <= i64::from(i32::MAX))
                .ok_or(TopologyError::TooLarge)?;
        }
        Ok(Cart {
            dims: dims.into(),
            periods: periods.into(),
            strides: strides.into(),
            size: size as u32,
        })
    }

    /// Size in each dimension.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Where the grid wraps around.
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The rank at `coords`; outside of the grid only where it wraps around.
    pub fn rank(&self, coords: &[i64]) -> Result<u32, TopologyError> {
        same_length(self.dims.len(), coords.len())?;
        let mut rank = 0;
        for (dimension, &value) in coords.iter().enumerate() {
            let size = self.dims[dimension];
            if !self.periods[dimension] && !(0..size).contains(&value) {
                return Err(TopologyError::Coordinate {
                    dimension,
                    value,
                    size,
                });
            }
            rank += value.rem_euclid(size) * self.strides[dimension];
        }
        Ok(rank as u32)
    }

    /// The coordinates of `rank`.
    pub fn coords(&self, rank: i64) -> Result<Vec<i64>, TopologyError> {
        self.check_rank(rank)?;
        Ok((0..self.dims.len()).map(|d| self.coord(rank, d)).collect())
    }

    /// The ranks (source, destination) of a shift of all data by `displacement` along `dimension`,
    /// as `rank` sees it; `None` is `MPI_PROC_NULL`.
    pub fn shift(
        &self,
        rank: i64,
        dimension: i64,
        displacement: i64,
    ) -> Result<(Option<u32>, Option<u32>), TopologyError> {
        self.check_rank(rank)?;
        let dimensions = self.dims.len();
        let d = usize::try_from(dimension)
            .ok()
            .filter(|&d| d < dimensions)
            .ok_or(TopologyError::NoSuchDimension {
                dimension,
                dimensions,
            })?;
        Ok((
            self.displaced(rank, d, -i128::from(displacement)),
            self.displaced(rank, d, i128::from(displacement)),
        ))
    }

    /// The neighbours of `rank` in the order of neighbourhood collectives: for each dimension the
    /// one before and the one after. `None` is `MPI_PROC_NULL`.
    pub fn neighbours(&self, rank: i64) -> Result<Vec<Option<u32>>, TopologyError> {
        self.check_rank(rank)?;
        Ok((0..self.dims.len())
            .flat_map(|d| [self.displaced(rank, d, -1), self.displaced(rank, d, 1)])
            .collect())
    }

    /// The grid of the dimensions with `remain` true that `rank` is in (`MPI_Cart_sub`), the number
    /// that tells this grid from its siblings, and the rank in it.
    pub fn sub(&self, rank: i64, remain: &[bool]) -> Result<(Cart, u32, u32), TopologyError> {
        same_length(self.dims.len(), remain.len())?;
        self.check_rank(rank)?;
        let kept = |keep: bool| (0..self.dims.len()).filter(move |&d| remain[d] == keep);
        let number =
            |keep: bool| kept(keep).fold(0, |n, d| n * self.dims[d] + self.coord(rank, d)) as u32;
        let dims: Vec<i64> = kept(true).map(|d| self.dims[d]).collect();
        let periods: Vec<bool> = kept(true).map(|d| self.periods[d]).collect();
        Ok((Cart::new(&dims, &periods)?, number(false), number(true)))
    }

    /// The rank in the grid of a process that has `rank` now (`MPI_Cart_map`): the same one, `None`
    /// beyond the grid.
    pub fn map(&self, rank: i64) -> Option<u32> {
        u32::try_from(rank).ok().filter(|&rank| rank < self.size)
    }

    fn coord(&self, rank: i64, d: usize) -> i64 {
        rank / self.strides[d] % self.dims[d]
    }

    fn displaced(&self, rank: i64, d: usize, displacement: i128) -> Option<u32> {
        let here = self.coord(rank, d);
        let size = i128::from(self.dims[d]);
        let there = i128::from(here) + displacement;
        if !self.periods[d] && !(0..size).contains(&there) {
            return None;
        }
        Some((rank + (there.rem_euclid(size) as i64 - here) * self.strides[d]) as u32)
    }

    fn check_rank(&self, rank: i64) -> Result<(), TopologyError> {
        let size = i64::from(self.size);
        if (0..size).contains(&rank) {
            Ok(())
        } else {
            Err(TopologyError::NoSuchRank { rank, size })
        }
    }
}

fn same_length(expected: usize, found: usize) -> Result<(), TopologyError> {
    if expected == found {
        Ok(())
    } else {
        Err(TopologyError::Lengths { expected, found })
    }
}
