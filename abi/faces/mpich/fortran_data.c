/* Marks of MPICH's Fortran, and the arrays of mpi_f08. */
#include "glue.h"

/* A program has common blocks of these names, which the loader takes in place of these. */
#define COMMON __attribute__((aligned(32)))
struct margay_common_1 mpipriv1_ COMMON;
struct margay_common_2 mpipriv2_ COMMON;
struct margay_common_c mpiprivc_ COMMON;
MPI_Fint mpifcmb5_[1] COMMON, mpifcmb9_[1] COMMON;

MPI_Fint __mpi_f08_link_constants_MOD_mpi_errcodes_ignore[1], __mpi_f08_link_constants_MOD_mpi_unweighted[1],
    __mpi_f08_link_constants_MOD_mpi_weights_empty[1];
char __mpi_f08_link_constants_MOD_mpi_argv_null[1], __mpi_f08_link_constants_MOD_mpi_argvs_null[1];

__attribute__((constructor)) static void let_c_know(void)
{
    MPI_F_STATUS_IGNORE = mpipriv1_.status_ignore;
    MPI_F_STATUSES_IGNORE = mpipriv2_.statuses_ignore;
}

/* Strides are in units of the span, and an array of assumed size has no last extent. */
CFI_cdesc_t margay_descriptor(const gfortran_array *array)
{
    CFI_cdesc_t to;
    to.base_addr = array->base_addr;
    to.elem_len = array->elem_len;
    to.rank = array->rank;
    ptrdiff_t unit = array->span ? array->span : (ptrdiff_t)array->elem_len;
    for (int i = 0; i < array->rank; i++) {
        to.dim[i].lower_bound = array->dim[i].lower_bound;
        to.dim[i].extent = array->dim[i].upper_bound - array->dim[i].lower_bound + 1;
        to.dim[i].sm = array->dim[i].stride * unit;
        if (to.dim[i].extent < 0) to.dim[i].extent = 0;
    }
    return to;
}
