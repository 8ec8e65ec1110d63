/* What all ABIs' Fortran functions share. Included by marks.h of each. */
#ifndef MARGAY_FACE_FORTRAN_H
#define MARGAY_FACE_FORTRAN_H

/* No Fortran program of these ABIs knows the library's own buffer. */
#define IS_BUFFER_AUTOMATIC(address) ((void)(address), 0)
#define FORTRAN_BUFFER_AUTOMATIC MPI_BUFFER_AUTOMATIC

/* The kinds of handles of mpi_f08, in whose modules each has its own functions. */
#define FOR_EACH_HANDLE(do)                                                                                            \
    do(comm) do(datatype) do(errhandler) do(file) do(group) do(info) do(message) do(op) do(request) do(session) do(win)

#define SAME_ADDRESS(address, mark) ((const void *)(address) == (const void *)(mark))

#endif
