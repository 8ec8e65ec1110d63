/* Statuses between the Fortran bindings: a status has the same form in all. */
#include "glue.h"

/* The ignored status cannot be converted, as the standard says. */
static int copy(const void *from, void *to)
{
    if (IS_STATUS_IGNORE(from) || IS_STATUSES_IGNORE(from)) return MPI_ERR_ARG;
    memcpy(to, from, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

void mpi_status_f2f08_(const void *old, void *new, MPI_Fint *ierror)
{
    margay_done(ierror, copy(old, new));
}

#define SAME(name) void name(const void *, void *, MPI_Fint *) __attribute__((alias("mpi_status_f2f08_")));
SAME(pmpi_status_f2f08_)
SAME(mpi_status_f082f_)
SAME(pmpi_status_f082f_)
