//! The project's own commands: the stage tree, the header from its definitions, and the rules that
//! a program can check.
//!
//! Nothing here links the product, so that the rules are checked also while it does not compile.
//! What has to, stands in a crate of its own that a command runs (`xtask/docs`).
#![forbid(unsafe_code)]

use std::path::Path;

mod command;
pub mod debug_info;
pub mod faces;
pub mod fortran;
pub mod glibc;
pub mod header;
mod layout;
pub mod library;
mod prototype;
mod put;
pub mod recording;
pub mod reproduce;
pub mod stage;
pub mod stub;
pub mod test_programs;
pub mod tidy;
pub mod tools;
pub mod verify;
pub mod wheel;

/// The root folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the workspace")
}
