//! Recovery from the death of processes: the extension that MPICH and Open MPI have too, in
//! `mpi_ext.h`.

use std::ffi::c_int;

use margay_run_mpi::constants::comm::MPI_COMM_NULL;
use margay_run_mpi::constants::session::MPI_SESSION_NULL;

use crate::call::mpi;
use crate::convert::length;
use crate::types::*;
use crate::user::Place;

mpi! {
    /// Makes all operations of all processes on a communicator fail.
    fn MPIX_Comm_revoke(comm: MPI_Comm) |mpi| on comm {
        mpi.comm_revoke(comm.value())
    }

    /// Whether a communicator has been revoked.
    fn MPIX_Comm_is_revoked(comm: MPI_Comm, flag: Place<c_int>) |mpi| on comm {
        flag.put("flag", c_int::from(mpi.comm_is_revoked(comm.value())?))
    }

    /// Makes a communicator of the processes that live.
    fn MPIX_Comm_shrink(comm: MPI_Comm, newcomm: Place<MPI_Comm>) |mpi| on comm {
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_shrink(comm.value())?))
    }

    /// Begins to make one; the handle is there when the request is complete.
    fn MPIX_Comm_ishrink(comm: MPI_Comm, newcomm: Place<MPI_Comm>, request: Place<MPI_Request>) |mpi| on comm {
        newcomm.put("newcomm", MPI_Comm::new(MPI_COMM_NULL))?;
        let put = newcomm.later(MPI_Comm::new);
        request.put("request", MPI_Request::new(mpi.comm_ishrink(comm.value(), put)?))
    }

    /// Agrees on the flags of all processes that live, bit by bit and.
    fn MPIX_Comm_agree(comm: MPI_Comm, flag: Place<c_int>) |mpi| on comm {
        let (agreed, error) = mpi.comm_agree(comm.value(), flag.take("flag")?)?;
        flag.put("flag", agreed)?;
        error.map_or(Ok(()), Err)
    }

    /// Begins to agree.
    fn MPIX_Comm_iagree(comm: MPI_Comm, flag: Place<c_int>, request: Place<MPI_Request>) |mpi| on comm {
        let own = flag.take("flag")?;
        let put = flag.later(|agreed: c_int| agreed);
        request.put("request", MPI_Request::new(mpi.comm_iagree(comm.value(), own, put)?))
    }

    /// Acknowledges the failures that are known.
    fn MPIX_Comm_failure_ack(comm: MPI_Comm) |mpi| on comm {
        mpi.comm_acknowledge(comm.value(), usize::MAX).map(drop)
    }

    /// The processes whose failures were acknowledged.
    fn MPIX_Comm_failure_get_acked(comm: MPI_Comm, failedgrp: Place<MPI_Group>) |mpi| on comm {
        let group = mpi.comm_acknowledged(comm.value())?;
        failedgrp.put("failedgrp", MPI_Group::new(mpi.group_add(group.into(), MPI_SESSION_NULL)?))
    }

    /// The processes that are known to have died.
    fn MPIX_Comm_get_failed(comm: MPI_Comm, failedgrp: Place<MPI_Group>) |mpi| on comm {
        let group = mpi.comm_failed(comm.value())?;
        failedgrp.put("failedgrp", MPI_Group::new(mpi.group_add(group.into(), MPI_SESSION_NULL)?))
    }

    /// Acknowledges the first failures; how many are acknowledged then.
    fn MPIX_Comm_ack_failed(comm: MPI_Comm, num_to_ack: c_int, num_acked: Place<c_int>) |mpi| on comm {
        let most = length("num_to_ack", num_to_ack)?;
        num_acked.put("num_acked", mpi.comm_acknowledge(comm.value(), most)? as c_int)
    }
}
