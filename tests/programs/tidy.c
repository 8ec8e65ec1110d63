/* A bit of everything, with everything given back: for memory checkers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void require(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void messages(MPI_Comm comm)
{
    static const int lengths[] = {0, 1, 8, 40, 41, 1000, 5000, 70000, 300000, 1200000};
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int n = lengths[i], found = 0;
        char *out = malloc((size_t)n + 1), *in = malloc((size_t)n + 1);
        MPI_Request requests[2];
        MPI_Status status;
        MPI_Message message;
        memset(out, rank + 1, (size_t)n);
        MPI_Irecv(in, n, MPI_CHAR, left, 1, comm, &requests[0]);
        MPI_Isend(out, n, MPI_CHAR, right, 1, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        require(n == 0 || (in[0] == left + 1 && in[n - 1] == left + 1), "wrong data");
        MPI_Issend(out, n, MPI_CHAR, right, 2, comm, &requests[0]);
        while (!found) MPI_Iprobe(MPI_ANY_SOURCE, 2, comm, &found, &status);
        MPI_Mprobe(left, 2, comm, &message, &status);
        MPI_Mrecv(in, n, MPI_CHAR, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Sendrecv_replace(out, n, MPI_CHAR, right, 3, left, 3, comm, MPI_STATUS_IGNORE);
        MPI_Send_init(out, n, MPI_CHAR, right, 4, comm, &requests[0]);
        MPI_Recv_init(in, n, MPI_CHAR, left, 4, comm, &requests[1]);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Request_free(&requests[0]), MPI_Request_free(&requests[1]);
        MPI_Irecv(in, n, MPI_CHAR, left, 5, comm, &requests[0]);
        MPI_Cancel(&requests[0]);
        MPI_Wait(&requests[0], &status);
        free(out), free(in);
    }
    int size_bytes = 1000 + MPI_BSEND_OVERHEAD, word = rank, got;
    void *room = malloc((size_t)size_bytes);
    MPI_Buffer_attach(room, size_bytes);
    MPI_Bsend(&word, 1, MPI_INT, right, 6, comm);
    MPI_Recv(&got, 1, MPI_INT, left, 6, comm, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&room, &size_bytes);
    free(room);
}

static void types(MPI_Comm comm)
{
    MPI_Datatype vector, record, indexed, sub, copy;
    int lengths[2] = {1, 2}, places[2] = {3, 0}, whole[2] = {6, 5}, part[2] = {2, 3}, start[2] = {1, 1};
    MPI_Aint offsets[2] = {0, 8};
    MPI_Datatype members[2] = {MPI_DOUBLE, MPI_INT};
    double numbers[40];
    MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &vector);
    MPI_Type_create_struct(2, lengths, offsets, members, &record);
    MPI_Type_indexed(2, lengths, places, vector, &indexed);
    MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &sub);
    MPI_Type_dup(record, &copy);
    MPI_Type_set_name(copy, "a copy");
    MPI_Datatype *all[] = {&vector, &record, &indexed, &sub, &copy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char packed[400];
        int at = 0, integers, addresses, datatypes, how;
        MPI_Type_commit(all[i]);
        for (int k = 0; k < 40; k++) numbers[k] = k;
        MPI_Pack(numbers, 1, *all[i], packed, sizeof packed, &at, comm);
        int end = at;
        at = 0;
        MPI_Unpack(packed, end, &at, numbers, 1, *all[i], comm);
        MPI_Sendrecv(numbers, 1, *all[i], rank, 7, packed, end, MPI_PACKED, rank, 7, comm, MPI_STATUS_IGNORE);
        MPI_Type_get_envelope(*all[i], &integers, &addresses, &datatypes, &how);
        require(how != MPI_COMBINER_NAMED, "a derived datatype is named");
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) MPI_Type_free(all[i]);
}

static void sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static void collectives(MPI_Comm comm)
{
    int p, me;
    MPI_Op op;
    MPI_Comm_size(comm, &p);
    MPI_Comm_rank(comm, &me);
    MPI_Op_create(sum, 1, &op);
    for (int n = 1; n <= 100000; n *= 10) {
        int *out = malloc(sizeof(int) * (size_t)(n * p)), *in = malloc(sizeof(int) * (size_t)(n * p));
        int counts[64], displs[64];
        MPI_Request requests[3];
        for (int i = 0; i < n * p; i++) out[i] = me;
        for (int i = 0; i < p; i++) counts[i] = n, displs[i] = i * n;
        MPI_Barrier(comm);
        MPI_Bcast(out, n, MPI_INT, 0, comm);
        MPI_Reduce(out, in, n, MPI_INT, MPI_SUM, p - 1, comm);
        MPI_Allreduce(out, in, n, MPI_INT, op, comm);
        MPI_Gather(out, n, MPI_INT, in, n, MPI_INT, 0, comm);
        MPI_Scatter(out, n, MPI_INT, in, n, MPI_INT, 0, comm);
        MPI_Allgatherv(out, n, MPI_INT, in, counts, displs, MPI_INT, comm);
        MPI_Alltoallv(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, comm);
        MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_MAX, comm);
        MPI_Scan(out, in, n, MPI_INT, MPI_PROD, comm);
        MPI_Exscan(out, in, n, MPI_INT, op, comm);
        MPI_Iallreduce(MPI_IN_PLACE, in, n, MPI_INT, MPI_SUM, comm, &requests[0]);
        MPI_Ibarrier(comm, &requests[1]);
        MPI_Ibcast(out, n, MPI_INT, 0, comm, &requests[2]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        MPI_Alltoall(MPI_IN_PLACE, n, MPI_INT, in, n, MPI_INT, comm);
        free(out), free(in);
    }
    MPI_Op_free(&op);
}

static int copied, deleted;
static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    *(void **)out = in, *flag = 1, copied++;
    return MPI_SUCCESS;
}
static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}
static void handle(MPI_Comm *comm, int *code, ...) { (void)comm, (void)code; }

static void objects(void)
{
    MPI_Comm dup, split, cart, node, created;
    MPI_Group world, some;
    MPI_Errhandler handler;
    MPI_Info info;
    int key, dims[2] = {0, 0}, periods[2] = {1, 0}, zero = 0;
    void *memory;
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_attr(dup, key, &key);
    MPI_Comm_set_name(dup, "a name");
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(dup, handler);
    MPI_Errhandler_free(&handler);
    MPI_Send(NULL, -1, MPI_INT, 0, 0, dup);
    MPI_Comm_split(dup, rank % 2, 0, &split);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(dup, 2, dims, periods, 1, &cart);
    MPI_Comm_split_type(dup, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_group(dup, &world);
    MPI_Group_incl(world, 1, &zero, &some);
    MPI_Comm_create(dup, some, &created);
    messages(dup);
    collectives(split);
    collectives(cart);
    if (created != MPI_COMM_NULL) MPI_Comm_free(&created);
    MPI_Group_free(&some), MPI_Group_free(&world);
    MPI_Comm_free(&node), MPI_Comm_free(&cart), MPI_Comm_free(&split);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_dup(dup, &split);
    MPI_Comm_free(&split), MPI_Comm_free(&dup);
    require(copied >= 1 && deleted == copied + 1, "attributes were not deleted");
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    MPI_Info_free(&info);
    MPI_Alloc_mem(100000, MPI_INFO_NULL, &memory);
    memset(memory, 1, 100000);
    MPI_Free_mem(memory);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    messages(MPI_COMM_WORLD);
    types(MPI_COMM_WORLD);
    collectives(MPI_COMM_WORLD);
    objects();
    MPI_Finalize();
    return 0;
}
