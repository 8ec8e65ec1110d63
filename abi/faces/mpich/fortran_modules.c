/* What programs need of MPICH's modules: constants of handles, and the operators on handles. */
#include "glue.h"

/* gfortran passes the address of the module's constant. */
#define CONSTANT(name, value) const MPI_Fint __mpi_f08_compile_constants_MOD_##name = value;
#include "fortran_constants.h"

#define COMPARISON(name, operator)                                                                                     \
    MPI_Fint name(const MPI_Fint *a, const MPI_Fint *b)                                                                \
    {                                                                                                                  \
        return *a operator *b;                                                                                         \
    }

/* Of mpi_f08, between types and with integers, and of mpi. */
#define OPERATORS(kind)                                                                                                \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_eq, ==)                                                                \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_neq, !=)                                                               \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_f08_eq_f, ==)                                                          \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_f08_neq_f, !=)                                                         \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_f_eq_f08, ==)                                                          \
    COMPARISON(__mpi_f08_types_MOD_mpi_##kind##_f_neq_f08, !=)                                                         \
    COMPARISON(__mpi_constants_MOD_##kind##eq, ==)                                                                     \
    COMPARISON(__mpi_constants_MOD_##kind##neq, !=)

FOR_EACH_HANDLE(OPERATORS)
