/* What MPICH's own library for C++ asks of the library for C. Ours for C++ is empty; where the system has MPICH's, the loader takes
 * its symbols, so that programs that use MPI's C++ bindings find them. */
#include "margay.h"

#include <stdio.h>

void MPII_Op_set_cxx(MPI_Op op, margay_face_language *call)
{
    margay_face_op_language(op, call, NULL);
}

static void refuse(const char *what)
{
    fprintf(stderr, "MPI's C++ bindings: %s of the program are not supported; use those of C\n", what);
    PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_UNSUPPORTED_OPERATION);
    abort();
}

void MPII_Errhandler_set_cxx(MPI_Errhandler handler, void (*call)(void))
{
    (void)handler, (void)call;
    refuse("error handlers");
}

void MPII_Keyval_set_proxy(int keyval, void (*copy)(void), void (*delete)(void))
{
    (void)keyval, (void)copy, (void)delete;
    refuse("keys of attributes");
}
