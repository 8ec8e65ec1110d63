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

/* Copies of objects in a program that is not position-independent lie elsewhere than the others. */
__attribute__((constructor)) static void find_objects(void)
{
    uintptr_t first = UINTPTR_MAX, last = 0;
    for (size_t i = 0; i < OBJECTS + OLDER; i++) {
        uintptr_t place = (uintptr_t)(i < OBJECTS ? margay_face_objects[i] : margay_face_older[i - OBJECTS]);
        if (!place) continue;
        if (place < first) first = place;
        if (place > last) last = place;
    }
    margay_face_first = first;
    margay_face_span = last - first;
}
