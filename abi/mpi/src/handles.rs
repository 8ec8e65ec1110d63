//! Handles as Fortran integers.

use std::ffi::c_int;

use crate::call::mpi;
use crate::types::*;

mpi! {
    /// The handle of an integer.
    fn MPI_Comm_fromint(comm: c_int) -> MPI_Comm { MPI_Comm::from_int(comm) }
    /// The integer of a handle.
    fn MPI_Comm_toint(comm: MPI_Comm) -> c_int { comm.to_int() }
    /// The handle of an integer.
    fn MPI_Errhandler_fromint(errhandler: c_int) -> MPI_Errhandler { MPI_Errhandler::from_int(errhandler) }
    /// The integer of a handle.
    fn MPI_Errhandler_toint(errhandler: MPI_Errhandler) -> c_int { errhandler.to_int() }
    /// The handle of an integer.
    fn MPI_File_fromint(file: c_int) -> MPI_File { MPI_File::from_int(file) }
    /// The integer of a handle.
    fn MPI_File_toint(file: MPI_File) -> c_int { file.to_int() }
    /// The handle of an integer.
    fn MPI_Group_fromint(group: c_int) -> MPI_Group { MPI_Group::from_int(group) }
    /// The integer of a handle.
    fn MPI_Group_toint(group: MPI_Group) -> c_int { group.to_int() }
    /// The handle of an integer.
    fn MPI_Info_fromint(info: c_int) -> MPI_Info { MPI_Info::from_int(info) }
    /// The integer of a handle.
    fn MPI_Info_toint(info: MPI_Info) -> c_int { info.to_int() }
    /// The handle of an integer.
    fn MPI_Message_fromint(message: c_int) -> MPI_Message { MPI_Message::from_int(message) }
    /// The integer of a handle.
    fn MPI_Message_toint(message: MPI_Message) -> c_int { message.to_int() }
    /// The handle of an integer.
    fn MPI_Op_fromint(op: c_int) -> MPI_Op { MPI_Op::from_int(op) }
    /// The integer of a handle.
    fn MPI_Op_toint(op: MPI_Op) -> c_int { op.to_int() }
    /// The handle of an integer.
    fn MPI_Request_fromint(request: c_int) -> MPI_Request { MPI_Request::from_int(request) }
    /// The integer of a handle.
    fn MPI_Request_toint(request: MPI_Request) -> c_int { request.to_int() }
    /// The handle of an integer.
    fn MPI_Session_fromint(session: c_int) -> MPI_Session { MPI_Session::from_int(session) }
    /// The integer of a handle.
    fn MPI_Session_toint(session: MPI_Session) -> c_int { session.to_int() }
    /// The handle of an integer.
    fn MPI_Type_fromint(datatype: c_int) -> MPI_Datatype { MPI_Datatype::from_int(datatype) }
    /// The integer of a handle.
    fn MPI_Type_toint(datatype: MPI_Datatype) -> c_int { datatype.to_int() }
    /// The handle of an integer.
    fn MPI_Win_fromint(win: c_int) -> MPI_Win { MPI_Win::from_int(win) }
    /// The integer of a handle.
    fn MPI_Win_toint(win: MPI_Win) -> c_int { win.to_int() }
}
