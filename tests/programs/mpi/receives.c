/* Requests of receives: what their handles mean while the message is away, when it is here, and when they are old. */
#include "check.h"

#include <pthread.h>

enum { MANY = 200, TAG = 5, THREADS = 3, ROUNDS = 400, WINDOW = 16 };

static int next, rank, ranks;

/* The statuses can be seen twice, and the requests stay; only then they are completed. */
static void statuses_are_kept(void) {
    int got[MANY], sent[MANY];
    MPI_Request in[MANY], out[MANY];
    for (int i = 0; i < MANY; i++) {
        got[i] = -1;
        sent[i] = 1000 * rank + i;
        MPI_Irecv(got + i, 1, MPI_INT, i % 3 ? next : MPI_ANY_SOURCE, TAG + i, MPI_COMM_WORLD, in + i);
    }
    for (int i = MANY - 1; i >= 0; i--)
        MPI_Isend(sent + i, 1, MPI_INT, next, TAG + i, MPI_COMM_WORLD, out + i);
    MPI_Request before[MANY];
    for (int i = 0; i < MANY; i++)
        before[i] = in[i];
    for (int i = 0; i < MANY; i += 7)
        for (int time = 0; time < 2; time++) {
            int flag = 0;
            MPI_Status status;
            while (!flag)
                MPI_Request_get_status(in[i], &flag, &status);
            int count;
            MPI_Get_count(&status, MPI_INT, &count);
            CHECK(status.MPI_SOURCE == next && status.MPI_TAG == TAG + i && count == 1);
            CHECK(in[i] == before[i] && got[i] == 1000 * next + i);
        }
    MPI_Status all[MANY];
    MPI_Waitall(MANY, in, all);
    for (int i = 0; i < MANY; i++)
        CHECK(in[i] == MPI_REQUEST_NULL && all[i].MPI_TAG == TAG + i && got[i] == 1000 * next + i);
    MPI_Waitall(MANY, out, MPI_STATUSES_IGNORE);

    /* Old handles are known as such. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int flag;
    CHECK(class_of(MPI_Wait(before, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Test(before + 1, &flag, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Request_free(before + 2)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Cancel(before + 3)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Start(before + 4)) == MPI_ERR_REQUEST);
}

/* A receive that is freed receives; one that is cancelled does not, and one that is begun cannot be started. */
static void freed_and_cancelled(void) {
    int got = -1, none = -1, sent = rank;
    MPI_Request request, old;
    MPI_Irecv(&got, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &request);
    old = request;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Request_free(&request);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Wait(&old, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    MPI_Send(&sent, 1, MPI_INT, next, TAG, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The message was sent before the barrier; a receive behind it finds it done. */
    MPI_Sendrecv(&sent, 1, MPI_INT, next, TAG + 1, &none, 1, MPI_INT, next, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == next && none == next);

    MPI_Irecv(&got, 1, MPI_INT, next, TAG + 2, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Status status;
    int cancelled;
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled && request == MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One of a window is too long for its buffer: the others say that they are well, and those after it are completed. */
static void one_of_a_window_fails(void) {
    int got[4], sent[2] = {7, 8};
    MPI_Request in[4];
    for (int i = 0; i < 4; i++)
        MPI_Irecv(got + i, 1, MPI_INT, next, TAG + i, MPI_COMM_WORLD, in + i);
    for (int i = 0; i < 4; i++)
        MPI_Send(sent, i == 2 ? 2 : 1, MPI_INT, next, TAG + i, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Status all[4];
    CHECK(class_of(MPI_Waitall(4, in, all)) == MPI_ERR_IN_STATUS);
    for (int i = 0; i < 4; i++) {
        CHECK(class_of(all[i].MPI_ERROR) == (i == 2 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
        CHECK(in[i] == MPI_REQUEST_NULL && got[i] == 7);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Threads complete windows of their own at the same time. */
static void *windows(void *number) {
    int tag = 100 + (int)(long)number;
    for (int round = 0; round < ROUNDS; round++) {
        int got[WINDOW], sent[WINDOW];
        MPI_Request requests[2 * WINDOW];
        for (int i = 0; i < WINDOW; i++) {
            sent[i] = tag * 1000 + round + i;
            MPI_Irecv(got + i, 1, MPI_INT, next, tag, MPI_COMM_WORLD, requests + 2 * i);
            MPI_Isend(sent + i, 1, MPI_INT, next, tag, MPI_COMM_WORLD, requests + 2 * i + 1);
        }
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < WINDOW; i++)
            CHECK(got[i] == sent[i] && requests[2 * i] == MPI_REQUEST_NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, argc > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ranks == 2);
    next = 1 - rank;
    statuses_are_kept();
    freed_and_cancelled();
    one_of_a_window_fails();
    if (provided == MPI_THREAD_MULTIPLE) {
        pthread_t threads[THREADS];
        for (long i = 0; i < THREADS; i++)
            pthread_create(threads + i, NULL, windows, (void *)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    return finish();
}
