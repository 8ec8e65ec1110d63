/* Threads that call the library at the same time, each with the answer that it must get.
 * Usage: threads <threads, at least 2> <rounds>
 * First each thread has a communicator of its own, then all share one and differ by tag; at the end threads of a rank
 * exchange with each other, one waits for what another began, and all take messages from one queue. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 16, MOST_INTS = 60000 };
static int rank, size, threads, rounds;
static MPI_Comm own[MOST_THREADS], shared;
static pthread_barrier_t barrier;

static void require(int holds, const char *what, int thread, int round)
{
    if (holds) return;
    fprintf(stderr, "rank %d, thread %d, round %d: %s\n", rank, thread, round, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int value(int from, int thread, int round, int k) { return from * 1000003 + thread * 10007 + round * 101 + k; }

static void fill(int *data, int n, int from, int thread, int round)
{
    for (int k = 0; k < n; k++) data[k] = value(from, thread, round, k);
}

static int is(const int *data, int n, int from, int thread, int round)
{
    for (int k = 0; k < n; k++)
        if (data[k] != value(from, thread, round, k)) return 0;
    return 1;
}

static int length(int thread, int round)
{
    static const int lengths[] = {1, 0, 9, 300, 1, 3000, 17000, 2, MOST_INTS};
    return lengths[(thread * 5 + round) % 9];
}

/* Every exchange that a thread can do without others of its rank; `tag` distinguishes the threads.
 * */
static void exchange(MPI_Comm comm, int thread, int tag, int round, int *out, int *in)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, n = length(thread, round), count;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Message message;
    fill(out, n, rank, thread, round);
    memset(in, 0xff, sizeof *in * (size_t)n);
    switch ((round + thread) % 4) {
    case 0:
        MPI_Irecv(in, n, MPI_INT, left, tag, comm, &requests[0]);
        MPI_Isend(out, n, MPI_INT, right, tag, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        MPI_Sendrecv(out, n, MPI_INT, right, tag, in, n, MPI_INT, MPI_ANY_SOURCE, tag, comm, &status);
        require(status.MPI_SOURCE == left, "wrong source", thread, round);
        break;
    case 2:
        MPI_Issend(out, n, MPI_INT, right, tag, comm, &requests[0]);
        MPI_Mprobe(left, tag, comm, &message, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        require(count == n, "wrong count", thread, round);
        MPI_Mrecv(in, n, MPI_INT, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        break;
    default: {
        int done = 0, index;
        MPI_Recv_init(in, n, MPI_INT, left, tag, comm, &requests[0]);
        MPI_Send_init(out, n, MPI_INT, right, tag, comm, &requests[1]);
        MPI_Startall(2, requests);
        MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
        while (!done) MPI_Test(&requests[1 - index], &done, MPI_STATUS_IGNORE);
        MPI_Request_free(&requests[0]), MPI_Request_free(&requests[1]);
    }
    }
    require(is(in, n, left, thread, round), "wrong data", thread, round);
}

static void collectives(int thread, int round)
{
    MPI_Comm comm = own[thread];
    int64_t sum, mine = rank + thread + round, all[64];
    MPI_Request requests[2];
    int root = round % size, word = rank == root ? value(root, thread, round, 0) : -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, comm);
    require(sum == (int64_t)size * (thread + round) + (int64_t)size * (size - 1) / 2, "wrong sum", thread, round);
    MPI_Iallgather(&mine, 1, MPI_INT64_T, all, 1, MPI_INT64_T, comm, &requests[0]);
    MPI_Ibcast(&word, 1, MPI_INT, root, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int r = 0; r < size; r++) require(all[r] == r + thread + round, "wrong gather", thread, round);
    require(word == value(root, thread, round, 0), "wrong broadcast", thread, round);
    if (round % 5 == 0) MPI_Barrier(comm);
    if (round % 50 == 0) {
        MPI_Comm copy;
        MPI_Comm_dup(comm, &copy);
        MPI_Barrier(copy);
        MPI_Comm_free(&copy);
    }
}

/* What threads of one rank do together. */
static MPI_Request handed_over;
static int handed_in[100];

static void together(int thread, int *out, int *in)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, total = threads * rounds, got;
    /* Threads of one rank are peers too. */
    if (threads % 2 == 0)
        for (int round = 0; round < rounds; round++) {
            int n = length(thread / 2, round), tag = 1000 + thread / 2;
            if (thread % 2) {
                fill(out, n, rank, thread, round);
                MPI_Ssend(out, n, MPI_INT, rank, tag, shared);
            } else {
                MPI_Recv(in, n, MPI_INT, rank, tag, shared, MPI_STATUS_IGNORE);
                require(is(in, n, rank, thread + 1, round), "wrong data from a thread of this rank", thread, round);
            }
        }
    pthread_barrier_wait(&barrier);
    /* One thread begins, another waits, while a third makes progress in a wait of its own. */
    for (int round = 0; round < 50; round++) {
        if (thread == 0) MPI_Irecv(handed_in, 100, MPI_INT, left, 2000, shared, &handed_over);
        pthread_barrier_wait(&barrier);
        if (thread == 1 % threads) {
            MPI_Wait(&handed_over, MPI_STATUS_IGNORE);
            require(is(handed_in, 100, left, 0, round), "wrong data in a request that was handed over", thread, round);
        }
        if (thread == 2 % threads) {
            fill(out, 100, rank, 0, round);
            MPI_Send(out, 100, MPI_INT, right, 2000, shared);
        }
        pthread_barrier_wait(&barrier);
    }
    /* All threads take from one queue what the left neighbour's threads send: each message once. */
    for (int round = 0; round < rounds; round++) {
        int word = thread * rounds + round;
        static int seen[MOST_THREADS * 100000];
        MPI_Request request;
        MPI_Isend(&word, 1, MPI_INT, right, 3000, shared, &request);
        MPI_Recv(&got, 1, MPI_INT, left, 3000, shared, MPI_STATUS_IGNORE);
        require(got >= 0 && got < total, "a message that nobody sent", thread, round);
        require(__atomic_fetch_add(&seen[got], 1, __ATOMIC_RELAXED) == 0, "a message came twice", thread, round);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument;
    int *out = malloc(sizeof(int) * MOST_INTS), *in = malloc(sizeof(int) * MOST_INTS);
    for (int round = 0; round < rounds; round++) {
        exchange(own[thread], thread, 7, round, out, in);
        collectives(thread, round);
    }
    for (int round = 0; round < rounds; round++) exchange(shared, thread, thread, round, out, in);
    pthread_barrier_wait(&barrier);
    together(thread, out, in);
    free(out), free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t others[MOST_THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    require(provided == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE is not provided", 0, 0);
    require(argc == 3 && size <= 64 && atoi(argv[1]) > 1, "usage: threads <threads, 2 or more> <rounds>", 0, 0);
    threads = atoi(argv[1]), rounds = atoi(argv[2]);
    require(threads <= MOST_THREADS && rounds <= 100000, "too many", 0, 0);
    for (int t = 0; t < threads; t++) MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 1; t < threads; t++) pthread_create(&others[t], NULL, work, (void *)(intptr_t)t);
    work((void *)0);
    for (int t = 1; t < threads; t++) pthread_join(others[t], NULL);
    for (int t = 0; t < threads; t++) MPI_Comm_free(&own[t]);
    MPI_Comm_free(&shared);
    MPI_Finalize();
    return 0;
}
