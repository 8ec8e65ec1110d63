//! `margay part`: partitions, which are a program of its own beside this one.
//!
//! Whether the options are right has been checked before it runs, so wrong options are reported in
//! the same way whether it is installed or not.

use crate::bench::replace;
use crate::part_options::{PROGRAM, PartOptions};

/// Replaces this process by the program; returns only with the reason why that failed.
pub fn run(options: &PartOptions) -> String {
    replace("partitions", PROGRAM, &options.action.words())
}
