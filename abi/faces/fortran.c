/* What the glue asks of a compiler, which is none here: gfortran's values, which others' programs of these ABIs understand. */
#include "glue.h"

MPI_Fint margay_logical_true = 1, margay_logical_false = 0;

void margay_initialized(void)
{
}

/* MPI_Sizeof: the caller has chosen the function by the type of the first argument. */
#define SIZEOF(bytes)                                                                                                  \
    void margay_sizeof_##bytes(void *x, MPI_Fint *size, MPI_Fint *ierror)                                              \
    {                                                                                                                  \
        (void)x;                                                                                                       \
        *size = bytes;                                                                                                 \
        margay_done(ierror, MPI_SUCCESS);                                                                              \
    }

SIZEOF(1)
SIZEOF(2)
SIZEOF(4)
SIZEOF(8)
SIZEOF(16)
SIZEOF(32)
