/* The functions that exist for counts of two sizes, included once for each: COUNT, DISP, NAMED(name), COUNTS and DISPS (the
 * letters of arrays of them). */

#ifndef MARGAY_CHECK_AGAIN
#define NUMBER(count) (int64_t)(count)
#define DATA "hlh"
#define OF(buffer, count, datatype) buffer, NUMBER(count), datatype
#endif

/* Point-to-point. */
#ifndef MARGAY_CHECK_AGAIN
#define SEND(name)                                                                                                     \
    int NAMED(name)(const void *buf, COUNT count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)             \
    {                                                                                                                  \
        CALL(#name, PNAMED(name)(buf, count, datatype, dest, tag, comm),                                               \
             (DATA "iih", OF(buf, count, datatype), dest, tag, comm), (""));                                           \
    }
#endif
SEND(MPI_Send)
SEND(MPI_Bsend)
SEND(MPI_Ssend)
SEND(MPI_Rsend)

#ifndef MARGAY_CHECK_AGAIN
#define START(name, constness, use)                                                                                    \
    int NAMED(name)(constness void *buf, COUNT count, MPI_Datatype datatype, int peer, int tag, MPI_Comm comm,         \
                    MPI_Request *request)                                                                              \
    {                                                                                                                  \
        void *site = SITE_OF_CALLER;                                                                                   \
        margay_check_record(BEFORE, #name, site, 0, DATA "iih", OF(buf, count, datatype), peer, tag, comm);            \
        int code = AS_PROGRAM(PNAMED(name)(buf, count, datatype, peer, tag, comm, request));                           \
        if (code == MPI_SUCCESS && peer != MPI_PROC_NULL) {                                                            \
            margay_check_begin(*request, use, buf, count, datatype);                                                   \
        }                                                                                                              \
        margay_check_record(AFTER, #name, site, code, "h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);         \
        return code;                                                                                                   \
    }
#endif
START(MPI_Isend, const, SENDS)
START(MPI_Issend, const, SENDS)
START(MPI_Irsend, const, SENDS)
START(MPI_Ibsend, const, COPIES)
START(MPI_Irecv, , RECEIVES)
START(MPI_Send_init, const, SENDS_LATER)
START(MPI_Ssend_init, const, SENDS_LATER)
START(MPI_Rsend_init, const, SENDS_LATER)
START(MPI_Bsend_init, const, COPIES)
START(MPI_Recv_init, , RECEIVES_LATER)

int NAMED(MPI_Recv)(void *buf, COUNT count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                    MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Recv", PNAMED(MPI_Recv)(buf, count, datatype, source, tag, comm, status),
         (DATA "iih", OF(buf, count, datatype), source, tag, comm), ("S", code == MPI_SUCCESS, status));
}

int NAMED(MPI_Mrecv)(void *buf, COUNT count, MPI_Datatype datatype, MPI_Message *message, MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Mrecv", PNAMED(MPI_Mrecv)(buf, count, datatype, message, status),
         (DATA "h", OF(buf, count, datatype), *message), ("S", code == MPI_SUCCESS, status));
}

int NAMED(MPI_Imrecv)(void *buf, COUNT count, MPI_Datatype datatype, MPI_Message *message, MPI_Request *request)
{
    CALL("MPI_Imrecv", PNAMED(MPI_Imrecv)(buf, count, datatype, message, request),
         (DATA "h", OF(buf, count, datatype), *message), ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));
}

int NAMED(MPI_Sendrecv)(const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                        COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                        MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Sendrecv",
         PNAMED(MPI_Sendrecv)(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag,
                              comm, status),
         (DATA "ii" DATA "iih", OF(sendbuf, sendcount, sendtype), dest, sendtag, OF(recvbuf, recvcount, recvtype), source,
          recvtag, comm),
         ("S", code == MPI_SUCCESS, status));
}

#ifndef MARGAY_CHECK_AGAIN
#define EXCHANGED sendbuf, sendcount, sendtype, dest, recvbuf, recvcount, recvtype, source
#endif
int NAMED(MPI_Isendrecv)(const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                         COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                         MPI_Request *request)
{
    CALL("MPI_Isendrecv",
         PNAMED(MPI_Isendrecv)(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag,
                               comm, request),
         (DATA "ii" DATA "iih", OF(sendbuf, sendcount, sendtype), dest, sendtag, OF(recvbuf, recvcount, recvtype), source,
          recvtag, comm),
         ("h", code == MPI_SUCCESS ? margay_check_exchange(*request, EXCHANGED) : MPI_REQUEST_NULL));
}

int NAMED(MPI_Sendrecv_replace)(void *buf, COUNT count, MPI_Datatype datatype, int dest, int sendtag, int source,
                                int recvtag, MPI_Comm comm, MPI_Status *status)
{
    WITH_STATUS(status);
    CALL("MPI_Sendrecv_replace",
         PNAMED(MPI_Sendrecv_replace)(buf, count, datatype, dest, sendtag, source, recvtag, comm, status),
         (DATA "ii" DATA "iih", OF(buf, count, datatype), dest, sendtag, OF(buf, count, datatype), source, recvtag, comm),
         ("S", code == MPI_SUCCESS, status));
}

int NAMED(MPI_Isendrecv_replace)(void *buf, COUNT count, MPI_Datatype datatype, int dest, int sendtag, int source,
                                 int recvtag, MPI_Comm comm, MPI_Request *request)
{
    CALL("MPI_Isendrecv_replace",
         PNAMED(MPI_Isendrecv_replace)(buf, count, datatype, dest, sendtag, source, recvtag, comm, request),
         (DATA "ii" DATA "iih", OF(buf, count, datatype), dest, sendtag, OF(buf, count, datatype), source, recvtag, comm),
         ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));
}

/* Collective operations: what is sent, what is received, root, operation, communicator. */
#ifndef MARGAY_CHECK_AGAIN
#define COLLECTIVE "hBHhBHihh"
#define ALONE(buffer, count, datatype)                                                                                 \
    buffer, 1, ((int64_t[]){(int64_t)(count)}), 1, ((MPI_Datatype[]){datatype})
#define NO_DATA NULL, 0, NULL, 0, NULL
#define NO_ROOT MARGAY_NO_ROOT
#define NO_OP NULL
#endif

#ifndef MARGAY_CHECK_AGAIN
#define FORMS(name, iname, pname, parameters, arguments, items, ...)                                                   \
    int NAMED(name)(UNPACK parameters)                                                                                 \
    {                                                                                                                  \
        CALL(#name, PNAMED(name)(UNPACK arguments), (items, __VA_ARGS__), (""));                                       \
    }                                                                                                                  \
    int NAMED(iname)(UNPACK parameters, MPI_Request * request)                                                         \
    {                                                                                                                  \
        void *site = SITE_OF_CALLER;                                                                                   \
        margay_check_record(BEFORE, #iname, site, 0, items, __VA_ARGS__);                                              \
        int code = AS_PROGRAM(PNAMED(iname)(UNPACK arguments, request));                                               \
        if (code == MPI_SUCCESS) {                                                                                     \
            margay_check_begin_collective(#iname, *request, items, __VA_ARGS__);                                               \
        }                                                                                                              \
        margay_check_record(AFTER, #iname, site, code, "h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);        \
        return code;                                                                                                   \
    }                                                                                                                  \
    int NAMED(pname)(UNPACK parameters, MPI_Info info, MPI_Request * request)                                          \
    {                                                                                                                  \
        CALL(#pname, PNAMED(pname)(UNPACK arguments, info, request), (items, __VA_ARGS__),                             \
             ("h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL));                                                \
    }
#endif

FORMS(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, (void *buffer, COUNT count, MPI_Datatype datatype, int root, MPI_Comm comm),
      (buffer, count, datatype, root, comm), COLLECTIVE, ALONE(buffer, count, datatype), NO_DATA, root, NO_OP, comm)
FORMS(MPI_Gather, MPI_Igather, MPI_Gather_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype,
       int root, MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm), COLLECTIVE,
      ALONE(sendbuf, sendcount, sendtype), ALONE(recvbuf, recvcount, recvtype), root, NO_OP, comm)
FORMS(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype,
       int root, MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm), COLLECTIVE,
      ALONE(sendbuf, sendcount, sendtype), ALONE(recvbuf, recvcount, recvtype), root, NO_OP, comm)
FORMS(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype,
       MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm), COLLECTIVE,
      ALONE(sendbuf, sendcount, sendtype), ALONE(recvbuf, recvcount, recvtype), NO_ROOT, NO_OP, comm)
FORMS(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype,
       MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm), COLLECTIVE,
      ALONE(sendbuf, sendcount, sendtype), ALONE(recvbuf, recvcount, recvtype), NO_ROOT, NO_OP, comm)

/* With counts of their own for each rank: these are read only where they mean something, at the root. */
#ifndef MARGAY_CHECK_AGAIN
#define VARIED "h" COUNTS "HhBHihh"
#define VARIED_LAST "hBHh" COUNTS "Hihh" DISPS
#define VARIED_BOTH "h" COUNTS "Hh" COUNTS "Hihh"
#define VARIED_PLACED VARIED_BOTH DISPS
#endif
FORMS(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, const COUNT recvcounts[],
       const DISP displs[], MPI_Datatype recvtype, int root, MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm), VARIED_LAST,
      ALONE(sendbuf, sendcount, sendtype), recvbuf, margay_check_size_at(comm, root), recvcounts, 1,
      ((MPI_Datatype[]){recvtype}), root, NO_OP, comm, margay_check_size_at(comm, root), displs)
FORMS(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init,
      (const void *sendbuf, const COUNT sendcounts[], const DISP displs[], MPI_Datatype sendtype, void *recvbuf,
       COUNT recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
      (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm), VARIED, sendbuf,
      margay_check_size_at(comm, root), sendcounts, 1, ((MPI_Datatype[]){sendtype}), ALONE(recvbuf, recvcount, recvtype),
      root, NO_OP, comm)
FORMS(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init,
      (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, const COUNT recvcounts[],
       const DISP displs[], MPI_Datatype recvtype, MPI_Comm comm),
      (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm), VARIED_LAST,
      ALONE(sendbuf, sendcount, sendtype), recvbuf, margay_check_size(comm), recvcounts, 1,
      ((MPI_Datatype[]){recvtype}), NO_ROOT, NO_OP, comm, margay_check_size(comm), displs)
FORMS(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init,
      (const void *sendbuf, const COUNT sendcounts[], const DISP sdispls[], MPI_Datatype sendtype, void *recvbuf,
       const COUNT recvcounts[], const DISP rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
      (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm), VARIED_PLACED, sendbuf,
      sendbuf == MPI_IN_PLACE ? 0 : margay_check_size(comm), sendcounts, 1, ((MPI_Datatype[]){sendtype}), recvbuf,
      margay_check_size(comm), recvcounts, 1, ((MPI_Datatype[]){recvtype}), NO_ROOT, NO_OP, comm, margay_check_size(comm),
      rdispls)
FORMS(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init,
      (const void *sendbuf, const COUNT sendcounts[], const WDISP sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
       const COUNT recvcounts[], const WDISP rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm),
      (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm), VARIED_BOTH, sendbuf,
      sendbuf == MPI_IN_PLACE ? 0 : margay_check_size(comm), sendcounts,
      sendbuf == MPI_IN_PLACE ? 0 : margay_check_size(comm), sendtypes, recvbuf, margay_check_size(comm), recvcounts,
      margay_check_size(comm), recvtypes, NO_ROOT, NO_OP, comm)
FORMS(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init,
      (const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm),
      (sendbuf, recvbuf, count, datatype, op, root, comm), COLLECTIVE, ALONE(sendbuf, count, datatype),
      ALONE(recvbuf, count, datatype), root, op, comm)

#ifndef MARGAY_CHECK_AGAIN
#define REDUCTION(name, iname, pname)                                                                                  \
    FORMS(name, iname, pname,                                                                                          \
          (const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),          \
          (sendbuf, recvbuf, count, datatype, op, comm), COLLECTIVE, ALONE(sendbuf, count, datatype),                  \
          ALONE(recvbuf, count, datatype), NO_ROOT, op, comm)
#endif
REDUCTION(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init)
REDUCTION(MPI_Scan, MPI_Iscan, MPI_Scan_init)
REDUCTION(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init)
REDUCTION(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init)
FORMS(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init,
      (const void *sendbuf, void *recvbuf, const COUNT recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
      (sendbuf, recvbuf, recvcounts, datatype, op, comm), VARIED_BOTH, sendbuf, margay_check_own_size(comm), recvcounts, 1,
      ((MPI_Datatype[]){datatype}), recvbuf, 0, NULL, 1, ((MPI_Datatype[]){datatype}), NO_ROOT, op, comm)

/* Among neighbours: only the order of the calls is looked at. */
#ifndef MARGAY_CHECK_AGAIN
#define AMONG_NEIGHBOURS(name, iname, pname, parameters, arguments)                                                    \
    FORMS(name, iname, pname, parameters, arguments, COLLECTIVE, NO_DATA, NO_DATA, NO_ROOT, NO_OP, comm)
#endif
AMONG_NEIGHBOURS(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init,
                 (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm),
                 (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
AMONG_NEIGHBOURS(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init,
                 (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm),
                 (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
AMONG_NEIGHBOURS(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init,
                 (const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, const COUNT recvcounts[],
                  const DISP displs[], MPI_Datatype recvtype, MPI_Comm comm),
                 (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm))
AMONG_NEIGHBOURS(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init,
                 (const void *sendbuf, const COUNT sendcounts[], const DISP sdispls[], MPI_Datatype sendtype,
                  void *recvbuf, const COUNT recvcounts[], const DISP rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
                 (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm))
AMONG_NEIGHBOURS(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init,
                 (const void *sendbuf, const COUNT sendcounts[], const MPI_Aint sdispls[],
                  const MPI_Datatype sendtypes[], void *recvbuf, const COUNT recvcounts[], const MPI_Aint rdispls[],
                  const MPI_Datatype recvtypes[], MPI_Comm comm),
                 (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm))

/* Datatypes: what they are made of. */
#ifndef MARGAY_CHECK_AGAIN
#define NEW_TYPE ("h", code == MPI_SUCCESS ? *newtype : MPI_DATATYPE_NULL)
#endif
int NAMED(MPI_Type_contiguous)(COUNT count, MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_contiguous", PNAMED(MPI_Type_contiguous)(count, oldtype, newtype), ("lh", NUMBER(count), oldtype),
         NEW_TYPE);
}

int NAMED(MPI_Type_vector)(COUNT count, COUNT blocklength, COUNT stride, MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_vector", PNAMED(MPI_Type_vector)(count, blocklength, stride, oldtype, newtype),
         ("lh", NUMBER(count) * blocklength, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_hvector)(COUNT count, COUNT blocklength, DISP_OR_COUNT stride, MPI_Datatype oldtype,
                                   MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_hvector", PNAMED(MPI_Type_create_hvector)(count, blocklength, stride, oldtype, newtype),
         ("lh", NUMBER(count) * blocklength, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_indexed)(COUNT count, const COUNT blocklengths[], const COUNT displs[], MPI_Datatype oldtype,
                            MPI_Datatype *newtype)
{
    CALL("MPI_Type_indexed", PNAMED(MPI_Type_indexed)(count, blocklengths, displs, oldtype, newtype),
         (COUNTS "h", (int)count, blocklengths, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_hindexed)(COUNT count, const COUNT blocklengths[], const DISP_OR_COUNT displs[],
                                    MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_hindexed", PNAMED(MPI_Type_create_hindexed)(count, blocklengths, displs, oldtype, newtype),
         (COUNTS "h", (int)count, blocklengths, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_indexed_block)(COUNT count, COUNT blocklength, const COUNT displs[], MPI_Datatype oldtype,
                                         MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_indexed_block",
         PNAMED(MPI_Type_create_indexed_block)(count, blocklength, displs, oldtype, newtype),
         ("lh", NUMBER(count) * blocklength, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_hindexed_block)(COUNT count, COUNT blocklength, const DISP_OR_COUNT displs[],
                                          MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_hindexed_block",
         PNAMED(MPI_Type_create_hindexed_block)(count, blocklength, displs, oldtype, newtype),
         ("lh", NUMBER(count) * blocklength, oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_struct)(COUNT count, const COUNT blocklengths[], const DISP_OR_COUNT displs[],
                                  const MPI_Datatype types[], MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_struct", PNAMED(MPI_Type_create_struct)(count, blocklengths, displs, types, newtype),
         (COUNTS "H", (int)count, blocklengths, (int)count, types), NEW_TYPE);
}

int NAMED(MPI_Type_create_resized)(MPI_Datatype oldtype, DISP_OR_COUNT lb, DISP_OR_COUNT extent, MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_resized", PNAMED(MPI_Type_create_resized)(oldtype, lb, extent, newtype),
         ("lh", NUMBER(1), oldtype), NEW_TYPE);
}

int NAMED(MPI_Type_create_subarray)(int ndims, const COUNT sizes[], const COUNT subsizes[], const COUNT starts[], int order,
                                    MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    int64_t all = 1;
    for (int i = 0; i < ndims && subsizes != NULL; i++) {
        all *= subsizes[i];
    }
    CALL("MPI_Type_create_subarray",
         PNAMED(MPI_Type_create_subarray)(ndims, sizes, subsizes, starts, order, oldtype, newtype), ("lh", all, oldtype),
         NEW_TYPE);
}

int NAMED(MPI_Type_create_darray)(int size, int rank, int ndims, const COUNT gsizes[], const int distribs[],
                                  const int dargs[], const int psizes[], int order, MPI_Datatype oldtype,
                                  MPI_Datatype *newtype)
{
    CALL("MPI_Type_create_darray",
         PNAMED(MPI_Type_create_darray)(size, rank, ndims, gsizes, distribs, dargs, psizes, order, oldtype, newtype),
         ("lh", NUMBER(-1), oldtype), NEW_TYPE);
}

int NAMED(MPI_Op_create)(USER_FUNCTION *function, int commute, MPI_Op *op)
{
    CALL("MPI_Op_create", PNAMED(MPI_Op_create)(function, commute, op), (""),
         ("h", code == MPI_SUCCESS ? *op : MPI_OP_NULL));
}

/* One-sided communication: the origin's data, the result's, the target's, the operation, the window. */
#ifndef MARGAY_CHECK_AGAIN
#define ACCESS "hlhhlhilllhhh"
#define PARTS(obuf, ocount, otype, rbuf, rcount, rtype, rank, disp, tcount, ttype, op, win)                             \
    obuf, NUMBER(ocount), otype, rbuf, NUMBER(rcount), rtype, rank, (int64_t)disp, NUMBER(tcount),                     \
        (int64_t)margay_check_extent(ttype, win), ttype, op, win
#define NO_RESULT NULL, 0, MPI_DATATYPE_NULL
#define NOTHING (NO_RESULT)
#endif

#ifndef MARGAY_CHECK_AGAIN
#define ACCESSES(name, rname, parameters, arguments, parts, sent, got)                                                 \
    int NAMED(name)(UNPACK parameters)                                                                                 \
    {                                                                                                                  \
        void *site = SITE_OF_CALLER;                                                                                   \
        margay_check_record(BEFORE, #name, site, 0, ACCESS, PARTS parts);                                              \
        int code = AS_PROGRAM(PNAMED(name)(UNPACK arguments));                                                         \
        if (code == MPI_SUCCESS && rank >= 0) {                                                                        \
            margay_check_put(site, win, rank, UNPACK sent);                                                            \
            margay_check_watch(SENDS, #name, site, MPI_REQUEST_NULL, win, rank, UNPACK sent);                          \
            margay_check_watch(RECEIVES, #name, site, MPI_REQUEST_NULL, win, rank, UNPACK got);                        \
        }                                                                                                              \
        margay_check_record(AFTER, #name, site, code, "");                                                             \
        return code;                                                                                                   \
    }                                                                                                                  \
    int NAMED(rname)(UNPACK parameters, MPI_Request * request)                                                         \
    {                                                                                                                  \
        void *site = SITE_OF_CALLER;                                                                                   \
        margay_check_record(BEFORE, #rname, site, 0, ACCESS, PARTS parts);                                             \
        int code = AS_PROGRAM(PNAMED(rname)(UNPACK arguments, request));                                               \
        if (code == MPI_SUCCESS && *request != MPI_REQUEST_NULL) {                                                     \
            margay_check_watch(SENDS, #rname, site, *request, win, rank, UNPACK sent);                                 \
            margay_check_watch(RECEIVES, #rname, site, *request, win, rank, UNPACK got);                               \
        }                                                                                                              \
        margay_check_record(AFTER, #rname, site, code, "h", code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);        \
        return code;                                                                                                   \
    }
#endif
ACCESSES(MPI_Put, MPI_Rput,
         (const void *obuf, COUNT ocount, MPI_Datatype otype, int rank, MPI_Aint disp, COUNT tcount, MPI_Datatype ttype,
          MPI_Win win),
         (obuf, ocount, otype, rank, disp, tcount, ttype, win),
         (obuf, ocount, otype, NULL, 0, MPI_DATATYPE_NULL, rank, disp, tcount, ttype, NULL, win), (obuf, ocount, otype), NOTHING)
ACCESSES(MPI_Get, MPI_Rget,
         (void *rbuf, COUNT rcount, MPI_Datatype rtype, int rank, MPI_Aint disp, COUNT tcount, MPI_Datatype ttype,
          MPI_Win win),
         (rbuf, rcount, rtype, rank, disp, tcount, ttype, win),
         (NULL, 0, MPI_DATATYPE_NULL, rbuf, rcount, rtype, rank, disp, tcount, ttype, NULL, win), NOTHING,
         (rbuf, rcount, rtype))
ACCESSES(MPI_Accumulate, MPI_Raccumulate,
         (const void *obuf, COUNT ocount, MPI_Datatype otype, int rank, MPI_Aint disp, COUNT tcount, MPI_Datatype ttype,
          MPI_Op op, MPI_Win win),
         (obuf, ocount, otype, rank, disp, tcount, ttype, op, win),
         (obuf, ocount, otype, NULL, 0, MPI_DATATYPE_NULL, rank, disp, tcount, ttype, op, win), (obuf, ocount, otype), NOTHING)
ACCESSES(MPI_Get_accumulate, MPI_Rget_accumulate,
         (const void *obuf, COUNT ocount, MPI_Datatype otype, void *rbuf, COUNT rcount, MPI_Datatype rtype, int rank,
          MPI_Aint disp, COUNT tcount, MPI_Datatype ttype, MPI_Op op, MPI_Win win),
         (obuf, ocount, otype, rbuf, rcount, rtype, rank, disp, tcount, ttype, op, win),
         (obuf, ocount, otype, rbuf, rcount, rtype, rank, disp, tcount, ttype, op, win), NOTHING, (rbuf, rcount, rtype))

#ifndef MARGAY_CHECK_AGAIN
#define NEW_WINDOW(base, size)                                                                                          \
    ("hhll", code == MPI_SUCCESS ? margay_check_watch_window(*win, base, (int64_t)size) : MPI_WIN_NULL, base,          \
     (int64_t)size, (int64_t)disp_unit)
#endif
int NAMED(MPI_Win_create)(void *base, MPI_Aint size, UNIT disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    CALL("MPI_Win_create", PNAMED(MPI_Win_create)(base, size, disp_unit, info, comm, win),
         ("hllh", base, (int64_t)size, (int64_t)disp_unit, comm), NEW_WINDOW(base, size));
}

int NAMED(MPI_Win_allocate)(MPI_Aint size, UNIT disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    CALL("MPI_Win_allocate", PNAMED(MPI_Win_allocate)(size, disp_unit, info, comm, baseptr, win),
         ("hllh", NULL, (int64_t)size, (int64_t)disp_unit, comm),
         NEW_WINDOW((code == MPI_SUCCESS ? *(void **)baseptr : NULL), size));
}

int NAMED(MPI_Win_allocate_shared)(MPI_Aint size, UNIT disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    CALL("MPI_Win_allocate_shared", PNAMED(MPI_Win_allocate_shared)(size, disp_unit, info, comm, baseptr, win),
         ("hllh", NULL, (int64_t)size, (int64_t)disp_unit, comm),
         NEW_WINDOW((code == MPI_SUCCESS ? *(void **)baseptr : NULL), size));
}
