/* C functions that call Fortran's, which they know from their extra state. */
#ifndef MARGAY_FORTRAN_CALLBACK_H
#define MARGAY_FORTRAN_CALLBACK_H

#include "glue.h"

typedef void margay_f_query(MPI_Aint *extra_state, MPI_Status *status, MPI_Fint *ierror);
typedef void margay_f_free(MPI_Aint *extra_state, MPI_Fint *ierror);
typedef void margay_f_cancel(MPI_Aint *extra_state, MPI_Fint *complete, MPI_Fint *ierror);

typedef struct {
    margay_f_query *query;
    margay_f_free *free;
    margay_f_cancel *cancel;
    MPI_Aint *extra_state; /* the program's variable, which has to last as long as the request */
} margay_grequest;

int margay_grequest_query(void *grequest, MPI_Status *status);
int margay_grequest_free(void *grequest);
int margay_grequest_cancel(void *grequest, int complete);

typedef void margay_f_extent(MPI_Fint *datatype, MPI_Aint *extent, MPI_Aint *extra_state, MPI_Fint *ierror);
typedef void margay_f_convert(void *userbuf, MPI_Fint *datatype, MPI_Fint *count, void *filebuf, MPI_Offset *position,
                              MPI_Aint *extra_state, MPI_Fint *ierror);
typedef void margay_f_convert_c(void *userbuf, MPI_Fint *datatype, MPI_Count *count, void *filebuf,
                                MPI_Offset *position, MPI_Aint *extra_state, MPI_Fint *ierror);

typedef struct {
    void *read;
    void *write;
    margay_f_extent *extent;
    MPI_Aint extra_state;
} margay_datarep;

int margay_datarep_extent(MPI_Datatype datatype, MPI_Aint *extent, void *datarep);
int margay_datarep_read(void *userbuf, MPI_Datatype datatype, int count, void *filebuf, MPI_Offset position,
                        void *datarep);
int margay_datarep_write(void *userbuf, MPI_Datatype datatype, int count, void *filebuf, MPI_Offset position,
                         void *datarep);
int margay_datarep_read_c(void *userbuf, MPI_Datatype datatype, MPI_Count count, void *filebuf, MPI_Offset position,
                          void *datarep);
int margay_datarep_write_c(void *userbuf, MPI_Datatype datatype, MPI_Count count, void *filebuf, MPI_Offset position,
                           void *datarep);

/* MPI_CONVERSION_FN_NULL and MPI_CONVERSION_FN_NULL_C, which stand for no function. */
void mpi_conversion_fn_null_(void *userbuf, MPI_Fint *datatype, MPI_Fint *count, void *filebuf, MPI_Offset *position,
                             MPI_Aint *extra_state, MPI_Fint *ierror);
void mpi_conversion_fn_null_c_(void *userbuf, MPI_Fint *datatype, MPI_Count *count, void *filebuf,
                               MPI_Offset *position, MPI_Aint *extra_state, MPI_Fint *ierror);

#endif
