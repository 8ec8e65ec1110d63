//! The numbers of `mlp.h`. Each comment goes to the header.

/// The lock was taken from a process that has ended; what it guards may be half changed.
pub const MLP_OWNER_DIED: i64 = 1;
/// An argument has a wrong value.
pub const MLP_ERR_ARGUMENT: i64 = -1;
/// Not possible at this point.
pub const MLP_ERR_STATE: i64 = -2;
/// The arena has no room, or the machine has none for the arena.
pub const MLP_ERR_MEMORY: i64 = -3;
/// The name is not there, or there with another size.
pub const MLP_ERR_NAME: i64 = -4;
/// A process of the group has ended.
pub const MLP_ERR_DEATH: i64 = -5;
/// The lock is held, or not held, by the caller.
pub const MLP_ERR_LOCK: i64 = -6;
/// The system refuses.
pub const MLP_ERR_SYSTEM: i64 = -7;
/// Errors end the process with a message, and the death of a process ends the group.
pub const MLP_ERRORS_END: i64 = 0;
/// Calls return errors, and when a process dies the others go on.
pub const MLP_ERRORS_RETURN: i64 = 1;
/// The process runs.
pub const MLP_LIVING: i64 = 1;
/// The process has ended with code 0.
pub const MLP_ENDED: i64 = 2;
/// The process was killed or has ended with another code.
pub const MLP_DEAD: i64 = 3;
/// How the process ended is not known.
pub const MLP_UNKNOWN: i64 = 1000;
