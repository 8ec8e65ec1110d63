/* Programs with MPI_THREAD_MULTIPLE whose ranks can never go on, for each way a word. Each prints
   `ready` before. */
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8

static int rank, size, other;
static MPI_Comm first, second;
static MPI_Win window;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;
static sem_t semaphore;
static int is_there;

static pthread_t start(void *(*body)(void *), long argument)
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, (void *)argument);
    return thread;
}

static void join(pthread_t thread) { pthread_join(thread, NULL); }

static void receive(int from, int tag)
{
    int got;
    MPI_Recv(&got, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE receive */
}

static void *listen_to(void *tag)
{
    int got;
    MPI_Recv(&got, 1, MPI_INT, other, (int)(long)tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE listen */
    return NULL;
}

static void *listen_to_all(void *tag)
{
    int got;
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, (int)(long)tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE any */
    return NULL;
}

static void *hand_over(void *tag)
{
    MPI_Ssend(&rank, 1, MPI_INT, other, (int)(long)tag, MPI_COMM_WORLD); /* LINE ssend */
    return NULL;
}

static void *probe(void *tag)
{
    MPI_Status status;
    MPI_Probe(other, (int)(long)tag, MPI_COMM_WORLD, &status); /* LINE probe */
    return NULL;
}

static void *wait_for_any(void *unused)
{
    int got[2], at;
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++)
        MPI_Irecv(&got[i], 1, MPI_INT, other, 10 + i, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitany(2, requests, &at, MPI_STATUS_IGNORE); /* LINE waitany */
    return unused;
}

static void *wait_for_all(void *unused)
{
    int got[2];
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++)
        MPI_Irecv(&got[i], 1, MPI_INT, other, 10 + i, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE); /* LINE waitall */
    return unused;
}

static void *wait_for_started(void *unused)
{
    int got;
    MPI_Request request;
    MPI_Recv_init(&got, 1, MPI_INT, other, 12, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* LINE wait */
    return unused;
}

static void *exchange(void *unused)
{
    int got, next = (rank + 1) % size;
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 20, &got, 1, MPI_INT, next, 21, /* LINE sendrecv */
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return unused;
}

static void *meet_in_first(void *unused)
{
    MPI_Barrier(first); /* LINE barrier-first */
    return unused;
}

static void *meet_in_second(void *unused)
{
    MPI_Barrier(second); /* LINE barrier-second */
    return unused;
}

static void *sum_in_second(void *unused)
{
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, second); /* LINE allreduce */
    return unused;
}

static void *fence(void *unused)
{
    MPI_Win_fence(0, window); /* LINE fence */
    return unused;
}

static void *lock_window(void *target)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (int)(long)target, 0, window); /* LINE lock */
    return NULL;
}

static void *call_nothing(void *unused)
{
    int flag;
    for (int i = 0; i < 100; i++)
        MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return unused;
}

/* Two threads of each rank wait for the other rank. */
static void two_tags(void)
{
    pthread_t thread = start(listen_to, 2);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

/* The same of three ranks, each of which waits for the next one. */
static void ring(void)
{
    other = (rank + 1) % size;
    pthread_t thread = start(listen_to, 2);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

/* A thread of rank 0 sends with one tag what a thread of rank 1 awaits with another one. */
static void wrong_tag(void)
{
    pthread_t thread = rank == 0 ? start(hand_over, 8) : start(listen_to, 7);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

static void wildcards(void)
{
    pthread_t thread = start(listen_to_all, 2);
    usleep(300000);
    receive(MPI_ANY_SOURCE, 1);
    join(thread);
}

static void probes(void)
{
    pthread_t thread = start(probe, 5);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

static void waitany(void)
{
    pthread_t thread = start(wait_for_any, 0);
    usleep(300000);
    rank == 0 ? receive(1, 1) : (void)meet_in_first(NULL);
    join(thread);
}

static void waitall(void)
{
    pthread_t thread = start(wait_for_all, 0);
    usleep(300000);
    rank == 0 ? receive(1, 1) : (void)meet_in_first(NULL);
    join(thread);
}

static void persistent(void)
{
    pthread_t thread = start(wait_for_started, 0);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

/* Threads that are joined one after the other meet in two communicators, in different orders. */
static void two_orders(void)
{
    join(start(rank == 0 ? meet_in_first : meet_in_second, 0));
    join(start(rank == 0 ? meet_in_second : meet_in_first, 0));
}

/* Two operations at a time, of which each rank has one that the other has not. */
static void two_operations(void)
{
    pthread_t threads[] = {start(rank == 0 ? meet_in_first : sum_in_second, 0), start(listen_to, 3)};
    join(threads[0]);
    join(threads[1]);
}

static void *send_with_mutex(void *unused)
{
    pthread_mutex_lock(&mutex);
    MPI_Send(&rank, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
    pthread_mutex_unlock(&mutex);
    return unused;
}

/* The thread that would send needs a mutex which the one that receives holds. */
static void mutex_held(void)
{
    pthread_mutex_lock(&mutex);
    pthread_t thread = start(send_with_mutex, 0);
    receive(other, 4);
    pthread_mutex_unlock(&mutex);
    join(thread);
}

static void *send_when_there(void *unused)
{
    pthread_mutex_lock(&mutex);
    while (!is_there)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    MPI_Send(&rank, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
    return unused;
}

static void condition_unmet(void)
{
    pthread_t thread = start(send_when_there, 0);
    receive(other, 4);
    pthread_mutex_lock(&mutex);
    is_there = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    join(thread);
}

static void *send_after_semaphore(void *unused)
{
    sem_wait(&semaphore);
    MPI_Send(&rank, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
    return unused;
}

static void semaphore_down(void)
{
    sem_init(&semaphore, 0, 0);
    pthread_t thread = start(send_after_semaphore, 0);
    receive(other, 4);
    sem_post(&semaphore);
    join(thread);
}

static void *send_as_reader(void *unused)
{
    pthread_rwlock_rdlock(&rwlock);
    MPI_Send(&rank, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
    pthread_rwlock_unlock(&rwlock);
    return unused;
}

static void writer_waits(void)
{
    pthread_rwlock_wrlock(&rwlock);
    pthread_t thread = start(send_as_reader, 0);
    receive(other, 4);
    pthread_rwlock_unlock(&rwlock);
    join(thread);
}

static void *receive_then_meet(void *unused)
{
    listen_to((void *)6);
    pthread_barrier_wait(&both);
    return unused;
}

/* Main threads are in a barrier of threads, which comes before they send. */
static void thread_barrier(void)
{
    pthread_barrier_init(&both, NULL, 2);
    pthread_t thread = start(receive_then_meet, 0);
    pthread_barrier_wait(&both);
    MPI_Send(&rank, 1, MPI_INT, other, 6, MPI_COMM_WORLD);
    join(thread);
}

/* The thread that should send has ended, after calls of its own. */
static void sender_ended(void)
{
    pthread_t thread = start(call_nothing, 0);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

/* The thread that waits is not the one that called last. */
static void last_call_of_another(void)
{
    pthread_t waits = start(listen_to, 9);
    usleep(300000);
    join(start(call_nothing, 0));
    join(waits);
}

static void many_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(listen_to, 7);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

static void openmp(void)
{
#pragma omp parallel num_threads(3)
    {
#pragma omp single
        receive(other, 1);
    }
}

static void openmp_members(void)
{
    volatile int tag = 0;
#pragma omp parallel num_threads(2)
    {
        int mine;
#pragma omp atomic capture
        mine = tag++;
        int got;
        MPI_Recv(&got, 1, MPI_INT, other, mine, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE omp */
    }
}

static void windows(void)
{
    int *memory;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
}

static void fence_or_barrier(void)
{
    windows();
    pthread_t threads[] = {start(rank == 0 ? fence : meet_in_first, 0), start(listen_to, 2)};
    join(threads[0]);
    join(threads[1]);
}

/* Rank 0 holds the lock that rank 1 needs before it sends what rank 0 awaits. */
static void window_locked(void)
{
    windows();
    if (rank == 0) {
        lock_window((void *)1);
        int one = 1;
        MPI_Put(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
        MPI_Win_flush(1, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    pthread_t thread = start(rank == 0 ? listen_to : lock_window, rank == 0 ? 3 : 1);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

static void sends(void)
{
    pthread_t thread = start(hand_over, 8);
    usleep(300000);
    receive(other, 1);
    join(thread);
}

static void sendrecv(void)
{
    pthread_t thread = start(exchange, 0);
    usleep(300000);
    receive((rank + 1) % size, 1);
    join(thread);
}

/* A thread of rank 1 leads it to its end; that of rank 0 has still something to receive. */
static void finished(void)
{
    if (rank == 1) {
        join(start(call_nothing, 0));
        return;
    }
    pthread_t thread = start(listen_to, 2);
    usleep(300000);
    receive(1, 1);
    join(thread);
}

static const struct {
    const char *word;
    void (*run)(void);
} programs[] = {
    {"two-tags", two_tags},
    {"ring", ring},
    {"wrong-tag", wrong_tag},
    {"wildcards", wildcards},
    {"probes", probes},
    {"waitany", waitany},
    {"waitall", waitall},
    {"persistent", persistent},
    {"two-orders", two_orders},
    {"two-operations", two_operations},
    {"mutex", mutex_held},
    {"condition", condition_unmet},
    {"semaphore", semaphore_down},
    {"rwlock", writer_waits},
    {"thread-barrier", thread_barrier},
    {"sender-ended", sender_ended},
    {"last-call", last_call_of_another},
    {"many", many_threads},
    {"openmp", openmp},
    {"openmp-members", openmp_members},
    {"fence", fence_or_barrier},
    {"lock", window_locked},
    {"sends", sends},
    {"sendrecv", sendrecv},
    {"finished", finished},
};

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    other = 1 - rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    printf("ready\n");
    fflush(stdout);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (argc > 1 && !strcmp(argv[1], programs[i].word))
            programs[i].run();
    MPI_Finalize(); /* LINE finalize */
    return 0;
}
