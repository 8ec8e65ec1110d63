//! The numbers of NX that programs see: `nx.h` and `fnx.h` are printed from this list.

/// No process type.
pub const INVALID_PTYPE: i64 = -1;
/// The first force type: only calls that ask for exactly such a type receive its messages.
pub const FORCE_TYPE: i64 = 0x4000_0000;
/// Scheduling of a partition: each process by itself.
pub const NX_STD: i64 = 0;
/// Scheduling of a partition: gangs.
pub const NX_GANG: i64 = 1;
/// Scheduling of a partition: the space alone is shared.
pub const NX_SPS: i64 = 2;
/// Mode of a file: each node has a pointer.
pub const M_UNIX: i64 = 0;
/// Mode of a file: one pointer for all nodes, first come, first served.
pub const M_LOG: i64 = 1;
/// Mode of a file: one pointer for all nodes, in their order.
pub const M_SYNC: i64 = 2;
/// Mode of a file: records of one length, in the order of nodes, without waiting.
pub const M_RECORD: i64 = 3;
/// Mode of a file: all nodes do the same, and the file is read or written once.
pub const M_GLOBAL: i64 = 4;
/// Mode of a file: each node has a pointer, and accesses to the same bytes are not kept apart.
pub const M_ASYNC: i64 = 5;
/// From the beginning of a file.
pub const SIZE_SET: i64 = 0;
/// From the pointer.
pub const SIZE_CUR: i64 = 1;
/// From the end of a file.
pub const SIZE_END: i64 = 2;
/// Ticks of `hwclock` in a second.
pub const HWHZ: i64 = 10_000_000;

/// End of the attributes.
pub const NX_ATTR_END: i64 = -1;
/// Number of nodes: an `int`.
pub const NX_ATTR_SZ: i64 = 1;
/// Rows and columns: two `int`.
pub const NX_ATTR_RECT: i64 = 2;
/// Nodes one by one: an `int` and an array of as many `long`s.
pub const NX_ATTR_MAP: i64 = 3;
/// Where a rectangle begins: an `int`.
pub const NX_ATTR_ANCHOR: i64 = 4;
/// Kind of scheduling: an `int`.
pub const NX_ATTR_SCHED: i64 = 5;
/// Whether fewer nodes will do: an `int`.
pub const NX_ATTR_RELAXED: i64 = 6;
/// Effective priority limit: an `int`.
pub const NX_ATTR_EPL: i64 = 7;
/// Rollin quantum: an `int`.
pub const NX_ATTR_RQ: i64 = 8;
/// Permissions: an `int`.
pub const NX_ATTR_MOD: i64 = 9;
/// Selector of nodes: a `char *`.
pub const NX_ATTR_SEL: i64 = 10;
/// Priority: an `int`.
pub const NX_ATTR_PRI: i64 = 11;
/// Bytes of a packet: an `int`.
pub const NX_ATTR_PKT: i64 = 12;
/// Bytes of message buffers: an `int`.
pub const NX_ATTR_MBF: i64 = 13;
/// Bytes exported: an `int`.
pub const NX_ATTR_MEX: i64 = 14;
/// Bytes exported to each other process: an `int`.
pub const NX_ATTR_MEA: i64 = 15;
/// Correspondents: an `int`.
pub const NX_ATTR_NOC: i64 = 16;
/// Send threshold: an `int`.
pub const NX_ATTR_STH: i64 = 17;
/// Send count: an `int`.
pub const NX_ATTR_SCT: i64 = 18;
/// Give threshold: an `int`.
pub const NX_ATTR_GTH: i64 = 19;
/// Lock the process into memory: an `int`.
pub const NX_ATTR_PLK: i64 = 20;
/// Account: a `char *`.
pub const NX_ATTR_ACCT: i64 = 21;
/// For a guest: an `int`.
pub const NX_ATTR_GUEST: i64 = 22;

/// Wrong length.
pub const EQBLEN: i64 = 1001;
/// The job or a process of it is broken.
pub const EQFAULT: i64 = 1002;
/// A handler cannot be served.
pub const EQHND: i64 = 1003;
/// No message has this id.
pub const EQMID: i64 = 1004;
/// The message is longer than the buffer.
pub const EQMSGLONG: i64 = 1005;
/// There is no such node.
pub const EQNODE: i64 = 1006;
/// No message ids are left.
pub const EQNOMID: i64 = 1007;
/// No process is there.
pub const EQNOPROC: i64 = 1008;
/// Wrong parameter.
pub const EQPARAM: i64 = 1009;
/// Wrong process type.
pub const EQPID: i64 = 1010;
/// Wrong message type.
pub const EQTYPE: i64 = 1011;
/// The program cannot use, make or change that partition.
pub const EQPARTITION: i64 = 1012;
/// The program cannot be started.
pub const EQPATH: i64 = 1013;
/// Not possible in this process.
pub const EQSTATE: i64 = 1014;
