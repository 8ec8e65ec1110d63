//! Other hosts: their mounts, their stripe directories, and the sessions by which they are reached.

pub mod attach;
pub mod directory;
pub mod disk;
pub mod door;
pub mod invite;
pub mod locks;
pub mod program;
pub mod reach;
pub mod requests;
pub mod session;
pub mod share;
pub mod wire;
