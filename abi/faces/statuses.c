/* Statuses between C and Fortran, which have the same form in all bindings. The same for all ABIs. */
#include "margay.h"

/* The ignored status cannot be converted, as the standard says. */
static int copy(const void *from, void *to)
{
    const void *ignored[] = {MPI_F_STATUS_IGNORE, MPI_F_STATUSES_IGNORE, MPI_F08_STATUS_IGNORE, MPI_F08_STATUSES_IGNORE,
                             MPI_STATUS_IGNORE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (from == ignored[i]) return MPI_ERR_IN_STATUS;
    if (!to) return MPI_ERR_ARG;
    memcpy(to, from, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

#define CONVERSION(name, from_type, to_type)                                                                           \
    int MPI_Status_##name(const from_type *from, to_type *to) __attribute__((alias("PMPI_Status_" #name)));            \
    int PMPI_Status_##name(const from_type *from, to_type *to)                                                         \
    {                                                                                                                  \
        return copy(from, to);                                                                                         \
    }

CONVERSION(c2f, MPI_Status, MPI_Fint)
CONVERSION(f2c, MPI_Fint, MPI_Status)
CONVERSION(c2f08, MPI_Status, MPI_F08_status)
CONVERSION(f082c, MPI_F08_status, MPI_Status)
CONVERSION(f2f08, MPI_Fint, MPI_F08_status)
CONVERSION(f082f, MPI_F08_status, MPI_Fint)
