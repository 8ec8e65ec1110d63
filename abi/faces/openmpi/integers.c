/* Handles in Fortran: small integers for predefined ones, the standard's handle for others. A predefined one that Fortran does
 * not have is below -1, so that it comes back as it went. */
#include "margay.h"

#include "integers.h"

#define LENGTH(array) ((MPI_Fint)(sizeof(array) / sizeof *(array)))

#define INTEGERS(kind, type, table)                                                                                    \
    FACE(MPI_Fint, MPI_##kind##_c2f, (type handle))                                                                    \
    {                                                                                                                  \
        intptr_t value = (intptr_t)handle;                                                                             \
        if (value < 0) return (MPI_Fint)(value & 0x7fffffff);                                                          \
        const struct margay_object *object = (const struct margay_object *)value;                                      \
        if (!object) return -1;                                                                                        \
        return object->integer < 0 ? -2 - (MPI_Fint)object->handle : object->integer;                                  \
    }                                                                                                                  \
    FACE(type, MPI_##kind##_f2c, (MPI_Fint integer))                                                                   \
    {                                                                                                                  \
        if (integer >= PREDEFINED) return (type)((uintptr_t)integer | (uintptr_t)1 << 63);                             \
        if (integer < -1) return (type)(uintptr_t)margay_face_objects[(-2 - (unsigned)integer) % OBJECTS];              \
        return integer >= 0 && integer < LENGTH(table) ? (type)(uintptr_t)table[integer] : NULL;                       \
    }

INTEGERS(Comm, MPI_Comm, integers_comm)
INTEGERS(Errhandler, MPI_Errhandler, integers_errhandler)
INTEGERS(File, MPI_File, integers_file)
INTEGERS(Group, MPI_Group, integers_group)
INTEGERS(Info, MPI_Info, integers_info)
INTEGERS(Message, MPI_Message, integers_message)
INTEGERS(Op, MPI_Op, integers_op)
INTEGERS(Request, MPI_Request, integers_request)
INTEGERS(Session, MPI_Session, integers_session)
INTEGERS(Type, MPI_Datatype, integers_datatype)
INTEGERS(Win, MPI_Win, integers_win)

/* The marks of Fortran, which are the same for all bindings. A program has common blocks of these names, which the loader
 * takes in place of these. */
#define MARK(type, name, length) type mpi_fortran_##name##_[length] __attribute__((aligned(32)));
MARK(MPI_Fint, bottom, 1)
MARK(MPI_Fint, in_place, 1)
MARK(char, argv_null, 1)
MARK(char, argvs_null, 1)
MARK(MPI_Fint, errcodes_ignore, 1)
MARK(MPI_Fint, status_ignore, 6)
MARK(MPI_Fint, statuses_ignore, 6)
MARK(MPI_Fint, unweighted, 1)
MARK(MPI_Fint, weights_empty, 1)

MPI_Fint *MPI_F_STATUS_IGNORE = mpi_fortran_status_ignore_, *MPI_F_STATUSES_IGNORE = mpi_fortran_statuses_ignore_;
MPI_F08_status *MPI_F08_STATUS_IGNORE = (MPI_F08_status *)mpi_fortran_status_ignore_;
MPI_F08_status *MPI_F08_STATUSES_IGNORE = (MPI_F08_status *)mpi_fortran_statuses_ignore_;
