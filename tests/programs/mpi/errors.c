/* Errors: the right class, and a message that says what and where. Two ranks. */
#include "check.h"

#include <stdint.h>

static int rank, size;

/* The call must fail with the class, and the message must contain both texts. */
#define FAILS(class_, text, more, call)                                                                        \
    do {                                                                                                       \
        char message_[MPI_MAX_ERROR_STRING];                                                                   \
        int length_, code_ = (call);                                                                           \
        CHECK(class_of(code_) == class_);                                                                      \
        MPI_Error_string(code_, message_, &length_);                                                           \
        if (!strstr(message_, text) || !strstr(message_, more)) {                                              \
            failures++;                                                                                        \
            fprintf(stderr, "%s:%d: \"%s\" says neither %s nor %s\n", __FILE__, __LINE__, message_, text, more); \
        }                                                                                                      \
    } while (0)

/* Processes that do not agree about a collective: who reads the other's part learns it, blocking and nonblocking. */
static void unequal_parts(MPI_Comm rows)
{
    int wrong = rank ? MPI_ERR_COUNT : MPI_ERR_TRUNCATE;
    static int in[20000], out[40000];
    MPI_Request request;
    for (int large = 0; large < 2; large++) {
        int n = large ? 10000 : 2, more = rank == 1 ? n + 1 : n;
        int code = MPI_Gather(in, more, MPI_INT, out, n, MPI_INT, 0, rows);
        if (rank == 0) FAILS(MPI_ERR_TRUNCATE, "MPI_Gather: rank 1", "bytes", code);
        MPI_Barrier(rows);
        MPI_Igather(in, more, MPI_INT, out, n, MPI_INT, 0, rows, &request);
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 0) FAILS(MPI_ERR_TRUNCATE, "rank 1", "bytes", code);
        MPI_Barrier(rows);
        code = MPI_Scatter(in, n, MPI_INT, out, rank == 0 ? n : n - 1, MPI_INT, 0, rows);
        if (rank == 1) FAILS(MPI_ERR_TRUNCATE, "MPI_Scatter: rank 0", "bytes", code);
        MPI_Barrier(rows);
    }
    FAILS(MPI_ERR_COUNT, "MPI_Reduce_scatter_block: rank", "other counts",
          MPI_Reduce_scatter_block(in, out, rank ? 3 : 2, MPI_INT, MPI_SUM, rows));
    FAILS(MPI_ERR_COUNT, "MPI_Reduce_scatter: rank", "other counts",
          MPI_Reduce_scatter(in, out, rank ? (int[]){1, 3} : (int[]){3, 1}, MPI_INT, MPI_SUM, rows));
    MPI_Iallgather(in, rank ? 2 : 1, MPI_INT, out, rank ? 2 : 1, MPI_INT, rows, &request);
    FAILS(wrong, "takes part with", "bytes", MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* A rank hears of the lower ones only. */
    int code = MPI_Scan(in, out, rank ? 3 : 2, MPI_INT, MPI_SUM, rows);
    if (rank > 0) FAILS(wrong, "MPI_Scan: rank", "bytes", code);
}

static void arguments(MPI_Comm rows)
{
    int x = 0, y = 0, one = 1;
    MPI_Request request;
    MPI_Datatype raw, freed;
    MPI_Status status;
    FAILS(MPI_ERR_RANK, "MPI_Send: rank 9 is not in communicator 'rows' (2 ranks), tag 7", "called by rank",
          MPI_Send(&x, 1, MPI_INT, 9, 7, rows));
    FAILS(MPI_ERR_RANK, "MPI_Irecv: rank -7", "'rows'", MPI_Irecv(&x, 1, MPI_INT, -7, 0, rows, &request));
    FAILS(MPI_ERR_RANK, "rank -1", "", MPI_Send(&x, 1, MPI_INT, MPI_ANY_SOURCE, 0, rows));
    FAILS(MPI_ERR_TAG, "tag -5", "MPI_TAG_UB", MPI_Send(&x, 1, MPI_INT, 0, -5, rows));
    FAILS(MPI_ERR_TAG, "MPI_Isend", "tag -2", MPI_Isend(&x, 1, MPI_INT, 0, MPI_ANY_TAG, rows, &request));
    FAILS(MPI_ERR_COUNT, "count is -1", "MPI_Recv", MPI_Recv(&x, -1, MPI_INT, 0, 0, rows, &status));
    FAILS(MPI_ERR_TYPE, "MPI_DATATYPE_NULL", "", MPI_Send(&x, 1, MPI_DATATYPE_NULL, 0, 0, rows));
    MPI_Type_contiguous(2, MPI_INT, &raw);
    MPI_Type_set_name(raw, "pairs");
    FAILS(MPI_ERR_TYPE, "'pairs' is not committed", "MPI_Type_commit", MPI_Send(&x, 1, raw, 0, 0, rows));
    freed = raw;
    MPI_Type_free(&raw);
    FAILS(MPI_ERR_TYPE, "not a datatype", "freed", MPI_Send(&x, 1, freed, 0, 0, rows));
    FAILS(MPI_ERR_TYPE, "MPI_DOUBLE", "cannot be freed", MPI_Type_free((freed = MPI_DOUBLE, &freed)));
    FAILS(MPI_ERR_BUFFER, "null pointer", "MPI_Send", MPI_Send(NULL, 1, MPI_INT, 0, 0, rows));
    FAILS(MPI_ERR_BUFFER, "MPI_IN_PLACE", "", MPI_Send(MPI_IN_PLACE, 1, MPI_INT, 0, 0, rows));
    FAILS(MPI_ERR_COMM, "MPI_COMM_NULL", "MPI_Send", MPI_Send(&x, 1, MPI_INT, 0, 0, MPI_COMM_NULL));
    FAILS(MPI_ERR_COMM, "not a communicator", "MPI_Comm_rank", MPI_Comm_rank((MPI_Comm)MPI_INT, &x));
    FAILS(MPI_ERR_ROOT, "root 2", "'rows'", MPI_Bcast(&x, 1, MPI_INT, 2, rows));
    FAILS(MPI_ERR_ROOT, "root -4", "", MPI_Bcast(&x, 1, MPI_INT, MPI_ROOT, rows));
    FAILS(MPI_ERR_OP, "MPI_BAND is not defined on MPI_DOUBLE", "", MPI_Allreduce(&x, &y, 0, MPI_DOUBLE, MPI_BAND, rows));
    FAILS(MPI_ERR_OP, "MPI_OP_NULL", "", MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_OP_NULL, rows));
    FAILS(MPI_ERR_OP, "predefined", "", MPI_Op_free((MPI_Op[]){MPI_SUM}));
    FAILS(MPI_ERR_BUFFER, "MPI_IN_PLACE", "same", MPI_Allreduce(&x, &x, 1, MPI_INT, MPI_SUM, rows));
    FAILS(MPI_ERR_TRUNCATE, "4 bytes", "8 bytes",
          MPI_Allgather((int[]){1, 2}, 2, MPI_INT, (int[]){0, 0}, 1, MPI_INT, rows));
    FAILS(MPI_ERR_REQUEST, "not a request", "completed or freed", MPI_Wait((MPI_Request[]){(MPI_Request)0x38000000}, &status));
    FAILS(MPI_ERR_REQUEST, "MPI_REQUEST_NULL", "", MPI_Start((MPI_Request[]){MPI_REQUEST_NULL}));
    FAILS(MPI_ERR_GROUP, "MPI_GROUP_NULL", "", MPI_Group_size(MPI_GROUP_NULL, &x));
    FAILS(MPI_ERR_ARG, "null pointer", "rank", MPI_Comm_rank(rows, NULL));
    void *memory;
    FAILS(MPI_ERR_NO_MEM, "70368744177664 bytes", "MPI_Alloc_mem", MPI_Alloc_mem((MPI_Aint)1 << 46, MPI_INFO_NULL, &memory));
    FAILS(MPI_ERR_NO_MEM, "bytes", "", MPI_Alloc_mem(INTPTR_MAX, MPI_INFO_NULL, &memory));
    FAILS(MPI_ERR_TOPOLOGY, "no Cartesian topology", "rows", MPI_Cart_rank(rows, &one, &x));
    FAILS(MPI_ERR_DIMS, "dims[0]", "", MPI_Cart_create(rows, 1, (int[]){-3}, &one, 0, &(MPI_Comm){0}));
    FAILS(MPI_ERR_DIMS, "7 processes", "", MPI_Cart_create(rows, 1, (int[]){7}, &one, 0, &(MPI_Comm){0}));
    FAILS(MPI_ERR_KEYVAL, "MPI_KEYVAL_INVALID", "", MPI_Comm_set_attr(rows, MPI_KEYVAL_INVALID, NULL));
    FAILS(MPI_ERR_KEYVAL, "predefined", "", MPI_Comm_set_attr(rows, MPI_TAG_UB, NULL));
    FAILS(MPI_ERR_INFO, "MPI_INFO_NULL", "", MPI_Info_set(MPI_INFO_NULL, "a", "b"));
    FAILS(MPI_ERR_BUFFER, "no buffer is attached", "MPI_Buffer_attach", MPI_Bsend(&x, 1, MPI_INT, 0, 0, rows));
    FAILS(MPI_ERR_COUNT, "array_of_blocklengths[1] is -2", "",
          MPI_Type_indexed(2, (int[]){1, -2}, (int[]){0, 1}, MPI_INT, &raw));
    FAILS(MPI_ERR_COMM, "predefined", "MPI_COMM_WORLD", MPI_Comm_free((MPI_Comm[]){MPI_COMM_WORLD}));
    FAILS(MPI_ERR_RANK, "rank 5", "2 ranks", MPI_Sendrecv(&x, 1, MPI_INT, rank, 0, &y, 1, MPI_INT, 5, 0, rows, &status));
    /* A buffer that is too small for the message. */
    char room[100];
    MPI_Buffer_attach(room, 100);
    FAILS(MPI_ERR_BUFFER, "400 bytes", "100 bytes", MPI_Bsend((int[100]){0}, 100, MPI_INT, rank, 0, rows));
    MPI_Buffer_detach(&(void *){0}, &x);
}

static void freed_handles(void)
{
    MPI_Comm comm, old;
    MPI_Group group, old_group;
    MPI_Request request, old_request;
    int x = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    old = comm;
    MPI_Comm_free(&comm);
    FAILS(MPI_ERR_COMM, "freed", "MPI_Barrier", MPI_Barrier(old));
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    old_group = group;
    MPI_Group_free(&group);
    FAILS(MPI_ERR_GROUP, "freed", "", MPI_Group_rank(old_group, &x));
    MPI_Isend(&x, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
    old_request = request;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    FAILS(MPI_ERR_REQUEST, "completed or freed", "", MPI_Wait(&old_request, MPI_STATUS_IGNORE));
}

static void truncation(MPI_Comm rows)
{
    int data[20000] = {0}, flag;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (int n = 100; n <= 20000; n += 19900) {
        if (rank == 0) {
            for (int i = 0; i < 4; i++)
                MPI_Send(data, n, MPI_INT, 1, i, rows);
        } else if (rank == 1) {
            char sizes[64];
            snprintf(sizes, sizeof sizes, "has %d bytes", 4 * n);
            FAILS(MPI_ERR_TRUNCATE, sizes, "room for 40", MPI_Recv(data, 10, MPI_INT, 0, 0, rows, MPI_STATUS_IGNORE));
            MPI_Irecv(data, 10, MPI_INT, 0, 1, rows, &requests[0]);
            FAILS(MPI_ERR_TRUNCATE, "MPI_Wait", sizes, MPI_Wait(&requests[0], &statuses[0]));
            CHECK(requests[0] == MPI_REQUEST_NULL);
            /* Of several, the statuses say which. */
            MPI_Irecv(data, 10, MPI_INT, 0, 2, rows, &requests[0]);
            MPI_Irecv(data, n, MPI_INT, 0, 3, rows, &requests[1]);
            statuses[0].MPI_ERROR = statuses[1].MPI_ERROR = -1;
            FAILS(MPI_ERR_IN_STATUS, "MPI_Waitall", "rank 0 with tag 2", MPI_Waitall(2, requests, statuses));
            CHECK(statuses[0].MPI_ERROR == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_SUCCESS);
        }
        MPI_Barrier(rows);
    }
    /* A message that ends within an element was sent with another type. */
    MPI_Datatype every_second;
    MPI_Type_vector(4, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    if (rank == 0) {
        for (int n = 3; n <= 8; n += 5) MPI_Send(data, n, MPI_CHAR, 1, 9, rows);
    } else if (rank == 1) {
        FAILS(MPI_ERR_TYPE, "3 bytes", "within an element", MPI_Recv(data, 1, every_second, 0, 9, rows, MPI_STATUS_IGNORE));
        MPI_Irecv(data, 1, every_second, 0, 9, rows, &requests[0]);
        CHECK(MPI_Wait(&requests[0], &statuses[0]) == MPI_SUCCESS);
    }
    MPI_Type_free(&every_second);
    /* The error field is left alone when all is well. */
    statuses[0].MPI_ERROR = -77;
    MPI_Irecv(data, 1, MPI_INT, rank, 5, rows, &requests[0]);
    MPI_Send(data, 1, MPI_INT, rank, 5, rows);
    MPI_Testall(1, requests, &flag, statuses);
    while (!flag)
        MPI_Testall(1, requests, &flag, statuses);
    CHECK(statuses[0].MPI_ERROR == -77);
}

/* Ranks that do not agree about a collective get an error. */
static void disagreements(void)
{
    MPI_Comm comm;
    int data[4000] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int code = MPI_Bcast(data, rank == 0 ? 1000 : 10, MPI_INT, 0, comm);
    if (rank == 1) {
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        FAILS(MPI_ERR_TRUNCATE, "4000 bytes", "40", code);
    }
    MPI_Request request;
    MPI_Ibcast(data, rank == 0 ? 1000 : 10, MPI_INT, 0, comm, &request);
    code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1)
        FAILS(MPI_ERR_TRUNCATE, "4000 bytes", "40", code);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    code = MPI_Bcast(data, 1, MPI_INT, 1 - rank, comm);
    FAILS(MPI_ERR_ROOT, "MPI_Bcast", "root", code);
    MPI_Comm_free(&comm);
}

static int handled, handled_code, forgiving;
static MPI_Comm handled_comm;

static void handler(MPI_Comm *comm, int *code, ...)
{
    handled++;
    handled_comm = *comm;
    handled_code = *code;
    if (forgiving)
        *code = MPI_SUCCESS;
}

static void handlers(void)
{
    MPI_Errhandler user, got;
    MPI_Comm comm, child;
    int x = 0, class_, code, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_create_errhandler(handler, &user);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, user);
    MPI_Comm_get_errhandler(comm, &got);
    CHECK(got == user);
    MPI_Errhandler_free(&got);
    MPI_Errhandler_free(&user);
    CHECK(user == MPI_ERRHANDLER_NULL);
    CHECK(class_of(MPI_Send(&x, 1, MPI_INT, 99, 0, comm)) == MPI_ERR_RANK);
    CHECK(handled == 1 && handled_comm == comm && class_of(handled_code) == MPI_ERR_RANK);
    forgiving = 1;
    CHECK(MPI_Send(&x, 1, MPI_INT, 99, 0, comm) == MPI_SUCCESS && handled == 2);
    forgiving = 0;
    MPI_Comm_dup(comm, &child); /* inherits it */
    MPI_Comm_call_errhandler(child, MPI_ERR_OTHER);
    CHECK(handled == 3 && handled_comm == child && handled_code == MPI_ERR_OTHER);
    MPI_Comm_free(&child);
    MPI_Comm_free(&comm);
    MPI_Add_error_class(&class_);
    MPI_Add_error_code(class_, &code);
    MPI_Add_error_string(code, "the cat is out");
    CHECK(class_ > MPI_ERR_LASTCODE && class_of(code) == class_);
    MPI_Error_string(code, text, &length);
    CHECK(strcmp(text, "the cat is out") == 0);
    CHECK(MPI_Remove_error_class(class_) != MPI_SUCCESS);
    CHECK(MPI_Remove_error_string(code) == MPI_SUCCESS && MPI_Remove_error_code(code) == MPI_SUCCESS);
    CHECK(MPI_Remove_error_class(class_) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    MPI_Comm rows;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &rows);
    MPI_Comm_set_name(rows, "rows");
    arguments(rows);
    unequal_parts(rows);
    freed_handles();
    truncation(rows);
    disagreements();
    handlers();
    MPI_Comm_free(&rows);
    return finish();
}
