//! What a call is for OTF2, by its name in MPI, NX or MPL.

/// The paradigms that occur.
pub mod paradigm {
    pub const USER: u8 = 1;
    pub const OPENMP: u8 = 3;
    pub const MPI: u8 = 4;
    pub const MEASUREMENT: u8 = 6;
}

/// The roles of regions that occur.
pub mod role {
    pub const FUNCTION: u8 = 1;
    pub const PARALLEL: u8 = 5;
    pub const CRITICAL: u8 = 12;
    pub const ATOMIC: u8 = 14;
    pub const BARRIER: u8 = 15;
    pub const IMPLICIT_BARRIER: u8 = 16;
    pub const ORDERED: u8 = 18;
    pub const TASK_WAIT: u8 = 22;
    pub const ONE_TO_ALL: u8 = 23;
    pub const ALL_TO_ONE: u8 = 24;
    pub const ALL_TO_ALL: u8 = 25;
    pub const COLLECTIVE: u8 = 26;
    pub const FILES: u8 = 27;
    pub const POINT_TO_POINT: u8 = 28;
    pub const WINDOWS: u8 = 29;
    pub const ARTIFICIAL: u8 = 31;
}

/// The role of a region or wait of OpenMP, by the name of its record; none of anything else.
pub fn role_of_openmp(name: &str) -> Option<u8> {
    Some(match name.strip_prefix("omp ")? {
        "parallel" => role::PARALLEL,
        "barrier" => role::BARRIER,
        "end of parallel" | "end of worksharing" => role::IMPLICIT_BARRIER,
        "taskwait" | "taskgroup" => role::TASK_WAIT,
        "wait for critical" | "wait for lock" => role::CRITICAL,
        "wait for atomic" => role::ATOMIC,
        "wait for ordered" => role::ORDERED,
        _ => role::FUNCTION,
    })
}

/// A collective operation, with OTF2's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    Barrier = 0,
    Bcast = 1,
    Gather = 2,
    Gatherv = 3,
    Scatter = 4,
    Scatterv = 5,
    Allgather = 6,
    Allgatherv = 7,
    Alltoall = 8,
    Alltoallv = 9,
    Alltoallw = 10,
    Allreduce = 11,
    Reduce = 12,
    ReduceScatter = 13,
    Scan = 14,
    Exscan = 15,
    ReduceScatterBlock = 16,
    /// Communicators and windows are made.
    Create = 17,
    CreateAndAllocate = 21,
}

use Operation as O;

impl Operation {
    /// What a call does, by its [plain](plain) name.
    pub fn of(call: &str) -> Option<Operation> {
        Some(match call {
            "barrier" | "gsync" | "sync" => O::Barrier,
            "bcast" => O::Bcast,
            "gather" => O::Gather,
            "gatherv" => O::Gatherv,
            "scatter" => O::Scatter,
            "scatterv" => O::Scatterv,
            "allgather" | "concat" => O::Allgather,
            "allgatherv" | "gcol" | "gcolx" => O::Allgatherv,
            "alltoall" | "index" => O::Alltoall,
            "alltoallv" => O::Alltoallv,
            "alltoallw" => O::Alltoallw,
            "allreduce" | "combine" | "gopf" => O::Allreduce,
            // gdsum, gihigh, glor and so on.
            "gland" | "glor" | "glxor" | "giand" | "gior" | "gixor" => O::Allreduce,
            call if call.strip_prefix(['g']).is_some_and(is_reduction_of_nx) => O::Allreduce,
            "reduce" => O::Reduce,
            "reduce_scatter" => O::ReduceScatter,
            "reduce_scatter_block" => O::ReduceScatterBlock,
            "scan" | "prefix" => O::Scan,
            "exscan" => O::Exscan,
            "win_allocate" | "win_allocate_shared" => O::CreateAndAllocate,
            "comm_dup"
            | "comm_dup_with_info"
            | "comm_create"
            | "comm_split"
            | "comm_split_type"
            | "cart_create"
            | "cart_sub"
            | "graph_create"
            | "dist_graph_create"
            | "dist_graph_create_adjacent"
            | "win_create"
            | "win_create_dynamic" => O::Create,
            _ => return None,
        })
    }

    pub fn role(self) -> u8 {
        match self {
            O::Barrier => role::BARRIER,
            O::Bcast | O::Scatter | O::Scatterv => role::ONE_TO_ALL,
            O::Gather | O::Gatherv | O::Reduce => role::ALL_TO_ONE,
            O::Scan | O::Exscan | O::Create | O::CreateAndAllocate => role::COLLECTIVE,
            _ => role::ALL_TO_ALL,
        }
    }

    pub fn has_root(self) -> bool {
        matches!(self.role(), role::ONE_TO_ALL | role::ALL_TO_ONE)
    }

    /// Bytes that this rank gives, and that it gets. `bytes` is what the record has: of operations
    /// with a part for each rank one part. What it gets where parts differ is not recorded.
    pub fn volume(self, bytes: u64, is_root: bool, ranks: u32) -> (u64, u64) {
        let all = bytes.saturating_mul(u64::from(ranks));
        let of_root = |bytes| if is_root { bytes } else { 0 };
        match self {
            O::Barrier | O::Create | O::CreateAndAllocate => (0, 0),
            O::Bcast | O::Scatterv if is_root => (bytes, 0),
            O::Bcast | O::Scatterv => (0, bytes),
            O::Gather => (bytes, of_root(all)),
            O::Scatter => (of_root(all), bytes),
            O::Allgather => (bytes, all),
            O::Alltoall => (all, all),
            O::Reduce => (bytes, of_root(bytes)),
            O::Allreduce | O::Scan | O::Exscan => (bytes, bytes),
            O::ReduceScatterBlock => (all, bytes),
            O::Gatherv | O::Allgatherv | O::Alltoallv | O::Alltoallw | O::ReduceScatter => {
                (bytes, 0)
            }
        }
    }
}

/// `dsum`, `ihigh`: a type of elements and what is done with them.
fn is_reduction_of_nx(call: &str) -> bool {
    let operation = call.strip_prefix(['d', 'i', 's']);
    operation.is_some_and(|operation| ["sum", "prod", "high", "low"].contains(&operation))
}

/// The name of a call in lower case, without the prefix of its library and what variants add:
/// `bcast` of `MPI_Bcast`, `MPI_Bcast_c` and PICL's `bcast0`.
pub fn plain(call: &str) -> String {
    let call = call.to_lowercase();
    let prefixes = ["mpi_", "mpc_", "mp_"];
    let plain = prefixes.iter().find_map(|prefix| call.strip_prefix(prefix));
    let plain = plain.unwrap_or(&call);
    let plain = plain.strip_suffix("_c").unwrap_or(plain);
    plain.strip_suffix('0').unwrap_or(plain).to_owned()
}

/// Whether a call with this plain name receives the message that it names itself, whatever other
/// receives are posted.
pub fn receives_itself(call: &str) -> bool {
    const CALLS: [&str; 11] = [
        "recv",
        "mrecv",
        "sendrecv",
        "sendrecv_replace",
        "crecv",
        "crecvx",
        "csendrecv",
        "brecv",
        "bsendrecv",
        "bvrecv",
        "vrecv",
    ];
    CALLS.contains(&call)
}

/// The role of a call with this plain name, unless its records say that it moves messages.
pub fn role_of(call: &str) -> u8 {
    // Nonblocking operations are called i... .
    let blocking = call.strip_prefix('i').unwrap_or(call);
    if let Some(operation) = Operation::of(call).or_else(|| Operation::of(blocking)) {
        return operation.role();
    }
    let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| call.starts_with(prefix));
    if is(&["file_"]) {
        role::FILES
    } else if is(&[
        "win_",
        "put",
        "get_accumulate",
        "accumulate",
        "rput",
        "rget",
        "raccumulate",
    ]) || ["get", "fetch_and_op", "compare_and_swap"].contains(&call)
    {
        role::WINDOWS
    } else if is(&["neighbor_", "ineighbor_"]) {
        role::COLLECTIVE
    } else {
        role::FUNCTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_by_the_names_of_all_libraries() {
        let of = |call: &str| Operation::of(&plain(call));
        let known = [
            ("MPI_Barrier", O::Barrier),
            ("MPI_Bcast_c", O::Bcast),
            ("bcast0", O::Bcast),
            ("mpc_bcast", O::Bcast),
            ("gsync", O::Barrier),
            ("gdsum", O::Allreduce),
            ("gshigh", O::Allreduce),
            ("gcolx", O::Allgatherv),
            ("MPI_Reduce_scatter_block", O::ReduceScatterBlock),
            ("MPI_Comm_split", O::Create),
        ];
        for (call, operation) in known {
            assert_eq!(of(call), Some(operation), "{call}");
        }
        for call in [
            "MPI_Ibarrier",
            "MPI_Win_fence",
            "gsendx",
            "MPI_Init",
            "gdrow",
            "send0",
        ] {
            assert_eq!(of(call), None, "{call}");
        }
        let roles = [
            ("MPI_Ibarrier", role::BARRIER),
            ("MPI_Iallreduce", role::ALL_TO_ALL),
            ("MPI_Put", role::WINDOWS),
            ("MPI_Get", role::WINDOWS),
            ("MPI_Get_processor_name", role::FUNCTION),
            ("MPI_File_write_all", role::FILES),
            ("MPI_Init", role::FUNCTION),
        ];
        for (call, role) in roles {
            assert_eq!(role_of(&plain(call)), role, "{call}");
        }
    }

    #[test]
    fn ranks_give_and_get_what_their_buffers_have() {
        assert_eq!(O::Bcast.volume(8, true, 4), (8, 0));
        assert_eq!(O::Bcast.volume(8, false, 4), (0, 8));
        assert_eq!(O::Gather.volume(8, true, 4), (8, 32));
        assert_eq!(O::Scatter.volume(8, false, 4), (0, 8));
        assert_eq!(O::Alltoall.volume(8, false, 4), (32, 32));
        assert_eq!(O::Allreduce.volume(8, false, 4), (8, 8));
        assert_eq!(O::ReduceScatterBlock.volume(8, false, 4), (32, 8));
        assert_eq!(O::Barrier.volume(8, false, 4), (0, 0));
    }
}
