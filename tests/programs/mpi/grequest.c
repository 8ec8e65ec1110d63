/* Waiting for a generalized request that another thread completes: the wait sleeps, and ends when the request does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"

#define SECONDS 1.0

static int query(void *state, MPI_Status *status)
{
    *(int *)state += 1;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int release(void *state)
{
    *(int *)state += 10;
    return MPI_SUCCESS;
}

static int cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

/* Completes the request after a while. */
static void *work(void *request)
{
    struct timespec nap = {(time_t)SECONDS, 0};
    nanosleep(&nap, NULL);
    MPI_Grequest_complete(*(MPI_Request *)request);
    return NULL;
}

/* Seconds of processor time of this process. */
static double used(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

enum way { WAIT, WAITALL, WAITANY, WAITSOME };

/* Waits in one of the ways, for the request alone or beside a receive whose message does not come before it. */
static void waits(enum way way, int beside)
{
    int state = 0, got = 0, index = -1, indices[2], done = 0;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[2];
    pthread_t thread;
    MPI_Grequest_start(query, release, cancel, &state, &requests[0]);
    MPI_Request copy = requests[0];
    if (beside)
        MPI_Irecv(&got, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &requests[1]);
    double since = MPI_Wtime(), before = used();
    CHECK(pthread_create(&thread, NULL, work, &copy) == 0);
    switch (way) {
    case WAIT:
        MPI_Wait(&requests[0], &status);
        break;
    case WAITALL:
        MPI_Waitall(1, requests, &status);
        break;
    case WAITANY:
        MPI_Waitany(2, requests, &index, &status);
        CHECK(index == 0);
        break;
    case WAITSOME:
        MPI_Waitsome(2, requests, &done, indices, statuses);
        CHECK(done == 1 && indices[0] == 0);
        status = statuses[0];
        break;
    }
    double took = MPI_Wtime() - since, cost = used() - before;
    pthread_join(thread, NULL);
    CHECK(requests[0] == MPI_REQUEST_NULL && state == 11);
    int elements;
    MPI_Get_elements(&status, MPI_INT, &elements);
    CHECK(elements == 3);
    CHECK(took >= 0.99 * SECONDS);
    if (cost >= took / 10) {
        fprintf(stderr, "way %d: %.3f s of processor time in a wait of %.3f s\n", way, cost, took);
        failures++;
    }
    if (beside) {
        int sent = 5;
        MPI_Send(&sent, 1, MPI_INT, 0, 7, MPI_COMM_SELF);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        CHECK(got == 5);
    }
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    waits(WAIT, 0);
    waits(WAITALL, 0);
    waits(WAITANY, 0);
    waits(WAITANY, 1);
    waits(WAITSOME, 1);
    return finish();
}
