//! What C prototypes cannot say: logicals, lengths of arrays and texts, which outputs are inputs as
//! well.

/// What C does with what a parameter points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    In,
    Out,
    InOut,
}

/// How a section of an array, with gaps, reaches C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Only its address counts.
    Address,
    /// It must not have gaps.
    Contiguous,
    /// As a derived datatype, with the parameters at these places as count and datatype.
    Typed(usize, usize),
    /// Through a copy without gaps.
    Scratch,
}

/// Functions of MPI 1 with a successor, which `mpi_f08` does not have. Their addresses are
/// `INTEGER`.
pub const CLASSIC_ONLY: [&str; 15] = [
    "MPI_Address",
    "MPI_Attr_delete",
    "MPI_Attr_get",
    "MPI_Attr_put",
    "MPI_Errhandler_create",
    "MPI_Errhandler_get",
    "MPI_Errhandler_set",
    "MPI_Keyval_create",
    "MPI_Keyval_free",
    "MPI_Type_extent",
    "MPI_Type_hindexed",
    "MPI_Type_hvector",
    "MPI_Type_lb",
    "MPI_Type_struct",
    "MPI_Type_ub",
];

/// Functions that Fortran does not have: conversions of handles, the tools interface.
pub fn is_c_only(name: &str) -> bool {
    name.starts_with("MPI_T_") || name.ends_with("_fromint") || name.ends_with("_toint")
}

/// Functions whose C side is written by hand in `abi/fortran`.
pub const BY_HAND: [&str; 53] = [
    "Address",
    "Type_extent",
    "Type_hindexed",
    "Type_hvector",
    "Type_lb",
    "Type_struct",
    "Type_ub",
    "Init",
    "Init_thread",
    "Pcontrol",
    "Info_create_env",
    "Info_get",
    "Info_get_string",
    "Session_init",
    "Session_get_nth_pset",
    "Aint_add",
    "Aint_diff",
    "Wtime",
    "Wtick",
    "Wait",
    "Test",
    "Waitall",
    "Testall",
    "Waitany",
    "Testany",
    "Waitsome",
    "Testsome",
    "Request_get_status",
    "Request_get_status_all",
    "Request_get_status_any",
    "Request_get_status_some",
    "Request_free",
    "Start",
    "Startall",
    "Attr_get",
    "Attr_put",
    "Keyval_create",
    "Comm_create_keyval",
    "Comm_get_attr",
    "Comm_set_attr",
    "Type_create_keyval",
    "Type_get_attr",
    "Type_set_attr",
    "Win_create_keyval",
    "Win_get_attr",
    "Win_set_attr",
    "Grequest_start",
    "Register_datarep",
    "Comm_spawn",
    "Comm_spawn_multiple",
    "Buffer_detach",
    "Comm_detach_buffer",
    "Session_detach_buffer",
];

/// Whether the C side of a function, with `MPI_`, is written by hand, with its variant for large
/// counts if it has one.
pub fn is_by_hand(name: &str) -> bool {
    let name = name.trim_start_matches("MPI_");
    BY_HAND.contains(&name.strip_suffix("_c").unwrap_or(name))
}

/// Large-count functions that have a name of their own in Fortran because only a procedure's
/// interface differs.
pub const NAMED_LARGE: [&str; 2] = ["MPI_Op_create_c", "MPI_Register_datarep_c"];

/// Parameters that are `LOGICAL`.
pub const LOGICALS: [&str; 9] = [
    "flag",
    "commute",
    "reorder",
    "high",
    "periods",
    "remain_dims",
    "weighted",
    "is_set",
    "complete",
];

pub const WEIGHTS: [&str; 3] = ["weights", "sourceweights", "destweights"];

/// Returns the names that the standard gives parameters in Fortran where C has to avoid a name.
pub fn fortran_name(name: &str) -> &str {
    match name {
        "indx" => "index",
        other => other,
    }
}

/// Returns the number of elements of an array, as a C expression over the Fortran parameters.
pub fn length(function: &str, name: &str) -> Option<&'static str> {
    Some(match (function, name) {
        ("Cart_sub", "remain_dims") => "margay_dimensions(*comm)",
        ("Cart_get", _) => "*maxdims",
        (_, "periods") => "*ndims",
        ("Type_get_contents", "array_of_datatypes") => "*max_datatypes",
        (_, "array_of_types" | "array_of_requests" | "array_of_info") => "*count",
        (f, "sendtypes") if f.contains("eighbor") => "margay_neighbors(*comm, 1)",
        (f, "recvtypes") if f.contains("eighbor") => "margay_neighbors(*comm, 0)",
        (_, "sendtypes") => "margay_in_place(sendbuf) ? 0 : margay_peers(*comm)",
        (_, "recvtypes") => "margay_peers(*comm)",
        _ => return None,
    })
}

/// C's longest length of a text that is put out.
pub fn longest(name: &str) -> Option<&'static str> {
    Some(match name {
        "comm_name" | "type_name" | "win_name" => "MPI_MAX_OBJECT_NAME",
        "string" => "MPI_MAX_ERROR_STRING",
        "version" => "MPI_MAX_LIBRARY_VERSION_STRING",
        "name" => "MPI_MAX_PROCESSOR_NAME",
        "port_name" => "MPI_MAX_PORT_NAME",
        "datarep" => "MPI_MAX_DATAREP_STRING",
        "key" => "MPI_MAX_INFO_KEY",
        "value" => "MPI_MAX_INFO_VAL",
        "pset_name" => "MPI_MAX_PSET_NAME_LEN",
        _ => return None,
    })
}

/// Returns what a parameter that C gets by its address is, where it is not put out.
pub fn intent(function: &str, name: &str) -> Option<Intent> {
    let ends = ["free", "free_keyval", "disconnect", "close", "finalize"];
    Some(match (function, name) {
        (_, "position" | "inoutbuf" | "buflen" | "pset_len") => Intent::InOut,
        ("Dims_create", "dims") | ("Type_commit", _) => Intent::InOut,
        ("Mrecv" | "Imrecv", "message") => Intent::InOut,
        ("Cancel", "request") => Intent::In,
        (f, "request" | "array_of_requests")
            if ["Wait", "Test", "Start", "Request_"]
                .iter()
                .any(|p| f.starts_with(p)) =>
        {
            Intent::InOut
        }
        ("Status_set_cancelled" | "Status_set_elements" | "Status_set_elements_x", "status") => {
            Intent::InOut
        }
        (f, "status") if f.starts_with("Status_set") => Intent::InOut,
        (f, "attribute_val") if f.contains("get") => Intent::Out,
        (_, "baseptr" | "buffer_addr") => Intent::Out,
        (
            f,
            "comm" | "datatype" | "errhandler" | "fh" | "group" | "info" | "op" | "session" | "win"
            | "keyval" | "comm_keyval" | "type_keyval" | "win_keyval",
        ) if ends.iter().any(|e| f.to_lowercase().ends_with(e)) => Intent::InOut,
        _ => return None,
    })
}

/// Returns how sections of arrays are passed where that does not follow from the parameters behind
/// the buffer.
pub fn passing(function: &str) -> Option<Passing> {
    Some(match function {
        "Get_address"
        | "Free_mem"
        | "Win_detach"
        | "Fetch_and_op"
        | "Compare_and_swap"
        | "Abi_get_fortran_booleans"
        | "Abi_set_fortran_booleans" => Passing::Address,
        f if f.starts_with("File_") && f.ends_with("_end") => Passing::Address,
        "Buffer_attach"
        | "Comm_attach_buffer"
        | "Session_attach_buffer"
        | "Win_create"
        | "Win_attach"
        | "Psend_init"
        | "Precv_init" => Passing::Contiguous,
        _ => return None,
    })
}

/// Whether a buffer may hold blocks of many processes, or its elements are combined, so that count
/// and datatype do not describe all of it.
pub fn is_gathering(function: &str) -> bool {
    let lower = function.to_lowercase();
    let name = lower.strip_suffix("_init").unwrap_or(&lower);
    ["", "i", "neighbor_", "ineighbor_"].iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            [
                "gather",
                "allgather",
                "scatter",
                "alltoall",
                "reduce",
                "allreduce",
                "scan",
                "exscan",
            ]
            .iter()
            .any(|stem| rest.starts_with(stem))
        })
    })
}

/// A function of the user, as Fortran declares it.
pub struct Callback {
    pub name: &'static str,
    /// Parameters with their Fortran types, in which `handle` and `status` stand for the binding's
    /// own.
    pub parameters: &'static [(&'static str, &'static str)],
}

const ADDRESS: &str = "integer(MPI_ADDRESS_KIND)";

macro_rules! attribute_callbacks {
    ($copy:literal, $delete:literal, $old:literal, $now:literal, $key:literal, $ty:literal) => {
        [
            Callback {
                name: $copy,
                parameters: &[
                    ($old, $ty),
                    ($key, "integer"),
                    ("extra_state", ADDRESS),
                    ("attribute_val_in", ADDRESS),
                    ("attribute_val_out", ADDRESS),
                    ("flag", "logical"),
                    ("ierror", "integer"),
                ],
            },
            Callback {
                name: $delete,
                parameters: &[
                    ($now, $ty),
                    ($key, "integer"),
                    ("attribute_val", ADDRESS),
                    ("extra_state", ADDRESS),
                    ("ierror", "integer"),
                ],
            },
        ]
    };
}

const COMM: [Callback; 2] = attribute_callbacks!(
    "MPI_Comm_copy_attr_function",
    "MPI_Comm_delete_attr_function",
    "oldcomm",
    "comm",
    "comm_keyval",
    "type(MPI_Comm)"
);
const TYPE: [Callback; 2] = attribute_callbacks!(
    "MPI_Type_copy_attr_function",
    "MPI_Type_delete_attr_function",
    "oldtype",
    "datatype",
    "type_keyval",
    "type(MPI_Datatype)"
);
const WIN: [Callback; 2] = attribute_callbacks!(
    "MPI_Win_copy_attr_function",
    "MPI_Win_delete_attr_function",
    "oldwin",
    "win",
    "win_keyval",
    "type(MPI_Win)"
);

const POINTER: &str = "type(c_ptr), value";

const OTHERS: [Callback; 12] = [
    Callback {
        name: "MPI_User_function",
        parameters: &[
            ("invec", POINTER),
            ("inoutvec", POINTER),
            ("len", "integer"),
            ("datatype", "type(MPI_Datatype)"),
        ],
    },
    Callback {
        name: "MPI_User_function_c",
        parameters: &[
            ("invec", POINTER),
            ("inoutvec", POINTER),
            ("len", "integer(MPI_COUNT_KIND)"),
            ("datatype", "type(MPI_Datatype)"),
        ],
    },
    Callback {
        name: "MPI_Comm_errhandler_function",
        parameters: &[("comm", "type(MPI_Comm)"), ("error_code", "integer")],
    },
    Callback {
        name: "MPI_Win_errhandler_function",
        parameters: &[("win", "type(MPI_Win)"), ("error_code", "integer")],
    },
    Callback {
        name: "MPI_File_errhandler_function",
        parameters: &[("file", "type(MPI_File)"), ("error_code", "integer")],
    },
    Callback {
        name: "MPI_Session_errhandler_function",
        parameters: &[("session", "type(MPI_Session)"), ("error_code", "integer")],
    },
    Callback {
        name: "MPI_Grequest_query_function",
        parameters: &[
            ("extra_state", ADDRESS),
            ("status", "type(MPI_Status)"),
            ("ierror", "integer"),
        ],
    },
    Callback {
        name: "MPI_Grequest_free_function",
        parameters: &[("extra_state", ADDRESS), ("ierror", "integer")],
    },
    Callback {
        name: "MPI_Grequest_cancel_function",
        parameters: &[
            ("extra_state", ADDRESS),
            ("complete", "logical"),
            ("ierror", "integer"),
        ],
    },
    Callback {
        name: "MPI_Datarep_extent_function",
        parameters: &[
            ("datatype", "type(MPI_Datatype)"),
            ("extent", ADDRESS),
            ("extra_state", ADDRESS),
            ("ierror", "integer"),
        ],
    },
    Callback {
        name: "MPI_Datarep_conversion_function",
        parameters: &[
            ("userbuf", POINTER),
            ("datatype", "type(MPI_Datatype)"),
            ("count", "integer"),
            ("filebuf", POINTER),
            ("position", "integer(MPI_OFFSET_KIND)"),
            ("extra_state", ADDRESS),
            ("ierror", "integer"),
        ],
    },
    Callback {
        name: "MPI_Datarep_conversion_function_c",
        parameters: &[
            ("userbuf", POINTER),
            ("datatype", "type(MPI_Datatype)"),
            ("count", "integer(MPI_COUNT_KIND)"),
            ("filebuf", POINTER),
            ("position", "integer(MPI_OFFSET_KIND)"),
            ("extra_state", ADDRESS),
            ("ierror", "integer"),
        ],
    },
];

/// Returns all functions that users supply.
pub fn callbacks() -> impl Iterator<Item = Callback> {
    COMM.into_iter().chain(TYPE).chain(WIN).chain(OTHERS)
}

/// The library's own functions that stand for such, with the kind of function that they are.
pub const PREDEFINED: [(&str, &str); 11] = [
    ("MPI_COMM_NULL_COPY_FN", "MPI_Comm_copy_attr_function"),
    ("MPI_COMM_DUP_FN", "MPI_Comm_copy_attr_function"),
    ("MPI_COMM_NULL_DELETE_FN", "MPI_Comm_delete_attr_function"),
    ("MPI_TYPE_NULL_COPY_FN", "MPI_Type_copy_attr_function"),
    ("MPI_TYPE_DUP_FN", "MPI_Type_copy_attr_function"),
    ("MPI_TYPE_NULL_DELETE_FN", "MPI_Type_delete_attr_function"),
    ("MPI_WIN_NULL_COPY_FN", "MPI_Win_copy_attr_function"),
    ("MPI_WIN_DUP_FN", "MPI_Win_copy_attr_function"),
    ("MPI_WIN_NULL_DELETE_FN", "MPI_Win_delete_attr_function"),
    ("MPI_CONVERSION_FN_NULL", "MPI_Datarep_conversion_function"),
    (
        "MPI_CONVERSION_FN_NULL_C",
        "MPI_Datarep_conversion_function_c",
    ),
];

/// Their predecessors of MPI 1, which `mpi_f08` does not have.
pub const PREDEFINED_CLASSIC: [&str; 3] = ["MPI_NULL_COPY_FN", "MPI_DUP_FN", "MPI_NULL_DELETE_FN"];

/// Arguments that the library knows by their addresses: the name, the Fortran type in `mpif.h` and
/// `mpi`, the type in `mpi_f08`, and the shape.
pub const SENTINELS: [(&str, &str, &str, &str); 10] = [
    ("MPI_BOTTOM", "INTEGER", "integer", ""),
    ("MPI_IN_PLACE", "INTEGER", "integer", ""),
    ("MPI_BUFFER_AUTOMATIC", "INTEGER", "integer", ""),
    (
        "MPI_STATUS_IGNORE",
        "INTEGER",
        "type(MPI_Status)",
        "MPI_STATUS_SIZE",
    ),
    (
        "MPI_STATUSES_IGNORE",
        "INTEGER",
        "type(MPI_Status)",
        "MPI_STATUS_SIZE,1",
    ),
    ("MPI_ERRCODES_IGNORE", "INTEGER", "integer", "1"),
    ("MPI_UNWEIGHTED", "INTEGER", "integer", "1"),
    ("MPI_WEIGHTS_EMPTY", "INTEGER", "integer", "1"),
    ("MPI_ARGV_NULL", "CHARACTER*1", "character(len=1)", "1"),
    ("MPI_ARGVS_NULL", "CHARACTER*1", "character(len=1)", "1,1"),
];
