/* Calls that make handles and of which nothing else is looked at: communicators with processes of other jobs or of sessions,
 * and what the library gives out of its own. Without a record of them a handle that the library uses again would be taken for
 * the one that was freed. Info objects, error handlers and sessions are not followed, nor are requests of files, buffers and
 * MPI_Grequest_start: no finding is about them. */
#define MARGAY_MPI1
#include "record.h"

#define NUMBER(value) ((int64_t)(value))
#define NEW_TYPE ("h", code == MPI_SUCCESS ? *newtype : MPI_DATATYPE_NULL)

/* A communicator that is valid at once. */
#define NEW_COMM(name, invoke)                                                                                         \
    void *site = SITE_OF_CALLER;                                                                                       \
    margay_check_record(BEFORE, name, site, 0, "");                                                                    \
    int code = AS_PROGRAM(invoke);                                                                                     \
    MPI_Comm made = code == MPI_SUCCESS ? *newcomm : MPI_COMM_NULL;                                                    \
    margay_check_keep(made);                                                                                           \
    margay_check_record(AFTER, name, site, code, "hhG", made, MPI_COMM_NULL, made);                                    \
    return code

int MPI_Comm_accept(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_accept", PMPI_Comm_accept(port, info, root, comm, newcomm));
}

int MPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_connect", PMPI_Comm_connect(port, info, root, comm, newcomm));
}

int MPI_Comm_join(int fd, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_join", PMPI_Comm_join(fd, newcomm));
}

int MPI_Comm_spawn(const char *command, char *argv[], int maxprocs, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm,
                   int errcodes[])
{
    NEW_COMM("MPI_Comm_spawn", PMPI_Comm_spawn(command, argv, maxprocs, info, root, comm, newcomm, errcodes));
}

int MPI_Comm_spawn_multiple(int count, char *commands[], char **argvs[], const int maxprocs[], const MPI_Info infos[],
                            int root, MPI_Comm comm, MPI_Comm *newcomm, int errcodes[])
{
    NEW_COMM("MPI_Comm_spawn_multiple",
             PMPI_Comm_spawn_multiple(count, commands, argvs, maxprocs, infos, root, comm, newcomm, errcodes));
}

int MPI_Comm_get_parent(MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_get_parent", PMPI_Comm_get_parent(newcomm));
}

int MPI_Intercomm_create_from_groups(MPI_Group local, int local_leader, MPI_Group remote, int remote_leader, const char *tag,
                                     MPI_Info info, MPI_Errhandler handler, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Intercomm_create_from_groups",
             PMPI_Intercomm_create_from_groups(local, local_leader, remote, remote_leader, tag, info, handler, newcomm));
}

/* One that is valid when its request is complete: the request is a record of the call, the handle one of its own. */
#define NEW_COMM_LATER(invoke)                                                                                         \
    void *site = SITE_OF_CALLER;                                                                                       \
    margay_check_record(BEFORE, "MPI_Comm_idup", site, 0, "h", comm);                                                  \
    int code = AS_PROGRAM(invoke);                                                                                     \
    margay_check_record(AFTER, "MPI_Comm_idup", site, code, "h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);   \
    margay_check_record(BEFORE, "MPI_Comm_idup_with_info", site, 0, "");                                               \
    margay_check_record(AFTER, "MPI_Comm_idup_with_info", site, code, "h",                                             \
                        code == MPI_SUCCESS ? *newcomm : MPI_COMM_NULL);                                               \
    return code

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)
{
    NEW_COMM_LATER(PMPI_Comm_idup(comm, newcomm, request));
}

int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm, MPI_Request *request)
{
    NEW_COMM_LATER(PMPI_Comm_idup_with_info(comm, info, newcomm, request));
}

int MPI_Group_from_session_pset(MPI_Session session, const char *name, MPI_Group *group)
{
    CALL("MPI_Group_from_session_pset", PMPI_Group_from_session_pset(session, name, group), (""),
         ("h", code == MPI_SUCCESS ? *group : MPI_GROUP_NULL));
}

/* Datatypes by their names of MPI-1. */
int MPI_Type_hvector(int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_hvector", PMPI_Type_hvector(count, blocklength, stride, oldtype, newtype),
         ("lh", NUMBER(count) * blocklength, oldtype), NEW_TYPE);
}

int MPI_Type_hindexed(int count, const int blocklengths[], const MPI_Aint displs[], MPI_Datatype oldtype,
                      MPI_Datatype *newtype)
{
    CALL("MPI_Type_hindexed", PMPI_Type_hindexed(count, blocklengths, displs, oldtype, newtype),
         ("Ah", count, blocklengths, oldtype), NEW_TYPE);
}

int MPI_Type_struct(int count, const int blocklengths[], const MPI_Aint displs[], const MPI_Datatype types[],
                    MPI_Datatype *newtype)
{
    CALL("MPI_Type_struct", PMPI_Type_struct(count, blocklengths, displs, types, newtype),
         ("AH", count, blocklengths, count, types), NEW_TYPE);
}

/* Datatypes that the library keeps: the program does not free them. */
#define OF_LIBRARY(name, parameters, arguments)                                                                        \
    int name(UNPACK parameters, MPI_Datatype *newtype)                                                                 \
    {                                                                                                                  \
        CALL(#name, P##name(UNPACK arguments, newtype), (""), NEW_TYPE);                                               \
    }
OF_LIBRARY(MPI_Type_create_f90_real, (int precision, int range), (precision, range))
OF_LIBRARY(MPI_Type_create_f90_complex, (int precision, int range), (precision, range))
OF_LIBRARY(MPI_Type_create_f90_integer, (int range), (range))
OF_LIBRARY(MPI_Type_match_size, (int class, int size), (class, size))
OF_LIBRARY(MPI_Type_get_value_index, (MPI_Datatype value, MPI_Datatype index), (value, index))

/* New handles of the datatypes of a view, which the program frees. */
int MPI_File_get_view(MPI_File file, MPI_Offset *displacement, MPI_Datatype *etype, MPI_Datatype *filetype, char *datarep)
{
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_File_get_view(file, displacement, etype, filetype, datarep));
    for (int i = 0; code == MPI_SUCCESS && i < 2; i++) {
        margay_check_record(BEFORE, "MPI_File_get_view", site, 0, "");
        margay_check_record(AFTER, "MPI_File_get_view", site, code, "h", i == 0 ? *etype : *filetype);
    }
    return code;
}
