//! The optional progress thread: a rank's messages move while the program computes.
//!
//! The Paragon gave each node a second processor for messages; here it is a thread, and only for
//! programs that ask for it. Large messages then flow and nonblocking collectives go on without
//! calls; the price is that the rank's state is locked and that each arrival may have to wake a
//! thread.
//!
//! It works only while something is under way and no thread of the program waits in a call (a
//! thread that waits makes progress anyway, and faster alone). Between arrivals it spins for a
//! moment if a core is free for that, since waking a core that ran dry takes as long as a large
//! message; else it sleeps on the rank's event count.
//!
//! It never takes the core from a thread that computes: when it is woken, the kernel lets it wait
//! for a free core or for its turn ([`cpu::set_batch_scheduling`]). Woken by a nonblocking call, it
//! would else run at once in the caller's place, and the call would last as long as the copies that
//! it should leave to others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, JoinHandle};

use margay_sys_os::cpu;
use margay_sys_os::process::ThreadState;

use crate::rank::Rank;
use crate::wait::SLEEP_NS;

/// A running progress thread; it ends when this is dropped.
pub struct ProgressThread {
    rank: Arc<Rank>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Starts a progress thread; call from the thread that computes. The rank must not have been
    /// declared single-threaded, and it may have one progress thread at a time.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(rank: &Arc<Rank>) -> io::Result<ProgressThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (served, stopped) = (rank.clone(), stop.clone());
        let program = ThreadState::of_caller();
        let thread = Builder::new()
            .name("margay-progress".into())
            .spawn(move || served.serve(&stopped, program.as_ref()))?;
        *rank.helper.thread() = Some(thread.thread().clone());
        rank.helper.is_there.store(true, Ordering::SeqCst);
        rank.with_engine(|engine| engine.set_helped(true));
        Ok(ProgressThread {
            rank: rank.clone(),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.rank.helper.is_there.store(false, Ordering::SeqCst);
        self.rank.with_engine(|engine| engine.set_helped(false));
        self.rank.wake();
        if let Some(thread) = self.rank.helper.thread().take() {
            thread.unpark();
        }
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported on stderr; there is no caller here to report it to.
            let _ = thread.join();
        }
    }
}

/// How often it asks the kernel whether a core is still free for it, in nanoseconds.
const ASK_NS: u64 = 50_000;

impl Rank {
    /// How long a progress thread spins after something has moved, before it sleeps, in
    /// nanoseconds.
    #[must_use]
    pub fn spin_ns(&self) -> u64 {
        self.helper.spin_ns.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_spin_ns(&self, spin_ns: u64) {
        self.helper.spin_ns.store(spin_ns, Ordering::Relaxed);
    }

    /// What a progress thread does until `stop` is set and it is woken. `program` tells whether the
    /// program computes.
    fn serve(&self, stop: &AtomicBool, program: Option<&ThreadState>) {
        cpu::set_batch_scheduling();
        // While the program computes, a core is free only where all ranks' programs leave one for
        // each of their threads.
        let has_core = || {
            let computes = program.is_none_or(ThreadState::is_running);
            !computes || self.is_roomy()
        };
        let stopped = || stop.load(Ordering::SeqCst);
        while !stopped() {
            if self.is_idle(stop) {
                self.helper.is_parked.store(true, Ordering::SeqCst);
                if self.is_idle(stop) {
                    thread::park();
                }
                self.helper.is_parked.store(false, Ordering::SeqCst);
                continue;
            }
            let mut moved = self.clock().now_ns();
            let mut now = moved;
            while now - moved < self.spin_ns() && !self.is_idle(stop) && has_core() {
                let until = now + ASK_NS;
                while now < until && !self.is_idle(stop) {
                    if self.progress() {
                        moved = now;
                    }
                    cpu::pause();
                    now = self.clock().now_ns();
                }
            }
            if !self.is_idle(stop) {
                self.sleep_until_woken(SLEEP_NS, &mut || {
                    self.is_idle(stop) || stopped() || self.progress()
                });
            }
        }
    }

    /// What a thread of a library does that acts on what arrives while the program computes: makes
    /// progress whenever something comes, asleep in between, without end. Whenever something has
    /// happened, `turn` does what the thread is there for, and returns whether there was anything
    /// to do; `has_work` tells that before the thread sleeps.
    pub(crate) fn serve_with(&self, mut turn: impl FnMut() -> bool, has_work: impl Fn() -> bool) {
        loop {
            if !(self.progress() | turn()) {
                self.sleep_until_woken(SLEEP_NS, &mut || self.progress() || has_work());
            }
        }
    }

    /// Whether there are cores for a second thread of each rank, as far as this one may use them.
    fn is_roomy(&self) -> bool {
        self.peers().cores() >= 2 * self.world_size() && cpu::affinity().len() > 1
    }

    /// Whether there is nothing to do for a progress thread that shall not stop.
    fn is_idle(&self, stop: &AtomicBool) -> bool {
        let is_waited = self.helper.waiting.load(Ordering::SeqCst) != 0;
        (is_waited || !self.is_under_way()) && !stop.load(Ordering::SeqCst)
    }
}
