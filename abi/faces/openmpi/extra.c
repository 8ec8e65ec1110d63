/* What Open MPI has besides the standard's functions. */
#include "margay.h"

#define ATTRIBUTES(kind, handle)                                                                                       \
    int OMPI_C_MPI_##kind##NULL_COPY_FN(handle on, int keyval, void *extra_state, void *in, void *out, int *flag)      \
    {                                                                                                                  \
        (void)on, (void)keyval, (void)extra_state, (void)in, (void)out;                                                \
        *flag = 0;                                                                                                     \
        return MPI_SUCCESS;                                                                                            \
    }                                                                                                                  \
    int OMPI_C_MPI_##kind##DUP_FN(handle on, int keyval, void *extra_state, void *in, void *out, int *flag)            \
    {                                                                                                                  \
        (void)on, (void)keyval, (void)extra_state;                                                                     \
        *flag = 1;                                                                                                     \
        *(void **)out = in;                                                                                            \
        return MPI_SUCCESS;                                                                                            \
    }                                                                                                                  \
    int OMPI_C_MPI_##kind##NULL_DELETE_FN(handle on, int keyval, void *value, void *extra_state)                       \
    {                                                                                                                  \
        (void)on, (void)keyval, (void)value, (void)extra_state;                                                        \
        return MPI_SUCCESS;                                                                                            \
    }

ATTRIBUTES(COMM_, MPI_Comm)
ATTRIBUTES(TYPE_, MPI_Datatype)
ATTRIBUTES(WIN_, MPI_Win)
ATTRIBUTES(, MPI_Comm)
