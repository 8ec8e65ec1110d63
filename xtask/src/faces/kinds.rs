//! Which parameters have values that differ between ABIs. Their C types do not say so: ranks,
//! levels and locks are all `int`.

/// What becomes of a value that is none of the names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It has a meaning of its own: a code or a key of the program.
    Kept,
    /// It is wrong, and stays wrong.
    Wrong,
    /// From 0 on it is a rank or a tag; below it is wrong.
    Negative,
}

/// An enumeration of the standard.
pub struct Enumeration {
    /// What stands behind `to_` and `from_`.
    pub name: &'static str,
    /// The names, or what they begin with if it ends with an underscore.
    names: &'static [&'static str],
    pub unknown: Unknown,
}

impl Enumeration {
    /// Whether the constant is one of it.
    pub fn has(&self, constant: &str) -> bool {
        constant != "MPI_ERR_LASTCODE"
            && self
                .names
                .iter()
                .any(|n| constant == *n || n.ends_with('_') && constant.starts_with(n))
    }
}

const fn named(
    name: &'static str,
    names: &'static [&'static str],
    unknown: Unknown,
) -> Enumeration {
    Enumeration {
        name,
        names,
        unknown,
    }
}

/// All enumerations.
pub const ENUMERATIONS: [Enumeration; 23] = [
    named(
        "rank",
        &["MPI_ANY_SOURCE", "MPI_PROC_NULL", "MPI_ROOT"],
        Unknown::Negative,
    ),
    named("tag", &["MPI_ANY_TAG"], Unknown::Negative),
    named("thread", &["MPI_THREAD_"], Unknown::Wrong),
    named("order", &["MPI_ORDER_"], Unknown::Wrong),
    named(
        "distribution",
        &[
            "MPI_DISTRIBUTE_NONE",
            "MPI_DISTRIBUTE_BLOCK",
            "MPI_DISTRIBUTE_CYCLIC",
        ],
        Unknown::Wrong,
    ),
    named("darg", &["MPI_DISTRIBUTE_DFLT_DARG"], Unknown::Kept),
    named("combiner", &["MPI_COMBINER_"], Unknown::Kept),
    named("typeclass", &["MPI_TYPECLASS_"], Unknown::Wrong),
    named(
        "comparison",
        &["MPI_IDENT", "MPI_CONGRUENT", "MPI_SIMILAR", "MPI_UNEQUAL"],
        Unknown::Wrong,
    ),
    named(
        "topology",
        &["MPI_CART", "MPI_GRAPH", "MPI_DIST_GRAPH"],
        Unknown::Wrong,
    ),
    named(
        "split_type",
        &["MPI_COMM_TYPE_", "MPI_UNDEFINED"],
        Unknown::Wrong,
    ),
    named(
        "keyval",
        &[
            "MPI_KEYVAL_INVALID",
            "MPI_TAG_UB",
            "MPI_IO",
            "MPI_HOST",
            "MPI_WTIME_IS_GLOBAL",
            "MPI_APPNUM",
            "MPI_LASTUSEDCODE",
            "MPI_UNIVERSE_SIZE",
            "MPI_WIN_BASE",
            "MPI_WIN_DISP_UNIT",
            "MPI_WIN_SIZE",
            "MPI_WIN_CREATE_FLAVOR",
            "MPI_WIN_MODEL",
        ],
        Unknown::Kept,
    ),
    named(
        "error",
        &["MPI_SUCCESS", "MPI_ERR_", "MPI_T_ERR_", "MPIX_ERR_"],
        Unknown::Kept,
    ),
    named(
        "lock_type",
        &["MPI_LOCK_EXCLUSIVE", "MPI_LOCK_SHARED"],
        Unknown::Wrong,
    ),
    named("flavor", &["MPI_WIN_FLAVOR_"], Unknown::Wrong),
    named(
        "model",
        &["MPI_WIN_UNIFIED", "MPI_WIN_SEPARATE"],
        Unknown::Wrong,
    ),
    named("whence", &["MPI_SEEK_"], Unknown::Wrong),
    named("verbosity", &["MPI_T_VERBOSITY_"], Unknown::Wrong),
    named("bind", &["MPI_T_BIND_"], Unknown::Wrong),
    named("scope", &["MPI_T_SCOPE_"], Unknown::Wrong),
    named("var_class", &["MPI_T_PVAR_CLASS_"], Unknown::Wrong),
    named("cb_safety", &["MPI_T_CB_REQUIRE_"], Unknown::Kept),
    named("source_order", &["MPI_T_SOURCE_"], Unknown::Kept),
];

/// Values that are combined by or: what stands behind `to_`, and the names.
pub const FLAGS: [(&str, &[&str]); 2] = [
    (
        "amode",
        &[
            "MPI_MODE_APPEND",
            "MPI_MODE_CREATE",
            "MPI_MODE_DELETE_ON_CLOSE",
            "MPI_MODE_EXCL",
            "MPI_MODE_RDONLY",
            "MPI_MODE_RDWR",
            "MPI_MODE_SEQUENTIAL",
            "MPI_MODE_UNIQUE_OPEN",
            "MPI_MODE_WRONLY",
        ],
    ),
    (
        "assert",
        &[
            "MPI_MODE_NOCHECK",
            "MPI_MODE_NOPRECEDE",
            "MPI_MODE_NOPUT",
            "MPI_MODE_NOSTORE",
            "MPI_MODE_NOSUCCEED",
        ],
    ),
];

/// Returns the enumeration or the flags to which an `int` parameter belongs, if any.
///
/// # Errors
/// When the parameter is not known: a new function has to say here what its numbers are.
pub fn of_int(function: &str, name: &str) -> Result<Option<&'static str>, String> {
    let kind = match (function, name) {
        ("MPI_Abort", "errorcode") => None,
        ("MPI_Comm_rank" | "MPI_Group_rank" | "MPI_Cart_rank", "rank") => None,
        ("MPI_Topo_test", "status") => Some("topology"),
        (_, "source" | "dest" | "root" | "rank" | "target_rank" | "rank_source" | "rank_dest") => {
            Some("rank")
        }
        (_, "ranks1" | "ranks2") => Some("rank"),
        (_, "tag" | "sendtag" | "recvtag") => Some("tag"),
        (_, "required" | "provided") => Some("thread"),
        (_, "order") => Some("order"),
        (_, "array_of_distribs") => Some("distribution"),
        (_, "array_of_dargs") => Some("darg"),
        (_, "combiner") => Some("combiner"),
        (_, "typeclass") => Some("typeclass"),
        (_, "result") => Some("comparison"),
        (_, "split_type") => Some("split_type"),
        (_, "keyval" | "comm_keyval" | "type_keyval" | "win_keyval") => Some("keyval"),
        (_, "errorcode" | "errorclass" | "error" | "array_of_errcodes") => Some("error"),
        (_, "lock_type") => Some("lock_type"),
        (_, "whence") => Some("whence"),
        (_, "amode") => Some("amode"),
        (_, "assert") => Some("assert"),
        (_, "verbosity") => Some("verbosity"),
        (_, "bind") => Some("bind"),
        (_, "scope") => Some("scope"),
        (_, "var_class") => Some("var_class"),
        (_, plain) if PLAIN.contains(&plain) => None,
        _ => {
            return Err(format!(
                "{function}: whether other ABIs have other values for `{name}` is not known; say so in xtask/src/faces/kinds.rs"
            ));
        }
    };
    Ok(kind)
}

/// Numbers that are the same everywhere: counts, sizes, indices, logicals.
const PLAIN: [&str; 128] = [
    "gpu_type",
    "is_supported",
    "abi_major",
    "abi_minor",
    "argc",
    "array_of_blocklengths",
    "array_of_displacements",
    "array_of_gsizes",
    "array_of_indices",
    "array_of_integers",
    "array_of_maxprocs",
    "array_of_partitions",
    "array_of_psizes",
    "array_of_sizes",
    "array_of_starts",
    "array_of_subsizes",
    "atomic",
    "blocklength",
    "buflen",
    "cat_index",
    "color",
    "commute",
    "continuous",
    "coords",
    "count",
    "cvar_index",
    "degrees",
    "desc_len",
    "destinations",
    "dims",
    "direction",
    "disp",
    "disp_unit",
    "displs",
    "edges",
    "element_index",
    "event_index",
    "fd",
    "flag",
    "high",
    "incount",
    "indegree",
    "indices",
    "indx",
    "insize",
    "key",
    "len",
    "length",
    "level",
    "local_leader",
    "logical_size",
    "max_addresses",
    "max_datatypes",
    "max_integers",
    "maxdims",
    "maxedges",
    "maxindegree",
    "maxindex",
    "maxneighbors",
    "maxoutdegree",
    "maxprocs",
    "n",
    "name_len",
    "ndims",
    "nedges",
    "neighbors",
    "newrank",
    "nkeys",
    "nneighbors",
    "nnodes",
    "npset_names",
    "num",
    "num_acked",
    "num_addresses",
    "num_cat",
    "num_categories",
    "num_cvar",
    "num_cvars",
    "num_datatypes",
    "num_elements",
    "num_events",
    "num_integers",
    "num_pvar",
    "num_pvars",
    "num_sources",
    "num_to_ack",
    "origin_count",
    "outcount",
    "outdegree",
    "outsize",
    "p",
    "partition",
    "partition_high",
    "partition_low",
    "partitions",
    "periods",
    "position",
    "pset_len",
    "pvar_index",
    "r",
    "ranges",
    "ranks",
    "rdispls",
    "readonly",
    "recvcount",
    "recvcounts",
    "remain_dims",
    "remote_leader",
    "reorder",
    "result_count",
    "resultlen",
    "sdispls",
    "sendcount",
    "sendcounts",
    "size",
    "source_index",
    "sources",
    "stride",
    "subversion",
    "target_count",
    "update_number",
    "value",
    "valuelen",
    "version",
    "weighted",
    "is_set",
    "maxcount",
    "extent",
];

/// Functions whose bodies are written by hand in `abi/faces`.
pub const BY_HAND: [&str; 30] = [
    "MPI_Errhandler_create",
    "MPIX_Comm_ishrink",
    "MPI_Abi_get_version",
    "MPI_Comm_create_keyval",
    "MPI_Type_create_keyval",
    "MPI_Win_create_keyval",
    "MPI_Keyval_create",
    "MPI_Comm_get_attr",
    "MPI_Win_get_attr",
    "MPI_Attr_get",
    "MPI_Op_create",
    "MPI_Op_create_c",
    "MPI_Comm_create_errhandler",
    "MPI_Win_create_errhandler",
    "MPI_File_create_errhandler",
    "MPI_Session_create_errhandler",
    "MPIX_Op_create_x",
    "MPIX_Comm_create_errhandler_x",
    "MPIX_Win_create_errhandler_x",
    "MPIX_File_create_errhandler_x",
    "MPIX_Session_create_errhandler_x",
    "MPI_Grequest_start",
    "MPI_Register_datarep",
    "MPI_Register_datarep_c",
    "MPI_Type_get_contents",
    "MPI_Type_get_contents_c",
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_T_event_get_info",
    "MPI_Pcontrol",
];

/// Functions that move data, complete a request or are called around each message: compiled for
/// speed. With all others compiled for size a library is a quarter smaller; with these among them
/// an MPI_Isend, MPI_Irecv and two MPI_Waits to oneself take 600 ns for 540.
#[rustfmt::skip]
pub const OFTEN: &[&str] = &[
    "MPI_Send", "MPI_Bsend", "MPI_Ssend", "MPI_Rsend", "MPI_Recv", "MPI_Sendrecv",
    "MPI_Sendrecv_replace", "MPI_Isend", "MPI_Ibsend", "MPI_Issend", "MPI_Irsend", "MPI_Irecv",
    "MPI_Mrecv", "MPI_Imrecv", "MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe", "MPI_Start",
    "MPI_Startall", "MPI_Wait", "MPI_Waitall", "MPI_Waitany", "MPI_Waitsome", "MPI_Test",
    "MPI_Testall", "MPI_Testany", "MPI_Testsome", "MPI_Get_count", "MPI_Barrier", "MPI_Bcast",
    "MPI_Reduce", "MPI_Allreduce", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv",
    "MPI_Allgather", "MPI_Allgatherv", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Reduce_scatter_block",
    "MPI_Scan", "MPI_Exscan", "MPI_Ibarrier", "MPI_Ibcast", "MPI_Iallreduce", "MPI_Put", "MPI_Get",
    "MPI_Accumulate", "MPI_Get_accumulate", "MPI_Fetch_and_op", "MPI_Compare_and_swap", "MPI_Rput",
    "MPI_Rget", "MPI_Win_flush", "MPI_Win_flush_all", "MPI_Win_flush_local", "MPI_Win_lock",
    "MPI_Win_unlock", "MPI_Win_fence", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Pack", "MPI_Unpack",
    "MPI_Type_size",
];

/// Functions whose results are handles or numbers of Fortran, which each ABI has in its own way.
pub fn is_absent(name: &str) -> bool {
    name.ends_with("_fromint") || name.ends_with("_toint")
}

/// Returns the number of elements of an array of handles, statuses or numbers, as a C expression
/// over the parameters.
pub fn length(function: &str, name: &str) -> Option<&'static str> {
    Some(match (function, name) {
        (f, "sendtypes") if f.contains("eighbor") => "margay_face_neighbors(to_comm(comm), 1)",
        (f, "recvtypes") if f.contains("eighbor") => "margay_face_neighbors(to_comm(comm), 0)",
        (_, "sendtypes") => "sendbuf == MPI_IN_PLACE ? 0 : margay_face_peers(to_comm(comm))",
        (_, "recvtypes") => "margay_face_peers(to_comm(comm))",
        (f, "array_of_requests" | "array_of_statuses") if f.ends_with("some") => "incount",
        (_, "array_of_types" | "array_of_requests" | "array_of_statuses") => "count",
        (_, "array_of_distribs" | "array_of_dargs") => "ndims",
        (_, "ranks1" | "ranks2") => "n",
        _ => return None,
    })
}

/// Returns the longest text of an output parameter without a length: the standard's number and the
/// constant's name.
pub fn longest(function: &str, name: &str) -> Option<(usize, &'static str)> {
    Some(match (function, name) {
        (_, "comm_name" | "type_name" | "win_name") => (128, "MPI_MAX_OBJECT_NAME"),
        ("MPI_Error_string", "string") => (512, "MPI_MAX_ERROR_STRING"),
        ("MPI_Get_library_version", "version") => (8192, "MPI_MAX_LIBRARY_VERSION_STRING"),
        ("MPI_Get_processor_name", "name") => (256, "MPI_MAX_PROCESSOR_NAME"),
        ("MPI_Open_port" | "MPI_Lookup_name", "port_name") => (1024, "MPI_MAX_PORT_NAME"),
        ("MPI_File_get_view", "datarep") => (128, "MPI_MAX_DATAREP_STRING"),
        ("MPI_Info_get_nthkey", "key") => (256, "MPI_MAX_INFO_KEY"),
        _ => return None,
    })
}

/// Whether a handle that a function gets by its address is read, too.
pub fn is_read(function: &str, base: &str) -> bool {
    let ends = ["free", "disconnect", "close", "finalize", "commit"];
    ends.iter().any(|end| function.ends_with(end))
        || base == "MPI_Message"
            && ["MPI_Mrecv", "MPI_Imrecv"].contains(&function.trim_end_matches("_c"))
        || base == "MPI_Request"
            && [
                "MPI_Wait",
                "MPI_Test",
                "MPI_Start",
                "MPI_Request_",
                "MPI_Cancel",
            ]
            .iter()
            .any(|begin| function.starts_with(begin))
}
