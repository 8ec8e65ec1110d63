//! The optional progress thread: a rank's messages move while the program computes.
//!
//! The Paragon gave each node a second processor for messages; here it is a thread, and only for who
//! asks for it. It sleeps on the rank's doorbell like any thread that waits and handles what arrives.
//! Large messages then flow and nonblocking collectives go on without calls; the price is that the
//! rank's state is locked and that each arrival may have to wake a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::rank::Rank;

/// A running progress thread; it ends when this is dropped.
pub struct ProgressThread {
    rank: Arc<Rank>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Starts a progress thread. The rank must not have been told that it has a single thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(rank: &Arc<Rank>) -> io::Result<ProgressThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (served, stopped) = (rank.clone(), stop.clone());
        let thread = Builder::new()
            .name("margay-progress".into())
            .spawn(move || served.serve(&stopped))?;
        Ok(ProgressThread {
            rank: rank.clone(),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.rank.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been told on stderr; there is nobody here to tell more.
            let _ = thread.join();
        }
    }
}
