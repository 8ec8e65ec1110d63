//! Error handlers, classes and codes.

use std::ffi::c_int;
use std::sync::Arc;

use margay_run_mpi::constants::errhandler::MPI_ERRHANDLER_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::limit::MPI_MAX_ERROR_STRING;
use margay_run_mpi::errhandler::Callback;
use margay_run_mpi::error::{Error, class_text};
use margay_run_mpi::fail;

use crate::call::{known, mpi};
use crate::types::*;
use crate::user::{Place, Text, TextOut};

mpi! {
    /// Makes an error handler of a function.
    fn MPI_Comm_create_errhandler(comm_errhandler_fn: MPI_Comm_errhandler_function, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = comm_errhandler_fn else {
            fail!(MPI_ERR_ARG, "comm_errhandler_fn is a null pointer");
        };
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.errhandler_create(Arc::new(UserHandler(function)))?))
    }

    /// Gives a communicator an error handler.
    fn MPI_Comm_set_errhandler(comm: MPI_Comm, errhandler: MPI_Errhandler) |mpi| on comm {
        mpi.comm_set_errhandler(comm.value(), errhandler.value())
    }

    /// The error handler of a communicator.
    fn MPI_Comm_get_errhandler(comm: MPI_Comm, errhandler: Place<MPI_Errhandler>) |mpi| on comm {
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.comm_get_errhandler(comm.value())?))
    }

    /// Calls the error handler of a communicator.
    fn MPI_Comm_call_errhandler(comm: MPI_Comm, errorcode: c_int) |mpi| {
        let handle = comm.value();
        mpi.comm(handle)?;
        let error = mpi.call_errhandler(handle, errorcode);
        crate::call::raise(mpi, "MPI_Comm_call_errhandler", Some(handle), error);
        Ok(())
    }

    /// Makes an error handler of a function, for sessions.
    always fn MPI_Session_create_errhandler(session_errhandler_fn: MPI_Session_errhandler_function, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = session_errhandler_fn else {
            fail!(MPI_ERR_ARG, "session_errhandler_fn is a null pointer");
        };
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.errhandler_create(Arc::new(SessionHandler(function)))?))
    }

    /// Gives a session an error handler.
    fn MPI_Session_set_errhandler(session: MPI_Session, errhandler: MPI_Errhandler) |mpi| on session {
        mpi.session_set_errhandler(session.value(), errhandler.value())
    }

    /// The error handler of a session.
    fn MPI_Session_get_errhandler(session: MPI_Session, errhandler: Place<MPI_Errhandler>) |mpi| on session {
        errhandler.put("errhandler", MPI_Errhandler::new(mpi.session_get_errhandler(session.value())?))
    }

    /// Calls the error handler of a session.
    always fn MPI_Session_call_errhandler(session: MPI_Session, errorcode: c_int) |mpi| {
        let handle = session.value();
        mpi.with_session(handle, |_| ())?;
        let error = Error::new(errorcode, format!("the program raised {} on a session", mpi.error_name(errorcode)));
        crate::call::raise(mpi, "MPI_Session_call_errhandler", Some(handle), error);
        Ok(())
    }

    /// Frees an error handler; communicators keep it.
    always fn MPI_Errhandler_free(errhandler: Place<MPI_Errhandler>) |mpi| {
        mpi.errhandler_free(errhandler.take("errhandler")?.value())?;
        errhandler.put("errhandler", MPI_Errhandler::new(MPI_ERRHANDLER_NULL))
    }

    /// Adds an error class.
    always fn MPI_Add_error_class(errorclass: Place<c_int>) |mpi| {
        errorclass.put("errorclass", mpi.add_error_code(None)?)
    }

    /// Adds an error code to a class.
    always fn MPI_Add_error_code(errorclass: c_int, errorcode: Place<c_int>) |mpi| {
        errorcode.put("errorcode", mpi.add_error_code(Some(errorclass))?)
    }

    /// Gives a code of the program a text.
    always fn MPI_Add_error_string(errorcode: c_int, string: Text) |mpi| {
        mpi.add_error_string(errorcode, &string.get("string")?)
    }

    /// Removes an error class of the program.
    always fn MPI_Remove_error_class(errorclass: c_int) |mpi| {
        mpi.remove_error_code(errorclass, true)
    }

    /// Removes an error code of the program.
    always fn MPI_Remove_error_code(errorcode: c_int) |mpi| {
        mpi.remove_error_code(errorcode, false)
    }

    /// Removes the text of a code of the program.
    always fn MPI_Remove_error_string(errorcode: c_int) |mpi| {
        mpi.remove_error_string(errorcode)
    }

    /// The class of a code. May be called at any time.
    fn MPI_Error_class(errorcode: c_int, errorclass: Place<c_int>) -> c_int {
        let class = match known() {
            Some(mpi) => mpi.error_class(errorcode).ok(),
            None => class_text(errorcode).map(|_| errorcode),
        };
        if class.and_then(|class| errorclass.put("errorclass", class).ok()).is_some() {
            MPI_SUCCESS
        } else {
            MPI_ERR_ARG
        }
    }

    /// The text of a code, with the last message of its class. May be called at any time.
    fn MPI_Error_string(errorcode: c_int, string: TextOut, resultlen: Place<c_int>) -> c_int {
        let text = match known() {
            Some(mpi) => mpi.error_string(errorcode).ok(),
            None => class_text(errorcode).map(ToString::to_string),
        };
        let written = text.and_then(|mut text| {
            crate::comm::cut(&mut text, MPI_MAX_ERROR_STRING - 1);
            let n = string.put("string", &text, MPI_MAX_ERROR_STRING).ok()?;
            resultlen.put("resultlen", n as c_int).ok()
        });
        if written.is_some() { MPI_SUCCESS } else { MPI_ERR_ARG }
    }
}

/// A function of the program as an error handler.
pub(crate) struct UserHandler(pub(crate) unsafe extern "C" fn(*mut MPI_Comm, *mut c_int, ...));

impl Callback for UserHandler {
    fn call(&self, comm: u32, code: i32) -> i32 {
        let mut comm = MPI_Comm::new(comm);
        let mut code = code;
        // SAFETY: the program's function with the arguments that the standard gives it.
        unsafe { (self.0)(&raw mut comm, &raw mut code) };
        code
    }
}

/// The same for sessions.
struct SessionHandler(unsafe extern "C" fn(*mut MPI_Session, *mut c_int, ...));

impl Callback for SessionHandler {
    fn call(&self, session: u32, code: i32) -> i32 {
        let mut session = MPI_Session::new(session);
        let mut code = code;
        // SAFETY: as above.
        unsafe { (self.0)(&raw mut session, &raw mut code) };
        code
    }
}
