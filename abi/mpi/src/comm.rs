//! Communicators.

use std::ffi::c_int;

use margay_run_mpi::constants::comm::*;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::limit::MPI_MAX_OBJECT_NAME;
use margay_run_mpi::constants::sentinel::*;
use margay_run_mpi::constants::split::*;
use margay_run_mpi::error::Result;
use margay_run_mpi::info::Info;
use margay_run_mpi::{Mpi, fail};

use crate::call::mpi;
use crate::types::*;
use crate::user::{Place, Text, TextOut};

mpi! {
    /// The calling process's rank.
    fn MPI_Comm_rank(comm: MPI_Comm, rank: Place<c_int>) |mpi| on comm {
        rank.put("rank", mpi.with_comm(comm.value(), |c| Ok(c.rank))? as c_int)
    }

    /// Number of processes.
    fn MPI_Comm_size(comm: MPI_Comm, size: Place<c_int>) |mpi| on comm {
        size.put("size", mpi.with_comm(comm.value(), |c| Ok(c.size()))? as c_int)
    }

    /// Number of processes of the remote group.
    fn MPI_Comm_remote_size(comm: MPI_Comm, size: Place<c_int>) |mpi| on comm {
        size.put("size", mpi.intercomm(comm.value())?.peers().size() as c_int)
    }

    /// The (local) group.
    fn MPI_Comm_group(comm: MPI_Comm, group: Place<MPI_Group>) |mpi| on comm {
        let comm = mpi.comm(comm.value())?;
        let session = comm.state().session;
        group.put("group", MPI_Group::new(mpi.group_add(comm.group.clone(), session)?))
    }

    /// The remote group.
    fn MPI_Comm_remote_group(comm: MPI_Comm, group: Place<MPI_Group>) |mpi| on comm {
        let comm = mpi.intercomm(comm.value())?;
        let session = comm.state().session;
        group.put("group", MPI_Group::new(mpi.group_add(comm.peers().clone(), session)?))
    }

    /// Whether it is an inter-communicator.
    fn MPI_Comm_test_inter(comm: MPI_Comm, flag: Place<c_int>) |mpi| on comm {
        flag.put("flag", c_int::from(mpi.comm(comm.value())?.is_inter()))
    }

    /// Compares two communicators.
    fn MPI_Comm_compare(comm1: MPI_Comm, comm2: MPI_Comm, result: Place<c_int>) |mpi| on comm1 {
        result.put("result", mpi.comm_compare(comm1.value(), comm2.value())?)
    }

    /// Makes a communicator of the same processes, with the attributes and (since MPI 4.0) without
    /// the hints.
    fn MPI_Comm_dup(comm: MPI_Comm, newcomm: Place<MPI_Comm>) |mpi| on comm {
        // Programs test for it when a copy function of an attribute has failed.
        let nothing = |_: &_| newcomm.offer(MPI_Comm::new(MPI_COMM_NULL));
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_dup(comm.value(), Info::default()).inspect_err(nothing)?))
    }

    /// As `MPI_Comm_dup`, with other hints.
    fn MPI_Comm_dup_with_info(comm: MPI_Comm, info: MPI_Info, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let info = mpi.info(info.value())?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_dup(comm.value(), info)?))
    }

    /// Begins to duplicate.
    fn MPI_Comm_idup(comm: MPI_Comm, newcomm: Place<MPI_Comm>, request: Place<MPI_Request>) |mpi| on comm {
        let (new, handle) = mpi.comm_idup(comm.value(), Info::default())?;
        newcomm.put("newcomm", MPI_Comm::new(new))?;
        request.put("request", MPI_Request::new(handle))
    }

    /// Begins to duplicate with other hints.
    fn MPI_Comm_idup_with_info(comm: MPI_Comm, info: MPI_Info, newcomm: Place<MPI_Comm>, request: Place<MPI_Request>) |mpi| on comm {
        let info = mpi.info(info.value())?;
        let (new, handle) = mpi.comm_idup(comm.value(), info)?;
        newcomm.put("newcomm", MPI_Comm::new(new))?;
        request.put("request", MPI_Request::new(handle))
    }

    /// Makes a communicator of a subgroup; collective over the communicator.
    fn MPI_Comm_create(comm: MPI_Comm, group: MPI_Group, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let parent = mpi.comm(comm.value())?;
        let group = mpi.group(group.value())?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_create(&parent, &group, None)?))
    }

    /// Makes a communicator of a subgroup; collective over the subgroup.
    fn MPI_Comm_create_group(comm: MPI_Comm, group: MPI_Group, tag: c_int, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let parent = mpi.intracomm(comm.value())?;
        let group = mpi.group(group.value())?;
        if tag < 0 {
            fail!(MPI_ERR_TAG, "tag {tag} is negative, on {}", parent.describe());
        }
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_create_group(&parent, &group, tag)?))
    }

    /// Makes a communicator for each color.
    fn MPI_Comm_split(comm: MPI_Comm, color: c_int, key: c_int, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let parent = mpi.comm(comm.value())?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_split(&parent, color, key, None)?))
    }

    /// Makes a communicator for each piece of hardware of a kind. All processes share one machine.
    fn MPI_Comm_split_type(comm: MPI_Comm, split_type: c_int, key: c_int, info: MPI_Info, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let parent = mpi.comm(comm.value())?;
        let color = split_color(mpi, split_type, info)?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.comm_split(&parent, color, key, None)?))
    }

    /// Frees a communicator.
    fn MPI_Comm_free(comm: Place<MPI_Comm>) |mpi| {
        let handle = comm.take("comm")?.value();
        mpi.comm_free(handle).map_err(|e| e.on(handle))?;
        comm.put("comm", MPI_Comm::new(MPI_COMM_NULL))
    }

    /// Frees a communicator when its communication is complete.
    fn MPI_Comm_disconnect(comm: Place<MPI_Comm>) |mpi| {
        let handle = comm.take("comm")?.value();
        mpi.comm_disconnect(handle).map_err(|e| e.on(handle))?;
        comm.put("comm", MPI_Comm::new(MPI_COMM_NULL))
    }

    /// Makes an inter-communicator of two groups.
    fn MPI_Intercomm_create(local_comm: MPI_Comm, local_leader: c_int, peer_comm: MPI_Comm, remote_leader: c_int, tag: c_int, newintercomm: Place<MPI_Comm>) |mpi| on local_comm {
        newintercomm.put("newintercomm", MPI_Comm::new(MPI_COMM_NULL))?;
        let local = mpi.intracomm(local_comm.value())?;
        if tag < 0 {
            fail!(MPI_ERR_TAG, "tag {tag} is negative, on {}", local.describe());
        }
        let new = mpi.intercomm_create(&local, local_leader, peer_comm.value(), remote_leader, tag)?;
        newintercomm.put("newintercomm", MPI_Comm::new(new))
    }

    /// Makes a communicator of both groups of an inter-communicator.
    fn MPI_Intercomm_merge(intercomm: MPI_Comm, high: c_int, newintracomm: Place<MPI_Comm>) |mpi| on intercomm {
        let inter = mpi.intercomm(intercomm.value())?;
        newintracomm.put("newintracomm", MPI_Comm::new(mpi.intercomm_merge(&inter, high != 0)?))
    }

    /// Names a communicator.
    fn MPI_Comm_set_name(comm: MPI_Comm, comm_name: Text) |mpi| on comm {
        let mut name = comm_name.get("comm_name")?;
        cut(&mut name, MPI_MAX_OBJECT_NAME - 1);
        mpi.comm(comm.value())?.set_name(name);
        Ok(())
    }

    /// The name of a communicator.
    fn MPI_Comm_get_name(comm: MPI_Comm, comm_name: TextOut, resultlen: Place<c_int>) |mpi| on comm {
        let name = match comm.value() {
            MPI_COMM_NULL => "MPI_COMM_NULL".to_string(),
            handle => mpi.comm(handle)?.name(),
        };
        let n = comm_name.put("comm_name", &name, MPI_MAX_OBJECT_NAME)?;
        resultlen.put("resultlen", n as c_int)
    }

    /// Sets hints.
    fn MPI_Comm_set_info(comm: MPI_Comm, info: MPI_Info) |mpi| on comm {
        let hints = mpi.info(info.value())?;
        mpi.comm(comm.value())?.set_info(hints);
        Ok(())
    }

    /// The hints in use.
    fn MPI_Comm_get_info(comm: MPI_Comm, info_used: Place<MPI_Info>) |mpi| on comm {
        let hints = mpi.comm(comm.value())?.info();
        info_used.put("info_used", MPI_Info::new(mpi.info_create(hints)?))
    }
}

/// Cuts a string to at most `limit` bytes, between characters.
pub fn cut(text: &mut String, limit: usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// The color of this process for `MPI_Comm_split_type`: 0, or `MPI_UNDEFINED` for no communicator.
fn split_color(mpi: &Mpi, split_type: c_int, info: MPI_Info) -> Result<c_int> {
    let hints = mpi.info(info.value())?;
    let resource = |key: &str| {
        hints
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    };
    // Of several jobs that have met, each has memory of its own. Processes that must do without
    // common memory are as good as on machines of their own.
    const ALONE: c_int = 1 << 30;
    let world = mpi.rank().peers().id() as c_int & (ALONE - 1);
    let rank = mpi.rank();
    let machine = match rank.any_memory() {
        // The first rank of the host stands for it; the ranks of one host are split together.
        Some(_) if rank.common_memory().is_none() => rank.peers().host(rank.world_rank()) as c_int,
        Some(_) => world,
        None => ALONE | std::process::id() as c_int,
    };
    Ok(match split_type {
        MPI_COMM_TYPE_SHARED => machine,
        MPI_UNDEFINED => MPI_UNDEFINED,
        // There is no level of hardware below the machine that we know of and that the processes do
        // not share.
        MPI_COMM_TYPE_HW_UNGUIDED => MPI_UNDEFINED,
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => {
            match resource("mpi_hw_resource_type").or(resource("mpi_pset_name")) {
                Some("mpi_shared_memory") => machine,
                Some("mpi://WORLD") => world,
                _ => MPI_UNDEFINED,
            }
        }
        _ => fail!(
            MPI_ERR_ARG,
            "split_type is {split_type}; use MPI_COMM_TYPE_* or MPI_UNDEFINED"
        ),
    })
}
