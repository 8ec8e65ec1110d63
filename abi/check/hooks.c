/* The functions of MPI that `mpiexec -check` looks at: each writes a record, calls the library's own function (PMPI_), and
 * writes another record. What the records mean is core/check's business. */
#include "record.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>

#define COUNT int
#define DISP int
#define WDISP int
#define DISP_OR_COUNT MPI_Aint
#define UNIT int
#define NAMED(name) name
#define PNAMED(name) P##name
#define COUNTS "A"
#define DISPS "D"
#define USER_FUNCTION MPI_User_function
#include "counted.h"

#undef COUNT
#undef DISP
#undef WDISP
#undef DISP_OR_COUNT
#undef UNIT
#undef NAMED
#undef PNAMED
#undef COUNTS
#undef DISPS
#undef USER_FUNCTION
#define COUNT MPI_Count
#define DISP MPI_Aint
#define WDISP MPI_Aint
#define DISP_OR_COUNT MPI_Count
#define UNIT MPI_Aint
#define NAMED(name) name##_c
#define PNAMED(name) P##name##_c
#define COUNTS "B"
#define DISPS "E"
#define USER_FUNCTION MPI_User_function_c
#define MARGAY_CHECK_AGAIN
#include "counted.h"

/* Beginning and end. */
int MPI_Init(int *argc, char ***argv)
{
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_Init(argc, argv));
    margay_check_hello();
    margay_check_level(MPI_THREAD_SINGLE);
    margay_check_record(AFTER, "MPI_Init", site, code, "i", MPI_THREAD_SINGLE);
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_Init_thread(argc, argv, required, provided));
    margay_check_hello();
    margay_check_level(*provided);
    margay_check_record(AFTER, "MPI_Init", site, code, "i", *provided);
    return code;
}

int MPI_Finalize(void)
{
    CALL("MPI_Finalize", (margay_check_goodbye(), PMPI_Finalize()), (""), (""));
}

int MPI_Abort(MPI_Comm comm, int errorcode)
{
    CALL("MPI_Abort", PMPI_Abort(comm, errorcode), (""), (""));
}

/* Requests. */
int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    WITH_STATUS(status);
    void *site = SITE_OF_CALLER;
    MPI_Request before = *request;
    margay_check_look(site, 1, &before);
    margay_check_record(BEFORE, "MPI_Wait", site, 0, "H", 1, &before);
    int code = AS_PROGRAM(PMPI_Wait(request, status));
    margay_check_record(AFTER, "MPI_Wait", site, code, "HS", 1, &before, code == MPI_SUCCESS, status);
    margay_check_end(1, &before, request);
    return code;
}

/* Which requests a call that failed has completed is not known. */
static void end_failed(int code, int count, const MPI_Request *requests)
{
    for (int i = 0; code != MPI_SUCCESS && requests != NULL && i < count; i++) {
        margay_watch_end(requests[i]);
    }
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    WITH_STATUS(status);
    void *site = SITE_OF_CALLER;
    MPI_Request before = *request;
    margay_check_look(site, 1, &before);
    int code = AS_PROGRAM(PMPI_Test(request, flag, status));
    if (code == MPI_SUCCESS && *flag) {
        margay_check_record(AFTER, "MPI_Test", site, code, "HS", 1, &before, 1, status);
        margay_check_end(1, &before, request);
    }
    end_failed(code, 1, &before);
    return code;
}

/* The handles before the call, and statuses. Without memory nothing is recorded. */
static MPI_Request *handles(int count, const MPI_Request *requests)
{
    MPI_Request *copy = count > 0 && requests != NULL ? malloc((size_t)count * sizeof *copy) : NULL;
    if (copy != NULL) {
        memcpy(copy, requests, (size_t)count * sizeof *copy);
    }
    return copy;
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    void *site = SITE_OF_CALLER;
    MPI_Request *before = handles(count, requests);
    MPI_Status *own = statuses == MPI_STATUSES_IGNORE && before != NULL ? malloc((size_t)count * sizeof *own) : NULL;
    statuses = own != NULL ? own : statuses;
    if (before != NULL) {
        margay_check_look(site, count, before);
    }
    margay_check_record(BEFORE, "MPI_Waitall", site, 0, "H", before == NULL ? 0 : count, before);
    int code = AS_PROGRAM(PMPI_Waitall(count, requests, statuses));
    int done = code == MPI_SUCCESS && before != NULL && statuses != MPI_STATUSES_IGNORE ? count : 0;
    margay_check_record(AFTER, "MPI_Waitall", site, code, "HS", before == NULL ? 0 : count, before, done, statuses);
    if (before != NULL) {
        margay_check_end(count, before, requests);
    }
    free(own);
    free(before);
    return code;
}

int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    void *site = SITE_OF_CALLER;
    MPI_Request *before = handles(count, requests);
    MPI_Status *own = statuses == MPI_STATUSES_IGNORE && before != NULL ? malloc((size_t)count * sizeof *own) : NULL;
    statuses = own != NULL ? own : statuses;
    if (before != NULL) {
        margay_check_look(site, count, before);
    }
    int code = AS_PROGRAM(PMPI_Testall(count, requests, flag, statuses));
    if (before != NULL && code == MPI_SUCCESS && *flag) {
        margay_check_record(AFTER, "MPI_Testall", site, code, "HS", count, before,
                            statuses == MPI_STATUSES_IGNORE ? 0 : count, statuses);
        margay_check_end(count, before, requests);
    }
    end_failed(code, count, before);
    free(own);
    free(before);
    return code;
}

/* One of several has completed. */
static void one_done(const char *name, void *site, int code, int count, int index, MPI_Request *before,
                     const MPI_Request *requests, const MPI_Status *status)
{
    if (before != NULL && index >= 0 && index < count) {
        margay_check_record(AFTER, name, site, code, "HS", 1, &before[index], code == MPI_SUCCESS, status);
        margay_check_end(1, &before[index], &requests[index]);
    }
    end_failed(code, count, before);
    free(before);
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
    WITH_STATUS(status);
    void *site = SITE_OF_CALLER;
    MPI_Request *before = handles(count, requests);
    if (before != NULL) {
        margay_check_look(site, count, before);
    }
    margay_check_record(BEFORE, "MPI_Waitany", site, 0, "H", before == NULL ? 0 : count, before);
    int code = AS_PROGRAM(PMPI_Waitany(count, requests, index, status));
    one_done("MPI_Waitany", site, code, count, code == MPI_SUCCESS ? *index : -1, before, requests, status);
    return code;
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    WITH_STATUS(status);
    void *site = SITE_OF_CALLER;
    MPI_Request *before = handles(count, requests);
    if (before != NULL) {
        margay_check_look(site, count, before);
    }
    int code = AS_PROGRAM(PMPI_Testany(count, requests, index, flag, status));
    one_done("MPI_Testany", site, code, count, code == MPI_SUCCESS && *flag ? *index : -1, before, requests, status);
    return code;
}

/* Several of several have completed. */
static void some_done(const char *name, void *site, int code, int count, int done, const int *indices, MPI_Request *before,
                      const MPI_Request *requests, const MPI_Status *statuses)
{
    for (int i = 0; code == MPI_SUCCESS && before != NULL && i < done; i++) {
        int at = indices[i];
        if (at >= 0 && at < count) {
            margay_check_record(AFTER, name, site, code, "HS", 1, &before[at],
                                statuses == MPI_STATUSES_IGNORE ? 0 : 1, &statuses[i]);
            margay_check_end(1, &before[at], &requests[at]);
        }
    }
    end_failed(code, count, before);
    free(before);
}

#define SOME(name)                                                                                                     \
    int name(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)                          \
    {                                                                                                                  \
        void *site = SITE_OF_CALLER;                                                                                   \
        MPI_Request *before = handles(count, requests);                                                                \
        MPI_Status *own =                                                                                              \
            statuses == MPI_STATUSES_IGNORE && before != NULL ? malloc((size_t)count * sizeof *own) : NULL;            \
        statuses = own != NULL ? own : statuses;                                                                       \
        if (before != NULL) {                                                                                          \
            margay_check_look(site, count, before);                                                                    \
        }                                                                                                              \
        margay_check_record(BEFORE, #name, site, 0, "H", before == NULL ? 0 : count, before);                          \
        int code = AS_PROGRAM(P##name(count, requests, done, indices, statuses));                                      \
        some_done(#name, site, code, count, code == MPI_SUCCESS ? *done : 0, indices, before, requests, statuses);     \
        free(own);                                                                                                     \
        return code;                                                                                                   \
    }
SOME(MPI_Waitsome)
SOME(MPI_Testsome)

int MPI_Request_free(MPI_Request *request)
{
    MPI_Request before = *request;
    CALL("MPI_Request_free", (margay_check_end(1, &before, &(MPI_Request){MPI_REQUEST_NULL}), PMPI_Request_free(request)),
         ("H", 1, &before), ("H", 1, &before));
}

int MPI_Cancel(MPI_Request *request)
{
    CALL("MPI_Cancel", PMPI_Cancel(request), ("H", 1, request), ("H", 1, request));
}

int MPI_Start(MPI_Request *request)
{
    CALL("MPI_Start", (margay_check_restart(1, request), PMPI_Start(request)), ("H", 1, request), ("H", 1, request));
}

int MPI_Startall(int count, MPI_Request *requests)
{
    CALL("MPI_Startall", (margay_check_restart(count, requests), PMPI_Startall(count, requests)), ("H", count, requests),
         ("H", count, requests));
}

#define AS_CALLED(invoke) (margay_called_from(SITE_OF_CALLER), INSIDE(invoke))
static void is_complete(void *site, MPI_Request request)
{
    margay_check_look(site, 1, &request);
    margay_check_end(1, &request, &request);
    margay_check_record(AFTER, "MPI_Request_get_status", (void *)is_complete, 0, "H", 1, &request);
}

/* A request of which one of these says that it is complete is left with its handle, but its memory is the program's. */
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    int code = AS_CALLED(PMPI_Request_get_status(request, flag, status));
    if (code == MPI_SUCCESS && *flag) {
        is_complete(SITE_OF_CALLER, request);
    }
    return code;
}

int MPI_Request_get_status_all(int count, const MPI_Request requests[], int *flag, MPI_Status *statuses)
{
    int code = AS_CALLED(PMPI_Request_get_status_all(count, requests, flag, statuses));
    for (int i = 0; code == MPI_SUCCESS && *flag && i < count; i++) {
        is_complete(SITE_OF_CALLER, requests[i]);
    }
    return code;
}

int MPI_Request_get_status_any(int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    int code = AS_CALLED(PMPI_Request_get_status_any(count, requests, index, flag, status));
    if (code == MPI_SUCCESS && *flag && *index >= 0 && *index < count) {
        is_complete(SITE_OF_CALLER, requests[*index]);
    }
    return code;
}

int MPI_Request_get_status_some(int count, const MPI_Request requests[], int *done, int *indices, MPI_Status *statuses)
{
    int code = AS_CALLED(PMPI_Request_get_status_some(count, requests, done, indices, statuses));
    for (int i = 0; code == MPI_SUCCESS && i < *done; i++) {
        is_complete(SITE_OF_CALLER, requests[indices[i]]);
    }
    return code;
}

/* Probes: what they find is a message that a receive takes later. */
int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Probe", PMPI_Probe(source, tag, comm, status), ("iih", source, tag, comm),
         ("S", code == MPI_SUCCESS, status));
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Mprobe", PMPI_Mprobe(source, tag, comm, message, status), ("iih", source, tag, comm),
         ("hS", code == MPI_SUCCESS ? *message : NULL, code == MPI_SUCCESS, status));
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    WITH_STATUS(status);
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_Improbe(source, tag, comm, flag, message, status));
    if (code == MPI_SUCCESS && *flag) {
        margay_check_record(BEFORE, "MPI_Mprobe", site, 0, "iih", source, tag, comm);
        margay_check_record(AFTER, "MPI_Mprobe", site, code, "hS", *message, 1, status);
    }
    return code;
}

/* Partitioned communication. */
#define PARTITIONED(name, of, constness)                                                                               \
    int of(constness void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int peer, int tag,           \
             MPI_Comm comm, MPI_Info info, MPI_Request *request)                                                       \
    {                                                                                                                  \
        CALL(#name, P##of(buf, partitions, count, datatype, peer, tag, comm, info, request),                           \
             ("hilhiih", buf, partitions, (int64_t)count, datatype, peer, tag, comm),                                  \
             ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));                                                \
    }
PARTITIONED(MPI_Psend_init, MPI_Psend_init, const)
PARTITIONED(MPI_Precv_init, MPI_Precv_init, )
PARTITIONED(MPI_Psend_init, MPI_Psend_init_c, const)
PARTITIONED(MPI_Precv_init, MPI_Precv_init_c, )

int MPI_Pready(int partition, MPI_Request request)
{
    CALL("MPI_Pready", PMPI_Pready(partition, request), ("iH", partition, 1, &request), (""));
}

int MPI_Pready_range(int low, int high, MPI_Request request)
{
    CALL("MPI_Pready_range", PMPI_Pready_range(low, high, request), ("iiH", low, high, 1, &request), (""));
}

int MPI_Parrived(MPI_Request request, int partition, int *flag)
{
    CALL("MPI_Parrived", PMPI_Parrived(request, partition, flag), ("iH", partition, 1, &request), (""));
}

/* Collective operations without data. */
#define NO_COUNTS "hBHhBHihh", NULL, 0, NULL, 0, NULL, NULL, 0, NULL, 0, NULL, MARGAY_NO_ROOT, NULL, comm
int MPI_Barrier(MPI_Comm comm)
{
    CALL("MPI_Barrier", PMPI_Barrier(comm), (NO_COUNTS), (""));
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    CALL("MPI_Ibarrier", PMPI_Ibarrier(comm, request), (NO_COUNTS),
         ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));
}

int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    CALL("MPI_Barrier_init", PMPI_Barrier_init(comm, info, request), (NO_COUNTS),
         ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));
}

/* Communicators. */
#define NEW_COMM(name, parent, invoke, before)                                                                         \
    void *site = SITE_OF_CALLER;                                                                                       \
    margay_check_record(BEFORE, name, site, 0, UNPACK before);                                                         \
    int code = INSIDE(invoke);                                                                                         \
    MPI_Comm made = code == MPI_SUCCESS ? *newcomm : MPI_COMM_NULL;                                                    \
    margay_check_keep(made);                                                                                           \
    margay_check_record(AFTER, name, site, code, "hhG", made, parent, made);                                           \
    return code

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_dup", comm, PMPI_Comm_dup(comm, newcomm), ("h", comm));
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_dup", comm, PMPI_Comm_dup_with_info(comm, info, newcomm), ("h", comm));
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_split", comm, PMPI_Comm_split(comm, color, key, newcomm), ("hi", comm, color));
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_split_type", comm, PMPI_Comm_split_type(comm, type, key, info, newcomm), ("hi", comm, type));
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_create", comm, PMPI_Comm_create(comm, group, newcomm), ("hh", comm, group));
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_create_group", MPI_COMM_NULL, PMPI_Comm_create_group(comm, group, tag, newcomm), ("hhi", comm, group, tag));
}

int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Cart_create", comm, PMPI_Cart_create(comm, ndims, dims, periods, reorder, newcomm),
             ("hA", comm, ndims, dims));
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Cart_sub", comm, PMPI_Cart_sub(comm, remain, newcomm), ("h", comm));
}

int MPI_Graph_create(MPI_Comm comm, int nnodes, const int index[], const int edges[], int reorder, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Graph_create", comm, PMPI_Graph_create(comm, nnodes, index, edges, reorder, newcomm), ("h", comm));
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[],
                          const int weights[], MPI_Info info, int reorder, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Dist_graph_create", comm,
             PMPI_Dist_graph_create(comm, n, sources, degrees, destinations, weights, info, reorder, newcomm),
             ("h", comm));
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int indegree, const int sources[], const int sourceweights[],
                                   int outdegree, const int destinations[], const int destweights[], MPI_Info info,
                                   int reorder, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Dist_graph_create_adjacent", comm,
             PMPI_Dist_graph_create_adjacent(comm, indegree, sources, sourceweights, outdegree, destinations, destweights,
                                             info, reorder, newcomm),
             ("h", comm));
}

int MPI_Intercomm_create(MPI_Comm local, int local_leader, MPI_Comm peer, int remote_leader, int tag, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Intercomm_create", local,
             PMPI_Intercomm_create(local, local_leader, peer, remote_leader, tag, newcomm), ("h", local));
}

int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Intercomm_merge", comm, PMPI_Intercomm_merge(comm, high, newcomm), ("hi", comm, high));
}

int MPI_Comm_create_from_group(MPI_Group group, const char *tag, MPI_Info info, MPI_Errhandler handler, MPI_Comm *newcomm)
{
    NEW_COMM("MPI_Comm_create_from_group", MPI_COMM_NULL,
             PMPI_Comm_create_from_group(group, tag, info, handler, newcomm), (""));
}

int MPI_Comm_free(MPI_Comm *comm)
{
    MPI_Comm before = *comm;
    margay_check_forget(before);
    CALL("MPI_Comm_free", PMPI_Comm_free(comm), ("h", before), ("h", before));
}

int MPI_Comm_disconnect(MPI_Comm *comm)
{
    MPI_Comm before = *comm;
    margay_check_forget(before);
    CALL("MPI_Comm_disconnect", PMPI_Comm_disconnect(comm), ("h", before), ("h", before));
}

/* Objects that are made and freed. */
#define FREE(name, type)                                                                                               \
    int name(type *object)                                                                                             \
    {                                                                                                                  \
        type before = *object;                                                                                         \
        CALL(#name, P##name(object), ("h", before), ("h", before));                                                    \
    }
FREE(MPI_Type_free, MPI_Datatype)
FREE(MPI_Group_free, MPI_Group)
FREE(MPI_Op_free, MPI_Op)
FREE(MPI_File_close, MPI_File)
FREE(MPI_Info_free, MPI_Info)
FREE(MPI_Errhandler_free, MPI_Errhandler)

int MPI_Win_free(MPI_Win *win)
{
    MPI_Win before = *win;
    CALL("MPI_Win_free", (margay_watch_freed(before), PMPI_Win_free(win)), ("h", before), ("h", before));
}

#define MAKE(name, type, null, parameters, arguments)                                                                  \
    int name(UNPACK parameters, type *made)                                                                            \
    {                                                                                                                  \
        CALL(#name, P##name(UNPACK arguments, made), (""), ("h", code == MPI_SUCCESS ? *made : null));                 \
    }
MAKE(MPI_Comm_group, MPI_Group, MPI_GROUP_NULL, (MPI_Comm comm), (comm))
MAKE(MPI_Comm_remote_group, MPI_Group, MPI_GROUP_NULL, (MPI_Comm comm), (comm))
MAKE(MPI_Win_get_group, MPI_Group, MPI_GROUP_NULL, (MPI_Win win), (win))
MAKE(MPI_File_get_group, MPI_Group, MPI_GROUP_NULL, (MPI_File file), (file))
MAKE(MPI_Group_union, MPI_Group, MPI_GROUP_NULL, (MPI_Group a, MPI_Group b), (a, b))
MAKE(MPI_Group_intersection, MPI_Group, MPI_GROUP_NULL, (MPI_Group a, MPI_Group b), (a, b))
MAKE(MPI_Group_difference, MPI_Group, MPI_GROUP_NULL, (MPI_Group a, MPI_Group b), (a, b))
MAKE(MPI_Group_incl, MPI_Group, MPI_GROUP_NULL, (MPI_Group group, int n, const int ranks[]), (group, n, ranks))
MAKE(MPI_Group_excl, MPI_Group, MPI_GROUP_NULL, (MPI_Group group, int n, const int ranks[]), (group, n, ranks))
MAKE(MPI_Group_range_incl, MPI_Group, MPI_GROUP_NULL, (MPI_Group group, int n, int ranges[][3]), (group, n, ranges))
MAKE(MPI_Group_range_excl, MPI_Group, MPI_GROUP_NULL, (MPI_Group group, int n, int ranges[][3]), (group, n, ranges))
MAKE(MPI_File_open, MPI_File, MPI_FILE_NULL, (MPI_Comm comm, const char *name, int mode, MPI_Info info),
     (comm, name, mode, info))
MAKE(MPI_Info_dup, MPI_Info, MPI_INFO_NULL, (MPI_Info info), (info))

int MPI_Info_create(MPI_Info *made)
{
    CALL("MPI_Info_create", PMPI_Info_create(made), (""), ("h", code == MPI_SUCCESS ? *made : MPI_INFO_NULL));
}

int MPI_Type_commit(MPI_Datatype *datatype)
{
    CALL("MPI_Type_commit", PMPI_Type_commit(datatype), ("h", *datatype), ("h", *datatype));
}

int MPI_Type_dup(MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_dup", PMPI_Type_dup(oldtype, newtype), ("lh", NUMBER(1), oldtype), NEW_TYPE);
}

/* The derived datatypes of which another one is made are new handles of the program, which it frees: a record for each. */
static void keep_contents(void *site, MPI_Datatype datatype, MPI_Count count, const MPI_Datatype contents[])
{
    for (MPI_Count n = 0; n < count; n++) {
        margay_check_record(BEFORE, "MPI_Type_get_contents", site, 0, "lh", NUMBER(-1), datatype);
        margay_check_record(AFTER, "MPI_Type_get_contents", site, MPI_SUCCESS, "h", contents[n]);
    }
}

int MPI_Type_get_contents(MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes, int integers[],
                          MPI_Aint addresses[], MPI_Datatype datatypes[])
{
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_Type_get_contents(datatype, max_integers, max_addresses, max_datatypes, integers, addresses,
                                                 datatypes));
    int counts[3], combiner;
    if (code == MPI_SUCCESS
        && PMPI_Type_get_envelope(datatype, &counts[0], &counts[1], &counts[2], &combiner) == MPI_SUCCESS) {
        keep_contents(site, datatype, counts[2], datatypes);
    }
    return code;
}

int MPI_Type_get_contents_c(MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses, MPI_Count max_large_counts,
                            MPI_Count max_datatypes, int integers[], MPI_Aint addresses[], MPI_Count large_counts[],
                            MPI_Datatype datatypes[])
{
    void *site = SITE_OF_CALLER;
    int code = AS_PROGRAM(PMPI_Type_get_contents_c(datatype, max_integers, max_addresses, max_large_counts, max_datatypes,
                                                   integers, addresses, large_counts, datatypes));
    MPI_Count counts[4];
    int combiner;
    if (code == MPI_SUCCESS
        && PMPI_Type_get_envelope_c(datatype, &counts[0], &counts[1], &counts[2], &counts[3], &combiner) == MPI_SUCCESS) {
        keep_contents(site, datatype, counts[3], datatypes);
    }
    return code;
}

/* One-sided communication. */
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    int disp_unit = 1;
    CALL("MPI_Win_create_dynamic", PMPI_Win_create_dynamic(info, comm, win),
         ("hllh", NULL, NUMBER(0), NUMBER(1), comm), NEW_WINDOW(NULL, -1));
}

/* One element, fetched into the caller's memory. */
#define FETCH(name, invoke, op)                                                                                        \
    void *site = SITE_OF_CALLER;                                                                                       \
    margay_check_record(BEFORE, name, site, 0, ACCESS, PARTS(obuf, 1, datatype, rbuf, 1, datatype, rank, disp, 1,      \
                                                            datatype, op, win));                                       \
    int code = AS_PROGRAM(invoke);                                                                                     \
    if (code == MPI_SUCCESS) {                                                                                         \
        margay_check_watch(RECEIVES, name, site, MPI_REQUEST_NULL, win, rank, rbuf, 1, datatype);                      \
    }                                                                                                                  \
    margay_check_record(AFTER, name, site, code, "");                                                                  \
    return code

int MPI_Fetch_and_op(const void *obuf, void *rbuf, MPI_Datatype datatype, int rank, MPI_Aint disp, MPI_Op op, MPI_Win win)
{
    FETCH("MPI_Fetch_and_op", PMPI_Fetch_and_op(obuf, rbuf, datatype, rank, disp, op, win), op);
}

int MPI_Compare_and_swap(const void *obuf, const void *compare, void *rbuf, MPI_Datatype datatype, int rank, MPI_Aint disp,
                         MPI_Win win)
{
    FETCH("MPI_Compare_and_swap", PMPI_Compare_and_swap(obuf, compare, rbuf, datatype, rank, disp, win), MPI_REPLACE);
}

/* `target`: with which rank the call completes operations; ALL_TARGETS, or NO_TARGET. */
#define ALL_TARGETS -1
#define NO_TARGET -2
#define SYNCHRONIZE(name, parameters, arguments, target, items, ...)                                                   \
    int name(UNPACK parameters)                                                                                        \
    {                                                                                                                  \
        margay_check_synchronize(SITE_OF_CALLER, win, target);                                                         \
        CALL(#name, P##name(UNPACK arguments), (items, __VA_ARGS__), (items, __VA_ARGS__));                            \
    }
SYNCHRONIZE(MPI_Win_fence, (int assert, MPI_Win win), (assert, win), ALL_TARGETS, "hi", win, assert)
SYNCHRONIZE(MPI_Win_lock, (int type, int rank, int assert, MPI_Win win), (type, rank, assert, win), NO_TARGET, "hii", win, rank, type)
SYNCHRONIZE(MPI_Win_unlock, (int rank, MPI_Win win), (rank, win), rank, "hi", win, rank)
SYNCHRONIZE(MPI_Win_lock_all, (int assert, MPI_Win win), (assert, win), NO_TARGET, "hi", win, assert)
SYNCHRONIZE(MPI_Win_unlock_all, (MPI_Win win), (win), ALL_TARGETS, "h", win)
SYNCHRONIZE(MPI_Win_start, (MPI_Group group, int assert, MPI_Win win), (group, assert, win), NO_TARGET, "hi", win, assert)
SYNCHRONIZE(MPI_Win_complete, (MPI_Win win), (win), ALL_TARGETS, "h", win)
SYNCHRONIZE(MPI_Win_post, (MPI_Group group, int assert, MPI_Win win), (group, assert, win), NO_TARGET, "hi", win, assert)
SYNCHRONIZE(MPI_Win_wait, (MPI_Win win), (win), NO_TARGET, "h", win)
SYNCHRONIZE(MPI_Win_flush, (int rank, MPI_Win win), (rank, win), rank, "hi", win, rank)
SYNCHRONIZE(MPI_Win_flush_local, (int rank, MPI_Win win), (rank, win), rank, "hi", win, rank)
SYNCHRONIZE(MPI_Win_flush_all, (MPI_Win win), (win), ALL_TARGETS, "h", win)
SYNCHRONIZE(MPI_Win_flush_local_all, (MPI_Win win), (win), ALL_TARGETS, "h", win)
SYNCHRONIZE(MPI_Win_sync, (MPI_Win win), (win), NO_TARGET, "h", win)

int MPI_Win_test(MPI_Win win, int *flag)
{
    CALL("MPI_Win_test", PMPI_Win_test(win, flag), ("h", win), ("hi", win, code == MPI_SUCCESS && *flag));
}
