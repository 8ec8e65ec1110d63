//! How a pool is made.

use margay_sys_os::cpu;

/// How a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that run work at the same time, the calling one included. At least 1.
    pub workers: usize,
    /// Bytes of a fiber's stack.
    pub stack_bytes: usize,
    /// How long an idle worker spins before it sleeps, in nanoseconds.
    pub spin_ns: u64,
    /// How long it spins at most while each runnable thread of the machine has a core, in
    /// nanoseconds.
    pub free_spin_ns: u64,
    /// Whether each worker of the pool is bound to one core.
    pub bind: bool,
    /// What happens when the system refuses threads or stacks.
    pub refusal: Refusal,
}

/// What a pool does when the system refuses what it asks for. Both functions get one line that
/// names the limit and the remedy.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The pool goes on with less.
    pub warn: fn(&str),
    /// The pool cannot go on.
    pub fail: fn(&str) -> !,
}

impl Default for Refusal {
    /// A line on standard error, and a panic.
    fn default() -> Self {
        Refusal {
            warn: |text| eprintln!("{text}"),
            fail: |text| panic!("{text}"),
        }
    }
}

/// How long an idle worker spins by default: a few times what waking it costs.
const SPIN_NS: u64 = 100_000;
/// The same where a core is free: of a serial part that is longer, waking costs a hundredth.
const FREE_SPIN_NS: u64 = 5_000_000;

impl Default for Config {
    /// As many workers as this process has usable cores (affinity mask and CPU quota), and stacks
    /// as large as the system gives a thread, up to 8 MiB. Stacks cost memory where they are
    /// touched.
    fn default() -> Self {
        Config {
            workers: cpu::usable_cores(),
            stack_bytes: 8 << 20,
            spin_ns: SPIN_NS,
            free_spin_ns: FREE_SPIN_NS,
            bind: false,
            refusal: Refusal::default(),
        }
    }
}
