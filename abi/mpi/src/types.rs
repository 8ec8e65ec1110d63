//! The C types of the ABI.
#![allow(non_camel_case_types)]

use std::ffi::{c_int, c_void};

use margay_run_mpi::constants::file::MPI_FILE_NULL;
use margay_run_mpi::handle::{Kind, NO_FILE, NO_HANDLE, is_of};

use crate::user::{MPI_Status, Opaque};

/// An address or a distance between addresses.
pub type MPI_Aint = isize;
/// A count of 64 bits.
pub type MPI_Count = i64;
/// An offset in a file.
pub type MPI_Offset = i64;

macro_rules! handles {
    ($($name:ident)*) => { $(
        /// A handle: a pointer to an incomplete type in C, a number of at most 31 bits in fact.
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(usize);

        impl $name {
            /// The handle of a Fortran integer.
            pub const fn from_int(value: c_int) -> $name {
                $name(value as isize as usize)
            }

            /// The Fortran integer of the handle.
            pub const fn to_int(self) -> c_int {
                self.0 as c_int
            }
        }
    )* };
}

macro_rules! values {
    ($($name:ident)*) => { $(
        impl $name {
            /// The handle with this value.
            #[inline]
            pub const fn new(value: u32) -> $name {
                $name(value as usize)
            }

            /// The value; a number that no handle has if it does not fit.
            #[inline]
            pub const fn value(self) -> u32 {
                if self.0 <= i32::MAX as usize { self.0 as u32 } else { NO_HANDLE }
            }
        }
    )* };
}

handles! { MPI_Op MPI_Comm MPI_Group MPI_Win MPI_File MPI_Session MPI_Message MPI_Info MPI_Errhandler MPI_Request
MPI_Datatype }
values! { MPI_Session MPI_Op MPI_Comm MPI_Group MPI_Win MPI_Message MPI_Info MPI_Errhandler MPI_Request MPI_Datatype }

impl MPI_File {
    /// The handle with this value.
    pub const fn new(value: u32) -> MPI_File {
        MPI_File(value as usize)
    }

    /// The value; what is no handle of a file becomes one of a file that is not open, so that its
    /// error goes where errors of files go.
    pub fn value(self) -> u32 {
        match u32::try_from(self.0) {
            Ok(MPI_FILE_NULL) => MPI_FILE_NULL,
            Ok(value) if is_of(value, Kind::File) => value,
            _ => NO_FILE,
        }
    }
}

/// A reduction function with `int` counts.
pub type MPI_User_function =
    Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype)>;
/// A reduction function with 64-bit counts.
pub type MPI_User_function_c =
    Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut MPI_Count, *mut MPI_Datatype)>;
/// Called when a communicator with an attribute is duplicated. Not a Rust function pointer, since
/// the standard has the values 0 and 1 for functions of the library.
pub type MPI_Comm_copy_attr_function = Opaque;
/// Called when an attribute of a communicator is deleted.
pub type MPI_Comm_delete_attr_function = Opaque;
/// Called when a datatype with an attribute is duplicated.
pub type MPI_Type_copy_attr_function = Opaque;
/// Called when an attribute of a datatype is deleted.
pub type MPI_Type_delete_attr_function = Opaque;
/// Called when a window with an attribute is duplicated, which never happens.
pub type MPI_Win_copy_attr_function = Opaque;
/// Called when an attribute of a window is deleted.
pub type MPI_Win_delete_attr_function = Opaque;
/// The copy function of MPI 1.
pub type MPI_Copy_function = Opaque;
/// The delete function of MPI 1.
pub type MPI_Delete_function = Opaque;
/// What the four kinds of copy function are in fact.
pub type CopyFunction =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// What the four kinds of delete function are in fact.
pub type DeleteFunction = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;
/// An error handler of a communicator.
pub type MPI_Comm_errhandler_function =
    Option<unsafe extern "C" fn(*mut MPI_Comm, *mut c_int, ...)>;
/// The error handler of MPI-1.
pub type MPI_Handler_function = MPI_Comm_errhandler_function;
/// An error handler of a session.
pub type MPI_Session_errhandler_function =
    Option<unsafe extern "C" fn(*mut MPI_Session, *mut c_int, ...)>;
/// An error handler of a window.
pub type MPI_Win_errhandler_function = Option<unsafe extern "C" fn(*mut MPI_Win, *mut c_int, ...)>;
/// An error handler of a file.
pub type MPI_File_errhandler_function =
    Option<unsafe extern "C" fn(*mut MPI_File, *mut c_int, ...)>;
/// A reduction function that gets a word of the program, with a 64-bit count.
pub type MPIX_User_function_x =
    Option<unsafe extern "C" fn(*mut c_void, *mut c_void, MPI_Count, MPI_Datatype, *mut c_void)>;
/// Called with such a word when what it belongs to is needed no longer.
pub type MPIX_Destructor_function = Option<unsafe extern "C" fn(*mut c_void)>;
/// An error handler of a communicator that gets a word of the program.
pub type MPIX_Comm_errhandler_function_x =
    Option<unsafe extern "C" fn(MPI_Comm, c_int, *mut c_void)>;
/// An error handler of a window that gets a word of the program.
pub type MPIX_Win_errhandler_function_x = Option<unsafe extern "C" fn(MPI_Win, c_int, *mut c_void)>;
/// An error handler of a file that gets a word of the program.
pub type MPIX_File_errhandler_function_x =
    Option<unsafe extern "C" fn(MPI_File, c_int, *mut c_void)>;
/// An error handler of a session that gets a word of the program.
pub type MPIX_Session_errhandler_function_x =
    Option<unsafe extern "C" fn(MPI_Session, c_int, *mut c_void)>;
/// Tells how many bytes a predefined datatype takes in a data representation of the program.
pub type MPI_Datarep_extent_function =
    Option<unsafe extern "C" fn(MPI_Datatype, *mut MPI_Aint, *mut c_void) -> c_int>;
/// Converts values from or to a data representation of the program, with an `int` count.
pub type MPI_Datarep_conversion_function = Option<
    unsafe extern "C" fn(
        *mut c_void,
        MPI_Datatype,
        c_int,
        *mut c_void,
        MPI_Offset,
        *mut c_void,
    ) -> c_int,
>;
/// The same with a 64-bit count.
pub type MPI_Datarep_conversion_function_c = Option<
    unsafe extern "C" fn(
        *mut c_void,
        MPI_Datatype,
        MPI_Count,
        *mut c_void,
        MPI_Offset,
        *mut c_void,
    ) -> c_int,
>;
/// Fills the status of a generalized request.
pub type MPI_Grequest_query_function =
    Option<unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int>;
/// Called when a generalized request is freed.
pub type MPI_Grequest_free_function = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;
/// Called when a generalized request is cancelled.
pub type MPI_Grequest_cancel_function = Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>;

macro_rules! tool_handles {
    ($($name:ident)*) => { $(
        /// A handle of the tools interface: a pointer to an incomplete type in C, a number in fact.
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(usize);

        impl $name {
            /// The handle with this value; 0 is the null handle.
            pub const fn new(value: u64) -> $name {
                $name(value as usize)
            }

            /// The value.
            pub const fn value(self) -> u64 {
                self.0 as u64
            }
        }
    )* };
}

tool_handles! { MPI_T_enum MPI_T_cvar_handle MPI_T_pvar_handle MPI_T_pvar_session MPI_T_event_registration
MPI_T_event_instance }

/// A level of safety that a callback is asked to keep.
pub type MPI_T_cb_safety = c_int;
/// Whether the events of a source come in the order of their times.
pub type MPI_T_source_order = c_int;
/// Called when an event has happened.
pub type MPI_T_event_cb_function = Option<
    unsafe extern "C" fn(
        MPI_T_event_instance,
        MPI_T_event_registration,
        MPI_T_cb_safety,
        *mut c_void,
    ),
>;
/// Called when a registration has been freed.
pub type MPI_T_event_free_cb_function =
    Option<unsafe extern "C" fn(MPI_T_event_registration, MPI_T_cb_safety, *mut c_void)>;
/// Called when events were dropped.
pub type MPI_T_event_dropped_cb_function = Option<
    unsafe extern "C" fn(MPI_Count, MPI_T_event_registration, c_int, MPI_T_cb_safety, *mut c_void),
>;
