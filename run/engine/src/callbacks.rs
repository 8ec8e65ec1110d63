//! Routines of the program that a thread of the rank calls when something is complete, one after
//! the other, while the program computes: NX's handlers, MPL's receive-and-call.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use margay_sys_os::lock::this_thread;
use margay_sys_os::signal::SignalSet;

use crate::call::Pending;
use crate::rank::Rank;

/// Routines are held.
const HELD: u32 = 1;
/// A routine runs.
const RUNNING: u32 = 2;

/// What shall be called, and the thread for it.
#[derive(Debug)]
pub struct Callbacks<T> {
    state: AtomicU32,
    /// Which thread it is, 0 before there is one.
    thread: AtomicUsize,
    waiting: Mutex<Vec<T>>,
}

impl<T> Default for Callbacks<T> {
    fn default() -> Self {
        Callbacks {
            state: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }
}

impl<T> Callbacks<T> {
    fn waiting(&self) -> MutexGuard<'_, Vec<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, which does nothing but `serve` (that is, [`Callbacks::serve`]), unless it
    /// is there. From then on several threads may use the rank.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        &self,
        rank: &Rank,
        name: &str,
        serve: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let _waiting = self.waiting();
        if self.thread.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        rank.lock().set_shared();
        let (sender, receiver) = std::sync::mpsc::channel();
        Builder::new().name(name.into()).spawn(move || {
            // Signals are for the program.
            SignalSet::of_others().block();
            let _ = sender.send(this_thread());
            serve();
        })?;
        self.thread
            .store(receiver.recv().unwrap_or(1), Ordering::Relaxed);
        Ok(())
    }

    /// What the thread does: makes progress, and has `call` called with what `is_complete`.
    pub fn serve(&self, rank: &Rank, is_complete: impl Fn(&T) -> bool, call: impl Fn(T)) {
        let find = || {
            if self.state.load(Ordering::SeqCst) & HELD != 0 {
                return None;
            }
            self.waiting().iter().position(&is_complete)
        };
        let run_one = || {
            if find().is_none() {
                return false;
            }
            let begun = self
                .state
                .compare_exchange(0, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
            if begun.is_err() {
                return false;
            }
            // Others only add behind what is there.
            let next = find().map(|at| self.waiting().remove(at));
            if let Some(next) = next {
                call(next);
            }
            self.state.fetch_and(!RUNNING, Ordering::SeqCst);
            rank.wake();
            true
        };
        rank.serve_with(run_one, || find().is_some());
    }

    /// Adds what shall be called. It may be complete already.
    pub fn add(&self, rank: &Rank, item: T) {
        self.waiting().push(item);
        rank.wake();
    }

    /// Takes out what `is_wanted`; none of it is called any more when this returns.
    pub fn take(&self, rank: &Rank, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
        // The thread keeps what it has found by its place.
        let was_held = self.hold(rank, true);
        let mut waiting = self.waiting();
        let (taken, kept) = waiting.drain(..).partition(is_wanted);
        *waiting = kept;
        drop(waiting);
        if !was_held {
            self.hold(rank, false);
        }
        taken
    }

    /// Holds the routines back, or lets them run; whether they were held. When it returns from
    /// holding them, none is running, unless a routine itself has called.
    pub fn hold(&self, rank: &Rank, held: bool) -> bool {
        let before = if held {
            let before = self.state.fetch_or(HELD, Ordering::SeqCst);
            if !self.is_here() {
                let idle = || self.state.load(Ordering::SeqCst) & RUNNING == 0;
                rank.block(|_| idle().then_some(()), |_| Some(Pending::Elsewhere));
            }
            before
        } else {
            let before = self.state.fetch_and(!HELD, Ordering::SeqCst);
            rank.wake();
            before
        };
        before & HELD != 0
    }

    /// Whether the thread is there.
    #[must_use]
    pub fn has_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    /// Whether the calling thread is the one that calls the routines.
    #[must_use]
    #[inline]
    pub fn is_here(&self) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        thread != 0 && thread == this_thread()
    }
}
