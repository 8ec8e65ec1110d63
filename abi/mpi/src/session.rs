//! Sessions.

use std::ffi::c_int;

use margay_run_mpi::constants::comm::MPI_COMM_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::session::MPI_SESSION_NULL;
use margay_run_mpi::error::Error;
use margay_run_mpi::fail;
use margay_run_mpi::session::session_level;

use crate::call::{Model, enter, leave, mpi};
use crate::convert::length;
use crate::types::*;
use crate::user::{Place, Text, TextOut};

mpi! {
    /// Begins a session.
    always fn MPI_Session_init(info: MPI_Info, errhandler: MPI_Errhandler, session: Place<MPI_Session>) |mpi| {
        let by = |e: Error| e.by(errhandler.value(), MPI_SESSION_NULL);
        let level = mpi.info(info.value()).and_then(|hints| session_level(&hints)).map_err(by)?;
        let new = mpi.session_add(level, errhandler.value()).map_err(by)?;
        session.put("session", MPI_Session::new(new))?;
        // By asking for this level the program promises how many of its threads call at the same
        // time.
        enter(mpi, Model::Session, level);
        Ok(())
    }

    /// Ends a session.
    fn MPI_Session_finalize(session: Place<MPI_Session>) |mpi| {
        mpi.session_end(session.take("session")?.value())?;
        session.put("session", MPI_Session::new(MPI_SESSION_NULL))?;
        leave(mpi);
        Ok(())
    }

    /// The hints in use.
    fn MPI_Session_get_info(session: MPI_Session, info_used: Place<MPI_Info>) |mpi| on session {
        let hints = mpi.session_info(session.value())?;
        info_used.put("info_used", MPI_Info::new(mpi.info_create(hints)?))
    }

    /// Number of process sets.
    fn MPI_Session_get_num_psets(session: MPI_Session, info: MPI_Info, npset_names: Place<c_int>) |mpi| on session {
        mpi.with_session(session.value(), |_| ())?;
        mpi.check_info(info.value())?;
        npset_names.put("npset_names", mpi.psets().len() as c_int)
    }

    /// The name of a process set as far as it fits, and the room that all of it needs.
    fn MPI_Session_get_nth_pset(session: MPI_Session, info: MPI_Info, n: c_int, pset_len: Place<c_int>, pset_name: TextOut) |mpi| on session {
        mpi.with_session(session.value(), |_| ())?;
        mpi.check_info(info.value())?;
        let sets = mpi.psets();
        let Some((name, _)) = usize::try_from(n).ok().and_then(|n| sets.get(n)) else {
            fail!(MPI_ERR_ARG, "n is {n}; there are {} process sets", sets.len());
        };
        let room = length("pset_len", pset_len.take("pset_len")?)?;
        if room > 0 {
            pset_name.put("pset_name", name, room)?;
        }
        pset_len.put("pset_len", name.len() as c_int + 1)
    }

    /// What is known of a process set.
    fn MPI_Session_get_pset_info(session: MPI_Session, pset_name: Text, info: Place<MPI_Info>) |mpi| on session {
        mpi.with_session(session.value(), |_| ())?;
        let entries = mpi.pset_info(&pset_name.get("pset_name")?)?;
        info.put("info", MPI_Info::new(mpi.info_create(entries)?))
    }

    /// The processes of a set.
    fn MPI_Group_from_session_pset(session: MPI_Session, pset_name: Text, newgroup: Place<MPI_Group>) |mpi| on session {
        mpi.with_session(session.value(), |_| ())?;
        let group = mpi.pset(&pset_name.get("pset_name")?)?;
        newgroup.put("newgroup", MPI_Group::new(mpi.group_add(group.into(), session.value())?))
    }

    /// Makes a communicator of a group.
    fn MPI_Comm_create_from_group(group: MPI_Group, stringtag: Text, info: MPI_Info, errhandler: MPI_Errhandler, newcomm: Place<MPI_Comm>) |mpi| {
        let make = || {
            let members = mpi.group(group.value())?;
            let session = mpi.group_session(group.value());
            let hints = mpi.info(info.value())?;
            let new = mpi.comm_create_from_group(&members, session, &stringtag.get("stringtag")?, hints, errhandler.value());
            newcomm.put("newcomm", MPI_Comm::new(new?))
        };
        make().map_err(|e| e.by(errhandler.value(), MPI_COMM_NULL))
    }

    /// Makes an inter-communicator of two groups.
    fn MPI_Intercomm_create_from_groups(local_group: MPI_Group, local_leader: c_int, remote_group: MPI_Group, remote_leader: c_int, stringtag: Text, info: MPI_Info, errhandler: MPI_Errhandler, newintercomm: Place<MPI_Comm>) |mpi| {
        let make = || {
            let (local, remote) = (mpi.group(local_group.value())?, mpi.group(remote_group.value())?);
            let session = mpi.group_session(local_group.value());
            let hints = mpi.info(info.value())?;
            let tag = stringtag.get("stringtag")?;
            let new = mpi.intercomm_create_from_groups((&local, local_leader), (&remote, remote_leader), session, &tag, hints, errhandler.value());
            newintercomm.put("newintercomm", MPI_Comm::new(new?))
        };
        make().map_err(|e| e.by(errhandler.value(), MPI_COMM_NULL))
    }
}
