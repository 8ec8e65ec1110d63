/* mpi_fortran.h - handles and statuses between C and Fortran, which the standard ABI does not include. mpi.h includes this file.
 */
#ifndef MPI_FORTRAN_H
#define MPI_FORTRAN_H

#include <mpi.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fortran's INTEGER. */
typedef int MPI_Fint;

/* TYPE(MPI_Status) of mpi_f08. */
typedef struct {
    MPI_Fint MPI_SOURCE;
    MPI_Fint MPI_TAG;
    MPI_Fint MPI_ERROR;
    MPI_Fint MPI_internal[5];
} MPI_F08_status;

/* Inline, so that C programs need no other library for them. */
#define MARGAY_F2C(prefix, kind, type)                                                                               \
    static inline type prefix##_##kind##_f2c(MPI_Fint value) { return prefix##_##kind##_fromint(value); }            \
    static inline MPI_Fint prefix##_##kind##_c2f(type handle) { return prefix##_##kind##_toint(handle); }
#define MARGAY_F2C_BOTH(kind, type) MARGAY_F2C(MPI, kind, type) MARGAY_F2C(PMPI, kind, type)

MARGAY_F2C_BOTH(Comm, MPI_Comm)
MARGAY_F2C_BOTH(Errhandler, MPI_Errhandler)
MARGAY_F2C_BOTH(File, MPI_File)
MARGAY_F2C_BOTH(Group, MPI_Group)
MARGAY_F2C_BOTH(Info, MPI_Info)
MARGAY_F2C_BOTH(Message, MPI_Message)
MARGAY_F2C_BOTH(Op, MPI_Op)
MARGAY_F2C_BOTH(Request, MPI_Request)
MARGAY_F2C_BOTH(Session, MPI_Session)
MARGAY_F2C_BOTH(Type, MPI_Datatype)
MARGAY_F2C_BOTH(Win, MPI_Win)

/* A status has the same form in both languages. An ignored status cannot be converted; Fortran's are the common blocks below. */
static inline int margay_copy_status(const void *from, void *to)
{
    if (!from || !to) return MPI_ERR_ARG;
    memcpy(to, from, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

#define MARGAY_STATUS(name, from, to)                                                                                \
    static inline int MPI_Status_##name(const from *old, to *status) { return margay_copy_status(old, status); }     \
    static inline int PMPI_Status_##name(const from *old, to *status) { return margay_copy_status(old, status); }

MARGAY_STATUS(f2c, MPI_Fint, MPI_Status)
MARGAY_STATUS(c2f, MPI_Status, MPI_Fint)
MARGAY_STATUS(f082c, MPI_F08_status, MPI_Status)
MARGAY_STATUS(c2f08, MPI_Status, MPI_F08_status)
MARGAY_STATUS(f2f08, MPI_Fint, MPI_F08_status)
MARGAY_STATUS(f082f, MPI_F08_status, MPI_Fint)

#undef MARGAY_F2C
#undef MARGAY_F2C_BOTH
#undef MARGAY_STATUS

/* Fortran's MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE: in -lmargay_mpifort, which mpifort links. */
extern MPI_Fint mpi_fort_status_ignore_[], mpi_fort_statuses_ignore_[];
#define MPI_F_STATUS_IGNORE ((MPI_Fint *)mpi_fort_status_ignore_)
#define MPI_F_STATUSES_IGNORE ((MPI_Fint *)mpi_fort_statuses_ignore_)
#define MPI_F08_STATUS_IGNORE ((MPI_F08_status *)mpi_fort_status_ignore_)
#define MPI_F08_STATUSES_IGNORE ((MPI_F08_status *)mpi_fort_statuses_ignore_)

#ifdef __cplusplus
}
#endif

#endif
