//! Compute with the second processor.

use crate::call::{COP, nx};
use crate::user::{Longs, Room, Routine};

nx! {
    /// Runs routine(params) on another thread, and sets done to 1 when it has returned. It may not
    /// pass messages.
    free fn cop(routine: Routine, params: Room, done: Longs) {
        COP.run(routine.closure(params, done)?)
    }
}
