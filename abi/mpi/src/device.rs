//! Whether buffers may lie in the memory of a device: the questions that Open MPI and MPICH answer,
//! in `mpi_ext.h`. They may not; programs then copy to the host themselves.

use std::ffi::c_int;

use margay_run_mpi::constants::device::*;
use margay_run_mpi::constants::error_class::*;

use crate::call::mpi;
use crate::user::Place;

mpi! {
    /// Whether buffers may lie in memory of CUDA devices. May be called at any time, as the others
    /// here.
    fn MPIX_Query_cuda_support() -> c_int { 0 }

    /// Whether buffers may lie in memory of ROCm devices.
    fn MPIX_Query_rocm_support() -> c_int { 0 }

    /// The same by MPICH's name.
    fn MPIX_Query_hip_support() -> c_int { 0 }

    /// Whether buffers may lie in memory of Level Zero devices.
    fn MPIX_Query_ze_support() -> c_int { 0 }

    /// Whether buffers may lie in memory of a kind of device, `MPIX_GPU_SUPPORT_CUDA` and so on.
    fn MPIX_GPU_query_support(gpu_type: c_int, is_supported: Place<c_int>) -> c_int {
        match gpu_type {
            MPIX_GPU_SUPPORT_CUDA | MPIX_GPU_SUPPORT_ZE | MPIX_GPU_SUPPORT_HIP => {
                is_supported.put("is_supported", 0).map_or_else(|e| e.code(), |()| MPI_SUCCESS)
            }
            _ => MPI_ERR_ARG,
        }
    }
}
