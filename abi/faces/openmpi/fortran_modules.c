/* What programs that use mpi_f08 need of Open MPI's modules: constants of handles, and the operators on handles. */
#include "glue.h"

/* gfortran passes the address of the module's constant; older modules have C's names for them. */
#define CONSTANT(name, value)                                                                                          \
    const MPI_Fint __mpi_f08_types_MOD_##name = value;                                                                 \
    extern const MPI_Fint ompi_f08_##name __attribute__((alias("__mpi_f08_types_MOD_" #name)));
#include "fortran_constants.h"

#define OPERATORS(kind)                                                                                                \
    MPI_Fint __mpi_f08_types_MOD_ompi_##kind##_op_eq(const MPI_Fint *a, const MPI_Fint *b)                             \
    {                                                                                                                  \
        return *a == *b;                                                                                               \
    }                                                                                                                  \
    MPI_Fint __mpi_f08_types_MOD_ompi_##kind##_op_ne(const MPI_Fint *a, const MPI_Fint *b)                             \
    {                                                                                                                  \
        return *a != *b;                                                                                               \
    }

FOR_EACH_HANDLE(OPERATORS)
