//! Threads that nest: user-level threads over OS threads, as the Illinois-Intel Multithreading
//! Library had them (Girkar, Haghighat, Grey, Saito, Stavrakos, Polychronopoulos, "Illinois-Intel
//! Multithreading Library: Multithreading Support for Intel Architecture-Based Multiprocessor
//! Systems", Intel Technology Journal, Q1 1998).
//!
//! There are as many workers as usable cores. Any nesting of loops, forks and tasks is parallel,
//! and a fork that nobody steals costs a few nanoseconds. How it works, state by state:
//! `README.md`, beside this crate.
//!
//! ```
//! use margay_run_threads::{AnyClock, Config, Pool, Worker};
//!
//! fn fib(worker: &Worker, n: u32) -> u64 {
//!     if n < 2 {
//!         return u64::from(n);
//!     }
//!     let (a, b) = worker.join(|worker| fib(worker, n - 1), |worker| fib(worker, n - 2));
//!     a + b
//! }
//!
//! let pool = Pool::new(Config::default(), AnyClock::System);
//! assert_eq!(pool.enter(|worker| fib(worker, 20)), 6765);
//! ```

#![forbid(unsafe_code)]

mod config;
mod contention;
mod fiber_table;
mod loops;
mod offer;
mod parking;
mod pool;
mod pool_state;
mod steal_backoff;
mod time_slices;
mod watched;
mod watcher;
mod worker;

pub use config::{Config, Refusal};
pub use fiber_table::FiberId;
pub use loops::Iterations;
pub use margay_core_loops::Schedule;
pub use margay_sys_os::clock::AnyClock;
pub use margay_sys_threads::job::Group;
pub use margay_sys_threads::preempt::{Interrupted, Reason};
pub use offer::{Offer, PublishedOffer, RetractedOffer, STEAL_DELAY_NS};
pub use pool::{Pool, preempt_by, with_current_worker, with_worker};
pub use steal_backoff::StealBackoff;
pub use worker::{DequeMark, Worker};

impl Worker {
    /// Runs both closures, in parallel when another worker is idle, and returns when both have run.
    /// A panic of either is resumed here then.
    #[inline]
    pub fn join<A, B, Q, R>(&self, first: A, second: B) -> (Q, R)
    where
        A: FnOnce(&Worker) -> Q,
        B: FnOnce(&Worker) -> R + Send,
        R: Send,
    {
        margay_sys_threads::job::fork(self, first, second)
    }

    /// Runs `body`, which may [`spawn`](Group::spawn) tasks that borrow what outlives the call, and
    /// returns when it and all of them have run.
    pub fn group<'s, R>(&self, body: impl FnOnce(&Worker, &Group<'s, Worker>) -> R) -> R {
        margay_sys_threads::job::group(self, body)
    }
}
