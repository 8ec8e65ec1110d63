/* Partitioned communication. One rank and more; ranks pair up as neighbours in a ring. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4 };
static int rank, size, left, right;
static unsigned seed;

static int value(int from, int round, int k) { return from * 1000003 + round * 7919 + k; }

/* All forms of completion, with different partitions on the two sides and in any order. */
static void shapes(MPI_Comm comm)
{
    static const int table[][4] = {/* partitions and elements: sender, receiver */
                                   {1, 12, 1, 12},  {12, 1, 1, 12},   {1, 12, 12, 1},     {3, 4, 4, 3},       {4, 3, 3, 4},
                                   {6, 0, 3, 0},    {0, 5, 0, 5},     {64, 500, 20, 1600}, {3, 40000, 8, 15000}, {1000, 1, 10, 100},
                                   {2, 600000, 5, 240000}};
    for (unsigned t = 0; t < sizeof table / sizeof *table; t++) {
        const int *shape = table[t];
        int total = shape[0] * shape[1], *out = malloc(sizeof(int) * (size_t)(total + 1)),
            *in = malloc(sizeof(int) * (size_t)(total + 1)), *order = malloc(sizeof(int) * (size_t)(shape[0] + 1));
        MPI_Request requests[2];
        MPI_Precv_init(in, shape[2], shape[3], MPI_INT, left, 5, comm, MPI_INFO_NULL, &requests[0]);
        MPI_Psend_init(out, shape[0], shape[1], MPI_INT, right, 5, comm, MPI_INFO_NULL, &requests[1]);
        for (int round = 0; round < 6; round++) {
            MPI_Status statuses[2];
            int flag = 0, index, count, indices[2];
            for (int k = 0; k < total; k++) {
                out[k] = value(rank, round, k);
                in[k] = -1;
            }
            if (round % 2)
                MPI_Startall(2, requests);
            else {
                MPI_Start(&requests[1]);
                MPI_Start(&requests[0]);
            }
            for (int p = 0; p < shape[0]; p++) order[p] = p;
            for (int p = shape[0] - 1; p > 0; p--) {
                int other = (int)(next_random(&seed) % (unsigned)(p + 1)), kept = order[p];
                order[p] = order[other];
                order[other] = kept;
            }
            if (shape[0] > 0) {
                if (round % 3 == 0)
                    for (int p = 0; p < shape[0]; p++) MPI_Pready(order[p], requests[1]);
                else if (round % 3 == 1)
                    MPI_Pready_range(0, shape[0] - 1, requests[1]);
                else
                    MPI_Pready_list(shape[0], order, requests[1]);
            }
            if (round == 2)
                for (int p = 0; p < shape[2]; p++)
                    for (flag = 0; !flag;) MPI_Parrived(requests[0], p, &flag);
            memset(statuses, 0xff, sizeof statuses);
            switch (round) {
            case 0:
                MPI_Wait(&requests[0], &statuses[0]);
                MPI_Wait(&requests[1], &statuses[1]);
                break;
            case 1:
                MPI_Waitall(2, requests, statuses);
                break;
            case 2:
                for (flag = 0; !flag;) MPI_Test(&requests[0], &flag, &statuses[0]);
                for (flag = 0; !flag;) MPI_Test(&requests[1], &flag, &statuses[1]);
                break;
            case 3:
                for (flag = 0; !flag;) MPI_Testall(2, requests, &flag, statuses);
                break;
            case 4:
                for (int left_over = 2; left_over > 0; left_over--) {
                    MPI_Status status;
                    MPI_Waitany(2, requests, &index, &status);
                    CHECK(index == 0 || index == 1);
                    statuses[index] = status;
                }
                MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
                CHECK(index == MPI_UNDEFINED);
                break;
            default:
                for (int left_over = 2; left_over > 0; left_over -= count) {
                    MPI_Status some[2];
                    MPI_Waitsome(2, requests, &count, indices, some);
                    for (int i = 0; i < count; i++) statuses[indices[i]] = some[i];
                }
            }
            CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
            CHECK(statuses[0].MPI_SOURCE == left && statuses[0].MPI_TAG == 5);
            MPI_Get_count(&statuses[0], MPI_INT, &count);
            CHECK(count == total);
            for (int k = 0; k < total; k++)
                if (in[k] != value(left, round, k)) {
                    CHECK(!"the value that was sent");
                    break;
                }
            if (shape[2] > 0) {
                MPI_Parrived(requests[0], shape[2] - 1, &flag);
                CHECK(flag);
            }
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        CHECK(requests[0] == MPI_REQUEST_NULL);
        free(out);
        free(in);
        free(order);
    }
}

/* A partition can be seen before the others are ready; and the receiver need not be in a call on the request. */
static void early(MPI_Comm comm)
{
    enum { PARTITIONS = 4, EACH = 30000 };
    static int out[PARTITIONS * EACH], in[PARTITIONS * EACH];
    int token = 0;
    MPI_Request send, receive;
    MPI_Psend_init(out, PARTITIONS, EACH, MPI_INT, right, 1, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, PARTITIONS, EACH, MPI_INT, left, 1, comm, MPI_INFO_NULL, &receive);
    for (int round = 0; round < 3; round++) {
        int flag = 0;
        MPI_Request both[2] = {send, receive};
        for (int k = 0; k < PARTITIONS * EACH; k++) out[k] = value(rank, round, k);
        MPI_Startall(2, both);
        MPI_Pready(2, send);
        while (!flag) MPI_Parrived(receive, 2, &flag);
        for (int k = 2 * EACH; k < 3 * EACH; k += 997) CHECK(in[k] == value(left, round, k));
        MPI_Parrived(receive, 1, &flag);
        CHECK(!flag || size > 1); /* this rank's partition 1 is not marked */
        MPI_Barrier(comm);
        MPI_Pready_list(2, (int[]){3, 0}, send);
        MPI_Test(&send, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        MPI_Pready(1, send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        /* The neighbour's send has ended when it sends this, though nobody asked about our receive. */
        MPI_Sendrecv_replace(&token, 1, MPI_INT, right, 9, left, 9, comm, MPI_STATUS_IGNORE);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        for (int k = 0; k < PARTITIONS * EACH; k++)
            if (in[k] != value(left, round, k)) {
                CHECK(!"what the neighbour sent");
                break;
            }
    }
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
}

/* Sends and receives find each other in the order in which they were made, and never ordinary messages. */
static void matching(MPI_Comm comm)
{
    int out[3] = {10, 20, 30}, in[3] = {0, 0, 0}, plain = 7, got = 0, flag;
    MPI_Request sends[3], receives[3], ordinary;
    MPI_Status status;
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &ordinary);
    for (int i = 0; i < 3; i++)
        MPI_Psend_init(&out[i], 1, 1, MPI_INT, right, i == 1 ? 4 : 3, comm, MPI_INFO_NULL, &sends[i]);
    for (int i = 2; i >= 0; i--) MPI_Start(&sends[i]);
    for (int i = 2; i >= 0; i--) MPI_Pready(0, sends[i]);
    MPI_Waitall(3, sends, MPI_STATUSES_IGNORE);
    MPI_Barrier(comm);
    MPI_Precv_init(&in[1], 1, 1, MPI_INT, left, 4, comm, MPI_INFO_NULL, &receives[1]);
    MPI_Precv_init(&in[0], 1, 1, MPI_INT, left, 3, comm, MPI_INFO_NULL, &receives[0]);
    MPI_Precv_init(&in[2], 1, 1, MPI_INT, left, 3, comm, MPI_INFO_NULL, &receives[2]);
    MPI_Startall(3, receives);
    MPI_Waitall(3, receives, MPI_STATUSES_IGNORE);
    CHECK(in[0] == 10 && in[1] == 20 && in[2] == 30);
    MPI_Test(&ordinary, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(comm);
    MPI_Send(&plain, 1, MPI_INT, right, 3, comm);
    MPI_Wait(&ordinary, &status);
    CHECK(got == 7 && status.MPI_SOURCE == left);
    for (int i = 0; i < 3; i++) {
        MPI_Request_free(&sends[i]);
        MPI_Request_free(&receives[i]);
    }
}

/* A receive that was made and freed has taken its send; the next one gets the next. */
static void freed(MPI_Comm comm)
{
    int out[2] = {1, 2}, in = 0;
    MPI_Request sends[2], receive;
    MPI_Precv_init(&in, 1, 1, MPI_INT, left, 0, comm, MPI_INFO_NULL, &receive);
    MPI_Request_free(&receive);
    for (int i = 0; i < 2; i++) MPI_Psend_init(&out[i], 1, 1, MPI_INT, right, 0, comm, MPI_INFO_NULL, &sends[i]);
    MPI_Request_free(&sends[0]);
    MPI_Precv_init(&in, 1, 1, MPI_INT, left, 0, comm, MPI_INFO_NULL, &receive);
    MPI_Start(&sends[1]);
    MPI_Start(&receive);
    MPI_Pready(0, sends[1]);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
    CHECK(in == 2);
    MPI_Request_free(&sends[1]);
    MPI_Request_free(&receive);
}

/* A datatype with holes, and another of the same signature on the other side. */
static void datatypes(MPI_Comm comm)
{
    enum { PARTITIONS = 6, EACH = 50 };
    int out[PARTITIONS * EACH * 2], in[PARTITIONS * EACH];
    MPI_Datatype every_second;
    MPI_Request send, receive;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_second);
    MPI_Type_commit(&every_second);
    for (int k = 0; k < PARTITIONS * EACH; k++) {
        out[2 * k] = value(rank, 0, k);
        out[2 * k + 1] = -1;
    }
    MPI_Psend_init(out, PARTITIONS, EACH, every_second, right, 2, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 5, PARTITIONS * EACH / 5, MPI_INT, left, 2, comm, MPI_INFO_NULL, &receive);
    MPI_Type_free(&every_second);
    MPI_Start(&send);
    MPI_Start(&receive);
    MPI_Pready_range(3, 5, send);
    MPI_Pready_range(0, 2, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    for (int k = 0; k < PARTITIONS * EACH; k++) CHECK(in[k] == value(left, 0, k));
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
}

/* Threads mark their partitions and look for those that arrive. */
enum { PARTS_OF_THREAD = 8, ELEMENTS = 700 };
static int shared_out[THREADS * PARTS_OF_THREAD * ELEMENTS], shared_in[THREADS * PARTS_OF_THREAD * ELEMENTS];
static MPI_Request shared_send, shared_receive;
static int shared_round;

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (int i = 0; i < PARTS_OF_THREAD; i++) {
        int p = i * THREADS + thread;
        for (int k = p * ELEMENTS; k < (p + 1) * ELEMENTS; k++) shared_out[k] = value(rank, shared_round, k);
        MPI_Pready(p, shared_send);
    }
    for (int i = 0; i < PARTS_OF_THREAD; i++) {
        int p = i * THREADS + thread, flag = 0;
        while (!flag) MPI_Parrived(shared_receive, p, &flag);
        for (int k = p * ELEMENTS; k < (p + 1) * ELEMENTS; k++)
            if (shared_in[k] != value(left, shared_round, k)) {
                fprintf(stderr, "rank %d: partition %d of round %d is wrong\n", rank, p, shared_round);
                MPI_Abort(MPI_COMM_WORLD, 4);
            }
    }
    return NULL;
}

static void threads(MPI_Comm comm)
{
    MPI_Psend_init(shared_out, THREADS * PARTS_OF_THREAD, ELEMENTS, MPI_INT, right, 0, comm, MPI_INFO_NULL, &shared_send);
    MPI_Precv_init(shared_in, THREADS * PARTS_OF_THREAD, ELEMENTS, MPI_INT, left, 0, comm, MPI_INFO_NULL, &shared_receive);
    for (shared_round = 0; shared_round < 20; shared_round++) {
        pthread_t workers[THREADS];
        memset(shared_in, 0xff, sizeof shared_in);
        MPI_Start(&shared_receive);
        MPI_Start(&shared_send);
        for (int t = 0; t < THREADS; t++) pthread_create(&workers[t], NULL, work, (void *)(intptr_t)t);
        /* One waits while the others mark. */
        MPI_Wait(&shared_send, MPI_STATUS_IGNORE);
        for (int t = 0; t < THREADS; t++) pthread_join(workers[t], NULL);
        MPI_Wait(&shared_receive, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&shared_send);
    MPI_Request_free(&shared_receive);
}

static void mistakes(MPI_Comm comm)
{
    int x[4] = {0, 0, 0, 0}, y[2] = {0, 0}, flag = 0;
    MPI_Request send, receive, plain, none = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(class_of(MPI_Psend_init(x, -1, 1, MPI_INT, right, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Psend_init(x, 1, -1, MPI_INT, right, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Psend_init(x, 1, 1, MPI_INT, size, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Psend_init(x, 1, 1, MPI_INT, right, -3, comm, MPI_INFO_NULL, &send)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Psend_init(x, 1, 1, MPI_DATATYPE_NULL, right, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Precv_init(x, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Precv_init(x, 1, 1, MPI_INT, left, MPI_ANY_TAG, comm, MPI_INFO_NULL, &send)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Precv_init_c(x, 1, INT64_MAX, MPI_INT, left, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Precv_init(x, 1, INT64_MAX, MPI_INT, left, 0, comm, MPI_INFO_NULL, &send)) == MPI_ERR_COUNT);

    /* Two partitions of two are sent, there is room for one. */
    MPI_Psend_init(x, 2, 2, MPI_INT, right, 0, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(y, 1, 2, MPI_INT, left, 0, comm, MPI_INFO_NULL, &receive);
    CHECK(class_of(MPI_Pready(0, send)) == MPI_ERR_REQUEST);
    MPI_Parrived(receive, 0, &flag);
    CHECK(flag);
    MPI_Start(&send);
    MPI_Start(&receive);
    CHECK(class_of(MPI_Start(&send)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Pready(2, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready(-1, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready_range(1, 0, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready_range(0, 2, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready_list(2, (int[]){1, 1}, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready(0, receive)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(send, 0, &flag)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(receive, 1, &flag)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Cancel(&send)) == MPI_ERR_REQUEST);
    x[0] = 5;
    CHECK(MPI_Pready(1, send) == MPI_SUCCESS);
    CHECK(class_of(MPI_Pready(1, send)) == MPI_ERR_ARG);
    CHECK(MPI_Pready(0, send) == MPI_SUCCESS);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(class_of(MPI_Wait(&receive, &status)) == MPI_ERR_TRUNCATE);
    CHECK(y[0] == 5);
    CHECK(class_of(MPI_Pready(0, MPI_REQUEST_NULL)) == MPI_ERR_REQUEST);
    MPI_Parrived(none, 0, &flag);
    CHECK(flag);
    MPI_Recv_init(x, 1, MPI_INT, left, 0, comm, &plain);
    CHECK(class_of(MPI_Pready(0, plain)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(plain, 0, &flag)) == MPI_ERR_REQUEST);
    MPI_Request_free(&plain);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);

    /* Nobody. */
    MPI_Psend_init(x, 2, 2, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(x, 2, 2, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_INFO_NULL, &receive);
    MPI_Start(&send);
    MPI_Start(&receive);
    MPI_Pready_range(0, 1, send);
    MPI_Parrived(receive, 1, &flag);
    CHECK(flag);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&receive, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);

    /* Freed while active: what is marked still goes. */
    MPI_Psend_init(x, 1, 1, MPI_INT, right, 8, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(y, 1, 1, MPI_INT, left, 8, comm, MPI_INFO_NULL, &receive);
    x[0] = 42;
    MPI_Start(&send);
    MPI_Start(&receive);
    MPI_Pready(0, send);
    MPI_Request_free(&send);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    CHECK(y[0] == 42);
    MPI_Request_free(&receive);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Comm comm;
    MPI_Init_thread(&argc, &argv, argc > 1 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    seed = (unsigned)rank + 17;
    shapes(comm);
    early(comm);
    matching(comm);
    freed(comm);
    datatypes(comm);
    if (provided == MPI_THREAD_MULTIPLE) threads(comm);
    mistakes(comm);
    MPI_Comm_free(&comm);
    return finish();
}
