//! Threads that nest: user-level threads over OS threads, as the Illinois-Intel Multithreading Library had them
//! (Girkar, Haghighat, Grey, Saito, Stavrakos, Polychronopoulos, "Illinois-Intel Multithreading Library: Multithreading Support
//! for Intel Architecture-Based Multiprocessor Systems", Intel Technology Journal, Q1 1998).
//!
//! There are as many workers as usable cores. Any nesting of loops, forks and tasks is parallel, and what is forked
//! costs a few nanoseconds when nobody takes it. How it works, state by state: `README.md`, beside this crate.
//!
//! ```
//! use margay_run_threads::{Worker, join, with_worker};
//!
//! fn fib(worker: &Worker, n: u32) -> u64 {
//!     if n < 2 {
//!         return u64::from(n);
//!     }
//!     let (a, b) = worker.join(|worker| fib(worker, n - 1), |worker| fib(worker, n - 2));
//!     a + b
//! }
//!
//! assert_eq!(with_worker(|worker| fib(worker, 20)), 6765);
//! let (left, right) = join(|| 1, || 2);
//! assert_eq!(left + right, 3);
//! ```

#![forbid(unsafe_code)]

mod inbox;
mod loops;
mod offer;
mod parking;
mod pool;
mod rest;
mod worker;

pub use loops::Iterations;
pub use margay_core_loops::Schedule;
pub use margay_sys::job::Group;
pub use offer::{ALONE_NS, Covered, Offer, Offered};
pub use pool::{Config, Pool, Token, configure, preempt_by, with_worker};
pub use rest::Rest;
pub use worker::{Mark, Worker};

impl Worker {
    /// Runs both, in parallel when another worker is idle, and returns when both have run. A panic of either comes out of
    /// here then.
    #[inline]
    pub fn join<A, B, Q, R>(&self, first: A, second: B) -> (Q, R)
    where
        A: FnOnce(&Worker) -> Q,
        B: FnOnce(&Worker) -> R + Send,
        R: Send,
    {
        margay_sys::job::fork(self, first, second)
    }

    /// Runs `body`, which may [`spawn`](Group::spawn) tasks that borrow what outlives the call, and returns when it and all of
    /// them have run.
    pub fn group<'s, R>(&self, body: impl FnOnce(&Worker, &Group<'s, Worker>) -> R) -> R {
        margay_sys::job::group(self, body)
    }
}

/// [`Worker::join`] on the calling thread's worker.
pub fn join<A, B, Q, R>(first: A, second: B) -> (Q, R)
where
    A: FnOnce() -> Q,
    B: FnOnce() -> R + Send,
    R: Send,
{
    with_worker(|worker| worker.join(|_| first(), |_| second()))
}
