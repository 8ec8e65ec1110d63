//! Operations and error handlers of the program whose functions get a word of its own, as functions
//! of attributes do: in `mpi_ext.h`, with MPICH's names. Language bindings and the libraries of
//! other ABIs (`abi/faces`) need it: the standard's functions cannot tell which of several
//! operations called them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use margay_run_mpi::constants::error_class::MPI_ERR_ARG;
use margay_run_mpi::errhandler::Callback;
use margay_run_mpi::error::Result;
use margay_run_mpi::op::Function;
use margay_run_mpi::{Mpi, fail};
use margay_sys_os::user::Mem;

use crate::call::mpi;
use crate::types::*;
use crate::user::{Opaque, Place};

mpi! {
    /// Makes an operation of a function that gets `extra_state`. `destructor_fn`, unless null, is
    /// called with it when the operation is needed no longer.
    fn MPIX_Op_create_x(user_fn_x: MPIX_User_function_x, destructor_fn: MPIX_Destructor_function, commute: c_int, extra_state: Opaque, op: Place<MPI_Op>) |mpi| {
        let Some(function) = user_fn_x else {
            fail!(MPI_ERR_ARG, "user_fn_x is a null pointer");
        };
        let state = State::new(extra_state, destructor_fn);
        op.put("op", MPI_Op::new(mpi.op_create(Arc::new(Operation { function, state }), commute != 0)?))
    }

    /// Makes an error handler of communicators of a function that gets `extra_state`.
    fn MPIX_Comm_create_errhandler_x(comm_errhandler_fn_x: MPIX_Comm_errhandler_function_x, destructor_fn: MPIX_Destructor_function, extra_state: Opaque, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = comm_errhandler_fn_x else {
            fail!(MPI_ERR_ARG, "comm_errhandler_fn_x is a null pointer");
        };
        // SAFETY: the program's function, with the arguments of its type.
        let call = move |on, code, state| unsafe { function(MPI_Comm::new(on), code, state) };
        create(mpi, call, State::new(extra_state, destructor_fn), errhandler)
    }

    /// The same for windows.
    fn MPIX_Win_create_errhandler_x(win_errhandler_fn_x: MPIX_Win_errhandler_function_x, destructor_fn: MPIX_Destructor_function, extra_state: Opaque, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = win_errhandler_fn_x else {
            fail!(MPI_ERR_ARG, "win_errhandler_fn_x is a null pointer");
        };
        // SAFETY: as above.
        let call = move |on, code, state| unsafe { function(MPI_Win::new(on), code, state) };
        create(mpi, call, State::new(extra_state, destructor_fn), errhandler)
    }

    /// The same for files.
    fn MPIX_File_create_errhandler_x(file_errhandler_fn_x: MPIX_File_errhandler_function_x, destructor_fn: MPIX_Destructor_function, extra_state: Opaque, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = file_errhandler_fn_x else {
            fail!(MPI_ERR_ARG, "file_errhandler_fn_x is a null pointer");
        };
        // SAFETY: as above.
        let call = move |on, code, state| unsafe { function(MPI_File::new(on), code, state) };
        create(mpi, call, State::new(extra_state, destructor_fn), errhandler)
    }

    /// The same for sessions.
    always fn MPIX_Session_create_errhandler_x(session_errhandler_fn_x: MPIX_Session_errhandler_function_x, destructor_fn: MPIX_Destructor_function, extra_state: Opaque, errhandler: Place<MPI_Errhandler>) |mpi| {
        let Some(function) = session_errhandler_fn_x else {
            fail!(MPI_ERR_ARG, "session_errhandler_fn_x is a null pointer");
        };
        // SAFETY: as above.
        let call = move |on, code, state| unsafe { function(MPI_Session::new(on), code, state) };
        create(mpi, call, State::new(extra_state, destructor_fn), errhandler)
    }
}

/// The program's word, and what is to be called with it at the end.
struct State {
    word: usize,
    destructor: MPIX_Destructor_function,
}

impl State {
    fn new(word: Opaque, destructor: MPIX_Destructor_function) -> State {
        State {
            word: word.0 as usize,
            destructor,
        }
    }

    fn get(&self) -> *mut c_void {
        self.word as *mut c_void
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the program's function with the word that it passed beside it.
            unsafe { destructor(self.get()) };
        }
    }
}

type UserFunction =
    unsafe extern "C" fn(*mut c_void, *mut c_void, MPI_Count, MPI_Datatype, *mut c_void);

struct Operation {
    function: UserFunction,
    state: State,
}

impl Function for Operation {
    fn apply(&self, input: &Mem, inout: &Mem, count: u64, _extent: i64, datatype: u32) {
        // SAFETY: the program's function with the arguments of its type: `count` elements of the
        // datatype in both buffers.
        unsafe {
            (self.function)(
                input.address() as *mut c_void,
                inout.address() as *mut c_void,
                count as MPI_Count,
                MPI_Datatype::new(datatype),
                self.state.get(),
            );
        }
    }
}

struct Handler<F> {
    call: F,
    state: State,
}

impl<F: Fn(u32, c_int, *mut c_void) + Send + Sync> Callback for Handler<F> {
    fn call(&self, on: u32, code: i32) -> i32 {
        (self.call)(on, code, self.state.get());
        code
    }
}

fn create(
    mpi: &Mpi,
    call: impl Fn(u32, c_int, *mut c_void) + Send + Sync + 'static,
    state: State,
    errhandler: Place<MPI_Errhandler>,
) -> Result<()> {
    let handle = mpi.errhandler_create(Arc::new(Handler { call, state }))?;
    errhandler.put("errhandler", MPI_Errhandler::new(handle))
}
