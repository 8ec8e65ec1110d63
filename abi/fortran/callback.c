/* Generalized requests and data representations: Fortran's functions called from C. Reduction functions and error
 * handlers need nothing of this kind: Fortran takes C's arguments as they are (see glue.h). */
#include "callback.h"

int margay_grequest_query(void *grequest, MPI_Status *status)
{
    margay_grequest *g = grequest;
    MPI_Fint ierror = MPI_SUCCESS;
    g->query(g->extra_state, status, &ierror);
    return ierror;
}

int margay_grequest_free(void *grequest)
{
    margay_grequest *g = grequest;
    MPI_Fint ierror = MPI_SUCCESS;
    g->free(g->extra_state, &ierror);
    free(g);
    return ierror;
}

int margay_grequest_cancel(void *grequest, int complete)
{
    margay_grequest *g = grequest;
    MPI_Fint ierror = MPI_SUCCESS, logical = margay_logical(complete);
    g->cancel(g->extra_state, &logical, &ierror);
    return ierror;
}

int margay_datarep_extent(MPI_Datatype datatype, MPI_Aint *extent, void *datarep)
{
    margay_datarep *d = datarep;
    MPI_Fint type = TO_INT(Type, datatype), ierror = MPI_SUCCESS;
    d->extent(&type, extent, &d->extra_state, &ierror);
    return ierror;
}

#define CONVERSION(name, function, f_type, count_type, f_count)                                                      \
    int margay_datarep_##name(void *userbuf, MPI_Datatype datatype, count_type count, void *filebuf,                 \
                              MPI_Offset position, void *datarep)                                                    \
    {                                                                                                                \
        margay_datarep *d = datarep;                                                                                 \
        MPI_Fint type = TO_INT(Type, datatype), ierror = MPI_SUCCESS;                                                \
        f_count n = count;                                                                                           \
        ((f_type *)d->function)(userbuf, &type, &n, filebuf, &position, &d->extra_state, &ierror);                   \
        return ierror;                                                                                               \
    }

CONVERSION(read, read, margay_f_convert, int, MPI_Fint)
CONVERSION(write, write, margay_f_convert, int, MPI_Fint)
CONVERSION(read_c, read, margay_f_convert_c, MPI_Count, MPI_Count)
CONVERSION(write_c, write, margay_f_convert_c, MPI_Count, MPI_Count)

/* Known by their addresses; a program that calls them gets an error. */
void mpi_conversion_fn_null_(void *userbuf, MPI_Fint *datatype, MPI_Fint *count, void *filebuf, MPI_Offset *position,
                             MPI_Aint *extra_state, MPI_Fint *ierror)
{
    (void)userbuf, (void)datatype, (void)count, (void)filebuf, (void)position, (void)extra_state;
    *ierror = MPI_ERR_CONVERSION;
}

void mpi_conversion_fn_null_c_(void *userbuf, MPI_Fint *datatype, MPI_Count *count, void *filebuf,
                               MPI_Offset *position, MPI_Aint *extra_state, MPI_Fint *ierror)
{
    (void)userbuf, (void)datatype, (void)count, (void)filebuf, (void)position, (void)extra_state;
    *ierror = MPI_ERR_CONVERSION;
}
