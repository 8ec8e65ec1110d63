/* What MPI-3 removed and Fortran has with INTEGER addresses; see address.c. */
#include "glue.h"

void FN(address)(void *location, MPI_Fint *address, MPI_Fint *ierror)
{
    MPI_Aint c_address = 0;
    int e = CALL(Address)(location, &c_address);
    if (e == MPI_SUCCESS) *address = margay_distance(c_address);
    margay_done(ierror, e);
}

void FN(type_hvector)(MPI_Fint *count, MPI_Fint *blocklength, MPI_Fint *stride, MPI_Fint *oldtype, MPI_Fint *newtype,
                      MPI_Fint *ierror)
{
    MPI_Datatype c_newtype = MPI_DATATYPE_NULL;
    int e = CALLX(Type_hvector_integer)(*count, *blocklength, *stride, FROM_INT(Type, *oldtype), &c_newtype);
    if (e == MPI_SUCCESS) *newtype = TO_INT(Type, c_newtype);
    margay_done(ierror, e);
}

void FN(type_hindexed)(MPI_Fint *count, MPI_Fint *array_of_blocklengths, MPI_Fint *array_of_displacements,
                       MPI_Fint *oldtype, MPI_Fint *newtype, MPI_Fint *ierror)
{
    MPI_Datatype c_newtype = MPI_DATATYPE_NULL;
    int e = CALLX(Type_hindexed_integer)(margay_bottom(array_of_displacements, *count), *count,
                                         array_of_blocklengths, array_of_displacements, FROM_INT(Type, *oldtype), &c_newtype);
    if (e == MPI_SUCCESS) *newtype = TO_INT(Type, c_newtype);
    margay_done(ierror, e);
}

void FN(type_struct)(MPI_Fint *count, MPI_Fint *array_of_blocklengths, MPI_Fint *array_of_displacements,
                     MPI_Fint *array_of_types, MPI_Fint *newtype, MPI_Fint *ierror)
{
    MPI_Datatype *c_types = margay_datatype_in(array_of_types, *count);
    MPI_Datatype c_newtype = MPI_DATATYPE_NULL;
    int e = CALLX(Type_struct_integer)(margay_bottom(array_of_displacements, *count), *count, array_of_blocklengths,
                                       array_of_displacements, c_types, &c_newtype);
    if (e == MPI_SUCCESS) *newtype = TO_INT(Type, c_newtype);
    free(c_types);
    margay_done(ierror, e);
}

/* A number of bytes as an INTEGER; what does not fit is an error on MPI_COMM_WORLD as any other. */
static void put_bytes(MPI_Fint *place, MPI_Aint bytes, MPI_Fint *ierror, int e)
{
    if (e == MPI_SUCCESS && bytes != (MPI_Fint)bytes) {
        e = MPI_ERR_VALUE_TOO_LARGE;
        PMPI_Comm_call_errhandler(MPI_COMM_WORLD, e);
    } else if (e == MPI_SUCCESS) {
        *place = (MPI_Fint)bytes;
    }
    margay_done(ierror, e);
}

#define BYTES_OF(function, c_function)                                                                               \
    void FN(function)(MPI_Fint *datatype, MPI_Fint *bytes, MPI_Fint *ierror)                                         \
    {                                                                                                                \
        MPI_Aint value = 0;                                                                                          \
        int e = CALL(c_function)(FROM_INT(Type, *datatype), &value);                                                 \
        put_bytes(bytes, value, ierror, e);                                                                          \
    }

BYTES_OF(type_extent, Type_extent)
BYTES_OF(type_lb, Type_lb)
BYTES_OF(type_ub, Type_ub)
