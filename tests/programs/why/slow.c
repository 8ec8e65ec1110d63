/* Programs with MPI_THREAD_MULTIPLE whose ranks wait for long, and go on after that, for each way a
   word. What frees them is a thread or a process that a look at the waits alone does not see. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S 5 /* longer than it takes until a standstill is certain */

static int rank, other;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t *shared;
static int ends[2];
static MPI_Win window;

static void receive(int tag)
{
    int got;
    MPI_Recv(&got, 1, MPI_INT, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send(int tag) { MPI_Send(&rank, 1, MPI_INT, other, tag, MPI_COMM_WORLD); }

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    volatile double x = 1;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
}

static struct timespec in_a_while(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += SLOW_S;
    return at;
}

static void computing(void) { compute(SLOW_S); }

static void timed_condition(void)
{
    struct timespec at = in_a_while();
    pthread_mutex_lock(&mutex);
    while (!pthread_cond_timedwait(&condition, &mutex, &at))
        ;
    pthread_mutex_unlock(&mutex);
}

static void timed_semaphore(void)
{
    struct timespec at = in_a_while();
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    sem_timedwait(&semaphore, &at);
}

static void *hold(void *unused)
{
    pthread_mutex_lock(&mutex);
    sleep(SLOW_S);
    pthread_mutex_unlock(&mutex);
    return unused;
}

/* Waits for a mutex whose holder sleeps. */
static void mutex_of_a_sleeper(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL);
    usleep(200000);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
}

/* A semaphore that another process raises. */
static void semaphore_of_two_processes(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(shared, 1, 0);
    if (fork() == 0) {
        sleep(SLOW_S);
        sem_post(shared);
        _exit(0);
    }
    sem_wait(shared);
    wait(NULL);
}

static void child(void)
{
    if (fork() == 0) {
        sleep(SLOW_S);
        _exit(0);
    }
    wait(NULL);
}

static void pipe_of_a_child(void)
{
    char byte;
    if (pipe(ends))
        return;
    if (fork() == 0) {
        sleep(SLOW_S);
        _exit(write(ends[1], "", 1) != 1);
    }
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    if (poll(&polled, 1, -1) == 1 && read(ends[0], &byte, 1) == 1)
        wait(NULL);
}

static void timer(void)
{
    unsigned long times;
    struct itimerspec at = {.it_value.tv_sec = SLOW_S};
    int clock = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(clock, 0, &at, NULL);
    if (read(clock, &times, sizeof times) != sizeof times)
        exit(1);
}

static void signal_of_a_timer(void)
{
    sigset_t set;
    int got;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    alarm(SLOW_S);
    sigwait(&set, &got);
}

static void probing(void)
{
    int flag;
    double end = MPI_Wtime() + SLOW_S;
    while (MPI_Wtime() < end) {
        MPI_Iprobe(other, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        usleep(2000);
    }
}

static void testing(void)
{
    int flag = 0, got;
    double end = MPI_Wtime() + SLOW_S;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, rank, 78, MPI_COMM_WORLD, &request);
    while (!flag) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        usleep(2000);
        if (end && MPI_Wtime() > end) {
            MPI_Send(&rank, 1, MPI_INT, rank, 78, MPI_COMM_WORLD);
            end = 0;
        }
    }
}

static void openmp(void)
{
#pragma omp parallel num_threads(3)
    {
#pragma omp single
        sleep(SLOW_S);
    }
}

static void *body(void *free_us)
{
    ((void (*)(void))free_us)();
    send(1);
    return NULL;
}

/* All threads of both ranks wait in the library but one of rank 0, which is in `free_us`. */
static void freed_by(void (*free_us)(void))
{
    pthread_t thread;
    if (rank == 0)
        pthread_create(&thread, NULL, body, (void *)free_us);
    receive(1);
    if (rank == 0)
        pthread_join(thread, NULL);
    else
        send(1);
}

static void *answer(void *rounds)
{
    for (long i = 0; i < (long)rounds; i++) {
        receive(2);
        usleep(400000);
        send(3);
    }
    return NULL;
}

/* Messages go round between threads, one every now and then, and main threads wait in a barrier. */
static void pipeline(void)
{
    pthread_t thread;
    const long rounds = 2 * SLOW_S;
    pthread_create(&thread, NULL, answer, (void *)rounds);
    for (long i = 0; i < rounds; i++) {
        send(2);
        receive(3);
    }
    pthread_join(thread, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void *lock_window(void *unused)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    MPI_Win_unlock(1, window);
    return unused;
}

/* Threads wait for a lock whose holder computes. */
static void locked(void)
{
    int *memory, one = 1;
    pthread_t thread;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
        MPI_Put(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
        MPI_Win_flush(1, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        pthread_create(&thread, NULL, lock_window, NULL);
    if (rank == 0) {
        compute(SLOW_S);
        MPI_Win_unlock(1, window);
        send(1);
    } else {
        receive(1);
        pthread_join(thread, NULL);
    }
    MPI_Win_free(&window);
}

static void *wait_all_the_time(void *unused)
{
    receive(9);
    return unused;
}

/* A thread waits all the time for what comes at the end, and the main threads compute. */
static void listener(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_all_the_time, NULL);
    compute(SLOW_S);
    send(9);
    pthread_join(thread, NULL);
}

/* The thread that sends is made late. */
static void late_thread(void)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, wait_all_the_time, NULL);
    sleep(SLOW_S);
    send(9);
    pthread_join(threads[0], NULL);
}

static const struct {
    const char *word;
    void (*free_us)(void);
    void (*run)(void);
} programs[] = {
    {"computing", computing, NULL},
    {"timed-condition", timed_condition, NULL},
    {"timed-semaphore", timed_semaphore, NULL},
    {"mutex-of-a-sleeper", mutex_of_a_sleeper, NULL},
    {"semaphore-of-two-processes", semaphore_of_two_processes, NULL},
    {"child", child, NULL},
    {"pipe", pipe_of_a_child, NULL},
    {"timer", timer, NULL},
    {"signal", signal_of_a_timer, NULL},
    {"probing", probing, NULL},
    {"testing", testing, NULL},
    {"openmp", openmp, NULL},
    {"pipeline", NULL, pipeline},
    {"locked", NULL, locked},
    {"listener", NULL, listener},
    {"late-thread", NULL, late_thread},
};

int main(int argc, char **argv)
{
    int level;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    printf("ready\n");
    fflush(stdout);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (argc < 2 || strcmp(argv[1], programs[i].word))
            continue;
        if (programs[i].free_us)
            freed_by(programs[i].free_us);
        else
            programs[i].run();
        printf("done\n");
    }
    MPI_Finalize();
    return 0;
}
