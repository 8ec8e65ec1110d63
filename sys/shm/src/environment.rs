//! The environment variables by which launcher, ranks and spawned processes find each other.

/// The environment variable that says that processes run alone on purpose, whatever started them;
/// empty or `0` says nothing.
pub const ENV_SINGLETON: &str = "MARGAY_SINGLETON";
/// The environment variable that tells a rank the number of the inherited segment descriptor.
pub const ENV_SEGMENT: &str = "MARGAY_SEGMENT_FD";
/// Environment variable with the number of ranks, for programs.
pub const ENV_SIZE: &str = "MARGAY_SIZE";
/// The environment variable that tells a rank its number in the job, from 0.
pub const ENV_RANK: &str = "MARGAY_RANK";
/// The environment variable that tells a rank of a job on several hosts the number of the inherited
/// socket at which it listens.
pub const ENV_LISTENER: &str = "MARGAY_LISTENER_FD";
/// The environment variable that makes the ranks of a job exchange bytes through pipes only: no
/// memory is shared, no rank attaches to another. For tests of what a transport without memory has
/// to do.
pub const ENV_BYTES_ONLY: &str = "MARGAY_BYTES_ONLY";
/// The environment variable that tells a rank the launcher's executable, for spawning.
pub const ENV_LAUNCHER: &str = "MARGAY_LAUNCHER";
/// The environment variable that tells a launcher who spawns by it: the port at which that program
/// waits for the processes. The launcher's standard input is then the connection to the program.
pub const ENV_SPAWN: &str = "MARGAY_SPAWN";
/// The environment variable that tells a spawned rank the port at which its parents wait.
pub const ENV_PARENT: &str = "MARGAY_PARENT";
/// The environment variable with the ports at which ranks may listen, `FIRST:LAST`.
pub const ENV_PORT_RANGE: &str = "MARGAY_PORT_RANGE";
