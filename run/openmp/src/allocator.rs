//! Memory allocators (OpenMP 5.1, 2.13): what a handle says about a block. `abi/gomp` makes the
//! blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Predefined allocators have the numbers 1 to 8.
const NAMES: [&str; 8] = [
    "omp_default_mem_alloc",
    "omp_large_cap_mem_alloc",
    "omp_const_mem_alloc",
    "omp_high_bw_mem_alloc",
    "omp_low_lat_mem_alloc",
    "omp_cgroup_mem_alloc",
    "omp_pteam_mem_alloc",
    "omp_thread_mem_alloc",
];

/// `omp_default_mem_alloc`
pub const DEFAULT: usize = 1;

/// The number of a predefined allocator.
///
/// # Errors
/// When there is none of this name.
pub fn by_name(name: &str) -> Result<usize, String> {
    NAMES
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name.trim()))
        .map(|at| at + 1)
        .ok_or_else(|| {
            "the name of a predefined allocator is needed, like 'omp_default_mem_alloc'".into()
        })
}

/// The name of an allocator.
#[must_use]
pub fn name(allocator: usize) -> &'static str {
    allocator
        .checked_sub(1)
        .and_then(|at| NAMES.get(at))
        .copied()
        .unwrap_or("omp_null_allocator")
}

/// What to do when there is no memory of the kind that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Memory of the default allocator, without the traits.
    Default,
    Null,
    Abort,
    Other(usize),
}

#[derive(Clone, Copy, Debug)]
struct Traits {
    alignment: usize,
    pool_bytes: usize,
    used_bytes: usize,
    fallback: Fallback,
}

/// The allocators that a program has made.
#[derive(Debug, Default)]
pub struct Allocators(Mutex<Vec<Option<Traits>>>);

/// The first handle of allocators that a program has made.
const FIRST: usize = 1 << 8;
const NO_LIMIT: usize = usize::MAX;

/// `omp_atv_default`
const VALUE_DEFAULT: usize = usize::MAX;

fn traits(space: usize, pairs: impl Iterator<Item = (u32, usize)>) -> Option<Traits> {
    const SPACES: usize = 5;
    let mut traits = Traits {
        alignment: 1,
        pool_bytes: NO_LIMIT,
        used_bytes: 0,
        fallback: Fallback::Default,
    };
    let mut fallback_data = 0;
    let mut falls_to_other = false;
    for (key, value) in pairs {
        let is_default = value == VALUE_DEFAULT;
        let known = match key {
            // sync_hint, access and partition are hints that malloc's memory satisfies.
            1 => matches!(value, 3..=6),
            3 => matches!(value, 7..=10),
            8 => matches!(value, 15..=18),
            2 => {
                if !is_default {
                    traits.alignment = value;
                }
                value.is_power_of_two()
            }
            4 => {
                traits.pool_bytes = if is_default { NO_LIMIT } else { value };
                true
            }
            5 => {
                falls_to_other = value == 14;
                traits.fallback = match value {
                    12 => Fallback::Null,
                    13 => Fallback::Abort,
                    _ => Fallback::Default,
                };
                matches!(value, 11..=14)
            }
            6 => {
                fallback_data = value;
                true
            }
            7 => value == 0,
            _ => return None,
        };
        if !known && !is_default {
            return None;
        }
    }
    if falls_to_other {
        traits.fallback = Fallback::Other(fallback_data);
    }
    (space < SPACES).then_some(traits)
}

impl Allocators {
    /// Makes an allocator from pairs of `omp_alloctrait_key_t` and value. Returns 0
    /// (`omp_null_allocator`) when a value is invalid, or asks for what is not supported (pinned
    /// memory).
    #[must_use]
    pub fn make(&self, space: usize, pairs: impl Iterator<Item = (u32, usize)>) -> usize {
        traits(space, pairs).map_or(0, |traits| {
            let mut made = self.made();
            let at = made.iter().position(Option::is_none).unwrap_or_else(|| {
                made.push(None);
                made.len() - 1
            });
            made[at] = Some(traits);
            FIRST + at
        })
    }

    /// Destroys an allocator that the program has made.
    pub fn destroy(&self, allocator: usize) {
        let mut made = self.made();
        if let Some(place) = allocator.checked_sub(FIRST).and_then(|at| made.get_mut(at)) {
            *place = None;
        }
    }

    /// Reserves bytes of an allocator's pool. Returns the alignment that the block is to have.
    ///
    /// # Errors
    /// What to do when the pool has no room.
    pub fn reserve(&self, allocator: usize, size: usize, align: usize) -> Result<usize, Fallback> {
        self.with(allocator, |traits| {
            let used = traits
                .used_bytes
                .checked_add(size)
                .filter(|&used| used <= traits.pool_bytes)
                .ok_or(traits.fallback)?;
            traits.used_bytes = used;
            Ok(align.max(traits.alignment))
        })
        .unwrap_or(Ok(align))
    }

    /// Returns bytes to an allocator's pool.
    pub fn unreserve(&self, allocator: usize, size: usize) {
        self.with(allocator, |traits| {
            traits.used_bytes = traits.used_bytes.saturating_sub(size)
        });
    }

    /// What to do when the system has no memory for this allocator.
    #[must_use]
    pub fn fallback(&self, allocator: usize) -> Fallback {
        self.with(allocator, |traits| traits.fallback)
            .unwrap_or(if allocator == DEFAULT {
                Fallback::Null
            } else {
                Fallback::Default
            })
    }

    fn with<R>(&self, allocator: usize, f: impl FnOnce(&mut Traits) -> R) -> Option<R> {
        let at = allocator.checked_sub(FIRST)?;
        self.made().get_mut(at)?.as_mut().map(f)
    }

    fn made(&self) -> MutexGuard<'_, Vec<Option<Traits>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_bounded_and_traits_checked() {
        let allocators = Allocators::default();
        let pool = allocators.make(0, [(4, 100), (2, 64), (5, 12)].into_iter());
        assert_eq!(allocators.reserve(pool, 60, 8), Ok(64));
        assert_eq!(allocators.reserve(pool, 60, 8), Err(Fallback::Null));
        allocators.unreserve(pool, 60);
        assert_eq!(allocators.reserve(pool, 60, 128), Ok(128));
        assert_eq!(allocators.make(9, [].into_iter()), 0);
        assert_eq!(allocators.make(0, [(2, 3)].into_iter()), 0);
        assert_eq!(allocators.make(0, [(7, 1)].into_iter()), 0);
        allocators.destroy(pool);
        assert_eq!(
            allocators.reserve(pool, 1 << 20, 8),
            Ok(8),
            "a destroyed allocator is as the default one"
        );
    }

    #[test]
    fn names() {
        assert_eq!(by_name("OMP_cgroup_mem_alloc"), Ok(6));
        assert_eq!(name(1), "omp_default_mem_alloc");
        assert!(by_name("x").is_err());
    }
}
