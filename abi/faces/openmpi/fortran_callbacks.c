/* Reductions and error handlers of Fortran programs, which get integers as handles. */
#include "glue.h"

#include <limits.h>

static void reduce(void *in, void *inout, MPI_Count count, MPI_Datatype datatype, void *function)
{
    MPI_Fint type = TO_INT(Type, datatype);
    MPI_Aint lower, extent = 0;
    if (count > INT_MAX) PMPI_Type_get_extent(datatype, &lower, &extent);
    for (MPI_Count done = 0; done < count; done += INT_MAX) {
        MPI_Fint n = count - done < INT_MAX ? (MPI_Fint)(count - done) : INT_MAX;
        ((void (*)(void *, void *, MPI_Fint *, MPI_Fint *))function)((char *)in + done * extent,
                                                                    (char *)inout + done * extent, &n, &type);
    }
}

int margay_face_op_create(MPI_User_function *function, int commute, MPI_Op *op)
{
    return PMPIX_Op_create_x(reduce, NULL, commute, (void *)function, op);
}

#define ERROR_HANDLERS(kind, lower)                                                                                    \
    static void raise_##lower(MPI_##kind on, int code, void *function)                                                 \
    {                                                                                                                  \
        MPI_Fint integer = TO_INT(kind, on), error = code;                                                             \
        ((void (*)(MPI_Fint *, MPI_Fint *, ...))function)(&integer, &error);                                           \
    }                                                                                                                  \
    int margay_face_##lower##_create_errhandler(MPI_##kind##_errhandler_function *function, MPI_Errhandler *made)      \
    {                                                                                                                  \
        return PMPIX_##kind##_create_errhandler_x(raise_##lower, NULL, (void *)function, made);                        \
    }

ERROR_HANDLERS(Comm, comm)
ERROR_HANDLERS(File, file)
ERROR_HANDLERS(Session, session)
ERROR_HANDLERS(Win, win)
