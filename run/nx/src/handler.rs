//! Handlers: routines of the program that run when a message is complete.
//!
//! A thread of the rank's, started at the first use, makes progress while the program computes and
//! calls the handlers, one after the other. From then on calls of NX and MPI take a real lock,
//! because the thread and the program call at the same time. On the Paragon a handler interrupted
//! the program; here it runs beside it, and `masktrap` keeps it away.

use margay_sys_os::user::Mem;

use crate::error::*;
use crate::point::{Outgoing, Part, Wanted};
use crate::{Info, Nx, refuse};

/// What is called when a message is complete.
pub type Handler = Box<dyn FnOnce(Info) + Send>;

/// A message with a handler.
pub(crate) struct Handled {
    parts: Vec<Part>,
    /// What the handler gets about a message that was sent; of a received one it gets that
    /// message's own info.
    info: Info,
    /// What a receive alone is for: by this it can be withdrawn.
    wanted: Option<Wanted>,
    handler: Handler,
    call: &'static str,
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
        self.serve_parts(call, parts, (info, None), handler);
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
        self.serve_parts(call, vec![part], (Info::default(), Some(wanted)), handler);
        Ok(())
    }

    /// `hrecv` without a handler: withdraws the receives with handlers that were posted for the
    /// same messages. A message that one of them has got already is lost; its handler is not
    /// called.
    pub fn withdraw(&self, wanted: Wanted) {
        let ours = |handled: &Handled| handled.wanted == Some(wanted);
        for handled in self.handlers.take(&self.rank, ours) {
            self.cancel_parts(&handled.parts);
        }
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
        self.serve_parts("hsendrecv", parts, (Info::default(), None), handler);
        Ok(())
    }

    /// `masktrap`: holds handlers back (1) or lets them run (0); whether they were held. When it
    /// returns from holding them, none is running, unless a handler itself has called.
    ///
    /// # Errors
    /// When the state is neither 0 nor 1.
    pub fn mask(&self, state: i64) -> Result<i64> {
        let held = match state {
            0 => false,
            1 => true,
            other => refuse!(
                EQPARAM,
                "the state is {other}; 1 holds handlers, 0 lets them run"
            ),
        };
        Ok(i64::from(self.handlers.hold(&self.rank, held)))
    }

    /// Whether the calling thread is the one that calls handlers.
    #[must_use]
    #[inline]
    pub fn is_service_thread(&self) -> bool {
        self.handlers.is_here()
    }

    fn serve_parts(
        &self,
        call: &'static str,
        parts: Vec<Part>,
        (info, wanted): (Info, Option<Wanted>),
        handler: Handler,
    ) {
        let handled = Handled {
            parts,
            info,
            wanted,
            handler,
            call,
        };
        self.handlers.add(&self.rank, handled);
    }

    fn start_service(&'static self) -> Result<()> {
        self.mpi.lock().set_shared();
        let started = self.handlers.start(&self.rank, "margay-nx", || {
            self.handlers.serve(
                &self.rank,
                |handled| self.are_done(&handled.parts),
                |handled| self.handle(handled),
            );
        });
        if let Err(error) = started {
            refuse!(EQHND, "the system gives no thread for handlers: {error}");
        }
        Ok(())
    }

    fn handle(&self, handled: Handled) {
        let mut info = handled.info;
        if let Err(error) = self.finish(&handled.parts, |_, received| info = received) {
            (self.fatal)(handled.call, &error);
        }
        (handled.handler)(info);
    }
}
