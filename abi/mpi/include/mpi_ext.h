/* mpi_ext.h - Margay's extensions of the standard, whose names begin with MPIX_. Those for recovery from the death of processes
 * have the names of the User Level Failure Mitigation proposal, those with extra_state MPICH's. Extensions have no Fortran bindings.
 *
 * Printed by `cargo xtask header` from abi/mpi and run/mpi; change those, not this file.
 */
#ifndef MPI_EXT_H_MARGAY
#define MPI_EXT_H_MARGAY

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined when recovery from the death of processes exists. */
#define MPIX_HAVE_FTMPI 1
/* Whether buffers may lie in the memory of devices, for the preprocessor. */
#define MPIX_CUDA_AWARE_SUPPORT 0
#define MPIX_ROCM_AWARE_SUPPORT 0

/* Kinds of devices, for MPIX_GPU_query_support; the values are MPICH's. */
enum {
    MPIX_GPU_SUPPORT_CUDA = 0,
    MPIX_GPU_SUPPORT_ZE = 1,
    MPIX_GPU_SUPPORT_HIP = 2
};

/* Error classes of the recovery from failures; beside the standard's, and those of MPICH. */
enum {
    MPIX_ERR_PROC_FAILED = 101,
    MPIX_ERR_PROC_FAILED_PENDING = 102,
    MPIX_ERR_REVOKED = 103
};

/* Functions that users supply, with a word of the user's. */
typedef void(MPIX_Destructor_function)(void *extra_state);
typedef void(MPIX_User_function_x)(void *invec, void *inoutvec, MPI_Count len, MPI_Datatype datatype, void *extra_state);
typedef void(MPIX_Comm_errhandler_function_x)(MPI_Comm comm, int error_code, void *extra_state);
typedef void(MPIX_Win_errhandler_function_x)(MPI_Win win, int error_code, void *extra_state);
typedef void(MPIX_File_errhandler_function_x)(MPI_File file, int error_code, void *extra_state);
typedef void(MPIX_Session_errhandler_function_x)(MPI_Session session, int error_code, void *extra_state);

/* Functions. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_rocm_support(void);
int MPIX_Query_hip_support(void);
int MPIX_Query_ze_support(void);
int MPIX_GPU_query_support(int gpu_type, int *is_supported);
int MPIX_Op_create_x(MPIX_User_function_x *user_fn_x, MPIX_Destructor_function *destructor_fn, int commute, void *extra_state, MPI_Op *op);
int MPIX_Comm_create_errhandler_x(MPIX_Comm_errhandler_function_x *comm_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int MPIX_Win_create_errhandler_x(MPIX_Win_errhandler_function_x *win_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int MPIX_File_create_errhandler_x(MPIX_File_errhandler_function_x *file_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int MPIX_Session_create_errhandler_x(MPIX_Session_errhandler_function_x *session_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int MPIX_Comm_revoke(MPI_Comm comm);
int MPIX_Comm_is_revoked(MPI_Comm comm, int *flag);
int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);
int MPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);
int MPIX_Comm_agree(MPI_Comm comm, int *flag);
int MPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);
int MPIX_Comm_failure_ack(MPI_Comm comm);
int MPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failedgrp);
int MPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int MPIX_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int MPIX_Type_hvector_integer(int count, int blocklength, int stride, MPI_Datatype oldtype, MPI_Datatype *newtype);
int MPIX_Type_hindexed_integer(const void *bottom, int count, const int array_of_blocklengths[], const int array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype);
int MPIX_Type_struct_integer(const void *bottom, int count, const int array_of_blocklengths[], const int array_of_displacements[], const MPI_Datatype array_of_types[], MPI_Datatype *newtype);
/* The same functions, for tools that intercept calls. */
int PMPIX_Query_cuda_support(void);
int PMPIX_Query_rocm_support(void);
int PMPIX_Query_hip_support(void);
int PMPIX_Query_ze_support(void);
int PMPIX_GPU_query_support(int gpu_type, int *is_supported);
int PMPIX_Op_create_x(MPIX_User_function_x *user_fn_x, MPIX_Destructor_function *destructor_fn, int commute, void *extra_state, MPI_Op *op);
int PMPIX_Comm_create_errhandler_x(MPIX_Comm_errhandler_function_x *comm_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int PMPIX_Win_create_errhandler_x(MPIX_Win_errhandler_function_x *win_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int PMPIX_File_create_errhandler_x(MPIX_File_errhandler_function_x *file_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int PMPIX_Session_create_errhandler_x(MPIX_Session_errhandler_function_x *session_errhandler_fn_x, MPIX_Destructor_function *destructor_fn, void *extra_state, MPI_Errhandler *errhandler);
int PMPIX_Comm_revoke(MPI_Comm comm);
int PMPIX_Comm_is_revoked(MPI_Comm comm, int *flag);
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);
int PMPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);
int PMPIX_Comm_agree(MPI_Comm comm, int *flag);
int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);
int PMPIX_Comm_failure_ack(MPI_Comm comm);
int PMPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failedgrp);
int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int PMPIX_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int PMPIX_Type_hvector_integer(int count, int blocklength, int stride, MPI_Datatype oldtype, MPI_Datatype *newtype);
int PMPIX_Type_hindexed_integer(const void *bottom, int count, const int array_of_blocklengths[], const int array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype);
int PMPIX_Type_struct_integer(const void *bottom, int count, const int array_of_blocklengths[], const int array_of_displacements[], const MPI_Datatype array_of_types[], MPI_Datatype *newtype);
#ifdef __cplusplus
}
#endif

#endif /* MPI_EXT_H_MARGAY */
