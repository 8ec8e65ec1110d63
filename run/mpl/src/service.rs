//! Receive and call: routines of the program that run when a message is there.
//!
//! As with NX's handlers, a thread makes progress while the program computes and calls the
//! routines, one after the other; `mpc_lockrnc` keeps them away.

use margay_run_engine::Data;

use crate::error::*;
use crate::message::Places;
use crate::{Mpl, deny};

/// What is called with the id of a message that has come.
pub type Routine = Box<dyn FnOnce(i32) + Send>;

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
        // The routine may run before this returns, and may read the place where the id is wanted.
        tell(id);
        self.routines.add(&self.rank, (id, routine));
        Ok(())
    }

    /// `mpc_lockrnc`: holds routines back (1) or lets them run (0); whether they were held. When it
    /// returns from holding them, none is running, unless a routine itself has called.
    ///
    /// # Errors
    /// When the value is neither 0 nor 1.
    pub fn lock_routines(&self, value: i32) -> Result<i32> {
        let held = match value {
            0 => false,
            1 => true,
            _ => deny!(
                MPL_ARGUMENT,
                "the value is {value}; 1 holds routines, 0 lets them run"
            ),
        };
        Ok(i32::from(self.routines.hold(&self.rank, held)))
    }

    fn start_service(&'static self) -> Result<()> {
        self.mpi.lock().set_shared();
        let started = self.routines.start(&self.rank, "margay-mpl", || {
            // One that was waited for elsewhere is there, too.
            self.routines.serve(
                &self.rank,
                |&(id, _)| self.is_done(id).unwrap_or(true),
                |(id, routine)| routine(id),
            );
        });
        if let Err(error) = started {
            deny!(
                MPL_FAULT,
                "the system gives no thread for the routine: {error}"
            );
        }
        Ok(())
    }
}
