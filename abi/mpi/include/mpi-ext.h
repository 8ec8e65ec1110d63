/* mpi-ext.h - the extensions by the name that Open MPI's header has, with the macros that configure scripts look for.
 *
 * A macro says that an extension is there to be asked, not that devices are supported: MPIX_CUDA_AWARE_SUPPORT and
 * MPIX_Query_cuda_support() say that, and they say no. OPEN_MPI is not defined: this is not Open MPI.
 */
#ifndef MPI_EXT_H_MARGAY_OMPI
#define MPI_EXT_H_MARGAY_OMPI

#include "mpi_ext.h"

#define OMPI_HAVE_MPI_EXT 1
/* MPIX_Query_cuda_support and MPIX_Query_rocm_support. */
#define OMPI_HAVE_MPI_EXT_CUDA 1
#define OMPI_HAVE_MPI_EXT_ROCM 1
/* Recovery from the death of processes, in C alone. */
#define OMPI_HAVE_MPI_EXT_FTMPI 1

#endif /* MPI_EXT_H_MARGAY_OMPI */
