//! OpenMP's pure logic: how loops are cut, what environment variables mean, places, the affinity
//! format.
#![forbid(unsafe_code)]

pub mod doacross;
pub mod environment;
pub mod format;
pub mod hardware_subset;
pub mod places;
pub mod schedule;
pub mod static_loop;
pub mod taskloop;
pub mod tools;
