/* Keys that Fortran made, and cells of attributes that Fortran put. */
#ifndef MARGAY_FORTRAN_ATTRIBUTE_H
#define MARGAY_FORTRAN_ATTRIBUTE_H

#include "glue.h"

/* A key's functions; `integers`: they are those of MPI 1, with INTEGER in place of address-sized integers. It lives as
 * long as the process: attributes outlive the key that made them. */
typedef struct {
    void *copy;
    void *delete;
    MPI_Aint extra_state;
    int integers;
} margay_key;

margay_key *margay_key_new(void *copy, void *delete, MPI_Aint extra_state, int integers);

/* The attribute for C of Fortran's integer, and the other way round. */
void *margay_attribute_cell(MPI_Aint value);
MPI_Aint margay_attribute_value(void *attribute);
void margay_attribute_drop(void *attribute);

int margay_copy_comm(MPI_Comm comm, int keyval, void *key, void *in, void *out, int *flag);
int margay_delete_comm(MPI_Comm comm, int keyval, void *attribute, void *key);
int margay_copy_type(MPI_Datatype type, int keyval, void *key, void *in, void *out, int *flag);
int margay_delete_type(MPI_Datatype type, int keyval, void *attribute, void *key);
int margay_copy_win(MPI_Win win, int keyval, void *key, void *in, void *out, int *flag);
int margay_delete_win(MPI_Win win, int keyval, void *attribute, void *key);

#endif
