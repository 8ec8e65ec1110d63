//! Compute with the second processor: routines on another thread of the node.
//!
//! ASCI Red's nodes had two processors, and a program could have a routine run on the second one
//! while it went on itself (Intel Technology Journal, Q1 1998). Here it is a thread that is started
//! at the first use and runs the routines in the order of the calls. It may not pass messages.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use margay_sys_os::lock::this_thread;
use margay_sys_os::signal::SignalSet;

use crate::error::*;
use crate::refuse;

/// A routine with its parameters.
pub type Routine = Box<dyn FnOnce() + Send>;

/// The second processor.
pub struct Cop {
    work: Mutex<Option<Sender<Routine>>>,
    thread: AtomicUsize,
}

impl Default for Cop {
    fn default() -> Self {
        Self::new()
    }
}

impl Cop {
    /// Without a thread as yet.
    #[must_use]
    pub const fn new() -> Cop {
        Cop {
            work: Mutex::new(None),
            thread: AtomicUsize::new(0),
        }
    }

    /// `cop`: has a routine run, after those that were given before.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn run(&self, routine: Routine) -> Result<()> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.is_none() {
            let (give, take) = channel::<Routine>();
            let (sender, receiver) = channel();
            let started = std::thread::Builder::new()
                .name("margay-cop".into())
                .spawn(move || {
                    SignalSet::of_others().block();
                    let _ = sender.send(this_thread());
                    for routine in take {
                        routine();
                    }
                });
            if let Err(error) = started {
                refuse!(EQSTATE, "the system gives no thread: {error}");
            }
            self.thread
                .store(receiver.recv().unwrap_or(1), Ordering::Relaxed);
            *work = Some(give);
        }
        let sent = work.as_ref().is_some_and(|give| give.send(routine).is_ok());
        if !sent {
            refuse!(EQSTATE, "the thread has ended");
        }
        Ok(())
    }

    /// Whether the calling thread is the second processor.
    #[must_use]
    #[inline]
    pub fn is_here(&self) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        thread != 0 && thread == this_thread()
    }
}
