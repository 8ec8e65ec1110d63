/* Functions that take functions of the user with an extra state. */
#include "callback.h"

void FN(grequest_start)(margay_f_query *query_fn, margay_f_free *free_fn, margay_f_cancel *cancel_fn,
                        MPI_Aint *extra_state, MPI_Fint *request, MPI_Fint *ierror)
{
    margay_grequest *g = margay_allocate(1, sizeof *g);
    /* It is the program's variable that the functions see and change, as with MPICH and Open MPI. */
    *g = (margay_grequest){query_fn, free_fn, cancel_fn, extra_state};
    MPI_Request c = MPI_REQUEST_NULL;
    int e = CALL(Grequest_start)(margay_grequest_query, margay_grequest_free, margay_grequest_cancel, g, &c);
    if (e == MPI_SUCCESS)
        *request = TO_INT(Request, c);
    else
        free(g);
    margay_done(ierror, e);
}
SAME_IN_F08(grequest_start, (margay_f_query *query_fn, margay_f_free *free_fn, margay_f_cancel *cancel_fn,
                             MPI_Aint *extra_state, MPI_Fint *request, MPI_Fint *ierror))

/* A data representation stays to the end of the program, and so does what belongs to it. */
static margay_datarep *datarep_of(void *read, void *write, margay_f_extent *extent, MPI_Aint extra_state)
{
    margay_datarep *d = margay_allocate(1, sizeof *d);
    *d = (margay_datarep){read, write, extent, extra_state};
    return d;
}

void FN(register_datarep)(char *datarep, margay_f_convert *read_fn, margay_f_convert *write_fn,
                          margay_f_extent *extent_fn, MPI_Aint *extra_state, MPI_Fint *ierror, size_t datarep_len)
{
    margay_datarep *d = datarep_of(read_fn, write_fn, extent_fn, *extra_state);
    char *name = margay_text(datarep, datarep_len, 0);
    int e = CALL(Register_datarep)(
        name, read_fn == mpi_conversion_fn_null_ ? MPI_CONVERSION_FN_NULL : margay_datarep_read,
        write_fn == mpi_conversion_fn_null_ ? MPI_CONVERSION_FN_NULL : margay_datarep_write, margay_datarep_extent, d);
    if (e != MPI_SUCCESS) free(d);
    free(name);
    margay_done(ierror, e);
}
SAME_IN_F08(register_datarep,
            (char *datarep, margay_f_convert *read_fn, margay_f_convert *write_fn, margay_f_extent *extent_fn,
             MPI_Aint *extra_state, MPI_Fint *ierror, size_t datarep_len))

void FN(register_datarep_c_f08)(char *datarep, margay_f_convert_c *read_fn, margay_f_convert_c *write_fn,
                                margay_f_extent *extent_fn, MPI_Aint *extra_state, MPI_Fint *ierror,
                                size_t datarep_len)
{
    margay_datarep *d = datarep_of(read_fn, write_fn, extent_fn, *extra_state);
    char *name = margay_text(datarep, datarep_len, 0);
    int e = CALL(Register_datarep_c)(
        name, read_fn == mpi_conversion_fn_null_c_ ? MPI_CONVERSION_FN_NULL_C : margay_datarep_read_c,
        write_fn == mpi_conversion_fn_null_c_ ? MPI_CONVERSION_FN_NULL_C : margay_datarep_write_c,
        margay_datarep_extent, d);
    if (e != MPI_SUCCESS) free(d);
    free(name);
    margay_done(ierror, e);
}
