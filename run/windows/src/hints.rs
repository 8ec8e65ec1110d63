//! The hints of a window.

use std::sync::Arc;

use super::{Window, Windows};
use margay_run_mpi::error::*;
use margay_run_mpi::info::Info;

/// The keys that windows know, with the values that hold when the program says nothing.
const KEYS: [(&str, &str); 7] = [
    ("no_locks", "false"),
    ("accumulate_ordering", "rar,raw,war,waw"),
    ("accumulate_ops", "same_op_no_op"),
    ("mpi_accumulate_granularity", "0"),
    ("same_size", "false"),
    ("same_disp_unit", "false"),
    ("alloc_shared_noncontig", "false"),
];

/// Returns the hints in force for a program that gave these.
pub(super) fn in_force(given: &Info) -> Info {
    let value = |key: &str| given.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
    KEYS.iter()
        .map(|&(key, usual)| (key.into(), value(key).unwrap_or_else(|| usual.into())))
        .collect()
}

/// Whether a hint is given as true.
pub(super) fn is_set(given: &Info, key: &str) -> bool {
    given.iter().any(|(k, v)| k == key && v == "true")
}

/// Returns the alignment in bytes that is asked for the memory of an allocated window, 1 if none
/// is.
pub(super) fn alignment(given: &Info) -> usize {
    let asked = given
        .iter()
        .find(|(k, _)| k == "mpi_minimum_memory_alignment");
    let bytes = asked.and_then(|(_, v)| v.parse().ok()).unwrap_or(1);
    // What is no power of two, or more than anybody can use, is not heeded.
    match usize::is_power_of_two(bytes) && bytes <= 1 << 30 {
        true => bytes,
        false => 1,
    }
}

impl Window {
    /// Returns the hints in force.
    #[must_use]
    pub fn info(&self) -> Info {
        self.state().info.clone()
    }
}

impl Windows<'_> {
    /// `MPI_Win_set_info`: hints that are not given stay; how the memory lies cannot change any
    /// more.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn set_info(&self, window: &Arc<Window>, info: u32) -> Result<()> {
        let given = self.mpi.info(info)?;
        let mut state = window.state();
        for (key, value) in given {
            if key == "alloc_shared_noncontig" {
                continue;
            }
            if let Some((_, old)) = state.info.iter_mut().find(|(k, _)| *k == key) {
                *old = value;
            }
        }
        Ok(())
    }
}
