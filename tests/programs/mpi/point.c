/* Point-to-point communication in all modes. Two ranks or more; those beyond the second only pass messages on. */
#include "check.h"

static int rank, size;

static void fill(int *data, int n, int mark)
{
    for (int i = 0; i < n; i++)
        data[i] = mark + i;
}

static int is_filled(const int *data, int n, int mark)
{
    for (int i = 0; i < n; i++)
        if (data[i] != mark + i)
            return 0;
    return 1;
}

/* All send modes, blocking, with sizes on both sides of every change of protocol. */
static void modes(void)
{
    static const int sizes[] = {0, 1, 10, 11, 1000, 1024, 8192, 16384, 65536, 300000, 1000003};
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        int *data = malloc(sizeof(int) * (n + 1)), count;
        for (int mode = 0; mode < 4; mode++) {
            MPI_Status status;
            if (rank == 0) {
                fill(data, n, mode + 100);
                if (mode == 0)
                    MPI_Send(data, n, MPI_INT, 1, mode, MPI_COMM_WORLD);
                if (mode == 1)
                    MPI_Ssend(data, n, MPI_INT, 1, mode, MPI_COMM_WORLD);
                if (mode == 2) {
                    MPI_Recv(NULL, 0, MPI_INT, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Rsend(data, n, MPI_INT, 1, mode, MPI_COMM_WORLD);
                }
                if (mode == 3) {
                    int bytes, got;
                    MPI_Pack_size(n, MPI_INT, MPI_COMM_WORLD, &bytes);
                    bytes += MPI_BSEND_OVERHEAD;
                    void *buffer = malloc(bytes), *back;
                    MPI_Buffer_attach(buffer, bytes);
                    MPI_Bsend(data, n, MPI_INT, 1, mode, MPI_COMM_WORLD);
                    memset(data, 0, sizeof(int) * n);
                    MPI_Buffer_detach(&back, &got);
                    CHECK(back == buffer && got == bytes);
                    free(buffer);
                }
            } else if (rank == 1) {
                memset(data, 0, sizeof(int) * n);
                if (mode == 2) {
                    MPI_Request request;
                    MPI_Irecv(data, n, MPI_INT, 0, mode, MPI_COMM_WORLD, &request);
                    MPI_Send(NULL, 0, MPI_INT, 0, 99, MPI_COMM_WORLD);
                    MPI_Wait(&request, &status);
                    CHECK(request == MPI_REQUEST_NULL);
                } else {
                    MPI_Recv(data, n, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
                }
                MPI_Get_count(&status, MPI_INT, &count);
                CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == mode && count == n);
                CHECK(is_filled(data, n, mode + 100));
            }
        }
        free(data);
    }
}

/* Messages of one pair arrive in order, whatever their sizes; tags choose among them. */
static void order(void)
{
    enum { N = 200 };
    static int data[N][3000];
    if (rank == 0) {
        MPI_Request requests[N];
        for (int i = 0; i < N; i++) {
            fill(data[i], 3000, i);
            MPI_Isend(data[i], 1 + i * 37 % 3000, MPI_INT, 1, i % 5, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(N, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        for (int tag = 4; tag >= 0; tag--)
            for (int i = tag; i < N; i += 5) {
                MPI_Status status;
                int count, got[3000];
                MPI_Probe(0, tag, MPI_COMM_WORLD, &status);
                MPI_Get_count(&status, MPI_INT, &count);
                CHECK(count == 1 + i * 37 % 3000);
                MPI_Recv(got, count, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                CHECK(is_filled(got, count, i));
            }
    }
}

static void exchanges(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Status status;
    int *out = malloc(sizeof(int) * 50000), *in = malloc(sizeof(int) * 50000);
    fill(out, 50000, rank);
    MPI_Sendrecv(out, 50000, MPI_INT, right, 3, in, 50000, MPI_INT, left, 3, MPI_COMM_WORLD, &status);
    CHECK(is_filled(in, 50000, left) && status.MPI_SOURCE == left);
    MPI_Sendrecv_replace(in, 50000, MPI_INT, left, 4, right, 4, MPI_COMM_WORLD, &status);
    CHECK(is_filled(in, 50000, rank) && status.MPI_SOURCE == right);
    MPI_Request request;
    MPI_Isendrecv(out, 50000, MPI_INT, right, 5, in, 50000, MPI_INT, left, 5, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    CHECK(is_filled(in, 50000, left) && status.MPI_SOURCE == left && status.MPI_TAG == 5);
    MPI_Isendrecv_replace(in, 50000, MPI_INT, left, 6, right, 6, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    CHECK(is_filled(in, 50000, rank) && status.MPI_SOURCE == right);
    free(out);
    free(in);
    /* To and from nobody. */
    int x = 7, count;
    MPI_Sendrecv(&x, 1, MPI_INT, MPI_PROC_NULL, 0, &x, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(x == 7 && count == 0 && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Isend(&x, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Probe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    /* To oneself. */
    int y = 0;
    MPI_Irecv(&y, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, &request);
    MPI_Send(&x, 1, MPI_INT, rank, 8, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    CHECK(y == 7 && status.MPI_SOURCE == rank);
}

static void persistent(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in, out = 0;
    MPI_Request requests[2];
    MPI_Ssend_init(&out, 1, MPI_INT, right, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, left, 9, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 100; i++) {
        MPI_Status status;
        int flag;
        out = rank + 1000 * i;
        in = -1;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == left + 1000 * i && requests[0] != MPI_REQUEST_NULL);
        MPI_Test(&requests[0], &flag, &status);
        CHECK(flag && status.MPI_SOURCE == MPI_ANY_SOURCE); /* inactive */
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    CHECK(requests[0] == MPI_REQUEST_NULL);
}

/* Any, some and all, waiting and testing, with null requests among them. */
static void several(void)
{
    enum { N = 40 };
    MPI_Request requests[N + 1];
    MPI_Status statuses[N + 1];
    int data[N], indices[N + 1], count, index, flag;
    for (int round = 0; round < 6; round++) {
        if (rank == 0) {
            for (int i = 0; i < N; i++)
                MPI_Send(&i, 1, MPI_INT, 1, (i * 7) % N, MPI_COMM_WORLD);
        } else if (rank == 1) {
            int done = 0;
            for (int i = 0; i < N; i++)
                MPI_Irecv(&data[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]);
            requests[N] = MPI_REQUEST_NULL;
            while (done < N) {
                switch (round) {
                case 0:
                    MPI_Waitall(N + 1, requests, statuses);
                    CHECK(statuses[3].MPI_TAG == 3 && statuses[N].MPI_SOURCE == MPI_ANY_SOURCE);
                    done = N;
                    break;
                case 1:
                    MPI_Waitany(N + 1, requests, &index, &statuses[0]);
                    CHECK(statuses[0].MPI_TAG == index && requests[index] == MPI_REQUEST_NULL);
                    done++;
                    break;
                case 2:
                    MPI_Waitsome(N + 1, requests, &count, indices, statuses);
                    CHECK(count > 0 && statuses[0].MPI_TAG == indices[0]);
                    done += count;
                    break;
                case 3:
                    MPI_Testall(N + 1, requests, &flag, statuses);
                    done = flag ? N : 0;
                    break;
                case 4:
                    MPI_Testany(N + 1, requests, &index, &flag, &statuses[0]);
                    CHECK(!flag || statuses[0].MPI_TAG == index);
                    done += flag;
                    break;
                case 5:
                    MPI_Testsome(N + 1, requests, &count, indices, statuses);
                    done += count;
                    break;
                }
            }
            for (int i = 0; i < N; i++)
                CHECK((data[i] * 7) % N == i && requests[i] == MPI_REQUEST_NULL);
            MPI_Waitany(N + 1, requests, &index, &statuses[0]);
            CHECK(index == MPI_UNDEFINED);
            MPI_Testsome(N + 1, requests, &count, indices, statuses);
            CHECK(count == MPI_UNDEFINED);
        }
    }
}

static void probes(void)
{
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    int data[10], flag, count;
    if (rank == 0) {
        fill(data, 10, 5);
        for (int i = 0; i < 4; i++)
            MPI_Send(data, 10 - i, MPI_INT, 1, 20 + i, MPI_COMM_WORLD);
    } else if (rank == 1) {
        do
            MPI_Iprobe(MPI_ANY_SOURCE, 21, MPI_COMM_WORLD, &flag, &status);
        while (!flag);
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 21);
        MPI_Mprobe(0, 20, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 10);
        /* The message is ours: a probe does not find it again. */
        MPI_Iprobe(0, 20, MPI_COMM_WORLD, &flag, &status);
        CHECK(!flag);
        MPI_Mrecv(data, 10, MPI_INT, &message, &status);
        CHECK(message == MPI_MESSAGE_NULL && is_filled(data, 10, 5));
        do
            MPI_Improbe(0, 22, MPI_COMM_WORLD, &flag, &message, &status);
        while (!flag);
        MPI_Imrecv(data, 10, MPI_INT, &message, &request);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 8 && status.MPI_TAG == 22);
        MPI_Recv(data, 10, MPI_INT, 0, 21, MPI_COMM_WORLD, &status);
        MPI_Recv(data, 10, MPI_INT, 0, 23, MPI_COMM_WORLD, &status);
        MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
        CHECK(message == MPI_MESSAGE_NO_PROC);
        MPI_Mrecv(data, 10, MPI_INT, &message, &status);
        CHECK(message == MPI_MESSAGE_NULL && status.MPI_SOURCE == MPI_PROC_NULL);
    }
}

static void cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int x, flag;
    MPI_Irecv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    /* A request may be asked and kept. */
    MPI_Irecv(&x, 1, MPI_INT, rank, 78, MPI_COMM_WORLD, &request);
    MPI_Request_get_status(request, &flag, &status);
    CHECK(!flag);
    MPI_Send(&rank, 1, MPI_INT, rank, 78, MPI_COMM_WORLD);
    do
        MPI_Request_get_status(request, &flag, &status);
    while (!flag);
    CHECK(status.MPI_TAG == 78 && request != MPI_REQUEST_NULL);
    MPI_Test(&request, &flag, &status);
    CHECK(flag && x == rank && status.MPI_TAG == 78);
    MPI_Test_cancelled(&status, &flag);
    CHECK(!flag);
}

/* Large counts, buffers of communicators, status fields. */
static void modern(void)
{
    MPI_Status status;
    MPI_Count count;
    long long big = 1LL << 40;
    if (rank == 0) {
        MPI_Send_c(&big, (MPI_Count)1, MPI_LONG_LONG, 1, 30, MPI_COMM_WORLD);
        MPI_Comm_attach_buffer(MPI_COMM_WORLD, MPI_BUFFER_AUTOMATIC, 0);
        for (int i = 0; i < 50; i++)
            MPI_Bsend(&i, 1, MPI_INT, 1, 31, MPI_COMM_WORLD);
        MPI_Comm_flush_buffer(MPI_COMM_WORLD);
        void *address;
        int bytes;
        MPI_Comm_detach_buffer(MPI_COMM_WORLD, &address, &bytes);
        CHECK(address == MPI_BUFFER_AUTOMATIC);
    } else if (rank == 1) {
        big = 0;
        MPI_Recv_c(&big, 1, MPI_LONG_LONG, 0, 30, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_LONG_LONG, &count);
        CHECK(big == 1LL << 40 && count == 1);
        for (int i = 0, x; i < 50; i++) {
            MPI_Recv(&x, 1, MPI_INT, 0, 31, MPI_COMM_WORLD, &status);
            CHECK(x == i);
        }
    }
    int value;
    MPI_Status_set_source(&status, 3);
    MPI_Status_set_tag(&status, 4);
    MPI_Status_set_error(&status, MPI_ERR_TAG);
    MPI_Status_set_cancelled(&status, 1);
    MPI_Status_set_elements_c(&status, MPI_DOUBLE, (MPI_Count)1 << 33);
    MPI_Status_get_source(&status, &value);
    CHECK(value == 3);
    MPI_Status_get_tag(&status, &value);
    CHECK(value == 4);
    MPI_Status_get_error(&status, &value);
    CHECK(value == MPI_ERR_TAG);
    MPI_Get_elements_c(&status, MPI_DOUBLE, &count);
    CHECK(count == (MPI_Count)1 << 33);
    MPI_Get_count(&status, MPI_DOUBLE, &value);
    CHECK(value == MPI_UNDEFINED);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    modes();
    order();
    exchanges();
    persistent();
    several();
    probes();
    cancelled();
    modern();
    return finish();
}
