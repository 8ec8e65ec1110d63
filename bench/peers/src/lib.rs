//! Margay and its peers side by side in one run (`bench`), and the demonstration (`demo`).
//!
//! Both drive programs in C through a compiler wrapper and a launcher that they find below a
//! prefix, so the same code measures this project's stage tree and a peer's installation.
#![forbid(unsafe_code)]

pub mod demo;
pub mod figures;
pub mod grid;
pub mod peers;
pub mod picture;
pub mod plan;
pub mod report;
pub mod tree;
