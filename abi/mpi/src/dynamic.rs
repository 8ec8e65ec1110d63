//! Processes of other jobs: spawning, ports, names.

use std::ffi::c_int;

use margay_run_dynamic::spawn::Spawned;
use margay_run_mpi::constants::comm::MPI_COMM_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::limit::MPI_MAX_PORT_NAME;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::length;
use crate::types::*;
use crate::user::{Argv, Argvs, In, Out, Place, Text, TextOut};

mpi! {
    /// Starts processes of a program and connects to them.
    fn MPI_Comm_spawn(command: Text, argv: Argv, maxprocs: c_int, info: MPI_Info, root: c_int, comm: MPI_Comm, intercomm: Place<MPI_Comm>, array_of_errcodes: Out<c_int>) |mpi| on comm {
        let parents = mpi.intracomm(comm.value())?;
        let programs = || {
            Ok(vec![Spawned {
                command: command.get("command")?,
                arguments: argv.strings(usize::MAX),
                most: maxprocs,
                hints: mpi.info(info.value())?,
            }])
        };
        let new = mpi.dynamic().comm_spawn(&parents, root, programs, |codes| tell(array_of_errcodes, codes));
        intercomm.put("intercomm", MPI_Comm::new(*new.as_ref().unwrap_or(&MPI_COMM_NULL)))?;
        new.map(drop)
    }

    /// Starts processes of several programs as one job and connects to them.
    fn MPI_Comm_spawn_multiple(count: c_int, array_of_commands: Argv, array_of_argv: Argvs, array_of_maxprocs: In<c_int>, array_of_info: In<MPI_Info>, root: c_int, comm: MPI_Comm, intercomm: Place<MPI_Comm>, array_of_errcodes: Out<c_int>) |mpi| on comm {
        let parents = mpi.intracomm(comm.value())?;
        let programs = || {
            let n = length("count", count)?;
            let commands = array_of_commands.strings(n);
            if commands.len() != n {
                fail!(MPI_ERR_ARG, "array_of_commands has {} of {n} commands", commands.len());
            }
            let most = array_of_maxprocs.slice("array_of_maxprocs", n)?;
            let infos = array_of_info.slice("array_of_info", n)?;
            let one = |(i, command)| {
                Ok(Spawned { command, arguments: array_of_argv.strings(i), most: most[i], hints: mpi.info(infos[i].value())? })
            };
            commands.into_iter().enumerate().map(one).collect()
        };
        let new = mpi.dynamic().comm_spawn(&parents, root, programs, |codes| tell(array_of_errcodes, codes));
        intercomm.put("intercomm", MPI_Comm::new(*new.as_ref().unwrap_or(&MPI_COMM_NULL)))?;
        new.map(drop)
    }

    /// The communicator with the processes that spawned this job.
    fn MPI_Comm_get_parent(parent: Place<MPI_Comm>) |mpi| {
        parent.put("parent", MPI_Comm::new(mpi.parent()))
    }

    /// Opens a port, to which others can connect.
    fn MPI_Open_port(info: MPI_Info, port_name: TextOut) |mpi| {
        mpi.check_info(info.value())?;
        port_name.put("port_name", &mpi.dynamic().open_port()?, MPI_MAX_PORT_NAME).map(drop)
    }

    /// Closes a port.
    fn MPI_Close_port(port_name: Text) |mpi| {
        mpi.dynamic().close_port(&port_name.get("port_name")?)
    }

    /// Waits at a port for a group that connects.
    fn MPI_Comm_accept(port_name: Text, info: MPI_Info, root: c_int, comm: MPI_Comm, newcomm: Place<MPI_Comm>) |mpi| on comm {
        mpi.check_info(info.value())?;
        let group = mpi.intracomm(comm.value())?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.dynamic().comm_accept(&group, root, || port_name.get("port_name"), info.value())?))
    }

    /// Connects to a group that waits at a port.
    fn MPI_Comm_connect(port_name: Text, info: MPI_Info, root: c_int, comm: MPI_Comm, newcomm: Place<MPI_Comm>) |mpi| on comm {
        mpi.check_info(info.value())?;
        let group = mpi.intracomm(comm.value())?;
        newcomm.put("newcomm", MPI_Comm::new(mpi.dynamic().comm_connect(&group, root, || port_name.get("port_name"), info.value())?))
    }

    /// Connects to the process at the other end of a socket.
    fn MPI_Comm_join(fd: c_int, intercomm: Place<MPI_Comm>) |mpi| {
        intercomm.put("intercomm", MPI_Comm::new(mpi.dynamic().comm_join(fd)?))
    }

    /// Publishes the port of a service.
    fn MPI_Publish_name(service_name: Text, info: MPI_Info, port_name: Text) |mpi| {
        mpi.check_info(info.value())?;
        mpi.dynamic().publish_name(&service_name.get("service_name")?, &port_name.get("port_name")?)
    }

    /// Takes a published name back.
    fn MPI_Unpublish_name(service_name: Text, info: MPI_Info, port_name: Text) |mpi| {
        mpi.check_info(info.value())?;
        mpi.dynamic().unpublish_name(&service_name.get("service_name")?, &port_name.get("port_name")?)
    }

    /// The port of a service.
    fn MPI_Lookup_name(service_name: Text, info: MPI_Info, port_name: TextOut) |mpi| {
        mpi.check_info(info.value())?;
        let port = mpi.dynamic().lookup_name(&service_name.get("service_name")?)?;
        port_name.put("port_name", &port, MPI_MAX_PORT_NAME).map(drop)
    }
}

/// Writes the error codes of spawned processes, unless the program ignores them.
///
/// # Safety
/// The C caller vouches for an entry for each code.
unsafe fn tell(mut place: Out<c_int>, codes: &[c_int]) {
    if place.address() != 0
        // SAFETY: by the caller's promise.
        && let Ok(room) = unsafe { place.slice("array_of_errcodes", codes.len()) }
    {
        room.copy_from_slice(codes);
    }
}
