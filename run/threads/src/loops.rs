//! Parallel loops and reductions, by splitting ranges.
//!
//! A range is forked lazily: the upper part lies in the deque while the lower one runs, and is
//! popped again when no thief has taken it, which costs a few nanoseconds. Thieves take the oldest
//! entry, which is the largest part.

use margay_core_loops::Schedule;
use margay_sys_threads::job::fork;

use crate::worker::Worker;

/// The iterations of a loop, and how many one call of its body gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// The number of iterations; they are numbered from 0.
    pub count: u64,
    pub schedule: Schedule,
    /// No chunk has fewer iterations, except the last.
    pub min_chunk: u64,
}

impl Iterations {
    /// `count` iterations in chunks of about `grain`, for loops whose iterations cost about the
    /// same.
    #[must_use]
    pub fn with_grain(count: u64, grain: u64) -> Iterations {
        Iterations {
            count,
            schedule: Schedule::Simple,
            min_chunk: grain,
        }
    }
}

/// Passed by reference: a copy would have to wait for the stores of the words that were just
/// written.
struct Loop<'a, B> {
    iterations: &'a Iterations,
    threads: u64,
    body: &'a B,
}

impl<B: Fn(&Worker, u64, u64) + Sync> Loop<'_, B> {
    #[inline]
    fn chunk(&self, left: u64) -> u64 {
        let &Iterations {
            count,
            schedule,
            min_chunk,
        } = self.iterations;
        schedule.chunk(count, left, self.threads, min_chunk)
    }

    /// Chunks of one size: the range is halved between chunks.
    fn even(&self, worker: &Worker, begin: u64, end: u64, chunk: u64) {
        let left = end - begin;
        if left <= chunk {
            (self.body)(worker, begin, left);
            return;
        }
        let middle = begin + left.div_ceil(chunk) / 2 * chunk;
        fork(
            worker,
            |worker| self.even(worker, begin, middle, chunk),
            |worker| self.even(worker, middle, end, chunk),
        );
    }

    /// Chunks that shrink: the first is taken off and the rest may be stolen. A thief halves what
    /// it has stolen, so that the next thief finds a half. `forker` is the slot of the worker that
    /// forked the range.
    fn shrinking(&self, worker: &Worker, begin: u64, end: u64, forker: u16) {
        let left = end - begin;
        let least = self.iterations.min_chunk;
        let here = worker.fiber_id().worker;
        if here != forker && left / 2 >= least.max(1) {
            let middle = begin + left / 2;
            fork(
                worker,
                |worker| self.shrinking(worker, begin, middle, here),
                |worker| self.shrinking(worker, middle, end, here),
            );
            return;
        }
        let chunk = self.chunk(left);
        // No range of this loop may be left with less than a minimum chunk: it could lie in the
        // middle.
        if left - chunk < least.max(1) {
            (self.body)(worker, begin, left);
            return;
        }
        fork(
            worker,
            |worker| (self.body)(worker, begin, chunk),
            |worker| self.shrinking(worker, begin + chunk, end, here),
        );
    }
}

impl Worker {
    /// Runs a parallel loop and returns when it is complete. `body` gets the worker, the first
    /// iteration and the number of iterations. It may fork, loop and block itself.
    #[inline]
    pub fn for_each<B>(&self, iterations: Iterations, body: &B)
    where
        B: Fn(&Worker, u64, u64) + Sync,
    {
        let count = iterations.count;
        if count == 0 {
            return;
        }
        let whole = Loop {
            iterations: &iterations,
            threads: if iterations.schedule.counts_threads() {
                self.active() as u64
            } else {
                1
            },
            body,
        };
        if iterations.schedule.is_even() {
            whole.even(self, 0, count, whole.chunk(count));
        } else {
            whole.shrinking(self, 0, count, self.fiber_id().worker);
        }
    }

    /// Reduces `count` iterations: `map` returns the value of a chunk of at most `grain`
    /// iterations, given its first iteration and their number; `combine` combines the values of two
    /// neighbours. The tree depends on `count` and `grain` alone, so the result does not depend on
    /// which worker computed what. `identity` is the value of no iterations.
    pub fn reduce<T, M, K>(&self, count: u64, grain: u64, identity: T, map: &M, combine: &K) -> T
    where
        T: Send,
        M: Fn(&Worker, u64, u64) -> T + Sync,
        K: Fn(T, T) -> T + Sync,
    {
        if count == 0 {
            return identity;
        }
        reduce(self, 0, count, grain.max(1), map, combine)
    }
}

fn reduce<T, M, K>(worker: &Worker, begin: u64, end: u64, grain: u64, map: &M, combine: &K) -> T
where
    T: Send,
    M: Fn(&Worker, u64, u64) -> T + Sync,
    K: Fn(T, T) -> T + Sync,
{
    let left = end - begin;
    if left <= grain {
        return map(worker, begin, left);
    }
    let middle = begin + left.div_ceil(grain) / 2 * grain;
    let (lower, upper) = fork(
        worker,
        |worker| reduce(worker, begin, middle, grain, map, combine),
        |worker| reduce(worker, middle, end, grain, map, combine),
    );
    combine(lower, upper)
}
