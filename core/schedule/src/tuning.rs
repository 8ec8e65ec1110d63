//! Which algorithm, by what sizes.

/// Where algorithms change over. Sizes are packed bytes. The defaults are for processes of one
/// machine that communicate through shared memory, where a message costs about as much as copying 4
/// KiB, and more when the processes outnumber the cores, because then each round of a schedule is
/// also a round of the scheduler. All processes of a communicator must use the same values.
// Fields: one for each size or number of ranks at which an algorithm changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Up to this many processes, long data is exchanged by everybody with everybody directly: two
    /// dependent rounds at most, and no byte is moved twice. More processes than that use trees,
    /// rings and hypercubes, which need fewer messages and connections, but more rounds.
    pub direct_ranks: u32,
    /// A broadcast of at least this many bytes is scattered and gathered again: each process
    /// handles every byte once or twice instead of up to log2(p) times. Below, the binomial tree's
    /// fewer messages win.
    pub bcast_long: u64,
    /// With fewer processes than this the tree is so flat that scattering gains nothing.
    pub bcast_long_ranks: u32,
    /// A broadcast of at least this many bytes to at most `bcast_chain_ranks` goes down a chain in
    /// segments: every process receives one segment while it passes on another. Never by default:
    /// it is for networks where a process has few links.
    pub bcast_chain: u64,
    pub bcast_chain_ranks: u32,
    /// Bytes of a segment of the chain: half a level-2 cache holds what is received and what is
    /// sent.
    pub segment: u64,
    /// Blocks of at most this many bytes are gathered and scattered along a binomial tree, larger
    /// ones directly: the tree saves the root messages, but copies each block up to log2(p) times.
    pub gather_tree: u64,
    /// An all-gather of at most this many bytes in all takes log2(p) rounds (recursive doubling or
    /// Bruck), a larger one goes directly or round a ring, which copies nothing twice.
    pub allgather_short: u64,
    /// Blocks of an all-to-all of at most this many bytes, between at least `alltoall_short_ranks`,
    /// go by Bruck's algorithm: log2(p) messages that carry each byte log2(p) / 2 times, one after
    /// another. With fewer processes, sending all messages at once is faster.
    pub alltoall_short: u64,
    pub alltoall_short_ranks: u32,
    /// Messages that a process has in flight in an all-to-all or a ring, in each direction: enough
    /// to be never idle, few enough that the receivers' unfinished messages stay in cache.
    pub window: u32,
    /// A reduction to one process of at least this many bytes is done in slices: each process
    /// combines and sends each byte about twice instead of up to log2(p) times.
    pub reduce_long: u64,
    /// As `reduce_long`, for a reduction to all.
    pub allreduce_long: u64,
    /// At and above this, and when the processes are no power of two, a reduction to all goes round
    /// a ring instead: 2 (p - 1) rounds, but no process does double work.
    pub allreduce_ring: u64,
    /// A reduction whose result is scattered takes log2(p) rounds up to this many bytes in all;
    /// above, all exchange their parts directly.
    pub reduce_scatter_short: u64,
    /// Where ranks are on several hosts, blocks that amount to at most this many bytes for all
    /// ranks of a host are collected there before they go to another one.
    pub hosts_blocks: u64,
    /// Bytes of temporaries for receiving operands ahead of their use; beyond, receives wait for
    /// their turn.
    pub operands_ahead: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            direct_ranks: 32,
            bcast_long: 256 << 10,
            bcast_long_ranks: 4,
            bcast_chain: u64::MAX,
            bcast_chain_ranks: 8,
            segment: 128 << 10,
            gather_tree: 1 << 10,
            allgather_short: 32 << 10,
            alltoall_short: 128,
            alltoall_short_ranks: 64,
            window: 16,
            reduce_long: 32 << 10,
            allreduce_long: 16 << 10,
            allreduce_ring: 512 << 10,
            reduce_scatter_short: 16 << 10,
            hosts_blocks: 64 << 10,
            operands_ahead: 256 << 10,
        }
    }
}
