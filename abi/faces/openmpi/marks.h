/* Open MPI's Fortran: handles, marks, and the functions whose callbacks get handles. Included by glue.h. */
#ifndef MARGAY_FACE_MARKS_H
#define MARGAY_FACE_MARKS_H

#include "fortran.h"

#define FROM_INT(kind, value) PMPI_##kind##_f2c(value)
#define TO_INT(kind, handle) PMPI_##kind##_c2f(handle)
#define KEY_FROM_INT(key) (key)

extern MPI_Fint mpi_fortran_bottom_[], mpi_fortran_in_place_[], mpi_fortran_errcodes_ignore_[], mpi_fortran_status_ignore_[],
    mpi_fortran_statuses_ignore_[], mpi_fortran_unweighted_[], mpi_fortran_weights_empty_[];
extern char mpi_fortran_argv_null_[], mpi_fortran_argvs_null_[];

#define BOTTOM mpi_fortran_bottom_
#define IS_BOTTOM(address) SAME_ADDRESS(address, mpi_fortran_bottom_)
#define IS_IN_PLACE(address) SAME_ADDRESS(address, mpi_fortran_in_place_)
#define IS_STATUS_IGNORE(address) SAME_ADDRESS(address, mpi_fortran_status_ignore_)
#define IS_STATUSES_IGNORE(address) SAME_ADDRESS(address, mpi_fortran_statuses_ignore_)
#define IS_ERRCODES_IGNORE(address) SAME_ADDRESS(address, mpi_fortran_errcodes_ignore_)
#define IS_UNWEIGHTED(address) SAME_ADDRESS(address, mpi_fortran_unweighted_)
#define IS_WEIGHTS_EMPTY(address) SAME_ADDRESS(address, mpi_fortran_weights_empty_)
#define IS_ARGV_NULL(address) SAME_ADDRESS(address, mpi_fortran_argv_null_)
#define IS_ARGVS_NULL(address) SAME_ADDRESS(address, mpi_fortran_argvs_null_)

/* Functions of the program get integers in place of addresses: fortran_callbacks.c. */
#define PMPI_Op_create margay_face_op_create
#define PMPI_Comm_create_errhandler margay_face_comm_create_errhandler
#define PMPI_Errhandler_create margay_face_comm_create_errhandler
#define PMPI_File_create_errhandler margay_face_file_create_errhandler
#define PMPI_Session_create_errhandler margay_face_session_create_errhandler
#define PMPI_Win_create_errhandler margay_face_win_create_errhandler

int margay_face_op_create(MPI_User_function *function, int commute, MPI_Op *op);
int margay_face_comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *made);
int margay_face_file_create_errhandler(MPI_File_errhandler_function *function, MPI_Errhandler *made);
int margay_face_session_create_errhandler(MPI_Session_errhandler_function *function, MPI_Errhandler *made);
int margay_face_win_create_errhandler(MPI_Win_errhandler_function *function, MPI_Errhandler *made);

#endif
