//! Tasks.

use std::ffi::c_int;

use margay_run_mpl::deny;
use margay_run_mpl::error::MPL_ARGUMENT;

use crate::call::mpl;
use crate::user::Ints;

mpl! {
    /// How many tasks there are, and which this one is.
    fn environ(numtask: Ints, taskid: Ints) |mpl| {
        numtask.put("numtask", &[mpl.tasks()])?;
        taskid.put("taskid", &[mpl.task()])
    }

    /// Answers questions: 1 settings, 2 lowest and highest type, 3 dontcare, allmsg, nulltask and
    /// allgrp.
    fn task_query(nbuf: Ints, nelem: c_int, qtype: c_int) |mpl| {
        nbuf.put("nbuf", &mpl.query(qtype, nelem)?)
    }

    /// Changes a setting: 1 whether a message that is too long for its buffer is an error.
    fn task_set(nbuf: Ints, stype: c_int) |mpl| {
        mpl.set(stype, nbuf.take("nbuf")?)
    }

    /// Ends the job.
    fn stopall(errcode: c_int) |mpl| {
        if !(0..=255).contains(&errcode) {
            deny!(MPL_ARGUMENT, "the code is {errcode}; exit codes are 0 to 255");
        }
        mpl.mpi().abort(errcode)
    }
}
