/* Errors of programs with threads, one for each name; those in _right have none. Marks name lines. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 200

static int rank, size;
static MPI_Comm comms[2];

static void *sends(void *unused)
{
    int number = 1;
    MPI_Send(&number, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD); /* LINE level */
    return unused;
}

static void level(void)
{
    int number;
    pthread_t thread;
    pthread_create(&thread, NULL, sends, NULL);
    pthread_join(thread, NULL);
    MPI_Recv(&number, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Two threads of a rank, of which one sends to the other: neither call returns before the other has begun. */
static void *itself(void *is_sender)
{
    int number = 1;
    if (is_sender == NULL) {
        MPI_Recv(&number, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE serialized received */
    } else {
        MPI_Ssend(&number, 1, MPI_INT, rank, 5, MPI_COMM_WORLD); /* LINE serialized sent */
    }
    return NULL;
}

static void *meets(void *comm)
{
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(*(MPI_Comm *)comm); /* LINE together */
    }
    return NULL;
}

static void *frees(void *unused)
{
    MPI_Finalize(); /* LINE finalize */
    return unused;
}

static void both(void *(*does)(void *), void *first, void *second)
{
    pthread_t thread;
    pthread_create(&thread, NULL, does, first);
    does(second);
    pthread_join(thread, NULL);
}

static void freed(int is_known)
{
    static int got;
    int number = 1, is_complete = 0;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &request); /* LINE freed made */
    MPI_Send(&number, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD);
    while (is_known && !is_complete) {
        MPI_Request_get_status(request, &is_complete, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request); /* LINE freed */
}

static void started_right(void)
{
    int number = 1, got = 0;
    MPI_Request request;
    MPI_Recv_init(&got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Start(&request);
    MPI_Send(&number, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

/* The main thread calls while other members of its team are there, with room for one thread alone. */
static void region(int is_right)
{
    int sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    {
        sum += 1;
        if (!is_right) {
#pragma omp master
            MPI_Barrier(MPI_COMM_WORLD); /* LINE region */
        }
    }
    if (is_right) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* A team of one is no other thread. */
#pragma omp parallel num_threads(1)
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int is_serial = strstr(what, "serialized") != NULL, provided;
    if (strcmp(what, "level") == 0 || strcmp(what, "region") == 0 || strcmp(what, "region_right") == 0) {
        MPI_Init(&argc, &argv);
    } else if (strcmp(what, "funneled_right") == 0) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    } else {
        MPI_Init_thread(&argc, &argv, is_serial ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &provided);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    if (strcmp(what, "level") == 0) {
        level();
    } else if (strcmp(what, "serialized") == 0) {
        both(itself, NULL, &size);
    } else if (strcmp(what, "serialized_right") == 0) {
        level();
    } else if (strcmp(what, "together") == 0) {
        both(meets, &comms[0], &comms[0]);
    } else if (strcmp(what, "together_right") == 0) {
        both(meets, &comms[0], &comms[1]);
        both(itself, NULL, &size);
    } else if (strcmp(what, "freed") == 0) {
        freed(0);
    } else if (strcmp(what, "freed_right") == 0) {
        freed(1);
    } else if (strcmp(what, "started_right") == 0) {
        started_right();
    } else if (strcmp(what, "region") == 0 || strcmp(what, "funneled_right") == 0) {
        region(0);
    } else if (strcmp(what, "region_right") == 0) {
        region(1);
    }
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
    if (strcmp(what, "finalize") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, frees, NULL);
        pthread_join(thread, NULL);
    } else {
        MPI_Finalize();
    }
    return 0;
}
