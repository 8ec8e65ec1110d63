//! Receive and call: routines of the program that run when a message is there.
//!
//! As with NX's handlers, a thread makes progress while the program computes and calls the routines, one after the other;
//! `mpc_lockrnc` keeps them away.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use margay_run_engine::{Data, Pending};
use margay_sys::signal::SignalSet;

use crate::error::*;
use crate::message::Places;
use crate::{Mpl, deny};

/// Routines are held.
const LOCKED: u32 = 1;
/// A routine runs.
const RUNNING: u32 = 2;

/// What is called with the id of a message that has come.
pub type Routine = Box<dyn FnOnce(i32) + Send>;

/// Messages with routines, and the thread for them.
#[derive(Default)]
pub(crate) struct Service {
    state: AtomicU32,
    /// Which thread it is, 0 before there is one.
    thread: AtomicUsize,
    waiting: Mutex<Vec<(i32, Routine)>>,
}

impl Service {
    fn waiting(&self) -> MutexGuard<'_, Vec<(i32, Routine)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mpl {
    /// `mpc_rcvncall`: posts a receive whose routine is called when the message is there; its id.
    ///
    /// # Errors
    /// As [`ireceive`](Self::ireceive), and when the system gives no thread.
    pub fn receive_and_call(
        &'static self,
        data: Data,
        source: i32,
        kind: i32,
        places: Places,
        routine: Routine,
        tell: impl FnOnce(i32),
    ) -> Result<()> {
        self.start_service()?;
        let id = self.ireceive(data, source, kind, places, true)?;
        // The routine may run before this returns, and may look where the id is wanted.
        tell(id);
        self.service.waiting().push((id, routine));
        self.rank.wake();
        Ok(())
    }

    /// `mpc_lockrnc`: holds routines back (1) or lets them run (0); whether they were held. When it returns from holding them,
    /// none is running, unless a routine itself has called.
    ///
    /// # Errors
    /// When the value is neither 0 nor 1.
    pub fn lock_routines(&self, value: i32) -> Result<i32> {
        let state = &self.service.state;
        let before = match value {
            0 => {
                let before = state.fetch_and(!LOCKED, Ordering::SeqCst);
                self.rank.wake();
                before
            }
            1 => {
                let before = state.fetch_or(LOCKED, Ordering::SeqCst);
                if self.service.thread.load(Ordering::Relaxed) != this_thread() {
                    let idle = || state.load(Ordering::SeqCst) & RUNNING == 0;
                    self.rank
                        .block(|_| idle().then_some(()), |_| Some(Pending::Elsewhere));
                }
                before
            }
            _ => deny!(
                MPL_ARGUMENT,
                "the value is {value}; 1 holds routines, 0 lets them run"
            ),
        };
        Ok((before & LOCKED) as i32)
    }

    fn start_service(&'static self) -> Result<()> {
        let _waiting = self.service.waiting();
        if self.service.thread.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.mpi.lock().set_shared();
        self.rank.lock().set_shared();
        let (tell, told) = std::sync::mpsc::channel();
        let started = std::thread::Builder::new()
            .name("margay-mpl".into())
            .spawn(move || {
                // Signals are for the program.
                SignalSet::all().block();
                let _ = tell.send(this_thread());
                self.rank
                    .serve_with(|| false, || self.run_one(), || self.find().is_some());
            });
        if let Err(error) = started {
            deny!(
                MPL_FAULT,
                "the system gives no thread for the routine: {error}"
            );
        }
        let thread = told.recv().unwrap_or(1);
        self.service.thread.store(thread, Ordering::Relaxed);
        Ok(())
    }

    /// Calls the routine of one message. Returns whether there was one.
    fn run_one(&self) -> bool {
        let service = &self.service;
        if self.find().is_none() {
            return false;
        }
        let begun = service
            .state
            .compare_exchange(0, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
        if begun.is_err() {
            return false;
        }
        let next = self.find().map(|at| service.waiting().remove(at));
        if let Some((id, routine)) = next {
            routine(id);
        }
        service.state.fetch_and(!RUNNING, Ordering::SeqCst);
        self.rank.wake();
        true
    }

    /// The place of a message that is there and whose routine may run. One that was waited for elsewhere is there, too.
    fn find(&self) -> Option<usize> {
        if self.service.state.load(Ordering::SeqCst) & LOCKED != 0 {
            return None;
        }
        let waiting = self.service.waiting();
        (waiting.iter()).position(|&(id, _)| self.is_done(id).unwrap_or(true))
    }
}

/// A number that differs between the threads that are alive.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
