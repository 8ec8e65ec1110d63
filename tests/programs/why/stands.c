/* Programs that stand still for ever, and others that only seem to, for each way a word. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_S 5 /* longer than it takes until a standstill is certain */

static int rank, size;

__attribute__((noinline)) static void receive(int from, int tag)
{
    int got;
    MPI_Recv(&got, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE receive */
}

static void send(int to, int tag)
{
    MPI_Send(&rank, 1, MPI_INT, to, tag, MPI_COMM_WORLD);
}

static void *receive_in_thread(void *unused)
{
    receive(1 - rank, 0);
    return unused;
}

static void *send_late(void *unused)
{
    sleep(SLOW_S);
    send(1 - rank, 0);
    return unused;
}

static void *send_when_told(void *unused)
{
    char byte;
    if (read(*(int *)unused, &byte, 1) == 1)
        send(1 - rank, 0);
    return NULL;
}

static int query(void *state, MPI_Status *status)
{
    (void)state;
    MPI_Status_set_elements(status, MPI_INT, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int nothing(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int no_cancel(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

static void *complete_late(void *request)
{
    sleep(SLOW_S);
    MPI_Grequest_complete(*(MPI_Request *)request);
    return NULL;
}

/* All ranks wait for each other, and a thread of rank 0 frees them after a while. */
static void freed_by(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (rank == 0)
        pthread_create(&thread, NULL, body, argument);
    receive(1 - rank, 0);
    if (rank == 0)
        pthread_join(thread, NULL);
    else
        send(0, 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int level, flag = 0;
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(what, "circle")) {
        receive((rank + 1) % size, 5);
    } else if (!strcmp(what, "circle-of-threads")) {
        pthread_t thread;
        pthread_create(&thread, NULL, receive_in_thread, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "some")) {
        /* Ranks 0 and 1 for ever, the others for a while. */
        if (rank < 2)
            receive(1 - rank, 5);
        else
            sleep(2 * SLOW_S);
    } else if (!strcmp(what, "sleeping-thread")) {
        freed_by(send_late, NULL);
    } else if (!strcmp(what, "reading-thread")) {
        int ends[2];
        if (pipe(ends) || (rank == 0 && fork() == 0)) {
            sleep(SLOW_S);
            _exit(write(ends[1], "", 1) != 1);
        }
        freed_by(send_when_told, &ends[0]);
    } else if (!strcmp(what, "testing")) {
        MPI_Request request;
        int got;
        MPI_Irecv(&got, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, &request);
        double end = MPI_Wtime() + SLOW_S;
        while (!flag) {
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            if (rank == 0 && end && MPI_Wtime() > end) {
                send(1, 0);
                end = 0;
            }
            if (rank == 1 && flag)
                send(0, 0);
            usleep(1000);
        }
    } else if (!strcmp(what, "asleep")) {
        if (rank == 0) {
            sleep(SLOW_S);
            send(1, 0);
        } else
            receive(0, 0);
    } else if (!strcmp(what, "generalized")) {
        if (rank == 0) {
            MPI_Request request;
            pthread_t thread;
            MPI_Grequest_start(query, nothing, no_cancel, NULL, &request);
            pthread_create(&thread, NULL, complete_late, &request);
            MPI_Request copy = request;
            MPI_Wait(&copy, MPI_STATUS_IGNORE);
            pthread_join(thread, NULL);
            send(1, 0);
        } else
            receive(0, 0);
    } else if (!strcmp(what, "passive")) {
        int *memory, one = 1;
        MPI_Win window;
        MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        if (rank == 0) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
            send(1, 1);
            sleep(SLOW_S);
            MPI_Put(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
            MPI_Win_unlock(1, window);
            send(1, 0);
        } else {
            receive(0, 1);
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            MPI_Win_unlock(1, window);
            receive(0, 0);
        }
        MPI_Win_free(&window);
    } else if (!strcmp(what, "large")) {
        /* Takes its time, and something moves all along. */
        static char part[1 << 20];
        double end = MPI_Wtime() + SLOW_S;
        for (int going = 1; going;) {
            if (rank == 0) {
                going = MPI_Wtime() < end;
                memcpy(part, &going, sizeof going);
                MPI_Send(part, sizeof part, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            } else {
                MPI_Recv(part, sizeof part, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                memcpy(&going, part, sizeof going);
            }
        }
    } else if (!strcmp(what, "stopped")) {
        /* The test stops rank 1 while it waits, and has rank 0 send and go. */
        if (rank == 0) {
            int signal;
            sigwait(&usr1, &signal);
            send(1, 0);
            MPI_Finalize();
            return 0;
        }
        receive(0, 0);
    }
    printf("done\n");
    MPI_Finalize();
    return 0;
}
