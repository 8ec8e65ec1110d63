/* Handles and statuses between C and Fortran: what mpi_fortran.h declares, and the same for Fortran. */
#include "glue.h"

#define CONVERT(kind, type)                                                                                          \
    type MPI_##kind##_f2c(MPI_Fint value) { return PMPI_##kind##_fromint(value); }                                   \
    MPI_Fint MPI_##kind##_c2f(type handle) { return PMPI_##kind##_toint(handle); }                                   \
    type PMPI_##kind##_f2c(MPI_Fint value) __attribute__((alias("MPI_" #kind "_f2c")));                              \
    MPI_Fint PMPI_##kind##_c2f(type handle) __attribute__((alias("MPI_" #kind "_c2f")));

CONVERT(Comm, MPI_Comm)
CONVERT(Errhandler, MPI_Errhandler)
CONVERT(File, MPI_File)
CONVERT(Group, MPI_Group)
CONVERT(Info, MPI_Info)
CONVERT(Message, MPI_Message)
CONVERT(Op, MPI_Op)
CONVERT(Request, MPI_Request)
CONVERT(Session, MPI_Session)
CONVERT(Type, MPI_Datatype)
CONVERT(Win, MPI_Win)

/* A status has the same form everywhere. The ignored status cannot be converted, as the standard says. */
static int copy(const void *from, void *to)
{
    if (!from || !to || from == mpi_fort_status_ignore_ || from == mpi_fort_statuses_ignore_) return MPI_ERR_ARG;
    memcpy(to, from, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

#define STATUS(name, from, to)                                                                                       \
    int MPI_Status_##name(const from *old, to *new) { return copy(old, new); }                                       \
    int PMPI_Status_##name(const from *old, to *new) __attribute__((alias("MPI_Status_" #name)));

STATUS(f2c, MPI_Fint, MPI_Status)
STATUS(c2f, MPI_Status, MPI_Fint)
STATUS(f082c, MPI_F08_status, MPI_Status)
STATUS(c2f08, MPI_Status, MPI_F08_status)
STATUS(f2f08, MPI_Fint, MPI_F08_status)
STATUS(f082f, MPI_F08_status, MPI_Fint)

void mpi_status_f2f08_(const void *old, void *new, MPI_Fint *ierror)
{
    margay_done(ierror, copy(old, new));
}

#define SAME(name) void name(const void *, void *, MPI_Fint *) __attribute__((alias("mpi_status_f2f08_")));
SAME(pmpi_status_f2f08_)
SAME(mpi_status_f082f_)
SAME(pmpi_status_f082f_)
