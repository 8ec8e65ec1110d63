//! Handlers: routines of the program that run when a message is complete.
//!
//! A thread of the rank's, started at the first use, makes progress while the program computes and calls the handlers, one
//! after the other. From then on calls of NX and MPI take a real lock, because the thread and the program call at the
//! same time. On the Paragon a handler interrupted the program; here it runs beside it, and `masktrap` keeps it away.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use margay_run_engine::Pending;
use margay_sys::signal::SignalSet;
use margay_sys::user::Mem;

use crate::error::*;
use crate::mids::Part;
use crate::point::{Outgoing, Wanted};
use crate::{Fatal, Info, Nx, refuse};

/// Handlers are held.
const MASKED: u32 = 1;
/// A handler runs.
const RUNNING: u32 = 2;

/// What is called when a message is complete.
pub type Handler = Box<dyn FnOnce(Info) + Send>;

/// Messages with handlers, and the thread for them.
pub(crate) struct Service {
    fatal: Fatal,
    state: AtomicU32,
    /// Which thread it is, 0 before there is one.
    thread: AtomicUsize,
    waiting: Mutex<Vec<Handled>>,
}

struct Handled {
    parts: Vec<Part>,
    /// What the handler is told of a message that was sent; that of a received one is told by itself.
    info: Info,
    handler: Handler,
    call: &'static str,
}

impl Service {
    pub(crate) fn new(fatal: Fatal) -> Service {
        Service {
            fatal,
            state: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Handled>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nx {
    /// `hsend`: sends, and calls the handler when the bytes may be changed.
    ///
    /// # Errors
    /// As [`send`](Self::send), and when the system gives no thread.
    pub fn hsend(&'static self, call: &'static str, out: Outgoing, handler: Handler) -> Result<()> {
        self.start_service()?;
        let parts = self.isend_parts(out)?;
        let info = Info {
            kind: out.kind,
            count: out.piece.size() as i64,
            node: out.node,
            ptype: out.ptype,
        };
        self.serve_parts(call, parts, info, handler);
        Ok(())
    }

    /// `hrecv`: posts a receive, and calls the handler when the message is there.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn hrecv(
        &'static self,
        call: &'static str,
        mem: Mem,
        wanted: Wanted,
        handler: Handler,
    ) -> Result<()> {
        self.start_service()?;
        let room = mem.room();
        let part = self.ireceive_part(mem, room, wanted, 0);
        self.serve_parts(call, vec![part], Info::default(), handler);
        Ok(())
    }

    /// `hsendrecv`: both; the handler is called when both are complete.
    ///
    /// # Errors
    /// As [`hsend`](Self::hsend).
    pub fn hsendrecv(
        &'static self,
        out: Outgoing,
        mem: Mem,
        wanted: Wanted,
        handler: Handler,
    ) -> Result<()> {
        self.start_service()?;
        let parts = self.isend_and_receive(out, mem, wanted, 0)?;
        self.serve_parts("hsendrecv", parts, Info::default(), handler);
        Ok(())
    }

    /// `masktrap`: holds handlers back (1) or lets them run (0); whether they were held. When it returns from holding them,
    /// none is running, unless a handler itself has called.
    ///
    /// # Errors
    /// When the state is neither 0 nor 1.
    pub fn mask(&self, state: i64) -> Result<i64> {
        let service = &self.service;
        let before = match state {
            0 => {
                let before = service.state.fetch_and(!MASKED, Ordering::SeqCst);
                self.rank.wake();
                before
            }
            1 => {
                let before = service.state.fetch_or(MASKED, Ordering::SeqCst);
                if !self.is_service_thread() {
                    let idle = || service.state.load(Ordering::SeqCst) & RUNNING == 0;
                    self.rank
                        .block(|_| idle().then_some(()), |_| Some(Pending::Elsewhere));
                }
                before
            }
            other => refuse!(
                EQPARAM,
                "the state is {other}; 1 holds handlers, 0 lets them run"
            ),
        };
        Ok(i64::from(before & MASKED))
    }

    /// Whether the calling thread is the one that calls handlers.
    #[must_use]
    #[inline]
    pub fn is_service_thread(&self) -> bool {
        let thread = self.service.thread.load(Ordering::Relaxed);
        thread != 0 && thread == this_thread()
    }

    fn serve_parts(&self, call: &'static str, parts: Vec<Part>, info: Info, handler: Handler) {
        self.service.waiting().push(Handled {
            parts,
            info,
            handler,
            call,
        });
        // It may be complete already.
        self.rank.wake();
    }

    fn start_service(&'static self) -> Result<()> {
        let mut waiting = self.service.waiting();
        if self.service.thread.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.mpi.lock().set_shared();
        self.rank.lock().set_shared();
        let (tell, told) = std::sync::mpsc::channel();
        let started = std::thread::Builder::new()
            .name("margay-nx".into())
            .spawn(move || {
                // Signals are for the program.
                SignalSet::all().block();
                let _ = tell.send(this_thread());
                self.rank
                    .serve_with(|| false, || self.run_one(), || self.find().is_some());
            });
        if let Err(error) = started {
            refuse!(EQHND, "the system gives no thread for handlers: {error}");
        }
        let thread = told.recv().unwrap_or(1);
        self.service.thread.store(thread, Ordering::Relaxed);
        waiting.reserve(16);
        Ok(())
    }

    /// Calls the handler of one complete message. Returns whether there was one.
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
        if let Some(handled) = next {
            let mut info = handled.info;
            if let Err(error) = self.finish(&handled.parts, |_, received| info = received) {
                (service.fatal)(handled.call, &error);
            }
            (handled.handler)(info);
        }
        service.state.fetch_and(!RUNNING, Ordering::SeqCst);
        self.rank.wake();
        true
    }

    /// The place of a message that is complete and whose handler may run.
    fn find(&self) -> Option<usize> {
        if self.service.state.load(Ordering::SeqCst) & MASKED != 0 {
            return None;
        }
        let waiting = self.service.waiting();
        waiting.iter().position(|h| self.are_done(&h.parts))
    }
}

/// A number that differs between the threads that are alive.
pub(crate) fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
