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
//! It never takes the core from a thread that computes: the kernel lets it wait for a free core, or for its
//! turn, when it is woken ([`cpu::set_batch_scheduling`]). Woken by a nonblocking call, it would else run at once in the
//! caller's place, and the call would last as long as the copies that it should leave to others.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle, Thread};

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

/// What a rank's threads and its progress thread tell each other.
#[derive(Debug)]
pub(crate) struct Helper {
    is_there: AtomicBool,
    /// It sleeps until somebody unparks it: arrivals do not concern it.
    is_parked: AtomicBool,
    /// Threads of the program that wait in a call and make progress there.
    waiting: AtomicU32,
    thread: Mutex<Option<Thread>>,
    /// How long the progress thread spins for more after something has moved, in nanoseconds.
    spin_ns: AtomicU64,
}

impl Default for Helper {
    fn default() -> Self {
        Helper {
            is_there: AtomicBool::default(),
            is_parked: AtomicBool::default(),
            waiting: AtomicU32::default(),
            thread: Mutex::default(),
            spin_ns: AtomicU64::new(SPIN_NS),
        }
    }
}

/// A thread of the program is waiting.
pub(crate) struct InWait<'a>(&'a Rank);

impl Helper {
    fn thread(&self) -> std::sync::MutexGuard<'_, Option<Thread>> {
        self.thread.lock().expect("no panic under this lock")
    }

    /// Whether there is a progress thread.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// A thread of the program is about to wait and make progress.
    #[inline]
    pub(crate) fn pause<'a>(&self, rank: &'a Rank) -> Option<InWait<'a>> {
        self.is_there().then(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            InWait(rank)
        })
    }

    /// Something is under way that nobody waits for. Call with the engine locked, or after a wait: then either this sees
    /// that the progress thread has parked, or the progress thread sees what is under way before it parks.
    #[inline]
    pub(crate) fn resume(&self) {
        if self.is_parked.load(Ordering::SeqCst) && self.waiting.load(Ordering::SeqCst) == 0 {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        if let Some(thread) = &*self.thread() {
            thread.unpark();
        }
    }
}

impl Drop for InWait<'_> {
    fn drop(&mut self) {
        let helper = &self.0.helper;
        helper.waiting.fetch_sub(1, Ordering::SeqCst);
        if helper.is_parked.load(Ordering::SeqCst) && self.0.is_under_way() {
            helper.resume();
        }
    }
}

/// The default of `spin_ns`: how long it spins for more.
const SPIN_NS: u64 = 200_000;
/// How often it asks the kernel whether a core is still free for it, in nanoseconds.
const ASK_NS: u64 = 50_000;

impl Rank {
    /// Returns how long a progress thread spins for more after something has moved, before it
    /// sleeps, in nanoseconds.
    #[must_use]
    pub fn spin_ns(&self) -> u64 {
        self.helper.spin_ns.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_spin_ns(&self, spin_ns: u64) {
        self.helper.spin_ns.store(spin_ns, Ordering::Relaxed);
    }

    /// What a progress thread does until `stop` is set and it is woken. `program` tells whether the program computes.
    fn serve(&self, stop: &AtomicBool, program: Option<&ThreadState>) {
        cpu::set_batch_scheduling();
        // While the program computes, a core is free only where all ranks' programs leave one for each of their threads.
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
