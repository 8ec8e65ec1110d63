/* Handles in Fortran: the same integers. A file is an address in C alone. */
#include "margay.h"

#define INTEGERS(kind, type)                                                                                           \
    FACE(MPI_Fint, MPI_##kind##_c2f, (type handle))                                                                    \
    {                                                                                                                  \
        return (MPI_Fint)(intptr_t)handle;                                                                             \
    }                                                                                                                  \
    FACE(type, MPI_##kind##_f2c, (MPI_Fint integer))                                                                   \
    {                                                                                                                  \
        return (type)(intptr_t)integer;                                                                                \
    }

INTEGERS(Comm, MPI_Comm)
INTEGERS(Errhandler, MPI_Errhandler)
INTEGERS(File, MPI_File)
INTEGERS(Group, MPI_Group)
INTEGERS(Info, MPI_Info)
INTEGERS(Message, MPI_Message)
INTEGERS(Op, MPI_Op)
INTEGERS(Request, MPI_Request)
INTEGERS(Session, MPI_Session)
INTEGERS(Type, MPI_Datatype)
INTEGERS(Win, MPI_Win)

/* Marks that C programs share with Fortran's. Those of mpif.h lie in a common block, which libmpifort knows. */
MPI_Fint *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
MPI_F08_status MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1];
MPI_F08_status *MPI_F08_STATUS_IGNORE = &MPIR_F08_MPI_STATUS_IGNORE_OBJ;
MPI_F08_status *MPI_F08_STATUSES_IGNORE = MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
int MPIR_F08_MPI_IN_PLACE, MPIR_F08_MPI_BOTTOM;
